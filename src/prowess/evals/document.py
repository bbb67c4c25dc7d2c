"""Document of an eval run, schema `prowess.eval/1`: for `prowess eval --json`, for reports, and as a baseline."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from prowess._internal.files import now, read_regular
from prowess._internal.label_scores import MeanScore
from prowess._internal.model_values import describe_fault
from prowess._internal.text import one_line
from prowess.core.findings import visible
from prowess.core.values import Usage
from prowess.errors import EvalError
from prowess.evals.gate import GateReport, check_suite, compare
from prowess.evals.results import CheckResult, RunKey, RunRecord, Status
from prowess.evals.runner import EvalRun
from prowess.evals.scores import MEASURES, Scores, by_case, case_mean, case_status, score, total_usage
from prowess.evals.store import find_run, read_run
from prowess.evals.suite import Suite
from prowess.runtime.config import ConfigPlaces

_MAX_BYTES = 256 << 20


class CaseResult(BaseModel):
    """Result of a case in the main arm. It passed when all its runs did. `checks` and `why` are of the run that decided
    about the status; `means` are of passed, tokens, seconds, calls and cost."""

    id: str
    status: Status
    checks: tuple[CheckResult, ...]
    why: str
    prompt: str | None
    means: dict[str, float | None]
    runs: Annotated[tuple[RunRecord, ...], Field(min_length=1)]  # of all arms


class EvalDocument(BaseModel):
    """Counts are of cases in the main arm; `usage` is of all runs. Fields of newer versions are ignored."""

    model_config = ConfigDict(frozen=True)

    schema_name: Literal["prowess.eval/1"] = Field(default="prowess.eval/1", alias="schema")
    suite: str
    digest: str | None
    run: str | None
    model: str | None
    created_at: str
    cases: int
    passed: int
    failed: int
    errors: int
    skipped: int
    trigger: MeanScore | None  # micro: every run counts the same
    usage: Usage
    scores: Scores
    gate: GateReport | None = None
    notes: tuple[str, ...]
    results: tuple[CaseResult, ...]

    @property
    def records(self) -> list[RunRecord]:
        return [run for result in self.results for run in result.runs]

    def against(self, baseline: EvalDocument) -> EvalDocument:
        """Returns this document with the verdict of the gate."""
        gate = compare(self.records, baseline.records, suite=self.suite, baseline_suite=baseline.suite)
        return self.model_copy(update={"gate": gate})

    def check_suite(self, suite: str, keys: Sequence[RunKey]) -> None:
        """Refuses to be the baseline of another suite. `keys` are those of the runs that are planned."""
        check_suite(keys, [run.key for run in self.records if not run.canary], suite, self.suite)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def make_document(
    suite: str,
    records: Sequence[RunRecord],
    *,
    run: str | None = None,
    notes: Sequence[str] = (),
    prompts: Mapping[str, str] | None = None,
    created_at: str | None = None,
) -> EvalDocument:
    """Makes the document of a run's records. `prompts` are those of the cases, by id, for people who read a report."""
    scores = score(records)
    micro = scores.main.trigger.micro if scores.main.trigger else None
    cases = by_case(records)
    results = [_result(name, runs, scores.main.arm, (prompts or {}).get(name)) for name, runs in cases.items()]
    states = Counter(result.status for result in results if not result.runs[0].canary)
    models = dict.fromkeys(record.key.model for record in records)
    return EvalDocument(
        suite=suite,
        digest=records[0].key.suite if records else None,
        run=run,
        model=", ".join(models) or None,
        created_at=created_at or now(),
        cases=states.total(),
        passed=states["passed"],
        failed=states["failed"],
        errors=states["error"],
        skipped=states["skipped"],
        trigger=micro and MeanScore(micro.precision.rate, micro.recall.rate, micro.f1),
        usage=total_usage(records),
        scores=scores,
        notes=tuple(notes),
        results=tuple(results),
    )


def _result(name: str, runs: Sequence[RunRecord], arm: str, prompt: str | None) -> CaseResult:
    main = [run for run in runs if run.key.arm == arm] or runs
    status = case_status(main)
    decisive = next(run for run in main if run.status == status)
    why = explain(decisive)
    checks = decisive.checks
    means = {measure: case_mean(main, function) for measure, function in MEASURES.items()}
    return CaseResult(id=name, status=status, checks=checks, why=why, prompt=prompt, means=means, runs=tuple(runs))


def explain(run: RunRecord) -> str:
    """Says why a run did not pass."""
    lines = [f"{check.name}: {check.evidence or 'failed'}" for check in run.checks if check.passed is False]
    if run.error:
        lines.append(f"{run.error.message} {run.error.hint or ''}".strip())
    return "\n".join(lines)


def finished(suite: Suite, run: EvalRun) -> EvalDocument:
    """Returns the document of a run that has just ended."""
    prompts = {each.case.id: "\n".join(each.case.requests) for each in suite.cases}
    started_at = run.header.started_at
    return make_document(suite.name, run.records, run=run.id, notes=run.notes, prompts=prompts, created_at=started_at)


def find_finished(ref: str, places: ConfigPlaces) -> EvalDocument:
    """Returns the run that `ref` names: a file that `--report json=FILE` wrote, or a run of the store."""
    file = os.path.join(places.cwd, os.path.expanduser(ref))
    if os.path.isfile(file):
        return load_document(file, ref)
    header, records, notes = read_run(find_run(places, ref))
    return make_document(header.suite, records, run=header.id, notes=notes, created_at=header.started_at)


def load_document(file: str, name: str) -> EvalDocument:
    """Loads a JSON report. EvalError if it is none; `name` is how a person called the file."""
    try:
        return EvalDocument.model_validate(json.loads(read_regular(file, _MAX_BYTES, follow=True)))
    except (OSError, ValueError, RecursionError) as error:
        what = visible(one_line(describe_fault(error), 200))
        message = f"{visible(name[:200])} is not a report of an eval run: {what}."
        hint = "Give a file that `prowess eval … --report json=FILE` wrote, or the id of a run."
        raise EvalError(message, code="baseline-invalid", hint=hint) from error
