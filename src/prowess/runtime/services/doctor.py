"""Examines roots, skills, settings, policy and the installation, for `prowess doctor`."""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import prowess
from prowess.core.catalog_values import CatalogPlan, Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError, ProwessError, SkillError
from prowess.models.registry import check_spec
from prowess.runtime.check import check_loaded
from prowess.runtime.policy_files import find_surroundings, load_rules
from prowess.runtime.project_state import state_path
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.projects import known_projects
from prowess.runtime.storage import check_store
from prowess.runtime.take_over import find_left_record
from prowess.skills.name_patterns import matches_pattern
from prowess.skills.nested import has_nested
from prowess.skills.requirements import missing_requirements
from prowess.skills.scanner import look_below_entry
from prowess.skills.skill import Entry, RootReport, Skill
from prowess.skills.spelling import near_names
from prowess.tools.run.packages import configured_packages

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import DoctorCatalog, DoctorRoot, ExaminedDocument

_REPAIRED = ("yaml-repaired", "yaml-salvaged")


def examine(runtime: Runtime, broken: Sequence[Finding] = ()) -> ExaminedDocument:
    """Returns the document of `prowess doctor`, without isolation. `broken`: problems met before."""
    problems = _policy_problems(runtime)
    plan = runtime.plan()
    if not problems:
        plan = runtime.offer(plan)
    problems += [*_setting_problems(runtime), *state_problems(runtime)]
    findings = [*broken, *problems, *runtime.findings, *_beyond_the_heads(runtime)]
    roots = [_root_row(runtime, root, findings) for root in runtime.catalog.roots]
    rows = [finding_row(finding) for finding in findings]
    return {
        "schema": "prowess.doctor/1",
        "roots": roots,
        "catalog": _catalog_row(plan, runtime.budget().why),
        "findings": rows,
        "installation": _installation(runtime),
    }


def _catalog_row(plan: CatalogPlan, budget_why: str) -> DoctorCatalog:
    return {
        "shown": len(plan.shown),
        "name_only": len(plan.name_only),
        "over_budget": list(plan.searchable),
        "hidden": list(plan.hidden),
        "tokens": {"budget": plan.tokens.budget, "used": plan.tokens.used},
        "budget_why": budget_why,
    }


def problem_of(error: ProwessError, path: str) -> Finding:
    """Turns an error into a finding."""
    return Finding(code=error.code, severity="error", path=path, message=error.message, hint=error.hint)


def _policy_problems(runtime: Runtime) -> list[Finding]:
    """Returns the problems because of which no call could be decided."""
    try:
        find_surroundings(runtime.config)
        load_rules(runtime)
    except ConfigError as error:
        return [problem_of(error, "policy")]
    return []


def _setting_problems(runtime: Runtime) -> list[Finding]:
    config = runtime.config
    checks: dict[str, Callable[[], object]] = {
        "model.provider": lambda: check_spec(config.model.provider),
        "store": lambda: check_store(config, runtime.places),
        "artifacts": runtime.open_artifacts,
    }
    found: list[Finding] = []
    for name, check in checks.items():
        origin = runtime.loaded.origins[name]
        found += _refused(check, origin)
    found += _dependency_problems(runtime)
    return found


def state_problems(runtime: Runtime) -> Iterator[Finding]:
    """Yields findings about records that are not used: one in the project folder, and those of folders that went."""
    left = find_left_record(runtime.places)
    if left is not None:
        yield make_finding(Note("record-left", None, {"command": f"prowess runs import {shlex.quote(left)}"}), left)
    gone = [each for each in known_projects(runtime.places.state_dir) if each.status == "gone"]
    if gone:
        details = {"count": len(gone), "bytes": sum(each.size_bytes for each in gone)}
        yield make_finding(Note("projects-gone", None, details), runtime.places.state_dir)


def _dependency_problems(runtime: Runtime) -> Iterator[Finding]:
    entries = list(runtime.catalog)
    for pattern, packages in runtime.config.skills.dependencies.items():
        origin = runtime.loaded.origins[f"skills.dependencies.{pattern}"]
        configured = {pattern: packages}
        check = partial(configured_packages, configured.copy)
        yield from _refused(check, origin)
        is_matched = any(matches_pattern(pattern, entry) for entry in entries)
        if not is_matched:
            yield _unmatched(pattern, entries, origin)


