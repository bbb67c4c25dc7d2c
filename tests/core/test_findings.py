"""Every finding code owns a folder under fixtures/bad that shows it, and nothing in there harms its neighbours.

A folder is a library: skills as they are, or as its `make.py` makes them where git cannot hold them. `expect.toml`
lists every finding of that code: where, on which line, and how severe it is at discovery (`discover`), in `prowess
validate` (`validate`), or through the door that `findings()` of its `make.py` opens (`found`). What is not listed must
not be there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from prowess.core.findings import RULES, Note, make_finding
from prowess.core.values import Finding
from prowess.runtime.check import Report, check
from prowess.skills.discover import discover
from prowess.skills.load import load
from recipes import FIXTURES, build_library, load_expectations, load_maker

BAD = FIXTURES / "bad"
NEIGHBOUR = "good-neighbour"


@pytest.fixture
def library(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The library of a code, with a good skill beside the bad ones."""
    return build_library(BAD / request.param, tmp_path / "library", neighbour=NEIGHBOUR)


def _of_code(code: str, findings: list[Finding], library: Path) -> list[tuple[str, int | None, str, str]]:
    """(path below the library, line, severity, message), sorted. What is about no file of the library is at `*`."""
    found = []
    for finding in findings:
        if finding.code == code:
            inside = finding.path == str(library) or finding.path.startswith(f"{library}{os.sep}")
            path = os.fsencode(os.path.relpath(finding.path, library)).decode("utf-8", "replace") if inside else "*"
            found.append(("" if path == "." else path, finding.line, finding.severity, finding.message))
    return sorted(found, key=repr)


def _assert_as_listed(code: str, door: str, findings: list[Finding], library: Path) -> None:
    found = _of_code(code, findings, library)
    listed = [row for row in load_expectations(BAD / code).finding if door in row]
    want = sorted(((row["path"], row.get("line"), row[door]) for row in listed), key=repr)
    assert [row[:3] for row in found] == want
    for row in listed:
        messages = [message for path, line, _, message in found if (path, line) == (row["path"], row.get("line"))]
        assert any(row.get("message", "") in message for message in messages), messages


def _checked(library: Path, code: str) -> list[Report]:
    return list(check([str(library)], profile=getattr(load_expectations(BAD / code), "profile", "default")))


@pytest.mark.parametrize(("library", "code"), [(code, code) for code in RULES], ids=list(RULES), indirect=["library"])
def test_the_fixture_shows_the_finding_and_its_neighbour_is_untouched(library: Path, code: str) -> None:
    catalog = discover(library)
    reports = _checked(library, code)
    findings = [finding for report in reports for finding in report.findings]
    _assert_as_listed(code, "discover", list(catalog.findings), library)
    _assert_as_listed(code, "validate", findings, library)

    asked = load_maker(BAD / code).get("findings")
    found = asked(library) if asked else []
    _assert_as_listed(code, "found", found, library)
    assert any(finding.code == code for finding in [*catalog.findings, *findings, *found])

    for finding in [*catalog.findings, *findings, *found]:
        assert not re.search(r"\{\w+\}", f"{finding.message} {finding.hint}"), "a slot was not filled"
        assert finding.hint
        assert finding.message.isprintable(), "a message never carries what a terminal would obey"
        assert finding.severity == RULES[finding.code].severity or finding in findings, "only validate is stricter"

    skill = load(catalog, NEIGHBOUR)
    assert (skill.name, skill.body) == (NEIGHBOUR, "\n# Steps\n\n1. Be nice to the skill next door.\n")
    assert skill.description == "Stands beside bad skills and is not bothered. Use when a test needs a neighbour."
    assert catalog.visibility(skill.entry).status == "active"
    assert skill.findings == ()
    [report] = [report for report in reports if report.name == NEIGHBOUR]
    assert (report.valid, report.findings) == (True, ())


def test_every_code_has_a_fixture_and_every_fixture_a_code() -> None:
    assert {path.name for path in BAD.iterdir()} == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_a_fixture_is_well_formed(code: str) -> None:
    expected = load_expectations(BAD / code)
    assert vars(expected).keys() <= {"profile", "finding"}
    assert expected.finding, "it lists at least one finding"
    for row in expected.finding:
        assert row.keys() <= {"path", "line", "message", "discover", "validate", "found"}
        assert row.keys() & {"discover", "validate", "found"}
        assert {row[door] for door in ("discover", "found") if door in row} <= {RULES[code].severity}


@pytest.mark.parametrize(("code", "rule"), RULES.items(), ids=list(RULES))
def test_a_rule_says_what_to_do_and_why(code: str, rule: Any) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
    assert rule.severity in ("error", "warning", "info")
    assert rule.stage in ("head", "file", "body", "tree", "library", "url", "trust", "config", "scan")
    for text in (rule.message, rule.hint, rule.why):
        assert text == text.strip() and len(text) > 3


def test_what_a_skill_says_cannot_fill_our_slots_or_drive_a_terminal() -> None:
    note = Note("name-mismatch", 2, {"name": "{folder}\x1b[31m\u202e", "folder": "{name}"})
    finding = make_finding(note, "p")
    assert "'{folder}\\u{1b}[31m\\u{202e}'" in finding.message
    assert "'{name}'" in finding.message
    assert finding.message.isprintable()
