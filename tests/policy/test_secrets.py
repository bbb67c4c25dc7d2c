"""No value of a secret leaves a redactor, however the text arrives; and what is no secret leaves it as it came."""

from __future__ import annotations

import base64
import json
import re
import time
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess.errors import ConfigError, WorkspaceError
from prowess.policy.commands.env_names import changes_startup, find_refusal
from prowess.policy.secrets import WINDOW, Redactor, build_environment

KEY = "sk-Zq9/+ab?cd&é"


def _through(redactor: Redactor, data: bytes, cuts: list[int]) -> bytes:
    stream = redactor.fresh()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    out = [stream.feed(data[a:b]) for a, b in pairwise(places)]
    return b"".join(out) + stream.finish()


# --- values ---------------------------------------------------------------------------------------------------------


def test_a_value_becomes_its_name() -> None:
    redactor = Redactor({"API_KEY": "hunter2-hunter3"})
    assert redactor.redact_text("key=hunter2-hunter3;") == "key=[secret API_KEY];"
    assert redactor.redact_text("hunter2-hunter3" * 2) == "[secret API_KEY][secret API_KEY]"
    assert redactor.redact_text("nothing") == "nothing"


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(b"x" + KEY.encode() + b"yz").decode(),
        base64.b64encode(b"xy" + KEY.encode()).decode(),
        base64.urlsafe_b64encode(b"user:" + KEY.encode()).decode(),
        quote(KEY),
        quote(KEY, safe=""),
        quote(KEY, safe="").lower().replace("zq", "Zq"),
        quote_plus(KEY),
        json.dumps(KEY),
        json.dumps(KEY, ensure_ascii=False),
        json.dumps(json.dumps(KEY)),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        repr(KEY),
        KEY.replace("&", "&amp;"),
        f"a{KEY}b",
    ],
)
def test_the_usual_encodings_are_found(written: str) -> None:
    clean = Redactor({"K": KEY}).redact_text(f"before {written} after")
    assert "[secret K]" in clean
    assert clean.startswith("before ") and clean.endswith(" after")
    if len(written) > 12:
        assert written[4:-4] not in clean


def test_a_secret_of_several_lines_is_found_whole_by_line_and_from_a_terminal() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(c * 40 for c in "abc") + "\n-----END PRIVATE KEY-----\n"
    redactor = Redactor({"PEM": pem})
    assert redactor.redact_text(f"x\n{pem}y") == "x\n[secret PEM]\ny"
    assert redactor.redact_text(pem.replace("\n", "\r\n")) == "[secret PEM]\r\n"
    assert redactor.redact_text("only " + "b" * 40) == "only [secret PEM]"
    assert redactor.redact_text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_a_short_value_is_not_usable_and_is_named() -> None:
    redactor = Redactor({"A": "abc", "B": "  ab \n", "C": "abcd", "D": ""})
    assert redactor.unusable == ("A", "B", "D")
    assert redactor.redact_text("abc abcd") == "abc [secret C]"


def test_overlapping_secrets_leave_no_rest() -> None:
    redactor = Redactor({"A": "xxxxP", "B": "Pssssssss", "L": "abcdefgh", "S": "abcd"})
    assert redactor.redact_text("1xxxxPssssssss2") == "1[secret A]2"
    assert redactor.redact_text("abcdefgh abcde") == "[secret L] [secret S]e"
    assert _through(redactor, b"abcdefgh", [4]) == b"[secret L]"


def test_a_mark_is_never_a_secret_itself() -> None:
    assert Redactor({"A": "secret"}).redact_text("a secret") == "a ***"
    assert Redactor({"A": "x]yz", "B": "other"}).redact_text("other]yz x]yz") == "***]yz ***"
    assert Redactor({"A": "redacted"}, ["[0-9]{5}"]).redact_text("12345") == "***"
    assert Redactor({"A": "*#~^|<>!?.:;_[]"}).redact_text("*#~^|<>!?.:;_[]").strip() != "*#~^|<>!?.:;_[]"


_secrets = st.text(min_size=4, max_size=12).filter(lambda text: len(text.strip()) >= 4)


