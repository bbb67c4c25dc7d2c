"""Builds the parser of the command line: one click group that imports its commands on demand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from prowess.cli.call import BOUNDS, Call, answer
from prowess.cli.main import COMMANDS
from prowess.cli.screen import Screen
from prowess.core.findings import visible
from prowess.errors import ConfigError, SkillDenied
from prowess.runtime.settings import EXECUTORS


def run(args: Sequence[str]) -> int:
    return answer(lambda: _invoke(list(args) or ["--help"]), as_json="--json" in args)


def _invoke(args: list[str]) -> int:
    as_json = "--json" in args
    try:
        # group.main() would handle a closed pipe and an interrupt in its own way.
        with group.make_context("prowess", args) as context:
            code = group.invoke(context)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return _usage(error, as_json)
    except click.ClickException as error:
        Screen(json=as_json).error(ConfigError(error.format_message(), code="usage"))
        return 2
    except click.Abort:
        raise KeyboardInterrupt from None


def _usage(error: click.UsageError, as_json: bool) -> int:
    where = error.ctx.command_path if error.ctx else "prowess"
    runs_something = where == "prowess exec"  # there, 2 may be the exit code of the command that runs
    more = " The command comes after --: prowess exec SKILL -- COMMAND…" if runs_something else ""
    failure = ConfigError(error.format_message(), code="usage", hint=f"See: {where} --help.{more}")
    Screen(json=as_json).error(failure)
    return 125 if runs_something else 2


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        return module.COMMANDS[cmd_name] if hasattr(module, "COMMANDS") else module.command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No command '{args[0]}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


_GLOBAL: tuple[Callable[[Any], Any], ...] = (
    click.option("--json", "json", is_flag=True, help="Answer as JSON on stdout, errors too."),
    click.option("-v", "--verbose", count=True, help="Say more."),
    click.option("--config", "config_file", metavar="FILE", help="Use this configuration file for the project."),
    click.option("-C", "directory", metavar="DIR", help="Work as if started in DIR."),
)
_GLOBAL_NAMES = ("json", "verbose", "config_file", "directory")


def cli_command(name: str, *, example: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Turns a function into a click command with the global options and an example. Its first argument is a Call."""

    def make(function: Callable[..., int | None]) -> click.Command:
        def callback(**given: Any) -> int:
            inherited = dict(click.get_current_context().find_root().params)
            options = {key: given.pop(key, None) or inherited.get(key) for key in _GLOBAL_NAMES}
            options |= {key: given.pop(key, None) for key in BOUNDS} | {"to": given.get("to")}
            call = Call(options)
            with call.complete_hints(given.get("roots") or ()):
                code = function(call, **given)
            return code or (_NOT_ALL_FOUND.get(name, 1) if call.missing_roots else 0)

        callback.__doc__ = function.__doc__
        callback.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in _GLOBAL:
            option(callback)
        lines = "\n".join(f"  {line}" for line in example.strip().splitlines())
        return click.command(name, epilog=f"\b\nExample:\n{lines}", context_settings=_CONTEXT)(callback)

    return make


_NOT_ALL_FOUND = {"exec": 125}  # there, 1 may be the exit code of the command that runs
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Actions(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_none = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if has_none else args)


def actions(name: str, commands: dict[str, click.Command], *, help: str, example: str) -> click.Group:
    """Makes a command that has actions. Without an action it runs `list`."""
    lines = "\n".join(f"  {line}" for line in example.strip().splitlines())
    return _Actions(name, commands, help=help, epilog=f"\b\nExample:\n{lines}", context_settings=_CONTEXT)


def confirm_removal(
    what: str,
    *,
    refused: str | None = None,
    hint: str = "Look with --dry-run, then add --yes.",
    paths: Iterable[str] = (),
) -> None:
    """Asks the person at the terminal. Raises without one, and when the answer is no.

    `paths` are shown before the question. `refused` opens the error message, if not with `what` itself.
    """
    if not sys.stdin.isatty():
        message = f"{refused or what} would be removed, and nobody is there to say yes."
        raise ConfigError(message, code="needs-yes", hint=hint)
    for path in paths:
        sys.stderr.write(f"  {visible(path)}\n")
    ask_person(f"Remove {visible(what)}?", unless="Nothing was removed.")


def ask_person(question: str, *, unless: str) -> None:
    """Asks at the terminal. After a no, and after an interrupt, the person is told `unless`."""
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        sys.stderr.write(f"\n{unless}\n")
        raise
    raise SkillDenied(unless, code="not-confirmed", hint="")


def bounds_options(function: Any) -> Any:
    """Adds the options that limit the search for skills. The Call takes them; the command's function does not."""
    depth = click.option(
        "--max-depth", type=click.IntRange(0, 64), help="How many levels below a root to look.  [default: 6]"
    )
    entries = click.option(
        "--max-entries", type=click.IntRange(1), help="How many folder entries to see.  [default: 20000]"
    )
    nested = click.option(
        "--nested", is_flag=True, default=None, help="Also skills below a skill, as skills of their own."
    )
    return depth(entries(nested(function)))


def roots_option(function: Any) -> Any:
    root = click.option(
        "--root", "roots", multiple=True, metavar="DIR|URL", help="Look here, not in the default places. Repeatable."
    )
    return root(bounds_options(function))


class ExecutorChoice(click.Choice):
    """Our own executors; those of installed packages are looked up for another name only."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self.choices:
            return value
        return click.Choice([*self.choices, *EXECUTORS.added()]).convert(value, param, ctx)


def executor_option(help: str, *, must_run: bool = False) -> Callable[[Any], Any]:
    """Adds --executor. `must_run` leaves out `none`, with which the command could do nothing."""
    names = [name for name in EXECUTORS.own if name != "none" or not must_run]
    return click.option("--executor", type=ExecutorChoice(names), help=help)


source_option = click.option(
    "--source",
    type=click.Choice(["explicit", "project", "user", "url", "mcp", "builtin"]),
    help="Only skills of this source.",
)


@click.group(
    cls=Verbs,
    context_settings=_CONTEXT,
    epilog="\b\nExample:\n  prowess list\n  prowess validate ./my-skill",
    no_args_is_help=True,
)
@click.version_option(message="prowess %(version)s", package_name="prowess")
def group(**_: Any) -> None:
    """Find, check, show and load Agent Skills."""


for _option in _GLOBAL:
    group = _option(group)
