"""Reference library of the specification in Python: the same functions, verdicts, messages and output.

    fields, body = parse_front_matter(text)      strict: no repair, unlike discovery
    find_skill_md("./skills/pdf")                path of its SKILL.md, or None
    read_properties("./skills/pdf").to_dict()
    to_prompt(["./skills/pdf"])                  XML of these skills; the list may be empty

There are two differences. A fence is a line with only `---`, as the specification says; the reference library takes any
`---` and cuts a value there. And keys with a special meaning in old YAML (`<<`, `=`) are ordinary keys.
"""

from __future__ import annotations

import html
import os
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from prowess._internal.files import NotRegular, read_regular
from prowess._internal.paths import is_inside
from prowess.core.findings import Note
from prowess.errors import SkillInvalid
from prowess.skills.metadata import SPECIFICATION
from prowess.skills.parse import MAX_BODY_BYTES, find_fence, parse_body, unify_lines
from prowess.skills.yaml_mapping import Unreadable, read_mapping

ALLOWED = sorted(SPECIFICATION)
Place = str | os.PathLike[str]
Value = str | list["Value"] | dict[str, "Value"]  # plain YAML: every scalar is a text


class Properties(NamedTuple):
    """Fields of the specification for one skill. Only name and description are validated."""

    name: str
    description: str
    license: Value | None = None
    compatibility: Value | None = None
    allowed_tools: Value | None = None
    metadata: Value | None = None

    def to_dict(self) -> dict[str, Value]:
        """Returns the fields that are set, under their names in a SKILL.md."""
        given: dict[str, Value] = {}
        for name, value in self._asdict().items():
            if value is None or (name == "metadata" and not value):
                continue
            given[name.replace("_", "-")] = value
        return given


def parse_front_matter(text: str | bytes) -> tuple[dict[str, Value], str]:
    """Returns the fields and the body of a SKILL.md. Raises SkillInvalid if the front matter is not plain YAML."""
    data = text
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    fields = read_fields_plainly(data)
    body, _, _ = parse_body(data)
    return fields, body.strip()


def find_skill_md(folder: Place) -> str | None:
    """Finds SKILL.md or skill.md directly inside a folder. Returns None when there is neither."""
    for name in ("SKILL.md", "skill.md"):
        path = os.path.join(os.fspath(folder), name)
        if os.path.lexists(path):
            return path
    return None


def read_properties(place: Place) -> Properties:
    """Reads the properties of a skill from its folder or its SKILL.md. Raises SkillInvalid."""
    folder = folder_of(place)
    path = find_skill_md(folder)
    if path is None:
        raise SkillInvalid(f"SKILL.md not found in {folder}", code="skill-not-found")
    return _properties_of(read_skill_md(path))


def to_prompt(places: Place | Iterable[Place]) -> str:
    """Renders the XML that shows these skills to a model. Raises SkillInvalid, which names the skill that cannot be
    shown."""
    if isinstance(places, str | os.PathLike):
        places = [places]
    lines = ["<available_skills>"]
    for place in places:
        folder = folder_of(place)
        try:
            properties = read_properties(place)
        except SkillInvalid as error:
            hint = None if folder in error.message else f"It is the skill in {folder}."
            raise SkillInvalid(error.message, code=error.code, hint=hint) from error
        location = find_skill_md(os.path.realpath(folder))
        lines += ["<skill>", "<name>", html.escape(properties.name), "</name>"]
        lines += ["<description>", html.escape(properties.description), "</description>"]
        lines += ["<location>", str(location), "</location>", "</skill>"]
    lines.append("</available_skills>")
    return "\n".join(lines)


def folder_of(place: Place) -> str:
    """Returns the skill's folder for a path to the folder or to its SKILL.md."""
    path = os.path.normpath(os.fspath(place))
    folder, name = os.path.split(path)
    if name.lower() == "skill.md" and os.path.isfile(path):
        return folder or "."
    return path


def read_skill_md(path: str) -> bytes:
    """Reads a SKILL.md: a regular file inside its folder. Raises SkillInvalid."""
    folder = os.path.realpath(os.path.dirname(path))
    if not is_inside(folder, os.path.realpath(path)):
        raise SkillInvalid(f"{path} leads outside the skill's folder", code="file-outside")
    try:
        return read_regular(path, MAX_BODY_BYTES, follow=True)
    except NotRegular as error:
        raise SkillInvalid(f"{path} cannot be read: {error}", code="not-regular") from None
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise SkillInvalid(f"{path} cannot be read: {reason}", code="unreadable") from None


def folder_errors(place: Place) -> list[tuple[str, str]]:
    """Returns (finding code, the reference library's message) for each reason to refuse a folder. An empty list means
    valid."""
    folder = folder_of(place)
    if not os.path.exists(folder):
        return [("root-missing", f"Path does not exist: {folder}")]
    if not os.path.isdir(folder):
        return [("root-not-folder", f"Not a directory: {folder}")]
    path = find_skill_md(folder)
    if path is None:
        return [("no-skill-here", "Missing required file: SKILL.md")]
    try:
        return reference_errors(read_skill_md(path), os.path.basename(os.path.abspath(folder)))
    except SkillInvalid as error:
        return [(error.code, error.message)]


