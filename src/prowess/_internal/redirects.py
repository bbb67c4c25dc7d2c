"""Resolves and checks the address of each request of a download.

The name is looked up once, and the connection goes to an address that was checked. The first URL may be a private
address, because the user wrote it. A redirect never leads further inside than the request before it. Link-local
addresses are always refused. Behind a proxy from the environment, the proxy looks up names and connects; the addresses
that this machine finds are checked anyway.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.addresses import PUBLIC, Address, how_far_inside, why_never, why_not_outside
from prowess._internal.urls import allowed_url, is_loopback, shown_url
from prowess.errors import FetchError

if TYPE_CHECKING:
    import httpx

_MOST_ADDRESSES = 4

Resolve = Callable[[str], Sequence[str]]  # name -> its addresses; OSError if it has none


class Hop(NamedTuple):
    """Request of a download."""

    url: httpx.URL
    addresses: tuple[Address, ...]  # checked; empty if only the proxy can look up the name
    proxy: str | None
    inside: int  # PUBLIC, PRIVATE or OWN


def next_hop(text: str, previous: Hop | None, *, pinned: bool, resolve: Resolve, wait_s: float) -> Hop:
    """Returns the next request: `text` is a URL, relative to `previous` after a redirect. FetchError says why it is
    refused."""
    url = allowed_url(text, previous.url if previous else None, pinned=pinned)
    proxy = _proxy(url)
    good: list[Address] = []
    bad: list[str] = []
    for address in _addresses(url, resolve, wait_s, needed=proxy is None):
        problem = _why_not(address, url, previous, pinned=pinned)
        if problem is None:
            good.append(address)
        elif problem not in bad:
            bad.append(problem)
    if bad and (proxy or not good):  # a proxy chooses the address itself
        raise refused_address(shown_url(str(url)), "; ".join(bad[:_MOST_ADDRESSES]))
    inside = min(map(how_far_inside, good), default=PUBLIC)
    return Hop(url, tuple(good[:_MOST_ADDRESSES]), proxy, inside)


def refused_address(shown: str, why: str) -> FetchError:
    message = f"{shown} leads to an address that is refused: {why}."
    hint = "If you want this address, write it directly. Link-local addresses are always refused."
    return FetchError(message, code="fetch-refused-address", hint=hint)


def _proxy(url: httpx.URL) -> str | None:
    """Returns the proxy that the environment sets for a URL. Loopback addresses use no proxy."""
    from urllib.request import getproxies, proxy_bypass

    place = f"{url.host}:{url.port}" if url.port else url.host
    if is_loopback(url.host) or proxy_bypass(place):
        return None
    known = getproxies()
    found = known.get(url.scheme) or known.get("all")
    if not found:
        return None
    if "://" not in found:
        return f"http://{found}"
    return found


def _addresses(url: httpx.URL, resolve: Resolve, wait_s: float, *, needed: bool) -> list[Address]:
    host = url.raw_host.decode("ascii")
    try:
        return [_parsed(host)]
    except ValueError:
        pass
    thread = ThreadPoolExecutor(1, thread_name_prefix="prowess-lookup")  # a lookup cannot be cancelled
    try:
        answers = thread.submit(resolve, host).result(wait_s)
        found = [_parsed(answer) for answer in dict.fromkeys(answers)]
        if not found:
            raise OSError("it has no address")
        return found
    except (OSError, ValueError) as error:
        if not needed:
            return []
        why: object = error
        code = "fetch-unreachable"
        if isinstance(error, TimeoutError):
            why = "its address was not found in time"
            code = "fetch-timeout"
        message = f"Cannot reach {shown_url(str(url))}: {why}."
        hint = "Check the address and the network, or try later."
        raise FetchError(message, code=code, retryable=True, hint=hint) from error
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _parsed(text: str) -> Address:
    """Parses an address without its zone. A zone belongs to link-local addresses, and these are refused."""
    return ipaddress.ip_address(text.partition("%")[0])


def _why_not(address: Address, url: httpx.URL, previous: Hop | None, *, pinned: bool) -> str | None:
    """Returns why a request may not go to an address."""
    if url.scheme == "http" and not pinned and not address.is_loopback:
        return f"{url.host} is {address}, which is not this machine"
    if previous is not None and how_far_inside(address) > previous.inside:
        shown = shown_url(str(previous.url))
        return f"{why_not_outside(address)}, and a redirect of {shown} may not lead there"
    return why_never(address)
