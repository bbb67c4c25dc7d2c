"""Writes a zip whose bytes depend on nothing but the names, modes and contents of its members.

Names are sorted; times and the creating system are fixed; there are no extra fields. Members are stored, not
compressed: deflate gives other bytes with zlib-ng or a later zlib, and servers and git compress what they send anyway.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prowess._internal.files import write_whole

_CHUNK_BYTES = 256 * 1024
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can hold
_UNIX = 3  # of `create_system`: modes are those of Unix


class ZipMember(NamedTuple):
    name: str
    read: Callable[[], bytes]  # called when the member is written, so that one file is in memory at a time
    executable: bool = False


def write_zip(target: str, members: Iterable[ZipMember]) -> tuple[str, int]:
    """Writes a file that appears whole or not at all. Returns its sha256 and its size."""
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as bundle:
            for member in sorted(members, key=lambda member: member.name):
                mode = 0o755 if member.executable else 0o644
                info = zipfile.ZipInfo(member.name, _EPOCH)
                info.create_system = _UNIX
                info.external_attr = (stat.S_IFREG | mode) << 16
                bundle.writestr(info, member.read())
        size = file.tell()
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        write_whole(target, iter(lambda: file.read(_CHUNK_BYTES), b""))
    return sha256, size
