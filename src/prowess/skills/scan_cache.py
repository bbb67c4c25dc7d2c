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
        head = (name or rel.rpartition("/")[2], declared, description, version, keywords, controls, size, notes)
        return Entry(root.source, base, rel, "SKILL.md", *head, root.trusted, linked, "", tokens)


NOTHING_KNOWN = Known({}, [])


def still_holds(row: Row, found: os.stat_result) -> bool:
    return row[0] == changed_ns(found) and row[1] == found.st_size and row[2] == found.st_ino


def load_known(cache_dir: str, base: str) -> tuple[Known, list[Finding]]:
    path = _path(cache_dir, base)
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            first = file.readline()
            header = {} if _is_older(first) else _read_line(first)
            if header.get("format") != FORMAT or header["root"] != base:
                return NOTHING_KNOWN, []  # from an older release, or from another root with the same hash
            known, notes, controls = Known({}, []), list[tuple[Note, ...]](), list[Controls]()
            for line in file:
                part = _read_line(line)
                notes.extend(tuple(map(_note, rows)) for rows in part["notes"])
                controls.extend(map(_controls, part["controls"]))
                known.kinds.extend(_kind(row, controls, notes) for row in part["kinds"])
                rels, *columns = part["skills"]
                _check_shape([rels, *columns], len(known.kinds))
                known.rows.update(zip(rels, zip(*columns, strict=True), strict=True))
        if len(known.rows) != header["skills"]:
            raise ValueError("a part of it is missing")
        return known, []
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING_KNOWN, []
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return NOTHING_KNOWN, [make_finding(Note("cache-corrupt", None, {"reason": str(error)[:80]}), path)]


def _check_shape(columns: list[list[Any]], kinds: int) -> None:
    """Checks the types of the columns. A valid checksum proves nothing: anyone who can write a line can write its
    checksum. Thousands of rows are usual, so this must be cheap."""
    for column, wanted in zip(columns, (str, *_ROW), strict=True):
        if type(column) is not list or set(map(type, column)) != {wanted}:
            raise ValueError("its rows have the wrong types")
    _check_numbers(columns[-1], kinds)


def _check_numbers(numbers: list[Any], count: int) -> None:
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) >= count:
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
    kinds, notes, controls = _Numbers(), _Numbers(), _Numbers()

    def number_of_kind(entry: Entry) -> int:
        name = None if entry.name == entry.rel.rpartition("/")[2] else entry.name
        numbers = (controls.of(entry.controls, entry.controls), notes.of(entry.notes, repr(entry.notes)))
        kind = (name, entry.declared, entry.version, entry.keywords, *numbers)
        return kinds.of(kind, kind)

    yield _write_line({"schema": "prowess.index/1", "format": FORMAT, "root": base, "skills": len(entries)})
    for start in range(0, len(entries), _SKILLS_IN_LINE):
        rows = [
            (e.rel, *signatures[e.rel][:3], e.catalog_tokens, e.description, number_of_kind(e))
            for e in entries[start : start + _SKILLS_IN_LINE]
        ]
        new = {"notes": notes.take_new(), "controls": controls.take_new(), "kinds": kinds.take_new()}
        yield _write_line({**new, "skills": [*zip(*rows, strict=True)]})


class _Numbers:
    """Numbers each different value once."""

    def __init__(self) -> None:
        self._new: list[Any] = []
        self._number: dict[Hashable, int] = {}

    def of(self, item: Any, key: Hashable) -> int:
        if key not in self._number:
            self._number[key] = len(self._number)
            self._new.append(item)
        return self._number[key]

    def take_new(self) -> list[Any]:
        """Returns the values numbered since the last call."""
        new, self._new = self._new, []
        return new


def _kind(row: list[Any], all_controls: list[Controls], all_notes: list[tuple[Note, ...]]) -> Kind:
    name, declared, version, keywords, controls, notes = row
    texts = type(name) in _TEXT and type(declared) in _TEXT and type(version) in _TEXT
    if not texts or type(keywords) is not list or not _are_texts(keywords):
        raise ValueError("it has an invalid kind")
    _check_numbers([controls], len(all_controls))
    _check_numbers([notes], len(all_notes))
    return name, declared, version, tuple(keywords), all_controls[controls], all_notes[notes]


def _note(row: list[Any]) -> Note:
    code, line, details = row
    if code not in RULES or type(line) not in (int, NoneType) or type(details) is not dict:
        raise ValueError("it has an invalid note")
    return Note(code, line, details)


def _controls(row: list[Any]) -> Controls:
    mode, tools, run_mode, role, user_invocable, hint, paths, requires = row
    texts = [mode, run_mode, *(each for each in (role, hint) if each is not None), *paths, *(tools or ())]
    texts += [text for kind, items in requires for text in (kind, *items)]
    if not _are_texts(texts) or type(user_invocable) is not bool:
        raise ValueError("it has invalid controls")
    return Controls(
        mode,
        None if tools is None else tuple(tools),
        run_mode,
        role,
        user_invocable,
        hint,
        tuple(paths),
        tuple((kind, tuple(items)) for kind, items in requires),
    )


def _path(cache_dir: str, base: str) -> str:
    from zlib import crc32  # a collision costs only a re-read: the file names its root

    raw = base.encode("utf-8", "surrogateescape")
    return os.path.join(cache_dir, "index", f"{crc32(raw):08x}{crc32(raw[::-1]):08x}.json")


def _write_line(document: dict[str, Any]) -> bytes:
    payload = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return b"%s %s\n" % (_checksum(payload), payload)


def _read_line(line: bytes) -> dict[str, Any]:
    checksum, _, payload = line.removesuffix(b"\n").partition(b" ")
    if checksum != _checksum(payload):
        raise ValueError("its checksum is wrong")
    document: dict[str, Any] = json.loads(payload.decode("utf-8", "surrogatepass"))
    return document


def _is_older(first: bytes) -> bool:
    """True for a file of format 1 or 2: its first line is the checksum of the rest."""
    return len(first) == 9 and first.endswith(b"\n") and first[:8].isalnum()


def _checksum(payload: bytes) -> bytes:
    """Checksum of a line: a flipped bit must not change a description."""
    from zlib import crc32

    return f"{crc32(payload):08x}".encode()
