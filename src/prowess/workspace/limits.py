"""How much one run may use. What really bounds a run is in the isolation that it reports, limit by limit.

`workspace.limits` in the configuration has these names; a limit that is required and not enforced is an error.

What a run writes is looked at from time to time, and a run that writes too much is ended.

It is a best effort: a fast writer is over the limit before the next look. The executor's own limits hold in between.
"""

from __future__ import annotations

import asyncio
import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from prowess.core.values import Isolation
from prowess.errors import ConfigError, WorkspaceError, WorkspaceUnavailable
from prowess.workspace.dirfd import walk
from prowess.workspace.layout import Layout

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Bytes, seconds or a number. None: no bound is asked for."""

    memory: int | None = None  # of all processes together
    processes: int | None = 128
    cpu: int | None = 600  # seconds of each process
    open_files: int | None = 1024
    file_size: int | None = 1024 * MIB  # of each file
    tmp: int | None = 64 * MIB  # of /tmp, where the run has one of its own
    disk: int | None = 2048 * MIB  # of what the run writes to its workspace; looked at from time to time


NAMES = tuple(field.name for field in fields(RunLimits))


def parse_limits(given: Mapping[str, float]) -> RunLimits:
    """Of the configuration; 0 or less means no bound, and a part of one is one."""
    for name, value in given.items():
        _known(name, "workspace.limits")
        if not math.isfinite(value):
            raise ConfigError(
                f"workspace.limits.{name} is {value}, which is no number to count to.",
                code="limit-invalid",
                hint="Use 0 for no bound.",
            )
    return RunLimits(**{name: max(1, int(value)) if value > 0 else None for name, value in given.items()})


def check_installed(isolation: Isolation, require: Sequence[str], limits: RunLimits) -> None:
    """`require = ["memory"]` turns a limit that does not hold into an error, and so one that nobody has set."""
    for name in require:
        _known(name, "workspace.require")
        if getattr(limits, name) is None:
            raise ConfigError(
                f"workspace.require names '{name}', and workspace.limits sets no {name}.",
                code="limit-not-set",
                hint=f"Say how much: [workspace.limits] {name} = …",
            )
        held = isolation.limits.get(name, "absent")
        if held != "enforced":
            raise WorkspaceUnavailable(
                f"The limit '{name}' is required, and here it is {held} ({isolation.executor}, {isolation.mechanism}).",
                op="limits",
                code="limit-not-enforced",
                hint="See what holds: prowess doctor --workspace. Another executor may enforce it.",
            )


def _known(name: str, where: str) -> None:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise ConfigError(
            f"{where} names '{name}', which is no limit.",
            code="limit-unknown",
            hint=f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(NAMES)}",
        )


LOOK_S = 1.0
MAX_ENTRIES = 200_000


async def watch_disk(layout: Layout, run: str, limit_bytes: int | None) -> str:
    """Returns only when this run has written more than that, with a sentence about it."""
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
    """Bytes on disk below work/, out/, the run's own folder, skills/ and venvs/, where a .venv is; None when there are
    too many files to count."""
    total = 0
    above = os.path.dirname(layout.root)
    own = [(layout.root, folder) for folder in ("work", "out", f"runs/{run}", "skills")]
    for root, folder in (*own, (above, "venvs")):
        try:
            total += sum(status.st_blocks * 512 for _, status, _, _ in walk(root, folder, max_entries=MAX_ENTRIES))
        except WorkspaceError:
            return None
        except OSError:  # it goes on while we look
            continue
    return total
