"""A host is reached by its name or not at all, however it is spelled; and never where only this machine should go."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess._internal.addresses import address_problem
from prowess._internal.urls import HostTarget, NotAHost, parse_target
from prowess.errors import ConfigError
from prowess.workspace.network.host_rules import denial_reason, find_rule, is_listed, parse_rule, parse_rules

RULES = parse_rules(
    [
        "example.org",
        "*.example.com",
        "Upper.Example.NET.",
        "one.example:8443",
        "bücher.example",
        "192.0.2.7",
        "127.0.0.1:8080",
        "[::1]:8080",
        "2001:db8::7",
        "under_score.example",
    ]
)


@pytest.mark.parametrize(
    ("asked", "by"),
    [
        ("example.org:443", "example.org"),
        ("example.org:80", "example.org"),
        ("EXAMPLE.org.:443", "example.org"),
        ("example.org:00443", "example.org"),
        ("a.example.com:443", "*.example.com"),
        ("a.b.example.com:80", "*.example.com"),
        ("upper.example.net:443", "Upper.Example.NET."),
        ("one.example:8443", "one.example:8443"),
        ("xn--bcher-kva.example:443", "bücher.example"),
        ("192.0.2.7:80", "192.0.2.7"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[::1]:8080", "[::1]:8080"),
        ("[0:0:0:0:0:0:0:1]:8080", "[::1]:8080"),
        ("[2001:DB8::7]:443", "2001:db8::7"),
        ("under_score.example:443", "under_score.example"),
    ],
)
def test_what_a_rule_names(asked: str, by: str) -> None:
    rule = find_rule(RULES, parse_target(asked))
    assert rule is not None and rule.text == by


@pytest.mark.parametrize(
    "asked",
    [
        *("example.org:8443", "example.org:22", "example.org:1", "one.example:443", "127.0.0.1:80", "192.0.2.7:8080"),
        *("example.com:443", "xexample.com:443", "example.com.evil.net:443", "evil-example.org:443", "org:443"),
        *("sub.example.org:443", "example.org.evil.net:443", "a.example.comm:443", "com:443", "localhost:8080"),
        *("127.0.0.2:8080", "[::2]:8080", "[::ffff:127.0.0.1]:8080", "[::ffff:7f00:1]:8080", "[::127.0.0.1]:8080"),
        *("169.254.169.254:80", "[fd00:ec2::254]:80", "metadata.google.internal:80", "0.0.0.0:8080", "[::]:8080"),
        *("[64:ff9b::7f00:1]:8080", "[2002:7f00:1::]:8080", "xn--bcher-kva.example.evil:443"),
    ],
)
def test_what_no_rule_names(asked: str) -> None:
    target = parse_target(asked)
    assert find_rule(RULES, target) is None
    assert target.host in denial_reason(RULES, target)


@pytest.mark.parametrize(
    "asked",
    [
        *("127.1:8080", "2130706433:8080", "0x7f000001:8080", "0x7f.0.0.1:8080", "0177.0.0.1:8080", "127.0.0.01:8080"),
        *("127.0.0.1.:8080", "127.0.0.1..:8080", "127.0.0.0x1:8080", "1.2.3.4.5:80", "256.0.0.1:80", "evil.0x:80"),
        *("１２７.0.0.1:8080", "127。0。0。1:8080", "①②⑦.0.0.1:8080", "exam\u200bple.org:443", "exámple.org:443"),
        *("\u212a.example:443", "example.org@evil.net:443", "evil.net@example.org:443", "a:b@example.org:443"),
        *("[::1%25lo]:8080", "[::1%lo]:8080", "[fe80::1%eth0]:80", "[127.0.0.1]:8080", "[example.org]:443", "[]:80"),
        *("[::1]8080:8080", "[[::1]]:8080", "::1:8080:", "[::1:8080", "::1]:8080", "[v1.x]:80"),
        *("example.org", "example.org:", "example.org:0", "example.org:65536", "example.org:-1", "example.org:+443"),
        *("example.org:443x", "example.org:４４３", "example.org:1e2", "example.org: 443", "example.org:443:443"),
        *("", ":", ":443", ".:443", "..:443", ".example.org:443", "example..org:443", "example.org..:443", "*:443"),
        *("*.example.com:443", "-a.example:443", "a-.example:443", "a b.example:443", "a\tb:443", "a\0b:443"),
        *(
            "example.org\n:443",
            "example.org\r\n:443",
            "example.org/:443",
            "example.org\\@evil:443",
            "example%2eorg:443",
        ),
        *("example.org#:443", "example.org?:443", "127.0.0.1#.example.org:443", f"{'a' * 64}.example:443"),
        *(f"{'a.' * 127}ab:443", "'example.org':443", "${x}.example:443", "http://example.org:443"),
    ],
)
def test_what_is_no_host_at_all(asked: str) -> None:
    with pytest.raises(NotAHost):
        parse_target(asked)


@given(st.integers(0, 2**32 - 1))
@example(0x7F000001)
@example(0xA9FEA9FE)
def test_an_address_has_one_spelling_even_when_it_is_listed(number: int) -> None:
    plain = str(ipaddress.IPv4Address(number))
    rules = parse_rules([plain])
    assert find_rule(rules, parse_target(f"{plain}:80")) is not None
    a, b, c, d = ipaddress.IPv4Address(number).packed
    spellings = [
        *(str(number), hex(number), f"0{number:o}", f"{a}.{(b << 16) + (c << 8) + d}", f"{a}.{b}.{(c << 8) + d}"),
        *(f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a}.{b}.{c}.0x{d:X}", f"{plain}."),
        *(f"[::ffff:{plain}]", f"[::{plain}]", f"[64:ff9b::{plain}]", f"[{plain}]", f"0{plain}"),
    ]
    for spelling in spellings:
        try:
            target = parse_target(f"{spelling}:80")
        except NotAHost:
            continue
        assert find_rule(rules, target) is None, spelling


@given(st.one_of(st.text(max_size=40), st.from_regex(r"[0-9a-fx.\-_:\[\]A-Z%@]{0,30}(:[0-9]{1,5})?", fullmatch=True)))
def test_a_host_that_is_taken_has_one_spelling_and_no_resolver_takes_a_name_for_an_address(text: str) -> None:
    try:
        target = parse_target(text, default_port=80)
    except NotAHost:
        return
    assert parse_target(str(target)) == target
    assert target.host.isascii() and target.host == target.host.lower() and not set(target.host) & set("@/%[] ")
    if target.address is None:
        with pytest.raises(OSError, match="illegal"):
            socket.inet_aton(target.host)
        assert ":" not in target.host


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_counts_as_public_is_public_to_python_too(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address_problem(address) is None:
        assert address.is_global and not address.is_multicast


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        *(("127.0.0.1", "loopback"), ("127.255.255.254", "loopback"), ("::1", "loopback")),
        *(("0.0.0.0", "this machine"), ("0.1.2.3", "this machine"), ("::", "this machine")),
        *(
            ("10.0.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("fd00:ec2::254", "cloud"),
        ),
        *(("100.64.0.1", "provider"), ("100.100.100.200", "cloud"), ("100.127.255.255", "provider")),
        *(("169.254.169.254", "link-local"), ("fe80::1", "link-local"), ("168.63.129.16", "cloud")),
        *(("224.0.0.1", "multicast"), ("239.255.255.255", "multicast"), ("ff02::1", "multicast")),
        *(
            ("255.255.255.255", "reserved"),
            ("240.0.0.1", "reserved"),
            ("192.0.0.8", "reserved"),
            ("192.0.0.192", "cloud"),
            ("198.19.0.1", "reserved"),
        ),
        *(
            ("::ffff:93.184.216.34", "another way"),
            ("::93.184.216.34", "another way"),
            ("2002:7f00:1::", "another way"),
        ),
        *(("2001::1", "another way"), ("64:ff9b:1::7f00:1", "another way"), ("64:ff9b::7f00:1", "loopback")),
        *(("64:ff9b::a9fe:a9fe", "link-local"), ("2001:db8::1", "documentation"), ("203.0.113.1", "documentation")),
        *(("4000::1", "reserved"), ("fec0::1", "private"), ("1::", "reserved")),
    ],
)
def test_what_is_not_public_says_what_it_is(address: str, kind: str) -> None:
    assert kind in (address_problem(ipaddress.ip_address(address)) or "public")


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "1.1.1.1", "172.32.0.1", "100.128.0.1", "169.253.0.1", "2606:4700::1111", "64:ff9b::101:101"],
)
def test_what_is_public(address: str) -> None:
    assert address_problem(ipaddress.ip_address(address)) is None


def test_an_address_is_listed_at_its_ports_and_in_no_other_form() -> None:
    rules = parse_rules(["intranet.example", "10.0.0.7", "127.0.0.1:8080"])
    listed = [("10.0.0.7", 443), ("10.0.0.7", 80), ("127.0.0.1", 8080)]
    others = [
        ("10.0.0.8", 443),
        ("10.0.0.7", 8080),
        ("127.0.0.1", 443),
        ("::ffff:127.0.0.1", 8080),
        ("fe80::1%eth0", 443),
    ]
    assert all(is_listed(rules, ipaddress.ip_address(address), port) for address, port in listed)
    assert not any(is_listed(rules, ipaddress.ip_address(address), port) for address, port in others)


def test_the_reason_says_what_to_look_at() -> None:
    assert denial_reason(RULES, HostTarget("example.org", 22)) == "example.org is allowed at port 80 and 443, not at 22"
    assert denial_reason(RULES, HostTarget("evil.example", 443)) == "evil.example is not allowed"
    assert "addresses are allowed only when" in denial_reason(RULES, parse_target("93.184.216.34:443"))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("https://example.org", "only the host counts"),
        ("example.org/path", "only the host counts"),
        ("*", "not a host name"),
        ("*.", "not a host name"),
        ("*.*.example", "not a host name"),
        ("a.*.example", "not a host name"),
        ("", "not a host name"),
        ("example.org:https", "no port"),
        ("example.org:0", "no port"),
        ("127.1", "plain form"),
        ("0x7f000001", "plain form"),
        ("*.127.0.0.1", "nothing below an address"),
        ("user@example.org", "no place in it"),
        ("straße.example", "more than one way"),
        ("a\u200bb.example", "more than one way"),
        ("ａ.example", "more than one way"),
        ("\udcff.example", "names no host"),
        ("[fe80::1%eth0]", "zone"),
        ("x" * 300, "not a host name"),
    ],
)
def test_an_entry_that_names_no_host_is_refused_when_it_is_read(entry: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_rule(entry)
    assert caught.value.code == "host-invalid" and "workspace.network_allow" in caught.value.message
    assert len(caught.value.message) < 400
