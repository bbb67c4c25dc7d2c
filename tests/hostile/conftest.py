"""A scene for each test. The person's files are where any user of the machine gets to, so that only a sandbox, a check
of paths or a policy can be what kept them from being read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.scene import SECRET, Clone, MakeSkill, Scene
from tiers import Tier, Tiers
from tiers import engine as engine
from tiers import tiers as tiers


@pytest.fixture
def tier(request: pytest.FixtureRequest, tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> Tier:
    """Obeying is harmless only in isolation. `everywhere` says which; elsewhere any sandbox that holds will do."""
    found = tiers.get(getattr(request, "param", "sandbox"))
    for name, value in found.environ.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def scene(tmp_path: Path, make_skill: MakeSkill, tier: Tier) -> Iterator[Scene]:
    victim = Path(tempfile.mkdtemp(prefix="prowess-victim-"))
    os.chmod(victim, 0o755)
    found = Scene(tmp_path / "skills", victim, make_skill, tier)
    found.skills.mkdir()
    found.secret_file.parent.mkdir(mode=0o755)
    found.secret_file.write_text(SECRET, encoding="utf-8")
    found.secret_file.chmod(0o644)
    try:
        yield found
    finally:
        shutil.rmtree(victim)


@pytest.fixture
def clone(tmp_path: Path, machine: Path, make_skill: MakeSkill, tier: Tier) -> Clone:
    return Clone(tmp_path / "clone", machine, make_skill, tier)
