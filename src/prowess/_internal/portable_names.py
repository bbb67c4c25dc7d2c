"""Refuses file names that do not mean the same file on Linux, macOS and Windows.

macOS and Windows take `a/B` and `a/b` for one file, and macOS takes two Unicode spellings of `é` for one. Windows opens
a device for `NUL.txt`, drops dots and spaces at the end of a name, and reads `a:b` as a stream of `a`. So a pack with
such names could replace one of its own files, after a person has looked at another.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from prowess._internal.paths import check_safe_name
from prowess.errors import PackUnsafe, PathEscape

_CONTROL_OR_BACKSLASH = re.compile(r"[\x00-\x1f\x7f\\]")
_USUAL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*]')
_NOT_IN_PLAIN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_GIT_NAMES = frozenset([".git", "git~1"])
_GIT_PARTS = frozenset(["config", "commondir", "hooks", "objects", "refs"])  # one of them stands beside HEAD
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


def is_portable_folder(name: str) -> bool:
    """True for a visible name that one folder can have on every system, and that no program takes for an option."""
    try:
        check_portable_names([f"{name}/file"])
    except PackUnsafe:
        return False
    if name[:1] in ("", ".", "-") or "/" in name:
        return False
    return name.isprintable()


def find_git_folder(paths: Iterable[str]) -> str | None:
    """Returns a file of a folder that git takes for a repository, on some system: `.GIT/`, or HEAD beside a `config`.
    Git runs programs that the configuration of such a folder names, also for a mere prompt of a shell."""
    folded = {_folded(_printable(path)): path for path in paths}
    heads: set[str] = set()
    for short in folded:
        folder, _, name = short.rpartition("/")
        if name == "head":
            heads.add(folder)
    for short, path in folded.items():
        parts = short.split("/")
        if not _GIT_NAMES.isdisjoint(parts):
            return path
        if not heads:
            continue
        for depth, part in enumerate(parts):
            if part in _GIT_PARTS and "/".join(parts[:depth]) in heads:
                return path
    return None


def _printable(path: str) -> str:
    """Returns a path without invisible characters: macOS skips some of them when it compares names."""
    if path.isprintable():
        return path
    return "".join(filter(str.isprintable, path))


class PortableNames:
    """Names of a tree so far. Takes one file or folder after another, in time that does not depend on their number."""

    def __init__(self) -> None:
        self._spelling: dict[str, str] = {}  # by the name that all spellings share
        self._files: set[str] = set()
        self._folders: set[str] = {""}

    @property
    def folder_count(self) -> int:
        return len(self._folders) - 1

    def add_file(self, path: str) -> None:
        """Takes a file and the folders above it. PackUnsafe if it cannot have that name."""
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
    _, _, name = path.rpartition("/")
    if name.endswith((".", " ")):
        hint = "Rename it: Windows drops them, so it would be another file."
        raise unsafe_name("name", path, "ends with a dot or a space", hint)
    stem, _, _ = name.partition(".")
    if stem.rstrip(" ").lower() in _DEVICES:
        raise unsafe_name("name", path, "has a name that Windows reserves for a device", "Rename it.")
    odd = _NOT_ON_WINDOWS.search(name)
    if odd:
        hint = 'Rename it: Windows does not allow any of < > : " | ? *'
        raise unsafe_name("name", path, f"has a {odd[0]} in its name", hint)


def _folded(path: str) -> str:
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def plain_name(text: str) -> str:
    """Returns a file name for any text: the text itself if it is plain, else its letters and a mark of it."""
    name = _NOT_IN_PLAIN_NAME.sub("-", text)
    if name == text and len(text) <= 100:
        return name
    data = text.encode("utf-8", "surrogatepass")
    mark = hashlib.sha256(data).hexdigest()[:8]
    return f"{name[:100]}-{mark}"


def is_plain(name: str) -> bool:
    """True for a relative path without `..`, a drive letter, a backslash, control characters or bytes that are not
    UTF-8."""
    if _USUAL.fullmatch(name):  # nearly every name
        return True
    try:
        check_safe_name(name)
        name.encode()
    except (PathEscape, UnicodeEncodeError):
        return False
    return not _CONTROL_OR_BACKSLASH.search(name)


def duplicate_name(path: str) -> PackUnsafe:
    return unsafe_name("duplicate", path, "occurs twice", "Pack each path once, as a file or as a folder.")


def unsafe_name(what: str, name: str, why: str, hint: str) -> PackUnsafe:
    """Makes the error about a member. `what` is the end of its code."""
    message = f"The member {shown_name(name)} {why}."
    return PackUnsafe(message, code=f"pack-unsafe-{what}", hint=hint)


def shown_name(name: str) -> str:
    """Shortens and escapes a name for a message. A hostile name can be very long or contain terminal control codes."""
    shown = ascii(name[:80])
    if len(name) > 80:
        shown += "…"
    return shown
