"""A script is played exactly, and complains where it does not fit; so does every part of the kit for tests."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import prowess
from prowess._internal.tokens import estimate
from prowess.core.events import (
    CallActed,
    CallDelta,
    CallPlanned,
    Compacted,
    Envelope,
    ModelReplied,
    RunStarted,
    TextDelta,
)
from prowess.core.values import Decision, Message, Outcome, Part, SessionKey, ToolCall, ToolSpec
from prowess.errors import ConfigError, ModelError, ModelOverloaded
from prowess.testing import (
    MemoryArtifacts,
    MemoryEventLog,
    ScriptedApprover,
    ScriptedModel,
    events_of,
    load_script,
    skill_dir,
)

ASK = [Message(role="user", parts=(Part(text="Hello, who are you?"),))]
TOOLS = [ToolSpec(name="read_file", description="Reads.", parameters={"type": "object"})]


def play(model: ScriptedModel, times: int = 1, messages: Sequence[Message] = ASK, **more: Any) -> list[ModelReplied]:
    async def go() -> list[ModelReplied]:
        return [await model.reply(messages, TOOLS, **more) for _ in range(times)]

    return asyncio.run(go())


# --- the replies


def test_replies_come_in_order_with_ids_that_are_always_the_same() -> None:
    script = [
        {"calls": [{"tool": "a", "args": {"x": 1}}, {"tool": "b"}], "text": "Let me see."},
        {"calls": [{"tool": "c", "id": "c3"}, {"tool": "d", "id": "mine"}, {"tool": "e", "args": None}]},
        {"action": {"type": "select_skills", "skills": ["s", "t"]}},
        {"text": "Done."},
    ]
    replies = play(ScriptedModel(script), 4)
    assert [[(call.id, call.tool, call.args) for call in reply.calls] for reply in replies] == [
        [("c1", "a", {"x": 1}), ("c2", "b", {})],
        [("c3", "c", {}), ("mine", "d", {}), ("c4", "e", {})],
        [("c5", "skill_load", {"skill": "s"}), ("c6", "skill_load", {"skill": "t"})],
        [],
    ]
    assert [(reply.text, reply.finish) for reply in replies] == [
        ("Let me see.", "calls"),
        ("", "calls"),
        ("", "calls"),
        ("Done.", "stop"),
    ]
    assert play(ScriptedModel(script), 4) == replies


def test_a_reply_may_be_a_value_an_error_or_a_function() -> None:
    value = ModelReplied(text="x", calls=(ToolCall(id="c1", tool="t"),), finish="calls")

    def answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {"text": f"{len(messages)} messages, {len(tools)} tools", "calls": [{"tool": "t"}]}

    model = ScriptedModel([value, ModelOverloaded("busy"), answer, lambda *_: ModelError("no"), lambda *_: {"txt": 1}])
    assert play(model) == [value]
    with pytest.raises(ModelOverloaded):
        play(model)
    (reply,) = play(model)
    assert (reply.text, reply.calls[0].id) == ("1 messages, 1 tools", "c2")  # c1 is taken
    with pytest.raises(ModelError, match="no"):
        play(model)
    with pytest.raises(ConfigError, match="Reply 5 of the script"):
        play(model)
    assert model.unused == 0


def test_what_it_was_asked_is_kept() -> None:
    model = ScriptedModel([{"text": "a"}, {"text": "b"}])
    messages = list(ASK)
    play(model, messages=messages)
    messages.append(ASK[0])
    play(model, messages=messages)
    assert model.requests == [((*ASK,), (*TOOLS,)), ((*ASK, *ASK), (*TOOLS,))]


def test_a_reply_is_told_in_pieces() -> None:
    deltas: list[Any] = []
    play(
        ScriptedModel([{"text": "Hello there 😀", "calls": [{"tool": "t", "args": {"ü": 1}}]}]), on_delta=deltas.append
    )
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) > 1 and "".join(texts) == "Hello there 😀"
    assert deltas[-1] == CallDelta(index=0, tool="t", args='{"ü": 1}')
    deltas.clear()
    play(ScriptedModel([{"text": ""}]), on_delta=deltas.append)
    assert deltas == []


def test_tokens_are_estimated() -> None:
    texts = ["Hello, who are you?", "I am a script.", "And you?", "x" * 400]
    messages = [Message(role="user", parts=(Part(text=text),)) for text in texts]
    model = ScriptedModel([{"text": "Fine, thank you."}] * 4)
    tools = estimate('read_file Reads. {"type": "object"}')
    for asked in (messages[:1], messages[:3], messages[1:], messages[:1]):
        (reply,) = play(model, messages=asked)
        wanted = tools + sum(estimate(part.text or "") for message in asked for part in message.parts)
        assert (reply.usage.input, reply.usage.output) == (wanted, estimate("Fine, thank you."))
        assert (reply.usage.cached, reply.usage.requests) == (0, 1)


def test_one_reply_too_few_is_an_error_that_says_where() -> None:
    model = ScriptedModel([{"text": "a"}], name="scripted:x.yaml")
    play(model)
    with pytest.raises(ModelError) as caught:
        play(model)
    assert caught.value.code == "script-exhausted" and not caught.value.retryable
    assert "number 2" in caught.value.message and "from the user: 'Hello, who are you?'" in caught.value.message
    with pytest.raises(ModelError, match="none at all"):
        play(ScriptedModel([]), messages=[])


def test_one_reply_too_many_is_an_error_when_asked_for() -> None:
    model = ScriptedModel([{"text": "a"}, {"text": "b"}])
    play(model)
    assert model.unused == 1
    asyncio.run(model.aclose())
    with pytest.raises(ModelError, match="1 of 2 replies") as caught:
        model.assert_finished()
    assert caught.value.code == "script-unused"
    play(model)
    model.assert_finished()


WRONG: list[tuple[Any, str, str]] = [
    ("text", "must be an object", "text"),
    ({}, "says nothing", "text, calls, action"),
    ({"txt": "x"}, "there is no field 'txt'", "Did you mean 'text'?"),
    ({"zzz": "x"}, "there is no field 'zzz'", "There are: text, calls"),
    ({"text": 3}, "text must be a text", "quotes"),
    ({"calls": {}}, "calls must be a list", "tool"),
    ({"calls": ["a"]}, "call 1: must be an object", "tool"),
    ({"calls": [{"tool": "a"}, {"args": {}}]}, "call 2: names no tool", "skill_load"),
    ({"calls": [{"tool": "a", "arg": {}}]}, "there is no field 'arg'", "Did you mean 'args'?"),
    ({"calls": [{"tool": "a", "args": [1]}]}, "args must be an object", "skill"),
    ({"calls": [{"tool": "a", "id": 7}]}, "id must be a text", "leave it out"),
    ({"action": {"type": "final_answr"}}, "Did you mean 'final_answer'?", "actions"),
    ({"action": {"type": "final_answer", "content": "x"}, "text": "y"}, "also text or calls", "one of them"),
    ({"plan": {"goal": "g"}}, "a plan without an action", "update_plan"),
]


@pytest.mark.parametrize(("entry", "says", "hint"), WRONG)
def test_a_reply_that_cannot_be_is_refused_at_once(entry: Any, says: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ScriptedModel([{"text": "fine"}, entry])
    assert caught.value.code == "script-invalid"
    assert says in caught.value.message and "Reply 2 of the script" in caught.value.message
    assert hint in (caught.value.hint or "")
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump([{"text": "fine"}, entry]), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_script(file)
    assert f"{file}:2: reply 2" in caught.value.message and says in caught.value.message


# --- files


def test_a_script_is_read_from_yaml_and_json(tmp_path: Path) -> None:
    text = """\
