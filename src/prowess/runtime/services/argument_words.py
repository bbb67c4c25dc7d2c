"""Parses words that a person wrote as the arguments of a tool: JSON, KEY=VALUE words, or plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from prowess.core.tool_table import ARGUMENTS, CAPABILITIES, COMMAND_TOOLS, TOOLS
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import canonical_tools, describe_unknown
from prowess.tools.arguments import ExecArguments

_PAIR = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Arguments that unnamed texts stand for, in this order. Some tool names of other systems have their own.
_MAIN: dict[str, tuple[str, ...]] = {
    **{each.name: each.positional for each in TOOLS.values()},
    **dict.fromkeys(CAPABILITIES, ("skill",)),
    "run_script": ("script",),
    "glob": ("pattern", "path"),
}
_OF_A_COMMAND = (*ARGUMENTS["skill_exec"], *ExecArguments.ALIASES)  # `FOO=1 curl x` is a command, not an argument


def parse_words(tool: str, words: Sequence[str]) -> dict[str, Any]:
    """Parses arguments: one JSON object, KEY=VALUE words, or texts for the main arguments of the tool."""
    if len(words) == 1:
        (only,) = words
        if only.lstrip().startswith("{"):
            return _json(only, dict, "a JSON object")
        if _is_list(only):
            raise ConfigError(f"'{only[:80]}' is not a JSON object.", code="usage", hint="Arguments have names.")
    ours = canonical_tools(tool)[0]
    main = _MAIN.get(tool.casefold()) or _MAIN.get(ours, ())
    args: dict[str, Any] = {}
    for word in words:
        pair = _PAIR.fullmatch(word)
        if pair is not None and (ours not in COMMAND_TOOLS or pair[1] in _OF_A_COMMAND):
            args[pair[1]] = _value(pair[2])
            continue
        unsaid = [name for name in main if name not in args]
        if not unsaid:
            raise _no_argument(tool, word, words)
        args[unsaid[0]] = word
    return args


def _no_argument(tool: str, word: str, words: Sequence[str]) -> ConfigError:
    ours = canonical_tools(tool)[0]
    if ours in COMMAND_TOOLS:
        command = " ".join(words)
        hint = f"A command is one word: put it in quotes, '{command[:80]}'."
    elif ours in ARGUMENTS:
        names = ", ".join(ARGUMENTS[ours])
        hint = f"Write KEY=VALUE words, or one JSON object. Its arguments: {names}."
    else:
        described = describe_unknown(tool)
        near = described[len(tool) :].strip(" ()")
        meant = f" ({near})" if near else ""
        hint = f"No tool of that name is known here{meant}. Of another one, write KEY=VALUE words."
    return ConfigError(f"'{word[:80]}' is no argument of {tool[:80]}.", code="usage", hint=hint)


def _is_list(text: str) -> bool:
    """True for a JSON list. `[ -f x ]` is a command and not a list."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list)


def _value(text: str) -> Any:
    """Parses the value of a KEY=VALUE word."""
    if text.startswith(("{", "[")):
        return _json(text, (dict, list), "JSON")
    return text


def _json(text: str, kind: Any, wanted: str) -> Any:
    """Parses JSON of this type. `wanted` is what it should be, for a message."""
    shown = text[:80]
    try:
        value = json.loads(text, parse_constant=_check_constant)
    except (ValueError, RecursionError) as error:
        problem = f"'{shown}' is not {wanted}: {error}."
        raise ConfigError(problem, code="usage", hint="Check its quotes and brackets.") from None
    if not isinstance(value, kind):
        raise ConfigError(f"'{shown}' is not {wanted}.", code="usage", hint="Arguments have names.")
    return value


def _check_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
