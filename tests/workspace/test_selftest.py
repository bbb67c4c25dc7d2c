"""A mechanism is believed when it was tried here, and what does not hold is said promise by promise."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guard import GUARD_S
from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.isolation.selftest import DEFAULT_UID, PROMISES, Mechanism, Proof, find_interpreter, probe
from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process.client import Processes

BOXES: tuple[Mechanism, ...] = ("bwrap+seccomp", "landlock+seccomp")


def tried(mechanism: Mechanism, **more: object) -> Proof:
    async def story() -> Proof:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            return await probe(mechanism, processes, **more)  # type: ignore[arg-type]

    return asyncio.run(story())


@pytest.fixture
def wanted(not_run: Callable[[str, str], None]) -> Callable[[str, Proof], bool]:
    """Whether to go on: what this machine cannot do is said at the end, or fails when CI asked for it."""

    def decide(mechanism: str, proof: Proof) -> bool:
        if proof.error is None:
            return True
        tier = mechanism.split("+")[0]
        if tier in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail(f"REQUIRE_TIERS names {tier}: {proof.error}")
        not_run(mechanism, proof.error)
        return False

    return decide


@pytest.mark.parametrize("mechanism", BOXES)
def test_every_promise_of_a_box_holds_here(mechanism: Mechanism, wanted: Callable[[str, Proof], bool]) -> None:
    proof = tried(mechanism)
    if wanted(mechanism, proof):
        assert proof.held == dict.fromkeys(PROMISES, True), proof.why
        assert proof.holds and proof.uid != 0 and proof.interpreter is not None
        assert proof.uid == (DEFAULT_UID if os.geteuid() == 0 else os.geteuid())
        assert (proof.program is not None) == (mechanism == "bwrap+seccomp")
        assert proof.landlock_abi == kernel.landlock_abi()


def test_without_a_box_the_same_attempts_succeed(not_run: Callable[[str, str], None]) -> None:
    """The control: it shows that the attempts are real ones. What holds here is what a local run promises, too."""
    proof = tried("none")
    assert proof.error is None and not proof.holds
    kept = {promise for promise, held in proof.held.items() if held}
    local = {"not root", "no new privileges", "clean environment", "tree ended"}
    assert local <= kept
    for promise in sorted(kept - local):
        if promise in ("no vsock", "no namespaces"):
            not_run(f"control of '{promise}'", "this kernel refuses it to everybody")
        else:
            pytest.fail(f"'{promise}' seems to hold without any box: {proof.held}")
    assert set(proof.why) == set(PROMISES) - kept


def test_nobody_enters_a_box_as_root() -> None:
    if os.geteuid() == 0:
        for mechanism in BOXES:
            proof = tried(mechanism, run_as=0)
            assert not proof.holds and proof.error is not None and "root" in proof.error


@pytest.mark.parametrize("mechanism", BOXES)
def test_a_good_proof_is_remembered_and_a_changed_one_is_not_believed(
    mechanism: Mechanism, tmp_path: Path, wanted: Callable[[str, Proof], bool]
) -> None:
    cache = tmp_path / "cache"
    proof = tried(mechanism, cache=str(cache))
    if not wanted(mechanism, proof):
        assert not cache.exists()
        return
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    document = json.loads(file.read_bytes())

    def stored(**changes: object) -> Proof:
        changed = json.loads(json.dumps(document))
        changed["proof"]["interpreter"] = "from the cache"
        changed.update(changes)
        file.write_text(json.dumps(changed), encoding="utf-8")
        return tried(mechanism, cache=str(cache))

    assert stored().interpreter == "from the cache"
    assert stored(key="of another boot").interpreter == proof.interpreter
    held = {**document["proof"], "held": {**document["proof"]["held"], "no network": False}}
    assert stored(proof=held).held["no network"]
    assert stored(proof="nonsense").interpreter == proof.interpreter
    stored()
    file.chmod(0o666)
    assert tried(mechanism, cache=str(cache)).interpreter == proof.interpreter


def test_a_box_that_does_not_start_is_an_error_and_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is where bubblewrap would be and does nothing of the kind."""
    stand_in = find_trusted("true")
    assert stand_in is not None
    monkeypatch.setattr("prowess.workspace.isolation.selftest.find_trusted", lambda name: stand_in)
    proof = tried("bwrap+seccomp", cache=str(tmp_path))
    assert not proof.holds
    assert proof.error is not None
    assert list(tmp_path.iterdir()) == []


def test_the_interpreter_is_one_that_the_user_can_execute() -> None:
    async def story() -> None:
        async with Processes() as processes:
            uid = DEFAULT_UID if os.geteuid() == 0 else None
            found = await find_interpreter(processes, uid)
            assert found is not None and os.path.isabs(found)
            assert await find_interpreter(processes, uid, run="raise SystemExit(3)") is None

    asyncio.run(story())
