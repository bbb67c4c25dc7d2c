"""Writes reports. A kind of report is a function from a document to text."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files

from prowess._internal.files import write_whole
from prowess._internal.html_page import fill_page
from prowess._internal.named_paths import result_path
from prowess.core.findings import visible
from prowess.errors import ConfigError, EvalError, MissingExtra, in_one_line
from prowess.evals.document import EvalDocument, explain
from prowess.evals.reports.markdown import render_markdown


def render_json(document: EvalDocument) -> str:
    return json.dumps(document.to_json(), indent=1) + "\n"


def render_html(document: EvalDocument) -> str:
    page = (files("prowess.evals.reports") / "report.html").read_text(encoding="utf-8")
    title, summary = f"Evals of {document.suite}", render_markdown(document)
    return fill_page(page, title=title, summary=summary, data=document.to_json())


def render_junit(document: EvalDocument) -> str:
    """JUnit XML: a test case per run of the main arm. A soft case that fails is skipped, with the reason."""
    try:
        from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
    except ImportError as error:
        raise MissingExtra("evals", wanted_for="A report of kind junit") from error
    name = _xml_text(document.suite)
    suites, suite = JUnitXml(name), TestSuite(name)
    suite.timestamp = document.created_at
    for record in document.records:
        if record.key.arm != document.scores.main.arm:
            continue
        repeat = f" #{record.key.repeat}" if record.key.repeat > 1 else ""
        case = TestCase(_xml_text(record.key.case + repeat), classname=name, time=round(record.seconds, 3))
        reason = _xml_text(explain(record))
        if record.status == "error":
            case.result = [Error(reason, record.error.code if record.error else "error")]
        elif record.status == "failed":
            case.result = [Skipped(f"soft: {reason}") if record.gate == "soft" else Failure(reason, "failed")]
            case.system_out = _xml_text(record.text)
        elif record.status == "skipped":
            case.result = [Skipped(reason)]
        suite.add_testcase(case)
    suites.add_testsuite(suite)
    suites.update_statistics()
    return suites.tostring().decode()


def _xml_text(text: str) -> str:
    """XML has no control characters, so they are written as escapes."""
    return "\n".join(map(visible, text.splitlines()))


Kind = Callable[[EvalDocument], str]
KINDS: dict[str, Kind] = {"json": render_json, "junit": render_junit, "markdown": render_markdown, "html": render_html}


def check_kind(kind: str) -> None:
    """Raises EvalError for an unknown kind, so that a caller can tell before the cases run."""
    if kind not in KINDS:
        message = f"No kind of report is called {visible(kind)[:80]!r}."
        raise EvalError(message, code="report-unknown", hint=f"Kinds are {', '.join(KINDS)}.")


def write_report(kind: str, file: str, document: EvalDocument, *, cwd: str = ".", force: bool = False) -> None:
    """Writes one report. EvalError for an unknown kind, and for a file that cannot be written."""
    check_kind(kind)
    try:
        target = result_path(cwd, file, force=force)
        write_whole(target, KINDS[kind](document).encode("utf-8", "backslashreplace"))
    except (OSError, ConfigError) as error:
        why = getattr(error, "strerror", None) or in_one_line(error).rstrip(".")
        message = f"The report {visible(file)} cannot be written: {visible(why)}."
        raise EvalError(message, code="report-unwritable", hint="The run is kept: prowess evals show latest") from error
