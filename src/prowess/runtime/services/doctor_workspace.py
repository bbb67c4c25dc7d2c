"""Tries every way to run a script here, and reports what isolation holds, for `prowess doctor`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from prowess._internal.files import make_passable
from prowess.core.isolation import record_isolation
from prowess.core.ports import Executor
from prowess.core.values import Isolation, SessionKey
from prowess.errors import ProwessError
from prowess.runtime.config import Config
from prowess.runtime.factories import make_executor
from prowess.runtime.runtime import Runtime
from prowess.runtime.storage import workspace_dir
from prowess.workspace.executors.sandbox import BWRAP, LANDLOCK, TO_GET_ONE
from prowess.workspace.isolation.bwrap import why_no_bubblewrap
from prowess.workspace.isolation.selftest import DEFAULT_UID, probe
from prowess.workspace.limits import check_installed, parse_limits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.posix_client import open_processes
from prowess.workspace.run_as import find_uid
from prowess.workspace.session_folder import OpenPlace, list_places
from prowess.workspace.skill_trees import remove_tree

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import DoctorIsolation

MECHANISMS = (BWRAP, LANDLOCK)

# Differences that a skill sees between executors. docs/executors.md has the same words, and explains them.
LINKS = "`out` and `work` in the skill's folder are links"
MOUNTS = "`/proc/self/mountinfo` names the workspace's folders on the host"
DIFFERS = {
    "none": (LINKS,),
    "bwrap+seccomp": (MOUNTS,),
    "landlock+seccomp": (
        LINKS,
        "no `/dev/shm`, and no sockets but connected pairs",
        "no inotify",
        "`/proc/self` for the first process of a run only, and no list of processes",
        "the host's name is seen",
        "a file of the system that is not shown is refused, not absent",
    ),
    "container": (
        "programs are those of the image",
        "`python3 -m venv` needs `ensurepip` in the image",
        "with an engine on another machine `inputs`, `.venv`, `out` and `work` in the skill's folder are links",
        MOUNTS,
    ),
}


async def examine_isolation(runtime: Runtime) -> DoctorIsolation:
    """Returns the isolation of a script that runs as configured, and a hint to improve it.

    A successful self-test is cached, so this is quick.
    """
    configured = runtime.config.workspace.executor
    found: DoctorIsolation = {
        "configured": configured,
        "executor": None,
        "mechanism": None,
        "notes": [],
        "hint": None,
    }
    try:
        isolation = await _find_isolation(runtime, runtime.config)
    except ProwessError as error:
        found["notes"] = [error.message]
        found["hint"] = error.hint
        return found
    found["executor"] = isolation.executor
    found["mechanism"] = isolation.mechanism
    found["notes"] = list(isolation.notes)
    found["hint"] = _how_to_improve(isolation, configured)
    return found


def _how_to_improve(isolation: Isolation, configured: str) -> str | None:
    """Returns a hint for a person. `configured` is the executor of the settings."""
    if not isolation.is_isolated:
        if configured == "local":
            return "auto takes a sandbox: workspace.executor."
        return TO_GET_ONE
    if isolation.mechanism == LANDLOCK and why_no_bubblewrap() is not None:
        return "For a stronger one install bubblewrap, on Debian and Ubuntu: apt-get install bubblewrap."
    return None


async def _find_isolation(runtime: Runtime, config: Config) -> Isolation:
    async with open_processes() as processes:
        executor = make_executor(config, runtime.places, processes, runtime.environ)
        try:
            return await executor.isolation()
        finally:
            await executor.aclose()


async def examine_workspace(runtime: Runtime) -> dict[str, Any]:
    """Tries every executor for real, without cached results, and opens a workspace as configured."""
    config = runtime.config
    dir = workspace_dir(config, runtime.places)
    document: dict[str, Any] = {
        "configured": config.workspace.executor,
        "isolation": None,
        "error": None,
        "sandboxes": [],
        "container": await _container(runtime),
        "dir": dir,
        "workspaces": 0,
        "size_bytes": 0,
    }
    try:
        places = await asyncio.to_thread(list_places, dir)
        document["workspaces"] = len(places)
        document["size_bytes"] = sum(info.size_bytes for info in places)
    except ProwessError as error:  # the sandboxes are tried all the same, to show every problem
        document["error"] = error.to_json()
    try:
        async with open_processes() as processes:
            document["sandboxes"] = [await _sandbox(mechanism, processes, config, dir) for mechanism in MECHANISMS]
            executor = make_executor(config, runtime.places, processes, runtime.environ)
            try:
                isolation = await executor.isolation()
                document["isolation"] = record_isolation(isolation)
                limits = parse_limits(config.workspace.limits)
                check_installed(isolation, config.workspace.require, limits)
                uid = find_uid(config.workspace.run_as)
                await _open_one(executor, dir, uid)
            finally:
                await executor.aclose()
    except ProwessError as error:
        document["error"] = error.to_json()
    return document


async def _open_one(executor: Executor, dir: str, uid: int | None) -> None:
    """Opens a workspace: isolation may work while its user cannot reach the folder."""
    key = SessionKey(session=f"doctor-{os.getpid()}")
    with OpenPlace(dir, key, uid=uid) as place:
        try:
            workspace = await executor.open(place)
            await workspace.aclose()
        finally:
            await asyncio.to_thread(remove_tree, place.path)


async def _sandbox(mechanism: Any, processes: Processes, config: Config, dir: str) -> dict[str, Any]:
    """Tries one sandbox now, without the cached result."""
    run_as = find_uid(config.workspace.run_as)
    if run_as is None:
        run_as = DEFAULT_UID
    folder = await asyncio.to_thread(_folder_to_try_in, dir)
    proof = await probe(mechanism, processes, run_as=run_as, folder=folder)
    return {
        "mechanism": mechanism,
        "works": proof.holds,
        "held": proof.held,
        "why": proof.why,
        "error": proof.error,
        "uid": proof.uid,
        "interpreter": proof.interpreter,
        "program": proof.program,
        "landlock_abi": proof.landlock_abi,
        "differs": DIFFERS[mechanism],
    }


def _folder_to_try_in(dir: str) -> str | None:
    """Returns the folder of the workspaces, which the other user can reach; None (any other) if not writable."""
    try:
        make_passable(dir)
    except OSError:  # opening a workspace there reports why
        return None
    if not os.access(dir, os.W_OK):
        return None
    return dir


async def _container(runtime: Runtime) -> dict[str, Any]:
    workspace = runtime.config.workspace._replace(executor="container", network_allow=())
    config = runtime.config._replace(workspace=workspace)
    try:
        isolation = await _find_isolation(runtime, config)
    except ProwessError as error:
        return {"works": False, "isolation": None, "error": error.to_json()}
    recorded = record_isolation(isolation)
    return {"works": True, "isolation": recorded, "error": None, "differs": DIFFERS["container"]}
