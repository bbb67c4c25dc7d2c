"""Command `prowess chat`: a chat with a model, and its slash commands, which work without the model."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess._internal.text import one_line
from prowess.cli.app import Call, cli_command
from prowess.cli.commands.run import INTERRUPTED, WAITING, named_files, open_terminal, show_findings, taken_names
from prowess.cli.live import output_closed
from prowess.cli.prompt_input import Completions, History, LineReader, complete, open_reader
from prowess.cli.run_result import print_answer, render_usage, save_files, show_run_end, show_waiting
from prowess.cli.screen import Screen, count, printable
from prowess.cli.session_options import (
    check_options,
    command_to_go_on,
    session_arguments,
    session_options,
    settings_of,
    skill_requests_of,
)
from prowess.core.values import Plan, Usage, add_usage
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.files import InputFile, find_attachments
from prowess.runtime.services.requests import SkillRequest, SkillsInUse
from prowess.skills.skill import Entry
from prowess.skills.spelling import near_names

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Result, Session

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
    """Text for the model."""

    text: str


class Leave(NamedTuple):
    """Request to end the chat."""


class Commands:
    def __init__(self, screen: Screen, runtime: Runtime, session: Session, come_back: Callable[[], str]) -> None:
        self._runtime = runtime
        self._session = session
        self._come_back = come_back
        self._note = screen.note
        self._say = screen.note if screen.is_json else screen.text
        self.skills = SkillsInUse(runtime, session)
        self.usage = Usage()  # of all requests together

    async def understand(self, line: str) -> Ask | Leave | None:
        """Returns what a line asks for. A command is executed at once, and the result is None."""
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
            self._check_spelling(name)
            return Ask(line)
        if name in self.names():
            self._note(f"/{name} is a command here; the skill of that name is /skill:{name}")
        if name == "exit":
            return Leave()
        await self._execute(name, rest.strip())
        return None

    async def _execute(self, name: str, rest: str) -> None:
        if name in ("load", "unload") and not rest:
            raise ConfigError(f"/{name} needs the name of a skill.", code="usage", hint="See: /skills")
        if name == "load":
            self._load(rest)
        elif name == "unload":
            await self._unload(rest)
        elif name == "skills":
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

    def _visible(self) -> list[Entry]:
        """Returns the skills that a person may use."""
        catalog = self._runtime.catalog
        return [entry for entry in catalog if catalog.visibility(entry).user_visible]

    def _check_spelling(self, name: str) -> None:
        """Raises ConfigError for a likely typing mistake. A name that is near no other may be text for the model."""
        names = self.names()
        if name in names or self._runtime.catalog.find(name) is not None:
            return
        near = near_names(name, [*HELP, *names])
        if near:
            message = f"There is no command and no skill '/{name[:80]}'."
            raise ConfigError(message, code="usage", hint=f"Did you mean /{near[0]}?")

    # --- the commands -----------------------------------------------------------------------------------------------

    def _help(self) -> None:
        for name, text in HELP.items():
            self._say(f"  /{name:<9}{text}")
        self._say("  /NAME …    put a skill to use for this message; $NAME inside one; @path gives a file")

    def _skills(self) -> None:
        loaded = self.skills.ids()
        entries = self._visible()
        width = max((len(printable(entry.name)) for entry in entries), default=0)
        for entry in entries:
            name = printable(entry.name)
            mark = "loaded" if entry.id in loaded else ""
            description = printable(one_line(entry.description, 80))
            self._say(f"  {name:<{width}}  {mark:<6}  {description}")
        if not entries:
            self._say("There are no skills. See: prowess doctor")

    def _load(self, rest: str) -> None:
        ref, _, arguments = rest.partition(" ")
        skill = self.skills.load(ref, arguments.strip())  # its error says why not
        name = printable(skill.name)
        self._note(f"{name} is in use from your next message on.")

    async def _unload(self, ref: str) -> None:
        await self.skills.unload(ref)
        name = printable(ref)
        self._note(f"{name} is no longer in use.")

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
        command = self._come_back()
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


@cli_command(
    "chat",
    example="""
