"""Names of sessions' folders, which nobody can compute, and their groups.

Under Landlock a script can look at any path that it knows, and change its mode and times. So a name depends on random
bits, which are in a file that scripts cannot read. As root, each session also has a group of its own: a script of
another session cannot pass the folder, even if it knows the name.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from prowess._internal.files import read_regular
from prowess.core.values import SessionKey
from prowess.errors import WorkspaceError

_FILE = "workspaces.secret"
_BYTES = 32
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
# With 28 more bits, the numbers that no system gives to users, groups or containers (systemd: UIDS-GIDS).
_FIRST_GROUP = 0x70000000


@contextmanager
def held_secret(dir: str) -> Iterator[bytes]:
    """Gives the random bits of `dir`, made on first use. One process at a time holds them."""
    fd = os.open(os.path.join(dir, _FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"{_FILE} belongs to another user")
        secret = os.pread(fd, _BYTES, 0)
        if len(secret) < _BYTES:  # new, or its maker was killed before anybody could use it
            secret = os.urandom(_BYTES)
            os.pwrite(fd, secret, 0)
            os.fsync(fd)
        yield secret
    finally:
        os.close(fd)


def session_name(secret: bytes, store: str, key: SessionKey) -> tuple[str, int]:
    """Returns the name of a session's folder, and the number of its group."""
    digest = hmac.digest(secret, _text(key, store), "sha256").hex()
    group = _FIRST_GROUP + int(digest[32:39], 16)
    return name_start(key) + digest[:32], group


def find_names(dir: str, store: str, key: SessionKey) -> list[str]:
    """Returns the names that the folder of a session can have, the one of earlier versions last. Makes nothing."""
    names = [computed_name(store, key)]
    path = os.path.join(dir, _FILE)
    try:
        secret = read_regular(path, _BYTES)[:_BYTES]
    except FileNotFoundError:
        return names
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "Run the command as the user who owns the file."
        raise WorkspaceError(f"{path} cannot be read: {reason}.", op="list", code="workspace-dir", hint=hint) from error
    return [session_name(secret, store, key)[0], *names]


def place_path(dir: str, store: str, key: SessionKey) -> str:
    """Returns the folder of a session. If it has none, nothing is at that path."""
    top = os.path.join(os.path.abspath(dir), "workspaces")
    names = find_names(dir, store, key)
    for name in names:
        path = os.path.join(top, name)
        if os.path.isdir(path):
            return path
    return os.path.join(top, names[0])


def computed_name(store: str, key: SessionKey) -> str:
    """Name in earlier versions, which anybody can compute. The folder is renamed when its session opens."""
    digest = hashlib.sha256(_text(key, store)).hexdigest()
    return name_start(key) + digest[:32]


def oldest_name(key: SessionKey) -> str:
    """Name in still earlier versions, without the store. The owner of such files is unknown."""
    digest = hashlib.sha256(_text(key)).hexdigest()
    return name_start(key) + digest[:12]


def name_start(key: SessionKey) -> str:
    """Start of each of these names: the name of the session if that is plain."""
    if _PLAIN.fullmatch(key.session):
        return f"{key.session}-"
    return "session-"


def _text(key: SessionKey, *store: str) -> bytes:
    parts = (*store, key.tenant, key.app, key.user, key.session)
    text = "\0".join(parts)
    return text.encode("utf-8", "surrogateescape")
