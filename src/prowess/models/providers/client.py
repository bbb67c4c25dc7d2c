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

from prowess._internal.json_values import JsonObject
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

Read = Callable[[Draft, JsonObject], None]


class Options(NamedTuple):
    """Parameters that Prowess uses, and in `body` those that go to the provider."""

    body: JsonObject
    stream: bool
    context_tokens: int | None
    timeout_s: float
    max_tokens: int | None
    schemas: bool | None  # the server holds answers to a JSON Schema; None: as known


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
    variable = provider.variable
    key = check_key(model, api_key, base_url, variable)
    address = check_address(model, base_url or provider.address)
    address = address.removesuffix(provider.added)
    where = Where(model=model, address=address, key=key, variable=variable)
    endpoint = Endpoint(provider.sdk, where, options.timeout_s)
    return endpoint, options


def parse_params(params: Mapping[str, Any], model: str, timeout_s: float) -> Options:
    """Takes the parameters that Prowess uses; the rest goes to the provider."""
    _check_allowed(params, model)
    body = dict(params)
    for name in ("api", "base_url"):  # already read by the caller that opened the model
        body.pop(name, None)
    other_name = body.pop("max_output_tokens", None)
    length = body.pop("max_tokens", other_name)
    stream = body.pop("stream", True)
    window = body.pop("context_tokens", None)
    seconds = body.pop("timeout_s", timeout_s)
    schemas = body.pop("schemas", None)
    if not isinstance(stream, bool):
        raise _wrong_type(model, "stream", "true or false", stream)
    if schemas is not None and not isinstance(schemas, bool):
        raise _wrong_type(model, "schemas", "true or false", schemas)
    if window is not None:
        _check_number(model, "context_tokens", window, int)
    _check_number(model, "timeout_s", seconds, (int, float))
    if length is not None:
        _check_number(model, "max_tokens", length, int)
    return Options(
        body=body,
        stream=stream,
        context_tokens=window,
        timeout_s=float(seconds),
        max_tokens=length,
        schemas=schemas,
    )


def _check_allowed(params: Mapping[str, Any], model: str) -> None:
    """Refuses the parameters that would replace parts of a request."""
    for name in _OURS:
        if name not in params:
            continue
        hint = "The request itself is made by Prowess."
        if name == "api_key":
            hint = "A key comes from the environment."
        message = f"The parameter {name} of {model} cannot be set."
        raise ConfigError(message, code="model-params-invalid", hint=hint)


def _check_number(model: str, name: str, value: Any, kind: Any) -> None:
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if is_number and value > 0:
        return
    raise _wrong_type(model, name, "a number above 0", value)


def _wrong_type(model: str, name: str, wanted: str, value: Any) -> ConfigError:
    message = f"The parameter {name} of {model} must be {wanted}, not {value!r}."
    message = message[:300]  # the value may be long
    return ConfigError(message, code="model-params-invalid", hint="See docs/models.md.")


def check_key(model: str, api_key: str | None, base_url: str | None, variable: str) -> str:
    """Returns the key. A server with an address of its own needs none."""
    key = (api_key or "").strip()
    if not key and not base_url:
        message = f"There is no key for {model}."
        hint = f"Set {variable}, or give the address of a server that wants none."
        raise ModelAuth(message, code="model-no-key", hint=hint)
    can_be_sent = key.isascii() and key.isprintable()
    if not can_be_sent:  # the HTTP library would quote the key in its error
        message = f"The key for {model} cannot be sent."
        hint = f"Set {variable} again: there is a character in it that no key has."
        raise ModelAuth(message, code="model-auth", hint=hint)
    return key or NO_KEY


def check_address(model: str, address: str) -> str:
    """Returns the address without a slash at its end."""
    written = address.strip()
    if not _is_address(written):
        message = f"The address of {model} is not the address of a server."
        hint = "Write it as in http://localhost:11434/v1 or https://example.com/v1."
        raise ConfigError(message, code="model-address-invalid", hint=hint)
    return written.rstrip("/")


