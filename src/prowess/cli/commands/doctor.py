"""Command `prowess doctor`: reports on roots, findings, the installation and isolation."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import click

import prowess
from prowess.cli.app import Call, roots_option, verb
from prowess.cli.screen import Screen, count, printable
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding, visible
from prowess.errors import ConfigError, SkillError
from prowess.runtime.check import check_loaded
from prowess.runtime.policy_files import find_surroundings, load_rules
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.settings_check import find_setting_problems
from prowess.skills.load import load_entry
from prowess.skills.nested import has_nested
from prowess.skills.requirements import missing_requirements
from prowess.skills.scanner import look_below_entry
from prowess.skills.skill import Entry, RootReport

_REPAIRED = ("yaml-repaired", "yaml-salvaged")


@verb("doctor", example="prowess doctor\nprowess doctor --workspace\nprowess doctor --root ./skills --json")
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
        broken.append(
            Finding(code=error.code, severity="error", path="configuration", message=error.message, hint=error.hint)
        )
    with call.runtime(roots=roots, without_files=bool(broken)) as runtime:
        with call.screen.working("Reading every skill"):
            document = examine(runtime, broken)
            document["isolation"] = _isolation(runtime)
            if workspace:
                document["workspace"] = _workspace().examine_workspace(runtime)
        if call.screen.is_json:
            call.screen.document(document)
        else:
            _show(call, runtime, document)
            if workspace:
                _workspace().show_workspace(call.screen, document["workspace"])
            else:
                _show_isolation(call.screen, document["isolation"])
        unable = workspace and document["workspace"]["error"] is not None
        return 1 if unable or any(row["severity"] == "error" for row in document["findings"]) else 0


def _workspace() -> Any:
    """Imports the executors late: only `doctor` needs them."""
    from prowess.cli.commands import doctor_workspace

    return doctor_workspace


def _isolation(runtime: Runtime) -> dict[str, Any]:
    """Returns the isolation of a script that runs as configured, and a hint to improve it."""
    return _workspace().examine_isolation(runtime)


def _policy_problems(runtime: Runtime) -> list[Finding]:
    """Returns the problems because of which no call could be decided."""
    try:
        find_surroundings(runtime.config)
        load_rules(runtime)
    except ConfigError as error:
        return [Finding(code=str(error.code), severity="error", path="policy", message=error.message, hint=error.hint)]
    return []


def examine(runtime: Runtime, broken: Sequence[Finding] = ()) -> dict[str, Any]:
    catalog = runtime.catalog
    problems = _policy_problems(runtime)
    plan = runtime.plan() if problems else runtime.offer(runtime.plan())
    problems += find_setting_problems(runtime)
    findings = [*broken, *problems, *runtime.findings, *_beyond_the_heads(runtime)]
    return {
        "schema": "prowess.doctor/1",
        "roots": [_root_row(runtime, root, findings) for root in catalog.roots],
        "catalog": {
            "shown": len(plan.shown),
            "name_only": len(plan.name_only),
            "over_budget": list(plan.searchable),
            "hidden": list(plan.hidden),
            "tokens": {"budget": plan.tokens.budget, "used": plan.tokens.used},
            "budget_why": runtime.budget().why,
        },
        "findings": [finding_row(finding) for finding in findings],
        "installation": installation(runtime),
    }


def _beyond_the_heads(runtime: Runtime) -> list[Finding]:
    """Returns findings that need whole skills or this machine: bodies, files, requirements."""
    catalog = runtime.catalog
    found: list[Finding] = []
    for entry in catalog:
        found += _nested_since(runtime, entry)
        if catalog.visibility(entry).status in ("invalid", "shadowed", "off"):
            continue
        missing = missing_requirements(entry.controls, os.environ, catalog.__contains__)
        if missing:
            found.append(make_finding(Note("requires-missing", None, {"missing": missing}), entry.location))
        try:
            skill = catalog.memory_skill(entry) or load_entry(entry)
        except SkillError as error:
            found += getattr(error, "findings", ())
            continue
        found += check_loaded(skill, "loading")
        limit, lines = runtime.config.security.max_skill_body_lines, skill.body.count("\n") + 1
        if limit is not None and lines > limit:
            note = Note("body-over-limit", skill.body_line, {"lines": lines, "limit": limit})
            found.append(make_finding(note, entry.location))
    return found


def _nested_since(runtime: Runtime, entry: Entry) -> list[Finding]:
    """Finds skill files below a skill that came after it was first read. Nothing else searches it again."""
    if has_nested(entry.notes) or runtime.catalog.memory_skill(entry):
        return []
    return [*map(entry.finding_of, look_below_entry(entry, runtime.bounds))]


def _root_row(runtime: Runtime, root: RootReport, findings: list[Finding]) -> dict[str, Any]:
    catalog = runtime.catalog
    here = os.path.realpath(root.path)
    entries = [entry for entry in catalog if entry.source == root.source and entry.root == here]
    statuses: dict[str, list[str]] = {}
    for entry in entries:
        statuses.setdefault(catalog.visibility(entry).status, []).append(entry.id)
    return {
        "source": root.source,
        "path": root.shown,
        "origin": root.origin,
        "exists": root.exists,
        "trusted": root.trusted,
        "skills": len(entries),
        "statuses": {status: len(ids) for status, ids in statuses.items()},
        "repaired": [e.id for e in entries if any(note.code in _REPAIRED for note in e.notes)],
        "shadowed": {e.id: catalog.visibility(e).reasons[0] for e in entries if e.id in statuses.get("shadowed", ())},
        "skipped": [f.path for f in findings if f.code == "skipped-folder" and f.path.startswith(here + os.sep)],
    }


def installation(runtime: Runtime) -> dict[str, Any]:
    return {
        "prowess": prowess.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "yaml_c_loader": find_spec("yaml._yaml") is not None,
        "sqlite": sqlite3.sqlite_version,
        "search": _has_fts5(),
        "extras": {"watch": find_spec("watchfiles") is not None, "tokens": find_spec("bpe_openai") is not None},
        "cache_dir": runtime.places.cache_dir,
        "state_dir": runtime.places.state_dir,
        "project": runtime.places.project,
        "project_trusted": runtime.loaded.project_trusted,
    }


def _has_fts5() -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()


def _show(call: Call, runtime: Runtime, document: dict[str, Any]) -> None:
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


def _show_isolation(screen: Screen, found: dict[str, Any]) -> None:
    screen.text()
    screen.heading("Isolation")
    kind = f"{found['executor']} ({found['mechanism']})" if found["executor"] else "NOTHING CAN RUN"
    screen.text(f"  {printable('; '.join([kind, *found['notes']]))}")
    if found["hint"]:
        screen.text(f"  {printable(found['hint'])}")
    screen.text("  more: prowess doctor --workspace")


def _show_root(call: Call, root: dict[str, Any]) -> None:
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
