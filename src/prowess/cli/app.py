"""Builds the parser of the command line: one click group that imports its commands on demand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from prowess.cli.call import BOUNDS, Call, answer
from prowess.cli.line_input import confirm
from prowess.cli.main import COMMANDS
from prowess.cli.screen import Screen
from prowess.core.findings import visible
from prowess.errors import ConfigError, SkillDenied
from prowess.runtime.settings import EXECUTORS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    words = list(args) or ["--help"]
    as_json = "--json" in words
    return answer(lambda: _invoke(words), as_json=as_json)


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
        return _usage(error, as_json, args)
    except click.ClickException as error:
        Screen(json=as_json).error(ConfigError(error.format_message(), code="usage"))
        return 2
    except click.Abort:
        raise KeyboardInterrupt from None


_WORDS = {" a valid integer range": " a whole number", " a valid float range": " a number", "\n\t": " "}  # of click


def _usage(error: click.UsageError, as_json: bool, args: list[str]) -> int:
    where = "prowess"
    if error.ctx:
        where = error.ctx.command_path
    elif args[0] in COMMANDS:  # click does not say it of an option without its value
        where = f"prowess {args[0]}"
    hint = f"See: {where} --help."
    code = 2
    if where == "prowess exec":  # there, 2 may be the exit code of the command that runs
        hint += " The command comes after --: prowess exec SKILL -- COMMAND…"
        code = 125
    message = error.format_message()
    for word, ours in _WORDS.items():
        message = message.replace(word, ours)
    failure = ConfigError(message, code="usage", hint=hint)
    Screen(json=as_json).error(failure)
    return code


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        path, _ = COMMANDS[cmd_name]
        module = importlib.import_module(path)
        if hasattr(module, "COMMANDS"):
            return module.COMMANDS[cmd_name]
        return module.command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else "--help"
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        import difflib

        message = f"No command '{name}'."
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        if near:
            message += f" Did you mean '{near[0]}'?"
        raise click.UsageError(message, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


_GLOBAL: tuple[Callable[[Any], Any], ...] = (
    click.option("--json", "json", is_flag=True, help="Answer as JSON on stdout, errors too."),
    click.option("-v", "--verbose", count=True, help="Say more."),
    click.option("--config", "config_file", metavar="FILE", help="Use this configuration file for the project."),
    click.option("-C", "directory", metavar="DIR", help="Work as if started in DIR."),
)
_CALL_NAMES = ("json", "verbose", "config_file", "directory", "store")


def cli_command(name: str, *, example: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Turns a function into a click command with the global options and an example. Its first argument is a Call."""

    def make(function: Callable[..., int | None]) -> click.Command:
        def callback(**given: Any) -> int:
            roots = given.get("roots") or ()
            call = Call(_take_options(given))
            with call.complete_hints(roots):
                code = function(call, **given)
            if not code and call.missing_roots:
                return _NOT_ALL_FOUND.get(name, 1)
            return code or 0

        callback.__doc__ = function.__doc__
        callback.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in _GLOBAL:
            option(callback)
        decorate = click.command(name, epilog=_epilog(example), context_settings=_CONTEXT)
        return decorate(callback)

    return make


def _take_options(given: dict[str, Any]) -> dict[str, Any]:
    """Takes the options of the Call out of those of a command. A global option may also stand before the command."""
    inherited = click.get_current_context().find_root().params
    options: dict[str, Any] = {}
    for key in _CALL_NAMES:
        own = given.pop(key, None)
        options[key] = own or inherited.get(key)
    for key in BOUNDS:
        options[key] = given.pop(key, None)
    options["to"] = given.get("to")
    return options


def _epilog(example: str) -> str:
    lines = example.strip().splitlines()
    indented = "\n".join(f"  {line}" for line in lines)
    return f"\b\nExample:\n{indented}"


_NOT_ALL_FOUND = {"exec": 125}  # there, 1 may be the exit code of the command that runs
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Actions(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Adds `list` where no action is named. A shell that completes words wants the actions."""
        is_option = bool(args) and args[0].startswith("-")
        is_named = bool(args) or ctx.resilient_parsing
        if not is_named or (is_option and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Completes actions, and the options of `list`, which may follow at once."""
        listing = self.commands["list"]
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return found
        return listing.shell_complete(click.Context(listing, parent=ctx), incomplete)


def actions(name: str, commands: dict[str, click.Command], *, help: str, example: str) -> click.Group:
    """Makes a command that has actions. Without an action it runs `list`."""
    epilog = _epilog(example)
    return _Actions(name, commands, help=help, epilog=epilog, context_settings=_CONTEXT)


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
        subject = refused or what
        message = f"{subject} would be removed, and nobody is there to say yes."
        raise ConfigError(message, code="needs-yes", hint=hint)
    for path in paths:
        shown = visible(path)
        sys.stderr.write(f"  {shown}\n")
    question = f"Remove {visible(what)}?"
    ask_person(question, unless="Nothing was removed.")


def ask_person(question: str, *, unless: str) -> None:
    """Asks at the terminal. After a no, and after an interrupt, the person is told `unless`."""
    try:
        if confirm(question):
            return
    except KeyboardInterrupt:
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
    """Adds --root, and the options that limit the search for skills."""
    root = click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="DIR|URL",
        help="Look here, not in the default places; the words builtin and default work too. Repeatable.",
    )
    return root(bounds_options(function))


class ExecutorChoice(click.Choice):
    """Our own executors; those of installed packages are looked up for another name only."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self.choices:
            return value
        names = [*self.choices, *EXECUTORS.added()]
        every = click.Choice(names)
        return every.convert(value, param, ctx)


def executor_option(help: str, *, must_run: bool = False) -> Callable[[Any], Any]:
    """Adds --executor. `must_run` leaves out `none`, with which the command could do nothing."""
    names = list(EXECUTORS.own)
    if must_run:
        names.remove("none")
    choice = ExecutorChoice(names)
    return click.option("--executor", type=choice, help=help)


source_option = click.option(
    "--source",
    type=click.Choice(["explicit", "project", "user", "url", "mcp", "builtin"]),
    help="Only skills of this source.",
)


store_option = click.option(
    "--store",
    metavar="STORE",
    help="Another store, such as a program's: a path, sqlite:///runs.db, postgresql://….  [default: as configured]",
)


def _check_place(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value != "":
        return value
    hint = "Use project, user, or a folder."
    raise ConfigError("--to is empty.", code="usage", hint=hint)


to_option = click.option(
    "--to",
    default="project",
    callback=_check_place,
    metavar="project|user|DIR",
    help="Where skills are installed: .agent/skills of the project or of your home, or a folder.  [default: project]",
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
