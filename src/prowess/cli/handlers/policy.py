"""Handler of `prowess policy check`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prowess.cli.app import Call
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.runtime.services.argument_words import parse_words
from prowess.runtime.services.policy_check import check_call

if TYPE_CHECKING:
    from prowess.core.isolation import IsolationRecord
    from prowess.runtime.documents.permissions import PolicyCheckDocument, PolicyStep

_NOT_MET = 1


def check(call: Call, action: str, tool: str, words: tuple[str, ...], **given: Any) -> int:
    if not tool.strip():
        raise ConfigError("TOOL is empty.", code="usage", hint="Name a tool, an alias or a capability.")
    if re.search(r"[()]", tool):
        problem = f"'{tool[:80]}' is an entry of allowed-tools, not a call."
        raise ConfigError(problem, code="usage", hint="Write a tool, and what it is told: Bash 'git status'.")
    args = parse_words(tool, words)
    flags = {"workspace.executor": given["executor"]}
    with call.runtime(roots=given["roots"], flags=flags) as runtime:
        checked = check_call(runtime, tool, args, given["skills"], isolation=given["isolation"])
        document = asyncio.run(checked)
        if call.screen.is_json:
            call.screen.document(document)
        else:
            _show(call, document)
    required = given["require"]
    effective = document["effective"]
    if required in (None, effective):
        return 0
    if not call.screen.is_json:
        call.screen.note(f"What would come of it is {effective}, and {required} was required.")
    return _NOT_MET


# --- for people -----------------------------------------------------------------------------------------------------


def _show(call: Call, document: PolicyCheckDocument) -> None:
    screen = call.screen
    effective = document["effective"]
    verdict = document["verdict"]
    headline = screen.styled(effective, "heading")
    if effective != verdict:
        alone = "policy" if document["loads"] is None else document["tool"]
        headline += f" ({alone} alone: {verdict})"
    told = visible(_call_text(document))
    screen.text(f"{headline}  {told}")
    rows = [(f"  {label}", text) for label, text in _rows(document)]
    screen.fields(rows)
    screen.text()
    screen.heading("Asked, in this order")
    screen.fields(_steps(document))


def _rows(document: PolicyCheckDocument) -> Iterator[tuple[str, str]]:
    """Yields labels and texts about the decision. The first note says why the effective verdict is another."""
    notes = list(document["notes"])
    if document["effective"] != document["verdict"]:
        yield "because", notes.pop(0)
    yield "why", document["why"]
    yield "rule", _rule(document)
    if document["kind"] == "call":
        yield "risk", document["risk"]
    skill = document["skill"]
    if skill is not None:
        trusted = "trusted" if skill["trusted"] else "not trusted"
        yield "skill", f"{skill['id']} ({trusted})"
    for name, value in document["limits"].items():
        yield "limit", _limit(name, value)
    error = document["isolation_error"]
    if document["isolation"] is not None:
        yield "isolation", _isolation(document["isolation"])
    elif error is not None:
        yield "isolation", f"none: {error['message']}"
    for note in notes:
        yield "note", note
    for text in document["change"]:
        yield "to change", text


def _rule(document: PolicyCheckDocument) -> str:
    place = document["place"]
    if place is None:
        return document["rule"]
    return f"rule {place['number']} of {place['path']}, line {place['line']}"


def _steps(document: PolicyCheckDocument) -> list[tuple[str, str]]:
    """Returns a row for each part of policy that was asked. A grant that looked at nothing is left out."""
    rows: list[tuple[str, str]] = []
    for step in document["steps"]:
        looked_at = step["looked_at"]
        if step["by"] == "grant" and step["verdict"] is None and not looked_at:
            continue
        says = _says(step)
        if looked_at:
            says += f" [{'; '.join(looked_at)}]"
        mark = "=> " if step["decided"] else "   "
        who = _who(step)
        rows.append((f"{mark}{who}", says))
    return rows


def _says(step: PolicyStep) -> str:
    verdict = step["verdict"]
    if verdict:
        return f"{verdict}: {step['why']}"
    if step["tightens"] or step["by"] in ("configuration", "allowed-tools"):
        return "no objection"
    return "no answer"


def _who(step: PolicyStep) -> str:
    by = step["by"]
    if by == "require_approval_for":
        return "always asked"
    if by != "policy":
        return str(by)
    path = visible(step["path"] or "")
    if step["tightens"]:
        return f"{path} (can only tighten)"
    return path


def _call_text(document: PolicyCheckDocument) -> str:
    tool = document["tool"]
    args = json.dumps(document["args"], ensure_ascii=False)
    if len(args) > 400:
        args = f"{args[:399]}…"
    return f"{tool} {args}"


def _limit(name: str, value: Any) -> str:
    if name == "roots":  # for writing and deleting, besides work/ and out/
        folders = ", ".join(["work/", "out/", *value])
        return f"only below {folders}"
    shown = json.dumps(value, ensure_ascii=False)
    return f"{name}: {shown}"


def _isolation(held: IsolationRecord) -> str:
    where = f"user {held['uid']}, network {held['network']}"
    inside = f"{held['executor']} ({held['mechanism']}, {where})"
    limits = [f"{name} {state}" for name, state in held["limits"].items()]
    if not limits:
        return inside
    listed = " · ".join(limits)
    return f"{inside}; {listed}"
