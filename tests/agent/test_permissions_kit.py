"""Every tool against every verdict, isolation tier and kind of approver, through the kit: the effect is there when it
was allowed, and only then. What should come of a call is what the oracle says, which knows nothing of the code.
"""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kits import open_kit
from loopback import Exchange, Server
from permission_oracle import EVERY_TOOL, HIGH, SAYS, Case, oracle
from prowess.cli.approver import TerminalApprover
from prowess.core.values import Outcome
from tiers import ISOLATED, Tier, Tiers
from tiers import engine as engine
from tiers import tiers as tiers

PREPARED = """
[[rule]]
tool = "skill_load"
skill = "demo"
verdict = "allow"

[[rule]]
command = ["cat", "touch"]
verdict = "allow"

"""


class Approver(NamedTuple):
    """As the command line makes it. `types` is what somebody types at each question; None: nobody is there."""

    types: str | None
    on_ask: str
    becomes: str  # the status of a call that is asked about
    why: str = ""  # what the model is told of it


APPROVERS = {
    "terminal-yes": Approver("o", "wait", "ok"),
    "terminal-no": Approver("no, because not today", "wait", "denied", "not today"),
    "waiting": Approver(None, "wait", "waiting", "Not approved"),
    "deny": Approver(None, "deny", "denied", "Not approved"),
}
# Of the isolated ones only bubblewrap keeps scripts to a list of hosts; with a list, the others run none. So here they
# have none, and a request that is allowed still reaches nobody.
WITH_HOSTS = ("local", "bwrap")


@dataclass
class Stage:
    """A kit with everything that some tool needs: a program that waits, a file, a plan, a server, somebody to ask."""

    kit: Any
    server: Server
    questions: list[str] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    async def prepare(self, tier: Tier) -> None:
        kit = self.kit
        self.program = (await kit.call("skill_exec", {"skill": "demo", "command": "cat", "yield_ms": 0})).data
        made = await kit.call("skill_run", {"skill": "demo", "command": "touch work/old.txt work/read.txt"})
        assert made.status == "ok", made
        workspace, self.place = await kit.work.workspace()
        found = workspace.isolation
        assert (found.executor, found.mechanism) == (tier.executor, tier.mechanism), "the tier that is to be tried"

    def calls(self) -> dict[str, dict[str, Any]]:
        """One call for each tool, in an order in which none spoils the next."""
        skill, session = {"skill": "demo"}, {"session_id": self.program["session_id"]}
        return {
            "skill_load": {"skill": "other"},
            "skill_read": {**skill, "path": "references/more.md"},
            "skill_list_docs": skill,
            "skill_select_docs": {**skill, "docs": ["references/more.md"]},
            "skill_search": {"query": "demos"},
            "update_plan": {"plan": {"goal": "g", "steps": [{"id": "1", "title": "t", "status": "pending"}]}},
            "ask_user": {"question": "which?"},
            "read_file": {"file_name": "work/read.txt"},
            "list_dir": {"path": "work"},
            "grep": {"pattern": "x", "path": "work"},
            "write_file": {"path": "out/new.txt", "content": "new"},
            "delete_file": {"path": "work/old.txt"},
            "network_request": {"url": self.server.url("/x")},
            "skill_run": {**skill, "command": "mkdir out/ran"},
            "skill_exec": {**skill, "command": "mkdir out/execed", "yield_ms": 5000},
            "skill_write_stdin": {**session, "chars": "echoed", "submit": True, "yield_ms": 2000},
            "skill_poll_session": {**session, "yield_ms": 0},
            "skill_kill_session": session,
            "skill_unload": skill,
        }

    def happened(self, tool: str) -> bool | None:
        """Whether the call left what only it leaves; None for tools that leave nothing."""
        there = Path(self.place.root)
        found = {
            "skill_load": lambda: any("other" in id for id in self.kit.work.known),
            "write_file": (there / "out/new.txt").exists,
            "delete_file": lambda: not (there / "work/old.txt").exists(),
            "network_request": lambda: bool(self.server.requests),
            "skill_run": (there / "out/ran").exists,
            "skill_exec": (there / "out/execed").exists,
            "update_plan": lambda: self.kit.conversation.plan is not None,
            "ask_user": lambda: bool(self.questions),
            "skill_unload": lambda: "explicit:demo" not in self.kit.work.loaded,
        }.get(tool)
        return None if found is None else bool(found())


@contextmanager
def somebody(types: str | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[bytearray]:
    """At the terminal that standard input and error are, who types the same at each prompt; and what is shown there."""
    shown = bytearray()
    if types is None:
        yield shown
        return
    ours, theirs = pty.openpty()

    def answer() -> None:
        prompts = 0
        while True:
            try:
                shown.extend(os.read(ours, 65536))
            except OSError:  # the other end was closed
                return
            if shown.count(b"[NO] ") > prompts:
                prompts += 1
                os.write(ours, types.encode() + b"\n")

    person = threading.Thread(target=answer)
    with open(theirs, encoding="utf-8") as stdin, open(os.dup(theirs), "w", encoding="utf-8") as stderr:
        person.start()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "stderr", stderr)
            yield shown
    person.join()
    os.close(ours)


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    make_skill(folder / "demo", description="Does demos.", files={"references/more.md": "MORE"})
    make_skill(folder / "other", description="Does others.")
    (folder / ".agent").mkdir()
    return folder


