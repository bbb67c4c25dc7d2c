"""Shows eval runs to a person: a bar while cases run, then a table, the scores and what failed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from prowess._internal.text import render_seconds
from prowess.cli.screen import Screen, count, is_terminal
from prowess.core.findings import visible

if TYPE_CHECKING:
    from prowess.evals.runner import EvalProgress
    from prowess.runtime.runtime import Runtime

_MOST_FAILURES = 20
_MOST_ROWS = 60  # of the table; the rest is only counted


def find_skill_folder(ref: str, runtime: Runtime) -> str:
    """Returns a path as it is. A name of a skill becomes its folder, whether it is trusted or not."""
    expanded = os.path.expanduser(ref)
    path = os.path.join(runtime.places.cwd, expanded)
    if os.path.lexists(path) or os.sep in ref:
        return path
    skill = runtime.catalog.get(ref)
    return skill.real_path


class EvalBar:
    """Bar on a terminal: runs done, their rate, the cost so far, and the time that is left."""

    def __init__(self, screen: Screen) -> None:
        self._is_shown = is_terminal() and not screen.is_json
        self._bar: Any = None  # rich.progress.Progress
        self._task: Any = None

    def __enter__(self) -> EvalBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, state: EvalProgress) -> None:
        if not self._is_shown:
            return
        if self._bar is None:
            self._bar = _open_bar()
            self._task = self._bar.add_task("", total=state.total, amount="")
        amount = _amount(state)
        self._bar.update(self._task, completed=state.done, amount=amount)


def _amount(state: EvalProgress) -> str:
    """Renders `3 of 20 · 1.5/s · cost 0.0120 · 12 s left`."""
    text = f"{state.done} of {state.total} · {state.rate:.1f}/s"
    if state.cost:
        text += f" · cost {state.cost:.4f}"
    if state.remaining_s is not None:
        text += f" · {render_seconds(state.remaining_s)} left"
    return text


def _open_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(
        BarColumn(bar_width=30),
        TextColumn("{task.fields[amount]}", markup=False),
        console=Console(stderr=True, highlight=False, emoji=False),
        transient=True,
    )
    bar.start()
    return bar


def show_document(screen: Screen, document: dict[str, Any]) -> None:
    """Shows an eval run: cases, what failed, scores, verdict, notes."""
    suite = visible(document["suite"])
    model = visible(document["model"] or "no model")
    screen.heading(f"{suite} · {model}")
    _show_cases(screen, document)
    screen.text()
    _show_failures(screen, document)
    _show_scores(screen, document)
    show_gate(screen, document["gate"])
    _show_notes(screen, document["notes"])


def _show_notes(screen: Screen, notes: Iterable[str]) -> None:
    for note in notes:
        shown = visible(note)
        screen.note(f"note: {shown}")


def _show_cases(screen: Screen, document: dict[str, Any]) -> None:
    """Shows a row for each case. Of many cases, only those that did not pass have one."""
    main = document["scores"]["main"]
    cases = [result for result in document["results"] if not _is_canary(result)]
    shown = cases
    if len(cases) > _MOST_ROWS:
        bad = [case for case in cases if case["status"] != "passed"]
        shown = bad[:_MOST_ROWS]
    if shown:
        columns = ["case", "status", "runs", "calls", "tokens", "seconds"]
        rows = [_cells(case, main) for case in shown]
        screen.table(columns, rows, styled=1)
    left_out = len(cases) - len(shown)
    if left_out:
        more = count(left_out, "case")
        screen.text(f"… and {more} more")


def _is_canary(result: dict[str, Any]) -> bool:
    first = result["runs"][0]
    return bool(first["canary"])


def _cells(case: dict[str, Any], main: dict[str, Any]) -> list[str]:
    states = [run["status"] for run in case["runs"] if run["key"]["arm"] == main["arm"]]
    runs = "1"
    if len(states) > 1:
        passed = states.count("passed")
        runs = f"{passed} of {len(states)}"
    status = case["status"]
    if case["id"] in main["flaky"]:
        status = f"{status} (flaky)"
    means = case["means"]
    calls = _mean(means, "calls", ".0f")
    tokens = _mean(means, "tokens", ",.0f")
    seconds = _mean(means, "seconds", ".2f")
    return [case["id"], status, runs, calls, tokens, seconds]


def _mean(means: dict[str, Any], name: str, form: str) -> str:
    mean = means.get(name)
    if mean is None:
        return "-"
    return format(mean, form)


def _show_failures(screen: Screen, document: dict[str, Any]) -> None:
    bad = [result for result in document["results"] if result["status"] != "passed"]
    for result in bad[:_MOST_FAILURES]:
        _show_failure(screen, result)
    if not bad:
        return
    left_out = len(bad) - _MOST_FAILURES
    if left_out > 0:
        screen.text(f"… and {left_out} more")
    screen.text()


def _show_failure(screen: Screen, result: dict[str, Any]) -> None:
    status = result["status"]
    case = visible(result["id"])
    screen.text(f"{status}  {case}")
    error = _failed_run(result)["error"]
    if error:
        message = visible(error["message"])
        code = visible(error["code"])
        screen.text(f"  {message} [{code}]")
        hint = error["hint"]
        if hint:
            shown = visible(hint)
            screen.text(f"  {shown}")
    for check in result["checks"]:
        _show_check(screen, check)


def _failed_run(result: dict[str, Any]) -> dict[str, Any]:
    """Returns the first run that has the status of the case, or else the first one."""
    runs = result["runs"]
    for run in runs:
        if run["status"] == result["status"]:
            return run
    return runs[0]


def _show_check(screen: Screen, check: dict[str, Any]) -> None:
    """Shows a check that did not pass."""
    passed = check["passed"]
    if passed is True:
        return
    mark = "not"
    if passed is None:
        mark = "not decided"
    name = visible(check["name"])
    evidence = visible(check["evidence"])
    screen.text(f"  {mark}: {name} ({evidence})")


def _show_scores(screen: Screen, document: dict[str, Any]) -> None:
    main = document["scores"]["main"]
    rows = [("cases", _case_counts(document))]
    trigger = main["trigger"]
    if trigger is not None:
        rates = _trigger_rates(trigger["micro"])
        rows.append(("trigger", rates))
    rows += _check_rows(document)
    rows += _pass_k_rows(main["pass_k"])
    for other in document["scores"]["others"]:
        lift = other["lift"].get("passed")
        if lift is not None:
            text = _lift(lift)
            rows.append(("lift", f"{text} against {other['arm']}"))
    tokens = _usage(document["usage"])
    rows.append(("tokens", tokens))
    questions = main["questions"]
    if questions:
        rows.append(("questions", str(questions)))
    screen.fields(rows)


def _case_counts(document: dict[str, Any]) -> str:
    """Renders `3 of 5 passed, 1 failed, 1 skipped`."""
    parts = [f"{document['passed']} of {document['cases']} passed"]
    for name in ("failed", "errors", "skipped"):
        number = document[name]
        if number:
            parts.append(f"{number} {name}")
    return ", ".join(parts)


def _trigger_rates(micro: dict[str, Any]) -> str:
    precision = _rate(micro["precision"])
    recall = _rate(micro["recall"])
    f1 = "-"
    if micro["f1"] is not None:
        f1 = f"{micro['f1']:.2f}"
    return f"precision {precision}, recall {recall}, F1 {f1}"


def _check_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns a row for each kind of check but `skills`, which the row `trigger` tells."""
    undecided: Counter[str] = Counter()
    for result in document["results"]:
        for check in result["checks"]:
            if check["passed"] is None:
                undecided[check["kind"]] += 1
    rows: list[tuple[str, str]] = []
    kinds = document["scores"]["main"]["checks"]
    for kind, found in kinds.items():
        if kind == "skills":
            continue
        parts: list[str] = []
        if found["total"]:
            parts.append(_rate(found))
        if undecided[kind]:
            parts.append(f"{undecided[kind]} not decided")
        text = ", ".join(parts)
        rows.append((kind, text))
    return rows


