"""skill_exec starts a program that keeps running between calls; other tools write to it, poll it and end it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.values import Outcome, ToolSpec
from prowess.tools.arguments import ExecArguments, PollArguments, SessionArguments, WriteArguments
from prowess.tools.base import PlainTool
from prowess.tools.run.programs import Programs, TerminalProcess
from prowess.tools.run.run_text import render_session
from prowess.tools.run.skill_run import find_needs, plan_job, with_skill
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import SessionWork, WorkTool
from prowess.workspace.job import prepare

SESSION_S = 3600.0


class SkillExec(WorkTool):
    spec = ToolSpec(
        name="skill_exec",
        description="Start a program of a loaded skill that asks questions or goes on; takes what skill_run takes.",
        parameters=render_schema(ExecArguments),
    )

    def __init__(self, work: SessionWork, programs: Programs) -> None:
        super().__init__(work)
        self._programs = programs

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Normal form of the arguments. A call without a skill gets the only one in use."""
        named = with_skill(args, self._work)
        parsed = parse_arguments(ExecArguments, named, self.spec.name)
        return parsed.normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        """A request for the packages of the program, if they are not installed yet."""
        parsed = parse_arguments(ExecArguments, args, self.spec.name)
        return await find_needs(self._work, parsed.request)

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(ExecArguments, args, self.spec.name)
        running = await self._start(wanted, within)
        wait_s = wanted.yield_ms / 1000
        try:
            if wanted.stdin is not None:
                await self._programs.write(running, wanted.stdin.encode(), wait_s=wait_s)
            seen = await self._programs.look(running, wait_s=wait_s, most_lines=wanted.poll_lines)
        except asyncio.CancelledError:  # the caller never gets its id, so nobody could end it
            await self._programs.kill(running)
            raise
        return _outcome(seen, running)

    async def _start(self, wanted: ExecArguments, within: CallGrant) -> TerminalProcess:
        work = self._work
        desk = await work.desk(within)
        with ExitStack() as held:
            job = await plan_job(work, wanted.request, within, desk.workspace, held, timeout_s=SESSION_S)
            job = job._replace(tty=wanted.tty)
            prepared = await prepare(job, desk)
            work.granted.clear()
            loaded = work.get(wanted.skill)
            running = await self._programs.start(prepared, desk, loaded.skill.entry.id)
            running.held = held.pop_all()  # released when the program has ended
        return running


class _OnSession(PlainTool):
    """Base of the tools that take a session id."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs


class SkillWriteStdin(_OnSession):
    kind = WriteArguments
    spec = ToolSpec(
        name="skill_write_stdin",
        description="Write to a program that skill_exec started; returns what it says then.",
        parameters=render_schema(WriteArguments),
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(WriteArguments, args, self.spec.name)
        programs = self._programs
        running = programs.get(wanted.session_id)
        text = wanted.chars
        if wanted.submit:
            text += "\n"
        wait_s = wanted.yield_ms / 1000
        if (text or wanted.eof) and running.session.ended is None:
            await programs.write(running, text.encode(), wait_s=wait_s, eof=wanted.eof)
        seen = await programs.look(running, wait_s=wait_s, most_lines=wanted.poll_lines)
        return _outcome(seen, running)


class SkillPollSession(_OnSession):
    kind = PollArguments
    spec = ToolSpec(
        name="skill_poll_session",
        description="What a program that skill_exec started has said since the last look.",
        parameters=render_schema(PollArguments),
        read_only=True,
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(PollArguments, args, self.spec.name)
        running = self._programs.get(wanted.session_id)
        wait_s = wanted.yield_ms / 1000
        seen = await self._programs.look(running, wait_s=wait_s, most_lines=wanted.poll_lines)
        return _outcome(seen, running)


class SkillKillSession(_OnSession):
    kind = SessionArguments
    spec = ToolSpec(
        name="skill_kill_session",
        description="End a program that skill_exec started.",
        parameters=render_schema(SessionArguments),
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SessionArguments, args, self.spec.name)
        running = self._programs.get(wanted.session_id)
        killed = await self._programs.kill(running)
        return Outcome(status="ok", content=render_session(killed, None), data=killed)


def _outcome(data: dict[str, Any], running: TerminalProcess) -> Outcome:
    result = running.result if data["status"] == "exited" else None
    return Outcome(status="ok", content=render_session(data, result), data=data)
