"""Artifact store in a folder. A version is saved whole or not at all, its number is used once, and it never changes.

A version is a folder. It is written in a draft folder and then renamed into place. A rename onto a folder with content
fails, so of two writers one gets the number and the other gets the next. A deleted version leaves an empty marker,
which keeps its number in use. Drafts are written and removed by descriptor, under names that were made here: a link in
the folder leads no write and no removal elsewhere.

    <tenant>/<app>/<user>/session/<session>/charts/sales.png@/0/{data,artifact.json}
    <tenant>/<app>/<user>/user/profile.json@/3/deleted
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import IO, Any

from prowess._internal.files import open_regular, read_regular
from prowess._internal.mime import guess_mime
from prowess._internal.paths import inside
from prowess.core.codec import from_json, to_json
from prowess.core.events import render_at
from prowess.core.ports import Content
from prowess.core.values import Artifact, SessionKey, artifact_scope, parse_artifact_ref, render_artifact_ref
from prowess.stores.artifact_content import (
    PIECE_BYTES,
    Measure,
    corrupt,
    folder_name,
    large_pieces,
    not_found,
    pieces,
    sync_folder,
    trouble,
)

__all__ = ["FolderArtifacts", "parse_artifact_ref", "render_artifact_ref"]

_DRAFTS = ".drafts"
_DRAFT = re.compile(r"draft-[0-9a-f]{32}")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_ABANDONED_S = 24 * 3600  # a draft untouched for a day belongs to a process that was killed


class FolderArtifacts:
    """Artifact store in a folder, for any number of processes. Only its owner can read it.

    `prepare` is called before the first write, so that reading leaves no trace.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 1 << 30,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self.path: str = os.path.abspath(path)
        self._max_bytes = max_bytes
        self._clock = clock
        self._prepare = prepare
        self._swept = False  # drafts of killed processes were removed

    async def save(self, key: SessionKey, name: str, data: Content, *, mime_type: str | None = None) -> Artifact:
        folder = self._folder(key, name)
        of_user, _ = artifact_scope(name)
        session = None if of_user else key.session
        draft = _Draft(self.path, name, mime_type, session, self._max_bytes)
        try:
            await asyncio.to_thread(self._begin, draft)
            if isinstance(data, AsyncIterable):
                async for piece in large_pieces(data):
                    await asyncio.to_thread(draft.write, piece)
            else:
                await asyncio.to_thread(draft.write_all, pieces(data))
            now = render_at(self._clock())
            return await asyncio.to_thread(draft.publish, folder, now)
        finally:
            await asyncio.to_thread(draft.discard)

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        whole = bytearray()
        async for piece in self.stream(key, name, version=version):
            whole += piece
        return bytes(whole)

    async def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        """Yields the content in chunks. StoreError at the end if it is not what was saved."""
        artifact, file = await asyncio.to_thread(self._open, key, name, version)
        digest = hashlib.sha256()
        with file:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                digest.update(piece)
                yield piece
        if digest.hexdigest() != artifact.sha256:
            raise corrupt(name, artifact.version)

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        return await asyncio.to_thread(self._get, key, name, version)

    async def names(self, key: SessionKey) -> Sequence[str]:
        return await asyncio.to_thread(self._names, key)

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        """Returns the versions that are not deleted, the newest last."""
        folder = self._folder(key, name)
        return await asyncio.to_thread(_live, folder)

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        await asyncio.to_thread(self._delete, key, name, version)

    async def sessions(self, key: SessionKey) -> Sequence[str]:
        """Returns every session with artifacts of the same tenant, app and user. The session in `key` does not
        matter."""
        return await asyncio.to_thread(self._sessions, key)

    # --- on disk, in a thread

    def _scope(self, key: SessionKey, of_user: bool) -> str:
        """Returns the folder of a user's or a session's artifacts."""
        tenant = folder_name(key.tenant)
        app = folder_name(key.app)
        user = folder_name(key.user)
        owner = f"{tenant}/{app}/{user}"
        if of_user:
            return f"{owner}/user"
        return f"{owner}/session/{folder_name(key.session)}"

    def _folder(self, key: SessionKey, name: str) -> str:
        """Returns the folder of an artifact's versions. The `@` at its end distinguishes it from a folder in an
        artifact's name."""
        of_user, parts = artifact_scope(name)
        scope = self._scope(key, of_user)
        path = "/".join(map(folder_name, parts))
        return inside(self.path, f"{scope}/{path}@")

    def _begin(self, draft: _Draft) -> None:
        with trouble(self.path):
            if not self._swept:
                self._prepare()
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            with _open_drafts(self.path) as drafts:
                if not self._swept:
                    self._swept = True
                    _sweep(drafts)
                draft.begin(drafts)

    def _open(self, key: SessionKey, name: str, version: int | None) -> tuple[Artifact, IO[bytes]]:
        artifact = self._get(key, name, version)
        place = _version_place(self._folder(key, name), artifact.version)
        missing = not_found(name, artifact.version)
        with trouble(self.path, missing=missing):
            fd = open_regular(os.path.join(place, "data"))
            return artifact, open(fd, "rb", buffering=0)

    def _get(self, key: SessionKey, name: str, version: int | None) -> Artifact:
        folder = self._folder(key, name)
        wanted = _wanted(folder, name, version)[-1]
        place = _version_place(folder, wanted)
        with trouble(self.path, missing=not_found(name, wanted)):
            return _read_artifact(place, name)

    def _names(self, key: SessionKey) -> list[str]:
        found: set[str] = set()
        with trouble(self.path):
            for of_user in (False, True):
                scope = inside(self.path, self._scope(key, of_user))
                for folder in _artifact_folders(scope):
                    live = _live(folder)
                    if live:
                        newest = _version_place(folder, live[-1])
                        artifact = _read_artifact(newest, folder)
                        found.add(artifact.name)
        return sorted(found)

    def _sessions(self, key: SessionKey) -> list[str]:
        """Reads session names from the records, because a folder name with a hash cannot be turned back into a name."""
        scope = self._scope(key, of_user=False)
        place = inside(self.path, os.path.dirname(scope))
        found: list[str] = []
        with trouble(self.path):
            if not os.path.isdir(place):
                return []
            for name in os.listdir(place):
                record = _any_record(os.path.join(place, name), name)
                if record is not None:
                    found.append(str(record.get("session")))
        return sorted(found)

    def _delete(self, key: SessionKey, name: str, version: int | None) -> None:
        folder = self._folder(key, name)
        with trouble(self.path):
            for number in _wanted(folder, name, version):
                place = _version_place(folder, number)
                with _open_folder(place) as fd:
                    # The marker first: from here on the version is deleted, and its number stays in use.
                    with suppress(FileExistsError):  # another process deletes it too
                        os.close(os.open("deleted", _NEW, 0o600, dir_fd=fd))
                    for part in ("data", "artifact.json"):
                        with suppress(FileNotFoundError):
                            os.unlink(part, dir_fd=fd)


