"""What a host does that thinks nothing of it: it waits for the end of a stream, opens what is called like a file, kills
the process that it started. Only the controls do so; by this, what is tried against the others is shown to be real."""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

from escapes.tiers import BareWorkspace
from prowess.core.ports import Program
from prowess.workspace.limits import MIB

SHORT_S, LONG_S = 1.0, 10.0


def still_there_after(workspace: BareWorkspace, program: Program, seconds: float) -> bool:
    """Whether it goes on, with nobody to stop it."""
    process = workspace.start(program)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    return False


def kill_the_command(workspace: BareWorkspace, program: Program) -> None:
    """As soon as it has said something: that one, and not what it has started."""
    process = workspace.start(program, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.stdout.close()
    process.wait()


def keeps_all_output(workspace: BareWorkspace, program: Program) -> int:
    """In memory, until it is over, which it never is; here, until it is too much."""
    process = workspace.start(program)
    assert process.stdout is not None
    kept, until = bytearray(), time.monotonic() + LONG_S
    while len(kept) < 96 * MIB and time.monotonic() < until:
        kept += process.stdout.read(1 << 20)
    process.kill()
    process.communicate()
    return len(kept)


def on_terminal(workspace: BareWorkspace, program: Program) -> bytes:
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = workspace.start(program, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), **streams)
    os.close(theirs)
    process.wait(LONG_S)
    said = os.read(ours, 1 << 16)
    os.close(ours)
    return said


def shown_on(terminal: int) -> str:
    """What has come from the other side by now."""
    try:
        return os.read(terminal, 1 << 12).decode("utf-8", "replace")
    except BlockingIOError:
        return ""


def collected(root: str, pattern: str) -> str:
    """Whatever is called like a file, or like a folder with one of ours in it."""
    found = [path / "credentials" if path.is_dir() else path for path in Path(root).glob(pattern)]
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in found if path.is_file())


def waits_for_a_fifo(path: str) -> bool:
    reader = subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1]).read()", path])
    try:
        reader.wait(SHORT_S)
    except subprocess.TimeoutExpired:
        reader.kill()
        reader.wait()
        return True
    return False


def reads_what_changes(workspace: BareWorkspace, program: Program, path: str, secret: str) -> bool:
    """It looks whether that is a link, and opens it: two steps, and something happens between them."""
    process = workspace.start(program)
    assert process.stdout is not None
    process.stdout.readline()
    seen, until = False, time.monotonic() + LONG_S
    while not seen and time.monotonic() < until:
        try:
            if not os.path.islink(path):
                with open(path, encoding="utf-8") as file:
                    seen = secret in file.read()
        except OSError:
            continue
    process.kill()
    process.communicate()
    return seen


def fails_to_remove(path: str) -> str:
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError) as error:
        return type(error).__name__
    return ""


def memory_kib() -> int:
    """The most that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
