"""The command line's frame: one group, verbs imported on demand, and every error shown once, in the form that was
asked for.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from prowess.cli.main import VERBS
from prowess.cli.render import Screen
from prowess.errors import ConfigError, ProwessError
from prowess.runtime import Runtime, open_runtime
from prowess.skills.findings import Note, make_finding, visible
from prowess.skills.index import Bounds
from prowess.skills.roots import is_missing, named_root


def run(args: Sequence[str]) -> int:
    """Run one call. Never a traceback for something a user can do."""
    _have_streams()
    as_json = "--json" in args
    try:
        if not args:
            args = ["--help"]
        # Not group.main(): that would answer a closed pipe and an interrupt in its own way.
        with group.make_context("prowess", list(args)) as context:
            code = group.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ProwessError as error:
        Screen(json=as_json).error(error)
        return error.exit_code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return _usage(error, as_json)
    except click.ClickException as error:
        Screen(json=as_json).error(ConfigError(error.format_message(), code="usage"))
        return 2
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("Interrupted.\n")
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that vanished: the user's world, not our mistake
        if error.filename is None:  # it may be stdout itself that cannot be written to
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            as_json = False
        reason = error.strerror or type(error).__name__
        place = f": {error.filename}" if error.filename else ""
        failure = ProwessError(
            f"The system refused{place}: {reason.lower()}.",
            code="system-error",
            hint="Check that the path exists, may be read or written, and that the disk is not full.",
        )
        Screen(json=as_json).error(failure)
        return 1


def leave() -> None:
    """After an interrupt: what was cut off in its midst says nothing more, and one more ends us without a word."""
    import logging  # only who is interrupted pays for it
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.unraisablehook = lambda _: None
    logging.getLogger("asyncio").disabled = True


def _usage(error: click.UsageError, as_json: bool) -> int:
    where = error.ctx.command_path if error.ctx else "prowess"
    runs_something = where == "prowess exec"  # there 2 is what the command may have said
    more = " The command comes after --: prowess exec SKILL -- COMMAND…" if runs_something else ""
    failure = ConfigError(error.format_message(), code="usage", hint=f"See: {where} --help.{more}")
    Screen(json=as_json).error(failure)
    return 125 if runs_something else 2


def _have_streams() -> None:
    """Output is UTF-8 whatever the locale says, and what UTF-8 cannot hold is spelled out instead of raising. A stream
    that was closed before we started is nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(encoding="utf-8", errors="backslashreplace")


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name][0])
        return module.COMMANDS[cmd_name] if hasattr(module, "COMMANDS") else module.command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No verb '{args[0]}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in VERBS.items()])


