"""prowess run: a request from the command line to its answer; stdout has the answer alone, every exit code means one
thing.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import validator_for

from command_lines import run_here
from prowess.cli.approver import find_choice, render_choices
from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import main
from prowess.errors import ConfigError
from prowess.runtime.services.files import find_attachments
from prowess.runtime.services.preapproved import parse_yes
from terminals import Terminal

SCHEMA = json.loads((Path(FOLDER) / "event.json").read_text(encoding="utf-8"))
EVENT = validator_for(SCHEMA)(SCHEMA)  # once: `jsonschema.validate` would check the schema again for every event
FINE = {"text": "Fine."}
LOAD = {"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}


def run_of(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "skill_run", "args": {"skill": "demo", "command": command}}]}


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Every line is an event that fits its schema."""
        found = [json.loads(line) for line in self.out.splitlines()]
        for event in found:
            EVENT.validate(event)
        return found

    @property
    def session(self) -> str:
        return self.err.rpartition("session ")[2].split()[0]


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, *replies: Any) -> str:
        (self.folder / "script.json").write_text(json.dumps(replies), encoding="utf-8")
        return "scripted:script.json"

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "prowess", "run", "--root", "skills", *words]

    def run(self, *words: str, input: bytes = b"", environ: Mapping[str, str] | None = None) -> Answer:
        return self.follow(["run", "--root", "skills", *words], input=input, environ=environ)

    def follow(self, words: Sequence[str], **given: Any) -> Answer:
        """A command that Prowess has printed, without its first word."""
        return Answer(*run_here(words, cwd=self.folder, **given))

    def say(self, *words: str, replies: Any = (FINE,), **given: Any) -> Answer:
        return self.run(*words, "--model", self.script(*replies), **given)


@pytest.fixture
def project(tmp_path: Path, make_skill: Any) -> Project:
    make_skill(tmp_path / "skills" / "demo", files={"scripts/hello.py": "print('hello')\n"})
    return Project(tmp_path)


# --- what goes where --------------------------------------------------------------------------------------------------


@pytest.mark.needs("isolation")
def test_the_answer_alone_goes_to_stdout(project: Project) -> None:
    thinking = {"text": "I look at the skill first.", **LOAD}
    answer = project.say("do it", replies=[thinking, run_of("python3 scripts/hello.py"), {"text": "It said hello."}])
    assert (answer.code, answer.out) == (0, "It said hello.\n")
    assert "I look at the skill first." in answer.err and "loaded demo\n" in answer.err
    assert "skill_run python3 scripts/hello.py: ok (" in answer.err
    assert f"prowess sessions show {answer.session}" in answer.err and "\x1b" not in answer.err
    assert "tokens in" in answer.err and ("sandbox (" in answer.err or "local (" in answer.err)


def test_the_last_line_says_how_many_calls_failed(project: Project) -> None:
    missing = {"calls": [{"tool": "skill_read", "args": {"skill": "demo", "path": "none.md"}}]}
    answer = project.say("do it", replies=[LOAD, missing, {"text": "I could not."}])
    assert answer.code == 0 and "[answer · 1 call failed · " in answer.err
    assert "failed" not in project.say("do it", replies=[LOAD, {"text": "Done."}]).err


def test_every_event_is_a_line_of_json(project: Project) -> None:
    answer = project.say("do it", "--json", replies=[LOAD, {"text": "Done."}])
    kinds = [event["type"] for event in answer.events]
    assert answer.code == 0 and kinds[0] == "run_started" and kinds[-1] == "run_finished"
    assert {"text_delta", "call_delta", "skill_loaded", "model_replied"} <= set(kinds)
    assert answer.events[-1]["text"] == "Done." and answer.err == ""
    numbers = [event["seq"] for event in answer.events if "seq" in event]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_offline_planner_says_what_it_is_and_does_a_real_thing(tmp_path: Path, project: Project) -> None:
    (tmp_path / "sales.csv").write_text("region,amount\nNorth,2\nSouth,3\nNorth,4\n", encoding="utf-8")
    words = ["run", "Report the amount by region in @sales.csv", "--yes", "skill_run", "--output-dir", "made"]
    answer = project.follow(words)
    assert answer.code == 0 and "North" in answer.out, answer.err
    assert "offline planner" in answer.err and "offline planner:" not in answer.out
    assert (tmp_path / "made" / "report.md").read_text(encoding="utf-8").startswith("# Report on sales.csv")
    again = project.follow(words)
    assert again.code == 1 and "exists already. Add --force" in again.err, "an old file is not passed off as new"


