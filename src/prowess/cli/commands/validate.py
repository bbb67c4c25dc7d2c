"""Command `prowess validate`: checks skills; answers in text, JSON or SARIF."""

from __future__ import annotations

import os
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
    from prowess.runtime.documents.skills import ChosenProfile, ValidateDocument


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
        if is_url(path):
            raise ConfigError(
                "Only folders on this machine can be checked.",
                code="not-a-folder",
                hint="Look at what an address holds with: prowess doctor --root URL",
            )
        if profile == "spec" and not os.path.exists(os.path.join(cwd, path)):
            raise ConfigError(f"Path '{path}' does not exist.", code="no-path", hint="Check the path.")
    with call.screen.working("Checking"):
        places = list(paths) if cwd == os.getcwd() else [os.path.join(cwd, path) for path in paths]
        reports = list(check(places, profile=profile, bounds=_bounds(call, profile)))
    valid = all(report.valid for report in reports)
    if sarif:
        call.screen.document(render_sarif(reports, cwd))
    elif call.screen.is_json:
        document: ValidateDocument = {
            "schema": "prowess.validate/1",
            "valid": valid,
            "profile": profile,
            "skills": [
                {
                    "path": report.path,
                    "name": report.name,
                    "valid": report.valid,
                    "findings": [finding_row(finding) for finding in report.findings],
                }
                for report in reports
            ],
        }
        call.screen.document(document)
    elif profile == "spec":
        _show_as_reference(call, paths, reports)
    else:
        _show(call, reports, quiet=quiet)
    return 0 if valid else 1


def _bounds(call: Call, profile: Profile) -> Bounds:
    """Returns the search limits from options and configuration. The reference library has no configuration."""
    if profile == "spec":
        return call.bounds
    with call.runtime() as runtime:
        return runtime.bounds


def _show_as_reference(call: Call, paths: tuple[str, ...], reports: list[Report]) -> None:
    """Shows reports in the reference library's words: valid skills on stdout, invalid ones on stderr."""
    for path, report in zip(paths, reports, strict=True):
        place = visible(folder_of(path))
        if report.valid:
            call.screen.text(f"Valid skill: {place}")
        else:
            call.screen.note(f"Validation failed for {place}:")
            for finding in report.findings:
                call.screen.note(f"  - {visible(finding.message)}")


def _show(call: Call, reports: list[Report], *, quiet: bool) -> None:
    screen = call.screen
    for report in reports:
        findings = [f for f in report.findings if not quiet or f.severity != "info"]
        if quiet and not findings:
            continue
        verdict = "valid" if report.valid else "invalid"
        place = visible(report.path)
        screen.text(f"{screen.styled(verdict, verdict)}  {place}" if report.name else place)
        screen.findings(findings, base=report.path)
    skills = [report for report in reports if report.name]
    findings = [finding for report in reports for finding in report.findings]
    parts = [f"{count(len(skills), 'skill')} checked", f"{sum(not report.valid for report in skills)} invalid"]
    for severity, word in (("error", "error"), ("warning", "warning"), ("info", "remark")):
        number = sum(finding.severity == severity for finding in findings)
        if number:
            parts.append(count(number, word))
    screen.note("\n" + " · ".join(parts))
