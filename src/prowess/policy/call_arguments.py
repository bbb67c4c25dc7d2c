"""Table of the arguments of each tool, as policy sees them. Finds criteria of a rule that no tool can match.

The tools declare the same arguments in their schemas. A test keeps both in step, because policy imports no tool.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from prowess.policy.allowed_tools import COMMAND_TOOLS, PATH_ARGUMENTS
from prowess.policy.globs import match_anything, match_word
from prowess.policy.path_match import WRITING, is_about_top


class Argument(NamedTuple):
    default: str | None = None  # value when the call leaves it out
    only: tuple[str, ...] = ()  # all possible values; empty: any
    is_table: bool = False  # not a text, so no pattern matches it for certain


_ANY, _TABLE = Argument(), Argument(is_table=True)
_FLAG = Argument("false", ("false", "true"))
_OF_SKILL = {"skill": _ANY}
_RUN = {
    **dict.fromkeys(("skill", "command", "script", "args", "cwd", "stdin", "output_files", "timeout"), _ANY),
    **dict.fromkeys(("env", "inputs", "outputs"), _TABLE),
    **dict.fromkeys(("save_as_artifacts", "omit_inline_content"), _FLAG),
    **dict.fromkeys(("artifact_prefix", "install"), _ANY),
}
_WATCH = {"session_id": _ANY, "yield_ms": Argument("400"), "poll_lines": Argument("40")}
_DOCS = {**_OF_SKILL, "docs": _ANY, "include_all_docs": _FLAG}
ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "skill_load": {**_DOCS, **dict.fromkeys(("source", "arguments", "reason"), _ANY)},
    "skill_list_docs": _OF_SKILL,
    "skill_select_docs": {**_DOCS, "mode": Argument("replace", ("replace", "add", "clear"))},
    "skill_read": {
        **_OF_SKILL,
        **dict.fromkeys(("path", "section", "start_line", "num_lines", "section_hint"), _ANY),
    },
    "skill_run": _RUN,
    "skill_exec": {**_RUN, "tty": _FLAG, "yield_ms": Argument("1000"), "poll_lines": Argument("40")},
    "skill_write_stdin": {**_WATCH, "chars": _ANY, "submit": _FLAG, "eof": _FLAG},
    "skill_poll_session": _WATCH,
    "skill_kill_session": {"session_id": _ANY},
    "skill_unload": _OF_SKILL,
    "skill_search": {"query": _ANY, "limit": Argument("5")},
    "update_plan": {"plan": _TABLE, "patch": _ANY},
    "ask_user": {"question": _ANY, "choices": _ANY},
    "read_file": dict.fromkeys(("file_name", "start_line", "num_lines"), _ANY),
    "list_dir": {"path": Argument("."), "depth": Argument("1"), "pattern": _ANY},
    "grep": {
        "pattern": _ANY,
        "path": Argument("."),
        "glob": _ANY,
        "max_results": Argument("50"),
        "ignore_case": _FLAG,
    },
    "write_file": {"path": _ANY, "content": _ANY},
    "delete_file": {"path": _ANY},
    "network_request": {
        "url": _ANY,
        "method": Argument("GET", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")),
        "headers": _TABLE,
        "body": _ANY,
    },
    "install_dependencies": dict.fromkeys(("skill", "script", "dependencies", "digest", "by"), _ANY),
}
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
    return ARGUMENTS.get(tool, {}).get(argument, _ANY).default


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
        return tool in PATH_ARGUMENTS and not (above and tool in WRITING)

    def explain() -> tuple[str, str]:
        if above and not WRITING.isdisjoint(known):
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
