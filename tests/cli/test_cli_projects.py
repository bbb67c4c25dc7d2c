"""prowess projects: what the state folder keeps of projects is listed, given to a folder, and removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from command_lines import Cli
from state_places import state_of
from terminals import Terminal


class Projects:
    """Folders with a record of one session each."""

    def __init__(self, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp_path, self.cli, self._monkeypatch = tmp_path, cli, monkeypatch

    def make(self, name: str) -> Path:
        folder = self.tmp_path / name
        (folder / ".agent").mkdir(parents=True)
        self.enter(folder)
        self.run()
        return folder

    def run(self, *replies: Any, words: tuple[str, ...] = (), code: int = 0) -> None:
        script = Path(os.environ["HOME"], "script.json")
        script.write_text(json.dumps(replies or [{"text": "done"}]), encoding="utf-8")
        model = ("--model", f"scripted:{script}", "--executor", "local", "--session", "s")
        self.cli.prowess("run", *(words or ("go",)), *model, code=code)

    def enter(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._monkeypatch.chdir(folder)

    def here(self, name: str) -> Path:
        """A new project without a record, as the working folder."""
        folder = self.tmp_path / name
        (folder / ".agent").mkdir(parents=True)
        self.enter(folder)
        return folder

    def move(self, folder: Path, name: str) -> Path:
        """As to another disk: the folder has another inode there."""
        target = self.here(name)
        self.gone(folder)
        return target

    def gone(self, folder: Path) -> None:
        folder.rename(self.tmp_path / f"removed-{folder.name}")

    def sessions(self) -> list[str]:
        return [row["session"] for row in json.loads(self.cli.prowess("sessions", "list", "--json"))["sessions"]]

    def status(self) -> dict[str, str]:
        return {Path(row["path"]).name: row["status"] for row in self.cli.json("list")["projects"]}


@pytest.fixture
def projects(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Projects:
    return Projects(tmp_path, Cli(capfd, "projects"), monkeypatch)


def test_each_project_is_listed_with_its_place_and_size(projects: Projects, machine: Path) -> None:
    cli = projects.cli
    assert cli.json("list")["projects"] == []
    first, second = projects.make("first"), projects.make("second")
    identity = state_of(second).name
    projects.gone(first)
    document = cli.json("list")
    assert document["state_dir"] == str(machine / ".prowess")
    rows = {row["path"]: row for row in document["projects"]}
    assert {path: row["status"] for path, row in rows.items()} == {str(first): "gone", str(second): "here"}
    assert rows[str(second)]["id"] == identity
    assert all(row["size_bytes"] > 10_000 and row["used_at"].endswith("Z") for row in rows.values())
    title, *lines = cli("list").splitlines()
    assert title.split() == ["FOLDER", "STATUS", "USED", "SIZE", "ID"] and len(lines) == 2
    assert cli.err.startswith("2 projects · ") and str(machine / ".prowess") in cli.err
    assert cli() == cli("list"), "without an action, the list"


@pytest.mark.parametrize("ref", ["path", "relative", "id", "beginning"])
def test_a_project_adopts_the_record_of_one_that_has_gone(projects: Projects, ref: str) -> None:
    old = projects.make("app")
    identity = state_of(old).name
    projects.make("other")
    here = projects.move(old, "there")
    words = {"path": str(old), "relative": "../app", "id": identity, "beginning": identity[:8]}[ref]
    assert projects.sessions() == []
    adopted = projects.cli.json("adopt", words, "--yes")["project"]
    assert (adopted["path"], adopted["status"], adopted["id"]) == (str(here), "here", state_of(here).name)
    assert projects.sessions() == ["s"] and projects.status() == {"there": "here", "other": "here"}
    assert json.loads(projects.cli.prowess("runs", "verify", "--all", "--json"))["valid"]


def test_answers_in_an_adopted_record_count(projects: Projects) -> None:
    ask = {"calls": [{"tool": "write_file", "args": {"path": "out/a.txt", "content": "x"}, "id": "c1"}]}
    old = projects.here("app")
    projects.run(ask, code=4)
    projects.cli.prowess("approvals", "answer", "c1", "yes")
    projects.move(old, "there")
    projects.cli("adopt", str(old), "--yes")
    (row,) = json.loads(projects.cli.prowess("approvals", "list", "--json"))["waiting"]
    assert row["answer"] == "once"
    projects.run(words=("--resume",))


def test_a_project_that_is_there_keeps_its_record(projects: Projects) -> None:
    first = projects.make("first")
    projects.here("second")
    error = projects.cli.refused("adopt", str(first), "--yes")
    assert error["code"] == "project-in-use" and "prowess runs import" in error["hint"]
    assert projects.sessions() == []
    projects.enter(first)
    assert projects.sessions() == ["s"]


def test_a_record_that_is_there_is_not_replaced(projects: Projects) -> None:
    old = projects.make("old")
    here = projects.make("here")
    before = (state_of(here) / "prowess.db").read_bytes()
    projects.gone(old)
    error = projects.cli.refused("adopt", str(old), "--yes")
    assert error["code"] == "project-has-record"
    assert (state_of(here) / "prowess.db").read_bytes() == before
    assert projects.status() == {"old": "gone", "here": "here"}
    command = error["hint"].partition("prowess ")[2].split()
    projects.cli.prowess(*command, "--yes", code=1)  # both have a session of this name
    projects.cli.prowess("sessions", "delete", "s", "--yes")
    projects.cli.prowess(*command, "--yes")
    assert projects.sessions() == ["s"]


@pytest.mark.parametrize("ref", ["/nowhere", "x", "", "app"])
def test_an_unknown_project_is_said_to_be(projects: Projects, ref: str) -> None:
    for name in ("app1", "app2") if ref else ("app1",):  # both ids begin with app
        projects.gone(projects.make(name))
    projects.here("here")
    assert projects.cli.refused("adopt", ref, "--yes")["code"] == "project-unknown"


def test_it_is_asked_before_a_record_is_adopted(projects: Projects) -> None:
    projects.gone(projects.make("app"))
    here = projects.here("here")
    assert projects.cli.refused("adopt", str(projects.tmp_path / "app"))["code"] == "needs-yes"
    for answer, sessions in (("n", []), ("y", ["s"])):
        terminal = Terminal("projects", "adopt", "../app", cwd=here)
        terminal.wait_for("Does the record of")
        terminal.type(f"{answer}\n")
        terminal.finish()
        assert projects.sessions() == sessions


def test_a_folder_that_is_no_project_adopts_nothing(projects: Projects) -> None:
    projects.gone(projects.make("app"))
    projects.enter(projects.tmp_path / "plain")
    error = projects.cli.refused("adopt", str(projects.tmp_path / "app"), "--yes")
    assert error["code"] == "no-project" and "prowess init" in error["hint"]


def test_the_records_of_projects_that_have_gone_are_removed(projects: Projects) -> None:
    gone, here = projects.make("gone"), projects.make("here")
    states = [state_of(folder) for folder in (gone, here)]
    outside = projects.tmp_path / "outside"
    (states[0] / "link").symlink_to(outside)
    outside.mkdir()
    (outside / "kept").write_text("")
    projects.gone(gone)
    cli = projects.cli
    document = cli.json("prune", "--dry-run")
    assert document["dry_run"] and [row["path"] for row in document["removed"]] == [str(gone)]
    assert "would remove" in cli("prune", "--dry-run") and states[0].exists()
    assert cli.refused("prune")["code"] == "needs-yes" and states[0].exists()
    document = cli.json("prune", "--yes")
    assert not document["dry_run"] and [row["path"] for row in document["removed"]] == [str(gone)]
    assert [state.exists() for state in states] == [False, True] and (outside / "kept").exists()
    assert projects.status() == {"here": "here"} and projects.sessions() == ["s"]
    assert cli.json("prune", "--yes")["removed"] == [] and "removed 0 records" in cli("prune") + cli.err


def test_it_is_asked_before_records_are_removed(projects: Projects) -> None:
    gone = projects.make("gone")
    state = state_of(gone)
    projects.gone(gone)
    for answer, is_kept in (("n", True), ("y", False)):
        terminal = Terminal("projects", "prune", cwd=projects.tmp_path, columns=400)
        terminal.wait_for("Remove the records of 1 project")
        terminal.type(f"{answer}\n")
        terminal.finish()
        assert str(gone) in terminal.plain and state.exists() == is_kept


def test_a_record_whose_project_is_not_known_is_listed_and_not_removed(projects: Projects) -> None:
    state = state_of(projects.make("app"))
    (state / "project.json").write_text("{}")
    cli = projects.cli
    (row,) = cli.json("list")["projects"]
    assert (row["path"], row["status"], row["id"]) == (None, "unreadable", state.name)
    assert state.name in cli("list")
    assert cli.json("prune", "--yes")["removed"] == [] and state.exists()
    projects.here("here")
    assert cli.refused("adopt", state.name, "--yes")["code"] == "project-unknown"
