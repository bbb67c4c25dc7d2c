"""A rule about a URL is about where it leads: another way to write it gets past no denial, and into no permission."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.policy.rules import PolicyQuery, fits, parse_rules


def fitting(pattern: str, url: object, verdict: str) -> bool:
    rule = f'[[rule]]\ntool = "WebFetch"\nargs = {{url = {json.dumps(pattern)}}}\nverdict = "{verdict}"\n'
    (read,) = parse_rules(rule, "policy.toml").rules
    return fits(read, PolicyQuery(tool="network_request", args={"url": url}))


ADMIN = "http://127.0.0.1:18931/admin*"
EVIL = "https://evil.example/*"


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        *(
            (ADMIN, f"http://127.0.0.1:18931{path}")
            for path in (
                "/admin",
                "/admin/x?y",
                "/x/../admin",
                "/./admin",
                "//admin",
                "/%61dmin",
                "/%2561dmin",
                "/x%2f..%2fadmin",
                "/x/%2e%2e/admin",
                "/x/../admin//..",
                "/%2fadmin//..",
                "/x/%2E./admin",
                "/..;/admin",
                "/;a=b/admin",
                "/x/..%5cadmin",
                "/x\\..\\admin",
                "/ad\tmin",
            )
        ),
        (ADMIN, "HTTP://127.0.0.1:18931/admin"),
        (ADMIN, "http://127.0.0.1:018931/admin"),
        (ADMIN, "http://127.1:18931/admin"),
        (ADMIN, "http://2130706433:18931/admin"),
        (ADMIN, "http://0x7f.0.0.1:18931/admin"),
        (ADMIN, "http:127.0.0.1:18931/admin"),
        (ADMIN, " http://127.0.0.1:18931/admin"),
        (EVIL, "https://EVIL.example/a"),
        (EVIL, "https://evil.example:443/a"),
        (EVIL, "https://evil.example:/a"),
        (EVIL, "https://evil.example./a"),
        (EVIL, "https://evil.example.:443/a"),
        (EVIL, "https://evil.example"),
        (EVIL, "https://evil.example?x"),
        (EVIL, "https://evil.example#x"),
        (EVIL, "https://good.example@evil.example/a"),
        (EVIL, "https://%65vil.example/a"),
        (EVIL, "https://evil\u3002example/a"),
        (EVIL, "https:/evil.example/a"),
        (EVIL, "https://[evil/a"),
        (EVIL, "https://a@b@c/"),
        (EVIL, ["https://good.example/", "https://EVIL.example/"]),
        ("HTTPS://Evil.example:443/*", "https://evil.example/a"),
        ("https://evil.example.", "https://evil.example/"),
        ("https://evil.example", "https://evil.example"),
        ("https://evil.example*", "https://EVIL.example/a"),
        ("https://*.Evil.example/*", "https://a.evil.example/b"),
        ("*://evil.example/*", "HTTP://evil.example/a"),
        ("https://b\u00fccher.example/*", "https://xn--bcher-kva.example/"),
        ("https://*.b\u00fccher.example/*", "https://a.xn--bcher-kva.example/"),
        ("http://[::1]/*", "http://[0:0::1]:80/x"),
        ("https://a.example/caf%C3%A9", "https://a.example/caf%c3%a9"),
        ("https://a.example/x#part", "https://a.example/x"),
        ("https://a.example/a//b", "https://a.example/a//b"),
    ],
)
def test_no_way_to_write_it_gets_past_a_denial(pattern: str, url: str) -> None:
    assert fitting(pattern, url, "deny") and fitting(pattern, url, "ask")


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        (ADMIN, "http://127.0.0.1:18931/public"),
        (ADMIN, "http://127.0.0.1/admin"),
        (ADMIN, "http://127.0.0.2:18931/admin"),
        (EVIL, "https://notevil.example/"),
        (EVIL, "https://evil.example.org/"),
        (EVIL, "http://evil.example/"),
        (EVIL, "https://evil.example:8443/"),
        (EVIL, "https://good.example/?u=https://evil.example/"),
        (EVIL, "https://evil.example@good.example/"),
        (EVIL, "x"),
    ],
)
def test_a_denial_is_about_what_it_says(pattern: str, url: str) -> None:
    assert not fitting(pattern, url, "deny")


PUBLIC = "https://api.example/public/*"


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        (PUBLIC, "https://api.example/public/a"),
        (PUBLIC, "https://api.example/public/a/?q=a%2Fb%20c&r=../x//y"),
        (PUBLIC, "https://api.example/public/caf%C3%A9"),
        (PUBLIC, "https://api.example/public/..x/.y/a.b"),
        (PUBLIC, "https://api.example/public/a#part"),
        ("HTTPS://API.example:443/*", "https://api.example/a"),
        ("https://api.example/*", "https://api.example"),
        ("https://api.example", "https://api.example/"),
        ("https://api.example/*", "https://api.example?q"),
        ("https://api.example*", "https://api.example/a/b"),
        ("https://*.example/*", "https://a.b.example/c/d"),
        ("http://[::1]:8080/*", "http://[::1]:8080/a"),
        ("http://127.0.0.1:*/x", "http://127.0.0.1:8080/x"),
        ("https://*", "https://a.b/c?d"),
        ("*", "https://a.b/c?d"),
    ],
)
def test_what_is_written_plainly_is_allowed(pattern: str, url: str) -> None:
    assert fitting(pattern, url, "allow")


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        *(
            (PUBLIC, f"https://api.example/public/{path}")
            for path in (
                "../admin",
                "a/../../admin",
                "%2e%2e/admin",
                "%2E%2e/admin",
                "..%2fadmin",
                "..%5cadmin",
                "%252e%252e/admin",
                "..;/admin",
                "./a",
                "/a",
                "..\\admin",
                "a\nb",
                "a b",
                "caf\u00e9",
                "..",
            )
        ),
        (PUBLIC, "HTTPS://api.example/public/a"),
        (PUBLIC, "https://me@api.example/public/a"),
        (PUBLIC, "https://api.example./public/a"),
        (PUBLIC, " https://api.example/public/a"),
        (PUBLIC, ["https://api.example/public/a", "https://api.example/public/../b"]),
        (PUBLIC, {"a": "b"}),
        ("*", "https://a.b/c/../d"),
        ("*", "https:a.b/c"),
        ("https://*.example.com/*", "https://evil.example/x.example.com/y"),
        ("https://*.example.com/*", "https://evil.example?.example.com/y"),
        ("https://*.example.com/*", "https://evil.example#.example.com/y"),
        ("*://example.com/*", "https://evil.example/?://example.com/y"),
        ("http://127.0.0.1/*", "http://127.1/x"),
    ],
)
def test_what_may_lead_elsewhere_is_not_allowed(pattern: str, url: str) -> None:
    assert not fitting(pattern, url, "allow")


def test_the_url_of_somebodys_tool_is_one_as_well() -> None:
    (rule,) = parse_rules(f'[[rule]]\nargs = {{url = "{EVIL}"}}\nverdict = "deny"\n', "policy.toml").rules
    assert fits(rule, PolicyQuery(tool="mcp__web__fetch", args={"url": "https://EVIL.example"}))
    assert not fits(rule, PolicyQuery(tool="mcp__web__fetch", args={"url": "evil"}))
    assert not fits(rule, PolicyQuery(tool="mcp__web__fetch", args={"uri": "https://evil.example/"}))


@given(st.text(alphabet="htps:/.%25eEfF;\\@#?[]a1 \u00e9", max_size=25), st.sampled_from(["https://a/", ""]))
def test_what_would_be_allowed_would_be_denied_too(text: str, start: str) -> None:
    for pattern in ("https://a/*", "*"):
        if fitting(pattern, start + text, "allow"):
            assert fitting(pattern, start + text, "deny")
