"""Ctrl-C once ends a run in order, more of it ends the command at once: the terminal is as it was, nothing of it goes
on, the record is whole, and the session can be taken up."""

from __future__ import annotations

import json
import os
import pty
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from prowess.cli.main import main
from terminals import Terminal

LOAD = {"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}
STUBBORN = "trap '' INT TERM HUP QUIT; while :; do sleep 967.5; done"
INTERRUPTED = (130, -2)  # ours, or, when more of it came while we were leaving, the signal's: a shell says 130 to both


def run_of(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "skill_run", "args": {"skill": "demo", "command": command}}]}


class Place:
    """A project, and a session in it."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.session, self._capture = folder, f"s-{secrets.token_hex(6)}", capture

    def start(self, *words: str, replies: Sequence[Any]) -> Terminal:
        return Terminal(*words, *self._session(replies), cwd=self.folder)

    def check(self, terminal: Terminal, code: int, processes: dict[int, str]) -> None:
        assert code in INTERRUPTED, terminal.plain
        assert terminal.modes_left == terminal.modes, "what is typed is seen again, and lines are lines"
        assert terminal.shown.rfind(b"\x1b[?25l") <= terminal.shown.rfind(b"\x1b[?25h"), "the cursor is back"
        assert "Traceback" not in terminal.plain and "Exception" not in terminal.plain
        wait_until(lambda: not still_there(processes))
        assert "1 session · 1 run · all valid" in self.prowess("runs", "verify", "--all")
        session = self._session([{"text": "Taken up."}])
        assert self.prowess("run", "--resume", *session, "--on-ask", "deny").startswith("Taken up.\n")
        assert self.prowess("runs", "verify", "--all") == "1 session · 2 runs · all valid\n", "copies are whole again"

    def prowess(self, *words: str) -> str:
        self._capture.readouterr()
        code = main(["-C", str(self.folder), *words])
        said = "".join(self._capture.readouterr())
        assert code == 0, said
        return said

    def _session(self, replies: Sequence[Any]) -> list[str]:
        (self.folder / "script.json").write_text(json.dumps(replies), encoding="utf-8")
        return ["--root", "skills", "--model", "scripted:script.json", "--session", self.session]


@pytest.fixture
def place(tmp_path: Path, make_skill: Any, capfd: pytest.CaptureFixture[str]) -> Place:
    make_skill(tmp_path / "skills" / "demo")
    (tmp_path / ".agent").mkdir()
    return Place(tmp_path, capfd)


def descendants(pid: int) -> dict[int, str]:
    """Processes that came of it -> when each began, so that a number which is given again is not taken for it."""
    found = {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := stat_of(int(name)))}
    ours = {pid}
    while more := {child for child, stat in found.items() if int(stat[1]) in ours} - ours:
        ours |= more
    return {each: found[each][19] for each in ours - {pid}}


def still_there(processes: dict[int, str]) -> list[int]:
    now = {pid: stat for pid in processes if (stat := stat_of(pid))}
    return [pid for pid, stat in now.items() if stat[19] == processes[pid] and stat[0] != "Z"]


def stat_of(pid: int) -> list[str]:
    """From its state on; nothing when it is gone."""
    try:
        text = Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def wait_until(what: Any) -> None:
    end = time.monotonic() + GUARD_S
    while not what():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def interrupt(terminal: Terminal) -> int:
    """As an impatient person does, until it has ended: two at the same moment would be one to the kernel."""
    terminal.type("\x03")
    while terminal.process.poll() is None:
        terminal.find("what is never shown", after=0, wait_s=0.03)
        terminal.type("\x03")
    return terminal.finish()


def wait_for_script(terminal: Terminal) -> dict[int, str]:
    """Until it is deaf to signals; its processes, and those around it."""
    deaf = "0000000000004007"  # INT, TERM, HUP and QUIT among the signals that it ignores
    wait_until(lambda: any(ignores(pid, deaf) for pid in descendants(terminal.process.pid)))
    return descendants(terminal.process.pid)


def ignores(pid: int, signals: str) -> bool:
    try:
        status = Path("/proc", str(pid), "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    ignored = next((line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), "0")
    return int(ignored, 16) & int(signals, 16) == int(signals, 16) and "bash" in status.splitlines()[0]


@pytest.mark.needs("isolation")
def test_a_script_that_does_not_want_to_end_is_ended_in_order(place: Place) -> None:
    terminal = place.start("run", "go", "--executor", "sandbox", replies=[LOAD, run_of(STUBBORN)])
    processes = wait_for_script(terminal)
    terminal.type("\x03")
    code = terminal.finish()
    assert code == 130 and not still_there(processes), "it waits until nothing is left"
    assert "[interrupted]: It was interrupted and has ended." in terminal.plain
    place.check(terminal, code, processes)


@pytest.mark.parametrize("executor", [pytest.param("sandbox", marks=pytest.mark.needs("isolation")), "local"])
def test_a_run_whose_script_does_not_want_to_end(place: Place, executor: str) -> None:
    words = ["run", "go", "--executor", executor, "--yes", "skill_run"]
    terminal = place.start(*words, replies=[LOAD, run_of(STUBBORN)])
    processes = wait_for_script(terminal)
    code = interrupt(terminal)
    assert "Interrupted. To go on: prowess run" in terminal.plain
    place.check(terminal, code, processes)


def test_a_run_that_asks_a_person(place: Place) -> None:
    terminal = place.start("run", "go", "--executor", "local", replies=[LOAD, run_of("echo ran")])
    terminal.wait_for("[NO]")
    processes = descendants(terminal.process.pid)
    code = interrupt(terminal)
    assert "echo ran: ok" not in terminal.plain
    place.check(terminal, code, processes)


def test_a_run_whose_model_asks_a_person(place: Place) -> None:
    ask = {"calls": [{"tool": "ask_user", "args": {"question": "Which?"}}]}
    terminal = place.start("run", "go", replies=[ask])
    terminal.wait_for("(empty: no answer): ")
    place.check(terminal, interrupt(terminal), {})


@pytest.mark.needs("isolation")
def test_a_chat_whose_script_does_not_want_to_end(place: Place) -> None:
    terminal = place.start("chat", "--executor", "sandbox", replies=[LOAD, run_of(STUBBORN)])
    terminal.wait_for(">")
    terminal.type("go\r")
    processes = wait_for_script(terminal)
    place.check(terminal, interrupt(terminal), processes)


def test_a_chat_that_asks_a_person(place: Place) -> None:
    terminal = place.start("chat", "--executor", "local", replies=[LOAD, run_of("echo ran")])
    terminal.wait_for(">")
    terminal.type("go\r")
    terminal.wait_for("[NO]")
    place.check(terminal, interrupt(terminal), {})


HELD = """
import asyncio, os, signal, time
from prowess.core.events import TextDelta
class Held:
    name = "held"
    async def reply(self, messages, tools, *, on_delta, **options):
        on_delta(TextDelta(text="Begun."))
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGINT)
            if os.environ.get("STUCK"):
                print("stuck", flush=True)
                while True:
                    time.sleep(0.01)
            raise
