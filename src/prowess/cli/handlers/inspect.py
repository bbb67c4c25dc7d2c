"""Handler of `prowess inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prowess.cli.app import Call
from prowess.core.findings import visible
from prowess.core.values import Finding
from prowess.runtime.services.inspect_skill import inspect_skill
from prowess.skills.skill import Entry

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import InspectDocument, InspectedSkill


def inspect(call: Call, name: str, why: bool, source: str | None, roots: tuple[str, ...]) -> int:
    with call.runtime(roots=roots) as runtime:
        entry = runtime.catalog.get(name, source=source)
        document = inspect_skill(runtime, entry)
        if call.screen.is_json:
            call.screen.document(document)
        elif why:
            _show_why(call, document)
        else:
            _show(call, entry, document)
    return 0


_IN_PROMPT = {
    "shown": "the model is shown its name and description",
    "name_only": "the model is shown its name only",
    "searchable": "the model is not shown it, and can find it by search",
    "hidden": "the model is not shown it",
}


def _show_why(call: Call, document: InspectDocument) -> None:
    screen = call.screen
    why = document["why"]
    id = visible(document["skill"]["id"])
    status = screen.styled(why["status"], why["status"])
    in_prompt = _IN_PROMPT[why["in_prompt"]]
    screen.text(f"{id}: {status}: {in_prompt}.")
    for reason in why["reasons"]:
        shown = visible(reason)
        screen.text(f"  because {shown}")


def _show(call: Call, entry: Entry, document: InspectDocument) -> None:
    screen = call.screen
    skill = document["skill"]
    _show_why(call, document)
    screen.text()
    screen.fields(_rows(skill))
    if skill["files"]:
        screen.text()
        screen.heading("Files")
        for file in skill["files"]:
            path = visible(file["path"])
            line = f"  {path}  {file['size_bytes']} bytes"
            if file["executable"]:
                line += "  executable"
            screen.text(line)
    if document["findings"]:
        screen.text()
        screen.heading("Findings")
        findings = [Finding(**row) for row in document["findings"]]
        screen.findings(findings, base=entry.path)


def _rows(skill: InspectedSkill) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if skill["declared_name"] != skill["name"]:
        rows.append(("declared name", skill["declared_name"]))
    description = skill["description"].split()
    controls = skill["controls"]
    allowed_tools = _listed(controls["allowed_tools"], "not declared", "none")
    tokens = skill["tokens"]
    rows += [
        ("description", " ".join(description)),
        ("location", skill["location"]),
        ("version", skill["version"] or "-"),
        ("digest", skill["digest"] or "-"),
        ("allowed tools", allowed_tools),
        ("run mode", controls["run_mode"]),
        ("tokens", f"about {tokens['catalog']} in the catalog, {tokens['body']} when loaded"),
    ]
    if skill["requires"]:
        needs = [f"{kind}: {', '.join(items)}" for kind, items in skill["requires"].items()]
        rows.append(("requires", "; ".join(needs)))
    if skill["missing"]:
        missing = ", ".join(skill["missing"])
        rows.append(("missing here", missing))
    return rows


def _listed(items: list[str] | None, undeclared: str, empty: str) -> str:
    if items is None:
        return undeclared
    if not items:
        return empty
    return ", ".join(items)
