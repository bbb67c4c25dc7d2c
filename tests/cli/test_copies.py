"""Copies of runs: in a project that the person made or trusts, unless they are off; and wherever a person says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import prowess
from command_lines import Cli
from prowess.testing import ScriptedModel

HELLO = ("run", "Say hello", "--model", "offline")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    return Cli(capfd)


def copies(folder: Path) -> int:
    """How many, each of them complete."""
    found = list(folder.iterdir()) if folder.exists() else []
    assert all((copy / "run.json").exists() and (copy / "events.jsonl").exists() for copy in found)
    return len(found)


def test_a_project_that_the_person_made_gets_copies(cli: Cli, project: Path, machine: Path) -> None:
    cli.prowess("init")
    (made,) = json.loads((machine / ".prowess" / "trust.json").read_text(encoding="utf-8"))["made"]
    assert made["path"] == str(project)
    cli.prowess(*HELLO, code=1)
    assert copies(project / ".agent" / "runs") == 1
    assert "/runs/" in (project / ".agent" / ".gitignore").read_text(encoding="utf-8")
    cli.prowess("trust", "--revoke", ".", "--yes")
    cli.prowess(*HELLO, code=1)
    assert copies(project / ".agent" / "runs") == 1, "taken back"


def test_a_folder_of_others_gets_none_until_it_is_trusted(
    cli: Cli, project: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".agent").mkdir()
    cli.prowess("init")
    assert not (machine / ".prowess" / "trust.json").exists(), "there was one already, and who made it is not known"
    cli.prowess(*HELLO, code=1)
    assert not (project / ".agent" / "runs").exists()
    monkeypatch.setenv("PROWESS_TRUST", "1")
    cli.prowess(*HELLO, code=1)
    assert copies(project / ".agent" / "runs") == 1
    monkeypatch.delenv("PROWESS_TRUST")
    cli.prowess("trust", "--yes")
    cli.prowess(*HELLO, code=1)
    assert copies(project / ".agent" / "runs") == 2
    assert len(json.loads(cli.prowess("runs", "list", "--json"))["runs"]) == 3, "each is in the log"


def test_without_a_project_there_are_none(cli: Cli, project: Path, machine: Path) -> None:
    cli.prowess("trust", "--yes")
    cli.prowess(*HELLO, code=1)
    assert not (project / ".agent").exists() and not (machine / ".prowess" / "runs").exists()


@pytest.mark.parametrize("where", ["person", "project", "both"])
def test_they_can_be_turned_off_by_anybody_and_on_again_by_the_person(
    cli: Cli, project: Path, machine: Path, where: str
) -> None:
    cli.prowess("init")
    own, shipped = machine / ".prowess" / "config.toml", project / ".agent" / "config.toml"
    (shipped if where == "project" else own).write_text("[record]\ncopies = false\n", encoding="utf-8")
    if where == "both":  # a folder that is not trusted may not turn them on
        shipped.write_text("[record]\ncopies = true\n", encoding="utf-8")
    cli.prowess(*HELLO, code=1)
    assert ("'record.copies' is ignored" in cli.err) == (where == "both")
    prowess.Agent(ScriptedModel([{"text": "x"}]), skills=[]).run_sync("go")
    assert not (project / ".agent" / "runs").exists()
    cli.prowess(*HELLO, "--copies", "there", code=1)
    assert copies(project / "there") == 1, "who names a folder wants them"


def test_a_program_writes_them_as_the_setting_says(cli: Cli, project: Path) -> None:
    cli.prowess("init")
    prowess.Agent(ScriptedModel([{"text": "x"}]), skills=[]).run_sync("go")
    assert copies(project / ".agent" / "runs") == 1


@pytest.mark.parametrize("store", [(), ("--store", "memory:"), ("--store", "my.db")])
def test_a_folder_can_be_named(cli: Cli, project: Path, tmp_path: Path, store: tuple[str, ...]) -> None:
    (project / ".agent").mkdir()
    cli.prowess(*HELLO, *store, "--copies", str(tmp_path / "a" / "b"), code=1)
    assert copies(tmp_path / "a" / "b") == 1 and not (project / ".agent" / "runs").exists()
    (project / "link").symlink_to(tmp_path / "a")
    cli.prowess(*HELLO, *store, "--copies", "link/c", code=2)
    assert not (tmp_path / "a" / "c").exists(), "a link of the folder leads nowhere"


@pytest.mark.needs("isolation")
def test_a_command_has_a_copy_too(cli: Cli, project: Path) -> None:
    cli.prowess("exec", "python-math", "--copies", "there", "--", "python3", "scripts/fib.py", "3")
    assert copies(project / "there") == 1


def test_a_copy_that_cannot_be_written_is_a_warning(cli: Cli, project: Path, tmp_path: Path) -> None:
    cli.prowess("init")
    (project / ".agent" / "runs").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    cli.prowess(*HELLO, code=1)
    assert cli.err.count("was not written: runs is a link or no folder. The log has it.") == 1
    assert sorted(tmp_path.iterdir()) == before
    cli.prowess("runs", "verify", "--all")


def test_an_answer_that_comes_later_is_in_the_copy(cli: Cli, project: Path) -> None:
    cli.prowess("init")
    (project / ".agent" / "policy.toml").write_text(
        '[[rule]]\ntool = "write_file"\nverdict = "ask"\n', encoding="utf-8"
    )
    cli.prowess("trust", "--yes")
    write = {"calls": [{"tool": "write_file", "args": {"path": "work/x", "content": "x"}, "id": "c1"}]}
    (project / "script.json").write_text(json.dumps([write]), encoding="utf-8")
    cli.prowess("run", "go", "--model", "scripted:script.json", "--session", "s", code=4)
    (copy,) = (project / ".agent" / "runs").iterdir()
    before = (copy / "events.jsonl").read_text(encoding="ascii")
    cli.prowess("approvals", "answer", "c1", "yes", "--session", "s")
    after = (copy / "events.jsonl").read_text(encoding="ascii")
    assert after.startswith(before) and '"approval_answered"' in after.removeprefix(before)
    assert json.loads((copy / "run.json").read_text(encoding="utf-8"))["prompts"]["answered"] == 1
    cli.prowess("sessions", "delete", "s", "--yes")
    assert copies(project / ".agent" / "runs") == 0
