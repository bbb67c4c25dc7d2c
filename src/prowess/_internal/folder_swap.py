"""Replaces several folders and files of one root at once: all of them or none, also when the process is killed.

New content is prepared in `<root>/.prowess/new-…`. Then a journal names every rename, and the renames follow. A journal
that is found later is completed, because each of its steps can be repeated. A folder `new-…` of a process that has
ended is removed. A journal can come with somebody's repository, so it counts only where it was written (it has the
number of its folder), it may only name things of the root, and no link may lead to them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prowess._internal.files import NotRegular, read_regular, write_whole
from prowess.errors import PackError

STATE = ".prowess"
BESIDE = ("skills.toml", "skills.lock")  # files that may be swapped, in the root or in the folder above it
_JOURNAL = "journal.json"
_SCHEMA = "prowess.journal/1"
_MAX_JOURNAL_BYTES = 8 << 20
_NAME = re.compile(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,254}")
_PREPARED = re.compile(r"(?:new-[a-z0-9_]{1,16}|backups)(?:/[^/\\\x00-\x1f]{1,255}){1,4}")
# Names that `tempfile` and `_prepare` make. Others with such a beginning are not ours, and stay.
_STAGED = re.compile(r"new-[a-z0-9_]{8}")
_HALF_OF_STATE = re.compile(rf"\.(?:\.gitignore|{re.escape(_JOURNAL)})\.[a-z0-9_]{{8}}")
_HALF_BESIDE = re.compile(rf"\.(?:{'|'.join(map(re.escape, BESIDE))})\.new-[0-9a-f]{{12}}")
_HALF_OF_HALF = re.compile(rf"\.{_HALF_BESIDE.pattern}\.[a-z0-9_]{{8}}")
_WAIT_S = 10.0


class SwapBusy(OSError):
    """Another process is swapping folders of this root."""


@dataclass(frozen=True, slots=True)
class FolderMove:
    """Change of one folder of the root. `new` and `old` are paths below `<root>/.prowess`."""

    target: str
    new: str | None  # content that becomes the target; None removes the target
    old: str  # place for the content before


@dataclass(frozen=True, slots=True)
class _FileMove:
    path: str  # relative to the root
    new: str  # prepared file beside it; "" removes the file


@contextlib.contextmanager
def swap_errors(root: str) -> Iterator[None]:
    """Turns errors of the system into a PackError about the root."""
    try:
        yield
    except SwapBusy as error:
        message = f"Another process is installing into {root}."
        raise PackError(message, code="target-busy", hint="Try again when it has ended.") from error
    except OSError as error:
        why = error.strerror or str(error)
        message = f"Cannot write to {root}: {why.lower()}."
        hint = "Check that the folder can be written to and that the disk has room. Nothing was changed."
        raise PackError(message, code="target-not-writable", hint=hint) from error


@contextlib.contextmanager
def stage(root: str) -> Iterator[str]:
    """Yields the name of a new folder in `<root>/.prowess`, held until the end and then removed. It stays where a swap
    was cut off, which may need it."""
    state = os.path.join(root, STATE)
    os.makedirs(root, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(state, 0o755)
    with contextlib.ExitStack() as stack:
        with hold(root):
            _remove_abandoned(root)
            ignore = os.path.join(state, ".gitignore")
            if not os.path.exists(ignore):
                write_whole(ignore, b"*\n")
            path = tempfile.mkdtemp(dir=state, prefix="new-")
            stack.callback(_remove_staged, state, path)
            stack.enter_context(_held(os.path.join(path, "lock")))
        yield os.path.basename(path)


def _remove_staged(state: str, path: str) -> None:
    """Removes prepared content, unless a journal may need it."""
    journal = os.path.join(state, _JOURNAL)
    if not os.path.lexists(journal):
        remove_tree(path)


@contextlib.contextmanager
def hold(root: str) -> Iterator[None]:
    """Keeps other processes from changing the root, after a swap that was cut off is completed."""
    state = os.path.join(root, STATE)
    _check_state(root)
    with _held(os.path.join(state, "lock"), wait_s=_WAIT_S):
        _complete(root)
        yield


def swap(root: str, folders: Sequence[FolderMove], files: Mapping[str, bytes | None]) -> None:
    """Makes all changes, for a caller that holds the root. `files` maps the path of a file to its content, or to None
    to remove it. After an error nothing has changed."""
    moves: list[_FileMove] = []
    before: dict[str, bytes | None] = {}
    try:
        for path, data in files.items():
            found = _find_bytes(path)
            move = _prepare(root, path, data)
            moves.append(move)
            before[move.path] = found
        _write_journal(root, folders, moves)
        _make(root, folders, moves)
    except BaseException:  # also when a person interrupts
        _undo(root, folders, moves, before)
        _close(root, moves)
        raise
    _close(root, moves)


def _write_journal(root: str, folders: Sequence[FolderMove], files: Sequence[_FileMove]) -> None:
    state = os.path.join(root, STATE)
    journal = {
        "folders": [asdict(move) for move in folders],
        "files": [asdict(move) for move in files],
        "schema": _SCHEMA,
        "inode": os.stat(state).st_ino,
    }
    text = json.dumps(journal)
    write_whole(os.path.join(state, _JOURNAL), text.encode())


def recover(root: str) -> bool:
    """Completes a swap that was cut off, and removes what ended processes left. True when there was a swap. One that
    goes on is left alone, and so is a folder that cannot be changed."""
    state = os.path.join(root, STATE)
    with contextlib.suppress(OSError):
        names = os.listdir(state)
        if any(name == _JOURNAL or name.startswith("new-") for name in names):
            _check_state(root)
            with _held(os.path.join(state, "lock")):
                completed = _complete(root)
                _remove_abandoned(root)
                return completed
    return False


def _check_state(root: str) -> None:
    """Refuses a state folder that leads elsewhere, or that belongs to somebody else in a folder that all can write."""
    state = os.path.join(root, STATE)
    found = os.lstat(state)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, f"{STATE} in it is not a folder", root)
    if hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), os.stat(root).st_uid):
        raise PermissionError(13, f"{STATE} in it belongs to another user", root)


# --- steps: each can be repeated --------------------------------------------------------------------------------------


def _make(root: str, folders: Sequence[FolderMove], files: Sequence[_FileMove]) -> None:
    """Makes the moves that were not made yet."""
    for move in folders:
        _move_folder(root, move)
    for file in files:
        path = os.path.join(root, file.path)
        if not file.new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            continue
        prepared = os.path.join(root, file.new)
        if os.path.lexists(prepared):
            os.replace(prepared, path)


def _move_folder(root: str, move: FolderMove) -> None:
    state = os.path.join(root, STATE)
    target = os.path.join(root, move.target)
    old = os.path.join(state, move.old)
    new = None
    if move.new is not None:
        new = os.path.join(state, move.new)
        if not os.path.lexists(new):  # it has become the target already
            return
    if os.path.lexists(target) and not os.path.lexists(old):
        os.makedirs(os.path.dirname(old), exist_ok=True)
        os.rename(target, old)
    if new is not None:
        os.rename(new, target)


def _undo(
    root: str, folders: Sequence[FolderMove], files: Sequence[_FileMove], before: Mapping[str, bytes | None]
) -> None:
    """Takes back the moves that were made."""
    for move in reversed(folders):
        _move_folder_back(root, move)
    for file in files:
        path = os.path.join(root, file.path)
        data = before[file.path]
        if _find_bytes(path) == data:
            continue
        if file.new and os.path.lexists(path):  # as it was, so that the journal still holds if this is cut off
            prepared = os.path.join(root, file.new)
            os.replace(path, prepared)
        if data is not None:
            write_whole(path, data)


def _move_folder_back(root: str, move: FolderMove) -> None:
    state = os.path.join(root, STATE)
    target = os.path.join(root, move.target)
    old = os.path.join(state, move.old)
    if move.new is not None:
        new = os.path.join(state, move.new)
        if os.path.lexists(target) and not os.path.lexists(new):
            os.rename(target, new)
    if os.path.lexists(old) and not os.path.lexists(target):
        os.rename(old, target)


def _close(root: str, files: Sequence[_FileMove]) -> None:
    """Removes prepared files that were not used, and the journal."""
    for file in files:
        if file.new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(root, file.new))
    journal = os.path.join(root, STATE, _JOURNAL)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(journal)


def _complete(root: str) -> bool:
    path = os.path.join(root, STATE, _JOURNAL)
    try:
        data = read_regular(path, _MAX_JOURNAL_BYTES)
        folders, files = _parse(json.loads(data), root)
    except FileNotFoundError:
        return False
    except (NotRegular, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # not ours, or a copy of ours
        os.replace(path, f"{path}.broken")
        return False
    _make(root, folders, files)
    _close(root, files)
    return True


def _parse(journal: Any, root: str) -> tuple[list[FolderMove], list[_FileMove]]:
    """Reads a journal. ValueError if it was not written here, or names anything that is not part of the root."""
    state = os.path.join(os.path.realpath(root), STATE)
    if journal["inode"] != os.stat(state).st_ino:
        raise ValueError("it was written elsewhere")
    folders = [FolderMove(**row) for row in journal["folders"]]
    files = [_FileMove(**row) for row in journal["files"]]
    for move in folders:
        if not _is_of_root(move, state):
            raise ValueError("it names a folder outside of the root")
    for file in files:
        if not _is_swapped(file):
            raise ValueError("it names a file that is not swapped")
    return folders, files


def _is_of_root(move: FolderMove, state: str) -> bool:
    if not _NAME.fullmatch(move.target):
        return False
    if move.new is not None and not _is_prepared(move.new, state):
        return False
    return _is_prepared(move.old, state)


def _is_swapped(file: _FileMove) -> bool:
    """True for a file that may be swapped, whose new content is beside it."""
    above, _, name = file.path.rpartition("/")
    if above not in ("", "..") or name not in BESIDE:
        return False
    if not file.new:
        return True
    beside = rf"(?:\.\./)?\.{re.escape(name)}\.new-[a-z0-9_]{{1,16}}"
    return re.fullmatch(beside, file.new) is not None


def _is_prepared(path: str, state: str) -> bool:
    """True for a path below the state folder that no link leads to."""
    if not _PREPARED.fullmatch(path):
        return False
    above, name = os.path.split(os.path.join(state, path))
    if name in (".", ".."):
        return False
    return os.path.realpath(above) == above


def _prepare(root: str, path: str, data: bytes | None) -> _FileMove:
    """Writes the new content of a file beside it."""
    if data is None:
        return _FileMove(_below(root, path), "")
    folder, name = os.path.split(path)
    prepared = os.path.join(folder, f".{name}.new-{os.urandom(6).hex()}")
    write_whole(prepared, data)
    return _FileMove(_below(root, path), _below(root, prepared))


def _below(root: str, path: str) -> str:
    """Returns the path relative to the root, with forward slashes."""
    relative = os.path.relpath(path, root)
    return relative.replace(os.sep, "/")


def _find_bytes(path: str) -> bytes | None:
    try:
        return read_regular(path, 64 << 20, follow=True)
    except FileNotFoundError:
        return None


# --- locks ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(path: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Holds a lock file. SwapBusy if another process holds it for longer than `wait_s`."""
    flags = os.O_RDWR | os.O_CREAT
    flags |= getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0)
    fd = os.open(path, flags, 0o600)
    try:
        until = time.monotonic() + wait_s
        while not _lock(fd):
            if time.monotonic() >= until:
                raise SwapBusy(11, "another process is at work there", path)
            time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no flock: two installations at once can disturb each other there
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_tree(path: str) -> None:
    """Removes a folder as far as possible. One that is too deep for that stays."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(root: str) -> None:
    """Removes what ended processes left. The caller holds the lock of the root."""
    state = os.path.join(root, STATE)
    for name in os.listdir(state):
        path = os.path.join(state, name)
        if _STAGED.fullmatch(name) and not os.path.islink(path):
            with contextlib.suppress(SwapBusy, OSError), _held(os.path.join(path, "lock")):
                remove_tree(path)
    _remove_halves(state, _HALF_OF_STATE)
    above, name = os.path.split(root)
    for folder in (root, above) if name == "skills" else (root,):
        _remove_halves(folder, _HALF_BESIDE)
        _remove_halves(folder, _HALF_OF_HALF)


def _remove_halves(folder: str, names: re.Pattern[str]) -> None:
    """Removes files that were not written to their end."""
    for name in os.listdir(folder):
        if names.fullmatch(name):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))
