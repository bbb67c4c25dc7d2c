"""Shows the result of a run: the answer on stdout; files, record and isolation on stderr."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prowess._internal.text import name_some, one_line, render_seconds
from prowess.cli.app import Call
from prowess.cli.screen import Screen, count, printable, size
from prowess.cli.session_options import command_to_answer, command_to_go_on
from prowess.core.values import Outcome, Usage
from prowess.records.call_text import render_doing
from prowess.runtime.services.files import copy_files

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Result, Session, Toolkit


def show_end(screen: Screen, kit: Toolkit, outcome: Outcome, copied: Sequence[str]) -> None:
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
    names = [file["name"] for file in result.files]
    copies = copy_files(root, names, cwd=cwd, folder=given["output_dir"], force=given["force"])
    for path in copies.paths:
        screen.note(f"copied to: {printable(path)}")
    for warning in copies.warnings:
        screen.note(f"warning: {printable(warning)}")
    return not copies.warnings


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
    parts = [ended, failed, render_seconds(elapsed_s), render_usage(result.usage), held]
    screen.note(f"[{' · '.join(filter(None, parts))}]")


def render_usage(usage: Usage) -> str:
    """Renders `1,204 tokens in (900 cached), 56 out · cost 0.0042`; empty when nothing was counted."""
    if not usage.input and not usage.output:
        return ""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    cost = f" · cost {usage.cost:.4f}" if usage.cost is not None else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out{cost}"


def show_record(screen: Screen, session: str, run: str = "") -> None:
    parts = [f"session {session}", *([f"run {run}"] if run else []), f"prowess sessions show {shlex.quote(session)}"]
    screen.note(printable(f"[{' · '.join(parts)}]"))


def show_waiting(call: Call, given: dict[str, Any], result: Result, nobody: Sequence[str]) -> None:
    """Shows each call that waits for approval, the command to answer it, and the command to go on.

    `nobody` are the tools for which nobody could be asked.
    """
    note, session = call.screen.note, result.session
    for waiting in result.waiting:
        note(f"Waiting for approval: {printable(one_line(waiting.tool))}, {render_doing(waiting)}")
        note(f"  to answer: {printable(command_to_answer(call, waiting.id, 'yes', session))}")
    tools = nobody or [waiting.tool for waiting in result.waiting]
    note(f"If you want it: {printable(command_to_go_on(call, given, session, '--resume', yes=tools))}")


def note_unredacted_secrets(screen: Screen, kit: Toolkit) -> None:
    if kit.unredacted_secrets and not screen.is_json:
        names = ", ".join(kit.unredacted_secrets)
        screen.note(f"warning: too short to be hidden from what is shown and recorded: {names}")
