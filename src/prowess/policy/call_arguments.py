"""Finds criteria of a rule that no tool can match, by the arguments that the tool table has."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from prowess.core.tool_table import ARGUMENTS, COMMAND_TOOLS, PATH_ARGUMENTS, WRITING_TOOLS, Argument
from prowess.policy.globs import match_anything, match_word
from prowess.policy.path_match import is_about_top

_NAME_A_SKILL = frozenset(("skill", "session_id"))  # a running session belongs to a skill too
_OTHER = ""  # stands for every foreign tool: it can have any argument


class Misfit(NamedTuple):
    """Reason why no call can match the criteria, and a hint."""

    problem: str
    hint: str


class _Criterion(NamedTuple):
    name: str
    fits: Callable[[str], bool]  # whether a call of this tool can match
    explain: Callable[[], tuple[str, str]]  # why no named tool can match, and a hint


def find_default(tool: str, argument: str) -> str | None:
    return ARGUMENTS.get(tool, {}).get(argument, Argument()).default


def find_misfit(
    named: Sequence[str],
    tools: Sequence[str],
    arguments: Mapping[str, Sequence[str]],
    *,
    command: bool,
    paths: Sequence[str],
    about_skill: Sequence[str],
    allows: bool,
) -> Misfit | None:
    """Returns None when some call can match all criteria at once. `named` are the tools as written, `tools` their
    Prowess names. `about_skill` says which of `skill` and `source` the rule has."""
    known = [tool for tool in ARGUMENTS if not tools or any(match_word(name, tool) for name in tools)]
    others = not tools or any(name not in ARGUMENTS for name in tools)
    candidates = [*known, _OTHER] if others else known
    who = ", ".join(named)[:120]
    criteria = [
        *([_command(who)] if command else []),
        *([_path(paths, who, known, allows)] if paths else []),
        *(_about_skill(name, who) for name in about_skill),
        *(_argument(name, patterns, who, known, allows) for name, patterns in arguments.items()),
    ]
    if any(all(criterion.fits(tool) for criterion in criteria) for tool in candidates):
        return None
    for each in criteria:
        if not any(map(each.fits, candidates)):
            why, hint = each.explain()
            return Misfit(f"{each.name} fits nothing, because {why}", hint)
    pairs = (pair for pair in combinations(criteria, 2) if not any(all(c.fits(t) for c in pair) for t in candidates))
    names = " and ".join(each.name for each in next(pairs, criteria))
    return Misfit(f"{names} fit no call together", "No tool has all of these. Write two rules.")


def _command(who: str) -> _Criterion:
    hint = f'Commands are run by {_listed(COMMAND_TOOLS)}: write tool = "Bash", or leave tool out.'
    return _Criterion("command", COMMAND_TOOLS.__contains__, lambda: (f"{who} runs no command", hint))


def _path(paths: Sequence[str], who: str, known: Sequence[str], allows: bool) -> _Criterion:
    above = allows and all(map(is_about_top, paths))

    def fits(tool: str) -> bool:
        return tool in PATH_ARGUMENTS and not (above and tool in WRITING_TOOLS)

    def explain() -> tuple[str, str]:
        if above and not set(WRITING_TOOLS).isdisjoint(known):
            why = f"{who} goes below work/ and out/ only, and a pattern without a slash allows nothing below a folder"
            return why, f"Write: path = 'out/**/{paths[0][:60]}'."
        hint = f"These tools have a path: {_listed(PATH_ARGUMENTS)}. For a tool that runs commands use: command."
        return f"{who} has no path that a rule looks at", hint

    return _Criterion("path", fits, explain)


def _about_skill(name: str, who: str) -> _Criterion:
    naming = [tool for tool, arguments in ARGUMENTS.items() if arguments.keys() & _NAME_A_SKILL]
    hint = f"Leave {name} out. Calls of these name a skill: {_listed(naming)}."
    fits = {*naming, _OTHER}.__contains__
    return _Criterion(name, fits, lambda: (f"a call of {who} names no skill", hint))


def _argument(name: str, patterns: Sequence[str], who: str, known: Sequence[str], allows: bool) -> _Criterion:
    having = {tool: found for tool in known if (found := ARGUMENTS[tool].get(name)) is not None}

    def fits(tool: str) -> bool:
        if tool == _OTHER:
            return True
        argument = having.get(tool)
        if argument is None or (argument.is_table and allows):
            return False
        return not argument.only or any(match_anything(p, value) for p in patterns for value in argument.only)

    def explain() -> tuple[str, str]:
        if not having:
            names = sorted({each for tool in known for each in ARGUMENTS[tool]})
            near = difflib.get_close_matches(name[:60], names, n=1, cutoff=0.5)
            meant = f"Did you mean '{near[0]}'? " if near else ""
            return f"{who} has no argument '{name[:60]}'", f"{meant}There are: {_listed(names)}."
        if all(argument.is_table for argument in having.values()):
            return f"'{name}' is a table, and what allows has to be certain", "Ask or deny instead, or leave it out."
        values = sorted({value for argument in having.values() for value in argument.only})
        return f"'{name}' is never that", f"It can be: {_listed(values)}."

    return _Criterion(f"args.{name[:60]}", fits, explain)


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names)
