"""A turn of the loop, compared in one run with a turn of others and with what its record costs.

    python benchmarks/bench_agent.py

The conversation is the same for everybody: twenty turns with one call of a function each, then a text. Every model is a
double whose replies are ready made, so that only the loops are measured; ours keeps its record in memory meanwhile.
They take turns at every conversation, and their quick tenth counts, in time of the processor: what else runs on the
machine is not theirs. With SQLite the floor is bare commits of the same rows, one for each row, on the same disk.
Then a thousand runs at once: what they cost in memory, and whether each has its own record, whole.

The others are not among the development tools, whose versions they would change. They have a place of their own:

    python -m venv benchmarks/out/others
    benchmarks/out/others/bin/pip install -e '.[bench]'

or name a Python that has them and what Prowess needs: BENCH_PYTHON=…
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from bench_log import commit, open_bare

from prowess import Limits, open_runtime, tool
from prowess.core.events import CallActed, Envelope, ModelReplied
from prowess.core.values import Lease, SessionKey, ToolCall, Usage
from prowess.models.scripted import ScriptedModel
from prowess.records.chain import verify_chain
from prowess.runtime.runtime import Runtime
from prowess.stores.memory import MemoryEventLog
from prowess.stores.sqlite import SqliteEventLog
from prowess.tools.toolset import Tools

FOLDER = Path(__file__).resolve().parent
OTHERS = FOLDER / "out" / "others" / "bin" / "python"
TURNS = 20
ROUNDS = 60
WARM = 3  # rounds in which they import, compile and fill caches
DISK_ROUNDS = 40
AT_ONCE = (250, 500, 1000)
TURNS_AT_ONCE = 5
REQUEST = "Add these numbers."
Row = tuple[str, float, float | None]
Spent = tuple[float, float]  # seconds to be ready, seconds of the conversation


def main() -> None:
    match sys.argv[1:]:
        case ["others"]:
            print(json.dumps(asyncio.run(conversations_in_turns())))
        case ["crowd", number]:
            print(json.dumps(asyncio.run(crowd(int(number)))))
        case _:
            for name, value, limit in measure(report=print):
                print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    """Rows of (name, value, limit or None); above its limit it is a regression, nan was not measured."""
    return [*against_others(report), *against_commits(report), *at_once(report)]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


add_async.__name__ = "add"
FUNCTIONS: dict[str, Callable[..., Any]] = {"def": add, "async def": add_async}
LIMITS = {"def": 0.40, "async def": 0.33}


# --- others ----------------------------------------------------------------------------------------------------------


def against_others(report: Callable[[str], object]) -> list[Row]:
    python = find_python()
    if python is None:
        report("NOT MEASURED: pydantic-ai and openai-agents are not installed. Do this, then measure again:")
        report("    python -m venv benchmarks/out/others && benchmarks/out/others/bin/pip install -e '.[bench]'")
    us = {} if python is None else in_another_process(python, "others")
    rows: list[Row] = []
    for kind in FUNCTIONS:
        title = f"agent: a turn, {kind} / the faster of the others"
        if kind not in us:
            rows.append((title, math.nan, LIMITS[kind]))
            continue
        turns = {name: each[1] for name, each in us[kind].items()}
        report(f"µs of a turn, {kind}: " + ", ".join(f"{name} {each:.0f}" for name, each in turns.items()))
        ours = turns.pop("prowess")
        rows.append((title, ours / min(turns.values()), LIMITS[kind]))
    if us:
        ready = {name: each[0] for name, each in us["def"].items()}
        report("µs to be ready: " + ", ".join(f"{name} {each:.0f}" for name, each in ready.items()))
        ours = ready.pop("prowess")
        rows.append(("agent: opening a session / the fastest to make an agent", ours / min(ready.values()), 1.2))
    return rows


def find_python() -> str | None:
    """One that has them: the one that was named, this one, or the one in their own place."""
    if named := os.environ.get("BENCH_PYTHON"):
        return named
    installed = {each.name.lower() for each in distributions()}
    if {"pydantic-ai-slim", "openai-agents"} <= installed:
        return sys.executable
    return str(OTHERS) if OTHERS.exists() else None


async def conversations_in_turns() -> dict[str, dict[str, list[float]]]:
    """Microseconds to be ready and of a turn, for each kind of function and each of the three."""
    found: dict[str, dict[str, list[float]]] = {}
    with a_runtime() as runtime:
        for kind, function in FUNCTIONS.items():
            talks: dict[str, Callable[[], Awaitable[Spent]]] = {
                "prowess": lambda function=function: talk_with_prowess(runtime, function),
                "pydantic-ai": lambda function=function: talk_with_pydantic_ai(function),
                "openai-agents": lambda function=function: talk_with_openai_agents(function),
            }
            spent: dict[str, list[Spent]] = {name: [] for name in talks}
            for number in range(WARM + ROUNDS):
                if number == WARM:
                    gc.freeze()  # modules are not to be looked through again and again
                for name, talk in talks.items():
                    gc.collect()  # nobody pays for what the one before has left
                    spent[name].append(await talk())
            found[kind] = {
                name: [1e6 * quick(ready), 1e6 * quick(talked) / (TURNS + 1)]
                for name, (ready, talked) in ((name, zip(*all[WARM:], strict=True)) for name, all in spent.items())
            }
    return found


async def talk_with_prowess(runtime: Runtime, function: Callable[..., Any]) -> Spent:
    model = ScriptedModel(replies(TURNS))
    begun = time.process_time()
    async with a_session(runtime, model, function) as session:
        ready = time.process_time()
        result = await session.run(REQUEST)
        done = time.process_time()
    assert result.text == "done"
    model.assert_finished()
    return ready - begun, done - ready


async def talk_with_pydantic_ai(function: Callable[..., Any]) -> Spent:
    from pydantic_ai import Agent, ModelResponse, RequestUsage, TextPart, ToolCallPart, UsageLimits
    from pydantic_ai.models.function import FunctionModel

    usage = RequestUsage(input_tokens=100, output_tokens=10)  # without it the double counts words at every turn
    script = iter(
        [
            *(ModelResponse([ToolCallPart("add", {"a": n, "b": 1}, f"c{n}")], usage=usage) for n in range(TURNS)),
            ModelResponse([TextPart("done")], usage=usage),
        ]
    )

    async def reply(messages: object, info: object) -> ModelResponse:
        return next(script)

    begun = time.process_time()
    agent = Agent(FunctionModel(reply), tools=[function])
    ready = time.process_time()
    result = await agent.run(REQUEST, usage_limits=UsageLimits(request_limit=None))
    done = time.process_time()
    assert result.output == "done"
    assert next(script, None) is None
    return ready - begun, done - ready


async def talk_with_openai_agents(function: Callable[..., Any]) -> Spent:
    from agents.agent import Agent
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.run import Runner
    from agents.tool import function_tool
    from agents.tracing import set_tracing_disabled
    from agents.usage import Usage as AgentsUsage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    calls = [
        ResponseFunctionToolCall(
            call_id=f"c{n}", name="add", arguments=json.dumps({"a": n, "b": 1}), type="function_call"
        )
        for n in range(TURNS)
    ]
    text = ResponseOutputText(text="done", type="output_text", annotations=[])
    last = ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])
    usage = AgentsUsage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
    script = iter([ModelResponse(output=[item], usage=usage, response_id=None) for item in (*calls, last)])

    class Double(Model):
        async def get_response(self, *args: object, **options: object) -> ModelResponse:
            return next(script)

        def stream_response(self, *args: object, **options: object) -> AsyncIterator[Any]:
            raise NotImplementedError

    begun = time.process_time()
    agent = Agent(name="bench", model=Double(), tools=[function_tool(function)])
    ready = time.process_time()
    result = await Runner.run(agent, REQUEST, max_turns=TURNS + 1)
    done = time.process_time()
    assert result.final_output == "done"
    assert next(script, None) is None
    return ready - begun, done - ready


# --- SQLite ----------------------------------------------------------------------------------------------------------


def against_commits(report: Callable[[str], object]) -> list[Row]:
    us = asyncio.run(turns_and_commits_in_turns())
    report("µs of a turn: " + ", ".join(f"{kind} {each:.0f}" for kind, each in us.items()))
    return [
        # What is held to is a commit of each row; ours are several rows to a commit, which the first figure compares.
        ("agent: a turn with SQLite / bare commits, one per append", us["sqlite"] / us["bare"], None),
        ("agent: a turn with SQLite / a bare commit of each row", us["sqlite"] / us["row by row"], 2.0),
        ("agent: a turn with SQLite / commits that block", us["sqlite"] / us["blocking"], None),
        ("agent: a turn in memory / bare commits of its rows", us["memory"] / us["bare"], None),
    ]


async def turns_and_commits_in_turns() -> dict[str, float]:
    """Microseconds of a turn with each log, and of bare commits of what a turn writes, append by append."""
    spent: dict[str, list[float]] = {kind: [] for kind in ("sqlite", "bare", "row by row", "blocking", "memory")}
    with a_runtime() as runtime, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        appends = await find_appends(runtime)
        rows = [[line] for lines in appends for line in lines]
        seqs = itertools.count(step=len(rows))
        files = {kind: stack.enter_context(closing(open_bare(Path(folder, kind)))) for kind in ("bare", "row by row")}
        blocking = stack.enter_context(closing(open_bare(Path(folder, "blocking"))))

        async def commit_bare() -> None:
            seq = next(seqs)
            for kind, parts in (("bare", appends), ("row by row", rows)):
                begun = time.perf_counter()
                for place, lines in placed(seq, parts):
                    await asyncio.to_thread(commit, files[kind], place, lines)
                spent[kind].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            for place, lines in placed(seq, appends):
                commit(blocking, place, lines)
            spent["blocking"].append(time.perf_counter() - begun)

        log = SqliteEventLog(Path(folder, "log.db"))
        for _ in range(DISK_ROUNDS):
            spent["sqlite"] += await time_turns(runtime, log, commit_bare)
            spent["memory"] += await time_turns(runtime, MemoryEventLog(), lambda: asyncio.sleep(0))
        await log.close()
    return {kind: 1e6 * quick(each) for kind, each in spent.items()}


def placed(seq: int, parts: Sequence[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Each with the number of the last line before it."""
    for lines in parts:
        yield seq, lines
        seq += len(lines)


