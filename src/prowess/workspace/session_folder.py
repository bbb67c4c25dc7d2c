"""Owns the folder of one session's workspace on this machine: its files, its metadata and its locks.

The session's key and its store together identify a session. Sessions with the same name in two projects share nothing.

<dir>/workspaces.secret                 random bits, on which each <id> depends; see session_names
<dir>/workspaces/<id>/meta.json         metadata; scripts never see it
<dir>/workspaces/<id>/lock              held by every process that works here; only a process that is alone cleans up
<dir>/workspaces/<id>/making            held for a moment while something is created here
<dir>/workspaces/<id>/staged/<skill>    the tree that root/skills/<skill> is a copy of, if the executor needs a copy
<dir>/workspaces/<id>/root/             skills/ work/ out/ runs/: the workspace that a script sees
<dir>/workspaces/<id>/venvs/<skill>-<digest>/    mounted as .venv in the skill, if the executor can mount
<dir>/workspaces/<id>/tmp/<run>/        temporary files of a run, if the executor has no better place
<dir>/trees/<digest>/                   published skills, shared by all sessions; see skill_trees
<dir>/environments/<key>/               packages of scripts, shared by all sessions; see scripts/environments
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from prowess._internal.files import make_passable, read_regular, write_whole
from prowess._internal.light_dataclass import dataclass
from prowess.core.codec import to_json
from prowess.core.values import SessionKey
from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import open_folder, walk
from prowess.workspace.layout import FOLDERS
from prowess.workspace.session_names import (
    computed_name,
    find_names,
    held_secret,
    name_start,
    oldest_name,
    place_path,
    session_name,
)
from prowess.workspace.skill_trees import remove_tree

SCHEMA = "prowess.workspace/1"
_READABLE = 0o755  # readable by the user that scripts run as
_META = "meta.json"
_LEFT = "Files that an earlier version kept for a session of this name are not here: see `prowess workspaces list`."
_MOVED = (
    "Files of a session of this name are in the workspace of a store that is gone. If the project was moved, copy them"
    " from there: see `prowess workspaces list`."
)
_RENAMED = "The folder of this workspace was renamed, so a .venv of an earlier run has to be made again."
_GONE = ".gone-"  # a place that is being removed; no session's place begins with a dot


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Open folder of a session. `uid` owns the files that scripts write; None means our own user. `gid` is the group
    that scripts need to reach them."""

    path: str
    key: SessionKey
    uid: int | None = None
    gid: int | None = None
    notes: tuple[str, ...] = ()  # warnings for the first run here

    @property
    def root(self) -> str:
        return os.path.join(self.path, "root")

    def make_run(self, run: str) -> str:
        """Creates runs/<run>, writable for that run. Raises FileExistsError when the name was used before."""
        return self._make(os.path.join(self.root, "runs", run))

    def make_tmp(self, run: str) -> str:
        return self._make(os.path.join(self.path, "tmp", run))

    def make_venv(self, skill: str, digest: str) -> str:
        """Creates the .venv of a skill, one per session and digest: other content of the skill has its own."""
        path = os.path.join(self.path, "venvs", f"{skill}-{digest.removeprefix('sha256:')[:16]}")
        if not os.path.isdir(path):
            try:
                self._make(path)
            except FileExistsError:  # another process in this session was faster
                pass
        return path

    def copied_venv(self, skill: str) -> str:
        """Path of the .venv when the executor cannot mount it: in the session's copy of the skill."""
        return os.path.join(self.root, "skills", skill, ".venv")

    def own(self, path: str) -> str:
        """Makes the user that scripts run as the owner of a file or folder."""
        if self.uid is not None:
            os.chown(path, self.uid, self.gid or self.uid, follow_symlinks=False)
        return path

    def share(self, path: str, how: int) -> None:
        """Keeps us as the owner and gives scripts the rights `how` (os.R_OK, os.X_OK …). Other users have no rights."""
        if self.uid is not None:
            os.chown(path, -1, self.gid or self.uid, follow_symlinks=False)
        mode = 0o700 if os.path.isdir(path) else 0o600
        if self.uid is not None:
            mode |= how << 3
        os.chmod(path, mode)

    def _make(self, path: str) -> str:
        os.mkdir(path, 0o700)
        return self.own(path)


