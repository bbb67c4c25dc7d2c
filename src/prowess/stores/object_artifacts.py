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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
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
        known = Artifact(
            name=name,
            version=-1,  # the number is in the key
            sha256=seen.digest.hexdigest(),
            size_bytes=seen.size,
            mime_type=mime_type,
            created_at=render_at(self._clock()),
        )
        record = {"schema": "prowess.artifact/1", **to_json(known), "content": content}
        record["session"] = None if artifact_scope(name)[0] else key.session
        del record["version"]
        number = await self._publish(folder, json.dumps(record).encode())
        return from_json(Artifact, record | {"version": number})

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        return b"".join([piece async for piece in self.stream(key, name, version=version)])

    async def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        artifact, content = await self._find(key, name, version)
        digest = hashlib.sha256()
        for start in range(0, artifact.size_bytes, PART_BYTES):  # short requests, for slow readers
            end = min(start + PART_BYTES, artifact.size_bytes)
            part = await self._bucket.find_range(content, start, end)
            if part is None:
                raise not_found(name, artifact.version)
            digest.update(part)
            for piece in pieces(part):
                yield piece
        if digest.hexdigest() != artifact.sha256:
            raise corrupt(name, artifact.version)

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        return (await self._find(key, name, version))[0]

    async def names(self, key: SessionKey) -> Sequence[str]:
        newest: dict[str, int] = {}
        for of_user in (False, True):
            async for listed in self._bucket.walk(_scope(key, of_user)):
                if (record := _RECORD.fullmatch(listed.path)) and listed.size_bytes:
                    newest[record[1]] = max(int(record[2]), newest.get(record[1], 0))
        return sorted(filter(None, await _all_of(self._name(key, *each) for each in newest.items())))

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        return (await self._look(_folder(key, name))).live

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        folder = _folder(key, name)
        live = (await self._look(folder)).live
        if not live or (version is not None and version not in live):
            raise not_found(name, version, live)
        for number in live if version is None else [version]:
            record = await self._bucket.find(f"{folder}/{number}")
            await self._bucket.put(f"{folder}/{number}", b"")  # from here on the version is deleted
            if record:
                with suppress(StoreError):  # a damaged record: its content is swept later
                    await self._bucket.remove(_parse(record, folder, name, number)[1])

    async def sessions(self, key: SessionKey) -> Sequence[str]:
        """Returns every session that ever had artifacts, of the same tenant, app and user. The session in `key` does
        not matter."""
        owner = _scope(key, of_user=True).removesuffix("/user")
        found = await self._bucket.folders(f"{owner}/session")
        return sorted(filter(None, await _all_of(self._session(f"{owner}/session", folder) for folder in found)))

    async def sweep(self) -> int:
        """Removes content that has had no record for a day, under every name, and returns the number of removed
        objects."""
        await self._bucket.put(_PROOF, b"")  # gives the list an object with the current time
        folders: dict[str, list[BucketObject]] = defaultdict(list)
        now = datetime.min.replace(tzinfo=UTC)
        async for listed in self._bucket.walk(""):
            now = max(now, listed.changed_at)
            if match := _RECORD.fullmatch(listed.path) or _CONTENT.fullmatch(listed.path):
                folders[match[1]].append(listed)
        return sum([await self._sweep(_seen_in(folder, listed), now) for folder, listed in folders.items()])

    # --- one request after another

    async def _prove_conditional(self) -> None:
        """Checks once that the bucket refuses to create an object that exists. Usually the object exists from an
        earlier run, so one request is enough."""
        if not self._proven:
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
                part_bytes = max(PART_BYTES, -(-self._max_bytes // _MOST_PARTS))
                await self._bucket.put_parts(path, chain(first, rest), part_bytes=part_bytes, mime_type=mime_type)
            done = True
        finally:
            if not done:
                with suppress(StoreError):  # then it is swept later
                    await self._bucket.remove(path)

    async def _publish(self, folder: str, record: bytes) -> int:
        """Creates the record and returns its version number. Writers in one process take turns, to avoid conflicts.

        After an error it is unknown whether the record was created. The content stays, so that the version is whole.
        """
        turn = self._turns.setdefault((id(asyncio.get_running_loop()), folder), asyncio.Lock())
        async with turn:
            there = await self._look(folder)
            number, attempts = max(there.numbers, default=-1) + 1, 0
            while not await self._bucket.create(f"{folder}/{number}", record):
                found = await self._bucket.find(f"{folder}/{number}")
                if found == record:
                    break  # ours: the first answer was lost, and the request was retried
                if found is not None:
                    number += 1  # another writer was faster
                elif (attempts := attempts + 1) == _ATTEMPTS:
                    raise StoreError(
                        f"{self.path} refuses to create version {number}, although it does not exist.",
                        code="store-error",
                        hint="Try again later; nothing was lost.",
                    )
        with suppress(StoreError):  # the version is saved; the next save sweeps the rest
            await self._sweep(there, max(listed.changed_at for listed in there.contents))
        return number

    async def _look(self, folder: str) -> _Folder:
        return _seen_in(folder, [listed async for listed in self._bucket.walk(folder)])

    async def _find(self, key: SessionKey, name: str, version: int | None) -> tuple[Artifact, str]:
        """Returns the metadata of a version, and the key of its content."""
        folder = _folder(key, name)
        for _ in range(_ATTEMPTS):  # the newest version can be deleted between two requests
            number = version if version is not None else max((await self._look(folder)).live, default=None)
            record = None if number is None else await self._bucket.find(f"{folder}/{number}")
            if number is not None and record:
                return _parse(record, folder, name, number)
            if number is None or version is not None:
                break
        raise not_found(name, version, (await self._look(folder)).live if version is not None else ())

    async def _name(self, key: SessionKey, folder: str, number: int) -> str | None:
        """Returns the name of an artifact. Most names are the folder's name; a hashed one is in the record."""
        of_user = folder.startswith(f"{_scope(key, True)}/")
        plain = folder.removeprefix(f"{_scope(key, of_user)}/").removesuffix("@")
        if "~" not in plain:
            return f"user:{plain}" if of_user else plain
        record = await self._bucket.find(f"{folder}/{number}")
        return _parse(record, folder, None, number)[0].name if record else None

    async def _session(self, place: str, folder: str) -> str | None:
        if "~" not in folder:
            return folder
        async for listed in self._bucket.walk(f"{place}/{folder}"):
            if _RECORD.fullmatch(listed.path) and listed.size_bytes:
                with suppress(ValueError, AttributeError, RecursionError):
                    return json.loads(await self._bucket.find(listed.path) or b"{}").get("session")
        return None

    async def _sweep(self, there: _Folder, now: datetime) -> int:
        """Removes abandoned content. Each live version names one content, so records are read only if there is more
        content.

        `now` is the provider's time, like all times in a list. Our own clock may be wrong by years; then the content of
        a save in progress could look abandoned.
        """
        old = {listed.path for listed in there.contents if listed.changed_at < now - _ABANDONED}
        if not old or len(there.contents) <= len(there.live):
            return 0
        for number in there.live:
            if record := await self._bucket.find(f"{there.folder}/{number}"):
                old.discard(_parse(record, there.folder, None, number)[1])
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
        if record := _RECORD.fullmatch(each.path):
            there.numbers.append(int(record[2]))
            if each.size_bytes:
                there.live.append(int(record[2]))
        elif _CONTENT.fullmatch(each.path):
            there.contents.append(each)
    there.live.sort()
    return there


async def _all_of(awaitables: Iterable[Any]) -> list[Any]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(awaitable: Any) -> Any:
        async with room:
            return await awaitable

    return await asyncio.gather(*map(one, awaitables))


def _scope(key: SessionKey, of_user: bool) -> str:
    owner = "/".join(_key(part) for part in (key.tenant, key.app, key.user))
    return f"{owner}/user" if of_user else f"{owner}/session/{_key(key.session)}"


def _folder(key: SessionKey, name: str) -> str:
    of_user, parts = artifact_scope(name)
    path = "/".join(map(_key, parts))
    if len(path) > _MOST_NAME_BYTES:  # a key has at most 1024 bytes
        path = f"~{hashlib.sha256('/'.join(parts).encode()).hexdigest()}"
    return f"{_scope(key, of_user)}/{path}@"


def _key(part: str) -> str:
    return folder_name(part).encode("ascii", "ignore").decode()


def _parse(record: bytes, folder: str, name: str | None, number: int) -> tuple[Artifact, str]:
    """Parses a record. It can only name content in its own folder, even if somebody else wrote it."""
    try:
        data = json.loads(record)
        artifact = from_json(Artifact, data | {"version": number})
        content = f"{folder}/data/{data['content']}"
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise corrupt(name or folder, number) from error
    if not _CONTENT.fullmatch(content) or name not in (None, artifact.name):
        raise corrupt(name or folder, number)
    return artifact, content
