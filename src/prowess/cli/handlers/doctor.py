"""Handler of `prowess doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from prowess.cli.app import Call
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
    from prowess.runtime.documents.skills import DoctorCatalog, DoctorDocument, DoctorIsolation, DoctorRoot


def doctor(call: Call, workspace: bool, roots: tuple[str, ...]) -> int:
    broken: list[Finding] = []
    try:
        with call.runtime(roots=roots):
            pass
    except ConfigError as error:  # doctor must answer above all when the configuration is broken
        broken.append(problem_of(error, "configuration"))
    with call.runtime(roots=roots, without_files=bool(broken)) as runtime:
        tried = None
        with call.screen.working("Reading every skill"):
            examined = examine(runtime, broken)
            isolation = asyncio.run(examine_isolation(runtime))
            document: DoctorDocument = {**examined, "isolation": isolation}
            if workspace:
                tried = asyncio.run(examine_workspace(runtime))
                document["workspace"] = tried
        if call.screen.is_json:
            call.screen.document(document)
        else:
            _show(call, runtime, document)
            if tried is not None:
                show_workspace(call.screen, tried)
            else:
                _show_isolation(call.screen, isolation)
        if tried is not None and tried["error"] is not None:
            return 1
        has_errors = any(row["severity"] == "error" for row in document["findings"])
        return 1 if has_errors else 0


def _show(call: Call, runtime: Runtime, document: DoctorDocument) -> None:
    screen = call.screen
    screen.heading("Roots")
    _show_roots(call, document["roots"])
    screen.text()
    screen.heading("Catalog")
    _show_catalog(screen, document["catalog"])
    screen.text()
    screen.heading("Findings")
    findings = [Finding(**row) for row in document["findings"]]
    _show_findings(screen, findings, base=runtime.places.project)
    screen.text()
    screen.heading("Installation")
    for key, value in document["installation"].items():
        label = key.replace("_", " ")
        text = _word(value)
        screen.text(f"  {label}: {text}")


def _show_roots(call: Call, roots: Sequence[DoctorRoot]) -> None:
    absent: list[str] = []
    for root in roots:
        if not root["exists"] and root["origin"] == "default":
            absent.append(root["path"])
        else:
            _show_root(call, root)
    if absent:
        places = count(len(absent), "default place")
        named = visible(", ".join(absent))
        call.screen.text(f"  {places} not there: {named}")


def _show_catalog(screen: Screen, catalog: DoctorCatalog) -> None:
    shown = count(catalog["shown"], "skill")
    tokens = catalog["tokens"]
    why = visible(catalog["budget_why"])
    screen.text(f"  {shown} shown to models, {tokens['used']} of {tokens['budget']} tokens ({why})")
    if catalog["name_only"]:
        skills = count(catalog["name_only"], "skill")
        screen.text(f"  {skills} shown by name only")
    over_budget = catalog["over_budget"]
    if over_budget:
        screen.text(f"  {len(over_budget)} over the budget, found by search: {_some(over_budget)}")
    hidden = catalog["hidden"]
    if hidden:
        screen.text(f"  {len(hidden)} kept from models: {_some(hidden)}")


def _show_findings(screen: Screen, findings: Sequence[Finding], *, base: str | None) -> None:
    shown = findings
    if not screen.verbose:
        shown = [finding for finding in findings if finding.severity != "info"]
    screen.findings(shown, base=base)
    if not shown:
        screen.text("  none")
    remarks = len(findings) - len(shown)
    if remarks:
        more = count(remarks, "remark")
        screen.text(f"  and {more}, shown with -v")


def _show_isolation(screen: Screen, found: DoctorIsolation) -> None:
    screen.text()
    screen.heading("Isolation")
    kind = "NOTHING CAN RUN"
    if found["executor"]:
        kind = f"{found['executor']} ({found['mechanism']})"
    told = "; ".join([kind, *found["notes"]])
    screen.text(f"  {printable(told)}")
    hint = found["hint"]
    if hint:
        shown = printable(hint)
        screen.text(f"  {shown}")
    screen.text("  more: prowess doctor --workspace")


def _show_root(call: Call, root: DoctorRoot) -> None:
    screen = call.screen
    path = visible(root["path"])
    text = f"  {root['source']}  {path}"
    if not root["exists"]:
        text += ", not there"
    if not root["trusted"]:
        text += ", not trusted"
    skills = count(root["skills"], "skill")
    text += f": {skills}"
    states = [f"{number} {status}" for status, number in root["statuses"].items()]
    if states:
        joined = ", ".join(states)
        text += f": {joined}"
    screen.text(text)
    if root["repaired"]:
        repaired = _some(root["repaired"])
        screen.text(f"    repaired: {repaired}")
    for id, why in root["shadowed"].items():
        screen.text(f"    shadowed: {visible(id)}: {visible(why)}")
    for path in root["skipped"]:
        screen.text(f"    skipped: {visible(path)}")


def _some(ids: list[str]) -> str:
    """Names the first five."""
    named = visible(", ".join(ids[:5]))
    left_out = len(ids) - 5
    if left_out > 0:
        return f"{named} and {left_out} more"
    return named


def _word(value: Any) -> str:
    """Renders `yes` for True, and `sandbox: yes, ray: no` for a table."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return ", ".join(f"{name}: {_word(on)}" for name, on in table.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return visible(str(value))


