"""Command `prowess chat`: a chat with a model, in one session after the other."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from prowess.cli.app import Call
from prowess.cli.chat_commands import HELP, Ask, Clear, Commands, Leave, Switch, Unknown
from prowess.cli.handlers.run import (
    INTERRUPTED,
    WAITING,
    named_files,
    open_terminal,
    show_findings,
    skill_requests_of,
    taken_names,
)
from prowess.cli.interrupts import run_interruptible
from prowess.cli.line_input import read_line
from prowess.cli.live import output_closed
from prowess.cli.markdown import print_markdown
from prowess.cli.prompt_input import Completions, History, LineReader, complete, open_reader
from prowess.cli.run_result import save_files, show_run_end, show_waiting
from prowess.cli.screen import Screen, count, printable
from prowess.cli.session_options import (
    check_options,
    command_to_go_on,
    session_arguments,
    settings_of,
)
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.files import InputFile, find_attachments
from prowess.runtime.services.requests import SkillRequest, prepare_model

if TYPE_CHECKING:
    from prowess.runtime.services.requests import Result, Session

T = TypeVar("T")


def run_chat(call: Call, **given: Any) -> int:
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
        self._given = dict(given)  # changes when another model or session is chosen
        self._screen = call.screen
        self._runner = runner  # nothing runs between two lines: Ctrl-C goes to the request or to the prompt
        self._display, self._watch, self._approver, self._asker = open_terminal(call, given)
        self._files = named_files(call, given["inputs"])  # for the first request
        self._code = 0
        self._busy = False
        self._talked = False
        self._commands: Commands | None = None
        self._reader: LineReader | None = None

    def _run_now(self, work: Coroutine[Any, Any, T]) -> T:
        return run_interruptible(self._runner, work)

    def go(self) -> int:
        """Talks until the person leaves, in one session after the other, and returns the exit code."""
        while True:
            with self._open_session() as session:
                meant = self._talk(session)
                if isinstance(meant, int):
                    return meant
                session.answered = False  # a script need not be played to its end: another conversation goes on
            self._note_switch(session, meant)

    @contextmanager
    def _open_session(self) -> Iterator[Session]:
        stack = AsyncExitStack()
        options = session_arguments(self._given)
        opening = self._runtime.open_session(
            **options, approver=self._approver, asker=self._asker, on_event=(self._watch,)
        )
        session = self._run_now(stack.enter_async_context(opening))
        try:
            yield session
        finally:
            self._run_now(stack.aclose())

    def _note_switch(self, before: Session, meant: Switch | Clear) -> None:
        """Prepares the session that is opened next, and says what is different."""
        command = self._come_back(before)
        if isinstance(meant, Switch):
            self._given |= {"model": meant.model, "session": before.key.session, "resume": False}
            self._screen.note(f"From your next message on, the model is {printable(meant.model)}.")
            return
        self._given |= {"session": None, "resume": False}
        self._talked = False
        back = f"To return to the one before: {command}"
        if self._runtime.config.store == "memory:":
            back = "The one before is not kept: the store is memory:."
        self._screen.note(f"A new conversation begins. {back}")

    def _talk(self, session: Session) -> int | Switch | Clear:
        """Obeys lines until the chat is over, or goes on in another session."""
        commands, reader = self._begin(session)
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
            meant = Leave() if line is None else self._obey(session, commands, line.strip())
            if isinstance(meant, Leave):
                code = 0 if reader.interactive else self._code
                return self._left(session, reader, code)
            if session.kit.recorder.broken or self._is_output_closed:
                return self._left(session, reader, 1)
            if meant is not None:
                return meant

    def _begin(self, session: Session) -> tuple[Commands, LineReader]:
        """Makes the chat ready for this session: the first one, or another one that was switched to."""
        commands, reader = self._commands, self._reader
        if commands is None or reader is None:
            commands = self._commands = Commands(self._screen, self._runtime, session, self._come_back)
            reader = self._reader = self._open_reader(commands)
            if reader.interactive:
                self._greet(session, commands)
        else:
            commands.enter(session)
            if session.kit.conversation.run is None:  # a new conversation
                self._greet(session, commands)
        if reader.interactive:
            prepare_model(session)  # while the person types
        return commands, reader

    def _greet(self, session: Session, commands: Commands) -> None:
        skills = count(len(commands.offered()), "skill")
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

    def _obey(self, session: Session, commands: Commands, line: str) -> Switch | Clear | Leave | None:
        """Executes one line. Returns a request that ends this session."""
        if not line:
            return None
        self._watch.reset()
        try:
            meant = self._run_now(commands.understand(line))
            if isinstance(meant, Unknown):
                meant = self._ask_about(meant)
            if isinstance(meant, Switch):
                self._run_now(self._runtime.check_model(model=meant.model, protocol=self._given["protocol"]))
            if not isinstance(meant, Ask):
                return meant
            taken = taken_names(self._files)
            text, attached = find_attachments(meant.text, self._call.cwd, self._runtime.places.home, taken)
            self._answer(session, commands, text, [*self._files, *attached])
        except ProwessError as error:
            self._failed(error)
        except KeyboardInterrupt:
            if self._busy:  # the second Ctrl-C, and the request has not ended
                raise
            self._cancelled()
        return None

    def _ask_about(self, meant: Unknown) -> Ask | None:
        """Asks the person whether the model shall get it. Without a person it is an error, because a misspelt command
        would cost a request."""
        near = f"Did you mean /{meant.near}?" if meant.near else ""
        if self._reader is None or not self._reader.interactive:
            hint = near or "See: /help. To send it to the model, put a word before it."
            raise ConfigError(meant.problem, code="usage", hint=hint)
        parts = filter(None, [meant.problem, near, "Send it to the model anyway? [y/N] "])
        answer = ""
        with suppress(KeyboardInterrupt):
            sys.stderr.write(" ".join(parts))
            sys.stderr.flush()
            answer = read_line()
        if not answer.endswith("\n"):  # Ctrl-C, Ctrl-D
            self._screen.note("")
        is_yes = answer.strip().lower() in ("y", "yes")
        return Ask(meant.text) if is_yes else None

    def _cancelled(self) -> None:
        """Shows what the model had said. The record has it, too, and so has the next request."""
        self._run_now(self._watch.wait_for_end())
        self._code = INTERRUPTED
        said = "" if self._display is None else self._display.unfinished
        if not said.strip() or not sys.stdout.isatty():
            self._screen.note("Cancelled. What was done is recorded; you can go on.")
            return
        print_markdown(said)
        self._screen.note("[cut off · what was said is kept, and the model will see it]")

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
            result = self._run_now(self._run(session, text, skills, files, resume))
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
            except ProwessError:
                if not session.kit.recorder.broken:  # else its end is not recorded, and never seen
                    await self._watch.wait_for_end()
                raise
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
                print_markdown(result.report)
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
