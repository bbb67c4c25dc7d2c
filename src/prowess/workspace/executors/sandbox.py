"""Executor that runs scripts in a sandbox: they see the system, their own skill and the files of their session only.

The sandbox is bubblewrap, or Landlock if bubblewrap does not work, each with a seccomp filter for system calls. Each is
used only after a self-test on this machine. If both fail, nothing runs. Scripts in the sandbox are never root.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from prowess._internal.files import make_passable
from prowess._internal.light_dataclass import dataclass
from prowess.core.values import Isolation, Located
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.executors.isolation_report import (
    Once,
    ProbeResult,
    check_root,
    groups_for,
    held,
    host_programs,
    rlimits,
    room_for,
)
from prowess.workspace.executors.preconditions import check_owner, check_reachable
from prowess.workspace.executors.setup import OwnExecutorSetup
from prowess.workspace.executors.workspace import OpenedWorkspace, OpenWorkspaces
from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.isolation.mounts import WALLED_ENVIRONMENT, Boxed, walled_in
from prowess.workspace.isolation.selftest import DEFAULT_UID, Mechanism, Proof, folders_of_interpreter, probe
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.scripts.configured_python import folders_of_python, try_python
from prowess.workspace.session_folder import Place

if TYPE_CHECKING:
    from prowess.workspace.network.connection import OnEvent

BWRAP: Mechanism = "bwrap+seccomp"
LANDLOCK: Mechanism = "landlock+seccomp"
NAMES = {BWRAP: "bubblewrap", LANDLOCK: "Landlock"}
TO_GET_ONE = (
    "Install bubblewrap and allow user namespaces, use Linux 6.2 or newer with Landlock, or use a container: "
    "workspace.executor."
)
WRAPPERS = 2  # bubblewrap outside, and its first process inside: a control group counts both


@dataclass(frozen=True, slots=True, kw_only=True)
class _NothingHeld:
    """Result when no mechanism passed its self-test: the reason for each."""

    reasons: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProvenSandbox(ProbeResult):
    """Mechanism that passed its self-test."""

    proof: Proof
    folders: tuple[str, ...]  # of the interpreter
    prlimit: str | None


class SandboxExecutor:
    """Executor with bubblewrap or Landlock. See ports.Executor.

    `dir` caches the results of successful self-tests. `on_network` is called for each host that a run asks for.
    `python` is the interpreter or venv to use; None means the one of the system.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        run_as: int = DEFAULT_UID,
        mechanism: Literal["auto", "bwrap+seccomp", "landlock+seccomp"] = "auto",
        limits: RunLimits,
        dir: str,
        network_allow: Sequence[str] = (),
        on_network: OnEvent | None = None,
        python: str | None = None,
    ) -> None:
        self._python = python
        self.uid = run_as if os.geteuid() == 0 else None
        self._processes = processes
        self._limits = limits
        self._dir = os.path.abspath(dir)
        self._run_as = run_as
        self._mechanisms: Sequence[Mechanism] = (BWRAP, LANDLOCK) if mechanism == "auto" else (mechanism,)
        self._proxy = None
        if network_allow:
            from prowess.workspace.network.proxy import Proxy  # few sessions may use the network

            self._proxy = Proxy(network_allow, on_event=on_network)
        self._found = Once(self._find)
        self._open = OpenWorkspaces(processes)

    async def isolation(self) -> Isolation:
        return (await self._proven()).isolation

    async def programs(self) -> Callable[[str], Located]:
        found = await self._proven()
        return host_programs(found.python)

    async def open(self, place: Place) -> OpenedWorkspace:
        found = await self._proven()
        check_owner(place, self.uid)
        check_reachable(place.root, self.uid, place.gid)
        if found.isolation.mechanism == BWRAP:
            enclosure = Boxed(
                place,
                proof=found.proof,
                python=found.python,
                folders=found.folders,
                limits=self._limits,
                rlimits=found.limits,
                prlimit=found.prlimit,
                uid=self.uid,
                proxy=self._proxy,
            )
        else:
            from prowess.workspace.executors.private_copies import Unbound

            enclose = partial(walled_in, folders=found.folders, uid=self.uid, gid=place.gid, limits=found.limits)
            enclosure = Unbound(place, python=found.python, enclose=enclose, environment=WALLED_ENVIRONMENT)
        return self._open.open(place, enclosure, isolation=found.isolation, groups=found.groups)

    async def aclose(self) -> None:
        await self._open.aclose()

    async def _proven(self) -> _ProvenSandbox:
        found = await self._found.get()
        if isinstance(found, _NothingHeld):
            raise _unavailable(found.reasons, network=self._proxy is not None)
        return found

    async def _find(self) -> _ProvenSandbox | _NothingHeld:
        check_root(self.uid)
        cache = await asyncio.to_thread(_cache_in, self._dir)
        reasons: dict[str, str] = {}
        for mechanism in self._mechanisms:
            if mechanism == LANDLOCK and self._proxy is not None:
                break
            proof = await probe(mechanism, self._processes, run_as=self._run_as, cache=cache)
            if proof.holds:
                return await self._describe(proof, reasons)
            reasons[mechanism] = failure_reason(proof)
        return _NothingHeld(reasons=reasons)

    async def _describe(self, proof: Proof, reasons: dict[str, str]) -> _ProvenSandbox:
        boxed = proof.mechanism == BWRAP
        wrappers = WRAPPERS if boxed else 0
        groups, notes = await groups_for(self._limits, self._processes, self.uid, wrappers=wrappers)
        prlimit = None
        room = None
        if boxed:
            prlimit = find_trusted("prlimit")
            processes = "enforced" if prlimit else "absent"
            limits = held(self._limits, groups, tmp="enforced", disk="best-effort", processes=processes)
        else:
            limits = held(self._limits, groups, disk="best-effort", processes="best-effort")
            room = await asyncio.to_thread(room_for, self._limits, self.uid, groups)
        python = proof.interpreter or ""
        folders = tuple(folders_of_interpreter(python))
        if self._python is not None:
            python, base = await try_python(self._python, self._processes, self.uid)
            python, folders = folders_of_python(python, base)
        instead = [f"{NAMES[name]} does not work here, so Landlock is used: {why}" for name, why in reasons.items()]
        isolation = Isolation(
            executor="sandbox",
            mechanism=proof.mechanism,
            uid=proof.uid,
            network="none" if self._proxy is None else "proxy",
            limits=limits,
            notes=(*instead, *notes),
            kind="sandbox",
        )
        return _ProvenSandbox(
            isolation=isolation,
            python=python,
            folders=folders,
            groups=groups,
            limits=rlimits(self._limits, room),
            proof=proof,
            prlimit=prlimit,
        )


