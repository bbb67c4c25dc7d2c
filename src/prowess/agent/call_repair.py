"""Repairs calls that name a skill instead of a tool (`Skill(pdf)`), or take a file of the workspace for one of a skill.
Stops calls that fail again and again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

from prowess._internal.json_values import INVALID_JSON, describe_fault, ends_early, find_invalid, read_again
from prowess.core.events import ModelReplied
from prowess.core.tool_table import TOOLS
from prowess.core.values import Outcome, ToolCall
from prowess.errors import ToolRetry
from prowess.policy.allowed_tools import canonical_tools
from prowess.tools.base import InvalidCall
from prowess.tools.toolset import TOOLS_LABEL

_AS_CALL = re.compile(r"[Ss]kill\(\s*+['\"]?+(?P<skill>[^'\"()]++)['\"]?+\s*+\)")
_AS_TOOL = frozenset(("Skill", "skill", "select_skills"))
_REPEATED = "repeat-failure"
_PATH_NAMES = ("path", "relative_path", "file_name", "file_path", "file")
_IN_WORKSPACE = re.compile(r"(?:\./)?(?:workspace://|\$\{?(?:OUTPUT|WORK)_DIR\}?/|(?:out|work|inputs|runs)/)")
MOST_ALIKE = 3


class CallNames(Protocol):
    """Names that a model can use in a call."""

    def tool_names(self) -> Sequence[str]:
        """Names of all tools that can be called."""
        ...

    def offered_names(self) -> Sequence[str]:
        """Names of the tools that the model is told."""
        ...

    def offered_arguments(self, tool: str) -> Collection[str]:
        """Names of the arguments of a tool that the model is told."""
        ...

    def names(self) -> Sequence[str]:
        """Names of the skills that a model may load."""
        ...

    def find_skill_name(self, text: str) -> str | None:
        """Finds the skill that a text names, among those that a model may load."""
        ...

    def has_file(self, skill: str, path: str) -> bool:
        """True if the skill is loaded and has a file of this path."""
        ...

    def last_reply(self) -> ModelReplied | None: ...


class CallRepair:
    """Repairs or refuses calls before they are decided. `load` is the model's name for skill_load."""

    def __init__(self, names: CallNames, *, load: str = "skill_load") -> None:
        self._names = names
        self._load = load
        self._repeated = RepeatedFailures()

    def find_tool(self, name: str) -> str:
        """Returns the tool that a name means. A tool of the caller wins over our names in other systems."""
        folded = name.casefold()
        names = self._names.tool_names()
        if name in names:
            return name
        for each in names:
            if each.casefold() == folded:
                return each
        return canonical_tools(name)[0]

    def route(self, call: ToolCall) -> tuple[ToolCall, str]:
        """Turns a call of a tool named like a skill into a call of skill_load. Returns it and a note for the model."""
        if INVALID_JSON in call.args:  # a model may imitate the form in which it was shown what it had sent
            call = replace(call, args=read_again(call.args))
        names = self._names.tool_names()
        tool = self.find_tool(call.tool)
        is_known = tool in names or tool in TOOLS
        is_load = tool == "skill_load" and call.tool in _AS_TOOL
        if is_known and not is_load:
            return self._route_to_file(call) if tool == "skill_read" else call, ""
        known = {*names, *TOOLS}
        return route_to_skill(call, known, self._names.find_skill_name, load=self._load)

    def _route_to_file(self, call: ToolCall) -> ToolCall:
        """Turns skill_read of a file of the workspace into read_file, which policy decides as that."""
        named = [name for name in _PATH_NAMES if call.args.get(name)]
        path = str(call.args[named[0]]) if named else ""
        if not _IN_WORKSPACE.match(path) or self._names.has_file(str(call.args.get("skill")), path.removeprefix("./")):
            return call
        lines = {name: call.args[name] for name in ("start_line", "num_lines") if call.args.get(name)}
        return replace(call, tool="read_file", args={"file_name": path, **lines})

    def refuse(self, call: ToolCall) -> Outcome | None:
        """Returns the outcome of a call that is not tried. Called for every normalised call."""
        last = self._repeated.find(call)
        if last is None:
            return check_complete(call, self._names.last_reply()) or check_json(call)
        hint = "Do something else, or say what is in the way."
        if not self._repeated.told:
            tools = _some(self._names.offered_names())
            skills = _some(self._names.names())
            hint = f"Skills: {skills}. Tools: {tools}. {hint}"
        self._repeated.refused()
        content = f"{call.tool} failed {MOST_ALIKE} times running with '{last}', and was not tried again."
        return Outcome(status="failed", code=_REPEATED, content=content, hint=hint)

    def describe_invalid(self, call: ToolCall, error: ToolRetry) -> str:
        """Says why a call is invalid. Names only tools and arguments that the model is told."""
        if not isinstance(error, InvalidCall):
            return str(error)
        names = self._names
        offered = names.offered_names() if error.label == TOOLS_LABEL else names.offered_arguments(call.tool)
        return str(error.among(offered))

    def note(self, call: ToolCall, outcome: Outcome) -> None:
        """Notes the outcome of a call, as the model wrote it."""
        self._repeated.note(call, outcome)


