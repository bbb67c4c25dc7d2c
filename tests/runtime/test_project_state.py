"""Prowess keeps what it writes for a project in the person's state folder, and knows a project again that moved."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from command_lines import Cli
from guard import GUARD_S
from prowess._internal.state_folder import find_state, find_state_dir
from prowess.errors import ConfigError, StoreError
from prowess.runtime.config import find_places
from prowess.runtime.project_state import identify, make_state, read_info
from prowess.testing import ScriptedModel
from state_places import database_of, need_generations, state_of

DONE = {"text": "done"}


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "app"
    (folder / ".agent").mkdir(parents=True)
    make_skill(folder / "skills" / "demo")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capfd)


def play(cli: Cli, *replies: Any, words: tuple[str, ...] = ("go",), code: int = 0) -> dict[str, Any]:
    """A run of session `s` in the working folder."""
    script = Path(os.environ["HOME"], "script.json")
    script.write_text(json.dumps(replies), encoding="utf-8")
    model = ("--model", f"scripted:{script}", "--executor", "local", "--session", "s")
    return json.loads(cli("run", *words, *model, "--json", code=code).splitlines()[-1])


def make(project: Path) -> str:
    return make_state(find_places(str(project), os.environ))


# --- the folder


def test_the_folder_has_the_name_of_the_project_and_a_hash_of_its_path(tmp_path: Path, machine: Path) -> None:
    names = {
        b"app": "app",
        b"other/app": "app",
        "my app & 会议".encode(): "my-app-----",
        b"\xff\xfe": "--",
        b"a" * 200: "a" * 40,
        b"..x": "..x",
        b"-": "-",
    }
    found: list[Path] = []
    for name, beginning in names.items():
        project = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.join(project, b".agent"))
        folder = Path(make(Path(os.fsdecode(project))))
        digest = hashlib.sha256(project).hexdigest()[:32]
        assert folder == machine / ".prowess" / "projects" / f"{beginning}-{digest}"
        info = read_info(str(folder))
        assert info is not None and info.path == os.fsdecode(project) and info.is_still(identify(os.fsdecode(project)))
        found.append(folder)
    assert len(set(found)) == len(names)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "app")
    assert find_state(str(machine / ".prowess"), str(link)) == str(found[0]), "of the real path"


def test_a_project_whose_name_is_no_text_is_listed_as_others_are(tmp_path: Path, cli: Cli) -> None:
    project = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    (project / ".agent").mkdir(parents=True)
    make(project)
    assert cli.json("projects", "list")["projects"][0]["status"] == "here"
    assert "here" in cli("projects", "list")


def test_every_folder_is_private_and_made_so_again(project: Path, machine: Path, cli: Cli) -> None:
    before = os.umask(0)
    try:
        play(cli, DONE)
        own = state_of(project)
        folders = [machine / ".prowess", own.parent, own]
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
        for folder in folders:
            folder.chmod(0o755)
        play(cli, DONE)
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
    finally:
        os.umask(before)


@pytest.mark.needs("root")
@pytest.mark.parametrize("place", ["state", "projects", "project"])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_folder_of_another_user_is_refused(project: Path, machine: Path, cli: Cli, place: str, is_used: bool) -> None:
    play(cli, DONE)
    own = state_of(project)
    if not is_used:
        (own / "prowess.db").unlink()
    os.chown({"state": machine / ".prowess", "projects": own.parent, "project": own}[place], 12345, 12345)
    error = cli.refused("run", "hi", "--model", "offline")
    assert error["code"] == "state-unavailable" and "belongs to user 12345" in error["message"]


@pytest.mark.parametrize("place", ["projects", "project"])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_link_below_the_state_folder_is_refused(
    project: Path, tmp_path: Path, cli: Cli, place: str, is_used: bool
) -> None:
    play(cli, DONE)
    own = state_of(project)
    linked = own.parent if place == "projects" else own
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    if not is_used:
        (own / "prowess.db").unlink()
    error = cli.refused("run", "hi", "--model", "offline")
    assert error["code"] == "state-unavailable" and "it is a link" in error["message"]
    assert (own / "prowess.db").exists() == is_used


def test_a_link_in_the_place_of_the_state_folder_is_followed(project: Path, machine: Path, tmp_path: Path) -> None:
    (machine / ".prowess").symlink_to(tmp_path / "on-another-disk")
    assert Path(make(project)).is_relative_to(tmp_path / "on-another-disk")
    assert database_of(project).parent.is_dir()


# --- the state folder


def test_the_state_folder_is_the_one_that_is_named(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Path, cli: Cli
) -> None:
    monkeypatch.setenv("PROWESS_STATE_DIR", str(tmp_path / "state"))
    play(cli, DONE)
    assert [path.name for path in (tmp_path / "state" / "projects").glob("*/prowess.db")] == ["prowess.db"]
    assert not (machine / ".prowess").exists()
    assert cli.json("sessions", "list")["store"] == str(database_of(project))
    environ = {"HOME": "/h", "PROWESS_HOME": "/p"}
    assert find_state_dir(environ, "/") == "/p/.prowess"
    assert find_state_dir({**environ, "PROWESS_STATE_DIR": "~/s"}, "/") == "/h/s"
    assert find_state_dir({**environ, "PROWESS_STATE_DIR": "s"}, "/x") == "/x/s"
    assert find_state_dir({"HOME": "/h"}, "/") == "/h/.prowess"


@pytest.mark.parametrize("mark", [".agent", ".git"])
@pytest.mark.parametrize("below", [".", "state", "a/b/state", "link"])
@pytest.mark.parametrize("variable", ["PROWESS_STATE_DIR", "PROWESS_HOME"])
def test_a_state_folder_in_a_project_or_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, mark: str, below: str, variable: str
) -> None:
    folder = tmp_path / "theirs"
    (folder / mark).mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv(variable, str(tmp_path / "link" if below == "link" else folder / below))
    monkeypatch.chdir(tmp_path)
    error = cli.refused("sessions", "list")
    assert error["code"] == "state-in-project" and variable in error["hint"] and str(folder) in error["message"]


def test_a_home_may_be_a_repository_or_lie_in_one(
    machine: Path, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / ".git").mkdir()
    (machine / ".agent").mkdir()
    play(cli, DONE)
    home = machine / "deeper"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PROWESS_HOME", str(home))
    play(cli, DONE)


@pytest.fixture(params=["a file in the way", "no home"])
def no_state(request: pytest.FixtureRequest, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where nothing can be kept. Nothing may be left beside the project."""
    if request.param == "no home":
        monkeypatch.delenv("PROWESS_HOME")
        monkeypatch.setenv("HOME", "~")  # what Python makes of it for a user without one
    else:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("PROWESS_STATE_DIR", str(tmp_path / "file" / "state"))
    return project


