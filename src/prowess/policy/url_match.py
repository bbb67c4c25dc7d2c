"""Matches the URL of a request against a rule, by the address it leads to, in any spelling.

`HTTP://Example.com:80/a/../b`, `http://example.com./%62` and `http://example.com//b` are all `http://example.com/b`. A
rule that allows matches only an address in this normal form, so it does not depend on how a server reads other forms.
Its host pattern is compared with the host alone. A rule that asks or denies matches every possible reading, and also an
unreadable URL.
"""

from __future__ import annotations

import contextlib
import ipaddress
import posixpath
import re
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from prowess.policy.globs import match_anything

_URL = re.compile(r"([^:/?#]+)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
# In a pattern `?` is a wildcard: it starts no query and ends no host.
_PATTERN = re.compile(r"([^:/]+)://([^/]*)(.*)", re.DOTALL)
_SLOPPY = re.compile(r"(https?|wss?|ftp):/*", re.IGNORECASE)  # many parsers read this as `https://`
_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
_UNRESERVED = re.compile(r"%(2[DdEe]|3\d|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])")
_OLD_ADDRESS = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}")
# Some servers read `..;x` as `..`, and an encoded slash or backslash as a slash.
_DOUBTFUL_PATH = re.compile(r"%(2f|5c|2e|25|00)|(^|/)\.{1,2};", re.IGNORECASE)
_MOST_LAYERS = 5


class _UrlParts(NamedTuple):
    scheme: str
    authority: str
    rest: str  # path and query

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.rest}"


class _UrlReading(NamedTuple):
    """Text as a URL: its normal form, and every other address that it may mean."""

    address: _UrlParts | None  # None: not a URL, or unreadable
    certain: bool  # written in normal form
    may_be: tuple[_UrlParts, ...] = ()
    unreadable: bool = False


def fits_url(patterns: Sequence[str], text: str, *, strict: bool) -> bool:
    """True when one of the patterns matches. `strict` is for a rule that allows."""
    reading = _read(text)
    if strict:
        return reading.certain and any(_fits_certainly(pattern, reading, text) for pattern in patterns)
    return reading.unreadable or any(_may_fit(pattern, reading, text) for pattern in patterns)


def urls_like(pattern: str) -> Iterator[str]:
    """Yields URLs that the author of the pattern may mean."""
    wanted = _read_pattern(pattern)
    for wild in ("a", "1"):
        if wanted is None:
            yield re.sub(r"[*?]+", wild, pattern)
            continue
        port = re.search(r"(:[\d*?]+)?$", wanted.authority)
        host = wanted.authority[: port.start()] if port else wanted.authority
        authority = re.sub(r"[*?]+", "a", host) + re.sub(r"[*?]+", "1", wanted.authority[len(host) :])
        scheme, rest = re.sub(r"[*?]+", "a", wanted.scheme), re.sub(r"[*?]+", wild, wanted.rest)
        yield f"{scheme}://{authority}{rest if rest.startswith('/') else ''}"


def _fits_certainly(pattern: str, reading: _UrlReading, text: str) -> bool:
    if reading.address is None:
        return match_anything(pattern, text)
    wanted = _read_pattern(pattern)
    if wanted is None:  # a pattern without parts, such as `*`
        return match_anything(pattern, str(reading.address))
    return all(map(match_anything, wanted, reading.address))


def _may_fit(pattern: str, reading: _UrlReading, text: str) -> bool:
    if match_anything(pattern, text):
        return True
    wanted, patterns = _read_pattern(pattern), {pattern}
    if wanted is not None:
        sent = wanted._replace(rest=wanted.rest.partition("#")[0])  # the fragment is not sent
        patterns |= {str(sent), str(sent._replace(rest=_decoded(sent.rest)))}
    return any(match_anything(each, str(address)) for each in patterns for address in reading.may_be)


