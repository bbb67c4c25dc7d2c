"""A bucket of S3, Google Cloud or Azure: every request is bounded in time and fails with words a person can act on."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

from prowess._internal.urls import shown_url
from prowess.errors import StoreError
from prowess.stores.bucket_settings import KEY_HINTS, open_bucket, parse_address

PART_BYTES = 5 * 1024 * 1024  # the least that S3 takes as a part of many
SMALL_BYTES = 64 * 1024
_TO_STOP_S = 5.0  # how long a cancelled upload may take to take back what it has sent


class Listed(NamedTuple):
    path: str
    size_bytes: int
    changed_at: datetime


class Bucket:
    """The part of a bucket below a prefix; paths are relative to it."""

    def __init__(
        self, url: str, *, environ: Mapping[str, str], options: Mapping[str, Any], timeout_s: float = 60.0
    ) -> None:
        self.url = shown_url(url)
        self._address = parse_address(url)
        self._timeout_s = timeout_s
        self._is_real = False
        self._store = open_bucket(self._address, self.url, environ, options, timeout_s)

    async def find(self, path: str) -> bytes | None:
        """A small object, or the start of a large one; None when there is none."""
        import obstore

        async with self._asking(self._timeout_s):
            try:
                found = await obstore.get_async(self._store, path)
                if found.meta["size"] <= SMALL_BYTES:
                    return bytes(await found.bytes_async())
                return bytes(await obstore.get_range_async(self._store, path, start=0, end=SMALL_BYTES))
            except FileNotFoundError as error:
                if _names_bucket(str(error)):
                    raise
        return None

    async def find_range(self, path: str, start: int, end: int) -> bytes | None:
        import obstore

        async with self._asking(self._timeout_s):
            with suppress(FileNotFoundError):
                return bytes(await obstore.get_range_async(self._store, path, start=start, end=end))
        return None

    async def create(self, path: str, data: bytes) -> bool:
        """Whether it was not there before; what is there is never written over."""
        import obstore

        async with self._asking(self._timeout_s):
            try:
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False  # providers say it with 409 or with 412
        return True

    async def put(self, path: str, data: bytes, *, mime_type: str | None = None) -> None:
        import obstore

        async with self._asking(self._timeout_s):
            await obstore.put_async(self._store, path, data, attributes=_attributes(mime_type), use_multipart=False)

    async def put_parts(
        self, path: str, parts: AsyncIterator[bytes], *, part_bytes: int = PART_BYTES, mime_type: str | None = None
    ) -> None:
        """Something large, a part at a time; each part has its own time-out, however slowly they come.

        A cancelled upload is not dropped but made to fail, because only then the provider forgets the parts it has.
        """
        import obstore

        feed = _Feed(parts)
        async with self._asking(None):
            upload = asyncio.ensure_future(
                obstore.put_async(
                    self._store,
                    path,
                    feed.parts(),
                    attributes=_attributes(mime_type),
                    use_multipart=True,
                    chunk_size=part_bytes,
                    max_concurrency=2,
                )
            )
            try:
                await asyncio.shield(upload)
            except _Stopped:
                pass
            finally:
                feed.stop()
                await asyncio.wait([upload], timeout=_TO_STOP_S)
                if upload.done() and not upload.cancelled():
                    upload.exception()  # so that nobody says that it was never seen
        feed.raise_if_broken()

    async def walk(self, prefix: str) -> AsyncIterator[Listed]:
        """Every object below a folder, at any depth."""
        import obstore

        pages = obstore.list(self._store, prefix=prefix or None)
        while True:
            async with self._asking(self._timeout_s):
                page = await anext(pages, None)
            if page is None:
                break
            for each in page:
                self._is_real = True
                yield Listed(each["path"], each["size"], each["last_modified"])
        if not self._is_real:  # any page of the web can be read as a list of nothing, such as that of a console
            if await self.find(f".{secrets.token_hex(16)}") is not None:
                raise self._no_bucket()
            self._is_real = True

    async def folders(self, prefix: str) -> list[str]:
        """The names of what is directly below a folder and has something below itself."""
        import obstore

        async with self._asking(self._timeout_s):
            found = await obstore.list_with_delimiter_async(self._store, prefix=prefix)
        return [path.rpartition("/")[2] for path in found["common_prefixes"]]

    async def remove(self, *paths: str) -> None:
        """What is gone already is gone."""
        import obstore

        for path in paths:
            async with self._asking(self._timeout_s):
                with suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, path)

    @asynccontextmanager
    async def _asking(self, limit_s: float | None) -> AsyncIterator[None]:
        import obstore

        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            raise self._unreachable(f"did not answer within {self._timeout_s:g} seconds") from None
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise self._explain(str(error)) from None  # its text can hold a signed address

    def _explain(self, text: str) -> StoreError:
        status = (re.search(r"status code: (\d{3})", text) or ["", ""])[1]
        reason = (re.search(r"<Code>(\w{1,60})</Code>", text) or ["", ""])[1]
        answered = f"{self.url} answered {' '.join(filter(None, (status, reason)))}"
        if _names_bucket(text) or (status == "404" and not reason):
            return StoreError(
                f"There is no bucket '{self._address.bucket}' for {self.url}.",
                code="bucket-missing",
                hint="Make it first, or check the address, the endpoint and the region.",
            )
        if status in ("401", "403"):
            return StoreError(f"{answered}.", code="store-denied", hint=f"Check the key. {self._key_hint}")
        if status == "501" or reason == "NotImplemented":
            return not_conditional(self.url)
        if "redirect" in text.lower() or reason in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
            return StoreError(
                f"{self.url} is in another region.", code="store-wrong-region", hint="Set AWS_REGION to the bucket's."
            )
        if "kind: Timeout" in text:
            return self._unreachable(f"did not answer within {self._timeout_s:g} seconds")
        if status:
            again = "Try again later." if status[0] == "5" or status == "429" else "Check the address and its settings."
            return StoreError(f"{answered}.", code="store-error", hint=again)
        return self._unreachable("cannot be reached") if "HTTP error" in text else self._no_bucket()

    def _no_bucket(self) -> StoreError:
        return StoreError(
            f"{self.url} answers, but not as a bucket does.",
            code="store-not-a-bucket",
            hint="Check the endpoint: it may be that of a console, of a proxy or of a page to log in.",
        )

    @property
    def _key_hint(self) -> str:
        return KEY_HINTS[self._address.scheme]

    def _unreachable(self, how: str) -> StoreError:
        hint = f"Check the network and the endpoint. If no key was given: {self._key_hint}"
        return StoreError(f"{self.url} {how}.", code="store-unreachable", hint=hint)


class _Stopped(Exception):
    """Told to an upload, so that it takes back what it has sent."""


class _Feed:
    """Parts for an upload, until their source breaks or somebody wants no more of them."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._next: asyncio.Future[bytes | None] | None = None
        self._stopped = False

    async def parts(self) -> AsyncIterator[bytes]:
        while not self._stopped:
            self._next = asyncio.ensure_future(anext(self._source, None))
            await asyncio.wait([self._next])
            if self._next.cancelled() or self._next.exception() is not None:
                break
            part = self._next.result()
            if part is None:
                return
            yield part
        raise _Stopped

    def stop(self) -> None:
        self._stopped = True
        if self._next is not None:
            self._next.cancel()

    def raise_if_broken(self) -> None:
        if self._next is not None:
            self._next.result()


def not_conditional(url: str) -> StoreError:
    return StoreError(
        f"{url} writes over what is there although it was told not to, so saved versions could be lost.",
        code="store-not-conditional",
        hint="Use a server that honours conditional puts (If-None-Match), or keep artifacts in a folder.",
    )


def _names_bucket(text: str) -> bool:
    """Whether it is the bucket that is not there, and not just an object."""
    return "NoSuchBucket" in text or "ContainerNotFound" in text


def _attributes(mime_type: str | None) -> Any:
    """For people who look into the bucket. What could not be a header is not one."""
    if mime_type and re.fullmatch(r"[!-.0-~]++/[ -~]++", mime_type):
        return {"Content-Type": mime_type}
    return None