class PlaceInfo(NamedTuple):
    """Session folder as a row of a list."""

    id: str
    path: str
    session: str
    store: str | None  # None: made by a version that did not record it
    size_bytes: int
    files: int
    used_at: float  # seconds since the epoch
    in_use: bool

    @property
    def store_is_gone(self) -> bool:
        return store_is_gone(self.store)


class OpenPlace:
    """Context manager that creates the session's folder if needed and holds its lock until the end.

    `with OpenPlace(dir, key, store=store) as place: …`
    """

    def __init__(self, dir: str, key: SessionKey, *, store: str = "", uid: int | None = None) -> None:
        self._dir = os.path.abspath(dir)
        self._key = key
        self._store = store
        self._uid = uid
        self._path = ""
        self._notes: tuple[str, ...] = ()
        self._lock = -1

    def __enter__(self) -> Place:
        try:
            top = os.path.join(self._dir, "workspaces")
            make_passable(top)
            with held_secret(self._dir) as secret:
                name, group = session_name(secret, self._store, self._key)
                self._path = os.path.join(top, name)
                self._rename(os.path.join(top, computed_name(self._store, self._key)))
            self._hold()
            with making(self._path):
                return self._made(group)
        except OSError as error:
            self.close()
            raise _unusable(self._dir, error) from error

    def _rename(self, old: str) -> None:
        """Gives the folder of a version that computed its name the new name, if nobody works there."""
        if os.path.lexists(self._path) or not os.path.isdir(old) or os.path.islink(old):
            return
        lock = _locked(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock >= 0:
            os.rename(old, self._path)
            os.close(lock)
            copies = os.path.join(self._path, "root", "skills")
            for name in list_folder(copies):
                if os.path.isfile(os.path.join(copies, name, ".venv", "pyvenv.cfg")):
                    self._notes = (_RENAMED,)
        elif os.path.isdir(old):  # not removed meanwhile
            raise _in_use_now("open", self._key)

    def _hold(self) -> None:
        """Takes the lock. Tries again when clean-up, which holds the lock, has moved the folder away meanwhile."""
        while self._lock < 0:
            try:
                os.mkdir(self._path, 0o700)
            except FileExistsError:
                pass
            self._sweep()
            self._lock = _locked(self._path, fcntl.LOCK_SH)

    def _sweep(self) -> None:
        """Removes files that a killed runtime left in tmp/, if no other process works here."""
        lock = _locked(self._path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock < 0:
            return
        try:
            for name in os.listdir(os.path.join(self._path, "tmp")):
                remove_tree(os.path.join(self._path, "tmp", name))
        except FileNotFoundError:
            pass
        finally:
            os.close(lock)

    def _made(self, group: int) -> Place:
        known = read_meta(self._path)
        whose = {"store": self._store, "key": to_json(self._key)}
        self._check_same(known, whose)
        notes = self._notes if known else self._left_elsewhere()
        place = Place(path=self._path, key=self._key, uid=self._uid, gid=self._take_group(group), notes=notes)
        place.share(self._path, os.X_OK)
        for name in ("root", "venvs", "tmp", "staged", *(f"root/{folder}" for folder in FOLDERS)):
            path = os.path.join(self._path, name)
            made = not os.path.isdir(path)
            if made:
                os.mkdir(path)
            if name not in ("root/work", "root/out"):
                os.chmod(path, _READABLE)
            elif not os.path.islink(path):
                os.chmod(path, 0o700)  # a script may have removed its own rights
                if made:
                    place.own(path)
        if not os.path.lexists(os.path.join(place.root, "work", "inputs")):
            with open_folder(place.root, "work/inputs", make=True, uid=self._uid):
                pass
        now = time.time()
        write_meta(self._path, {"created_at": now, **known, **whose, "used_at": now})
        return place

    def _take_group(self, group: int) -> int | None:
        """Returns the session's group, or None where it cannot have one: scripts then have the group of their user."""
        if self._uid is None:
            return None
        try:
            os.chown(self._path, -1, group)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a user namespace without this number, as in a rootless container
                raise
            return None
        return group

    def _left_elsewhere(self) -> tuple[str, ...]:
        """Returns notes about files that the user may expect here, but that are in another folder."""
        top = os.path.dirname(self._path)
        key = to_json(self._key)
        if os.path.isdir(os.path.join(top, oldest_name(self._key))):
            return (_LEFT,)
        for name in list_folder(top):
            if name.startswith(name_start(self._key)):
                meta = read_meta(os.path.join(top, name))
                if meta.get("key") == key and store_is_gone(meta.get("store")):
                    return (_MOVED,)
        return ()

    def _check_same(self, known: dict[str, Any], whose: dict[str, Any]) -> None:
        """Raises when meta.json names another session, whatever the folder is called."""
        for name, said in whose.items():
            found = known.get(name)
            if isinstance(found, type(said)) and found != said:
                self.close()
                message = f"{self._path} is the workspace of another session."
                hint = "Move it away, or name another folder: workspace.dir."
                raise WorkspaceError(message, op="open", code="workspace-of-another", hint=hint)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __exit__(self, *error: object) -> None:
        self.close()


def _unusable(dir: str, error: OSError) -> WorkspaceError:
    reason = (error.strerror or str(error)).lower()
    message = f"The workspace could not be made in {dir}: {reason}."
    hint = "Name a folder that can be written to and has room: workspace.dir."
    return WorkspaceError(message, op="create", code="workspace-dir", hint=hint)


@contextmanager
def making(path: str) -> Iterator[None]:
    """Lock for creating something in the session folder `path`. One process at a time holds it."""
    name = os.path.join(path, "making")
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


_HELD: set[str] = set()  # lock files that this process holds


@contextmanager
def hold_session(dir: str, store: str, key: SessionKey) -> Iterator[None]:
    """Holds the lock of a session. One process per machine works in a session: two would overwrite its record."""
    try:
        make_passable(dir)  # first, and for any umask: scripts of another user must pass through this folder
        os.makedirs(os.path.join(dir, "locks"), mode=0o700, exist_ok=True)
        with held_secret(dir) as secret:
            path = os.path.join(dir, "locks", session_name(secret, store, key)[0])
        lock = None if _is_locked(dir, computed_name(store, key)) else _try_lock(path, os.O_CREAT)
    except OSError as error:
        raise _unusable(dir, error) from error
    if lock is None:
        message = f"The session '{key.session}' is in use."
        hint = "Wait until the other run has ended, or use another session."
        if path in _HELD:
            hint = (
                "This process has it. A stream that was left with `break` ends when it is closed: contextlib.aclosing."
            )
        raise WorkspaceError(message, op="open", code="session-in-use", retryable=True, hint=hint)
    _HELD.add(path)
    try:
        yield
    finally:
        _HELD.discard(path)
        with suppress(FileNotFoundError):
            os.unlink(path)  # while locked: a process that opened it meanwhile sees st_nlink == 0 and tries again
        os.close(lock)


def is_held(dir: str, store: str, key: SessionKey) -> bool:
    """True when a process on this machine works in that session now."""
    return any(_is_locked(dir, name) for name in find_names(dir, store, key))


def _is_locked(dir: str, name: str) -> bool:
    try:
        lock = _try_lock(os.path.join(dir, "locks", name))
    except FileNotFoundError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is None


def _try_lock(path: str, more: int = 0) -> int | None:
    """Opens and locks the file. Returns None when it is locked already. Tries again when the file was removed."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | more, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)


def read_meta(path: str) -> dict[str, Any]:
    """Reads meta.json. Returns {} when it cannot be read: it can be written again."""
    try:
        meta = json.loads(read_regular(os.path.join(path, _META), 1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    if isinstance(meta, dict):
        return meta
    return {}


def write_meta(path: str, meta: dict[str, Any]) -> None:
    text = json.dumps({"schema": SCHEMA, **meta})
    write_whole(os.path.join(path, _META), text.encode(), mode=0o600)


def store_is_gone(store: object) -> bool:
    """True when the store is a path and no file is there. A store that is not a path is never reported as gone."""
    if not isinstance(store, str) or not os.path.isabs(store):
        return False
    # A record of before the state folder was renamed when it was taken over; its sessions are there.
    return not (os.path.exists(store) or os.path.exists(f"{store}.moved"))


def list_places(dir: str) -> list[PlaceInfo]:
    """Lists all workspaces, least recently used first."""
    return sorted(_places(dir), key=lambda info: (info.used_at, info.id))


def remove_listed(info: PlaceInfo) -> bool:
    """Removes the workspace. Returns False when it is in use."""
    return _remove(info.path)


def sweep_places(dir: str) -> None:
    """Removes folders whose removal was interrupted."""
    top = os.path.join(os.path.abspath(dir), "workspaces")
    for name in list_folder(top):
        if name.startswith(_GONE):
            path = os.path.join(top, name)
            lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock >= 0:
                remove_tree(path)
                os.close(lock)


def remove_place(dir: str, store: str, key: SessionKey) -> str | None:
    """Removes the session's workspace. Returns its path, or None when there was none. Raises when it is in use."""
    path = place_path(dir, store, key)
    if not os.path.isdir(path) or os.path.islink(path):
        return None
    if not _remove(path):
        raise _in_use_now("remove", key)
    return path


def _in_use_now(op: str, key: SessionKey) -> WorkspaceError:
    message = f"The workspace of session '{key.session}' is in use."
    hint = "Wait until the run there has ended."
    return WorkspaceError(message, op=op, code="workspace-in-use", retryable=True, hint=hint)


def _places(dir: str) -> Iterator[PlaceInfo]:
    top = os.path.join(os.path.abspath(dir), "workspaces")
    for name in list_folder(top):
        path = os.path.join(top, name)
        if name.startswith(".") or not os.path.isdir(path) or os.path.islink(path):
            continue
        try:
            yield _look_at(path, name)
        except FileNotFoundError:  # removed meanwhile
            continue


def list_folder(top: str) -> list[str]:
    """Returns the sorted names in a folder. Returns [] when the folder does not exist."""
    try:
        return sorted(os.listdir(top))
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"The folder {top} cannot be listed: {reason}."
        hint = "Run the command as the user who owns the folder."
        raise WorkspaceError(message, op="list", code="workspace-dir", hint=hint) from error


def _look_at(path: str, name: str) -> PlaceInfo:
    meta = read_meta(path)
    key = meta.get("key")
    session = str(key.get("session", name)) if isinstance(key, dict) else name
    store = meta.get("store")
    used_at = meta.get("used_at")
    changed_at = os.stat(path).st_mtime
    size = files = 0
    for _, status, _, _ in walk(path, max_entries=10_000_000):
        size += status.st_blocks * 512
        files += 1
    return PlaceInfo(
        id=name,
        path=path,
        session=session,
        store=store if isinstance(store, str) else None,
        size_bytes=size,
        files=files,
        used_at=float(used_at) if isinstance(used_at, (int, float)) else changed_at,
        in_use=_in_use(path),
    )


def _in_use(path: str) -> bool:
    lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock >= 0:
        os.close(lock)
    return lock < 0


def _remove(path: str) -> bool:
    """Removes the folder. Returns False when it is in use. Moves it away first, so a new session can start at once."""
    lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock < 0:
        return False
    try:
        gone = os.path.join(os.path.dirname(path), f"{_GONE}{os.urandom(8).hex()}")
        os.rename(path, gone)
        remove_tree(gone)
        return True
    finally:
        os.close(lock)


def _locked(path: str, how: int) -> int:
    """Locks the folder that is at `path` now. Returns -1 when it is locked, or was moved away while we waited."""
    name = os.path.join(path, "lock")
    lock = -1
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, how)
        if os.path.samestat(os.fstat(lock), os.stat(name)):
            return lock
    except (FileNotFoundError, BlockingIOError):
        pass
    if lock >= 0:
        os.close(lock)
    return -1
