"""No server of the field refuses a request because of the order of its messages: over random flows, and against a
server that refuses all that any of them refuses."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import prowess
from agents import open_session
from conftest import make_skill
from kits import yes
from model_contract import CHAT, MESSAGES, RESPONSES, Wire
from prowess.agent.agent import Limits
from prowess.agent.context.conversation import Conversation
from prowess.agent.context.request import RequestLines
from prowess.agent.session import Session
from prowess.core.events import (
    CallActed,
    Compacted,
    Envelope,
    EpochStarted,
    Event,
    ModelReplied,
    ModelRequested,
    RunStarted,
    SkillUnloaded,
    UnknownEvent,
    parse_event,
    render_event,
)
from prowess.core.values import Message, ToolCall, ToolSpec, Usage
from prowess.errors import ModelError, ProwessError
from prowess.models.actions.calls import render_documents
from prowess.models.actions.model import StructuredActions
from prowess.models.providers import anthropic, openai_chat, openai_responses
from prowess.models.providers.message_order import arrange
from prowess.stores.memory import MemoryEventLog
from prowess.tools.toolset import Tools
from strict_order import find_fault
from stub_provider import Answer, chat, messages, open_stub, spoken, sse

NAMES = ("alpha", "beta", "gamma")
WIRES: dict[str, Callable[[Sequence[Message], Sequence[ToolSpec]], Mapping[str, Any]]] = {
    "chat": lambda messages, tools: openai_chat.render_request(arrange(messages, short_ids=True), tools, None),
    "responses": lambda messages, tools: openai_responses.render_request(arrange(messages), tools, None),
    "messages": lambda messages, tools: anthropic.render_request(arrange(messages), tools, lambda id: None),
}


class Killed(BaseException):
    """The process ends here: nothing more is recorded."""


class FlowModel:
    """Model that plays a flow, says "done" after its end, and shows each request to a strict server of every wire."""

    name = "flow"

    def __init__(self, steps: Sequence[Any], *, documents: bool) -> None:
        self._steps = list(steps)
        self._documents = documents
        self._made = 0
        self.requests: list[tuple[Sequence[Message], Sequence[ToolSpec]]] = []

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_delta: Any = None, schema: Any = None
    ) -> ModelReplied:
        is_repair = self._documents and "Reply again" in str(messages[-1].parts[-1].text)
        if not is_repair:  # of one reply, and not kept
            self.requests.append((tuple(messages), tuple(tools)))
        assert messages[-1].role in ("user", "tool")
        for wire, render in WIRES.items():
            assert find_fault(wire, render(messages, tools)) is None
        step = self._steps.pop(0) if self._steps else "done"
        if step == "KILL":
            raise Killed
        if step == "ERROR":
            raise ModelError("The model broke.", code="model-broken")
        if isinstance(step, str):
            finish = "length" if step == "CUT" else "stop"
            text = {"EMPTY": "", "CUT": "It is "}.get(step, step)
            return self._reply(text, (), finish)
        calls: list[ToolCall] = []
        for tool, args in step:
            self._made += 1
            calls.append(ToolCall(id=f"call_{self._made}", tool=tool, args=args))
        return self._reply("", calls, "calls")

    def _reply(self, text: str, calls: Sequence[ToolCall], finish: Any) -> ModelReplied:
        if self._documents and (text or calls):
            text, calls, finish = render_documents(text, calls).partition("\n")[0], (), "stop"
        return ModelReplied(text=text, calls=tuple(calls), finish=finish, usage=Usage(requests=1))

    async def aclose(self) -> None:
        pass


@prowess.tool
def kill() -> str:
    """Ends the process."""
    raise Killed


@prowess.tool(requires_approval=True)
def dangerous() -> str:
    """Needs a person."""
    return "DONE-IT"


def write_library(root: Path, make_skill: Any) -> None:
    for name in NAMES:
        files = {f"references/{name}.md": f"DOC-{name}", "scripts/go.sh": f"echo RAN-{name}\n"}
        front = f"name: {name}\ndescription: Does {name} things.\nargument-hint: <what>\n"
        make_skill(root / name, front=front, body=f"BODY-{name}\n", files=files)
    make_skill(root / "tables", front='name: tables\ndescription: T.\npaths: ["*.csv"]\n', body="TABLES-BODY\n")
    front = "name: delegate\ndescription: Works alone.\nrun-mode: subagent\n"
    make_skill(root / "delegate", front=front, body="Do it alone.\n")


def calls_of(tool: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(tool), st.fixed_dictionaries(fields))


name = st.sampled_from(NAMES)
CALLS = st.one_of(
    calls_of("skill_load", skill=st.sampled_from([*NAMES, "delegate", "nobody"])),
    name.map(lambda n: ("skill_load", {"skill": n, "docs": [f"references/{n}.md"]})),
    name.map(lambda n: ("skill_select_docs", {"skill": n, "docs": [f"references/{n}.md"], "mode": "add"})),
    calls_of("skill_unload", skill=name),
    name.map(lambda n: ("skill_read", {"skill": n, "path": f"references/{n}.md"})),
    name.map(lambda n: ("skill_run", {"skill": n, "command": "echo 1 > out/a.csv"})),
    name.map(lambda n: ("skill_run", {"skill": n, "command": "exit 3"})),
    st.just(("update_plan", {"plan": {"goal": "g", "steps": ["one", "two"]}})),
    st.just(("no_such_tool", {"x": 1})),
    st.sampled_from([("dangerous", {}), ("kill", {})]),
)
STEPS = st.one_of(
    st.lists(CALLS, min_size=1, max_size=3),
    st.lists(CALLS, min_size=1, max_size=3),
    st.sampled_from(["EMPTY", "CUT", "ERROR", "KILL", "an answer", "an answer"]),
)
REQUESTS = st.sampled_from(
    ["go on", "/alpha one two", "use $beta", "a.csv", "/delegate it", "RESUME", "RESUME and more"]
)


class Flow:
    """Runs of one session. After a kill another process goes on with it."""

    def __init__(
        self,
        root: Path,
        steps: Sequence[Any],
        *,
        protocol: str,
        has_approver: bool,
        log: MemoryEventLog | None = None,
        **options: Any,
    ) -> None:
        self._root = root
        self.has_actions = protocol == "actions"
        self.model = FlowModel(steps, documents=self.has_actions)
        self._used: Any = StructuredActions(self.model) if self.has_actions else self.model
        self._log = log or MemoryEventLog()
        self._options = {"approver": yes if has_approver else None, **options}
        self.envelopes: list[Envelope] = []
        self.seen = Counter[str]()

    async def play(self, requests: Sequence[str]) -> None:
        left = list(requests)
        while left:
            try:
                await self._play(left)
            except Killed:
                self.seen["killed"] += 1

    async def _play(self, left: list[str]) -> None:
        """Opens the session anew, and plays until it is killed."""
        async with open_session(
            self._root,
            self._used,
            session="s-1",
            log=self._log,
            on_event=(self.envelopes.append,),
            toolsets=[Tools(kill, dangerous)],
            settings={"limits.scripts": 50, "limits.calls": 100},
            **self._options,
        ) as session:
            while left:
                await self._run(session, left.pop(0))
            refold = Conversation(session.kit.conversation.shown)
        check_refold(refold, self.envelopes)

    async def _run(self, session: Session, request: str) -> None:
        _, _, text = request.rpartition("RESUME")
        given: dict[str, Any] = {"request": text.strip(), "resume": "RESUME" in request}
        if text == "a.csv":
            given["files"] = [str(self._root / "a.csv")]
        try:
            await session.run(**given)
        except ProwessError as error:
            self.seen[str(error.code)] += 1


def check_refold(refold: Conversation, envelopes: Sequence[Envelope]) -> None:
    """The log alone gives every request of the session again."""
    children: set[str] = set()
    for envelope in envelopes:
        event = envelope.event
        if envelope.seq is None:
            continue
        if isinstance(event, RunStarted) and event.parent is not None:
            children.add(envelope.run)
        refold.apply_envelope(parse_event(json.loads(json.dumps(render_event(envelope), sort_keys=True))))
        if isinstance(event, ModelRequested) and envelope.run not in children:
            assert refold.request().sha256 == event.sha256


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=12),
    requests=st.lists(REQUESTS, min_size=1, max_size=5),
    load_mode=st.sampled_from(["turn", "once", "session"]),
    placement=st.sampled_from(["tool_result", "system"]),
    protocol=st.sampled_from(["tools", "actions"]),
    has_approver=st.booleans(),
    turns=st.sampled_from([3, 6, 25]),
)
def test_every_request_is_in_the_order_that_the_strictest_server_asks_for(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, requests: Any, turns: int, **options: Any
) -> None:
    root = tmp_path_factory.mktemp("library")
    write_library(root, make_skill)
    (root / "a.csv").write_text("1\n")
    flow = Flow(root, steps, limits=Limits(turns=turns), **options)
    asyncio.run(flow.play(["first", *requests]))
    assert flow.model.requests
    shutil.rmtree(root)


class DyingLog(MemoryEventLog):
    """Log of a process that dies when an empty reply was written."""

    async def append(self, key: Any, expected_seq: int, lease: Any, events: Sequence[Envelope]) -> Sequence[Envelope]:
        stored = await super().append(key, expected_seq, lease, events)
        if any(isinstance(each.event, ModelReplied) and not each.event.calls for each in events):
            raise Killed
        return stored


@pytest.mark.parametrize("reply", ["EMPTY", " \n"])
def test_a_request_after_an_empty_reply_that_a_process_died_at(tmp_path: Path, reply: str) -> None:
    """No server is sent an empty reply, so it does not part the results from the request."""
    write_library(tmp_path, make_skill)
    steps: list[Any] = [[("skill_load", {"skill": "alpha"})], reply]
    flow = Flow(tmp_path, steps, protocol="tools", has_approver=True, log=DyingLog())
    asyncio.run(flow.play(["first", "second"]))
    assert flow.seen["killed"] == 2 and len(flow.model.requests) == 3


# --- a prefix that holds ----------------------------------------------------------------------------------------------


def bytes_of(request: tuple[Sequence[Message], Sequence[ToolSpec]]) -> bytes:
    messages, tools = request
    return b"".join(RequestLines(tools, messages).lines)


def is_a_change(event: Event | UnknownEvent) -> bool:
    """True for what may take something out of the next request."""
    if isinstance(event, CallActed):
        return bool(event.outcome.data.get("no_longer_selected"))
    return isinstance(event, SkillUnloaded | Compacted)


def on_the_wire(wire: str, request: tuple[Sequence[Message], Sequence[ToolSpec]]) -> str:
    """Everything that a server renders into the prompt, in order: tools, system text, messages without their ends."""
    body = dict(WIRES[wire](*request))
    said = body.pop("messages")
    text = json.dumps([body.pop("tools", ()), body.pop("system", ()), said]).replace(MARK, "")
    return text.rstrip('"}]')


MARK = ', "cache_control": {"type": "ephemeral"}'  # where a prefix is cached; not a part of the prompt


def check_prefix(flow: Flow) -> int:
    """Every request begins with all bytes of the one before it, unless something was taken out since, or that one got
    no reply. So it does on the wire. Returns how many did at the next request of the user."""
    requests = iter(flow.model.requests)
    children: set[str] = set()
    before, sent_before, kept, recorded = b"", ["", ""], 0, 0
    is_new = is_epoch = is_unanswered = is_taken_out = False
    for envelope in flow.envelopes:
        event = envelope.event
        if isinstance(event, RunStarted) and event.parent is not None:
            children.add(envelope.run)
        if envelope.run in children:
            if isinstance(event, ModelRequested):
                next(requests)
            continue
        is_taken_out = is_taken_out or is_a_change(event)
        is_new = is_new or isinstance(event, RunStarted)
        may_change = is_taken_out or is_unanswered
        if isinstance(event, EpochStarted) and before:
            is_epoch = True
            assert event.system is None and event.tools is None
            assert may_change or event.first_changed == recorded
        elif isinstance(event, ModelRequested):
            request = next(requests)
            now = bytes_of(request)
            if not flow.has_actions:  # else the model is shown more: how to write an action
                assert len(now) == event.bytes
            recorded = event.bytes
            wires = [on_the_wire(wire, request) for wire in ("chat", "messages")]
            if not may_change:
                assert now.startswith(before)
                assert all(wire.startswith(sent) for wire, sent in zip(wires, sent_before, strict=True))
                kept += is_new
            is_taken_out = is_taken_out and not is_epoch  # its bytes go with the next epoch
            before, sent_before, is_new, is_epoch, is_unanswered = now, wires, False, False, True
        elif isinstance(event, ModelReplied):
            is_unanswered = False
    return kept


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=12),
    requests=st.lists(REQUESTS, min_size=1, max_size=5),
    protocol=st.sampled_from(["tools", "actions"]),
    has_approver=st.booleans(),
    turns=st.sampled_from([3, 6, 25]),
)
def test_in_session_mode_a_request_extends_the_last_one_also_over_turns_of_the_user(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, requests: Any, turns: int, **options: Any
) -> None:
    root = tmp_path_factory.mktemp("library")
    write_library(root, make_skill)
    (root / "a.csv").write_text("1\n")
    flow = Flow(root, steps, load_mode="session", limits=Limits(turns=turns), **options)
    asyncio.run(flow.play(["first", *requests]))
    check_prefix(flow)
    shutil.rmtree(root)


def test_arguments_a_body_and_notes_are_kept_at_the_next_turn(tmp_path: Path) -> None:
    write_library(tmp_path, make_skill)
    (tmp_path / "a.csv").write_text("1\n")
    run = [("skill_run", {"skill": "alpha", "command": "echo 1 > out/b.csv"})]
    steps: list[Any] = [run, run, "one", [("skill_load", {"skill": "beta"})], "two", "three"]
    flow = Flow(tmp_path, steps, protocol="tools", has_approver=True, load_mode="session", limits=Limits(turns=4))
    asyncio.run(flow.play(["/alpha with arguments", "a.csv", "go on"]))
    assert check_prefix(flow) == 3


# --- against a server that refuses anything else ----------------------------------------------------------------------


def say(wire: Wire, step: str | tuple[str, dict[str, Any]], number: int) -> Answer:
    """The answer of a server of this wire: a text, or a call."""
    tool, args = ("", {}) if isinstance(step, str) else step
    text, told, id = str(step), json.dumps(args), f"id{number:07}"
    if wire is CHAT:
        function = {"name": tool, "arguments": told}
        delta: dict[str, Any] = {"tool_calls": [{"index": 0, "id": id, "function": function}]}
        body = chat(delta, finish="tool_calls") if tool else chat({"content": text})
    elif wire is MESSAGES:
        block = {"type": "tool_use", "id": id, "name": tool, "input": args}
        body = messages(block, stop="tool_use") if tool else messages(spoken(text))
    else:
        item = {"type": "function_call", "call_id": id, "name": tool, "arguments": told}
        answer = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        response = {"id": "r", "status": "completed", "output": [item if tool else answer], "usage": {}}
        body = sse([{"type": "response.completed", "response": response}])
    return Answer(body=body)


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=lambda wire: wire.name)
@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_a_strict_server_takes_every_request(tmp_path: Path, wire: Wire, placement: str) -> None:
    """Notes about limits and skills, a body that a file calls for, and an empty reply, by the model of each wire."""
    write_library(tmp_path, make_skill)
    (tmp_path / "a.csv").write_text("1\n")
    run = ("skill_run", {"skill": "alpha", "command": "echo 1 > out/b.csv"})
    flow = [("skill_load", {"skill": "alpha"}), run, "", ("skill_load", {"skill": "nobody"}), "one", run, "two"]
    with open_stub(strict=True) as stub:
        stub.say(*(say(wire, step, number) for number, step in enumerate(flow)))
        base = stub.url if wire is MESSAGES else f"{stub.url}/v1"
        model = wire.open(base, name="mistral-1")

        async def work() -> list[str]:
            async with open_session(
                tmp_path, model, load_mode="once", placement=placement, limits=Limits(turns=6)
            ) as session:
                first = await session.run("/beta first", files=[str(tmp_path / "a.csv")])
                return [first.text, (await session.run("second")).text]

        assert asyncio.run(work()) == ["one", "two"]
        bodies = [asked.body for asked in stub.asked]
    assert len(bodies) == len(flow)
    text = json.dumps(bodies[-1])
    assert "unloaded after that turn; load it again if you need it" in text
    assert "was shown once" in text and "turns left after this one" in text and "Your reply was empty" in text
    if wire is CHAT:
        assert [message["role"] for message in bodies[-1]["messages"]].count("system") == 1


def test_a_user_message_after_results_is_refused(tmp_path: Path) -> None:
    """The stub does refuse: what we sent before is not taken."""
    asked = [{"role": "user", "content": "go"}]
    call = {"id": "id0000001", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    made = [*asked, {"role": "assistant", "content": "", "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": "id0000001", "content": "done"}
    assert find_fault("chat", {"messages": [*made, result]}) is None
    refused = find_fault("chat", {"messages": [*made, result, {"role": "user", "content": "<note>"}]})
    assert refused == "Unexpected role 'user' after role 'tool'"
    assert find_fault("chat", {"messages": made}) == "The last turn is not that of the user."
    assert "length of 9" in str(find_fault("chat", {"messages": [*made, {**result, "tool_call_id": "call-1"}]}))
