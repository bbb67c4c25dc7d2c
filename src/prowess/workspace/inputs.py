"""Copies inputs into the workspace before a run. Each source must be readable, and each target is in the workspace.

artifact://name[@version]    from the artifact store; with `pin`, always the version that was used first
host:///abs                  only below `workspace.host_roots`; a file that the user names needs no root
workspace://rel              from this workspace
skill://name/rel             from a staged skill
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from prowess._internal.paths import inside, is_inside
from prowess.errors import PathEscape, WorkspaceError
from prowess.workspace.dirfd import open_child, open_folder, walk
from prowess.workspace.layout import Layout

MAX_INPUT_BYTES = 1024 * 1024 * 1024
_CHUNK = 1 << 20
_VARIABLES = {"WORK_DIR": "work", "OUTPUT_DIR": "out", "WORKSPACE_DIR": "."}


class Input(NamedTuple):
    source: str  # `from` in the documents
    to: str | None = None
    mode: Literal["copy", "link"] = "copy"
    pin: bool = False


class Staged(NamedTuple):
    source: str
    to: str  # relative to the workspace
    size_bytes: int
    files: int
    note: str | None = None


class InputPlaces(NamedTuple):
    """Sources that inputs of this run may use, and the owner of the copies."""

    layout: Layout
    host_roots: Sequence[str] = ()
    skills: Callable[[str], str] | None = None  # a skill's name -> its published tree
    artifact: Callable[[str], Iterable[bytes]] | None = None  # name[@version] -> its content
    uid: int | None = None  # owner of the copies


def stage_input(wanted: Input, places: InputPlaces) -> Staged:
    scheme, mark, rest = wanted.source.partition("://")
    if not mark:
        raise _refused(wanted.source, "names no scheme", "Write artifact://, host://, workspace:// or skill://.")
    if scheme == "artifact":
        return _stage_artifact(wanted, rest, places)
    if scheme == "host":
        source = _host_source(wanted.source, rest, places.host_roots)
        return _stage_path(wanted, "/", source[1:], places)
    if scheme == "workspace":
        rest = posixpath.normpath(rest)
        inside(places.layout.root, rest)
        if wanted.mode == "link":
            return _stage_link(wanted, rest, places)
        return _stage_path(wanted, places.layout.root, rest, places)
    if scheme == "skill":
        name, _, path = rest.partition("/")
        if places.skills is None:
            raise _refused(wanted.source, "names a skill, and none is staged", "Load the skill first.")
        return _stage_path(wanted, places.skills(name), path, places)
    raise _refused(wanted.source, f"has the unknown scheme '{scheme}'", "Use artifact, host, workspace or skill.")


def stage_granted(path: str, to: str | None, layout: Layout, uid: int | None = None) -> Staged:
    """Copies a file or folder that the user named. Naming it is the permission, so it may be anywhere."""
    name = os.path.basename(os.path.abspath(path))  # as given, even if it is a link
    wanted = Input(f"host://{path}", to or f"work/inputs/{name}")
    places = InputPlaces(layout, uid=uid)
    return _stage_path(wanted, "/", os.path.realpath(path)[1:], places)


def input_target(wanted: Input) -> str:
    """Returns the target of an artifact in the workspace: `to`, else its name without the version."""
    name, mark, version = wanted.source.rpartition("@")
    source = name if mark and version.isdigit() else wanted.source
    source = source.removeprefix("artifact://").removeprefix("user:")
    return _target(wanted, posixpath.basename(source))


def _host_source(given: str, rest: str, roots: Sequence[str]) -> str:
    path = os.path.realpath("/" + rest.lstrip("/"))
    if not any(is_inside(os.path.realpath(root), path) for root in roots):
        message = f"'{given}' is not below a folder that this configuration opens to skills."
        hint = "A person can allow its folder under workspace.host_roots, or give the file with --input."
        raise PathEscape(message, op="inputs", code="host-not-allowed", hint=hint)
    return path


def _stage_artifact(wanted: Input, rest: str, places: InputPlaces) -> Staged:
    if places.artifact is None:
        raise _refused(wanted.source, "names an artifact, and there is no artifact store", "Configure artifacts.")
    target = input_target(wanted)
    size = _write(places, target, places.artifact(rest))
    return Staged(wanted.source, target, size, 1)


def _stage_path(wanted: Input, root: str, rel: str, places: InputPlaces) -> Staged:
    """Copies a file or folder below `root` without following links. A script may run at the same time and plant a link
    to a file that only we can read."""
    folder, _, name = rel.rstrip("/").rpartition("/")
    target = _target(wanted, name or os.path.basename(root))
    note = "It was copied: a link to it would not be seen by the run." if wanted.mode == "link" else None
    try:
        with open_folder(root, folder) as fd:
            if name == ".":
                return _stage_folder(wanted, root, "", target, places, note)
            if not name or stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                return _stage_folder(wanted, root, rel, target, places, note)
            with open(open_child(fd, name, rel), "rb") as file:
                _check_size(wanted.source, os.fstat(file.fileno()).st_size)
                size = _write(places, target, iter(lambda: file.read(_CHUNK), b""))
    except FileNotFoundError:
        raise _refused(wanted.source, "does not exist", "Check the path.") from None
    except PermissionError as error:
        raise _refused(wanted.source, "cannot be read", f"{error.strerror}: give us the right to read it.") from None
    return Staged(wanted.source, target, size, 1, note)


def _stage_folder(wanted: Input, root: str, rel: str, target: str, places: InputPlaces, note: str | None) -> Staged:
    if root == places.layout.root and f"{target}/".startswith(f"{rel}/"):
        raise _refused(wanted.source, "would be copied into itself", "Name another place with `to`.")
    total = files = 0
    for _, status, *_ in walk(root, rel):  # so that nothing is copied of a folder that is too large
        total += status.st_size if stat.S_ISREG(status.st_mode) else 0
        _check_size(wanted.source, total)
    total = 0
    skipped: list[str] = []
    for path, status, folder_fd, name in walk(root, rel):
        below = path[len(rel) :].lstrip("/")
        if stat.S_ISREG(status.st_mode):
            with open(open_child(folder_fd, name, path), "rb") as file:
                total += _write(places, f"{target}/{below}", iter(lambda file=file: file.read(_CHUNK), b""), total)
            files += 1
        elif not stat.S_ISDIR(status.st_mode):
            skipped.append(below)
    if skipped:
        note = f"{len(skipped)} links or special files were left out, the first: {skipped[0]}"
    return Staged(wanted.source, target, total, files, note)


def _stage_link(wanted: Input, rest: str, places: InputPlaces) -> Staged:
    """Makes a link to a file of the workspace. The link is relative, so it works wherever the workspace is mounted."""
    target = _target(wanted, posixpath.basename(rest.rstrip("/")))
    folder, _, name = target.rpartition("/")
    with open_folder(places.layout.root, folder, make=True, uid=places.uid) as fd:
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass
        os.symlink(posixpath.relpath(rest, folder or "."), name, dir_fd=fd)
    return Staged(wanted.source, target, 0, 1)


def _target(wanted: Input, basename: str) -> str:
    given = wanted.to.removeprefix("workspace://") if wanted.to else f"work/inputs/{basename}"
    target = posixpath.normpath(given)
    for variable, folder in _VARIABLES.items():
        for form in (f"${variable}", f"${{{variable}}}"):
            if target == form or target.startswith(form + "/"):
                target = folder + target[len(form) :]
    target = posixpath.normpath(target)
    if "\0" in target:
        raise _refused(wanted.to or basename, "holds a NUL", "Leave it out.")
    top = target.split("/")[0]
    if top == "inputs":  # the file tools read it the same way
        target = f"work/{target}"
    elif top not in ("work", "out") or target in ("work", "out"):
        raise WorkspaceError(
            f"An input cannot go to '{wanted.to}': inputs are put below work/ or out/.",
            op="inputs",
            code="input-target",
            hint="Such as work/inputs/data.csv.",
        )
    return target


def _write(places: InputPlaces, target: str, chunks: Iterable[bytes], before: int = 0) -> int:
    folder, _, name = target.rpartition("/")
    size = 0
    with open_folder(places.layout.root, folder, make=True, uid=places.uid) as folder_fd:
        try:
            os.unlink(name, dir_fd=folder_fd)  # never write through an existing file: it may be a link
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            raise _refused(target, "would replace a folder", "Name another place with `to`.") from None
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder_fd)
        with open(fd, "wb") as file:
            if places.uid is not None:
                os.fchown(fd, places.uid, places.uid)
            for chunk in chunks:
                size += len(chunk)
                _check_size(target, before + size)  # it grew
                file.write(chunk)
    return size


def _check_size(what: str, size: int) -> None:
    if size > MAX_INPUT_BYTES:
        raise _refused(what, f"has more than {MAX_INPUT_BYTES} bytes", "Give a smaller part of it.")


def _refused(what: str, problem: str, hint: str) -> WorkspaceError:
    message = f"The input '{what}' {problem}."
    return WorkspaceError(message, op="inputs", code="input-refused", hint=hint)