def test_files_of_a_code_block_are_made_like_any_other(project: Project) -> None:
    (project.folder / "prowess.toml").write_text("tools.code_blocks = true\n", encoding="utf-8")
    code = {"text": "I write it:\n```bash\necho made > out/block.txt\n```\n"}
    words = ("do it", "--config", "prowess.toml", "--yes", "skill_run", "--output-dir", "made")
    answer = project.say(*words, replies=[LOAD, code, {"text": "Written."}])
    assert (answer.code, answer.out) == (0, "Written.\n"), answer.err
    assert "made: out/block.txt" in answer.err
    assert (project.folder / "made" / "block.txt").read_text(encoding="utf-8") == "made\n"


def summary_of(project: Project) -> dict[str, Any]:
    """run.json of the newest run."""
    newest = max((project.folder / "copies").iterdir())
    return json.loads((newest / "run.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("commands", "key_output"),
    [
        (["printf 'one\\ntwo\\n'"], {"name": "stdout", "text": "one\ntwo"}),
        (["seq 100000"], {"name": "stdout", "text": "\n".join(map(str, range(99918, 100001)))}),  # whole lines
        (["printf '%0600d' 7"], {"name": "stdout", "text": "0" * 499 + "7"}),
        (["echo first", "echo second", "true"], {"name": "stdout", "text": "second"}),
        (["echo x > out/a.txt; echo said", "echo later"], {"name": "out/a.txt", "text": "x\n"}),
        (["true"], None),
    ],
)
def test_the_record_has_the_key_output(project: Project, commands: list[str], key_output: Any) -> None:
    (project.folder / ".agent").mkdir()
    replies = [LOAD, *map(run_of, commands), FINE]
    assert project.say("do it", "--yes", "skill_run", "--copies", "copies", replies=replies).code == 0
    assert summary_of(project)["key_output"] == key_output
    assert project.follow(["runs", "verify", "--all"]).code == 0


@pytest.mark.parametrize("params", [{"script": [LOAD, {"text": "As it is written."}]}, {"file": "replies.json"}])
def test_a_mock_model_of_the_configuration(project: Project, params: dict[str, Any]) -> None:
    """As the source document writes it; a reply that nobody asked for is an error, as with --model."""
    replies = [LOAD, {"text": "As it is written."}]
    (project.folder / "replies.json").write_text(json.dumps(replies), encoding="utf-8")
    config = project.folder / "config.json"
    config.write_text(json.dumps({"model": {"provider": "mock", "params": params}}), encoding="utf-8")
    answer = project.run("do it", "--config", "config.json")
    assert (answer.code, answer.out) == (0, "As it is written.\n"), answer.err
    unused = {"script": [*replies, FINE]}
    config.write_text(json.dumps({"model": {"provider": "mock", "params": unused}}), encoding="utf-8")
    answer = project.run("do it", "--config", "config.json")
    assert answer.code == 1 and "script-unused" in answer.err


# --- exit codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ([], 2, "usage"),
        (["   "], 2, "usage"),
        (["hi", "--model", "nonsense"], 2, "model-unknown"),
        (["hi", "--model", "openai"], 2, "model-incomplete"),
        (["hi", "--model", "openai:gpt-5"], 1, "model-no-key"),
        (["hi", "--model", "scripted:none.yaml"], 2, "script-unreadable"),
        (["hi", "--model", "scripted:empty.yaml"], 1, "script-exhausted"),
        (["hi", "--skill", "nope", "--model", "scripted:empty.yaml"], 1, "skill-not-found"),
        (["@none.csv", "--model", "offline"], 2, "no-file"),
        (["hi", "--input", "none.csv"], 2, "no-file"),
        (["hi", "--input", "artifact://x"], 2, "usage"),
        (["hi", "--input", "empty.yaml", "--input", "skills=work/inputs/empty.yaml"], 2, "inputs-collide"),
        (["hi", "--session", "/bad", "--model", "scripted:empty.yaml"], 1, "session-key-invalid"),
        (["--resume"], 2, "usage"),
        (["--resume", "--session", "never"], 1, "session-unknown"),
        (["hi", "--source", "user"], 2, "usage"),
        (["hi", "--force"], 2, "usage"),
        (["hi", "--yes", "high"], 2, "usage"),
        (["hi", "--yes", "skil_run"], 2, "usage"),
        (["hi", "--max-turns", "0"], 2, "usage"),
        (["hi", "--max-cost", "1", "--model", "scripted:empty.yaml"], 2, "price-unknown"),
        (["hi", "there"], 2, "usage"),
        (["hi", "--nonsense"], 2, "usage"),
    ],
)
def test_what_cannot_be_done_is_said_before_it_is_tried(
    project: Project, words: list[str], code: int, error: str, capfd: Any, monkeypatch: Any
) -> None:
    (project.folder / "empty.yaml").write_text("[]", encoding="utf-8")
    monkeypatch.chdir(project.folder)
    assert main(["run", "--root", "skills", *words]) == code
    out, err = capfd.readouterr()
    assert f"[{error}]" in err and out == "", err
    assert main(["run", "--root", "skills", *words, "--json"]) == code
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert error == (last["error"]["code"] if "error" in last else last["code"])


