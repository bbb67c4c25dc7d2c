"""What a scan remembers of a root: for each skill a signature of its SKILL.md, and what its head said.

One small file per root. It can be deleted at any time, is replaced as a whole, and a changed byte makes it worthless: a
cache may make an answer faster, never different. Notes and controls that many skills share are written once. Every line
is a checksum and JSON: first a header, then some hundred skills in each, so that no more is in memory at once.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, NamedTuple

from prowess._files import open_regular, write_whole
from prowess._nouns import Finding
from prowess.skills.entry import Entry, Root
from prowess.skills.findings import RULES, Note, make_finding
from prowess.skills.head import Controls

FORMAT = 4
_SKILLS_IN_LINE = 256
_MOST_BYTES = 1 << 28
_TEXT = (str, NoneType)
DEFAULT_CONTROLS = Controls()
# The time of the last change of anything about the file: unlike mtime it cannot be set back. On Windows st_ctime is
# the time of creation.
changed_ns = operator.attrgetter("st_mtime_ns" if os.name == "nt" else "st_ctime_ns")


class Known(NamedTuple):
    """rows: rel -> [time, size, inode, tokens in the catalog, description] and, for what is not the ordinary case, a
    sixth item: [name, declared, version, keywords, number of its controls, numbers of its notes]."""

    rows: dict[str, list[Any]]
    notes: list[Note]
    controls: list[Controls]

    def entry(self, row: list[Any], root: Root, base: str, rel: str, linked: str | None) -> Entry:
        name, declared, version, keywords, controls, notes = row[5] if len(row) > 5 else _ORDINARY
        return Entry(
            root.source,
            base,
            rel,
            "SKILL.md",
            name or rel.rpartition("/")[2],
            declared,
            row[4],
            version,
            tuple(keywords),
            self.controls[controls],
            row[1],
            tuple([self.notes[number] for number in notes]),
            root.trusted,
            linked,
            "",
            row[3],
        )


NOTHING_KNOWN = Known({}, [], [DEFAULT_CONTROLS])
_ORDINARY: list[Any] = [None, None, None, (), 0, ()]


def still_holds(row: list[Any], found: os.stat_result) -> bool:
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
                return NOTHING_KNOWN, []  # an older release's, or another root's with the same hash
            known = Known({}, [], [])
            for line in file:
                part = _read_line(line)
                known.notes.extend(map(_note, part["notes"]))
                known.controls.extend(map(_controls, part["controls"]))
                _refuse_misshapen(part["skills"], known)
                known.rows.update(part["skills"])
        if len(known.rows) != header["skills"]:
            raise ValueError("a part of it is missing")
        return known, []
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING_KNOWN, []
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return NOTHING_KNOWN, [make_finding(Note("cache-corrupt", None, {"reason": str(error)[:80]}), path)]


def _refuse_misshapen(rows: dict[str, list[Any]], known: Known) -> None:
    """Whoever can write a line can write its checksum too. Thousands of rows are usual, so this has to be cheap."""
    most_controls, most_notes = len(known.controls), len(known.notes)
    fine = most_controls > 0
    for row in rows.values():
        changed, size, inode, tokens, description, *rest = row
        fine = fine and type(changed) is type(size) is type(inode) is type(tokens) is int and type(description) is str
        if rest:
            [[name, declared, version, keywords, controls, notes]] = rest
            fine = fine and type(name) in _TEXT and type(declared) in _TEXT and type(version) in _TEXT
            fine = fine and type(controls) is int and 0 <= controls < most_controls
            fine = fine and type(keywords) is type(notes) is list and (not keywords or _are_texts(keywords))
            fine = fine and (not notes or all(type(number) is int and 0 <= number < most_notes for number in notes))
        if not fine:
            raise ValueError("it is not as it was written")
    if not fine:
        raise ValueError("it has no controls")


def _are_texts(items: Iterable[Any]) -> bool:
    return all(type(item) is str for item in items)


def save_known(
    cache_dir: str, base: str, entries: Iterable[Entry], signatures: Mapping[str, list[Any]]
) -> list[Finding]:
    """`signatures` has the first three items of a row for each skill that may be remembered."""
    remembered = [entry for entry in entries if entry.rel in signatures]
    path = _path(cache_dir, base)
    try:
        write_whole(path, _lines(base, remembered, signatures), mode=0o600)
        return []
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        return [make_finding(Note("cache-unwritable", None, {"reason": reason}), path)]


def _lines(base: str, entries: list[Entry], signatures: Mapping[str, list[Any]]) -> Iterator[bytes]:
    notes, controls = _Numbers(), _Numbers()
    controls.of(DEFAULT_CONTROLS)
    yield _write_line({"schema": "prowess.index/1", "format": FORMAT, "root": base, "skills": len(entries)})
    for start in range(0, max(1, len(entries)), _SKILLS_IN_LINE):
        skills = {
            entry.rel: [
                *signatures[entry.rel][:3],
                entry.catalog_tokens,
                entry.description,
                *_rest(entry, notes, controls),
            ]
            for entry in entries[start : start + _SKILLS_IN_LINE]
        }
        yield _write_line({"notes": notes.take_new(), "controls": controls.take_new(), "skills": skills})


class _Numbers:
    """Each different thing once, and its number."""

    def __init__(self) -> None:
        self._new: list[Any] = []
        self._number: dict[str, int] = {}

    def of(self, item: Any) -> int:
        key = repr(item)
        if key not in self._number:
            self._number[key] = len(self._number)
            self._new.append(item)
        return self._number[key]

    def take_new(self) -> list[Any]:
        """Those that were numbered since the last time."""
        new, self._new = self._new, []
        return new


def _rest(entry: Entry, notes: _Numbers, controls: _Numbers) -> list[list[Any]]:
    name = None if entry.name == entry.rel.rpartition("/")[2] else entry.name
    of_controls, of_notes = controls.of(entry.controls), [notes.of(note) for note in entry.notes]
    rest = [name, entry.declared, entry.version, entry.keywords, of_controls, of_notes]
    return [rest] if any(rest) else []


def _note(row: list[Any]) -> Note:
    code, line, details = row
    if code not in RULES or type(line) not in (int, NoneType) or type(details) is not dict:
        raise ValueError("it has a note that is none")
    return Note(code, line, details)


def _controls(row: list[Any]) -> Controls:
    mode, tools, run_mode, role, user_invocable, hint, paths, requires = row
    texts = [mode, run_mode, *(each for each in (role, hint) if each is not None), *paths, *(tools or ())]
    texts += [text for kind, items in requires for text in (kind, *items)]
    if not _are_texts(texts) or type(user_invocable) is not bool:
        raise ValueError("it has controls that are none")
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
    from zlib import crc32  # a collision costs a re-read, because the file says which root it is of

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
    """Up to format 2 the first line was the checksum of all that follows."""
    return len(first) == 9 and first.endswith(b"\n") and first[:8].isalnum()


def _checksum(payload: bytes) -> bytes:
    """A flipped bit must not become a different description."""
    from zlib import crc32

    return f"{crc32(payload):08x}".encode()
