"""Remembers the skills of a root in a file: for each skill a signature of its SKILL.md, and its head.

There is one small file per root. It can be deleted at any time and is replaced as a whole. Any changed byte invalidates
it: a cache may make an answer faster, never different. Values that many skills share (their kind) are written once.
Every line is a checksum and JSON: first a header, then 256 skills per line, so only one line is decoded at a time.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, NamedTuple

from prowess._internal.files import open_regular, write_whole
from prowess.core.catalog_values import Finding
from prowess.core.findings import RULES, Note, make_finding
from prowess.skills.head import Controls
from prowess.skills.skill import Entry, Root

FORMAT = 5
_SKILLS_IN_LINE = 256
_MOST_BYTES = 1 << 28
_TEXT = (str, NoneType)
# Time of the last change of the file or its attributes. Unlike mtime it cannot be set back. On Windows st_ctime is the
# time of creation, so mtime is used there.
changed_ns = operator.attrgetter("st_mtime_ns" if os.name == "nt" else "st_ctime_ns")

Signature = tuple[int, int, int]  # time of the last change, size, inode
Row = tuple[int, int, int, int, str, int]  # signature, tokens in the catalog, description, number of its kind
_ROW = (int, int, int, int, str, int)
# name if it differs from the folder's, declared name, version, keywords, controls, notes
Kind = tuple[str | None, str | None, str | None, tuple[str, ...], Controls, tuple[Note, ...]]


class Known(NamedTuple):
    rows: dict[str, Row]  # by the skill's folder below the root
    kinds: list[Kind]

    def entry(self, row: Row, root: Root, base: str, rel: str, linked: str | None) -> Entry:
        _, size, _, tokens, description, number = row
        name, declared, version, keywords, controls, notes = self.kinds[number]
        if not name:
            _, _, name = rel.rpartition("/")
        head = (name, declared, description, version, keywords, controls, size, notes)
        return Entry(root.source, base, rel, "SKILL.md", *head, root.trusted, linked, "", tokens)


NOTHING_KNOWN = Known({}, [])


def still_holds(row: Row, found: os.stat_result) -> bool:
    """True when the file still has the signature of the row."""
    changed, size, inode, *_ = row
    return changed == changed_ns(found) and size == found.st_size and inode == found.st_ino


def load_known(cache_dir: str, base: str) -> tuple[Known, list[Finding]]:
    """Returns what is known of a root, and a finding when the file cannot be used."""
    path = _path(cache_dir, base)
    try:
        return _read_known(path, base), []
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING_KNOWN, []
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        note = Note("cache-corrupt", None, {"reason": str(error)[:80]})
        return NOTHING_KNOWN, [make_finding(note, path)]


def _read_known(path: str, base: str) -> Known:
    with open(open_regular(path, follow=True), "rb") as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        first = file.readline()
        if _is_older(first):
            return NOTHING_KNOWN
        header = _read_line(first)
        if header.get("format") != FORMAT or header["root"] != base:
            return NOTHING_KNOWN  # from an older release, or from another root with the same hash
        known = Known({}, [])
        notes: list[tuple[Note, ...]] = []
        controls: list[Controls] = []
        for line in file:
            part = _read_line(line)
            notes.extend(tuple(map(_note, rows)) for rows in part["notes"])
            controls.extend(map(_controls, part["controls"]))
            known.kinds.extend(_kind(row, controls, notes) for row in part["kinds"])
            rels, *columns = part["skills"]
            _check_shape([rels, *columns], len(known.kinds))
            rows = zip(*columns, strict=True)
            known.rows.update(zip(rels, rows, strict=True))
    if len(known.rows) != header["skills"]:
        raise ValueError("a part of it is missing")
    return known


def _check_shape(columns: list[list[Any]], kinds: int) -> None:
    """Checks the types of the columns. A valid checksum proves nothing: anyone who can write a line can write its
    checksum. Thousands of rows are usual, so this must be cheap."""
    for column, wanted in zip(columns, (str, *_ROW), strict=True):
        is_list = type(column) is list
        if not is_list or set(map(type, column)) != {wanted}:
            raise ValueError("its rows have the wrong types")
    _check_numbers(columns[-1], kinds)


def _check_numbers(numbers: list[Any], count: int) -> None:
    """Checks that each number is one of a list with this many rows."""
    are_numbers = set(map(type, numbers)) == {int}
    if not are_numbers or min(numbers) < 0 or max(numbers) >= count:
        raise ValueError("it refers to a missing row")


def _are_texts(items: Iterable[Any]) -> bool:
    return all(type(item) is str for item in items)


def save_known(
    cache_dir: str, base: str, entries: Iterable[Entry], signatures: Mapping[str, Signature | Row]
) -> list[Finding]:
    """Saves the entries that have a signature. Returns a finding when the file cannot be written."""
    remembered = [entry for entry in entries if entry.rel in signatures]
    path = _path(cache_dir, base)
    try:
        write_whole(path, _lines(base, remembered, signatures), mode=0o600)
        return []
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        return [make_finding(Note("cache-unwritable", None, {"reason": reason}), path)]


def _lines(base: str, entries: list[Entry], signatures: Mapping[str, Signature | Row]) -> Iterator[bytes]:
    kinds = _Numbers()
    notes = _Numbers()
    controls = _Numbers()

    def number_of_kind(entry: Entry) -> int:
        name = None
        if entry.name != entry.rel.rpartition("/")[2]:
            name = entry.name
        controls_number = controls.of(entry.controls, entry.controls)
        notes_number = notes.of(entry.notes, repr(entry.notes))
        kind = (name, entry.declared, entry.version, entry.keywords, controls_number, notes_number)
        return kinds.of(kind, kind)

    yield _write_line({"schema": "prowess.index/1", "format": FORMAT, "root": base, "skills": len(entries)})
    for start in range(0, len(entries), _SKILLS_IN_LINE):
        rows: list[tuple[Any, ...]] = []
        for entry in entries[start : start + _SKILLS_IN_LINE]:
            signature = signatures[entry.rel][:3]
            kind = number_of_kind(entry)
            rows.append((entry.rel, *signature, entry.catalog_tokens, entry.description, kind))
        part = {"notes": notes.take_new(), "controls": controls.take_new(), "kinds": kinds.take_new()}
        part["skills"] = list(zip(*rows, strict=True))
        yield _write_line(part)


class _Numbers:
    """Numbers each different value once."""

    def __init__(self) -> None:
        self._new: list[Any] = []
        self._number: dict[Hashable, int] = {}

    def of(self, item: Any, key: Hashable) -> int:
        """Returns the number of an item, the same for each item with this key."""
        if key not in self._number:
            self._number[key] = len(self._number)
            self._new.append(item)
        return self._number[key]

    def take_new(self) -> list[Any]:
        """Returns the values numbered since the last call."""
        new = self._new
        self._new = []
        return new


def _kind(row: list[Any], all_controls: list[Controls], all_notes: list[tuple[Note, ...]]) -> Kind:
    name, declared, version, keywords, controls, notes = row
    for text in (name, declared, version):
        if type(text) not in _TEXT:
            raise ValueError("it has an invalid kind")
    if type(keywords) is not list or not _are_texts(keywords):
        raise ValueError("it has an invalid kind")
    _check_numbers([controls], len(all_controls))
    _check_numbers([notes], len(all_notes))
    return name, declared, version, tuple(keywords), all_controls[controls], all_notes[notes]


def _note(row: list[Any]) -> Note:
    code, line, details = row
    has_line = type(line) in (int, NoneType)
    if code not in RULES or not has_line or type(details) is not dict:
        raise ValueError("it has an invalid note")
    return Note(code, line, details)


def _controls(row: list[Any]) -> Controls:
    mode, tools, run_mode, role, user_invocable, hint, paths, requires = row
    texts = [mode, run_mode, *paths]
    if role is not None:
        texts.append(role)
    if hint is not None:
        texts.append(hint)
    if tools is not None:
        tools = tuple(tools)
        texts += tools
    required: list[tuple[str, tuple[str, ...]]] = []
    for kind, items in requires:
        texts += [kind, *items]
        required.append((kind, tuple(items)))
    if not _are_texts(texts) or type(user_invocable) is not bool:
        raise ValueError("it has invalid controls")
    return Controls(mode, tools, run_mode, role, user_invocable, hint, tuple(paths), tuple(required))


def _path(cache_dir: str, base: str) -> str:
    from zlib import crc32  # a collision costs only a re-read: the file names its root

    raw = base.encode("utf-8", "surrogateescape")
    name = f"{crc32(raw):08x}{crc32(raw[::-1]):08x}.json"
    return os.path.join(cache_dir, "index", name)


def _write_line(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    payload = text.encode("utf-8", "surrogatepass")
    return b"%s %s\n" % (_checksum(payload), payload)


def _read_line(line: bytes) -> dict[str, Any]:
    """Parses a line of `_write_line`. ValueError if a byte of it changed."""
    line = line.removesuffix(b"\n")
    checksum, _, payload = line.partition(b" ")
    if checksum != _checksum(payload):
        raise ValueError("its checksum is wrong")
    text = payload.decode("utf-8", "surrogatepass")
    document: dict[str, Any] = json.loads(text)
    return document


def _is_older(first: bytes) -> bool:
    """True for a file of format 1 or 2: its first line is the checksum of the rest."""
    return len(first) == 9 and first.endswith(b"\n") and first[:8].isalnum()


def _checksum(payload: bytes) -> bytes:
    """Checksum of a line: a flipped bit must not change a description."""
    from zlib import crc32

    return f"{crc32(payload):08x}".encode()
