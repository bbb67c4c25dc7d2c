"""Command `prowess approvals`: lists, answers, grants and revokes approvals."""

from __future__ import annotations

import click

from prowess.cli.app import Call, actions, cli_command, roots_option, source_option, store_option
from prowess.cli.session_options import owner_options


@cli_command("grant", example="prowess approvals grant csv-report\nprowess approvals grant csv-report --yes --json")
@click.argument("name", metavar="SKILL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@source_option
@roots_option
def give(call: Call, name: str, yes: bool, source: str | None, roots: tuple[str, ...]) -> int:
    """Approve the tools in a skill's allowed-tools, for exactly the content that it has now.

    They then run without a question where a person would be asked because there is no isolation. Nothing else changes:
    what is off, denied, of high risk or always asked about stays so. When the skill changes, a person is asked again.
    Take it back with: prowess approvals revoke SKILL.
    """
    from prowess.cli.handlers.approvals import grant

    return grant(call, name, yes, source, roots)


@cli_command("list", example="prowess approvals list\nprowess approvals list -v\nprowess approvals list --json")
@store_option
def list_approvals(call: Call) -> int:
    """Show the questions that wait for an answer, and what is approved for good.

    With -v each question is shown in full, as it would have been at a terminal.
    """
    from prowess.cli.handlers.approvals import list_approvals

    return list_approvals(call)


@cli_command(
    "answer",
    example="prowess approvals answer call-2 yes\n"
    "prowess approvals answer call-2 always --session s-1f2e\n"
    'prowess approvals answer call-2 no --because "use the copy in work/"',
)
@click.argument("call_id", metavar="CALL")
@click.argument("said", metavar="yes|once|run|always|no", type=click.Choice(["yes", "once", "run", "always", "no"]))
@click.option("--session", metavar="ID", help="The session that it waits in, when several have such a call.")
@click.option("--token", metavar="TOKEN", help="Of the question that was shown: the answer counts for no other.")
@click.option("--because", metavar="TEXT", help="Why not; the model is told.")
@owner_options
@store_option
def answer(
    call: Call,
    call_id: str,
    said: str,
    session: str | None,
    token: str | None,
    because: str | None,
    **owner: str | None,
) -> int:
    """Answer a question that waits; the session then goes on with `prowess run --session ID --resume`.

    yes and once: this call. run: the same tool for the same skill until the run ends. always: this tool for exactly
    this content of the skill, from now on. no: the model is told, and does something else.
    """
    from prowess.cli.handlers.approvals import answer

    return answer(call, call_id, said, session, token, because, owner)


@cli_command("revoke", example="prowess approvals revoke 2\nprowess approvals revoke demo --capability skill_run --yes")
@click.argument("which", metavar="NUMBER|SKILL")
@click.option("--capability", metavar="C", help="Only this tool or capability.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def take_back(call: Call, which: str, capability: str | None, yes: bool) -> int:
    """Take back what was approved for good: one approval by its number, or all of a skill.

    It counts from the next call on, also in runs that are going on.
    """
    from prowess.cli.handlers.approvals import revoke

    return revoke(call, which, capability, yes)


command = actions(
    "approvals",
    {"list": list_approvals, "answer": answer, "grant": give, "revoke": take_back},
    help="Answer questions that wait, and see or take back what is approved for good.\n\nWithout an action, the list.",
    example="prowess approvals list --json\nprowess approvals answer call-2 yes",
)
