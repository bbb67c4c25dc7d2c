"""Places in the state folder of this test's home."""

from __future__ import annotations

import os
from pathlib import Path

from prowess.runtime.config import find_places
from prowess.runtime.project_state import identify, state_path
from tiers import leave_out


def need_generations(folder: Path) -> None:
    """For what takes a project along that was moved: elsewhere the person is asked to."""
    if not identify(str(folder)).generation:
        leave_out("this file system has no generations of inodes")


def state_of(project: Path) -> Path:
    """Folder of what Prowess keeps of a project; it need not be there yet."""
    (project / ".agent").mkdir(exist_ok=True)
    return Path(state_path(find_places(str(project), os.environ)))


def database_of(project: Path) -> Path:
    return state_of(project) / "prowess.db"
