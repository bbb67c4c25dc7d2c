"""Shows the result of a run: the answer on stdout; files, record and isolation on stderr. Copies files on request."""

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
    """Renders `exit 0 · 40 ms · sandbox (bwrap+seccomp, user 64321, network none)`."""
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
    """Shows why this isolation was chosen. The reason is the machine, not the run, so only -v and `doctor` show it."""
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
    """Copies files to `folder`, without the out/ in front. Returns the copies, and True when all files were copied.

    `patterns` are the person's own: a hidden file that only a model named is not copied.
    """
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
    """Shows and copies the files of a run, while its workspace is open. False when not all could be copied."""
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
    """Prints the answer unchanged. On a terminal it is escaped, so that it cannot move the cursor."""
    sys.stdout.write((printable(text, lines=True) if sys.stdout.isatty() else text).rstrip("\n") + "\n")
    sys.stdout.flush()


def show_run_end(screen: Screen, result: Result, elapsed_s: float, isolation: dict[str, Any] | None) -> None:
    """Shows `[answer · 1 call failed · 3.2 s · 1,204 tokens in, 56 out · sandbox (bwrap+seccomp, network none)]`."""
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
    """Shows each call that waits for approval, the command to answer it, and the command to go on."""
    for call in result.waiting:
        screen.note(f"Waiting for approval: {one_line(call.tool)}, {render_doing(call)}")
        screen.note(f"  to answer: {printable(answers(call.id))}")
    screen.note(f"If you want it: {printable(command)}")
