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
        with tempfile.TemporaryDirectory(prefix="prowess-evals-") as folder:
            options = EvalOptions(
                cwd=str(self.config.rootpath),
                model=self.config.getoption("--eval-model") or "scripted",
                approved=tuple(parse_yes(self.config.getoption("--eval-yes") or ())),
                keep_in=folder,
            )
            records = asyncio.run(run_suite(self.suite, options)).records
        for record in records:
            if record.status == "skipped":
                pytest.skip(explain(record))
            if record.status != "passed" and not (record.status == "failed" and record.gate == "soft"):
                raise CaseFailed(_tell(record))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, CaseFailed | ProwessError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        line = self.suite.cases[0].line
        return self.path, line - 1 if line else None, f"{self.path.parent.parent.name}: {self.name}"


def _tell(record: RunRecord) -> str:
    return f"{record.status} (repeat {record.key.repeat}, {record.key.arm}):\n{explain(record)}"
