"""Repeats a recorded run without a model, in a session and a workspace of its own, and compares both.

Answers, roots and executor come from the record only if this user made it and nothing in it was changed.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from prowess.agent.activation import find_requested_skills
from prowess.agent.agent import Limits, SkillRequest
from prowess.core.events import ApprovalAnswered, Envelope, RunStarted, SessionImported
from prowess.core.ports import Approver
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import ConfigError, ModelError, ProwessError
from prowess.models.replay import ReplayModel
from prowess.policy.decision import asked_isolated
from prowess.records.audit import check_session
from prowess.records.diff import Difference, first_difference
from prowess.records.sessions import answers_since
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import describe_foreign, events_of, find_run, opened
from prowess.runtime.services.replay import LogUntil, Recorded, copy_files, put_back
from prowess.runtime.services.sessions import session_place
from prowess.runtime.storage import new_session
from prowess.skills.roots import WORDS
from prowess.workspace.session_folder import remove_place
from prowess.workspace.session_names import place_path


class RecordedRun(NamedTuple):
    """Run to repeat, and the folder with the files that it was given. `foreign` is the folder of a record that is not
    in the log."""

    recorded: Recorded
    workspace: str
    foreign: str | None = None


class ReplaySettings(NamedTuple):
    """Settings of a replay: roots and flags are for its runtime. `notes` says what comes from the record, or could
    not."""

    roots: Sequence[str]
    flags: dict[str, str | None]
    instructions: str
    notes: list[str]


class Replayed(NamedTuple):
    """Events of a replay, and the first that differs from the record. `notes` says what could not be repeated."""

    events: list[Envelope]
    difference: Difference | None
    error: ProwessError | None
    notes: list[str]


async def find_recorded(runtime: Runtime, ref: str) -> RecordedRun:
    """Returns the run that `ref` names, with the events of its session before it."""
    async with opened(runtime) as (log, _):
        found = await find_run(runtime, log, ref)
    _, events, summary = events_of(found)
    run = summary.run
    before: list[Envelope] = []
    may_count = False
    imported: list[int] = []
    if found.folder is None:
        before = [each for each in found.record.envelopes if (each.seq or 0) <= summary.after.seq]
        may_count = runtime.loaded.project_trusted and check_session(found.record).valid
        imported = [each.seq or 0 for each in found.record.envelopes if isinstance(each.event, SessionImported)]
    since = answers_since(log) if log is not None else None

    def is_own(envelope: Envelope) -> bool:
        is_later = since is not None and envelope.at >= since and (envelope.seq or 0) > max(imported, default=0)
        return may_count and is_later

    recorded = Recorded(run, summary.key, events, before, is_own)
    if recorded.started is None:
        raise ConfigError(
            f"The record of run '{run}' does not say how it began, so it cannot be repeated.",
            code="recording-invalid",
            hint=f"See what is wrong with it: prowess runs verify {run}",
        )
    if found.folder is not None:  # its session is not ours, even if a session of ours has its name
        return RecordedRun(recorded, found.folder, found.folder)
    folder = place_path(*session_place(runtime), recorded.key)
    return RecordedRun(recorded, os.path.join(folder, "root"))


def choose_settings(
    recorded: Recorded,
    *,
    cwd: str,
    roots: Sequence[str] = (),
    executor: str | None = None,
    instructions: str | None = None,
) -> ReplaySettings:
    """Returns the settings of a replay. Values that are not given come from the recorded run.

    A named root counts as the user's own, so roots are taken only from a record that the user made.
    """
    then_roots = () if roots else recorded.given("--root")
    then_executor = () if executor else recorded.given("--executor")[-1:]
    words: list[str] = []
    for root in then_roots:
        words += ["--root", root]
    for name in then_executor:
        words += ["--executor", name]
    said = shlex.join(words)
    missing = [root for root in then_roots if not _is_there(cwd, root)]
    notes: list[str] = []
    if words and not recorded.is_own:
        notes.append(f"The run was given {said}, which is not taken from a record that is not trusted.")
    elif missing:
        notes.append(f"The run was given {said}, and '{missing[0]}' is not there now.")
    elif words:
        notes.append(f"As in the recorded run: {said}")
        roots = then_roots or roots
        executor = then_executor[0] if then_executor else executor
    flags = {"store": "memory:", "artifacts": "memory:", "workspace.executor": executor}  # nothing is kept
    if not instructions:
        instructions = "".join(recorded.given("--instructions")[-1:])
    return ReplaySettings(roots, flags, instructions, notes)


def _is_there(cwd: str, root: str) -> bool:
    if "://" in root or root in WORDS:
        return True
    path = os.path.join(cwd, os.path.expanduser(root))
    return os.path.isdir(path)


async def replay_run(runtime: Runtime, run: RecordedRun, settings: ReplaySettings, approver: Approver) -> Replayed:
    """Repeats a run in a runtime that was opened with these settings.

    `approver` is asked about a call without isolation, and about one that nobody was asked about in the recorded run.
    """
    replaying = _Replaying(runtime, run, settings, approver)
    events = await replaying.go()
    recorded = run.recorded
    reordered = bool(recorded.before)
    difference = first_difference(recorded.to_compare, events, ignore=("model",), reordered=reordered)
    return Replayed(events, difference, replaying.error, replaying.notes)


class _Replaying:
    """Replay of one recorded run, while it goes on."""

    def __init__(self, runtime: Runtime, run: RecordedRun, settings: ReplaySettings, approver: Approver) -> None:
        self._runtime = runtime
        self._instructions = settings.instructions
        self._approver = approver
        self._recorded = run.recorded
        self._workspace = run.workspace
        self._log = LogUntil()
        self._key = SessionKey(session=new_session())
        self.error: ProwessError | None = None
        foreign = [] if run.foreign is None else [describe_foreign(run.foreign)]
        self.notes = [*foreign, *run.recorded.notes(), *settings.notes]

    async def go(self) -> list[Envelope]:
        """Repeats the run, and returns its events."""
        recorded = self._recorded
        log = self._log
        await put_back(log, self._key, recorded.before)
        before = await log.head(self._key)
        if recorded.was_cut_off:
            log.stop_after(recorded.to_compare)
        try:
            if recorded.by_caller:
                await self._calls()
            elif recorded.started is not None:
                await self._session(recorded.started)
        except ProwessError as error:
            if not log.is_full:
                self.error = error
        finally:
            remove_place(*session_place(self._runtime, log), self._key)
        events = [envelope async for envelope in log.read(self._key, after_seq=before.seq)]
        if log.is_full:
            events = [each for each in events if each.seq in log.counted]
        if self.error is not None and not events:
            raise self.error  # the run did not even begin
        return events

    async def _session(self, started: RunStarted) -> None:
        recorded = self._recorded
        model = ReplayModel(recorded.events, name=f"replay:{recorded.run}")
        skills = self._skills(started.request)
        options = {
            **self._options(),
            "model": model,
            "limits": _limits(started.limits),
            "load_mode": started.load_mode,
            "placement": started.placement,
            "instructions": self._instructions,
        }
        with tempfile.TemporaryDirectory(prefix="prowess-replay-") as folder:
            files = self._files(recorded.attached(), folder)
            async with self._runtime.open_session(**options) as session:
                is_resumed = started.resumes is not None
                await session.run(started.request, skills=skills, files=files, resume=is_resumed)
        left = model.unused
        if left:
            replies = "1 more reply" if left == 1 else f"{left} more replies"
            raise ModelError(
                f"The model had {replies} in the recorded run.",
                code="replay-unused",
                hint="The run ended earlier than the recorded one.",
            )

    async def _calls(self) -> None:
        """Repeats a run without a model, whose calls the caller decided."""
        with tempfile.TemporaryDirectory(prefix="prowess-replay-") as folder:
            granted = self._files(self._recorded.granted(), folder)
            async with self._runtime.open_kit(**self._options(), granted=granted) as kit:
                for call in self._recorded.calls():
                    await kit.act(call)

    def _files(self, names: Sequence[str], folder: str) -> list[tuple[str, str | None]]:
        """Copies the files of the recorded workspace that are still there, and notes the others."""
        files, missing = copy_files(names, self._workspace, folder)
        for name in missing:
            self.notes.append(f"{name} is not there any more, so the run is repeated without it.")
        return files

    def _options(self) -> dict[str, Any]:
        return {
            "session": self._key.session,
            "log": self._log,
            "standing": False,  # a replay makes no standing approval, and uses none
            "approver": self._approve,
            "ask_unisolated": True,
            "asker": self._recorded.ask,
            "on_ask": self._recorded.on_ask,
        }

    async def _approve(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        """Answers as recorded. Asks again about a call without isolation, or one approved then without a question."""
        is_isolated = asked_isolated(decision) is not False
        if is_isolated and call.id not in self._recorded.unasked:
            return await self._recorded.approve(call, decision)
        answer = await self._approver(call, decision)
        if answer is not None:
            return answer
        why = "was approved for the recorded run alone" if is_isolated else "would run without isolation"
        note = f"{call.tool} {why}, and nobody is here to approve it. Add --yes {call.tool}."
        if note not in self.notes:
            self.notes.append(note)
        return None

    def _skills(self, request: str) -> list[SkillRequest]:
        """Returns the skills requested before the model was asked, without those that the text names anyway."""
        in_text, _ = find_requested_skills(request, self._runtime.catalog)
        named = {each.ref for each in in_text}
        found: list[SkillRequest] = []
        for each in self._recorded.requested_skills():
            if each.trigger != "user" or each.ref not in named:
                found.append(each)
        return found


def _limits(recorded: dict[str, float]) -> Limits:
    """Returns the limits of the run. A limit that is not recorded was not set."""
    given: dict[str, Any] = {}
    for name in Limits.__slots__:
        value = recorded.get(name)
        if value is not None and name not in ("seconds", "cost"):
            value = int(value)
        given[name] = value
    given["cost"] = None  # the replies have their cost; a replay has no prices
    return Limits(**given)
