"""prowess chat: a conversation from a terminal or a pipe; Ctrl-C is for what runs now, commands are for the person."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from command_lines import run_here
from guard import GUARD_S
from prowess.cli.main import main
from prowess.cli.prompt_input import History, complete
from terminals import Terminal

FINE = {"text": "Fine."}
LOAD = {"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}


def run_of(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "skill_run", "args": {"skill": "demo", "command": command}}]}


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def words(self, *words: str, replies: Any) -> list[str]:
        (self.folder / "script.json").write_text(json.dumps(replies), encoding="utf-8")
        return ["chat", "--root", "skills", "--model", "scripted:script.json", *words]

    def pipe(self, lines: bytes | str, *words: str, replies: Any = ()) -> tuple[int, str, str]:
        data = lines.encode() if isinstance(lines, str) else lines
        command = [sys.executable, "-m", "prowess", *self.words(*words, replies=replies)]
        done = subprocess.run(command, cwd=self.folder, input=data, capture_output=True, timeout=GUARD_S)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def terminal(self, *words: str, replies: Any = (), environ: Mapping[str, str] | None = None) -> Terminal:
        return Terminal(*self.words(*words, replies=replies), cwd=self.folder, environ=environ)


@pytest.fixture
def project(tmp_path: Path, make_skill: Any) -> Project:
    make_skill(tmp_path / "skills" / "demo", description="Shows things. Use when asked.")
    make_skill(tmp_path / "skills" / "plan", description="Plans trips. Use when asked.")
    return Project(tmp_path)


@pytest.fixture
def without_prompt_toolkit(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """As on a machine where the extra was not installed."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "prompt_toolkit.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


# --- from a pipe ------------------------------------------------------------------------------------------------------


def test_each_line_is_a_request_of_one_session(project: Project) -> None:
    code, out, err = project.pipe("one\n\ntwo\n", replies=[{"text": "First."}, {"text": "Second."}])
    assert (code, out) == (0, "First.\nSecond.\n") and "> " not in err
    code, out, _ = project.pipe("one\ntwo", "--json", replies=[FINE, FINE])
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len({event["session"] for event in events}) == 1
    assert len({event["run"] for event in events}) == 2
    assert [event["request"] for event in events if event["type"] == "run_started"] == ["one", "two"]


def test_commands_answer_without_the_model(project: Project) -> None:
    step = {"id": "a", "title": "Look", "status": "completed"}
    plan = {"calls": [{"tool": "update_plan", "args": {"plan": {"goal": "Find out", "steps": [step]}}}]}
    lines = "/plan\n/cost\nhi\n/plan\n/cost\n/session\n/help\n/quit\nnever\n"
    code, out, err = project.pipe(lines, replies=[plan, FINE])
    assert code == 0, err
    before, _, after = out.partition("Fine.\n")
    assert before == "There is no plan.\n0 requests to the model · no tokens · no price of this model is known\n"
    assert "Goal: Find out\n  [x] Look\n2 requests to the model · " in after
    assert "session s-" in after and "  /unload   NAME" in after and "prowess chat --root skills" in err
    assert "the skill of that name is /skill:plan" in err, "the command wins, and says so"


def test_skills_are_loaded_and_unloaded(project: Project) -> None:
    lines = "/skills\n/load demo with this\n/skills\nhi\nagain\n/unload demo\n/skills\nlast\n"
    code, out, err = project.pipe(lines, replies=[FINE] * 3)
    assert code == 0, err
    listed = [line for line in out.splitlines() if line.startswith("  demo")]
    assert ["loaded" in line for line in listed] == [False, True, False]
    assert err.count("loaded demo (named by you)") == 2, "until it is unloaded"
    events = [json.loads(line) for line in project.pipe(lines, "--json", replies=[FINE] * 3)[1].splitlines()]
    loads = [e["call"]["args"] for e in events if e["type"] == "call_planned" and e["call"]["tool"] == "skill_load"]
    assert [args.get("arguments") for args in loads] == ["with this", None], "arguments are for one message"


