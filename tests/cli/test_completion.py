"""prowess completion: a shell completes commands, options and names. What it asks has no side effect, and no error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_lines import Cli
from guard import GUARD_S
from terminals import Terminal


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    make_skill(tmp_path / "project" / ".agent" / "skills" / "pdf-forms", description="Fills forms, and more. Use it.")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def ask(line: str, *, shell: str = "fish", **environ: str) -> tuple[list[str], str]:
    """Offers for the last word of a line, as the shell gets them, and what stderr says."""
    words, _, last = line.rpartition(" ")
    place = {"COMP_WORDS": line, "COMP_CWORD": last if shell == "fish" else str(len(words.split()))}
    command = [sys.executable, "-m", "prowess"]
    env = {**os.environ, "_PROWESS_COMPLETE": f"{shell}_complete", **place, **environ}
    done = subprocess.run(command, env=env, capture_output=True, timeout=GUARD_S)
    assert done.returncode == 0 or not done.stdout
    return done.stdout.decode().splitlines(), done.stderr.decode()


def names(line: str) -> list[str]:
    offered, err = ask(line)
    assert err == ""
    return [item.partition("\t")[0].removeprefix("plain,") for item in offered if item]


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_words_of_every_kind_are_offered_and_nothing_is_written(project: Path, machine: Path) -> None:
    before = files(project), files(machine)
    assert names("prowess ins") == ["inspect", "install"]
    assert names("prowess nonsense --exec") == []
    assert names("prowess inspect --wh") == ["--why"]
    assert names("prowess run --executor lo") == ["local"]
    assert names("prowess run --executor=lo") == ["--executor=local"]
    assert names("prowess load pd") == ["pdf-forms"]
    assert names("prowess -C .. load pd") == [], "it is another project's"
    assert names("prowess -C .. load --root project/.agent/skills pd") == ["pdf-forms"]
    assert names("prowess exec pdf-forms --output-dir ") == ["dir,"]
    assert names("prowess validate SK") == ["file,SK"]
    assert names("prowess completion z") == ["zsh"]
    assert ask("prowess load pd")[0] == ["plain,pdf-forms\tFills forms, and more. Use it."]
    assert (files(project), files(machine)) == before


def test_actions_runs_and_sessions_are_offered(
    project: Path, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the log: nothing is made where there is none."""
    cli = Cli(capsys)
    before = (files(project), files(machine))
    assert names("prowess runs show r-") == [] == names("prowess chat --session ")
    assert (files(project), files(machine)) == before
    cli("run", "Say hello", "--model", "offline", "--session", "s-one", code=1)
    [row] = cli.json("runs", "list")["runs"]
    assert names("prowess runs ") == ["diff", "export", "import", "list", "prune", "replay", "show", "verify"]
    assert {"--limit", "--json"} <= set(names("prowess runs --"))
    assert names("prowess runs show r-") == [row["run"]]
    before = {*files(project), *files(machine)}
    assert names("prowess chat --session ") == ["s-one"] == names("prowess sessions show s")
    assert {*files(project), *files(machine)} == before


@pytest.mark.parametrize("environ", [{"COMP_WORDS": "prowess 'load"}, {"COMP_CWORD": "9"}, {"PROWESS_TRUST": "maybe"}])
def test_a_person_who_types_sees_no_error(project: Path, environ: dict[str, str]) -> None:
    (project / ".agent" / "config.toml").write_text("no toml", encoding="utf-8")
    assert ask("prowess load pd", **environ)[1] == ""
    assert ask("prowess load pd", shell="bash", **environ)[1] == ""
    assert ask("prowess load pd", shell="tcsh", **environ) == ([], "")


def test_a_name_that_a_shell_would_interpret_is_not_offered(project: Path, make_skill: Any) -> None:
    for name in ("$(id)", "a b", "*", "--yes", "-v", "技能"):
        make_skill(project / "more" / name)
    assert sorted(names("prowess load --root more ")) == ["技能"]


def test_an_unknown_shell_is_an_error_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = Cli(capsys, "completion").refused("tcsh")
    assert error["code"] == "usage" and "'bash', 'zsh', 'fish'" in error["message"]


SETUP = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(prowess completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(prowess completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "prowess completion fish | source"),
}


@pytest.mark.parametrize("shell", SETUP)
def test_a_real_shell_completes(project: Path, tmp_path: Path, shell: str, not_run: Callable[[str, str], None]) -> None:
    words, setup = SETUP[shell]
    if shutil.which(shell) is None:
        not_run(f"completion in {shell}", f"{shell} is not installed")
        return
    program = tmp_path / "bin" / "prowess"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m prowess "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    environ = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PS1": "$ "}
    start = ["-c", f"import os; os.execvp({words[0]!r}, {words!r})"]
    terminal = Terminal(cwd=project, program=start, environ=environ)
    terminal.type(f"{setup}; echo rea''dy\r")
    place = terminal.wait_for("ready")
    terminal.type("prowess load pd\t")
    place = terminal.wait_for("df-forms", after=place)
    terminal.type("--sou\t")
    place = terminal.wait_for("rce", after=place)
    terminal.type("bui\t")
    place = terminal.wait_for("ltin", after=place)
    terminal.type("\x15exit\r")
    terminal.finish()
    assert "Traceback" not in terminal.plain
