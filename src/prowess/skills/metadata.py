"""Reads the fields of the front matter into a SkillHead, with a note for every problem.

`read_fields(front_matter, folder)` is pure. Restrictions fail closed: a tool list or a switch that cannot be understood
gets the stricter reading.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from prowess._internal.text import find_invisible, strip_invisible
from prowess.core.findings import Note
from prowess.skills.front_matter import FrontMatter
from prowess.skills.head import Controls, SkillHead

SPECIFICATION = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
EXTENSIONS = (
    "version",
    "author",
    "disable-model-invocation",
    "user-invocable",
    "run-mode",
    "context",
    "argument-hint",
    "paths",
    "requires",
    "keywords",
    "tags",
)
MISSPELLED = {"user-invokable": "user-invocable", "allowedtools": "allowed-tools"}
REQUIREMENTS = ("bins", "env", "python", "platforms", "skills")

_CONTROLLING = frozenset(
    [
        "disable-model-invocation",
        "user-invocable",
        "allowed-tools",
        "run-mode",
        "context",
        "argument-hint",
        "paths",
        "requires",
    ]
)
_RESTRICTING = frozenset(("allowed-tools", "disable-model-invocation"))
_KNOWN = frozenset((*SPECIFICATION, *EXTENSIONS))
_PLAIN_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOOL = re.compile(r"""[^()\[\]{}"'`]+(?:\(.*\))?""", re.DOTALL)
_NOTHING = ("", "~", "null", "Null", "NULL")  # all of them mean "no value" in YAML
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def read_fields(front: FrontMatter, folder: str) -> SkillHead:
    notes = list(front.notes)
    fields, lines = _without_misspellings(front, notes)
    name = _read_name(fields, lines, folder, notes)
    description = _read_description(fields, lines, notes)
    if fields.keys() <= _IDENTITY:
        return SkillHead(name, description, None, (), _NOTHING_DECLARED, tuple(notes))

    if not fields.keys() <= _KNOWN:
        fields = _with_unreadable_restrictions(fields)
    metadata = _read_metadata(fields, lines, notes)
    version = _text(fields.get("version")) or _text(metadata.get("version"))
    if "compatibility" in fields:
        _check_compatibility(fields["compatibility"], lines, notes)
    keywords = _words(fields.get("keywords") or metadata.get("keywords"))
    keywords += _words(fields.get("tags") or metadata.get("tags"))
    controls = _read_controls(front, fields, lines, metadata, notes)
    if not fields.keys() <= _KNOWN:
        unknown = sorted(fields.keys() - _KNOWN)
        notes.append(Note("field-unknown", min(lines.get(key, 1) for key in unknown), {"fields": unknown[:20]}))
    return SkillHead(name, description, version, tuple(keywords), controls, tuple(notes))


_NOTHING_DECLARED = Controls()  # one object for the many skills that declare nothing
_IDENTITY = frozenset(("name", "description"))


def _without_misspellings(front: FrontMatter, notes: list[Note]) -> tuple[dict[str, Any], dict[str, int]]:
    """Renames misspelt fields (`Allowed_Tools`, `user-invokable`) to the known ones, with a note. A restriction must
    not depend on a hyphen."""
    fields, lines = front.fields, front.lines
    if fields.keys() <= _KNOWN:
        return fields, lines
    fields, lines = dict(fields), dict(lines)
    for wrong in list(fields):
        plain = wrong.strip().lower().replace("_", "-")
        meant = MISSPELLED.get(plain, plain)
        if wrong not in _KNOWN and meant in _KNOWN:
            notes.append(Note("field-misspelled", lines.get(wrong), {"field": wrong, "meant": meant}))
            value = fields.pop(wrong)
            fields.setdefault(meant, value)
            lines.setdefault(meant, lines.get(wrong, 1))
    return fields, lines


def _with_unreadable_restrictions(fields: dict[str, Any]) -> dict[str, Any]:
    """Adds restrictions that YAML hid inside another key, as declared and not understood. Example:
    `allowed-tools:Bash(git: *)` has no blank after its first colon, so YAML reads a key of another name."""
    glued = {key.partition(":")[0].strip() for key in fields if ":" in key} & _RESTRICTING
    return {**fields, **{key: {} for key in glued}} if glued else fields


# --- name and description -------------------------------------------------------------------------------------------