def _cache_in(folder: str) -> str | None:
    """Returns the folder for results of successful self-tests, or None when it is not writable: then the test runs each
    time. The error appears later, when a workspace is opened."""
    try:
        make_passable(folder)
    except OSError:
        return None
    if os.access(folder, os.W_OK):
        return folder
    return None


def failure_reason(proof: Proof) -> str:
    """Returns in plain words why the self-test failed."""
    if proof.error is not None:
        return proof.error.strip().rstrip(".")
    broken = [promise for promise, kept in proof.held.items() if not kept]
    return f"when it was tried, this did not hold: {', '.join(broken)}"


def _unavailable(reasons: dict[str, str], *, network: bool) -> WorkspaceUnavailable:
    tried = "".join(f" {NAMES[name]}: {why}." for name, why in reasons.items())
    if network:
        why = "workspace.network_allow limits scripts to some hosts, and here only bubblewrap can enforce that."
        hint = "Make bubblewrap work, use a container, or allow no hosts: workspace.network_allow."
        return WorkspaceUnavailable(f"{why}{tried}", op="isolation", code="network-not-available", hint=hint)
    message = f"No sandbox works here.{tried}"
    return WorkspaceUnavailable(message, op="isolation", code="no-sandbox", hint=TO_GET_ONE)


def make_sandbox(setup: OwnExecutorSetup) -> SandboxExecutor:
    return SandboxExecutor(
        setup.processes,
        run_as=setup.run_as,
        limits=setup.run_limits,
        dir=setup.dir,
        network_allow=setup.network_allow,
        python=setup.python,
    )
