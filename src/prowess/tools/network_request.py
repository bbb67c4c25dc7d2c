"""network_request: makes one HTTP request to a host that the decision allows, within its time and size limits.

Redirects are followed here, and each target is checked like the first URL. Proxies from the environment are not used.
The result holds text, or a note when the response is not text.

The host name is resolved once. Every address is checked, and the request goes only to a checked address.

A host is allowed by a pattern, as in `workspace.network_allow`. An address that is not public must be listed itself:
neither a listed host name nor a wildcard leads to a private or loopback address.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from prowess._internal.addresses import Address, look_up
from prowess._internal.mime import is_text
from prowess._internal.urls import WEB_PORTS, HostTarget, NotAHost, is_plain_url, parse_url_target, shown_url
from prowess._internal.worker_thread import OneThread
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import FetchError, ToolRetry
from prowess.tools.arguments import Variables
from prowess.tools.base import PlainTool
from prowess.tools.result_text import foreign_text, our_line
from prowess.tools.schema import Arguments, parse_arguments, render_schema
from prowess.workspace.network.connection import Resolve, find_addresses
from prowess.workspace.network.host_rules import HostRule, denial_reason, find_rule, parse_rules
from prowess.workspace.network.http import Refused

if TYPE_CHECKING:
    import httpx


_MOST_SHOWN = 20


class Reached(NamedTuple):
    """URL that may be requested, with the addresses that may be used for it."""

    url: httpx.URL
    target: HostTarget
    addresses: Sequence[Address]

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = self.target.host
        port = self.target.port
        if ":" in host:
            host = f"[{host}]"
        if port == WEB_PORTS[self.url.scheme]:
            return host
        return f"{host}:{port}"


async def reach(text: str, previous: httpx.URL | None, rules: Sequence[HostRule], resolve: Resolve) -> Reached:
    """Returns the target of the URL `text` (after a redirect: relative to `previous`). FetchError if it is refused."""
    url = _parsed(text, previous)
    shown = shown_url(str(url))
    try:
        target = parse_url_target(str(url))
    except NotAHost as error:
        hint = "Write http://host/… or https://host/…; what the host needs to know goes into a header."
        raise _refused(f"{shown} is refused: {error}.", "url-refused", hint) from None
    rule = find_rule(rules, target)
    if rule is None:
        allowed = ", ".join(each.text for each in rules[:_MOST_SHOWN]) or "no host at all"
        why = denial_reason(rules, target)
        raise _refused(f"{shown} is refused: {why}.", "host-not-allowed", f"Allowed: {allowed}.")
    try:
        addresses = await find_addresses(target, rules, resolve)
    except Refused as refused:
        if refused.status == 403:
            hint = "A person can list that address itself, if it is meant."
            raise _refused(f"{refused.why}.", "address-not-allowed", hint) from None
        hint = "Check the spelling of the host, or try later."
        raise FetchError(f"{refused.why}.", code="request-failed", retryable=True, hint=hint) from refused
    return Reached(url, target, addresses)


async def look_up_apart(host: str) -> list[str]:
    """Resolves a host in its own thread. A lookup cannot be cancelled, so it must block no shared thread, and no end
    of the process."""
    thread = OneThread("prowess-lookup")
    try:
        return await thread.ask(lambda: look_up(host))
    finally:
        thread.end()


def _parsed(text: str, previous: httpx.URL | None) -> httpx.URL:
    """Parses a URL. A redirect may not lead from https to http."""
    import httpx

    if not is_plain_url(text):
        hint = "Write it in ASCII, other characters as %XX or xn--…"
        raise _refused("The URL holds characters that readers of URLs disagree about.", "url-refused", hint)
    try:
        url = httpx.URL(text) if previous is None else previous.join(text)
    except httpx.InvalidURL:  # its message quotes the URL
        raise _refused(f"{shown_url(text)} is not a URL.", "url-refused", "Check its spelling.") from None
    if previous is not None and previous.scheme == "https" and url.scheme == "http":
        start = shown_url(str(previous))
        end = shown_url(str(url))
        hint = "Ask for the address that it should lead to."
        raise _refused(f"{start} redirects to {end}, without encryption.", "url-refused", hint)
    return url


MAX_BYTES = 1_000_000
TIMEOUT_S = 30.0
MAX_REDIRECTS = 5
_CONNECT_S = 10.0
_CHUNK = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_OURS = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|accept-encoding|proxy-.*"
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
# Only charsets for human languages. Python knows more codecs, but some are very slow or not for text.
_CHARSET = re.compile(
    r"charset\s*=\s*[\"']?((?:utf|iso|windows|cp|latin|us-ascii|shift|sjis|euc|gb|big5|koi8|mac)[\w-]{0,20})",
    re.IGNORECASE,
)
_SECRET_HEADERS = ("authorization", "cookie")
_SHOWN_HEADERS = (
    "content-type content-language content-disposition date etag expires last-modified link location retry-after "
    "server www-authenticate x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-request-id"
).split()

_TOLD_HEADERS = ("link", "location", "retry-after", "www-authenticate")


def _method(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.strip().upper()


def _body(value: Any) -> Any:
    """Turns an object or a list into JSON text."""
    if not isinstance(value, dict | list):
        return value
    return json.dumps(value, ensure_ascii=False)


_Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class RequestArguments(Arguments):
    ALIASES: ClassVar = {"uri": "url", "data": "body", "json": "body"}

    url: str = Field(min_length=1, max_length=8000)
    method: Annotated[_Method, BeforeValidator(_method)] = "GET"
    headers: Variables = Field(default_factory=dict)
    body: Annotated[str | None, BeforeValidator(_body)] = None

    @model_validator(mode="before")
    @classmethod
    def _without_question(cls, value: Any) -> Any:
        """Drops `prompt`: `WebFetch` of other systems sends a question, but here the result is the page."""
        if not isinstance(value, dict):
            return value
        given = dict(value)
        given.pop("prompt", None)
        return given


class Sent(NamedTuple):
    method: str
    headers: dict[str, str]
    body: bytes | None


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    url: str
    data: bytes
    truncated: bool
    note: str | None = None


class NetworkRequest(PlainTool):
    """The network_request tool. `resolve` turns a host name into addresses."""

    spec = ToolSpec(
        name="network_request",
        description="Make one HTTP request to an allowed host.",
        parameters=render_schema(RequestArguments),
    )

    def __init__(self, *, resolve: Resolve = look_up_apart) -> None:
        self._resolve = resolve

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(RequestArguments, args, self.spec.name)
        _check_headers(wanted.headers)
        return wanted.normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        """Makes the request, within the hosts, the time and the size that the decision allows."""
        wanted = parse_arguments(RequestArguments, args, self.spec.name)
        _check_headers(wanted.headers)
        limits = within.decision.limits
        hosts = limits.get("hosts") or ()
        rules = parse_rules(map(str, hosts))
        if not rules:
            message = "No host may be reached from here."
            hint = "Go on without it; a person can list hosts in the configuration."
            raise FetchError(message, code="host-not-allowed", hint=hint)
        timeout_s = float(limits.get("timeout_s") or TIMEOUT_S)
        most = int(limits.get("max_bytes") or MAX_BYTES)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._follow(wanted, rules, most)
        except TimeoutError:
            message = f"{shown_url(wanted.url)} took longer than {timeout_s:g} s."
            hint = "Try again later, or ask for less."
            raise FetchError(message, code="request-timeout", retryable=True, hint=hint) from None
        return _render(answer, within)

    async def _follow(self, wanted: RequestArguments, rules: Sequence[HostRule], most: int) -> Answer:
        """Sends the request, and follows redirects."""
        headers = _headers(wanted)
        body = None if wanted.body is None else wanted.body.encode("utf-8", "replace")
        sent = Sent(wanted.method, headers, body)
        to = await reach(wanted.url, None, rules, self._resolve)
        for _ in range(MAX_REDIRECTS + 1):
            answer = await _ask(sent, to, most)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            origin = _origin(to)
            to = await reach(location, to.url, rules, self._resolve)
            sent = _again(sent, answer.status, same_origin=origin == _origin(to))
        message = f"{shown_url(wanted.url)} redirects more than {MAX_REDIRECTS} times."
        hint = "Use the address that it finally leads to."
        raise FetchError(message, code="too-many-redirects", hint=hint)


async def _ask(sent: Sent, to: Reached, most: int) -> Answer:
    """Sends the request to the first address that accepts a connection. A request is never sent twice."""
    import httpx

    shown = shown_url(str(to.url))
    timeout = httpx.Timeout(None, connect=_CONNECT_S)
    # The URL has the address, so the name is not resolved again. TLS and the Host header still use the name.
    headers = {**sent.headers, "Host": to.authority}
    extensions: dict[str, Any] = {}
    if to.target.address is None:
        extensions["sni_hostname"] = to.target.host
    for address in to.addresses:
        last = address == to.addresses[-1]
        url = to.url.copy_with(host=str(address))
        client = httpx.AsyncClient(verify=_trust(to.url), trust_env=False, timeout=timeout)
        asked = client.build_request(sent.method, url, headers=headers, content=sent.body, extensions=extensions)
        try:
            async with client:
                response = await client.send(asked, stream=True)
                try:
                    return await _receive(response, to, most)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if last or "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise _failed(shown, str(error) or "no answer") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _failed(shown, str(error) or type(error).__name__) from error
    raise _failed(shown, "no answer")


async def _receive(response: httpx.Response, to: Reached, most: int) -> Answer:
    """Reads at most `most` bytes of the body."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    encoding = headers.get("content-encoding", "identity")
    encoding = encoding.strip().lower()
    answer = Answer(response.status_code, headers, str(to.url), b"", truncated=True)
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        note = f"It came in an encoding ({encoding[:40]}) that is not read here."
        return answer._replace(note=note)
    data = bytearray()
    try:
        async for piece in _decoded(response.aiter_raw(_CHUNK), encoding):
            data += piece
            if len(data) > most:
                return answer._replace(data=bytes(data[:most]))
    except zlib.error as error:
        note = f"It came in an encoding ({encoding}) that could not be read: {error}."
        return answer._replace(data=bytes(data), note=note)
    return answer._replace(data=bytes(data), truncated=False)


