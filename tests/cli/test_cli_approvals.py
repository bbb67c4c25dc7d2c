"""prowess approvals: a question that nobody could be asked waits in the record, is answered from anywhere, and the
session goes on; what was approved for good is listed and taken back."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agents import call, play
from guard import GUARD_S
from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import main
from prowess.core.events import ApprovalAnswered
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.policy.approvals import Standing, grant, load_approvals, revoke
from prowess.workspace.session_folder import hold_session
from prowess.workspace.skill_trees import remove_tree
from state_places import database_of

LOAD, RUN = call("skill_load", skill="demo"), call("skill_run", skill="demo", command="bash scripts/a.sh")
DONE = {"text": "done"}


class Cli:
    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self.err = ""

    def __call__(self, *args: str, code: int = 0, verb: str = "approvals") -> str:
        ended = main([verb, *args])
        out, self.err = self._capture.readouterr()
        assert ended == code, f"exit code {ended}: {out!r} {self.err}"
        return out

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        document = json.loads(self(*args, "--json", code=code))
        name = "error" if "error" in document else document["schema"].removeprefix("prowess.").removesuffix("/1")
        jsonschema.validate(document, json.loads(Path(FOLDER, f"{name}.json").read_text(encoding="utf-8")))
        return document

    def refused(self, *args: str, code: int = 1) -> str:
        """The code of the error, which says what to do as well."""
        error = self.json(*args, code=code)["error"]
        assert error["hint"]
        return error["code"]


class Project:
    def __init__(self, folder: Path, workspace_dir: str) -> None:
        self.folder, self.workspace_dir = folder, workspace_dir
        self.settings = {"workspace.executor": "local", "store": None}  # the project's own

    def play(self, replies: list[Any], *requests: Any, session: str = "s-1", **options: Any) -> Any:
        given = {"settings": self.settings, "cwd": self.folder, "approver": None, "session": session, **options}
        return play(self.folder / "skills", replies, *requests, **given)

    def wait(self, session: str = "s-1", run: Any = RUN) -> None:
        """A run that ended because nobody could be asked."""
        assert self.play([LOAD, run], session=session).result.stop_reason == "waiting"

    def resume(self, *replies: Any, session: str = "s-1", **options: Any) -> Any:
        return self.play(list(replies or [DONE]), {"resume": True}, session=session, **options)


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, workspace_dir: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", str(Path(workspace_dir, tmp_path.name)))
    (tmp_path / ".agent").mkdir()
    make_skill(tmp_path / "skills" / "demo", files={"scripts/a.sh": "echo ran\n"})
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path, str(Path(workspace_dir, tmp_path.name)))


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], project: Project) -> Cli:
    return Cli(capfd)


def state_dir(machine: Path) -> str:
    return str(machine / ".prowess")


# --- list -------------------------------------------------------------------------------------------------------------


def test_without_a_record_there_is_nothing_and_nothing_is_made(cli: Cli, project: Project) -> None:
    assert cli("list") == cli() == "" and "0 questions waiting · 0 standing approvals" in cli.err
    assert cli.json()["waiting"] == []
    assert cli.refused("answer", "c1", "yes") == "call-unknown"
    assert not database_of(project.folder).exists()


def test_a_question_that_waits_says_what_it_is_about_and_how_to_answer(cli: Cli, project: Project) -> None:
    project.wait()
    shown = cli()
    assert "skill_run of explicit:demo\n  running bash scripts/a.sh (demo)\n" in shown and "without isolation" in shown
    assert "  answer:  prowess approvals answer c2 yes --session s-1 --token " in shown
    assert "  resume:  prowess run --session s-1 --resume\n" in shown and "1 question waiting" in cli.err
    [row] = cli.json("list")["waiting"]
    assert (row["session"], row["call_id"], row["tool"], row["skill"]) == ("s-1", "c2", "skill_run", "explicit:demo")
    assert row["args"]["command"] == "bash scripts/a.sh" and row["about"]["isolation"]["executor"] == "local"
    whole = cli("list", "-v")
    assert "skill_run asks for permission (medium risk)." in whole and "runs in  local (" in whole
    assert "digest   sha256:" in whole


def test_nothing_in_a_list_is_obeyed_by_a_terminal(cli: Cli, project: Project) -> None:
    project.wait(run=call("skill_run", skill="demo", command="ls\nc9 · session s-9\n\x1b[2J\u202e" + "x" * 9000))
    for shown in (cli("list"), cli("list", "-v")):
        assert "\x1b" not in shown and "\u202e" not in shown and "\nc9" not in shown


def test_what_has_ended_otherwise_does_not_wait(cli: Cli, project: Project) -> None:
    project.play([LOAD, DONE], session="s-0")
    project.wait("s-1")
    project.play([DONE], "something else", session="s-1")
    project.play([LOAD, RUN, DONE], session="s-2", on_ask="deny")
    assert cli.json()["waiting"] == []
    assert cli.refused("answer", "c2", "yes", "--session", "s-1") == "not-waiting"


def test_a_damaged_session_does_not_hide_the_others(cli: Cli, project: Project) -> None:
    project.wait("s-1")
    project.wait("s-2")
    with closing(sqlite3.connect(database_of(project.folder))) as connection:
        connection.execute("DELETE FROM events WHERE session = 's-1' AND seq = 3")
        connection.commit()
    document = cli.json()
    assert ([row["session"] for row in document["waiting"]], document["damaged"]) == (["s-2"], ["s-1"])
    cli()
    assert "session s-1 is damaged" in cli.err
    assert cli.refused("answer", "c2", "yes", "--session", "s-1") == "call-unknown"


# --- answer -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status", "kept"), [("yes", "ok", "once"), ("run", "ok", "run"), ("no", "denied", "no")]
)
def test_an_answer_is_kept_until_the_session_goes_on(
    cli: Cli, project: Project, said: str, status: str, kept: str
) -> None:
    project.wait()
    because = ["--because", "use \x1b the other"] if said == "no" else []
    document = cli.json("answer", "c2", said, *because)
    assert (document["answer"], document["waiting"]) == (kept, 0)
    assert document["to_resume"] == "prowess run --session s-1 --resume"
    assert "answered: " in cli() and cli.json()["waiting"][0]["answer"] == kept
    assert cli.refused("answer", "c2", "no") == "already-answered"
    resumed = project.resume()
    assert [outcome["status"] for outcome in resumed.outcomes] == [status] and resumed.result.text == "done"
    if because:
        assert "use \x1b the other" in resumed.outcomes[0]["content"]
    assert cli.json()["waiting"] == [] and cli.refused("answer", "c2", "no") == "not-waiting"
    cli("verify", "--all", verb="runs")


def test_always_is_bound_to_the_content_that_was_asked_about(
    cli: Cli, project: Project, machine: Path, make_skill: Any
) -> None:
    project.wait()
    asked = cli.json()["waiting"][0]["about"]["digest"]
    make_skill(project.folder / "skills" / "demo", files={"scripts/a.sh": "echo changed\n"})
    cli("answer", "c2", "always")
    [row] = load_approvals(state_dir(machine)).rows
    assert (row.skill, row.digest, row.capability) == ("explicit:demo", asked, "skill_run")
    assert [path for path, _ in row.files] == ["SKILL.md", "scripts/a.sh"] and row.by
    assert project.resume().outcomes[0]["status"] == "ok"


def test_always_needs_the_content_and_a_skill(cli: Cli, project: Project, machine: Path, make_skill: Any) -> None:
    project.settings["tools.enable"] = ["write_file"]
    project.play([call("write_file", path="out/a", content="x")], session="s-2")
    assert cli.refused("answer", "c1", "always", code=2) == "approval-not-bound"
    project.wait("s-1")
    for folder in (f"{project.workspace_dir}/trees", f"{project.folder}/skills"):
        remove_tree(folder)
    assert cli.refused("answer", "c2", "always") == "content-gone"
    assert load_approvals(state_dir(machine)).rows == () and cli.json()["waiting"][1]["answer"] is None


def test_a_call_id_can_be_that_of_several_sessions(cli: Cli, project: Project) -> None:
    project.wait("s-1")
    project.wait("s-2")
    assert cli.refused("answer", "c2", "yes", code=2) == "call-ambiguous"
    cli("answer", "c2", "yes", "--session", "s-2")
    assert {row["session"]: row["answer"] for row in cli.json()["waiting"]} == {"s-1": None, "s-2": "once"}
    cli("answer", "c2", "no")
    assert cli.err.startswith("Answered: no"), "only one was left"


def test_an_answer_with_a_token_counts_for_the_question_that_was_shown(cli: Cli, project: Project) -> None:
    project.wait()
    [row] = cli.json()["waiting"]
    project.play([LOAD, call("skill_run", skill="demo", command="bash scripts/a.sh other")], "again", session="s-1")
    [now] = cli.json()["waiting"]
    assert cli.refused("answer", now["call_id"], "yes", "--token", row["token"]) == "question-changed"
    cli("answer", now["call_id"], "yes", "--token", row["token"], code=1)
    assert "bash scripts/a.sh other" in cli.err and now["token"] in cli.err
    assert shlex.split(now["to_answer"])[-2:] == ["--token", now["token"]]
    cli(*shlex.split(now["to_answer"])[2:])
    assert cli.json()["waiting"][0]["answer"] == "once"


@pytest.mark.parametrize(
    ("words", "refused", "code"),
    [
        (["c22", "yes"], "call-unknown", 1),
        (["c1", "yes"], "not-waiting", 1),
        (["c2", "yes", "--session", "s-9"], "session-unknown", 1),
        (["c2", "perhaps"], "usage", 2),
        (["c2"], "usage", 2),
        (["c2", "yes", "--because", "I like it"], "usage", 2),
        (["\x1b[2J\n", "yes"], "call-unknown", 1),
    ],
)
def test_what_cannot_be_answered(cli: Cli, project: Project, words: list[str], refused: str, code: int) -> None:
    project.wait()
    assert cli.refused("answer", *words, code=code) == refused
    assert cli.json()["waiting"][0]["answer"] is None


def test_a_session_that_somebody_works_in_is_not_written_to(cli: Cli, project: Project) -> None:
    project.wait()
    with hold_session(project.workspace_dir, str(project.folder / ".agent" / "prowess.db"), SessionKey(session="s-1")):
        assert cli.refused("answer", "c2", "yes") == "session-in-use"
    cli("answer", "c2", "yes")


@pytest.mark.parametrize("said", ["yes", "run", "always"])
def test_a_call_of_a_child_run_is_answered_like_any_other(
    cli: Cli, project: Project, make_skill: Any, machine: Path, said: str
) -> None:
    front = "name: inner\ndescription: Works apart. Use when asked.\ncontext: fork\n"
    make_skill(project.folder / "skills" / "inner", front=front, files={"scripts/a.sh": "echo inner\n"})
    inner = call("skill_run", skill="inner", command="bash scripts/a.sh")
    played = project.play([call("skill_load", skill="inner"), inner])
    assert any(event.get("parent") for event in played.of("run_started")), "a child run was made"
    [row] = cli.json()["waiting"]
    assert row["of_child"] and row["state"] == "waiting"
    cli("answer", row["call_id"], said)
    assert len(load_approvals(state_dir(machine)).rows) == (said == "always")
    cli("verify", "--all", verb="runs")
    resumed = project.resume({"text": "inner done"}, DONE)
    assert resumed.result.ok and "waiting" not in [each["status"] for each in resumed.outcomes]
    assert cli.json()["waiting"] == []


# --- other processes --------------------------------------------------------------------------------------------------


def prowess(*words: str) -> list[str]:
    return [sys.executable, "-m", "prowess", *words]


def test_a_question_survives_the_process_and_the_printed_commands_work(cli: Cli, project: Project) -> None:
    (project.folder / "script.json").write_text(json.dumps([LOAD, RUN]), encoding="utf-8")
    (project.folder / "rest.json").write_text(json.dumps([DONE]), encoding="utf-8")
    options = ["--root", "skills", "--executor", "local", "--model"]
    first = subprocess.run(
        prowess("run", "go", *options, "scripted:script.json"),
        cwd=project.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GUARD_S,
    )
    assert first.returncode == 4, first.stderr
    [row] = cli.json()["waiting"]
    answer = shlex.split(row["to_answer"])
    assert answer[0] == "prowess"
    cli(*answer[2:])
    assert row["to_resume"].startswith("prowess run --root skills --model scripted:script.json --executor local ")
    resume = shlex.split(row["to_resume"].replace("script.json", "rest.json"))
    second = subprocess.run(
        prowess(*resume[1:]),
        cwd=project.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GUARD_S,
    )
    assert (second.returncode, second.stdout) == (0, b"done\n"), second.stderr


def test_a_killed_answer_is_given_or_not_and_can_be_given_again(cli: Cli, project: Project) -> None:
    """Killed right before it would be written: nothing is half done, and no lock is left."""
    project.wait()
    code = """
