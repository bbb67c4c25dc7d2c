"""Turns the ways in which a model writes a command into the one line that `bash -c` runs, before policy judges it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

_BASH = re.compile(r"""\s*+bash\s++-l?c\s++(?:'([^']*+)'|"([^"$`\\!]*+)")\s*+""")
_PIECE = re.compile(r"""[ \t]++|[^\s'"\\;|&<>()`#$]++|\$(?!')|'[^']*+'|"(?:[^"\\]|\\.)*"|\\.""")


def as_one_line(given: Mapping[str, Any], words: Any) -> dict[str, Any]:
    """Returns the arguments with their command as it is run: words become a line, `bash -c '…'` becomes what is quoted,
    and the `words` of `args` are quoted and added, if the line starts one program."""
    line = dict(given)
    command = _read(given.get("command"))
    if command is None:
        return line
    command = _unwrap(command)
    if _are_texts(words) and not given.get("script") and _starts_one_program(command):
        del line["args"]
        command = _unwrap(f"{command} {shlex.join(words)}")
    line["command"] = command
    return line


def _unwrap(command: str) -> str:
    """Returns what the text in `bash -c '…'` is, at any depth; other commands as they are."""
    while quoted := _BASH.fullmatch(command):
        command = quoted[1] or quoted[2] or ""
    return command


def _read(command: Any) -> str | None:
    """Command as a text. None if it is neither a text nor words."""
    if not _are_texts(command):
        return command if isinstance(command, str) else None
    if len(command) == 3 and command[0] == "bash" and command[1] in ("-c", "-lc"):
        return command[2]
    return shlex.join(command)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _starts_one_program(command: str) -> bool:
    """True for a line without shell syntax but quotes and variables."""
    at = 0
    while at < len(command):
        piece = _PIECE.match(command, at)
        if piece is None:
            return False
        at = piece.end()
    return bool(command.strip())
