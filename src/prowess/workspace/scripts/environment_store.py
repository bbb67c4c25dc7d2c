"""Keeps environments on disk. Each is complete or absent, and is not removed while a run uses it.

<dir>/<key>/                locked by its maker and by every user
<dir>/<key>/record.json     contents of the environment; written last: without it there is no environment
<dir>/<key>/for-<digest>    a person allowed skills with this content to use it
<dir>/<key>/added-<digest>  packages that a person added to skills with this content, which do not declare them
<dir>/<key>/env-<random>/   built in its final place, because an environment contains its own path and cannot be moved

Each attempt builds in a new folder, so files of a killed attempt, or of one that still writes, do no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prowess._internal.files import make_passable, read_regular, write_whole
from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import measure_folder
from prowess.workspace.session_folder import list_folder
from prowess.workspace.skill_trees import lock_folder, remove_tree

SCHEMA = "prowess.environment/1"
_RECORD = "record.json"
_NEEDED = {
    "digest": str,
    "dependencies": list,
    "made_for": str,
    "version": str,
    "interpreter": list,
    "folder": str,
    "resolved": list,
    "note": str,
}
_READABLE = 0o755
_KEY = re.compile(r"[0-9a-f]{16}-[\w.-]{1,64}")
_WAIT_S = 0.05


class EnvironmentInfo(NamedTuple):
    """Entry in a list of environments; `is_whole` is false for the rest of an interrupted attempt."""

    key: str
    path: str
    dependencies: tuple[str, ...]
    resolved: tuple[str, ...]
    made_for: str
    size_bytes: int
    used_at: float  # seconds since the epoch
    in_use: bool
    is_whole: bool


def list_environments(dir: str) -> list[EnvironmentInfo]:
    """Returns all environments, least recently used first."""
    found = []
    for key in list_folder(dir):
        if not _KEY.fullmatch(key):
            continue
        info = _info(dir, key)
        if info is not None:
            found.append(info)
    return sorted(found, key=lambda info: (info.used_at, info.key))


def remove_environment(dir: str, key: str) -> bool:
    """Removes an environment. False when it does not exist or is in use."""
    path = os.path.join(dir, key)
    fd = lock_folder(path, fcntl.LOCK_EX) if _KEY.fullmatch(key) else None
    if fd is None:
        return False
    try:
        with contextlib.suppress(FileNotFoundError):  # first, so that a half-removed folder is no environment
            os.unlink(os.path.join(path, _RECORD))
        remove_tree(path)
        return True
    finally:
        os.close(fd)


@contextlib.contextmanager
def hold_environment(dir: str, key: str) -> Iterator[None]:
    """Keeps an environment from being removed while a run uses it."""
    fd = try_hold(dir, key)
    if fd is None:
        raise environment_removed()
    try:
        yield
    finally:
        os.close(fd)


def try_hold(dir: str, key: str, folder: str | None = None) -> int | None:
    """Locks an environment against removal until the returned descriptor is closed. None when it is gone or in another
    folder, or when another process has it locked at this moment; then the caller can try again."""
    fd = lock_folder(os.path.join(dir, key), fcntl.LOCK_SH)
    if fd is None:
        return None
    record = read_record(dir, key)
    if record and folder in (None, record["folder"]):
        return fd
    os.close(fd)
    return None


def environment_removed() -> WorkspaceError:
    return WorkspaceError(
        "The packages that were installed for the script were removed just now.",
        op="dependencies",
        code="environment-removed",
        retryable=True,
        hint="Call it again: then it is asked whether they may be installed.",
    )


def read_record(dir: str, key: str) -> dict[str, Any]:
    """Returns the record of a complete environment, or {}."""
    try:
        record = json.loads(read_regular(os.path.join(dir, key, _RECORD), 1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    if record.get("schema") != SCHEMA:
        return {}
    for name, kind in _NEEDED.items():
        if not isinstance(record.get(name), kind):
            return {}
    if not re.fullmatch(r"env-\w+", record["folder"]):
        return {}
    if os.path.isdir(os.path.join(dir, key, record["folder"])):
        return record
    return {}


def is_granted(dir: str, key: str, skill: str) -> bool:
    """True when a person allowed a skill with this content (by digest) to use the environment."""
    return os.path.lexists(_mark(dir, key, "for", skill))


def keep_grant(dir: str, key: str, skill: str) -> None:
    mark = _mark(dir, key, "for", skill)
    with contextlib.suppress(PermissionError):  # it belongs to another user: the question is asked again
        fd = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.close(fd)


def keep_added(dir: str, key: str, skill: str, packages: Sequence[str]) -> None:
    """Records that a person added these packages to a skill with this content: its runs have them from now on."""
    mark = _mark(dir, key, "added", skill)
    listed = json.dumps(list(packages))
    with contextlib.suppress(PermissionError):
        write_whole(mark, listed.encode(), mode=0o600)


def find_added(dir: str, skill: str) -> tuple[str, ...]:
    """Returns the packages last added to a skill with this content; removing the environment forgets them."""
    found: list[tuple[int, str, str]] = []
    for key in list_folder(dir):
        with contextlib.suppress(OSError):
            path = _mark(dir, key, "added", skill)
            status = os.stat(path, follow_symlinks=False)
            found.append((status.st_mtime_ns, key, path))
    for _, key, path in sorted(found, reverse=True):
        with contextlib.suppress(OSError, ValueError):
            packages = json.loads(read_regular(path, 1 << 16))
            if read_record(dir, key) and isinstance(packages, list):
                return tuple(map(str, packages))
    return ()


def _mark(dir: str, key: str, kind: str, skill: str) -> str:
    digest = hashlib.sha256(skill.encode()).hexdigest()
    return os.path.join(dir, key, f"{kind}-{digest[:32]}")


def mark_used(dir: str, key: str) -> None:
    with contextlib.suppress(OSError):  # the time of use is only information
        os.utime(os.path.join(dir, key, _RECORD))


class Attempt:
    """Folder in which an environment is built; removed at the end unless it is kept."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made = ""
        self._kept = False

    @property
    def folder(self) -> str:
        """Folder of this attempt, made on first use. Earlier attempts are removed then."""
        if not self._made:
            for left in os.listdir(self._path):
                remove_tree(os.path.join(self._path, left))
            os.chmod(self._path, _READABLE)
            self._made = tempfile.mkdtemp(dir=self._path, prefix="env-")
        return self._made

    def keep(self, record: Mapping[str, Any]) -> None:
        """Marks the environment as complete."""
        _make_readable(self.folder)
        folder = os.path.basename(self.folder)
        whole = {"schema": SCHEMA, **record, "folder": folder, "made_at": time.time()}
        text = json.dumps(whole, indent=1)
        write_whole(os.path.join(self._path, _RECORD), text.encode())
        self._kept = True

    def clean(self) -> None:
        if self._made and not self._kept:
            remove_tree(self._made)
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(self._path)


