"""Kit: skills for an agent, over ports. What it is shown, what it can call, and `call`, which does it.

    async with kit:
        await kit.activate("pdf-forms")
        outcome = await kit.call("skill_run", {"skill": "pdf-forms", "command": "python3 scripts/fill.py"})

Every call goes through the same door, policy, workspace and record, whoever makes it: our loop, another framework's, or
`prowess exec`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from prowess import __version__
from prowess._act import Named, Scene, act
from prowess._record import Recorder
from prowess.events import RunFinished, RunStarted, SkillLoaded, StopReason
from prowess.policy.allowed_tools import COMMAND_TOOLS, AllowedTools, parse_allowed
from prowess.policy.decision import Surroundings
from prowess.policy.rules import Rules
from prowess.policy.secrets import Redactor
from prowess.ports import Approver, SecretProvider
from prowess.skills.entry import Skill
from prowess.tools.base import Tool, Tools
from prowess.tools.interactive import SkillExec, SkillKillSession, SkillPollSession, SkillWriteStdin
from prowess.tools.programs import Programs
from prowess.tools.read_file import ReadFile
from prowess.tools.skill_run import SkillRun
from prowess.tools.work import Loaded, Work
from prowess.values import Outcome, ToolCall, ToolSpec, Trigger

_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KitPolicy:
    """What decides about calls, besides the skills themselves."""

    surroundings: Surroundings = field(default_factory=Surroundings)
    rules: Sequence[Rules] = ()
    redact: Sequence[str] = ()


class Kit:
    def __init__(
        self,
        *,
        load: Callable[[str, str | None, Trigger], Skill],
        work: Work,
        recorder: Recorder,
        policy: KitPolicy,
        approver: Approver | None = None,
        secrets: SecretProvider | None = None,
        instructions: str = "",
        more_tools: Sequence[Tool] = (),
        on_output: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.instructions = instructions
        self.work = work
        self.recorder = recorder
        self._load = load
        self._policy = policy
        self._secrets = secrets
        self._programs = Programs()
        self._numbers = itertools.count(1)
        self._learning = asyncio.Lock()
        self._busy: set[asyncio.Future[None]] = set()  # calls that are being made
        self.unhidden: tuple[str, ...] = ()  # secrets that are too short to be found in a text
        self._scene = Scene(
            tools=Tools(*self._own_tools(), *more_tools),
            append=recorder.append,
            approver=approver,
            around=self._around,
            named=self._named,
            lists=self._lists,
            rules=policy.rules,
            redactor=Redactor({}, policy.redact),
            on_output=on_output,
        )

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The schemas for its model."""
        return self._scene.tools.specs()

    async def activate(self, ref: str, *, source: str | None = None, trigger: Trigger = "caller") -> Loaded:
        """Load a skill for the runs from now on. SkillNotFound, SkillDenied or SkillInvalid says why not."""
        skill = self._load(ref, source, trigger)
        async with self._learning:
            await self._learn_secrets(skill)
        loaded = await self.work.load(skill)
        await self.recorder.append(SkillLoaded(id=skill.entry.id, digest=skill.digest, trigger=trigger))
        return loaded

    async def call(self, tool: str, args: Mapping[str, Any] | None = None, *, id: str | None = None) -> Outcome:
        """One call, decided, done and written down. A denial or a failure is an outcome."""
        given = dict(args) if isinstance(args, Mapping) else {} if args is None else {"arguments": args}
        call = ToolCall(id=id or f"call-{next(self._numbers)}", tool=str(tool), args=given)
        done = asyncio.get_running_loop().create_future()
        self._busy.add(done)
        try:
            return await act(call, self._scene)
        finally:
            done.set_result(None)
            self._busy.discard(done)

    async def __aenter__(self) -> Kit:
        await self.recorder.append(RunStarted(model="caller", versions={"prowess": __version__}))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._programs.aclose()
            await self.work.aclose()
            if self._busy:  # what they ran has ended, and what came of it belongs before the end of the run
                await asyncio.wait(self._busy, timeout=_PATIENCE_S)
        finally:
            if not self.recorder.broken:
                reason: StopReason = (
                    "answer" if kind is None else "error" if issubclass(kind, Exception) else "cancelled"
                )
                await self.recorder.append(RunFinished(stop_reason=reason))
            await self.recorder.close()

    def _own_tools(self) -> list[Tool]:
        work, programs = self.work, self._programs
        return [
            SkillRun(work),
            SkillExec(work, programs),
            SkillWriteStdin(programs),
            SkillPollSession(programs),
            SkillKillSession(programs),
            ReadFile(work),
        ]

    async def _around(self, call: ToolCall) -> Surroundings:
        """What is enforced around a script is found out before it is decided about."""
        if call.tool not in (*COMMAND_TOOLS, "skill_write_stdin"):
            return self._policy.surroundings
        return replace(self._policy.surroundings, isolation=await self.work.executor.isolation())

    def _named(self, call: ToolCall) -> Named | None:
        if isinstance(ref := call.args.get("skill"), str):
            return _name(self.work.get(ref).skill)
        if isinstance(session := call.args.get("session_id"), str):
            return _name(self.work.get(self._programs.get(session).skill).skill)
        return None

    def _lists(self) -> Mapping[str, AllowedTools]:
        """Of every skill that this run has loaded and that declares a list; that one is unloaded lifts nothing."""
        known = [spec.name for spec in self.tools]
        return {
            id: parse_allowed(declared, known=known)
            for id, each in self.work.loaded.items()
            if (declared := each.skill.entry.controls.allowed_tools) is not None
        }

    async def _learn_secrets(self, skill: Skill) -> None:
        """The values of what it declares: for its runs, and to be taken out of everything from now on."""
        if self._secrets is None:
            return
        values = dict(self._scene.secrets)
        for name in declared_env(skill):
            value = await self._secrets.find(name)
            if value is not None:
                values[name] = value
        self._scene.secrets = values
        self._scene.redactor = Redactor(values, self._policy.redact)
        self.unhidden = self._scene.redactor.unusable


def declared_env(skill: Skill) -> tuple[str, ...]:
    return tuple(name for kind, names in skill.entry.controls.requires if kind == "env" for name in names)


def _name(skill: Skill) -> Named:
    entry = skill.entry
    return Named(id=entry.id, source=entry.source, trusted=entry.trusted, env=declared_env(skill))
