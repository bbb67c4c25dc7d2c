"""Count the modules, the depth and the hops of a library run with two tool calls.

    python tools/trace_run.py            a function of the caller's
    python tools/trace_run.py skills     skill_load and skill_run, in the sandbox or without one
    python tools/trace_run.py -v         and the modules, in the order of their first visit

Imports are done before: a first run pays for them, and for caches. Depth counts frames of ours on one stack; a hop is a
call from one of our modules into another.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import prowess
from prowess.testing import ScriptedModel

PACKAGE = str(Path(prowess.__file__).parent)
SKILL = "---\nname: demo\ndescription: Counts words. Use when asked to count words.\n---\nRun scripts/count.py.\n"


class Trace:
    def __init__(self) -> None:
        self.modules: dict[str, None] = {}  # in the order of their first visit
        self.hops: Counter[tuple[str, str]] = Counter()
        self.calls = 0
        self.depth = 0
        self.deepest: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        self.calls += 1
        module = frame.f_globals["__name__"]
        self.modules.setdefault(module)
        stack = _ours(frame)
        if len(stack) > 1 and stack[1] != module:
            self.hops[stack[1], module] += 1
        if len(stack) > self.depth:
            self.depth, self.deepest = len(stack), stack


def _ours(frame: FrameType | None) -> list[str]:
    found: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            found.append(frame.f_globals["__name__"])
        frame = frame.f_back
    return found


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run(kind: str, skills: Path) -> None:
    calls: list[Any] = [{"tool": "add", "args": {"a": 1, "b": number}} for number in (2, 3)]
    if kind == "skills":
        calls = [
            {"tool": "skill_load", "args": {"skill": "demo"}},
            {"tool": "skill_run", "args": {"skill": "demo", "command": "python3 scripts/count.py"}},
        ]
    replies = [*({"calls": [call]} for call in calls), {"text": "done"}]
    agent = prowess.Agent(ScriptedModel(replies), skills=[str(skills)], tools=[add])
    result = asyncio.run(agent.run("Count."))  # in this thread: run_sync has one of its own, which is not traced
    assert result.ok, result.text


def main(kind: str = "function") -> None:
    with tempfile.TemporaryDirectory() as folder:
        skill = Path(folder) / "demo"
        (skill / "scripts").mkdir(parents=True)
        (skill / "SKILL.md").write_text(SKILL, encoding="utf-8")
        (skill / "scripts" / "count.py").write_text("print(3)\n", encoding="utf-8")
        run(kind, Path(folder))
        trace = Trace()
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            run(kind, Path(folder))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    print(f"modules {len(trace.modules)}  depth {trace.depth}  hops {trace.hops.total()}  calls {trace.calls}")
    if "-v" in sys.argv:
        print("\n".join(trace.modules))
        print("deepest:", " < ".join(each for each, _ in itertools.groupby(trace.deepest)))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "-v"]
    if words not in ([], ["skills"]):
        sys.exit(__doc__)
    main(*words)
