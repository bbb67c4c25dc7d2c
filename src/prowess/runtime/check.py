"""Validates skills: every skill below a path is read whole and checked under a profile. Nothing is changed.

Each skill gets a report:

    for report in check(["./skills"], profile="default"): report.valid, report.findings
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError, SkillError
from prowess.policy.allowed_tools import describe_unknown, parse_allowed
from prowess.skills.load import load_entry, read_resource
from prowess.skills.locked_names import without_renamed
from prowess.skills.parse import parse_front
from prowess.skills.reference import find_skill_md, folder_errors, folder_of
from prowess.skills.scanner import Bounds, scan
from prowess.skills.security_scan import scan_skill
from prowess.skills.skill import Entry, Root, Skill
from prowess.skills.validate import PROFILES, Profile, check_cost, check_skill, check_template, graded

_MOST_NAMED = 20  # a hostile list could have a hundred thousand entries


class Report(NamedTuple):
    path: str
    name: str  # empty when the report is about a path, not about a skill
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        return not _has_errors(self.findings)


def _has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def check(
    paths: str | os.PathLike[str] | Iterable[str],
    *,
    profile: Profile = "default",
    nested: bool = False,
    bounds: Bounds = Bounds(),
) -> Iterator[Report]:
    """Yields a report for each skill at or below each path, and one for faults of the path itself.

    `nested` also checks the skills below a skill. Under the profile `spec` each path is one skill.
    """
    if profile not in (*PROFILES, "loading"):
        raise ConfigError(f"'{profile}' is no profile.", code="profile-unknown", hint=f"Use {', '.join(PROFILES)}.")
    bounds = bounds._replace(nested=nested or bounds.nested)
    if bounds.nested and profile == "spec":
        message = "The profile 'spec' has no nested skills."
        raise ConfigError(message, code="usage", hint="Leave nested out, or name each folder.")
    for given in [paths] if isinstance(paths, str | os.PathLike) else paths:
        if profile == "spec":
            yield _check_by_spec(os.fspath(given))
        else:
            yield from _check_below(os.path.abspath(os.fspath(given)), profile, bounds)


def _check_by_spec(given: str) -> Report:
    """Checks one path as one skill: the reference library does not search."""
    folder = folder_of(os.path.abspath(given))
    name = os.path.basename(folder)
    return Report(folder, name, tuple(_spec_findings(given)))


def _check_below(path: str, profile: Profile, bounds: Bounds) -> Iterator[Report]:
    if os.path.basename(path).lower() == "skill.md" and not os.path.isdir(path):
        path = os.path.dirname(path)
    found = scan(Root("explicit", path), bounds=bounds)
    problems = [_as_error(finding) for finding in found.findings]
    if not found.entries and not _has_errors(problems):
        problems.append(make_finding(Note("no-skill-here"), path))
    if problems:
        yield Report(path, "", tuple(problems))
    for entry in without_renamed(found.entries):
        yield check_entry(entry, profile)


def check_entry(entry: Entry, profile: Profile = "default") -> Report:
    findings: list[Finding] = []
    for note in entry.notes:
        severity = graded(note.code, profile)
        findings.append(entry.finding_of(note, severity))
    if entry.valid:
        try:
            skill = load_entry(entry)
        except SkillError as error:
            found = getattr(error, "findings", ())
            return Report(entry.path, entry.name, (*findings, *found))
        findings += check_loaded(skill, profile)
    return Report(entry.path, entry.name, tuple(findings))


def check_loaded(skill: Skill, profile: Profile = "default") -> list[Finding]:
    """Returns the findings about the body and the files of a loaded skill."""

    def read(path: str) -> bytes:
        try:
            return read_resource(skill, path)
        except SkillError:
            return b""

    located = list(check_skill(skill, read))
    if profile != "loading":
        located += check_cost(skill, read)
        located += check_template(skill, read)
    if profile == "security":
        located += scan_skill(skill, read)
    located += _unknown_tools(skill, read)
    findings: list[Finding] = []
    for file, note in located:
        path = os.path.join(skill.entry.path, *file.split("/"))
        severity = graded(note.code, profile)
        findings.append(make_finding(note, path, severity=severity))
    return findings


def _unknown_tools(skill: Skill, read: Callable[[str], bytes]) -> Iterator[tuple[str, Note]]:
    declared = skill.entry.controls.allowed_tools or ()
    unknown = parse_allowed(declared).unknown
    if not unknown:
        return
    file = skill.entry.file
    front = parse_front(read(file))
    line = None if isinstance(front, Note) else front.lines.get("allowed-tools")
    entries = [describe_unknown(entry) for entry in unknown[:_MOST_NAMED]]
    more = len(unknown) - _MOST_NAMED
    if more > 0:
        entries.append(f"and {more} more")
    yield file, Note("allowed-tools-unknown", line, {"entries": entries})


def _spec_findings(given: str) -> Iterator[Finding]:
    folder = os.path.abspath(folder_of(given))
    for code, message in folder_errors(given):
        path = find_skill_md(folder) or folder
        yield Finding(code=code, severity="error", path=path, message=message, hint=_SPEC_HINTS.get(code))


_SPEC_HINTS = {
    "no-skill-here": "Give the folders of skills one by one, as in: prowess validate --profile spec skills/*",
    "root-not-folder": "Give the folder of a skill, or its SKILL.md.",
}


def _as_error(finding: Finding) -> Finding:
    """Raises a missing path to an error: a person named it."""
    if finding.code != "root-missing":
        return finding
    return Finding(
        code=finding.code, severity="error", path=finding.path, message="The path does not exist.", hint=finding.hint
    )
