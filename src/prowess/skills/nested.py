"""Finds SKILL.md files below a skill, and reports each one in a finding.

They belong to the skill above them and are not loaded, unless the caller asks for nested skills.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from prowess.core.findings import Note

MAX_NAMED = 20  # per skill: a SKILL.md at the top of a library has thousands below it
_CODES = ("skill-nested", "entry-limit")


def look_below(folder: str, name: str, *, skipped: Iterable[str], max_entries: int) -> tuple[Note, ...]:
    """Returns a note for each SKILL.md below a skill's own folder. The last note counts those that are not named."""
    found: list[str] = []
    seen = 0
    folders = [""]
    for below in folders:  # grows while it is walked
        try:
            with os.scandir(f"{folder}{os.sep}{below}") as listing:
                for child in listing:
                    seen += 1
                    if child.is_dir(follow_symlinks=False):
                        if child.name not in skipped:
                            folders.append(f"{below}{child.name}/")
                    elif below and child.name.lower() == "skill.md":
                        found.append(f"{below}{child.name}")
        except OSError:  # loading the skill reports it when it lists the files
            continue
        if seen > max_entries:
            stopped = Note("entry-limit", None, {"limit": max_entries, "folder": f"{name}/{below}"})
            return (*_name_each(found, name), stopped)
    return _name_each(found, name)


def _name_each(found: list[str], name: str) -> tuple[Note, ...]:
    """Makes notes about nested files of a skill. The last one counts those that are not named."""
    found.sort()
    notes: list[Note] = []
    for file in found[:MAX_NAMED]:
        details = {"file": file, "skill": name, "more": ""}
        notes.append(Note("skill-nested", None, details))
    unnamed = len(found) - MAX_NAMED
    if unnamed > 0:
        notes[-1].details["more"] = f" Nor are {unnamed} more below that skill."
    return tuple(notes)


def has_nested(notes: tuple[Note, ...]) -> bool:
    """True when the notes include one from `look_below`."""
    if not notes:
        return False
    return notes[-1].code in _CODES


def without_nested(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    """Returns the notes that are not from `look_below`."""
    others = [note for note in notes if note.code not in _CODES]
    return tuple(others)
