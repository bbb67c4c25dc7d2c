"""A machine that installs packs: a project and a home of its own. And what a test asks of the project."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prowess import packs
from prowess.skills.file_list import digest_of, hash_files

STATE = {".gitignore", "backups", "lock"}  # all that may be left in .prowess


@dataclass
class PackMachine:
    base: Path
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project, self.home = self.base / "project", self.base / "home"
        for folder in (self.project, self.home):
            folder.mkdir(parents=True, exist_ok=True)
        self.agent = self.project / ".agent"
        self.root, self.lock, self.wanted = (
            self.agent / "skills",
            self.agent / "skills.lock",
            self.agent / "skills.toml",
        )
        self.environ = {"HOME": str(self.home), "PROWESS_HOME": str(self.home), "PATH": os.environ["PATH"], **self.more}
        given: dict[str, Any] = {"cwd": self.project, "environ": self.environ}
        self.install, self.update = partial(packs.install, **given), partial(packs.update, **given)
        self.uninstall, self.rollback = partial(packs.uninstall, **given), partial(packs.rollback, **given)
        self.verify = partial(packs.verify, **given)

    def on_disk(self) -> dict[str, str]:
        """Digest of each skill's folder."""
        folders = [path for path in self.root.glob("[!.]*") if path.is_dir() and not path.is_symlink()]
        return {path.name: digest_of(hash_files(str(path))[0]) for path in folders}

    def backup(self, name: str) -> str:
        """Digest of the newest backup of a skill."""
        newest = max((self.root / f".prowess/backups/{name}").glob("*/tree"))
        return digest_of(hash_files(str(newest))[0])

    def locked(self) -> dict[str, str]:
        if not self.lock.exists():
            return {}
        return {name: row["digest"] for name, row in json.loads(self.lock.read_text())["skills"].items()}

    def wants(self) -> dict[str, Any]:
        return tomllib.loads(self.wanted.read_text())["skills"] if self.wanted.exists() else {}

    def state(self) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
        return self.on_disk(), self.locked(), self.wants()

    def check_clean(self) -> None:
        """Nothing is left but backups."""
        state = self.root / ".prowess"
        assert not state.exists() or {path.name for path in state.iterdir()} <= STATE
        assert not [path for path in self.agent.glob(".*") if ".new-" in path.name]

    def copy_files_to(self, other: PackMachine) -> None:
        other.agent.mkdir()
        shutil.copy(self.lock, other.lock)
        shutil.copy(self.wanted, other.wanted)
