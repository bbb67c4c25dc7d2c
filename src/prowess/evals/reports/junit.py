"""JUnit XML: a test case per run of the main arm. A soft case that fails is skipped, with the reason."""

from __future__ import annotations

from prowess.core.findings import visible
from prowess.errors import MissingExtra
from prowess.evals.document import EvalDocument, explain


def render_junit(document: EvalDocument) -> str:
    try:
        from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
    except ImportError as error:
        raise MissingExtra("evals", wanted_for="A report of kind junit") from error
    name = _text(document.suite)
    suites, suite = JUnitXml(name), TestSuite(name)
    suite.timestamp = document.created_at
    for record in document.records:
        if record.key.arm != document.scores.main.arm:
            continue
        repeat = f" #{record.key.repeat}" if record.key.repeat > 1 else ""
        case = TestCase(_text(record.key.case + repeat), classname=name, time=round(record.seconds, 3))
        reason = _text(explain(record))
        if record.status == "error":
            case.result = [Error(reason, record.error.code if record.error else "error")]
        elif record.status == "failed":
            case.result = [Skipped(f"soft: {reason}") if record.gate == "soft" else Failure(reason, "failed")]
            case.system_out = _text(record.text)
        elif record.status == "skipped":
            case.result = [Skipped(reason)]
        suite.add_testcase(case)
    suites.add_testsuite(suite)
    suites.update_statistics()
    return suites.tostring().decode()


def _text(text: str) -> str:
    """XML has no control characters, so they are written as escapes."""
    return "\n".join(map(visible, text.splitlines()))