@pytest.fixture(params=["local", *ISOLATED])
def tier(request: pytest.FixtureRequest, tiers: Tiers) -> Tier:
    return tiers.get(request.param)


@pytest.mark.parametrize("approver", APPROVERS)
@pytest.mark.parametrize("rule", SAYS)
def test_every_tool_through_the_kit(
    root: Path, tier: Tier, approver: str, rule: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of it is in the record, in order; and a person is shown what is asked about, and nothing else."""
    text = PREPARED + (f'[[rule]]\ntool = "*"\nverdict = "{rule}"\nwhy = "As told."\n' if rule else "")
    (root / ".agent" / "policy.toml").write_text(text, encoding="utf-8")
    who = APPROVERS[approver]

    def answer(exchange: Exchange) -> None:
        exchange.answer(200, b"hello")

    async def work() -> tuple[Stage, dict[str, Outcome]]:
        with Server(answer) as server:
            hosts = [server.url("").removeprefix("http://")] if tier.name in WITH_HOSTS else []
            stage = Stage(None, server)

            async def asker(question: str, choices: Any = ()) -> str:
                stage.questions.append(question)
                return "this"

            async with open_kit(
                root,
                executor=tier.executor,
                settings={"tools.enable": sorted(HIGH), "workspace.network_allow": hosts},
                environ={"PROWESS_TRUST": "1", **tier.environ},
                asker=asker,
                on_event=[stage.events.append],
                approver=TerminalApprover(ask=who.types is not None),
                on_ask=who.on_ask,
            ) as kit:
                stage.kit = kit
                await stage.prepare(tier)
                return stage, await _call_each(stage)

    with somebody(who.types, monkeypatch) as shown:
        stage, outcomes = tier.run(lambda: asyncio.run(work()))
    asked = set()
    for tool, outcome in outcomes.items():
        verdict = _verdict(tool, rule, tier)
        _check(tool, verdict, who, outcome, stage.events, reaches=tier.name in WITH_HOSTS)
        asked |= {tool} if verdict == "ask" else set()
    for tool in EVERY_TOOL:
        assert (f"Allow {tool}? ".encode() in shown) == (tool in asked and who.types is not None), tool


async def _call_each(stage: Stage) -> dict[str, Outcome]:
    outcomes = {}
    calls = stage.calls()
    assert sorted(calls) == EVERY_TOOL
    for tool, args in calls.items():
        assert stage.happened(tool) in (None, False)
        outcomes[tool] = await stage.kit.call(tool, args, id=tool)
        assert stage.happened(tool) in (None, outcomes[tool].status == "ok"), outcomes[tool]
    return outcomes


def _verdict(tool: str, rule: str | None, tier: Tier) -> str:
    named = "named-without"  # neither skill declares a list
    return oracle(Case(tool, True, False, named, rule, None, tier.executor, True, False))[0]


def _check(
    tool: str, verdict: str, who: Approver, outcome: Outcome, envelopes: list[Any], *, reaches: bool = True
) -> None:
    wanted = {"allow": "ok", "deny": "denied"}.get(verdict) or who.becomes
    if wanted == "ok" and tool == "network_request" and not reaches:
        wanted = "failed"
        assert outcome.code == "host-not-allowed", outcome
    assert outcome.status == wanted, (tool, outcome)
    events = [each.event for each in envelopes if _call_id(each.event) == tool]
    kinds = [event.type for event in events]
    asked = [] if verdict != "ask" else ["approval_asked"]
    answered = ["approval_answered"] if verdict == "ask" and who.types is not None else []
    assert kinds == ["call_planned", "call_decided", *asked, *answered, "call_acted"], tool
    decided = next(event for event in events if event.type == "call_decided")
    assert decided.decision.verdict == verdict and decided.decision.rule and decided.decision.why
    acted = next(event for event in events if event.type == "call_acted")
    assert acted.outcome.status == wanted
    if verdict == "ask":
        assert who.why in outcome.content, (tool, outcome)


def _call_id(event: Any) -> str | None:
    return event.call.id if event.type == "call_planned" else getattr(event, "call_id", None)


def test_what_is_switched_off_is_not_there(root: Path, tier: Tier) -> None:
    async def work() -> None:
        (root / ".agent" / "policy.toml").write_text('[[rule]]\ntool = "*"\nverdict = "allow"\n', encoding="utf-8")
        environ = {"PROWESS_TRUST": "1", **tier.environ}
        async with open_kit(root, executor=tier.executor, environ=environ) as kit:
            for tool, args in (
                ("delete_file", {"path": "out/x"}),
                ("network_request", {"url": "http://127.0.0.1:9"}),
            ):
                outcome = await kit.call(tool, args)
                assert outcome.status in ("failed", "denied"), outcome
                assert tool not in [spec.name for spec in kit.tools]

    tier.run(lambda: asyncio.run(work()))
