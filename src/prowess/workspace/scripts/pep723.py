"""Parses the PEP 723 block of a Python script, as the specification says.

A block names packages but cannot choose their source: no index, address, path or option gets from a script to an
installer. Blocks with the same requirements have the same digest, in any spelling.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from prowess._internal.toml_lines import parse_toml
from prowess.errors import WorkspaceError

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

EXAMPLE = '# /// script\n# dependencies = ["{name}"]\n# ///'
MOST_DEPENDENCIES = 200
MOST_BYTES = 64 * 1024
# Settings with which uv and others choose the source of packages, or replace packages.
_CHOOSES_SOURCE = frozenset(
    "index index-url extra-index-url default-index find-links source sources override-dependencies".split()
)
_OPENING = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_ALMOST = re.compile(r"^[ \t]*#[ \t]*///[ \t]*script[ \t\r]*$", re.MULTILINE)
_ARCHIVE = re.compile(r"\.(?:whl|zip|egg|tar|tgz|tar\.\w+|tbz|txz|tlz)(?=[\s,)]|$)", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*+'|\"[^\"]*+\"")
_COMPARES_TEXTS = re.compile(r"''\s*+(?:[=!<>~]++|(?:not\s++)?in\b)\s*+''")
_MOST_CHARACTERS = 500  # of one requirement


class ScriptBlock(NamedTuple):
    """Requirements of a script, normalized and sorted. `ignored` lists settings of the block without effect here; they
    are not part of the digest."""

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    ignored: tuple[str, ...] = ()
    line: int = 1

    @property
    def digest(self) -> str:
        content = {"dependencies": self.dependencies, "requires-python": self.requires_python}
        text = json.dumps(content, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f"sha256:{digest}"


def parse_block(text: str, *, name: str = "The script") -> ScriptBlock | None:
    """Returns the block of type `script`, or None. Raises WorkspaceError: `block-invalid` when it cannot be read,
    `dependency-refused` when it asks for something a block may not ask for."""
    if "# /// script" not in text:
        return None
    found = [(line, content) for line, type_, content in find_blocks(text) if type_ == "script"]
    if not found:
        return None
    line, content = found[0]
    if len(found) > 1:
        problem = "this begins a second block of type script, and there may be one"
        _invalid(name, found[1][0], problem, "Merge them into one.")
    if len(content) > MOST_BYTES:
        problem = f"this begins a block of more than {MOST_BYTES} characters"
        _invalid(name, line, problem, "Name only what the script needs.")
    document = _parse_toml(content, name, line)
    ignored = [key for key in document if key not in ("dependencies", "requires-python", "tool")]
    dependencies = _read_dependencies(document.get("dependencies", []), name, line)
    requires_python = _read_requires(document.get("requires-python", ""), name, line)
    ignored += _read_tools(document.get("tool", {}), name, line)
    return ScriptBlock(
        dependencies=tuple(sorted(set(dependencies))),
        requires_python=requires_python,
        ignored=tuple(ignored),
        line=line,
    )


def parse_requirements(texts: Sequence[str], where: str) -> tuple[str, ...]:
    """Normalizes and sorts packages that are not named in a block. The same things are refused."""
    if len(texts) > MOST_DEPENDENCIES:
        _invalid(where, 0, f"more than {MOST_DEPENDENCIES} packages are named", "Name fewer.")
    requirements = {_read_requirement(text.strip(), where, 0) for text in texts}
    return tuple(sorted(requirements))


def find_blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields (line, type, content) of every block. Equal to the specification's regular expression, which would need
    hours for some texts."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    at = 0
    while at < len(lines):
        opening = _OPENING.fullmatch(lines[at])
        if opening is None:
            at += 1
            continue
        end = at + 1
        while end < len(lines) and (lines[end] == "#" or lines[end].startswith("# ")):
            end += 1
        # The last possible closing line counts. No block that opens before `end` closes after it.
        closing = next((k for k in range(end - 1, at + 1, -1) if lines[k] == "# ///"), None)
        if closing is None:
            at = end
            continue
        yield at + 1, opening[1], "".join(f"{line[2:]}\n" for line in lines[at + 1 : closing])
        at = closing + 1


def find_almost_block(text: str) -> int | None:
    """Returns the line where a block seems to begin, in a text without a valid block: it is not closed or
    misspelled."""
    found = _ALMOST.search(text)
    if found:
        return text.count("\n", 0, found.start()) + 1
    return None


def python_fits(requires: str, version: tuple[int, ...]) -> bool:
    """True when `requires-python` allows this version; an empty text allows all."""
    if not requires:
        return True
    text = ".".join(map(str, version))
    return _parse_specifiers(requires).contains(text, prereleases=True)


def parse_version(text: str) -> tuple[int, ...]:
    """Returns `3.11.2` as numbers; a suffix as in `3.14.0rc1` is left out."""
    found = re.match(r"\d+(?:\.\d+)*", text.strip())
    if found:
        return tuple(map(int, found[0].split(".")))
    return ()


def _parse_toml(content: str, name: str, line: int) -> dict[str, Any]:
    try:
        return parse_toml(content)
    except (ValueError, RecursionError) as error:
        text = str(error)
        found = re.search(r"at line (\d+)", text)
        if found:
            line += int(found[1])
        why = text.rpartition(" (at ")[0] or text
        hint = "Between '# /// script' and '# ///' there is TOML, after '# '."
        _invalid(name, line, f"this is not valid TOML: {why[:200]}", hint)


def _read_dependencies(value: object, name: str, line: int) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        problem = "this begins a block whose dependencies are no list of texts"
        _invalid(name, line, problem, _as_example("requests>=2"))
    if len(value) > MOST_DEPENDENCIES:
        problem = f"this begins a block with more than {MOST_DEPENDENCIES} dependencies"
        _invalid(name, line, problem, "Name fewer.")
    return [_read_requirement(item.strip(), name, line) for item in value]


def _read_requirement(text: str, name: str, line: int) -> str:
    """Returns the requirement in its normal form, which is also passed to the installer."""
    shown = repr(text[:80])
    source = _find_source(text)
    if source:
        _refuse(name, line, f"{shown} {source}")
    try:
        return _normal_requirement(text)
    except (ValueError, RecursionError):
        hint = "Write it as in: requests>=2,<3; python_version < '3.12'"
        _invalid(name, line, f"the dependency {shown} is none", hint)


def _find_source(text: str) -> str:
    """Returns how a requirement chooses the source of its package, or ""."""
    package = text.partition(";")[0]
    if text.startswith("-"):
        return "is an option for an installer"
    if "@" in package or "://" in text:
        return "is an address"
    if re.search(r"[/\\]", package) or text.startswith((".", "~")) or _ARCHIVE.search(package):
        return "is a path"  # an installer would look for a file with that name
    return ""


def _normal_requirement(text: str) -> str:
    """Raises ValueError when it is no requirement. The condition stays as written."""
    from packaging.requirements import Requirement

    if len(text) > _MOST_CHARACTERS:
        raise ValueError(text)
    parsed = Requirement(text)
    marker = " ".join(text.partition(";")[2].split())
    if _COMPARES_TEXTS.search(_QUOTED.sub("''", marker)):
        raise ValueError(text)
    short = canonical_name(parsed.name)
    if parsed.extras:
        extras = ",".join(sorted(map(canonical_name, parsed.extras)))
        short += f"[{extras}]"
    short += str(parsed.specifier)
    if marker:
        return f"{short}; {marker}"
    return short


def _parse_specifiers(text: str) -> SpecifierSet:
    """Raises ValueError for anything but version clauses."""
    from packaging.specifiers import SpecifierSet

    if len(text) > _MOST_CHARACTERS:
        raise ValueError(text)
    return SpecifierSet(text)


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_requires(value: object, name: str, line: int) -> str:
    wanted = "Write it as in: # requires-python = '>=3.11'"
    if not isinstance(value, str):
        _invalid(name, line, "this begins a block whose requires-python is no text", wanted)
    try:
        return str(_parse_specifiers(value))
    except ValueError:
        _invalid(name, line, f"this begins a block whose requires-python is {value[:40]!r}", wanted)


def _read_tools(value: object, name: str, line: int) -> list[str]:
    """Returns the tool settings that have no effect here. A setting that chooses a source is refused: ignoring it would
    get the package of that name from somewhere else."""
    ignored: list[str] = []
    if not isinstance(value, dict):
        return ignored
    for tool, settings in value.items():
        keys = list(settings) if isinstance(settings, dict) else []
        nested = settings.get("pip") if isinstance(settings, dict) else None
        named = {*keys, *nested} if isinstance(nested, dict) else {*keys}
        chosen = sorted(_CHOOSES_SOURCE & named)
        if chosen:
            problem = f"tool.{tool}.{chosen[0]} chooses where packages come from"
            _refuse(name, line, problem[:120])
        ignored += [f"tool.{tool}.{key}" for key in keys] or [f"tool.{tool}"]
    return ignored


def _as_example(name: str) -> str:
    return "Write it as in:\n" + EXAMPLE.format(name=name)


def _invalid(name: str, line: int, what: str, hint: str) -> NoReturn:
    message = f"{_where(name, line)}: {what}."
    raise WorkspaceError(message, op="plan", code="block-invalid", hint=hint)


def _where(name: str, line: int) -> str:
    if line:
        return f"{name}, line {line}"
    return name


def _refuse(name: str, line: int, what: str) -> NoReturn:
    message = f"{_where(name, line)}: {what}, and only a package can be asked for."
    hint = "Name the package; it is installed as a wheel from the index that whoever runs Prowess has configured."
    raise WorkspaceError(message, op="plan", code="dependency-refused", hint=hint)