import os, signal, sys
from prowess.cli.main import main
from prowess.stores.sqlite import SqliteEventLog
async def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)
SqliteEventLog.append = die
main(sys.argv[1:])
"""
    killed = subprocess.run([sys.executable, "-c", code, "approvals", "answer", "c2", "always"], timeout=GUARD_S)
    assert killed.returncode == -signal.SIGKILL
    assert cli.json()["waiting"][0]["answer"] is None
    cli("answer", "c2", "once")
    assert project.resume().outcomes[0]["status"] == "ok"


# --- revoke -----------------------------------------------------------------------------------------------------------

ROWS = [
    Standing("explicit:demo", "sha256:" + "1" * 64, "skill_run", "2026-01-02T03:04:05Z", "ada", (("SKILL.md", "aa"),)),
    Standing("user:pdf", "sha256:" + "2" * 64, "install_dependencies", "2026-01-03T03:04:05Z", "bob\x1b[2J"),
]


@pytest.fixture
def standing(machine: Path, project: Project) -> str:
    for row in ROWS:
        grant(state_dir(machine), row)
    return state_dir(machine)


def test_standing_approvals_are_listed_with_numbers(cli: Cli, standing: str) -> None:
    lines = cli().splitlines()
    assert lines[0].split() == ["NUMBER", "SKILL", "CAPABILITY", "CONTENT", "SINCE", "BY"]
    assert lines[1].split()[:4] == ["1", "explicit:demo", "skill_run", "1" * 12]
    assert "\x1b" not in lines[2] and "2 standing approvals" in cli.err
    first, second = cli.json()["approvals"]
    assert (first["number"], first["files"], second["number"]) == (1, 1, 2)


def test_an_approval_of_another_owner_says_whose_it_is(cli: Cli, standing: str) -> None:
    assert [(row["tenant"], row["user"]) for row in cli.json()["approvals"]] == [("default", "default")] * 2
    row = ROWS[0]._replace(tenant="acme", user="ann")
    grant(standing, row)
    lines = cli().splitlines()
    assert lines[0].endswith("ONLY FOR") and lines[3].endswith("user ann · tenant acme")
    assert "of explicit:demo · user ann · tenant acme" in cli.json("revoke", "3", code=2)["error"]["message"]
    assert [(each["tenant"], each["user"]) for each in cli.json("revoke", "3", "--yes")["revoked"]] == [("acme", "ann")]
    assert load_approvals(standing).rows == tuple(ROWS)


def test_what_is_taken_back_is_gone(cli: Cli, standing: str) -> None:
    assert cli.refused("revoke", "1", code=2) == "needs-yes"
    assert "revoked  explicit:demo  skill_run" in cli("revoke", "1", "--yes")
    assert cli.refused("revoke", "pdf", "--capability", "skill_run", "--yes") == "approval-unknown"
    document = cli.json("revoke", "pdf", "--yes")
    assert [row["skill"] for row in document["revoked"]] == ["user:pdf"]
    assert load_approvals(standing).rows == ()
    for which in ("1", "0", "pdf", "", "²", "9" * 5000):
        assert cli.refused("revoke", which, "--yes") == "approval-unknown"


@pytest.mark.parametrize(("said", "code", "left"), [(b"y\n", 0, 1), (b"n\n", 3, 2), (b"\n", 3, 2)])
def test_a_person_is_asked_before(standing: str, project: Project, said: bytes, code: int, left: int) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        prowess("approvals", "revoke", "2"), cwd=project.folder, stdin=theirs, stderr=subprocess.PIPE
    )
    os.write(ours, said)
    _, errors = process.communicate(timeout=GUARD_S)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code, errors
    assert b"Take back install_dependencies of user:pdf?" in errors and len(load_approvals(standing).rows) == left


def test_a_broken_file_is_said(cli: Cli, standing: str) -> None:
    Path(standing, "approvals.json").write_bytes(b"{")
    assert "approvals-corrupt" in cli() and cli.json()["findings"][0]["code"] == "approvals-corrupt"
    assert cli.refused("revoke", "1", "--yes") == "approvals-corrupt"


# --- always, from run to run ------------------------------------------------------------------------------------------


class Person:
    """Says the same to every question, and remembers what was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Decision] = []

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered:
        self.asked.append(decision)
        return ApprovalAnswered(call_id=call.id, answer=self.answer, by="test")


