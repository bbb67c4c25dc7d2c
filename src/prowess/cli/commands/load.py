"""Command `prowess load`: prints what a model gets when it loads a skill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command, roots_option, source_option
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.runtime.services.documents import finding_row
from prowess.skills.load import read_resource, select_docs
from prowess.skills.render import render_doc, render_skill

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import LoadDocument


@cli_command("load", example="prowess load csv-report\nprowess load csv-report --docs 'references/*.md'")
@click.argument("name")
@click.option("--docs", "docs", multiple=True, metavar="GLOB", help="Also these docs of the skill. May be repeated.")
@click.option("--as-model", is_flag=True, help="Refuse what only a person may start, as for a model.")
@source_option
@roots_option
def command(
    call: Call, name: str, docs: tuple[str, ...], as_model: bool, source: str | None, roots: tuple[str, ...]
) -> int:
    """Print what a model gets when it loads a skill.

    For people who want to see it, and, with --as-model, for agents that only have a shell.
    """
    trigger = "model" if as_model else "caller"
    with call.runtime(roots=roots) as runtime:
        skill = runtime.load(name, source=source, trigger=trigger)
        chosen = select_docs(skill, docs)
        parts = [render_skill(skill)]
        for doc in chosen:
            content = read_resource(skill, doc)
            parts.append(render_doc(skill, doc, content))
        text = "\n".join(parts)
        if call.screen.is_json:
            ref = skill.entry.ref._replace(digest=skill.digest)
            findings = [finding_row(finding) for finding in skill.findings]
            document: LoadDocument = {
                "schema": "prowess.load/1",
                "skill": to_json(ref),
                "directory": skill.directory,
                "docs": chosen,
                "text": text,
                "findings": findings,
            }
            call.screen.document(document)
        else:
            call.screen.text(text)
            for finding in skill.findings:
                if finding.severity != "info":
                    message = visible(finding.message)
                    call.screen.note(f"{finding.severity}: {message} [{finding.code}]")
    return 0
