"""A text model that writes structured actions drives the loop like any other; what it writes badly is mended or sent
back, and what it is shown only grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.core.codec import to_json
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.values import Message, Part, ToolCall, ToolSpec, Usage
from prowess.errors import ModelError, ModelMalformed, ModelOverloaded
from prowess.models.actions.calls import render_documents, translate
from prowess.models.actions.model import StructuredActions
from prowess.models.actions.schema import parse_document, render_schema
from prowess.models.actions.transcript import render_protocol, render_transcript
from prowess.models.scripted import ScriptedModel

NAMES = ("skill_load", "skill_list_docs", "skill_read", "skill_run", "read_file", "update_plan")
TOOLS = [ToolSpec(name=name, description=f"Does {name}.", parameters={"type": "object"}) for name in NAMES]
PLAN = {"goal": "g", "steps": [{"id": "s1", "title": "t", "status": "pending"}]}
PATCH = {"set": {"s1": {"status": "completed"}}}


def say(role: Any, text: str, *calls: ToolCall, call_id: str | None = None) -> Message:
    return Message(role=role, parts=(Part(text=text),) if text else (), calls=calls, call_id=call_id)


ASK = [say("system", "You are helpful."), say("user", "Summarise sales.csv")]


class TextModel:
    """Writes these texts, in pieces of three characters, and remembers what it was asked."""

    def __init__(self, *texts: str | ModelReplied | Exception, size: int = 3) -> None:
        self.name = "text:model"
        self.context_tokens = 4096
        self.notes = ("a note",)
        self.closed = False
        self.sent = 0
        self.asked: list[tuple[list[Message], Sequence[ToolSpec], Mapping[str, Any] | None]] = []
        self._replies = list(texts)
        self._size = size

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        self.asked.append((list(messages), tools, schema))
        reply = self._replies[len(self.asked) - 1]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            usage = Usage(input=10, cached=4, output=5, requests=1, cost=0.25)
            reply = ModelReplied(text=reply, usage=usage, request_id=f"q{len(self.asked)}", model="m")
        for start in range(0, len(reply.text), self._size):
            self.sent += 1
            if on_delta is not None:
                on_delta(TextDelta(text=reply.text[start : start + self._size]))
        return reply

    async def aclose(self) -> None:
        self.closed = True


def ask(
    *texts: str | ModelReplied | Exception,
    messages: Sequence[Message] = ASK,
    tools: Sequence[ToolSpec] = TOOLS,
    **more: Any,
) -> tuple[ModelReplied, list[TextDelta | CallDelta], TextModel]:
    deltas: list[TextDelta | CallDelta] = []
    inner = TextModel(*texts)
    reply = asyncio.run(StructuredActions(inner).reply(messages, tools, on_delta=deltas.append, **more))
    return reply, deltas, inner


def made(reply: ModelReplied) -> list[tuple[str, dict[str, Any]]]:
    return [(call.tool, call.args) for call in reply.calls]


def document(action: Mapping[str, Any], **plan: Any) -> str:
    return json.dumps({**plan, "action": action}, ensure_ascii=False)


# --- what becomes of an action


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (
            {"type": "select_skills", "skills": [{"name": "a"}, {"name": "b", "source": "project"}], "reason": "fits"},
            [
                ("skill_load", {"skill": "a", "reason": "fits"}),
                ("skill_load", {"skill": "project:b", "reason": "fits"}),
            ],
        ),
        ({"type": "select_skills", "skills": ["a", "a"]}, [("skill_load", {"skill": "a"})]),
        ({"type": "select_skills", "skills": "a", "reason": ""}, [("skill_load", {"skill": "a"})]),
        (
            {"type": "load_resource", "skill": {"name": "a"}, "relative_path": "ref/x.md", "section_hint": "## Y"},
            [("skill_read", {"skill": "a", "path": "ref/x.md", "section_hint": "## Y"})],
        ),
        (
            {"type": "load_resource", "skill": "a", "relative_path": "x.md", "section_hint": None},
            [("skill_read", {"skill": "a", "path": "x.md"})],
        ),
        (
            {
                "type": "run_script",
                "skill": {"name": "a", "source": None},
                "relative_path": "s.py",
                "args": ["-n", 3, True],
            },
            [("skill_run", {"skill": "a", "script": "s.py", "args": ["-n", "3", "true"]})],
        ),
        (
            {"type": "run_script", "skill": {"name": "user:a", "source": "user"}, "relative_path": "s.py"},
            [("skill_run", {"skill": "user:a", "script": "s.py", "args": []})],
        ),
        ({"type": "call_tool", "tool": "read_file", "args": {"n": [1]}}, [("read_file", {"n": [1]})]),
        ({"type": "call_tool", "tool": "read_file"}, [("read_file", {})]),
    ],
)
def test_an_action_becomes_calls(action: dict[str, Any], calls: list[Any]) -> None:
    reply, _, _ = ask(document(action))
    assert made(reply) == calls
    assert (reply.text, reply.finish) == ("", "calls")
    assert [call.id for call in reply.calls] == [f"a{n}" for n in range(1, len(calls) + 1)]


def test_a_final_answer_is_the_text() -> None:
    reply, deltas, _ = ask(document({"type": "final_answer", "content": "Fertig. 完成 😀"}))
    assert (reply.text, reply.calls, reply.finish) == ("Fertig. 完成 😀", (), "stop")
    assert (reply.request_id, reply.model) == ("q1", "m")
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text


@pytest.mark.parametrize(
    ("given_plan", "updates"),
    [
        ({"plan": PLAN}, [{"plan": PLAN}]),
        ({"plan_update": PATCH}, [{"patch": PATCH}]),
        ({"plan_update": PLAN}, [{"plan": PLAN}]),
        ({"plan": PLAN, "plan_update": PATCH}, [{"plan": PLAN}, {"patch": PATCH}]),
        ({"plan": None, "plan_update": {}}, []),
    ],
)
def test_a_plan_is_updated_before_anything_else(given_plan: dict[str, Any], updates: list[Any]) -> None:
    reply, _, _ = ask(document({"type": "call_tool", "tool": "read_file", "args": {}}, **given_plan))
    assert made(reply) == [*(("update_plan", args) for args in updates), ("read_file", {})]
    final, _, _ = ask(document({"type": "final_answer", "content": "x"}, **given_plan))
    assert (made(final), final.text, final.finish) == ([("update_plan", args) for args in updates], "x", "stop")


def test_ids_go_on_from_those_in_the_transcript() -> None:
    before = [
        *ASK,
        say("assistant", "", ToolCall(id="a7", tool="x"), ToolCall(id="a", tool="x"), ToolCall(id="c9", tool="x")),
    ]
    for _ in range(2):
        reply, _, _ = ask(document({"type": "call_tool", "tool": "x"}, plan=PLAN), messages=before)
        assert [call.id for call in reply.calls] == ["a8", "a9"]


def test_an_action_that_stands_alone_and_what_does_not_belong_to_it_are_accepted() -> None:
    reply, deltas, _ = ask('{"thought": "hm", "type": "final_answer", "content": "yes"}')
    assert reply.text == "yes" and "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "yes"


def test_an_answer_under_a_schema_is_a_document_of_that_schema() -> None:
    wanted = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    reply, _, inner = ask(document({"type": "final_answer", "content": {"n": 3}}), schema=wanted)
    assert json.loads(reply.text) == {"n": 3}
    offered = inner.asked[0][2]
    jsonschema.validate({"action": {"type": "final_answer", "content": {"n": 3}}}, offered or {})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"action": {"type": "final_answer", "content": {"n": "x"}}}, offered or {})


# --- while it arrives


def test_an_answer_is_told_as_it_is_written() -> None:
    _, deltas, _ = ask(document({"type": "final_answer", "content": "one two three"}))
    assert len(deltas) > 3 and all(isinstance(delta, TextDelta) for delta in deltas)


def test_a_tool_is_told_when_its_type_is_known() -> None:
    action = {"type": "run_script", "skill": {"name": "a"}, "relative_path": "s.py", "args": ["x" * 300]}
    text = document(action, plan=PLAN)
    inner = TextModel(text, size=1)
    deltas: list[Any] = []
    told: list[int] = []  # after how many characters

    def note(delta: Any) -> None:
        deltas.append(delta)
        told.append(inner.sent)

    asyncio.run(StructuredActions(inner).reply(ASK, TOOLS, on_delta=note))
    assert deltas == [CallDelta(index=0, tool="update_plan"), CallDelta(index=1, tool="skill_run")]
    assert told[1] == text.index("run_script") + len('run_script"')


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"action": {"content": "late type", "type": "final_answer"}}', "late type"),
        ('Well:\n```json\n{"action": {"type": "final_answer", "content": "in a fence"}}\n```', "in a fence"),
        ('<think>{"type": "final_answer", "content": "no"}</think>{"type": "final_answer", "content": "yes"}', "yes"),
        (
            '\n <think>a<b </thin {"type": "final_answer"}</think> {"type": "final_answer", "content": "y"}',
            "y",
        ),
        ('<thin> {"type": "final_answer", "content": "x"}', "x"),
        ('a {b} {"action": {"type": "final_answer", "content": "after a brace"}}', "after a brace"),
        ('{"content": "not this", "action": {"type": "final_answer", "content": "this"}}', "this"),
        ('{"action": {"type": "final_answer", "content": "half \\ud83d."}}', "half \ufffd."),
        ('{"action": {"type": "final_answer", "content": ""}}', ""),
        (
            '{"action": {"type": "final_answer", "content": "first"}}\n{"type": "final_answer", "content": "second"}',
            "first",
        ),
    ],
)
def test_what_is_told_is_what_is_answered(text: str, answer: str) -> None:
    reply, deltas, _ = ask(text)
    assert reply.text == answer
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer


def test_two_answers_do_not_run_into_each_other() -> None:
    broken = '{"action": {"type": "final_answer", "content": "Hello the"re"}}'
    reply, deltas, _ = ask(broken, document({"type": "final_answer", "content": "Hello there"}))
    assert reply.text == "Hello there"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello there"


def test_a_model_that_does_not_stream_is_told_at_the_end() -> None:
    deltas: list[Any] = []
    script = ScriptedModel([{"action": {"type": "select_skills", "skills": [{"name": "a"}]}, "plan": PLAN}])

    class Silent:
        name = "silent"

        async def reply(self, messages: Any, tools: Any, *, on_delta: Any = None, schema: Any = None) -> ModelReplied:
            return await script.reply(messages, tools, schema=schema)

    asyncio.run(StructuredActions(Silent()).reply(ASK, TOOLS, on_delta=deltas.append))
    assert deltas == [CallDelta(index=0, tool="update_plan"), CallDelta(index=1, tool="skill_load")]


# --- what is wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Hello!", "not one JSON object"),
        ("", "not one JSON object"),
        ("[]", "must be one JSON object"),
        ('{"answer": 1}', "'action' is missing"),
        ('{"acton": {"type": "final_answer", "content": "x"}}', "did you mean 'action'?"),
        ('{"action": "final_answer"}', "must be an object with a 'type', one of select_skills, load_resource"),
        ('{"action": {"type": "final_anser", "content": "x"}}', "Did you mean 'final_answer'?"),
        ('{"action": {"type": "skill_run", "skill": "x"}}', 'It is a tool: {"type": "call_tool", "tool": "skill_run"'),
        ('{"action": {"type": "final_answer"}}', "action final_answer: 'content' is missing"),
        ('{"action": {"type": "final_answer", "contents": "x"}}', "did you mean 'content'?"),
        ('{"action": {"type": "select_skills", "skills": []}}', "'skills'"),
        ('{"action": {"type": "select_skills", "skills": [{"name": "a", "source": "moon"}]}}', "'skills.0.source'"),
        ('{"action": {"type": "run_script", "skill": {}, "relative_path": ""}}', "'skill.name' is missing"),
        ('{"action": {"type": "call_tool", "tool": "x", "args": "y"}}', "'args'"),
        ('{"plan": "p", "action": {"type": "final_answer", "content": "x"}}', "'plan' must be an object"),
        ('{"action": {"type": "call_tool", "tool": "x", "args": {"n": 1e999}}}', "too large"),
        ('{"action": {"type": "call_tool", "tool": "x", "args": {"n": NaN}}}', "NaN"),
        ('{"action": {"type": "call_tool", "tool": "x", "args": ' + '{"a": ' * 300 + "1" + "}" * 302, "levels deep"),
        ("[" * 100_000, "not one JSON object"),
        (
            '{"action": {"type": "run_script", "skill": {"name": "a"}, "relative_path": "s.py", "args": ["rm", "/tmp/a',
            "JSON",
        ),
        ('{"action": {"type": "run_script", "skill": {"name": "a"}, "relative_path": "s.py", "args": ["rm"', "JSON"),
    ],
)
def test_what_is_no_action_goes_back_to_the_model_with_the_reason(text: str, says: str) -> None:
    reply, _, inner = ask(text, document({"type": "final_answer", "content": "better"}))
    assert reply.text == "better"
    first, second = inner.asked[0][0], inner.asked[1][0]
    assert second[: len(first)] == first
    bad, back = second[len(first) :]
    assert (bad.role, back.role) == ("assistant", "user")
    assert says in (back.parts[0].text or "")
    assert (reply.usage, reply.request_id) == (Usage(input=20, cached=8, output=10, requests=2, cost=0.5), "q2")


@pytest.mark.parametrize(
    "text",
    [
        '{"action": {"type": "run_script", "skill": {"name": "a"}, "relative_path": "s.py", "args": ["x",],}}',
        'Now:\n```json\n{"action": {"type": "run_script", "skill": "a", "relative_path": "s.py", "args": ["x"]}}\n```',
        '{"action": {"type": "run_script", "skill": "a", "relative_path": "s.py", "args": ["x"]}',
        '{“action”: {“type”: “run_script”, "skill": "a", "relative_path": "s.py", "args": ["x"]}, "plan": None}',
        '{"action": {"type": "run_script", "skill": "a", "relative_path": "s.py", "args": ["x"]}} Output: {"a": 1}',
    ],
)
def test_what_is_slightly_wrong_is_mended_without_asking(text: str) -> None:
    reply, _, inner = ask(text)
    assert made(reply) == [("skill_run", {"skill": "a", "script": "s.py", "args": ["x"]})]
    assert len(inner.asked) == 1


def test_garbage_for_ever_is_an_error_that_shows_it() -> None:
    inner = TextModel(*["x" * 600] * 3)
    with pytest.raises(ModelMalformed) as caught:
        asyncio.run(StructuredActions(inner).reply(ASK, TOOLS))
    assert caught.value.code == "action-invalid" and not caught.value.retryable
    assert (
        "3 tries" in caught.value.message
        and "x" * 500 in caught.value.message
        and "x" * 501 not in caught.value.message
    )
    assert len(inner.asked) == 3
    assert len(inner.asked[2][0]) == len(inner.asked[0][0]) + 4


def test_how_often_it_asks_again_can_be_said() -> None:
    inner = TextModel("x", "y")
    with pytest.raises(ModelMalformed):
        asyncio.run(StructuredActions(inner, tries=0).reply(ASK, TOOLS))
    assert len(inner.asked) == 1


@pytest.mark.parametrize(
    "text", ['{"action": {"type": "final_answer", "content": "It is a lo', "Well, {", "", '{"action": {"type"']
)
def test_a_reply_that_was_cut_off_is_told_so_and_not_taken_for_a_shorter_one(text: str) -> None:
    cut = ModelReplied(text=text, finish="length")
    with pytest.raises(ModelMalformed) as caught:
        ask(cut, cut, cut)
    assert caught.value.code == "reply-cut"
    reply, _, inner = ask(cut, document({"type": "final_answer", "content": "x"}))
    told = inner.asked[1][0][-1].parts[0].text or ""
    assert reply.text == "x" and "it was cut off by the length limit of a reply. Make it shorter" in told


def test_a_reply_that_is_no_json_is_told_where() -> None:
    wrong = '{"action": {"type": "call_tool" "tool": "skill_load", "args": {"skill": "a"}}}'
    _, _, inner = ask(wrong, document({"type": "final_answer", "content": "x"}))
    told = inner.asked[1][0][-1].parts[0].text or ""
    assert "Expecting ',' delimiter at character 33 of 78, after `" in told and '`"tool": "skill_load", ' in told
    args = document({"type": "call_tool", "tool": "list_dir", "args": '{"path": }'})
    _, _, inner = ask(args, document({"type": "call_tool", "tool": "list_dir", "args": '{"path": "out"}'}))
    assert "Expecting value at character 10 of 10" in (inner.asked[1][0][-1].parts[0].text or "")


def test_a_reply_whose_document_is_whole_was_not_cut_where_it_matters() -> None:
    reply, _, _ = ask(
        ModelReplied(text=document({"type": "final_answer", "content": "x"}) + " and so", finish="length")
    )
    assert (reply.text, reply.finish) == ("x", "stop")


def test_what_the_provider_filtered_is_passed_on() -> None:
    reply, _, _ = ask(ModelReplied(text="I cannot help with that.", finish="filter"))
    assert (reply.text, reply.finish) == ("I cannot help with that.", "filter")


def test_an_error_of_the_model_is_its_own() -> None:
    with pytest.raises(ModelOverloaded):
        ask("garbage", ModelOverloaded("busy"))


def test_calls_of_a_model_with_tools_of_its_own_are_passed_on() -> None:
    call = ToolCall(id="n1", tool="read_file", args={"file_name": "x"})
    reply, _, _ = ask(ModelReplied(calls=(call,), finish="calls"))
    assert reply.calls == (call,)


def test_it_is_a_model_like_the_one_inside() -> None:
    inner = TextModel()
    model = StructuredActions(inner)
    assert (model.name, model.protocol, model.context_tokens, model.notes) == (
        "text:model",
        "actions",
        4096,
        ("a note",),
    )
    asyncio.run(model.aclose())
    assert inner.closed and model.inner is inner
    bare = StructuredActions(ScriptedModel([]))
    assert (bare.context_tokens, bare.notes) == (None, ())


# --- what the model is shown


def test_the_model_gets_a_schema_and_no_tools() -> None:
    _, _, inner = ask(document({"type": "final_answer", "content": "x"}))
    messages, tools, schema = inner.asked[0]
    assert tools == () and schema == render_schema(NAMES)
    system = messages[0]
    assert [part.text for part in system.parts] == ["You are helpful.", render_protocol(TOOLS)]
    assert system.parts[1].ref == "note:protocol"
    assert messages[1] == ASK[1]


def test_without_a_system_message_there_is_one_now() -> None:
    rendered = render_transcript([say("user", "hi")], TOOLS)
    assert [message.role for message in rendered] == ["system", "user"]


def test_only_what_is_possible_is_offered() -> None:
    assert "select_skills" in render_protocol(TOOLS) and "update_plan" not in render_protocol(TOOLS)
    alone = render_protocol([])
    assert "final_answer" in alone and "select_skills" not in alone and "Plan" not in alone and "call_tool" not in alone
    kinds = [each["properties"]["type"]["const"] for each in render_schema([])["properties"]["action"]["anyOf"]]
    assert kinds == ["final_answer"]
    kinds = [each["properties"]["type"]["const"] for each in render_schema(["x"])["properties"]["action"]["anyOf"]]
    assert kinds == ["call_tool", "final_answer"]


def test_the_schema_is_small() -> None:
    jsonschema.Draft202012Validator.check_schema(render_schema(NAMES))
    assert len(json.dumps(render_schema(NAMES))) < 2_100
    assert len(render_protocol([ToolSpec(name=name, description="") for name in NAMES])) < 1_300


def test_a_transcript_reads_as_the_model_wrote_it() -> None:
    load = ToolCall(id="a1", tool="update_plan", args={"plan": PLAN})
    one = ToolCall(id="a2", tool="skill_load", args={"skill": "csv-report", "reason": "fits"})
    two = ToolCall(id="a3", tool="skill_load", args={"skill": "user:charts", "reason": "fits"})
    picture = Part(kind="image", ref="data:image/png;base64,AA==")
    messages = [
        *ASK,
        say("assistant", "", load, one, two),
        say("tool", "plan: 0 of 1 done", call_id="a1"),
        Message(role="tool", call_id="a2", parts=(Part(text="# Body", ref="skill://x@1"), Part(text="doc"))),
        Message(role="tool", call_id="a3", parts=(picture,)),
        say("user", "budget: 3 turns left"),
        Message(role="tool", call_id="gone"),
        say("assistant", "All done."),
    ]
    rendered = render_transcript(messages, TOOLS)
    select = {
        "type": "select_skills",
        "skills": [{"name": "csv-report"}, {"name": "charts", "source": "user"}],
        "reason": "fits",
    }
    assert [(m.role, [part.text for part in m.parts]) for m in rendered[2:]] == [
        ("assistant", [json.dumps({"plan": PLAN, "action": select})]),
        (
            "user",
            [
                "Observation (plan):\nplan: 0 of 1 done",
                "Observation (select_skills csv-report):\n# Body",
                "doc",
                "Observation (select_skills user:charts):\n",
                None,
            ],
        ),
        ("user", ["budget: 3 turns left"]),
        ("user", ["Observation:\n(nothing)"]),
        ("assistant", ['{"action": {"type": "final_answer", "content": "All done."}}']),
    ]
    assert rendered[3].parts[1].ref == "skill://x@1" and rendered[3].parts[-1] == picture
    assert not any(message.calls or message.role == "tool" for message in rendered)


def test_calls_of_several_actions_become_several_documents() -> None:
    """As a model with tools of its own makes them."""
    calls = [
        ToolCall(id="1", tool="skill_load", args={"skill": "a", "docs": ["x.md"]}),
        ToolCall(id="2", tool="skill_run", args={"skill": "a", "command": "ls"}),
        ToolCall(id="3", tool="skill_run", args={"skill": "a", "script": "s.py"}),
        ToolCall(id="4", tool="skill_read", args={"skill": "a", "path": "x", "section": "y"}),
    ]
    lines = render_documents("Let me look.", calls).split("\n")
    assert lines[0] == "Let me look."
    assert [json.loads(line)["action"]["type"] for line in lines[1:]] == [
        "call_tool",
        "call_tool",
        "run_script",
        "call_tool",
    ]


WORD = st.text('ab:😀"\\\n', max_size=4)
SKILL = st.sampled_from(["a", "user:a", "user:user:a", "x:y", "project:", ":a", "org/a"])
ARGS = st.dictionaries(WORD, st.none() | st.integers() | WORD | st.lists(WORD, max_size=2), max_size=2)
CALLS = st.one_of(
    st.tuples(
        st.just("skill_load"),
        st.fixed_dictionaries({"skill": SKILL}, optional={"reason": WORD, "docs": st.just(["d"])}),
    ),
    st.tuples(
        st.just("skill_read"), st.fixed_dictionaries({"skill": SKILL, "path": WORD}, optional={"section_hint": WORD})
    ),
    st.tuples(
        st.just("skill_run"),
        st.fixed_dictionaries({"skill": SKILL, "script": WORD, "args": st.lists(WORD, max_size=2)}),
    ),
    st.tuples(
        st.just("update_plan"), st.sampled_from([{"plan": PLAN}, {"patch": PATCH}, {"patch": PLAN}, {"plan": {}}, {}])
    ),
    st.tuples(st.sampled_from(["read_file", "skill_run", "x"]), ARGS),
)


@given(st.lists(CALLS, max_size=4), WORD)
def test_the_documents_of_calls_are_those_calls(made: list[tuple[str, dict[str, Any]]], text: str) -> None:
    calls = [ToolCall(id=f"n{at}", tool=tool, args=args) for at, (tool, args) in enumerate(made)]
    written = render_documents(text, calls)
    assert written == render_documents(text, calls)
    found: list[tuple[str, dict[str, Any]]] = []
    said = ""
    lines = written.split("\n") if text == "" or not calls else written.removeprefix(text).strip("\n").split("\n")
    for line in lines:
        done = translate(parse_document(json.loads(line)), iter("abcdef"))
        found += [(call.tool, call.args) for call in done.calls]
        said += done.text
    assert _without_repeats(found) == _without_repeats(made)
    if not calls:
        assert said == text


def _without_repeats(calls: list[Any]) -> list[Any]:
    """A skill that is selected twice in one action is loaded once."""
    kept: list[Any] = []
    for call in calls:
        if call[0] != "skill_load" or call not in kept:
            kept.append(call)
    return kept


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    messages = [say("system", draw(WORD))]
    for at in range(draw(st.integers(0, 6))):
        role = draw(st.sampled_from(["user", "assistant", "tool", "system"]))
        calls = [ToolCall(id=f"n{at}{n}", tool=t, args=a) for n, (t, a) in enumerate(draw(st.lists(CALLS, max_size=3)))]
        answered = draw(st.sampled_from(["n10", "n20", "n31", "none"]))
        messages.append(
            say(role, draw(WORD), *(calls if role == "assistant" else ()), call_id=answered if role == "tool" else None)
        )
    return messages


@given(transcripts())
def test_what_was_rendered_never_changes_while_messages_are_added(messages: list[Message]) -> None:
    whole = _flat(render_transcript(messages, TOOLS))
    for cut in range(1, len(messages)):
        before = _flat(render_transcript(messages[:cut], TOOLS))
        assert whole[: len(before)] == before


def _flat(messages: Sequence[Message]) -> list[Any]:
    """One part after the other, as they stand in the request."""
    return [(message.role, to_json(part)) for message in messages for part in message.parts or (Part(text=""),)]


SCHEMA_SKILL = st.fixed_dictionaries({"name": st.sampled_from(["a", "b"])}, optional={"source": st.just("user")})
FITTING = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("select_skills"), "skills": st.lists(SCHEMA_SKILL, min_size=1, max_size=2), "reason": WORD}
    ),
    st.fixed_dictionaries(
        {"type": st.just("load_resource"), "skill": SCHEMA_SKILL, "relative_path": st.just("x")},
        optional={"section_hint": WORD},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("run_script"),
            "skill": SCHEMA_SKILL,
            "relative_path": st.just("x"),
            "args": st.lists(WORD, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("call_tool"), "tool": st.sampled_from(["skill_run", "read_file"]), "args": ARGS}
    ),
    st.fixed_dictionaries({"type": st.just("final_answer"), "content": WORD}),
)


@given(FITTING, st.booleans())
def test_what_fits_the_schema_is_understood_and_shown_in_the_same_form(action: dict[str, Any], planned: bool) -> None:
    data = {"plan": PLAN, "action": action} if planned else {"action": action}
    validator = jsonschema.Draft202012Validator(render_schema(NAMES))
    validator.validate(data)
    done = translate(parse_document(data), iter("abcdef"))
    if done.text or action["type"] != "final_answer":  # an empty answer with a plan reads as a call of update_plan
        shown = json.loads(render_documents(done.text, done.calls))
        if shown["action"].get("reason") is None and shown["action"]["type"] == "select_skills":
            shown["action"]["reason"] = ""  # an empty reason is none
        validator.validate(shown)


def test_a_scripted_model_plays_actions_with_or_without_the_wrapper() -> None:
    script = [{"action": {"type": "select_skills", "skills": [{"name": "a"}], "reason": "r"}, "plan": PLAN}]
    bare = asyncio.run(ScriptedModel(script).reply(ASK, TOOLS))
    wrapped = asyncio.run(StructuredActions(ScriptedModel(script)).reply(ASK, TOOLS))
    assert (
        made(bare) == made(wrapped) == [("update_plan", {"plan": PLAN}), ("skill_load", {"skill": "a", "reason": "r"})]
    )
    with pytest.raises(ModelError):
        asyncio.run(StructuredActions(ScriptedModel([{"text": "x"}])).reply(ASK, TOOLS))
