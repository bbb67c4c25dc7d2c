"""What could be meant by what was typed so far: commands, names of skills, files. Pure, but for looking at folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_COMMAND = re.compile(r"/([\w:-]*)")
_ARGUMENT = re.compile(r"/(?:load|unload)\s+(\S*)")
_DOLLAR = re.compile(r"(?<!\S)\$([\w-]*)$")
_FILE = re.compile(r"""(?<!\S)@(?:"([^"]*)|([^\s"]*))$""")
_MOST = 100


class Completions(NamedTuple):
    """`length` characters before the cursor would be replaced by one of `texts`."""

    length: int
    texts: tuple[str, ...]


def complete(before: str, *, commands: Sequence[str], skills: Sequence[str], cwd: str, home: str) -> Completions:
    """`before` is the line up to the cursor."""
    if found := _COMMAND.fullmatch(before):
        names = [f"/{name}" for name in commands]
        names += [f"/skill:{name}" if name in commands else f"/{name}" for name in skills]
        return _begin(f"/{found[1]}", names)
    if found := _ARGUMENT.fullmatch(before):
        return _begin(found[1], skills)
    if found := _DOLLAR.search(before):
        return _begin(f"${found[1]}", [f"${name}" for name in skills])
    if found := _FILE.search(before):
        quoted = found[1] is not None
        return _files(found[1] if quoted else found[2], cwd, home, len(found[0]))
    return Completions(0, ())


def _begin(typed: str, names: Iterable[str]) -> Completions:
    fitting = sorted({name for name in names if name.startswith(typed)})
    return Completions(len(typed), tuple(fitting[:_MOST]))


def _files(typed: str, cwd: str, home: str, length: int) -> Completions:
    """Names with spaces come with quotes; one of a folder stays open for what is in it."""
    folder, slash, start = typed.rpartition("/")
    place = f"{home}{folder[1:]}" if folder == "~" or folder.startswith("~/") else folder or slash
    try:
        with os.scandir(os.path.join(cwd, place)) as entries:
            found = [
                (entry.name, entry.is_dir())
                for entry in entries
                if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith("."))
            ]
    except (OSError, ValueError):  # no such folder, or none that we may read
        return Completions(0, ())
    texts: list[str] = []
    for name, is_folder in sorted(found)[:_MOST]:
        if not name.isprintable():
            continue
        path = f"{folder}{slash}{name}" + ("/" if is_folder else "")
        quoted = f'@"{path}' + ("" if is_folder else '"')
        texts.append(quoted if " " in path or "'" in path else f"@{path}")
    return Completions(length, tuple(texts))
