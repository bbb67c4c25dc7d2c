"""What process 1 finds in its container, and how it empties the temporary folders. The standard library alone."""

from __future__ import annotations

import os
import sys
from typing import Any

SCRATCH = tuple(f"/{name}" for name in ("tmp", "dev/shm"))  # which are each container's own


def read_facts() -> dict[str, Any]:
    """What really bounds this container, read where it is in force; None where nothing does."""
    facts: dict[str, Any] = {"python": sys.executable, "uid": os.geteuid(), "gid": os.getegid()}
    for name, files in {
        "memory": ("memory.max", "memory/memory.limit_in_bytes"),
        "processes": ("pids.max", "pids/pids.max"),
    }.items():
        text = read_cgroup(*files).strip()
        facts[name] = int(text) if text.isdigit() else None
    return facts


def identity(path: str) -> list[int]:
    """By which whoever made the container knows the folder again; empty when it is not there."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return []
    return [status.st_dev, status.st_ino, status.st_uid]


def count_ooms() -> int:
    """How many processes of this container the kernel has ended for want of memory."""
    for line in read_cgroup("memory.events", "memory/memory.oom_control").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def make_expendable(pid: int) -> None:
    """When memory is short, the kernel is to end programs, and not those who watch over them."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:  # it has ended already
        pass


def read_cgroup(*files: str) -> str:
    """The first that is there: version 2 has other names for things than version 1."""
    for file in files:
        try:
            with open(f"/sys/fs/cgroup/{file}", encoding="ascii") as opened:
                return opened.read()
        except OSError:
            continue
    return ""


def empty_scratch() -> bool:
    """Nothing runs here: what the last program left in the temporary folders is not for the next. False when some of it
    cannot be removed; then nothing should be run here any more."""
    return all(empty(folder) for folder in SCRATCH)


def remove(path: str) -> bool:
    """A folder of ours, and all that is in it."""
    if not empty(path):
        return False
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def empty(top: str) -> bool:
    """What is not ours in there are mounts, and the way to them. What is deeper than a path can say stays: False."""
    waiting = [top]
    try:
        while waiting:
            folder, below = waiting[-1], []
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        below.append(entry.path)
                    else:
                        os.unlink(entry.path)
            if below:
                waiting += below
                continue
            waiting.pop()
            if folder != top:
                os.rmdir(folder)
    except OSError:
        return False
    return True
