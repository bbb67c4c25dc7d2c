"""Command `prowess config`: shows the settings in force and the origin of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.screen import Screen
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.runtime.project_state import state_path
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.settings_in_force import SettingInForce, find_environment, find_settings

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import ConfigDocument


@cli_command("config", example="prowess config show --origin\nprowess config show --json")
@click.argument("action", type=click.Choice(["show"]), default="show")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@click.option("--set", "only_set", is_flag=True, help="Only values that are not defaults.")
def command(call: Call, action: str, origin: bool, only_set: bool) -> int:
    """Show the configuration in force and where each value came from.

    Lowest first: defaults, the user's file, the project's file, the environment, flags.
    """
    with call.runtime() as runtime:
        chosen = [each for each in find_settings(runtime) if not only_set or each.origin != "default"]
        environment = find_environment(runtime)
        findings = runtime.setup_findings
        if call.screen.is_json:
            document: ConfigDocument = {
                "schema": "prowess.config-show/1",
                "values": {each.name: each.value for each in chosen},
                "origins": {each.name: each.origin for each in chosen},
                "places": {**to_json(runtime.places), "state": state_path(runtime.places)},
                "environment": environment,
                "trusted": runtime.loaded.project_trusted,
                "findings": [finding_row(finding) for finding in findings],
            }
            call.screen.document(document)
            return 0
        _show_settings(call.screen, chosen, with_origin=origin)
        if origin and environment:
            call.screen.text()
            rows = [(name, f"{value}  (environment)") for name, value in environment.items()]
            call.screen.fields(rows)
        call.screen.findings(findings)
        trusted = _trusted(call, runtime)
        call.screen.note(f"\nProject {visible(runtime.places.project)} ({visible(trusted)})")
        call.screen.note(f"Record, artifacts and eval runs: {visible(state_path(runtime.places))}")
    return 0


def _show_settings(screen: Screen, settings: Sequence[SettingInForce], *, with_origin: bool) -> None:
    columns = ["setting", "value"]
    if with_origin:
        columns.append("from")
    rows: list[list[str]] = []
    for each in settings:
        value = json.dumps(each.value, ensure_ascii=False)
        row = [each.name, value]
        if with_origin:
            row.append(each.origin)
        rows.append(row)
    screen.table(columns, rows)


def _trusted(call: Call, runtime: Runtime) -> str:
    file = call.options.get("config_file")
    if file:  # replaces the project's own file, trusted or not
        return f"configured by {file}, which counts because you named it"
    if runtime.loaded.project_trusted:
        return "trusted"
    return "not trusted: its configuration may only restrict"
