"""Lists and removes published skills, and records which stores use them. A skill in use is never removed.

A skill is in use while a process works with it, or while a session may resume with it.

<dir>/trees/<digest>/               locked by every process that works with it; mtime is the start of the last use
<dir>/trees/.users/<digest>/<id>    a store and a tenant whose sessions may name that content
<dir>/trees/.new-<random>/          locked by the process that publishes it
<dir>/trees/.gone-<random>/         locked by the process that removes it
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from prowess._internal.files import read_regular, write_whole
from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import measure_folder
from prowess.workspace.session_folder import list_folder, store_is_gone
from prowess.workspace.skill_trees import lock_folder, remove_tree

_DIGEST = re.compile(r"[0-9a-f]{64}")
_USERS = ".users"
_GONE = ".gone-"
_UNFINISHED = (".new-", _GONE)
_JUST_BEGUN_S = 60.0  # a new folder may not be locked yet


class TreeInfo(NamedTuple):
    """Published skill as a row of a list."""

    digest: str
    path: str
    size_bytes: int
    used_at: float  # seconds since the epoch
    in_use: bool


class TreeUser(NamedTuple):
    """Store and tenant whose sessions may resume with a tree. `store` is a path, or another address of a store."""

    store: str
    tenant: str

    @property
    def is_there(self) -> bool:
        """True when the store exists. A store that is not a file path counts as existing."""
        return not store_is_gone(self.store)


class HeldTrees:
    """Locks on published skills that are in use. None of them is removed before `close`."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def hold(self, path: str) -> bool:
        """Locks a tree. Returns False when it does not exist, or is being checked or removed now."""
        if path not in self._locks:
            lock = lock_folder(path, fcntl.LOCK_SH)
            if lock is None:
                return False
            self._locks[path] = lock
        with suppress(OSError):  # it belongs to another user, and only that user can remove it
            os.utime(path)
        return True

    def close(self) -> None:
        while self._locks:
            os.close(self._locks.popitem()[1])


def add_user(trees: str, digest: str, user: TreeUser) -> None:
    """Records that sessions of `user` may name the tree. Call it while the tree is locked."""
    folder = os.path.join(trees, _USERS, digest.removeprefix("sha256:"))
    id = hashlib.sha256("\0".join(user).encode()).hexdigest()
    path = os.path.join(folder, id[:16])
    try:
        if not os.path.exists(path):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            write_whole(path, json.dumps(user._asdict()).encode(), mode=0o600)
    except PermissionError:
        pass  # the folder belongs to another user, and only that user can clean there
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"The users of a published skill cannot be recorded in {folder}: {reason}."
        hint = "Name a folder that can be written to and has room: workspace.dir."
        raise WorkspaceError(message, op="stage", code="workspace-dir", hint=hint) from error


def find_users(trees: str, digest: str) -> list[TreeUser]:
    return [user for _, user in _users(trees, digest)]


def drop_user(trees: str, info: TreeInfo, store: str) -> None:
    """Removes the store from the tree's users. Does nothing if the tree is in use, or was used since it was listed."""
    lock = lock_folder(info.path, fcntl.LOCK_EX)
    if lock is None:
        return
    try:
        if os.fstat(lock).st_mtime == info.used_at:
            for path, user in _users(trees, info.digest):
                if user.store == store:
                    os.unlink(path)
    finally:
        os.close(lock)


def _users(trees: str, digest: str) -> Iterator[tuple[str, TreeUser]]:
    folder = os.path.join(trees, _USERS, digest.removeprefix("sha256:"))
    for name in list_folder(folder):
        if name.startswith("."):  # not written to its end
            continue
        path = os.path.join(folder, name)
        try:
            said = json.loads(read_regular(path, 1 << 16))
            yield path, TreeUser(str(said["store"]), str(said["tenant"]))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            yield path, TreeUser(f"whoever wrote {path}", "")


def list_trees(trees: str) -> list[TreeInfo]:
    """Lists all published skills, least recently used first."""
    return sorted(_trees(trees), key=lambda info: (info.used_at, info.digest))


def remove_published(trees: str, info: TreeInfo) -> bool:
    """Removes a tree. Returns False when it is in use, or was used since it was listed.

    Moves it away first, so that another process can publish it again at once.
    """
    lock = lock_folder(info.path, fcntl.LOCK_EX)
    if lock is None:
        return False
    try:
        if os.fstat(lock).st_mtime != info.used_at:
            return False
        # The users go first: after the rename another process may publish the tree again and record its users.
        remove_tree(os.path.join(trees, _USERS, info.digest.removeprefix("sha256:")))
        gone = os.path.join(trees, f"{_GONE}{os.urandom(8).hex()}")
        os.rename(info.path, gone)
        remove_tree(gone)
        return True
    finally:
        os.close(lock)


def sweep_trees(trees: str) -> None:
    """Removes folders of interrupted publishing or removal."""
    for name in list_folder(trees):
        path = os.path.join(trees, name)
        if not name.startswith(_UNFINISHED) or _age_s(path) < _JUST_BEGUN_S:
            continue
        lock = lock_folder(path, fcntl.LOCK_EX)
        if lock is not None:
            remove_tree(path)
            os.close(lock)


def _trees(trees: str) -> Iterator[TreeInfo]:
    for name in list_folder(trees):
        path = os.path.join(trees, name)
        if not _DIGEST.fullmatch(name) or os.path.islink(path) or not os.path.isdir(path):
            continue
        try:
            used_at = os.stat(path).st_mtime
            size = measure_folder(path, max_entries=10_000_000)
        except FileNotFoundError:  # removed while we looked
            continue
        lock = lock_folder(path, fcntl.LOCK_EX)
        if lock is not None:
            os.close(lock)
        yield TreeInfo(f"sha256:{name}", path, size, used_at, in_use=lock is None)


def _age_s(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