def test_a_limit_gives_a_partial_answer_and_a_way_on(project: Project) -> None:
    answer = project.say("do it", "--max-turns", "1", replies=[LOAD])
    assert answer.code == 1 and answer.out.startswith("Not finished: the limit of 1 turns"), answer.err
    assert "[limit:turns" in answer.err
    way = answer.err.splitlines()[-1].partition("prowess ")[2].split()
    assert way[-3:] == ["--session", answer.session, "--resume"] and "2" in way
    project.script({"text": "Done now."})
    assert project.follow(way).out == "Done now.\n", "more turns were to be had"


def test_a_skill_that_was_named_and_is_denied(project: Project, make_skill: Any) -> None:
    make_skill(project.folder / ".agent" / "skills" / "foreign")
    done = project.follow(["run", "hi", "--skill", "foreign", "--model", project.script()])
    assert (done.code, done.out) == (3, ""), done.err


def test_waiting_for_a_person_names_the_call_and_the_way_on(project: Project) -> None:
    replies = [LOAD, run_of("echo hi > out/x.txt; cat out/x.txt")]
    answer = project.say("do it", "--executor", "local", replies=replies)
    assert (answer.code, answer.out) == (4, "")
    assert "Waiting for approval: skill_run, running echo hi" in answer.err
    way = answer.err.splitlines()[-1].partition("prowess ")[2].split()
    assert way[-5:] == ["--session", answer.session, "--resume", "--yes", "skill_run"]
    project.script({"text": "After all."})
    done = project.follow([*way, "--output-dir", "made"])
    assert (done.code, done.out) == (0, "After all.\n"), done.err
    assert "approved (once): --yes skill_run" in done.err
    assert (project.folder / "made" / "x.txt").read_text(encoding="utf-8") == "hi\n"


def test_an_answer_is_not_lost_when_the_script_had_more(project: Project) -> None:
    answer = project.say("hi", replies=[FINE, FINE])
    assert (answer.code, answer.out) == (1, "Fine.\n") and "[script-unused]" in answer.err
    as_json = project.say("hi", "--json", replies=[FINE, FINE])
    assert as_json.code == 1 and as_json.events[-1]["stop_reason"] == "answer" and "[script-unused]" in as_json.err


def test_a_person_who_is_not_there_can_also_mean_no(project: Project) -> None:
    replies = [LOAD, run_of("true"), {"text": "I was not allowed to."}]
    answer = project.say("do it", "--executor", "local", "--on-ask", "deny", replies=replies)
    assert (answer.code, answer.out) == (0, "I was not allowed to.\n") and "denied [approval-needed]" in answer.err


@pytest.mark.parametrize(("yes", "code"), [("medium", 0), ("skill_run", 0), ("low", 4)])
def test_yes_to_a_class_of_risk(project: Project, yes: str, code: int) -> None:
    replies = [LOAD, run_of("true"), *([FINE] if code == 0 else [])]
    assert project.say("do it", "--executor", "local", "--yes", yes, replies=replies).code == code


def test_nothing_of_high_risk_is_approved_by_its_class() -> None:
    assert {"read_file", "skill_run"} <= parse_yes(["medium"]).keys() and "skill_run" not in parse_yes(["low"])
    assert not {"write_file", "delete_file", "network_request", "install_dependencies"} & parse_yes(["medium"]).keys()
    assert parse_yes(["low", "write_file"])["write_file"] == "write_file"
    for word, hint in (("high", "write_file"), ("wite_file", "write_file"), ("everything", "There are: low")):
        with pytest.raises(ConfigError) as caught:
            parse_yes([word])
        assert hint in str(caught.value.hint)


