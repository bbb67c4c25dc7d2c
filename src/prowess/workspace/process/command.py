"""Values for one command: what to run, its limits, and its result."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from prowess._internal.light_dataclass import dataclass
from prowess.core.ports import Program
from prowess.errors import WorkspaceError

MOST_FDS = 32
Why = Literal["exit", "timeout", "kill", "closed", "supervisor", "lost"]


class ProcessLimits(NamedTuple):
    """Limits for each process (rlimits), except `processes`, which counts all processes of the user, or of the
    command's own user namespace. None means unchanged. Core dumps are always off."""

    cpu_s: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_bytes: int | None = None


class Landlock(NamedTuple):
    """Paths the command can reach: `read` allows reading and executing, `write` also allows changes."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


class Command(NamedTuple):
    """A program with exactly this environment and only these descriptors. `uid` and `gid` need root.

    `stdin` is the input as bytes, the path of a file, or None. `fds` maps a number to bytes or to a descriptor of ours.
    `wrapped` means that argv[0] is a wrapper like bwrap, which ends when the program inside it ends.
    """

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes | str | os.PathLike[str] | None = None
    timeout_s: float | None = None
    grace_s: float = 0.5
    limits: ProcessLimits = ProcessLimits()
    uid: int | None = None
    gid: int | None = None
    landlock: Landlock | None = None
    seccomp: bytes | None = None
    fds: Mapping[int, int | bytes] = {}
    wrapped: bool = False
    cgroups: tuple[str, ...] = ()  # `cgroup.procs` files of the groups it joins before it changes its user
    tty: bool = False  # for open_session: its own terminal instead of pipes
    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Result of a command, after all its processes are gone. `left` counts processes that survived SIGKILL.

    `why`: "exit" ended by itself · "timeout" reached its time-out · "kill" was killed on request · "closed" the runtime
    closed · "supervisor" the supervisor ended · "lost" init was killed, so exit code and resource use are unknown.
    `survivors_killed` counts processes that were still there and got SIGKILL.
    """

    why: Why
    exit_code: int | None = None
    signal: int | None = None
    duration_s: float = 0.0
    survivors_killed: int = 0
    left: int = 0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0  # of the largest process, and never less than the supervisor's
    oom: bool = False  # the kernel ended at least one process because the run used too much memory
    notes: tuple[str, ...] = ()  # problems around the run

    @property
    def timed_out(self) -> bool:
        return self.why == "timeout"

    @property
    def killed(self) -> bool:
        return self.why not in ("exit", "timeout")


class NotStarted(WorkspaceError):
    """Error: the command or program never ran. `step` and `errno` give the reason: ENOENT at step "exec" means no such
    program."""

    code = "not-started"

    def __init__(self, command: Command | Program, *, step: str, number: int, text: str = "") -> None:
        what = os.strerror(number) if number else text
        message = f"Could not start: {text or what}."
        if step == "exec":
            message = f"Could not start '{command.argv[0]}': {what}."
        retryable = number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE)
        super().__init__(message, op=step, retryable=retryable, hint=_HINTS.get((step, number)))
        self.errno = number
        self.step = step

    @property
    def missing(self) -> bool:
        """True when the program does not exist; False when it exists but cannot be started."""
        if self.step != "exec":
            return False
        return self.errno in (errno.ENOENT, errno.ENOTDIR)


_HINTS = {
    ("exec", errno.ENOENT): "If the file exists, the interpreter in its first line is missing.",
    ("exec", errno.EACCES): "It has to be executable by the user it runs as.",
    ("exec", errno.ENOEXEC): "A script needs a first line such as #!/usr/bin/env python3.",
}


def render_spec(command: Command) -> dict[str, Any]:
    """Returns the command as a JSON value. Strings with undecodable bytes keep these bytes."""
    if not command.argv:
        raise ValueError("a command needs at least the name of its program")
    if command.uid == 0 or command.gid == 0:
        raise ValueError("uid and gid must not be root (0)")
    if any(number < 3 for number in command.fds) or len(command.fds) > MOST_FDS:
        raise ValueError(f"fds must not use 0, 1 or 2 (the streams) and can have at most {MOST_FDS} entries")
    limits: dict[str, int] = {}
    for name in ProcessLimits._fields:
        value = getattr(command.limits, name)
        if value is not None:
            limits[name] = value
    limits["core_bytes"] = 0
    landlock = None
    if command.landlock is not None:
        landlock = {"read": list(command.landlock.read), "write": list(command.landlock.write)}
    seccomp = None
    if command.seccomp is not None:
        seccomp = base64.b64encode(command.seccomp).decode()
    return {
        "argv": list(command.argv),
        "cwd": command.cwd,
        "env": dict(command.env),
        "fds": [0, 1, 2, *command.fds],
        "tty": command.tty,
        "cgroups": list(command.cgroups),
        "limits": limits,
        "uid": command.uid,
        "gid": command.uid if command.gid is None else command.gid,
        "landlock": landlock,
        "seccomp": seccomp,
    }
