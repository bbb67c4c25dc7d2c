"""Services that the command line uses, called as another surface would."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowess import Limits
from prowess.core.values import Usage
from prowess.runtime.services.files import copy_files
from prowess.runtime.services.requests import raise_limit


def test_files_of_a_run_are_copied_and_each_that_is_not_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "place" / "out").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    for name in ("a.txt", "b.txt", ".hidden"):
        (tmp_path / "place" / "out" / name).write_text("new")
    (tmp_path / "mine" / "b.txt").write_text("old")
    names = ["out/a.txt", "out/b.txt", "out/.hidden", "out/none.txt"]
    copied = copy_files(
        str(tmp_path / "place"), names, cwd=str(tmp_path / "mine"), folder=".", force=False, searched=()
    )
    assert list(copied.paths) == [str(tmp_path / "mine" / "a.txt")]
    reasons = ["exists already", "begins with a dot", "No such file"]
    assert all(reason in warning for reason, warning in zip(reasons, copied.warnings, strict=True))
    assert (tmp_path / "mine" / "b.txt").read_text() == "old"


@pytest.mark.parametrize(
    ("stop_reason", "raised"),
    [
        ("limit:turns", ("turns", 24)),
        ("limit:tokens", ("tokens", 600)),  # twice what was used
        ("limit:cost", None),  # there was no limit
        ("cancelled", None),
    ],
)
def test_a_run_goes_on_with_a_limit_well_above_what_was_used(stop_reason: str, raised: tuple[str, int] | None) -> None:
    assert raise_limit(Limits(turns=12, tokens=100), stop_reason, Usage(input=200, output=100)) == raised