@contextlib.asynccontextmanager
async def only_attempt(dir: str, key: str, until: float) -> AsyncIterator[Attempt]:
    """Gives one attempt at a time access to `key`. Raises TimeoutError when the others are not done by `until`."""
    path = os.path.join(dir, key)
    fd = _begin(dir, path)
    while fd is None:
        if time.monotonic() > until:
            raise TimeoutError
        await asyncio.sleep(_WAIT_S)
        fd = _begin(dir, path)
    attempt = Attempt(path)
    try:
        yield attempt
    finally:
        try:
            await asyncio.to_thread(attempt.clean)
        finally:
            os.close(fd)


def _begin(dir: str, path: str) -> int | None:
    make_passable(dir)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    return lock_folder(path, fcntl.LOCK_EX)


def _info(dir: str, key: str) -> EnvironmentInfo | None:
    path = os.path.join(dir, key)
    record = read_record(dir, key)
    fd = lock_folder(path, fcntl.LOCK_EX)
    if fd is not None:
        os.close(fd)
    try:
        used_at = os.stat(os.path.join(path, _RECORD) if record else path).st_mtime
        size = measure_folder(path, max_entries=10_000_000)
    except (FileNotFoundError, NotADirectoryError):  # removed in the meantime, or not a folder, so not ours
        return None
    return EnvironmentInfo(
        key=key,
        path=path,
        dependencies=tuple(record.get("dependencies", ())),
        resolved=tuple(record.get("resolved", ())),
        made_for=str(record.get("made_for", "")),
        size_bytes=size,
        used_at=used_at,
        in_use=fd is None,
        is_whole=bool(record),
    )


def _make_readable(folder: str) -> None:
    """Lets everybody read and execute the files, and only us change them: a run may use another user."""
    for path, _, names in os.walk(folder):
        os.chmod(path, _READABLE)
        for name in names:
            file = os.path.join(path, name)
            if not os.path.islink(file):
                mode = _READABLE if os.stat(file).st_mode & 0o100 else 0o644
                os.chmod(file, mode)