def test_an_address_where_nobody_is(project: Project) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        environ = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-not-a-real-one"}
        answer = project.run("hi", "--model", "openai:some", environ=environ)
    assert answer.code == 1 and answer.out == "" and "Trying again in" in answer.err, answer.err
    assert "sk-not-a-real-one" not in answer.err


# --- files and standard input -----------------------------------------------------------------------------------------


@pytest.mark.needs("isolation")
def test_files_that_are_named_are_given(project: Project) -> None:
    (project.folder / "my file.csv").write_text("a\n1\n", encoding="utf-8")
    (project.folder / "sub").mkdir()
    (project.folder / "sub" / "b.txt").write_text("b", encoding="utf-8")
    look = run_of("cat 'inputs/my file.csv' inputs/b.txt inputs/given.txt")
    words = ['Compare @"my file.csv" and @sub/b.txt.', "--input", "sub/b.txt=work/inputs/given.txt", "--json"]
    answer = project.say(*words, replies=[LOAD, look, {"text": "ok"}])
    started = answer.events[0]
    assert started["request"] == "Compare my file.csv and b.txt."
    assert [part["text"] for part in started["attachments"]] == [
        "inputs/given.txt",
        "inputs/my file.csv",
        "inputs/b.txt",
    ]
    ran = next(event for event in answer.events if "exit_code" in str(event.get("outcome", {}).get("data")))
    assert ran["outcome"]["data"]["stdout"] == "a\n1\nbb"


@pytest.mark.parametrize(
    ("text", "plain", "names"),
    [
        ("see @a.csv", "see a.csv", ["a.csv"]),
        ("(@a.csv), @a.csv!", "(a.csv), a.csv!", ["a.csv"]),
        ("@sub/a.csv and @a.csv", "a.csv and a-2.csv", ["a.csv", "a-2.csv"]),
        ("@'my file' @\"my file\"", "my file my file", ["my file"]),
        ("mail me@a.csv", "mail me@a.csv", []),
        (r"\@a.csv", "@a.csv", []),
        ("@bob and @ and @@ and @... and @..", "@bob and @ and @@ and @... and @..", []),
        ("@sub", "sub", ["sub"]),
        ("@sub/.", "sub", ["sub"]),
        ("@übung.txt。", "@übung.txt。", None),
        ("@a.cvs", "", None),
        ("@types/node", "", None),
        ('@"bob"', "", None),
        ("x\n@a.csv\ny", "x\na.csv\ny", ["a.csv"]),
    ],
)
def test_what_counts_as_a_file(tmp_path: Path, text: str, plain: str, names: list[str] | None) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.csv", "sub/a.csv", "my file", ".hidden"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    if names is None:
        with pytest.raises(ConfigError) as caught:
            find_attachments(text, str(tmp_path))
        assert caught.value.code == "no-file" and "\\@" in str(caught.value.hint)
        return
    found = find_attachments(text, str(tmp_path))
    assert (found.text, [to for _, to in found.files]) == (plain, [f"work/inputs/{name}" for name in names])


def test_standard_input_is_a_file_or_the_request(project: Project) -> None:
    given = project.say("summarise", "--json", input=b"some notes\n").events[0]
    assert given["request"] == "summarise" and given["attachments"][0]["text"] == "inputs/stdin.txt"
    asked = project.say("--json", input="grüß dich\n".encode()).events[0]
    assert asked["request"].strip() == "grüß dich" and asked["attachments"] == []
    binary = project.say("what is this?", "--json", input=b"\xff\xfe\x00").events[0]
    assert binary["attachments"][0]["text"] == "inputs/stdin.bin"
    refused = project.say(input=b"\xff\xfe\x00")
    assert refused.code == 2 and "[stdin-not-text]" in refused.err
    long = project.say(input=b"x" * ((1 << 20) + 1))
    assert long.code == 2 and "[stdin-too-large]" in long.err


