"""Receives, lists and sends files inside a container that cannot mount the folders of the host.

    sync_agent.py put     stdin: names to remove, then a tar; stdout: a list
    sync_agent.py list    stdout: contents of the session's folders, one JSON document per line
    sync_agent.py get     stdin: requested names; stdout: a tar
    sync_agent.py fill    stdin: a tar; run by root before anything else: files that programs may read but not change

A list of names on stdin is JSON with its length before it. Imports only the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import IO, Any

ROOT = "/workspace"
FOLDERS = ("work", "out", "runs", ".venv")
MOST = 100_000


def main(op: str) -> None:
    os.umask(0 if op == "fill" else 0o077)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    if op == "fill":
        fill(source)
    elif op == "get":
        give(read_names(source), target)
    else:
        if op == "put":
            take(read_names(source), source)
        for entry in listed():
            target.write(json.dumps(entry).encode() + b"\n")
    target.flush()


def fill(source: IO[bytes]) -> None:
    for name in FOLDERS:
        os.mkdir(f"{ROOT}/{name}", 0o777)  # there is only one user here besides root
    os.umask(0o022)
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for member in tar:
            path = f"/{member.name}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if member.isdir():
                os.makedirs(path, exist_ok=True)
            elif member.issym():
                os.symlink(member.linkname, path)
            else:
                write(tar, member, path, 0o555 if member.mode & 0o100 else 0o444)


def take(to_remove: list[str], source: IO[bytes]) -> None:
    for name in to_remove:
        remove(f"{ROOT}/{name}")
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for member in tar:
            path = f"{ROOT}/{member.name}"
            if member.isdir():
                if os.path.islink(path) or not os.path.isdir(path):
                    remove(path)
                    os.makedirs(path)
            else:
                remove(path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if member.issym():
                    os.symlink(member.linkname, path)
                else:
                    write(tar, member, path, 0o755 if member.mode & 0o100 else 0o644)


def write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, mode: int) -> None:
    content = tar.extractfile(member)
    if content is not None:
        with open(path, "xb") as file:
            shutil.copyfileobj(content, file)
            os.fchmod(file.fileno(), mode)
        os.utime(path, (member.mtime, member.mtime))


def remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


def listed() -> Iterator[list[Any]]:
    """Yields [name, kind, values that change with the content, target of a link]. A folder comes before its
    contents."""
    count = 0
    waiting = [*FOLDERS]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(f"{ROOT}/{folder}") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:  # made unreadable by its owner
            continue
        for entry in entries:
            count += 1
            if count > MOST:
                sys.exit(f"there are more than {MOST} files and folders")
            name, status = f"{folder}/{entry.name}", entry.stat(follow_symlinks=False)
            mark = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode & 0o100]
            if stat.S_ISDIR(status.st_mode):
                yield [name, "folder", [], ""]
                waiting.append(name)
            elif stat.S_ISLNK(status.st_mode):
                yield [name, "link", mark, os.readlink(f"{ROOT}/{name}")]
            elif stat.S_ISREG(status.st_mode):
                yield [name, "file", mark, ""]


def give(names: list[str], target: IO[bytes]) -> None:
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            try:
                fd = os.open(f"{ROOT}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:  # removed, or made unreadable by its owner
                continue
            with open(fd, "rb") as file:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode):
                    info = tarfile.TarInfo(name)
                    info.size, info.mode, info.mtime = status.st_size, status.st_mode & 0o755, status.st_mtime
                    tar.addfile(info, Padded(file, status.st_size))


class Padded:
    """Reads a file in its announced length, even if it is truncated meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size

    def read(self, size: int = 1 << 16, /) -> bytes:
        size = min(size, self._size)
        self._size -= size
        return self._file.read(size).ljust(size, b"\0")


def read_names(source: IO[bytes]) -> list[str]:
    return json.loads(source.read(int.from_bytes(source.read(4), "big")))


if __name__ == "__main__":
    main(sys.argv[1])
