"""A record that came with a folder, or that somebody changed: it answers nothing, and is used only when imported."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents import call
from command_lines import Cli
from hostile.scene import Clone
from hostile.table import case, holds
from prowess.core.events import ApprovalAnswered, RunStarted, UnknownEvent
from prowess.core.values import SessionKey
from prowess.stores.sqlite import SqliteEventLog
from state_places import database_of, need_generations
from tiers import leave_out

LOAD = call("skill_load", skill="evil")
LOCAL = ("--model", "scripted:script.json", "--executor", "local")


class Shipped:
    """A folder whose author ran a command in it without isolation, said yes to it, and ships the record."""

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

    def ship(self) -> None:
        """Puts the author's record where a release of before kept one."""
        database = self.clone.folder / ".agent" / "prowess.db"
        shutil.copy(database_of(self.clone.folder), database)
        database.with_name("prowess.db-wal").unlink(missing_ok=True)

    def take(self) -> None:
        """The person takes the shipped sessions over."""
        self.cli.prowess("runs", "import", ".agent/prowess.db")

    def ran(self) -> bool:
        """Whether it ran since this was last asked."""
        found = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return found


@pytest.fixture
def shipped(
    clone: Clone,
    machine: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Shipped]:
    homes = {"author": tmp_path_factory.mktemp("author"), "person": machine}
    found = Shipped(clone, Cli(capfd, "runs"), monkeypatch, homes)
    found.become("author")
    yield found
    shutil.rmtree(found.mark.parent)


@case(
    by="clone",
    tries="ship a record as `.agent/prowess.db`: sessions, questions, answers",
    stopped_by="what a folder ships is never the person's record: it is named, and read from a copy when imported",
)
def test_shipped_record(shipped: Shipped) -> None:
    shipped.play(LOAD, shipped.command, words=("go", "--session", "s"), code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", "--session", "s")
    shipped.ship()
    shipped.become("person")
    before = (shipped.clone.folder / ".agent" / "prowess.db").read_bytes()
    listed = json.loads(shipped.cli.prowess("sessions", "list", "--json"))
    holds(listed["sessions"] == [], "a stranger's sessions are the person's")
    assert "prowess runs import" in shipped.cli.err
    shipped.cli.prowess("run", *LOCAL, "--resume", "--session", "s", code=1)
    named = json.loads(shipped.cli.prowess("approvals", "list", "--store", ".agent/prowess.db", "--json"))["waiting"]
    holds([(each["answer"], each["to_answer"]) for each in named] == [(None, None)], "it can be answered where it lies")
    holds((shipped.clone.folder / ".agent" / "prowess.db").read_bytes() == before, "it was written to")
    holds(not shipped.ran(), "a stranger's yes ran a command")
    shipped.become("author")
    shipped.play({"text": "done"}, words=("--resume", "--session", "s"))
    assert shipped.ran(), "the control: for its author it counts"


@case(
    by="clone",
    tries="ship a record in which its command was approved and run without isolation, to be replayed",
    stopped_by="answers, roots and executor count only if this user's home gave them; without isolation it asks again",
)
@pytest.mark.parametrize("left", ["all", "copies"])
def test_shipped_yes_in_a_replay(shipped: Shipped, left: str) -> None:
    done = {"text": "done"}
    run = shipped.play(LOAD, shipped.command, done, words=("go", "--yes", "skill_run"))
    if left == "copies":  # which only a path names
        (run,) = map(str, (shipped.clone.folder / ".agent" / "runs").iterdir())
    else:
        shipped.ship()
    assert shipped.ran()
    shipped.become("person")
    if left == "all":
        shipped.take()
    told = shipped.cli.json("replay", run, code=1)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    assert any("--executor local, which is not taken" in note for note in told["notes"])
    assert any("is foreign" in note for note in told["notes"]) == (left == "copies")
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
    tries="ship a session that waits, with the answer to its question in it, to be imported and resumed",
    stopped_by="no answer in an imported record counts, and no question in it can be answered: it is asked again",
)
def test_shipped_yes_in_a_session(shipped: Shipped) -> None:
    session = ("--session", "s")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    shipped.ship()
    shipped.become("person")
    shipped.take()
    listed = json.loads(shipped.cli.prowess("approvals", "list", "--json"))["waiting"]
    assert [(each["answer"], each["to_answer"]) for each in listed] == [(None, None)]
    holds("--executor" not in listed[0]["to_resume"], "options of a stranger are told as the person's own")
    told = json.loads(shipped.cli.prowess("approvals", "answer", "c2", "yes", *session, "--json", code=1))["error"]
    holds(told["code"] == "question-not-yours" and "--resume" in told["hint"], "it was answered as it was shown")
    shipped.play({"text": "done"}, words=("--resume", *session), code=4)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    shipped.play({"text": "done"}, words=("--resume", *session))
    assert shipped.ran(), "the person was asked, and said it"


