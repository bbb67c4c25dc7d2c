"""What a model meant, when it is not what it said; and when to stop it from saying the same wrong thing for ever."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from prowess.core.events import ModelReplied
from prowess.core.values import Outcome, ToolCall

_AS_CALL = re.compile(r"[Ss]kill\(\s*+['\"]?+(?P<skill>[^'\"()]++)['\"]?+\s*+\)")
_AS_TOOL = frozenset(("Skill", "skill", "select_skills"))
_REPEATED = "repeat-failure"
MOST_ALIKE = 3


def route_to_skill(
    call: ToolCall, tools: Collection[str], find: Callable[[str], str | None], *, load: str = "skill_load"
) -> tuple[ToolCall, str]:
    """A tool named like a skill is that skill, loaded; and so is `Skill(name)`. `find`: text -> the name of a skill;
    `load`: the model's word for loading one."""
    if call.tool in _AS_TOOL:
        return replace(call, tool="skill_load"), "" if call.tool == load else f"{call.tool} is called {load} here."
    if call.tool in tools:
        return call, ""
    written = _AS_CALL.fullmatch(call.tool)
    skill = find(written["skill"].strip() if written else call.tool)
    if skill is None:
        return call, ""
    args: dict[str, Any] = {"skill": skill}
    if text := _arguments(call.args):
        args["arguments"] = text
    word = f"'{call.tool}' is a skill, not a tool: it was taken as {load} {skill}."
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
    """The same tool with the same error three times running: the fourth call of it is not tried, and none of those that
    failed is tried again before something else was done. Another call of that tool is."""

    def __init__(self, names: Callable[[], Sequence[str]], tools: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._tools = tools
        self._last: tuple[str, str] | None = None
        self._count = 0
        self._failed: list[dict[str, Any]] = []  # arguments of the calls that failed so
        self._refused = False
        self._forms: dict[str, ToolCall] = {}  # by id: calls that are being made, by our names

    def note(self, call: ToolCall, outcome: Outcome) -> None:
        self._forms.pop(f"{call.id}-load", None)
        call = self._forms.pop(call.id, call)
        if outcome.code != _REPEATED:
            failed = outcome.status in ("failed", "denied") and outcome.code
            key = (call.tool, str(outcome.code)) if failed else None
            if key is None or key != self._last:
                self._last, self._count, self._failed, self._refused = key, 0, [], False
            self._count += 1
        if call.args not in self._failed:
            self._failed.append(call.args)

    def refuse(self, call: ToolCall) -> Outcome | None:
        """Asked about every call, once it has its own form."""
        self._forms[call.id] = call
        if self._last is None or call.tool != self._last[0]:
            return None
        if self._count < MOST_ALIKE and not (self._refused and call.args in self._failed):
            return None
        there_are = "" if self._refused else f"Skills: {_some(self._names())}. Tools: {_some(self._tools())}. "
        self._count, self._refused = 0, True
        return Outcome(
            status="failed",
            code=_REPEATED,
            content=f"{call.tool} failed {MOST_ALIKE} times running with '{self._last[1]}', and was not tried again.",
            hint=f"{there_are}Do something else, or say what is in the way.",
        )


def check_complete(call: ToolCall, reply: ModelReplied | None) -> Outcome | None:
    """For the call at which the reply reached its length limit: what came of its arguments is no object, or nothing."""
    last = reply.calls[-1] if reply is not None and reply.calls and reply.finish == "length" else None
    if last is None or last.id != call.id or not last.args.keys() <= {"arguments"}:
        return None
    return Outcome(
        status="failed",
        code="cut-off",
        content=f"{call.tool} was cut off by the length limit of a reply, and was not made.",
        hint="Make it shorter: a long text in several calls.",
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    return (", ".join(names[:30]) or "none") + more
