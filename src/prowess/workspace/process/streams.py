"""Our ends of a command's pipes: read in bounded pieces as data comes, without waiting after the command has ended."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable

CHUNK_BYTES = 1 << 16
F_GETPIPE_SZ = 1032


class Reader:
    """Reads one pipe, or discards the output when there is no callback."""

    def __init__(self, callback: Callable[[bytes], None] | None) -> None:
        self._callback = callback
        if callback is None:
            self.fd = -1
            self._writer = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        else:
            self.fd, self._writer = os.pipe()
            os.set_blocking(self.fd, False)

    def give_writer(self) -> int:
        """Returns the command's end of the pipe; the caller must close it."""
        writer, self._writer = self._writer, -1
        return writer

    def take(self, most_chunks: int = 16) -> bool:
        """Passes available data to the callback, a bounded amount because others wait too. False at the end of the
        stream."""
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
        """Reads the rest of the pipe. All writers are gone, so it does not wait for the end of the stream. If another
        process got the writing end, it reads no more than the pipe can hold."""
        if self.fd >= 0:
            try:
                size = fcntl.fcntl(self.fd, F_GETPIPE_SZ)
            except OSError:  # not Linux; pipes are small there
                size = CHUNK_BYTES
            self.take(size // 4096 + 1)

    def close(self) -> None:
        close_all(fd for fd in (self.fd, self._writer) if fd >= 0)
        self.fd = self._writer = -1


def memory_file(data: bytes) -> int:
    """Returns a descriptor that reads these bytes; sealed against changes where the system can do that."""
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
