"""Takes folders to other machines: one tar with a table of their paths, unpacked once. Its digest depends on names,
modes and contents only.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from prowess._internal.paths import is_inside

_TABLE = "paths.json"
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before Python 3.11.4
_LEFT_OUT = frozenset({".git", "__pycache__", ".venv", "node_modules"})


class FileBundle(NamedTuple):
    """Files as a tar, and its digest."""

    data: bytes
    digest: str


class BundleTooLarge(Exception):
    """The files are too large together. The message is the path of the one that was too much."""


def pack_folders(folders: Mapping[str, Mapping[str, str]], most_bytes: int) -> FileBundle:
    """Packs folders: path -> place below it -> file. The place "" is the path itself, if that is a file."""
    out = io.BytesIO()
    table = {path: str(number) for number, path in enumerate(sorted(folders))}
    index = json.dumps(table, sort_keys=True).encode()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, _TABLE, index, most_bytes)
        for path, name in table.items():
            files = folders[path]
            if "" not in files:
                _add(tar, name, None, most_bytes)
            for rel, file in sorted(files.items()):
                member = f"{name}/{rel}" if rel else name
                _add(tar, member, file, most_bytes)
                if out.tell() > most_bytes:
                    raise BundleTooLarge(file)
    data = out.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    return FileBundle(data, digest)


def unpack_folders(bundle: FileBundle, top: str) -> dict[str, str]:
    """Unpacks a bundle of our own below `top`, unless it is there already. Returns path there -> path here."""
    home = os.path.join(top, bundle.digest)
    if not os.path.isdir(home):
        os.makedirs(top, mode=0o700, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=top, prefix=".new-")
        try:
            with tarfile.open(fileobj=io.BytesIO(bundle.data)) as tar:
                tar.extractall(fresh, **_FILTER)  # noqa: S202 - a tar of our own
            os.rename(fresh, home)
        except OSError:
            if not os.path.isdir(home):  # else another process was faster
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    with open(os.path.join(home, _TABLE), "rb") as file:
        table = json.load(file)
    return {path: os.path.join(home, name) for path, name in table.items()}


def find_files(path: str) -> dict[str, str]:
    """Returns place -> file for all files below a folder, or for the file itself, whose place is "".

    A link that leads out of the folder is left out.
    """
    if os.path.isfile(path):
        return {"": path}
    found: dict[str, str] = {}
    top = os.path.realpath(path)
    for folder, below, names in os.walk(path):
        below[:] = sorted(set(below) - _LEFT_OUT)
        for name in names:
            place = os.path.join(folder, name)
            file = os.path.realpath(place)
            if os.path.isfile(file) and is_inside(top, file):
                rel = os.path.relpath(place, path)
                found[rel] = file
    return found


def _add(tar: tarfile.TarFile, name: str, content: str | bytes | None, most_bytes: int) -> None:
    """Adds a member without times and owners, so that only its content counts."""
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    if content is None:
        info.mode = 0o755
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return
    if isinstance(content, str):
        if os.access(content, os.X_OK):
            info.mode = 0o755
        with open(content, "rb") as file:
            content = file.read(most_bytes + 1)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
