"""Action `prowess runs replay`: repeats a recorded run without a model, and shows the first difference."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import click

from prowess.agent.activation import SkillRequest, find_wishes
from prowess.agent.agent import Limits
from prowess.cli.app import Call, roots_option, verb
from prowess.cli.approver import TerminalApprover, parse_yes
from prowess.cli.call import note_findings
from prowess.cli.commands.runs_show import render_difference, show_difference
from prowess.cli.screen import count
from prowess.cli.session_options import yes_option
from prowess.core.events import ApprovalAnswered, Envelope
from prowess.core.findings import visible
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import ConfigError, ModelError, ProwessError
from prowess.models.replay import ReplayModel
from prowess.policy.decision import asked_isolated
from prowess.records.audit import check_copy, check_session
from prowess.records.diff import Difference, first_difference
from prowess.runtime.factories import new_session, open_marks, runs_folder, store_name, workspace_dir
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import FoundRun, events_of, find_run, load_lines, load_summary, opened
from prowess.runtime.services.replay import LogUntil, Recorded, copy_files, put_back, settled
from prowess.workspace.session_folder import place_path, remove_place

_OWN = {"store": "memory:", "artifacts": "memory:"}  # nothing of a replay is kept


@verb("replay", example="prowess runs replay r-1f2e\nprowess runs replay r-1f2e --root ./skills --json")
@click.argument("run")
@roots_option
@click.option(
    "--executor",
    type=click.Choice(["auto", "local", "sandbox", "container", "none"]),
    help="What runs scripts.  [default: as configured]",
)
@click.option("--instructions", metavar="TEXT", help="Other instructions than the run was given.")
@yes_option
def replay(
    call: Call, run: str, roots: Sequence[str], executor: str | None, instructions: str | None, yes: Sequence[str]
) -> int:
    """Repeat a run with today's code and skills, without a model; show the first difference.

    It works in a session and a workspace of its own; scripts are really run. Answers are those that you gave then; a
    question that was not asked then is answered with no. What --yes approved, and what would run without isolation, is
    asked about again. A run that was cut off is repeated as far as its record goes. Roots and executor are those that
    you gave the run, unless you give others. In a folder that is not trusted, or for a record that you did not make,
    neither answers nor roots and executor are taken from the record. Exit code 0: the same; 1: it went another way.
    """
    ask = TerminalApprover(parse_yes(yes), ask=not call.screen.is_json)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        recorded = asyncio.run(_recorded(runtime, run))
        config, places = runtime.config, runtime.places
        workspace = place_path(workspace_dir(config, places), store_name(config, places), recorded.key)
    roots, executor, notes = _as_then(call, recorded, roots, executor)
    with call.runtime(roots=roots, flags={**_OWN, "workspace.executor": executor}) as runtime:
        instructions = instructions or "".join(recorded.given("--instructions")[-1:])
        replaying = Replaying(runtime, recorded, instructions, ask)
        replaying.notes += notes
        asyncio.run(replaying.go(os.path.join(workspace, "root")))
    difference = replaying.difference()
    if call.screen.is_json:
        document = {
            "run": recorded.run,
            "same": difference is None,
            "first": render_difference(difference),
            "events": len(recorded.events),
            "replayed": len(replaying.events),
            "error": None if replaying.error is None else replaying.error.to_json(),
            "notes": replaying.notes,
        }
        call.screen.document({"schema": "prowess.run-replayed/1", **document})
    else:
        for note in replaying.notes:
            call.screen.note(f"note: {visible(note)}")
        _show(call, replaying, difference)
    return 0 if difference is None else 1


def _show(call: Call, replaying: Replaying, difference: Difference | None) -> None:
    if difference is None:
        same = "same as far as it goes" if replaying.recorded.was_cut_off else "same"
        call.screen.text(f"{same}  {visible(replaying.recorded.run)}  {count(len(replaying.events), 'event')}")
        return
    show_difference(call.screen, difference, "recorded", "today")
    if replaying.error is not None:
        call.screen.note(f"It ended with: {visible(replaying.error.message)} [{replaying.error.code}]")


def _as_then(
    call: Call, recorded: Recorded, roots: Sequence[str], executor: str | None
) -> tuple[Sequence[str], str | None, list[str]]:
    """Returns roots, executor and notes. Values that the replay was not given come from the recorded run.

    A named root counts as the user's own, so roots are taken only from a record that the user made.
    """
    then_roots, then_executor = (() if roots else recorded.given("--root")), recorded.given("--executor")[-1:]
    then_executor = () if executor else then_executor
    words = [word for root in then_roots for word in ("--root", root)]
    words += [word for name in then_executor for word in ("--executor", name)]
    if not words:
        return roots, executor, []
    said = shlex.join(words)
    if not recorded.is_own:
        return roots, executor, [f"The run was given {said}, which is not taken from a record that is not trusted."]
    for root in then_roots:
        if "://" not in root and not os.path.isdir(os.path.join(call.cwd, os.path.expanduser(root))):
            return roots, executor, [f"The run was given {said}, and '{root}' is not there now."]
    return then_roots or roots, next(iter(then_executor), executor), [f"As in the recorded run: {said}"]


async def _recorded(runtime: Runtime, ref: str) -> Recorded:
    async with opened(runtime) as (log, place):
        found = await find_run(runtime, log, ref)
    _, events, summary = events_of(found)
    in_log = found.record.envelopes if found.record and found.summary else ()
    before = [each for each in in_log if (each.seq or 0) <= summary.after.seq]
    marks, may_count = open_marks(runtime, place), runtime.loaded.project_trusted and _is_whole(runtime, found)
    recorded = Recorded(
        summary.run, summary.key, events, before, lambda each: may_count and (marks is None or marks.fits(each))
    )
    if recorded.started is None:
        raise ConfigError(
            f"The record of run '{summary.run}' does not say how it began, so it cannot be repeated.",
            code="recording-invalid",
            hint=f"See what is wrong with it: prowess runs verify {summary.run}",
        )
    return recorded


def _is_whole(runtime: Runtime, found: FoundRun) -> bool:
    """True when the log or our own folder of copies has the run unchanged. A mark shows who wrote an event; the chain
    shows that nothing before it was changed."""
    if found.record is not None and found.summary is not None:
        return check_session(found.record).valid
    own = os.path.realpath(runs_folder(runtime.places))
    if found.folder is None or os.path.dirname(os.path.realpath(found.folder)) != own:
        return False
    return check_copy(load_lines(found.folder) or (), load_summary(found.folder)).valid


class Replaying:
    """Replay of one recorded run. `events` is what happened now; `notes` says what could not be repeated."""

    def __init__(self, runtime: Runtime, recorded: Recorded, instructions: str, ask: TerminalApprover) -> None:
        self._runtime, self.recorded, self._instructions, self._ask = runtime, recorded, instructions, ask
        self._log = LogUntil()
        self._key = SessionKey(session=new_session())
        self.events: list[Envelope] = []
        self.error: ProwessError | None = None
        self.notes: list[str] = list(recorded.notes())

    def difference(self) -> Difference | None:
        recorded = self.recorded
        return first_difference(
            recorded.to_compare, settled(self.events), ignore=("model",), reordered=bool(recorded.before)
        )

    async def go(self, workspace: str) -> None:
        await put_back(self._log, self._key, self.recorded.before)
        before = (await self._log.head(self._key)).seq
        if self.recorded.was_cut_off:
            self._log.stop_after(self.recorded.to_compare)
        try:
            if self.recorded.by_caller:
                await self._calls(workspace)
            else:
                await self._session(workspace)
        except ProwessError as error:
            self.error = None if self._log.is_full else error
        finally:
            config, places = self._runtime.config, self._runtime.places
            remove_place(workspace_dir(config, places), store_name(config, places), self._key)
        self.events = [envelope async for envelope in self._log.read(self._key, after_seq=before)]
        if self._log.is_full:
            self.events = [each for each in self.events if each.seq in self._log.counted]
        if self.error is not None and not self.events:
            raise self.error  # the run did not even begin

    async def _session(self, workspace: str) -> None:
        recorded, started = self.recorded, self.recorded.started
        if started is None:
            return
        model = ReplayModel(recorded.events, name=f"replay:{recorded.run}")
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="prowess-replay-"))
            files = self._files(recorded.attached(), workspace, folder)
            session = await stack.enter_async_context(
                self._runtime.open_session(
                    **self._options(),
                    model=model,
                    limits=_limits(started.limits),
                    load_mode=started.load_mode,
                    placement=started.placement,
                    instructions=self._instructions,
                )
            )
            await session.run(started.request, skills=self._wishes(), files=files, resume=started.resumes is not None)
        if model.unused:
            raise ModelError(
                f"The model had {count(model.unused, 'more reply', 'more replies')} in the recorded run.",
                code="replay-unused",
                hint="The run ended earlier than the recorded one.",
            )

    async def _calls(self, workspace: str) -> None:
        """Repeats a run without a model, whose calls the caller decided."""
        with tempfile.TemporaryDirectory(prefix="prowess-replay-") as folder:
            granted = self._files(self.recorded.granted(), workspace, folder)
            async with self._runtime.open_kit(**self._options(), granted=granted) as kit:
                for call in self.recorded.calls():
                    await kit.act(call)

    def _files(self, names: Sequence[str], workspace: str, folder: str) -> list[tuple[str, str | None]]:
        files, missing = copy_files(names, workspace, folder)
        self.notes += [f"{name} is not there any more, so the run is repeated without it." for name in missing]
        return files

    def _options(self) -> dict[str, Any]:
        recorded = self.recorded
        return {
            "session": self._key.session,
            "log": self._log,
            "standing": False,  # a replay makes no standing approval, and uses none
            "approver": self._approve,
            "ask_unisolated": True,
            "asker": recorded.ask,
            "on_ask": recorded.on_ask,
        }

    async def _approve(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        """Answers as recorded. Asks again about a call without isolation, or one approved then without a question."""
        isolated = asked_isolated(decision) is not False
        if isolated and call.id not in self.recorded.unasked:
            return await self.recorded.approve(call, decision)
        answer = await self._ask(call, decision)
        why = "was approved for the recorded run alone" if isolated else "would run without isolation"
        note = f"{call.tool} {why}, and nobody is here to approve it. Add --yes {call.tool}."
        if answer is None and note not in self.notes:
            self.notes.append(note)
        return answer

    def _wishes(self) -> list[SkillRequest]:
        """Returns the skills requested before the model was asked, without those that the text names anyway."""
        started = self.recorded.started
        named = {wish.ref for wish in find_wishes(started.request, self._runtime.catalog)[0]} if started else set()
        return [wish for wish in self.recorded.wishes() if wish.trigger != "user" or wish.ref not in named]


def _limits(recorded: dict[str, float]) -> Limits:
    """Returns the limits of the run. A limit that is not recorded was not set."""
    given: dict[str, Any] = {name: recorded.get(name) for name in Limits.__slots__}
    whole = {name: int(value) for name, value in given.items() if value is not None and name not in ("seconds", "cost")}
    return replace(Limits(**{**given, **whole}), cost=None)  # the replies have their cost; a replay has no prices
