"""prowess runs diff"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from prowess.cli.app import Call, verb
from prowess.cli.commands.runs_show import ReadRun, note_damage, read_run
from prowess.cli.find_run import note_findings
from prowess.cli.screen import Screen, printable
from prowess.core.findings import visible
from prowess.records.diff import Difference, first_difference
from prowess.records.summary import RunSummary
from prowess.runtime.runtime import Runtime


@verb("diff", example="prowess runs diff r-1f2e r-5d6c\nprowess runs diff r-1f2e r-5d6c --json")
@click.argument("a")
@click.argument("b")
def diff(call: Call, a: str, b: str) -> int:
    """Compare two runs: the first event that is another one, and what each of them came to.

    Times, durations, ids and hashes are not compared. Exit code 0 when there is no difference, 1 when there is one.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        one, other = asyncio.run(_read(runtime, a, b))
    for read in (one, other):
        note_damage(call, read)
    (ours, first), (theirs, second) = (one.envelopes, one.summary), (other.envelopes, other.summary)
    difference = first_difference(ours, theirs, ignore=("limits",))
    if call.screen.is_json:
        document = {"same": difference is None, "first": render_difference(difference)}
        sides = {"a": _side(first), "b": _side(second)}
        call.screen.document({"schema": "prowess.runs-diff/1", **document, **sides})
    else:
        _show(call.screen, difference, first, second)
    return 0 if difference is None else 1


async def _read(runtime: Runtime, a: str, b: str) -> tuple[ReadRun, ReadRun]:
    return await read_run(runtime, a), await read_run(runtime, b)


def render_difference(difference: Difference | None) -> dict[str, Any] | None:
    return None if difference is None else difference._asdict()


def _side(summary: RunSummary) -> dict[str, Any]:
    usage = summary.usage
    return {
        "run": summary.run,
        "session": summary.key.session,
        "model": summary.model,
        "skills": [f"{skill['id']}@{skill['digest']}" for skill in summary.skills],
        "calls": [f"{tool} {status}{f' [{code}]' if code else ''} x{n}" for (tool, status, code), n in _calls(summary)],
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "requests": usage.requests,
        "events": summary.events,
        "stop_reason": summary.stop_reason,
    }


def _calls(summary: RunSummary) -> Sequence[tuple[tuple[str, str, str | None], int]]:
    return sorted(summary.tools.items(), key=lambda item: tuple(str(part) for part in item[0]))


def _show(screen: Screen, difference: Difference | None, first: RunSummary, second: RunSummary) -> None:
    if difference is None:
        screen.text("no difference")
    else:
        show_difference(screen, difference, first.run, second.run)
    screen.text()
    ours, theirs = _side(first), _side(second)
    rows = []
    for name, value in ours.items():
        other = theirs[name]
        texts = [", ".join(each) if isinstance(each, list) else str(each) for each in (value, other)]
        rows.append([name.replace("_", " "), "" if texts[0] == texts[1] else "*", *texts])
    screen.table(["", "", "a", "b"], rows)


def show_difference(screen: Screen, difference: Difference, ours: str, theirs: str) -> None:
    places = [f"event {seq}" if seq is not None else "no event" for seq in (difference.seq, difference.other_seq)]
    screen.text(f"first difference: {difference.what} · {difference.type} · {places[0]}, and there {places[1]}")
    for name, text in ((ours, difference.recorded), (theirs, difference.actual)):
        screen.text(f"  {visible(name)}:")
        for line in printable(text, lines=True).split("\n"):
            screen.text(f"    {line}")
