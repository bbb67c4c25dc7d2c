"""A record that was changed in any way is not valid; one that is valid says what was written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import dear
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    RunFinished,
    RunStarted,
    SkillLoaded,
    UnknownEvent,
)
from prowess.core.values import ChainHead, Decision, Outcome, Part, SessionKey, ToolCall, Usage
from prowess.records.audit import (
    SessionRecord,
    check_copy,
    check_run,
    check_session,
    compare_copy,
    compare_summary,
    kept_head,
    read_session,
)
from prowess.records.diff import first_difference, mask
from prowess.records.summary import LARGE_BYTES, large_outputs, normalise, summarise
from prowess.stores.memory import MemoryEventLog

KEY = SessionKey(session="s")
AT = "2026-01-02T03:04:05.000006Z"


def call(id: str, outcome: Outcome, tool: str = "skill_run", **args: Any) -> list[Event]:
    return [
        CallPlanned(call=ToolCall(id=id, tool=tool, args=args)),
        CallDecided(call_id=id, decision=Decision(verdict="allow", rule="table:isolated", why="in a sandbox")),
        CallActed(call_id=id, outcome=outcome),
    ]


def a_run(run: str, text: str = "done") -> list[tuple[str, Event | UnknownEvent]]:
    return [
        (run, RunStarted(model="m", request=f"do {run}")),
        (run, SkillLoaded(id="builtin:x", digest="sha256:1", trigger="model", rank=2, reason="it fits")),
        *((run, event) for event in call("c1", Outcome(status="ok", content="会议 \ud83d\ude00"), command="ls")),
        (run, RunFinished(stop_reason="answer", text=text)),
    ]


def write(*events: tuple[str, Event | UnknownEvent]) -> tuple[list[str], ChainHead]:
    async def go() -> tuple[list[str], ChainHead]:
        log = MemoryEventLog()
        given = [Envelope(at=AT, session="s", run=run, event=event) for run, event in events]
        await log.append(KEY, 0, await log.lease(KEY), given)
        return [line async for line in log.lines(KEY)], await log.head(KEY)

    return asyncio.run(go())


LINES, HEAD = write(*a_run("r-1"), *a_run("r-2"), *a_run("r-3"))
RUNS = {summary.run: summary for summary in SessionRecord.of_lines(LINES, HEAD).runs}


def slice_of(run: str) -> list[str]:
    return [line for line in LINES if json.loads(line)["run"] == run]


def says(lines: Sequence[str]) -> list[Any]:
    return [json.loads(line) for line in lines]


# --- verify -----------------------------------------------------------------------------------------------------------


def test_an_untouched_record_is_valid_and_anchored() -> None:
    record = SessionRecord.of_lines(LINES, HEAD)
    whole = check_session(record)
    assert (whole.valid, whole.events, whole.anchored, whole.first_bad) == (True, 18, True, None)
    for summary in record.runs:
        check = check_run(record, summary)
        assert (check.valid, check.events, check.anchored, check.why) == (True, 6, True, None)
        copied = check_copy(slice_of(summary.run), summary.to_json())
        assert (copied.valid, copied.events, copied.anchored) == (True, 6, True)
        assert compare_copy(slice_of(summary.run), record, summary) is None
        assert compare_summary(summary.to_json(), summary) is None


@st.composite
def changed(draw: st.DrawFn, lines: Sequence[str]) -> list[str]:
    """Anything that somebody with an editor could do."""
    found = list(lines)
    for _ in range(draw(st.integers(1, 2))):
        how = draw(st.sampled_from(["letter", "drop", "swap", "repeat", "cut", "text", "field", "shuffle", "insert"]))
        place = draw(st.integers(0, max(0, len(found) - 1)))
        if not found:
            break
        line = found[place]
        if how == "letter" and line:
            at = draw(st.integers(0, len(line) - 1))
            found[place] = line[:at] + draw(st.characters()) + line[at + 1 :]
        elif how == "drop":
            del found[place]
        elif how == "swap":
            other = draw(st.integers(0, len(found) - 1))
            found[place], found[other] = found[other], found[place]
        elif how == "repeat":
            found.insert(place, line)
        elif how == "cut":
            del found[place:]
        elif how == "text":
            found[place] = draw(st.sampled_from(["", "null", "[]", "{}", '"x"', "[" * 5000, "\x00", "{" + line, "NaN"]))
        elif how == "insert":
            found.insert(place, draw(st.text(max_size=20)))
        elif how == "shuffle":
            found = draw(st.permutations(found))
        elif how == "field" and line.startswith("{"):
            try:
                data = json.loads(line)
            except ValueError:
                continue
            name = draw(st.sampled_from([*data, "more"]))
            data[name] = draw(st.sampled_from([None, 0, 1.5, -1, "x", [], {}, "r-1", "r-2", 10**30]))
            found[place] = json.dumps(data)
    return found


@given(changed(LINES))
def test_a_session_that_is_valid_says_what_was_written(lines: list[str]) -> None:
    check = check_session(SessionRecord.of_lines(lines, HEAD))
    assert (check.why is None) == check.valid
    if check.valid:
        assert says(lines) == says(LINES)
    else:
        assert check.first_bad is not None and 1 <= check.first_bad <= len(LINES) + 1
        before = check.first_bad - 1
        assert says(lines[:before]) == says(LINES[:before]), "everything before it is as it was written"


@given(changed(LINES))
def test_a_run_that_is_valid_says_what_was_written(lines: list[str]) -> None:
    record = SessionRecord.of_lines(lines, HEAD)
    for summary in record.runs:
        if check_run(record, summary).valid:
            part = [line.text for line in record.slice(summary) if line.text is not None]
            assert says(part) == says(slice_of(summary.run))


@given(changed(slice_of("r-2")))
def test_a_copy_that_is_valid_says_what_was_written(lines: list[str]) -> None:
    check = check_copy(lines, RUNS["r-2"].to_json())
    if check.valid:
        assert says(lines) == says(slice_of("r-2"))
    record = SessionRecord.of_lines(LINES, HEAD)
    fault = compare_copy(lines, record, record.runs[1])
    if fault is None:
        assert says(lines) == says(slice_of("r-2"))[: len(lines)], "what came later may be missing"


@pytest.mark.parametrize("run", ["r-1", "r-2", "r-3"])
@pytest.mark.parametrize("place", range(18))
def test_which_line_is_wrong_is_said(run: str, place: int) -> None:
    edited = [*LINES]
    edited[place] = edited[place].replace('"at":"2026', '"at":"2025')
    assert check_session(SessionRecord.of_lines(edited, HEAD)).first_bad == place + 1
    record = SessionRecord.of_lines(edited, HEAD)
    first, last = RUNS[run].after.seq, RUNS[run].head.seq
    check = check_run(record, record.find(run) or RUNS[run])
    if first <= place + 1 <= last + 1:  # its own lines, and the links at both ends
        assert (check.valid, check.first_bad, check.why) == (False, place + 1, "edited")
    else:
        assert check.valid


def test_a_cut_tail_is_found_by_the_head_and_only_by_it() -> None:
    cut = LINES[:-1]
    assert check_session(SessionRecord.of_lines(cut, HEAD)).why == "the end is cut off"
    alone = check_session(SessionRecord.of_lines(cut))
    assert alone.valid and not alone.anchored
    record = SessionRecord.of_lines(cut, ChainHead(seq=17, hash=json.loads(cut[-1])["hash"]))
    summary = record.find("r-3")
    assert summary is not None and check_run(record, summary).valid, "the database was changed with it"
    assert compare_copy(slice_of("r-3"), record, summary) == (18, "not in the log")


def test_a_copy_without_a_summary_is_not_anchored() -> None:
    check = check_copy(slice_of("r-2"), None)
    assert check.valid and not check.anchored
    assert check_copy(slice_of("r-2")[:-1], None).valid, "nothing says where it ends"
    assert not check_copy(slice_of("r-2")[1:], RUNS["r-2"].to_json()).valid
    assert check_copy([], None).why == "there is no event in it"


@pytest.mark.parametrize(
    "document",
    [{}, {"head": 1, "after": []}, {"head": {"seq": True, "hash": "x"}}, {"after": {"seq": "1", "hash": None}}],
)
def test_a_summary_that_makes_no_sense_anchors_nothing(document: dict[str, Any]) -> None:
    assert kept_head(document) is None
    assert not check_copy(slice_of("r-1"), document).anchored


def test_a_summary_that_was_edited_is_found() -> None:
    document = RUNS["r-2"].to_json()
    for name, value in (("text", "other"), ("stop_reason", "error"), ("request", None), ("usage", {})):
        assert name in str(compare_summary({**document, name: value}, RUNS["r-2"]))
    for name in document:
        less = {each: value for each, value in document.items() if each != name}
        assert name in str(compare_summary(less, RUNS["r-2"])), "what is left out is not compared away"
    printed = replace(RUNS["r-2"], key_output={"name": "stdout", "text": "said"})
    assert compare_summary({**printed.to_json(), "key_output": None}, printed) is None, "as it was written once"
    assert "key_output" in str(compare_summary({**printed.to_json(), "key_output": {"name": "stdout"}}, printed))
    assert "'note'" in str(compare_summary({**document, "note": "", "text": "other"}, RUNS["r-2"]))
    assert "another schema" in str(compare_summary({**document, "schema": "prowess.run/2"}, RUNS["r-2"]))
    assert "events" in str(compare_summary({**document, "events": float(document["events"])}, RUNS["r-2"]))


def test_a_log_is_read_behind_what_is_missing() -> None:
    async def go() -> tuple[SessionRecord, SessionRecord]:
        log = MemoryEventLog()
        given = [Envelope(at=AT, session="s", run=run, event=event) for run, event in a_run("r-1")]
        await log.append(KEY, 0, await log.lease(KEY), given)
        empty = SessionKey(session="empty")
        await log.lease(empty)
        return await read_session(log, KEY), await read_session(log, empty)

    record, empty = asyncio.run(go())
    assert check_session(record).valid and len(record.lines) == 6
    assert check_session(empty).valid and empty.runs == []


# --- summary ----------------------------------------------------------------------------------------------------------


def test_a_summary_has_what_happened() -> None:
    isolation = {"executor": "sandbox", "mechanism": "bwrap", "network": "none"}
    ran = Outcome(
        status="failed",
        code="command-failed",
        data={
            "exit_code": 3,
            "duration_ms": 12,
            "isolation": isolation,
            "primary_output": {"name": "out/a.txt", "content": "x" * 600},
        },
    )
    read = Outcome(status="ok", data={"skill": "builtin:x", "path": "references/a.md"})
    shown = Outcome(status="ok", data={"skill": "builtin:x", "show": ["", "references/b.md"]})
    picture = Part(kind="image", ref="workspace://work/inputs/a.png")
    lines, _ = write(
        (
            "r",
            RunStarted(
                model="m",
                request="  Cafe\u0301 \n",
                versions={"prowess": "1", "python": "3"},
                attachments=(Part(kind="file", text="inputs/a.png", ref="workspace://work/inputs/a.png"), picture),
            ),
        ),
        ("r", SkillLoaded(id="builtin:x", digest="sha256:1", trigger="model", rank=2, reason="it fits")),
        *(("r", event) for event in call("c1", ran, skill="x", command="make all")),
        *(("r", event) for event in call("c2", ran, skill="x", script="a.py", args=["-v", "b c"])),
        *(("r", event) for event in call("c3", read, tool="skill_read")),
        *(("r", event) for event in call("c4", shown, tool="skill_load")),
        ("r", ApprovalAsked(call_id="c5", why="network")),
        ("r", ApprovalAnswered(call_id="c5", answer="once", by="the user")),
        ("r", ApprovalAsked(call_id="c6", why="network")),
        ("r", RunFinished(stop_reason="waiting", usage=Usage(input=3))),
    )
    (summary,) = SessionRecord.of_lines(lines).runs
    document = summary.to_json()
    assert document["normalised_request"] == "Caf\u00e9" == normalise("Caf\u00e9 ")
    assert document["attachments"] == [
        {"name": "inputs/a.png", "ref": "workspace://work/inputs/a.png", "mime_type": None}
    ]
    assert document["skills"][0]["rank"] == 2 and document["skills"][0]["reason"] == "it fits"
    assert document["resources"] == [
        {"skill": "builtin:x", "path": "references/a.md"},
        {"skill": "builtin:x", "path": "references/b.md"},
    ]
    first, second = document["commands"]
    assert (first["command"], first["exit_code"], first["duration_ms"]) == ("make all", 3, 12)
    assert (second["command"], second["code"]) == ("a.py -v b c", "command-failed")
    assert document["key_output"] == {"name": "out/a.txt", "text": "x" * 500}
    assert document["isolation"] == [isolation]
    assert document["prompts"] == {"asked": 2, "answered": 1, "by": {"the user": 1}}
    assert document["versions"] == {"prowess": "1", "python": "3"}


def test_large_texts_are_found_wherever_they_stand() -> None:
    large, wide = "x" * (LARGE_BYTES + 1), "会" * (LARGE_BYTES // 2)
    data = {"stdout": large, "files": [{"content": wide}, {"content": "small"}], "n": 1, "again": large}
    found = list(
        large_outputs(CallActed(call_id="c", outcome=Outcome(status="ok", content="x" * LARGE_BYTES, data=data)))
    )
    assert [output.field for output, _ in found] == ["data.stdout", "data.files.0.content", "data.again"]
    assert found[0][0].sha256 == found[2][0].sha256 and found[0][1] == large.encode()
    assert found[1][0].size_bytes == len(wide.encode())


@given(st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
@dear
def test_no_outcome_breaks_a_summary(data: Any) -> None:
    fields = ("isolation", "primary_output", "skill", "path", "show", "exit_code", "duration_ms", "stdout")
    given = dict.fromkeys(fields, data)
    for tool in ("skill_run", "skill_read", "skill_load", "x"):
        args = {"skill": data, "script": data, "command": data}
        outcome = Outcome(status="ok", data=given)
        events = [Envelope(at=AT, session="s", run="r", event=event) for event in call("c", outcome, tool, **args)]
        json.dumps(summarise(events)[0].to_json())


# --- differences ------------------------------------------------------------------------------------------------------


def seen(*events: Event | UnknownEvent, run: str = "r") -> list[Envelope]:
    return [Envelope(seq=n, at=AT, session="s", run=run, event=event) for n, event in enumerate(events, 1)]


REPLY = ModelReplied(calls=(ToolCall(id="c1", tool="skill_run", args={"b": 1, "a": 2}),), finish="calls")


def plain(content: str = "done in 5 ms", digest: str = "sha256:1", sha: str = "a") -> list[Envelope]:
    return seen(
        RunStarted(model="m", request="go"),
        EpochStarted(why="run started", system="you"),
        ModelRequested(bytes=10, sha256=sha * 64),
        REPLY,
        SkillLoaded(id="x", digest=digest, trigger="model"),
        *call("c1", Outcome(status="ok", content=content, data={"exit_code": 0})),
        NoteAppended(text="left"),
        ModelRequested(bytes=10, sha256="b" * 64),
        RunFinished(stop_reason="answer", text="ok"),
    )


def test_the_same_run_again_is_the_same() -> None:
    assert first_difference(plain(), plain()) is None
    assert first_difference(plain("done in 5 ms"), plain("done in 123 ms")) is None
    assert first_difference([], []) is None


@pytest.mark.parametrize(
    ("other", "what", "seq"),
    [
        (plain("gone wrong"), "output", 8),
        (plain(digest="sha256:2"), "digest", 5),
        (plain(sha="c"), "request-bytes", 3),
        (plain()[:-1], "event", 11),
        ([*plain(), *seen(ErrorRaised(code="x", message="x"))], "event", None),
        ([*plain()[:6], *seen(ErrorRaised(code="x", message="x")), *plain()[7:]], "event", 7),
    ],
)
def test_the_first_difference_is_told(other: list[Envelope], what: str, seq: int | None) -> None:
    found = first_difference(plain(), other)
    assert found is not None and (found.what, found.seq) == (what, seq)
    assert found.recorded != found.actual
    assert first_difference(plain(), other, ignore=(what,)) is None or what == "event"


@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed"},
        {"code": "other"},
        {"data": {"exit_code": 1}},
        {"data": {"exit_code": 0, "timed_out": True}},
    ],
)
def test_another_outcome_is_a_difference(change: dict[str, Any]) -> None:
    given = {"status": "ok", "data": {"exit_code": 0}}
    ours, theirs = (call("c", Outcome(**each)) for each in (given, {**given, **change}))
    found = first_difference(seen(*ours), seen(*theirs))
    assert found is not None and found.what == "outcome"


def test_another_decision_is_a_difference_and_other_words_for_it_are_not() -> None:
    def decided(verdict: Any, rule: str, why: str) -> list[Envelope]:
        return seen(CallDecided(call_id="c", decision=Decision(verdict=verdict, rule=rule, why=why)))

    ours = decided("allow", "table:isolated", "a")
    assert first_difference(ours, decided("allow", "table:isolated", "b")) is None
    for other in (decided("ask", "table:isolated", "a"), decided("allow", "rule:3", "a")):
        found = first_difference(ours, other)
        assert found is not None and found.what == "decision"


def test_arguments_in_another_order_are_no_other_request() -> None:
    other = plain()
    other[9] = Envelope(seq=10, at=AT, session="s", run="r", event=ModelRequested(bytes=10, sha256="f" * 64))
    assert first_difference(plain(), other) is None, "a line has its keys sorted"
    other[9] = Envelope(seq=10, at=AT, session="s", run="r", event=ModelRequested(bytes=11, sha256="f" * 64))
    found = first_difference(plain(), other)
    assert found is not None and found.what == "request-bytes"


def test_calls_made_at_the_same_time_and_child_runs_compare_in_any_order() -> None:
    one, two = (call(id, Outcome(status="ok", content=id)) for id in ("c1", "c2"))
    ours = seen(REPLY, one[0], two[0], one[1], two[1], one[2], two[2])
    theirs = seen(REPLY, one[0], one[1], one[2], two[0], two[1], two[2])
    assert first_difference(ours, theirs) is None
    children = [seen(*events, run=f"child{number}") for number, events in enumerate((one, two))]
    mixed = [each for pair in zip(*children, strict=True) for each in pair]
    renamed = [
        Envelope(seq=1, at=AT, session="t", run=f"x{each.run}", event=each.event) for part in children for each in part
    ]
    assert first_difference(mixed, renamed) is None


def test_a_field_that_a_later_release_adds_is_compared() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Ended(RunFinished):
        mood: str

    def ended(mood: str) -> list[Envelope]:
        return seen(Ended(stop_reason="answer", mood=mood))

    assert first_difference(ended("good at 12:01:30.5 s"), ended("good at 12:01:30.7 s")) is None
    found = first_difference(ended("good"), ended("bad"))
    assert found is not None and (found.what, found.recorded, found.actual) == ("end", "good", "bad")


def test_ids_that_a_provider_gives_to_calls_are_not_compared() -> None:
    def asked(*ids: str, tool: str = "b") -> list[Envelope]:
        calls = [ToolCall(id=id, tool=name) for id, name in zip(ids, ("a", tool), strict=True)]
        outcome = Outcome(status="ok")
        acted = [CallActed(call_id=each.id, outcome=outcome) for each in calls]
        replaced = dict.fromkeys(ids, "…")
        compacted = Compacted(why="full", before_tokens=2, after_tokens=1, replaced=replaced)
        return seen(ModelReplied(calls=tuple(calls)), *(CallPlanned(call=each) for each in calls), *acted, compacted)

    assert first_difference(asked("call_Zx1", "call_Qy2"), asked("toolu_9Kp", "toolu_3Rt")) is None
    found = first_difference(asked("call_Zx1", "call_Qy2"), asked("toolu_9Kp", "toolu_3Rt", tool="c"))
    assert found is not None and found.what == "reply"


def test_a_request_that_was_tried_again_counts_once() -> None:
    request = ModelRequested(bytes=10, sha256="a" * 64)
    busy = ErrorRaised(code="model-overloaded", message="busy", hint="Trying again in 1 s.")
    assert first_difference(seen(request, busy, request, REPLY), seen(request, REPLY)) is None
    assert first_difference(seen(request, busy, REPLY), seen(request, request, busy, REPLY)) is None


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05Z",
        "Mon Nov 16 04:00:29 UTC 2026",
        "Mon Nov  6 04:00:29 2026",
        "took 1.5 s",
        '"duration_ms": 17',
        "/tmp/tmpab12_x/file",
        "s-292f955d64c3",
        "a" * 40 + "1" * 24,
        "1794800727.25",
    ],
)
def test_what_differs_by_nature_is_masked(text: str) -> None:
    assert mask(text) != text


@pytest.mark.parametrize("text", ["42 rows", "total: 12345678", "v1.2.3", "deadbeef", "2 files", "exit code 3"])
def test_what_a_script_found_out_is_not(text: str) -> None:
    assert mask(text) == text


def test_an_id_that_happens_to_be_all_digits_is_an_id() -> None:
    from prowess.records.diff import mask

    assert mask("run run-957701458330 ended") == mask("run run-9577ab458330 ended")
