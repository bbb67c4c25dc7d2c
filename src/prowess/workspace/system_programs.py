"""Finds programs of the system by name and PATH: files that only root can create and change.

Uses the standard library only: a container runs this file as a program, to list the programs of its image.
"""

from __future__ import annotations

import json
import os
import stat
import sys

MOST_LINKS = 40


def find_system_file(name: str, path: str) -> tuple[str, str]:
    """Returns (the file that this PATH finds for the name, why it is not a file of the system). One of them is ""."""
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    for file in [name] if "/" in name else [os.path.join(folder, name) for folder in folders]:
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return check_system_file(file)
    return "", f"There is no program '{name[:80]}' in {path}."


def check_system_file(file: str) -> tuple[str, str]:
    """Returns the same for an absolute path.

    The returned path has no links in its folders. A link as the last part stays, because some programs act by their
    name; it is followed for the check.
    """
    first = ""
    for _ in range(MOST_LINKS):
        folder, name = os.path.split(file)
        folder = os.path.realpath(folder)
        file = os.path.join(folder, name)
        first = first or file
        if changed := next((above for above in _above(file) if not is_roots(above)), None):
            return "", f"{first} is no file of the system: others than root can change {changed}."
        if not os.path.islink(file):
            return (first, "") if is_roots(file) else ("", f"{file} is no file of the system: it is not root's alone.")
        file = os.path.join(folder, os.readlink(file))
    return "", f"{first} is a link to a link, and so on."


def _above(file: str) -> list[str]:
    parts = file.split("/")[:-1]
    return ["/".join(parts[:number]) or "/" for number in range(1, len(parts) + 1)]


def is_roots(path: str) -> bool:
    status = os.lstat(path)
    return status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def list_system_files(path: str) -> dict[str, tuple[str, str]]:
    """Returns find_system_file for every name in the folders of this PATH."""
    names = {name for folder in path.split(":") if os.path.isdir(folder) for name in os.listdir(folder)}
    return {name: find_system_file(name, path) for name in names}


if __name__ == "__main__":
    json.dump(list_system_files(json.loads(sys.argv[1])["path"]), sys.stdout)
