"""Publishes skills as read-only trees named by digest, and removes trees. Bodies, docs and runs read from a tree.

`publish` copies exactly the files that the skill had when it was loaded, and checks their sha256. A tree appears whole
or not at all, also when several processes publish it at the same time. The source is only read.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from prowess._internal.files import make_passable, open_regular
from prowess._internal.paths import inside
from prowess.core.findings import Note
from prowess.errors import WorkspaceError
from prowess.skills.skill import WORKSPACE_NAMES, Skill, SkillFile, shipped_folders

SHIPPED = "_shipped"  # a folder of the skill named like a workspace folder (such as out/) is readable below this name
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DEEPEST = 64
_MOST_TRIES = 100


class Tree(NamedTuple):
    path: str
    digest: str
    notes: tuple[Note, ...] = ()


def publish(skill: Skill, store: str) -> Tree:
    """Returns the skill's tree in `store`. Publishes it if it is not there yet."""
    target = os.path.join(store, skill.digest.removeprefix("sha256:"))
    notes = tuple(Note("shipped-folder", None, {"folder": folder}) for folder in shipped_folders(skill))
    if _is_published(skill, target):
        return Tree(target, skill.digest, notes)
    temporary = _begin(store)
    lock = lock_folder(temporary, fcntl.LOCK_SH)  # so clean-up sees that it is in use
    try:
        for file in skill.files:
            _copy(skill, file, os.path.join(temporary, *_place(file.path).split("/")))
        for name in WORKSPACE_NAMES:
            os.mkdir(os.path.join(temporary, name))
        _make_read_only(temporary)
        while not _renamed(temporary, target):
            if _is_published(skill, target):  # by another process
                remove_tree(temporary)
                break
    except BaseException:
        remove_tree(temporary)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    return Tree(target, skill.digest, notes)


def _is_published(skill: Skill, target: str) -> bool:
    """Returns True if the skill's tree is there, and False if it is not, or is removed while it is compared.

    Raises when it no longer matches its digest. A program of the same user could have changed it, and its files would
    run with the approval of the original.
    """
    try:
        fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        changed = _find_change(skill, target)
        if changed is not None and not _is_at(fd, target):
            return False
    finally:
        os.close(fd)
    if changed is not None:
        message = f"The published copy of the skill '{skill.name}' was changed: {changed}."
        hint = f"Find out who wrote there; then remove it, and it is published anew: {target}"
        raise WorkspaceError(message, op="stage", code="published-changed", hint=hint)
    return True


def _find_change(skill: Skill, target: str) -> str | None:
    """Returns a file that the tree has too much, too little or with other content."""
    found: set[str] = set()
    for top, folders, names in os.walk(target):
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        found |= {_relative(top, name, target) for name in (*names, *links)}
    wanted = {_place(file.path): file for file in skill.files}
    extra = sorted(found ^ wanted.keys())
    if extra:
        return extra[0]
    changed = (path for path, file in wanted.items() if _sha256(os.path.join(target, path)) != file.sha256)
    return next(changed, None)


