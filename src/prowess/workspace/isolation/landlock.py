"""Builds the Landlock command, for machines without user namespaces: file rules of the kernel, and no sockets.

The program sees little of /proc and has no /dev/shm. `selftest` finds out what else holds on this machine.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

from prowess.workspace.isolation.bwrap import SYSTEM_FILES, SYSTEM_NAMES
from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process.command import Command, Landlock, ProcessLimits

SYSTEM = ("/usr", *(f"/{name}" for name in SYSTEM_NAMES), *SYSTEM_FILES, *kernel.PROC)
OWN = tuple(f"/proc/self/{name}" for name in kernel.PROC_OF_FIRST)  # as the command itself finds them
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TERMINAL = ("/dev/tty", "/proc/self/fd/0")  # as the command itself finds them: only its own terminal of /dev/pts
_filter = functools.cache(kernel.filter_program)


def walled(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    read: Sequence[str] = (),
    write: Sequence[str] = (),
    uid: int | None = None,
    gid: int | None = None,
    limits: ProcessLimits | None = None,
    stdin: bytes | str | os.PathLike[str] | None = None,
    timeout_s: float | None = None,
    tty: bool = False,
) -> Command:
    """Returns the command that runs `argv`. It can read the system and `read`, and write to `write`."""
    devices = [*filter(os.path.exists, DEVICES)]
    if tty:
        devices += TERMINAL
    landlock = Landlock(read=(*SYSTEM, *OWN, *read), write=(*write, *devices))
    return Command(
        argv=argv,
        cwd=cwd,
        env=env,
        stdin=stdin,
        timeout_s=timeout_s,
        limits=limits or ProcessLimits(),
        uid=uid,
        gid=gid,
        landlock=landlock,
        seccomp=_filter(namespaces=False),
        tty=tty,
    )