def _read_name(fields: dict[str, Any], lines: dict[str, int], folder: str, notes: list[Note]) -> str | None:
    raw = fields.get("name")
    line = lines.get("name")
    if not isinstance(raw, str) or raw.strip() in _NOTHING:
        notes.append(Note("name-missing", line, {"folder": folder}))
        return None
    name = raw.strip()
    if not _PLAIN_NAME.fullmatch(name) or len(name) > 64:
        name = strip_invisible(unicodedata.normalize("NFKC", _without_invisible(name, "name", line, notes))).strip()
        if not name:
            notes.append(Note("name-missing", line, {"folder": folder}))
            return None
        notes += name_notes(name, line)
    if name != folder and name != unicodedata.normalize("NFKC", folder):
        notes.append(
            Note("name-mismatch", line, {"name": name[:80], "folder": folder, "remedy": _one_name(name, folder)})
        )
    return name


def _one_name(name: str, folder: str) -> str:
    """Suggests one name for folder and skill. Suggests only valid names."""
    good = [c for c in (name, folder) if all(note.code == "name-not-portable" for note in name_notes(c))]
    if not good:
        return "Give both one name of lower-case letters, digits and single hyphens."
    choices = {name: f"rename the folder to '{name[:80]}'", folder: f"write name: {folder}"}
    advice = ", or ".join(choices[candidate] for candidate in good)
    return advice[0].upper() + advice[1:] + "."


def name_notes(name: str, line: int | None = None) -> list[Note]:
    """Returns a note for each rule of the specification that a name breaks. The name must be stripped and
    NFKC-normalised."""
    notes = []
    if len(name) > 64:
        notes.append(Note("name-too-long", line, {"length": len(name)}))
    problem = None
    if name != name.lower():
        problem = "is not in lower case"
    elif name.startswith("-") or name.endswith("-"):
        problem = "begins or ends with a hyphen"
    elif "--" in name:
        problem = "has two hyphens in a row"
    elif not name.replace("-", "").isalnum():
        problem = "has characters other than letters, digits and hyphens"
    if problem:
        notes.append(Note("name-invalid", line, {"name": name[:80], "problem": problem}))
    elif not name.isascii():
        notes.append(Note("name-not-portable", line, {"name": name[:80]}))
    if "<" in name or ">" in name:
        notes.append(Note("angle-brackets", line, {"field": "name"}))
    return notes


def _read_description(fields: dict[str, Any], lines: dict[str, int], notes: list[Note]) -> str | None:
    raw = fields.get("description")
    line = lines.get("description")
    if isinstance(raw, list) and raw and all(isinstance(item, str) for item in raw):
        notes.append(_invalid("description", line, "is a list; its items are joined", "Write one text."))
        raw = ", ".join(raw)
    if not isinstance(raw, str) or raw.strip() in _NOTHING:
        notes.append(Note("description-missing", line))
        return None
    description = raw.strip()
    if not (description.isascii() and description.isprintable()):
        description = _without_invisible(description, "description", line, notes).strip()
        if not description:
            notes.append(Note("description-missing", line))
            return None
    if len(description) > 1024:
        notes.append(Note("description-too-long", line, {"length": len(description)}))
    if "<" in description or ">" in description:
        notes.append(Note("angle-brackets", line, {"field": "description"}))
    return description


def _without_invisible(text: str, where: str, line: int | None, notes: list[Note]) -> str:
    found = find_invisible(text)
    if not found:
        return text
    characters = sorted({what for _, what in found})[:5]
    notes.append(Note("invisible-characters", line, {"where": where, "characters": characters}))
    return strip_invisible(text)


# --- the other fields -----------------------------------------------------------------------------------------------


def _check_compatibility(value: Any, lines: dict[str, int], notes: list[Note]) -> None:
    problem = None
    if not isinstance(value, str):
        problem = "is not a text"
    elif not 1 <= len(value) <= 500:
        problem = f"has {len(value)} characters; 1 to 500 are allowed"
    if problem:
        notes.append(Note("compatibility-invalid", lines.get("compatibility"), {"problem": problem}))


def _read_metadata(fields: dict[str, Any], lines: dict[str, int], notes: list[Note]) -> dict[str, Any]:
    if "metadata" not in fields:
        return {}
    value = fields["metadata"]
    if not isinstance(value, dict):
        notes.append(Note("metadata-invalid", lines.get("metadata")))
        return {}
    if not all(isinstance(item, str) for item in value.values()):
        notes.append(Note("metadata-not-text", lines.get("metadata")))
    return value


