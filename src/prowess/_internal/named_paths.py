"""Decides which files that a person named may be read. Everything that reads such a file asks here.

A link below the working folder or in a git repository may have come with a clone. An input is not read through it where
it leads out. The person's own links elsewhere are followed.
"""

from __future__ import annotations

import os
from pathlib import PurePath

from prowess._internal.paths import find_repository, is_inside
from prowess._internal.protected_names import find_protected
from prowess.errors import ConfigError

_MOST_LINKS = 40  # as many as Linux follows
_ANNEX = os.path.join(".git", "annex", "objects", "")  # git-annex: every file of data is a link to there


def check_input(cwd: str, path: str) -> None:
    """ConfigError if a link on the way to a file that a person named leads out of the git repository that has the link,
    or out of `cwd` where it is below that, or to what is private there, such as `.git/config` and `.env`. What stands
    after a link in the path, such as `link/../x`, is the person's again."""
    here = os.path.realpath(cwd)
    base = os.path.abspath(cwd)
    named = PurePath(base, path)
    at = named.anchor
    left = [*reversed(named.parts[1:])]
    if named.is_relative_to(base):  # links to where the person stands are the person's
        at = here
        left = [*reversed(named.relative_to(base).parts)]
    links = 0  # of the person; they may be a loop
    while left and links < _MOST_LINKS:
        part = left.pop()
        there = os.path.join(at, part)
        if part == "..":
            at = os.path.dirname(at)
            continue
        if not os.path.islink(there):
            at = there
            continue
        within = find_repository(at)
        if within is None and is_inside(here, at):
            within = here
        if within is not None:
            at = os.path.realpath(there)
            _check_link(there, at, within)
            continue
        links += 1
        target = PurePath(at, os.readlink(there))
        at = target.anchor
        left += reversed(target.parts[1:])


def _check_link(link: str, real: str, within: str) -> None:
    below = os.path.relpath(real, within)
    where = "out of"
    if is_inside(within, real):
        is_open = find_protected(below) is None or below.startswith(_ANNEX)
        if is_open and not is_inside(real, link):  # a folder around the link has everything that is private
            return
        where = "to what is private in"
    message = f"{link} is a link that leads {where} {within}, to {real}."
    hint = f"It may have come with the folder. If you mean that file, name it: {real}"
    raise ConfigError(message, code="input-leads-out", hint=hint)
