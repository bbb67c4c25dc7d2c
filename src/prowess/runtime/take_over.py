"""Takes over the record that an earlier release kept in the project folder, if this home wrote it.

It is ours if the mark of every `run_started` in it fits: the key of the marks lies in the home only. Any other record
stays where it is, and is named. A kill at any step leaves the old record whole, or the new one.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from prowess.core.events import ApprovalAnswered, ApprovalAsked, RunStarted, parse_event, render_at
from prowess.core.findings import visible
from prowess.core.values import ChainHead, SessionKey
from prowess.errors import StoreError
from prowess.records.chain import verify_chain
from prowess.records.marks import Marks
from prowess.runtime.config import ConfigPlaces
from prowess.runtime.project_state import (
    ARTIFACTS,
    DATABASE,
    EVAL_RUNS,
    locked_projects,
    make_state,
    read_info,
    state_path,
    write_info,
)
from prowess.stores.foreign_copy import BOUNDS
from prowess.stores.foreign_sqlite import ForeignCopy

# Nobody asked to read it: a larger one, which a clone may bring, is only named.
_BOUNDS = BOUNDS._replace(db_bytes=1 << 30, wal_bytes=256 << 20)
_SESSIONS = "SELECT tenant, app, user, session, seq, hash FROM sessions"
_LINES = "SELECT line FROM events WHERE tenant = ? AND app = ? AND user = ? AND session = ? ORDER BY seq"


def find_old_record(places: ConfigPlaces) -> str | None:
    """Returns the database in the project folder, whoever wrote it."""
    path = os.path.join(places.project, ".agent", DATABASE)
    return path if os.path.lexists(path) else None


def find_left_record(places: ConfigPlaces) -> str | None:
    """Returns the database in the project folder if it was not taken over."""
    old = find_old_record(places)
    if old is None:
        return None
    info = read_info(state_path(places))
    return None if info is not None and info.taken == os.lstat(old).st_ino else old


def look_at_old_record(places: ConfigPlaces, tell: Callable[[str], object]) -> str:
    """Takes over the record in the project folder, or tells how to. Returns the time from which answers count."""
    take_over(places, tell)
    left = find_left_record(places)
    if left is not None:
        tell(
            f"{visible(left)} is a record that you did not make here, so it is not used. To take its sessions over: "
            f"prowess runs import {visible(shlex.quote(left))}"
        )
    info = read_info(state_path(places))
    return info.since if info is not None else ""


def take_over(places: ConfigPlaces, tell: Callable[[str], object]) -> None:
    """Moves the old record with its artifacts and eval runs to the state folder. StoreError `state-in-use` if another
    process uses it."""
    old = find_old_record(places)
    if old is None or not _may_be_ours(places, old):
        return
    folder = state_path(places)
    new = os.path.join(folder, DATABASE)
    with locked_projects(places.state_dir):
        inode = os.lstat(old).st_ino
        info = read_info(folder)
        if os.path.lexists(new):
            if info is not None and info.taken == inode:  # killed before the last step
                _set_aside(places)
            return
        found = _examine(places, old)
        if not found.ours:
            return
        make_state(places)
        temporary = f"{new}.taking"
        _remove_database(temporary)
        _copy_exclusively(old, temporary)
        found = _examine(places, temporary)
        if not found.ours:
            _remove_database(temporary)
            return
        for name in (ARTIFACTS, EVAL_RUNS):
            _copy_folder(os.path.join(places.project, ".agent", name), os.path.join(folder, name))
        info = read_info(folder)
        if info is not None:
            since = "" if found.answers else render_at(datetime.now(UTC))
            write_info(folder, info._replace(taken=inode, since=max(info.since, since)))
        _sync(temporary)
        os.rename(temporary, new)
        _sync(folder)
        _set_aside(places)
    tell(f"The record {visible(old)} was moved to {visible(folder)}.")


def _may_be_ours(places: ConfigPlaces, old: str) -> bool:
    found = os.lstat(old)
    is_own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return is_own and os.path.isfile(os.path.join(places.state_dir, "record-key.json"))


class Examined(NamedTuple):
    """`ours`: this home began every run. `answers`: the chain and the marks of all questions and answers fit, too."""

    ours: bool
    answers: bool


def _examine(places: ConfigPlaces, path: str) -> Examined:
    marks = Marks(places.state_dir, os.path.join(places.project, ".agent", DATABASE))
    try:
        with ForeignCopy(path, bounds=_BOUNDS) as copy:
            return copy.run(partial(_examine_all, marks=marks))
    except StoreError as error:
        if error.code == "store-foreign-changing":
            raise _in_use(path) from error
        return Examined(False, False)


def _examine_all(connection: sqlite3.Connection, marks: Marks) -> Examined:
    begun = 0
    answers = True
    for *names, seq, last in connection.execute(_SESSIONS).fetchall():
        key = SessionKey(tenant=names[0], app=names[1], user=names[2], session=names[3])
        lines = (str(row[0]) for row in connection.execute(_LINES, names))
        read: list[str] = []
        size = 0
        for line in lines:
            read.append(line)
            size += len(line)
            if size > _BOUNDS.session_bytes:
                return Examined(False, False)
        answers &= verify_chain(read, ChainHead(seq=seq, hash=last), key=key).valid
        for fits, is_start in _marked(read, key, marks):
            if is_start and not fits:
                return Examined(False, False)
            begun += is_start
            answers &= fits
    return Examined(begun > 0, answers)


def _marked(lines: list[str], key: SessionKey, marks: Marks) -> Iterator[tuple[bool, bool]]:
    """Yields (the mark fits, it is a `run_started`) for each event that has a mark."""
    for line in lines:
        if '"type":"run_started"' not in line and '"type":"approval_' not in line:
            continue
        try:
            envelope = parse_event(json.loads(line))
        except (ValueError, RecursionError, TypeError):
            yield False, True
            return
        event = envelope.event
        is_start = isinstance(event, RunStarted)
        if is_start or isinstance(event, ApprovalAsked) or (isinstance(event, ApprovalAnswered) and event.asked):
            yield envelope.key == key and marks.fits(envelope), is_start


def _copy_exclusively(old: str, temporary: str) -> None:
    """Copies the database while no other process has it open."""
    source = sqlite3.connect(old, timeout=0, isolation_level=None)
    target = sqlite3.connect(temporary, isolation_level=None)
    try:
        source.execute("PRAGMA trusted_schema = OFF")
        source.execute("PRAGMA locking_mode = EXCLUSIVE")
        source.execute("BEGIN EXCLUSIVE")
        source.execute("ROLLBACK")  # the lock stays
        source.backup(target)
    except sqlite3.OperationalError as error:
        raise _in_use(old) from error
    finally:
        target.close()
        source.close()
    os.chmod(temporary, 0o600)


def _in_use(path: str) -> StoreError:
    return StoreError(
        f"{path} is in use, so it cannot be moved to the state folder. Nothing was changed.",
        code="state-in-use",
        hint="End the other processes of Prowess that work in this folder, and try again.",
    )


def _copy_folder(source: str, target: str) -> None:
    """Copies a folder without its links, whole or not at all."""
    if os.path.islink(source) or not os.path.isdir(source) or os.path.lexists(target):
        return
    temporary = f"{target}.taking"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary, ignore=_not_plain)
    os.rename(temporary, target)


def _not_plain(folder: str, names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        path = os.path.join(folder, name)
        if name == ".drafts":  # of processes that were killed
            found.append(name)
            continue
        if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
            found.append(name)
    return found


def _set_aside(places: ConfigPlaces) -> None:
    """Renames what was taken over."""
    agent = os.path.join(places.project, ".agent")
    # The database last: while it is there, something is left to do.
    for name in (ARTIFACTS, EVAL_RUNS, f"{DATABASE}-wal", f"{DATABASE}-shm", DATABASE):
        path = os.path.join(agent, name)
        if os.path.lexists(path) and not os.path.islink(path):
            os.rename(path, _free_name(f"{path}.moved"))


def _free_name(path: str) -> str:
    number = 1
    name = path
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


def _remove_database(path: str) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        if os.path.lexists(path + end):
            os.unlink(path + end)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