prowess chat
prowess chat --model openai:gpt-5 --root ./skills
prowess chat --session s-1f2e3d4c5b6a""",
)
@session_options
def command(call: Call, **given: Any) -> int:
    """Talk with a model that has skills.

    Each line is a request; /help lists the commands. `/name …` puts a skill to use, as does `$name` in a line, and
    `@path` gives a file. Ctrl-C ends the request that is being answered; at the prompt it clears the line, and twice it
    leaves. Lines may come from a pipe: then the exit code is that of the last one that had no answer, as with
    `prowess run`.
    """
    check_options(given)
    flags = settings_of(given)
    with call.runtime(roots=given["roots"], flags=flags) as runtime:
        show_findings(call, runtime)
        with asyncio.Runner() as runner:
            chat = Chat(call, runtime, given, runner)
            return chat.go()


class Chat:
    def __init__(self, call: Call, runtime: Runtime, given: dict[str, Any], runner: asyncio.Runner) -> None:
        self._call = call
        self._runtime = runtime
        self._given = given
        self._screen = call.screen
        self._runner = runner  # nothing runs between two lines: Ctrl-C goes to the request or to the prompt
        self._display, self._watch, self._approver, self._asker = open_terminal(call, given)
        self._files = named_files(call, given["inputs"])  # for the first request
        self._code = 0
        self._busy = False
        self._talked = False

    def go(self) -> int:
        """Opens the session, talks until the person leaves, and returns the exit code."""
        stack = AsyncExitStack()
        options = session_arguments(self._given)
        opening = self._runtime.open_session(
            **options, approver=self._approver, asker=self._asker, on_event=(self._watch,)
        )
        session = self._runner.run(stack.enter_async_context(opening))
        try:
            return self._talk(session)
        finally:
            self._runner.run(stack.aclose())

    def _talk(self, session: Session) -> int:
        commands = Commands(self._screen, self._runtime, session, lambda: self._come_back(session))
        reader = self._open_reader(commands)
        if reader.interactive:
            self._greet(session, commands)
        if self._given["resume"]:
            self._answer(session, commands, "", (), resume=True)
        warned = False
        while True:
            try:
                line = reader.read()
                warned = False
            except KeyboardInterrupt:
                if (warned and not reader.typed) or not reader.interactive:
                    return self._left(session, reader, INTERRUPTED)
                warned = True
                self._screen.note("(once more, or Ctrl-D, to leave)")
                continue
            except ConfigError as error:
                self._failed(error)
                continue
            if line is None or not self._obey(session, commands, line.strip()):
                code = 0 if reader.interactive else self._code
                return self._left(session, reader, code)
            if session.kit.recorder.broken or self._is_output_closed:
                return self._left(session, reader, 1)

    def _greet(self, session: Session, commands: Commands) -> None:
        skills = count(len(commands.names()), "skill")
        model = session.agent.model.name
        self._screen.note(f"[session {session.key.session} · {model} · {skills} · /help]")

    @property
    def _is_output_closed(self) -> bool:
        """True with --json when stdout can no longer be written."""
        if self._display is not None:
            return False
        return self._watch.problem is not None

    def _open_reader(self, commands: Commands) -> LineReader:
        places = self._runtime.places
        known = list(HELP)

        def find(before: str) -> Completions:
            skills = commands.names()
            return complete(before, commands=known, skills=skills, cwd=self._call.cwd, home=places.home)

        path = os.path.join(places.state_dir, "chat-history")
        history = History(path, self._screen.note)
        return open_reader(find, history, self._screen.note)

    def _obey(self, session: Session, commands: Commands, line: str) -> bool:
        """Executes one line. Returns False when the chat is over."""
        if not line:
            return True
        self._watch.reset()
        try:
            meant = self._runner.run(commands.understand(line))
            if isinstance(meant, Ask):
                taken = taken_names(self._files)
                text, attached = find_attachments(meant.text, self._call.cwd, self._runtime.places.home, taken)
                self._answer(session, commands, text, [*self._files, *attached])
            return not isinstance(meant, Leave)
        except ProwessError as error:
            self._failed(error)
        except KeyboardInterrupt:
            if self._busy:  # the second Ctrl-C, and the request has not ended
                raise
            self._screen.note("Cancelled. What was done is recorded; you can go on.")
            self._runner.run(self._watch.wait_for_end())
            self._code = INTERRUPTED
        return True

    # --- one request ------------------------------------------------------------------------------------------------

    def _answer(
        self, session: Session, commands: Commands, text: str, files: Sequence[InputFile], *, resume: bool = False
    ) -> None:
        requests: dict[str, SkillRequest] = {}
        for request in (*skill_requests_of(self._given), *commands.skills.requests.values()):
            requests[request.ref] = request
        skills = list(requests.values())
        self._approver.nobody.clear()
        self._busy = True
        self._talked = True
        with self._display or nullcontext():  # is closed also when several Ctrl-C end the request
            if self._display is not None:
                self._display.begin()
            result = self._runner.run(self._run(session, text, skills, files, resume))
        self._files = []
        commands.sent(result.usage)
        self._show(result)

    async def _run(
        self, session: Session, text: str, skills: Sequence[SkillRequest], files: Sequence[InputFile], resume: bool
    ) -> Result:
        task = asyncio.current_task()
        if self._display is None and task is not None:
            self._watch.stop = task.cancel
        try:
            try:
                result = await session.run(text, skills=skills, files=files, resume=resume)
            finally:
                await self._watch.wait_for_end()
            if self._display is not None:
                self._display.stop()
            if not save_files(self._screen, session, result, cwd=self._call.cwd, given=self._given):
                self._code = 1
            return result
        except asyncio.CancelledError:
            if self._is_output_closed:
                command = self._come_back(session)
                raise output_closed(command) from None
            raise
        finally:
            self._busy = False

    def _show(self, result: Result) -> None:
        if self._display is not None:
            if result.stop_reason != "waiting":
                print_answer(result.report)
            show_run_end(self._screen, result, self._display.elapsed_s, self._display.isolation)
        if result.stop_reason == "waiting":
            self._code = WAITING
            show_waiting(self._call, self._given, result, self._approver.nobody)
        elif not result.ok:
            self._code = 1

    def _failed(self, error: ProwessError) -> None:
        self._code = error.exit_code
        if self._watch.problem is not None:
            Screen().error(error)
        elif not self._screen.is_json or not self._watch.ended:  # else the events show it
            self._screen.error(error)

    def _left(self, session: Session, reader: LineReader, code: int) -> int:
        if reader.interactive and self._talked:
            command = self._come_back(session)
            self._screen.note(f"To come back: {command}")
        sys.stdout.flush()
        return code

    def _come_back(self, session: Session) -> str:
        """Returns the command that goes on with this chat."""
        name = session.key.session
        return command_to_go_on(self._call, self._given, name, command="chat")