def test_skills_that_the_model_does_not_see_are_marked(project: Project, make_skill: Any) -> None:
    make_skill(project.folder / "skills" / "mine", front="description: Mine.\ndisable-model-invocation: true")
    make_skill(project.folder / "skills" / "theirs", front="description: Theirs.\nuser-invocable: false")
    make_skill(project.folder / ".agent" / "skills" / "cloned", description="Cloned.")
    policy = project.folder / ".agent" / "policy.toml"
    policy.write_text('[[rule]]\ntool = "skill_load"\nskill = "plan"\nverdict = "deny"\n', encoding="utf-8")
    code, out, err = project.pipe("/skills\n/load mine\n/skills\n", "--root", ".agent/skills")
    assert code == 0, err
    words = [line.split() for line in out.splitlines()]
    marks = {"demo": "Shows", "theirs": "model", "mine": "manual", "cloned": "Cloned.", "plan": "denied"}
    assert {name: mark for name, mark, *_ in words[:5]} == marks, "what has no mark has its description there"
    assert {name: mark for name, mark, *_ in words[5:]} == {**marks, "mine": "loaded"}
    words = ["chat", "--model", "scripted:script.json"]
    listed = run_here(words, cwd=project.folder, input=b"/skills\n").out
    assert [line.split()[1] for line in listed.splitlines() if "cloned" in line] == ["untrusted"]
    terminal = project.terminal("--root", ".agent/skills")
    terminal.wait_for(">", after=terminal.wait_for("3 skills · /help]"))
    terminal.type("/exit\r")
    assert terminal.finish() == 0


def test_in_session_mode_a_skill_stays_until_it_is_unloaded(project: Project) -> None:
    lines = "/demo x\n/skills\n/unload demo\n/skills\nhi\n"
    code, out, err = project.pipe(lines, "--load-mode", "session", replies=[FINE, FINE])
    assert code == 0, err
    listed = [line for line in out.splitlines() if line.startswith("  demo")]
    assert ["loaded" in line for line in listed] == [True, False] and "unloaded" in err


@pytest.mark.parametrize("mode", ["turn", "once"])
def test_a_skill_of_the_last_turn_is_said_to_be_unloaded(project: Project, mode: str) -> None:
    load = {"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}
    lines = "/skills\nhi\n/skills\n/load demo\n/skills\n"
    code, out, err = project.pipe(lines, "--load-mode", mode, replies=[load, FINE])
    assert code == 0, err
    listed = [line.split()[1:3] for line in out.splitlines() if line.startswith("  demo")]
    assert listed[1] == ["last", "turn"] and listed[2][0] == "loaded" and listed[0][0] not in ("last", "loaded")
    assert err.count("last turn: unloaded after that turn; /load NAME puts a skill to use again.") == 1


def test_names_of_skills_reach_the_agent(project: Project) -> None:
    _, out, _ = project.pipe("/skill:plan to Rome\nuse $demo\n/demo x\n", "--json", replies=[FINE] * 3)
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["name"] for e in events if e["type"] == "skill_loaded"] == ["plan", "demo", "demo"]
    assert events[0]["request"] == "/plan to Rome"


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("/skils", 2, "Did you mean /skills?"),
        ("/unheard-of thing", 2, "No command or skill '/unheard-of'."),
        ("/\u00fcber\x1b[2J", 2, "'/über\\u{1b}[2J'"),
        ("/model nope:x", 2, "[model-unknown]"),
        ("/model openai:x", 1, "[model-no-key]"),
        ("/model scripted:none.yaml", 2, "[script-unreadable]"),
        ("/load", 2, "[usage]"),
        ("/load nope", 1, "[skill-not-found]"),
        ("/unload nope", 2, "[skill-not-loaded]"),
        ("/skill:nope", 1, "[skill-not-found]"),
        ("see @nope.csv", 2, "[no-file]"),
        (b"\xff\xfe", 2, "[stdin-not-text]"),
    ],
)
def test_a_mistake_ends_nothing(project: Project, line: str | bytes, code: int, error: str) -> None:
    data = line if isinstance(line, bytes) else line.encode()
    ended, out, err = project.pipe(data + b"\nhi\n", replies=[FINE])
    assert (ended, out) == (code, "Fine.\n") and error in err


def test_a_request_that_fails_or_waits_decides_the_exit_code(project: Project) -> None:
    waits = [LOAD, run_of("true"), FINE]
    code, out, err = project.pipe("one\ntwo\n", "--executor", "local", replies=waits)
    assert (code, out) == (4, "Fine.\n") and "--resume --yes skill_run" in err
    code, out, err = project.pipe("one\ntwo\n", replies=[FINE])
    assert (code, out) == (1, "Fine.\n") and "[script-exhausted]" in err
    assert project.pipe("/etc/hosts: what is it?\n/ and\n//\n", replies=[FINE] * 3)[0] == 0, "only text"