# what the model says
- calls:
    - tool: skill_run
      args: {skill: demo, args: [no, 2024-01-01, "7", 7, 1.5, true, null, ~, 1:30, 010, .inf]}
- action: {type: select_skills, skills: [{name: demo}]}
  plan: {goal: g, steps: []}
- text: Done.
"""
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    model = load_script(tmp_path / "s.yaml")
    replies = play(model, 3)
    words = ["no", "2024-01-01", "7", 7, 1.5, True, None, None, "1:30", "010", ".inf"]
    assert replies[0].calls[0].args == {"skill": "demo", "args": words}
    assert [call.tool for call in replies[1].calls] == ["update_plan", "skill_load"]
    assert replies[2].text == "Done." and model.name == f"scripted:{tmp_path / 's.yaml'}"
    same = [{"text": "\ufefföäü"}, {"calls": [{"tool": "t", "args": {"n": 1e3}}]}]
    (tmp_path / "s.json").write_text("\ufeff" + json.dumps(same), encoding="utf-8")
    assert play(load_script(str(tmp_path / "s.json"), name="mock:s.json"), 2)[1].calls[0].args == {"n": 1000.0}


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\n"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("s.yaml", "- text: a\n- text: [", ":2"),
        ("s.yaml", "- text: a\n  text: b\n", ":2 cannot be used: the field 'text' is there twice"),
        ("s.yaml", "- &a {text: a}\n- *a\n", ":1 cannot be used: anchors"),
        ("s.yaml", BOMB, "anchors"),
        ("s.yaml", "- !!python/object/apply:os.system [id]\n", "tags"),
        ("s.yaml", "- text: !!binary aGk=\n", "tags"),
        ("s.yaml", "[" * 5000, "levels deep"),
        ("s.yaml", "- {[1, 2]: 3}\n", "a key must be a text"),
        ("s.yaml", "- text: a\n---\n- text: b\n", "more than one"),
        ("s.yaml", "text: a\n", "must be a list"),
        ("s.yaml", "", "must be a list"),
        ("s.yaml", "- text: \x00", "cannot be used"),
        ("s.yaml", b"- text: \xff\n", ":1 cannot be used: it is not UTF-8"),
        ("s.yaml", "- calls: [{tool: a, args: {n: " + "9" * 5000 + "}}]", "cannot be used"),
        ("s.json", '[{"text": "a"},\n {"text": }]', ":2 cannot be used"),
        ("s.json", '[{"text": "a", "text": "b"}]', "'text' is there twice"),
        ("s.json", '[{"calls": [{"tool": "a", "args": {"x": NaN}}]}]', "NaN"),
        ("s.json", "[" * 100_000, "too deep"),
        ("s.json", "{}", "must be a list"),
        ("s.yaml", b"x" * (5 << 20), "larger than 4 MiB"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_place(
    tmp_path: Path, name: str, content: str | bytes, says: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_script(file)
    assert caught.value.code == "script-invalid"
    assert str(file) in caught.value.message and says in caught.value.message


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, "a\0b"):
        with pytest.raises(ConfigError) as caught:
            load_script(path)
        assert caught.value.code == "script-unreadable"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), PLAIN, max_size=3))
def test_any_arguments_survive_the_file(args: dict[str, Any]) -> None:
    text = json.dumps([{"calls": [{"tool": "t", "args": args}]}])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("s.json", "s.yaml"):  # JSON is YAML, but for the halves of a pair
            if name == "s.json" or "\\ud" not in text:
                file = Path(folder, name)
                file.write_text(text, encoding="utf-8")
                assert play(load_script(file))[0].calls[0].args == args


# --- the rest of the kit


def test_a_skill_is_written_as_it_is_described(tmp_path: Path) -> None:
    skill = skill_dir(
        tmp_path,
        "demo",
        "# How\n",
        description='Says "hi": now.',
        files={"scripts/a.sh": "#!/bin/sh\n", "data/x.bin": b"\x00"},
        allowed_tools="skill_run",
        metadata={"version": "1.2"},
    )
    assert skill == tmp_path / "demo" and (skill / "scripts/a.sh").stat().st_mode & 0o100
    catalog = prowess.discover(str(tmp_path))
    (entry,) = catalog.entries
    assert (entry.name, entry.description, catalog.findings) == ("demo", 'Says "hi": now.', ())
    assert entry.controls.allowed_tools == ("skill_run",) and entry.version == "1.2"
    assert "# How" in prowess.load(catalog, "demo").body


CALL = ToolCall(id="c1", tool="skill_run", args={"skill": "demo"})
DECISION = Decision(verdict="ask", rule="r", why="because")


def test_an_approver_says_what_it_was_told() -> None:
    approver = ScriptedApprover(["once", None, "no"])
    answers = [asyncio.run(approver(CALL, DECISION)) for _ in range(3)]
    assert [answer and (answer.call_id, answer.answer, answer.by) for answer in answers] == [
        ("c1", "once", "script"),
        None,
        ("c1", "no", "script"),
    ]
    assert approver.asked == [(CALL, DECISION)] * 3
    approver.assert_finished()


def test_an_approver_complains_about_answers_that_are_missing_or_left() -> None:
    approver = ScriptedApprover(["once"])
    with pytest.raises(AssertionError, match="1 answers were given and 0 asked for: nothing"):
        approver.assert_finished()
    asyncio.run(approver(CALL, DECISION))
    with pytest.raises(AssertionError, match="Question 2 has no answer in the script: skill_run"):
        asyncio.run(approver(CALL, DECISION))
    with pytest.raises(AssertionError, match="1 answers were given and 2 asked for: skill_run, skill_run"):
        approver.assert_finished()
    with pytest.raises(ConfigError, match="'yes' is not an answer"):
        ScriptedApprover(["yes"])  # type: ignore[list-item]


def test_two_runs_can_be_compared_event_by_event() -> None:
    def stream(run: str, call: str, at: str) -> list[dict[str, Any]]:
        key = SessionKey(session=f"s-{run}")
        events = [
            RunStarted(model="m", parent=f"parent-of-{run}"),
            ModelReplied(calls=(ToolCall(id=call, tool="t", args={"id": "kept"}),), request_id=call),
            CallPlanned(call=ToolCall(id=call, tool="t")),
            CallActed(call_id=call, outcome=Outcome(status="ok", data={"seq": 1})),
            Compacted(why="w", before_tokens=2, after_tokens=1, replaced={call: "ref"}),
        ]

        async def go() -> list[dict[str, Any]]:
            log = MemoryEventLog()
            lease = await log.lease(key)
            await log.append(key, 0, lease, [Envelope(at=at, session=key.session, run=run, event=e) for e in events])
            return await events_of(log, key)

        return asyncio.run(go())

    found = stream("x", "call-9", "2026-01-01T00:00:00.000000Z")
    assert found == stream("y", "call-4", "2027-01-01T00:00:00.000000Z")
    assert [event["type"] for event in found] == [
        "run_started",
        "model_replied",
        "call_planned",
        "call_acted",
        "compacted",
    ]
    assert found[0]["run"] == "r1" and found[0]["parent"] == "r2"
    assert found[1]["calls"] == [{"id": "c1", "tool": "t", "args": {"id": "kept"}, "trigger": "model"}]
    assert found[3]["call_id"] == "c1" and found[3]["outcome"]["data"] == {"seq": 1}
    assert found[4]["replaced"] == {"c1": "ref"}
    assert not {"at", "hash", "prev", "session", "seq"} & set().union(*found)


def test_the_stores_of_the_kit_are_the_real_ones() -> None:
    from prowess.stores import memory

    assert (MemoryEventLog, MemoryArtifacts) == (memory.MemoryEventLog, memory.MemoryArtifacts)
