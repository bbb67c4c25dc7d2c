"""No text stalls the host: the time of every regular expression, and of every function that reads text from outside,
grows with the text and no faster. A new pattern is found here by itself."""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import prowess
from pattern_attacks import attacks, grows, is_quick_for_both
from prowess._internal.globs import Glob
from prowess._internal.text import strip_invisible
from prowess._internal.urls import shown_url
from prowess.agent.call_repair import route_to_skill
from prowess.cli.approver import make_question
from prowess.core.findings import visible
from prowess.core.ports import ShownSkill
from prowess.core.values import Decision, ToolCall
from prowess.errors import ProwessError
from prowess.models.actions.json_repair import find_objects
from prowess.models.actions.partial_json import TextTail
from prowess.models.offline import commands as offline_commands
from prowess.models.offline import fill as offline_fill
from prowess.models.offline import request_values as offline_values
from prowess.models.providers.sse import EventReader
from prowess.packs import git as pack_git
from prowess.packs import source as pack_source
from prowess.policy.commands import words as shell_words
from prowess.policy.globs import match_anything, match_below, match_path, match_word
from prowess.policy.secrets import Redactor
from prowess.policy.url_match import fits_url
from prowess.records.diff import mask
from prowess.runtime.services.files import find_attachments
from prowess.skills import security_scan as scan
from prowess.skills.metadata import split_tools
from prowess.skills.parse import parse_body, parse_head
from prowess.skills.render import neutralise
from prowess.skills.validate import find_references
from prowess.stores import postgres_pool as postgres_link
from prowess.tools.files.paths import match_glob
from prowess.tools.run.code_blocks import find_blocks
from prowess.tools.run.programs import guess_interaction
from prowess.tools.skills.read import find_headings
from prowess.workspace.network.http import Refused, parse_request
from prowess.workspace.outputs import read_pattern
from prowess.workspace.scripts import installers
from prowess.workspace.scripts import missing_dependency as missing
from prowess.workspace.scripts.interpreter import parse_shebang
from prowess.workspace.scripts.pep723 import parse_block

SOURCE = Path(prowess.__file__).parent
FLAGS_AT = {"compile": 1, "match": 2, "fullmatch": 2, "search": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4}
WHOLE = ("match", "fullmatch")  # the others try again at every place of the text


class Found(NamedTuple):
    name: str  # module and variable, or module and function
    methods: frozenset[str]
    pattern: re.Pattern[Any] | None  # None when it is made at the time it is used


