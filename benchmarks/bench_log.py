"""Appending to the event log, compared in one run with bare commits of the same rows into the same kind of file.

    python benchmarks/bench_log.py

The bare commits write the same rows, events and head, with the same settings (WAL, synchronous=FULL), and have them
ready made; the log numbers, checks, hashes and writes JSON. Both run beside an event loop, which no commit may block:
the way to a thread and back costs as much as a commit on a fast disk. What a program without a loop would pay is
printed as well, without a limit. They take turns at every append, and their quick tenth counts: disks have moods.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path

from prowess.core.events import CallActed, CallDecided, CallPlanned, Envelope, ModelReplied
from prowess.core.values import Decision, Outcome, SessionKey, ToolCall, Usage
from prowess.records.chain import GENESIS, seal
from prowess.stores.memory import MemoryEventLog
from prowess.stores.sqlite import SqliteEventLog, migrate

APPENDS = 1_000
KEY = SessionKey(session="bench")
OWNER = (KEY.tenant, KEY.app, KEY.user, KEY.session)
HEAD = """UPDATE sessions SET seq = ?, hash = ?, updated_at = ?
    WHERE tenant = ? AND app = ? AND user = ? AND session = ?"""
Row = tuple[str, float, float | None]


def main() -> None:
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    """Rows of (name, ratio, limit or None); a ratio above its limit is a regression."""
    rows: list[Row] = []
    for name, events in (("one event", turn()[:1]), ("four events", turn())):
        with tempfile.TemporaryDirectory() as folder:
            us = asyncio.run(append_in_turns(Path(folder), events))
        report(f"µs to append {name}: " + ", ".join(f"{kind} {each:.0f}" for kind, each in us.items()))
        rows.append((f"log: append of {name} / bare commit", us["log"] / us["bare"], 2.0))
        rows.append((f"log: append of {name} / commit that blocks", us["log"] / us["blocking"], None))
        rows.append((f"log: append of {name}, memory / bare commit", us["memory"] / us["bare"], None))
    return rows


def turn() -> list[Envelope]:
    """What one turn with one call leaves in the log."""
    call = ToolCall(id="c1", tool="skill_run", args={"skill": "csv-report", "script": "scripts/report.py"})
    usage = Usage(input=3200, cached=2900, output=180, requests=1)
    events = (
        ModelReplied(text="I will make the report now. " * 5, calls=(call,), usage=usage),
        CallPlanned(call=call),
        CallDecided(call_id="c1", decision=Decision(verdict="allow", rule="isolated", why="runs inside a sandbox")),
        CallActed(call_id="c1", outcome=Outcome(status="ok", content="line of output\n" * 40, data={"exit_code": 0})),
    )
    return [Envelope(at="2026-01-02T03:04:05.000006Z", session="bench", run="r", event=event) for event in events]


async def append_in_turns(folder: Path, events: Sequence[Envelope]) -> dict[str, float]:
    """Microseconds of one append, of each kind."""
    log, memory = SqliteEventLog(folder / "log.db"), MemoryEventLog()
    lease, memory_lease = await log.lease(KEY), await memory.lease(KEY)
    _, lines = seal(KEY, GENESIS, events)
    with closing(open_bare(folder / "bare.db")) as bare, closing(open_bare(folder / "blocking.db")) as blocking:

        async def block(seq: int) -> None:
            commit(blocking, seq, lines)

        kinds: dict[str, Callable[[int], Awaitable[object]]] = {
            "log": lambda seq: log.append(KEY, seq, lease, events),
            "bare": lambda seq: asyncio.to_thread(commit, bare, seq, lines),
            "blocking": block,
            "memory": lambda seq: memory.append(KEY, seq, memory_lease, events),
        }
        spent: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(APPENDS):
            for kind, append in kinds.items():
                start = time.perf_counter()
                await append(number * len(events))
                spent[kind].append(time.perf_counter() - start)
    await log.close()
    return {kind: 1e6 * sorted(each)[APPENDS // 10] for kind, each in spent.items()}


def open_bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    migrate(connection, str(path), "now")
    connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, 0, '', 1, '', '', '', NULL, NULL, NULL)", OWNER)
    return connection


def commit(connection: sqlite3.Connection, seq: int, lines: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    rows = [(*OWNER, number, line) for number, line in enumerate(lines, seq + 1)]
    connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute(HEAD, (seq + len(lines), GENESIS.hash, "2026-01-02T03:04:05.000006Z", *OWNER))
    connection.execute("COMMIT")


if __name__ == "__main__":
    main()
