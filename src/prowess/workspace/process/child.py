"""Turns a freshly forked process into the command, or reports the step that failed.

Runs in a child of the supervisor; the watcher uses parts of it. Imports only the standard library and seccomp.py.
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

from prowess.workspace.process import seccomp as kernel

TYPE_CHECKING = False  # importing typing would take a tenth of the start
if TYPE_CHECKING:
    from typing import Any, NoReturn


def become(source: socket.socket, errors: int) -> NoReturn:
    """Receives [spec, stdin, stdout, stderr, …] from `source` and becomes that command. Never returns: a failure is
    written to `errors`, and a successful start closes `errors`."""
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
        kernel.signal_when_parent_ends(signal.SIGKILL)  # changing the user resets it
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
    except ValueError as error:  # a NUL, or a character that cannot be encoded
        failure = {"errno": errno.EINVAL, "text": str(error)}
    finally:  # even our own bug must not return into the parent's code, or look like a failure of the command
        if (unexpected := sys.exc_info()[1]) is not None:
            failure = {"errno": 0, "text": repr(unexpected)}
        failure["text"] = str(failure["text"])[:500]  # a short write to a pipe arrives in one piece
        os.write(errors, json.dumps({"step": step, **failure}).encode())
        os._exit(127)


def default_signals() -> None:
    """Resets the signals that Python ignores: a new program inherits ignored signals. Handled signals reset by
    themselves."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def place(descriptors: list[int], numbers: list[int], errors: int) -> int:
    """Puts each descriptor under its number and closes all others except `errors`. Returns the new number of
    `errors`."""
    above = max(numbers) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in descriptors]
    errors = fcntl.fcntl(errors, fcntl.F_DUPFD_CLOEXEC, above)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        if int(name) not in (*numbers, errors):
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                pass
    return errors


def give_streams(uid: int, gid: int) -> None:
    """Makes the user the owner of its pipes. Opening /dev/stdout opens the pipe again, which only its owner may do."""
    for fd in (0, 1, 2):
        if stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd):
            os.fchown(fd, uid, gid)


def _join(path: str) -> None:
    """Moves this process into the group. From now on, everything it starts counts there too."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def execute(argv: list[str], env: dict[str, str]) -> None:
    """Executes the program without a shell. A name without a slash is searched in the absolute folders of the command's
    PATH."""
    folders = [folder for folder in env.get("PATH", "").split(":") if folder.startswith("/")]
    paths = [argv[0]] if "/" in argv[0] else [os.path.join(folder, argv[0]) for folder in folders]
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    for path in paths:
        try:
            os.execve(path, argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:  # a later folder may have one that can be executed
            problem = error
    raise problem
