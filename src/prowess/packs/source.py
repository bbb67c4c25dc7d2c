"""Reads a SOURCE as a person writes it. The text of a source is canonical: reading it again gives the same source.

`owner/repo` never means a folder, which may have come with a clone. The text goes to the lock, so it works on another
machine and has no password and no query; `location` may have them for this one command and is never shown.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from dataclasses import replace

from prowess._internal.paths import is_inside
from prowess._internal.portable_names import is_plain
from prowess._internal.unpack import ARCHIVE_ENDINGS
from prowess._internal.urls import shown_url, split_pin
from prowess.core.findings import visible
from prowess.errors import PackError
from prowess.packs.values import PackSource, SourceKind

_MAX_TEXT = 4096
_PARTS = {
    "<user>": r"[A-Za-z0-9_][\w.-]{0,63}",
    "<host>": r"(?:[A-Za-z0-9_][\w.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?",
    "<repo>": r"[A-Za-z0-9][\w-]{0,38}/\.?\w[\w.-]{0,98}?",
    "<path>": r"[^@?#\s\\]*[^@?#\s\\/]",
    "<file>": r"[^?#\s\\]*",
    "<ending>": f"(?i:{'|'.join(map(re.escape, (*ARCHIVE_ENDINGS, '.md')))})",
    "<tail>": r"/*(?:@(?P<ref>[^#]*))?(?:#(?P<path>.*))?",
}
# Kind, example and pattern of a source that is elsewhere. The first one that matches counts.
_REMOTE: tuple[tuple[SourceKind, str, str], ...] = (
    ("package", "python:NAME", r"python:([A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?)"),
    ("git", "owner/repo@ref#path", r"((?:https://github\.com/)?<repo>)(?:\.git)*<tail>"),
    ("git", "https://example.com/repo.git@ref#path", r"(https?://<host>/(?:<path>)?\.git)<tail>"),
    ("git", "ssh://git@example.com/repo@ref#path", r"(ssh://(?:<user>@)?<host>/<path>)<tail>"),
    ("git", "git@example.com:repo@ref#path", r"(<user>@<host>:(?![-/])<path>)<tail>"),
    ("site", "https://example.com", r"(https?://<host>(?:<file>/\.well-known/(?:agent-)?skills/index\.json)?)/?"),
    ("url", "https://example.com/skills.zip", r"(https?://<host>/<file><ending>)(\?[^#]*)?(#.*)?"),
    ("url", "https://example.com/file#sha256=…", r"(https?://<host>/<file>)(\?[^#]*)?(#.*)"),
)
FORMS = ("./folder", "./skills.zip", *(example for _, example, _ in _REMOTE))


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub("<[a-z]+>", lambda found: _PARTS[found[0]], pattern), re.ASCII)


_ADDRESS = _compiled(r"([A-Za-z][\w+.-]{0,20})://(?:([A-Za-z0-9_][^/?#]*)@)?(<host>)((?:[/?#].*)?)")
_TREE_PAGE = _compiled(r"(https://(?:github\.com/<repo>|<host>/<path>/-))/tree/([^/?#%]+)/?([^?#]*)")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]{0,20}://", re.ASCII)
_TRANSPORT = re.compile(r"[\w+.-]{1,40}::")  # ext::, fd:: and other helpers of git run programs
_NOT_A_REF = re.compile(r"^$|^[-/.]|[ ~^:?*\[\\]|\.\.|@\{|//|\.lock(?:/|$)|/\.|[/.]$")
_PASSWORD = re.compile(r"^[^/@:]*:[^/@]*@")
_PATH = re.compile(r"(?:\.\.?|~)(?:/.*)?|/.*")
_FILE = re.compile(rf"[^@:#]*(?:(?i:{'|'.join(map(re.escape, ARCHIVE_ENDINGS))})(?:#.*)?|/SKILL\.md)")


def parse_source(text: str, *, cwd: str, home: str) -> PackSource:
    """Returns what `text` names. Relative paths are relative to `cwd`, and `~` is `home`. PackError `source-unknown`
    if it is none of the forms, `source-unsafe` if it is refused."""
    if not 0 < len(text) <= _MAX_TEXT or not text.isprintable() or text.startswith("-"):
        raise _error(text, "is empty, too long, begins with '-' or has invisible characters")
    if _TRANSPORT.match(text):
        raise _error(text, "would make git start another program")
    if _SCHEME.match(text):
        found = _address(text)
    elif text.startswith("python:"):
        found = _remote(text)
    elif _PATH.fullmatch(text) or _FILE.fullmatch(text):
        found = _local(text, _Place(cwd, home))
    else:
        found = _remote(text) or _local(text, _Place(cwd, home))
    if found is None:
        raise _error(text, "is not a source", code="source-unknown")
    return found


def is_remote(text: str) -> bool:
    """Tells whether a canonical text, as the lock has it, names another machine. A text that means nothing does not."""
    if text.startswith("python:") or _PATH.fullmatch(text) or _FILE.fullmatch(text):
        return False
    return (_SCHEME.match(text) or _remote(text)) is not None


def _address(text: str) -> PackSource | None:
    parts = _ADDRESS.fullmatch(text)
    if text.lower().startswith("file:"):
        raise _error(text, "is an address of this machine. Name the path alone, without file://")
    if parts is None:
        raise _error(text, "has a user or a host name that is not plain")
    user = parts[2]
    scheme = parts[1].lower()
    place = parts[3].lower() + parts[4]
    if scheme not in ("https", "http", "ssh"):
        raise _error(text, f"uses {scheme}://, which is not supported")
    if scheme == "ssh":
        return _remote(f"ssh://{user}@{place}" if user else f"ssh://{place}")
    plain = f"{scheme}://{place}".removesuffix("#")
    if page := _TREE_PAGE.fullmatch(plain):
        repository = page[1].removesuffix("/-").removesuffix(".git")
        plain = f"{repository}.git@{page[2]}#{urllib.parse.unquote(page[3])}"
    found = _remote(plain)
    if found is None or not user:
        return found
    if found.kind == "git":
        raise _error(text, "has a user name. Git gets it, and the password, from your credential helper")
    return replace(found, location=found.location.replace("://", f"://{user}@", 1))


def _remote(text: str) -> PackSource | None:
    for kind, _, pattern in _REMOTE:
        if found := _compiled(pattern).fullmatch(text):
            return _source(kind, found)
    return None


def _source(kind: SourceKind, found: re.Match[str]) -> PackSource:
    location = found[1]
    if kind == "git":
        if ":" not in location:
            location = f"https://github.com/{location}"
        return _git(location, location, found["ref"], found["path"])
    if kind == "package":
        name = re.sub(r"[-_.]+", "-", location).lower()
        return PackSource(kind=kind, text=f"python:{name}", location=name)
    if kind == "site":
        return PackSource(kind=kind, text=location, location=location)
    _, pin = split_pin(location + (found[3] or ""))
    return _pinned(PackSource(kind=kind, text=location, location=location + (found[2] or "")), pin)


class _Place:
    """Folder and home that paths are relative to."""

    def __init__(self, cwd: str, home: str) -> None:
        self._cwd = os.path.abspath(cwd)
        self._home = os.path.abspath(home)

    def absolute(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = os.path.join(self._home, path[2:])
        path = os.path.normpath(os.path.join(self._cwd, path))
        return path[1:] if path.startswith("//") else path  # POSIX keeps two slashes

    def check(self, text: str) -> None:
        """Refuses a ref or a path in a repository that leads out of it. The working folder may have any name."""
        _, *after = re.split("[@#]", text.removeprefix(self._cwd), maxsplit=1)
        if ".." in re.split("[@#/]", "".join(after)):
            raise _error(text, "has '..' after '@' or '#'")

    def text(self, path: str) -> str:
        """Spells a path so that it holds on another machine, if it is below the working folder or the home."""
        for base, name in ((self._cwd, "."), (self._home, "~")):
            if path == base:
                return name
            if base != os.sep and is_inside(base, path):
                return f"{name}/{os.path.relpath(path, base)}"
        return path

    def source(self, kind: SourceKind, path: str) -> PackSource:
        return PackSource(kind=kind, text=self.text(path), location=path)


def _local(text: str, place: _Place) -> PackSource | None:
    """Returns a folder, archive or repository of this machine. A repository has a name that ends in .git, or a ref."""
    place.check(text)
    whole = place.absolute(text)
    if os.path.basename(whole) == "SKILL.md" and os.path.isfile(whole):
        whole = os.path.dirname(whole)
    if os.path.isdir(whole):
        return place.source("git" if whole.endswith(".git") else "folder", whole)
    if os.path.isfile(whole):
        return place.source("archive", whole)
    if text.partition("#")[0].lower().endswith(ARCHIVE_ENDINGS):
        plain, pin = split_pin(text)
        return _pinned(place.source("archive", place.absolute(plain)), pin)
    found = _local_git(text, place)
    if found is None and _PATH.fullmatch(text):
        return place.source("folder", whole)
    return found


def _local_git(text: str, place: _Place) -> PackSource | None:
    """Returns a repository with its ref and path: the shortest folder before an `@` that is one."""
    plain, hash_sign, path = text.partition("#")
    ends = [at for at, letter in enumerate(plain) if letter == "@"]
    for end in [*ends, len(plain)]:
        location = place.absolute(plain[:end])
        ref = plain[end + 1 :] if end < len(plain) else None
        if _is_repository(location, has_ref=ref is not None):
            return _git(location, place.text(location), ref, path if hash_sign else None)
    return None


def _is_repository(path: str, *, has_ref: bool) -> bool:
    if path.endswith(".git"):
        return os.path.isdir(path)
    is_bare = os.path.isfile(os.path.join(path, "HEAD")) and os.path.isdir(os.path.join(path, "objects"))
    return has_ref and (is_bare or os.path.isdir(os.path.join(path, ".git")))


def _git(location: str, text: str, ref: str | None, path: str | None) -> PackSource:
    if location.startswith("http:"):
        raise _error(location, "is a repository without https")
    if ref is not None and _NOT_A_REF.search(ref):
        raise _error(ref or f"{text}@", "is not a branch, a tag or a commit")
    folder = "/".join(part for part in (path or "").split("/") if part not in ("", "."))
    if path and not (is_plain(path) and is_plain(folder) and path.isprintable()):
        raise _error(path, "is not a plain relative path")
    if ref:
        text += f"@{ref}"
    if folder:
        text += f"#{folder}"
    return PackSource(kind="git", text=text, location=location, ref=ref, path=folder or None)


def _pinned(source: PackSource, pin: str | None) -> PackSource:
    if not pin:
        return source
    return replace(source, text=f"{source.text}#sha256={pin}", sha256=pin)


def _error(text: str, why: str, *, code: str = "source-unsafe") -> PackError:
    """Returns an error that names the source, shortened and escaped, without what may be a password."""
    shown = shown_url(text) if "://" in text else _PASSWORD.sub("…@", text.partition("?")[0])
    message = f"'{visible(shown[:200])}' {why}."
    return PackError(message, code=code, hint=f"A source is one of: {', '.join(FORMS)}.")