class _Draft:
    """Version that is not published yet. All of its content is on disk before it gets a number.

    The lock is for a cancelled save: the caller is gone while a thread still writes.
    """

    def __init__(self, store: str, name: str, mime_type: str | None, session: str | None, max_bytes: int) -> None:
        self._lock = Lock()
        self._open = ExitStack()
        self._over = False
        self._store = store
        self._place: str | None = None
        self._name = name
        self._mime_type = mime_type
        self._session = session
        self._measure = Measure(name, max_bytes)

    def begin(self, drafts: int) -> None:
        """Makes a folder for it among the drafts. Does nothing after `discard`."""
        with self._lock:
            if self._over:
                return
            self._drafts = os.dup(drafts)
            self._open.callback(os.close, self._drafts)
            self._place = f"draft-{os.urandom(16).hex()}"
            os.mkdir(self._place, 0o700, dir_fd=drafts)
            self._open.callback(self._remove)
            self._fd = self._open.enter_context(_open_folder(self._place, drafts))
            data = io.FileIO(os.open("data", _NEW, 0o600, dir_fd=self._fd), "wb")
            self._file = self._open.enter_context(io.BufferedWriter(data, PIECE_BYTES))

    def write_all(self, data: Iterator[bytes]) -> None:
        for piece in data:
            self.write(piece)

    def write(self, piece: bytes) -> None:
        """Writes a chunk, and counts it."""
        self._measure.note(piece)
        with self._lock, trouble(self._store):
            self._file.write(piece)

    def publish(self, folder: str, now: str) -> Artifact:
        """Gives the draft the next number in the folder of its versions."""
        measure = self._measure
        mime_type = self._mime_type
        with self._lock, trouble(folder):
            assert self._place is not None
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if not mime_type:
                mime_type = guess_mime(self._name, measure.start)
            artifact = Artifact(
                name=self._name,
                version=-1,  # the number is the name of the folder
                sha256=measure.digest.hexdigest(),
                size_bytes=measure.size,
                mime_type=mime_type,
                created_at=now,
            )
            known = {"schema": "prowess.artifact/1", **to_json(artifact), "session": self._session}
            del known["version"]
            with open(os.open("artifact.json", _NEW, 0o600, dir_fd=self._fd), "wb") as record:
                record.write(json.dumps(known).encode())
                record.flush()
                os.fsync(record.fileno())
            os.fsync(self._fd)
            number = _rename_to_next(self._drafts, self._place, folder, self._store)
            self._place = None
            return replace(artifact, version=number)

    def discard(self) -> None:
        """Removes the draft. After `publish` there is none."""
        with self._lock, suppress(OSError):  # a full disk: the data is not needed any more
            self._over = True
            self._open.close()

    def _remove(self) -> None:
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True, dir_fd=self._drafts)


