"""Engines run tasks: `local` in this process, `ray` on a cluster. Paths of the driver mean nothing on a node of a
cluster, so the files of all tasks travel once, with a table of their paths, and every task is rewritten by it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal, NamedTuple

from prowess import __version__
from prowess._internal.file_bundle import BundleTooLarge, FileBundle, find_files, pack_folders, unpack_folders
from prowess._internal.ray_pool import RayPool
from prowess.errors import EvalError
from prowess.evals.results import EvalTask
from prowess.evals.run_task import TaskOutcome, run_task
from prowess.evals.suite import fixtures
from prowess.runtime.config import find_places
from prowess.skills.roots import BUILTIN

EngineName = Literal["local", "ray"]
_LOCAL_SLOTS = 8
_MOST_BYTES = 512 << 20


class TaskEngine(NamedTuple):
    """Runs tasks, `slots` at a time."""

    perform: Callable[[EvalTask], Awaitable[TaskOutcome]]
    slots: int


@asynccontextmanager
async def open_engine(
    name: EngineName, tasks: Iterable[EvalTask], *, address: str | None, slots: int | None
) -> AsyncIterator[TaskEngine]:
    if name == "local":
        yield TaskEngine(run_task, slots or _LOCAL_SLOTS)
        return
    shipped = ship(tasks)
    async with aclosing(RayPool(perform_shipped, shipped.data, address=address, slots=slots)) as pool:

        async def perform(task: EvalTask) -> TaskOutcome:
            work = {"task": task.model_dump(mode="json"), "digest": shipped.digest, "version": __version__}
            return TaskOutcome.model_validate_json(await pool.perform(json.dumps(work)))

        yield TaskEngine(perform, pool.slots)


def ship(tasks: Iterable[EvalTask]) -> FileBundle:
    """Packs everything that tasks read: roots, fixtures, recordings, and the project's policy."""
    folders: dict[str, dict[str, str]] = {}  # path of the driver -> place below it -> file
    builtin = os.path.realpath(BUILTIN)
    for task in tasks:
        roots = [each.path for each in task.places if not each.url]
        whole = [path for path in roots if os.path.realpath(path) != builtin]
        if task.replay_from is not None and os.path.isfile(task.replay_from):
            whole.append(task.replay_from)
        folders |= {path: find_files(path) for path in whole if path not in folders}
        if task.cwd not in folders:
            policy = os.path.join(find_places(task.cwd, os.environ).project, ".agent", "policy.toml")
            folders[task.cwd] = {".agent/policy.toml": policy} if os.path.isfile(policy) else {}
        below = folders.setdefault(task.base, {})
        top = os.path.realpath(task.base)
        for path in fixtures(task.case, task.base):
            place = os.path.relpath(path, top)
            below |= {os.path.normpath(os.path.join(place, rel)): file for rel, file in find_files(path).items()}
    try:
        return pack_folders(folders, _MOST_BYTES)
    except BundleTooLarge as error:
        what = f"The skills and files of this suite are larger than {_MOST_BYTES >> 20} MiB."
        hint = f"Keep large files such as {error} out, or use --engine local."
        raise EvalError(what, code="shipment-too-large", hint=hint) from error


def perform_shipped(work: str, shipped: bytes) -> str:
    """Runs one task on a node. JSON in, JSON out."""
    given = json.loads(work)
    if given["version"] != __version__:
        what = f"The driver has prowess {given['version']}, and this node has {__version__}."
        raise EvalError(what, code="ray-other-version", hint="Install the same version on all nodes.")
    cache = find_places(os.getcwd(), os.environ).cache_dir
    table = unpack_folders(FileBundle(shipped, given["digest"]), os.path.join(cache, "eval-inputs"))
    task: dict[str, Any] = given["task"]
    for name in ("cwd", "base", "replay_from"):
        task[name] = table.get(task[name], task[name])
    for place in task["places"]:
        place["path"] = table.get(place["path"], place["path"])
    return asyncio.run(run_task(EvalTask.model_validate(task))).model_dump_json()
