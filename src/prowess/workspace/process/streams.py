"""The ends of a command's streams that are ours: read as data comes, bounded, and not waited for once it has ended."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable

CHUNK_BYTES = 1 << 16
F_GETPIPE_SZ = 1032


class Reader:
    """One pipe, or nothing when nobody wants to know."""

    def __init__(self, callback: Callable[[bytes], None] | None) -> None:
        self._callback = callback
        if callback is None:
            self.fd, self._writer = -1, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        else:
            self.fd, self._writer = os.pipe()
            os.set_blocking(self.fd, False)

    def give_writer(self) -> int:
        """The command's end; from here on it is the caller's to close."""
        writer, self._writer = self._writer, -1
        return writer

    def take(self, most_chunks: int = 16) -> bool:
        """Hand over what is there, but not for ever: others wait as well. False when there will be no more."""
        assert self._callback is not None
        for _ in range(most_chunks):
            try:
                data = os.read(self.fd, CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._callback(data)
        return True

    def drain(self) -> None:
        """What is still in the pipe. Nobody is left to write to it, so there is no need to wait for its end; and if it
        was handed to a stranger, there is no more in it than it holds."""
        if self.fd >= 0:
            try:
                size = fcntl.fcntl(self.fd, F_GETPIPE_SZ)
            except OSError:  # another system, whose pipes are small
                size = CHUNK_BYTES
            self.take(size // 4096 + 1)

    def close(self) -> None:
        close_all(fd for fd in (self.fd, self._writer) if fd >= 0)
        self.fd = self._writer = -1


def memory_file(data: bytes) -> int:
    """A descriptor that reads these bytes; where that is possible, nobody can change them."""
    if not hasattr(os, "memfd_create"):
        import tempfile

        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            return os.dup(file.fileno())
    fd = os.memfd_create("prowess", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        )
    except OSError:
        os.close(fd)
        raise
    return fd


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
