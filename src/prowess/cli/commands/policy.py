"""Command `prowess policy check`: explains what policy says about a call, without making it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import click

from prowess.cli.app import Call, cli_command, executor_option, roots_option
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.runtime.services.argument_words import parse_words
from prowess.runtime.services.policy_check import check_call

if TYPE_CHECKING:
    from prowess.core.isolation import IsolationRecord
    from prowess.runtime.documents.permissions import PolicyCheckDocument, PolicyStep

_NOT_MET = 1


@cli_command(
    "policy",
    example="prowess policy check Bash 'git push' --skill release\n"
    "prowess policy check write_file path=out/report.md\n"
    'prowess policy check skill_run \'{"skill": "csv-report", "script": "scripts/report.py"}\' --executor local\n'
    "prowess policy check network_request https://example.com --require deny --json",
)
@click.argument("action", type=click.Choice(["check"]))
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[JSON | KEY=VALUE | TEXT]...")
@click.option(
    "--skill", "skills", multiple=True, metavar="NAME", help="The skill that the call names, or that is loaded."
)
@executor_option("What would run it.", must_run=True)
@click.option("--isolation", is_flag=True, help="Say what isolation holds here even for a tool that runs nothing.")
@click.option(
    "--require", type=click.Choice(["allow", "ask", "deny"]), help="Exit with 1 when the effective verdict is another."
)
@roots_option
def command(call: Call, action: str, tool: str, words: tuple[str, ...], **given: Any) -> int:
    """Explain what policy says about a call, which rule of which file decided, and what would change it.

    The call is not made. TOOL is a tool, an alias of another system, or a capability. Its arguments are one JSON
    object, or KEY=VALUE words (a VALUE that begins with [ or { is JSON); one TEXT is the command, script, path,
    pattern or URL. --skill may be repeated: loaded skills narrow calls that name no skill. Exit code 0 for every
    verdict, except with --require.
    """
    if not tool.strip():
        raise ConfigError("TOOL is empty.", code="usage", hint="Name a tool, an alias or a capability.")
    if re.search(r"[()]", tool):
        problem = f"'{tool[:80]}' is an entry of allowed-tools, not a call."
        raise ConfigError(problem, code="usage", hint="Write a tool, and what it is told: Bash 'git status'.")
    args = parse_words(tool, words)
    with call.runtime(roots=given["roots"], flags={"workspace.executor": given["executor"]}) as runtime:
        document = asyncio.run(check_call(runtime, tool, args, given["skills"], isolation=given["isolation"]))
        if call.screen.is_json:
            call.screen.document(document)
        else:
            _show(call, document)
    met = given["require"] in (None, document["effective"])
    if not met and not call.screen.is_json:
        call.screen.note(f"What would come of it is {document['effective']}, and {given['require']} was required.")
    return 0 if met else _NOT_MET


# --- for people -----------------------------------------------------------------------------------------------------


def _show(call: Call, document: PolicyCheckDocument) -> None:
    screen = call.screen
    place, skill, notes = document["place"], document["skill"], list(document["notes"])
    rows = []
    headline = screen.styled(document["effective"], "heading")
    if document["effective"] != document["verdict"]:
        rows.append(("because", notes.pop(0)))
        alone = "policy" if document["loads"] is None else document["tool"]
        headline += f" ({alone} alone: {document['verdict']})"
    screen.text(f"{headline}  {visible(_call_text(document))}")
    rows += [("why", document["why"]), ("rule", document["rule"])]
    if place is not None:
        rows[-1:] = [("rule", f"rule {place['number']} of {place['path']}, line {place['line']}")]
    if document["kind"] == "call":
        rows.append(("risk", document["risk"]))
    if skill is not None:
        rows.append(("skill", f"{skill['id']} ({'trusted' if skill['trusted'] else 'not trusted'})"))
    rows += [("limit", _limit(name, value)) for name, value in document["limits"].items()]
    if document["isolation"] is not None:
        rows.append(("isolation", _isolation(document["isolation"])))
    elif document["isolation_error"] is not None:
        rows.append(("isolation", f"none: {document['isolation_error']['message']}"))
    rows += [("note", note) for note in notes]
    rows += [("to change", text) for text in document["change"]]
    screen.fields([(f"  {label}", text) for label, text in rows])
    screen.text()
    screen.heading("Asked, in this order")
    screen.fields(list(_steps(document)))


def _steps(document: PolicyCheckDocument) -> list[tuple[str, str]]:
    rows = []
    for step in document["steps"]:
        if step["by"] == "grant" and step["verdict"] is None and not step["looked_at"]:
            continue
        narrows = step["tightens"] or step["by"] in ("configuration", "allowed-tools")
        says = f"{step['verdict']}: {step['why']}" if step["verdict"] else "no objection" if narrows else "no answer"
        about = f" [{'; '.join(step['looked_at'])}]" if step["looked_at"] else ""
        mark = "=> " if step["decided"] else "   "
        rows.append((f"{mark}{_who(step)}", f"{says}{about}"))
    return rows


def _who(step: PolicyStep) -> str:
    if step["by"] == "policy":
        return f"{visible(step['path'] or '')}{' (can only tighten)' if step['tightens'] else ''}"
    return "always asked" if step["by"] == "require_approval_for" else str(step["by"])


def _call_text(document: PolicyCheckDocument) -> str:
    args = json.dumps(document["args"], ensure_ascii=False)
    return f"{document['tool']} {args if len(args) <= 400 else args[:399] + '…'}"


def _limit(name: str, value: Any) -> str:
    if name == "roots":  # for writing and deleting, besides work/ and out/
        return f"only below {', '.join(('work/', 'out/', *value))}"
    return f"{name}: {json.dumps(value, ensure_ascii=False)}"


def _isolation(held: IsolationRecord) -> str:
    limits = " · ".join(f"{name} {state}" for name, state in held["limits"].items())
    inside = f"{held['executor']} ({held['mechanism']}, user {held['uid']}, network {held['network']})"
    return f"{inside}; {limits}" if limits else inside
