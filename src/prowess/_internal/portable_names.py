"""Refuses file names that do not mean the same file on Linux, macOS and Windows.

macOS and Windows take `a/B` and `a/b` for one file, and macOS takes two Unicode spellings of `é` for one. Windows opens
a device for `NUL.txt`, drops dots and spaces at the end of a name, and reads `a:b` as a stream of `a`. So a pack with
such names could replace one of its own files, after a person has looked at another.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from prowess._internal.paths import check_safe_name
from prowess.errors import PackUnsafe, PathEscape

_CONTROL_OR_BACKSLASH = re.compile(r"[\x00-\x1f\x7f\\]")
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*]')
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"]
)


def check_portable_names(paths: Iterable[str]) -> None:
    """Refuses a list of files if one has no portable name, or if two of them would be one file elsewhere. Paths are
    relative, with forward slashes."""
    names = PortableNames()
    for path in paths:
        if not is_plain(path) or not {"", "."}.isdisjoint(path.split("/")):
            raise unsafe_name("path", path, "is not a plain relative path", "Use names such as my-skill/SKILL.md.")
        names.add_file(path)


class PortableNames:
    """Names of a tree so far. Takes one file or folder after another, in time that does not depend on their number."""

    def __init__(self) -> None:
        self._spelling: dict[str, str] = {}  # by the name that all spellings share
        self._files: set[str] = set()
        self._folders: set[str] = {""}

    def add_file(self, path: str) -> None:
        if path in self._files or path in self._folders:
            raise duplicate_name(path)
        self.add_folder(path.rpartition("/")[0])
        self._take_in(path)
        self._files.add(path)

    def add_folder(self, path: str) -> None:
        new: list[str] = []
        while path not in self._folders:
            if path in self._files:
                raise duplicate_name(path)
            new.append(path)
            path = path.rpartition("/")[0]
        for folder in reversed(new):
            self._take_in(folder)
            self._folders.add(folder)

    def _take_in(self, path: str) -> None:
        _check_part(path)
        other = self._spelling.setdefault(_folded(path), path)
        if other != path:
            why = f"differs from {shown_name(other)} only in case or in the spelling of accents"
            raise unsafe_name("case", path, why, "Rename one: macOS and Windows take them for one file.")


def _check_part(path: str) -> None:
    """Checks the last part of a path; the parts before it were checked as folders."""
    name = path.rpartition("/")[2]
    if name.endswith((".", " ")):
        why, hint = "ends with a dot or a space", "Rename it: Windows drops them, so it would be another file."
    elif name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
        why, hint = "has a name that Windows reserves for a device", "Rename it."
    elif odd := _NOT_ON_WINDOWS.search(name):
        why, hint = f"has a {odd[0]} in its name", 'Rename it: Windows does not allow any of < > : " | ? *'
    else:
        return
    raise unsafe_name("name", path, why, hint)


def _folded(path: str) -> str:
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def is_plain(name: str) -> bool:
    """True for a relative path without `..`, a drive letter, a backslash, control characters or bytes that are not
    UTF-8."""
    try:
        check_safe_name(name)
        name.encode()
    except (PathEscape, UnicodeEncodeError):
        return False
    return not _CONTROL_OR_BACKSLASH.search(name)


def duplicate_name(path: str) -> PackUnsafe:
    return unsafe_name("duplicate", path, "occurs twice", "Pack each path once, as a file or as a folder.")


def unsafe_name(what: str, name: str, why: str, hint: str) -> PackUnsafe:
    return PackUnsafe(f"The member {shown_name(name)} {why}.", code=f"pack-unsafe-{what}", hint=hint)


def shown_name(name: str) -> str:
    """Shortens and escapes a name for a message. A hostile name can be very long or contain terminal control codes."""
    return f"{name[:80]!a}" + ("…" if len(name) > 80 else "")
