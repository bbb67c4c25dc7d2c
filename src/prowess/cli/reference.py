"""prowess read-properties and prowess to-prompt: the reference library's output and exit codes, for scripts that know
it.
"""

from __future__ import annotations

import json
import os
from typing import Any

import click

from prowess._files import NotRegular, read_regular
from prowess._paths import is_inside
from prowess.cli.app import Call, verb
from prowess.errors import ConfigError, ProwessError, SkillInvalid
from prowess.skills.parse import MAX_BODY_BYTES
from prowess.skills.reference import reference_prompt, reference_properties


@verb("read-properties", example="prowess read-properties ./my-skill")
@click.argument("path")
def read_properties(call: Call, path: str) -> int:
    """Print a skill's properties as the reference library does.

    PATH is the skill's folder or its SKILL.md.
    """
    try:
        _, properties = _read(os.path.join(call.cwd, path))
    except SkillInvalid as error:
        return _failed(call, error)
    call.screen.text(json.dumps(properties, indent=2))
    return 0


@verb("to-prompt", example="prowess to-prompt ./skills/pdf ./skills/csv-report")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
def to_prompt(call: Call, paths: tuple[str, ...]) -> int:
    """Print the XML of some skills as the reference library does."""
    try:
        skills = [_read(os.path.join(call.cwd, path)) for path in paths]
    except SkillInvalid as error:
        return _failed(call, error)
    call.screen.text(reference_prompt(skills))
    return 0


COMMANDS = {"read-properties": read_properties, "to-prompt": to_prompt}


def _read(path: str) -> tuple[str, dict[str, Any]]:
    if not os.path.exists(path):
        raise ConfigError(f"Path '{path}' does not exist.", code="no-path", hint="Check the path.")
    if os.path.isfile(path) and os.path.basename(path).lower() == "skill.md":
        path = os.path.dirname(path)
    folder = os.path.realpath(path)
    for name in ("SKILL.md", "skill.md"):
        location = os.path.join(folder, name)
        if not os.path.lexists(location):
            continue
        if not is_inside(folder, os.path.realpath(location)):
            raise SkillInvalid(f"{location} leads outside the skill's folder", code="file-outside")
        try:
            return location, reference_properties(read_regular(location, MAX_BODY_BYTES, follow=True))
        except OSError as error:
            reason = str(error) if isinstance(error, NotRegular) else (error.strerror or "error").lower()
            raise SkillInvalid(f"{location} cannot be read: {reason}", code="unreadable") from None
    raise SkillInvalid(f"SKILL.md not found in {path}", code="skill-not-found")


def _failed(call: Call, error: ProwessError) -> int:
    if call.screen.is_json:
        call.screen.error(error)
    else:
        call.screen.note(f"Error: {error.message}")
    return 1
