"""The commands of a chat: what the person wants to know or to change, without asking the model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from prowess.agent.activation import Wish
from prowess.agent.context.usage import add_usage
from prowess.agent.session import Session
from prowess.cli.call_text import one_line
from prowess.cli.live import render_usage
from prowess.cli.screen import Screen, count, printable
from prowess.core.values import Plan, Usage
from prowess.errors import ConfigError
from prowess.runtime.runtime import Runtime
from prowess.skills.skill import Entry
from prowess.skills.spelling import near_names

HELP = {
    "skills": "list the skills, and which are loaded",
    "load": "NAME [arguments]: put a skill to use, with your next message and until /unload",
    "unload": "NAME: stop using a skill",
    "plan": "show the plan of the last request",
    "cost": "show the tokens, and the money where prices are known",
    "session": "show the session, and how to come back to it",
    "help": "show this",
    "exit": "leave; so does Ctrl-D",
}
_LINE = re.compile(r"/(?P<name>[\w-]+)(?:\s+(?P<rest>.*))?", re.DOTALL)
_SKILL = re.compile(r"/skill:(?P<name>\S+)(?P<rest>.*)", re.DOTALL)
_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}


class Ask(NamedTuple):
    """A text for the model."""

    text: str


class Leave(NamedTuple):
    """The chat is over."""


class Commands:
    def __init__(self, screen: Screen, runtime: Runtime, session: Session, come_back: Callable[[], str]) -> None:
        self._runtime, self._session, self._come_back = runtime, session, come_back
        self._say = screen.note if screen.is_json else screen.text
        self._note = screen.note
        self.wishes: dict[str, Wish] = {}  # by id: what stays in use until /unload
        self.usage = Usage()  # of all requests
        self._dropped: set[str] = set()  # unloaded since the last message

    async def understand(self, line: str) -> Ask | Leave | None:
        """What a line means; a command is done now, and then it is None."""
        if found := _SKILL.fullmatch(line):
            entry = self._runtime.catalog.get(found["name"])
            return Ask(f"/{entry.qualified}{found['rest']}")
        found = _LINE.fullmatch(line)
        if found is None:
            return Ask(line)
        name, rest = found["name"], (found["rest"] or "").strip()
        if name == "quit":
            name = "exit"
        if name not in HELP:
            self._refuse_misspelt(name)
            return Ask(line)
        if name in self.names():
            self._note(f"/{name} is a command here; the skill of that name is /skill:{name}")
        if name == "exit":
            return Leave()
        if name in ("load", "unload"):
            if not rest:
                raise ConfigError(f"/{name} needs the name of a skill.", code="usage", hint="See: /skills")
            await (self._load(rest) if name == "load" else self._unload(rest))
        else:
            {
                "skills": self._skills,
                "plan": self._plan,
                "cost": self._cost,
                "session": self._where,
                "help": self._help,
            }[name]()
        return None

    def names(self) -> list[str]:
        """Of the skills that a person may put to use."""
        return [entry.name for entry in self._visible()]

    def _visible(self) -> list[Entry]:
        catalog = self._runtime.catalog
        return [entry for entry in catalog if catalog.visibility(entry).user_visible]

    def _refuse_misspelt(self, name: str) -> None:
        """A typing mistake is not worth a model's time; what is near nothing may be meant as text."""
        names = self.names()
        if name in names or self._runtime.catalog.find(name) is not None:
            return
        near = near_names(name, [*HELP, *names])
        if near:
            raise ConfigError(
                f"There is no command and no skill '/{name[:80]}'.", code="usage", hint=f"Did you mean /{near[0]}?"
            )

    # --- the commands -----------------------------------------------------------------------------------------------

    def _help(self) -> None:
        for name, text in HELP.items():
            self._say(f"  /{name:<9}{text}")
        self._say("  /NAME …    put a skill to use for this message; $NAME inside one; @path gives a file")

    def _skills(self) -> None:
        loaded = self._loaded()
        entries = self._visible()
        width = max((len(printable(entry.name)) for entry in entries), default=0)
        for entry in entries:
            mark = "loaded" if entry.id in loaded else ""
            self._say(f"  {printable(entry.name):<{width}}  {mark:<6}  {one_line(entry.description, 80)}")
        if not entries:
            self._say("There are no skills. See: prowess doctor")

    async def _load(self, rest: str) -> None:
        ref, _, arguments = rest.partition(" ")
        skill = self._runtime.load(ref, trigger="user")  # says why not
        self.wishes[skill.entry.id] = Wish(ref=skill.entry.id, trigger="user", arguments=arguments.strip())
        self._note(f"{printable(skill.name)} is in use from your next message on.")

    async def _unload(self, ref: str) -> None:
        entry = self._runtime.catalog.find(ref)
        id = ref if entry is None else entry.id
        loaded = self._loaded()
        if id not in loaded:
            names = ", ".join(sorted(loaded)) or "none"
            raise ConfigError(f"'{ref[:80]}' is not loaded.", code="skill-not-loaded", hint=f"Loaded: {names}")
        wished = self.wishes.pop(id, None)
        if self._session.agent.load_mode == "session" and (wished is None or id in self._loaded()):
            await self._session.kit.call("skill_unload", {"skill": id})
        self._dropped.add(id)  # in the other modes the next message begins without it anyway
        self._note(f"{printable(ref)} is no longer in use.")

    def _loaded(self) -> set[str]:
        """Ids of what the last message had in use, or the next one will have."""
        used = {each.id for each in self._session.kit.conversation.state.skills.values()}
        return (used - self._dropped) | set(self.wishes)

    def sent(self, usage: Usage) -> None:
        """A message was answered: arguments are for one message only."""
        self.wishes = {id: Wish(ref=wish.ref, trigger=wish.trigger) for id, wish in self.wishes.items()}
        self.usage = add_usage(self.usage, usage)
        self._dropped.clear()

    def _plan(self) -> None:
        plan = self._session.plan
        if plan is None:
            self._say("There is no plan.")
        else:
            for line in render_plan(plan):
                self._say(line)

    def _cost(self) -> None:
        usage = self.usage
        asked = count(usage.requests, "request") + " to the model"
        money = "" if usage.cost is not None else " · no price of this model is known"
        self._say(f"{asked} · {render_usage(usage) or 'no tokens'}{money}")

    def _where(self) -> None:
        self._say(f"session {self._session.key.session}")
        self._note(f"To come back: {self._come_back()}")


def render_plan(plan: Plan) -> list[str]:
    lines = [f"Goal: {one_line(plan.goal, 500)}"]
    lines += [f"  [{_MARKS[step.status]}] {one_line(step.title, 300)}" for step in plan.steps]
    return [*lines, *(f"  assumed: {one_line(text, 300)}" for text in plan.assumptions)]
