"""What in a record this user's home wrote: in one place, behind one history, and with a key that nobody else has."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prowess.core.events import ApprovalAnswered, ApprovalAsked, Envelope, Event, NoteAppended, RunStarted
from prowess.policy.trust import grant_folder
from prowess.records.marks import Marks
from prowess.runtime.runtime import open_runtime
from prowess.runtime.storage import open_marks

ASKED, ANSWERED = (
    ApprovalAsked(call_id="c", why="?"),
    ApprovalAnswered(call_id="c", answer="once", capability="skill_run"),
)
EVENTS = [ASKED, ANSWERED, RunStarted(model="m", resume_arguments=("--root", "x"))]


def marked(marks: Marks, event: Event) -> Envelope:
    envelope = marks.mark(Envelope(at="now", session="s", run="r", event=event), "before")
    return replace(envelope, prev="before")


@pytest.mark.parametrize("event", EVENTS)
def test_a_mark_fits_where_it_was_made_and_nowhere_else(tmp_path: Path, event: Any) -> None:
    home, store = str(tmp_path / "home"), str(tmp_path / "a.db")
    found = marked(Marks(home, store), event)
    assert Marks(home, store).fits(found), "also for another process"
    assert not Marks(home, str(tmp_path / "b.db")).fits(found), "not in another store"
    assert not Marks(str(tmp_path / "other"), store).fits(found), "not for another home, which has no key"
    other = Marks(str(tmp_path / "other"), store)
    assert marked(other, event).event != found.event and not other.fits(found), "nor for one that has another"
    moved: list[dict[str, Any]] = [{"prev": "x"}, {"session": "x"}, {"run": "x"}, {"user": "x"}, {"prev": None}]
    for change in (*moved, {"event": replace(event, mark=None)}, {"event": replace(event, mark="ÿ")}):
        assert not Marks(home, store).fits(replace(found, **change)), change


def test_what_was_said_is_a_part_of_it(tmp_path: Path) -> None:
    marks = Marks(str(tmp_path), str(tmp_path / "a.db"))
    found = marked(marks, ANSWERED)
    changes: list[dict[str, Any]] = [{"answer": "always"}, {"call_id": "d"}, {"capability": "x"}, {"later": True}]
    for change in changes:
        event: Any = found.event
        assert not marks.fits(replace(found, event=replace(event, **change))), change
    assert marked(marks, NoteAppended(text="x")).event == NoteAppended(text="x"), "others take none"


def test_an_answer_that_nobody_was_asked_for_takes_none(tmp_path: Path) -> None:
    """`--yes`, `approve=[…]` and earlier approvals hold for as long as they are said."""
    marks = Marks(str(tmp_path), str(tmp_path / "a.db"))
    given = replace(ANSWERED, asked=False, by="--yes skill_run")
    assert marked(marks, given).event == given


def test_a_key_is_private_and_a_broken_one_is_kept_aside(tmp_path: Path) -> None:
    found = marked(Marks(str(tmp_path), "x"), ASKED)
    path = tmp_path / "record-key.json"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"schema": "prowess.record-key/1", "key": "00"}', encoding="utf-8")
    assert not Marks(str(tmp_path), "x").fits(found)
    again = marked(Marks(str(tmp_path), "x"), ASKED)
    assert Marks(str(tmp_path), "x").fits(again) and (tmp_path / "record-key.json.broken-1").exists()


def test_a_home_that_cannot_be_written_marks_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder", encoding="utf-8")
    found = marked(Marks(str(tmp_path / "home"), "x"), ASKED)
    assert found.event == ASKED and not Marks(str(tmp_path / "home"), "x").fits(found)


def test_in_a_database_that_the_user_named_every_answer_counts(tmp_path: Path, machine: Path) -> None:
    url = "postgresql://prowess@db.example.org/prowess"

    def needs_marks(**flags: Any) -> bool:
        with open_runtime(cwd=str(tmp_path), environ=os.environ, flags=flags) as runtime:
            return open_marks(runtime, "place") is not None

    assert needs_marks() and needs_marks(store="own.db")
    assert not needs_marks(store="memory:") and not needs_marks(store=url)
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.toml").write_text(f'store = "{url}"\n', encoding="utf-8")
    grant_folder(str(machine / ".prowess"), str(tmp_path))
    assert needs_marks(), "the project's file names it"
    (machine / ".prowess" / "config.toml").write_text(f'store = "{url}"\n', encoding="utf-8")
    (tmp_path / ".agent" / "config.toml").unlink()
    assert not needs_marks(), "the user's own file"