def _is_at(fd: int, path: str) -> bool:
    """True while the open folder has this path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _renamed(temporary: str, target: str) -> bool:
    """Moves the tree to its place. Returns False when one is there."""
    try:
        os.rename(temporary, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _relative(top: str, name: str, root: str) -> str:
    path = os.path.join(top, name)
    return os.path.relpath(path, root).replace(os.sep, "/")


def _sha256(path: str) -> str | None:
    try:
        with open(open_regular(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _begin(store: str) -> str:
    """Creates a new folder in the store, and the store if needed."""
    try:
        make_passable(store)
        return tempfile.mkdtemp(dir=store, prefix=".new-")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"Skills cannot be published in {store}: {reason}."
        hint = "Name a folder that can be written to and has room: workspace.dir."
        raise WorkspaceError(message, op="stage", code="workspace-dir", hint=hint) from error


def copy_tree(tree: Tree, target: str, arrange: Callable[[str], None] | None = None) -> None:
    """Copies a tree for executors that cannot bind-mount. The copy appears whole and replaces an older one.

    `arrange` gets the path of the copy while it is writable, to fill the empty folders of the published tree.
    """
    parent = os.path.dirname(target)
    temporary = tempfile.mkdtemp(dir=parent, prefix=".new-")
    try:
        shutil.copytree(tree.path, temporary, dirs_exist_ok=True, symlinks=True, copy_function=shutil.copy)
        if arrange is not None:
            mode = os.stat(temporary).st_mode
            os.chmod(temporary, 0o700)
            arrange(temporary)
            os.chmod(temporary, mode)
        try:
            os.rename(target, older := f"{temporary}.old")  # a rename keeps the gap short
        except FileNotFoundError:
            older = ""
        os.rename(temporary, target)
        remove_tree(older)
    except BaseException:
        remove_tree(temporary)
        raise


def remove_tree(path: str) -> None:
    """Removes a folder tree that a script may have written: closed folders, paths that are too long, links.

    Works by descriptor, so no link can redirect it. Does nothing when the folder does not exist.
    """
    parent, name = os.path.split(path.rstrip("/"))
    if not name:
        return
    try:
        above = os.open(parent or ".", _FOLDER)
    except FileNotFoundError:
        return
    try:
        _remove_below(above, name)
    finally:
        os.close(above)


def _remove_below(above: int, name: str) -> None:
    """Removes depth first, with one descriptor per level. Deeper folders are moved up and removed later. A name that is
    gone was removed by another process."""
    if _unlinked(above, name):
        return
    levels = [_Level(above, "")]
    again = 0
    try:
        _enter(levels, name)
        while len(levels) > 1:
            level = levels[-1]
            below = next((entry for entry in level.left if not _unlinked(level.fd, entry)), None)
            if below is not None and len(levels) < _DEEPEST:
                _enter(levels, below)
            elif below is not None:
                _enter(levels, below)  # moving a folder needs the right to write to it
                again -= _moved_up(levels, below)
            elif _emptied(levels[-2].fd, level.name):
                os.close(levels.pop().fd)
            else:
                again += 1
                if again > _MOST_TRIES:
                    raise OSError(errno.ENOTEMPTY, "somebody keeps on writing there", level.name)
                level.left = iter(os.listdir(level.fd))  # moved up by us, or created meanwhile
    finally:
        for level in levels[1:]:
            os.close(level.fd)


@dataclass(slots=True)
class _Level:
    """Folder that is being emptied, and the rest of its listing."""

    fd: int
    name: str
    left: Iterator[str] = field(default_factory=lambda: iter(()))


def _enter(levels: list[_Level], name: str) -> None:
    try:
        fd = _entered(levels[-1].fd, name)
        level = _Level(fd, name)
        levels.append(level)
        level.left = iter(os.listdir(fd))
    except FileNotFoundError:
        pass


def _moved_up(levels: list[_Level], name: str) -> bool:
    """Leaves the folder just entered and moves it up into the top folder. False when it is gone."""
    if levels[-1].name != name:
        return False
    os.close(levels.pop().fd)
    try:
        os.rename(name, f".{os.urandom(8).hex()}", src_dir_fd=levels[-1].fd, dst_dir_fd=levels[1].fd)
    except FileNotFoundError:
        return False
    return True


def _emptied(folder: int, name: str) -> bool:
    """Removes the folder. Returns False when it is not empty."""
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _unlinked(folder: int, name: str) -> bool:
    """Removes the file or link. Returns False when it is a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):  # PermissionError on macOS
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise
        except FileNotFoundError:
            return True
        return False
    return True


def _entered(folder: int, name: str) -> int:
    """Opens a folder and gives us the rights to list and change it."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        _open_up(folder, name)
        fd = os.open(name, _FOLDER, dir_fd=folder)
    if os.fstat(fd).st_mode & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    return fd


def _open_up(folder: int, name: str) -> None:
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
        return
    held = os.open(name, os.O_PATH | _FOLDER, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)  # exactly the open folder: the name could be a link by now
    finally:
        os.close(held)


def lock_folder(path: str, kind: int) -> int | None:
    """Locks the folder itself until the returned descriptor is closed. Returns None when it is locked or gone."""
    try:
        fd = os.open(path, _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        if _is_at(fd, path):
            return fd
    except BlockingIOError:
        pass
    os.close(fd)
    return None


def _place(path: str) -> str:
    if path.split("/")[0] in WORKSPACE_NAMES:
        return f"{SHIPPED}/{path}"
    return path


def _copy(skill: Skill, file: SkillFile, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    digest = hashlib.sha256()
    with open(target, "xb") as out:
        for chunk in _chunks(skill, file.path):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != file.sha256:
        message = f"'{file.path}' of the skill '{skill.name}' changed since the skill was loaded."
        hint = "Load the skill again to work with the new content."
        raise WorkspaceError(message, op="stage", code="resource-changed", hint=hint)
    mode = 0o555 if file.executable else 0o444
    os.chmod(target, mode)


def _chunks(skill: Skill, path: str) -> Iterator[bytes]:
    if skill.contents is not None:
        yield skill.contents[path]
        return
    assert skill.directory is not None
    with open(open_regular(inside(skill.directory, path)), "rb") as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def _make_read_only(path: str) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        os.chmod(folder, 0o555)  # noqa: S103 - the user of the script must be able to read it