def _unmatched(pattern: str, entries: Sequence[Entry], origin: str) -> Finding:
    """Makes the finding about a setting for skills that do not exist."""
    names = {entry.name for entry in entries}
    near = near_names(pattern, names)
    remedy = "Correct the name or pattern; see: prowess list --all"
    if near:
        remedy = f"Did you mean '{near[0]}'?"
    note = Note("dependency-unmatched", None, {"pattern": pattern, "remedy": remedy})
    return make_finding(note, origin)


def _refused(check: Callable[[], object], origin: str) -> list[Finding]:
    try:
        check()
    except ProwessError as error:
        return [problem_of(error, origin)]
    return []


def _beyond_the_heads(runtime: Runtime) -> list[Finding]:
    """Returns findings that need whole skills or this machine: bodies, files, requirements."""
    catalog = runtime.catalog
    found: list[Finding] = []
    for entry in catalog:
        found += _nested_since(runtime, entry)
        if catalog.visibility(entry).status in ("invalid", "denied", "shadowed", "off"):
            continue
        missing = missing_requirements(entry.controls, runtime.environ, catalog.__contains__)
        if missing:
            note = Note("requires-missing", None, {"missing": missing})
            found.append(make_finding(note, entry.location))
        try:
            skill = runtime.load_entry(entry)
        except SkillError as error:
            found += getattr(error, "findings", ())
            continue
        found += check_loaded(skill, "loading")
        found += _too_long(runtime, skill)
    return found


def _too_long(runtime: Runtime, skill: Skill) -> Iterator[Finding]:
    """Yields a finding when the body has more lines than the settings allow."""
    limit = runtime.config.security.max_skill_body_lines
    lines = skill.body.count("\n") + 1
    if limit is not None and lines > limit:
        details = {"lines": lines, "limit": limit}
        note = Note("body-over-limit", skill.body_line, details)
        yield make_finding(note, skill.entry.location)


def _nested_since(runtime: Runtime, entry: Entry) -> list[Finding]:
    """Finds skill files below a skill that came after it was first read. Nothing else searches it again."""
    is_in_memory = runtime.catalog.memory_skill(entry) is not None
    if is_in_memory or has_nested(entry.notes):
        return []
    notes = look_below_entry(entry, runtime.bounds)
    return [entry.finding_of(note) for note in notes]


def _root_row(runtime: Runtime, root: RootReport, findings: list[Finding]) -> DoctorRoot:
    here = os.path.realpath(root.path)
    statuses: Counter[str] = Counter()
    repaired: list[str] = []
    shadowed: dict[str, str] = {}
    for entry in runtime.catalog:
        if entry.source != root.source or entry.root != here:
            continue
        seen = runtime.catalog.visibility(entry)
        statuses[seen.status] += 1
        if seen.status == "shadowed":
            shadowed[entry.id] = seen.reasons[0]
        if any(note.code in _REPAIRED for note in entry.notes):
            repaired.append(entry.id)
    skipped = [finding.path for finding in findings if finding.code == "skipped-folder"]
    below = here + os.sep
    return {
        "source": root.source,
        "path": root.shown,
        "origin": root.origin,
        "exists": root.exists,
        "trusted": root.trusted,
        "skills": statuses.total(),
        "statuses": dict(statuses),
        "repaired": repaired,
        "shadowed": shadowed,
        "skipped": [path for path in skipped if path.startswith(below)],
    }


def _installation(runtime: Runtime) -> dict[str, Any]:
    places = runtime.places
    version = map(str, sys.version_info[:3])
    return {
        "prowess": prowess.__version__,
        "python": ".".join(version),
        "yaml_c_loader": _has_module("yaml._yaml"),
        "sqlite": sqlite3.sqlite_version,
        "search": _has_fts5(),
        "extras": {"watch": _has_module("watchfiles"), "tokens": _has_module("bpe_openai")},
        "cache_dir": places.cache_dir,
        "state_dir": places.state_dir,
        "state": state_path(places),
        "project": places.project,
        "project_trusted": runtime.loaded.project_trusted,
    }


def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def _has_fts5() -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
