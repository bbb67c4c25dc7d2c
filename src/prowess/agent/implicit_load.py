"""Loads the skill of a call that names one which is not loaded yet: skill_run, skill_exec and skill_read.

The load is a call of skill_load, decided and recorded like any other, before the call itself. Then the call is decided
under the narrowed list. If it would ask a person, it is not made: the model gets the instructions and is told to call
again. The instructions come before the result. The load does not count against `limits.calls`, because it is a part of
a call that does; the limits on loaded skills hold.
"""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import replace
from typing import Any

from prowess.agent.context import Conversation
from prowess.agent.toolkit_options import SkillAccess
from prowess.core.tool_table import LOADING_TOOLS
from prowess.core.values import Outcome, ToolCall
from prowess.errors import SkillError
from prowess.tools.session_work import SessionWork

_VIEW = ("skill", "name", "digest")
_SHOWN = "show_with_call"  # in the outcome of the load, in place of `show`
CALL_AGAIN = Outcome(
    status="failed",
    code="call-again",
    content="It was not made yet: a person has to approve it. Follow the skill's text, then call again.",
)


class ImplicitLoads:
    def __init__(self, work: SessionWork, skills: SkillAccess, talk: Conversation, *, required: bool) -> None:
        """`required`: the model has to load a skill itself."""
        self.turn: asyncio.Lock = asyncio.Lock()  # calls that are made at the same time load a skill once
        self._work = work
        self._skills = skills
        self._talk = talk
        self._required = required

    def find_call(self, call: ToolCall) -> ToolCall | None:
        """Returns the load that a call needs first. None if its skill is loaded, or has to be loaded by the model."""
        if self._required or call.tool not in LOADING_TOOLS:
            return None
        id = f"{call.id}-load"
        was_killed = self._talk.was_begun(id)
        renamed = self.rename(call)
        if self._is_loaded(renamed) and not was_killed:
            return None
        args = {"skill": call.args["skill"], "reason": f"implicit:{call.tool}"}
        return ToolCall(id=id, tool="skill_load", args=args, trigger=call.trigger)

    def find_earlier(self, call: ToolCall) -> Outcome | None:
        """Finds the load that this call made before the process was killed."""
        if self._talk.find_outcome(call.id) is not None:
            return None
        load = self._talk.find_outcome(f"{call.id}-load")
        if load is None or _SHOWN not in load.data:
            return None
        return load

    def rename(self, call: ToolCall) -> ToolCall:
        """Names the skill of a call by its id, if only the catalog knows the name that the model wrote."""
        if self._is_loaded(call):
            return call
        entry = self._skills.catalog().find(call.args["skill"])
        if entry is None or entry.id not in self._work.loaded:
            return call
        return replace(call, args={**call.args, "skill": entry.id})

    def is_unread(self, call: ToolCall) -> bool:
        """True if another call of the same reply loaded the skill: the model has not seen its text yet."""
        loads = (self._talk.find_outcome(f"{other.id}-load") for other in self._talk.last_calls)
        fresh = {load.data.get("skill") for load in loads if load is not None}
        return bool(fresh) and self._is_loaded(call) and self._work.get(call.args["skill"]).skill.entry.id in fresh

    def _is_loaded(self, call: ToolCall) -> bool:
        ref = call.args.get("skill")
        if not isinstance(ref, str):
            return True  # the tool of somebody else has no such argument
        try:
            self._work.get(ref)
        except SkillError as error:
            return error.code != "skill-not-loaded"
        return True


def hide_text(load: Outcome) -> Outcome:
    """Leaves it to the outcome of the call to show the texts of a load."""
    if "show" not in load.data:
        return load
    data = dict(load.data)
    data[_SHOWN] = data.pop("show")
    return replace(load, data=data)


def find_refusal(call: ToolCall, load: Outcome) -> Outcome | None:
    """Returns the outcome of a call whose skill was not loaded into this conversation."""
    is_apart = "child" in load.data
    if load.status == "ok" and not is_apart:
        return None
    said = load.content
    if is_apart:  # its answer is shown with the load
        said = "The skill is done by a child run."
    data: dict[str, Any] = {}
    if load.status == "waiting":
        data["call"] = {"tool": call.tool, "args": call.args}  # to make it again
    content = f"{said}\nThe call itself was not made."
    return Outcome(status=load.status, code=load.code, content=content, hint=load.hint, data=data)


def reads_body(call: ToolCall) -> bool:
    """True for skill_read of the SKILL.md, which a load shows."""
    if call.tool != "skill_read":
        return False
    asked = dict(call.args)
    asked.pop("skill")
    path = asked.pop("path")
    return not asked and posixpath.normpath(path) == "SKILL.md"


def show_load(load: Outcome) -> Outcome:
    """Returns the outcome of a call that asked for nothing but the instructions."""
    data = dict(load.data)
    data["show"] = data.pop(_SHOWN)
    return replace(load, data=data)


def add_load(call: ToolCall, outcome: Outcome, load: Outcome) -> Outcome:
    """Adds a load to the outcome of the call that it was made for. A program that ran before its skill was read is
    called early: a small model makes up a command, and takes its end for the answer."""
    view = _find_view(load)
    view.update(outcome.data)
    if call.tool != "skill_read" and outcome.code != CALL_AGAIN.code:
        view["early"] = True
    return replace(outcome, data=view)


def _find_view(load: Outcome) -> dict[str, Any]:
    """Returns what an outcome needs to show the texts of a load."""
    data = load.data
    view = {name: data[name] for name in _VIEW}
    view["show"] = data[_SHOWN]
    view["loaded"] = data.get("stub", load.content)
    if "unloaded" in data and "stub" not in data:  # then the content says so
        view["unloaded"] = data["unloaded"]
    return view
