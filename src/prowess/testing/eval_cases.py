"""Eval cases as tests of pytest. `prowess.testing` is the plugin that collects them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from prowess.errors import EvalError, ProwessError
from prowess.evals.document import explain
from prowess.evals.results import RunRecord
from prowess.evals.runner import EvalOptions, run_suite
from prowess.evals.suite import Suite, read_suite
from prowess.runtime.services.preapproved import parse_yes


class CaseFailed(Exception):
    """A case did not pass. The text says why."""


class CaseFileCollector(pytest.File):
    """Case file. A file in such a folder that has no cases, such as a fixture, is left out."""

    def collect(self) -> Iterator[pytest.Item]:
        folder = str(self.config.rootpath)
        try:
            suite = read_suite([str(self.path)], cwd=folder)
        except EvalError as error:
            if error.code == "evals-empty":
                return
            raise self.CollectError(str(error)) from None
        for each in suite.cases:
            item = CaseItem.from_parent(self, name=each.case.id)
            item.suite = replace(suite, cases=(each,))
            yield item


class CaseItem(pytest.Item):
    """Case. It passes when each of its runs passes; without a script and a model it is skipped."""

    suite: Suite  # of this case alone

    def runtest(self) -> None:
        config = self.config
        model = config.getoption("--eval-model") or "scripted"
        yes = config.getoption("--eval-yes") or ()
        approved = tuple(parse_yes(yes))
        with tempfile.TemporaryDirectory(prefix="prowess-evals-") as folder:
            options = EvalOptions(cwd=str(config.rootpath), model=model, approved=approved, keep_in=folder)
            report = asyncio.run(run_suite(self.suite, options))
        for record in report.records:
            _check(record)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """The reason alone for a failed case, without a traceback."""
        error = excinfo.value
        if isinstance(error, CaseFailed | ProwessError):
            return str(error)
        shown = super().repr_failure(excinfo)
        return str(shown)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """Path, line (counted from 0) and title of the case."""
        skill = self.path.parent.parent.name
        title = f"{skill}: {self.name}"
        line = self.suite.cases[0].line
        if not line:
            return self.path, None, title
        return self.path, line - 1, title


def _check(record: RunRecord) -> None:
    """Skips or fails the test if the run was skipped or failed. A soft failure passes."""
    status = record.status
    if status == "skipped":
        pytest.skip(explain(record))
    if status == "passed" or (status == "failed" and record.gate == "soft"):
        return
    run = record.key
    why = explain(record)
    raise CaseFailed(f"{status} (repeat {run.repeat}, {run.arm}):\n{why}")