@case(
    by="clone",
    tries="ship a session whose answered question is one of a child run, or whose last event is one of another run",
    stopped_by="an import voids the answers of every run of a session",
)
@pytest.mark.parametrize("asks", ["child", "parent"])
def test_shipped_yes_in_a_child_run(shipped: Shipped, asks: str) -> None:
    session = ("--session", "s")
    front = "name: evil\ndescription: Helps.\n" + ("run-mode: subagent\n" if asks == "child" else "")
    shipped.clone.skill("evil", front=front)
    shipped.become("author")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    (waiting,) = json.loads(shipped.cli.prowess("approvals", "list", "--json"))["waiting"]
    shipped.cli.prowess("approvals", "answer", waiting["call_id"], "yes", *session)
    asyncio.run(end_in_another_run(database_of(shipped.clone.folder), asks))
    shipped.ship()
    shipped.become("person")
    shipped.take()
    replies = [{"text": "done"}] * (2 if asks == "child" else 1)
    shipped.play(*replies, words=("--resume", *session), code=4)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    shipped.cli.prowess("approvals", "answer", waiting["call_id"], "yes", *session)
    shipped.play(*replies, words=("--resume", *session))
    assert shipped.ran(), "the person was asked, and said it"


async def end_in_another_run(database: Path, asks: str) -> None:
    """Has the session end with an event of a run that asked nothing."""
    key = SessionKey(session="s")
    async with SqliteEventLog(database) as log:
        events = [envelope async for envelope in log.read(key)]
        top = events[0].run
        if asks == "child":
            forged = replace(events[-1], run=top, event=UnknownEvent(type="later", data={}))
        else:
            started = RunStarted(request="go", model="m", parent=top, call="x")
            forged = replace(events[-1], run="r-child", event=started)
        await log.append(key, len(events), await log.lease(key), [forged])


@case(
    by="clone",
    tries="ship a session so long that its import is interrupted before the answers in it are voided",
    stopped_by="a session is imported at once, with the event that voids its answers, or not at all",
)
def test_import_that_is_cut_off(shipped: Shipped) -> None:
    session = ("--session", "s")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    shipped.ship()
    shipped.become("person")
    shipped.play({"text": "done"}, words=("go", "--session", "own"))
    stop = "CREATE TRIGGER stop BEFORE INSERT ON events WHEN new.line LIKE '%session_imported%'"
    with closing(sqlite3.connect(database_of(shipped.clone.folder))) as database, database:
        database.execute(f"{stop} BEGIN SELECT raise(ABORT, 'cut off'); END")
    shipped.cli.prowess("runs", "import", ".agent/prowess.db", code=1)
    shipped.cli.prowess("run", *LOCAL, "--resume", *session, code=1)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    with closing(sqlite3.connect(database_of(shipped.clone.folder))) as database, database:
        database.execute("DROP TRIGGER stop")
    shipped.take()
    shipped.play({"text": "done"}, words=("--resume", *session), code=4)
    holds(not shipped.ran(), "a stranger's yes ran a command")


