"""The contract for executors whose programs are processes of this machine, as tests:

whole, ground = grounds(LOCAL)
class TestContract(MachineContract): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from workspace_contract import CASES, LIMITS, Ground, Tier, case_name, check_limit, the_supervisor_may_be_killed


def grounds(*tiers: Tier) -> tuple[Any, Any]:
    """Two fixtures: the ground that a module has of each tier, and the same for one test."""

    @pytest.fixture(scope="module", params=tiers, ids=lambda tier: tier.name)
    def whole(request: pytest.FixtureRequest) -> Iterator[Ground]:
        ground = Ground(request.param)
        yield ground
        ground.close()

    @pytest.fixture
    def ground(whole: Ground, not_run: Callable[[str, str], None]) -> Ground:
        whole.not_run = not_run
        return whole

    return whole, ground


class MachineContract:
    @pytest.mark.parametrize("case", CASES, ids=case_name)
    def test_contract(self, case: Any, ground: Ground) -> None:
        ground.go(case)

    def test_the_supervisor_may_be_killed(self, ground: Ground) -> None:
        ground.go(the_supervisor_may_be_killed)

    @pytest.mark.parametrize("case", LIMITS, ids=case_name)
    def test_limit(self, case: Any, ground: Ground) -> None:
        check_limit(case, ground)