def test_always_holds_until_the_content_changes_or_it_is_taken_back(
    cli: Cli, project: Project, machine: Path, make_skill: Any
) -> None:
    person, script = Person("always"), [LOAD, RUN, RUN, DONE]
    project.play(script, session="s-1", approver=person)
    second = project.play(script, session="s-2", approver=person)
    assert len(person.asked) == 1 and [outcome["status"] for outcome in second.outcomes] == ["ok"] * 3
    assert all(event["by"].startswith("standing approval by ") for event in second.of("approval_answered")[:1])
    assert second.of("run_finished")[0]["prompts"] == 0
    make_skill(project.folder / "skills" / "demo", files={"scripts/a.sh": "echo changed\n", "new.txt": "x"})
    project.play(script, session="s-3", approver=person)
    assert len(person.asked) == 2
    changed = person.asked[1].about["changed"]
    assert (changed["changed"], changed["added"], changed["removed"]) == (["scripts/a.sh"], ["new.txt"], [])
    cli("revoke", "demo", "--yes")
    project.play(script, session="s-4", approver=person)
    assert len(person.asked) == 3 and "changed" not in person.asked[2].about


def test_what_is_taken_back_holds_from_the_next_call_on(cli: Cli, project: Project, machine: Path) -> None:
    def take_back(messages: Any, tools: Any) -> Any:
        assert len(revoke(state_dir(machine), "demo")) == 1
        return RUN

    person = Person("always")
    project.play([LOAD, RUN, take_back, DONE], approver=person)
    assert len(person.asked) == 2