@pytest.mark.needs("isolation")
def test_files_are_given_and_made(project: Project) -> None:
    (project.folder / "in.txt").write_text("one", encoding="utf-8")
    lines = "/load demo\ncopy @in.txt\n"
    work = run_of("tr a-z A-Z < inputs/in.txt > out/up.txt")
    code, _, err = project.pipe(lines, "--output-dir", "made", replies=[work, FINE])
    assert code == 0 and (project.folder / "made" / "up.txt").read_text(encoding="utf-8") == "ONE", err


def test_a_session_goes_on(project: Project) -> None:
    _, out, _ = project.pipe("one\n", "--json", replies=[FINE])
    session = json.loads(out.splitlines()[0])["session"]
    _, out, _ = project.pipe("two\n", "--json", "--session", session, replies=[FINE])
    assert json.loads(out.splitlines()[0])["seq"] > 1
    code, _, err = project.pipe("x\n", "--session", "never", "--resume")
    assert code == 1 and "[session-unknown]" in err


def test_an_end_that_cannot_be_recorded_is_not_waited_for(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A package's model removes the record while it answers: its end is never seen."""
    store, info = project.folder / "runs.db", project.folder / "removing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: removing\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[prowess.models]\nremoving = removing:make\n", encoding="utf-8")
    code = "import os\nfrom prowess.testing import ScriptedModel\nclass Removing(ScriptedModel):\n"
    code += f"    async def reply(self, *given, **options):\n        os.unlink({str(store)!r})\n"
    code += "        return await super().reply(*given, **options)\n"
    code += "def make(name, *, environ, params):\n    return Removing([{'text': 'Fine.'}])\n"
    (project.folder / "removing.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(project.folder))
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"go\n"), encoding="utf-8"))
    monkeypatch.setattr("prowess.cli.live._WAIT_S", GUARD_S)
    began = time.monotonic()
    assert main(["chat", "--store", str(store), "--root", "skills", "--model", "removing"]) == 1
    assert time.monotonic() - began < GUARD_S
    assert "[store-gone]" in capfd.readouterr().err


# --- on a terminal ----------------------------------------------------------------------------------------------------


def test_a_heading_stands_at_the_left(project: Project) -> None:
    terminal = project.terminal(replies=[{"text": "# Kopf\n\ntext"}], environ={"TERM": "xterm"})
    place = terminal.wait_for(">", after=terminal.wait_for("/help]"))
    terminal.type("hi\r")
    place = terminal.wait_for("[answer", after=terminal.wait_for("Kopf", after=place))
    terminal.type("/exit\r")
    assert terminal.finish() == 0
    [line] = (line for line in terminal.plain.splitlines() if "Kopf" in line)
    assert line.strip("\r").startswith(("Kopf", "┃ Kopf")), line


@pytest.mark.parametrize("editor", ["prompt_toolkit", "readline"])
def test_a_person_talks(
    project: Project, editor: str, without_prompt_toolkit: Mapping[str, str], machine: Path
) -> None:
    environ = without_prompt_toolkit if editor == "readline" else {}
    (project.folder / "my notes.txt").write_text("x", encoding="utf-8")
    terminal = project.terminal(replies=[{"text": "First \x1b[2Jone."}, {"text": "Second."}], environ=environ)
    place = terminal.wait_for("2 skills · /help]")
    assert ("Python's own" in terminal.plain) == (editor == "readline")
    place = terminal.wait_for(">", after=place)
    terminal.type("/de\t")
    place = terminal.wait_for("/demo", after=place)
    terminal.type("\x03")
    if terminal.find("(once more", after=place, wait_s=3) is None:
        terminal.type("\r")  # Python's readline may notice a signal only at the end of the line
    place = terminal.wait_for("(once more, or Ctrl-D, to leave)", after=place)
    place = terminal.wait_for(">", after=place)
    terminal.type("hello $de\t")
    place = terminal.wait_for("$demo", after=place)
    terminal.type("\r")
    place = terminal.wait_for(r"First \u{1b}[2Jone.", after=place)
    place = terminal.wait_for(">", after=terminal.wait_for("[answer", after=place))
    terminal.type("/cost\r")
    place = terminal.wait_for("1 request to the model", after=place)
    place = terminal.wait_for(">", after=place)
    terminal.type("\x1b[A\x1b[A")
    place = terminal.wait_for("hello $demo", after=place)
    terminal.type("\r")
    place = terminal.wait_for("Second.", after=place)
    place = terminal.wait_for(">", after=terminal.wait_for("[answer", after=place))
    terminal.type("\x04")
    assert terminal.finish() == 0 and "To come back: prowess chat" in terminal.plain
    assert b"\x1b[2J" not in terminal.shown
    kept = machine / ".prowess" / "chat-history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] == [
        "hello $demo",
        "/cost",
        "hello $demo",
    ]


