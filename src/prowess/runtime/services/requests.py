"""Requests of a person in a session: the skills that are in use, and the limit to raise so that a run can go on.

A surface takes the types of a session from here, under TYPE_CHECKING: it need not know the agent, nor import it to show
its help.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from prowess.agent.agent import SkillRequest
from prowess.core.ports import PreparedModel
from prowess.core.tool_table import RISKS
from prowess.core.values import Usage
from prowess.errors import ConfigError
from prowess.runtime.runtime import Runtime
from prowess.skills.skill import Skill

if TYPE_CHECKING:
    from prowess.agent.agent import Limits
    from prowess.agent.agent import Result as Result
    from prowess.agent.session import Session
    from prowess.agent.toolkit import Toolkit as Toolkit
    from prowess.workspace.run_file import RunFile as RunFile

ROUTINE_TOOLS = frozenset(tool for tool, risk in RISKS.items() if risk == "low")  # their success is not worth a line
_LEAST = {"seconds": 30, "calls": 5, "scripts": 2}  # a raised limit is no lower


class SkillsInUse:
    """Skills that a person put to use in a session. They come with every request until they are unloaded."""

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self._runtime = runtime
        self._session = session
        self.requests: dict[str, SkillRequest] = {}  # by id
        self._dropped: set[str] = set()  # unloaded since the last request

    def load(self, ref: str, arguments: str = "") -> Skill:
        """Puts a skill to use from the next request on. The arguments are for that request only."""
        skill = self._runtime.load(ref, trigger="user")
        id = skill.entry.id
        self.requests[id] = SkillRequest(ref=id, trigger="user", arguments=arguments)
        return skill

    async def unload(self, ref: str) -> None:
        entry = self._runtime.catalog.find(ref)
        id = ref if entry is None else entry.id
        loaded = self.ids()
        if id not in loaded:
            names = ", ".join(sorted(loaded)) or "none"
            raise ConfigError(f"'{ref[:80]}' is not loaded.", code="skill-not-loaded", hint=f"Loaded: {names}")
        requested = self.requests.pop(id, None)
        was_used = requested is None or id in self.ids()
        if was_used and self._session.agent.load_mode == "session":
            await self._session.kit.call("skill_unload", {"skill": id})
        self._dropped.add(id)  # in the other modes the next request starts without it anyway

    def ids(self) -> set[str]:
        """Returns the ids of skills that the last request used, or that the next one will use."""
        state = self._session.kit.conversation.state
        used = {skill.id for skill in state.skills.values()}
        used -= self._dropped
        return used | set(self.requests)

    def ended(self) -> set[str]:
        """Returns the ids of skills that only the last request had: the next one begins without them."""
        session = self._session
        if session.agent.load_mode == "session":
            return set()
        talk = session.kit.conversation
        return set(talk.loads) - talk.unloaded - self._dropped - set(self.requests)

    def answered(self) -> None:
        """Says that the last request was answered: what was given for it alone is dropped."""
        for id, request in self.requests.items():
            self.requests[id] = SkillRequest(ref=request.ref, trigger=request.trigger)
        self._dropped.clear()


def prepare_model(session: Session) -> None:
    """Begins, in a thread, what the first request to the model needs, such as the import of an SDK."""
    model = session.agent.model
    if isinstance(model, PreparedModel):
        threading.Thread(target=_prepare, args=(model,), daemon=True).start()


def _prepare(model: PreparedModel) -> None:
    with suppress(Exception):  # the first request meets the same error, and reports it
        model.prepare()


def raise_limit(limits: Limits, stop_reason: str, usage: Usage) -> tuple[str, float] | None:
    """Returns the limit that ended a run, and a value with which the run can go on; None when no limit ended it.

    What was used still counts after a resume. So the value is doubled, and it is well above what was used.
    """
    name = stop_reason.removeprefix("limit:")
    if name == stop_reason:
        return None
    limit = getattr(limits, name)
    if limit is None:
        return None
    least = _LEAST.get(name, 1)
    if name == "tokens":
        least = 2 * (usage.input + usage.output)
    return name, max(2 * limit, least)
