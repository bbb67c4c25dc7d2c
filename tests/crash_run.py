"""A run of ten calls that dies at one of its appends: `python crash_run.py FOLDER APPENDS`. Used by test_resume."""

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


async def crash(folder: Path, appends: int) -> None:
    log = MortalLog(str(folder / "log.db"))
    log.left = appends
    flags = {"artifacts": "memory:"}
    with open_runtime(cwd=str(folder), environ=os.environ, roots=[str(folder / "skills")], flags=flags) as runtime:
        async with runtime.open_session(
            model=CountingModel(), session="s", log=log, toolsets=[marking(folder)], approver=None
        ) as session:
            await session.run("mark ten times")


if __name__ == "__main__":
    asyncio.run(crash(Path(sys.argv[1]), int(sys.argv[2])))
