"""prowess approvals grant"""

from __future__ import annotations

import sys

import click

from prowess.cli.app import Call, roots_option, source_option, verb
from prowess.core.findings import visible
from prowess.errors import ConfigError, SkillDenied
from prowess.policy.approvals import ALLOWED_TOOLS, grant, make_standing
from prowess.runtime.factories import whoami


@verb("grant", example="prowess approvals grant csv-report\nprowess approvals grant csv-report --yes --json")
@click.argument("name", metavar="SKILL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@source_option
@roots_option
def give(call: Call, name: str, yes: bool, source: str | None, roots: tuple[str, ...]) -> int:
    """Let a skill's own allowed-tools list grant, with exactly the content that it has now.

    What its list names then runs without a question where a person would be asked because there is no isolation. It
    never goes beyond that: what is off, denied, of high risk or always asked about stays so. A changed skill is asked
    about again. Take it back with: prowess approvals revoke SKILL.
    """
    with call.runtime(roots=roots) as runtime:
        skill = runtime.load(name, source=source)
        listed = skill.entry.controls.allowed_tools
        if not listed:
            raise ConfigError(
                f"The skill '{skill.name}' has no allowed-tools that could grant anything.",
                code="nothing-to-grant",
                hint="Only what a skill lists can be granted.",
            )
        what = f"{skill.entry.id} ({skill.digest[:19]}): {', '.join(listed)}"
        if not yes:
            _confirm(visible(what))
        grant(runtime.places.state_dir, make_standing(skill, ALLOWED_TOOLS, whoami()))
        if call.screen.is_json:
            document = {"skill": skill.entry.id, "digest": skill.digest, "allowed_tools": list(listed)}
            call.screen.document({"schema": "prowess.approval-granted/1", **document})
        else:
            call.screen.text(f"granted  {visible(what)}")
    return 0


def _confirm(what: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("Nobody is there to say yes.", code="needs-yes", hint="Add --yes.")
    if not click.confirm(f"Let this run without a question, where its source is trusted? {what}", err=True):
        raise SkillDenied("Nothing was granted.", code="not-confirmed", hint="")
