"""In a bucket, too, a version is whole or not there, its number is given once, and nothing is ever written over.

The content goes first, under a key that nobody can guess. Then a small record is created under the version's number, on
the condition that there is none: of two savers one gets the number and the other the next. A deleted version leaves an
empty object under its number, which keeps it taken.

    acme/default/ann/session/s/charts/sales.png@/0                        the record
    acme/default/ann/session/s/charts/sales.png@/data/5f3a…               the content that it names
    acme/default/ann/user/profile.json@/3                                 empty: deleted

A saver that was killed in between leaves content that no record names; a day later the next save of that name, or
`sweep`, removes it. Parts of an upload that was killed half-way are kept by the provider, unseen: give the bucket a
rule that ends incomplete multipart uploads.
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
from prowess.core.events import render_at
from prowess.core.ports import Content
from prowess.core.values import Artifact, SessionKey, artifact_scope, from_json, to_json
from prowess.errors import StoreError
from prowess.stores.artifact_content import Measure, chain, corrupt, folder_name, in_parts, not_found, pieces
from prowess.stores.bucket import PART_BYTES, Bucket, BucketObject, not_conditional

_ABANDONED = timedelta(days=1)
_PROOF = ".conditional"  # no key of ours begins with a dot
_MOST_NAME_BYTES = 256
_MOST_PARTS = 9_000  # S3 takes 10,000
_ATTEMPTS = 5
_RECORD = re.compile(r"(.+@)/(0|[1-9][0-9]*)")
_CONTENT = re.compile(r"(.+@)/data/[0-9a-f]{32}")
_AT_ONCE = 16


class ObjectArtifacts:
    """Artifacts in a bucket: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.

    `environ` is where keys, region and endpoint are looked for, as AWS_*, GOOGLE_* and AZURE_*; `options` has obstore's
    names for the same, and wins.
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
            version=-1,  # its number is its key
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
        for start in range(0, artifact.size_bytes, PART_BYTES):  # a range each: no request lasts as long as its reader
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
            await self._bucket.put(f"{folder}/{number}", b"")  # from here on the version is gone
            if record:
                with suppress(StoreError):  # a spoiled record: what it named is swept later
                    await self._bucket.remove(_parse(record, folder, name, number)[1])

    async def sessions(self, key: SessionKey) -> Sequence[str]:
        """Every session of that user, app and tenant that ever had artifacts, whichever `key` is in."""
        owner = _scope(key, of_user=True).removesuffix("/user")
        found = await self._bucket.folders(f"{owner}/session")
        return sorted(filter(None, await _all_of(self._session(f"{owner}/session", folder) for folder in found)))

    async def sweep(self) -> int:
        """Remove content that no record has named for a day, under every name; how many that were."""
        await self._bucket.put(_PROOF, b"")  # so that something in the list was written now
        folders: dict[str, list[BucketObject]] = defaultdict(list)
        now = datetime.min.replace(tzinfo=UTC)
        async for listed in self._bucket.walk(""):
            now = max(now, listed.changed_at)
            if match := _RECORD.fullmatch(listed.path) or _CONTENT.fullmatch(listed.path):
                folders[match[1]].append(listed)
        return sum([await self._sweep(_seen_in(folder, listed), now) for folder, listed in folders.items()])

    # --- one request after another

    async def _prove_conditional(self) -> None:
        """Once: of two who create the same thing, the second must be refused. Usually the first was long ago."""
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
        """The number that the record got. Savers in one process take turns, so that they do not run into each other.

        When this fails nobody knows whether the record was created: the content stays, so that a version is whole.
        """
        turn = self._turns.setdefault((id(asyncio.get_running_loop()), folder), asyncio.Lock())
        async with turn:
            there = await self._look(folder)
            number, attempts = max(there.numbers, default=-1) + 1, 0
            while not await self._bucket.create(f"{folder}/{number}", record):
                found = await self._bucket.find(f"{folder}/{number}")
                if found == record:
                    break  # ours: the first answer was lost, and it was asked again
                if found is not None:
                    number += 1  # somebody else was faster
                elif (attempts := attempts + 1) == _ATTEMPTS:
                    raise StoreError(
                        f"{self.path} refuses version {number} although there is none.",
                        code="store-error",
                        hint="Try again later; nothing was lost.",
                    )
        with suppress(StoreError):  # the version is saved; what could not be swept waits for the next one
            await self._sweep(there, max(listed.changed_at for listed in there.contents))
        return number

    async def _look(self, folder: str) -> _Folder:
        return _seen_in(folder, [listed async for listed in self._bucket.walk(folder)])

    async def _find(self, key: SessionKey, name: str, version: int | None) -> tuple[Artifact, str]:
        """What is known of a version, and the key of its content."""
        folder = _folder(key, name)
        for _ in range(_ATTEMPTS):  # the newest can be deleted between two requests
            number = version if version is not None else max((await self._look(folder)).live, default=None)
            record = None if number is None else await self._bucket.find(f"{folder}/{number}")
            if number is not None and record:
                return _parse(record, folder, name, number)
            if number is None or version is not None:
                break
        raise not_found(name, version, (await self._look(folder)).live if version is not None else ())

    async def _name(self, key: SessionKey, folder: str, number: int) -> str | None:
        """The name that a folder stands for: most can be read off it, others are in the record."""
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
        """Each live version names one content: only when there are more is it worth reading which.

        `now` is by the provider's clock, as all times in a list are: with our own, which may be wrong by years, the
        content of somebody who is about to create its record could look abandoned.
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
    """What there is under one name."""

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
    if (
        len(path) > _MOST_NAME_BYTES
    ):  # a key has at most 1024 bytes, and a name can become longer when it is spelled out
        path = f"~{hashlib.sha256('/'.join(parts).encode()).hexdigest()}"
    return f"{_scope(key, of_user)}/{path}@"


def _key(part: str) -> str:
    return folder_name(part).encode("ascii", "ignore").decode()


def _parse(record: bytes, folder: str, name: str | None, number: int) -> tuple[Artifact, str]:
    """A record names content beside itself and nothing else, whoever wrote it."""
    try:
        data = json.loads(record)
        artifact = from_json(Artifact, data | {"version": number})
        content = f"{folder}/data/{data['content']}"
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise corrupt(name or folder, number) from error
    if not _CONTENT.fullmatch(content) or name not in (None, artifact.name):
        raise corrupt(name or folder, number)
    return artifact, content
