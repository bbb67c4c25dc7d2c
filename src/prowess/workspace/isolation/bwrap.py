"""Builds the bubblewrap command of a sandbox from a `Box` value.

The sandbox sees its own processes, a network without any connection, a read-only system, and the files that are bound
into it. Bubblewrap reads its options from a descriptor, because every user of the machine can read a command line. Its
own environment stays empty, because a `Box` may set LD_PRELOAD.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process.command import Command, ProcessLimits

TRUSTED_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin")
SYSTEM_NAMES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl", "/etc/alternatives")
# The system's name and the MIME types: Python and pip read them, and stop at a file that exists but is refused.
SYSTEM_FILES += ("/etc/os-release", "/etc/lsb-release", "/etc/debian_version")
SYSTEM_FILES += tuple(f"/etc/{name}-release" for name in "alpine arch centos fedora redhat SuSE system".split())
SYSTEM_FILES += tuple(f"/etc/{name}mime.types" for name in ("", "httpd/", "httpd/conf/", "apache/", "apache2/"))
ARGS_FD, SECCOMP_FD, STATUS_FD, HOSTS_FD, EMPTY_FD = 8, 9, 11, 12, 13
NAME = "box"  # host name inside, instead of the host's
# A program that connects to its own server uses the name localhost. The names of the host are not shown.
HOSTS = f"127.0.0.1 localhost {NAME}\n::1 localhost\n".encode()
TMP = os.path.join("/", "tmp")  # in every sandbox: new, empty and limited
MIB = 1 << 20
_filter = functools.cache(kernel.filter_program)


class Bind(NamedTuple):
    """Folder or file of the host, and its path in the sandbox."""

    source: str
    target: str
    write: bool = False


class Box(NamedTuple):
    """Contents of a sandbox. `binds` are made in order, so a later one may be inside an earlier one."""

    binds: tuple[Bind, ...] = ()
    chdir: str = "/"
    env: Mapping[str, str] = {}
    system: tuple[Bind, ...] = ()  # always read-only; see `system_of_host`
    links: tuple[tuple[str, str], ...] = ()  # (target, path), such as ("usr/bin", "/bin")
    tmp_bytes: int = 64 * MIB
    shm_bytes: int = 32 * MIB
    processes: int | None = None  # counted inside; needs the program `prlimit`
    prlimit: str | None = None
    tty: bool = False  # the command keeps its own terminal


def bwrap_options(box: Box) -> list[str]:
    """Returns the options of bubblewrap. Each one was shown to be needed or harmless: docs/executors.md."""
    options = ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    options += ["--hostname", NAME]
    options += ["--unshare-cgroup-try", "--disable-userns", "--die-with-parent"]
    if not box.tty:
        options += ["--new-session"]
    for bind in box.system:
        options += ["--ro-bind", bind.source, bind.target]
    for leads_to, path in box.links:
        options += ["--symlink", leads_to, path]
    for path in SYSTEM_FILES:
        options += ["--ro-bind-try", path, path]
    options += ["--ro-bind-data", str(HOSTS_FD), "/etc/hosts"]
    # bubblewrap leaves /proc/sys writable for root of the host, who should not be here at all
    options += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    options += ["--ro-bind-data", str(EMPTY_FD), "/proc/cmdline"]  # hides the kernel's command line of the host
    for name, size in (("dev/shm", box.shm_bytes), ("tmp", box.tmp_bytes)):
        options += ["--size", str(size), "--tmpfs", f"/{name}"]
    for bind in box.binds:
        options += ["--bind" if bind.write else "--ro-bind", bind.source, bind.target]
    # Without this both are writable, and only the memory of the machine limits them.
    options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", box.chdir, "--cap-drop", "ALL", "--clearenv"]
    for name, value in box.env.items():
        options += ["--setenv", name, value]
    options += ["--seccomp", str(SECCOMP_FD)]
    if any("\0" in option for option in options):
        raise ValueError("a path or a variable of a box holds a NUL")
    return options


def boxed(
    bwrap: str,
    box: Box,
    argv: Sequence[str],
    *,
    uid: int | None = None,
    gid: int | None = None,
    limits: ProcessLimits | None = None,
    stdin: bytes | str | os.PathLike[str] | None = None,
    timeout_s: float | None = None,
    status_fd: int | None = None,
    fds: Mapping[int, int | bytes] | None = None,
) -> Command:
    """Returns the command that runs `argv` in the sandbox.

    `limits.processes` would count processes outside; use `Box.processes`. Bubblewrap writes its status to `status_fd`;
    see `has_run`. `fds` are descriptors for `argv`.
    """
    limited = []
    if box.prlimit and box.processes is not None:
        limited = [box.prlimit, f"--nproc={box.processes}", "--"]
    options = bwrap_options(box)
    given: dict[int, int | bytes] = dict(fds or {})
    if status_fd is not None:
        options += ["--json-status-fd", str(STATUS_FD)]
        given[STATUS_FD] = status_fd
    given[ARGS_FD] = os.fsencode("".join(f"{option}\0" for option in options))
    given[SECCOMP_FD] = _filter(namespaces=True)
    given[HOSTS_FD] = HOSTS
    given[EMPTY_FD] = b""
    return Command(
        argv=[bwrap, "--args", str(ARGS_FD), "--", *limited, *argv],
        cwd="/",
        env={},
        stdin=stdin,
        timeout_s=timeout_s,
        limits=limits or ProcessLimits(),
        uid=uid,
        gid=gid,
        fds=given,
        wrapped=True,
        tty=box.tty,
    )


def has_run(status: bytes) -> bool:
    """True when bubblewrap started the program: it reports the program's exit code, but not its own failures."""
    return b'"exit-code"' in status


def system_of_host() -> tuple[tuple[Bind, ...], tuple[tuple[str, str], ...]]:
    """Returns (system, links) for a `Box`: /usr, and folders such as /bin, which are links into it on most systems."""
    binds = [Bind(source="/usr", target="/usr")]
    links = []
    for name in SYSTEM_NAMES:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path):
            binds.append(Bind(source=path, target=path))
    return tuple(binds), tuple(links)


def find_trusted(name: str, folders: Sequence[str] = TRUSTED_FOLDERS) -> str | None:
    """Finds a program of the system. Returns its absolute path, or None unless only root could have put it there."""
    for folder in folders:
        path = os.path.realpath(os.path.join(folder, name))
        if os.path.isabs(folder) and why_not_trusted(path) is None:
            return path
    return None


def why_no_bubblewrap(folders: Sequence[str] = TRUSTED_FOLDERS) -> str | None:
    """Returns why bubblewrap cannot be used, or None when it can."""
    if find_trusted("bwrap", folders) is not None:
        return None
    for folder in folders:
        path = os.path.join(folder, "bwrap")
        if os.path.lexists(path):
            why = why_not_trusted(os.path.realpath(path))
            return f"bubblewrap is not used: {why or path}."
    return "bubblewrap is not installed."


def why_not_trusted(path: str) -> str | None:
    """Returns why a program is not trusted. None when only root owns and can change it and every folder above it."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
            return f"{path} is not a program"
        while True:
            if status.st_uid != 0:
                return f"{path} does not belong to root"
            if status.st_mode & 0o022:
                return f"{path} can be changed by others than root"
            if path == "/":
                return None
            path = os.path.dirname(path)
            status = os.stat(path)
    except OSError as error:
        return str(error)
