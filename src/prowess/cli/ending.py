"""What is said when a run has ended: the answer to stdout; where everything is, and what held, to stderr."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

from prowess.agent.session import Session
from prowess.agent.task import Result
from prowess.cli.call_text import one_line, render_doing, seconds
from prowess.cli.live import render_usage
from prowess.cli.run_result import copy_files, describe_isolation, show_notes
from prowess.cli.screen import Screen, count, printable, size
from prowess.workspace.outputs import name_some


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


def show_end(screen: Screen, result: Result, elapsed_s: float, isolation: dict[str, Any] | None) -> None:
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