@pytest.mark.needs("isolation")
def test_control_c_ends_what_runs_and_not_the_chat(project: Project) -> None:
    sleep = f"sleep 971{os.getpid()}"  # no other test run's
    terminal = project.terminal(replies=[LOAD, run_of(sleep), FINE])
    place = terminal.wait_for(">")
    terminal.type("go\r")
    place = terminal.wait_for(f"running {sleep}", after=place)
    terminal.type("\x03")
    place = terminal.wait_for("Cancelled. What was done is recorded", after=place)
    assert sleep not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    place = terminal.wait_for(">", after=place)
    terminal.type("and now?\r")
    place = terminal.wait_for("Fine.", after=place)
    place = terminal.wait_for(">", after=terminal.wait_for("[answer", after=place))
    terminal.type("\x03")
    terminal.wait_for("(once more, or Ctrl-D, to leave)", after=place)
    terminal.type("\x03")
    assert terminal.finish() == 130


def test_a_person_is_asked_in_between(project: Project) -> None:
    terminal = project.terminal("--executor", "local", replies=[LOAD, run_of("echo ran"), FINE])
    place = terminal.wait_for(">")
    terminal.type("go\r")
    place = terminal.wait_for("[NO]", after=place)
    terminal.type("once\r")
    place = terminal.wait_for("Fine.", after=place)
    place = terminal.wait_for(">", after=terminal.wait_for("[answer", after=place))
    terminal.type("/exit\r")
    assert terminal.finish() == 0 and "skill_run echo ran: ok" in terminal.plain


# --- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "length", "texts"),
    [
        ("/", 1, ["/demo", "/load", "/plan", "/skill:plan"]),
        ("/pl", 3, ["/plan"]),
        ("/skill:", 7, ["/skill:plan"]),
        ("/load de", 2, ["demo"]),
        ("/unload ", 0, ["demo", "plan"]),
        ("use $d", 2, ["$demo"]),
        ("cost is 5$d", 0, []),
        ("see @no", 3, ["@notes.txt"]),
        ("see @my", 3, ['@"my file.txt"']),
        ('see @"my fi', 7, ['@"my file.txt"']),
        ("see @sub/", 5, ["@sub/a.txt"]),
        ("see @su", 3, ["@sub/"]),
        ("see @.h", 3, ["@.hidden"]),
        ("see @~/ho", 5, ["@~/home.txt"]),
        ("see @none/x", 0, []),
        ("me@no", 0, []),
        ("hello", 0, []),
        ("not /de", 0, []),
    ],
)
def test_what_can_be_completed(tmp_path: Path, before: str, length: int, texts: list[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "home").mkdir()
    for name in ("notes.txt", "my file.txt", "sub/a.txt", ".hidden", "home/home.txt", "e\x1bvil"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    home = str(tmp_path / "home")
    found = complete(before, commands=["load", "plan"], skills=["demo", "plan"], cwd=str(tmp_path), home=home)
    assert (found.length, list(found.texts)) == (length, texts)


def test_a_history_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    history = History(str(tmp_path / "file" / "history"), said.append)
    for line in ("one", "two"):
        history.add(line)
    assert history.lines == ["one", "two"] and len(said) == 1 and "history is not kept" in said[0]


def test_a_history_is_bounded_and_forgives(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"{json.dumps(str(n))}\n" for n in range(5000)) + "no json\n[1]\n", encoding="utf-8")
    history = History(str(path), pytest.fail)
    assert len(history.lines) == 1000 and history.lines[-1] == "4999"
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1000
    history.add("a\nb")
    history.add("a\nb")
    history.add("  ")
    assert History(str(path), pytest.fail).lines[-2:] == ["4999", "a\nb"]
    os.unlink(path)
    os.symlink(tmp_path / "elsewhere", path)
    said: list[str] = []
    History(str(path), said.append).add("secret")
    assert said and not (tmp_path / "elsewhere").exists(), "a link does not say where we write"