async def time_turns(
    runtime: Runtime, log: MemoryEventLog | SqliteEventLog, between: Callable[[], Awaitable[None]]
) -> list[float]:
    model = PacedModel(replies(TURNS), between)
    async with a_session(runtime, model, add_async, log=log) as session:
        await session.run(REQUEST)
    return model.turns


class PacedModel(ScriptedModel):
    """Notes how long it was not asked, and lets something else have its turn while it thinks."""

    def __init__(self, replies: Sequence[ModelReplied], between: Callable[[], Awaitable[None]]) -> None:
        super().__init__(replies)
        self.turns: list[float] = []
        self._between = between
        self._answered: float | None = None

    async def reply(self, *request: Any, **options: Any) -> ModelReplied:
        asked = time.perf_counter()
        if self._answered is not None:
            self.turns.append(asked - self._answered)
        await self._between()
        reply = await super().reply(*request, **options)
        self._answered = time.perf_counter()
        return reply


async def find_appends(runtime: Runtime) -> list[list[str]]:
    """The lines of each append of a turn: from a reply to the next request, as they are in the middle of a run."""
    log = NotingLog()
    async with a_session(runtime, ScriptedModel(replies(TURNS)), add_async, log=log) as session:
        await session.run(REQUEST)
        rest = log.lines(session.key)
        appends = [[await anext(rest) for _ in range(number)] for number in log.numbers]
    requests = [index for index, lines in enumerate(appends, 1) if '"type":"model_requested"' in lines[-1]]
    middle = len(requests) // 2
    return appends[requests[middle] : requests[middle + 1]]


