"""Where a request really goes: the name is looked up once, every address is judged, and only a judged one is used.

A host is allowed by a pattern, as in `workspace.network_allow`. An address that is not public has to be listed itself;
a private or loopback one may also belong to a name that is listed as it is, because whoever writes `intranet.corp`
means it. What a wildcard covers never leads inside.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.addresses import Address, why_not_outside
from prowess._internal.urls import shown_url
from prowess.errors import FetchError
from prowess.workspace.network.connection import MOST_ADDRESSES, Resolve
from prowess.workspace.network.host_rules import NotAHost, Rule, Target, find_rule, is_listed, parse_target, why_not

if TYPE_CHECKING:
    import httpx

_PORTS = {"http": 80, "https": 443}
_MOST_SHOWN = 20


class Reached(NamedTuple):
    """A URL, and the addresses at which it may be asked for."""

    url: httpx.URL
    target: Target
    addresses: tuple[Address, ...]

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.target.host}]" if ":" in self.target.host else self.target.host
        return host if self.target.port == _PORTS[self.url.scheme] else f"{host}:{self.target.port}"


async def reach(text: str, previous: httpx.URL | None, rules: Sequence[Rule], resolve: Resolve) -> Reached:
    """Where `text` leads, after a redirect relative to `previous`. FetchError says why it may not be asked for."""
    url = _parsed(text, previous)
    shown = shown_url(str(url))
    try:
        target = parse_target(f"{_host(url)}:{url.port or _PORTS[url.scheme]}")
    except NotAHost as error:
        raise _refused(f"{shown} names no host: {error}.", "url-refused", "Check its spelling.") from None
    rule = find_rule(rules, target)
    if rule is None:
        allowed = ", ".join(each.text for each in rules[:_MOST_SHOWN]) or "no host at all"
        raise _refused(f"{shown} is refused: {why_not(rules, target)}.", "host-not-allowed", f"Allowed: {allowed}.")
    found = [target.address] if target.address is not None else await _addresses(target, resolve)
    problems = {address: _why_not(address, target, rules) for address in found}
    good = tuple(address for address, problem in problems.items() if problem is None)
    if not good:
        why = "; ".join(problem for problem in list(problems.values())[:MOST_ADDRESSES] if problem)
        hint = "A person can list that address itself, if it is meant."
        raise _refused(f"{target.host} leads to no public address: {why}.", "address-not-allowed", hint)
    return Reached(url, target, good[:MOST_ADDRESSES])


async def look_up(host: str) -> list[str]:
    """In a thread of its own: one that waits for an answer cannot be called back, and must not hold up others."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="prowess-lookup")
    try:
        ask = functools.partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        return [str(entry[4][0]) for entry in await asyncio.get_running_loop().run_in_executor(thread, ask)]
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _parsed(text: str, previous: httpx.URL | None) -> httpx.URL:
    import httpx

    if not text.isascii() or not text.isprintable() or "\\" in text or " " in text:
        hint = "Write it in ASCII, other characters as %XX or xn--…"
        raise _refused("The URL holds characters that readers of URLs disagree about.", "url-refused", hint)
    try:
        url = httpx.URL(text) if previous is None else previous.join(text)
    except httpx.InvalidURL:  # which quotes the URL
        raise _refused(f"{shown_url(text)} is not a URL.", "url-refused", "Check its spelling.") from None
    shown = shown_url(str(url))
    if url.scheme not in _PORTS or not url.host:
        raise _refused(f"{shown} is not an http or https address.", "url-refused", "Use http:// or https://.")
    if url.userinfo:
        hint = "Leave them out; what a host needs to know goes into a header."
        raise _refused(f"{shown} came with a user or password.", "url-refused", hint)
    if previous is not None and previous.scheme == "https" and url.scheme == "http":
        why = f"{shown_url(str(previous))} redirects to {shown}, without encryption."
        raise _refused(why, "url-refused", "Ask for the address that it should lead to.")
    return url


def _host(url: httpx.URL) -> str:
    host = url.raw_host.decode("ascii")
    return f"[{host}]" if ":" in host else host


async def _addresses(target: Target, resolve: Resolve) -> list[Address]:
    try:
        found = [ipaddress.ip_address(text) for text in dict.fromkeys(await resolve(target.host))]
    except (OSError, ValueError) as error:
        raise FetchError(
            f"The address of {target.host} was not found: {error}.",
            code="request-failed",
            retryable=True,
            hint="Check the spelling of the host, or try later.",
        ) from error
    if not found:
        raise FetchError(f"{target.host} has no address.", code="request-failed", hint="Check its spelling.")
    return found


def _why_not(address: Address, target: Target, rules: Sequence[Rule]) -> str | None:
    if is_listed(rules, address, target.port):
        return None
    return why_not_outside(address)


def _refused(message: str, code: str, hint: str) -> FetchError:
    return FetchError(message, code=code, hint=hint)
