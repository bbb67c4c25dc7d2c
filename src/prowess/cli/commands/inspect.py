"""Command `prowess inspect`: shows one skill, and why a model sees it or not."""

from __future__ import annotations

import os
from typing import Any

import click

from prowess.cli.app import Call, roots_option, source_option, verb
from prowess.core.findings import visible
from prowess.core.values import CatalogPlan, Finding
from prowess.errors import ConfigError, SkillError
from prowess.runtime.check import check_loaded
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row, skill_row
from prowess.runtime.services.skill_tokens import skill_tokens
from prowess.skills.load import load_entry
from prowess.skills.requirements import missing_requirements
from prowess.skills.skill import Entry, Skill


@verb("inspect", example="prowess inspect csv-report\nprowess inspect csv-report --why")
@click.argument("name")
@click.option("--why", is_flag=True, help="Only: is it visible to the model, and which rule or budget decided.")
@source_option
@roots_option
def command(call: Call, name: str, why: bool, source: str | None, roots: tuple[str, ...]) -> int:
    """Show everything about one skill, and why it is or is not visible.

    NAME is a name or an id such as project:csv-report.
    """
    with call.runtime(roots=roots) as runtime:
        entry = runtime.catalog.get(name, source=source)
        document = describe(runtime, entry)
        if call.screen.is_json:
            call.screen.document(document)
        elif why:
            _show_why(call, document)
        else:
            _show(call, entry, document)
    return 0


def describe(runtime: Runtime, entry: Entry) -> dict[str, Any]:
    catalog = runtime.catalog
    skill, trouble = _try_to_load(runtime, entry)
    row = skill_row(catalog, entry, digest=skill.digest if skill else None)
    findings = [*catalog.findings_of(entry), *trouble]
    if skill:
        row["tokens"] = skill_tokens(skill)
        findings += check_loaded(skill)
    return {
        "schema": "prowess.inspect/1",
        "skill": {
            **row,
            "qualified_name": entry.qualified,
            "declared_name": entry.declared or entry.name,
            "location": entry.location,
            "user_invocable": entry.controls.user_invocable,
            "argument_hint": entry.controls.argument_hint,
            "paths": list(entry.controls.paths),
            "requires": {kind: list(items) for kind, items in entry.controls.requires},
            "missing": missing_requirements(entry.controls, os.environ, catalog.__contains__),
            "keywords": list(entry.keywords),
            "fields": dict(skill.fields) if skill else {},
            "files": [{"path": f.path, "size_bytes": f.size_bytes, "executable": f.executable} for f in _files(skill)],
            "docs": list(skill.docs) if skill else [],
        },
        "why": _explain(runtime, entry),
        "findings": [finding_row(finding) for finding in findings],
    }


def _try_to_load(runtime: Runtime, entry: Entry) -> tuple[Skill | None, list[Any]]:
    if runtime.catalog.visibility(entry).status == "invalid":
        return None, []
    try:
        return runtime.catalog.memory_skill(entry) or load_entry(entry), []
    except SkillError as error:
        return None, list(getattr(error, "findings", ()))


def _files(skill: Skill | None) -> list[Any]:
    return list(skill.files) if skill else []


def _explain(runtime: Runtime, entry: Entry) -> dict[str, Any]:
    """Explains whether a model sees the skill, and which rule or budget decided."""
    seen = runtime.catalog.visibility(entry)
    plan = runtime.plan()
    place = next(kind for kind in ("shown", "name_only", "searchable", "hidden") if entry.id in getattr(plan, kind))
    reasons = list(seen.reasons)
    if place == "searchable":
        reasons.append(
            f"the catalog's budget of {plan.tokens.budget} tokens has no room left for its description, after "
            f"{len(plan.shown)} skills that come first; the model finds it with skill_search"
        )
    if refused := _refused(runtime, entry, plan):
        place = "hidden"
        reasons.append(refused)
    if not reasons:
        reasons = ["nothing restricts it, and the catalog's budget has room for it"]
    return {
        "status": seen.status,
        "model_visible": seen.model_visible and not refused,
        "user_visible": seen.user_visible,
        "mode": seen.mode,
        "in_prompt": place,
        "reasons": reasons,
        "budget": {"budget": plan.tokens.budget, "used": plan.tokens.used},
    }


def _refused(runtime: Runtime, entry: Entry, plan: CatalogPlan) -> str:
    """Returns why policy hides the skill from models; empty when it does not."""
    try:
        denied = entry.id in runtime.offer(plan).hidden and entry.id not in plan.hidden
    except ConfigError as error:
        return f"no model is told anything while the policy is broken: {error.message}"
    return f"a rule denies it; which one: prowess policy check skill_load {entry.id}" if denied else ""


_IN_PROMPT = {
    "shown": "the model is shown its name and description",
    "name_only": "the model is shown its name only",
    "searchable": "the model is not shown it, and can find it by search",
    "hidden": "the model is not shown it",
}


def _show_why(call: Call, document: dict[str, Any]) -> None:
    skill, why = document["skill"], document["why"]
    screen = call.screen
    screen.text(
        f"{visible(skill['id'])}: {screen.styled(why['status'], why['status'])}: {_IN_PROMPT[why['in_prompt']]}."
    )
    for reason in why["reasons"]:
        screen.text(f"  because {visible(reason)}")


def _show(call: Call, entry: Entry, document: dict[str, Any]) -> None:
    skill, screen = document["skill"], call.screen
    _show_why(call, document)
    screen.text()
    rows = [
        ("description", " ".join(skill["description"].split())),
        ("location", skill["location"]),
        ("version", skill["version"] or "-"),
        ("digest", skill["digest"] or "-"),
        ("allowed tools", _listed(skill["controls"]["allowed_tools"], "not declared", "none")),
        ("run mode", skill["controls"]["run_mode"]),
        ("tokens", f"about {skill['tokens']['catalog']} in the catalog, {skill['tokens']['body']} when loaded"),
    ]
    if skill["declared_name"] != skill["name"]:
        rows.insert(0, ("declared name", skill["declared_name"]))
    if skill["requires"]:
        needs = "; ".join(f"{kind}: {', '.join(items)}" for kind, items in skill["requires"].items())
        rows.append(("requires", needs))
    if skill["missing"]:
        rows.append(("missing here", ", ".join(skill["missing"])))
    screen.fields(rows)
    if skill["files"]:
        screen.text()
        screen.heading("Files")
        for file in skill["files"]:
            screen.text(
                f"  {visible(file['path'])}  {file['size_bytes']} bytes{'  executable' if file['executable'] else ''}"
            )
    if document["findings"]:
        screen.text()
        screen.heading("Findings")
        screen.findings([Finding(**row) for row in document["findings"]], base=entry.path)


def _listed(items: list[str] | None, undeclared: str, empty: str) -> str:
    if items is None:
        return undeclared
    return ", ".join(items) or empty
