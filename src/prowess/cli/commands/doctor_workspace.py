"""Option `prowess doctor --workspace`: tries every way to run a script here, and shows what isolation holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from prowess.cli.approver import is_ours
from prowess.cli.screen import Screen, count, printable, size
from prowess.core.ports import Executor
from prowess.core.values import SessionKey, to_json
from prowess.errors import ProwessError
from prowess.runtime.config import Config
from prowess.runtime.factories import make_executor, workspace_dir
from prowess.runtime.runtime import Runtime
from prowess.workspace.executors.sandbox import BWRAP, LANDLOCK, TO_GET_ONE
from prowess.workspace.isolation.bwrap import why_no_bubblewrap
from prowess.workspace.isolation.selftest import DEFAULT_UID, probe
from prowess.workspace.limits import check_installed, parse_limits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.posix_client import open_processes
from prowess.workspace.run_as import find_uid
from prowess.workspace.session_folder import OpenPlace, list_places
from prowess.workspace.skill_trees import make_passable, remove_tree

MECHANISMS = (BWRAP, LANDLOCK)
AS_YOU = "A script runs as you: what you can read, change or end, it can; your keys, record and approvals too."
YOUR_MODES = "as you, a script can change the mode and times of files that are yours, though not read or write them"

# Differences that a skill sees between executors. docs/executors.md has the same words, and explains them.
LINKS = "`out` and `work` in the skill's folder are links"
MOUNTS = "`/proc/self/mountinfo` names the workspace's folders on the host"
DIFFERS = {
    "none": (LINKS,),
    "bwrap+seccomp": (MOUNTS,),
    "landlock+seccomp": (
        LINKS,
        "no `/dev/shm`, and no sockets but connected pairs",
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


def examine_isolation(runtime: Runtime) -> dict[str, Any]:
    """Returns the isolation of a script that runs as configured. A successful self-test is cached, so this is quick."""
    return asyncio.run(_isolation(runtime))


async def _isolation(runtime: Runtime) -> dict[str, Any]:
    found: dict[str, Any] = {"configured": runtime.config.workspace.executor, "executor": None, "mechanism": None}
    try:
        async with open_processes() as processes:
            executor = make_executor(runtime.config, runtime.places, processes, runtime.environ)
            try:
                isolation = await executor.isolation()
            finally:
                await executor.aclose()
    except ProwessError as error:
        return {**found, "notes": [error.message], "hint": error.hint}
    hint = None
    if isolation.mechanism == "none":
        hint = "auto takes a sandbox: workspace.executor." if found["configured"] == "local" else TO_GET_ONE
    elif isolation.mechanism == LANDLOCK and why_no_bubblewrap() is not None:
        hint = "For a stronger one install bubblewrap, on Debian and Ubuntu: apt-get install bubblewrap."
    about = {"executor": isolation.executor, "mechanism": isolation.mechanism, "notes": list(isolation.notes)}
    return {**found, **about, "hint": hint}


def examine_workspace(runtime: Runtime) -> dict[str, Any]:
    return asyncio.run(_examine(runtime))


async def _examine(runtime: Runtime) -> dict[str, Any]:
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
        document |= {"workspaces": len(places), "size_bytes": sum(info.size_bytes for info in places)}
    except ProwessError as error:  # the sandboxes are tried all the same, to show every problem
        document["error"] = error.to_json()
    try:
        async with open_processes() as processes:
            document["sandboxes"] = [await _sandbox(mechanism, processes, config, dir) for mechanism in MECHANISMS]
            executor = make_executor(config, runtime.places, processes, runtime.environ)
            try:
                isolation = await executor.isolation()
                document["isolation"] = to_json(isolation)
                check_installed(isolation, config.workspace.require, parse_limits(config.workspace.limits))
                await _open_one(executor, dir, find_uid(config.workspace.run_as))
            finally:
                await executor.aclose()
    except ProwessError as error:
        document["error"] = error.to_json()
    return document


async def _open_one(executor: Executor, dir: str, uid: int | None) -> None:
    """Opens a workspace: isolation may work while its user cannot reach the folder."""
    with OpenPlace(dir, SessionKey(session=f"doctor-{os.getpid()}"), uid=uid) as place:
        try:
            workspace = await executor.open(place)
            await workspace.aclose()
        finally:
            await asyncio.to_thread(remove_tree, place.path)


async def _sandbox(mechanism: Any, processes: Processes, config: Config, dir: str) -> dict[str, Any]:
    """Tries one sandbox now, without the cached result."""
    run_as, folder = find_uid(config.workspace.run_as), await asyncio.to_thread(_folder_to_try_in, dir)
    proof = await probe(mechanism, processes, run_as=DEFAULT_UID if run_as is None else run_as, folder=folder)
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
    return dir if os.access(dir, os.W_OK) else None


async def _container(runtime: Runtime) -> dict[str, Any]:
    workspace = runtime.config.workspace._replace(executor="container", network_allow=())
    config = runtime.config._replace(workspace=workspace)
    try:
        async with open_processes() as processes:
            executor = make_executor(config, runtime.places, processes, runtime.environ)
            try:
                isolation = to_json(await executor.isolation())
                return {"works": True, "isolation": isolation, "error": None, "differs": DIFFERS["container"]}
            finally:
                await executor.aclose()
    except ProwessError as error:
        return {"works": False, "isolation": None, "error": error.to_json()}


def show_workspace(screen: Screen, document: dict[str, Any]) -> None:
    screen.text()
    screen.heading("Workspace")
    isolation, error = document["isolation"], document["error"]
    if isolation is not None:
        inside = f"{isolation['mechanism']}, user {isolation['uid']}, network {isolation['network']}"
        screen.text(f"  executor: {document['configured']}, which here means {isolation['executor']} ({inside})")
        limits = " · ".join(f"{name} {held}" for name, held in isolation["limits"].items())
        screen.text(f"  limits: {limits}")
        for note in isolation["notes"]:
            screen.text(f"  note: {printable(note)}")
        if isolation["executor"] == "local" and is_ours(isolation["uid"]):
            screen.text(f"  note: {AS_YOU}")
        if isolation["executor"] == "local":
            _show_differences(screen, DIFFERS["none"])
    if error is not None:
        screen.text(f"  executor: {document['configured']}: NOTHING CAN RUN: {printable(error['message'])}")
        screen.text(f"    {printable(error['hint'] or '')} [{error['code']}]")
    for sandbox in document["sandboxes"]:
        held = [promise for promise, holds in sandbox["held"].items() if holds]
        broken = [promise for promise, holds in sandbox["held"].items() if not holds]
        state = f"works, {len(held)} of {len(sandbox['held'])} promises held" if sandbox["works"] else "does not work"
        screen.text(f"  {sandbox['mechanism']}: {state}")
        if sandbox["error"]:
            screen.text(f"    {printable(sandbox['error'])}")
        if broken:
            screen.text(f"    broken: {', '.join(broken)}")
        elif held:
            screen.text(f"    {' · '.join(held)}")
        if sandbox["works"] and sandbox["mechanism"] == "landlock+seccomp" and is_ours(sandbox["uid"]):
            screen.text(f"    not held: {YOUR_MODES}")
        if sandbox["works"]:
            _show_differences(screen, sandbox["differs"])
    container = document["container"]
    if container["works"]:
        found = container["isolation"]
        limits = " · ".join(f"{name} {held}" for name, held in found["limits"].items())
        screen.text(f"  container: works ({found['mechanism']}, user {found['uid']}); {limits}")
        _show_differences(screen, container["differs"])
    else:
        screen.text(
            f"  container: {printable(container['error']['message'])} {printable(container['error']['hint'] or '')}"
        )
    screen.text(f"  {count(document['workspaces'], 'workspace')}, {size(document['size_bytes'])}, in {document['dir']}")


def _show_differences(screen: Screen, differences: Sequence[str]) -> None:
    if differences:
        screen.text(f"    differs: {' · '.join(differences)}")