def patterns_of(path: Path) -> Iterator[Found]:
    """Each call of `re` in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    names, uses = dict(_owners(tree)), _uses(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (method := _method(node, "re")) in FLAGS_AT:
            owner = names.get(node, "")
            methods = uses.get(owner, set()) & FLAGS_AT.keys() if method == "compile" else {method}
            module = vars(importlib.import_module(f"prowess.{name}"))
            yield Found(f"{name}.{owner}", frozenset(methods or {"search"}), _compiled(node, method, module))


def _method(node: ast.Call, of: str) -> str:
    is_it = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == of
    return node.func.attr if is_it and isinstance(node.func, ast.Attribute) else ""


def _owners(tree: ast.AST, inside: str = "") -> Iterator[tuple[ast.AST, str]]:
    for node in ast.iter_child_nodes(tree):
        own = inside
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            own = node.name
        elif not inside and isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            own = target.id if isinstance(target, ast.Name) else ""
        yield node, own
        yield from _owners(node, own)


def _uses(tree: ast.AST) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


def _compiled(node: ast.Call, method: str, module: dict[str, Any]) -> re.Pattern[Any] | None:
    at = FLAGS_AT[method]
    given = [word.value for word in node.keywords if word.arg == "flags"] or node.args[at : at + 1]
    try:
        source, *flags = (eval(compile(ast.Expression(each), "", "eval"), module) for each in (node.args[0], *given))
    except NameError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(source, *flags)


# --- every pattern --------------------------------------------------------------------------------------------------


# Sees no more than so many characters; within them, its time may grow with their square.
BOUNDED = {
    "workspace.scripts.missing_dependency.explain_failure": 2_000,
    "packs.source._compiled": 4_096,
}
# Made at the time it is used: the patterns that come of it.
MADE: dict[str, Sequence[str | re.Pattern[str]]] = {
    "runtime.kit_home.__init__": [r"'[^'\n]*'|(?<![\w-])(?:grep|skill_run|a\.b)(?![\w-])"],
    "runtime.config_file._find_json_line": [r'"key"\s*:'],
    "_internal.globs._letters": [r"(?!/)[^a-z]"],
    "_internal.folder_swap._is_swapped": [r"(?:\.\./)?\.skills\.lock\.new-[a-z0-9_]{1,16}"],
    "packs.git._errors": list(pack_git._SIGNS.values()),
    "packs.source._compiled": [pack_source._compiled(pattern) for _, _, pattern in pack_source._REMOTE]
    + [pack_source._ADDRESS, pack_source._TREE_PAGE],
    "models.offline.commands._placeholder": [r"(?<!\S)[\"']?<a b"],
    "models.offline.fill._by_name": [r"(?<![\w-])(?:--)?a[\s_-]b\s*[=:：]\s*|(?<!\S)--a[\s_-]b\s+"],
    "models.offline.fill._next": [r"(?i)(?<![a-z0-9])a b"],
    "models.offline.ranking._is_named": [r"(?<![\w./-])[/$]?a-b(?![\w-]|\.\w)"],
    "models.offline.request_values._find_values": [
        offline_values._QUOTED,
        offline_values._GIVEN.format(r"f0\.csv"),
        *(pattern for _, pattern in offline_values._PATTERNS),
    ],
    "policy.commands.words._with_our_variables": list(shell_words._OURS["WORK_DIR"]),
    "policy.rules._find_line": [r"^[ \t]*+\[*+[ \t]*+[\"']?name\b"],
    "skills.security_scan._p": [each.expression for each in scan.PATTERNS],
    "stores.postgres_pool._refusal": [pattern for pattern, _ in postgres_link._REFUSALS],
    "workspace.scripts.installers.explain_installer": [pattern for pattern, _, _ in installers._HINTS],
    "workspace.scripts.missing_dependency.explain_failure": [pattern for _, pattern in missing._RULES],
}
ELSEWHERE = {
    "_internal.match_worker._obey": "a case's pattern, in a process of its own that ends itself at a deadline",
    "tools.files.grep_worker.main": "a model's pattern, in a process of its own that is ended at a deadline",
    "policy.safe_regex.compile_pattern": "a person's pattern, judged by its form, and met by windows of 8 KiB",
    "policy.safe_regex._may_and_must": "sees one character",
    "policy.safe_regex._kind": "sees one character",
}


@functools.cache
def every_pattern() -> list[Found]:
    paths = (path for path in sorted(SOURCE.rglob("*.py")) if "builtin_skills" not in path.parts)
    return [found for path in paths for found in patterns_of(path)]


def problems(pattern: re.Pattern[Any], methods: Iterable[str], longest: int | None = None) -> Iterator[str]:
    for method in {each if each in WHOLE else "finditer" for each in methods}:
        for attack in attacks(pattern):
            if why := grows(functools.partial(meet, pattern, method), attack, longest):
                yield f"{method} of {pattern.pattern!r}: {[part[:40] for part in attack]}: {why}"
                break


def meet(pattern: re.Pattern[Any], method: str, text: str) -> None:
    given = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    found = getattr(pattern, method)(given)
    if method == "finditer":
        collections.deque(found, maxlen=0)


@pytest.mark.parametrize("part", range(8))
def test_every_pattern_takes_time_that_grows_with_the_text(part: int) -> None:
    wrong = []
    for name, methods, pattern in every_pattern()[part::8]:
        made = [pattern] if pattern is not None else map(re.compile, MADE.get(name, ()))
        wrong += [f"{name}: {why}" for each in made for why in problems(each, methods, BOUNDED.get(name))]
    assert not wrong, "\n".join(wrong)


def test_every_pattern_that_is_made_when_it_is_used_is_in_a_table() -> None:
    names = {found.name for found in every_pattern()}
    assert {found.name for found in every_pattern() if found.pattern is None} == MADE.keys() | ELSEWHERE.keys()
    assert BOUNDED.keys() <= names and len(names) > 150


def test_nothing_else_matches_patterns() -> None:
    """`fnmatch` takes a quadratic time for some patterns, and names taken out of `re` would not be found here."""
    for path in SOURCE.rglob("*.py"):
        if "builtin_skills" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^\s*(?:import|from) fnmatch\b|from re import|import re as", text, re.MULTILINE), path


@pytest.mark.parametrize("bad", [r"<(?=\s*/?\s*note)", r"(?:a+)+b", r"\s+$", r"(?:[ \t]*\n){6,}", r"(`+)(.+?)\1(?!`)"])
def test_the_test_finds_a_slow_pattern(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pattern_attacks.GIVE_UP_S", 1)
    assert list(problems(re.compile(bad), ["search"]))


# --- every function that reads what others wrote ----------------------------------------------------------------------


LETTERS = [*" \t\n\r\\\"'`*?[](){}<>/.:;,-_#$@=&|~!", "a", "é", "中", "\u200b", "\x1b"]
PIECES = [
    *LETTERS,
    "a ",
    " a",
    "a\n",
    "\n ",
    "- ",
    "* ",
    "**/",
    "*a",
    "?*",
    "[a",
    "a/",
    "../",
    "```\n",
    "~~~",
    "<!--",
    "-->",
]
PIECES += [
    "<skill>",
    "</note",
    "< / ",
    "&lt;",
    '<skill_content name="a">\n',
    "<skill_resources>\n",
    '{"a":',
    "[1,",
    '\\"',
]
PIECES += [
    "Skill(",
    "a:\n",
    "a: b\n",
    "'\"",
    "$(",
    "${",
    "\\\n",
    "# /// script\n",
    "# \n",
    "://",
    "%2e",
    "data: {}\n",
    "\x1b[",
]
WORST = [("", piece, end) for piece in PIECES for end in ("", "\0", "b")]


def question(text: str) -> object:
    return make_question(ToolCall(id="1", tool="skill_run", args={"command": text}), DECISION, columns=80, whole=True)


def routed(text: str) -> object:
    return [route_to_skill(ToolCall(id="1", tool=f"{begin}{text}", args={}), (), str) for begin in ("", "Skill(")]


def planned(text: str) -> object:
    said = offline_values.parse_request(text[:2000], ["inputs/a.csv"])
    return offline_fill.choose(ShownSkill("a", body=f"Command: x.py <file> {text}\n{text}"), said)


def refused(function: Callable[[str], object]) -> Callable[[str], object]:
    """A text may be refused, in no more time."""

    def read(text: str) -> object:
        with contextlib.suppress(ProwessError, Refused, ValueError):
            return function(text)

    return read


SHORT = "*a**/?" * 30
DECISION = Decision(verdict="ask", rule="test", why="why")
FUNCTIONS: dict[str, Callable[[str], object]] = {
    "SKILL.md": lambda text: parse_head(f"---\nname: a\ndescription: b\n---\n{text}".encode(), "a"),
    "front matter": lambda text: parse_head(f"---\nname: a\ndescription: {text}\n---\n".encode()[:60_000], "a"),
    "body": lambda text: parse_body(f"---\nname: a\n---\n{text}".encode()),
    "tags": neutralise,
    "invisible": lambda text: (strip_invisible(text), visible(text)),
    "scan": lambda text: list(scan.scan_text(text, is_prose=True)),
    "references": find_references,
    "tools": split_tools,
    "code blocks": lambda text: list(find_blocks(text)),
    "headings": lambda text: find_headings(text.split("\n")),
    "script block": parse_block,
    "requirement": lambda text: parse_block(f"# /// script\n# dependencies = ['a{text}']\n# ///\n"),
    "shebang": lambda text: parse_shebang(b"#!" + text.encode("utf-8", "replace")),
    "tool name": routed,
    "question": question,
    "planned command": planned,
    "request": lambda text: offline_values.parse_request(text, ["inputs/a.csv"]),
    "commands": offline_commands.find_commands,
    "mended JSON": lambda text: list(find_objects(text)),
    "JSON text": lambda text: TextTail().feed(text),
    "server events": lambda text: list(EventReader().feed(text.encode("utf-8", "replace"))),
    "failure": lambda text: missing.explain_failure(1, text),
    "installer": lambda text: installers.explain_installer(text.split("\n")),
    "interaction": lambda text: guess_interaction(text.split("\n")),
    "attachments": lambda text: find_attachments(text, "."),
    "difference": mask,
    "address": lambda text: shown_url(f"https://{text}"),
    "proxy request": lambda text: parse_request(b"GET http://a/ HTTP/1.1\r\nA: " + text.encode("utf-8", "replace")),
    "url rule, url": lambda text: fits_url([f"https://{SHORT}"], f"https://a/{text}", strict=True),
    "url rule, pattern": lambda text: fits_url([f"https://a/{text}"], f"https://a/{SHORT}", strict=True),
    "path rule, path": lambda text: (match_path(SHORT, text), match_below(SHORT, text), match_word(SHORT, text)),
    "path rule, pattern": lambda text: (match_path(text, SHORT), match_below(text, SHORT), match_anything(text, SHORT)),
    "outputs": lambda text: (read_pattern(SHORT).fullmatch(text), Glob(text, sets=True).fullmatch(SHORT)),
    "file names": lambda text: (match_glob(text, SHORT), match_glob(SHORT, text)),
    "secrets": Redactor({"A": "hunter2-hunter2", "B": "aaaaaaaaaaaa"}, ["key-[a-z]{20,}"]).redact_text,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_reader_takes_time_that_grows_with_the_text(name: str) -> None:
    read = refused(FUNCTIONS[name])
    wrong = [f"{attack}: {why}" for attack in WORST if (why := grows(read, attack))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("piece", ["*a", "**a", "**/", "?*", "[a-z]*", "[", "中"])
def test_a_long_pattern_for_a_long_path(piece: str) -> None:
    """Their product is the only thing that grows with a square, and five kilobytes of each are little."""
    pattern = piece * (5_000 // len(piece)) + "b"
    for path in ("a" * 5_000, "a/" * 2_500):
        assert is_quick_for_both(lambda a, b: Glob(a, sets=True).fullmatch(b), pattern, path)
