"""Command `prowess policy check`: explains what policy says about a call, without making it."""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, cli_command, executor_option, roots_option


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
    from prowess.cli.handlers.policy import check

    return check(call, action, tool, words, **given)
