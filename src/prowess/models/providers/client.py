"""Connection to one address of a provider: checks the configuration before the first request, and reads whole replies.

Nothing here reads the environment. The SDK sends the request and raises the errors. `sse` and the module of the
protocol read the reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import importlib
import importlib.util
from collections.abc import AsyncGenerator, Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prowess.errors import ConfigError, MissingExtra, ModelAuth, ModelError
from prowess.models.providers.errors import (
    Where,
    broken,
    explain,
    explain_fault,
    failures,
    find_fault,
    http_library,
    malformed,
    request_id_of,
)
from prowess.models.providers.reply_builder import Draft
from prowess.models.providers.sse import BrokenEvent, EventReader, parse_object

# A local server needs no key, but the SDKs require one.
NO_KEY = "none"
_CONNECT_TIMEOUT_S = 10.0
_MAX_WHOLE_BYTES = 64 * 1024 * 1024
_OURS = ("model", "messages", "input", "tools", "system", "instructions", "api_key", "headers", "extra_headers")

Read = Callable[[Draft, Mapping[str, Any]], None]


class Options(NamedTuple):
    """Parameters that Prowess uses, and in `body` those that go to the provider."""

    body: dict[str, Any]
    stream: bool
    context_tokens: int | None
    timeout_s: float
    max_tokens: int | None


class Provider(NamedTuple):
    """Fixed facts about a provider, before any configuration."""

    sdk: str  # module name; also the name of its extra, and the prefix of its models
    address: str
    variable: str  # environment variable of its key
    added: str = ""  # suffix that the SDK itself adds to an address


def open_endpoint(
    provider: Provider,
    model: str,
    *,
    api_key: str | None,
    base_url: str | None,
    params: Mapping[str, Any],
    timeout_s: float,
) -> tuple[Endpoint, Options]:
    """Checks the configuration and makes the endpoint. Sends nothing."""
    check_sdk(provider.sdk)
    options = parse_params(params, model, timeout_s)
    key = check_key(model, api_key, base_url, provider.variable)
    address = check_address(model, base_url or provider.address).removesuffix(provider.added)
    where = Where(model=model, address=address, key=key, variable=provider.variable)
    return Endpoint(provider.sdk, where, options.timeout_s), options


def parse_params(params: Mapping[str, Any], model: str, timeout_s: float) -> Options:
    body = dict(params)
    for name in ("api", "base_url"):  # already read by the caller that opened the model
        body.pop(name, None)
    for name in _OURS:
        if name in body:
            hint = (
                "A key comes from the environment." if name == "api_key" else "The request itself is made by Prowess."
            )
            message = f"The parameter {name} of {model} cannot be set."
            raise ConfigError(message, code="model-params-invalid", hint=hint)
    most = next((body.pop(name) for name in ("max_tokens", "max_output_tokens") if name in body), None)
    body.pop("max_output_tokens", None)
    return Options(
        stream=_checked(model, "stream", body.pop("stream", True), bool),
        context_tokens=_checked(model, "context_tokens", body.pop("context_tokens", None), int, optional=True),
        timeout_s=float(_checked(model, "timeout_s", body.pop("timeout_s", timeout_s), (int, float))),
        max_tokens=_checked(model, "max_tokens", most, int, optional=True),
        body=body,
    )


def _checked(model: str, name: str, value: Any, kind: Any, *, optional: bool = False) -> Any:
    if optional and value is None:
        return None
    fits = isinstance(value, kind) and (kind is bool or (not isinstance(value, bool) and value > 0))
    if not fits:
        wanted = "true or false" if kind is bool else "a number above 0"
        message = f"The parameter {name} of {model} must be {wanted}, not {value!r}."[:300]
        raise ConfigError(message, code="model-params-invalid", hint="See docs/models.md.")
    return value


def check_key(model: str, api_key: str | None, base_url: str | None, variable: str) -> str:
    key = (api_key or "").strip()
    if not key and not base_url:
        hint = f"Set {variable}, or give the address of a server that wants none."
        raise ModelAuth(f"There is no key for {model}.", code="model-no-key", hint=hint)
    if not (key.isascii() and key.isprintable()):  # the HTTP library would quote the key in its error
        hint = f"Set {variable} again: there is a character in it that no key has."
        raise ModelAuth(f"The key for {model} cannot be sent.", code="model-auth", hint=hint)
    return key or NO_KEY


def check_address(model: str, address: str) -> str:
    try:
        parts = urlsplit(address.strip())
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits:
        message = f"The address of {model} is not the address of a server."
        hint = "Write it as in http://localhost:11434/v1 or https://example.com/v1."
        raise ConfigError(message, code="model-address-invalid", hint=hint)
    return address.strip().rstrip("/")


def check_sdk(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise MissingExtra(name, wanted_for=f"{name}: models")


class Endpoint:
    """Client of the SDK. Made at the first use, once for each event loop."""

    def __init__(self, sdk: str, where: Where, timeout_s: float) -> None:
        self._sdk = sdk
        self.where = where
        self._timeout_s = timeout_s
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def client(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            sdk = importlib.import_module(self._sdk)
            make = sdk.AsyncOpenAI if self._sdk == "openai" else sdk.AsyncAnthropic
            timeout = sdk.Timeout(self._timeout_s, connect=min(_CONNECT_TIMEOUT_S, self._timeout_s))
            given: dict[str, Any] = {"api_key": self.where.key, "base_url": self.where.address, "timeout": timeout}
            if self.where.address.startswith("http:"):
                given["http_client"] = sdk.DefaultAsyncHttpxClient(timeout=timeout, limits=_fresh_connections(sdk))
            self._client = make(max_retries=0, **given)
            self._loop = loop
        return self._client

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def exchange(self, opened: Any, read: Read, draft: Draft) -> None:
        """Sends the request that an SDK's `with_streaming_response` made, and reads the reply to its end."""
        sdk = importlib.import_module(self._sdk)
        try:
            async with contextlib.aclosing(self._events(sdk, opened, draft)) as events:
                async for event in events:
                    read(draft, event)
        except ModelError as error:
            if error.code == "model-unknown":
                error.hint = await self._name_models(sdk) or error.hint
            raise
        if draft.finish is None:
            raise broken(self.where, "it ended without saying why")

    async def _events(self, sdk: ModuleType, opened: Any, draft: Draft) -> AsyncGenerator[dict[str, Any], None]:
        failed = failures(sdk)
        try:
            async with opened as response:
                draft.request_id = request_id_of(response.headers)
                async with contextlib.aclosing(self._parsed(response)) as events:
                    async for event in events:
                        if fault := find_fault(event, response.headers):
                            raise explain_fault(fault, self.where)
                        yield event
        except failed as error:
            raise explain(error, self.where) from error

    async def _parsed(self, response: Any) -> AsyncGenerator[dict[str, Any], None]:
        content_type = response.headers.get("content-type", "")
        if "json" in content_type or "html" in content_type:
            yield await self._whole(response, content_type)
            return
        reader, found = EventReader(), False
        try:
            async for chunk in response.iter_bytes():
                for event in reader.feed(chunk):
                    found = True
                    yield event
            for event in reader.finish():
                found = True
                yield event
        except BrokenEvent as error:
            raise broken(self.where, str(error)) from error
        if not found and reader.head.strip():
            raise malformed(self.where, f"{content_type or 'no content type'}, {_shown(reader.head)}")

    async def _whole(self, response: Any, content_type: str) -> dict[str, Any]:
        body = bytearray()
        async for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MAX_WHOLE_BYTES:
                raise malformed(self.where, f"more than {_MAX_WHOLE_BYTES} bytes of {content_type}")
        try:
            return parse_object(bytes(body))
        except BrokenEvent as error:
            raise malformed(self.where, f"{content_type}, {_shown(bytes(body[:200]))}") from error

    async def _name_models(self, sdk: ModuleType) -> str | None:
        """Lists the models that exist instead, if the server answers quickly."""
        wanted = self.where.model.partition(":")[2]
        try:
            page = await self.client().models.list(timeout=min(5.0, self._timeout_s))
            names = sorted(str(model.id) for model in page.data)
        except (*failures(sdk), ValueError, TypeError, AttributeError):
            return None
        near = names if len(names) <= 10 else difflib.get_close_matches(wanted, names, n=5, cutoff=0.4) or names[:10]
        if not near:
            return None
        more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
        return f"There are: {', '.join(near)}{more}."


def _fresh_connections(sdk: ModuleType) -> Any:
    """Limits that open a new connection for each request.

    llama.cpp closes connections that it promised to keep. Without TLS a new connection costs almost nothing.
    """
    return http_library(sdk).Limits(max_connections=1000, max_keepalive_connections=0)


def _shown(data: bytes) -> str:
    return repr(data[:200].decode("utf-8", "replace"))
