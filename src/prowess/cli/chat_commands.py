"""Slash commands of a chat, which work without the model, and what a line of a chat asks for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.text import one_line
from prowess.cli.run_result import render_usage
from prowess.cli.screen import Screen, count, printable
from prowess.core.values import Plan, Usage, add_usage
from prowess.errors import ConfigError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.requests import SkillsInUse
from prowess.skills.skill import Entry
from prowess.skills.spelling import near_names

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Session

HELP = {
    "skills": "list the skills, which are loaded, and which the model does not see",
    "load": "NAME [arguments]: put a skill to use, with your next message and until /unload",
    "unload": "NAME: stop using a skill",
    "model": "[NAME]: show the model, or go on with another one",
    "plan": "show the plan of the last request",
    "cost": "show the tokens, and the money where prices are known",
    "session": "show the session, and how to come back to it",
    "clear": "begin a new conversation; this one is kept",
    "help": "show this",
    "exit": "leave; so does Ctrl-D",
}
_LINE = re.compile(r"/(?P<name>[^\s/]+)(?:\s+(?P<rest>.*))?", re.DOTALL)
_SKILL = re.compile(r"/skill:(?P<name>\S+)(?P<rest>.*)", re.DOTALL)
_ENDED = "last turn"
_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}


class Ask(NamedTuple):
    """Text for the model."""

    text: str


class Unknown(NamedTuple):
    """Line that looks like a command, and is none. `problem` says so, and `near` is a name that may be meant."""

    text: str
    problem: str
    near: str | None


class Switch(NamedTuple):
    """Request to go on with another model, in the same session."""

    model: str


class Clear(NamedTuple):
    """Request to begin a new conversation."""


class Leave(NamedTuple):
    """Request to end the chat."""


Meant = Ask | Unknown | Switch | Clear | Leave


class Commands:
    def __init__(self, screen: Screen, runtime: Runtime, session: Session, come_back: Callable[[Session], str]) -> None:
        self._runtime = runtime
        self._session = session
        self._come_back = come_back
        self._note = screen.note
        self._say = screen.note if screen.is_json else screen.text
        self._stream = sys.stderr if screen.is_json else sys.stdout
        self.skills = SkillsInUse(runtime, session)
        self.usage = Usage()  # of all requests together

    def enter(self, session: Session) -> None:
        """Goes on in another session, or in the same one that was opened again. Skills stay in use in the latter."""
        skills = SkillsInUse(self._runtime, session)
        if session.key == self._session.key:
            skills.requests |= self.skills.requests
        self.skills = skills
        self._session = session

    async def understand(self, line: str) -> Meant | None:
        """Returns what a line asks for. A command that concerns nobody else is executed, and the result is None."""
        found = _SKILL.fullmatch(line)
        if found is not None:
            entry = self._runtime.catalog.get(found["name"])
            return Ask(f"/{entry.qualified}{found['rest']}")
        found = _LINE.fullmatch(line)
        if found is None:
            return Ask(line)
        name = found["name"]
        rest = found["rest"] or ""
        if name == "quit":
            name = "exit"
        if name not in HELP:
            return self._find_unknown(name, line) or Ask(line)
        if name in self.names():
            self._note(f"/{name} is a command here; the skill of that name is /skill:{name}")
        return await self._execute(name, rest.strip())

    async def _execute(self, name: str, rest: str) -> Meant | None:
        if name in ("load", "unload") and not rest:
            raise ConfigError(f"/{name} needs the name of a skill.", code="usage", hint="See: /skills")
        if name == "load":
            self._load(rest)
        elif name == "unload":
            await self._unload(rest)
        elif name == "model":
            return self._model(rest)
        elif name == "clear":
            return self._clear()
        elif name == "exit":
            return Leave()
        else:
            self._show(name)
        return None

    def _show(self, name: str) -> None:
        if name == "skills":
            self._skills()
        elif name == "plan":
            self._plan()
        elif name == "cost":
            self._cost()
        elif name == "session":
            self._where()
        else:
            self._help()

    def names(self) -> list[str]:
        """Returns the names of the skills that a person may use."""
        return [entry.name for entry in self._visible()]

    def offered(self) -> set[str]:
        """Returns the ids of the skills that the model may use."""
        plan = self._runtime.offer(self._runtime.plan())
        return {*plan.shown, *plan.name_only, *plan.searchable}

    def _visible(self) -> list[Entry]:
        """Returns the skills that a person may use."""
        catalog = self._runtime.catalog
        return [entry for entry in catalog if catalog.visibility(entry).user_visible]

    def _find_unknown(self, name: str, line: str) -> Unknown | None:
        """Returns the problem with a name that is neither a command's nor a skill's."""
        names = self.names()
        if name in names or self._runtime.catalog.find(name) is not None:
            return None
        shown = printable(one_line(name, 80))
        near = near_names(name, [*HELP, *names])
        return Unknown(line, f"No command or skill '/{shown}'.", near[0] if near else None)

    # --- the commands -----------------------------------------------------------------------------------------------

    def _help(self) -> None:
        rows = [(f"/{name}", text) for name, text in HELP.items()]
        rows.append(("/NAME …", "put a skill to use for this message; $NAME inside one; @path gives a file"))
        if self._stream.isatty():
            self._write_table(rows, cut=False)
            return
        for name, text in rows:
            self._say(f"  {name:<10}{text}")

    def _skills(self) -> None:
        loaded = self.skills.ids()
        ended = self.skills.ended()
        offered = self.offered()
        rows: list[tuple[str, str, str]] = []
        for entry in self._runtime.catalog:
            seen = self._runtime.catalog.visibility(entry)
            if not seen.user_visible and entry.id not in offered:
                continue
            name = printable(entry.name)
            mark = "" if seen.user_visible else "model only"
            if entry.id not in offered:
                mark = "denied" if seen.model_visible else seen.status
            mark = "loaded" if entry.id in loaded else mark
            mark = _ENDED if entry.id in ended else mark
            rows.append((name, mark, printable(one_line(entry.description, 1024))))
        if not rows:
            self._say("There are no skills. See: prowess doctor")
        elif self._stream.isatty():
            self._write_table(rows, cut=True)
        else:
            width = max(len(name) for name, _, _ in rows)
            room = max(len(_ENDED), *(len(mark) for _, mark, _ in rows))
            for name, mark, description in rows:
                self._say(f"  {name:<{width}}  {mark:<{room}}  {one_line(description, 80)}")
        if ended:
            self._note(f"{_ENDED}: unloaded after that turn; /load NAME puts a skill to use again.")

    def _write_table(self, rows: Sequence[Sequence[str]], *, cut: bool) -> None:
        """Writes rows that fit the width of the terminal. The last column is cut there, or else wrapped."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        *others, _ = rows[0]
        for _ in others:
            table.add_column(no_wrap=True, overflow="ellipsis", max_width=console.width // 2)
        table.add_column(no_wrap=cut, overflow="ellipsis" if cut else "fold", ratio=1)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)

    def _load(self, rest: str) -> None:
        ref, _, arguments = rest.partition(" ")
        skill = self.skills.load(ref, arguments.strip())  # its error says why not
        name = printable(skill.name)
        self._note(f"{name} is in use from your next message on.")

    async def _unload(self, ref: str) -> None:
        await self.skills.unload(ref)
        name = printable(ref)
        self._note(f"{name} is no longer in use.")

    def _model(self, wanted: str) -> Switch | None:
        model = self._session.agent.model.name
        if not wanted or wanted == model:
            self._say(f"model {printable(model)}")
            return None
        if self._runtime.config.store == "memory:":
            raise ConfigError(
                "The model cannot be switched: the store is memory:, and a session is taken up from its record.",
                code="store-in-memory",
                hint="Leave, and name it: prowess chat --model NAME",
            )
        return Switch(wanted)

    def _clear(self) -> Clear | None:
        if self._session.kit.conversation.run is None:
            self._say("Nothing was said in this conversation yet.")
            return None
        return Clear()

    def sent(self, usage: Usage) -> None:
        """Counts an answered message."""
        self.usage = add_usage(self.usage, usage)
        self.skills.answered()

    def _plan(self) -> None:
        plan = self._session.plan
        if plan is None:
            self._say("There is no plan.")
            return
        for line in render_plan(plan):
            self._say(line)

    def _cost(self) -> None:
        requests = count(self.usage.requests, "request")
        tokens = render_usage(self.usage) or "no tokens"
        text = f"{requests} to the model · {tokens}"
        if self.usage.cost is None:
            text += " · no price of this model is known"
        self._say(text)

    def _where(self) -> None:
        session = self._session.key.session
        self._say(f"session {session}")
        command = self._come_back(self._session)
        self._note(f"To come back: {command}")


def render_plan(plan: Plan) -> list[str]:
    """Renders a line for the goal, for each step and for each assumption."""
    goal = one_line(plan.goal, 500)
    lines = [f"Goal: {goal}"]
    for step in plan.steps:
        mark = _MARKS[step.status]
        title = one_line(step.title, 300)
        lines.append(f"  [{mark}] {title}")
    for assumption in plan.assumptions:
        text = one_line(assumption, 300)
        lines.append(f"  assumed: {text}")
    return [printable(line) for line in lines]
