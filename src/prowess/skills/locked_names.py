"""Reads the names in a `skills.lock`, for people who list skills. `packs` writes the file, and checks all of it."""

from __future__ import annotations

import json
import os
from typing import Any

from prowess._internal.files import read_regular
from prowess.skills.skill import Entry

_MAX_BYTES = 64 << 20


def read_locked_names(path: str) -> dict[str, str]:
    """Returns the name in its source of each skill, by its name here. A file that cannot be used has none: `packs`
    reports it."""
    try:
        data = read_regular(path, _MAX_BYTES, follow=True)
        rows: Any = json.loads(data)["skills"]
        return {str(name): str(row["skill"]) for name, row in rows.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def without_renamed(entries: list[Entry]) -> list[Entry]:
    """Removes the note about a name that is not the folder's from skills that were installed under another name."""
    locks: dict[str, dict[str, str]] = {}
    found: list[Entry] = []
    for entry in entries:
        if _is_renamed(entry, locks):
            entry = _without_mismatch(entry)
        found.append(entry)
    return found


def _is_renamed(entry: Entry, locks: dict[str, dict[str, str]]) -> bool:
    if entry.declared is None:
        return False
    folder, name = os.path.split(entry.path)
    if folder not in locks:
        lock = _lock_of(folder)
        locks[folder] = read_locked_names(lock)
    return locks[folder].get(name) == entry.declared


def _lock_of(folder: str) -> str:
    """Returns the path of the lock for a folder of skills: beside `.agent/skills`, else in the folder itself."""
    above, last = os.path.split(folder)
    if last == "skills" and os.path.basename(above) == ".agent":
        folder = above
    return os.path.join(folder, "skills.lock")


def _without_mismatch(entry: Entry) -> Entry:
    """Removes the note about a name that differs from the folder's."""
    notes = [note for note in entry.notes if note.code != "name-mismatch"]
    return entry._replace(notes=tuple(notes))
