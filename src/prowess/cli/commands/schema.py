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
        if call.screen.is_json:
            document: SchemasDocument = {"schema": "prowess.schemas/1", "schemas": names}
            call.screen.document(document)
        else:
            call.screen.text("\n".join(names))
        return 0
    wanted = name.removeprefix("prowess.").split("/")[0]
    if wanted not in names:
        import difflib

        near = difflib.get_close_matches(wanted, names, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(names)}"
        raise ConfigError(f"No schema '{name[:80]}'.", code="schema-unknown", hint=hint)
    with open(os.path.join(FOLDER, f"{wanted}.json"), encoding="utf-8") as file:
        call.screen.text(file.read().rstrip("\n"))
    return 0
