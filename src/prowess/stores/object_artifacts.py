"""Artifact store in a bucket. A version is saved whole or not at all, its number is used once, and it never changes.

The content is stored first, under a key that nobody can guess. Then a small record is created under the version's
number, on condition that none exists. Of two writers one gets the number and the other gets the next. A deleted version
leaves an empty object under its number, which keeps the number in use.

    acme/default/ann/session/s/charts/sales.png@/0                        the record
    acme/default/ann/session/s/charts/sales.png@/data/5f3a…               the content that it names
    acme/default/ann/user/profile.json@/3                                 empty: deleted

A writer that was killed in between leaves content without a record. The next save of this name after a day, or `sweep`,
removes it. The provider keeps the parts of a killed upload, invisibly: give the bucket a rule that ends incomplete
multipart uploads.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from prowess._internal.mime import guess_mime
from prowess.core.codec import from_json, to_json
from prowess.core.events import render_at
from prowess.core.ports import Content
from prowess.core.values import Artifact, SessionKey, artifact_scope
from prowess.errors import StoreError
from prowess.stores.artifact_content import Measure, chain, corrupt, folder_name, in_parts, not_found, pieces
from prowess.stores.bucket import PART_BYTES, Bucket, BucketObject, not_conditional

_ABANDONED = timedelta(days=1)
_PROOF = ".conditional"  # none of our keys starts with a dot
_MOST_NAME_BYTES = 256
_MOST_PARTS = 9_000  # S3 allows 10,000
_ATTEMPTS = 5
_RECORD = re.compile(r"(.+@)/(0|[1-9][0-9]*)")
_CONTENT = re.compile(r"(.+@)/data/[0-9a-f]{32}")
_AT_ONCE = 16


class ObjectArtifacts:
    """Artifact store in a bucket: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.

    `environ` has keys, region and endpoint as AWS_*, GOOGLE_* and AZURE_* variables. `options` has them under obstore's
    names, and wins.
    """

    def __init__(
        self,
        url: str,
        *,
        environ: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        max_bytes: int = 1 << 30,
        timeout_s: float = 60.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bucket = Bucket(url, environ=environ or {}, options=options or {}, timeout_s=timeout_s)
        self.path = self._bucket.url
        self._max_bytes = max_bytes
        self._clock = clock
        self._proven = False
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def save(self, key: SessionKey, name: str, data: Content, *, mime_type: str | None = None) -> Artifact:
        folder = _folder(key, name)
        await self._prove_conditional()
        seen = Measure(name, self._max_bytes)
        parts = in_parts(seen.through(data), PART_BYTES)
        first = await anext(parts, b"")
        mime_type = mime_type or guess_mime(name, seen.start)
        content = secrets.token_hex(16)
        await self._put(f"{folder}/data/{content}", first, parts, mime_type)
        artifact = Artifact(
            name=name,
            version=-1,  # the number is in the key
            sha256=seen.digest.hexdigest(),
            size_bytes=seen.size,
            mime_type=mime_type,
            created_at=render_at(self._clock()),
        )
        record = {"schema": "prowess.artifact/1", **to_json(artifact), "content": content}
        del record["version"]
        of_user, _ = artifact_scope(name)
        record["session"] = None if of_user else key.session
        number = await self._publish(folder, json.dumps(record).encode())
        return replace(artifact, version=number)

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        whole = bytearray()
        async for piece in self.stream(key, name, version=version):
            whole += piece
        return bytes(whole)

    async def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        """Yields the content in chunks. StoreError at the end if it is not what was saved."""
        artifact, content = await self._find(key, name, version)
        size = artifact.size_bytes
        digest = hashlib.sha256()
        for start in range(0, size, PART_BYTES):  # short requests, for slow readers
            end = min(start + PART_BYTES, size)
            part = await self._bucket.find_range(content, start, end)
            if part is None:
                raise not_found(name, artifact.version)
            digest.update(part)
            for piece in pieces(part):
                yield piece
        if digest.hexdigest() != artifact.sha256:
            raise corrupt(name, artifact.version)

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        artifact, _ = await self._find(key, name, version)
        return artifact

    async def names(self, key: SessionKey) -> Sequence[str]:
        newest: dict[str, int] = {}
        for of_user in (False, True):
            async for listed in self._bucket.walk(_scope(key, of_user)):
                record = _RECORD.fullmatch(listed.path)
                if record and listed.size_bytes:
                    folder = record[1]
                    number = int(record[2])
                    newest[folder] = max(number, newest.get(folder, 0))
        asked = [self._name(key, folder, number) for folder, number in newest.items()]
        return await _sorted(asked)

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        """Returns the versions that are not deleted, the newest last."""
        there = await self._look(_folder(key, name))
        return there.live

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        folder = _folder(key, name)
        wanted = await self.versions(key, name)
        if version is not None and version not in wanted:
            raise not_found(name, version, wanted)
        if not wanted:
            raise not_found(name, version)
        if version is not None:
            wanted = [version]
        for number in wanted:
            path = f"{folder}/{number}"
            record = await self._bucket.find(path)
            await self._bucket.put(path, b"")  # from here on the version is deleted
            if record:
                with suppress(StoreError):  # a damaged record: its content is swept later
                    _, content = _parse(record, folder, name, number)
                    await self._bucket.remove(content)

    async def sessions(self, key: SessionKey) -> Sequence[str]:
        """Returns every session that ever had artifacts, of the same tenant, app and user. The session in `key` does
        not matter."""
        place = f"{_owner(key)}/session"
        found = await self._bucket.folders(place)
        asked = [self._session(place, folder) for folder in found]
        return await _sorted(asked)

    async def sweep(self) -> int:
        """Removes content that has had no record for a day, under every name, and returns the number of removed
        objects."""
        await self._bucket.put(_PROOF, b"")  # gives the list an object with the current time
        folders: dict[str, list[BucketObject]] = defaultdict(list)
        now = datetime.min.replace(tzinfo=UTC)
        async for listed in self._bucket.walk(""):
            path = listed.path
            now = max(now, listed.changed_at)
            if match := _RECORD.fullmatch(path) or _CONTENT.fullmatch(path):
                folders[match[1]].append(listed)
        removed = 0
        for folder, objects in folders.items():
            there = _seen_in(folder, objects)
            removed += await self._sweep(there, now)
        return removed

    # --- one request after another

    async def _prove_conditional(self) -> None:
        """Checks once that the bucket refuses to create an object that exists. Usually the object exists from an
        earlier run, so one request is enough."""
        if self._proven:
            return
        if await self._bucket.create(_PROOF, b"") and await self._bucket.create(_PROOF, b""):
            with suppress(StoreError):
                await self._bucket.remove(_PROOF)
            raise not_conditional(self.path)
        self._proven = True

    async def _put(self, path: str, first: bytes, rest: AsyncIterator[bytes], mime_type: str) -> None:
        done = False
        try:
            if len(first) < PART_BYTES:
                await self._bucket.put(path, first, mime_type=mime_type)
            else:
                smallest = -(-self._max_bytes // _MOST_PARTS)
                part_bytes = max(PART_BYTES, smallest)
                whole = chain(first, rest)
                await self._bucket.put_parts(path, whole, part_bytes=part_bytes, mime_type=mime_type)
            done = True
        finally:
            if not done:
                with suppress(StoreError):  # then it is swept later
                    await self._bucket.remove(path)

    async def _publish(self, folder: str, record: bytes) -> int:
        """Creates the record and returns its version number. Writers in one process take turns, to avoid conflicts.

        After an error it is unknown whether the record was created. The content stays, so that the version is whole.
        """
        loop = asyncio.get_running_loop()
        turn = self._turns.setdefault((id(loop), folder), asyncio.Lock())
        async with turn:
            there = await self._look(folder)
            number = max(there.numbers, default=-1) + 1
            attempts = 0
            while not await self._bucket.create(f"{folder}/{number}", record):
                found = await self._bucket.find(f"{folder}/{number}")
                if found == record:
                    break  # ours: the first answer was lost, and the request was retried
                if found is not None:
                    number += 1  # another writer was faster
                    continue
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise StoreError(
                        f"{self.path} refuses to create version {number}, although it does not exist.",
                        code="store-error",
                        hint="Try again later; nothing was lost.",
                    )
        with suppress(StoreError):  # the version is saved; the next save sweeps the rest
            now = max(listed.changed_at for listed in there.contents)
            await self._sweep(there, now)
        return number

    async def _look(self, folder: str) -> _Folder:
        """Lists the objects under one name."""
        listed = [each async for each in self._bucket.walk(folder)]
        return _seen_in(folder, listed)

    async def _find(self, key: SessionKey, name: str, version: int | None) -> tuple[Artifact, str]:
        """Returns the metadata of a version, and the key of its content."""
        folder = _folder(key, name)
        if version is not None:
            record = await self._bucket.find(f"{folder}/{version}")
            if record:
                return _parse(record, folder, name, version)
            there = await self._look(folder)
            raise not_found(name, version, there.live)
        for _ in range(_ATTEMPTS):  # the newest version can be deleted between two requests
            there = await self._look(folder)
            if not there.live:
                break
            newest = there.live[-1]
            record = await self._bucket.find(f"{folder}/{newest}")
            if record:
                return _parse(record, folder, name, newest)
        raise not_found(name, version)

    async def _name(self, key: SessionKey, folder: str, number: int) -> str | None:
        """Returns the name of an artifact. Most names are the folder's name; a hashed one is in the record."""
        of_user = folder.startswith(f"{_owner(key)}/user/")
        path = folder.removeprefix(f"{_scope(key, of_user)}/")
        plain = path.removesuffix("@")
        if "~" not in plain:
            return f"user:{plain}" if of_user else plain
        record = await self._bucket.find(f"{folder}/{number}")
        if not record:
            return None
        artifact, _ = _parse(record, folder, None, number)
        return artifact.name

    async def _session(self, place: str, folder: str) -> str | None:
        """Returns the name of a session. A hashed one is in the records of its artifacts."""
        if "~" not in folder:
            return folder
        async for listed in self._bucket.walk(f"{place}/{folder}"):
            if not listed.size_bytes or not _RECORD.fullmatch(listed.path):
                continue
            with suppress(ValueError, AttributeError, RecursionError):
                record = await self._bucket.find(listed.path)
                return json.loads(record or b"{}").get("session")
        return None

    async def _sweep(self, there: _Folder, now: datetime) -> int:
        """Removes abandoned content. Each live version names one content, so records are read only if there is more
        content.

        `now` is the provider's time, like all times in a list. Our own clock may be wrong by years; then the content of
        a save in progress could look abandoned.
        """
        since = now - _ABANDONED
        old = {listed.path for listed in there.contents if listed.changed_at < since}
        if not old or len(there.contents) <= len(there.live):
            return 0
        for number in there.live:
            record = await self._bucket.find(f"{there.folder}/{number}")
            if record:
                _, content = _parse(record, there.folder, None, number)
                old.discard(content)
        await self._bucket.remove(*old)
        return len(old)


