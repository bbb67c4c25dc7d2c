"""Reads the head of one SKILL.md into an Entry: one open of a regular file inside the skill.

Reading stops shortly after the closing fence.
"""

from __future__ import annotations

import os
import stat
import unicodedata

from prowess._internal.files import NotRegular, open_regular, read_regular
from prowess._internal.paths import is_inside
from prowess._internal.text import strip_invisible
from prowess.core.catalog_values import Source
from prowess.core.findings import Note
from prowess.skills.head import SkillHead
from prowess.skills.parse import MAX_BODY_BYTES, MAX_HEAD_BYTES, find_fence, parse_head
from prowess.skills.render import cost_in_catalog
from prowess.skills.skill import Entry, Root

_FIRST_READ = 4096  # nearly every head fits; later reads go at most 8 KiB past the closing fence
_NEXT_READ = 8192
_NEXT_LINES = 64  # bytes after a closing fence, so that it is certain to be whole


def read_entry(
    root: Root, base: str, rel: str, location: str, found: os.stat_result, *, linked: str | None = None
) -> Entry:
    """Reads an entry. Every problem becomes a note of the entry."""
    name = folder_name(base, rel)
    file = os.path.basename(location)
    head, size, notes = _read_head(location, name, found)
    if file != "SKILL.md":
        notes = (Note("file-name-case", None, {"found": file}), *notes)
    if not rel.isprintable() and not rel.endswith(name):
        notes = (Note("folder-name-bytes", None, {"shown": name}), *notes)
    return make_entry(
        head,
        source=root.source,
        root=base,
        rel=rel,
        file=file,
        size_bytes=size,
        trusted=root.trusted,
        notes=notes,
        linked=linked,
    )


def _read_head(location: str, name: str, found: os.stat_result) -> tuple[SkillHead, int, tuple[Note, ...]]:
    """Returns the head, the size of the file, and notes about the file. A file that cannot be read has no head."""
    target = location
    if stat.S_ISLNK(found.st_mode):
        target = os.path.realpath(location)
        folder, file = os.path.split(location)
        if not is_inside(os.path.realpath(folder), target):
            return _NOTHING, 0, (Note("file-outside", None, {"what": file}),)
    try:
        data = read_head_bytes(target)
        if target != location:
            found = os.stat(target)
    except NotRegular as error:
        kind = str(error).partition(",")[0].replace("a", "A", 1)
        return _NOTHING, 0, (Note("not-regular", None, {"kind": kind}),)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return _NOTHING, 0, (Note("unreadable", None, {"reason": reason.lower()}),)
    notes: tuple[Note, ...] = ()
    if found.st_size > MAX_BODY_BYTES:
        notes = (Note("body-too-large", None, {"limit_bytes": MAX_BODY_BYTES}),)
    return parse_head(data, name), found.st_size, notes


_NOTHING = SkillHead(None, None)


def read_head_bytes(path: str) -> bytes:
    """Reads the beginning of a regular file, up to shortly after its closing fence."""
    fd = open_regular(path)
    try:
        data = os.read(fd, _FIRST_READ)
        at_end = len(data) < _FIRST_READ or _has_usual_fences(data)
        while not at_end and find_fence(data, whole=False) is None:
            more = os.read(fd, _NEXT_READ)
            data += more
            at_end = not more
            if len(data) > MAX_HEAD_BYTES + _NEXT_READ:
                break
        return data
    finally:
        os.close(fd)


def _has_usual_fences(data: bytes) -> bool:
    """True when `find_fence` is certain to find both fences. A cheap check for nearly every file."""
    return data.startswith(b"---\n") and 0 < data.find(b"\n---\n", 3) < _FIRST_READ - _NEXT_LINES


def read_opening(entry: Entry, chars: int) -> str:
    """Reads the beginning of a skill's body, for search. Returns "" if the file cannot be read."""
    path = entry.location
    try:
        if os.path.islink(path):
            path = os.path.realpath(path)
            if not is_inside(os.path.realpath(entry.path), path):
                return ""
        data = read_regular(path, _OPENING_BYTES)
    except OSError:
        return ""
    fence = find_fence(data)
    if isinstance(fence, Note):
        return ""
    body = data[fence.body :].decode("utf-8", "ignore")
    return body[:chars]


_OPENING_BYTES = 16 * 1024


def make_entry(
    head: SkillHead,
    *,
    source: Source,
    root: str,
    rel: str,
    file: str,
    size_bytes: int,
    trusted: bool = True,
    notes: tuple[Note, ...] = (),
    linked: str | None = None,
) -> Entry:
    """Makes an entry named after its folder. A different declared name is kept, and look-ups accept it."""
    name = folder_name(root, rel)
    declared = head.name or None
    if declared == name:
        declared = None
    notes += head.notes
    described = (head.description or "", head.version, head.keywords, head.controls)
    entry = Entry(source, root, rel, file, name, declared, *described, size_bytes, notes, trusted, linked)
    return Entry(*entry[:-1], cost_in_catalog(entry))  # three times as fast as _replace


def folder_name(root: str, rel: str) -> str:
    folder = rel.rpartition("/")[2] or os.path.basename(root)
    if folder.isascii() and folder.isprintable():
        return folder
    raw = folder.encode("utf-8", "surrogateescape")
    text = unicodedata.normalize("NFKC", raw.decode("utf-8", "replace"))
    words = strip_invisible(text).split()
    return " ".join(words) or "unnamed"
