"""Command `prowess schema`: prints a JSON Schema, or the names of all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command
from prowess.errors import ConfigError

if TYPE_CHECKING:
    from prowess.runtime.documents.shared import SchemasDocument

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "schemas")


@cli_command("schema", example="prowess schema\nprowess schema list")
@click.argument("name", required=False)
def command(call: Call, name: str | None) -> int:
    """Print the JSON Schema of a document that Prowess reads or writes.

    Without NAME, the names.
    """
    names = sorted(file.removesuffix(".json") for file in os.listdir(FOLDER) if file.endswith(".json"))
    if name is None:
        _show_names(call, names)
        return 0
    wanted = name.removeprefix("prowess.").split("/")[0]
    if wanted not in names:
        raise _unknown(name, wanted, names)
    path = os.path.join(FOLDER, f"{wanted}.json")
    with open(path, encoding="utf-8") as file:
        schema = file.read()
    call.screen.text(schema.rstrip("\n"))
    return 0


def _show_names(call: Call, names: list[str]) -> None:
    if call.screen.is_json:
        document: SchemasDocument = {"schema": "prowess.schemas/1", "schemas": names}
        call.screen.document(document)
        return
    lines = "\n".join(names)
    call.screen.text(lines)


def _unknown(name: str, wanted: str, names: list[str]) -> ConfigError:
    import difflib

    near = difflib.get_close_matches(wanted, names, n=1)
    if near:
        hint = f"Did you mean '{near[0]}'?"
    else:
        known = ", ".join(names)
        hint = f"There are: {known}"
    return ConfigError(f"No schema '{name[:80]}'.", code="schema-unknown", hint=hint)
