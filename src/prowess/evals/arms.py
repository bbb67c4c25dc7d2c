"""Arms of a case: with the skill, without it, and with an older version of it, from git or from a pack."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection
from typing import NamedTuple

from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.evals.case import Case, SkillsExpected
from prowess.evals.results import SkillPlace
from prowess.evals.suite import SuiteCase
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.old_skill import export_old_skill

ARMS = ("with_skill", "without_skill", "old_skill=REF")


class Arm(NamedTuple):
    """Way to run a case: skills that are off, and places that come before all others."""

    name: str
    off: tuple[str, ...] = ()
    places: tuple[SkillPlace, ...] = ()


class Arms:
    """Makes the arms of cases. Older versions are exported below `folder`. A person named those in `given`."""

    def __init__(self, runtime: Runtime, folder: str, given: Collection[str]) -> None:
        self._runtime = runtime
        self._folder = folder
        self._given = given
        self._entries = {entry.name: entry for entry in reversed(list(runtime.catalog.entries))}
        self._exported: dict[tuple[str, str], SkillPlace] = {}

    def make(self, name: str, each: SuiteCase) -> Arm | None:
        """Returns the arm of a case. None if the arm needs a skill under test, and the case has none."""
        kind, _, ref = name.partition("=")
        if name not in ARMS[:2] and (kind != "old_skill" or not ref):
            message = f"There is no arm '{visible(name[:80])}'."
            if name in (each.case.arms or ()):
                message = f"{each.file}:{each.line}: case {each.case.id!r}: {message}"
            near = difflib.get_close_matches(kind, [arm.partition("=")[0] for arm in ARMS], n=1)
            hint = f"Did you mean {near[0]}?" if near and near[0] != kind else f"There are: {', '.join(ARMS)}."
            raise EvalError(message, code="arm-unknown", hint=hint)
        if name == "with_skill":
            return Arm(name)
        skills = skills_under_test(each)
        if not skills:
            return None
        if not ref:
            return Arm(name, off=skills)
        return Arm(name, places=tuple(self._find_old(ref, skill) for skill in skills))

    def _find_old(self, ref: str, skill: str) -> SkillPlace:
        if skill not in self._entries:
            hint = "Add its folder with --root. See: prowess list"
            raise EvalError(f"There is no skill {skill!r}.", code="eval-unknown-skill", hint=hint)
        if (ref, skill) not in self._exported:
            into = os.path.join(self._folder, f"old-skill-{len(self._exported) + 1}")
            accepts_packs = self._runtime.trusts_project or f"old_skill={ref}" in self._given
            entry = self._entries[skill]
            is_pack = export_old_skill(entry, ref, into, self._runtime, accepts_packs=accepts_packs)
            self._exported[ref, skill] = SkillPlace(source="explicit", path=into, trusted=is_pack or entry.trusted)
        return self._exported[ref, skill]


def skills_under_test(each: SuiteCase) -> tuple[str, ...]:
    """Returns the skills that an arm changes: that of the file, or those that the case expects."""
    if each.skill:
        return (each.skill,)
    return each.case.expect.skills.load if each.case.expect.skills else ()


def case_in_arm(case: Case, arm: Arm) -> Case:
    """Returns the case as it is checked in an arm: nothing is expected of a skill that is off."""
    if not arm.off:
        return case
    wanted: SkillsExpected | None = None
    if case.expect.skills and case.expect.skills.not_load:
        wanted = SkillsExpected(not_load=tuple(name for name in case.expect.skills.not_load if name not in arm.off))
    steps = tuple(rule for rule in case.expect.steps if rule.find_skills().isdisjoint(arm.off))
    return case.model_copy(update={"expect": case.expect.model_copy(update={"skills": wanted, "steps": steps})})
