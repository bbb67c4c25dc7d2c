"""Command `prowess doctor`: reports on roots, findings, the installation and isolation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from prowess.cli.app import Call, cli_command, roots_option
from prowess.cli.approver import is_ours
from prowess.cli.screen import Screen, count, printable, size
from prowess.core.catalog_values import Finding
from prowess.core.findings import visible
from prowess.core.isolation import recorded_kind
from prowess.errors import ConfigError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.doctor import examine, problem_of
from prowess.runtime.services.doctor_workspace import DIFFERS, examine_isolation, examine_workspace

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import DoctorDocument, DoctorIsolation, DoctorRoot


@cli_command("doctor", example="prowess doctor\nprowess doctor --workspace\nprowess doctor --root ./skills --json")
@click.option("--workspace", is_flag=True, help="Also try, for real, every way to run a script here.")
@roots_option
def command(call: Call, workspace: bool, roots: tuple[str, ...]) -> int:
    """Explain what was found, repaired, shadowed, skipped and missing.

    Shows what became of the skills of each root; then every finding, also those of the bodies; then this installation
    and the isolation that a script gets here. With --workspace, every kind of isolation is tried again. Exit code 1
    when there is a finding of level error, or, with --workspace, when nothing can run as configured.
    """
    broken: list[Finding] = []
    try:
        with call.runtime(roots=roots):
            pass
    except ConfigError as error:  # doctor must answer above all when the configuration is broken
        broken.append(problem_of(error, "configuration"))
    with call.runtime(roots=roots, without_files=bool(broken)) as runtime:
        with call.screen.working("Reading every skill"):
            examined = examine(runtime, broken)
            document: DoctorDocument = {**examined, "isolation": asyncio.run(examine_isolation(runtime))}
            tried = asyncio.run(examine_workspace(runtime)) if workspace else None
            if tried is not None:
                document["workspace"] = tried
        if call.screen.is_json:
            call.screen.document(document)
        else:
            _show(call, runtime, document)
            if tried is not None:
                show_workspace(call.screen, tried)
            else:
                _show_isolation(call.screen, document["isolation"])
        unable = tried is not None and tried["error"] is not None
        return 1 if unable or any(row["severity"] == "error" for row in document["findings"]) else 0


def _show(call: Call, runtime: Runtime, document: DoctorDocument) -> None:
    screen = call.screen
    screen.heading("Roots")
    absent = [root for root in document["roots"] if not root["exists"] and root["origin"] == "default"]
    for root in document["roots"]:
        if root not in absent:
            _show_root(call, root)
    if absent:
        screen.text(f"  {count(len(absent), 'default place')} not there: {', '.join(root['path'] for root in absent)}")
    catalog = document["catalog"]
    screen.text()
    screen.heading("Catalog")
    tokens = catalog["tokens"]
    shown, why = count(catalog["shown"], "skill"), visible(catalog["budget_why"])
    screen.text(f"  {shown} shown to models, {tokens['used']} of {tokens['budget']} tokens ({why})")
    if catalog["name_only"]:
        screen.text(f"  {count(catalog['name_only'], 'skill')} shown by name only")
    if catalog["over_budget"]:
        screen.text(
            f"  {len(catalog['over_budget'])} over the budget, found by search: {_some(catalog['over_budget'])}"
        )
    if catalog["hidden"]:
        screen.text(f"  {len(catalog['hidden'])} kept from models: {_some(catalog['hidden'])}")
    screen.text()
    screen.heading("Findings")
    findings = [Finding(**row) for row in document["findings"]]
    told = [finding for finding in findings if finding.severity != "info" or screen.verbose]
    screen.findings(told, base=runtime.places.project)
    remarks = len(findings) - len(told)
    if not told:
        screen.text("  none")
    if remarks:
        screen.text(f"  and {count(remarks, 'remark')}, shown with -v")
    screen.text()
    screen.heading("Installation")
    for key, value in document["installation"].items():
        shown = (
            ", ".join(f"{name}: {_word(on)}" for name, on in value.items()) if isinstance(value, dict) else _word(value)
        )
        screen.text(f"  {key.replace('_', ' ')}: {shown}")


def _show_isolation(screen: Screen, found: DoctorIsolation) -> None:
    screen.text()
    screen.heading("Isolation")
    kind = f"{found['executor']} ({found['mechanism']})" if found["executor"] else "NOTHING CAN RUN"
    screen.text(f"  {printable('; '.join([kind, *found['notes']]))}")
    if found["hint"]:
        screen.text(f"  {printable(found['hint'])}")
    screen.text("  more: prowess doctor --workspace")


def _show_root(call: Call, root: DoctorRoot) -> None:
    screen = call.screen
    trusted = "" if root["trusted"] else ", not trusted"
    state = ", ".join(f"{number} {status}" for status, number in root["statuses"].items())
    there = "" if root["exists"] else ", not there"
    number = count(root["skills"], "skill")
    screen.text(f"  {root['source']}  {visible(root['path'])}{there}{trusted}: {number}{': ' if state else ''}{state}")
    if root["repaired"]:
        screen.text(f"    repaired: {_some(root['repaired'])}")
    for id, why in root["shadowed"].items():
        screen.text(f"    shadowed: {visible(id)}: {visible(why)}")
    for path in root["skipped"]:
        screen.text(f"    skipped: {visible(path)}")


def _some(ids: list[str]) -> str:
    return visible(", ".join(ids[:5])) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


# --- executors --------------------------------------------------------------------------------------------------------


AS_YOU = "A script runs as you: what you can read, change or end, it can; your keys, record and approvals too."
YOUR_MODES = "as you, a script can change the mode and times of files that are yours, though not read or write them"


def show_workspace(screen: Screen, document: dict[str, Any]) -> None:
    screen.text()
    screen.heading("Workspace")
    isolation, error = document["isolation"], document["error"]
    if isolation is not None:
        inside = f"{isolation['mechanism']}, user {isolation['uid']}, network {isolation['network']}"
        screen.text(f"  executor: {document['configured']}, which here means {isolation['executor']} ({inside})")
        limits = " · ".join(f"{name} {held}" for name, held in isolation["limits"].items())
        screen.text(f"  limits: {limits}")
        for note in isolation["notes"]:
            screen.text(f"  note: {printable(note)}")
        kind = recorded_kind(isolation)
        if kind in ("none", "process") and is_ours(isolation["uid"]):
            screen.text(f"  note: {AS_YOU}")
        if kind == "process":
            _show_differences(screen, DIFFERS["none"])
    if error is not None:
        screen.text(f"  executor: {document['configured']}: NOTHING CAN RUN: {printable(error['message'])}")
        screen.text(f"    {printable(error['hint'] or '')} [{error['code']}]")
    for sandbox in document["sandboxes"]:
        held = [promise for promise, holds in sandbox["held"].items() if holds]
        broken = [promise for promise, holds in sandbox["held"].items() if not holds]
        state = f"works, {len(held)} of {len(sandbox['held'])} promises held" if sandbox["works"] else "does not work"
        screen.text(f"  {sandbox['mechanism']}: {state}")
        if sandbox["error"]:
            screen.text(f"    {printable(sandbox['error'])}")
        if broken:
            screen.text(f"    broken: {', '.join(broken)}")
        elif held:
            screen.text(f"    {' · '.join(held)}")
        if sandbox["works"] and sandbox["mechanism"] == "landlock+seccomp" and is_ours(sandbox["uid"]):
            screen.text(f"    not held: {YOUR_MODES}")
        if sandbox["works"]:
            _show_differences(screen, sandbox["differs"])
    container = document["container"]
    if container["works"]:
        found = container["isolation"]
        limits = " · ".join(f"{name} {held}" for name, held in found["limits"].items())
        screen.text(f"  container: works ({found['mechanism']}, user {found['uid']}); {limits}")
        _show_differences(screen, container["differs"])
    else:
        screen.text(
            f"  container: {printable(container['error']['message'])} {printable(container['error']['hint'] or '')}"
        )
    screen.text(f"  {count(document['workspaces'], 'workspace')}, {size(document['size_bytes'])}, in {document['dir']}")


def _show_differences(screen: Screen, differences: Sequence[str]) -> None:
    if differences:
        screen.text(f"    differs: {' · '.join(differences)}")
