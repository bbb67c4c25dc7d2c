"""Command `prowess completion`: prints the script with which a shell completes our commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.completion import SHELLS, open_completion

if TYPE_CHECKING:
    from prowess.runtime.documents.shared import CompletionDocument


@cli_command(
    "completion",
    example="""
prowess completion fish > ~/.config/fish/completions/prowess.fish
eval "$(prowess completion bash)"
eval "$(prowess completion zsh)"
""",
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(call: Call, shell: str) -> int:
    """Print the script with which a shell completes commands, options, skills, sessions and runs.

    Put the line with eval into the file that your shell reads at its start: ~/.bashrc, or ~/.zshrc below compinit. bash
    has to be 4.4 or newer.
    """
    script = open_completion(shell).source()
    if call.screen.is_json:
        document: CompletionDocument = {"schema": "prowess.completion/1", "shell": shell, "script": script}
        call.screen.document(document)
    else:
        call.screen.text(script.rstrip("\n"))
    return 0
