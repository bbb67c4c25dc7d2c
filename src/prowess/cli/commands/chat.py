"""prowess chat"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import Any

from prowess.agent.activation import Wish
from prowess.agent.session import Session
from prowess.agent.task import Result
from prowess.cli.app import Call, verb
from prowess.cli.approver import TerminalApprover, parse_yes
from prowess.cli.ask import TerminalAsker
from prowess.cli.commands.chat_commands import HELP, Ask, Commands, Leave
from prowess.cli.commands.run import INTERRUPTED, WAITING, named_files, show_findings, taken_names
from prowess.cli.completion import Completions, complete
from prowess.cli.ending import print_answer, save_files, show_end, show_waiting
from prowess.cli.history import History
from prowess.cli.inputs import Given, find_attachments
from prowess.cli.live import Display
from prowess.cli.prompt_input import LineReader, open_reader
from prowess.cli.screen import Screen, count
from prowess.cli.session_options import (
    check_options,
    command_to_answer,
    command_to_go_on,
    session_arguments,
    session_options,
    settings_of,
    wishes_of,
)
from prowess.cli.watch import Watch, output_closed, print_line
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.runtime import Runtime


@verb(
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
    `@path` gives a file. Ctrl-C ends what is being done, at the prompt it clears the line, twice it leaves. Lines may
    come from a pipe: then the exit code is that of the last one that had no answer, as with `prowess run`.
    """
    check_options(given)
    with call.runtime(roots=given["roots"], flags=settings_of(given)) as runtime:
        show_findings(call, runtime)
        with asyncio.Runner() as runner:
            return Chat(call, runtime, given, runner).go()


class Chat:
    def __init__(self, call: Call, runtime: Runtime, given: dict[str, Any], runner: asyncio.Runner) -> None:
        self._call, self._runtime, self._given, self._screen = call, runtime, given, call.screen
        self._runner = runner  # between two lines nothing runs, so that Ctrl-C belongs to what runs, or to the prompt
        self._display = None if call.screen.is_json else Display(verbose=call.screen.verbose)
        self._watch = Watch(print_line if self._display is None else self._display.show)
        around = nullcontext if self._display is None else self._display.paused
        yes, timeout_s = parse_yes(given["yes"]), given["ask_timeout"]
        self._approver = TerminalApprover(yes, ask=self._display is not None, around=around, timeout_s=timeout_s)
        self._asker = TerminalAsker(ask=self._display is not None, around=around)
        self._files = named_files(call, given["inputs"])  # for the first request
        self._code = 0
        self._busy = self._talked = False

    def go(self) -> int:
        stack = AsyncExitStack()
        session = self._runner.run(
            stack.enter_async_context(
                self._runtime.open_session(
                    **session_arguments(self._given),
                    approver=self._approver,
                    asker=self._asker,
                    on_event=(self._watch,),
                )
            )
        )
        try:
            return self._talk(session)
        finally:
            self._runner.run(stack.aclose())

    def _talk(self, session: Session) -> int:
        commands = Commands(self._screen, self._runtime, session, lambda: self._come_back(session))
        reader = self._open_reader(commands)
        if reader.interactive:
            skills = count(len(commands.names()), "skill")
            self._screen.note(f"[session {session.key.session} · {session.agent.model.name} · {skills} · /help]")
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
                return self._left(session, reader, 0 if reader.interactive else self._code)
            if session.kit.recorder.broken or (self._display is None and self._watch.problem is not None):
                return self._left(session, reader, 1)

    def _open_reader(self, commands: Commands) -> LineReader:
        places = self._runtime.places

        def find(before: str) -> Completions:
            return complete(before, commands=list(HELP), skills=commands.names(), cwd=self._call.cwd, home=places.home)

        history = History(os.path.join(places.state_dir, "chat-history"), self._screen.note)
        return open_reader(find, history, self._screen.note)

    def _obey(self, session: Session, commands: Commands, line: str) -> bool:
        """False: the chat is over."""
        if not line:
            return True
        self._watch.reset()
        try:
            meant = self._runner.run(commands.understand(line))
            if isinstance(meant, Ask):
                text, attached = find_attachments(
                    meant.text, self._call.cwd, self._runtime.places.home, taken_names(self._files)
                )
                self._answer(session, commands, text, [*self._files, *attached])
            return not isinstance(meant, Leave)
        except ProwessError as error:
            self._failed(error)
        except KeyboardInterrupt:
            if self._busy:  # it was said twice, and what was being done has not ended
                raise
            self._screen.note("Cancelled. What was done is recorded; you can go on.")
            self._runner.run(self._watch.wait_for_end())
            self._code = INTERRUPTED
        return True

    # --- one request ------------------------------------------------------------------------------------------------

    def _answer(
        self, session: Session, commands: Commands, text: str, files: Sequence[Given], *, resume: bool = False
    ) -> None:
        wishes = {wish.ref: wish for wish in [*wishes_of(self._given), *commands.wishes.values()]}
        self._approver.nobody.clear()
        self._busy = self._talked = True
        with self._display or nullcontext():  # also when more than one Ctrl-C ends what runs inside
            if self._display is not None:
                self._display.begin()
            result = self._runner.run(self._run(session, text, list(wishes.values()), files, resume))
        self._files = []
        commands.sent(result.usage)
        self._show(result)

    async def _run(
        self, session: Session, text: str, wishes: Sequence[Wish], files: Sequence[Given], resume: bool
    ) -> Result:
        task = asyncio.current_task()
        if self._display is None and task is not None:
            self._watch.stop = task.cancel
        try:
            try:
                result = await session.run(text, skills=wishes, files=files, resume=resume)
            finally:
                await self._watch.wait_for_end()
            if self._display is not None:
                self._display.stop()
            if not save_files(self._screen, session, result, cwd=self._call.cwd, given=self._given):
                self._code = 1
            return result
        except asyncio.CancelledError:
            if self._watch.problem is not None and self._display is None:
                raise output_closed(self._come_back(session)) from None
            raise
        finally:
            self._busy = False

    def _show(self, result: Result) -> None:
        if self._display is not None:
            if result.stop_reason != "waiting":
                print_answer(result.text)
            show_end(self._screen, result, self._display.elapsed_s, self._display.isolation)
        if result.stop_reason == "waiting":
            self._code = WAITING
            asked = self._approver.nobody or [call.tool for call in result.waiting]
            again = command_to_go_on(self._call, self._given, result.session, "--resume", yes=asked)
            show_waiting(
                self._screen, result, again, lambda id: command_to_answer(self._call, id, "yes", result.session)
            )
        elif not result.ok:
            self._code = 1

    def _failed(self, error: ProwessError) -> None:
        self._code = error.exit_code
        if self._watch.problem is not None:
            Screen().error(error)
        elif not self._screen.is_json or not self._watch.ended:  # else it is among the events
            self._screen.error(error)

    def _left(self, session: Session, reader: LineReader, code: int) -> int:
        if reader.interactive and self._talked:
            self._screen.note(f"To come back: {self._come_back(session)}")
        sys.stdout.flush()
        return code

    def _come_back(self, session: Session) -> str:
        return command_to_go_on(self._call, self._given, session.key.session, verb="chat")
