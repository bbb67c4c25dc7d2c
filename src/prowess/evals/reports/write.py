"""Writes reports. A kind of report is a function from a document to text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.resources import files

from prowess._internal.files import write_whole
from prowess._internal.html_page import fill_page
from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.evals.document import EvalDocument
from prowess.evals.reports.junit import render_junit
from prowess.evals.reports.markdown import render_markdown


def render_json(document: EvalDocument) -> str:
    return json.dumps(document.to_json(), indent=1) + "\n"


def render_html(document: EvalDocument) -> str:
    page = (files("prowess.evals.reports") / "report.html").read_text(encoding="utf-8")
    title, summary = f"Evals of {document.suite}", render_markdown(document)
    return fill_page(page, title=title, summary=summary, data=document.to_json())


KINDS: Mapping[str, Callable[[EvalDocument], str]] = {
    "json": render_json,
    "junit": render_junit,
    "markdown": render_markdown,
    "html": render_html,
}


def check_kind(kind: str) -> None:
    """Raises EvalError for an unknown kind, so that a caller can tell before the cases run."""
    if kind not in KINDS:
        message = f"No kind of report is called {visible(kind)[:80]!r}."
        raise EvalError(message, code="report-unknown", hint=f"Kinds are {', '.join(KINDS)}.")


def write_report(kind: str, file: str, document: EvalDocument) -> None:
    """Writes one report. EvalError for an unknown kind, and for a file that cannot be written."""
    check_kind(kind)
    try:
        write_whole(file, KINDS[kind](document).encode("utf-8", "backslashreplace"))
    except OSError as error:
        message = f"The report {visible(file)} cannot be written: {error.strerror}."
        raise EvalError(message, code="report-unwritable", hint="The run is kept: prowess evals show latest") from error