def _rename_to_next(drafts: int, place: str, folder: str, store: str) -> int:
    """Gives a draft the next number in a folder. `store` is the folder that is there already."""
    fresh = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    number = max(_numbers(folder), default=-1) + 1
    while True:
        target = os.path.join(folder, str(number))
        try:
            os.rename(place, target, src_dir_fd=drafts)
        except OSError:
            if not os.path.lexists(target):
                raise
            number += 1  # another writer was faster
        else:
            break
    sync_folder(folder)
    if fresh:  # the folders above may be new too
        while len(folder) > len(store):
            folder = os.path.dirname(folder)
            sync_folder(folder)
    return number


def _wanted(folder: str, name: str, version: int | None) -> list[int]:
    """Returns the given version, or all. StoreError if there is none."""
    live = _live(folder)
    if version is None and live:
        return live
    if version is None or version not in live:
        raise not_found(name, version, live)
    return [version]


def _live(folder: str) -> list[int]:
    """Returns the versions that are not deleted, the newest last."""
    live: list[int] = []
    for number in sorted(_numbers(folder)):
        place = _version_place(folder, number)
        if not os.path.islink(place) and not os.path.lexists(os.path.join(place, "deleted")):
            live.append(number)
    return live


def _numbers(folder: str) -> list[int]:
    """Returns the version numbers in use, in any order."""
    numbers: list[int] = []
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.isdecimal() and name == str(int(name)):
                numbers.append(int(name))
    return numbers


def _version_place(folder: str, version: int) -> str:
    return os.path.join(folder, str(version))


def _artifact_folders(scope: str) -> Iterator[str]:
    """Yields the folders of versions below a folder."""
    for folder, below, _ in os.walk(scope, onerror=_raise_unless_missing):
        if folder.endswith("@"):
            below.clear()
            yield folder


def _any_record(scope: str, name: str) -> dict[str, Any] | None:
    """Returns the record of any version in a session's folder; None if all are deleted."""
    for folder, _, files in os.walk(scope, onerror=_raise_unless_missing):
        if "artifact.json" in files and "deleted" not in files:
            return _read_record(folder, name)
    return None


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _read_artifact(place: str, name: str) -> Artifact:
    number = int(os.path.basename(place))
    record = _read_record(place, name)
    record["version"] = number
    try:
        return from_json(Artifact, record)
    except ValueError as error:
        raise corrupt(name, number) from error


def _read_record(place: str, name: str) -> dict[str, Any]:
    file = os.path.join(place, "artifact.json")
    try:
        text = read_regular(file, 64 * 1024)
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        number = int(os.path.basename(place))
        raise corrupt(name, number) from error


@contextmanager
def _open_folder(path: str, above: int | None = None) -> Iterator[int]:
    """Opens a folder. OSError if it is a link, or no folder."""
    fd = os.open(path, _FOLDER, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _open_drafts(store: str) -> Iterator[int]:
    path = os.path.join(store, _DRAFTS)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{_DRAFTS} in it is a link or a file, and is never used")
    with _open_folder(path) as fd:
        yield fd


def _sweep(drafts: int) -> None:
    """Removes drafts of processes that were killed."""
    for name in filter(_DRAFT.fullmatch, os.listdir(drafts)):
        with suppress(FileNotFoundError, NotADirectoryError), _open_folder(name, drafts) as fd:  # gone, or a link
            data = os.stat("data", dir_fd=fd, follow_symlinks=False)
            touched = max(os.fstat(fd).st_mtime, data.st_mtime)
            if touched < time.time() - _ABANDONED_S:
                shutil.rmtree(name, ignore_errors=True, dir_fd=drafts)