def make(name, *, environ, params):
    return Held()
"""


@pytest.fixture
def held(tmp_path: Path) -> dict[str, str]:
    """Model of a package: the first Ctrl-C comes while it answers, the second at the moment when that is cancelled."""
    info = tmp_path / "site" / "held-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: held\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[prowess.models]\nheld = held:make\n", encoding="utf-8")
    (tmp_path / "site" / "held.py").write_text(HELD, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path / "site")}


@pytest.mark.parametrize("command", ["chat", "run"])
def test_two_at_one_moment(place: Place, held: dict[str, str], command: str) -> None:
    """The second one came in the middle of a step, and its `finally` waited: the chat went on."""
    words = [command, *(["go"] if command == "run" else []), "--root", "skills", "--model", "held"]
    terminal = Terminal(*words, "--session", place.session, cwd=place.folder, environ=held)
    if command == "chat":
        terminal.wait_for(">")
        terminal.type("go\r")
    code = terminal.finish()
    assert code == 130 and "cut off" not in terminal.plain and "Cancelled." not in terminal.plain
    place.check(terminal, code, {})


def test_a_third_ends_a_step_that_does_not_end(place: Place, held: dict[str, str]) -> None:
    words = ["run", "go", "--root", "skills", "--model", "held", "--session", place.session]
    terminal = Terminal(*words, cwd=place.folder, environ={**held, "STUCK": "1"})
    terminal.wait_for("stuck")
    terminal.type("\x03")
    place.check(terminal, terminal.finish(), {})


ONE_STEP = """
import asyncio, os, signal
from prowess.cli.interrupts import run_interruptible
async def work():
    os.kill(os.getpid(), signal.SIGINT)
    return "done"
