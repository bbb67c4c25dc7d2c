"""Finds the repository of a linked git worktree, when the worktree and the repository point to each other."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prowess._internal.files import read_regular

_GIT_LIMIT_BYTES = 1 << 14


def places_in_main_worktree(real: str) -> Iterator[str]:
    """Yields the counterpart of this path in the repository, for every folder above it that is a linked worktree."""
    folder = real
    while folder != (above := os.path.dirname(folder)):
        main = _find_main_worktree(folder)
        if main is not None:
            below = os.path.relpath(real, folder)
            yield os.path.normpath(os.path.join(main, below))
        folder = above


def file_key(path: str) -> str:
    """Returns the resolved folder and the file's own name. A link at the end is not followed."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _find_main_worktree(folder: str) -> str | None:
    """Returns the repository's folder, when `folder/.git` names its record and the record names `folder/.git` back.

    The record is inside the repository, so a forged, linked or copied `.git` file gains nothing. Both must have the
    same owner: a record may outlive its folder, and anybody can create a folder in /tmp at the old path.
    """
    link = os.path.join(folder, ".git")
    marker = _find_line(link)
    if marker is None or not marker.startswith("gitdir:"):
        return None
    named = marker.removeprefix("gitdir:").strip()
    record = os.path.realpath(os.path.join(folder, named))
    git_dir, worktrees = os.path.split(os.path.dirname(record))
    main, dot_git = os.path.split(git_dir)
    if dot_git != ".git" or worktrees != "worktrees":
        return None
    back = _find_line(os.path.join(record, "gitdir"))
    if back is None or file_key(os.path.join(record, back)) != link:
        return None
    if _find_owner(folder) != _find_owner(record):
        return None
    return main


def _find_owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _find_line(path: str) -> str | None:
    """Reads the only line of a small regular file. Links are not followed, because the file's own location is the
    proof."""
    try:
        data = read_regular(path, _GIT_LIMIT_BYTES)
        text = os.fsdecode(data).rstrip("\r\n")
    except (OSError, ValueError):
        return None
    if len(text) > _GIT_LIMIT_BYTES or "\0" in text or "\n" in text:
        return None
    return text