def test_a_changed_content_is_asked_about_also_in_the_same_run(project: Project, make_skill: Any) -> None:
    def change(messages: Any, tools: Any) -> Any:
        make_skill(project.folder / "skills" / "demo", body="Other.\n", files={"scripts/a.sh": "echo changed\n"})
        return call("skill_load", skill="demo")

    person = Person("always")
    project.play([LOAD, RUN, call("skill_unload", skill="demo"), change, RUN, DONE], approver=person)
    digests = [decision.about["digest"] for decision in person.asked]
    assert len(digests) == len(set(digests)) == 2


def test_a_grant_lets_a_skills_own_list_answer(tmp_path: Path, make_skill: Any) -> None:
    """Where a person would be asked for want of isolation; and a changed skill is asked about again."""
    from agents import call as calling
    from agents import play
    from prowess.cli.main import main

    root = tmp_path / "granted"
    front = "name: lister\ndescription: Lists.\nallowed-tools: skill_run\n"
    make_skill(root / "lister", front=front, files={"scripts/a.sh": "echo ran\n"})
    script = [
        calling("skill_load", skill="lister"),
        calling("skill_run", skill="lister", command="bash scripts/a.sh"),
        {"text": "done"},
    ]
    local = {"workspace.executor": "local"}
    assert play(root, script, settings=local, approver=None).result.stop_reason == "waiting"
    assert main(["approvals", "grant", "lister", "--root", str(root), "--yes"]) == 0
    granted = play(root, script, settings=local, approver=None)
    assert granted.result.stop_reason == "answer"
    assert granted.of("call_decided")[-1]["decision"]["rule"] == "grant:allowed-tools"
    (root / "lister" / "scripts" / "a.sh").write_text("echo other\n", encoding="utf-8")
    assert play(root, script, settings=local, approver=None).result.stop_reason == "waiting"
    (root / "lister" / "scripts" / "a.sh").write_text("echo ran\n", encoding="utf-8")
    assert main(["approvals", "revoke", "lister", "--yes"]) == 0 or main(["approvals", "revoke", "1", "--yes"]) == 0
    assert play(root, script, settings=local, approver=None).result.stop_reason == "waiting"
