"""Command `prowess sessions`: lists, shows and deletes sessions."""

from __future__ import annotations

import click

from prowess.cli.app import Call, actions, cli_command, store_option
from prowess.cli.session_options import owner_options

_MOST = 1_000_000


@cli_command("list", example="prowess sessions list\nprowess sessions list --limit 100 --json")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many.")
@store_option
def sessions_list(call: Call, limit: int) -> int:
    """Show the sessions there are, whoever owns them, the one used last first.

    Expired sessions are removed.
    """
    from prowess.cli.handlers.sessions import show_sessions

    return show_sessions(call, limit)


@cli_command(
    "show",
    example="prowess sessions show s-1f2e\nprowess sessions show s-1f2e --events | jq .type\n"
    "prowess sessions show s-1f2e --user ann --store sqlite:///runs.db",
)
@click.argument("id")
@click.option("--events", is_flag=True, help="Print the events as they are stored, one per line.")
@owner_options
@store_option
def show_session(call: Call, id: str, events: bool, **owner: str | None) -> int:
    """Show what was asked, loaded, called and answered in a session, run by run."""
    from prowess.cli.handlers.sessions import show_session

    return show_session(call, id, events, owner)


@cli_command("delete", example="prowess sessions delete s-1f2e\nprowess sessions delete s-1f2e --files --yes")
@click.argument("id")
@click.option("--files", is_flag=True, help="Its workspace and its artifacts as well.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@owner_options
@store_option
def delete(call: Call, id: str, files: bool, yes: bool, **owner: str | None) -> int:
    """Remove a session: what was said and done in it, for good.

    The user's own artifacts stay in any case. A session that is in use is not removed.
    """
    from prowess.cli.handlers.sessions import delete

    return delete(call, id, files, yes, owner)


command = actions(
    "sessions",
    {"list": sessions_list, "show": show_session, "delete": delete},
    help="Show and remove what was said and done in sessions.\n\nWithout an action, the list.",
    example="prowess sessions list --json\nprowess sessions show s-1f2e",
)
