"""Completes words of the command line for bash, zsh and fish. Writes nothing but its answer, also when it fails.

The shell's script starts `prowess` with the words so far in the environment, and `run` answers. The arguments of a
command are completed by their names and metavars, so that a new command needs nothing of its own here.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from prowess.cli.app import Verbs, group
from prowess.cli.main import COMMANDS, COMPLETING
from prowess.core.findings import visible
from prowess.core.tool_table import RISKS
from prowess.errors import ProwessError
from prowess.runtime.services.skill_names import CompletionPlace

_Items = list[CompletionItem[str]]
_Find = Callable[[click.Context, str], _Items]


def run(args: Sequence[str]) -> int:
    """Answers the shell. An error would land on the line that a person types, so it is silent: nothing is offered."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    shell, _, _ = os.environ[COMPLETING].partition("_")
    with suppress(ProwessError, OSError, click.ClickException):
        answer = open_completion(shell).complete()
        sys.stdout.buffer.write(f"{answer}\n".encode())
    return 0


def open_completion(shell: str) -> ShellComplete:
    """Returns the script and the completions of a shell."""
    completing = _CompletingVerbs(group.name, params=group.params, context_settings=group.context_settings)
    return SHELLS[shell](completing, {}, "prowess", COMPLETING)


class _Bash(BashComplete):
    def get_completion_args(self) -> tuple[list[str], str]:
        """Leaves out `=`, which is a word of its own in bash."""
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete

    def source(self) -> str:
        """Renders the script without asking which bash is installed here: another one may read it."""
        return ShellComplete.source(self)


class _WholeWords(ShellComplete):
    """Completes `--option=value`, which is one word in these shells."""

    def get_completions(self, args: list[str], incomplete: str) -> _Items:
        items = super().get_completions(args, incomplete)
        option, mark, _ = incomplete.partition("=")
        if mark and option.startswith("--"):
            for item in items:
                item.value = f"{option}={item.value}"
        return items


class _Zsh(_WholeWords, ZshComplete):
    pass


class _Fish(_WholeWords, FishComplete):
    # A description may have commas.
    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


class _CompletingVerbs(Verbs):
    """Commands whose arguments can be completed. Only the command that is on the line is imported."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _teach(command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        return click.Group.resolve_command(self, ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> _Items:
        summaries: dict[str, str] = {}
        for name, (_, summary) in COMMANDS.items():
            summaries[name] = summary
        found = _beginning_with(incomplete, summaries)
        found += click.Command.shell_complete(self, ctx, incomplete)
        return found


def _teach(command: click.Command) -> None:
    """Gives each argument and option the completion that its name or metavar stands for."""
    if isinstance(command, click.Group):
        for action in command.commands.values():
            _teach(action)
    for param in command.params:
        if param.type is click.STRING or param.type is click.UNPROCESSED:
            find = _choose(command.name or "", param)
            if find is not None:
                param.type = _Completed(find)


class _Completed(click.ParamType):
    name = "text"

    def __init__(self, find: _Find) -> None:
        self._find = find

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
        return self._find(ctx, incomplete)


def _choose(command: str, param: click.Parameter) -> _Find | None:
    name = param.name or ""
    metavar = param.metavar or ""
    if name in _FILES or "FILE" in metavar or "PATH" in metavar:
        return lambda ctx, incomplete: [CompletionItem(incomplete, type="file")]
    if name in _BY_NAME and command not in _OTHER_NAMES:
        return _BY_NAME[name]
    if "DIR" in metavar:
        return lambda ctx, incomplete: [CompletionItem(incomplete, type="dir")]
    return None


def _lookup(place: str) -> _Find:
    """Returns a completion from a function that is imported when it is needed."""

    module_name, _, name = place.partition(":")

    def find(ctx: click.Context, incomplete: str) -> _Items:
        module = importlib.import_module(module_name)
        names = getattr(module, name)
        directory = _option(ctx, "directory") or "."
        cwd = os.path.abspath(directory)
        roots = ctx.params.get("roots") or ()
        config_file = _option(ctx, "config_file")
        wanted = CompletionPlace(cwd, os.environ, roots, config_file)
        found = names(wanted)
        return _beginning_with(incomplete, found)

    return find


def _tools(ctx: click.Context, incomplete: str) -> _Items:
    tools = dict.fromkeys(RISKS, "")
    return _beginning_with(incomplete, tools)


_skills = _lookup("prowess.runtime.services.skill_names:find_skills")
_runs = _lookup("prowess.runtime.services.record_names:find_run_ids")
_sessions = _lookup("prowess.runtime.services.record_names:find_session_ids")
_BY_NAME: dict[str, _Find] = {
    "name": _skills,
    "names": _skills,
    "skill": _skills,
    "skills": _skills,
    "id": _sessions,
    "session": _sessions,
    "run": _runs,
    "a": _runs,
    "b": _runs,
    "tool": _tools,
}
_OTHER_NAMES = ("new", "schema", "install", "put")  # they take a name that is no skill's
_FILES = ("path", "paths", "file", "sources")


def _beginning_with(incomplete: str, found: dict[str, str]) -> _Items:
    items: _Items = []
    for name, text in found.items():
        if name.startswith(incomplete):
            shown = visible(text)
            item = CompletionItem(name, help=shown or None)
            items.append(item)
    return items


def _option(ctx: click.Context, name: str) -> str | None:
    """Returns a global option, which may stand before the command or after it."""
    own = ctx.params.get(name)
    before = ctx.find_root().params
    return own or before.get(name)
