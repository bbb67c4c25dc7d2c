"""What a run made, for a person: where it is, how it was isolated, and copies where they were asked for.

What is said when a run has ended: the answer to stdout; where everything is, and what held, to stderr.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from prowess.agent.session import Session
from prowess.agent.task import Result
from prowess.agent.toolkit import Toolkit
from prowess.cli.call_text import one_line, render_doing, seconds
from prowess.cli.live import render_usage
from prowess.cli.screen import Screen, count, printable, size
from prowess.core.values import Outcome
from prowess.errors import ProwessError, WorkspaceError
from prowess.workspace.dirfd import open_file
from prowess.workspace.export import is_named, open_outside
from prowess.workspace.outputs import name_some


def show_end(screen: Screen, kit: Toolkit, outcome: Outcome, copied: list[str]) -> None:
    data = outcome.data
    for warning in data["warnings"]:
        screen.note(f"warning: {printable(warning)}")
    if missing := data.get("missing_dependency"):
        hint = printable(str(missing.get("hint")), lines=True).replace("\n", "\n  ")
        screen.note(f"missing: {printable(str(missing.get('name')))}. {hint}")
    if packages := data.get("dependencies"):
        screen.note(f"packages: {printable(', '.join(packages))}")
    for file in data["output_files"]:
        where = os.path.join(kit.work.root, file["name"])
        screen.note(f"made: {printable(file['name'])}  {size(file['size_bytes'])}  {printable(where)}")
    for path in copied:
        screen.note(f"copied to: {printable(path)}")
    for saved in data["artifact_files"]:
        screen.note(f"saved: artifact://{printable(saved['name'])}@{saved['version']}")
    show_notes(screen, data["isolation"])
    screen.note(f"[{describe(data)} · session {kit.recorder.key.session}]")


def describe(data: dict[str, Any]) -> str:
    """`exit 0 · 40 ms · sandbox (bwrap+seccomp, user 64321, network none)`"""
    isolation = data["isolation"]
    code = data["exit_code"]
    signal = f" (signal {code - 128})" if code is not None and 128 < code <= 128 + 64 else ""
    how = "time-out" if data["timed_out"] else f"exit {code}{signal}"
    ms = data["duration_ms"]
    took = f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"
    return f"{how} · {took} · {describe_isolation(isolation)}"


def describe_isolation(isolation: dict[str, Any]) -> str:
    inside = [isolation["mechanism"], f"user {isolation['uid']}", f"network {isolation['network']}"]
    return f"{isolation['executor']} ({', '.join(inside)})"


def show_notes(screen: Screen, isolation: dict[str, Any]) -> None:
    """Why this isolation and no other. That holds for the machine, not for one run, so only -v and `doctor` say it."""
    for note in isolation["notes"] if screen.verbose else ():
        screen.note(f"isolation: {printable(note)}")


def copy_files(
    root: str,
    names: Sequence[str],
    warnings: list[str],
    *,
    cwd: str,
    folder: str,
    force: bool,
    patterns: Sequence[str] = (),
) -> tuple[list[str], bool]:
    """(copies below `folder`, without the out/ in front; whether that is all of them). `patterns` are the person's own:
    a hidden file that only a model named is not copied."""
    copied: list[str] = []
    whole = True
    for name in names:
        below = name.removeprefix("out/")
        target = os.path.normpath(os.path.join(cwd, folder, below))
        try:
            if not is_named(name, patterns):
                raise WorkspaceError(_HIDDEN, op="write", code="hidden-file")
            with (
                open_file(root, name) as fd,
                open(os.dup(fd), "rb") as made,
                open_outside(cwd, folder, below, force=force, make=True, mode=0o666) as out,
            ):
                shutil.copyfileobj(made, out)
            copied.append(target)
        except (OSError, ProwessError) as error:
            whole = False
            why = str(getattr(error, "strerror", None) or error)
            warnings.append(why if why.startswith(target) else f"{target} was not written: {why}")
    return copied, whole


_HIDDEN = "its name begins with a dot, and you have not named it. Copy it yourself from the workspace if you want it."


def save_files(screen: Screen, session: Session, result: Result, *, cwd: str, given: dict[str, Any]) -> bool:
    """While the workspace is open: say what was made, and copy it where that was asked for. False: not all of it."""
    root = session.kit.work.root
    if not screen.is_json:
        for file in result.files:
            where = os.path.join(root, file["name"])
            screen.note(f"made: {printable(file['name'])}  {size(file['size_bytes'])}  {printable(where)}")
        if result.left_out:
            screen.note(f"left out: {printable(name_some(result.left_out))}, hidden files that no pattern named")
    if given["output_dir"] is None:
        return True
    warnings: list[str] = []
    names = [file["name"] for file in result.files]
    where = {"cwd": cwd, "folder": given["output_dir"], "force": given["force"]}
    copied, whole = copy_files(root, names, warnings, **where)
    for path in copied:
        screen.note(f"copied to: {printable(path)}")
    for warning in warnings:
        screen.note(f"warning: {printable(warning)}")
    return whole


def print_answer(text: str) -> None:
    """As it is, for whoever reads it; on a terminal nothing in it can move the cursor or change the screen."""
    sys.stdout.write((printable(text, lines=True) if sys.stdout.isatty() else text).rstrip("\n") + "\n")
    sys.stdout.flush()


def show_run_end(screen: Screen, result: Result, elapsed_s: float, isolation: dict[str, Any] | None) -> None:
    """`[answer · 1 call failed · 3.2 s · 1,204 tokens in, 56 out · sandbox (bwrap+seccomp, network none)]`"""
    if isolation:
        show_notes(screen, isolation)
    held = describe_isolation(isolation) if isolation else ""
    failed = f"{count(result.failed, 'call')} failed" if result.failed else ""
    ended = f"{result.stop_reason}: {result.code}" if result.code else result.stop_reason
    parts = [ended, failed, seconds(elapsed_s), render_usage(result.usage), held]
    screen.note(f"[{' · '.join(filter(None, parts))}]")


def show_record(screen: Screen, session: str, run: str = "") -> None:
    parts = [f"session {session}", *([f"run {run}"] if run else []), f"prowess sessions show {shlex.quote(session)}"]
    screen.note(printable(f"[{' · '.join(parts)}]"))


def show_waiting(screen: Screen, result: Result, command: str, answers: Callable[[str], str]) -> None:
    """Which call waits for a person, how to answer it from anywhere, and how to go on."""
    for call in result.waiting:
        screen.note(f"Waiting for approval: {one_line(call.tool)}, {render_doing(call)}")
        screen.note(f"  to answer: {printable(answers(call.id))}")
    screen.note(f"If you want it: {printable(command)}")
