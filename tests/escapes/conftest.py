"""For tests of the doors: an executor of each kind that this machine has."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escapes.opened import executor_of
from guard import GUARD_S
from prowess.core.ports import Executor
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.process.client import Processes


@pytest.fixture
def go(folder: Path, not_run: Callable[[str, str], None]) -> Callable[[str, Callable[[Executor], Any]], None]:
    """go(kind, story): the story with an executor of that kind; what this machine does not have is said."""

    def run(kind: str, story: Callable[[Executor], Any]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(GUARD_S), Processes() as processes:
                executor = executor_of(kind, processes, folder)
                try:
                    await executor.isolation()
                except WorkspaceUnavailable as error:
                    if kind.partition("+")[0] in os.environ.get("REQUIRE_TIERS", "").split(","):
                        pytest.fail(f"REQUIRE_TIERS names {kind}: {error}")
                    not_run(kind, str(error))
                    return
                try:
                    await story(executor)
                finally:
                    await executor.aclose()

        asyncio.run(whole())

    return run
