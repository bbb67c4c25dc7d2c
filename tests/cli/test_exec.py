"""prowess exec: the same path as a model's call, with a person in front of it; every exit code means one thing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from guard import GUARD_S
from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import main
from state_places import database_of
from tiers import Tiers
from tiers import engine as engine
from tiers import tiers as tiers


def load_schema(name: str) -> dict[str, Any]:
    return json.loads((Path(FOLDER) / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def root(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_skill(
        tmp_path / "skills" / "demo",
        files={
            "scripts/hello.py": "import sys\nprint('hello', *sys.argv[1:])\n",
            "scripts/ask.py": "print('name?', input())\n",
        },
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path / "skills"


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.out)
        jsonschema.validate(document, load_schema("exec"))
        return document


@pytest.fixture
def exec_(root: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str, skill: str = "demo") -> Answer:
        code = main(["exec", skill, "--root", str(root), *words])
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call


@pytest.mark.needs("isolation")
def test_the_command_speaks_for_itself(exec_: Any) -> None:
    answer = exec_("--", "python3", "scripts/hello.py", "a  b", "$HOME", "*")
    assert (answer.code, answer.out) == (0, "hello a  b $HOME *\n")
    assert "sandbox (bwrap+seccomp" in answer.err or "sandbox (landlock+seccomp" in answer.err
    assert exec_("--", "scripts/hello.py", "-x").out == "hello -x\n", "a file of the skill stands for itself"
    assert exec_("--shell", "--", "echo $((1+1)) | cat").out == "2\n"


@pytest.mark.needs("isolation")
@pytest.mark.parametrize(
    ("words", "code", "status", "error"),
    [
        (["--", "sh", "-c", "exit 3"], 3, "failed", None),
        (["--", "sh", "-c", "kill -9 $$"], 137, "failed", None),
        (["--timeout", "0.2", "--", "sleep", "60"], 124, "timeout", None),
        (["--", "no-such-program"], 127, "failed", None),
        (["--executor", "local", "--", "true"], 126, "denied", "approval-needed"),
        (["--cwd", "../..", "--", "true"], 125, "failed", "path-escape"),
        (["--input", "none.csv", "--", "true"], 125, "failed", "no-file"),
        (["--shell", "--", "echo", "two"], 125, "failed", "usage"),
        (["--session", "/bad", "--", "true"], 125, "failed", "session-key-invalid"),
    ],
)
def test_every_exit_code_means_one_thing(
    exec_: Any, words: list[str], code: int, status: str, error: str | None
) -> None:
    answer = exec_("--json", *words)
    assert (answer.code, answer.json["status"]) == (code, status)
    assert (answer.json.get("error") or {}).get("code") == error
    told = exec_(*words)
    assert told.code == code and (error is None or f"[{error}]" in told.err)


def test_a_skill_that_is_not_there_or_not_allowed(exec_: Any, root: Path, make_skill: Any) -> None:
    assert exec_("--json", "--", "true", skill="nope").json["error"]["code"] == "skill-not-found"
    assert exec_("--", "true", skill="nope").code == 127
    make_skill(root.parent / ".agent" / "skills" / "foreign")
    assert main(["exec", "foreign", "--", "true"]) == 126, "nobody has trusted this folder"


def test_nobody_to_ask_says_how_to_say_yes(exec_: Any) -> None:
    answer = exec_("--executor", "local", "--", "echo", "hi")
    assert answer.code == 126 and "--yes skill_run" in answer.err
    allowed = exec_("--executor", "local", "--yes", "skill_run", "--", "echo", "hi")
    assert (allowed.code, allowed.out) == (0, "hi\n") and "local (none" in allowed.err


def test_why_this_isolation_and_no_other_is_said_when_asked(root: Path, tiers: Tiers) -> None:
    """It is a fact of the machine: doctor, -v and the result say it, and no command of its own accord."""
    tier = tiers.get("landlock")

    def prowess(*words: str) -> Answer:
        command = [sys.executable, "-m", "prowess", *words]
        done = tier.run(lambda: subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S))
        return Answer(done.returncode, done.stdout, done.stderr)

    [note] = json.loads(prowess("doctor", "--workspace", "--json").out)["workspace"]["isolation"]["notes"]
    assert note.startswith("bubblewrap does not work here, so Landlock is used: ")
    plain = prowess("doctor").out
    assert f"\nIsolation\n  sandbox (landlock+seccomp); {note}\n" in plain and "apt-get install bubblewrap" in plain
    assert plain.endswith("  more: prowess doctor --workspace\n")
    words = ("exec", "demo", "--root", str(root), "--", "true")
    result = prowess("--json", *words).json
    assert (result["isolation"]["notes"], result["warnings"]) == ([note], [])
    assert prowess(*words).err.count("\n") == 1, "the line in brackets, and no other"
    assert prowess("-v", *words).err.startswith(f"isolation: {note}\n[exit 0")
    asked = ("run", "How many words are in @text.txt?", "--model", "offline", "--yes", "skill_run")
    Path("text.txt").write_text("one two", encoding="utf-8")
    plain, more = prowess(*asked).err, prowess("-v", *asked).err
    assert "sandbox (landlock" in plain and note not in plain and f"isolation: {note}\n" in more


def test_under_landlock_a_program_behind_a_shell_is_told_why_it_cannot_read_its_status(
    root: Path, tiers: Tiers
) -> None:
    tier = tiers.get("landlock")

    def warnings(command: str) -> list[str]:
        words = ["exec", "demo", "--root", str(root), "--json", "--shell", "--", command]
        argv = [sys.executable, "-m", "prowess", *words]
        done = tier.run(lambda: subprocess.run(argv, capture_output=True, text=True, timeout=GUARD_S))
        return json.loads(done.stdout)["warnings"]

    for command in ("head -n 1 /proc/self/status; true", "python3 -c 'open(\"/proc/self/stat\")'; true"):
        (warning,) = warnings(command)
        assert "only the first program of a run" in warning and "`exec`" in warning
    assert warnings("true; exec head -n 1 /proc/self/status") == []
    assert warnings("cat /proc/1/environ; true") == [], "no advice would help here"


def test_wrong_usage_is_not_the_commands_exit_code(exec_: Any) -> None:
    answer = exec_("ls", "--nonsense")
    assert answer.code == 125 and "-- COMMAND" in answer.err
    assert exec_().code == 125


@pytest.mark.needs("isolation")
def test_files_go_in_and_come_out(exec_: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("x", encoding="utf-8")
    work = "wc -l < work/inputs/in.txt > out/n.txt; cat work/there.txt inputs/folder/x > out/sub.txt"
    given = ["--input", "in.txt", "--input", "in.txt=work/there.txt", "--input", "folder", "--output-dir", "res"]
    answer = exec_("--json", *given, "--output", "out/*.txt", "--save", "--shell", "--", work)
    document = answer.json
    assert document["status"] == "ok", document
    assert (tmp_path / "res" / "n.txt").read_text(encoding="utf-8").strip() == "2"
    assert (tmp_path / "res" / "sub.txt").read_text(encoding="utf-8") == "one\ntwo\nx"
    assert [saved["name"] for saved in document["artifact_files"]] == ["out/n.txt", "out/sub.txt"]
    assert {staged["name"] for staged in document["staged_inputs"]} == {
        "work/inputs/in.txt",
        "work/there.txt",
        "work/inputs/folder",
    }
    session = document["session"]
    again = exec_("--session", session, "--", "cat", "out/n.txt")
    assert again.out.strip() == "2", "a session's files are there again"
    saved = exec_("--session", session, "--input", "artifact://out/n.txt@0=work/back.txt", "--", "cat", "work/back.txt")
    assert saved.out.strip() == "2"
    kept = exec_("--json", "--session", session, "--output-dir", "res", "--shell", "--", "echo 3 > out/n.txt")
    assert kept.code == 125 and "--force" in " ".join(kept.json["warnings"]), "an old file is not passed off as new"
    assert (tmp_path / "res" / "n.txt").read_text(encoding="utf-8").strip() == "2"
    replace = ["--session", session, "--output-dir", "res", "--force"]
    assert exec_(*replace, "--shell", "--", "echo 4 > out/n.txt").code == 0
    assert (tmp_path / "res" / "n.txt").read_text(encoding="utf-8").strip() == "4"


@pytest.mark.needs("isolation")
@pytest.mark.parametrize(
    ("words", "said"),
    [(["--", "true"], "there is no new file in out/"), (["--output", "out/*.x", "--", "true"], "nothing matches")],
)
def test_save_that_saves_nothing_says_so_and_fails(exec_: Any, words: list[str], said: str) -> None:
    answer = exec_("--save", *words)
    assert answer.code == 125 and f"warning: Nothing was saved as an artifact: {said}" in answer.err
    document = exec_("--json", "--save", *words).json
    assert document["exit_code"] == 0 and said in " ".join(document["warnings"])
    assert exec_("--save", "--shell", "--", "exit 3").code == 3, "the command's own failure comes first"


@pytest.mark.needs("isolation")
def test_more_ways_to_say_it(exec_: Any) -> None:
    assert exec_("--", "hello.py", "x").out == "hello x\n", "a script needs no folder"
    assert exec_("--env", "WHO=me", "--shell", "--", "echo $WHO").out == "me\n"
    for wrong in (["--input", ""], ["--input", "=x"], ["--env", "WHO"]):
        assert exec_("--json", *wrong, "--", "true").json["error"]["code"] == "usage"
    assert exec_("--yes", "everything", "--", "true").code == 125


@pytest.mark.needs("isolation")
def test_a_reader_that_has_seen_enough_ends_the_command(root: Path) -> None:
    words = [sys.executable, "-m", "prowess", "exec", "demo", "--root", str(root), "--", "yes"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"y\n"
    child.stdout.close()
    assert child.stderr is not None
    said = child.stderr.read()
    assert (child.wait(GUARD_S), said) == (141, b"")
    child.stderr.close()


@pytest.mark.needs("isolation")
def test_one_at_a_time_works_in_a_session(exec_: Any, root: Path, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", str(folder))
    words = [sys.executable, "-m", "prowess", "exec", "demo", "--root", str(root), "--session", "shared", "--shell"]
    wait = "echo on; until [ -e work/go ]; do sleep 0.02; done; echo done"
    first = subprocess.Popen([*words, "--", wait], stdout=subprocess.PIPE)
    assert first.stdout is not None and first.stdout.readline() == b"on\n"
    second = exec_("--json", "--session", "shared", "--", "true")
    assert (second.code, second.json["error"]["code"]) == (125, "session-in-use")
    for work in folder.glob("workspaces/*/root/work"):
        (work / "go").touch()
    assert first.communicate(timeout=GUARD_S)[0] == b"done\n" and first.returncode == 0, "and the first loses nothing"


@pytest.mark.needs("isolation")
def test_stdin_is_given_only_when_asked_for(root: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "prowess", "exec", "demo", "--root", str(root)]
    asked = subprocess.run(
        [*run, "--stdin", "--", "scripts/ask.py"], input=b"me\n", capture_output=True, timeout=GUARD_S
    )
    assert asked.stdout == b"name? me\n", asked
    left = subprocess.run([*run, "--", "scripts/ask.py"], input=b"me\n", capture_output=True, timeout=GUARD_S)
    assert left.returncode == 1 and b"EOFError" in left.stderr


def test_a_terminal_is_asked_and_obeys_no_script(root: Path, tmp_path: Path) -> None:
    """A real terminal: the question shows what would run, and what a script prints cannot move the cursor."""
    for said, code in ((b"once\n", 0), (b"\n", 126), (b"no\n", 126)):
        ours, theirs = pty.openpty()
        command = ["--executor", "local", "--", "printf", r"\033[2Jhi\n"]
        child = subprocess.Popen(
            [sys.executable, "-m", "prowess", "exec", "demo", "--root", str(root), *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        try:
            while b"[NO]" not in shown:
                shown += os.read(ours, 4096)
            os.write(ours, said)
            while child.poll() is None or True:
                try:
                    piece = os.read(ours, 4096)
                except OSError:
                    break
                shown += piece
        finally:
            child.wait(GUARD_S)
            os.close(ours)
        assert child.returncode == code, shown
        assert b"skill_run asks" in shown and b"printf" in shown and b"without isolation" in shown
        assert b"\x1b[2J" not in shown
        assert (b"\\u{1b}[2Jhi" in shown) == (code == 0)


@pytest.mark.needs("isolation")
def test_it_is_all_in_the_record(exec_: Any, tmp_path: Path) -> None:
    import asyncio

    from prowess.core.values import SessionKey
    from prowess.stores.sqlite import SqliteEventLog

    (tmp_path / ".agent").mkdir()
    session = exec_("--json", "--", "true").json["session"]

    async def read() -> list[str]:
        log = SqliteEventLog(database_of(tmp_path))
        found = [envelope.event.type async for envelope in log.read(SessionKey(session=session))]
        await log.close()
        return found

    types = asyncio.run(read())
    assert types[:4] == ["run_started", "call_planned", "call_decided", "skill_loaded"]
    assert types[-2:] == ["call_acted", "run_finished"]
    assert not os.path.lexists(tmp_path / ".agent" / "prowess.db")


@pytest.mark.needs("isolation")
def test_interrupting_ends_the_command(root: Path, tmp_path: Path) -> None:
    marker = f"sleep 987{os.getpid()}"  # no other test run's
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "prowess",
            "exec",
            "demo",
            "--root",
            str(root),
            "--shell",
            "--",
            f"echo on; exec {marker}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"on\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=GUARD_S)
    assert child.returncode == 130 and b"Interrupted" in err
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert marker not in running


@pytest.mark.needs("isolation")
def test_interrupting_is_an_answer_as_well(root: Path) -> None:
    marker = f"sleep 986{os.getpid()}"
    words = ["exec", "demo", "--json", "--root", str(root), "--input", "mark", "--shell", "--", f"exec {marker}"]
    (root.parent / "mark").write_text("x", encoding="utf-8")
    child = subprocess.Popen([sys.executable, "-m", "prowess", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while marker not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.replace(
        f"exec {marker}", ""
    ):
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=GUARD_S)
    assert child.returncode == 130 and json.loads(out)["error"]["code"] == "interrupted"


def test_interrupting_while_stdin_is_read_does_not_wait_for_its_end(root: Path) -> None:
    command = [sys.executable, "-m", "prowess", "exec", "demo", "--root", str(root), "--stdin", "--", "cat"]
    ours, theirs = os.pipe()
    child = subprocess.Popen(command, stdin=ours, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.write(theirs, b"more follows")
    while struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, b"\0" * 4)) != (0,):  # until it reads
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    try:
        _, err = child.communicate(timeout=GUARD_S)
    finally:
        os.close(ours)
        os.close(theirs)
        child.kill()
    assert child.returncode == 130 and err.endswith(b"Interrupted.\n")


# --- workspaces -------------------------------------------------------------------------------------------------------


@pytest.mark.needs("isolation")
def test_workspaces_are_listed_and_cleaned(exec_: Any, capfd: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = Path(os.environ["PROWESS_WORKSPACE_DIR"]) / "of-its-own"
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", str(folder))
    exec_("--session", "one", "--shell", "--", "head -c 100000 /dev/zero > out/x; mkdir -p work/d; chmod 000 work/d")
    exec_("--session", "two", "--", "true")

    def workspaces(*words: str) -> tuple[int, Any]:
        code = main(["workspaces", *words, "--json"])
        out, _ = capfd.readouterr()
        document = json.loads(out)
        jsonschema.validate(document, load_schema("workspaces" if words[0] == "list" else "workspaces-cleaned"))
        return code, document

    _, listed = workspaces("list")
    assert [row["session"] for row in listed["workspaces"]] == ["one", "two"]
    assert listed["workspaces"][0]["size_bytes"] > 100_000 and not listed["workspaces"][0]["in_use"]
    assert main(["workspaces", "clean"]) == 2 and main(["workspaces", "clean", "--all"]) == 2, "nobody said yes"
    capfd.readouterr()
    assert [row["session"] for row in workspaces("clean", "--keep", "100K", "--dry-run")[1]["removed"]] == ["one"]
    assert workspaces("clean", "--older-than", "1h", "--yes")[1]["removed"] == []
    _, cleaned = workspaces("clean", "--all", "--yes")
    assert [row["session"] for row in cleaned["removed"]] == ["one", "two"]
    assert workspaces("list")[1]["workspaces"] == []
    for wrong in (["--older-than", "soon"], ["--keep", "much"]):
        assert main(["workspaces", "clean", *wrong]) == 2
