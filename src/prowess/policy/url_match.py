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
            yield _filled(pattern, wild)
            continue
        port = re.search(r"(:[\d*?]+)?$", wanted.authority)
        end = port.start() if port else len(wanted.authority)
        scheme = _filled(wanted.scheme, "a")
        host = _filled(wanted.authority[:end], "a")
        number = _filled(wanted.authority[end:], "1")
        rest = _filled(wanted.rest, wild)
        if not rest.startswith("/"):
            rest = ""
        yield f"{scheme}://{host}{number}{rest}"


def _filled(pattern: str, wild: str) -> str:
    return re.sub(r"[*?]+", wild, pattern)


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
    patterns = {pattern}
    wanted = _read_pattern(pattern)
    if wanted is not None:
        sent = wanted._replace(rest=wanted.rest.partition("#")[0])  # the fragment is not sent
        decoded = sent._replace(rest=_decoded(sent.rest))
        patterns |= {str(sent), str(decoded)}
    addresses = [str(address) for address in reading.may_be]
    return any(match_anything(each, address) for each in patterns for address in addresses)


@lru_cache(maxsize=2_000)
def _read_pattern(pattern: str) -> _UrlParts | None:
    """Parses a pattern; scheme and host in normal form. The path stays as it is, because a `*` cannot be resolved."""
    found = _PATTERN.fullmatch(pattern.strip())
    if not found:
        return None
    scheme = found[1].lower()
    authority = found[2]
    rest = found[3]
    if not rest:
        rest = "**" if authority.endswith("*") else "/"
    port = _PORTS.get(scheme, "")
    authority = authority.lower().removesuffix(f":{port}").rstrip(".")
    if not re.search(r"[*?@]", authority):
        authority = _read_authority(scheme, authority) or authority
    elif not authority.isascii():
        with contextlib.suppress(UnicodeError):
            parts = map(_plain_host_part, authority.split("."))
            authority = ".".join(parts)
    return _UrlParts(scheme, authority, rest)


def _plain_host_part(part: str) -> str:
    """Returns a part of a host pattern in ASCII. A part with a wildcard, a port or a user stays as it is."""
    if re.search(r"[*?:@]", part):
        return part
    return part.encode("idna").decode("ascii")


@lru_cache(maxsize=200)
def _read(text: str) -> _UrlReading:
    tidy = text.strip()
    if "\\" in tidy or not tidy.isprintable():  # URL parsers disagree about these
        return _UrlReading(None, certain=False, unreadable=True)
    if _SLOPPY.match(tidy):
        tidy = _SLOPPY.sub(lambda found: f"{found[1]}://", tidy, count=1)
    found = _URL.fullmatch(tidy)
    if not found:
        return _UrlReading(None, certain=tidy == text)
    scheme = found[1].lower()
    path = found[3]
    query = found[4] or ""
    authority = _read_authority(scheme, found[2])
    if authority is None:
        return _UrlReading(None, certain=False, unreadable=True)
    address = _UrlParts(scheme, authority, _resolved(_plain(path)) + _plain(query))
    as_written = _UrlParts(found[1], found[2], (path or "/") + query)
    is_tidy = text == tidy and text.isascii() and " " not in text
    certain = is_tidy and address == as_written and not _DOUBTFUL_PATH.search(path)
    may_be = {address: None}
    for rest in _possible_rests(path, query):
        may_be[address._replace(rest=rest)] = None
    return _UrlReading(address, certain, tuple(may_be))


def _possible_rests(path: str, query: str) -> Iterator[str]:
    """Yields path and query in every form that a server may read."""
    yield (path or "/") + query
    yield _popped(_plain(path)) + _plain(query)
    decoded = _decoded(path)
    asked = _decoded(query)
    without_parameters = re.sub(r";[^/]*", "", decoded)
    for each in (decoded, without_parameters):
        yield _resolved(each) + asked
        yield _popped(each) + asked


def _read_authority(scheme: str, text: str) -> str | None:
    """Returns host and port in normal form, without the user; None when unreadable."""
    if text.count("@") > 1 or re.search(r"\s", text):
        return None
    without_user = text.rpartition("@")[2]
    found = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(\d{0,8}))?", without_user)
    if not found:
        return None
    host = _read_host(unquote(found[1]).lower())
    if host is None:
        return None
    port = str(int(found[2] or "0"))
    if port in ("0", _PORTS.get(scheme)):
        return host
    return f"{host}:{port}"


def _read_host(host: str) -> str | None:
    is_bracketed = host.startswith("[")
    if not is_bracketed and re.search(r"[@/?#\\:\s]", host):
        return None
    try:
        if is_bracketed:
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        elif not host.isascii():
            host = host.encode("idna").decode("ascii").lower()
        host = host.rstrip(".")
        if _OLD_ADDRESS.fullmatch(host):  # 0x7f.1 and 2130706433 are 127.0.0.1
            host = socket.inet_ntoa(socket.inet_aton(host))
    except (ValueError, OSError):
        return None
    return host


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
    single = re.sub(r"/+", "/", f"/{path}")
    plain = posixpath.normpath(single)
    if plain == "/":
        return plain
    if path.endswith("/") or _ends_with_dots(path):
        return f"{plain}/"
    return plain


def _popped(path: str) -> str:
    """Does the same strictly by RFC 3986, where `..` removes one of two slashes: `/a//..` is `/a/`."""
    parts: list[str] = []
    for part in path.removeprefix("/").split("/"):
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    if _ends_with_dots(path):
        parts.append("")
    return re.sub(r"/+", "/", "/" + "/".join(parts))


def _ends_with_dots(path: str) -> bool:
    last = path.rpartition("/")[2]
    return last in (".", "..")
