"""Markdown for a pull request. Other people's text is in code spans, where it is neither markup nor a mention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prowess._internal.statistics import Rate
from prowess._internal.text import name_some, one_line, render_seconds
from prowess.core.findings import visible
from prowess.evals.document import EvalDocument

_CASES = 10  # that are shown with their reasons


def render_markdown(document: EvalDocument) -> str:
    return "\n".join([*_summary(document), "", *_table(document), "", *_list(document)]).rstrip() + "\n"


def _summary(document: EvalDocument) -> Iterator[str]:
    yield f"### Evals of {_code(document.suite)}: {document.passed} of {document.cases} cases passed"
    if gate := document.gate:
        broken = f" Broken: {_some(gate.broken)}." if gate.broken else ""
        fixed = f" Fixed: {_some(gate.fixed)}." if gate.fixed else ""
        yield f"\n**Against the baseline: {gate.verdict}.**{broken}{fixed}"
    if document.scores.canary not in (None, "passed"):
        yield "\n**The canary case did not pass, so doubt all the results.**"


def _table(document: EvalDocument) -> Iterator[str]:
    main, usage = document.scores.main, document.usage
    yield "| Score | Value | 95 % interval |"
    yield "| --- | --- | --- |"
    yield _rate("Runs passed", main.passed)
    if main.trigger:
        yield _rate("Trigger precision", main.trigger.micro.precision)
        yield _rate("Trigger recall", main.trigger.micro.recall)
    for kind, found in main.checks.items():
        yield _rate(f"Checks of {kind}", found)
    for other in document.scores.others:
        if lift := other.lift.get("passed"):
            yield f"| Lift against {_code(other.arm)} | {lift.difference:+.0%} | {lift.low:+.0%} to {lift.high:+.0%} |"
    cost = "" if usage.cost is None else f", ${usage.cost:,.4f}"
    yield f"| Tokens | {usage.input:,} in ({usage.cached:,} cached), {usage.output:,} out{cost} | |"
    if main.seconds_p50 is not None and main.seconds_p95 is not None:
        times = f"{render_seconds(main.seconds_p50)}, {render_seconds(main.seconds_p95)}"
        yield f"| Time, median and 95th percentile | {times} | |"


def _rate(name: str, found: Rate) -> str:
    if found.rate is None:
        return f"| {name} | – | |"
    return f"| {name} | {found.rate:.0%} ({found.passed} of {found.total}) | {found.low:.0%} to {found.high:.0%} |"


def _list(document: EvalDocument) -> Iterator[str]:
    bad = [result for result in document.results if result.status in ("failed", "error")]
    for result in bad[:_CASES]:
        why = result.why.replace("\n", "; ")
        yield f"- {_code(result.id)} {result.status}{why and f': {_code(why)}'}"
    if len(bad) > _CASES:
        yield f"- and {len(bad) - _CASES} more"
    if flaky := document.scores.main.flaky:
        yield f"- flaky: {_some(flaky)}"
    for note in (*document.notes, *(document.gate.notes if document.gate else ())):
        yield f"- note: {_code(note)}"


def _some(names: Sequence[str]) -> str:
    return name_some([*map(_code, names)], _CASES, quote="")


def _code(text: str) -> str:
    plain = visible(one_line(text, 160)).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"
