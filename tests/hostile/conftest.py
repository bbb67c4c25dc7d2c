"""A scene for each test. The person's files are where any user of the machine gets to, so that only a sandbox, a check
of paths or a policy can be what kept them from being read."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.scene import SECRET, Clone, MakeSkill, Scene, leave_out
from prowess.workspace.box.selftest import Proof, probe
from prowess.workspace.process.processes import Processes


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Obeying is harmless only in a sandbox. The escape suite says which one holds; here any that does will do."""

    async def story() -> list[Proof]:
        async with Processes() as processes:
            return [await probe(mechanism, processes) for mechanism in ("bwrap+seccomp", "landlock+seccomp")]

    proofs = asyncio.run(story())
    if not any(proof.holds for proof in proofs):
        why = "; ".join(str(proof.error or proof.why) for proof in proofs)
        if {"bwrap", "landlock"} & set(os.environ.get("REQUIRE_TIERS", "").split(",")):
            pytest.fail(f"REQUIRE_TIERS names a sandbox, and none holds: {why}")
        leave_out(f"no sandbox holds here: {why}")


@pytest.fixture
def scene(tmp_path: Path, make_skill: MakeSkill, sandbox: None) -> Iterator[Scene]:
    victim = Path(tempfile.mkdtemp(prefix="prowess-victim-"))
    os.chmod(victim, 0o755)
    found = Scene(tmp_path / "skills", victim, make_skill)
    found.skills.mkdir()
    found.secret_file.parent.mkdir(mode=0o755)
    found.secret_file.write_text(SECRET, encoding="utf-8")
    found.secret_file.chmod(0o644)
    try:
        yield found
    finally:
        shutil.rmtree(victim)


@pytest.fixture
def clone(tmp_path: Path, machine: Path, make_skill: MakeSkill, sandbox: None) -> Clone:
    return Clone(tmp_path / "clone", machine, make_skill)