def _is_address(written: str) -> bool:
    try:
        parts = urlsplit(written)
        _ = parts.port  # ValueError when it is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def check_sdk(name: str) -> None:
    found = importlib.util.find_spec(name)
    if found is None:
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
        """Returns the client of this event loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = self._make_client()
            self._loop = loop
        return self._client

    def _make_client(self) -> Any:
        """Makes the client. Retries are made by the agent, not by the SDK."""
        sdk = importlib.import_module(self._sdk)
        make = sdk.AsyncOpenAI if self._sdk == "openai" else sdk.AsyncAnthropic
        connect_s = min(_CONNECT_TIMEOUT_S, self._timeout_s)
        timeout = sdk.Timeout(self._timeout_s, connect=connect_s)
        address = self.where.address
        http_client = None
        if address.startswith("http:"):
            limits = _fresh_connections(sdk)
            http_client = sdk.DefaultAsyncHttpxClient(timeout=timeout, limits=limits)
        return make(api_key=self.where.key, base_url=address, timeout=timeout, http_client=http_client, max_retries=0)

    def prepare(self) -> None:
        """Imports the SDK, which takes longer than anything else here."""
        importlib.import_module(self._sdk)

    async def aclose(self) -> None:
        client = self._client
        self._client = None
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

    async def _events(self, sdk: ModuleType, opened: Any, draft: Draft) -> AsyncGenerator[JsonObject, None]:
        failed = failures(sdk)
        try:
            async with opened as response:
                draft.request_id = request_id_of(response.headers)
                async with contextlib.aclosing(self._parsed(response)) as events:
                    async for event in events:
                        fault = find_fault(event, response.headers)
                        if fault:
                            raise explain_fault(fault, self.where)
                        yield event
        except failed as error:
            raise explain(error, self.where) from error

    async def _parsed(self, response: Any) -> AsyncGenerator[JsonObject, None]:
        content_type = response.headers.get("content-type", "")
        if "json" in content_type or "html" in content_type:
            yield await self._whole(response, content_type)
            return
        reader = EventReader()
        found = False
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
            kind = content_type or "no content type"
            raise malformed(self.where, f"{kind}, {_shown(reader.head)}")

    async def _whole(self, response: Any, content_type: str) -> JsonObject:
        body = bytearray()
        async for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MAX_WHOLE_BYTES:
                raise malformed(self.where, f"more than {_MAX_WHOLE_BYTES} bytes of {content_type}")
        data = bytes(body)
        try:
            return parse_object(data)
        except BrokenEvent as error:
            raise malformed(self.where, f"{content_type}, {_shown(data)}") from error

    async def _name_models(self, sdk: ModuleType) -> str | None:
        """Lists the models that exist instead, if the server answers quickly."""
        client = self.client()
        try:
            page = await client.models.list(timeout=min(5.0, self._timeout_s))
            names = [str(model.id) for model in page.data]
        except (*failures(sdk), ValueError, TypeError, AttributeError):
            return None
        names.sort()
        near = self._choose_names(names)
        if not near:
            return None
        left = len(names) - len(near)
        more = f" and {left} more" if left else ""
        listed = ", ".join(near)
        return f"There are: {listed}{more}."

    def _choose_names(self, names: list[str]) -> list[str]:
        """Returns all names if they are few, or else those that are similar to the name of this model."""
        if len(names) <= 10:
            return names
        _, _, wanted = self.where.model.partition(":")
        near = difflib.get_close_matches(wanted, names, n=5, cutoff=0.4)
        return near or names[:10]


def _fresh_connections(sdk: ModuleType) -> Any:
    """Limits that open a new connection for each request.

    llama.cpp closes connections that it promised to keep. Without TLS a new connection costs almost nothing.
    """
    http = http_library(sdk)
    return http.Limits(max_connections=1000, max_keepalive_connections=0)


def _shown(data: bytes) -> str:
    text = data[:200].decode("utf-8", "replace")
    return repr(text)
