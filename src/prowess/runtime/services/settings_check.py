"""Finds settings that have no effect, or that would stop a run, for `prowess doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ProwessError
from prowess.models.registry import check_spec
from prowess.runtime.factories import check_store
from prowess.runtime.runtime import Runtime
from prowess.skills.catalog import matches_pattern
from prowess.skills.spelling import near_names
from prowess.tools.run.packages import configured_packages


def find_setting_problems(runtime: Runtime) -> list[Finding]:
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
        return [Finding(code=error.code, severity="error", path=origin, message=error.message, hint=error.hint)]
    return []
