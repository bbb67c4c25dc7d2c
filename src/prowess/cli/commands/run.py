"""Commands `prowess run` and `prowess chat`, which share their options."""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.session_options import (
    session_options,
)


@cli_command(
    "run",
    example="""
prowess run "How many words are in @notes.txt?"
prowess run "Summarise @sales.csv" --model openai:gpt-5 --yes skill_run --output-dir results
cat notes.txt | prowess run "summarise"
prowess run --session s-1f2e3d4c5b6a --resume""",
)
@click.argument("request", required=False)
@session_options
def _run(call: Call, request: str | None, **given: Any) -> int:
    """Let a model do something with skills.

    The answer alone goes to stdout, what happens meanwhile to stderr. `@path` in REQUEST attaches a file, as does
    standard input; without a REQUEST, standard input is the request. `/name …` at its start and `$name` in it put a
    skill to use. Exit code: 0 there is an answer, 1 a limit or an error, 2 usage or configuration, 3 a skill that you
    named was denied, 4 a call waits for approval, 130 interrupted.
    """
    from prowess.cli.handlers.run import run

    return run(call, request, **given)


@cli_command(
    "chat",
    example="""
prowess chat
prowess chat --model openai:gpt-5 --root ./skills
prowess chat --session s-1f2e3d4c5b6a""",
)
@session_options
def _chat(call: Call, **given: Any) -> int:
    """Talk with a model that has skills.

    Each line is a request; /help lists the commands. `/name …` puts a skill to use, as does `$name` in a line, and
    `@path` gives a file. Ctrl-C ends the request that is being answered; at the prompt it clears the line, and twice it
    leaves. Lines may come from a pipe: then the exit code is that of the last one that had no answer, as with
    `prowess run`.
    """
    from prowess.cli.handlers.chat import run_chat

    return run_chat(call, **given)


COMMANDS = {"run": _run, "chat": _chat}