def _pass_k_rows(pass_k: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for each in pass_k:
        k = each["k"]
        if k > 1:
            text = f"pass@k {each['pass_at_k']:.2f}, pass^k {each['pass_hat_k']:.2f}"
            rows.append((f"k = {k}", text))
    return rows


def _lift(lift: dict[str, Any]) -> str:
    """Renders `+20% (+5% to +35%)`."""
    difference = f"{lift['difference']:+.0%}"
    if lift["low"] is None:
        return difference
    return f"{difference} ({lift['low']:+.0%} to {lift['high']:+.0%})"


def _usage(usage: dict[str, Any]) -> str:
    sent = f"{usage['input']:,} in ({usage['cached']:,} cached)"
    text = f"{sent}, {usage['output']:,} out"
    cost = usage["cost"]
    if cost is None:
        return text
    return f"{text}, cost {cost:.4f}"


def _rate(found: dict[str, Any]) -> str:
    """Renders `0.80 (0.55 to 0.93, 8 of 10)`."""
    rate = found["rate"]
    if rate is None:
        return "-"
    span = f"{found['low']:.2f} to {found['high']:.2f}"
    counted = f"{found['passed']} of {found['total']}"
    return f"{rate:.2f} ({span}, {counted})"


def show_gate(screen: Screen, gate: dict[str, Any] | None) -> None:
    """Shows the comparison with a baseline."""
    if gate is None:
        return
    screen.text()
    compared = count(gate["compared"], "case")
    screen.text(f"Against the baseline: {gate['verdict']} ({compared} compared)")
    for what in ("broken", "fixed"):
        cases = gate[what]
        if cases:
            names = _some_names(cases)
            screen.text(f"  {what}: {names}")
    for metric in gate["metrics"]:
        _show_metric(screen, metric)
    _show_notes(screen, gate["notes"])


def _some_names(cases: Sequence[str], most: int = 10) -> str:
    names = ", ".join(map(visible, cases[:most]))
    left_out = len(cases) - most
    if left_out > 0:
        return f"{names} and {left_out} more"
    return names


def _show_metric(screen: Screen, metric: dict[str, Any]) -> None:
    """Shows a metric that differs from the baseline."""
    score = metric["score"]
    verdict = metric["verdict"]
    if score is None or verdict == "same":
        return
    name = visible(metric["name"])
    change = f"{score['there']:.3g} -> {score['here']:.3g}"
    text = f"  {name}: {change}, {verdict}"
    p = metric["p"]
    if p is not None:
        text += f", p {p:.3f}"
    screen.text(text)
