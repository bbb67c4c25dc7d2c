"""File that a run made. It can be read as long as the workspace exists; a copy in a folder of the user's stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from prowess.errors import ConfigError, ResourceNotFound
from prowess.workspace.dirfd import open_file
from prowess.workspace.export import find_acting_part, is_unused, open_outside


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """File that a run made, in its workspace or copied to `output_dir`."""

    name: str  # in the workspace, such as out/report.pdf
    mime_type: str
    size_bytes: int
    folder: str  # folder on this machine that holds it
    below: str  # path in that folder
    searched: tuple[str, ...] = field(default=(), repr=False, compare=False)  # folders of skills

    @property
    def ref(self) -> str:
        return f"workspace://{self.name}"

    @property
    def path(self) -> Path:
        """Path on this machine."""
        return Path(self.folder, self.below)

    def read_bytes(self) -> bytes:
        with self._open() as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        """Reads the text. UnicodeDecodeError if the file is not a text in this encoding."""
        return self.read_bytes().decode(encoding)

    def save(self, to: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Copies the file to a path, or into a folder that exists, and returns the path of the copy. Replaces a file
        only with `force`. A name that programs act on, such as Makefile, is given to a folder in use by a whole
        path only."""
        cwd = os.getcwd()
        target = os.path.abspath(os.path.expanduser(os.fspath(to)))
        if os.path.isdir(target):
            name = os.path.basename(self.below)
            find_acting_part(cwd, target, name, unused=is_unused(cwd, target), searched=self.searched)
            target = os.path.join(target, name)
        if os.path.lexists(target) and not force:
            raise ConfigError(f"{target} exists already.", code="file-exists", hint="Add force=True to replace it.")
        folder, name = os.path.split(target)
        with self._open() as file, open_outside(cwd, folder, name, force=force, make=True, mode=0o666) as copy:
            shutil.copyfileobj(file, copy)
        return Path(target)

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        """Opens the file. No link below the folder is followed."""
        try:
            with open_file(self.folder, self.below) as fd, open(os.dup(fd), "rb") as file:
                yield file
        except FileNotFoundError:
            message = f"The file '{self.name}' is not in {self.folder} any more."
            hint = "Give output_dir= to keep the files of a run, or save each one before the workspace is cleaned up."
            raise ResourceNotFound(message, code="file-gone", hint=hint) from None