@given(
    st.lists(_secrets, min_size=1, max_size=3),
    st.lists(st.text(max_size=10), max_size=5),
    st.lists(st.integers(0, 500), max_size=8),
    st.sampled_from(["", "b64", "hex", "url", "json"]),
)
@example(["aaaa"], ["aaaaa", "aaa"], [1, 2, 3, 5, 8], "")
def test_no_secret_leaves_however_it_is_cut(secrets: list[str], around: list[str], cuts: list[int], how: str) -> None:
    redactor = Redactor({f"S{number}": secret for number, secret in enumerate(secrets)})
    write = {
        "": lambda text: text,
        "b64": lambda text: base64.b64encode(text.encode()).decode(),
        "hex": lambda text: text.encode().hex(),
        "url": quote,
        "json": lambda text: json.dumps(text)[1:-1],
    }[how]
    text = "".join(piece + write(secrets[n % len(secrets)]) for n, piece in enumerate(around or [""]))
    clean = _through(redactor, text.encode(), cuts)
    for secret in secrets:
        assert secret.encode() not in clean
        assert secret.strip().encode() not in clean
    if how in ("hex", "url", "json"):
        for secret in secrets:
            assert write(secret.strip()).encode() not in clean
    assert clean == _through(redactor, text.encode(), []), "the cuts make no difference"


@given(_secrets, st.binary(max_size=200), st.lists(st.integers(0, 500), max_size=8))
def test_without_a_secret_the_output_is_the_input(secret: str, data: bytes, cuts: list[int]) -> None:
    redactor = Redactor({"S": secret + "\u4e00\u9fa5\u4e01"}, [r"zz-[0-9]{30,}"])
    if b"\xe4\xb8" not in data:
        assert _through(redactor, data, cuts) == data


@given(
    st.text(alphabet="ab", min_size=4, max_size=6), st.text(alphabet="ab", max_size=60), st.lists(st.integers(0, 60))
)
def test_a_small_alphabet_is_the_hard_case(secret: str, text: str, cuts: list[int]) -> None:
    redactor = Redactor({"S": secret})
    clean = _through(redactor, text.encode(), cuts)
    assert secret.encode() not in clean
    assert (clean == text.encode()) is (secret not in text)


@given(st.text())
def test_text_that_is_not_touched_is_the_same_text(text: str) -> None:
    assert Redactor({"S": "\U0001f511\U0001f511\U0001f511\U0001f511"}, ["q{40}"]).redact_text(text) == text


def test_memory_is_bounded_and_little_is_kept_back() -> None:
    redactor = Redactor({"S": "x" * 50})
    assert redactor.feed(b"hello") == b"hello"
    assert redactor.feed(b"hello xx") == b"hello "
    for _ in range(200):
        redactor.feed(b"x" * 49 + b"y" + b"x" * 9_000)
        assert len(redactor._held) < 200
    patterned = Redactor({}, [r"key-\S+"])
    for _ in range(50):
        patterned.feed(b"z" * 50_000)
        assert len(patterned._text) < 3 * WINDOW


def test_it_is_fast_enough_for_large_output() -> None:
    redactor = Redactor({"A": "a-long-secret-value-0001", "B": "another/secret+value=0002"})
    block = b"some ordinary output of a program, line after line\n" * 1_300
    started = time.process_time()
    size = sum(len(redactor.feed(block)) for _ in range(150)) + len(redactor.finish())
    assert size == len(block) * 150  # 10 MB
    assert time.process_time() - started < 5


def test_json_is_redacted_everywhere() -> None:
    redactor = Redactor({"A": "hunter2hunter2", "PIN": "493817"})
    value: Any = {"hunter2hunter2": ["x hunter2hunter2", 493817, 1.5, None, True, ("a", b"hunter2hunter2")]}
    mark = "[secret A]"
    assert redactor.redact_json(value) == {mark: [f"x {mark}", "[secret PIN]", 1.5, None, True, ["a", mark.encode()]]}
    two = redactor.redact_json({"hunter2hunter2": 1, base64.b64encode(b"hunter2hunter2").decode().rstrip("="): 2})
    assert sorted(two.values()) == [1, 2]
    assert redactor.redact_json(10**5000) == 10**5000


