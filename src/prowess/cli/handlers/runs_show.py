"""Handlers of `prowess runs show`, `diff` and `export`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from prowess.cli.app import Call
from prowess.cli.call import note_findings
from prowess.cli.inputs import find_target
from prowess.cli.screen import Screen, count, printable
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.records.diff import Difference, first_difference
from prowess.records.spans import render_spans
from prowess.records.summary import RunSummary
from prowess.records.timeline import Moment, timeline
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.files import open_target
from prowess.runtime.services.find_run import describe_foreign
from prowess.runtime.services.verify_run import ReadRun, export_copies, read_run

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import (
        DiffSide,
        ExportedCopy,
        RunExportedDocument,
        RunsDiffDocument,
        RunsExportedDocument,
    )


def show(call: Call, run: str, events: bool, full: bool) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        read = asyncio.run(read_run(runtime, run))
    lines, envelopes, summary = read.events
    if events:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        note_damage(call, read)
        return 0
    if call.screen.is_json:
        rows = [moment._asdict() for moment in timeline(envelopes, full=True)]
        known = {"cut_off": read.cut_off, "resumed_by": read.resumed_by}
        known |= {"damage": read.damage, "unreadable": read.unreadable, "foreign": read.foreign}
        call.screen.document({**summary.to_json(), "schema": "prowess.run-shown/1", **known, "timeline": rows})
        return 0
    began = summary.started_at[:19].replace("T", " ")
    heading = f"{summary.run} · {began} · session {summary.key.session}"
    call.screen.heading(visible(heading))
    moments = timeline(envelopes, full=full)
    _print_all(call.screen, moments, summary.run)
    note_damage(call, read)
    number = count(len(envelopes), "event")
    ended = _ended(read)
    call.screen.note(f"\n{number} · {ended}")
    return 0


def _ended(read: ReadRun) -> str:
    ended = read.events.summary.stop_reason
    if not ended:
        ended = "cut off" if read.cut_off else "has not ended"
    if not read.resumed_by:
        return ended
    other = visible(read.resumed_by)
    return f"{ended} · resumed by {other}"


def note_damage(call: Call, read: ReadRun) -> None:
    """Shows damage on stderr, and that a record is foreign: a program that reads stdout may have no field for it."""
    where = visible(read.foreign or read.events.summary.run)
    if read.foreign is not None:
        call.screen.note(visible(describe_foreign(read.foreign)))
    if read.damage is not None:
        call.screen.note(f"warning: this record is not what was written: prowess runs verify {where}")
    if read.unreadable:
        events = count(read.unreadable, "event is", "events are")
        call.screen.note(f"warning: {events} missing or cannot be read")


def _print_all(screen: Screen, moments: Sequence[Moment], run: str) -> None:
    """Prints the moments. Those of child runs are indented."""
    width = 0
    if moments:
        last_ms = moments[-1].offset_ms or 0
        width = len(f"{last_ms / 1000:.3f}")
    for moment in moments:
        indent = "" if moment.run == run else "  "
        _print(screen, moment, indent=indent, width=width)


def _print(screen: Screen, moment: Moment, *, indent: str, width: int) -> None:
    at = ""
    if moment.offset_ms is not None:
        at = f"{moment.offset_ms / 1000:.3f}"
    text = visible(moment.text)
    line = f"{at:>{width}}  {indent}{text}"
    screen.text(line.rstrip())
    if moment.more:
        pad = " " * width + f"  {indent}  "
        more = printable(moment.more.rstrip("\n"), lines=True)
        for line in more.split("\n"):
            screen.text(f"{pad}{line}".rstrip())


def diff(call: Call, a: str, b: str) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        one, other = asyncio.run(_read_both(runtime, a, b))
    note_damage(call, one)
    note_damage(call, other)
    first = one.events.summary
    second = other.events.summary
    difference = first_difference(one.events.envelopes, other.events.envelopes, ignore=("limits",))
    if call.screen.is_json:
        document: RunsDiffDocument = {
            "schema": "prowess.runs-diff/1",
            "same": difference is None,
            "first": to_json(difference),
            "a": _side(first),
            "b": _side(second),
        }
        call.screen.document(document)
    else:
        _show(call.screen, difference, first, second)
    return 0 if difference is None else 1


async def _read_both(runtime: Runtime, a: str, b: str) -> tuple[ReadRun, ReadRun]:
    one = await read_run(runtime, a)
    other = await read_run(runtime, b)
    return one, other


def _side(summary: RunSummary) -> DiffSide:
    usage = summary.usage
    skills = [f"{skill['id']}@{skill['digest']}" for skill in summary.skills]
    calls = [_call_count(call, number) for call, number in _calls(summary)]
    return {
        "run": summary.run,
        "session": summary.key.session,
        "model": summary.model,
        "skills": skills,
        "calls": calls,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "requests": usage.requests,
        "events": summary.events,
        "stop_reason": summary.stop_reason,
    }


_Call = tuple[str, str, str | None]  # tool, status, code


def _calls(summary: RunSummary) -> Sequence[tuple[_Call, int]]:
    """Returns how often each call was made, sorted by tool, status and code."""
    return sorted(summary.tools.items(), key=_sort_key)


def _sort_key(counted: tuple[_Call, int]) -> list[str]:
    call, _ = counted
    return [str(part) for part in call]


def _call_count(call: _Call, number: int) -> str:
    """Renders `skill_run failed [exit-code] x2`."""
    tool, status, code = call
    text = f"{tool} {status}"
    if code:
        text += f" [{code}]"
    return f"{text} x{number}"


def _show(screen: Screen, difference: Difference | None, first: RunSummary, second: RunSummary) -> None:
    if difference is None:
        screen.text("no difference")
    else:
        show_difference(screen, difference, first.run, second.run)
    screen.text()
    ours = _side(first)
    theirs = _side(second)
    rows: list[list[str]] = []
    for name, value in ours.items():
        label = name.replace("_", " ")
        here = _joined(value)
        there = _joined(theirs[name])
        mark = "" if here == there else "*"
        rows.append([label, mark, here, there])
    screen.table(["", "", "a", "b"], rows)


def _joined(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(cast("list[str]", value))
    return str(value)


def show_difference(screen: Screen, difference: Difference, ours: str, theirs: str) -> None:
    """Shows the first event that differs, with the text of each side."""
    here = _event(difference.seq)
    there = _event(difference.other_seq)
    screen.text(f"first difference: {difference.what} · {difference.type} · {here}, and there {there}")
    _show_side(screen, ours, difference.recorded)
    _show_side(screen, theirs, difference.actual)


def _event(seq: int | None) -> str:
    if seq is None:
        return "no event"
    return f"event {seq}"


def _show_side(screen: Screen, name: str, text: str) -> None:
    label = visible(name)
    screen.text(f"  {label}:")
    shown = printable(text, lines=True)
    for line in shown.split("\n"):
        screen.text(f"    {line}")


_Form = Literal["otel", "jsonl"]


def export(
    call: Call,
    runs: Sequence[str],
    form: Literal["otel", "jsonl"] | None,
    output: str | None,
    to: str | None,
    force: bool,
) -> int:
    if to is not None:
        if form or output:
            message = "--to writes copies of runs, and not a file in a format."
            raise ConfigError(message, code="usage", hint="Leave --format and -o out, or --to.")
        return _export_copies(call, runs, to, force)
    if len(runs) != 1:
        hint = "Name one run, or a folder with --to."
        raise ConfigError("One file has one run.", code="usage", hint=hint)
    return _export_file(call, runs[0], form or "otel", output, force)


def _export_copies(call: Call, runs: Sequence[str], to: str, force: bool) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        exported = asyncio.run(export_copies(runtime, runs, to, force=force))
    rows: list[ExportedCopy] = []
    for read, path in exported:
        rows.append({"run": read.events.summary.run, "path": path, "damage": read.damage})
        if not call.screen.is_json:
            call.screen.text(visible(path))
            note_damage(call, read)
    if call.screen.is_json:
        document: RunsExportedDocument = {"schema": "prowess.runs-exported/1", "runs": rows}
        call.screen.document(document)
    return 1 if any(read.damage for read, _ in exported) else 0


def _export_file(call: Call, run: str, form: _Form, output: str | None, force: bool) -> int:
    path = find_target(call.cwd, output, force)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        read = asyncio.run(read_run(runtime, run))
    text, things = _render(read, form)
    code = 0 if read.damage is None else 1
    if path is None:
        sys.stdout.write(text)
        note_damage(call, read)
        return code
    data = text.encode("utf-8", "surrogateescape")
    with open_target(call.cwd, path, force, mode=0o600) as file:  # events have private texts
        file.write(data)
    if call.screen.is_json:
        written: RunExportedDocument = {
            "schema": "prowess.run-exported/1",
            "run": read.events.summary.run,
            "format": form,
            "path": path,
            "size_bytes": os.path.getsize(path),
            "damage": read.damage,
        }
        call.screen.document(written)
    else:
        shown = visible(path)
        call.screen.note(f"{things} · {shown}")
        note_damage(call, read)
    return code


def _render(read: ReadRun, form: _Form) -> tuple[str, str]:
    """Returns the text of the file, and what it has: `12 events`, `9 spans`."""
    lines, envelopes, _ = read.events
    if form == "jsonl":
        text = "".join(f"{line}\n" for line in lines)
        return text, count(len(lines), "event")
    document = render_spans(envelopes)
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    text = json.dumps(document, indent=1)
    return f"{text}\n", count(len(spans), "span")
