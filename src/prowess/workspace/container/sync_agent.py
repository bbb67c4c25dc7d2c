"""Run inside a container, where its folders are not those of the host: takes files in, lists them, and gives them out.

    carried.py put        stdin: a tar, and before it what to remove; stdout: a list
    carried.py list       stdout: what is in the session's folders, one JSON document per line
    carried.py get        stdin: the names that are wanted; stdout: a tar
    carried.py fill       stdin: a tar. By root, before anything else is run: what programs may read and not change

A list of names on stdin is JSON with its length before it. The standard library alone.
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
        os.mkdir(f"{ROOT}/{name}", 0o777)  # there is one user in here besides root
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
    """[name, kind, what changes with its content, where a link leads]. A folder comes before what is in it."""
    count = 0
    waiting = [*FOLDERS]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(f"{ROOT}/{folder}") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:  # closed by whoever made it
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
            except OSError:  # gone, or closed by whoever made it
                continue
            with open(fd, "rb") as file:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode):
                    info = tarfile.TarInfo(name)
                    info.size, info.mode, info.mtime = status.st_size, status.st_mode & 0o755, status.st_mtime
                    tar.addfile(info, Padded(file, status.st_size))


class Padded:
    """A file that is as long as it was said to be, even if somebody cuts it short meanwhile."""

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
