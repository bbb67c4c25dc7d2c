"""A freshly forked process becomes the command, with exactly what it was given, or says at which step it could not.

Runs in a child of the supervisor, and parts of it in one of a watcher: the standard library and kernel.py alone.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import signal
import socket
import stat
import sys
import termios
from typing import Any, NoReturn

from prowess.workspace.process import seccomp as kernel


def become(source: socket.socket, errors: int) -> NoReturn:
    """Wait for what to be: [spec, stdin, stdout, stderr, …]. Nothing but a failure returns from the last step; it is
    written to `errors`, which a good start closes."""
    step, failure = "prepare", {"errno": 0, "text": ""}
    try:
        init = os.getppid()
        default_signals()
        kernel.signal_when_parent_ends(signal.SIGKILL)
        data, fds, _, _ = socket.recv_fds(source, 16, 64, socket.MSG_CMSG_CLOEXEC)
        if not data or os.getppid() != init:
            raise ProcessLookupError(errno.ESRCH, "nobody has a use for this process")
        document, *descriptors = fds
        with open(document, "rb") as file:
            spec: dict[str, Any] = json.load(file)
        os.setsid()
        step = "descriptors"
        errors = place(descriptors, spec["fds"], errors)
        if spec["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o077)
        step = "cgroup"
        for path in spec["cgroups"]:
            _join(path)
        step = "limits"
        kernel.limit_resources(spec["limits"])
        step = "user"
        if spec["uid"] is not None:
            give_streams(spec["uid"], spec["gid"])
            kernel.become_user(spec["uid"], spec["gid"])
        kernel.signal_when_parent_ends(signal.SIGKILL)  # changing the user would have undone it
        if os.getppid() != init:
            raise ProcessLookupError(errno.ESRCH, "the process that started this one is gone")
        step = "cwd"
        os.chdir(spec["cwd"])
        step = "isolation"
        kernel.no_new_privileges()
        if spec["landlock"] is not None:
            kernel.landlock_restrict(spec["landlock"]["read"], spec["landlock"]["write"])
        if spec["seccomp"] is not None:
            kernel.seccomp_install(base64.b64decode(spec["seccomp"]))
        step = "exec"
        execute(spec["argv"], spec["env"])
    except OSError as error:
        failure = {"errno": error.errno or 0, "text": str(error)}
    except ValueError as error:  # a NUL, or a character that no encoding has
        failure = {"errno": errno.EINVAL, "text": str(error)}
    finally:  # not even a mistake of ours may return into the parent's code, or look like the command's own failure
        if (unexpected := sys.exc_info()[1]) is not None:
            failure = {"errno": 0, "text": repr(unexpected)}
        failure["text"] = str(failure["text"])[:500]  # what is written at once arrives at once, and whole
        os.write(errors, json.dumps({"step": step, **failure}).encode())
        os._exit(127)


def default_signals() -> None:
    """What is ignored stays ignored in a new program, and Python ignores these; what is handled becomes the default."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def place(descriptors: list[int], numbers: list[int], errors: int) -> int:
    """Put each descriptor under its number and close all others but `errors`, which may move."""
    above = max(numbers) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in descriptors]
    errors = fcntl.fcntl(errors, fcntl.F_DUPFD_CLOEXEC, above)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        if int(name) not in (*numbers, errors):
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                pass
    return errors


def give_streams(uid: int, gid: int) -> None:
    """Whoever opens /dev/stdout opens the pipe anew, and must be its owner for that."""
    for fd in (0, 1, 2):
        if stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd):
            os.fchown(fd, uid, gid)


def _join(path: str) -> None:
    """Whatever this process becomes or starts is counted there from now on."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def execute(argv: list[str], env: dict[str, str]) -> None:
    """A name without a slash is looked for in the command's own PATH, in absolute folders only. Never a shell."""
    folders = [folder for folder in env.get("PATH", "").split(":") if folder.startswith("/")]
    paths = [argv[0]] if "/" in argv[0] else [os.path.join(folder, argv[0]) for folder in folders]
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    for path in paths:
        try:
            os.execve(path, argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:  # there may be one further on that can be executed
            problem = error
    raise problem