async def _decoded(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Decompresses in small pieces, against decompression bombs. Servers may compress although asked not to."""
    if encoding in ("", "identity"):
        async for chunk in chunks:
            yield chunk
        return
    unpack: Any = None
    async for chunk in chunks:
        if unpack is None:  # some servers send raw deflate without the zlib header
            bare = encoding == "deflate" and chunk[:1] and chunk[0] & 0x0F != 8
            wbits = -15 if bare else 47
            unpack = zlib.decompressobj(wbits=wbits)
        left = chunk
        while left and not unpack.eof:
            yield unpack.decompress(left, _CHUNK)
            left = unpack.unconsumed_tail


def _trust(url: httpx.URL) -> ssl.SSLContext:
    """Returns a TLS context. Plain http gets one without certificates, because loading them is slow."""
    import httpx

    if url.scheme == "https":
        return httpx.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _headers(wanted: RequestArguments) -> dict[str, str]:
    given = {name.lower() for name in wanted.headers}
    headers = {**wanted.headers, "Accept-Encoding": "identity"}
    if "user-agent" not in given:
        headers["User-Agent"] = "prowess"
    if "accept" not in given:
        headers["Accept"] = "*/*"
    if wanted.body is not None and "content-type" not in given:
        headers["Content-Type"] = "application/json" if _is_json(wanted.body) else "text/plain; charset=utf-8"
    return headers


def _again(sent: Sent, status: int, *, same_origin: bool) -> Sent:
    """Returns the request after a redirect, as browsers do it. Secret headers are not sent to another origin."""
    headers = sent.headers
    if not same_origin:
        headers = _without(headers, _SECRET_HEADERS)
    if status in (307, 308) or sent.method in ("GET", "HEAD"):
        return sent._replace(headers=headers)
    if status in (301, 302) and sent.method != "POST":
        return sent._replace(headers=headers)
    headers = _without(headers, ["content-type"])
    return Sent("GET", headers, body=None)


def _without(headers: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Headers without these. The names are lower-case."""
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if name.lower() not in names:
            kept[name] = value
    return kept


def _origin(to: Reached) -> tuple[str, str, int]:
    """Scheme, host and port: a browser's origin."""
    target = to.target
    return to.url.scheme, target.host, target.port


def _check_headers(headers: Mapping[str, str]) -> None:
    """Refuses headers that cannot be sent, and those that the runtime sets."""
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            shown = ascii(name)[:80]
            raise ToolRetry(f"network_request: {shown} is not the name of a header.")
        if _OURS.fullmatch(name.lower()):
            raise ToolRetry(f"network_request: the header {name} is set by the runtime. Leave it out.")
        without_tabs = value.replace("\t", " ")
        if not value.isascii() or not without_tabs.isprintable():
            raise ToolRetry(f"network_request: the header {name} holds characters that cannot be sent.")


def _render(answer: Answer, within: CallGrant) -> Outcome:
    kind = answer.headers.get("content-type", "")
    mime, _, _ = kind.partition(";")
    mime = mime.strip().lower()
    if not mime:
        mime = "text/plain" if is_text(answer.data) else "application/octet-stream"
    body = _text(answer, kind, mime)
    data: dict[str, Any] = {"status": answer.status, "url": answer.url}
    data["headers"] = {name: answer.headers[name] for name in _SHOWN_HEADERS if name in answer.headers}
    data["mime_type"] = mime
    data["size_bytes"] = len(answer.data)
    data["truncated"] = answer.truncated
    data["body"] = None if body is None else within.redaction.redact_text(body)
    if answer.note is not None:
        data["note"] = answer.note
    elif body is None:
        data["note"] = "It is not text."
    elif answer.truncated:
        data["note"] = f"Only the first {len(answer.data)} bytes are here."
    return Outcome(status="ok", content=_told(data), data=data)


def _told(data: Mapping[str, Any]) -> str:
    """Renders an answer for the model: status, type and the headers that say what to do next, then the body."""
    headers: Mapping[str, str] = data["headers"]
    lines = [our_line(f"HTTP {data['status']} {data['mime_type']}")]
    for name in _TOLD_HEADERS:
        if name in headers:
            lines.append(our_line(f"HTTP {data['status']} {name}: {headers[name][:300]}"))
    if "note" in data:
        lines.append(our_line(f"prowess: {data['note']}"))
    if data["body"]:
        lines.append(foreign_text(data["body"]).rstrip("\n"))
    return "\n".join(lines)


def _text(answer: Answer, kind: str, mime: str) -> str | None:
    """Decodes the body: as UTF-8 when it is valid, else with the charset of the header."""
    if is_text(answer.data, whole=not answer.truncated):
        return answer.data.decode("utf-8", "replace")
    named = _CHARSET.search(kind)
    if not named and not mime.startswith("text/"):
        return None
    charset = named[1] if named else "utf-8"
    try:
        text = answer.data.decode(charset, "replace")
    except (LookupError, ValueError):
        text = answer.data.decode("utf-8", "replace")
    if "\0" in text:
        return None
    return text


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _refused(message: str, code: str, hint: str) -> FetchError:
    """Error for a request that is not made. It is not retryable."""
    return FetchError(message, code=code, hint=hint)


def _failed(shown: str, why: str) -> FetchError:
    message = f"{shown} could not be asked: {why}."
    hint = "Check the address, or try later."
    return FetchError(message, code="request-failed", retryable=True, hint=hint)
