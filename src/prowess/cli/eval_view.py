"""Shows eval runs to a person: a bar while cases run, then a table, the scores and what failed."""

from __future__ import annotations

import os
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
    path = os.path.join(runtime.places.cwd, os.path.expanduser(ref))
    if os.path.lexists(path) or os.sep in ref:
        return path
    return runtime.catalog.get(ref).real_path


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
        left = "" if state.remaining_s is None else f" · {render_seconds(state.remaining_s)} left"
        cost = f" · cost {state.cost:.4f}" if state.cost else ""
        text = f"{state.done} of {state.total} · {state.rate:.1f}/s{cost}{left}"
        self._bar.update(self._task, completed=state.done, amount=text)


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
    main = document["scores"]["main"]
    cases = [result for result in document["results"] if not result["runs"][0]["canary"]]
    screen.heading(f"{visible(document['suite'])} · {visible(document['model'] or 'no model')}")
    shown = cases if len(cases) <= _MOST_ROWS else [case for case in cases if case["status"] != "passed"][:_MOST_ROWS]
    if shown:
        screen.table(
            ["case", "status", "runs", "calls", "tokens", "seconds"],
            [_cells(case, main) for case in shown],
            styled=1,
        )
    if len(shown) < len(cases):
        screen.text(f"… and {count(len(cases) - len(shown), 'case')} more")
    screen.text()
    _show_failures(screen, document)
    _show_scores(screen, document)
    show_gate(screen, document["gate"])
    for note in document["notes"]:
        screen.note(f"note: {visible(note)}")


def _cells(case: dict[str, Any], main: dict[str, Any]) -> list[str]:
    states = [run["status"] for run in case["runs"] if run["key"]["arm"] == main["arm"]]
    runs = f"{states.count('passed')} of {len(states)}" if len(states) > 1 else "1"
    status = f"{case['status']} (flaky)" if case["id"] in main["flaky"] else case["status"]
    numbers = [("calls", "{:.0f}"), ("tokens", "{:,.0f}"), ("seconds", "{:.2f}")]
    return [
        case["id"],
        status,
        runs,
        *("-" if (mean := case["means"].get(name)) is None else form.format(mean) for name, form in numbers),
    ]


def _show_failures(screen: Screen, document: dict[str, Any]) -> None:
    bad = [result for result in document["results"] if result["status"] != "passed"]
    for result in bad[:_MOST_FAILURES]:
        run = next((run for run in result["runs"] if run["status"] == result["status"]), result["runs"][0])
        screen.text(f"{result['status']}  {visible(result['id'])}")
        if run["error"]:
            screen.text(f"  {visible(run['error']['message'])} [{visible(run['error']['code'])}]")
            if run["error"]["hint"]:
                screen.text(f"  {visible(run['error']['hint'])}")
        for check in result["checks"]:
            if check["passed"] is not True:
                mark = "not decided" if check["passed"] is None else "not"
                screen.text(f"  {mark}: {visible(check['name'])} ({visible(check['evidence'])})")
    if bad:
        if len(bad) > _MOST_FAILURES:
            screen.text(f"… and {len(bad) - _MOST_FAILURES} more")
        screen.text()


def _show_scores(screen: Screen, document: dict[str, Any]) -> None:
    main = document["scores"]["main"]
    others = [f"{document[name]} {name}" for name in ("failed", "errors", "skipped") if document[name]]
    rows = [("cases", ", ".join([f"{document['passed']} of {document['cases']} passed", *others]))]
    if (trigger := main["trigger"]) is not None:
        parts = [f"{name} {_rate(trigger['micro'][name])}" for name in ("precision", "recall")]
        f1 = trigger["micro"]["f1"]
        rows.append(("trigger", ", ".join([*parts, f"F1 {f1:.2f}" if f1 is not None else "F1 -"])))
    checks = [check for result in document["results"] for check in result["checks"]]
    for kind, found in main["checks"].items():
        undecided = sum(check["kind"] == kind and check["passed"] is None for check in checks)
        parts = [_rate(found)] * bool(found["total"]) + [f"{undecided} not decided"] * bool(undecided)
        rows += [(kind, ", ".join(parts))] * (kind != "skills")
    for each in main["pass_k"]:
        if each["k"] > 1:
            rows.append((f"k = {each['k']}", f"pass@k {each['pass_at_k']:.2f}, pass^k {each['pass_hat_k']:.2f}"))
    for other in document["scores"]["others"]:
        found = other["lift"].get("passed")
        if found is not None:
            span = "" if found["low"] is None else f" ({found['low']:+.0%} to {found['high']:+.0%})"
            rows.append(("lift", f"{found['difference']:+.0%}{span} against {other['arm']}"))
    usage = document["usage"]
    cost = "" if usage["cost"] is None else f", cost {usage['cost']:.4f}"
    rows.append(("tokens", f"{usage['input']:,} in ({usage['cached']:,} cached), {usage['output']:,} out{cost}"))
    if main["questions"]:
        rows.append(("questions", str(main["questions"])))
    screen.fields(rows)


def _rate(found: dict[str, Any]) -> str:
    if found["rate"] is None:
        return "-"
    return f"{found['rate']:.2f} ({found['low']:.2f} to {found['high']:.2f}, {found['passed']} of {found['total']})"


def show_gate(screen: Screen, gate: dict[str, Any] | None) -> None:
    """Shows the comparison with a baseline."""
    if gate is None:
        return
    screen.text()
    screen.text(f"Against the baseline: {gate['verdict']} ({count(gate['compared'], 'case')} compared)")
    for what in ("broken", "fixed"):
        if gate[what]:
            names = ", ".join(map(visible, gate[what][:10]))
            screen.text(f"  {what}: {names}{f' and {len(gate[what]) - 10} more' if len(gate[what]) > 10 else ''}")
    for metric in gate["metrics"]:
        if (score := metric["score"]) is not None and metric["verdict"] != "same":
            p = "" if metric["p"] is None else f", p {metric['p']:.3f}"
            screen.text(
                f"  {visible(metric['name'])}: {score['there']:.3g} -> {score['here']:.3g}, {metric['verdict']}{p}"
            )
    for note in gate["notes"]:
        screen.note(f"note: {visible(note)}")
