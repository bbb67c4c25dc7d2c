"""Examines roots, skills, settings, policy and the installation, for `prowess doctor`."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import prowess
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError, ProwessError, SkillError
from prowess.models.registry import check_spec
from prowess.runtime.check import check_loaded
from prowess.runtime.policy_files import find_surroundings, load_rules
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.storage import check_store
from prowess.skills.catalog import matches_pattern
from prowess.skills.nested import has_nested
from prowess.skills.requirements import missing_requirements
from prowess.skills.scanner import look_below_entry
from prowess.skills.skill import Entry, RootReport
from prowess.skills.spelling import near_names
from prowess.tools.run.packages import configured_packages

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import DoctorRoot, ExaminedDocument

_REPAIRED = ("yaml-repaired", "yaml-salvaged")


def examine(runtime: Runtime, broken: Sequence[Finding] = ()) -> ExaminedDocument:
    """Returns the document of `prowess doctor`, without isolation. `broken`: problems met before."""
    catalog = runtime.catalog
    problems = _policy_problems(runtime)
    plan = runtime.plan() if problems else runtime.offer(runtime.plan())
    problems += _setting_problems(runtime)
    findings = [*broken, *problems, *runtime.findings, *_beyond_the_heads(runtime)]
    return {
        "schema": "prowess.doctor/1",
        "roots": [_root_row(runtime, root, findings) for root in catalog.roots],
        "catalog": {
            "shown": len(plan.shown),
            "name_only": len(plan.name_only),
            "over_budget": list(plan.searchable),
            "hidden": list(plan.hidden),
            "tokens": {"budget": plan.tokens.budget, "used": plan.tokens.used},
            "budget_why": runtime.budget().why,
        },
        "findings": [finding_row(finding) for finding in findings],
        "installation": _installation(runtime),
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
    config, origins = runtime.config, runtime.loaded.origins
    checks: dict[str, Callable[[], object]] = {
        "model.provider": lambda: check_spec(config.model.provider),
        "store": lambda: check_store(config, runtime.places),
        "artifacts": runtime.open_artifacts,
    }
    found = [problem for name, check in checks.items() for problem in _refused(check, origins[name])]
    return [*found, *_dependency_problems(runtime)]


def _dependency_problems(runtime: Runtime) -> Iterator[Finding]:
    entries = list(runtime.catalog)
    for pattern, packages in runtime.config.skills.dependencies.items():
        origin = runtime.loaded.origins[f"skills.dependencies.{pattern}"]
        yield from _refused(lambda pair=(pattern, packages): configured_packages(lambda: dict([pair])), origin)
        if not any(matches_pattern(pattern, entry) for entry in entries):
            near = near_names(pattern, {entry.name for entry in entries})
            remedy = f"Did you mean '{near[0]}'?" if near else "Correct the name or pattern; see: prowess list --all"
            yield make_finding(Note("dependency-unmatched", None, {"pattern": pattern, "remedy": remedy}), origin)


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
            found.append(make_finding(Note("requires-missing", None, {"missing": missing}), entry.location))
        try:
            skill = runtime.load_entry(entry)
        except SkillError as error:
            found += getattr(error, "findings", ())
            continue
        found += check_loaded(skill, "loading")
        limit, lines = runtime.config.security.max_skill_body_lines, skill.body.count("\n") + 1
        if limit is not None and lines > limit:
            note = Note("body-over-limit", skill.body_line, {"lines": lines, "limit": limit})
            found.append(make_finding(note, entry.location))
    return found


def _nested_since(runtime: Runtime, entry: Entry) -> list[Finding]:
    """Finds skill files below a skill that came after it was first read. Nothing else searches it again."""
    if has_nested(entry.notes) or runtime.catalog.memory_skill(entry):
        return []
    return [*map(entry.finding_of, look_below_entry(entry, runtime.bounds))]


def _root_row(runtime: Runtime, root: RootReport, findings: list[Finding]) -> DoctorRoot:
    catalog = runtime.catalog
    here = os.path.realpath(root.path)
    entries = [entry for entry in catalog if entry.source == root.source and entry.root == here]
    statuses: dict[str, list[str]] = {}
    for entry in entries:
        statuses.setdefault(catalog.visibility(entry).status, []).append(entry.id)
    return {
        "source": root.source,
        "path": root.shown,
        "origin": root.origin,
        "exists": root.exists,
        "trusted": root.trusted,
        "skills": len(entries),
        "statuses": {status: len(ids) for status, ids in statuses.items()},
        "repaired": [e.id for e in entries if any(note.code in _REPAIRED for note in e.notes)],
        "shadowed": {e.id: catalog.visibility(e).reasons[0] for e in entries if e.id in statuses.get("shadowed", ())},
        "skipped": [f.path for f in findings if f.code == "skipped-folder" and f.path.startswith(here + os.sep)],
    }


def _installation(runtime: Runtime) -> dict[str, Any]:
    return {
        "prowess": prowess.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "yaml_c_loader": find_spec("yaml._yaml") is not None,
        "sqlite": sqlite3.sqlite_version,
        "search": _has_fts5(),
        "extras": {"watch": find_spec("watchfiles") is not None, "tokens": find_spec("bpe_openai") is not None},
        "cache_dir": runtime.places.cache_dir,
        "state_dir": runtime.places.state_dir,
        "project": runtime.places.project,
        "project_trusted": runtime.loaded.project_trusted,
    }


def _has_fts5() -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
