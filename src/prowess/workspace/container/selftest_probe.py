"""Reports as JSON what is possible inside a container; the self-test runs it there like any program.

Imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
CAPABILITIES = ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")
RLIMITS = {"cpu": resource.RLIMIT_CPU, "open_files": resource.RLIMIT_NOFILE, "file_size": resource.RLIMIT_FSIZE}
READ_ONLY = ("/", "/usr/bin", "/etc", "/dev", "/workspace", "/workspace/skills")


def main() -> None:
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    said: dict[str, object] = {"uid": os.getresuid(), "groups": os.getgroups()}
    said["capabilities"] = [int(status[name], 16) for name in CAPABILITIES]
    said["seccomp"] = status["Seccomp"].strip()
    said["limits"] = {name: soft_limit(kind) for name, kind in RLIMITS.items()}
    said["tmp"] = size_of("/" + "tmp")
    said["workspace"] = size_of("/workspace/work")
    said["written"] = [path for path in READ_ONLY if attempt(write, path) == "ok"]
    said["sockets"] = [family for family in (16, 17, 38, 40) if attempt(opened, family) == "ok"]
    said["interfaces"] = os.listdir("/sys/class/net")
    said["process 1"] = attempt(os.listdir, "/proc/1/fd")
    said["ptrace"] = called("ptrace", 0, 0, 0, 0)
    keyctl = 250 if os.uname().machine == "x86_64" else 219
    said["keyctl"] = called("syscall", keyctl, 0, 0, 0, 0)
    said["io_uring"] = called("syscall", 425, 1, 0)
    sys.stdout.write(json.dumps(said))


def soft_limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    if soft == resource.RLIM_INFINITY:
        return None
    return soft


def size_of(folder: str) -> int:
    """Size of the file system, in bytes."""
    system = os.statvfs(folder)
    return system.f_blocks * system.f_frsize


def write(folder: str) -> None:
    path = f"{folder}/written-by-a-script"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.close(fd)


def opened(family: int) -> None:
    kind = socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM
    made = socket.socket(family, kind)
    made.close()


def called(name: str, *arguments: int) -> str:
    """Calls a function of libc. Returns "ok" or the name of the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, name)
    numbers = [ctypes.c_long(argument) for argument in arguments]
    if function(*numbers) >= 0:
        return "ok"
    return errno.errorcode.get(ctypes.get_errno(), "refused")


def attempt(do: Callable[[T], object], argument: T) -> str:
    """Returns "ok" or the name of the error."""
    try:
        do(argument)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


if __name__ == "__main__":
    main()
