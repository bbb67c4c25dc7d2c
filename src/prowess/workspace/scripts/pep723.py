"""Parses the PEP 723 block of a Python script, as the specification says.

A block names packages but cannot choose their source: no index, address, path or option gets from a script to an
installer. Blocks with the same requirements have the same digest, in any spelling.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from prowess._internal.toml_lines import parse_toml
from prowess.errors import WorkspaceError
from prowess.workspace.scripts.environment_marker import is_marker

EXAMPLE = '# /// script\n# dependencies = ["{name}"]\n# ///'
MOST_DEPENDENCIES = 200
MOST_BYTES = 64 * 1024
# Settings with which uv and others choose the source of packages, or replace packages.
_CHOOSES_SOURCE = frozenset(
    "index index-url extra-index-url default-index find-links source sources override-dependencies".split()
)
_OPENING = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_ALMOST = re.compile(r"^[ \t]*#[ \t]*///[ \t]*script[ \t\r]*$", re.MULTILINE)
_NAME = r"[A-Za-z0-9]++(?:[._-]++[A-Za-z0-9]++)*+"
_CLAUSE = r"(?:===|~=|==|!=|<=|>=|<|>)\s*+[A-Za-z0-9][A-Za-z0-9.*+!_-]*+"
_CLAUSES = rf"{_CLAUSE}(?:\s*+,\s*+{_CLAUSE})*+\s*+,?+"
_REQUIREMENT = re.compile(
    rf"(?P<name>{_NAME})\s*+(?:\[(?P<extras>[^\]]*+)\])?+"
    rf"\s*+(?:\(\s*+(?P<inner>{_CLAUSES})\s*+\)|(?P<outer>{_CLAUSES}))?+"
    r"\s*+(?:;(?P<marker>[\w\s.'\"()<>=!~,+*-]++))?+",
    re.ASCII,
)
_ARCHIVE = re.compile(r"\.(?:whl|zip|egg|tar|tgz|tar\.\w+|tbz|txz|tlz)$", re.IGNORECASE)
_VERSION_CLAUSE = re.compile(r"(===|~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBlock:
    """Requirements of a script, normalized and sorted. `ignored` lists settings of the block without effect here; they
    are not part of the digest."""

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    ignored: tuple[str, ...] = ()
    line: int = 1

    @property
    def digest(self) -> str:
        content = {"dependencies": self.dependencies, "requires-python": self.requires_python}
        return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"


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
        _invalid(
            name, found[1][0], "this begins a second block of type script, and there may be one", "Merge them into one."
        )
    if len(content) > MOST_BYTES:
        _invalid(
            name, line, f"this begins a block of more than {MOST_BYTES} characters", "Name only what the script needs."
        )
    document = _parse_toml(content, name, line)
    ignored = [key for key in document if key not in ("dependencies", "requires-python", "tool")]
    dependencies = _read_dependencies(document.get("dependencies", []), name, line)
    return ScriptBlock(
        dependencies=tuple(sorted(set(dependencies))),
        requires_python=_read_requires(document.get("requires-python", ""), name, line),
        ignored=(*ignored, *_read_tools(document.get("tool", {}), name, line)),
        line=line,
    )


def parse_requirements(texts: Sequence[str], where: str) -> tuple[str, ...]:
    """Normalizes and sorts packages that are not named in a block. The same things are refused."""
    if len(texts) > MOST_DEPENDENCIES:
        _invalid(where, 0, f"more than {MOST_DEPENDENCIES} packages are named", "Name fewer.")
    return tuple(sorted({_read_requirement(text.strip(), where, 0) for text in texts}))


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
    return text.count("\n", 0, found.start()) + 1 if found else None


def python_fits(requires: str, version: tuple[int, ...]) -> bool:
    """True when `requires-python` allows this version; an empty text allows all."""
    return all(
        _clause_fits(operator, wanted, bool(rest), version) for operator, wanted, rest in _version_clauses(requires)
    )


def parse_version(text: str) -> tuple[int, ...]:
    """Returns `3.11.2` as numbers; a suffix as in `3.14.0rc1` is left out."""
    found = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(map(int, found[0].split("."))) if found else ()


def _clause_fits(operator: str, wanted: tuple[int, ...], prefix: bool, here: tuple[int, ...]) -> bool:
    if prefix or operator == "~=":
        length = len(wanted) if prefix else len(wanted) - 1
        same = here[:length] == wanted[:length]
        return not same if operator == "!=" else same and (operator != "~=" or here >= wanted)
    size = max(len(here), len(wanted))
    left, right = (version + (0,) * (size - len(version)) for version in (here, wanted))
    return {
        "===": left == right,
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }[operator]


def _version_clauses(requires: str) -> list[tuple[str, tuple[int, ...], str | None]]:
    """Parses version clauses. Raises ValueError for anything else."""
    clauses = []
    for text in filter(None, (part.strip() for part in requires.split(","))):
        found = _VERSION_CLAUSE.fullmatch(text)
        if found is None or (found[3] and found[1] not in ("==", "!=")) or (found[1] == "~=" and "." not in found[2]):
            raise ValueError(text)
        clauses.append((found[1], parse_version(found[2]), found[3]))
    return clauses


def _parse_toml(content: str, name: str, line: int) -> dict[str, Any]:
    try:
        return parse_toml(content)
    except (ValueError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        at = line + (int(found[1]) if found else 0)
        why = (str(error).rpartition(" (at ")[0] or str(error))[:200]
        _invalid(
            name, at, f"this is not valid TOML: {why}", "Between '# /// script' and '# ///' there is TOML, after '# '."
        )


def _read_dependencies(value: object, name: str, line: int) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        _invalid(name, line, "this begins a block whose dependencies are no list of texts", _as_example("requests>=2"))
    if len(value) > MOST_DEPENDENCIES:
        _invalid(name, line, f"this begins a block with more than {MOST_DEPENDENCIES} dependencies", "Name fewer.")
    return [_read_requirement(item.strip(), name, line) for item in value]


def _read_requirement(text: str, name: str, line: int) -> str:
    """Returns the requirement in its normal form, which is also passed to the installer."""
    shown = repr(text[:80])
    outside_marker = text.partition(";")[0]
    refused = None
    if text.startswith("-"):
        refused = "is an option for an installer"
    elif "@" in outside_marker or "://" in text:
        refused = "is an address"
    elif re.search(r"[/\\]", outside_marker) or text.startswith((".", "~")) or _ARCHIVE.search(outside_marker):
        refused = "is a path"
    if refused is not None:
        _refuse(name, line, f"{shown} {refused}")
    found = _REQUIREMENT.fullmatch(text) if len(text) <= 500 else None
    extras = [extra.strip() for extra in (found["extras"] or "").split(",")] if found else []
    if found is None or not all(re.fullmatch(_NAME, extra) for extra in extras if extra or len(extras) > 1):
        _invalid(name, line, f"the dependency {shown} is none", "Write it as in: requests>=2,<3")
    clauses = re.findall(_CLAUSE, found["inner"] or found["outer"] or "")
    short = canonical_name(found["name"])
    if any(extras):
        short += f"[{','.join(sorted(map(canonical_name, extras)))}]"
    clauses = sorted(re.sub(r"\s", "", clause) for clause in clauses)
    if any(_ARCHIVE.search(each) for each in (short, *clauses)):  # an installer would look for a file with that name
        _refuse(name, line, f"{shown} is a path")
    short += ",".join(clauses)
    marker = " ".join((found["marker"] or "").split())
    if marker and not is_marker(marker):
        _invalid(name, line, f"the condition of {shown} is none", "Write it as in: requests; python_version < '3.12'")
    return f"{short}; {marker}" if marker else short


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_requires(value: object, name: str, line: int) -> str:
    wanted = "Write it as in: # requires-python = '>=3.11'"
    if not isinstance(value, str):
        _invalid(name, line, "this begins a block whose requires-python is no text", wanted)
    try:
        _version_clauses(value)
    except ValueError as error:
        _invalid(name, line, f"this begins a block whose requires-python has {str(error)[:40]!r}", wanted)
    return ",".join(sorted(re.sub(r"\s", "", part) for part in value.split(",") if part.strip()))


def _read_tools(value: object, name: str, line: int) -> list[str]:
    """Returns the tool settings that have no effect here. A setting that chooses a source is refused: ignoring it would
    get the package of that name from somewhere else."""
    ignored = []
    for tool, settings in value.items() if isinstance(value, dict) else ():
        keys = list(settings) if isinstance(settings, dict) else []
        nested = settings.get("pip") if isinstance(settings, dict) else None
        chosen = sorted(_CHOOSES_SOURCE & {*keys, *(nested if isinstance(nested, dict) else ())})
        if chosen:
            _refuse(name, line, f"tool.{tool}.{chosen[0]} chooses where packages come from"[:120])
        ignored += [f"tool.{tool}.{key}" for key in keys] or [f"tool.{tool}"]
    return ignored


def _as_example(name: str) -> str:
    return "Write it as in:\n" + EXAMPLE.format(name=name)


def _invalid(name: str, line: int, what: str, hint: str) -> NoReturn:
    raise WorkspaceError(f"{_where(name, line)}: {what}.", op="plan", code="block-invalid", hint=hint)


def _where(name: str, line: int) -> str:
    return f"{name}, line {line}" if line else name


def _refuse(name: str, line: int, what: str) -> NoReturn:
    raise WorkspaceError(
        f"{_where(name, line)}: {what}, and only a package can be asked for.",
        op="plan",
        code="dependency-refused",
        hint="Name the package; it is installed as a wheel from the index that whoever runs Prowess has configured.",
    )