# --- executors --------------------------------------------------------------------------------------------------------


AS_YOU = "A script runs as you: what you can read, change or end, it can; your keys, record and approvals too."
YOUR_MODES = "as you, a script can change the mode and times of files that are yours, though not read or write them"


def show_workspace(screen: Screen, document: dict[str, Any]) -> None:
    """Shows what can run a script here, and what was tried."""
    screen.text()
    screen.heading("Workspace")
    configured = document["configured"]
    isolation = document["isolation"]
    if isolation is not None:
        _show_chosen(screen, configured, isolation)
    error = document["error"]
    if error is not None:
        message = printable(error["message"])
        screen.text(f"  executor: {configured}: NOTHING CAN RUN: {message}")
        hint = printable(error["hint"] or "")
        screen.text(f"    {hint} [{error['code']}]")
    for sandbox in document["sandboxes"]:
        _show_sandbox(screen, sandbox)
    _show_container(screen, document["container"])
    workspaces = count(document["workspaces"], "workspace")
    used = size(document["size_bytes"])
    screen.text(f"  {workspaces}, {used}, in {document['dir']}")


def _show_chosen(screen: Screen, configured: str, isolation: dict[str, Any]) -> None:
    """Shows the isolation that a script gets."""
    inside = f"{isolation['mechanism']}, user {isolation['uid']}, network {isolation['network']}"
    screen.text(f"  executor: {configured}, which here means {isolation['executor']} ({inside})")
    limits = _limits(isolation)
    screen.text(f"  limits: {limits}")
    for note in isolation["notes"]:
        shown = printable(note)
        screen.text(f"  note: {shown}")
    kind = recorded_kind(isolation)
    if kind in ("none", "process") and is_ours(isolation["uid"]):
        screen.text(f"  note: {AS_YOU}")
    if kind == "process":
        _show_differences(screen, DIFFERS["none"])


def _limits(isolation: dict[str, Any]) -> str:
    """Renders `time enforced · memory absent`."""
    limits = [f"{name} {held}" for name, held in isolation["limits"].items()]
    return " · ".join(limits)


def _show_sandbox(screen: Screen, sandbox: dict[str, Any]) -> None:
    promises = sandbox["held"]
    held = [promise for promise, holds in promises.items() if holds]
    broken = [promise for promise, holds in promises.items() if not holds]
    mechanism = sandbox["mechanism"]
    works = sandbox["works"]
    state = "does not work"
    if works:
        state = f"works, {len(held)} of {len(promises)} promises held"
    screen.text(f"  {mechanism}: {state}")
    if sandbox["error"]:
        error = printable(sandbox["error"])
        screen.text(f"    {error}")
    if broken:
        named = ", ".join(broken)
        screen.text(f"    broken: {named}")
    elif held:
        named = " · ".join(held)
        screen.text(f"    {named}")
    if works:
        if mechanism == "landlock+seccomp" and is_ours(sandbox["uid"]):
            screen.text(f"    not held: {YOUR_MODES}")
        _show_differences(screen, sandbox["differs"])


def _show_container(screen: Screen, container: dict[str, Any]) -> None:
    if not container["works"]:
        error = container["error"]
        message = printable(error["message"])
        hint = printable(error["hint"] or "")
        screen.text(f"  container: {message} {hint}")
        return
    isolation = container["isolation"]
    limits = _limits(isolation)
    inside = f"{isolation['mechanism']}, user {isolation['uid']}"
    screen.text(f"  container: works ({inside}); {limits}")
    _show_differences(screen, container["differs"])


def _show_differences(screen: Screen, differences: Sequence[str]) -> None:
    if not differences:
        return
    told = " · ".join(differences)
    screen.text(f"    differs: {told}")
