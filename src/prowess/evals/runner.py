"""Runs a suite: a task for each case, arm and repeat, through an engine, into the store."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prowess._internal.capped_work import CostCap, WorkMeter, do_all
from prowess._internal.files import write_whole
from prowess._internal.named_paths import result_path
from prowess._internal.paths import user_path
from prowess._internal.portable_names import plain_name
from prowess._internal.text import name_some
from prowess.core.values import Usage, add_usage
from prowess.errors import EvalError, ModelAuth
from prowess.evals.arms import Arm, Arms, case_in_arm, skills_under_test
from prowess.evals.case import Case, CaseCatalog, Expected, OutputExpected
from prowess.evals.engines import EngineName, open_engine
from prowess.evals.results import EvalTask, RunFault, RunKey, RunRecord, SkillPlace
from prowess.evals.run_task import TaskOutcome, begin_record
from prowess.evals.store import EvalHeader, StoredRun, find_run, read_run
from prowess.evals.suite import Suite, SuiteCase, check_skill_names
from prowess.evals.task_runtime import forget_runtimes, skills_digest, task_runtime
from prowess.models.model_info import is_live
from prowess.runtime.arguments import make_approver
from prowess.runtime.factories import SessionOptions, check_price, find_prices
from prowess.runtime.project_state import EVAL_RUNS, make_state
from prowess.runtime.runtime import Runtime, check_model, open_runtime
from prowess.runtime.services.portable import as_values
from prowess.runtime.session_models import make_model

CANARY = "prowess-canary"
_MOST_RUNS = 100_000
_GO_ON = "Then go on with --resume latest."


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """Options of an eval run. None means: as configured, or as the case says."""

    cwd: str = "."
    roots: tuple[str, ...] = ()
    config: str | None = None
    model: str | None = None
    repeats: int | None = None
    arms: tuple[str, ...] = ()
    engine: EngineName = "local"
    address: str | None = None  # of a Ray cluster
    concurrency: int | None = None
    max_cost: float | None = None  # of the whole suite
    approved: tuple[str, ...] = ()  # tools that need no question
    judge: str | None = None
    record: str | None = None  # folder for recordings
    replay: str | None = None  # folder of recordings; the same as `record`: what is missing is recorded
    resume: str | None = None  # id of a run to continue, or `latest`
    force: bool = False  # replace recordings that are there
    retries: int = 2
    keep_in: str | None = None  # folder for the results, instead of the project's
    settings: Mapping[str, Any] = field(default_factory=dict)


class EvalProgress(NamedTuple):
    """State of an eval run, after each record."""

    done: int
    total: int
    rate: float  # runs per second
    cost: float
    remaining_s: float | None
    record: RunRecord | None = None


Tell = Callable[[EvalProgress], None] | None
Check = Callable[[Sequence[RunKey]], None] | None


class EvalRun(NamedTuple):
    """Finished eval run. `records` are in the order of cases, arms and repeats; that of the canary comes last."""

    id: str
    folder: str
    header: EvalHeader
    records: tuple[RunRecord, ...]
    notes: tuple[str, ...] = ()


async def run_suite(suite: Suite, options: EvalOptions, *, on_progress: Tell = None, check: Check = None) -> EvalRun:
    """Runs every case in every arm, as often as it should be repeated. `check` sees the keys first, and may refuse."""
    with open_driver(options) as runtime:
        plan = _Plan(suite, options, runtime)
        if check is not None:
            check(plan.find_keys())
        with plan.open_store() as stored:
            driver = Driver(stored, plan.make_tasks(stored.folder), options, on_progress)
            await driver.run()
            records = driver.load_records()
    notes = [*driver.notes, *plan.notes, *suite.notes, *stored.notes]
    if any(record.canary and record.status in ("failed", "error") for record in records):
        notes.insert(0, "The canary did not pass: the model or this machine may be at fault. All results are suspect.")
    return EvalRun(stored.header.id, stored.folder, stored.header, records, tuple(notes))


def open_driver(options: EvalOptions) -> AbstractContextManager[Runtime]:
    """Checks the options, and opens the runtime that the tasks get their values from."""
    forget_runtimes()
    for model in (options.model, options.judge):
        check_model(model)
    make_approver(options.approved)
    given = {"roots": options.roots, "config_file": options.config, "flags": dict(options.settings)}
    return open_runtime(cwd=options.cwd, environ=os.environ, **given)


def shared_fields(runtime: Runtime, options: EvalOptions, cases: Iterable[Case] = ()) -> dict[str, Any]:
    """Fields that all tasks have. The driver finds out folder, roots, trust and settings once. Checks the models."""
    found = as_values(runtime, options.roots)
    model = options.model or runtime.config.model.provider or "offline"
    limits = [runtime.config.limits.cost, options.max_cost]
    limits += [case.constraints.max_cost for case in cases if case.constraints]
    if model != "scripted" and (options.replay is None or options.record is not None):
        is_limited = any(limit is not None for limit in limits)
        _check_model(runtime, options, model, limited=is_limited, is_needed=options.replay is None)
    if options.judge is not None:
        _check_model(runtime, options, options.judge, limited=options.max_cost is not None)
    fields: dict[str, Any] = {"cwd": found.cwd, "trusted": found.trusted, "settings": dict(found.settings)}
    fields["places"] = [SkillPlace.model_validate(root, from_attributes=True) for root in found.roots]
    fields["model"] = model
    return fields | {"approved": options.approved, "judge": options.judge, "retries": options.retries}


def _check_model(runtime: Runtime, options: EvalOptions, name: str, *, limited: bool, is_needed: bool = True) -> None:
    """Checks that a model can be asked, before a run costs money: its file or key, and its price if `limited`."""
    if options.engine == "ray" and ":" in name and not is_live(name):
        what = f"The engine ray cannot play '{name}': its nodes do not have this file."
        hint = "Write `script` into the cases, or use --replay DIR, or --engine local."
        raise EvalError(what, code="ray-model-file", hint=hint)
    if is_needed and options.address is None and not name.startswith("replay:"):  # other nodes have keys of their own
        try:
            make_model(runtime, SessionOptions(model=name))
        except ModelAuth as error:  # an option that cannot be used; no case has failed
            raise EvalError(error.message, code=str(error.code), hint=error.hint) from error
    if limited and is_live(name):
        check_price(name, find_prices(runtime, name))


class _Plan:
    """Suite with everything that the driver finds out once."""

    def __init__(self, suite: Suite, options: EvalOptions, runtime: Runtime) -> None:
        self._suite = suite
        self._options = options
        self._runtime = runtime
        self.notes: list[str] = []
        self._own = self._skills_of_suite()
        self._fields = shared_fields(runtime, options, [each.case for each in suite.cases])
        self._model: str = "replay" if options.replay and not options.record else self._fields["model"]
        decides = [suite.digest, self._fields["settings"], options.approved, options.judge, bool(options.replay)]
        self._digest = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()
        catalog = runtime.catalog
        known = {entry.name: catalog.visibility(entry).status for entry in reversed(catalog.entries)}
        if self._own:
            known |= {each.skill: "active" for each in suite.cases if each.skill}
        check_skill_names(suite, known)

    def open_store(self) -> StoredRun:
        options, suite, places = self._options, self._suite, self._runtime.places
        arms = dict.fromkeys(arm for each in suite.cases for arm in self._arms_of(each))
        header = EvalHeader(suite=suite.name, digest=suite.digest, model=self._model, arms=tuple(arms))
        if options.resume is not None:
            return StoredRun(find_run(places, options.resume), header)
        kept_in = options.keep_in or os.path.join(make_state(places), EVAL_RUNS)
        return StoredRun(os.path.join(kept_in, header.id), header)

    def make_tasks(self, folder: str) -> list[EvalTask]:
        """Makes the tasks in the order of cases, arms and repeats. A live suite gets a canary."""
        cases = self._suite.cases
        if sum(self._repeats_of(each) * len(self._arms_of(each)) for each in cases) > _MOST_RUNS:
            hint = "Use fewer repeats or arms, or choose cases with --case."
            raise EvalError(f"A suite has at most {_MOST_RUNS} runs.", code="eval-too-many-runs", hint=hint)
        canary = SuiteCase(case=_CANARY, base=folder, file="", line=None, skill=None)
        whole = self._make_task(canary, Arm("with_skill"), 1)
        plain = whole.model_copy(update={"case": Case(id="-", prompt="-")})
        arms = Arms(task_runtime(plain), folder, self._options.arms)
        tasks: list[EvalTask] = []
        left_out: list[str] = []
        for each in cases:
            for name in self._arms_of(each):
                if (arm := arms.make(name, each)) is None:
                    left_out.append(f"{each.file}:{each.line}: case {each.case.id!r} ({name}): none is named")
                    continue
                tasks += [self._make_task(each, arm, repeat + 1) for repeat in range(self._repeats_of(each))]
        if left_out:
            self.notes.append(f"An arm that needs a skill is left out of {name_some(left_out, quote='')}.")
        if not tasks:
            hint = "Write 'skill: NAME' at the top of the file, or expect.skills.load."
            raise EvalError(f"No case can be run. {self.notes[0]}", code="arm-without-skill", hint=hint)
        if is_live(self._model) and not any(each.case.canary for each in cases):
            tasks.append(whole)
        return tasks

    def _make_task(self, each: SuiteCase, arm: Arm, repeat: int) -> EvalTask:
        case = case_in_arm(each.case, arm)
        key = self._key_of(case, arm.name, repeat)
        fields = self._fields | {"places": (*arm.places, *self._own, *self._fields["places"]), "off": arm.off}
        fields["record_to"] = self._recording(self._options.record, key)
        fields["replay_from"] = self._recording(self._options.replay, key)
        task = EvalTask(key=key, case=case, base=each.base, **fields)
        key = key.model_copy(update={"skills": skills_digest(task)})
        return task.model_copy(update={"key": key})

    def find_keys(self) -> list[RunKey]:
        """Returns the keys of the first runs of all cases but canaries, without the digests of skills."""
        cases = [each for each in self._suite.cases if not each.case.canary]
        arms = [(each, arm) for each in cases for arm in self._arms_of(each)]
        return [self._key_of(each.case, arm) for each, arm in arms if arm == "with_skill" or skills_under_test(each)]

    def _key_of(self, case: Case, arm: str, repeat: int = 1) -> RunKey:
        return RunKey(suite=self._digest, case=case.id, arm=arm, repeat=repeat, model=self._model, skills="")

    def _recording(self, folder: str | None, key: RunKey) -> str | None:
        if folder is None:
            return None
        name = plain_name(f"{key.case}--{key.arm}")
        return os.path.join(user_path(self._runtime.places.cwd, folder), f"{name}-{key.repeat}.jsonl")

    def _arms_of(self, each: SuiteCase) -> tuple[str, ...]:
        return self._options.arms or each.case.arms or ("with_skill",)

    def _repeats_of(self, each: SuiteCase) -> int:
        return self._options.repeats or each.case.repeats or 1

    def _skills_of_suite(self) -> list[SkillPlace]:
        """Returns the skills that the cases lie in, if no root has them: naming the cases named the skill, too."""
        found: dict[str, SkillPlace] = {}
        known = {entry.real_path for entry in self._runtime.catalog.entries}
        for file in {each.file for each in self._suite.cases}:
            above = os.path.dirname(os.path.dirname(os.path.join(self._runtime.places.cwd, file)))
            folder = os.path.realpath(above)
            is_project = os.path.basename(above) == ".agent"
            if folder not in known and not is_project and os.path.isfile(os.path.join(folder, "SKILL.md")):
                found[folder] = SkillPlace(source="explicit", path=folder, trusted=True)
        return [found[folder] for folder in sorted(found)]


class Driver:
    """Runs tasks through an engine into the store, and keeps count. Records are on disk, not in memory."""

    def __init__(
        self, stored: StoredRun, tasks: Sequence[EvalTask], options: EvalOptions, tell: Tell, go_on: str = _GO_ON
    ) -> None:
        self._stored = stored
        self._tasks = tasks
        self._options = options
        self._tell = tell
        self._go_on = go_on
        todo = [task for task in tasks if task.key not in stored.finished]
        todo.sort(key=lambda task: not task.case.canary)
        self._todo = deque(todo)
        self._cap = CostCap(options.max_cost, _find_worst)
        for cost in stored.costs.values():
            self._cap.settle(0.0, cost)
        self.resumed = len(tasks) - len(todo)
        self._meter = WorkMeter(len(tasks), self.resumed)
        self.notes: list[str] = []

    async def run(self, keep: Callable[[TaskOutcome], Iterable[str]] = lambda outcome: ()) -> None:
        """Runs everything that is not finished, within the cost cap. `keep` gets every result, and returns notes."""
        options, cap = self._options, self._cap
        self._check_recordings()
        opened = open_engine(options.engine, self._todo, address=options.address, slots=options.concurrency)
        async with opened as engine:
            work = do_all(
                self._todo, engine.perform, slots=engine.slots, cap=cap, cost=lambda done: done.record.usage.cost or 0.0
            )
            try:
                async for task, outcome in work:
                    if task.record_to and outcome.recording and not outcome.record.replayed:
                        target = self._find_target(task.record_to)
                        write_whole(target, (f"{line}\n".encode() for line in outcome.recording))
                    self.notes += keep(outcome)
                    self._add(outcome.record)
            except EvalError as error:
                what = f"{error.message} {self._meter.done} of {len(self._tasks)} results are kept."
                raise EvalError(what, code=error.code, hint=f"{error.hint or ''} {self._go_on}".strip()) from error
            finally:
                await work.aclose()
        if self._todo:
            self.notes.append(f"{len(self._todo)} runs were skipped, because the cost cap was reached.")
        for task in self._todo:
            message = f"All runs may cost {cap.most:g} together, and this one might have exceeded it."
            fault = RunFault(code="budget-reached", message=message, hint="Raise --max-cost, then go on with --resume.")
            self._add(begin_record(task, fault))

    def _check_recordings(self) -> None:
        """Raises before the runs if a recording may not be written. One that is played is not recorded again."""
        for task in self._todo:
            if task.record_to and not (task.replay_from and os.path.exists(task.replay_from)):
                self._find_target(task.record_to)

    def _find_target(self, recording: str) -> str:
        """Returns the path of a recording. Raises if it may not be written. A run that goes on replaces its own."""
        options = self._options
        return result_path(options.cwd, recording, force=options.force or options.resume is not None)

    def load_records(self) -> tuple[RunRecord, ...]:
        """Loads the records from disk. They are not kept in memory while tasks run."""
        _, records, _ = read_run(self._stored.folder)
        found = {record.key: record for record in records}
        return tuple(found[task.key] for task in self._tasks)

    def _add(self, record: RunRecord) -> None:
        if (cost := self._stored.costs.get(record.key)) is not None:  # an earlier run of this key was paid for, too
            record = record.model_copy(update={"usage": add_usage(record.usage, Usage(cost=cost))})
        self._stored.append(record)
        state = self._meter.step()
        if self._tell is not None:
            self._tell(EvalProgress(**state._asdict(), cost=self._cap.spent, record=record))


def _find_worst(task: EvalTask) -> float | None:
    """Returns the most that a task can cost, if something limits it. Nothing limits a judge."""
    if task.case.expect.judge and task.judge is not None and is_live(task.judge):
        return None
    own = task.case.constraints.max_cost if task.case.constraints else None
    limits = [cost for cost in (own, task.settings.get("limits.cost")) if cost is not None]
    return min(limits) * len(task.case.requests) if limits else None


_PROMPT = "Reply with the single word READY and nothing else."
_READY = Expected(output=OutputExpected(contains=("ready",)))
_CANARY = Case(id=CANARY, prompt=_PROMPT, catalog=CaseCatalog(skills=()), expect=_READY, gate="soft", canary=True)