def test_without_a_state_folder_what_keeps_a_record_says_so(no_state: Path, cli: Cli) -> None:
    error = cli.refused("run", "hi", "--model", "offline")
    assert error["code"] == "state-unavailable"
    assert "PROWESS_STATE_DIR" in error["hint"] and 'store = "memory:"' in error["hint"]
    agent = prowess.Agent(ScriptedModel([DONE]), skills=["skills"])
    with pytest.raises(StoreError) as caught:
        agent.run_sync("hi")
    assert caught.value.code == "state-unavailable"

    async def use_kit() -> None:
        async with prowess.SkillKit("skills") as kit:
            await kit.call("skill_load", {"skill": "demo"})

    with pytest.raises(StoreError) as caught:
        asyncio.run(use_kit())
    assert caught.value.code == "state-unavailable"


def test_without_a_state_folder_what_keeps_no_record_works(no_state: Path, cli: Cli) -> None:
    (no_state / "skills" / "script.json").write_text(json.dumps([DONE]))
    before = sorted(no_state.rglob("*"))
    for words in (
        ("list",),
        ("validate", "skills"),
        ("search", "demo"),
        ("load", "csv-report"),
        ("sessions", "list"),
        ("runs", "list"),
        ("projects", "list"),
        ("run", "hi", "--model", f"scripted:{no_state}/skills/script.json", "--store", "memory:"),
    ):
        cli(*words)
        assert "error" not in cli.err, words
    assert sorted(no_state.rglob("*")) == before
    cli("install", "./skills/demo", "--yes")
    assert (no_state / ".agent" / "skills" / "demo" / "SKILL.md").exists()
    agent = prowess.Agent(ScriptedModel([DONE]), skills=["skills"], store="memory:")
    assert agent.run_sync("hi").text == "done"

    async def use_kit() -> Any:
        async with prowess.SkillKit("skills", store="memory:") as kit:
            return await kit.call("skill_load", {"skill": "demo"})

    assert "Do the thing" in str(asyncio.run(use_kit()))


