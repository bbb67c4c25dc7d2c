"""Append-only file of lines. What was written counts after a kill; a line that the kill cut off does not.

Only one process writes a journal at a time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from prowess._internal.files import NotRegular, kind_of, open_regular

_LONGEST_LINE = 64 << 20


class JournalInUse(Exception):
    """Another process writes this journal."""


def read_lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a regular file. OSError if it cannot be read."""
    with open(open_regular(path, follow=True), "rb") as file:
        while line := file.readline(_LONGEST_LINE):
            yield line


class Journal:
    """Journal that is open for appending; a new one is made. `was_cut`: the last line was cut off, and is removed.
    OSError if the file or its folder is a link: it may lead to a file of somebody else."""

    def __init__(self, path: str) -> None:
        import fcntl  # there is none on Windows

        folder, name = os.path.split(path)
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(name, flags, 0o600, dir_fd=above)
        finally:
            os.close(above)
        self._file = os.fdopen(fd, "ab")
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            self._file.close()
            raise NotRegular(f"{kind_of(mode)}, not a regular file: {path}")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise JournalInUse(path) from error
        whole = 0
        with open(os.dup(fd), "rb") as file:
            file.seek(0)
            while line := file.readline(_LONGEST_LINE):
                if line.endswith(b"\n"):
                    whole += len(line)
        self.is_new = whole == 0
        self.was_cut = whole < os.fstat(fd).st_size
        if self.was_cut:
            os.ftruncate(fd, whole)

    def append(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()  # a kill of this process loses nothing

    def close(self) -> None:
        self._file.close()
