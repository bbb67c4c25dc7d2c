"""Checks a loaded skill for its author: body, references, scripts. Pure functions of a Skill.

`check_skill(skill, read)` yields (file, Note) pairs. `graded(code, profile)` returns the severity of a code in a
profile. Validation is stricter than loading.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Literal

from prowess._internal.text import LineNumbers, fenced_code, find_invisible
from prowess.core.catalog_values import Severity
from prowess.core.findings import RULES, Note
from prowess.skills.parse import parse_front
from prowess.skills.render import cost_in_catalog, skill_tokens
from prowess.skills.skill import Skill, shipped_folders
from prowess.skills.template import PLACEHOLDERS, UNDESCRIBED

Profile = Literal["default", "spec", "portable", "security", "loading"]
PROFILES: tuple[Profile, ...] = ("default", "spec", "portable", "security")  # loading: as lenient as a load
MAX_CATALOG_TOKENS = 100  # for name and description, as shown to a model
Located = tuple[str, Note]  # (file within the skill, note)

# Codes that loading accepts and the specification does not.
_STRICT = frozenset(
    [
        "yaml-repaired",
        "yaml-salvaged",
        "name-missing",
        "name-invalid",
        "name-too-long",
        "name-mismatch",
        "description-too-long",
        "compatibility-invalid",
        "allowed-tools-invalid",
        "duplicate-key",
        "file-name-case",
    ]
)
_PORTABLE = frozenset(
    [
        "name-not-portable",
        "angle-brackets",
        "metadata-invalid",
        "metadata-not-text",
        "absolute-path",
        "reference-missing",
    ]
)

# Bounded, so every text takes linear time.
_LINK = re.compile(r"\[[^\]\n]{0,200}\]\((?P<target>[^)\s]{1,200})(?:[ \t]{1,9}\"[^\"\n]{0,200}\")?\)")
_PATH = re.compile(r"(?<![\w/.\-<{$])(?:\./)?(?P<target>(?:scripts|references?|assets)/[\w./\-]*[\w\-])")
_ABSOLUTE = re.compile(
    r"(?<![\w:/.\-$}])(?P<target>(?:/(?:home|Users|root|mnt|opt|srv)/[\w.\-/]+)|[A-Za-z]:\\[\w.\-\\]+)"
)
_NO_FILE = re.compile(r"[a-z][a-z0-9+.-]*:|//|/|#|<|\{|\$", re.IGNORECASE)  # an address, an anchor or a placeholder
_PLACEHOLDER = re.compile(r"[*<>{}$…]|(?:\.\.\.|/)\Z")
_WHEN = re.compile(
    r"\b(use (?:this|it|when|for|to|if)|when(?:ever)?|if (?:the|a|you)|triggers?|ask(?:s|ed)?|needs?|wants?|mentions)\b"
    r"|当|適用|适用|用于|用於|使用|需要|とき|場合|際に|する時",
    re.IGNORECASE,
)
EXTENSIONS = frozenset(
    ".py .sh .bash .js .mjs .cjs .ts .rb .pl .php .r .R .lua .ps1 .bat .cmd .go .jl .sql .awk".split()
)
_DATA = frozenset(
    ".md .txt .json .yaml .yml .toml .csv .html .css .xml .xsd .ini .cfg .lock .j2 .tmpl .png .svg .pyi .typed".split()
)
_DATA_NAMES = frozenset(("LICENSE", "Makefile", "README", "NOTICE"))


def graded(code: str, profile: Profile) -> Severity:
    """Returns the severity of a finding in a profile."""
    if profile != "loading" and code in _STRICT:
        return "error"
    if profile == "portable" and code in _PORTABLE:
        return "error"
    return RULES[code].severity


def check_skill(skill: Skill, read: Callable[[str], bytes]) -> Iterator[Located]:
    """Yields every problem that the head of a skill does not show."""
    file = skill.entry.file
    for note in skill.notes:
        yield file, note
    if not _WHEN.search(skill.description):
        yield file, Note("description-no-when", _description_line(skill, read))
    yield from check_body(skill)
    yield from check_references(skill, read)
    yield from check_scripts(skill, read)
    for folder in shipped_folders(skill):
        yield file, Note("shipped-folder", None, {"folder": folder})


def check_cost(skill: Skill, read: Callable[[str], bytes]) -> Iterator[Located]:
    """Warns when the skill's catalog entry costs too many tokens: it costs them even when the skill is not used."""
    tokens = cost_in_catalog(skill.entry)
    if tokens <= MAX_CATALOG_TOKENS:
        return
    line = _description_line(skill, read)
    note = Note("description-too-many-tokens", line, {"tokens": tokens})
    yield skill.entry.file, note


