"""Rules for the hosts a run may reach: the name is checked first, then the address, and both must be allowed.

    example.org          this name, at ports 80 and 443
    *.example.com        every name below it, but not the name itself
    example.org:8443     this name, at this port only
    192.0.2.7  [::1]:80  this address; needed for a host given as an address, and for any address that is not public

A host is read by `_internal.urls`, which knows one spelling of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prowess._internal.addresses import Address
from prowess._internal.urls import HostTarget, NotAHost, ascii_authority, parse_host, split_authority
from prowess.errors import ConfigError

SETTING = "workspace.network_allow"
WEB_PORTS = (80, 443)

_SHOWN = 100


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
        if self.below:
            return target.host.endswith(f".{self.host}")
        return target.host == self.host


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
        host, port = split_authority(ascii_authority(text.removeprefix("*.")))
        name, address = parse_host(host)
        if below and address is not None:
            raise NotAHost("there is nothing below an address")
    except NotAHost as error:
        message = f"{SETTING} has {_shown(entry)}, which names no host: {error}."
        hint = "Write a host ('example.org'), all below it ('*.example.org'), or one port ('example.org:8443')."
        raise ConfigError(message, code="host-invalid", hint=hint) from error
    ports = WEB_PORTS if port is None else (port,)
    return HostRule(text=text, host=name, below=below, address=address, ports=ports)


def find_rule(rules: Sequence[HostRule], target: HostTarget) -> HostRule | None:
    """Returns the rule that allows this name and port, or None. The address is checked later, once it is known."""
    for rule in rules:
        if rule.names(target) and target.port in rule.ports:
            return rule
    return None


def denial_reason(rules: Sequence[HostRule], target: HostTarget) -> str:
    """Returns the reason why no rule allows the target, as text for the program."""
    ports: set[int] = set()
    for rule in rules:
        if rule.names(target):
            ports.update(rule.ports)
    if ports:
        allowed = " and ".join(map(str, sorted(ports)))
        return f"{target.host} is allowed at port {allowed}, not at {target.port}"
    if target.address is not None:
        return f"{target.host} is an address, and addresses are allowed only when they are listed themselves"
    return f"{target.host} is not allowed"


def is_listed(rules: Sequence[HostRule], address: Address, port: int) -> bool:
    """True when the address itself is listed; then it may be reached even if it is not public."""
    return any(rule.address == address and port in rule.ports for rule in rules)


def _shown(text: str) -> str:
    if len(text) > _SHOWN:
        text = text[:_SHOWN] + "…"
    return repr(text)
