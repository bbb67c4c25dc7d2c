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
        rows: Any = json.loads(read_regular(path, _MAX_BYTES, follow=True))["skills"]
        return {str(name): str(row["skill"]) for name, row in rows.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def without_renamed(entries: list[Entry]) -> list[Entry]:
    """Removes the note about a name that is not the folder's from skills that were installed under another name."""
    locks: dict[str, dict[str, str]] = {}
    return [_without_mismatch(entry) if _is_renamed(entry, locks) else entry for entry in entries]


def _is_renamed(entry: Entry, locks: dict[str, dict[str, str]]) -> bool:
    if entry.declared is None:
        return False
    folder, name = os.path.split(entry.path)
    if folder not in locks:
        above, last = os.path.split(folder)
        is_agents = last == "skills" and os.path.basename(above) == ".agent"
        locks[folder] = read_locked_names(os.path.join(above if is_agents else folder, "skills.lock"))
    return locks[folder].get(name) == entry.declared


def _without_mismatch(entry: Entry) -> Entry:
    return entry._replace(notes=tuple(note for note in entry.notes if note.code != "name-mismatch"))
