"""Session: one conversation over many runs. It continues from its log, in this process or another.

async with runtime.open_session(model="offline") as session:
    result = await session.run("Summarise sales.csv", files=["sales.csv"])
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prowess._internal.mime import guess_mime
from prowess.agent.agent import AgentSpec, Result, SkillRequest, Task
from prowess.agent.loop import run
from prowess.agent.model_call import RetryPolicy
from prowess.agent.recorder import new_run
from prowess.agent.toolkit import Toolkit
from prowess.core.ports import EventLog
from prowess.core.values import Message, Part, Plan, SessionKey, Usage, add_usage
from prowess.errors import ConfigError, StoreError
from prowess.records.chain import broken_record, verify_chain
from prowess.tools.session_work import SessionWork

_MOST_NAMES = 1_000
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Session:
    def __init__(self, agent: AgentSpec, kit: Toolkit, *, resume_arguments: tuple[str, ...] | None = ()) -> None:
        self.agent = agent
        self.kit = kit
        self.answered: bool = False  # the last run ended with an answer
        self.usage: Usage = Usage()  # usage of all runs of this process
        self._resume_arguments = resume_arguments
        self._retry_policy = RetryPolicy()
        self._fresh = True

    @property
    def key(self) -> SessionKey:
        return self.kit.recorder.key

    @property
    def plan(self) -> Plan | None:
        return self.kit.conversation.plan

    @property
    def state(self) -> dict[str, object]:
        """Copy of the session state: `temp:skill:loaded:<name>`, `temp:skill:docs:<name>`, and values of tools."""
        return dict(self.kit.conversation.state.values)

    @property
    def messages(self) -> Sequence[Message]:
        """Messages of the last request to the model."""
        return self.kit.conversation.request().messages

    async def run(
        self,
        request: str = "",
        *,
        skills: Sequence[str | SkillRequest] = (),
        files: Sequence[str | tuple[str, str | None]] = (),
        resume: bool = False,
        deps: object = None,
    ) -> Result[Any]:
        """Runs one request to its end. `resume` continues a run that was interrupted, waits or reached a limit. `deps`
        replaces those of the session for this run."""
        if not isinstance(request, str):
            kind = type(request).__name__
            raise ConfigError(f"The request is {kind}, not a text.", code="usage", hint="Give a text.")
        if resume:
            self._check_given()
        elif not request.strip() and not skills:
            raise ConfigError("There is no request.", code="usage", hint='Say what is wanted: prowess run "…"')
        if not self._fresh:
            self.kit.recorder.start_run(new_run())
        self._fresh = False
        attachments, named = await stage_files(self.kit.work, files)
        requests: list[SkillRequest] = []
        for given in skills:
            requests.append(given if isinstance(given, SkillRequest) else SkillRequest(ref=given))
        task = Task(
            text=request,
            attachments=attachments,
            skills=tuple(requests),
            named=named,
            resume=resume,
            resume_arguments=self._resume_arguments,
        )
        self.answered = False
        before = self.kit.deps
        if deps is not None:
            self.kit.deps = deps
        try:
            result = await run(self.agent, self.kit, task, retry_policy=self._retry_policy)
        finally:
            self.kit.deps = before
        if result.waiting:
            ids = [call.id for call in result.waiting]
            pending = await self.kit.recorder.find_pending()
            asked = [each for each in pending.questions if each.answer is None and each.call.id in ids]
            result = replace(result, questions=tuple(each.question for each in asked))
        self.answered = result.ok
        self.usage = add_usage(self.usage, result.usage)
        return result

    def _check_given(self) -> None:
        """Checks that there is a run to resume."""
        talk = self.kit.conversation
        session = self.key.session
        if talk.run is None:
            message = f"The session '{session}' has no run yet."
        elif talk.finished is not None and talk.finished.stop_reason == "answer":
            message = f"There is nothing to resume in session '{session}': its last run ended with an answer."
        elif talk.output is not None and self.agent.output is None:
            raise StoreError(
                f"The last run of session '{session}' must answer in a form that only its own program can check.",
                code="output-type-missing",
                hint="Resume it in Python, by an Agent with the same output_type.",
            )
        else:
            return
        raise StoreError(message, code="nothing-to-resume", hint="Ask something new without --resume.")


async def stage_files(
    work: SessionWork, files: Sequence[str | tuple[str, str | None]]
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Copies the given files into the workspace. Returns them as parts, and the names of files in folders."""
    parts: list[Part] = []
    named: list[str] = []
    for given in files:
        path, to = (given, None) if isinstance(given, str) else given
        staged = await work.stage_file(path, to)
        name = staged.to.removeprefix("work/")
        ref = f"workspace://{staged.to}"
        below = await asyncio.to_thread(_names_below, path)
        named += [f"{name}/{rel}" for rel in below]
        mime = "inode/directory" if below else guess_mime(path, b"")
        parts.append(Part(kind="file", text=name, ref=ref, mime_type=mime))
        if mime in _IMAGES and staged.files == 1:
            parts.append(Part(kind="image", ref=ref, mime_type=mime))
    return tuple(parts), tuple(named)


def _names_below(path: str) -> list[str]:
    """Returns names of files in a folder, for skills with `paths`. At most 1,000, because some are enough."""
    found: list[str] = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            found.append(os.path.relpath(file, path))
        if len(found) > _MOST_NAMES:
            break
    return found[:_MOST_NAMES]


async def restore_from_log(kit: Toolkit, log: EventLog) -> None:
    """Rebuilds the conversation by applying the events of the log. A record that was changed is refused, because an
    approval in it may be forged."""
    key = kit.recorder.key
    lines = [line async for line in log.lines(key)]
    head = await log.head(key)
    report = verify_chain(lines, head)
    if not report.valid:
        what = f"was changed since it was written (event {report.first_bad}: {report.why})"
        hint = "See: prowess runs verify --all. Work in another session, or restore a copy."
        raise broken_record(key, what, hint)
    async for envelope in log.read(key):
        if envelope.key != key:
            what = f"has events of the session '{envelope.session}'"
            raise broken_record(key, what)
        kit.conversation.apply_envelope(envelope)
    kit.conversation.questions.end_begun(kit.conversation.was_begun)
    kit.take_up_skills()