def test_a_pipe_that_says_nothing_is_waited_for_and_that_is_said(project: Project) -> None:
    words = project.words("what is it?", "--json", "--model", project.script(FINE))
    child = subprocess.Popen(
        words, cwd=project.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stderr is not None and child.stderr.readline().startswith(b"Reading standard input")
    out, _ = child.communicate(b"late\n", timeout=120)
    assert json.loads(out.splitlines()[0])["attachments"][0]["text"] == "inputs/stdin.txt"


def test_streams_that_are_closed(project: Project) -> None:
    words = project.words("hi", "--model", project.script({"text": "Fine."}))
    for closed in ("0<&-", "2>&-", "0<&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f'exec "$@" {closed}', "-", *words], cwd=project.folder, capture_output=True
        )
        assert (done.returncode, done.stdout) == (0, b"Fine.\n"), (closed, done.stderr)
    full = subprocess.run(
        ["bash", "-c", 'exec "$@" > /dev/full < /dev/null', "-", *words], cwd=project.folder, capture_output=True
    )
    assert full.returncode == 1 and b"[system-error]" in full.stderr


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_remembers(project: Project) -> None:
    first = project.say("one", replies=[{"text": "First."}])
    second = project.say("two", "--json", "--session", first.session, replies=[{"text": "Second."}])
    assert second.events[0]["session"] == first.session and second.events[0]["seq"] > 1
    nothing = project.run("--session", first.session, "--resume", "--model", project.script())
    assert nothing.code == 1 and "[nothing-to-resume]" in nothing.err


def test_a_skill_that_was_named_is_in_use_from_the_start(project: Project) -> None:
    answer = project.say("do it", "--skill", "demo", "--json")
    loaded = next(event for event in answer.events if event["type"] == "skill_loaded")
    assert (loaded["name"], loaded["trigger"]) == ("demo", "caller")
    by_user = project.say("/demo with this", "--json")
    assert next(event for event in by_user.events if event["type"] == "skill_loaded")["trigger"] == "user"


def test_what_a_child_run_does_stands_below_it(project: Project, make_skill: Any) -> None:
    front = "name: digger\ndescription: Digs. Use when asked.\nrun-mode: subagent"
    make_skill(project.folder / "skills" / "digger", front=front)
    load = {"calls": [{"tool": "skill_load", "args": {"skill": "digger", "arguments": "dig here"}}]}
    thinks = {"text": "I dig.", "calls": [{"tool": "skill_read", "args": {"skill": "digger", "path": "none.md"}}]}
    answer = project.say("go", replies=[load, thinks, {"text": "Found it."}, {"text": "It was found."}])
    assert (answer.code, answer.out) == (0, "It was found.\n"), answer.err
    for line in ("  a child run: dig here\n", "\n  I dig.\n", "\n  skill_read none.md: failed [resource-not-found]"):
        assert line in answer.err


def test_the_printed_command_shows_the_session_of_this_store(project: Project) -> None:
    answer = project.say("x", "--session", "p1", "--store", "sqlite:///mine.db")
    command = answer.err.rpartition(" · ")[2].strip("]\n")
    assert answer.code == 0 and "--store" in command
    shown = run_here(shlex.split(command)[1:], cwd=project.folder)
    assert shown.code == 0 and "Fine." in shown.out


def test_the_help_names_the_limits_that_are_in_force(project: Project) -> None:
    answer = run_here(["config", "show", "--json"], cwd=project.folder)
    values = json.loads(answer.out)["values"]
    for command in ("run", "chat"):
        text = run_here([command, "--help"], cwd=project.folder).out
        for name, thing in (("turns", "Model turns."), ("calls", "Tool calls."), ("scripts", "Script runs.")):
            assert f"{thing}  [default: {values[f'limits.{name}']}]" in text


def test_options_reach_the_run(project: Project) -> None:
    words = ["--load-mode", "session", "--placement", "system", "--protocol", "actions", "--max-calls", "3"]
    action = {"action": {"type": "final_answer", "content": "Yes."}}
    started = project.say("do it", "--json", *words, "--instructions", "Be brief.", replies=[action]).events[0]
    assert (started["load_mode"], started["placement"], started["protocol"]) == ("session", "system", "actions")
    assert started["limits"]["calls"] == 3


# --- ends that nobody planned -----------------------------------------------------------------------------------------


def test_interrupting_is_recorded_and_can_be_taken_up(project: Project) -> None:
    marker = f"sleep 983{os.getpid()}"  # no other test run's
    model = project.script(LOAD, run_of(f"echo on > out/on; exec {marker}"))
    words = project.words("go", "--model", model, "--json", "--yes", "skill_run")  # without isolation it is asked about
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(words, cwd=project.folder, bufsize=0, **streams)  # or readline takes too much
    assert child.stdout is not None
    while True:
        event = json.loads(child.stdout.readline())
        if event["type"] == "call_planned" and event["call"]["tool"] == "skill_run":
            break
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    events = [json.loads(line) for line in out.splitlines()]
    assert child.returncode == 130 and events[-1]["stop_reason"] == "cancelled", err
    assert f"--session {event['session']} --resume".encode() in err
    assert marker not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    project.script({"text": "Taken up."})
    again = project.run("--session", event["session"], "--resume", "--model", model)
    assert again.code == 0 and again.out == "Taken up.\n", again.err


def test_a_reader_that_has_seen_enough_ends_the_run(project: Project) -> None:
    model = project.script(*[run_of("sleep 0.2") for _ in range(20)])
    words = project.words(
        "go", "--skill", "demo", "--model", model, "--json", "--max-scripts", "20", "--max-turns", "30"
    )
    child = subprocess.Popen(
        words, cwd=project.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stderr is not None
    session = json.loads(child.stdout.readline())["session"]
    child.stdout.close()
    said = child.stderr.read().decode()
    assert child.wait(60) == 1 and "[output-closed]" in said and f"--session {session} --resume" in said, said
    child.stderr.close()


# --- a terminal -------------------------------------------------------------------------------------------------------


@pytest.mark.needs("isolation")
def test_a_terminal_shows_what_happens_and_obeys_nobody(project: Project) -> None:
    evil = "\x1b[2J\x1b]0;title\x07 Done."
    model = project.script({"text": f"First {evil}", **LOAD}, run_of("sleep 0.4; printf '\\033[2J'"), {"text": evil})
    terminal = Terminal("run", "go", "--root", "skills", "--model", model, cwd=project.folder)
    terminal.wait_for("running sleep 0.4")
    assert terminal.finish() == 0
    assert b"\x1b[2J" not in terminal.shown and b"\x1b]0;" not in terminal.shown
    assert terminal.plain.count(r"\u{1b}[2J") >= 2 and "loaded demo" in terminal.plain
    assert terminal.shown.count(b"\x1b[?25l") == terminal.shown.count(b"\x1b[?25h") > 0, "the cursor is back"


def test_a_person_is_asked_and_the_display_makes_room(project: Project) -> None:
    ask = {"calls": [{"tool": "ask_user", "args": {"question": "Which \x1b[1mone?", "choices": ["red", "blue"]}}]}
    for said, picked, code in (("2\n", "blue", 0), ("\n", "Nobody answered", 0)):
        model = project.script(ask, LOAD, run_of("echo ran"), {"text": "Done."})
        words = ["run", "go", "--root", "skills", "--model", model, "--executor", "local"]
        terminal = Terminal(*words, "-v", cwd=project.folder, stdout=False)
        terminal.wait_for("1 to 2, or your own answer (empty: no answer): ")
        terminal.type(said)
        terminal.wait_for("[NO]")
        terminal.type("once\n")
        assert terminal.finish() == code, terminal.plain
        assert terminal.process.stdout is not None and terminal.process.stdout.read() == b"Done.\n"
        assert r"Which \u{1b}[1mone?" in terminal.plain and "skill_run echo ran: ok" in terminal.plain
        assert ("ask_user: ok" in terminal.plain) == (picked == "blue")
        terminal.process.stdout.close()


@pytest.mark.needs("isolation")
def test_control_c_in_a_terminal(project: Project) -> None:
    model = project.script(LOAD, run_of("sleep 60"))
    terminal = Terminal("run", "go", "--root", "skills", "--model", model, cwd=project.folder)
    terminal.wait_for("running sleep 60")
    terminal.type("\x03")
    assert terminal.finish() == 130 and "Interrupted. To go on: prowess run" in terminal.plain
    assert terminal.shown.count(b"\x1b[?25l") == terminal.shown.count(b"\x1b[?25h")


def test_choices_have_numbers_and_every_answer_is_possible() -> None:
    assert render_choices("Which?", ["a", "b"]).splitlines()[1:3] == ["  1  a", "  2  b"]
    assert [find_choice(said, ["a", "b"]) for said in ("", "2", "3", "0", "c", "²", "9" * 999)] == [
        None,
        "b",
        "3",
        "0",
        "c",
        "²",
        "9" * 999,
    ]
