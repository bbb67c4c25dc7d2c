"""What a model meant, when it is not what it said; and when to stop it from saying the same wrong thing for ever."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from prowess.values import Outcome, ToolCall

_AS_CALL = re.compile(r"[Ss]kill\(\s*+['\"]?+(?P<skill>[^'\"()]++)['\"]?+\s*+\)")
_AS_TOOL = frozenset(("Skill", "skill", "select_skills"))
MOST_ALIKE = 3


def route_to_skill(call: ToolCall, tools: Collection[str], find: Callable[[str], str | None]) -> tuple[ToolCall, str]:
    """A tool named like a skill is that skill, loaded; and so is `Skill(name)`. `find`: text -> the name of a skill."""
    if call.tool in _AS_TOOL:
        return replace(call, tool="skill_load"), f"{call.tool} is called skill_load here."
    if call.tool in tools:
        return call, ""
    written = _AS_CALL.fullmatch(call.tool)
    skill = find(written["skill"].strip() if written else call.tool)
    if skill is None:
        return call, ""
    args: dict[str, Any] = {"skill": skill}
    if text := _arguments(call.args):
        args["arguments"] = text
    word = f"'{call.tool}' is a skill, not a tool: it was taken as skill_load {skill}."
    return replace(call, tool="skill_load", args=args), word


def _arguments(args: dict[str, Any]) -> str:
    if not args:
        return ""
    if len(args) == 1 and isinstance(only := next(iter(args.values())), str):
        return only
    try:
        return json.dumps(args, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return ""


class RepeatedFailures:
    """The same tool with the same error three times running: the fourth call of it is not tried."""

    def __init__(self, names: Callable[[], Sequence[str]], tools: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._tools = tools
        self._last: tuple[str, str] | None = None
        self._count = 0

    def note(self, call: ToolCall, outcome: Outcome) -> None:
        failed = outcome.status in ("failed", "denied") and outcome.code
        key = (call.tool, str(outcome.code)) if failed else None
        self._count = 0 if key is None else self._count + 1 if key == self._last else 1
        self._last = key

    def refuse(self, call: ToolCall) -> Outcome | None:
        if self._last is None or self._count < MOST_ALIKE or call.tool != self._last[0]:
            return None
        code, self._last, self._count = self._last[1], None, 0
        return Outcome(
            status="failed",
            code="repeat-failure",
            content=f"{call.tool} failed {MOST_ALIKE} times running with '{code}', and was not tried again.",
            hint=f"Skills: {_some(self._names())}. Tools: {_some(self._tools())}. "
            "Do something else, or say what is in the way.",
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    return (", ".join(names[:30]) or "none") + more
