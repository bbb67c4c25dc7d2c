"""What a scan remembers of a root: for each skill a signature of its SKILL.md, and what its head said.

One small file per root. It can be deleted at any time, is replaced as a whole, and a changed byte makes it worthless: a
cache may make an answer faster, never different. Notes and controls that many skills share are written once.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from prowess._files import write_whole
from prowess._nouns import Finding
from prowess.skills.entry import Entry, Root
from prowess.skills.findings import Note, make_finding
from prowess.skills.head import Controls

FORMAT = 3
DEFAULT_CONTROLS = Controls()
# The time of the last change of anything about the file: unlike mtime it cannot be set back. On Windows st_ctime is
# the time of creation.
changed_ns = operator.attrgetter("st_mtime_ns" if os.name == "nt" else "st_ctime_ns")


class Known(NamedTuple):
    """rows: rel -> [time, size, inode, description] and, for what is not the ordinary case, a fifth item: [name,
    declared, version, keywords, number of its controls, numbers of its notes]."""

    rows: dict[str, list[Any]]
    notes: list[Note]
    controls: list[Controls]

    def entry(self, row: list[Any], root: Root, base: str, rel: str, linked: str | None) -> Entry:
        name, declared, version, keywords, controls, notes = row[4] if len(row) > 4 else _ORDINARY
        return Entry(
            root.source,
            base,
            rel,
            "SKILL.md",
            name or rel,
            declared,
            row[3],
            version,
            tuple(keywords),
            self.controls[controls],
            row[1],
            tuple([self.notes[number] for number in notes]),
            root.trusted,
            linked,
        )


NOTHING_KNOWN = Known({}, [], [DEFAULT_CONTROLS])
_ORDINARY: list[Any] = [None, None, None, (), 0, ()]


def still_holds(row: list[Any], found: os.stat_result) -> bool:
    return row[0] == changed_ns(found) and row[1] == found.st_size and row[2] == found.st_ino


def load_known(cache_dir: str, base: str) -> tuple[Known, list[Finding]]:
    path = _path(cache_dir, base)
    try:
        with open(path, "rb") as file:
            checksum, _, payload = file.read().partition(b"\n")
        if checksum != _checksum(payload):
            raise ValueError("its checksum is wrong")
        stored = json.loads(payload.decode("utf-8", "surrogatepass"))
        if stored["format"] != FORMAT or stored["root"] != base:
            return NOTHING_KNOWN, []  # an older release's, or another root's with the same hash
        notes = [Note(*note) for note in stored["notes"]]
        return Known(stored["skills"], notes, [_controls(row) for row in stored["controls"]]), []
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING_KNOWN, []
    except (OSError, ValueError, KeyError, TypeError) as error:
        return NOTHING_KNOWN, [make_finding(Note("cache-corrupt", None, {"reason": str(error)[:80]}), path)]


def save_known(
    cache_dir: str, base: str, entries: Iterable[Entry], signatures: Mapping[str, list[Any]]
) -> list[Finding]:
    """`signatures` has the first three items of a row for each skill that may be remembered."""
    notes, controls = _Numbers(), _Numbers()
    controls.of(DEFAULT_CONTROLS)
    skills = {
        entry.rel: [*signatures[entry.rel][:3], entry.description, *_rest(entry, notes, controls)]
        for entry in entries
        if entry.rel in signatures
    }
    document = {
        "schema": "prowess.index/1",
        "format": FORMAT,
        "root": base,
        "notes": notes.items,
        "controls": controls.items,
        "skills": skills,
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    payload = text.encode("utf-8", "surrogatepass")
    path = _path(cache_dir, base)
    try:
        write_whole(path, _checksum(payload) + b"\n" + payload, mode=0o600)
        return []
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        return [make_finding(Note("cache-unwritable", None, {"reason": reason}), path)]


class _Numbers:
    """Each different thing once, and its number."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._number: dict[str, int] = {}

    def of(self, item: Any) -> int:
        key = repr(item)
        if key not in self._number:
            self._number[key] = len(self.items)
            self.items.append(item)
        return self._number[key]


def _rest(entry: Entry, notes: _Numbers, controls: _Numbers) -> list[list[Any]]:
    name = None if entry.name == entry.rel else entry.name
    of_controls, of_notes = controls.of(entry.controls), [notes.of(note) for note in entry.notes]
    rest = [name, entry.declared, entry.version, entry.keywords, of_controls, of_notes]
    return [rest] if any(rest) else []


def _controls(row: list[Any]) -> Controls:
    mode, tools, run_mode, role, user_invocable, hint, paths, requires = row
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


def _checksum(payload: bytes) -> bytes:
    """A flipped bit must not become a different description."""
    from zlib import crc32

    return f"{crc32(payload):08x}".encode()
