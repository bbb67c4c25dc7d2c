"""A record that came with a folder, or that somebody changed: what it says was answered, made or meant to expire."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents import call
from command_lines import Cli
from hostile.scene import Clone
from hostile.table import case, holds

LOAD = call("skill_load", skill="evil")
LOCAL = ("--model", "scripted:script.json", "--executor", "local")


class Shipped:
    """A folder whose author ran a command in it without isolation, said yes to it, and committed the record."""

    def __init__(self, clone: Clone, cli: Cli, monkeypatch: pytest.MonkeyPatch, homes: dict[str, Path]) -> None:
        self.clone, self.cli, self._monkeypatch, self._homes = clone, cli, monkeypatch, homes
        self.mark = Path(tempfile.mkdtemp(dir="/tmp")) / "ran"
        os.chmod(self.mark.parent, 0o777)  # scripts may run as somebody else
        clone.skill("evil")
        monkeypatch.chdir(clone.folder)

    def become(self, who: str) -> None:
        self._monkeypatch.setenv("PROWESS_HOME", str(self._homes[who]))
        self.cli.prowess("trust", "--yes")

    def play(self, *replies: Any, words: tuple[str, ...] = (), code: int = 0) -> str:
        """A run, and its id."""
        self.clone.write("script.json", json.dumps(replies))
        self.cli.prowess("run", *LOCAL, *words, code=code)
        return self.cli.json("list", "--limit", "1")["runs"][0]["run"]

    @property
    def command(self) -> Any:
        return call("skill_run", skill="evil", command=f"echo x >> {self.mark}")

    def ran(self) -> bool:
        """Whether it ran since this was last asked."""
        found = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return found


@pytest.fixture
def shipped(
    clone: Clone, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Shipped]:
    found = Shipped(clone, Cli(capfd, "runs"), monkeypatch, {"author": tmp_path / "author", "person": machine})
    found.become("author")
    yield found
    shutil.rmtree(found.mark.parent)


@case(
    by="clone",
    tries="ship a record in which its command was approved and run without isolation, to be replayed",
    stopped_by="answers, roots and executor count only if this user's home gave them; without isolation it asks again",
)
@pytest.mark.parametrize("left", ["all", "copies"])
def test_shipped_yes_in_a_replay(shipped: Shipped, left: str) -> None:
    done = {"text": "done"}
    run = shipped.play(LOAD, shipped.command, done, words=("go", "--yes", "skill_run"))
    copies = shipped.clone.folder / ".agent" / "runs"
    if left == "copies":  # which only a path names
        (shipped.clone.folder / ".agent" / "prowess.db").unlink()
        (run,) = map(str, copies.iterdir())
    assert shipped.ran()
    shipped.become("person")
    said = shipped.cli.err
    told = shipped.cli.json("replay", run, code=1)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    assert any("--executor local, which is not taken" in note for note in told["notes"])
    assert any("is foreign" in note for note in told["notes"]) == (left == "copies")
    assert "is a record that is here already" in said, "and trusting the folder tells of it"
    shipped.cli.json("replay", run, "--executor", "local", code=1)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    shipped.cli.json("replay", run, "--executor", "local", "--yes", "skill_run")
    assert shipped.ran(), "the person says it"
    own = shipped.play(LOAD, shipped.command, done, words=("go", "--yes", "skill_run"))
    assert shipped.ran()
    shipped.cli.json("replay", own, code=1)
    holds(not shipped.ran(), "without isolation not even the person's own yes of then is enough")


@case(
    by="clone",
    tries="ship a session that waits, with the answer to its question in it, to be resumed",
    stopped_by="a shipped answer answers nothing, and a shipped question cannot be answered: it is asked again",
)
def test_shipped_yes_in_a_session(shipped: Shipped) -> None:
    session = ("--session", "s")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    shipped.become("person")
    listed = json.loads(shipped.cli.prowess("approvals", "list", "--json"))["waiting"]
    assert [(each["answer"], each["to_answer"]) for each in listed] == [(None, None)]
    holds("--executor" not in listed[0]["to_resume"], "options of a stranger are told as the person's own")
    shipped.play({"text": "done"}, words=("--resume", *session), code=4)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    shipped.play({"text": "done"}, words=("--resume", *session))
    assert shipped.ran(), "the person was asked, and said it"


@case(
    by="clone",
    tries="ship a session that waits, whose question shows another command than the one that would run",
    stopped_by="only a question that this user's home asked is answered; a shipped one is asked again",
)
def test_shipped_question(shipped: Shipped) -> None:
    session = ("--session", "s")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    shipped.become("person")
    told = json.loads(shipped.cli.prowess("approvals", "answer", "c2", "yes", *session, "--json", code=1))["error"]
    holds(told["code"] == "question-not-yours", "it was answered as it was shown")
    assert "--resume" in told["hint"]


@case(
    by="clone",
    tries="bring a person's own record, which was shared once, back at another place",
    stopped_by="an answer counts in the store that it was given in",
)
def test_own_record_at_another_place(shipped: Shipped, tmp_path: Path) -> None:
    session = ("--session", "s")
    shipped.become("person")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    moved = tmp_path / "moved"
    shutil.copytree(shipped.clone.folder, moved)
    os.chdir(moved)
    shipped.cli.prowess("trust", "--yes")
    shipped.cli.prowess("run", *LOCAL, "--resume", *session, code=4)
    holds(not shipped.ran(), "a yes of another place ran a command")
    os.chdir(shipped.clone.folder)
    shipped.play({"text": "done"}, words=("--resume", *session))
    assert shipped.ran(), "where it was given it counts"


@case(
    by="clone",
    tries="show a run.json that was rewritten: another command, isolation or answer, beside a field of its own",
    stopped_by="the log counts; `runs verify` says when a copy differs, in any field of its schema or by another field",
)
@pytest.mark.parametrize(
    "forged",
    [
        {"commands": [], "x": 1},
        {"isolation": [{"executor": "sandbox"}], "schema": "prowess.run/2"},
        {"prompts": {"asked": 0, "answered": 0, "by": {}}, "versions": None},
    ],
)
def test_rewritten_summary(shipped: Shipped, forged: dict[str, Any]) -> None:
    run = shipped.play(LOAD, shipped.command, {"text": "done"}, words=("go", "--yes", "skill_run"))
    (path,) = (shipped.clone.folder / ".agent" / "runs").glob("*/run.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["commands"] and document["isolation"] and document["prompts"]["answered"]
    assert shipped.cli.json("verify", run)["valid"]
    path.write_text(json.dumps({**document, **forged}), encoding="utf-8")
    (told,) = shipped.cli.json("verify", run, code=1)["findings"]
    holds(told["code"] == "copy-differs" and "run.json" in told["message"], "a forged summary is said to be the same")
    twice = json.dumps(document)[:-1] + ', "text": "forged"' + ', "text": ' + json.dumps(document["text"]) + "}"
    path.write_text(twice, encoding="utf-8")
    holds(bool(shipped.cli.json("verify", run, code=1)["findings"]), "two readers read two things")


@case(
    by="neighbour",
    tries="have a session hidden, and removed by the next `sessions list`, with one edit of `expires_at` in its row",
    stopped_by="a moment counts only with its link to the chain; `runs verify` tells of one that was edited",
)
def test_edited_expiry(shipped: Shipped) -> None:
    shipped.play({"text": "evidence"}, words=("go", "--session", "s"))
    with closing(sqlite3.connect(shipped.clone.folder / ".agent" / "prowess.db")) as database, database:
        database.execute("UPDATE sessions SET expires_at = '2020-01-01T00:00:00.000000Z'")
    listed = json.loads(shipped.cli.prowess("sessions", "list", "--json"))
    holds([row["session"] for row in listed["sessions"]] == ["s"] and not listed["pruned"], "evidence was removed")
    assert "evidence" in shipped.cli.prowess("sessions", "show", "s")
    told = shipped.cli.json("verify", "--all", code=1)
    holds(any("expiry" in (row["why"] or "") for row in told["sessions"]), "nobody tells of the edit")
