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

RLIMITS = {"cpu": resource.RLIMIT_CPU, "open_files": resource.RLIMIT_NOFILE, "file_size": resource.RLIMIT_FSIZE}
READ_ONLY = ("/", "/usr/bin", "/etc", "/dev", "/workspace", "/workspace/skills")


def main() -> None:
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    tmp, workspace = os.statvfs("/" + "tmp"), os.statvfs("/workspace/work")
    said = {
        "uid": os.getresuid(),
        "groups": os.getgroups(),
        "capabilities": [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")],
        "seccomp": status["Seccomp"].strip(),
        "limits": {name: finite(resource.getrlimit(kind)[0]) for name, kind in RLIMITS.items()},
        "tmp": tmp.f_blocks * tmp.f_frsize,
        "workspace": workspace.f_blocks * workspace.f_frsize,
        "written": [path for path in READ_ONLY if attempt(lambda path=path: write(path)) == "ok"],
        "sockets": [family for family in (16, 17, 38, 40) if attempt(lambda family=family: opened(family)) == "ok"],
        "interfaces": os.listdir("/sys/class/net"),
        "process 1": attempt(lambda: os.listdir("/proc/1/fd")),
        "ptrace": called("ptrace", 0, 0, 0, 0),
        "keyctl": called("syscall", 250 if os.uname().machine == "x86_64" else 219, 0, 0, 0, 0),
        "io_uring": called("syscall", 425, 1, 0),
    }
    sys.stdout.write(json.dumps(said))


def finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def write(folder: str) -> None:
    path = f"{folder}/written-by-a-script"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def opened(family: int) -> None:
    socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM).close()


def called(name: str, *arguments: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*(ctypes.c_long(argument) for argument in arguments)) >= 0:
        return "ok"
    return errno.errorcode.get(ctypes.get_errno(), "refused")


def attempt(do: Callable[[], object]) -> str:
    try:
        do()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


if __name__ == "__main__":
    main()
