"""Reads the fields of the front matter into a SkillHead, with a note for every problem.

`read_fields(front_matter, folder)` is pure. Restrictions fail closed: a tool list or a switch that cannot be understood
gets the stricter reading.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
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
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def read_fields(front: FrontMatter, folder: str) -> SkillHead:
    reader = _FieldReader(front)
    name = reader.read_name(folder)
    description = reader.read_description()
    if reader.fields.keys() <= _IDENTITY:
        return SkillHead(name, description, None, (), _NOTHING_DECLARED, tuple(reader.notes))

    unknown = sorted(reader.fields.keys() - _KNOWN)
    if unknown:
        reader.add_unreadable_restrictions()
    metadata = reader.read_metadata()
    fields = reader.fields
    version = _text(fields.get("version")) or _text(metadata.get("version"))
    if "compatibility" in fields:
        reader.check_compatibility()
    keywords = _words(fields.get("keywords") or metadata.get("keywords"))
    keywords += _words(fields.get("tags") or metadata.get("tags"))
    controls = reader.read_controls(metadata)
    if unknown:
        reader.note_unknown(unknown)
    return SkillHead(name, description, version, tuple(keywords), controls, tuple(reader.notes))


_NOTHING_DECLARED = Controls()  # one object for the many skills that declare nothing
_IDENTITY = frozenset(("name", "description"))


class _FieldReader:
    """Fields of one front matter, with the lines they stand on and the notes about them."""

    def __init__(self, front: FrontMatter) -> None:
        self.front = front
        self.fields = front.fields
        self.lines = front.lines
        self.notes = list(front.notes)
        if not self.fields.keys() <= _KNOWN:
            self._rename_misspelt()

    def _rename_misspelt(self) -> None:
        """Renames misspelt fields (`Allowed_Tools`, `user-invokable`) to the known ones, with a note. A restriction
        must not depend on a hyphen."""
        self.fields = dict(self.fields)
        self.lines = dict(self.lines)
        for wrong in list(self.fields):
            plain = wrong.strip().lower().replace("_", "-")
            meant = MISSPELLED.get(plain, plain)
            if wrong not in _KNOWN and meant in _KNOWN:
                self._note("field-misspelled", wrong, {"field": wrong, "meant": meant})
                value = self.fields.pop(wrong)
                self.fields.setdefault(meant, value)
                line = self.lines.get(wrong, 1)
                self.lines.setdefault(meant, line)

    def add_unreadable_restrictions(self) -> None:
        """Adds restrictions that YAML hid inside another key, as declared and not understood. Example:
        `allowed-tools:Bash(git: *)` has no blank after its first colon, so YAML reads a key of another name."""
        for key in list(self.fields):
            start, colon, _ = key.partition(":")
            field = start.strip()
            if colon and field in _RESTRICTING:
                self.fields[field] = {}

    def note_unknown(self, unknown: list[str]) -> None:
        line = min(self.lines.get(key, 1) for key in unknown)
        self.notes.append(Note("field-unknown", line, {"fields": unknown[:20]}))

    def _note(self, code: str, field: str, details: dict[str, Any] | None = None) -> None:
        line = self.lines.get(field)
        self.notes.append(Note(code, line, details or {}))

    def _invalid(self, field: str, problem: str, remedy: str, *, line_of: str | None = None) -> None:
        details = {"field": field, "problem": problem, "remedy": remedy}
        self._note("field-invalid", line_of or field, details)

    # --- name and description ------------------------------------------------------------------------------------

    def read_name(self, folder: str) -> str | None:
        raw = self.fields.get("name")
        if not isinstance(raw, str) or raw.strip() in _NOTHING:
            self._note("name-missing", "name", {"folder": folder})
            return None
        name = raw.strip()
        if not _PLAIN_NAME.fullmatch(name) or len(name) > 64:
            shown = self._without_invisible(name, "name")
            normal = unicodedata.normalize("NFKC", shown)
            name = strip_invisible(normal).strip()
            if not name:
                self._note("name-missing", "name", {"folder": folder})
                return None
            self.notes += name_notes(name, self.lines.get("name"))
        if name != folder and name != unicodedata.normalize("NFKC", folder):
            remedy = _one_name(name, folder)
            self._note("name-mismatch", "name", {"name": name[:80], "folder": folder, "remedy": remedy})
        return name

    def read_description(self) -> str | None:
        raw = self.fields.get("description")
        if isinstance(raw, list) and raw and _are_texts(raw):
            self._invalid("description", "is a list; its items are joined", "Write one text.")
            raw = ", ".join(raw)
        if not isinstance(raw, str) or raw.strip() in _NOTHING:
            self._note("description-missing", "description")
            return None
        description = raw.strip()
        if not (description.isascii() and description.isprintable()):
            description = self._without_invisible(description, "description").strip()
            if not description:
                self._note("description-missing", "description")
                return None
        if len(description) > 1024:
            self._note("description-too-long", "description", {"length": len(description)})
        if "<" in description or ">" in description:
            self._note("angle-brackets", "description", {"field": "description"})
        return description

    def _without_invisible(self, text: str, field: str) -> str:
        found = find_invisible(text)
        if not found:
            return text
        characters = sorted({what for _, what in found})
        self._note("invisible-characters", field, {"where": field, "characters": characters[:5]})
        return strip_invisible(text)

    # --- the other fields ----------------------------------------------------------------------------------------

    def check_compatibility(self) -> None:
        value = self.fields["compatibility"]
        if not isinstance(value, str):
            problem = "is not a text"
        elif not 1 <= len(value) <= 500:
            problem = f"has {len(value)} characters; 1 to 500 are allowed"
        else:
            return
        self._note("compatibility-invalid", "compatibility", {"problem": problem})

    def read_metadata(self) -> dict[str, Any]:
        if "metadata" not in self.fields:
            return {}
        value = self.fields["metadata"]
        if not isinstance(value, dict):
            self._note("metadata-invalid", "metadata")
            return {}
        if not _are_texts(value.values()):
            self._note("metadata-not-text", "metadata")
        return value

    def read_controls(self, metadata: dict[str, Any]) -> Controls:
        is_controlling = not self.fields.keys().isdisjoint(_CONTROLLING)
        if not is_controlling and "role" not in metadata and "requires" not in metadata:
            return _NOTHING_DECLARED
        manual = self._switch("disable-model-invocation", default=False)
        role = _text(metadata.get("role"))
        if role not in (None, "coordinator"):
            problem = f"is '{role[:40]}'"
            self._invalid("metadata.role", problem, "Use coordinator, or nothing.", line_of="metadata")
            role = None
        return Controls(
            mode="manual" if manual else "auto",
            allowed_tools=self._read_allowed_tools(),
            run_mode=self._read_run_mode(),
            role=role,
            user_invocable=self._switch("user-invocable", default=True),
            argument_hint=_text(self.fields.get("argument-hint")),
            paths=tuple(_words(self.fields.get("paths"))),
            requires=self._read_requires(metadata),
        )

    def _read_allowed_tools(self) -> tuple[str, ...] | None:
        if "allowed-tools" not in self.fields:
            return None
        tools: list[str] = []
        problem = None
        value = self.fields["allowed-tools"]
        if self._occurs_twice("allowed-tools"):
            problem = "occurs twice"
        elif isinstance(value, str):
            tools = split_tools(value)
        elif isinstance(value, list) and _are_texts(value):
            tools = _stripped(value)
        else:
            problem = "is neither a text nor a list of texts"
        if not all(map(_TOOL.fullmatch, tools)):
            problem = "has unpaired brackets or quotes"
        if problem:
            self._note("allowed-tools-invalid", "allowed-tools", {"problem": problem})
            return ()
        if not tools and self.front.how != "salvaged":
            self._note("allowed-tools-empty", "allowed-tools")
        return tuple(tools)

    def _occurs_twice(self, field: str) -> bool:
        doubled = [note.details["key"] for note in self.front.notes if note.code == "duplicate-key"]
        return field in doubled

    def _read_run_mode(self) -> str:
        if self.fields.get("context") == "fork" and "run-mode" not in self.fields:
            return "subagent"
        value = self.fields.get("run-mode", "inline")
        if value not in ("inline", "subagent"):
            problem = f"is '{str(value)[:40]}'; inline is used"
            self._invalid("run-mode", problem, "Use inline or subagent.")
            return "inline"
        return value

    def _read_requires(self, metadata: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        value = self.fields.get("requires", metadata.get("requires"))
        if value is None or value == "":
            return ()
        line_of = "requires" if "requires" in self.lines else "metadata"
        wanted = f"Use a map with {', '.join(REQUIREMENTS)}."
        if not isinstance(value, dict):
            self._invalid("requires", "is not a map and is only kept", wanted, line_of=line_of)
            return ()
        unknown = sorted(set(value) - set(REQUIREMENTS))
        if unknown:
            problem = f"has unknown kinds: {', '.join(unknown)[:80]}"
            self._invalid("requires", problem, wanted, line_of=line_of)
        requires: list[tuple[str, tuple[str, ...]]] = []
        for kind in REQUIREMENTS:
            if kind in value:
                words = _words(value[kind])
                requires.append((kind, tuple(words)))
        return tuple(requires)

    def _switch(self, field: str, *, default: bool) -> bool:
        """Reads true or false. A value that is neither counts as true."""
        if field not in self.fields:
            return default
        word = str(self.fields[field]).strip().lower()
        if self._occurs_twice(field):
            what = "occurs twice"
        elif word in _TRUE:
            return True
        elif word in _FALSE:
            return False
        else:
            what = f"is '{word[:40]}'"
        self._invalid(field, f"{what}; true is used", "Use true or false.")
        return True


def _one_name(name: str, folder: str) -> str:
    """Suggests one name for folder and skill. Suggests only valid names."""
    choices: list[str] = []
    if _is_valid_name(name):
        choices.append(f"rename the folder to '{name[:80]}'")
    if _is_valid_name(folder):
        choices.append(f"write name: {folder}")
    if not choices:
        return "Give both one name of lower-case letters, digits and single hyphens."
    advice = ", or ".join(choices)
    return advice[0].upper() + advice[1:] + "."


def _is_valid_name(name: str) -> bool:
    """True for a name that the specification allows, portable or not."""
    return all(note.code == "name-not-portable" for note in name_notes(name))


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


def split_tools(text: str) -> list[str]:
    """Splits a tool list at spaces and commas outside parentheses. `Bash(git add:*), Read Grep` gives three
    patterns."""
    tools: list[str] = []
    depth = 0
    start = 0
    for at, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(0, depth - 1)
        elif character in ", \t\n" and not depth:
            tools.append(text[start:at])
            start = at + 1
    tools.append(text[start:])
    return _stripped(tools)


def _are_texts(items: Iterable[Any]) -> bool:
    return all(isinstance(item, str) for item in items)


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return strip_invisible(value).strip() or None


def _words(value: Any) -> list[str]:
    """Returns the words of a list of texts, or of one text separated by commas or spaces."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+", value)
    if not isinstance(value, list):
        return []
    return _stripped(item for item in value if isinstance(item, str))


def _stripped(texts: Iterable[str]) -> list[str]:
    """Returns the texts without blanks around them, and without those that are blank."""
    found: list[str] = []
    for text in texts:
        word = text.strip()
        if word:
            found.append(word)
    return found