def check_template(skill: Skill, read: Callable[[str], bytes]) -> Iterator[Located]:
    """Reports the lines that `prowess new` wrote and that nobody changed: a model would follow them as they are."""
    lines: list[int] = []
    if skill.description.endswith(UNDESCRIBED):
        lines.append(_description_line(skill, read) or 1)
    for number, line in enumerate(skill.body.splitlines(), skill.body_line):
        if line in PLACEHOLDERS:
            lines.append(number)
    if lines:
        yield skill.entry.file, Note("template-unedited", lines[0], {"lines": lines})


def _description_line(skill: Skill, read: Callable[[str], bytes]) -> int | None:
    """Returns the line of the description in SKILL.md."""
    data = read(skill.entry.file)
    front = parse_front(data)
    if isinstance(front, Note):
        return None
    return front.lines.get("description")


def check_body(skill: Skill) -> Iterator[Located]:
    file = skill.entry.file
    body = skill.body
    first = skill.body_line
    if not body.strip():
        yield file, Note("body-empty", first)
        return
    lines = body.count("\n") + 1
    if lines > 500:
        yield file, Note("body-too-long", first, {"lines": lines})
    tokens = skill_tokens(skill)["body"]  # as `prowess tokens` counts it
    if tokens > 5000:
        yield file, Note("body-too-many-tokens", first, {"tokens": tokens})
    hidden = find_invisible(body)
    if hidden:
        offset, _ = hidden[0]
        line = first + body.count("\n", 0, offset)
        characters = sorted({what for _, what in hidden})
        yield file, Note("invisible-characters", line, {"where": "body", "characters": characters[:5]})
    line_of = LineNumbers(body)
    for found in _ABSOLUTE.finditer(body):
        line = first + line_of.at(found.start()) - 1
        yield file, Note("absolute-path", line, {"target": found["target"]})


def check_references(skill: Skill, read: Callable[[str], bytes]) -> Iterator[Located]:
    """Reports files that the body names and that are missing, and files that only another doc names: a model easily
    misses those."""
    file = skill.entry.file
    present = {listed.path for listed in skill.files}
    folders: set[str] = set()
    for path in present:
        folders.update(_folders_of(path))
    direct: set[str] = set()
    line_of = LineNumbers(skill.body)
    for target, offset in find_references(skill.body):
        direct.add(target)
        if target not in present and target not in folders:
            line = skill.body_line + line_of.at(offset) - 1
            yield file, Note("reference-missing", line, {"target": target})
    reachable = direct | {file}
    for doc in sorted(direct & set(skill.docs)):
        text = read(doc).decode("utf-8", "replace")
        line_of = LineNumbers(text)
        for target, offset in find_references(text, base=posixpath.dirname(doc)):
            if target in present and target not in reachable:
                yield doc, Note("reference-deep", line_of.at(offset), {"target": target, "via": doc})


def find_references(text: str, base: str = "") -> list[tuple[str, int]]:
    """Returns (path relative to the skill, offset), each path once: Markdown links, and paths under scripts/,
    references/ and assets/.

    Paths in a fenced block are often examples, so only scripts/ paths count there.
    """
    fenced = fenced_code(text)
    seen: dict[str, int] = {}
    for pattern in (_LINK, _PATH):
        is_link = pattern is _LINK
        for found in pattern.finditer(text):
            target = found["target"].split("#")[0].split("?")[0]
            in_fence = found.start() in fenced
            if is_link and (in_fence or not target or _NO_FILE.match(target)):
                continue
            if in_fence and not target.startswith("scripts/"):
                continue
            if _PLACEHOLDER.search(target):
                continue
            folder = base if is_link else ""
            relative = posixpath.normpath(posixpath.join(folder, target))
            if not relative.startswith(".."):
                seen.setdefault(relative, found.start())
    return list(seen.items())


def check_scripts(skill: Skill, read: Callable[[str], bytes]) -> Iterator[Located]:
    for listed in skill.files:
        path = listed.path
        name = posixpath.basename(path)
        _, extension = posixpath.splitext(name)
        is_data = extension in _DATA or name in _DATA_NAMES
        if is_data or not path.startswith("scripts/"):
            continue
        if not listed.size_bytes or listed.size_bytes > 1_000_000:
            continue
        has_shebang = read(path).startswith(b"#!")
        if has_shebang and not listed.executable:
            yield path, Note("script-not-executable", 1, {"target": path})
        elif not has_shebang and extension not in EXTENSIONS and (listed.executable or not extension):
            yield path, Note("script-no-interpreter", 1, {"target": path})


def _folders_of(path: str) -> list[str]:
    """Returns each folder above a file: `a` and `a/b` for `a/b/c`."""
    folders: list[str] = []
    folder, _, _ = path.rpartition("/")
    while folder:
        folders.append(folder)
        folder, _, _ = folder.rpartition("/")
    return folders