class NotingLog(MemoryEventLog):
    """Notes how many events each append has."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        self.numbers.append(len(events))
        return await super().append(key, expected_seq, lease, events)


# --- many at once ----------------------------------------------------------------------------------------------------


def at_once(report: Callable[[str], object]) -> list[Row]:
    found = {number: in_another_process(sys.executable, "crowd", str(number)) for number in AT_ONCE}
    report("MB grown by runs at once: " + ", ".join(f"{number}: {each['grown']:.1f}" for number, each in found.items()))
    for number, each in found.items():
        for fault in each["faults"][:3]:
            report(f"{number} at once: {fault}")
    few, some, many = (found[number]["grown"] for number in AT_ONCE)
    faults = sum(len(each["faults"]) for each in found.values())
    ratio = (many - some) / (AT_ONCE[2] - AT_ONCE[1]) / ((some - few) / (AT_ONCE[1] - AT_ONCE[0]))
    return [
        ("agent: memory of a run more, up to {2} at once / up to {1}".format(*AT_ONCE), ratio, 1.1),
        (f"agent: runs of {AT_ONCE[2]} at once whose record is not whole", faults, 0),
    ]


async def crowd(number: int) -> dict[str, Any]:
    """Runs at once in this process, with one log: by how many MB it grew, and what is wrong with their records."""
    with a_runtime() as runtime:
        log = MemoryEventLog()
        alone = await one_of_many(runtime, log, 0)
        await asyncio.gather(*(one_of_many(runtime, log, index) for index in range(1, 51)))
        gc.collect()
        before = memory_mb("VmRSS")
        ran = await asyncio.gather(*(one_of_many(runtime, log, 1000 + index) for index in range(number)))
        grown = memory_mb("VmHWM") - before
        expected = [envelope.event.type async for envelope in log.read(alone[0])]
        faults = [fault for each in ran if (fault := await find_fault(log, *each, expected))]
        kept = await log.sessions()
        if len(kept) != number + 51:
            faults.append(f"the log has {len(kept)} sessions")
    return {"grown": grown, "faults": faults}


async def one_of_many(runtime: Runtime, log: MemoryEventLog, index: int) -> tuple[SessionKey, int, list[int | None]]:
    """Which session it was, its number, and the numbers of the events that its observer was told."""
    told: list[int | None] = []

    async def observe(envelope: Envelope) -> None:
        if envelope.seq is not None:
            told.append(envelope.seq)

    model = ScriptedModel(replies(TURNS_AT_ONCE, first=index))
    async with a_session(runtime, model, add_async, log=log, on_event=[observe]) as session:
        result = await session.run(REQUEST)
        assert result.text == "done"
    return session.key, index, told


async def find_fault(
    log: MemoryEventLog, key: SessionKey, index: int, told: list[int | None], expected: list[str]
) -> str | None:
    lines = [line async for line in log.lines(key)]
    report = verify_chain(lines, await log.head(key))
    if not report.valid:
        return f"{key.session}: {report.why} at {report.first_bad}"
    events = [envelope.event async for envelope in log.read(key)]
    if (types := [event.type for event in events]) != expected:
        return f"{key.session}: {len(types)} events that are not the {len(expected)} of a run alone"
    sums = [event.outcome.content for event in events if isinstance(event, CallActed)]
    if sums != [str(index + turn + 1) for turn in range(TURNS_AT_ONCE)]:
        return f"{key.session}: it has the results {sums}"
    if told != list(range(1, len(events) + 1)):
        return f"{key.session}: its observer was told {len(told)} of {len(events)} events"
    return None


def memory_mb(name: str) -> float:
    """Of this program since it was started: what getrusage says can be the peak of whoever started it."""
    found = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return int(found[name].split()[0]) / 1024


# --- what all of them use --------------------------------------------------------------------------------------------


def replies(turns: int, first: int = 0) -> list[ModelReplied]:
    usage = Usage(input=100, output=10, requests=1)
    calls = [ToolCall(id=f"c{turn}", tool="add", args={"a": first + turn, "b": 1}) for turn in range(turns)]
    return [
        *(ModelReplied(calls=(call,), finish="calls", usage=usage) for call in calls),
        ModelReplied(text="done", usage=usage),
    ]


@contextmanager
def a_runtime() -> Iterator[Runtime]:
    """In a folder of its own, so that nobody's skills and settings are measured."""
    with tempfile.TemporaryDirectory() as folder:
        home = {"HOME": folder, "PATH": os.environ["PATH"]}
        with open_runtime(cwd=folder, environ=home, flags={"store": "memory:", "artifacts": "memory:"}) as runtime:
            yield runtime


@asynccontextmanager
async def a_session(
    runtime: Runtime, model: ScriptedModel, function: Callable[..., Any], **options: Any
) -> AsyncIterator[Any]:
    limits = Limits(turns=TURNS + 1, calls=TURNS)
    toolsets = [Tools(tool(function))]
    async with runtime.open_session(model=model, toolsets=toolsets, limits=limits, **options) as session:
        yield session


def quick(seconds: Any) -> float:
    every = sorted(seconds)
    return every[len(every) // 10]


def in_another_process(python: str, *args: str) -> Any:
    """Itself, with nothing measured before it."""
    path = os.pathsep.join([str(FOLDER.parent / "src"), str(FOLDER)])
    ran = subprocess.run(
        [python, __file__, *args], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(ran.stdout)


if __name__ == "__main__":
    main()
