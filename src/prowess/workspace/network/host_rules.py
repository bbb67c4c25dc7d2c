"""Rules for the hosts a run may reach: the name is checked first, then the address, and both must be allowed.

    example.org          this name, at ports 80 and 443
    *.example.com        every name below it, but not the name itself
    example.org:8443     this name, at this port only
    192.0.2.7  [::1]:80  this address; needed for a host given as an address, and for any address that is not public

A host has one spelling: lower case, plain ASCII, no trailing dot, no user. Other spellings that a resolver would accept
as an address (2130706433, 0x7f.1, 127.1, ::ffff:127.0.0.1) are not names and never match an allowed address. All
functions here are pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prowess._internal.addresses import Address
from prowess.errors import ConfigError

SETTING = "workspace.network_allow"
WEB_PORTS = (80, 443)

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a host whose last label is a number is an address, not a name
_PORT = re.compile(r"[0-9]{1,5}")
_SHOWN = 100


class HostTarget(NamedTuple):
    """Host and port that a program wants to reach, in the one spelling; `address` is set when the host is an
    address."""

    host: str
    port: int
    address: Address | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRule:
    """Entry of the setting."""

    text: str
    host: str
    below: bool = False  # names below it, not the name itself
    address: Address | None = None
    ports: tuple[int, ...] = WEB_PORTS

    def names(self, target: HostTarget) -> bool:
        if self.address is not None or target.address is not None:
            return self.address == target.address
        return target.host.endswith(f".{self.host}") if self.below else target.host == self.host


class NotAHost(ValueError):
    """Error: the text names no host that a rule could allow. The message gives the reason."""


def parse_rules(entries: Iterable[str]) -> tuple[HostRule, ...]:
    return tuple(parse_rule(entry) for entry in entries)


def parse_rule(entry: str) -> HostRule:
    """Parses an entry. Raises ConfigError for an invalid one, because a rule that matches nothing would be noticed too
    late."""
    text = entry.strip()
    below = text.startswith("*.")
    try:
        if "/" in text:
            raise NotAHost("it is a URL, of which only the host counts")
        host, port = _split(_ascii(text.removeprefix("*.")))
        name, address = _host(host)
        if below and address is not None:
            raise NotAHost("there is nothing below an address")
    except NotAHost as error:
        raise ConfigError(
            f"{SETTING} has {_shown(entry)}, which names no host: {error}.",
            code="host-invalid",
            hint="Write a host ('example.org'), all below it ('*.example.org'), or one port ('example.org:8443').",
        ) from error
    return HostRule(text=text, host=name, below=below, address=address, ports=WEB_PORTS if port is None else (port,))


def parse_target(authority: str, *, default_port: int | None = None) -> HostTarget:
    """Parses `host:port` as a program sent it. Raises NotAHost with the reason."""
    host, port = _split(authority)
    if port is None:
        port = default_port
    if port is None:
        raise NotAHost("it has no port")
    name, address = _host(host)
    return HostTarget(name, port, address)


def find_rule(rules: Sequence[HostRule], target: HostTarget) -> HostRule | None:
    """Returns the rule that allows this name and port, or None. The address is checked later, once it is known."""
    return next((rule for rule in rules if rule.names(target) and target.port in rule.ports), None)


def denial_reason(rules: Sequence[HostRule], target: HostTarget) -> str:
    """Returns the reason why no rule allows the target, as text for the program."""
    ports = sorted({port for rule in rules if rule.names(target) for port in rule.ports})
    if ports:
        return f"{target.host} is allowed at port {' and '.join(map(str, ports))}, not at {target.port}"
    if target.address is not None:
        return f"{target.host} is an address, and addresses are allowed only when they are listed themselves"
    return f"{target.host} is not allowed"


def is_listed(rules: Sequence[HostRule], address: Address, port: int) -> bool:
    """True when the address itself is listed; then it may be reached even if it is not public."""
    return any(rule.address == address and port in rule.ports for rule in rules)


def _split(authority: str) -> tuple[str, int | None]:
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


def _host(text: str) -> tuple[str, Address | None]:
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


def _ascii(text: str) -> str:
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


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
