"""Earlier versions of the folders that `folder_swap` replaces: `<root>/.prowess/backups/NAME/NUMBER/tree`, each with a
note beside it."""

from __future__ import annotations

import contextlib
import os
import re

from prowess._internal.files import read_regular, write_whole
from prowess._internal.folder_swap import STATE, remove_tree
from prowess.errors import PackError

KEPT = 5  # backups of a folder; older ones are removed
_NOTE = "locked.json"
_MAX_NOTE_BYTES = 16 << 20
_NUMBER = re.compile(r"[0-9]{4}|[1-9][0-9]{4,8}")


def new_backup(root: str, name: str, note: bytes) -> str:
    """Writes a note, and returns the place for the folder of a new backup, relative to `<root>/.prowess`."""
    taken = [int(number) for number in _numbers(root, name)]
    number = f"{max(taken, default=0) + 1:04}"
    folder = _folder(root, name)
    if not _NUMBER.fullmatch(number):  # else a link of that name, which came with a repository, would not be seen
        hint = "Look at it: no command counts so far. Remove what is not yours."
        raise PackError(f"{folder} has no number for a further backup.", code="target-unsafe", hint=hint)
    write_whole(os.path.join(folder, number, _NOTE), note)
    return f"backups/{name}/{number}/tree"


def find_backup(root: str, name: str) -> tuple[str, bytes] | None:
    """Returns the place and the note of the newest backup. A note that cannot be read is empty."""
    whole = _whole_numbers(root, name)
    if not whole:
        return None
    newest = whole[-1]
    note = b""
    with contextlib.suppress(OSError):
        path = os.path.join(_folder(root, name), newest, _NOTE)
        note = read_regular(path, _MAX_NOTE_BYTES)
    return f"backups/{name}/{newest}/tree", note


def remove_backups(root: str, name: str, *, keep: int = KEPT) -> None:
    """Removes old backups and those that were cut off, for a caller that holds the root."""
    folder = _folder(root, name)
    # A file or a link that was in the way of a folder is kept, too, although no rollback returns to it.
    whole = [number for number in _numbers(root, name) if os.path.lexists(f"{folder}/{number}/tree")]
    kept = sorted(whole, key=int)[-keep:] if keep else []
    for number in _numbers(root, name):
        if number not in kept:
            remove_tree(os.path.join(folder, number))
    if not kept:
        remove_tree(folder)


def _whole_numbers(root: str, name: str) -> list[str]:
    """Returns the backups that have a folder, oldest first. A backup that was cut off has none."""
    folder = _folder(root, name)
    whole: list[str] = []
    for number in _numbers(root, name):
        backup = f"{folder}/{number}"
        if _is_folder(backup) and _is_folder(f"{backup}/tree"):
            whole.append(number)
    return sorted(whole, key=int)


def _numbers(root: str, name: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return [found for found in os.listdir(_folder(root, name)) if _NUMBER.fullmatch(found)]
    return []


def _folder(root: str, name: str) -> str:
    """Returns the folder of all backups of a folder. A repository may have put a link there, to be written through."""
    folder = os.path.join(os.path.realpath(root), STATE, "backups", name)
    if os.path.realpath(folder) != folder:
        hint = "Look where it leads, and remove it."
        raise PackError(f"{folder} is a link, or in one.", code="target-unsafe", hint=hint)
    return folder


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