def reference_errors(data: bytes, folder: str) -> list[tuple[str, str]]:
    """Returns (finding code, the reference library's message) for each reason to refuse a SKILL.md. An empty list means
    valid."""
    try:
        fields = read_fields_plainly(data)
    except SkillInvalid as error:
        return [(error.code, error.message)]
    errors = []
    extra = sorted(set(fields) - set(SPECIFICATION))
    if extra:
        message = f"Unexpected fields in frontmatter: {', '.join(extra)}. Only {ALLOWED} are allowed."
        errors.append(("field-unknown", message))
    if "name" not in fields:
        errors.append(("name-missing", "Missing required field in frontmatter: name"))
    else:
        errors += _name_errors(fields["name"], folder)
    if "description" not in fields:
        errors.append(("description-missing", "Missing required field in frontmatter: description"))
    else:
        errors += _description_errors(fields["description"])
    if "compatibility" in fields:
        errors += _compatibility_errors(fields["compatibility"])
    return errors


def _properties_of(data: bytes) -> Properties:
    fields = read_fields_plainly(data)
    for required in ("name", "description"):
        if required not in fields:
            raise SkillInvalid(f"Missing required field in frontmatter: {required}", code=f"{required}-missing")
    return Properties(
        _text_of("name", fields["name"]),
        _text_of("description", fields["description"]),
        *map(fields.get, ("license", "compatibility", "allowed-tools", "metadata")),
    )


def _text_of(field: str, value: Value) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SkillInvalid(f"Field '{field}' must be a non-empty string", code=f"{field}-missing")
    return value.strip()


def read_fields_plainly(data: bytes) -> dict[str, Value]:
    """Reads front matter as plain YAML only: no flow style, anchors, tags, duplicate keys or repair."""
    fence = find_fence(data)
    is_closed = not isinstance(fence, Note)
    if data.startswith(b"\xef\xbb\xbf") or (not is_closed and fence.code == "no-front-matter"):
        raise SkillInvalid("SKILL.md must start with YAML frontmatter (---)", code="no-front-matter")
    if not is_closed:
        raise SkillInvalid("SKILL.md frontmatter not properly closed with ---", code="front-matter-unclosed")
    head = data[3 : fence.end]  # from the opening fence: a tab after it is refused
    try:
        text = unify_lines(head.decode("utf-8"))
        fields, _, _ = read_mapping(text, plain=True)
    except UnicodeDecodeError as error:
        raise SkillInvalid(f"Invalid YAML in frontmatter: not UTF-8 ({error.reason})", code="head-not-utf8") from None
    except Unreadable as failure:
        if failure.code == "yaml-not-mapping":
            raise SkillInvalid("SKILL.md frontmatter must be a YAML mapping", code=failure.code) from None
        raise SkillInvalid(f"Invalid YAML in frontmatter: {failure.reason}", code="yaml-invalid") from None
    if not fields:
        raise SkillInvalid("SKILL.md frontmatter must be a YAML mapping", code="yaml-not-mapping")
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        fields["metadata"] = {str(key): str(value) for key, value in metadata.items()}
    return fields


def _name_errors(name: Value, folder: str) -> list[tuple[str, str]]:
    if not isinstance(name, str) or not name.strip():
        return [("name-missing", "Field 'name' must be a non-empty string")]
    name = unicodedata.normalize("NFKC", name.strip())
    errors = []
    if len(name) > 64:
        errors.append(("name-too-long", f"Skill name '{name}' exceeds 64 character limit ({len(name)} chars)"))
    if name != name.lower():
        errors.append(("name-invalid", f"Skill name '{name}' must be lowercase"))
    if name.startswith("-") or name.endswith("-"):
        errors.append(("name-invalid", "Skill name cannot start or end with a hyphen"))
    if "--" in name:
        errors.append(("name-invalid", "Skill name cannot contain consecutive hyphens"))
    if not all(c.isalnum() or c == "-" for c in name):
        message = f"Skill name '{name}' contains invalid characters. Only letters, digits, and hyphens are allowed."
        errors.append(("name-invalid", message))
    if unicodedata.normalize("NFKC", folder) != name:
        errors.append(("name-mismatch", f"Directory name '{folder}' must match skill name '{name}'"))
    return errors


def _description_errors(description: Value) -> list[tuple[str, str]]:
    if not isinstance(description, str) or not description.strip():
        return [("description-missing", "Field 'description' must be a non-empty string")]
    if len(description) > 1024:
        length = len(description)
        return [("description-too-long", f"Description exceeds 1024 character limit ({length} chars)")]
    return []


def _compatibility_errors(compatibility: Value) -> list[tuple[str, str]]:
    if not isinstance(compatibility, str):
        return [("compatibility-invalid", "Field 'compatibility' must be a string")]
    if len(compatibility) > 500:
        length = len(compatibility)
        return [("compatibility-invalid", f"Compatibility exceeds 500 character limit ({length} chars)")]
    return []
