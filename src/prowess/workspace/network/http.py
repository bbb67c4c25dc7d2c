"""Parses proxy requests strictly, and renders the proxy's own answers. Pure: bytes in, values out.

An ambiguous request is refused. A plain http request that is passed on names exactly the host that was checked.
"""

from __future__ import annotations

import http
import re
from typing import NamedTuple

from prowess._internal.urls import HostTarget, NotAHost, parse_target

END = b"\r\n\r\n"
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*+)")
_PLAIN = re.compile(r"(?i:http)://([^/?#]*)([/?][^#]*)?")
# Headers that apply to a single connection; ours to the server ends with this answer.
_HOP_BY_HOP = {"connection", "proxy-connection", "keep-alive", "proxy-authorization", "te", "trailer", "upgrade"}


class ProxyRequest(NamedTuple):
    target: HostTarget
    tunnel: bool
    head: bytes = b""  # for the server, if this is no tunnel
    body_bytes: int = 0


class Refused(Exception):
    """Error: the program gets an answer of the proxy instead of a connection. `target` is the host, as far as known."""

    def __init__(self, status: int, why: str, *, target: HostTarget | None = None, shown: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.target = target
        self.host = shown[:253]
        self.port = 0
        if target:
            self.host = target.host
            self.port = target.port


def begins_well(data: bytes | bytearray) -> bool:
    """False when the data cannot become an HTTP request, such as TLS or SOCKS; then there is no reason to wait for
    more."""
    return re.match(rb"[A-Za-z]+( |$)", data[:33]) is not None


def parse_request(head: bytes) -> ProxyRequest:
    """Parses `head`, which is everything before the empty line."""
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise Refused(400, "this is an HTTP/1.1 proxy, and that was no request to one")
    method = line[1].decode("ascii")
    target = line[2].decode("ascii")
    if method == "CONNECT":
        return ProxyRequest(_target(target, None), tunnel=True)
    plain = _PLAIN.fullmatch(target)
    if plain is None:
        raise Refused(400, "a proxy is asked for http://host/path, or to CONNECT to host:port")
    where = _target(plain[1], 80)
    path = plain[2] or "/"
    fields, body_bytes = _fields(lines)
    if path.startswith("?"):
        path = f"/{path}"
    host = str(where).removesuffix(":80")
    minor = line[3].decode("ascii")
    asked = f"{method} {path} HTTP/1.{minor}\r\nHost: {host}\r\nConnection: close\r\n"
    whole = asked.encode("ascii") + fields + b"\r\n"
    return ProxyRequest(where, tunnel=False, head=whole, body_bytes=body_bytes)


def _target(authority: str, default_port: int | None) -> HostTarget:
    try:
        return parse_target(authority, default_port=default_port)
    except NotAHost as error:
        why = f"{authority[:100]!r} names no host: {error}"
        raise Refused(403, why, shown=authority) from error


def _fields(lines: list[bytes]) -> tuple[bytes, int]:
    """Returns the headers to pass on, and the length of the body."""
    found: list[tuple[str, bytes, bytes]] = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise Refused(400, "a header of the request is malformed")
        name = field[1].decode("ascii").lower()
        found.append((name, field[2].strip(), line))
    dropped = {*_HOP_BY_HOP, "host"}
    lengths: set[bytes] = set()
    for name, value, _ in found:
        if name == "connection":
            dropped |= {each.strip() for each in value.decode("latin-1").lower().split(",")}
        elif name == "transfer-encoding":
            raise Refused(411, "a body has to say how long it is (Content-Length), or to be sent over https")
        elif name == "content-length":
            lengths.add(value)
    dropped.discard("content-length")
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]{1,15}", value) for value in lengths):
        raise Refused(400, "the length of the body is not clear")
    kept = b"".join(line + b"\r\n" for name, _, line in found if name not in dropped)
    body_bytes = int(lengths.pop()) if lengths else 0
    return kept, body_bytes


def render_answer(status: int, text: str, *, reason: str = "", body: bool = True) -> bytes:
    """Renders a whole answer that ends the connection. Clients often show the reason and hide the text."""
    data = text.encode("utf-8", "replace")
    phrase = reason or http.HTTPStatus(status).phrase
    phrase = re.sub(r"[^\x20-\x7e]", "?", phrase)
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    head += f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    if not body:
        return head.encode("ascii")
    return head.encode("ascii") + data
