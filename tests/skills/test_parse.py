"""Any bytes become a head, and no restriction is lost on the way: read strictly, else repaired, else salvaged."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from conftest import dear
from prowess._internal.text import LineNumbers, fenced_code, find_invisible, strip_invisible
from prowess.core.findings import RULES, make_finding
from prowess.skills.catalog import Skill
from prowess.skills.entry_reader import read_head_bytes
from prowess.skills.front_matter import FrontMatter
from prowess.skills.head import SkillHead
from prowess.skills.metadata import split_tools
from prowess.skills.parse import MAX_HEAD_BYTES, Fence, find_fence, parse_body, parse_front, parse_head
from prowess.skills.render import render_catalog, render_skill

BOM = b"\xef\xbb\xbf"


def _file(front: str, body: str = "Body.\n") -> bytes:
    return f"---\n{front}\n---\n{body}".encode()


def _head(front: str, folder: str = "pdf") -> SkillHead:
    return parse_head(_file(front), folder)


def _codes(head: SkillHead) -> set[str]:
    return {note.code for note in head.notes}


def _is_decided(head: SkillHead) -> bool:
    """A description to show, or a reason why there is none."""
    return bool(head.description) != any(RULES[note.code].severity == "error" for note in head.notes)


# --- any bytes ------------------------------------------------------------------------------------------------------

_TOKENS = [
    *(": ", " #", "#", "---", "--- ", "\n---\n", "...", "\n", "\r", "\r\n", "\n  ", "\n- ", "- ", "? ", "\t", " " * 9),
    *('"', "'", '\\"', "\\", "\\x", "\\ud800", "[", "]", "{", "}", ",", "[]", "{}", "[[[[", "|", ">", "|2-", ">+"),
    *("&a ", "*a", "!!str ", "!x", "<<: *a", "%YAML 1.1", "@", "`", "%", "~", "null", "true", "0x1F", "2024-01-31"),
    *("\0", "\x07", "\x85", "\u2028", "\ufeff", "\u200b", "\u202e", "\U000e0041", "é", "技", "😀", "<b>", "&amp;"),
    *("name: ", "description: ", "allowed-tools: ", "disable-model-invocation: ", "metadata:", "requires:\n  bins: a"),
]
_SOUP = st.lists(
    st.sampled_from([token.encode("utf-8") for token in _TOKENS]) | st.binary(max_size=4), max_size=40
).map(b"".join)


@given(st.binary(max_size=300) | _SOUP | _SOUP.map(lambda soup: b"---\n" + soup + b"\n---\nBody."))
@example(b"")
@example(b"---")
@example(b"---\n---")
@example(b"---\n...\n---\n")
@example(b"---\ndescription: '\n\n---\n")
@example(b'---\ndescription: "\\ud800"\n---\n')
@example(b"---\n? [a, b]\n: c\ndescription: d\n---\n")
def test_any_bytes_give_a_description_or_say_why_not(data: bytes) -> None:
    head = parse_head(data, "folder")
    assert _is_decided(head)
    assert head.name is None or head.name == head.name.strip() != ""
    for note in head.notes:
        finding = make_finding(note, "SKILL.md")
        assert not re.search(r"\{\w+\}", finding.message) or "{" in str(note.details)
        assert note.line is None or note.line >= 1
    body, line, _ = parse_body(data)
    assert "\r" not in body and line >= 1


_PIECES = st.sampled_from(
    [
        *(*_TOKENS, *"aZ09 -:.,/(", "name", "tags", "\nname: ", "\nb: ", "\n  c: d", "\nmetadata:\n  a: b"),
        *(" [a, b]", "é", "e: f"),
    ]
)
_LINE = st.sampled_from(
    [
        "one",
        "it''s two",
        "- three",
        "four: #",
        "五つ",
        "six'",
        "''",
        "",
        " seven ",
        "#",
        "a: b",
        '\\"',
        "\\\\",
        '"',
        "： ",
        "b:",
    ]
)
_FORMS = st.tuples(
    st.sampled_from([" '", ' "', " 0", " >\n  ", " |-\n  ", " >-\n", "\n- ", "\n  - ", " か", " "]),
    st.lists(_LINE, min_size=1, max_size=4),
    st.sampled_from(["\n  ", "\n", "\n\n  ", "\n- ", "\n  - ", "\n   "]),
    st.sampled_from(["", "'", '"', '" ', "\n  '", "\n\n  '", " ", "\n"]),
).map(lambda form: f"{form[0]}{form[2].join(form[1])}{form[3]}")
_LONG = st.lists(_FORMS, min_size=1, max_size=3).map(
    lambda forms: "\n".join(f"{key}:{form}" for key, form in zip("abc", forms, strict=False))
)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(_PIECES, max_size=14).map("".join) | _LONG)
@example("metadata:\n  a: b\n  c: 'd'\ntags: [x, y-z]")
@example("metadata:\n  a: b\n   c: d")
@example("metadata:\nname: x")
@example("a: b\n  c: d")
@example("a: b \nc: d:")
@example("d: 'one\n  it''s two  \n    three '\ntags: [x]")
@example("d: 'x\n  '")
@example("d: 'x''\n  y'''  ")
@example("d: 'x'' y''\n  z'")
@example("d: 'it''s")
@example("d: >\n  one\n  two # three\ntags: [x]")
@example("d: |\n    one:\n    - two")
@example("d: >-\n  one\n   two")
@example("d: >-")
@example("d: 'one\n\n  two\n\n\n  three.\n\n  '\nl:\n- a\n- 'b: c'\n- d e\nx: y")
@example("d: 'one\n\n'")
@example("d: 'one'\n\nx: y")
@example("l:\n  - a\n- b")
@example('d: "says \\"no\\" \\\\ ：full width"\ne: ""')
@example('d: "a\\x41"')
@example('d: "a\\"')
@example("d: one\n  two - 'three'\n    - four\nx: y\n\n")
@example("d: one\n  two: three")
@example("d: one\n  # two")
@example("d: one\n  two #three\n  four")
@example("d: one\n\n  two")
@example("l:\n- a\n  b: c")
@example("l:\n- a: b")
def test_what_is_read_strictly_is_what_yaml_says(front: str) -> None:
    """Most front matter never meets the YAML parser, and nobody can tell."""
    text = f"name: pdf\n{front}"
    found = parse_front(_file(text))
    assume(isinstance(found, FrontMatter) and found.how == "strict" and isinstance(find_fence(_file(text)), Fence))
    assert isinstance(found, FrontMatter)
    fence = find_fence(_file(text))
    assert isinstance(fence, Fence)
    inside = _file(text)[fence.start : fence.end].decode().replace("\r\n", "\n").replace("\r", "\n")
    assert found.fields == yaml.load(inside, Loader=yaml.CBaseLoader)
    nodes = yaml.compose(inside, Loader=yaml.CBaseLoader).value
    assert found.lines == {key.value: key.start_mark.line + 2 for key, _ in nodes}


def test_plain_front_matter_needs_no_yaml_parser(tmp_path: Path) -> None:
    fronts = [
        "name: a\ndescription: Fills forms (PDF). Use when asked — or told.",
        "name: b\ndescription: \"Quoted: it's so.\"\nmetadata:\n  author: ann\n  version: '2'\ntags: [x, y-z]",
        "name: c\ndescription: 从 CSV 文件生成报告。",
        "name: d\ndescription: 'Fills forms.\n  Use when it''s time.'",
        "name: e\ndescription: >\n  Fills forms.\n  Use when asked.\nlicense: MIT",
        "name: f\ndescription: レポートを作る（表）。\ntags:\n- a\n- b c",
        'name: g\ndescription: "Says \\"no\\" to nothing: ask first."',
        "name: h\ndescription: Fills forms\n  and (some) tables.\nlicense: MIT\n",
    ]
    for name, front in zip("abcdefgh", fronts, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_bytes(_file(front))
    code = (
        "import sys, prowess; c = prowess.discover(sys.argv[1]); print(len(c), len(c.findings), 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8", "0", "False"]


_SEEDS = [
    "name: pdf\ndescription: Fills PDF forms. Use when the user mentions a form.",
    'name: "pdf"\ndescription: "Quoted: \\"yes\\" — é. Use when asked."\nlicense: MIT',
    "name: pdf\ndescription: 'It''s fine. Use when asked.'\nversion: 1.0",
    "name: pdf\ndescription: |\n  One line.\n\n  Use when: asked.\nallowed-tools: Read Bash(git:*)",
    "name: pdf\ndescription: >-\n  Folded\n  text.\nallowed-tools:\n  - Read\n  - Bash(git add:*)",
    "name: pdf\ndescription: Use when: asked.\nallowed-tools: Read, Write",
    "name: pdf\ndescription: @mention `code`: yes # no\nallowed-tools: [Read, Write]",
    "{name: pdf, description: flow style, allowed-tools: [Read]}",
    "name: pdf\ndescription: Plain\n  over several\n  lines.\ncompatibility: linux",
    "name: pdf\ndescription: d\nmetadata:\n  author: ann\n  version: '2'\n  nested:\n    - a\n    - b: c",
    "name: pdf\ndescription: d\nrequires:\n  bins: [ffmpeg, git]\n  env:\n    - KEY\nrun-mode: subagent",
    "name: pdf\ndescription: d\ndisable-model-invocation: true\nallowed-tools: Read",
    "name: pdf\ndescription: d\ndisable-model-invocation: true\nuser-invocable: false\ncontext: fork",
    "name: pdf\ndescription: d\nallowed-tools: Read\nallowed-tools: Bash",
    "# comment\nname: pdf # the name\n\ndescription: d # cut\nallowed_tools: Read",
    "name: 技能\ndescription: 从 CSV 文件生成报告。当用户需要时使用。\nkeywords: [表格, 报告]",
    "name: pdf\ndescription: family 👩‍👩‍👧 and می‌خواهم\ntags: a, b",
    "description: no name\nunknown: field\nother:\n  - x",
    "name: pdf\ndescription: &a [x]\nb: *a\nallowed-tools: Read",
    "name: pdf\ndescription:\n  - a\n  - b\nallowed-tools:\n  Bash: git",
]


@pytest.mark.parametrize("part", range(4))
def test_100k_mutated_front_matters(part: int) -> None:
    """Flipped, cut, doubled, swapped and spliced: nothing raises, nothing is undecided, no restriction is lost."""
    chance = random.Random(f"prowess {part}")
    files = [_file(seed, "Body\n").replace(b"\n", end) for seed in _SEEDS for end in (b"\n", b"\n", b"\n", b"\r\n")]
    tokens = [token.encode("utf-8") for token in _TOKENS]
    for number in range(25_000):
        data = _mutated(chance.choice(files), chance, tokens)
        head = parse_head(data, "pdf")
        codes = _codes(head)
        assert _is_decided(head), data
        if "yaml-salvaged" in codes:
            assert head.controls.allowed_tools == (), data
        if head.description and re.search(rb"^allowed-tools *:", _front_of(data), re.MULTILINE):
            assert head.controls.allowed_tools is not None, data
        if head.description and re.search(rb"^disable-model-invocation: true$", _front_of(data), re.MULTILINE):
            assert head.controls.mode == "manual", data
        if number % 50 == 0:
            assert all(make_finding(note, "SKILL.md").message.isprintable() for note in head.notes), data


def _mutated(data: bytes, chance: random.Random, tokens: list[bytes]) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        at, to = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        to = min(to, at + 20)
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[to:]
        elif kind == 2:
            data = data[:to] + data[at:to] + data[to:]
        elif kind == 3:
            other = chance.randrange(len(data) + 1)
            data = data[:at] + data[to:]
            data = data[:other] + data[at:to] + data[other:]
        else:
            data = data[:at] + chance.choice(tokens) + data[at:]
    return data


def _front_of(data: bytes) -> bytes:
    """The front matter, if none of it can stand in quotes, brackets or another document, where a key is none."""
    fence = find_fence(data)
    front = data[fence.start : fence.end].replace(b"\r\n", b"\n") if isinstance(fence, Fence) else b""
    return b"" if re.search(rb"[\"'{}\[\]]|[\x00-\x09\x0b-\x1f\x7f-\xff]", front) else front


_LONG = 60_000
_HOSTILE = {
    "blanks-in-a-value": "description: a" + " " * _LONG + "b: c",
    "blanks-and-broken": "description: [a" + " " * _LONG + "b\n- c",
    "open-brackets": "description: " + "[" * _LONG,
    "open-braces": "description: " + "{" * _LONG,
    "nested-dashes": "- " * (_LONG // 2),
    "nested-questions": "? " * (_LONG // 2),
    "nested-keys": "\n".join(" " * depth + "k:" for depth in range(300)),
    "colons": "description: " + "a: " * (_LONG // 3),
    "escapes": 'description: "' + '\\"' * (_LONG // 2),
    "hashes": "description: a" + " #" * (_LONG // 2),
    "tabs": "description:" + "\t" * _LONG + "x",
    "a-64k-line": "description: " + "x" * _LONG,
    "a-64k-key": "x" * _LONG + ": y",
    "many-broken-keys": "\n".join(f"k{number}: v: w" for number in range(_LONG // 14)),
    "unclosed-quote": 'description: "' + "\n" * _LONG,
    "flow-pairs": "description: {" + "a: b, " * (_LONG // 6),
    "aliases": "a: &a [x, x]\n" + "\n".join(f"a{n}: &a{n} [*a, *a]" for n in range(2000)),
    "merges": "a: &a {b: c}\ndescription: d\n" + "<<: *a\n" * 5000,
    "spaces-before-restriction": " " * _LONG + "allowed-tools: Read\n- x",
}


@pytest.mark.parametrize("case", _HOSTILE)
def test_no_head_takes_more_than_linear_time(case: str) -> None:
    """Against an ordinary head of that size, with much room: what is quadratic takes ten thousand times as long."""
    ordinary = _cpu_s("\n".join(f"k{number}: v" for number in range(_LONG // 9)))
    assert _cpu_s(_HOSTILE[case]) < 60 * ordinary


def _cpu_s(front: str) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        assert _is_decided(_head(front))
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize(
    ("front", "code"),
    [
        ("description: d\na: " + "[" * 30 + "]" * 30, "yaml-repaired"),
        ("description: d\na:\n" + "- " * 30 + "x", "yaml-salvaged"),
        ("description: d\na: &x y\nb: [*x, *x]", "yaml-salvaged"),
        ("a: &x y\nb: [*x, *x]", "yaml-alias"),
        ("<<: [*x]", "yaml-alias"),
        ("- " * 30, "yaml-too-deep"),
        ("a: b\n...\nc: d", "yaml-invalid"),
        ("? {a: b}\n: c", "yaml-invalid"),
    ],
)
def test_depth_aliases_and_several_documents_are_refused(front: str, code: str) -> None:
    assert code in _codes(_head(front))


# --- where the front matter ends --------------------------------------------------------------------------------------

_PIECES = st.lists(
    st.sampled_from(
        [b"---", b"-", b"--", b"\n", b"\r", b"\r\n", b" ", b"\t", b"x", b"name: x", BOM, b"\xef", b"\xc3\xa9"]
    ),
    max_size=14,
).map(b"".join)
_FILES = _PIECES | st.tuples(st.sampled_from([b"---\n", BOM + b"---\r\n", b"--- \r"]), _PIECES).map(b"".join)


@given(_FILES)
@example(b"---\r\n---\r\nx")
@example(BOM + b"---\na\n---")
def test_head_and_body_partition_the_file(data: bytes) -> None:
    fence = find_fence(data)
    if not isinstance(fence, Fence):
        assert parse_body(data)[0] == _unified(data)
        return
    opening, front, closing = data[: fence.start], data[fence.start : fence.end], data[fence.end : fence.body]
    assert re.fullmatch(rb"(\xef\xbb\xbf)?---[ \t]*(\r\n|\n|\r)", opening)
    assert re.fullmatch(rb"---[ \t]*(\r\n|\n|\r|)", closing)
    assert not front or front[-1:] in (b"\n", b"\r"), "the closing fence has a line of its own"
    lines = front.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    assert not any(re.fullmatch(rb"---[ \t]*", line) for line in lines), "the first fence counts"
    body, first_line, _ = parse_body(data)
    below = _unified(data).split("\n")[first_line - 1 :]
    assert body == ("\n".join(below) if closing[-1:] in (b"\n", b"\r") else "")


def _unified(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


@given(_FILES)
@example(BOM + b"---\r\nname: x\r\n---\r\nBody")
def test_whoever_reads_in_chunks_finds_the_same_fence(data: bytes) -> None:
    final = find_fence(data)
    for size in range(len(data) + 1):
        early = find_fence(data[:size], whole=False)
        assert early is None or early == final


@pytest.mark.parametrize("blanks", [0, 1, 199, 200, 201, 5000])
@pytest.mark.parametrize("end", range(MAX_HEAD_BYTES - 2, MAX_HEAD_BYTES + 3))
def test_readers_agree_at_the_size_limit_too(end: int, blanks: int, tmp_path: Path) -> None:
    """`end` is where the closing fence begins; discovery reads the file in pieces, loading reads it whole."""
    start = b"---" + b" " * blanks + b"\n"
    head = start + b"description: "
    data = head + b"x" * (end - len(head) - 1) + b"\n---" + b" " * blanks + b"\nBody." + b"." * 20_000
    final = find_fence(data)
    for size in (3, 4095, 4096, 4097, *range(MAX_HEAD_BYTES - 300, MAX_HEAD_BYTES + 600), len(data) - 1):
        early = find_fence(data[:size], whole=False)
        assert early is None or early == final
    if blanks <= 200:
        assert isinstance(final, Fence) == (end <= MAX_HEAD_BYTES)
    path = tmp_path / "SKILL.md"
    path.write_bytes(data)
    read = read_head_bytes(str(path))
    assert len(read) <= MAX_HEAD_BYTES + 2 * 8192
    assert find_fence(read) == final
    assert parse_head(read, "x") == parse_head(data, "x")


@given(front=st.integers(0, 30_000), body=st.integers(0, 30_000))
def test_discovery_reads_at_most_8_kib_past_the_fence(tmp_path_factory: pytest.TempPathFactory, front: int, body: int):
    path = tmp_path_factory.mktemp("head") / "SKILL.md"
    data = _file("description: " + "x" * front, "y" * body)
    path.write_bytes(data)
    read = read_head_bytes(str(path))
    assert data.startswith(read)
    assert parse_head(read, "x") == parse_head(data, "x")
    assert len(read) <= len(data) - body + 8192


# --- what does not matter -------------------------------------------------------------------------------------------

_FRONTS = st.lists(st.sampled_from([token for token in _TOKENS if "\r" not in token]), max_size=25).map("".join)


@given(_FRONTS | st.sampled_from(_SEEDS))
def test_line_ends_and_a_byte_order_mark_do_not_matter(front: str) -> None:
    plain = _file(front, "One\n\ntwo\n")
    head, body = parse_head(plain, "pdf"), parse_body(plain)
    for other in (plain.replace(b"\n", b"\r\n"), plain.replace(b"\n", b"\r"), BOM + plain):
        assert parse_head(other, "pdf") == head
        assert parse_body(other) == body


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(end: str) -> None:
    data = end.join(["---", "name: x", "description: d", "---", "", "One.", "caf\xe9", ""]).encode("latin-1")
    assert parse_body(data) == ("\nOne.\ncaf\ufffd\n", 5, (("body-not-utf8", 7, {}),))
    data = end.join(["---", "name: x", "description: caf\xe9", "---", ""]).encode("latin-1")
    [note] = parse_head(data, "x").notes
    assert (note.code, note.line) == ("head-not-utf8", 3)


# --- strict ---------------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=60), max_size=5),
    st.sampled_from([None, '"', "'", "|", ">"]),
    st.booleans(),
)
@example({"version": "1.10", "on": "off", "~": "null", "date": "2024-01-31", "n": "0o17", "=": "<<"}, None, False)
def test_texts_that_yaml_wrote_come_back_as_they_were(fields: dict[str, str], style: str | None, raw: bool) -> None:
    assume(fields and not (raw and re.search("[\x85\u2028\u2029]", "".join((*fields, *fields.values())))))  # line ends
    text = yaml.safe_dump(fields, default_style=style, allow_unicode=raw)
    front = parse_front(_file(text.rstrip("\n")))
    assert isinstance(front, FrontMatter), front
    assert (front.how, front.fields) == ("strict", fields)


def test_lists_and_maps_come_back_with_texts_inside() -> None:
    value = {"a": ["1", "true", {"b": ["~"]}], "c": {"d": {"e": "1.0"}}}
    for flow in (True, False):
        front = parse_front(_file(yaml.safe_dump(value, default_flow_style=flow).replace("'", "").rstrip("\n")))
        assert isinstance(front, FrontMatter)
        assert front.fields == value


def test_the_line_of_each_field_is_known() -> None:
    front = parse_front(_file("# c\nname: a\n\ndescription: |\n  b\n  c\nmetadata:\n  x: y\nlicense: MIT"))
    assert isinstance(front, FrontMatter)
    assert front.lines == {"name": 3, "description": 5, "metadata": 8, "license": 10}


# --- repair ---------------------------------------------------------------------------------------------------------

_PRINTABLE = st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Cn", "Co"])
_VALUES = st.text(_PRINTABLE | st.sampled_from(list(":#'\"[]{}|>&*!%@`?-,\\ \t")), min_size=1, max_size=40)


@given(_VALUES)
@example("C # and F #")
@example("Use when: asked")
@example("- a")
@example("a:")
def test_an_unquoted_value_is_read_as_written_or_there_is_a_note(value: str) -> None:
    assume(value.strip() and value.strip()[0] not in "\"'[{|>")  # those are YAML's own
    head = _head(f"name: pdf\ndescription: {value}")
    assert head.description == value.strip() or head.notes


@given(_VALUES.filter(lambda text: "#" not in text), _VALUES.filter(lambda text: "#" not in text))
@example("Use when", "the user says 'hi' or \"ho\" \\n")
@example("&x", "y")
@example("> a", "b")
def test_a_value_with_a_colon_is_repaired_to_the_same_text(before: str, after: str) -> None:
    value = f"{before.strip()}: {after.strip()}"
    assume(before.strip() and before.strip()[0] not in "\"'[{" and after.strip())
    head = _head(f"name: pdf\ndescription: {value}\nlicense: MIT")
    assert head.description == strip_invisible(value)
    assert "yaml-repaired" in _codes(head)
    assert head.notes[0].line == 3


_LINES = st.lists(st.text(_PRINTABLE | st.sampled_from(list(":#'\"[]{}&*!- ")), max_size=30), min_size=1, max_size=6)


@given(_LINES, st.sampled_from(["|", "|-", "|+", "|  # comment"]))
@example(["Use when: asked", "allowed-tools: how to write it", "- x: y"], "|")
def test_a_repair_leaves_block_scalars_alone(lines: list[str], indicator: str) -> None:
    assume(lines[0].strip() and not lines[0].startswith((" ", "\t")))
    assume("\n".join(lines).strip() not in ("~", "null", "Null", "NULL"))  # such a description counts as none
    block = "\n".join(f"  {line}" for line in lines)
    head = _head(f"name: pdf\ndescription: {indicator}\n{block}\nlicense: a: b")
    assert head.description == strip_invisible("\n".join(lines)).strip()
    assert "yaml-repaired" in _codes(head)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('"Quoted": and more', '"Quoted": and more'),
        ("'a' or 'b'", "'a' or 'b'"),
        ("[PDF] fills forms", "[PDF] fills forms"),
        ("{x} fills forms", "{x} fills forms"),
        ("Uses C:\\temp: yes", "Uses C:\\temp: yes"),
        ("over: one\n  or: two lines", "over: one or: two lines"),
        ("`code` first", "`code` first"),
        ("@handle", "@handle"),
        ("%percent", "%percent"),
        ("*stars*", "*stars*"),
        ("!important", "!important"),
    ],
)
def test_what_people_write_is_read_as_they_meant_it(value: str, read: str) -> None:
    head = _head(f"name: pdf\ndescription: {value}\nallowed-tools: Read")
    assert head.description == read
    assert head.controls.allowed_tools == ("Read",)
    assert _codes(head) == {"yaml-repaired"}


WORDS = st.lists(st.from_regex(r"[A-Za-z]{1,8}(?:, |: |-)?[a-z]{1,8}", fullmatch=True), min_size=1, max_size=6).map(
    " ".join
)


@pytest.mark.parametrize("quote", ['"', "'"])
@given(WORDS, WORDS, WORDS)
@dear
def test_a_broken_quoted_value_loses_its_opening_quote_and_no_word(quote: str, a: str, b: str, c: str) -> None:
    written = {
        f"{quote}{a}": a,
        f"{quote}{a} {quote}{b}{quote} {c}.{quote}": f"{a} {quote}{b}{quote} {c}.",
        f"{quote}{a} {quote}{b}{quote} {c}": f"{a} {quote}{b}{quote} {c}",
        f"{quote}{a}.{quote} {b}": f"{a}. {b}",
        f"{quote}{a}\n  {b}": f"{a} {b}",
        f"{quote}{a}.{quote}\n  {b}": f"{a}. {b}",
    }
    for value, meant in written.items():
        for field in ("license: MIT", "license: a: b", "x: &y z"):  # fine; repaired as well; beyond repair
            head = _head(f"name: pdf\ndescription: {value}\n{field}")
            assert head.description == meant


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" \"':#\\\\-"), max_size=40))
def test_whatever_follows_an_opening_quote_is_read_without_it(text: str) -> None:
    head = _head(f'name: pdf\ndescription: "x{text}\nlicense: MIT')
    assert head.description is None or head.description.startswith("x") or head.description.startswith('"x')
    if '"' not in text:
        assert head.description is not None and head.description.startswith("x")


@pytest.mark.parametrize("value", ['"Read Bash(git:*)', '"Read" Bash', '"Read "Grep""'])
def test_a_broken_quoted_restriction_stays_closed(value: str) -> None:
    assert _head(f"name: pdf\ndescription: d\nallowed-tools: {value}").controls.allowed_tools == ()
    assert _head(f"name: pdf\ndescription: d\ndisable-model-invocation: {value}").controls.mode == "manual"


def test_a_repair_names_the_first_lines_only() -> None:
    head = _head("description: d\n" + "\n".join(f"k{number}: a: b" for number in range(100)))
    assert len(make_finding(head.notes[0], "p").message) < 300


# --- salvage and failing closed ---------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(_SEEDS), min_size=1, max_size=2), st.integers(0, 10), st.sampled_from(_TOKENS))
def test_what_is_salvaged_may_use_no_tool(seeds: list[str], at: int, token: str) -> None:
    lines = "\n".join(seeds).split("\n")
    lines.insert(min(at, len(lines)), f"}}{token}: [")
    head = _head("\n".join(lines))
    if "yaml-salvaged" in _codes(head):
        assert head.controls.allowed_tools == ()
        assert head.description


BROKEN = "\n}: ["


@pytest.mark.parametrize(
    ("front", "tools"),
    [
        ("description: d", None),
        ("description: d\nallowed-tools: Read", ("Read",)),
        ("description: d\nallowed-tools: Read" + BROKEN, ()),
        ("description: d" + BROKEN, ()),
        ("description: d\nallowed-tools:", ()),
        ("description: d\nallowed-tools: ''", ()),
        ("description: d\nallowed-tools: {Bash: git}", ()),
        ("description: d\nallowed-tools: [[Bash]]", ()),
        ("description: d\nallowed-tools: Read\nallowed-tools: Bash", ()),
        ("description: d\nallowed-tools: Bash(git", ()),
        ("description: d\nallowed-tools: [Read, Bash", ()),
        ("description: d\nallowed-tools: 'Read' 'Bash'", ()),
        ("description: d\nallowed-tools: *all", ("*all",)),
        ("description: a: b\n  allowed-tools: Read", ()),
        ("description: d\n  allowed-tools: Read", ()),
        ("description: a: b\n  'allowed_tools': Read", ()),
        ("description: d\nallowed_tools: Read", ("Read",)),
        ("description: d\nallowedTools: [Read]", ("Read",)),
        ("description: Use when: asked.\nallowed-tools: Bash(git: *)", ("Bash(git: *)",)),
        ("description: d\nallowed-tools:Bash(git: *)", ()),
        ("description: d\nallowed-tools:Read", ()),
    ],
)
def test_a_tool_list_that_cannot_be_read_allows_nothing(front: str, tools: tuple[str, ...] | None) -> None:
    assert _head(front).controls.allowed_tools == tools


@pytest.mark.parametrize(
    ("front", "mode"),
    [
        ("description: d", "auto"),
        ("description: d\ndisable-model-invocation: false", "auto"),
        ("description: d\ndisable-model-invocation: No", "auto"),
        ("description: d\ndisable-model-invocation: true", "manual"),
        ("description: d\ndisable-model-invocation: 'yes'", "manual"),
        ("description: d\ndisable-model-invocation: ON", "manual"),
        ("description: d\ndisable-model-invocation:", "manual"),
        ("description: d\ndisable-model-invocation: fasle", "manual"),
        ("description: d\ndisable-model-invocation: [false]", "manual"),
        ("description: d\ndisable-model-invocation: true\ndisable-model-invocation: false", "manual"),
        ("description: d\ndisable-model-invocation: true" + BROKEN, "manual"),
        ("description: d\ndisable-model-invocation: false" + BROKEN, "auto"),
        ("description: d\n'disable-model-invocation': false" + BROKEN, "manual"),
        ("description: d\n disable-model-invocation: true" + BROKEN, "manual"),
        ("description: d\ndisable-model-invocation: false\ndisable-model-invocation: true" + BROKEN, "manual"),
        ("description: a: b\n  disable-model-invocation: true", "manual"),
        ("description: d\ndisable-model-invocation:yes: please", "manual"),
    ],
)
def test_a_switch_that_is_unclear_keeps_the_skill_from_the_model(front: str, mode: str) -> None:
    assert _head(front).controls.mode == mode


@given(st.text(max_size=20))
def test_only_plain_words_of_no_let_the_model_have_it(value: str) -> None:
    front = yaml.safe_dump({"description": "d", "disable-model-invocation": value}, allow_unicode=True).rstrip("\n")
    says_no = value.strip().lower() in ("false", "no", "off", "0")
    assert _head(front).controls.mode == ("auto" if says_no else "manual")


# --- fields ---------------------------------------------------------------------------------------------------------

_TOOL = st.from_regex(r"[A-Za-z_*:]{1,8}(\([^()\n]{0,12}\))?", fullmatch=True)


@given(st.lists(_TOOL, max_size=6), st.sampled_from([" ", ", ", ",", "  ", "\n", " ,\t"]))
def test_tools_are_parted_outside_parentheses_only(tools: list[str], separator: str) -> None:
    assert split_tools(separator.join(tools)) == [tool.strip() for tool in tools]


@given(st.text(alphabet="ab(), \t\n", max_size=30))
def test_splitting_tools_loses_no_character_but_separators(text: str) -> None:
    assert "".join("".join(split_tools(text)).split()).replace(",", "") == re.sub(r"[,\s]", "", text)


def test_extensions_are_read() -> None:
    head = _head(
        "name: pdf\ndescription: d\nversion: 1.10\ncontext: fork\nuser-invokable: no\nargument-hint: '[file]'\n"
        "paths: [src/**, docs/*.md]\nkeywords: a, b\ntags: c\nmetadata: {role: coordinator}\n"
        "requires: {bins: [git, rg], env: TOKEN, python: '>=3.11'}"
    )
    controls = head.controls
    assert (head.version, head.keywords) == ("1.10", ("a", "b", "c"))
    assert (controls.run_mode, controls.role, controls.user_invocable) == ("subagent", "coordinator", False)
    assert (controls.argument_hint, controls.paths) == ("[file]", ("src/**", "docs/*.md"))
    assert controls.requires == (("bins", ("git", "rg")), ("env", ("TOKEN",)), ("python", (">=3.11",)))
    assert _codes(head) == {"field-misspelled"}


@pytest.mark.parametrize(
    ("front", "version"),
    [("version: 2\nmetadata: {version: 1}", "2"), ("metadata: {version: 1}", "1"), ("metadata: x", None)],
)
def test_the_version_is_the_top_one_or_that_of_the_metadata(front: str, version: str | None) -> None:
    assert _head(f"description: d\n{front}").version == version


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("pdf", set()),
        ("ＰＤＦ", {"name-invalid", "name-mismatch"}),
        ("ｐｄｆ", set()),
        ("pdf-", {"name-invalid", "name-mismatch"}),
        ("p.df", {"name-invalid", "name-mismatch"}),
        ("p<b>", {"name-invalid", "name-mismatch", "angle-brackets"}),
        ("café", {"name-not-portable", "name-mismatch"}),
        ("x" * 65, {"name-too-long", "name-mismatch"}),
        ("p\u200bdf", {"invisible-characters"}),
    ],
)
def test_a_name_is_judged_as_the_reference_library_does(name: str, codes: set[str]) -> None:
    assert _codes(_head(f"name: {name}\ndescription: d")) == codes


# --- what cannot be seen --------------------------------------------------------------------------------------------

_HIDDEN = [
    "\u200b",
    "\u200c",
    "\u200d",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\ufe0f",
    "\ufe00",
    "\U000e0041",
    "\U000e0101",
    "\x1b",
]
_MIXED = st.lists(st.sampled_from([*_HIDDEN, "a", "1", "é", "م", "❤", "👩", " ", "\n", "\t"]) | st.characters()).map(
    "".join
)


@given(_MIXED)
@example("a\u200d\u200d\u200db")
@example("a\u200b\u200d\u200bb")
@example("é\u200d\u200c\u200dé")
def test_stripping_leaves_nothing_to_strip(text: str) -> None:
    shown = strip_invisible(text)
    assert strip_invisible(shown) == shown
    assert find_invisible(shown) == []
    hidden = {at for at, _ in find_invisible(text)}
    assert "".join(character for at, character in enumerate(text) if at not in hidden) == shown
    assert not re.search("[\u200b\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff\x00-\x08\x0e-\x1f]", shown)
    assert not re.search("[\u200c\u200d]{2}|[\ufe00-\ufe0f]{2}", shown), "a run of joiners or selectors is a message"


@pytest.mark.parametrize(
    "text", ["👩‍👩‍👧", "❤️‍🔥", "1️⃣", "👩🏽‍💻", "می‌خواهم", "क्‍ष", "© ®", "naïve – “ok”…", "a\tb\nc", "☎︎"]
)
def test_what_writing_needs_survives(text: str) -> None:
    assert strip_invisible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u200dpal", "paypal"),
        ("\u200dstart", "start"),
        ("end\u200c", "end"),
        ("a\ufe0fb", "ab"),
        ("😀\ufe00\ufe01\ufe02\ufe03", "😀\ufe00"),
        ("x\U000e0073\U000e0065y", "xy"),
        ("\u202etxt.exe", "txt.exe"),
        ("\x1b[31mred", "[31mred"),
        ("Han\u3164gul", "Hangul"),
    ],
)
def test_what_hides_is_removed(text: str, shown: str) -> None:
    assert strip_invisible(text) == shown


@given(_MIXED, _MIXED)
@example("a\x85\ufe0f", "é \u200dé")
def test_nothing_invisible_reaches_a_model(description: str, body: str) -> None:
    assume(strip_invisible(description).strip() not in ("", "~"))
    front = yaml.safe_dump({"name": "pdf", "description": description})
    skill = Skill.from_text(f"---\n{front}---\n{body}")
    shown = render_skill(skill)
    assert find_invisible(skill.name) == find_invisible(skill.description) == find_invisible(shown) == []
    from prowess.skills.discover import discover

    for format in ("xml", "markdown", "json"):
        assert find_invisible(render_catalog(discover(skill), format=format)) == []


# --- places in a text -----------------------------------------------------------------------------------------------


@given(st.text(alphabet="a\n", max_size=30))
def test_lines_of_offsets(text: str) -> None:
    lines = LineNumbers(text)
    assert [lines.at(at) for at in range(len(text))] == [1 + text.count("\n", 0, at) for at in range(len(text))]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```\nX\n```\nx", "X"),
        ("~~~py\nX\n~~~\nx", "X"),
        ("````\n```\nX\n```\n````\nx", "```X```"),
        ("- item\n   ```sh\n   X\n   ```\nx", "X"),
        ("```\nX", "X"),
        ("```not a fence``` x\nx", ""),
        ("```\nX\n~~~\nX\n```\nx", "X~~~X"),
        ("x `X` x", ""),
    ],
)
def test_fenced_code_is_what_markdown_says(text: str, inside: str) -> None:
    code = fenced_code(text)
    assert "".join("".join(text[at] for at in range(len(text)) if at in code).split()) == inside