class _Folder(NamedTuple):
    """Objects under one name."""

    folder: str
    numbers: list[int]
    live: list[int]
    contents: list[BucketObject]


def _seen_in(folder: str, listed: Iterable[BucketObject]) -> _Folder:
    there = _Folder(folder, [], [], [])
    for each in listed:
        record = _RECORD.fullmatch(each.path)
        if record:
            number = int(record[2])
            there.numbers.append(number)
            if each.size_bytes:
                there.live.append(number)
        elif _CONTENT.fullmatch(each.path):
            there.contents.append(each)
    there.live.sort()
    return there


async def _sorted(asked: Iterable[Awaitable[str | None]]) -> list[str]:
    """Waits for all names, a few at once, and sorts those that were found."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def ask(awaitable: Awaitable[str | None]) -> str | None:
        async with room:
            return await awaitable

    names = await asyncio.gather(*map(ask, asked))
    return sorted(name for name in names if name)


def _owner(key: SessionKey) -> str:
    parts = map(_key, (key.tenant, key.app, key.user))
    return "/".join(parts)


def _scope(key: SessionKey, of_user: bool) -> str:
    """Returns the folder of a user's or a session's artifacts."""
    owner = _owner(key)
    if of_user:
        return f"{owner}/user"
    return f"{owner}/session/{_key(key.session)}"


def _folder(key: SessionKey, name: str) -> str:
    """Returns the folder of an artifact's versions."""
    of_user, parts = artifact_scope(name)
    path = "/".join(map(_key, parts))
    if len(path) > _MOST_NAME_BYTES:  # a key has at most 1024 bytes
        whole = "/".join(parts)
        path = f"~{hashlib.sha256(whole.encode()).hexdigest()}"
    scope = _scope(key, of_user)
    return f"{scope}/{path}@"


def _key(part: str) -> str:
    """Returns a part of a key. All of our keys are ASCII."""
    name = folder_name(part)
    return name.encode("ascii", "ignore").decode()


def _parse(record: bytes, folder: str, name: str | None, number: int) -> tuple[Artifact, str]:
    """Parses a record. It can only name content in its own folder, even if somebody else wrote it."""
    shown = name or folder
    try:
        data = json.loads(record)
        artifact = from_json(Artifact, data | {"version": number})
        content = f"{folder}/data/{data['content']}"
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise corrupt(shown, number) from error
    if not _CONTENT.fullmatch(content):
        raise corrupt(shown, number)
    if name is not None and name != artifact.name:
        raise corrupt(shown, number)
    return artifact, content
