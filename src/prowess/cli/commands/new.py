"""Command `prowess new`: writes a skill from a template."""

from __future__ import annotations

import os
import unicodedata

import click

from prowess._internal.files import write_whole
from prowess.cli.app import Call, verb
from prowess.core.findings import make_finding
from prowess.errors import ConfigError
from prowess.runtime.config import find_places
from prowess.skills.front_matter import Unreadable, read_mapping
from prowess.skills.metadata import name_notes

TEMPLATE = """\
---
name: {name}
description: {description}
---

# {title}

## Goal

Say in one sentence what is true when this skill has done its work.

## Inputs and outputs

- Input: what the user gives, and in which form.
- Output: what the user gets, and where it is.

## Steps

1. Check that the input is there and is what it should be.
2. Do the work.
3. Check the result against the checklist below.

## Failure modes

- The input is missing or cannot be read: say which, and ask for it.
- A step fails: report the exact error; do not guess a result.

## Checklist

- [ ] The output exists and can be opened.
- [ ] Every number in the answer comes from the input.

## Resources

None yet. Put scripts in scripts/, long texts in references/, templates in assets/, and say here when to use each.
"""
DEFAULT = "{title} in one sentence. Use when the user asks for …"


@verb("new", example='prowess new csv-report\nprowess new csv-report --to ./skills -d "Charts from CSV. Use when …"')
@click.argument("name")
@click.option(
    "--to", "to", metavar="DIR", help="The folder that holds skills.  [default: .agent/skills of the project]"
)
@click.option("-d", "--description", help="What it does and when to use it.")
def command(call: Call, name: str, to: str | None, description: str | None) -> int:
    """Write a new skill from a template.

    The template has the six parts that make a skill easy to follow and to test: Goal, Inputs and outputs, Steps,
    Failure modes, Checklist, Resources.
    """
    name = unicodedata.normalize("NFKC", name.strip())
    problems = name_notes(name)
    for note in problems:
        if note.code != "name-not-portable":
            finding = make_finding(note, name)
            raise ConfigError(finding.message, code=note.code, hint=finding.hint)
    if not name:
        raise ConfigError("A skill needs a name.", code="name-missing", hint="prowess new NAME")
    places = find_places(call.cwd, os.environ)
    folder = os.path.join(call.cwd, to) if to else os.path.join(places.project, ".agent", "skills")
    target = os.path.join(folder, name, "SKILL.md")
    if os.path.lexists(os.path.dirname(target)):
        raise ConfigError(
            f"There is already something at {os.path.dirname(target)}.",
            code="skill-exists",
            hint="Choose another name, or remove it first.",
        )
    title = name.replace("-", " ").capitalize()
    text = TEMPLATE.format(name=name, title=title, description=_yaml_text(description or DEFAULT.format(title=title)))
    if len(description or "") > 1024:
        length = len(description or "")
        raise ConfigError(
            f"The description has {length} characters; 1024 are allowed.",
            code="description-too-long",
            hint="Say what it does and when to use it; the rest belongs into the body.",
        )
    _write(target, text)
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.new/1", "name": name, "path": os.path.dirname(target), "file": target})
    else:
        call.screen.text(target)
        call.screen.note(f"Write its description and steps, then run: prowess validate {os.path.dirname(target)}")
    return 0


def _write(target: str, text: str) -> None:
    """Writes the whole skill or nothing: a folder without SKILL.md would block the next try."""
    folder = os.path.dirname(target)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    os.mkdir(folder)
    try:
        write_whole(target, text.encode())
    except OSError:
        os.rmdir(folder)
        raise


def _yaml_text(text: str) -> str:
    """Renders the text as one line of YAML, quoted only where needed."""
    text = " ".join(text.split())
    try:
        fields, _, notes = read_mapping(f"description: {text}")
        if fields == {"description": text} and not notes:
            return text
    except Unreadable:
        pass
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
