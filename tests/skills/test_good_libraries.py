"""What is odd but right loads exactly as it was meant, with nothing to complain about."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowess.runtime.check import check
from prowess.skills.discover import discover
from prowess.skills.load import load
from prowess.skills.skill import Skill
from recipes import FIXTURES, build_library, load_expectations

GOOD = FIXTURES / "good"
CASES = sorted(path.name for path in GOOD.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_a_good_library_loads_as_it_was_meant(case: str, tmp_path: Path) -> None:
    library = build_library(GOOD / case, tmp_path / case)
    expected = {row["id"]: row for row in load_expectations(GOOD / case).skill}
    catalog = discover(library)
    assert [entry.id for entry in catalog] == sorted(expected)
    for entry in catalog:
        row = expected[entry.id]
        assert catalog.visibility(entry).status == row.get("mode", "active")
        _assert_equal(load(catalog, entry.id), row)
        told = {finding.code for finding in catalog.findings_of(entry)}
        assert told <= set(row.get("info", ())), "discovery has nothing to say that is not listed"
    assert not [finding for finding in catalog.findings if finding.severity != "info"]
    for report in check([str(library)]):
        row = next(row for row in expected.values() if row["name"] == report.name)
        remarks = {finding.code for finding in report.findings if finding.severity == "info"}
        assert remarks == set(row.get("info", ()))
        assert [f.code for f in report.findings if f.severity != "info"] == row.get("validate", [])


def _assert_equal(skill: Skill, row: dict) -> None:
    """Every key of the row says something about the skill."""
    controls = skill.entry.controls
    facts = {
        "id": skill.entry.id,
        "name": skill.name,
        "description": skill.description,
        "body": skill.body,
        "body_length": len(skill.body),
        "version": skill.entry.version,
        "keywords": list(skill.entry.keywords),
        "metadata": skill.fields.get("metadata"),
        "fields_license": skill.fields.get("license"),
        "files": [file.path for file in skill.files],
        "mode": controls.mode,
        "allowed_tools": list(controls.allowed_tools or ()),
        "run_mode": controls.run_mode,
        "role": controls.role,
        "argument_hint": controls.argument_hint,
        "paths": list(controls.paths),
    }
    stated = {key: value for key, value in row.items() if key not in ("info", "validate", "body_ends")}
    assert {key: facts[key] for key in stated} == stated
    assert skill.body.endswith(row.get("body_ends", ""))


@pytest.mark.parametrize("case", ["bom", "crlf", "lone-cr", "mixed-line-ends", "chinese", "em-dash-and-emoji"])
def test_the_fixtures_are_the_bytes_they_claim_to_be(case: str) -> None:
    """An editor, or git with other settings, could mend them."""
    data = (GOOD / case / case / "SKILL.md").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf") == (case == "bom")
    assert (b"\r\n" in data) == (case in ("crlf", "mixed-line-ends"))
    assert (b"\n" in data) == (case != "lone-cr")
    assert data.isascii() == (case in ("crlf", "lone-cr", "mixed-line-ends"))
