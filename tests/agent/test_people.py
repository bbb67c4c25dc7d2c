"""What a person has allowed, for this once, this run or this content, is not asked again; and what one takes back holds
from the next call on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agents import Played, call, play
from kits import answer_later
from prowess import tool
from prowess.agent.agent import SkillRequest
from prowess.core.events import ApprovalAnswered, Envelope
from prowess.core.values import Decision, Lease, SessionKey, ToolCall
from prowess.errors import StoreError
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import open_runtime
from prowess.stores.sqlite import SqliteEventLog
from prowess.tools.toolset import Tools


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    make_skill(folder / "demo", body="DEMO-BODY\n", files={"scripts/a.sh": "echo ran\n"})
    make_skill(folder / "other", body="OTHER-BODY\n", files={"scripts/a.sh": "echo other\n"})
    return folder


LOCAL = {"workspace.executor": "local"}
LOAD, RUN = call("skill_load", skill="demo"), call("skill_run", skill="demo", command="bash scripts/a.sh")


class Person:
    """Says the same to every question, and remembers what was asked."""

    def __init__(self, answer: Any, why: str | None = None) -> None:
        self.answer, self.why = answer, why
        self.asked: list[tuple[ToolCall, Decision]] = []

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        self.asked.append((call, decision))
        return ApprovalAnswered(call_id=call.id, answer=self.answer, why=self.why, by="test")


@pytest.mark.parametrize(("answer", "asked"), [("once", 2), ("run", 1), ("always", 1), ("no", 2)])
def test_how_long_an_answer_holds(root: Path, answer: str, asked: int) -> None:
    person = Person(answer, "not now" if answer == "no" else None)
    played = play(root, [LOAD, RUN, RUN, {"text": "done"}], settings=LOCAL, approver=person)
    assert len(person.asked) == asked
    statuses = [outcome["status"] for outcome in played.outcomes[1:]]
    assert statuses == (["denied"] * 2 if answer == "no" else ["ok"] * 2)
    assert played.of("run_finished")[0]["prompts"] == asked
    if answer == "no":
        assert "not now" in played.outcomes[1]["content"]


def test_what_holds_for_a_run_holds_for_one_skill_and_ends_with_it(root: Path) -> None:
    person = Person("run")
    script = [
        LOAD,
        RUN,
        call("skill_load", skill="other"),
        call("skill_run", skill="other", command="bash scripts/a.sh"),
        {"text": "one"},
        LOAD,
        RUN,
        {"text": "two"},
    ]
    played = play(root, script, "first", "second", settings=LOCAL, approver=person)
    assert played.result.ok
    assert [question.args["skill"] for question, _ in person.asked] == ["demo", "other", "demo"]


def test_whoever_is_asked_is_told_what_it_is_about(root: Path) -> None:
    person = Person("once")
    play(root, [LOAD, RUN, {"text": "done"}], settings=LOCAL, approver=person)
    about = person.asked[0][1].about
    assert (about["risk"], about["skill"], about["source"], about["trusted"]) == (
        "medium",
        "explicit:demo",
        "explicit",
        True,
    )
    assert about["digest"].startswith("sha256:") and about["isolation"]["executor"] == "local"


def test_a_write_is_shown_as_a_difference(root: Path) -> None:
    person = Person("once")
    script = [
        call("write_file", path="out/a.txt", content="one\ntwo\n"),
        call("write_file", path="out/a.txt", content="one\n2\n"),
        {"text": "done"},
    ]
    played = play(root, script, settings={"workspace.executor": "local"}, approver=person)
    assert [outcome["status"] for outcome in played.outcomes] == ["ok", "ok"], played.outcomes
    first, second = (decision.about["diff"] for _, decision in person.asked)
    assert "+one" in first and "-two" in second and "+2" in second


@pytest.mark.needs("isolation")
def test_inside_the_sandbox_nobody_is_asked(root: Path) -> None:
    person = Person("no")
    played = play(root, [LOAD, RUN, {"text": "done"}], settings={"workspace.executor": "sandbox"}, approver=person)
    assert played.outcomes[1]["status"] == "ok" and person.asked == []
    assert played.of("run_finished")[0]["prompts"] == 0


def answer_in_the_log(path: Path, session: str, event: ApprovalAnswered) -> None:
    async def work() -> None:
        key = SessionKey(session=session)
        async with SqliteEventLog(path) as log:
            run = [envelope.run async for envelope in log.read(key)][-1]
        await answer_later(path, key, run, event)

    asyncio.run(work())


@pytest.mark.parametrize(("answer", "status"), [("once", "ok"), ("no", "denied")])
def test_a_question_can_be_answered_while_nobody_runs(root: Path, tmp_path: Path, answer: Any, status: str) -> None:
    store = {**LOCAL, "store": str(tmp_path / "log.db")}
    waiting = play(root, [LOAD, RUN], settings=store, approver=None, session="s")
    assert waiting.result.stop_reason == "waiting"
    [question] = waiting.of("approval_asked")
    assert question["capability"] == "skill_run"
    given = ApprovalAnswered(call_id=question["call_id"], answer=answer, why="from elsewhere", by="ada")
    answer_in_the_log(tmp_path / "log.db", "s", given)
    resumed = play(root, [{"text": "done"}], {"resume": True}, settings=store, approver=None, session="s")
    assert resumed.result.text == "done"
    assert [outcome["status"] for outcome in resumed.outcomes] == [status]
    assert [event["by"] for event in resumed.of("approval_answered")] == ["ada"]


class DyingLog(SqliteEventLog):
    """Takes no outcome: as when the process is killed in a call."""

    async def append(
        self, key: SessionKey, expect: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        if any(each.event.type == "call_acted" for each in events):
            raise StoreError("Killed.", code="disk-full", hint="")
        return await super().append(key, expect, lease, events)


def test_a_call_that_was_approved_later_is_not_made_twice(root: Path, tmp_path: Path) -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    path = tmp_path / "log.db"
    given: dict[str, Any] = {"toolsets": [Tools(pay)], "approver": None, "session": "s"}
    store = {"store": str(path)}
    waiting = play(root, [call("pay", amount=1)], settings=store, **given)
    [question] = waiting.of("approval_asked")
    answer_in_the_log(path, "s", ApprovalAnswered(call_id=question["call_id"], answer="once", by="ada"))
    killed = play(root, [], {"resume": True}, log=DyingLog(path), **given)
    assert isinstance(killed.error, StoreError) and paid == [1]
    resumed = play(root, [{"text": "done"}], {"resume": True}, settings=store, **given)
    assert paid == [1] and [outcome["status"] for outcome in resumed.outcomes] == ["interrupted"]


def open_project(tmp_path: Path) -> Any:
    environ = {**os.environ, "PROWESS_TRUST": "1"}
    flags = {"store": "memory:", "artifacts": "memory:"}
    return open_runtime(cwd=str(tmp_path), environ=environ, roots=[str(tmp_path / "skills")], flags=flags)


def test_what_the_rules_deny_is_not_offered_and_a_change_holds_from_the_next_call(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / ".agent" / "policy.toml"
    policy.parent.mkdir()

    def deny(messages: Any, tools: Any) -> Any:
        policy.write_text(
            '[[rule]]\ntool = ["skill_load", "skill_run"]\nskill = "demo"\nverdict = "deny"\nwhy = "No."\n'
        )
        return RUN

    played = Played(ScriptedModel([LOAD, deny, {"text": "one"}, {"text": "two"}]))

    async def work() -> None:
        with open_project(tmp_path) as runtime:
            async with runtime.open_session(model=played.model, on_event=(played.envelopes.append,)) as session:
                await session.run("first")
                await session.run("second")

    asyncio.run(work())
    assert [outcome["status"] for outcome in played.outcomes] == ["ok", "denied"]
    assert "demo" in played.texts(0)[0][1] and "demo" in played.texts(2)[0][1], "within an epoch the catalog stays"
    assert "- demo: " not in played.texts(3)[0][1] and "- other: " in played.texts(3)[0][1]
    assert played.of("catalog_planned")[-1]["plan"]["hidden"] == ["explicit:demo"]


def test_a_policy_that_breaks_while_a_run_goes_on_stops_every_call(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / ".agent" / "policy.toml"
    policy.parent.mkdir()
    policy.write_text("")

    def break_it(messages: Any, tools: Any) -> Any:
        policy.write_text("[[rule]]\nverdict = 'allow'\nnonsense = 1\n")
        return RUN

    played = Played(ScriptedModel([LOAD, break_it, {"text": "one"}]))

    async def work() -> None:
        with open_project(tmp_path) as runtime:
            async with runtime.open_session(model=played.model, on_event=(played.envelopes.append,)) as session:
                await session.run("first")

    asyncio.run(work())
    assert played.outcomes[1]["status"] == "failed" and "nonsense" in played.outcomes[1]["content"]


ASKING = '[[rule]]\ntool = "Bash"\nverdict = "ask"\nwhy = "Always ask."\n'


def ask_by(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy.write_text(ASKING, encoding="utf-8")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(policy))


@pytest.mark.needs("isolation")
def test_what_was_approved_in_a_sandbox_is_not_approved_without_one(root: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".agent").mkdir(parents=True)
    (project / ".agent" / "policy.toml").write_text(ASKING, encoding="utf-8")
    asked: list[str] = []

    def run_on(executor: str) -> str:
        person = Person("always")
        played = Played(ScriptedModel([LOAD, RUN, {"text": "done"}]))

        async def work() -> None:
            flags = {"store": "memory:", "artifacts": "memory:", "workspace.executor": executor}
            environ = {**os.environ, "PROWESS_TRUST": "1"}
            with open_runtime(cwd=str(project), environ=environ, roots=[str(root)], flags=flags) as runtime:
                async with runtime.open_session(model=played.model, approver=person) as session:
                    played.results.append(await session.run("go"))

        asyncio.run(work())
        asked.append(f"{executor}:{len(person.asked)}")
        return played.result.stop_reason

    assert {run_on(executor) for executor in ("sandbox", "sandbox", "local", "local", "sandbox")} == {"answer"}
    assert asked == ["sandbox:1", "sandbox:0", "local:1", "local:0", "sandbox:0"]


@pytest.mark.parametrize("answer", ["run", "always"])
def test_what_is_to_be_asked_each_time_is(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    person = Person(answer)
    settings = {"execution.require_approval_for": ["skill_run"]}
    play(root, [LOAD, RUN, RUN, {"text": "done"}], settings=settings, approver=person)
    assert len(person.asked) == 2, "the configuration says: every time"
    ask_by(tmp_path / "managed.toml", monkeypatch)
    person = Person(answer)
    play(root, [LOAD, RUN, RUN, {"text": "done"}], approver=person)
    assert len(person.asked) == 2, "a managed policy cannot be switched off by one keystroke"


@pytest.mark.needs("isolation")
def test_an_answer_for_a_sandbox_is_none_for_the_bare_machine(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_by(tmp_path / "managed.toml", monkeypatch)
    store = {"store": str(tmp_path / "log.db")}
    waiting = play(root, [LOAD, RUN], settings=store, approver=None, session="s")
    [question] = waiting.of("approval_asked")
    given = ApprovalAnswered(call_id=question["call_id"], answer="once", by="ada")
    answer_in_the_log(tmp_path / "log.db", "s", given)
    resumed = play(root, [], {"resume": True}, settings={**store, **LOCAL}, approver=None, session="s")
    assert resumed.result.stop_reason == "waiting", "it would run without isolation now"
    answer_in_the_log(tmp_path / "log.db", "s", given)  # to the new question
    again = play(root, [{"text": "done"}], {"resume": True}, settings={**store, **LOCAL}, approver=None, session="s")
    assert again.result.text == "done"


def test_a_configured_secret_is_never_written_down(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a skill declares it or not, and wherever it turns up."""
    monkeypatch.setenv("MY_KEY", "PLAINSECRET12345")
    secret = "PLAINSECRET12345 and CARD-4444"
    settings = {"secrets": {"API_KEY": "env:MY_KEY"}, "redact": ["CARD-[0-9]+"], "tools.profile": "full"}
    script = [
        call("update_plan", plan={"goal": secret, "steps": [{"id": "s1", "title": secret}], "assumptions": [secret]}),
        call("ask_user", question=secret),
        call("skill_load", skill=secret),
        LOAD,
        call("skill_run", skill="demo", command=f"echo '{secret}'"),
        {"text": f"It is {secret}"},
    ]
    request = {"request": f"my key is {secret}", "skills": [SkillRequest(ref="other", arguments=secret)]}
    again = ("--instructions", f"The key: {secret}")
    played = play(root, script, request, settings=settings, instructions=f"The key: {secret}", resume_arguments=again)
    assert played.result.ok and played.of("run_started")[0]["resume_arguments"][0] == "--instructions"
    seen = str(played.events) + str(played.results) + "".join(played.text(n) for n in range(len(played.model.requests)))
    assert "PLAINSECRET12345" not in seen and "CARD-4444" not in seen
