"""Commands `read-properties` and `to-prompt`, with the output and exit codes of the reference library."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import click

from prowess.cli.app import Call, cli_command
from prowess.errors import ConfigError, SkillInvalid
from prowess.skills import reference


@cli_command("read-properties", example="prowess read-properties ./my-skill")
@click.argument("path")
def read_properties(call: Call, path: str) -> int:
    """Print a skill's properties as the reference library does.

    PATH is the skill's folder or its SKILL.md.
    """
    return _answer(call, [path], _properties)


def _properties(places: list[str]) -> str:
    properties = reference.read_properties(places[0])
    return json.dumps(properties.to_dict(), indent=2)


@cli_command("to-prompt", example="prowess to-prompt ./skills/pdf ./skills/csv-report")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
def to_prompt(call: Call, paths: tuple[str, ...]) -> int:
    """Print the XML of some skills as the reference library does."""
    return _answer(call, paths, reference.to_prompt)


COMMANDS = {"read-properties": read_properties, "to-prompt": to_prompt}


def _answer(call: Call, paths: Sequence[str], make: Callable[[list[str]], str]) -> int:
    places = [os.path.join(call.cwd, path) for path in paths]
    for place in places:
        if not os.path.exists(place):
            raise ConfigError(f"Path '{place}' does not exist.", code="no-path", hint="Check the path.")
    try:
        text = make(places)
    except SkillInvalid as error:
        if call.screen.is_json:
            call.screen.error(error)
        else:
            call.screen.note(f"Error: {error.message}")
        return 1
    call.screen.text(text)
    return 0
