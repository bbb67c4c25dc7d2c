"""Every isolation tier through the front door, each as somebody has it whose machine has just that one.

No setting chooses between bubblewrap and Landlock: Landlock is what a machine without bubblewrap gets. Such a machine
is made here for one thread, which has mounts of its own, and in them nothing where bubblewrap is; it takes root to make
it. The engine for containers is started as for the container suite.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, NoReturn, TypeVar

import pytest
from test_container import engine as engine  # a fixture: whoever imports `tiers` imports it as well

from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.isolation.selftest import Mechanism, Proof, probe
from prowess.workspace.process.client import Processes

BOXES: dict[str, Mechanism] = {"bwrap": "bwrap+seccomp", "landlock": "landlock+seccomp"}
ISOLATED = ("bwrap", "landlock", "docker")  # as REQUIRE_TIERS names them
_NEW_MOUNTS, _BIND, _PRIVATE = 0x20000, 0x1000, 0x44000  # CLONE_NEWNS; MS_BIND; MS_PRIVATE | MS_REC
Found = TypeVar("Found")


class Tier(NamedTuple):
    name: str
    executor: str  # what workspace.executor says
    mechanism: str  # what has to be found enforced
    environ: Mapping[str, str] = {}

    def run(self, work: Callable[[], Found]) -> Found:
        """On a machine that has this tier."""
        covered = find_trusted("bwrap") if self.name == "landlock" else None
        return work() if covered is None else with_mounts([("/dev/null", covered, None, None)], work)


def leave_out(why: str) -> NoReturn:
    """For what cannot be tried on this machine; the end of the test run says so."""
    pytest.skip(why)


class Tiers:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request, self._found = request, dict[str, Tier]()

    def get(self, name: str) -> Tier:
        """Of ISOLATED; or `local`, or `sandbox`: whichever of the two boxes holds here."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Tier:
        if name == "local":
            return Tier("local", "local", "none")
        if name == "docker":
            address = self._request.getfixturevalue("engine").address
            return Tier("docker", "container", "docker+seccomp", {"DOCKER_HOST": address})
        proofs = asyncio.run(_probe(BOXES.values() if name == "sandbox" else [BOXES[name]]))
        holding = [proof.mechanism for proof in proofs if proof.holds]
        if not holding:
            _missing(name, "; ".join(str(proof.error or proof.why) for proof in proofs))
        tier = Tier(name, "sandbox", holding[0])
        if name == "landlock":
            try:
                tier.run(lambda: None)
            except OSError as error:
                _missing(name, f"bubblewrap is here, and only root can hide it from a test: {error}")
        return tier


@pytest.fixture(scope="session")
def tiers(request: pytest.FixtureRequest) -> Tiers:
    return Tiers(request)


def _missing(name: str, why: str) -> NoReturn:
    names = set(BOXES) if name == "sandbox" else {name}
    if names & set(os.environ.get("REQUIRE_TIERS", "").split(",")):
        pytest.fail(f"REQUIRE_TIERS names {name}: {why}")
    leave_out(f"{name}: {why}")


async def _probe(mechanisms: Iterable[Mechanism]) -> list[Proof]:
    async with Processes() as processes:
        return [await probe(mechanism, processes) for mechanism in mechanisms]


def with_mounts(mounts: Sequence[tuple[str, str, str | None, str | None]], work: Callable[[], Found]) -> Found:
    """`work` in a thread that has these mounts (what, where, type, options), which nobody else sees: they are this
    thread's, and of what it starts, and are gone with it. OSError for everybody but root."""
    libc = ctypes.CDLL(None, use_errno=True)

    def do(step: Callable[..., int], *arguments: object) -> None:
        if step(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def covered() -> Found:
        do(libc.unshare, _NEW_MOUNTS)
        do(libc.mount, None, b"/", None, _PRIVATE, None)
        for mount in mounts:
            what, where, kind, options = (None if each is None else os.fsencode(each) for each in mount)
            do(libc.mount, what, where, kind, _BIND if kind is None else 0, options)
        return work()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(covered).result()