with asyncio.Runner() as runner:
    try:
        print(run_interruptible(runner, work()))
    except KeyboardInterrupt:
        print("interrupted")
    print(run_interruptible(runner, asyncio.sleep(0, "and goes on")))
os.kill(os.getpid(), signal.SIGINT)
"""


def test_one_in_the_last_step_is_not_lost_and_ends_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_STEP], capture_output=True, text=True, timeout=GUARD_S)
    assert done.stdout == "interrupted\nand goes on\n", done.stderr
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr, "later ones are Python's again"


STOPPING = """
import os, signal, sys
from prowess.cli.live import Display
class Terminal:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def write(self, text):
        if "\\x1b[?25h" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return self.stream.write(text)
sys.stderr = Terminal(sys.stderr)
display = Display()
display.start()
try:
    display.stop()
    print("lost")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_one_while_the_display_is_being_stopped_is_not_lost(tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path, program=["-c", STOPPING])
    assert terminal.finish() == 0 and "interrupted" in terminal.plain, terminal.plain
    assert 0 <= terminal.shown.rfind(b"\x1b[?25l") < terminal.shown.rfind(b"\x1b[?25h")


UNNOTICED = """
import signal, sys, threading
from prowess.cli.main import main
def interrupt():
    open(sys.argv[1]).read()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
sys.exit(main(sys.argv[2:]))
"""


def test_one_that_no_system_call_was_cut_off_by_ends_a_question(place: Place) -> None:
    """It comes to another thread, as one that comes right before the read does: the read goes on."""
    fifo = place.folder / "now"
    os.mkfifo(fifo)
    words = [str(fifo), "install", "./skills", "--to", "project"]
    terminal = Terminal(*words, cwd=place.folder, program=["-c", UNNOTICED])
    terminal.wait_for("[y/N]: ")
    fifo.write_text("", encoding="utf-8")
    assert terminal.finish() == 130
    assert "Nothing was changed.\r\nInterrupted.\r\n" in terminal.plain


def test_the_cursor_is_back_wherever_an_interrupt_came() -> None:
    """Also where nothing of ours was left to bring it back."""
    ours, theirs = pty.openpty()
    code = "from prowess.cli.live import Display; Display().__enter__(); raise KeyboardInterrupt"
    environ = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen([sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other side is closed
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    child.wait(GUARD_S)
    assert b"\x1b[?25l" in shown and shown.rfind(b"\x1b[?25l") < shown.rfind(b"\x1b[?25h"), shown


def test_one_more_while_leaving_finds_the_cursor_back(tmp_path: Path) -> None:
    """A Ctrl-C that comes right where the display was to be stopped leaves it as it is: leaving stops it."""
    code = "import os, signal; from prowess.cli.call import leave; from prowess.cli.live import Display\n"
    code += "Display().start(); leave(); os.kill(os.getpid(), signal.SIGINT)"
    terminal = Terminal(cwd=tmp_path, program=["-c", code])
    assert terminal.finish() == -signal.SIGINT
    assert 0 <= terminal.shown.rfind(b"\x1b[?25l") < terminal.shown.rfind(b"\x1b[?25h")
