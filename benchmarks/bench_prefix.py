"""How much of a request a provider can read from its cache at the next request of the user, in each load mode.

    python benchmarks/bench_prefix.py

Three requests to a scripted model: the first loads a skill and runs a script of it, the second runs it again. Bytes are
those of the neutral request, tools and messages. In session mode the next request extends the last one.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from prowess import open_runtime
from prowess.core.events import Envelope, EpochStarted, ModelRequested
from prowess.testing import ScriptedModel

MODES: tuple[Literal["turn", "once", "session"], ...] = ("session", "turn", "once")
BODY = "---\nname: alpha\ndescription: Does alpha things.\n---\n\n" + "Do it step by step, with care.\n" * 60
LOAD = {"calls": [{"tool": "skill_load", "args": {"skill": "alpha"}}]}
RUN = {"calls": [{"tool": "skill_run", "args": {"skill": "alpha", "command": "echo RAN"}}]}


def measure(report: Callable[[str], object] = lambda line: None) -> Sequence[tuple[str, float, float | None]]:
    rows: list[tuple[str, float, float | None]] = []
    for mode in MODES:
        lost = asyncio.run(_lost(mode))
        report(f"{mode}: {', '.join(f'{1 - share:.0%}' for share in lost)} of the last request is the same prefix")
        rows.append(
            (f"prefix, {mode}: part that changes at the next turn", max(lost), 0 if mode == "session" else None)
        )
    return rows


def _write_skill(folder: str) -> str:
    skill = Path(folder, "skills", "alpha")
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(BODY, encoding="utf-8")
    return str(skill.parent)


async def _lost(mode: Literal["turn", "once", "session"]) -> list[float]:
    """Part of the last request that is not the beginning of the next one, at the second and the third of the user."""
    seen: list[Envelope] = []
    model = ScriptedModel([LOAD, RUN, {"text": "one"}, RUN, {"text": "two"}, {"text": "three"}])
    with tempfile.TemporaryDirectory() as folder:
        root = _write_skill(folder)
        flags: dict[str, Any] = {"store": "memory:", "artifacts": "memory:", "workspace.dir": folder}
        with open_runtime(cwd=folder, environ=os.environ, roots=[root], flags=flags) as runtime:
            async with runtime.open_session(model=model, load_mode=mode, on_event=(seen.append,)) as session:
                for request in ("first", "second", "third"):
                    await session.run(request)
    lost: list[float] = []
    size = 0
    for envelope in seen:
        event = envelope.event
        if isinstance(event, EpochStarted) and event.first_changed is not None:
            lost.append(1 - event.first_changed / size)
        elif isinstance(event, ModelRequested):
            size = event.bytes
    return lost


if __name__ == "__main__":
    for title, value, _ in measure(print):
        print(f"{title:60}{value:10.3f}")
