"""Nothing that a hostile skill tries gets through where a tier claims that it holds; and where a tier claims less, that
is shown, too. Each attempt succeeds without a sandbox, or it is not counted: see NOT RUN at the end.

The stories are told by `escapes.drive`, through the executors' port; the host's own look decides wherever it can look.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from escapes.cases import APART, CASES, NOTES, TIERS, TRIES, Case, Try
from escapes.reports import ROOT, TESTS, Report, tell_all
from escapes.table import render_table

NotRun = Callable[[str, str], None]
REQUIRED = os.environ.get("REQUIRE_TIERS", "").split(",")
TOLD = [case for case in CASES if any(each.case == case.number and each.name not in APART for each in TRIES)]
# A Landlock box has no sockets and no /dev/shm; that is what it costs, and it is not forgotten.
BROKEN = {"landlock": {"loopback", "unix_socket_of_its_own", "multiprocessing"}}


@pytest.fixture(scope="session")
def reports() -> list[Report]:
    return tell_all()


def of(reports: list[Report], tier: str) -> list[Report]:
    """What was told about that tier; an empty list when this machine does not have it."""
    return [report for report in reports if report.tier == tier and not report.missing]


def got_through(reports: list[Report], name: str) -> bool:
    """Somewhere: then the attempt is a real one, and its being refused elsewhere means something."""
    told = [report.told["attempts"].get(name, {}) for report in reports if not report.missing]
    return any(each.get("through") or each.get("control") for each in told)


@pytest.mark.parametrize("tier", ("control", "root", *TIERS))
def test_every_tier_is_here_or_its_absence_is_said(tier: str, reports: list[Report], not_run: NotRun) -> None:
    for report in reports:
        if report.tier == tier and report.missing:
            who = f"{tier}, told by {'the user' if report.by_user else 'root'}"
            assert "failed" not in report.told, f"{who}: {report.missing}"
            assert tier not in REQUIRED, f"REQUIRE_TIERS names {who}: {report.missing}"
            not_run(f"escapes from {who}", report.missing)


@pytest.mark.parametrize("case", TOLD, ids=lambda case: f"{case.number} {case.title}")
def test_it_is_as_the_table_says(case: Case, reports: list[Report]) -> None:
    """For every tier that this machine has."""
    tries = [each for each in TRIES if each.case == case.number and each.name not in APART]
    for tier in TIERS:
        for each in tries:
            if (mine := of(reports, tier)) and each.expected(tier) != "not applicable":
                look_at(each, tier, mine, reports)
    if not any(got_through(reports, each.name) for each in tries):
        pytest.skip("not discriminating here: no attempt of this case succeeds even without a sandbox")


def look_at(each: Try, tier: str, mine: list[Report], reports: list[Report]) -> None:
    found = [(report, report.told["attempts"][each.name]) for report in mine if each.name in report.told["attempts"]]
    assert found, f"nobody tried {each.name} in {tier}"
    for report, result in found:
        whole = f"{tier}, {'by the user' if report.by_user else 'by root'}: {each.name} ({each.what}): {result}"
        assert result["through"] is not None, f"a mistake in the attempt: {whole}"
        expected = each.expected(tier)
        if expected == "held" or result.get("limit") == "enforced":
            assert not result["through"], f"IT GOT THROUGH. {whole}"
        elif expected == "open" and got_through(reports, each.name) and (report.by_user or tier == "docker"):
            assert result["through"], f"It holds, and the table says that it does not. {whole}"


@pytest.mark.parametrize("name", ["bounding-set"])
def test_root_takes_more_away_than_a_user_can(name: str, reports: list[Report]) -> None:
    """The table is read for whoever runs skills as themselves."""
    for tier in TIERS:
        for report in of(reports, tier):
            assert report.by_user or not report.told["attempts"][name]["through"], (tier, report.told["attempts"][name])


def test_what_shows_nothing_on_this_machine_is_said(reports: list[Report], not_run: NotRun) -> None:
    """Refused without a sandbox, too: that a tier refuses it proves nothing, and is not counted above."""
    told = [each for each in TRIES if each.name not in APART]
    nothing = [each for each in told if not got_through(reports, each.name)]
    for each in nothing:
        not_run(f"escape {each.case} {each.name}", f"not discriminating here ({each.what}): refused to everybody")
    assert len(nothing) < len(told) // (5 if ROOT else 2), "this machine is no place to show anything"


@pytest.mark.parametrize("tier", TIERS)
def test_what_scripts_need_works(tier: str, reports: list[Report], not_run: NotRun) -> None:
    for report in of(reports, tier):
        needs = report.told["needs"]
        for name, answer in needs.items():
            if answer.startswith("absent"):
                not_run(f"need '{name}' in {tier}", answer)
        broken = {name for name, answer in needs.items() if answer.startswith("broken")}
        assert broken == BROKEN.get(tier, set()), needs


def test_without_a_sandbox_the_needs_work_and_the_attempts_succeed(reports: list[Report]) -> None:
    """The control itself: were it weak, nothing above would mean much."""
    [control] = of(reports, "control")
    assert set(control.told["needs"].values()) <= {"works", "absent: there is no node here"}
    open_in_local = {each.name for each in TRIES if each.expected("local") == "open"}
    through = {name for name, result in control.told["attempts"].items() if result["through"]}
    assert len(open_in_local & through) > 100
    if ROOT:
        [root] = of(reports, "root")
        assert {"mount", "core-pattern", "mknod-disk", "owner", "chroot"} <= {
            name for name, result in root.told["attempts"].items() if result["through"]
        }


def test_everything_that_was_tried_is_in_the_table_and_the_other_way_round(reports: list[Report]) -> None:
    tried = {name for report in reports if not report.missing for name in report.told["attempts"]}
    listed = {each.name for each in TRIES} - APART
    assert tried <= listed
    assert listed - tried == set() or any(report.missing for report in reports)
    assert len(TRIES) == len({each.name for each in TRIES})


def test_every_case_has_attempts_and_every_note_is_of_use() -> None:
    assert [case.number for case in CASES] == list(range(1, len(CASES) + 1))
    assert {each.case for each in TRIES} == {case.number for case in CASES}
    assert set(NOTES) <= {each.name for each in TRIES}
    odd_for_a_box = [each for each in TRIES if set(each.letters[1:]) & set("ON")]
    assert {each.name for each in odd_for_a_box} <= set(NOTES), "what a sandbox does not hold needs a reason"


def test_the_table_has_every_case_and_no_word_of_its_own() -> None:
    lines = render_table().splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| ") and "**" not in line.split("|")[2]]
    assert {int(row[0]) for row in rows[1:]} == {case.number for case in CASES}
    cells = {cell.strip() for row in rows[1:] for cell in row[2:]}
    assert cells == {"held", "**does not hold**", "not claimed", "–"}
    by_module = subprocess.run(
        [sys.executable, "-m", "tests.escapes.table"], cwd=TESTS.parent, capture_output=True, text=True, check=True
    )
    assert by_module.stdout.strip() == render_table().strip()


def test_nobody_attempts_escapes_as_root_outside_a_private_mount_namespace() -> None:
    if not ROOT:
        return
    env: dict[str, Any] = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-B", "-m", "escapes.drive", "root"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode != 0 and "private mount namespace" in done.stderr and done.stdout == ""
