"""One door: every call is written down, decided, executed, redacted and written down, in this order and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from prowess.agent.approvals import ApprovalBook
from prowess.agent.call_policy import CallFacts, CallPolicy, SkillIdentity
from prowess.agent.call_repair import CallRepair
from prowess.agent.context import Conversation
from prowess.agent.context.render import SkillTextRenderer
from prowess.agent.implicit_load import ImplicitLoads
from prowess.agent.recorder import EventWriter, Recorder, SessionSecrets
from prowess.agent.tool_call import ToolCallRunner
from prowess.agent.toolkit_options import KitPolicy, SkillAccess
from prowess.core.events import ApprovalAnswered, Envelope, render_event
from prowess.core.isolation import record_isolation
from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.values import Decision, Isolation, Outcome, SessionKey, ToolCall, ToolSpec
from prowess.errors import StoreError, ToolFailed, ToolRetry, WorkspaceError, WorkspaceUnavailable
from prowess.policy.allowed_tools import AllowedTools, parse_allowed
from prowess.policy.decision import PolicyContext
from prowess.skills.catalog import Catalog
from prowess.stores.memory import MemoryEventLog
from prowess.tools.session_work import SessionWork, WorkBackend, WorkOptions
from prowess.tools.toolset import Tools
from prowess.workspace.executors.none import NoExecutor

KEY = SessionKey(session="s")
SANDBOX = Isolation(executor="sandbox", mechanism="bwrap+seccomp", uid=64321, network="none", kind="sandbox")
NOTHING: Any = None  # the facts are known
LOCAL = Isolation(executor="local", mechanism="none", uid=64321, kind="process")


class Echo:
    """A tool by the name of skill_run that says what it was given, or does what it is told."""

    spec = ToolSpec(name="skill_run", description="")

    def __init__(self, do: Any = None, needs: Sequence[CapabilityRequest] = ()) -> None:
        self.do, self.wanted, self.calls = do, needs, []

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        if "bad" in args:
            raise ToolRetry("bad is not an argument.")
        return {key: value for key, value in args.items() if value is not None}

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return self.wanted

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        self.calls.append((args, within))
        if isinstance(self.do, BaseException):
            raise self.do
        return await self.do(args, within) if self.do else Outcome(status="ok", content="done")


class FactsOf(CallPolicy):
    """The real policy, of a call whose facts are known: its skill, its isolation and the lists of loaded skills."""

    def __init__(self, play: Play) -> None:
        super().__init__(KitPolicy(), PolicyContext(), NOTHING, NOTHING, NOTHING, Tools(play.tool))
        self.play = play

    async def examine(self, call: ToolCall) -> CallFacts:
        isolation = self.play.isolation
        if isinstance(isolation, Exception):
            raise isolation
        skill = SkillIdentity(id="project:pdf", source="project", trusted=self.play.trusted, env=("TOKEN",))
        return CallFacts(call=call, skill=skill, touched=(), context=PolicyContext()._replace(isolation=isolation))

    def _lists(self) -> Mapping[str, AllowedTools]:
        return self.play.lists


class Names:
    def tool_names(self) -> Sequence[str]:
        return ["skill_run"]

    offered_names = names = tool_names

    def find_skill_name(self, text: str) -> str | None:
        return None

    def last_reply(self) -> None:
        return None


class Play:
    """A runner of calls with a real log, and everything that can be asked of it."""

    def __init__(
        self,
        tool: Echo | None = None,
        *,
        log: MemoryEventLog | None = None,
        isolation: Isolation | Exception = SANDBOX,
        trusted: bool = True,
        lists: Mapping[str, AllowedTools] | None = None,
        approver: Any = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.tool, self.log, self.isolation, self.trusted = tool or Echo(), log or MemoryEventLog(), isolation, trusted
        self.lists, self.approver, self.secrets = lists or {}, approver, secrets or {}

    def run(self, tool: str = "skill_run", **args: Any) -> Outcome:
        return asyncio.run(self.act(tool, args))

    async def act(self, tool: str, args: dict[str, Any]) -> Outcome:
        recorder = Recorder(self.log, KEY, await self.log.lease(KEY), "run")

        talk, secrets = Conversation(SkillTextRenderer(lambda id, digest: None)), SessionSecrets(self)
        record = EventWriter(recorder, talk, secrets)
        work = SessionWork(KEY, WorkOptions(dir=""), lambda: WorkBackend(executor=NoExecutor()))
        approvals = ApprovalBook(record, talk.questions, secrets, work, approver=self.approver)
        await secrets.learn(list(self.secrets))
        repair = CallRepair(Names())
        skills = SkillAccess(catalog=Catalog, load=NOTHING, plan=NOTHING, search=NOTHING)
        loads = ImplicitLoads(work, skills, talk, required=True)
        calls = ToolCallRunner(
            Tools(self.tool), FactsOf(self), approvals, record, secrets, work, repair=repair, get_loads=lambda: loads
        )
        return await calls.run(ToolCall(id="c1", tool=tool, args=args))

    async def find(self, name: str) -> str | None:
        return self.secrets.get(name)

    @property
    def events(self) -> list[dict[str, Any]]:
        async def read() -> list[Envelope]:
            return [envelope async for envelope in self.log.read(KEY)]

        skipped = ("seq", "at", "session", "run", "prev", "hash")
        lines = [render_event(envelope) for envelope in asyncio.run(read())]
        return [{key: value for key, value in line.items() if key not in skipped} for line in lines]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


def answering(answer: Any, why: str | None = None) -> Any:
    async def approver(call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        asked.append((call, decision))
        return None if answer is None else ApprovalAnswered(call_id=call.id, answer=answer, why=why, by="test")

    asked: list[Any] = []
    approver.asked = asked  # type: ignore[attr-defined]
    return approver


def test_the_whole_stream_of_an_allowed_call() -> None:
    play = Play()
    assert play.run(skill="pdf", command="ls", cwd=None) == Outcome(status="ok", content="done")
    assert play.events == [
        {
            "type": "call_planned",
            "call": {
                "id": "c1",
                "tool": "skill_run",
                "args": {"skill": "pdf", "command": "ls"},
                "trigger": "model",
            },
        },
        {
            "type": "call_decided",
            "call_id": "c1",
            "decision": {
                "verdict": "allow",
                "rule": "table:isolated",
                "why": "It runs isolated (sandbox, bwrap+seccomp).",
                "limits": {},
                "about": {},
            },
        },
        {
            "type": "call_acted",
            "call_id": "c1",
            "outcome": {"status": "ok", "content": "done", "code": None, "hint": None, "data": {}, "state_delta": {}},
            "state_delta": {},
        },
    ]


def test_the_decision_is_in_the_log_before_the_tool_runs() -> None:
    seen: list[str] = []

    async def look(args: Mapping[str, Any], within: CallGrant) -> Outcome:
        seen.extend([envelope.event.type async for envelope in play.log.read(KEY)])
        return Outcome(status="ok")

    play = Play(Echo(look))
    play.run(command="ls")
    assert seen == ["call_planned", "call_decided"]


@pytest.mark.parametrize(
    ("isolation", "trusted", "answer", "status", "types"),
    [
        (LOCAL, False, "once", "denied", []),
        (LOCAL, True, "once", "ok", ["approval_asked", "approval_answered"]),
        (LOCAL, True, "no", "denied", ["approval_asked", "approval_answered"]),
        (LOCAL, True, None, "waiting", ["approval_asked"]),
        (SANDBOX, False, None, "ok", []),
    ],
)
def test_the_table(isolation: Isolation, trusted: bool, answer: Any, status: str, types: list[str]) -> None:
    approver = answering(answer)
    play = Play(isolation=isolation, trusted=trusted, approver=approver)
    outcome = play.run(command="ls")
    assert outcome.status == status
    assert play.types == ["call_planned", "call_decided", *types, "call_acted"]
    assert bool(play.tool.calls) == (status == "ok")
    assert bool(approver.asked) == bool(types)


def test_nobody_to_ask_is_never_a_yes() -> None:
    play = Play(isolation=LOCAL)
    outcome = play.run(command="ls")
    assert (outcome.status, outcome.code, play.tool.calls) == ("waiting", "approval-needed", [])


@pytest.mark.parametrize("answer", [RuntimeError("broken"), 1, "perhaps"])
def test_an_approver_that_does_not_work_has_not_said_yes(answer: Any) -> None:
    async def approver(call: ToolCall, decision: Decision) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    play = Play(isolation=LOCAL, approver=approver)
    assert play.run(command="ls").status == "waiting" and not play.tool.calls
    assert play.types[-1] == "call_acted"


def test_being_cancelled_while_asked_is_written_down() -> None:
    async def approver(call: ToolCall, decision: Decision) -> Any:
        raise asyncio.CancelledError

    play = Play(isolation=LOCAL, approver=approver)
    with pytest.raises(asyncio.CancelledError):
        play.run(command="ls")
    assert play.events[-1]["outcome"]["status"] == "interrupted" and not play.tool.calls


def test_a_person_may_say_why_not() -> None:
    outcome = Play(isolation=LOCAL, approver=answering("no", "It looks odd.")).run(command="ls")
    assert "It looks odd." in outcome.content and outcome.data == {"rule": "approval"}


def test_what_else_a_call_needs_is_decided_as_well() -> None:
    need = CapabilityRequest(capability="install_dependencies", args={"dependencies": ["x"], "digest": "sha256:1"})
    approver = answering("once")
    play = Play(Echo(needs=[need]), approver=approver)
    assert play.run(script="scripts/x.py").status == "ok"
    assert play.types == [
        "call_planned",
        "call_decided",
        "call_decided",
        "approval_asked",
        "approval_answered",
        "call_acted",
    ]
    assert [(call.tool, call.args) for call, _ in approver.asked] == [("install_dependencies", need.args)]
    refused = Play(Echo(needs=[need]), approver=answering("no"))
    assert refused.run(script="scripts/x.py").status == "denied" and not refused.tool.calls


def test_lists_of_skills_narrow() -> None:
    lists = {"project:pdf": parse_allowed(["Bash(git:*)"])}
    assert Play(lists=lists).run(command="git status").status == "ok"
    refused = Play(lists=lists)
    outcome = refused.run(command="rm -rf x")
    assert outcome.status == "denied" and "project:pdf" in outcome.data["rule"] and not refused.tool.calls


def test_names_of_other_systems_are_ours() -> None:
    play = Play()
    assert play.run("Bash", command="ls").status == "ok"
    assert play.events[0]["call"]["tool"] == "skill_run"


@pytest.mark.parametrize(
    ("tool", "args", "words"),
    [
        ("skill_run", {"bad": 1}, "bad is not an argument"),
        ("skil_run", {}, "Did you mean skill_run?"),
        ("skill_run", {"env": {"x": float("nan")}}, "plain JSON"),
        ("skill_run", {"x": "\ud800"}, "surrogate"),
        ("skill_run", {"x": {1, 2}}, "plain JSON"),
    ],
)
def test_a_call_that_cannot_be_understood_goes_back(tool: str, args: dict[str, Any], words: str) -> None:
    play = Play()
    outcome = asyncio.run(play.act(tool, args))
    assert (outcome.status, outcome.code) == ("failed", "invalid-call") and words in outcome.content
    assert play.types == ["call_planned", "call_acted"] and not play.tool.calls


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WorkspaceError("No room.", op="x", code="workspace-dir", hint="Make some."), "workspace-dir"),
        (ToolFailed("Could not."), "tool-failed"),
        (ToolRetry("Again."), "invalid-call"),
        (ZeroDivisionError("division by zero"), "tool-raised"),
        (OSError(28, "No space left on device"), "tool-raised"),
    ],
)
def test_a_tool_that_fails_has_an_outcome(error: Exception, code: str) -> None:
    play = Play(Echo(error))
    outcome = play.run(command="ls")
    assert (outcome.status, outcome.code) == ("failed", code) and outcome.content
    assert play.types[-1] == "call_acted"


def test_no_workspace_is_an_outcome_that_says_so() -> None:
    play = Play(isolation=WorkspaceUnavailable("No sandbox.", op="x", code="no-sandbox", hint="Install one."))
    outcome = play.run(command="ls")
    assert (outcome.status, outcome.code, outcome.data) == ("failed", "no-sandbox", {"unavailable": True})
    assert not play.tool.calls


def test_being_cancelled_is_written_down_and_goes_on() -> None:
    play = Play(Echo(asyncio.CancelledError()))
    with pytest.raises(asyncio.CancelledError):
        play.run(command="ls")
    outcome = play.events[-1]["outcome"]
    assert outcome["status"] == "interrupted" and outcome["data"]["isolation"] == record_isolation(SANDBOX)
    assert outcome["data"]["duration_ms"] >= 0, "how long it ran, and in what"


@pytest.mark.parametrize("fails_at", [1, 2])
def test_when_the_record_breaks_nothing_more_happens(fails_at: int) -> None:
    class Full(MemoryEventLog):
        count = 0

        async def append(self, *args: Any) -> Any:
            self.count += 1
            if self.count >= fails_at:
                raise StoreError("The disk is full.", code="store-full")
            return await super().append(*args)

    play = Play(log=Full())
    with pytest.raises(StoreError):
        play.run(command="ls")
    assert bool(play.tool.calls) == (fails_at == 2), "planned and decided stand before the deed"
    assert play.types == ([] if fails_at == 1 else ["call_planned", "call_decided"])


def test_no_secret_is_shown_or_written_down() -> None:
    async def leak(args: Mapping[str, Any], within: CallGrant) -> Outcome:
        text = f"it is {within.env['TOKEN']}"
        return Outcome(status="ok", content=text, data={"stdout": text}, hint=text, state_delta={"x": text})

    secret = "hunter2-hunter2"
    play = Play(Echo(leak), secrets={"TOKEN": secret, "OTHER": "x" * 9})
    outcome = play.run(command=f"echo {secret}", env={"A": secret})
    assert secret not in str(outcome) and secret not in str(play.events)
    assert outcome.content == "it is [secret TOKEN]"
    ((args, within),) = play.tool.calls
    assert args["command"] == f"echo {secret}", "the tool gets what was asked for"
    assert dict(within.env) == {"A": secret, "TOKEN": secret}, "declared names, and what the model set"


def test_a_variable_that_would_choose_the_program_is_denied() -> None:
    play = Play()
    assert play.run(command="ls", env={"LD_PRELOAD": "x"}).status == "denied" and not play.tool.calls
