"""Client for a bucket of S3, Google Cloud or Azure. Every request has a time-out, and errors come with a hint.

Endpoint, credentials and signing come from the variables of the providers' own tools (AWS_*, GOOGLE_*, AZURE_*) in the
environment that the caller passes, and from options, which win. Nothing here reads the environment of the process. Only
if no key is passed, obstore looks for one itself, as on a machine with a role.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prowess._internal.urls import is_loopback, shown_url
from prowess.errors import ConfigError, MissingExtra, StoreError

SCHEMES = ("s3", "gs", "az")

_URL = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,220})(?:/([\w.~=-]+(?:/[\w.~=-]+)*))?/?", re.ASCII)
_MOST_PREFIX_BYTES = 200  # a key has at most 1024 bytes, and our names need the rest
_VARIABLES = {
    "s3": re.compile(
        r"AWS_(?:ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|REGION|DEFAULT_REGION|ENDPOINT|ENDPOINT_URL"
        r"|ENDPOINT_URL_S3|VIRTUAL_HOSTED_STYLE_REQUEST|SKIP_SIGNATURE|UNSIGNED_PAYLOAD|REQUEST_PAYER|S3_EXPRESS"
        r"|SERVER_SIDE_ENCRYPTION|SSE_KMS_KEY_ID|SSE_BUCKET_KEY_ENABLED|CHECKSUM_ALGORITHM|DISABLE_BULK_DELETE"
        r"|ROLE_ARN|ROLE_SESSION_NAME|WEB_IDENTITY_TOKEN_FILE|CONTAINER_CREDENTIALS_RELATIVE_URI"
        r"|CONTAINER_CREDENTIALS_FULL_URI|CONTAINER_AUTHORIZATION_TOKEN_FILE|METADATA_ENDPOINT|STS_ENDPOINT)"
    ),
    "gs": re.compile(
        r"GOOGLE_(?:SERVICE_ACCOUNT|SERVICE_ACCOUNT_PATH|SERVICE_ACCOUNT_KEY|APPLICATION_CREDENTIALS|BEARER_TOKEN"
        r"|BASE_URL|SKIP_SIGNATURE)"
    ),
    "az": re.compile(
        r"AZURE_(?:STORAGE_)?(?:ACCOUNT_NAME|ACCOUNT_KEY|ACCESS_KEY|SAS_TOKEN|SAS_KEY|TOKEN|CLIENT_ID|CLIENT_SECRET"
        r"|TENANT_ID|AUTHORITY_HOST|ENDPOINT|USE_EMULATOR|FEDERATED_TOKEN_FILE|MSI_ENDPOINT|USE_AZURE_CLI"
        r"|SKIP_SIGNATURE)"
    ),
}
_FAMILY = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_ENDPOINTS = ("endpoint", "base_url", "google_base_url", "azure_endpoint", "azure_storage_endpoint")
_STATUS = re.compile(r"status code: (\d{3})")
_REASON = re.compile(r"<Code>(\w{1,60})</Code>")
_WRONG_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed")  # codes of S3
KEY_HINTS = {
    "s3": "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; profiles in ~/.aws are not read.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT_KEY.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY.",
}


_LEAVE_S = 1.0


@atexit.register
def _let_threads_leave() -> None:
    """Waits until the threads of obstore have left Python code. They are in it for a moment after an answer is here.
    There an interpreter that exits ends them, and that aborts the process."""
    until = time.monotonic() + _LEAVE_S
    while time.monotonic() < until:
        known = {thread.ident for thread in threading.enumerate()}
        if known.issuperset(sys._current_frames()):
            return
        time.sleep(0.001)


class Address(NamedTuple):
    scheme: str
    bucket: str
    prefix: str


def parse_address(url: str) -> Address:
    """Parses `s3://bucket/prefix`. ConfigError if it is not the address of a bucket."""
    match = _URL.fullmatch(url)
    if match:
        scheme, bucket, prefix = match.groups(default="")
        parts = prefix.split("/")
        is_plain = "." not in parts and ".." not in parts
        if is_plain and len(prefix) <= _MOST_PREFIX_BYTES:
            return Address(scheme, bucket, prefix)
    shown = shown_url(url)[:200]
    raise ConfigError(
        f"{shown} is not the address of a bucket.",
        code="artifacts-url",
        hint="Write s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, in letters, digits and ._~=-, "
        f"at most {_MOST_PREFIX_BYTES} of them in the prefix; keys go into the environment.",
    )


def open_bucket(
    address: Address, url: str, environ: Mapping[str, str], options: Mapping[str, Any], timeout_s: float
) -> Any:
    """Returns the obstore client of a bucket. ConfigError if the settings do not fit."""
    scheme = address.scheme
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ModuleNotFoundError:
        raise MissingExtra("objects", wanted_for=f"Artifacts in {scheme}://…") from None
    kinds: dict[str, Callable[..., Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    kind = kinds[scheme]
    config = _passed_settings(scheme, environ)
    given = dict(options)
    variable = f"{_FAMILY[scheme]}_ALLOW_HTTP"
    http = given.pop("allow_http", environ.get(variable, ""))
    allow_http = str(http).lower() in ("1", "true")
    extra: dict[str, Any] = {}
    if scheme == "s3":
        extra = _s3_settings(address.bucket, config, given)
    config |= given
    limit = timedelta(seconds=timeout_s)
    prefix = address.prefix or None
    try:
        client = {
            "allow_http": _may_be_plain(config, url, allow_http, variable),
            "connect_timeout": min(timedelta(seconds=5), limit),
            "timeout": limit,
        }
        retry = {"max_retries": 3, "retry_timeout": limit}
        return kind(address.bucket, prefix=prefix, config=config, client_options=client, retry_config=retry, **extra)
    except (BaseError, TypeError, ValueError) as error:
        reason = _without_values(str(error), config)
        raise ConfigError(
            f"{url} cannot be used with these settings: {reason}.",
            code="artifacts-options",
            hint=KEY_HINTS[scheme],
        ) from None


def _passed_settings(scheme: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings that the variables of a provider's tools give."""
    variables = _VARIABLES[scheme]
    config: dict[str, Any] = {}
    for name, value in environ.items():
        if value and variables.fullmatch(name):
            config[name.lower()] = value
    return config


