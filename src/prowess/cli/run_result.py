"""What a run made, for a person: where it is, how it was isolated, and copies where they were asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from prowess.agent.toolkit import Kit
from prowess.cli.screen import Screen, printable, size
from prowess.core.values import Outcome
from prowess.errors import ProwessError, WorkspaceError
from prowess.workspace.dirfd import open_file
from prowess.workspace.export import is_named, open_outside


def show_end(screen: Screen, kit: Kit, outcome: Outcome, copied: list[str]) -> None:
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
