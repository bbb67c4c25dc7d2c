"""Command `prowess validate`: checks skills; answers in text, JSON or SARIF."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, bounds_options, cli_command
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.runtime.check import Report, check
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.sarif import render_sarif
from prowess.skills.reference import folder_of
from prowess.skills.roots import is_url
from prowess.skills.scanner import Bounds
from prowess.skills.validate import PROFILES, Profile

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import ChosenProfile, ValidateDocument, ValidatedSkill


@cli_command(
    "validate", example="prowess validate ./my-skill\nprowess validate ./skills --profile security --sarif > scan.sarif"
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="default",
    show_default=True,
    help="spec: exactly as strict as the reference library; portable: for every agent; security: also the static scan.",
)
@click.option("--sarif", is_flag=True, help="Answer in SARIF 2.1.0, for code-scanning tools.")
@bounds_options
@click.option("--quiet", "-q", is_flag=True, help="Only skills with findings of level error or warning.")
def command(call: Call, paths: tuple[str, ...], profile: ChosenProfile, sarif: bool, quiet: bool) -> int:
    """Check skills against the specification and good practice.

    PATH is a skill's folder, its SKILL.md, or a folder that holds skills. Exit code 1 when there is a finding of
    level error. With --profile spec each PATH is one skill, and words and exit codes are the reference library's.
    """
    cwd = call.cwd
    for path in paths:
        _check_path(cwd, path, profile)
    places = list(paths)
    if cwd != os.getcwd():
        places = [os.path.join(cwd, path) for path in paths]
    with call.screen.working("Checking"):
        bounds = _bounds(call, profile)
        reports = list(check(places, profile=profile, bounds=bounds))
    valid = all(report.valid for report in reports)
    if sarif:
        call.screen.document(render_sarif(reports, cwd))
    elif call.screen.is_json:
        document: ValidateDocument = {
            "schema": "prowess.validate/1",
            "valid": valid,
            "profile": profile,
            "skills": [_row(report) for report in reports],
        }
        call.screen.document(document)
    elif profile == "spec":
        _show_as_reference(call, paths, reports)
    else:
        _show(call, reports, quiet=quiet)
    return 0 if valid else 1


def _check_path(cwd: str, path: str, profile: Profile) -> None:
    """Raises ConfigError for an address, and for what the reference library would not find."""
    if is_url(path):
        hint = "Look at what an address holds with: prowess doctor --root URL"
        raise ConfigError("Only folders on this machine can be checked.", code="not-a-folder", hint=hint)
    if profile == "spec" and not os.path.exists(os.path.join(cwd, path)):
        raise ConfigError(f"Path '{path}' does not exist.", code="no-path", hint="Check the path.")


def _row(report: Report) -> ValidatedSkill:
    findings = [finding_row(finding) for finding in report.findings]
    return {"path": report.path, "name": report.name, "valid": report.valid, "findings": findings}


def _bounds(call: Call, profile: Profile) -> Bounds:
    """Returns the search limits from options and configuration. The reference library has no configuration."""
    if profile == "spec":
        return call.bounds
    with call.runtime() as runtime:
        return runtime.bounds


def _show_as_reference(call: Call, paths: tuple[str, ...], reports: list[Report]) -> None:
    """Shows reports in the reference library's words: valid skills on stdout, invalid ones on stderr."""
    screen = call.screen
    for path, report in zip(paths, reports, strict=True):
        place = visible(folder_of(path))
        if report.valid:
            screen.text(f"Valid skill: {place}")
            continue
        screen.note(f"Validation failed for {place}:")
        for finding in report.findings:
            message = visible(finding.message)
            screen.note(f"  - {message}")


def _show(call: Call, reports: list[Report], *, quiet: bool) -> None:
    screen = call.screen
    for report in reports:
        findings = report.findings
        if quiet:
            findings = [finding for finding in findings if finding.severity != "info"]
            if not findings:
                continue
        place = visible(report.path)
        if report.name:
            verdict = "valid" if report.valid else "invalid"
            styled = screen.styled(verdict, verdict)
            place = f"{styled}  {place}"
        screen.text(place)
        screen.findings(findings, base=report.path)
    summary = _summary(reports)
    screen.note(f"\n{summary}")


def _summary(reports: list[Report]) -> str:
    """Renders `3 skills checked · 1 invalid · 2 errors · 1 warning`."""
    skills = [report for report in reports if report.name]
    checked = count(len(skills), "skill")
    invalid = sum(not report.valid for report in skills)
    parts = [f"{checked} checked", f"{invalid} invalid"]
    severities: Counter[str] = Counter()
    for report in reports:
        severities.update(finding.severity for finding in report.findings)
    for severity, word in (("error", "error"), ("warning", "warning"), ("info", "remark")):
        number = severities[severity]
        if number:
            parts.append(count(number, word))
    return " · ".join(parts)
