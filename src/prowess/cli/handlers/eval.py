"""Handlers of `prowess eval` and `prowess batch`: run cases or requests, many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from prowess._internal.globs import Glob
from prowess._internal.named_paths import result_path
from prowess._internal.paths import user_path
from prowess.cli.app import Call
from prowess.cli.eval_view import EvalBar, find_skill_folder, show_document
from prowess.cli.interrupts import run_async
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.evals.batch import BatchRun, run_batch
from prowess.evals.document import find_finished, finished
from prowess.evals.reports.write import check_kind, write_report
from prowess.evals.runner import EvalOptions, run_suite
from prowess.evals.suite import Suite, SuiteCase, read_suite
from prowess.runtime.services.preapproved import parse_yes

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import BatchDocument


def evaluate(call: Call, paths: tuple[str, ...], **given: Any) -> int:
    reports = _parse_reports(call, given["reports"], given["force"])
    with call.runtime(roots=given["roots"]) as runtime:  # warns of roots that are not there
        places = [find_skill_folder(path, runtime) for path in paths] or ["."]
        every = read_suite(places, cwd=call.cwd)
        suite = _choose(every, given["cases"])
        options = _options(call, suite, given)
        baseline = None
        if given["baseline"]:
            baseline = find_finished(given["baseline"], runtime.places)
    check = partial(baseline.check_suite, suite.name) if baseline else None
    with EvalBar(call.screen) as bar:
        run = run_async(run_suite(suite, options, on_progress=bar, check=check))
    found = finished(suite, run)
    if baseline:
        found = found.against(baseline)
    for kind, file in reports:
        write_report(kind, file, found, cwd=call.cwd, force=given["force"])
    document = found.to_json()
    if call.screen.is_json:
        call.screen.document(document)
    else:
        show_document(call.screen, document)
        for kind, file in reports:
            call.screen.note(f"Wrote the {kind} report: {visible(file)}")
        command = call.follow_up("prowess evals show")
        call.screen.note(f"Kept as {run.id}: {command} {run.id}")
    return _exit_code(document, allow_partial=given["allow_partial"])


def _choose(suite: Suite, globs: Sequence[str]) -> Suite:
    """Keeps the cases whose id matches one of the globs."""
    if not globs:
        return suite
    wanted = [Glob(glob, folders=False) for glob in globs]
    chosen: list[SuiteCase] = []
    for each in suite.cases:
        if any(glob.fullmatch(each.case.id) for glob in wanted):
            chosen.append(each)
    if chosen:
        return replace(suite, cases=tuple(chosen))
    message = f"No case has an id like '{globs[0][:80]}'."
    known = ", ".join(each.case.id for each in suite.cases[:10])
    raise ConfigError(message, code="usage", hint=f"There are: {known}")


def _options(call: Call, suite: Suite, given: dict[str, Any]) -> EvalOptions:
    model = given["model"]
    if model is None and all(each.case.script is not None for each in suite.cases):
        model = "scripted"
    arms = [arm.strip() for arm in (given["arms"] or "").split(",")]
    named_arms = tuple(filter(None, arms))
    shared = _shared_options(call, given)
    return replace(
        shared,
        model=model,
        repeats=given["repeats"],
        arms=named_arms,
        max_cost=given["max_cost"],
        judge=given["judge"],
        record=given["record"],
        replay=given["replay"],
        resume=given["resume"],
        force=given["force"],
    )


def _shared_options(call: Call, given: dict[str, Any]) -> EvalOptions:
    """Returns the options that `eval` and `batch` share."""
    if given["address"] is not None and given["engine"] != "ray":
        raise ConfigError("--address is of a Ray cluster.", code="usage", hint="Add --engine ray.")
    settings: dict[str, Any] = {}
    if given["executor"]:
        settings["workspace.executor"] = given["executor"]
    approved = parse_yes(given["yes"])
    return EvalOptions(
        cwd=call.cwd,
        roots=given["roots"],
        config=call.options.get("config_file"),
        model=given["model"],
        engine=given["engine"],
        address=given["address"],
        concurrency=given["jobs"],
        approved=tuple(approved),
        retries=given["retries"],
        settings=settings,
    )


def _parse_reports(call: Call, given: Sequence[str], force: bool) -> list[tuple[str, str]]:
    """Returns the kind and the path of each report. Refuses one that could not be written, before the cases run."""
    reports: list[tuple[str, str]] = []
    for text in given:
        kind, _, file = text.partition("=")
        if not file:
            message = f"--report {text[:80]} names no file."
            raise ConfigError(message, code="usage", hint="Such as: --report html=report.html")
        check_kind(kind)
        path = user_path(call.cwd, file)
        result_path(call.cwd, path, force=force)
        reports.append((kind, path))
    return reports


def _exit_code(document: dict[str, Any], *, allow_partial: bool) -> int:
    """Returns 1 if a hard case failed, a case could not be run, or the gate says worse, or if nothing was decided. With
    a baseline, the gate decides about the failures that it compared; a case that fails as before is no news."""
    gate = document["gate"]
    not_compared = None
    if gate is not None:
        not_compared = gate["not_compared"]
        if gate["verdict"] == "worse":
            return 1
    for result in document["results"]:
        status = result["status"]
        if status == "error":
            return 1
        if _is_left_out(result) and not allow_partial:
            return 1
        is_compared = not_compared is not None and result["id"] not in not_compared
        if status == "failed" and not is_compared and result["runs"][0]["gate"] == "hard":
            return 1
    if document["scores"]["canary"] not in (None, "passed"):
        return 1
    is_decided = document["passed"] or document["failed"] or allow_partial
    return 0 if is_decided else 1


def _is_left_out(result: dict[str, Any]) -> bool:
    """True for a case that had no run, or not all of them, because --max-cost was reached."""
    for run in result["runs"]:
        error = run["error"]
        if error and error["code"] == "budget-reached":
            return True
    return False


def batch(call: Call, requests: str, output: str, **given: Any) -> int:
    options = _shared_options(call, given)
    folder = given["output_dir"]
    with EvalBar(call.screen) as bar:
        work = run_batch(requests, output, options, output_dir=folder, force=given["force"], on_progress=bar)
        done = run_async(work)
    if call.screen.is_json:
        call.screen.document(_batch_document(done))
    else:
        _show_batch(call, done)
    return 1 if done.failed else 0


def _batch_document(done: BatchRun) -> BatchDocument:
    return {
        "schema": "prowess.batch/1",
        "output": done.output,
        "total": done.total,
        "failed": done.failed,
        "resumed": done.resumed,
        "notes": list(done.notes),
    }


def _show_batch(call: Call, done: BatchRun) -> None:
    screen = call.screen
    for note in done.notes:
        shown = visible(note)
        screen.note(f"note: {shown}")
    text = count(done.total, "request")
    if done.resumed:
        text += f" ({done.resumed} of them before)"
    if done.failed:
        text += f", {done.failed} without an answer"
    path = visible(done.output)
    screen.note(f"{text}: {path}")
