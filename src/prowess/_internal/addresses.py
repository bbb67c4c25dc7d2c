"""Table of IP address ranges: public, private, this machine, and never allowed.

A name is looked up first, then its address is checked, and the connection goes to the checked address, not to the name.
An IPv6 address that contains an IPv4 address (::ffff:…, NAT64, 6to4, Teredo) is also checked by the IPv4 address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PUBLIC, PRIVATE, OWN = range(3)  # from outside to inside: the public internet, a private network, this machine


def address_problem(address: Address) -> str | None:
    """Returns why an address is not on the public internet, else None. Sends no request."""
    if isinstance(address, ipaddress.IPv6Address) and address in _NAT64:
        address = _last_32_bits(address)
    kind = _kind(address)
    if kind is None:
        return None
    return f"{address} is {kind}"


def why_not_outside(address: Address) -> str | None:
    """Returns why an address is not outside: like `address_problem`, and also for a public address of this machine."""
    problem = address_problem(address)
    if problem is None and is_own(address):
        return f"{address} is this machine"
    return problem


def why_never(address: Address) -> str | None:
    """Returns why a download never connects to this address, even if the user wrote it."""
    for meaning in _meanings(address):
        kind = _kind(meaning)
        if kind in _NEVER:
            return f"{address} is {kind}"
    return None


def how_far_inside(address: Address) -> int:
    """Returns PUBLIC, PRIVATE, or OWN for this machine."""
    if is_own(address):
        return OWN
    kinds = map(_kind, _meanings(address))
    if any(kind in _OWN for kind in kinds):
        return OWN
    if address_problem(address) is None:
        return PUBLIC
    return PRIVATE


def is_own(address: Address) -> bool:
    """True for an address of this machine, public or not: no firewall sees such a connection. No packet is sent; the
    kernel only chooses the source address."""
    with new_socket(address, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((str(address), 9))
            return asked.getsockname()[0] == str(address)
        except OSError:  # no route to it
            return False


def look_up(host: str) -> list[str]:
    """Asks the resolver for the addresses of a name. It cannot be cancelled."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def new_socket(address: Address, kind: socket.SocketKind) -> socket.socket:
    return socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, kind)


def _meanings(address: Address) -> Iterator[Address]:
    """Yields the address and the addresses that it contains or leads to."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.sixtofour:
            yield address.sixtofour
        elif address.teredo:
            yield from address.teredo
        elif any(address in network for network in _CARRIERS):
            yield _last_32_bits(address)


def _kind(address: Address) -> str | None:
    for network, kind in _SPECIAL:
        if address.version == network.version and address in network:
            return kind
    if address.version == 6 and address not in _UNICAST:
        return "reserved"
    return None


def _last_32_bits(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    """Returns the IPv4 address at the end of an IPv6 address."""
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _networks(text: str) -> Iterable[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, str]]:
    for line in text.strip().splitlines():
        *networks, kind = line.strip().split("  ")
        for network in networks[0].split():
            yield ipaddress.ip_network(network), kind.strip()


# IANA's registries of special addresses, and the addresses of cloud metadata services. The first matching line counts.
# The table is written out, because Python's `is_private` differs between versions.
_SPECIAL = tuple(
    _networks("""
    168.63.129.16/32 100.100.100.200/32 192.0.0.192/32 fd00:ec2::254/128 fd20:ce::254/128  a cloud's own service
    0.0.0.0/8 ::/128  this machine
    127.0.0.0/8 ::1/128  a loopback address
    10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10  a private address
    100.64.0.0/10  a private address of a provider
    169.254.0.0/16 fe80::/10  a link-local address
    224.0.0.0/4 ff00::/8  a multicast address
    ::ffff:0:0/96 ::/96 64:ff9b:1::/48 2001::/32 2002::/16 192.88.99.0/24  another way to write or reach an address
    192.0.0.0/24 198.18.0.0/15 240.0.0.0/4 100::/64 2001::/23 5f00::/16  a reserved address
    192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20  an address for documentation
    """)
)
_OWN = ("this machine", "a loopback address")
_NEVER = ("a link-local address", "a cloud's own service", "a multicast address")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CARRIERS = (_NAT64, *map(ipaddress.IPv6Network, ("64:ff9b:1::/48", "::ffff:0:0/96", "::/96")))
_UNICAST = ipaddress.IPv6Network("2000::/3")
