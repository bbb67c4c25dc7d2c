"""Append-only file of lines. What was written counts after a kill; a line that the kill cut off does not.

Only one process writes a journal at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from prowess._internal.files import open_regular

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
    OSError if it is a link: it may lead to a file of somebody else."""

    def __init__(self, path: str) -> None:
        import fcntl  # there is none on Windows

        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, 0o600)
        self._file = os.fdopen(fd, "ab")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise JournalInUse(path) from error
        whole = 0
        for line in read_lines(path):
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
