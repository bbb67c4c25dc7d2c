"""A run of ten calls that dies at one of its appends: `python crash_run.py FOLDER APPENDS`, used by test_resume; with
`child`, one whose three calls are made by a child run, used by test_child_runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from prowess.events import ModelReplied
from prowess.runtime import open_runtime
from prowess.stores.sqlite import SqliteEventLog
from prowess.tools.base import Tools
from prowess.tools.function import tool
from prowess.values import ToolCall

CALLS = 10


class CountingModel:
    """Decides by what it sees: another call until there are ten results, then an answer."""

    name = "counting"

    async def reply(self, messages: Any, tools: Any, *, on_delta: Any = None, schema: Any = None) -> ModelReplied:
        results = [m for m in messages if m.role == "tool"]
        if len(results) >= CALLS:
            return ModelReplied(text=f"All {len(results)} done.")
        number = len(results) + 1
        return ModelReplied(calls=(ToolCall(id=f"c{number}", tool="mark", args={"number": number}),), finish="calls")


class DelegatingModel:
    """Lets a skill that works apart mark three times; the child's system text or tools are those of its parent, so it
    knows itself by the skill that it has in use."""

    name = "delegating"

    async def reply(self, messages: Any, tools: Any, *, on_delta: Any = None, schema: Any = None) -> ModelReplied:
        results = [m for m in messages if m.role == "tool"]
        child = any("Do the thing." in (part.text or "") for m in messages for part in m.parts)
        if child and len(results) < 3:
            number = len(results) + 1
            return ModelReplied(
                calls=(ToolCall(id=f"m{number}", tool="mark", args={"number": number}),), finish="calls"
            )
        if child:
            return ModelReplied(text="marked 3 times")
        if results:
            return ModelReplied(text="The child marked 3 times.")
        return ModelReplied(calls=(ToolCall(id="c1", tool="skill_load", args={"skill": "inner"}),), finish="calls")


class MortalLog(SqliteEventLog):
    """Ends this process, as a power cut would, right after so many appends."""

    left = 0

    async def append(self, *args: Any, **more: Any) -> Any:
        stored = await super().append(*args, **more)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored


def marking(folder: Path) -> Any:
    @tool
    def mark(number: int) -> str:
        """Leave a mark in the world."""
        with (folder / "marks").open("a", encoding="utf-8") as file:
            file.write(f"{number}\n")
        return f"marked {number}"

    return Tools(mark)


async def crash(folder: Path, appends: int, model: Any) -> None:
    log = MortalLog(str(folder / "log.db"))
    log.left = appends
    await work(folder, log, model, request="mark")


async def resume_child(folder: Path) -> Any:
    log = SqliteEventLog(str(folder / "log.db"))
    try:
        return await work(folder, log, DelegatingModel(), resume=True)
    finally:
        await log.close()


async def work(folder: Path, log: SqliteEventLog, model: Any, **request: Any) -> Any:
    flags = {"artifacts": "memory:"}
    with open_runtime(cwd=str(folder), environ=os.environ, roots=[str(folder / "skills")], flags=flags) as runtime:
        async with runtime.open_session(
            model=model, session="s", log=log, toolsets=[marking(folder)], approver=None
        ) as session:
            return await session.run(**request)


if __name__ == "__main__":
    with_child = sys.argv[3:] == ["child"]
    asyncio.run(crash(Path(sys.argv[1]), int(sys.argv[2]), DelegatingModel() if with_child else CountingModel()))
