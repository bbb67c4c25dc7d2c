"""skill_exec and the three that go with it: a program that goes on between calls, is written to, looked at, ended."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from prowess.core.ports import Need, Within
from prowess.core.values import Outcome, ToolSpec
from prowess.tools.arguments import ExecArguments, PollArguments, SessionArguments, WriteArguments
from prowess.tools.base import PlainTool
from prowess.tools.run.programs import Programs
from prowess.tools.run.skill_run import find_needs, plan_job, with_skill
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import Work
from prowess.workspace.job import prepare

SESSION_S = 3600.0


class SkillExec:
    def __init__(self, work: Work, programs: Programs) -> None:
        self._work, self._programs = work, programs
        self.spec = ToolSpec(
            name="skill_exec",
            description="Start a program of a loaded skill that asks questions or goes on; takes what skill_run takes.",
            parameters=render_schema(ExecArguments),
        )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return parse_arguments(ExecArguments, with_skill(args, self._work), self.spec.name).normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[Need]:
        return await find_needs(self._work, parse_arguments(ExecArguments, args, self.spec.name))

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(ExecArguments, args, self.spec.name)
        desk = await self._work.desk(within)
        with ExitStack() as held:
            job = await plan_job(self._work, wanted, within, desk.workspace, held, timeout_s=SESSION_S)
            prepared = await prepare(dataclasses.replace(job, tty=wanted.tty), desk)
            self._work.granted.clear()
            running = await self._programs.start(prepared, desk, self._work.get(wanted.skill).skill.entry.id)
            running.held = held.pop_all()  # until it has ended
        wait_s = wanted.yield_ms / 1000
        try:
            if wanted.stdin is not None:
                await self._programs.write(running, wanted.stdin.encode(), wait_s=wait_s)
            return _outcome(await self._programs.look(running, wait_s=wait_s, most_lines=wanted.poll_lines))
        except asyncio.CancelledError:  # nobody has learned its number, so nobody could ever end it
            await self._programs.kill(running)
            raise


class _OnSession(PlainTool):
    """What the other three share: they name a session."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs


class SkillWriteStdin(_OnSession):
    kind = WriteArguments
    spec = ToolSpec(
        name="skill_write_stdin",
        description="Write to a program that skill_exec started; returns what it says then.",
        parameters=render_schema(WriteArguments),
    )

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(WriteArguments, args, self.spec.name)
        running = self._programs.get(wanted.session_id)
        text = wanted.chars + ("\n" if wanted.submit else "")
        wait_s = wanted.yield_ms / 1000
        if (text or wanted.eof) and running.session.ended is None:
            await self._programs.write(running, text.encode(), wait_s=wait_s, eof=wanted.eof)
        return _outcome(await self._programs.look(running, wait_s=wait_s, most_lines=wanted.poll_lines))


class SkillPollSession(_OnSession):
    kind = PollArguments
    spec = ToolSpec(
        name="skill_poll_session",
        description="What a program that skill_exec started has said since the last look.",
        parameters=render_schema(PollArguments),
        read_only=True,
    )

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(PollArguments, args, self.spec.name)
        running = self._programs.get(wanted.session_id)
        wait_s = wanted.yield_ms / 1000
        return _outcome(await self._programs.look(running, wait_s=wait_s, most_lines=wanted.poll_lines))


class SkillKillSession(_OnSession):
    kind = SessionArguments
    spec = ToolSpec(
        name="skill_kill_session",
        description="End a program that skill_exec started.",
        parameters=render_schema(SessionArguments),
    )

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(SessionArguments, args, self.spec.name)
        return _outcome(await self._programs.kill(self._programs.get(wanted.session_id)))


def _outcome(data: dict[str, Any]) -> Outcome:
    return Outcome(status="ok", content=json.dumps(data, ensure_ascii=False), data=data)
