"""Watches one command on systems without the supervisor, and ends its process group.

The watcher starts the command in a new session. When the command ends, reaches its time-out or is to be killed, the
watcher ends the process group. A process that leaves the group is not found.

Started by path: `python -I -S posix_watcher.py CONTROL SPEC STREAM…`, all descriptors. CONTROL carries the messages of
the supervisor's init, one per line; when its other end closes, the command is ended. Imports the standard library and
the modules below; uses nothing that only Linux has.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import signal
import sys
import termios
import time
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from prowess.workspace.process.child import default_signals, execute, give_streams, place
from prowess.workspace.process.seccomp import limit_resources

SWEEP_S = 1.0  # how long to wait for killed processes
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def main(words: list[str]) -> None:
    control, document, *descriptors = map(int, words)
    for fd in (control, document, *descriptors):
        os.set_inheritable(fd, False)
    with open(document, "rb") as file:
        spec: dict[str, Any] = json.load(file)
    Watcher(control, spec).run(descriptors)


class Watcher:
    def __init__(self, control: int, spec: dict[str, Any]) -> None:
        self.control, self.spec = control, spec
        self.why = "exit"
        self.status: int | None = None  # as returned by wait(2)
        self.started_at = self.ended_at = time.monotonic()

    def run(self, descriptors: list[int]) -> None:
        self.wake, wake_writer = os.pipe()
        for fd in (self.wake, wake_writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_writer)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        errors, errors_of_command = os.pipe()
        self.command = os.fork()
        if self.command == 0:
            become(self.spec, descriptors, errors_of_command)
        for fd in (*descriptors, errors_of_command):
            os.close(fd)
        if failure := os.read(errors, 4096):  # a successful start closes it
            self.tell({"failed": json.loads(failure)})
            return
        self.tell({"started": self.command})
        self.attend()
        survivors = self.end_group()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = self.status
        ended = {
            "why": self.why,
            "exit_code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "duration_s": self.ended_at - self.started_at,
            "survivors": survivors,
            "left": 0,
            "cpu_s": used.ru_utime + used.ru_stime,
            "max_rss_bytes": used.ru_maxrss * RSS_UNIT,
        }
        self.tell({"ended": ended})

    def attend(self) -> None:
        """Waits until the command has ended, or its grace period is over."""
        timeout_s = self.spec["timeout_s"]
        until = None if timeout_s is None else self.started_at + timeout_s
        while not self.reap():
            watched = [self.wake] if self.why != "exit" else [self.wake, self.control]
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = select.select(watched, [], [], left)[0]
            got = os.read(self.wake, 4096) if self.wake in ready else b""
            over = until is not None and time.monotonic() >= until
            if self.why != "exit":
                if over:
                    return
            elif self.control in ready or signal.SIGTERM in got or over:
                if self.reap():  # it ended in the meantime
                    return
                self.why = self.who_ends_it(self.control in ready, signal.SIGTERM in got)
                until = time.monotonic() + self.spec["grace_s"]
                for number in (signal.SIGTERM, signal.SIGCONT):
                    signal_group(self.command, number)

    def who_ends_it(self, client: bool, told: bool) -> str:
        if client:
            try:
                return "kill" if os.read(self.control, 4096) else "closed"
            except ConnectionResetError:
                return "closed"
        return "supervisor" if told else "timeout"

    def reap(self, flags: int = os.WNOHANG) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.command, flags)
            if pid:
                self.status, self.ended_at = status, time.monotonic()
        return self.status is not None

    def end_group(self) -> int:
        """Ends the process group. Returns 1 if processes were left in it (their number is unknown), else 0."""
        if self.status is None:
            signal_group(self.command, signal.SIGKILL)
            self.reap(flags=0)
        survivors = 0
        until = time.monotonic() + SWEEP_S
        while signal_group(self.command, signal.SIGKILL) and time.monotonic() < until:
            survivors = 1
            select.select([], [], [], 0.002)
        return survivors

    def tell(self, message: dict[str, Any]) -> None:
        try:
            os.write(self.control, json.dumps(message).encode() + b"\n")
        except OSError:  # the client is gone
            pass


def signal_group(group: int, number: int) -> bool:
    """Sends a signal to the group. False when the group is empty."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # PermissionError: on some systems, when all its processes have ended
        return False
    return True


def become(spec: dict[str, Any], descriptors: list[int], errors: int) -> NoReturn:
    """Becomes the command, or writes the failed step to `errors`."""
    step, failure = "prepare", {"errno": 0, "text": ""}
    try:
        default_signals()
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        step = "descriptors"
        errors = place(descriptors, spec["fds"], errors)
        if spec["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o077)
        step = "limits"
        limit_resources(spec["limits"])
        step = "user"
        if spec["uid"] is not None:
            give_streams(spec["uid"], spec["gid"])
            become_user(spec["uid"], spec["gid"])
        step = "cwd"
        os.chdir(spec["cwd"])
        step = "exec"
        execute(spec["argv"], spec["env"])
    except OSError as error:
        failure = {"errno": error.errno or 0, "text": str(error)}
    except ValueError as error:  # a NUL, or a character that cannot be encoded
        failure = {"errno": errno.EINVAL, "text": str(error)}
    finally:
        failure["text"] = str(failure["text"] or repr(sys.exc_info()[1]))[:500]
        os.write(errors, json.dumps({"step": step, **failure}).encode())
        os._exit(127)


def become_user(uid: int, gid: int) -> None:
    """Changes user and group permanently, and checks the result."""
    os.setgroups([])
    os.setregid(gid, gid)
    os.setreuid(uid, uid)
    if (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) != (uid, uid, gid, gid):
        raise PermissionError(errno.EPERM, f"could not become user {uid}, group {gid}")


if __name__ == "__main__":
    main(sys.argv[1:])
