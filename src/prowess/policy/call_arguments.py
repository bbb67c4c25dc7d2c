"""Finds criteria of a rule that no tool can match, by the arguments that the tool table has."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from prowess.core.tool_table import ARGUMENTS, COMMAND_TOOLS, PATH_ARGUMENTS, WRITING_TOOLS, Argument
from prowess.policy.globs import match_anything, match_some_word
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
    arguments = ARGUMENTS.get(tool, {})
    if argument not in arguments:
        return None
    return arguments[argument].default


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
    known = [tool for tool in ARGUMENTS if not tools or match_some_word(tools, tool)]
    candidates = list(known)
    if not tools or any(name not in ARGUMENTS for name in tools):
        candidates.append(_OTHER)
    who = ", ".join(named)[:120]
    criteria: list[_Criterion] = []
    if command:
        criteria.append(_command(who))
    if paths:
        criteria.append(_path(paths, who, known, allows))
    for name in about_skill:
        criteria.append(_about_skill(name, who))
    for name, patterns in arguments.items():
        criteria.append(_argument(name, patterns, who, known, allows))
    return _explain_misfit(criteria, candidates)


def _explain_misfit(criteria: Sequence[_Criterion], candidates: Sequence[str]) -> Misfit | None:
    """Names the smallest group of criteria that no tool can match: one, a pair, or all of them."""
    if _fit_together(criteria, candidates):
        return None
    for each in criteria:
        if not _fit_together([each], candidates):
            why, hint = each.explain()
            return Misfit(f"{each.name} fits nothing, because {why}", hint)
    conflicting = criteria
    for pair in combinations(criteria, 2):
        if not _fit_together(pair, candidates):
            conflicting = pair
            break
    names = " and ".join(each.name for each in conflicting)
    return Misfit(f"{names} fit no call together", "No tool has all of these. Write two rules.")


def _fit_together(criteria: Sequence[_Criterion], candidates: Sequence[str]) -> bool:
    for tool in candidates:
        unmatched = [each for each in criteria if not each.fits(tool)]
        if not unmatched:
            return True
    return False


def _command(who: str) -> _Criterion:
    why = f"{who} runs no command"
    hint = f'Commands are run by {_listed(COMMAND_TOOLS)}: write tool = "Bash", or leave tool out.'
    return _Criterion("command", COMMAND_TOOLS.__contains__, lambda: (why, hint))


def _path(paths: Sequence[str], who: str, known: Sequence[str], allows: bool) -> _Criterion:
    above = allows and all(map(is_about_top, paths))

    def fits(tool: str) -> bool:
        if above and tool in WRITING_TOOLS:
            return False
        return tool in PATH_ARGUMENTS

    def explain() -> tuple[str, str]:
        if above and not set(WRITING_TOOLS).isdisjoint(known):
            why = f"{who} goes below work/ and out/ only, and a pattern without a slash allows nothing below a folder"
            hint = f"Write: path = 'out/**/{paths[0][:60]}'."
            return why, hint
        why = f"{who} has no path that a rule looks at"
        hint = f"These tools have a path: {_listed(PATH_ARGUMENTS)}. For a tool that runs commands use: command."
        return why, hint

    return _Criterion("path", fits, explain)


def _about_skill(name: str, who: str) -> _Criterion:
    naming = [tool for tool, arguments in ARGUMENTS.items() if arguments.keys() & _NAME_A_SKILL]
    why = f"a call of {who} names no skill"
    hint = f"Leave {name} out. Calls of these name a skill: {_listed(naming)}."
    fitting = {*naming, _OTHER}
    return _Criterion(name, fitting.__contains__, lambda: (why, hint))


def _argument(name: str, patterns: Sequence[str], who: str, known: Sequence[str], allows: bool) -> _Criterion:
    having: dict[str, Argument] = {}
    for tool in known:
        if name in ARGUMENTS[tool]:
            having[tool] = ARGUMENTS[tool][name]

    def fits(tool: str) -> bool:
        if tool == _OTHER:
            return True
        argument = having.get(tool)
        if argument is None:
            return False
        if argument.is_table and allows:
            return False
        return not argument.only or _some_value_fits(patterns, argument.only)

    def explain() -> tuple[str, str]:
        if not having:
            return _explain_missing(name, who, known)
        if all(argument.is_table for argument in having.values()):
            return f"'{name}' is a table, and what allows has to be certain", "Ask or deny instead, or leave it out."
        values: set[str] = set()
        for argument in having.values():
            values.update(argument.only)
        return f"'{name}' is never that", f"It can be: {_listed(sorted(values))}."

    return _Criterion(f"args.{name[:60]}", fits, explain)


def _some_value_fits(patterns: Sequence[str], values: Iterable[str]) -> bool:
    return any(match_anything(pattern, value) for pattern in patterns for value in values)


def _explain_missing(name: str, who: str, known: Sequence[str]) -> tuple[str, str]:
    """Returns that no named tool has the argument, and the nearest name as a hint."""
    every: set[str] = set()
    for tool in known:
        every.update(ARGUMENTS[tool])
    names = sorted(every)
    hint = f"There are: {_listed(names)}."
    near = difflib.get_close_matches(name[:60], names, n=1, cutoff=0.5)
    if near:
        hint = f"Did you mean '{near[0]}'? {hint}"
    return f"{who} has no argument '{name[:60]}'", hint


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names)
