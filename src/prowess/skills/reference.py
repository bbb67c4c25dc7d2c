"""What the specification's reference library says of a SKILL.md: the same verdict, the same words, the same output.

One difference is meant: a fence is a line with only `---`, as the specification has it. For the reference library any
`---` is one, so it cuts a value there. And keys that YAML once gave a meaning of their own (`<<`, `=`) are just keys.
"""

from __future__ import annotations

import html
import unicodedata
from typing import Any

from prowess.errors import SkillInvalid
from prowess.skills.fields import SPECIFICATION
from prowess.skills.findings import Note
from prowess.skills.front_matter import Unreadable, read_mapping
from prowess.skills.parse import find_fence, unify_lines

ALLOWED = sorted(SPECIFICATION)


def reference_errors(data: bytes, folder: str) -> list[tuple[str, str]]:
    """(finding code, the reference library's message) for each reason to refuse; none means valid."""
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


def reference_properties(data: bytes) -> dict[str, Any]:
    """The reference library's `read-properties`: no validation beyond the two fields that must be there."""
    fields = read_fields_plainly(data)
    for required in ("name", "description"):
        if required not in fields:
            raise SkillInvalid(f"Missing required field in frontmatter: {required}", code=f"{required}-missing")
    for required in ("name", "description"):
        if not isinstance(fields[required], str) or not fields[required].strip():
            raise SkillInvalid(f"Field '{required}' must be a non-empty string", code=f"{required}-missing")
    out: dict[str, Any] = {"name": fields["name"].strip(), "description": fields["description"].strip()}
    for field in ("license", "compatibility", "allowed-tools"):
        if fields.get(field) is not None:
            out[field] = fields[field]
    metadata = fields.get("metadata")
    if metadata:
        out["metadata"] = metadata
    return out


def reference_prompt(skills: list[tuple[str, dict[str, Any]]]) -> str:
    """The reference library's `to-prompt`, for (location of SKILL.md, properties)."""
    lines = ["<available_skills>"]
    for location, properties in skills:
        lines += ["<skill>", "<name>", html.escape(properties["name"]), "</name>"]
        lines += ["<description>", html.escape(properties["description"]), "</description>"]
        lines += ["<location>", location, "</location>", "</skill>"]
    return "\n".join([*lines, "</available_skills>"])


def read_fields_plainly(data: bytes) -> dict[str, Any]:
    """The front matter as plain YAML only: no flow style, anchors, tags, duplicate keys, and no repair."""
    fence = find_fence(data)
    if data.startswith(b"\xef\xbb\xbf") or (isinstance(fence, Note) and fence.code == "no-front-matter"):
        raise SkillInvalid("SKILL.md must start with YAML frontmatter (---)", code="no-front-matter")
    if isinstance(fence, Note):
        raise SkillInvalid("SKILL.md frontmatter not properly closed with ---", code="front-matter-unclosed")
    try:
        text = unify_lines(data[3 : fence.end].decode("utf-8"))  # with what follows the opening fence: a tab is refused
        fields, _, _ = read_mapping(text, plain=True)
    except UnicodeDecodeError as error:
        raise SkillInvalid(f"Invalid YAML in frontmatter: not UTF-8 ({error.reason})", code="head-not-utf8") from None
    except Unreadable as failure:
        if failure.code == "yaml-not-mapping":
            raise SkillInvalid("SKILL.md frontmatter must be a YAML mapping", code=failure.code) from None
        raise SkillInvalid(f"Invalid YAML in frontmatter: {failure.reason}", code="yaml-invalid") from None
    if not fields:
        raise SkillInvalid("SKILL.md frontmatter must be a YAML mapping", code="yaml-not-mapping")
    if isinstance(fields.get("metadata"), dict):
        fields["metadata"] = {str(key): str(value) for key, value in fields["metadata"].items()}
    return fields


def _name_errors(name: Any, folder: str) -> list[tuple[str, str]]:
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


def _description_errors(description: Any) -> list[tuple[str, str]]:
    if not isinstance(description, str) or not description.strip():
        return [("description-missing", "Field 'description' must be a non-empty string")]
    if len(description) > 1024:
        length = len(description)
        return [("description-too-long", f"Description exceeds 1024 character limit ({length} chars)")]
    return []


def _compatibility_errors(compatibility: Any) -> list[tuple[str, str]]:
    if not isinstance(compatibility, str):
        return [("compatibility-invalid", "Field 'compatibility' must be a string")]
    if len(compatibility) > 500:
        length = len(compatibility)
        return [("compatibility-invalid", f"Compatibility exceeds 500 character limit ({length} chars)")]
    return []