# --- patterns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "clean"),
    [
        (r"sk-[A-Za-z0-9]{8,}", "a sk-12345678ab b", "a [redacted] b"),
        (r"Bearer\s+\S+", "Authorization: Bearer abc.def\n", "Authorization: [redacted]\n"),
        (r"(?i)password\s*[:=]\s*\S+", "PassWord = x1y2 z", "[redacted] z"),
        (r"密码[:：]\s*\S+", "密码：hunter 好", "[redacted] 好"),
        (r"\b\d{4}-\d{4}\b", "1234-5678 91234-56789", "[redacted] 91234-56789"),
        (r"(?:\d{1,3}\.){3}\d{1,3}", "at 10.0.0.1.", "at [redacted]."),
        (r"-----BEGIN[\s\S]*?-----END", "a-----BEGIN x\ny-----ENDb", "a[redacted]b"),
        (r"(?m)^token .*$", "x token a\ntoken b\ny", "x token a\n[redacted]\ny"),
        (r"^first", "first first", "[redacted] first"),
        (r"(?<=key=)\w+", "key=abc key", "key=[redacted] key"),
    ],
)
def test_what_a_pattern_matches_is_redacted(pattern: str, text: str, clean: str) -> None:
    redactor = Redactor({}, [pattern])
    assert redactor.redact_text(text) == clean
    for cut in range(len(text.encode()) + 1):
        assert _through(redactor, text.encode(), [cut]).decode() == clean


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "*a",
        "a**",
        "(a+)+b",
        "(a*)*b",
        "(?:a|aa)+b",
        "(?:a?){50}a{50}",
        r"(\w+\s?)*x",
        r"(a)\1",
        r"(.*)(.*)(.*)x",
        ".*.*.*x",
        r"\w+\d+\w+x",
        "(?i)a+A+a+x",
        "a*",
        "",
        r"\b",
        "(?=x)",
        "(?x) a b",
        "x" * 2_000,
        "a{99999999999}",
        "(?:[ab]+|c)*d",
    ],
)
def test_a_pattern_that_could_run_for_ever_or_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Redactor({}, [pattern])
    assert refused.value.code == "redact-pattern-invalid"
    assert refused.value.hint


def test_the_slowest_pattern_that_is_accepted_ends() -> None:
    redactor = Redactor({}, [r"a.*b\d+c"])
    started = time.process_time()
    redactor.redact_text("a" * 60_000)
    assert time.process_time() - started < 30


def test_a_match_longer_than_the_window_is_swallowed_to_the_end_of_its_line() -> None:
    redactor = Redactor({}, [r"key-\S+"])
    text = f"a key-{'x' * 100_000} b\nc"
    clean = redactor.redact_text(text)
    assert clean == "a [redacted]\nc"


def test_somebody_who_waits_for_a_prompt_gets_it() -> None:
    redactor = Redactor({"S": "hunter2hunter2"}, [r"tok-\d{6,}"])
    assert redactor.feed(b"Continue? [y/n] hunt") == b""
    assert redactor.flush() == b"Continue? [y/n] "
    assert redactor.feed(b"er2hunter2 ok") + redactor.finish() == b"[secret S] ok"


def test_values_go_before_patterns() -> None:
    redactor = Redactor({"S": "abcd1234"}, [r"\d{4,}"])
    assert redactor.redact_text("abcd1234 5678") == "[secret S] [redacted]"


@given(st.text(alphabet="ab key-1\n", max_size=80), st.lists(st.integers(0, 80), max_size=6))
def test_patterns_do_not_depend_on_the_cuts(text: str, cuts: list[int]) -> None:
    redactor = Redactor({}, [r"key-\w+", r"b{3,}"])
    clean = _through(redactor, text.encode(), cuts).decode()
    assert clean == re.sub(r"key-\w+|b{3,}", "[redacted]", text)


# --- the environment ------------------------------------------------------------------------------------------------


def test_the_environment_is_built_not_filtered() -> None:
    base = {
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "HOME": "/root",
        "AWS_SECRET": "x",
        "LD_PRELOAD": "y",
    }
    secrets = {"API_KEY": "k", "OTHER": "o"}
    built = build_environment(["API_KEY", "AWS_SECRET", "MISSING"], secrets, {"MODE": "fast"}, base)
    assert built == {
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "API_KEY": "k",
        "MODE": "fast",
    }


@pytest.mark.parametrize(
    "name",
    "PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES BASH_ENV ENV PYTHONPATH PYTHONSTARTUP NODE_OPTIONS "
    "PERL5OPT RUBYOPT GIT_SSH_COMMAND GIT_CONFIG_COUNT IFS SHELLOPTS HOME EDITOR PAGER LESSOPEN JAVA_TOOL_OPTIONS "
    "BASH_FUNC_ls%% SKILL_DIR WORKSPACE_DIR path http_proxy PROWESS_TRUST A=B 1A A-B é".split(),
)
def test_a_name_that_changes_what_starts_is_refused_from_the_model(name: str) -> None:
    assert find_refusal(name, "x")
    with pytest.raises(WorkspaceError) as refused:
        build_environment([], {}, {name: "x"}, {})
    assert refused.value.code == "env-refused"


def test_names_and_values_that_no_process_can_have_are_refused() -> None:
    assert find_refusal("", "x")
    assert find_refusal("A", "x\0y")
    assert find_refusal("MODE", "fast") is None
    assert changes_startup("ld_preload") and not changes_startup("MODE")