def route_to_skill(
    call: ToolCall, tools: Collection[str], find: Callable[[str], str | None], *, load: str = "skill_load"
) -> tuple[ToolCall, str]:
    """Turns a call of a tool named like a skill, or of `Skill(name)`, into a call of skill_load. Returns the call and a
    note for the model. `find`: text -> the name of a skill; `load`: the model's name for skill_load."""
    tool = call.tool
    if tool in _AS_TOOL:
        note = "" if tool == load else f"{tool} is called {load} here."
        return replace(call, tool="skill_load"), note
    if tool in tools:
        return call, ""
    written = _AS_CALL.fullmatch(tool)
    skill = find(written["skill"].strip() if written else tool)
    if skill is None:
        return call, ""
    args: dict[str, Any] = {"skill": skill}
    text = _arguments(call.args)
    if text:
        args["arguments"] = text
    note = f"'{tool}' is a skill, not a tool: it was taken as {load} {skill}."
    return replace(call, tool="skill_load", args=args), note


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
    """Finds repeated failures. After three calls in a row of one tool with the same error, the fourth is not tried.
    The failed calls are not tried again until something else was done. Other calls of that tool are tried."""

    def __init__(self) -> None:
        self.told = False  # the model was told the names of skills and tools
        self._last: tuple[str, str] | None = None
        self._count = 0
        self._failed: list[dict[str, Any]] = []  # arguments of the failed calls
        self._forms: dict[str, ToolCall] = {}  # normalised calls that are being made, by id

    def find(self, call: ToolCall) -> str | None:
        """Returns the code of the error that the call would repeat, else None."""
        self._forms[call.id] = call
        if self._last is None:
            return None
        tool, code = self._last
        if call.tool != tool:
            return None
        is_repeated = self._count >= MOST_ALIKE or (self.told and call.args in self._failed)
        return code if is_repeated else None

    def refused(self) -> None:
        """Starts counting again after a call was refused."""
        self._count = 0
        self.told = True

    def note(self, call: ToolCall, outcome: Outcome) -> None:
        """Counts the outcome of a call."""
        self._forms.pop(f"{call.id}-load", None)
        call = self._forms.pop(call.id, call)
        if outcome.code != _REPEATED:
            failure = _find_failure(call, outcome)
            if failure is None or failure != self._last:
                self._start(failure)
            self._count += 1
        if call.args not in self._failed:
            self._failed.append(call.args)

    def _start(self, failure: tuple[str, str] | None) -> None:
        """Starts counting another failure, or none."""
        self._last = failure
        self._count = 0
        self._failed = []
        self.told = False


def _find_failure(call: ToolCall, outcome: Outcome) -> tuple[str, str] | None:
    if outcome.status not in ("failed", "denied") or not outcome.code:
        return None
    return call.tool, str(outcome.code)


def check_complete(call: ToolCall, reply: ModelReplied | None) -> Outcome | None:
    """Outcome for a call that the length limit of the reply cut off: its arguments are empty or unreadable."""
    if reply is None or reply.finish != "length" or not reply.calls:
        return None
    last = reply.calls[-1]
    is_readable = not last.args.keys() <= {"arguments", INVALID_JSON}
    if last.id != call.id or is_readable:
        return None
    return Outcome(
        status="failed",
        code="cut-off",
        content=f"{call.tool} was cut off by the length limit of a reply, and was not made.",
        hint="Make it shorter: a long text in several calls.",
    )


def check_json(call: ToolCall) -> Outcome | None:
    """Outcome for a call whose arguments are no JSON object: what is wrong with them, and where."""
    text = find_invalid(call.args) if INVALID_JSON in call.args else None
    if text is None:
        return None
    hint = "Call it again with one JSON object."
    if ends_early(text):
        hint = "It ends too early. Call it again with the whole JSON object, and make it shorter if it was cut off."
    content = f"The arguments of {call.tool} are not valid JSON: {describe_fault(text)}."
    return Outcome(status="failed", code="invalid-json", content=content, hint=hint)


def _some(names: Sequence[str]) -> str:
    """Lists at most 30 names."""
    listed = ", ".join(names[:30]) or "none"
    more = len(names) - 30
    if more <= 0:
        return listed
    return f"{listed} and {more} more"
