"""Opens the runtime of a task: the whole catalog, without the skills that an arm lacks, with made-up ones beside it.
Opening costs far more than a scripted run, so the runtimes of a process are kept by what decides about them."""

from __future__ import annotations

import json
from functools import lru_cache

from prowess.evals.case import CaseCatalog
from prowess.evals.distractors import choose_distractors
from prowess.evals.results import EvalTask
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.portable import PortableValues, catalog_digest, open_values
from prowess.skills.skill import Root


def task_runtime(task: EvalTask) -> Runtime:
    """Returns the runtime of a task. Tasks with the same skills and settings share it."""
    return _open(_scene_of(task))


def skills_digest(task: EvalTask) -> str:
    """Returns the digest of the skills that a model can choose from in this task."""
    return _find_digest(_scene_of(task))


def forget_runtimes() -> None:
    """Drops the runtimes, so that the next run reads the skills again."""
    _open.cache_clear()
    _find_digest.cache_clear()


def _scene_of(task: EvalTask) -> str:
    places = [place.model_dump() for place in task.places]
    catalog = (task.case.catalog or CaseCatalog()).model_dump()
    return json.dumps([task.cwd, places, task.trusted, task.settings, sorted(task.off), catalog])


@lru_cache(maxsize=32)
def _open(scene: str) -> Runtime:
    cwd, places, trusted, settings, off, catalog = json.loads(scene)
    roots = [Root(each["source"], each["path"], each["trusted"], url=each["url"], expected=False) for each in places]
    values = PortableValues(cwd, roots, trusted, settings)
    runtime = open_values(values, off=off)
    if catalog["skills"] is None and not catalog["distractors"]:
        return runtime
    names = {entry.name for entry in runtime.catalog.entries}
    off += sorted(names - set(names if catalog["skills"] is None else catalog["skills"]))
    return open_values(values, off=off, more=choose_distractors(catalog["distractors"], catalog["seed"], names))


@lru_cache(maxsize=1024)
def _find_digest(scene: str) -> str:
    return catalog_digest(_open(scene))