class Call:
    """One call of one verb: what was asked for globally, and how to answer."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.screen = Screen(json=bool(options.get("json")), verbose=int(options.get("verbose") or 0))
        self.missing_roots: list[str] = []

    @property
    def cwd(self) -> str:
        directory = self.options.get("directory")
        if directory is None:
            try:
                return os.getcwd()
            except FileNotFoundError:
                raise ConfigError(
                    "The working folder does not exist any more.",
                    code="no-folder",
                    hint="Change to another one, or use -C.",
                ) from None
        if not os.path.isdir(directory):
            raise ConfigError(f"There is no folder '{directory}'.", code="no-folder", hint="Check the value of -C.")
        return os.path.abspath(directory)

    @contextmanager
    def runtime(
        self, *, roots: Sequence[str] = (), without_files: bool = False, flags: dict[str, Any] | None = None
    ) -> Iterator[Runtime]:
        with open_runtime(
            cwd=self.cwd,
            environ=os.environ,
            roots=roots,
            flags=flags,
            config_file=self.options.get("config_file"),
            without_files=without_files,
            bounds=self.bounds,
        ) as runtime:
            self._warn_of_missing(roots, runtime)
            yield runtime

    def _warn_of_missing(self, places: Sequence[str], runtime: Runtime) -> None:
        """A root that was named and is no folder ends the call with exit code 1, whatever else it found."""
        for place in places:
            root = named_root(place, origin="flag", base=runtime.places.cwd, home=runtime.places.home)
            code = "root-missing" if is_missing(root) else "root-not-folder" if os.path.isfile(root.path) else None
            if code is not None and root.path not in self.missing_roots:
                self.missing_roots.append(root.path)
                found = make_finding(Note(code, None, {"kind": "a regular file"}), visible(root.path))
                self.screen.note(f"warning: {found.path}: {found.message} {found.hint} [{code}]")

    def where(self) -> list[str]:
        """The options that say which project this is about."""
        given = (("-C", self.options.get("directory")), ("--config", self.options.get("config_file")))
        return [word for flag, value in given if value for word in (flag, str(value))]

    def follow_up(self, text: str, roots: Sequence[str] = ()) -> str:
        """The text, with commands that can be copied: what was said about project and skills is in them, too."""
        about_skills = [*(["--nested"] if self.options.get("nested") else [])]
        about_skills += [word for root in roots for word in ("--root", root)]

        def complete(found: re.Match[str]) -> str:
            return shlex.join([*found[0].split(), *self.where(), *(about_skills if found["skills"] else [])])

        return re.sub(_COMMANDS, complete, text)

    @property
    def bounds(self) -> Bounds:
        given = {name: self.options[name] for name in _BOUNDS if self.options.get(name) is not None}
        return Bounds()._replace(**given)


_GLOBAL: tuple[Callable[[Any], Any], ...] = (
    click.option("--json", "json", is_flag=True, help="Answer as JSON on stdout, errors too."),
    click.option("-v", "--verbose", count=True, help="Say more."),
    click.option("--config", "config_file", metavar="FILE", help="Use this configuration file for the project."),
    click.option("-C", "directory", metavar="DIR", help="Work as if started in DIR."),
)
_GLOBAL_NAMES = ("json", "verbose", "config_file", "directory")
_COMMANDS = (
    r"\bprowess (?:(?P<skills>list|doctor|inspect|load|search)\b"
    r"|(?:sessions|runs|approvals|artifacts) list\b|config show\b)"
)
_BOUNDS = ("max_depth", "max_entries", "nested")


def verb(name: str, *, example: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """A verb: a click command that takes the global options, shows an example, and is handed a Call first."""

    def make(function: Callable[..., int | None]) -> click.Command:
        def callback(**given: Any) -> int:
            inherited = dict(click.get_current_context().find_root().params)
            options = {key: given.pop(key, None) or inherited.get(key) for key in _GLOBAL_NAMES}
            options |= {key: given.pop(key, None) for key in _BOUNDS}
            call = Call(options)
            try:
                code = function(call, **given)
            except ProwessError as error:
                error.hint = error.hint and call.follow_up(error.hint, given.get("roots") or ())
                raise
            return code or (_NOT_ALL_FOUND.get(name, 1) if call.missing_roots else 0)

        callback.__doc__ = function.__doc__
        callback.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in _GLOBAL:
            option(callback)
        lines = "\n".join(f"  {line}" for line in example.strip().splitlines())
        return click.command(name, epilog=f"\b\nExample:\n{lines}", context_settings=_CONTEXT)(callback)

    return make


_NOT_ALL_FOUND = {"exec": 125}  # there 1 is what the command may have said
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Actions(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_none = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if has_none else args)


def actions(name: str, commands: dict[str, click.Command], *, help: str, example: str) -> click.Group:
    """A verb that has actions; without one, the list."""
    lines = "\n".join(f"  {line}" for line in example.strip().splitlines())
    return _Actions(name, commands, help=help, epilog=f"\b\nExample:\n{lines}", context_settings=_CONTEXT)


def bounds_options(function: Any) -> Any:
    """How far to look. The Call takes them; a verb's function does not see them."""
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
