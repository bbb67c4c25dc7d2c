"""Decides which URLs may be fetched, and hides the secrets of a URL in messages. Each redirect is checked again."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from prowess.errors import FetchError

if TYPE_CHECKING:
    import httpx

_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)")
_PIN = re.compile(r"sha256=([0-9a-fA-F]{64})")
_HOST = re.compile(r"(\[[\w:.%]*\]|[^:\[\]]*)(:\d*)?")


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


def split_pin(url: str) -> tuple[str, str | None]:
    """Returns the URL without its fragment, and the sha256 that `#sha256=…` pins."""
    plain, _, fragment = url.partition("#")
    pin = _PIN.fullmatch(fragment)
    if fragment and not pin:  # a pin was intended: never continue without it
        raise FetchError(
            f"The part after # in {shown_url(url)} is not a pin.",
            code="fetch-bad-pin",
            hint="Use #sha256= and 64 hexadecimal digits, or leave it out.",
        )
    return plain, pin[1].lower() if pin else None


def shown_url(url: str) -> str:
    """Returns the URL without user, password, query and fragment, safe to show."""
    match = _URL.match(url)
    if not match:
        return "(unreadable URL)" if "@" in url else re.split(r"[?#]", url, maxsplit=1)[0]
    host = match["authority"].rpartition("@")[2]
    # An unescaped / or ? in a password looks like the end of the host, and the rest of the password like a port.
    return f"{match['scheme']}://" + (f"{host}{match['path']}" if _HOST.fullmatch(host) else "…")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def insecure(shown: str, why: str) -> FetchError:
    hint = "Use https, or pin the content by adding #sha256=… to the URL."
    return FetchError(f"{shown} {why}.", code="fetch-insecure", hint=hint)


def refused_scheme(shown: str, why: str, hint: str) -> FetchError:
    return FetchError(f"{shown} {why}.", code="fetch-refused-scheme", hint=hint)
