"""Command `prowess config`: shows the settings in force and the origin of each."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from prowess._internal.urls import shown_url
from prowess.cli.app import Call, verb
from prowess.core.values import to_json
from prowess.runtime.config import describe_fields
from prowess.runtime.runtime import OLDER_NAMES, VARIABLES
from prowess.runtime.services.documents import finding_row


@verb("config", example="prowess config show --origin\nprowess config show --json")
@click.argument("action", type=click.Choice(["show"]), default="show")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@click.option("--set", "only_set", is_flag=True, help="Only values that are not defaults.")
def command(call: Call, action: str, origin: bool, only_set: bool) -> int:
    """Show the configuration in force and where each value came from.

    Lowest first: defaults, the user's file, the project's file, the environment, flags.
    """
    with call.runtime() as runtime:
        values = {name: _without_password(value) for name, value in _flat(to_json(runtime.config)).items()}
        origins = runtime.loaded.origins
        names = [name for name, *_ in describe_fields()]
        chosen = [name for name in names if not only_set or origins.get(name, "default") != "default"]
        findings = runtime.setup_findings
        if call.screen.is_json:
            call.screen.document(
                {
                    "schema": "prowess.config-show/1",
                    "values": {name: values.get(name) for name in chosen},
                    "origins": {name: origins.get(name, "default") for name in chosen},
                    "places": to_json(runtime.places),
                    "environment": _in_force(),
                    "trusted": runtime.loaded.project_trusted,
                    "findings": [finding_row(finding) for finding in findings],
                }
            )
            return 0
        rows = [
            [
                name,
                json.dumps(values.get(name), ensure_ascii=False),
                *([origins.get(name, "default")] if origin else []),
            ]
            for name in chosen
        ]
        call.screen.table(["setting", "value", *(["from"] if origin else [])], rows)
        if origin and _in_force():
            call.screen.text()
            call.screen.fields([(name, f"{value}  (environment)") for name, value in _in_force().items()])
        call.screen.findings(findings)
        trusted = "trusted" if runtime.loaded.project_trusted else "not trusted: its configuration may only restrict"
        if file := call.options.get("config_file"):  # replaces the project's own file, trusted or not
            trusted = f"configured by {file}, which counts because you named it"
        call.screen.note(f"\nProject {runtime.places.project} ({trusted})")
    return 0


def _without_password(value: Any) -> Any:
    """Hides the password in an address, such as that of a store."""
    return shown_url(value) if isinstance(value, str) and "://" in value and "@" in value else value


def _in_force() -> dict[str, str]:
    """Returns the environment variables that are set and that Prowess reads."""
    return {name: os.environ[name] for name in (*VARIABLES, *OLDER_NAMES) if os.environ.get(name)}


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    """Turns sections into dotted names. Tables that users fill stay tables."""
    known = {name for name, *_ in describe_fields()}
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if key in known:
            flat[key] = value
        elif isinstance(value, dict):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
    return flat