@case(
    by="clone",
    tries="bring a `-wal` beside the file that a person keeps a store in, with an answer to a question in the store",
    stopped_by="a `-wal` counts only if it is the one that this home made, by its inode, which is noted",
)
def test_wal_beside_a_store(shipped: Shipped, tmp_path: Path) -> None:
    words = (*LOCAL, "--session", "s", "--store", "runs.db")
    store, wal = shipped.clone.folder / "runs.db", shipped.clone.folder / "runs.db-wal"
    shipped.become("person")
    shipped.clone.write("script.json", json.dumps([LOAD, shipped.command]))
    shipped.cli.prowess("run", *words, "go", code=4)
    copy = tmp_path / "theirs" / "runs.db"
    copy.parent.mkdir()
    shutil.copy(store, copy)

    async def forge() -> None:
        async with SqliteEventLog(copy, state_dir=str(copy.parent)) as log:
            key = SessionKey(session="s")
            last = [envelope async for envelope in log.read(key)][-1]
            said = ApprovalAnswered(call_id="c2", answer="once", by="root", capability="skill_run", later=True)
            forged = replace(last, event=said)
            await log.append(key, last.seq or 0, await log.lease(key), [forged])
            shutil.copy(f"{copy}-wal", wal)

    asyncio.run(forge())
    shipped.clone.write("script.json", json.dumps([{"text": "done"}]))
    shipped.cli.prowess("run", *words, "--resume", code=1)
    holds(not shipped.ran(), "a stranger's yes ran a command")
    assert "[store-foreign-wal]" in shipped.cli.err
    wal.unlink()
    shipped.cli.prowess("run", *words, "--resume", code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", "--session", "s", "--store", "runs.db")
    shipped.cli.prowess("run", *words, "--resume")
    assert shipped.ran(), "the person said it"


@case(
    by="clone",
    tries="bring a link in place of the file of a store, which leads to another store of the person, or to their state",
    stopped_by="a store is ours where it lies; a link below the folder you stand in, or in a repository, is refused",
)
@pytest.mark.parametrize("place", ["state", "new", "named"])
def test_link_in_place_of_a_store(shipped: Shipped, tmp_path: Path, machine: Path, place: str) -> None:
    shipped.become("person")
    store = {"state": ".prowess/other.db", "new": ".prowess/new.db", "named": "named.db"}[place]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    os.chdir(folder)
    shipped.clone.write("script.json", json.dumps([{"text": "done"}]))
    model = ("--model", f"scripted:{shipped.clone.folder / 'script.json'}")
    if place != "new":
        shipped.cli.prowess("run", "go", *model, "--store", str(machine / store), "--session", "own")
    os.chdir(shipped.clone.folder)
    (shipped.clone.folder / "runs.db").symlink_to(machine / store)
    for words in (("sessions", "list"), ("run", "go", *model)):
        shipped.cli.prowess(*words, "--store", "runs.db", code=2)
        holds("[output-through-link]" in shipped.cli.err, "it was followed")
    holds((machine / store).exists() == (place != "new"), "a file was made in the person's state")


@case(
    by="clone",
    tries="take the place of a folder whose session waits for an answer that was given already",
    stopped_by="a record belongs to a folder by its inode: in another folder at this path no earlier answer counts",
)
def test_folder_in_the_place_of_another(shipped: Shipped, tmp_path: Path) -> None:
    session = ("--session", "s")
    shipped.become("person")
    shipped.play(LOAD, shipped.command, words=("go", *session), code=4)
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    folder = shipped.clone.folder
    shutil.copytree(folder, tmp_path / "other")
    os.chdir(tmp_path)
    folder.rename(tmp_path / "first")
    (tmp_path / "other").rename(folder)
    os.chdir(folder)
    shipped.cli.prowess("run", *LOCAL, "--resume", *session, code=4)
    assert "is another folder" in shipped.cli.err
    holds(not shipped.ran(), "a yes of another folder ran a command")
    shipped.cli.prowess("projects", "adopt", ".", "--yes")
    shipped.cli.prowess("approvals", "answer", "c2", "yes", *session)
    shipped.play({"text": "done"}, words=("--resume", *session))
    assert shipped.ran(), "the person says it again"


@case(
    by="clone",
    tries="lie where a project was before it was moved, and see the workspaces of its sessions",
    stopped_by="a moved project keeps the name that its workspaces have, and no other project gets this name",
)
def test_folder_where_a_project_was(shipped: Shipped, tmp_path: Path) -> None:
    need_generations(tmp_path)
    shipped.become("person")
    command = f"test -e $WORK_DIR/mine && touch {shipped.mark}; touch $WORK_DIR/mine"
    script = [LOAD, call("skill_run", skill="evil", command=command), {"text": "done"}]
    words = ("go", "--session", "s", "--yes", "skill_run")
    shipped.play(*script, words=words)
    folder = shipped.clone.folder
    shutil.copytree(folder, tmp_path / "other")
    os.chdir(tmp_path)
    folder.rename(tmp_path / "moved")
    os.chdir(tmp_path / "moved")
    shipped.become("person")
    shipped.cli.prowess("run", *LOCAL, *words)
    assert shipped.ran(), "the control: moved, its workspace is still its own"
    (tmp_path / "other").rename(folder)
    os.chdir(folder)
    shipped.become("person")
    shipped.play(*script, words=words)
    holds(not shipped.ran(), "it is in the workspace of another project")


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
    with closing(sqlite3.connect(database_of(shipped.clone.folder))) as database, database:
        database.execute("UPDATE sessions SET expires_at = '2020-01-01T00:00:00.000000Z'")
    listed = json.loads(shipped.cli.prowess("sessions", "list", "--json"))
    holds([row["session"] for row in listed["sessions"]] == ["s"] and not listed["pruned"], "evidence was removed")
    assert "evidence" in shipped.cli.prowess("sessions", "show", "s")
    told = shipped.cli.json("verify", "--all", code=1)
    holds(any("expiry" in (row["why"] or "") for row in told["sessions"]), "nobody tells of the edit")


@case(
    by="neighbour",
    tries="have made the folder that `PROWESS_STATE_DIR` names before: with a record, approvals and trust",
    stopped_by="a state folder that belongs to another user is not read; nothing in it is trusted",
)
def test_state_folder_of_another_user(shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        leave_out("only root can give a folder away")
    state = tmp_path / "state"
    shipped.become("person")
    monkeypatch.setenv("PROWESS_STATE_DIR", str(state))
    shipped.cli.prowess("trust", "--yes")
    shipped.play({"text": "done"}, words=("go", "--session", "s"))
    for path in (state, *state.rglob("*")):
        os.chown(path, 54_321, 54_321)
    shipped.cli.prowess("sessions", "list", code=1)
    holds("[state-unavailable]" in shipped.cli.err, "a stranger's record is read")
    holds("nothing is trusted" in shipped.cli.err, "a stranger decides what is trusted")
