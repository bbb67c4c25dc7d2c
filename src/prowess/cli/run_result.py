"""Shows the result of a run: the answer on stdout; files, record and isolation on stderr."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prowess._internal.text import name_some, one_line, render_seconds
from prowess.cli.app import Call
from prowess.cli.screen import Screen, count, printable, size
from prowess.cli.session_options import command_to_answer, command_to_go_on
from prowess.core.values import Outcome, SessionKey, Usage
from prowess.records.call_text import render_doing

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Result, RunFile, Session, Toolkit


def show_end(screen: Screen, kit: Toolkit, outcome: Outcome, copied: Sequence[str]) -> None:
    """Shows what `prowess exec` has to say beside the output of the command."""
    data = outcome.data
    show_texts(screen, "warning", data["warnings"])
    _show_dependencies(screen, data)
    _show_made(screen, map(kit.work.find_output, data["output_files"]))
    show_texts(screen, "copied to", copied)
    for saved in data["artifact_files"]:
        name = printable(saved["name"])
        screen.note(f"saved: artifact://{name}@{saved['version']}")
    show_notes(screen, data["isolation"])
    end = describe(data)
    session = kit.recorder.key.session
    screen.note(f"[{end} · session {session}]")


def show_texts(screen: Screen, label: str, texts: Iterable[str]) -> None:
    """Shows `label: text` for each of the texts, escaped."""
    for text in texts:
        shown = printable(text)
        screen.note(f"{label}: {shown}")


def _show_dependencies(screen: Screen, data: Mapping[str, Any]) -> None:
    missing = data.get("missing_dependency")
    if missing:
        name = printable(str(missing.get("name")))
        hint = printable(str(missing.get("hint")), lines=True)
        indented = hint.replace("\n", "\n  ")
        screen.note(f"missing: {name}. {indented}")
    packages = data.get("dependencies")
    if packages:
        show_texts(screen, "packages", [", ".join(packages)])


def _show_made(screen: Screen, files: Iterable[RunFile]) -> None:
    for file in files:
        shown = printable(file.name)
        where = printable(str(file.path))
        written = size(file.size_bytes)
        screen.note(f"made: {shown}  {written}  {where}")


def describe(data: dict[str, Any]) -> str:
    """Renders `exit 0 · 40 ms · sandbox (bwrap+seccomp, user 64321, network none)`."""
    ended = _ended(data)
    ms = data["duration_ms"]
    took = f"{ms} ms"
    if ms >= 1000:
        took = f"{ms / 1000:.1f} s"
    isolation = describe_isolation(data["isolation"])
    return f"{ended} · {took} · {isolation}"


def _ended(data: dict[str, Any]) -> str:
    if data["timed_out"]:
        return "time-out"
    code = data["exit_code"]
    if code is None or not 128 < code <= 128 + 64:
        return f"exit {code}"
    return f"exit {code} (signal {code - 128})"


def describe_isolation(isolation: dict[str, Any]) -> str:
    """Renders `sandbox (bwrap+seccomp, user 64321, network none)`."""
    mechanism = isolation["mechanism"]
    user = isolation["uid"]
    network = isolation["network"]
    return f"{isolation['executor']} ({mechanism}, user {user}, network {network})"


def show_notes(screen: Screen, isolation: dict[str, Any]) -> None:
    """Shows why this isolation was chosen. The reason is the machine, not the run, so only -v and `doctor` show it."""
    if screen.verbose:
        show_texts(screen, "isolation", isolation["notes"])


def save_files(screen: Screen, session: Session, result: Result, *, cwd: str, given: dict[str, Any]) -> bool:
    """Shows and copies the files of a run, while its workspace is open. False when not all could be copied."""
    root = session.kit.work.root
    if not screen.is_json:
        _show_made(screen, result.files)
        if result.left_out:
            names = printable(name_some(result.left_out))
            screen.note(f"left out: {names}, hidden files that no pattern named")
    folder = given["output_dir"]
    if folder is None:
        return True
    made = [file.name for file in result.files]
    from prowess.runtime.services.files import copy_files

    searched = session.kit.work.options.searched
    copies = copy_files(root, made, cwd=cwd, folder=folder, force=given["force"], searched=searched)
    show_texts(screen, "copied to", copies.paths)
    show_texts(screen, "warning", copies.notes)
    return not copies.warnings


def print_answer(text: str) -> None:
    """Prints the answer unchanged. On a terminal it is escaped, so that it cannot move the cursor."""
    if sys.stdout.isatty():
        text = printable(text, lines=True)
    whole_lines = text.rstrip("\n") + "\n"
    sys.stdout.write(whole_lines)
    sys.stdout.flush()


def show_run_end(screen: Screen, result: Result, elapsed_s: float, isolation: dict[str, Any] | None) -> None:
    """Shows `[answer · 1 call failed · 3.2 s · 1,204 tokens in, 56 out · sandbox (bwrap+seccomp, network none)]`."""
    ended = result.stop_reason
    if result.code:
        ended = f"{ended}: {result.code}"
    parts = [ended]
    if result.failed:
        calls = count(result.failed, "call")
        parts.append(f"{calls} failed")
    parts.append(render_seconds(elapsed_s))
    usage = render_usage(result.usage)
    if usage:
        parts.append(usage)
    if isolation:
        show_notes(screen, isolation)
        parts.append(describe_isolation(isolation))
    end = " · ".join(parts)
    screen.note(f"[{end}]")


def render_usage(usage: Usage) -> str:
    """Renders `1,204 tokens in (900 cached), 56 out · cost 0.0042`; empty when nothing was counted."""
    if not usage.input and not usage.output:
        return ""
    text = f"{usage.input:,} tokens in"
    if usage.cached:
        text += f" ({usage.cached:,} cached)"
    text += f", {usage.output:,} out"
    if usage.cost is not None:
        text += f" · cost {usage.cost:.4f}"
    return text


def show_record(call: Call, session: str, run: str = "") -> None:
    """Shows `[session s-1 · run r-1 · prowess sessions show s-1]`."""
    parts = [f"session {session}"]
    if run:
        parts.append(f"run {run}")
    words = ["prowess", "sessions", "show", *call.where(store=True), session]
    parts.append(shlex.join(words))
    record = " · ".join(parts)
    call.screen.note(printable(f"[{record}]"))


def show_waiting(call: Call, given: dict[str, Any], result: Result, nobody: Sequence[str]) -> None:
    """Shows each call that waits for approval, the command to answer it, and the command to go on.

    `nobody` are the tools for which nobody could be asked.
    """
    note = call.screen.note
    session = result.session
    for waiting in result.waiting:
        tool = printable(one_line(waiting.tool))
        doing = render_doing(waiting)
        note(f"Waiting for approval: {tool}, {doing}")
    for question in result.questions:
        answer = command_to_answer(call, question, SessionKey(session=session))
        note(f"  to answer: {printable(answer)}")
    tools = nobody or [waiting.tool for waiting in result.waiting]
    command = command_to_go_on(call, given, session, "--resume", yes=tools)
    note(f"If you want it: {printable(command)}")


def note_unredacted_secrets(screen: Screen, kit: Toolkit) -> None:
    if screen.is_json or not kit.unredacted_secrets:
        return
    names = ", ".join(kit.unredacted_secrets)
    screen.note(f"warning: too short to be hidden from what is shown and recorded: {names}")
