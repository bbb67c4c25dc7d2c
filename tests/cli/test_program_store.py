"""--store: a person reads and answers from the command line what a program keeps in a store of its own."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from command_lines import Cli
from prowess.cli.app import Call
from prowess.errors import StoreError
from prowess.events import ApprovalAnswered, Envelope
from prowess.ports import SessionKey
from prowess.testing import ScriptedModel


@pytest.mark.parametrize("is_object", [True, False])
def test_a_question_of_a_program_is_answered_in_its_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_object: bool
) -> None:
    sold: list[str] = []

    @prowess.tool(requires_approval=True)
    def sell(item: str) -> str:
        """Sells."""
        sold.append(item)
        return "sold"

    def make(script: list[Any]) -> prowess.Agent:
        store: Any = prowess.SqliteEventLog("runs.db") if is_object else "sqlite:///runs.db"
        return prowess.Agent(ScriptedModel(script), tools=[sell], skills=[], store=store)

    monkeypatch.chdir(tmp_path)
    waiting = make([call("sell", item="bolt")]).run_sync("go", session="s-1", user="ada")
    assert waiting.stop_reason == "waiting" and sold == []
    with pytest.raises(prowess.RunError) as caught:
        waiting.raise_for_status()
    assert waiting.to_answer in str(caught.value.hint)
    command = shlex.split(waiting.to_answer)
    store = ["--store", str(tmp_path / "runs.db")]
    assert command == [
        "prowess",
        "approvals",
        "answer",
        waiting.waiting[0].id,
        "yes",
        "--session",
        "s-1",
        "--user",
        "ada",
        "--token",
        waiting.questions[0].token,
        *store,
    ]
    assert 'run(session="s-1", user="ada", resume=True)' in str(caught.value.hint)
    monkeypatch.chdir(tmp_path.parent)
    cli = Cli(capsys)
    assert cli.json("approvals", "list")["waiting"] == []
    [row] = cli.json("approvals", "list", *store)["waiting"]
    assert f"--store {command[-1]}" in row["to_answer"], "and no command has the tools of the program"
    resume = '# in the program that asked: run again with session="s-1", user="ada", resume=True'
    assert row["to_resume"] == resume and resume in cli.prowess("approvals", "list", *store)
    assert resume in cli(*command[1:]) and cli.err == "Answered: once, about sell.\n"
    [session] = cli.json("sessions", "list", *store)["sessions"]
    [run] = cli.json("runs", "list", *store)["runs"]
    assert (session["session"], run["run"]) == ("s-1", waiting.run)
    monkeypatch.chdir(tmp_path)
    assert make([{"text": "Sold."}]).run_sync(session="s-1", user="ada", resume=True).ok and sold == ["bolt"]


def test_a_question_of_each_owner_is_answered_though_session_and_call_have_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @prowess.tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    def go(user: str, script: list[Any], **options: Any) -> prowess.Result:
        agent = prowess.Agent(ScriptedModel(script), tools=[pay], skills=[], store="sqlite:///runs.db")
        return agent.run_sync(session="w", user=user, tenant="acme", **options)

    monkeypatch.chdir(tmp_path)
    asks = [{"calls": [{"tool": "pay", "args": {"amount": 5}, "id": "c1"}]}]
    waiting = {user: go(user, asks, request="go") for user in ("ann", "bob", "default")}
    cli = Cli(capsys, "approvals")
    store = ["--store", "sqlite:///runs.db"]
    rows = {row["user"]: row for row in cli.json("list", *store)["waiting"]}
    assert rows.keys() == waiting.keys() and "session w · user bob · tenant acme" in cli("list", *store)
    ambiguous = cli.refused("answer", "c1", "yes", "--session", "w", *store)
    assert ambiguous["code"] == "call-ambiguous" and "--user ann or --user bob or --user default" in ambiguous["hint"]
    cli(*shlex.split(waiting["ann"].to_answer)[2:])
    cli(*shlex.split(rows["bob"]["to_answer"])[2:])
    cli("answer", "c1", "no", "--user", "default", *store)
    answers = {row["user"]: row["answer"] for row in cli.json("list", *store)["waiting"]}
    assert answers == {"ann": "once", "bob": "once", "default": "no"}
    assert go("bob", [{"text": "Paid."}], resume=True).ok


def test_a_session_is_shown_and_deleted_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    owners = [("s", "ann", "default"), ("s", "bob", "default"), ("t", "ann", "acme"), ("w", "default", "default")]
    for session, user, tenant in owners:
        agent = prowess.Agent(ScriptedModel([{"text": f"{tenant} {user}"}]), skills=[], store="sqlite:///runs.db")
        assert agent.run_sync("go", session=session, user=user, tenant=tenant).ok
    cli = Cli(capsys, "sessions")
    store = ["--store", "sqlite:///runs.db"]
    rows = cli.json("list", *store)["sessions"]
    assert sorted((row["session"], row["user"], row["tenant"]) for row in rows) == owners
    title, *lines = (line.split() for line in cli("list", *store).splitlines())
    assert title[:3] == ["SESSION", "USER", "TENANT"]
    assert sorted((line[0], line[1], line[2]) for line in lines) == owners

    several = cli.refused("show", "s", *store)
    assert several["code"] == "session-ambiguous" and "--user ann or --user bob" in several["hint"]
    assert cli.refused("delete", "s", "--yes", *store)["code"] == "session-ambiguous"
    nobody = cli.refused("show", "s", "--user", "eve", *store)
    assert nobody["code"] == "session-unknown" and "--user ann or --user bob" in nobody["hint"]
    assert "default bob" in cli("show", "s", "--user", "bob", *store) and "user bob" in cli.err
    for words in (["t"], ["t", "--tenant", "acme"], ["t", "--tenant", "acme", "--user", "ann"]):
        assert "acme ann" in cli("show", *words, *store)
    assert cli.json("show", "t", *store)["tenant"] == "acme"

    cli("delete", "s", "--user", "ann", "--yes", *store)
    cli("delete", "t", "--tenant", "acme", "--yes", *store)
    rows = cli.json("list", *store)["sessions"]
    assert sorted((row["session"], row["user"]) for row in rows) == [("s", "bob"), ("w", "default")]


def test_the_runs_of_a_tenant_are_runs_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = prowess.Agent(ScriptedModel([{"text": "done"}]), skills=[], store="sqlite:///runs.db")
    run = agent.run_sync("go", session="t", tenant="acme").run
    cli = Cli(capsys, "runs")
    store = ["--store", "sqlite:///runs.db"]
    assert [row["run"] for row in cli.json("list", *store)["runs"]] == [run]
    assert cli.json("verify", run, *store)["valid"]


def test_a_named_store_lists_its_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ["--store", "sqlite:///runs.db"]
    runs: dict[str, list[str]] = {}
    for name in ("runs", "other", "runs"):
        agent = prowess.Agent(ScriptedModel([{"text": "done"}]), skills=[], store=f"sqlite:///{name}.db")
        runs.setdefault(name, []).append(agent.run_sync("go", session=f"{name}-{len(runs)}").run)
    cli = Cli(capsys, "runs")
    own, newest = cli.json("list", *store), cli.json("list", "--limit", "1", *store)
    assert [row["run"] for row in own["runs"]] == runs["runs"][::-1] and not own["more"]
    assert [row["run"] for row in newest["runs"]] == runs["runs"][:0:-1]
    cli.prowess("sessions", "list", *store)
    assert cli.json("list")["runs"] == []


def test_a_store_that_nobody_else_can_open_has_no_command() -> None:
    @prowess.tool(requires_approval=True)
    def sell(item: str) -> str:
        """Sells."""
        return "sold"

    model = ScriptedModel([call("sell", item="bolt")])
    assert prowess.run_sync("go", model=model, tools=[sell], skills=[], store="memory:").to_answer == ""


def test_a_password_in_the_name_of_a_store_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Call({"store": "postgresql://ada:sesame@db/runs"})
    assert asked.where(store=True) == ["--store", "postgresql://db/runs"] and asked.where() == []


@pytest.mark.parametrize("is_object", [True, False])
def test_a_file_that_somebody_else_put_in_its_place_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Path, is_object: bool
) -> None:
    """As a pull replaces the file: the same content with an answer more, under another inode."""
    paid: list[int] = []

    @prowess.tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    def run(script: list[Any], *request: str, **options: Any) -> prowess.Result:
        store: Any = prowess.SqliteEventLog("runs.db") if is_object else "sqlite:///runs.db"
        agent = prowess.Agent(ScriptedModel(script), tools=[pay], skills=[], store=store)
        return agent.run_sync(*request, **options)

    async def forge(call_id: str) -> None:
        async with prowess.SqliteEventLog("runs.db") as log:
            key = SessionKey(session="s-2")
            events = [each async for each in log.read(key)]
            answer = ApprovalAnswered(call_id=call_id, answer="once", by="me", capability="pay", later=True)
            forged = Envelope(at=events[-1].at, session="s-2", run=events[-1].run, event=answer)
            await log.append(key, len(events), await log.lease(key, owner="somebody"), [forged])

    monkeypatch.chdir(tmp_path)
    waiting = run([call("pay", amount=1000)], "go", session="s-2")
    shutil.copy("runs.db", "theirs.db")
    asyncio.run(forge(waiting.waiting[0].id))
    shutil.copy("runs.db", "forged.db")
    for shipped in ("theirs.db", "forged.db"):
        os.replace(shipped, "runs.db")
        with pytest.raises(StoreError) as caught:
            run([{"text": "Paid."}], session="s-2", resume=True)
        assert caught.value.code == "store-foreign" and "prowess runs import" in str(caught.value.hint)
    assert paid == []
