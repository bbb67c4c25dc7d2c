"""A run of ten calls that dies at each of its appends in turn: `python crash_run.py FOLDER`, used by test_resume; with
`child`, one whose three calls are made by a child run, used by test_child_runs. FOLDER/<n> has what the process left
that died at append n. Each is a fork of one that has imported everything: that is most of what a run takes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from prowess.core.events import ModelReplied
from prowess.core.values import ToolCall
from prowess.runtime.runtime import open_runtime
from prowess.stores.sqlite import SqliteEventLog
from prowess.tools.function import tool
from prowess.tools.toolset import Tools

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
    await log.close()


async def resume_child(folder: Path) -> Any:
    log = SqliteEventLog(str(folder / "log.db"))
    try:
        return await work(folder, log, DelegatingModel(), resume=True)
    finally:
        await log.close()


async def work(folder: Path, log: SqliteEventLog, model: Any, **request: Any) -> Any:
    flags = {"artifacts": "memory:"}
    roots = [str(folder.parent / "skills")]
    with open_runtime(cwd=str(folder), environ=os.environ, roots=roots, flags=flags) as runtime:
        async with runtime.open_session(
            model=model, session="s", log=log, toolsets=[marking(folder)], approver=None
        ) as session:
            return await session.run(**request)


def crash_at_every_append(folder: Path, *words: str) -> list[Path]:
    """The folders of those that died, in order."""
    done = subprocess.run([sys.executable, __file__, str(folder), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [folder / str(number) for number in range(1, int(done.stdout))]


def main(folder: Path, model: Any) -> int:
    number, status = 0, -signal.SIGKILL
    (folder / "0").mkdir()
    asyncio.run(crash(folder / "0", 0, model))  # nothing dies: all that is imported late is
    while status == -signal.SIGKILL:
        number += 1
        (folder / str(number)).mkdir()
        child = os.fork()
        if child == 0:
            asyncio.run(crash(folder / str(number), number, model))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(number)
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), DelegatingModel() if sys.argv[2:] == ["child"] else CountingModel()))
