"""Limits of one run, and the watcher that ends a run that writes too much.

The names are those of `workspace.limits` in the configuration. `Isolation.limits` reports for each limit if it is
enforced. A limit in `workspace.require` that is not enforced is an error.

The disk limit is best effort: the watcher looks once a second, and a fast writer can pass the limit in between. The
limits of the executor hold all the time.
"""

from __future__ import annotations

import asyncio
import difflib
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prowess.core.values import Isolation
from prowess.errors import ConfigError, WorkspaceError, WorkspaceUnavailable
from prowess.workspace.dirfd import measure_folder
from prowess.workspace.layout import Layout

MIB = 1 << 20


class RunLimits(NamedTuple):
    """Limits of one run in bytes, seconds or counts. None means no limit."""

    memory: int | None = None  # of all processes together
    processes: int | None = 128
    cpu: int | None = 600  # seconds of each process
    open_files: int | None = 1024
    file_size: int | None = 1024 * MIB  # of each file
    tmp: int | None = 64 * MIB  # of /tmp, where the run has one of its own
    disk: int | None = 2048 * MIB  # of all that the run writes to its workspace; checked once a second


NAMES = RunLimits._fields


def parse_limits(given: Mapping[str, float]) -> RunLimits:
    """Reads the limits of the configuration. 0 or less means no limit; a fraction below 1 counts as 1."""
    limits: dict[str, int | None] = {}
    for name, value in given.items():
        _known(name, "workspace.limits")
        if not math.isfinite(value):
            message = f"workspace.limits.{name} is {value}, which is not a finite number."
            raise ConfigError(message, code="limit-invalid", hint="Use 0 for no limit.")
        limits[name] = max(1, int(value)) if value > 0 else None
    return RunLimits(**limits)


def check_installed(isolation: Isolation, require: Sequence[str], limits: RunLimits) -> None:
    """Raises when a limit named in `workspace.require` is not set or not enforced here."""
    for name in require:
        _known(name, "workspace.require")
        if getattr(limits, name) is None:
            message = f"workspace.require names '{name}', but workspace.limits does not set it."
            raise ConfigError(message, code="limit-not-set", hint=f"Set it: [workspace.limits] {name} = …")
        held = isolation.limits.get(name, "absent")
        if held != "enforced":
            where = f"{isolation.executor}, {isolation.mechanism}"
            message = f"The limit '{name}' is required, but here it is {held} ({where})."
            hint = "See what holds: prowess doctor --workspace. Another executor may enforce it."
            raise WorkspaceUnavailable(message, op="limits", code="limit-not-enforced", hint=hint)


def _known(name: str, where: str) -> None:
    if name not in NAMES:
        message = f"{where} names '{name}', which is not a limit."
        hint = f"There are: {', '.join(NAMES)}"
        near = difflib.get_close_matches(name, NAMES, n=1)
        if near:
            hint = f"Did you mean '{near[0]}'?"
        raise ConfigError(message, code="limit-unknown", hint=hint)


LOOK_S = 1.0
MAX_ENTRIES = 200_000


async def watch_disk(layout: Layout, run: str, limit_bytes: int | None) -> str:
    """Waits until the run has written more than `limit_bytes`, then returns a sentence that says so."""
    if limit_bytes is None:
        await asyncio.Event().wait()
        return ""
    before = await asyncio.to_thread(measure, layout, run)
    while True:
        await asyncio.sleep(LOOK_S)
        now = await asyncio.to_thread(measure, layout, run)
        if now is None and before is not None:
            return f"It made more than {MAX_ENTRIES} files and was ended for that."
        wrote = (now or 0) - (before or 0)
        if wrote > limit_bytes:
            return f"It wrote {wrote} bytes, which is more than the limit of {limit_bytes}, and was ended for that."


def measure(layout: Layout, run: str) -> int | None:
    """Counts the bytes on disk in work/, out/, runs/<run>, skills/ and venvs/. None when there are too many files."""
    total = 0
    above = os.path.dirname(layout.root)
    own = [(layout.root, folder) for folder in ("work", "out", f"runs/{run}", "skills")]
    for root, folder in (*own, (above, "venvs")):
        try:
            total += measure_folder(root, folder, max_entries=MAX_ENTRIES)
        except WorkspaceError:
            return None
        except OSError:  # the script goes on while we look
            continue
    return total