def _without_values(reason: str, config: Mapping[str, Any]) -> str:
    """Returns the first line of an error, without the values of settings, which can be secret."""
    reason = reason.partition("\n")[0][:200]
    for value in config.values():
        text = str(value)
        if len(text) > 3:
            reason = reason.replace(text, "…")
    return reason.rstrip(".")


def _s3_settings(bucket: str, config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns all S3 settings explicitly, because obstore would take missing ones from the environment of the
    process."""

    def take(*names: str) -> Any:
        """Removes and returns a setting under any of its names. An option wins."""
        found = None
        for place in (given, config):
            for name in names:
                for long_name in (name, f"aws_{name}"):
                    value = place.pop(long_name, None)
                    if found in (None, ""):
                        found = value
        return None if found == "" else found

    key = take("access_key_id")
    secret = take("secret_access_key")
    token = take("session_token", "token")
    region = take("region", "default_region") or "us-east-1"
    in_host = str(take("virtual_hosted_style_request") or "false").lower()
    host = f"s3.{region}.amazonaws.com"
    if in_host == "true":
        host = f"{bucket}.{host}"
    endpoint = take("endpoint_url_s3", "endpoint_url", "endpoint") or f"https://{host}"
    unsigned = take("skip_signature") or "false"
    config |= {
        "region": region,
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": in_host,
        "skip_signature": str(unsigned).lower(),
        "conditional_put": "etag",
    }
    if (key is None) != (secret is None):
        raise ConfigError(
            "Only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set.",
            code="artifacts-options",
            hint=KEY_HINTS["s3"],
        )
    if key is None:
        return {}
    credential = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    return {"credential_provider": lambda: credential}


def _may_be_plain(config: Mapping[str, Any], url: str, allowed: bool, variable: str) -> bool:
    """True if a request may be unencrypted: to this machine, or if the user allows it."""
    for name in _ENDPOINTS:
        endpoint = str(config.get(name, ""))
        address = urlsplit(endpoint)
        if address.scheme != "http":
            continue
        if allowed or is_loopback(address.hostname or ""):
            return True
        shown = shown_url(endpoint)
        raise ConfigError(
            f"The endpoint for {url} is not encrypted: {shown}.",
            code="artifacts-not-encrypted",
            hint=f"Use https, or set {variable}=true if nobody else can read the traffic.",
        )
    return False


PART_BYTES = 5 * 1024 * 1024  # smallest part of a multipart upload in S3
SMALL_BYTES = 64 * 1024
_TO_STOP_S = 5.0  # time for a cancelled upload to remove its parts


class BucketObject(NamedTuple):
    path: str
    size_bytes: int
    changed_at: datetime


class Bucket:
    """Part of a bucket below a prefix. Paths are relative to the prefix."""

    def __init__(
        self, url: str, *, environ: Mapping[str, str], options: Mapping[str, Any], timeout_s: float = 60.0
    ) -> None:
        self.url = shown_url(url)
        self._address = parse_address(url)
        self._timeout_s = timeout_s
        self._is_real = False
        self._store = open_bucket(self._address, self.url, environ, options, timeout_s)

    async def find(self, path: str) -> bytes | None:
        """Returns a small object, or the start of a large one, or None if it does not exist."""
        import obstore

        async with self._asking(self._timeout_s):
            try:
                found = await obstore.get_async(self._store, path)
                if found.meta["size"] <= SMALL_BYTES:
                    data = await found.bytes_async()
                else:
                    data = await obstore.get_range_async(self._store, path, start=0, end=SMALL_BYTES)
                return bytes(data)
            except FileNotFoundError as error:
                if _names_bucket(str(error)):
                    raise
        return None

    async def find_range(self, path: str, start: int, end: int) -> bytes | None:
        import obstore

        async with self._asking(self._timeout_s):
            with suppress(FileNotFoundError):
                data = await obstore.get_range_async(self._store, path, start=start, end=end)
                return bytes(data)
        return None

    async def create(self, path: str, data: bytes) -> bool:
        """Creates an object and returns True, or returns False if it exists. An existing object is never
        overwritten."""
        import obstore

        async with self._asking(self._timeout_s):
            try:
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False  # providers answer 409 or 412
        return True

    async def put(self, path: str, data: bytes, *, mime_type: str | None = None) -> None:
        """Writes an object. An existing object is overwritten."""
        import obstore

        attributes = _attributes(mime_type)
        async with self._asking(self._timeout_s):
            await obstore.put_async(self._store, path, data, attributes=attributes, use_multipart=False)

    async def put_parts(
        self, path: str, parts: AsyncIterator[bytes], *, part_bytes: int = PART_BYTES, mime_type: str | None = None
    ) -> None:
        """Uploads a large object in parts. Each part has its own time-out, even if the parts arrive slowly.

        A cancelled upload is made to fail instead of dropped, because only then the provider deletes its parts.
        """
        import obstore

        feed = _UploadFeed(parts)
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
                    upload.exception()  # avoids asyncio's warning about an exception never retrieved
        feed.raise_if_broken()

    async def walk(self, prefix: str) -> AsyncIterator[BucketObject]:
        """Yields every object below a folder, at any depth."""
        import obstore

        pages = obstore.list(self._store, prefix=prefix or None)
        while True:
            async with self._asking(self._timeout_s):
                page = await anext(pages, None)
            if page is None:
                break
            for each in page:
                self._is_real = True
                yield BucketObject(each["path"], each["size"], each["last_modified"])
        if not self._is_real:  # any web page, such as a console, can be parsed as an empty list
            if await self.find(f".{secrets.token_hex(16)}") is not None:
                raise self._no_bucket()
            self._is_real = True

    async def folders(self, prefix: str) -> list[str]:
        """Returns the names of the folders directly below a folder."""
        import obstore

        async with self._asking(self._timeout_s):
            found = await obstore.list_with_delimiter_async(self._store, prefix=prefix)
        return [path.rpartition("/")[2] for path in found["common_prefixes"]]

    async def remove(self, *paths: str) -> None:
        """Removes objects. A missing object is not an error."""
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
            raise self._timed_out() from None
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise self._explain(str(error)) from None  # the original text can contain a signed URL

    def _explain(self, text: str) -> StoreError:
        """Turns an answer of the provider into an error with a hint."""
        status = reason = ""
        if match := _STATUS.search(text):
            status = match[1]
        if match := _REASON.search(text):
            reason = match[1]
        answered = f"{self.url} answered {status} {reason}".rstrip()
        if _names_bucket(text) or (status == "404" and not reason):
            return self._missing()
        if status in ("401", "403"):
            hint = f"Check the key. {self._key_hint}"
            return StoreError(f"{answered}.", code="store-denied", hint=hint)
        if status == "501" or reason == "NotImplemented":
            return not_conditional(self.url)
        if "redirect" in text.lower() or reason in _WRONG_REGION:
            hint = "Set AWS_REGION to the bucket's."
            return StoreError(f"{self.url} is in another region.", code="store-wrong-region", hint=hint)
        if "kind: Timeout" in text:
            return self._timed_out()
        if status:
            hint = "Check the address and its settings."
            if status[0] == "5" or status == "429":
                hint = "Try again later."
            return StoreError(f"{answered}.", code="store-error", hint=hint)
        if "HTTP error" in text:
            return self._unreachable("cannot be reached")
        return self._no_bucket()

    def _missing(self) -> StoreError:
        return StoreError(
            f"There is no bucket '{self._address.bucket}' for {self.url}.",
            code="bucket-missing",
            hint="Make it first, or check the address, the endpoint and the region.",
        )

    def _no_bucket(self) -> StoreError:
        return StoreError(
            f"{self.url} answers, but not as a bucket does.",
            code="store-not-a-bucket",
            hint="Check the endpoint: it may belong to a console, a proxy or a login page.",
        )

    @property
    def _key_hint(self) -> str:
        return KEY_HINTS[self._address.scheme]

    def _timed_out(self) -> StoreError:
        return self._unreachable(f"did not answer within {self._timeout_s:g} seconds")

    def _unreachable(self, how: str) -> StoreError:
        hint = f"Check the network and the endpoint. If no key was given: {self._key_hint}"
        return StoreError(f"{self.url} {how}.", code="store-unreachable", hint=hint)


class _Stopped(Exception):
    """Raised inside an upload, so that it removes the parts it has sent."""


class _UploadFeed:
    """Feeds parts to an upload, until their source fails or the upload is stopped."""

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
        f"{url} overwrites existing objects although the request forbids it, so saved versions could be lost.",
        code="store-not-conditional",
        hint="Use a server that honours conditional puts (If-None-Match), or keep artifacts in a folder.",
    )


def _names_bucket(text: str) -> bool:
    """True if the bucket itself is missing, not just an object."""
    return "NoSuchBucket" in text or "ContainerNotFound" in text


def _attributes(mime_type: str | None) -> Any:
    """Returns the content type, for people who look into the bucket. A value that is not a valid header is left out."""
    if mime_type and re.fullmatch(r"[!-.0-~]++/[ -~]++", mime_type):
        return {"Content-Type": mime_type}
    return None
