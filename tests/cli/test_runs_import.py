"""prowess runs import: the sessions of a record that somebody else wrote are taken over; nothing in them approves."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents import call
from command_lines import Cli
from old_records import waiting, write_old_record
from postgres_server import running_server
from prowess.core.events import ApprovalAnswered, NoteAppended, RunFinished, RunStarted
from state_places import database_of
from terminals import Terminal

DONE = [RunStarted(model="offline", request="Hello"), RunFinished(stop_reason="answer", text="Hi")]
ASK = call("write_file", path="out/a.txt", content="x")


class Importer:
    """A project of the person, and `theirs.db` of somebody else beside it."""

    def __init__(self, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp_path, self.cli, self._monkeypatch = tmp_path, cli, monkeypatch
        self.project = tmp_path / "app"
        (self.project / ".agent").mkdir(parents=True)
        self.file = tmp_path / "theirs.db"
        monkeypatch.chdir(self.project)

    def write(self, **sessions: Any) -> None:
        write_old_record(self.tmp_path / "theirs", sessions, key=None).replace(self.file)

    def record(self, *replies: Any) -> None:
        """A session `s` as another person's Prowess writes it. Without replies, it waits with an answer."""
        home = self.tmp_path / "their-home"
        home.mkdir()
        with self._monkeypatch.context() as patch:
            patch.setenv("PROWESS_HOME", str(home))
            if replies:
                self.play(*replies)
            else:
                self.play(ASK, code=4)
                self.cli.prowess("approvals", "answer", "c1", "yes")
            shutil.copy(database_of(self.project), self.file)

    def play(self, *replies: Any, words: tuple[str, ...] = ("go",), code: int = 0) -> str:
        script = Path(os.environ["HOME"], "script.json")
        script.write_text(json.dumps(replies), encoding="utf-8")
        model = ("--model", f"scripted:{script}", "--executor", "local", "--session", "s")
        return self.cli.prowess("run", *words, *model, code=code)

    def take(self, *words: str, code: int = 0) -> dict[str, tuple[int, str]]:
        rows = self.cli.json(str(self.file), *words, code=code)["sessions"]
        return {row["session"]: (row["events"], row["status"]) for row in rows}

    def sessions(self, *store: str) -> list[str]:
        return sorted(row["session"] for row in self.asked("sessions", "list", *store)["sessions"])

    def question(self) -> dict[str, Any]:
        (row,) = self.asked("approvals", "list")["waiting"]
        return row

    def asked(self, *words: str) -> dict[str, Any]:
        return json.loads(self.cli.prowess(*words, "--json"))