@pytest.mark.needs("root")
def test_a_user_without_a_home_is_told_of_no_home(project: Path) -> None:
    code = (
        "import os\n"
        "from prowess._internal.state_folder import find_state_dir\n"
        "os.setuid(61234)\n"
        "print(find_state_dir({}, '/'))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd="/", capture_output=True, text=True, timeout=GUARD_S
    )
    assert done.stdout == f"{os.devnull}/.prowess\n", done.stderr


# --- moved, replaced


def test_a_project_that_was_moved_takes_its_state_along(
    project: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_generations(tmp_path)
    play(cli, call("write_file", path="out/a.txt", content="kept"), DONE, words=("go", "--yes", "write_file"))
    old = state_of(project)
    moved = project.rename(tmp_path / "moved")
    monkeypatch.chdir(moved)
    assert [row["session"] for row in cli.json("sessions", "list")["sessions"]] == ["s"]
    cli("sessions", "list")
    assert "taken along" not in cli.err, "it is told once"
    assert not old.exists() and database_of(moved).exists()
    (listed,) = cli.json("projects", "list")["projects"]
    assert (listed["path"], listed["status"]) == (str(moved), "here")
    play(cli, call("read_file", path="out/a.txt"), DONE)
    run = cli.json("runs", "list", "--limit", "1")["runs"][0]["run"]
    assert "kept" in cli("runs", "show", run, "--events", "--json"), "the session has its workspace"
    assert cli.json("runs", "verify", "--all")["valid"]


def test_the_move_is_told_in_one_line(project: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    need_generations(tmp_path)
    play(cli, DONE)
    monkeypatch.chdir(project.rename(tmp_path / "moved"))
    cli("sessions", "list")
    assert cli.err.count("taken along") == 1 and str(project) in cli.err and str(tmp_path / "moved") in cli.err


def test_nothing_is_taken_along_while_something_is_at_the_old_path(
    project: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_generations(tmp_path)
    play(cli, DONE)
    moved = project.rename(tmp_path / "moved")
    project.touch()
    monkeypatch.chdir(moved)
    assert cli.json("sessions", "list")["sessions"] == [] and "taken along" not in cli.err
    project.unlink()
    assert [row["session"] for row in cli.json("sessions", "list")["sessions"]] == ["s"]


def test_a_copy_of_a_project_has_no_record_of_it(
    project: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(cli, DONE)
    shutil.copytree(project, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    assert cli.json("sessions", "list")["sessions"] == [] and "taken along" not in cli.err
    play(cli, DONE)
    assert len(cli.json("projects", "list")["projects"]) == 2


def test_no_question_of_a_folder_that_was_replaced_can_be_answered(
    project: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = call("write_file", path="out/a.txt", content="x")
    play(cli, ask, code=4)
    (row,) = cli.json("approvals", "list")["waiting"]
    assert row["to_answer"] is not None
    shutil.copytree(project, tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    project.rename(tmp_path / "first")
    (tmp_path / "other").rename(project)
    monkeypatch.chdir(project)
    said = cli("approvals", "list") + cli.err
    assert said.count("is another folder") == 1
    (row,) = cli.json("approvals", "list")["waiting"]
    assert row["to_answer"] is None and "is another folder" not in cli.err
    assert cli.refused("approvals", "answer", "c1", "yes")["code"] == "question-not-yours"
    play(cli, words=("--resume",), code=4)
    (row,) = cli.json("approvals", "list")["waiting"]
    cli("approvals", "answer", "c1", "yes")
    play(cli, DONE, words=("--resume",))
    assert re.search(r"\d{4}-", str(getattr(read_info(str(state_of(project))), "since", "")))


def test_a_damaged_description_of_a_project_is_made_anew_and_listed(project: Path, cli: Cli) -> None:
    play(cli, DONE)
    (state_of(project) / "project.json").write_text("{")
    assert cli.json("projects", "list")["projects"][0]["status"] == "unreadable"
    play(cli, DONE)
    assert cli.json("projects", "list")["projects"][0]["status"] == "here"


def test_a_state_folder_in_a_project_is_refused_to_programs(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(ConfigError) as caught:
        find_state_dir({"HOME": "/h", "PROWESS_STATE_DIR": str(tmp_path / "s")}, "/")
    assert caught.value.code == "state-in-project"