def _read_controls(
    front: FrontMatter, fields: dict[str, Any], lines: dict[str, int], metadata: dict[str, Any], notes: list[Note]
) -> Controls:
    if fields.keys().isdisjoint(_CONTROLLING) and not ({"role", "requires"} & metadata.keys()):
        return _NOTHING_DECLARED
    manual = _switch("disable-model-invocation", front, fields, lines, notes, default=False, when_unclear=True)
    role = _text(metadata.get("role"))
    if role not in (None, "coordinator"):
        notes.append(
            _invalid("metadata.role", lines.get("metadata"), f"is '{role[:40]}'", "Use coordinator, or nothing.")
        )
        role = None
    return Controls(
        mode="manual" if manual else "auto",
        allowed_tools=_read_allowed_tools(front, fields, lines, notes),
        run_mode=_read_run_mode(fields, lines, notes),
        role=role,
        user_invocable=_switch("user-invocable", front, fields, lines, notes, default=True, when_unclear=True),
        argument_hint=_text(fields.get("argument-hint")),
        paths=tuple(_words(fields.get("paths"))),
        requires=_read_requires(fields, metadata, lines, notes),
    )


def _read_allowed_tools(
    front: FrontMatter, fields: dict[str, Any], lines: dict[str, int], notes: list[Note]
) -> tuple[str, ...] | None:
    if "allowed-tools" not in fields:
        return None
    value, line = fields["allowed-tools"], lines.get("allowed-tools")
    tools: tuple[str, ...] = ()
    problem = None
    if _occurs_twice("allowed-tools", front):
        problem = "occurs twice"
    elif isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(item, str) for item in value)):
        problem = "is neither a text nor a list of texts"
    else:
        items = split_tools(value) if isinstance(value, str) else [item.strip() for item in value]
        tools = tuple(item for item in items if item)
        if not all(map(_TOOL.fullmatch, tools)):
            problem = "has unpaired brackets or quotes"
    if problem:
        notes.append(Note("allowed-tools-invalid", line, {"problem": problem}))
        return ()
    if not tools and front.how != "salvaged":
        notes.append(Note("allowed-tools-empty", line))
    return tools


def _occurs_twice(field: str, front: FrontMatter) -> bool:
    return any(note.code == "duplicate-key" and note.details["key"] == field for note in front.notes)


def split_tools(text: str) -> list[str]:
    """Splits a tool list at spaces and commas outside parentheses. `Bash(git add:*), Read Grep` gives three
    patterns."""
    tools, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(0, depth - 1)
        elif character in ", \t\n" and not depth:
            tools.append(text[start:at])
            start = at + 1
    tools.append(text[start:])
    return [tool for tool in (part.strip() for part in tools) if tool]


def _read_run_mode(fields: dict[str, Any], lines: dict[str, int], notes: list[Note]) -> str:
    if fields.get("context") == "fork" and "run-mode" not in fields:
        return "subagent"
    value = fields.get("run-mode", "inline")
    if value not in ("inline", "subagent"):
        problem = f"is '{str(value)[:40]}'; inline is used"
        notes.append(_invalid("run-mode", lines.get("run-mode"), problem, "Use inline or subagent."))
        return "inline"
    return value


def _read_requires(
    fields: dict[str, Any], metadata: dict[str, Any], lines: dict[str, int], notes: list[Note]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    value = fields.get("requires", metadata.get("requires"))
    if value is None or value == "":
        return ()
    line = lines.get("requires", lines.get("metadata"))
    wanted = f"Use a map with {', '.join(REQUIREMENTS)}."
    if not isinstance(value, dict):
        notes.append(_invalid("requires", line, "is not a map and is only kept", wanted))
        return ()
    unknown = sorted(set(value) - set(REQUIREMENTS))
    if unknown:
        notes.append(_invalid("requires", line, f"has unknown kinds: {', '.join(unknown)[:80]}", wanted))
    return tuple((kind, tuple(_words(value[kind]))) for kind in REQUIREMENTS if kind in value)


def _switch(
    field: str,
    front: FrontMatter,
    fields: dict[str, Any],
    lines: dict[str, int],
    notes: list[Note],
    *,
    default: bool,
    when_unclear: bool,
) -> bool:
    if field not in fields:
        return default
    word = str(fields[field]).strip().lower()
    twice = _occurs_twice(field, front)
    if not twice and (word in _TRUE or word in _FALSE):
        return word in _TRUE
    what = "occurs twice" if twice else f"is '{word[:40]}'"
    problem = f"{what}; {'true' if when_unclear else 'false'} is used"
    notes.append(_invalid(field, lines.get(field), problem, "Use true or false."))
    return when_unclear


def _invalid(field: str, line: int | None, problem: str, remedy: str) -> Note:
    return Note("field-invalid", line, {"field": field, "problem": problem, "remedy": remedy})


def _text(value: Any) -> str | None:
    return strip_invisible(value).strip() or None if isinstance(value, str) else None


def _words(value: Any) -> list[str]:
    """Returns the words of a list of texts, or of one text separated by commas or spaces."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+", value)
    if not isinstance(value, list):
        return []
    return [word for word in (item.strip() for item in value if isinstance(item, str)) if word]