@lru_cache(maxsize=2_000)
def _read_pattern(pattern: str) -> _UrlParts | None:
    """Parses a pattern; scheme and host in normal form. The path stays as it is, because a `*` cannot be resolved."""
    found = _PATTERN.fullmatch(pattern.strip())
    if not found:
        return None
    scheme, authority, rest = found[1].lower(), found[2], found[3]
    if not rest:
        rest = "**" if authority.endswith("*") else "/"
    port = _PORTS.get(scheme, "")
    authority = authority.lower().removesuffix(f":{port}").rstrip(".")
    if not re.search(r"[*?@]", authority):
        authority = _read_authority(scheme, authority) or authority
    elif not authority.isascii():
        with contextlib.suppress(UnicodeError):
            parts = authority.split(".")
            authority = ".".join(p if re.search(r"[*?:@]", p) else p.encode("idna").decode("ascii") for p in parts)
    return _UrlParts(scheme, authority, rest)


@lru_cache(maxsize=200)
def _read(text: str) -> _UrlReading:
    tidy = text.strip()
    if "\\" in tidy or not tidy.isprintable():  # URL parsers disagree about these
        return _UrlReading(None, certain=False, unreadable=True)
    tidy = _SLOPPY.sub(lambda found: f"{found[1]}://", tidy, count=1) if _SLOPPY.match(tidy) else tidy
    found = _URL.fullmatch(tidy)
    if not found:
        return _UrlReading(None, certain=tidy == text)
    scheme, path, query = found[1].lower(), found[3], found[4] or ""
    authority = _read_authority(scheme, found[2])
    if authority is None:
        return _UrlReading(None, certain=False, unreadable=True)
    address = _UrlParts(scheme, authority, _resolved(_plain(path)) + _plain(query))
    as_written = _UrlParts(found[1], found[2], (path or "/") + query)
    certain = (
        text.isascii()
        and " " not in text
        and text == tidy
        and address == as_written
        and not _DOUBTFUL_PATH.search(path)
    )
    decoded, asked = _decoded(path), _decoded(query)
    may_be = [
        address,
        address._replace(rest=(path or "/") + query),
        address._replace(rest=_popped(_plain(path)) + _plain(query)),
        *(
            address._replace(rest=resolve(each) + asked)
            for each in (decoded, re.sub(r";[^/]*", "", decoded))
            for resolve in (_resolved, _popped)
        ),
    ]
    return _UrlReading(address, certain, tuple(dict.fromkeys(may_be)))


def _read_authority(scheme: str, text: str) -> str | None:
    """Returns host and port in normal form, without the user; None when unreadable."""
    if text.count("@") > 1 or re.search(r"\s", text):
        return None
    found = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(\d{0,8}))?", text.rpartition("@")[2])
    if not found:
        return None
    host, port = unquote(found[1]).lower(), str(int(found[2] or "0"))
    if re.search(r"[@/?#\\:\s]", host) and not host.startswith("["):
        return None
    try:
        if host.startswith("["):
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        elif not host.isascii():
            host = host.encode("idna").decode("ascii").lower()
        host = host.rstrip(".")
        if _OLD_ADDRESS.fullmatch(host):  # 0x7f.1 and 2130706433 are 127.0.0.1
            host = socket.inet_ntoa(socket.inet_aton(host))
    except (ValueError, OSError):
        return None
    return host if port in ("0", _PORTS.get(scheme)) else f"{host}:{port}"


def _plain(text: str) -> str:
    """Decodes characters that need no encoding: `%61` -> `a`. Decoding others would change the meaning."""
    return _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), text)


def _decoded(text: str) -> str:
    """Decodes everything, also what was encoded more than once."""
    for _ in range(_MOST_LAYERS):
        text, before = unquote(text), text
        if text == before:
            break
    return text.replace("\\", "/")


def _resolved(path: str) -> str:
    """Removes `.`, `..` and `//`. Keeps a slash at the end, also the one that a server adds to `a/.` or `a/..`."""
    plain = posixpath.normpath(re.sub(r"/+", "/", f"/{path}"))
    ends = path.endswith("/") or path.rpartition("/")[2] in (".", "..")
    return plain if plain == "/" or not ends else f"{plain}/"


def _popped(path: str) -> str:
    """Does the same strictly by RFC 3986, where `..` removes one of two slashes: `/a//..` is `/a/`."""
    parts: list[str] = []
    for part in path.removeprefix("/").split("/"):
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    ends = path.rpartition("/")[2] in (".", "..")
    return re.sub(r"/+", "/", "/" + "/".join([*parts, ""] if ends else parts))
