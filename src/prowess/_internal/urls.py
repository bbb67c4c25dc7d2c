"""Reads hosts and URLs, decides which URLs may be fetched, and hides the secrets of a URL in messages.

A host has one spelling: lower case, plain ASCII, no trailing dot, no user. Other spellings that a resolver would accept
as an address (2130706433, 0x7f.1, 127.1, ::ffff:127.0.0.1) are not names and never match an allowed address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

from prowess.errors import FetchError

if TYPE_CHECKING:
    import httpx

    from prowess._internal.addresses import Address

WEB_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)")
_PIN = re.compile(r"sha256=([0-9a-fA-F]{64})")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a host whose last label is a number is an address, not a name
_PORT = re.compile(r"[0-9]{1,5}")
_HOST = re.compile(r"(\[[\w:.%]*\]|[^:\[\]]*)(:\d*)?")


class HostTarget(NamedTuple):
    """Host and port that a program wants to reach, in the one spelling; `address` is set when the host is an
    address."""

    host: str
    port: int
    address: Address | None = None

    def __str__(self) -> str:
        host = self.host
        if ":" in host:
            host = f"[{host}]"
        return f"{host}:{self.port}"


class NotAHost(ValueError):
    """Error: the text names no host that a rule could allow. The message gives the reason."""


def allowed_url(url: str, previous: httpx.URL | None = None, *, pinned: bool) -> httpx.URL:
    """Returns `url`, relative to `previous` after a redirect, if it may be fetched: https, or http that is local or
    pinned."""
    import httpx

    try:
        parsed = httpx.URL(url) if previous is None else previous.join(url)
    except (httpx.InvalidURL, UnicodeEncodeError):  # the message contains the URL
        message = f"{shown_url(url)[:200]!a} is not a URL."
        raise FetchError(message, code="fetch-invalid-url", hint="Check its spelling.") from None
    shown = shown_url(str(parsed))
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise refused_scheme(shown, "is not an https:// address", "Use an https:// or file:// URL.")
    if parsed.scheme == "http" and not pinned:
        if previous is not None and previous.scheme == "https":
            raise insecure(shown, f"is not encrypted, and {shown_url(str(previous))} redirects to it")
        if not is_loopback(parsed.host):
            raise insecure(shown, "is not encrypted")
    return parsed


def parse_target(authority: str, *, default_port: int | None = None) -> HostTarget:
    """Parses `host:port` as a program sent it. Raises NotAHost with the reason."""
    host, port = split_authority(authority)
    if port is None:
        port = default_port
    if port is None:
        raise NotAHost("it has no port")
    name, address = parse_host(host)
    return HostTarget(name, port, address)


def parse_url_target(url: str) -> HostTarget:
    """Returns the host and port that a request for this URL goes to. Raises NotAHost with the reason, also when URL
    parsers could disagree about it."""
    if not is_plain_url(url):
        raise NotAHost("it holds characters that readers of URLs disagree about")
    found = _URL.match(url)
    port = WEB_PORTS.get(found["scheme"].lower()) if found else None
    if not found or port is None:
        raise NotAHost("it is not an http or https address")
    return parse_target(found["authority"], default_port=port)


def is_plain_url(text: str) -> bool:
    """False for characters that URL parsers read differently."""
    return text.isascii() and text.isprintable() and "\\" not in text and " " not in text


def split_authority(authority: str) -> tuple[str, int | None]:
    """Returns (host, port). An IPv6 address keeps its brackets, or gets them if it stands alone."""
    if "@" in authority:
        raise NotAHost("a user or password has no place in it")
    if authority.count(":") > 1 and not authority.startswith("["):
        return f"[{authority}]", None
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    if not colon:
        return authority, None
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise NotAHost("the text after the colon is no port")
    return host, int(port)


def parse_host(text: str) -> tuple[str, Address | None]:
    """Returns the host in its one spelling, and its address if it is one."""
    try:
        if text.startswith("[") and text.endswith("]"):
            inner = text[1:-1]
            if "%" in inner:
                raise NotAHost("an address with a zone belongs to this machine's local network")
            six = ipaddress.IPv6Address(inner)
            return str(six), six
        name = text.lower().removesuffix(".")
        if _NUMBER.fullmatch(name.rpartition(".")[2]):
            four = ipaddress.IPv4Address(text)  # dotted decimal only: no leading zeros, no trailing dot
            return str(four), four
    except ipaddress.AddressValueError as error:
        raise NotAHost("an address is written in its plain form only, such as 192.0.2.7 or [2001:db8::7]") from error
    if not text.isascii():  # `lower` and a resolver could both change it into another name
        raise NotAHost("a name is written in ASCII, where necessary as xn--…")
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise NotAHost("it is not a host name")
    return name, None


def ascii_authority(text: str) -> str:
    """Encodes the non-ASCII host of a rule, if there is only one way to understand it."""
    if text.isascii():
        return text
    host, colon, port = text.partition(":")
    try:
        encoded = host.encode("idna").decode("ascii")
        if encoded.encode("ascii").decode("idna") != host.lower():
            raise NotAHost("its letters can be understood in more than one way: write it as xn--…")
    except UnicodeError as error:
        raise NotAHost(f"{error}") from error
    return f"{encoded}{colon}{port}"


def split_pin(url: str) -> tuple[str, str | None]:
    """Returns the URL without its fragment, and the sha256 that `#sha256=…` pins."""
    plain, _, fragment = url.partition("#")
    if not fragment:
        return plain, None
    pin = _PIN.fullmatch(fragment)
    if not pin:  # a pin was intended: never continue without it
        message = f"The part after # in {shown_url(url)} is not a pin."
        hint = "Use #sha256= and 64 hexadecimal digits, or leave it out."
        raise FetchError(message, code="fetch-bad-pin", hint=hint)
    return plain, pin[1].lower()


def shown_url(url: str) -> str:
    """Returns the URL without user, password, query and fragment, safe to show."""
    match = _URL.match(url)
    if not match:
        if "@" in url:
            return "(unreadable URL)"
        return re.split(r"[?#]", url, maxsplit=1)[0]
    scheme = match["scheme"]
    _, _, host = match["authority"].rpartition("@")
    # An unescaped / or ? in a password looks like the end of the host, and the rest of the password like a port.
    if not _HOST.fullmatch(host):
        return f"{scheme}://…"
    return f"{scheme}://{host}{match['path']}"


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def insecure(shown: str, why: str) -> FetchError:
    """Makes the error about content that anybody could change on its way."""
    hint = "Use https, or pin the content by adding #sha256=… to the URL."
    return FetchError(f"{shown} {why}.", code="fetch-insecure", hint=hint)


def refused_scheme(shown: str, why: str, hint: str) -> FetchError:
    return FetchError(f"{shown} {why}.", code="fetch-refused-scheme", hint=hint)