@pytest.fixture
def importer(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Importer:
    return Importer(tmp_path, Cli(capfd, "runs", "import"), monkeypatch)


def test_every_session_is_imported_and_the_second_time_it_is_there(importer: Importer) -> None:
    importer.write(done=DONE, waits=waiting())
    before = importer.file.read_bytes()
    document = importer.cli.json(str(importer.file))
    assert document["file"] == str(importer.file) and document["store"] == str(database_of(importer.project))
    assert [(row["session"], row["tenant"], row["status"], row["why"]) for row in document["sessions"]] == [
        ("done", "default", "imported", None),
        ("waits", "default", "imported", None),
    ]
    assert importer.sessions() == ["done", "waits"]
    assert importer.take() == {"done": (2, "already-there"), "waits": (5, "already-there")}
    assert "already-there" in importer.cli(str(importer.file))
    assert "0 of 2 sessions imported into " in importer.cli.err
    assert importer.asked("runs", "verify", "--all")["valid"]
    assert importer.file.read_bytes() == before and not list(importer.tmp_path.glob("theirs.db-*"))


def test_a_session_that_went_on_here_is_there_already(importer: Importer) -> None:
    importer.write(s=DONE)
    importer.take()
    importer.play({"text": "more"})
    assert importer.take() == {"s": (2, "already-there")}


def test_another_session_of_the_same_name_is_a_conflict(importer: Importer) -> None:
    importer.write(s=DONE, t=DONE)
    importer.play({"text": "mine"})
    shown = importer.asked("sessions", "show", "s")
    assert importer.take(code=1) == {"s": (2, "conflict"), "t": (2, "imported")}
    assert importer.asked("sessions", "show", "s") == shown
    assert "another session of this name" in importer.cli(str(importer.file), code=1)


def test_a_damaged_session_is_left_out_and_the_others_are_imported(importer: Importer) -> None:
    importer.write(bad=DONE, good=DONE)
    with closing(sqlite3.connect(importer.file)) as connection, connection:
        connection.execute("UPDATE events SET line = replace(line, 'Hello', 'Howdy') WHERE session = 'bad'")
    assert importer.take(code=1) == {"bad": (2, "damaged"), "good": (2, "imported")}
    assert importer.sessions() == ["good"]
    (why,) = [row["why"] for row in importer.cli.json(str(importer.file), code=1)["sessions"] if row["why"]]
    assert "fields" not in why and why in importer.cli(str(importer.file), code=1)


def test_no_answer_in_it_counts_and_what_waited_is_asked_again(importer: Importer) -> None:
    importer.record()
    importer.take()
    question = importer.question()
    assert (question["answer"], question["to_answer"]) == (None, None)
    assert importer.cli.prowess("approvals", "answer", "c1", "yes", "--json", code=1).count("question-not-yours") == 1
    importer.play(words=("--resume",), code=4)
    importer.cli.prowess("approvals", "answer", "c1", "yes")
    importer.play({"text": "done"}, words=("--resume",))
    assert importer.asked("runs", "verify", "--all")["valid"]


def test_an_imported_session_is_replayed_and_goes_on(importer: Importer) -> None:
    importer.record(call("file_list"), {"text": "theirs"})
    importer.take()
    (run,) = importer.asked("runs", "list")["runs"]
    assert importer.asked("runs", "replay", run["run"])["same"]
    importer.play({"text": "mine"})
    shown = importer.cli.prowess("sessions", "show", "s")
    assert 0 < shown.index("theirs") < shown.index("mine")
    assert importer.asked("runs", "verify", "--all")["valid"]


def test_with_mine_the_answers_count(importer: Importer) -> None:
    importer.record()
    refused = importer.cli.refused(str(importer.file), "--mine")
    assert refused["code"] == "needs-yes" and importer.sessions() == []
    importer.take("--mine", "--yes")
    assert importer.question()["answer"] == "once"
    importer.play({"text": "done"}, words=("--resume",))
    assert importer.asked("runs", "verify", "--all")["valid"]


def test_a_person_is_asked_whose_record_it_is(importer: Importer) -> None:
    importer.record()
    for answer, answers in (("n", []), ("y", ["once"])):
        terminal = Terminal("runs", "import", "../theirs.db", "--mine", cwd=importer.project)
        terminal.wait_for("Did you write ../theirs.db yourself?")
        terminal.type(f"{answer}\n")
        terminal.finish()
        assert [row["answer"] for row in importer.asked("approvals", "list")["waiting"]] == answers


def test_a_session_that_cannot_be_imported_whole_is_not_imported_in_part(importer: Importer) -> None:
    """Only the last event of an imported session says that it is somebody else's."""
    yes = ApprovalAnswered(call_id="c1", answer="once", capability="write_file", later=True)
    importer.write(good=DONE, s=[*waiting(), yes, *(NoteAppended(text=str(n)) for n in range(1_000))])
    with closing(sqlite3.connect(importer.file)) as connection, connection:
        ((seq, text),) = connection.execute("SELECT max(seq), line FROM events WHERE session = 's'").fetchall()
        line = {**json.loads(text), "type": "text_delta"}  # which is never stored
        del line["hash"]
        body = json.dumps(line, sort_keys=True, separators=(",", ":"))
        line["hash"] = hashlib.sha256(body.encode()).hexdigest()
        text = f'{body[:-1]},"hash":"{line["hash"]}"}}'
        connection.execute("UPDATE events SET line = ? WHERE session = 's' AND seq = ?", (text, seq))
        connection.execute("UPDATE sessions SET hash = ? WHERE session = 's'", (line["hash"],))
    assert importer.take(code=1) == {"good": (2, "imported"), "s": (seq, "damaged")}
    assert importer.sessions() == ["good"] and importer.asked("approvals", "list")["waiting"] == []


def test_nothing_is_imported_into_memory_or_into_itself(importer: Importer) -> None:
    importer.write(s=DONE)
    assert importer.cli.refused(str(importer.file), "--store", "memory:")["code"] == "import-into-memory"
    importer.take()
    own = database_of(importer.project)
    link = importer.tmp_path / "link.db"
    link.symlink_to(own)
    for name in (str(own), str(link)):
        assert importer.cli.refused(name)["code"] == "import-into-itself"
    assert importer.sessions() == ["s"]


def test_nothing_is_imported_into_a_file_of_somebody_else(importer: Importer) -> None:
    importer.write(s=DONE)
    other = importer.tmp_path / "other.db"
    shutil.copy(importer.file, other)
    before = other.read_bytes()
    importer.write(t=DONE)
    assert importer.cli.refused(str(importer.file), "--store", str(other))["code"] == "store-foreign"
    assert other.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"no database" * 100])
def test_a_file_that_is_no_record_is_said_to_be(importer: Importer, content: bytes | None) -> None:
    if content is not None:
        importer.file.write_bytes(content)
    error = importer.cli.refused(str(importer.file))
    assert error["code"].startswith("store-") and str(importer.file) in error["message"]
    assert importer.sessions() == []


def test_sessions_are_imported_into_a_store_that_is_named(importer: Importer) -> None:
    importer.record()
    store = ("--store", str(importer.tmp_path / "new.db"))
    importer.take(*store)
    assert importer.sessions(*store) == ["s"] and importer.sessions() == []
    assert importer.asked("runs", "verify", "--all", *store)["valid"]


def test_sessions_are_imported_into_postgresql(importer: Importer) -> None:
    importer.record()
    with running_server() as server:
        store = ("--store", server.url())
        assert [status for _, status in importer.take(*store).values()] == ["imported"]
        assert [status for _, status in importer.take(*store).values()] == ["already-there"]
        assert importer.sessions(*store) == ["s"]
        assert importer.asked("runs", "verify", "--all", *store)["valid"]
        (row,) = importer.asked("approvals", "list", *store)["waiting"]
        assert (row["answer"], row["to_answer"]) == (None, None)


def test_a_record_in_the_project_is_named_until_all_of_it_is_imported(importer: Importer) -> None:
    importer.file = old = write_old_record(importer.project, {"s": DONE, "t": DONE}, key=None)

    def is_named() -> bool:
        importer.cli.prowess("sessions", "list")
        in_list = f"prowess runs import {old}" in importer.cli.err
        codes = [finding["code"] for finding in importer.asked("doctor")["findings"]]
        assert ("record-left" in codes) == in_list
        return in_list

    assert is_named()
    importer.play({"text": "mine"})  # a session `s` of one's own
    assert importer.take(code=1) == {"s": (2, "conflict"), "t": (2, "imported")} and is_named()
    importer.cli.prowess("sessions", "delete", "s", "--yes")
    assert importer.take() == {"s": (2, "imported"), "t": (2, "already-there")} and not is_named()
    assert old.exists()
