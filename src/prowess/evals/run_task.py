"""Runs one case once: the real runtime, a new session and a new workspace, every turn, then the checks. Only faults of
the infrastructure are tried again; what a model does is never repeated."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pydantic import Field

from prowess._internal.caught import find_error
from prowess._internal.paths import inside
from prowess.agent.agent import Limits
from prowess.agent.session import Session
from prowess.core.ports import Model
from prowess.core.values import SessionKey, Usage, add_usage
from prowess.errors import ModelOverloaded, ProwessError, WorkspaceError
from prowess.evals.case import Constraints
from prowess.evals.checks import find_status, run_checks
from prowess.evals.judge import judge, not_judged
from prowess.evals.results import CheckResult, EvalRecord, EvalTask, FileMade, RunFault, RunRecord
from prowess.evals.task_runtime import task_runtime
from prowess.models.model_info import PricedModel, is_live
from prowess.models.scripted import ScriptedModel, load_script
from prowess.records.trajectory import Trajectory, read_trajectory
from prowess.runtime.arguments import make_approver
from prowess.runtime.factories import SessionOptions, find_prices
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.cassette import Cassette
from prowess.runtime.services.sessions import session_place
from prowess.runtime.session_models import make_model
from prowess.stores.memory import KeptEvents
from prowess.workspace.export import read_named
from prowess.workspace.session_folder import remove_place

_LONGEST_WAIT_S = 120.0  # before another try
LONGEST_S = 900.0  # of a run without a limit of its own
_MOST_FILE_BYTES = 64 << 20  # of all files of one run that are returned
_GRACE_S = 30.0  # for opening and closing, after a limit of the run itself
_LONGEST_TEXT = 20_000  # characters of an answer in a record
_SAME = ("calls_by_tool", "turns", "questions", "stop_reason", "timeline")  # in a trajectory and in a record
_REASONS = (  # why a case is not run
    ("no-script", "The case has no script.", "Write its replies under 'script', or run it with another --model."),
    ("no-judge", "The case has only statements for a judge.", "Name a model: --judge MODEL. Or add other checks."),
    ("no-checks", "The case checks nothing.", "Say under 'expect' what a good run does."),
)
_SKIPS = {code: RunFault(code=code, message=message, hint=hint) for code, message, hint in _REASONS}


class TaskOutcome(EvalRecord):
    """Record of a task, with the lines of its recording and the files that it made, in base64, if it asks for them."""

    record: RunRecord
    recording: tuple[str, ...] = ()
    contents: dict[str, str] = Field(default_factory=dict)


async def run_task(task: EvalTask, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> TaskOutcome:
    """Runs a task without writing anything that stays."""
    if (reason := _find_skip(task)) is not None:
        return TaskOutcome(record=begin_record(task, _SKIPS[reason]))
    attempts = 0
    spent = Usage()
    while True:
        attempts += 1
        attempt = _Attempt(task)
        await attempt.play()
        if not getattr(attempt.error, "retryable", False) or attempts > task.retries:
            break
        spent = add_usage(spent, Usage(cost=attempt.usage.cost))  # what failed was paid for, too
        wait_s = attempt.error.retry_after_s if isinstance(attempt.error, ModelOverloaded) else None
        await sleep(min(2.0 ** (attempts - 2) if wait_s is None else wait_s, _LONGEST_WAIT_S))
    lines: list[str] = []
    if task.record_to and attempt.key and attempt.error is None:
        lines = [line async for line in attempt.log.lines(attempt.key)]
    return TaskOutcome(record=attempt.record(attempts, spent), recording=tuple(lines), contents=attempt.contents)


def begin_record(task: EvalTask, fault: RunFault | None = None) -> RunRecord:
    """Returns the record of a task that was not run, with the reason."""
    case = task.case
    record = RunRecord(key=task.key, status="skipped", error=fault, gate=case.gate or "hard", canary=case.canary)
    skills = case.expect.skills
    if skills is None:
        return record
    expected = {"expected_skills": skills.load, "forbidden_skills": skills.not_load, "is_trigger_case": True}
    return record.model_copy(update=expected)


def _find_skip(task: EvalTask) -> str | None:
    case = task.case
    expect = case.expect
    if task.model == "scripted" and case.script is None and not _replays(task):
        return "no-script"
    limits = case.constraints and case.constraints.model_dump(exclude_defaults=True)
    if not task.checked or expect.skills is not None or expect.steps or expect.output or expect.files or limits:
        return None
    if not expect.judge:
        return "no-checks"
    return "no-judge" if task.judge is None else None


def _replays(task: EvalTask) -> bool:
    """True if the task plays a recording. With `record_to` as well, a recording that is missing is made."""
    return task.replay_from is not None and (task.record_to is None or os.path.exists(task.replay_from))


class _Attempt:
    """Attempt at a task: a session, a workspace, the checks, and the error that it ended with."""

    def __init__(self, task: EvalTask) -> None:
        self._task = task
        self._case = task.case
        self.log = KeptEvents()
        self.key: SessionKey | None = None
        self.error: ProwessError | None = None
        self.contents: dict[str, str] = {}
        self._cassette: Cassette | None = None
        self._checks: list[CheckResult] = []
        self._files: dict[str, FileMade] = {}
        self._judge: PricedModel | None = None

    async def play(self) -> None:
        self.error = await find_error(self._run())
        if self._cassette is not None and self.key is not None:
            self.error = await self._cassette.find_miss(self.log, self.key, self.error) or self.error
        if self.error is None:
            self.error = await find_error(self._ask_judge())

    @cached_property
    def trajectory(self) -> Trajectory:
        return read_trajectory(self.log.events)

    @property
    def usage(self) -> Usage:
        """Tokens of the run, and the cost of the run and of its judge."""
        return add_usage(self.trajectory.usage, Usage(cost=self._judge.cost if self._judge else None))

    async def _run(self) -> None:
        task = self._task
        runtime = task_runtime(task)
        model = self._find_model()
        limits = _find_limits(runtime, task)
        approver = make_approver(task.approved) if task.approved else None
        # Nobody is there to answer, and what this user once approved must not decide about a result.
        opened = runtime.open_session(
            model=model or task.model, log=self.log, limits=limits, approver=approver, on_ask="deny", standing=False
        )
        try:
            longest = (limits.seconds or LONGEST_S) * len(self._case.requests) + _GRACE_S
            async with asyncio.timeout(longest), opened as session:
                self.key = session.key
                await self._talk(session, limits)
                if isinstance(model, ScriptedModel) and session.answered:
                    model.assert_finished()
                if task.checked:
                    root = session.kit.work.root or None
                    run = partial(run_checks, self._case, self.trajectory, base=task.base, workspace=root)
                    made = await asyncio.to_thread(run)
                    hide = session.kit.secrets.redact_text  # files may have secrets, unlike the events
                    self._checks = [each.model_copy(update={"evidence": hide(each.evidence)}) for each in made]
        except TimeoutError as error:
            raise _timed_out(limits) from error
        finally:
            if self.key is not None:
                remove_place(*session_place(runtime, self.log), self.key)

    async def _talk(self, session: Session, limits: Limits) -> None:
        """Runs all turns, as long as each of them ends with an answer."""
        task = self._task
        constraints = self._case.constraints or Constraints()
        files = [inside(task.base, path) for path in self._case.files or ()]
        for number, request in enumerate(self._case.requests):
            result = await session.run(request, files=[] if number else files, skills=() if number else task.load)
            for file in result.files:
                made = FileMade(name=file.name, mime_type=file.mime_type, size_bytes=file.size_bytes)
                self._files[file.name] = made
            if result.stop_reason == "limit:seconds" and task.checked and constraints.max_seconds is None:
                raise _timed_out(limits)
            if not result.ok:
                break
        if task.keep_files:
            contents = read_named(session.kit.work.root, list(self._files), _MOST_FILE_BYTES)
            self.contents = {name: base64.b64encode(data).decode() for name, data in contents.items()}

    def _find_model(self) -> Model | None:
        """Returns the model that plays a recording or the case's script; None for any other."""
        task = self._task
        script = self._case.script
        if _replays(task):
            self._cassette = Cassette(task.replay_from or "", task.key.model)
            return self._cassette.model
        if task.model != "scripted":
            return None
        if isinstance(script, str):
            return load_script(inside(task.base, script), name="scripted")
        return ScriptedModel(script or (), name="scripted")

    async def _ask_judge(self) -> None:
        statements = self._case.expect.judge
        named = self._task.judge
        if not statements or named is None:
            self._checks += not_judged(statements)
            return
        runtime = task_runtime(self._task)
        self._judge = PricedModel(make_model(runtime, SessionOptions(model=named)), find_prices(runtime, named))
        async with aclosing(self._judge):
            self._checks += await judge(statements, self.trajectory, self._judge)

    def record(self, attempts: int, spent: Usage) -> RunRecord:
        """Makes the record. `spent` is the cost of earlier attempts."""
        trajectory = self.trajectory
        status, fault = self._find_status()
        values: dict[str, Any] = {name: getattr(trajectory, name) for name in _SAME}
        values["status"] = status
        values["checks"] = tuple(self._checks)
        values["loaded_skills"] = trajectory.loaded
        values["calls"] = len(trajectory.steps)
        values["usage"] = add_usage(self.usage, spent)
        values["seconds"] = round(trajectory.seconds, 6)
        values["text"] = trajectory.text[:_LONGEST_TEXT] if self._task.checked else trajectory.text
        values["files"] = tuple(self._files.values())
        values["attempts"] = attempts
        values["replayed"] = self._cassette is not None
        return begin_record(self._task, fault).model_copy(update=values)

    def _find_status(self) -> tuple[str, RunFault | None]:
        """Returns the status, and the reason for an error or a skip. A judge that decided nothing is an error, unless
        the case failed anyway. A run that was stopped did not pass: what it did not do says nothing."""
        if (error := self.error) is not None:
            retryable = bool(getattr(error, "retryable", False))
            return "error", RunFault(code=str(error.code), message=error.message, hint=error.hint, retryable=retryable)
        reason = self.trajectory.stop_reason
        if not self._task.checked:
            return "passed" if reason == "answer" else "failed", None
        status = find_status(self._checks)
        undecided = [check for check in self._checks if check.kind == "judge" and check.passed is None]
        if undecided and self._judge is not None and status != "failed":
            message = f"The judge did not decide '{undecided[0].name[:80]}'."
            return "error", RunFault(code="judge-failed", message=message, hint=undecided[0].evidence[:300])
        if status == "passed" and reason not in ("answer", "error"):
            hint = "Raise the limit in the configuration, or set it under 'constraints'."
            return "failed", RunFault(code="run-stopped", message=f"The run has no answer: {reason}.", hint=hint)
        return status, _SKIPS["no-judge" if self._checks else "no-checks"] if status == "skipped" else None


def _find_limits(runtime: Runtime, task: EvalTask) -> Limits:
    """Returns the limits of the configuration, tightened by those of the case."""
    own = task.case.constraints or Constraints()
    turns = own.max_turns if own.max_turns is None else max(1, own.max_turns)
    limits = Limits(**runtime.config.limits._asdict()).tightened(
        calls=own.max_calls, turns=turns, tokens=own.max_tokens, seconds=own.max_seconds, cost=own.max_cost
    )
    return limits if is_live(task.model or "") and not _replays(task) else replace(limits, cost=None)


def _timed_out(limits: Limits) -> WorkspaceError:
    message = f"The run did not end within {limits.seconds or LONGEST_S:g} s."
    hint = "Give the case more time: limits.seconds in the configuration, or constraints.max_seconds as a check."
    return WorkspaceError(message, op="eval", code="run-timeout", hint=hint)
