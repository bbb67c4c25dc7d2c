"""Inputs are copied into the workspace before a run, each from a place that may be read and to a place inside it.

artifact://name[@version]    from the artifact store; pinned to the version it first meant, when asked
host:///abs                  only below `workspace.host_roots`; files a person names come by that grant
workspace://rel              from this workspace
skill://name/rel             from a staged skill
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from prowess._paths import inside, is_inside
from prowess.errors import PathEscape, WorkspaceError
from prowess.workspace.beneath import open_folder, walk
from prowess.workspace.layout import Layout

MAX_INPUT_BYTES = 1024 * 1024 * 1024
_CHUNK = 1 << 20


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


class Places(NamedTuple):
    """Where an input may come from in this run."""

    layout: Layout
    host_roots: Sequence[str] = ()
    skills: Callable[[str], str] | None = None  # a skill's name -> its published tree
    artifact: Callable[[str, bool, str], tuple[str, bytes]] | None = (
        None  # (name[@version], pin, to) -> (name, content)
    )


def stage_input(wanted: Input, places: Places) -> Staged:
    scheme, mark, rest = wanted.source.partition("://")
    if not mark:
        raise _refused(wanted.source, "names no scheme", "Write artifact://, host://, workspace:// or skill://.")
    if scheme == "artifact":
        return _stage_artifact(wanted, rest, places)
    if scheme == "host":
        source = _host_source(wanted.source, rest, places.host_roots)
        return _stage_path(wanted, source, places)
    if scheme == "workspace":
        source = inside(places.layout.root, rest)
        if wanted.mode == "link":
            return _stage_link(wanted, rest, places)
        return _stage_path(wanted, source, places)
    if scheme == "skill":
        name, _, path = rest.partition("/")
        if places.skills is None:
            raise _refused(wanted.source, "names a skill, and none is staged", "Load the skill first.")
        return _stage_path(wanted, inside(places.skills(name), path or "."), places)
    raise _refused(wanted.source, f"has the unknown scheme '{scheme}'", "Use artifact, host, workspace or skill.")


def stage_granted(path: str, to: str | None, layout: Layout) -> Staged:
    """A file or folder that a person named: copied by that grant, wherever it is."""
    return _stage_path(Input(f"host://{path}", to), os.path.realpath(path), Places(layout))


def _host_source(given: str, rest: str, roots: Sequence[str]) -> str:
    path = os.path.realpath("/" + rest.lstrip("/"))
    if not any(is_inside(os.path.realpath(root), path) for root in roots):
        raise PathEscape(
            f"'{given}' is not below a folder that this configuration opens to skills.",
            op="inputs",
            code="host-not-allowed",
            hint="A person can allow its folder under workspace.host_roots, or give the file with --input.",
        )
    return path


def _stage_artifact(wanted: Input, rest: str, places: Places) -> Staged:
    if places.artifact is None:
        raise _refused(wanted.source, "names an artifact, and there is no artifact store", "Configure artifacts.")
    to = wanted.to or f"work/inputs/{posixpath.basename(rest.partition('@')[0])}"
    name, content = places.artifact(rest, wanted.pin, to)
    target = _target(wanted, posixpath.basename(name))
    _write(places.layout, target, [content])
    return Staged(wanted.source, target, len(content), 1)


def _stage_path(wanted: Input, source: str, places: Places) -> Staged:
    target = _target(wanted, os.path.basename(source.rstrip("/")))
    note = "It was copied: a link to it would not be seen by the run." if wanted.mode == "link" else None
    try:
        mode = os.stat(source).st_mode
        if stat.S_ISDIR(mode):
            return _stage_folder(wanted, source, target, places.layout, note)
        if not stat.S_ISREG(mode):
            raise _refused(wanted.source, "is neither a file nor a folder", "Name a regular file.")
        with open(source, "rb") as file:
            size = _write(places.layout, target, iter(lambda: file.read(_CHUNK), b""))
    except FileNotFoundError:
        raise _refused(wanted.source, "does not exist", "Check the path.") from None
    return Staged(wanted.source, target, size, 1, note)


def _stage_folder(wanted: Input, source: str, target: str, layout: Layout, note: str | None) -> Staged:
    total = files = 0
    skipped: list[str] = []
    for rel, status, folder_fd, name in walk(source):
        if stat.S_ISREG(status.st_mode):
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder_fd), "rb") as file:
                total += _write(layout, f"{target}/{rel}", iter(lambda file=file: file.read(_CHUNK), b""), total)
            files += 1
        elif not stat.S_ISDIR(status.st_mode):
            skipped.append(rel)
    if skipped:
        note = f"{len(skipped)} links or special files were left out, the first: {skipped[0]}"
    return Staged(wanted.source, target, total, files, note)


def _stage_link(wanted: Input, rest: str, places: Places) -> Staged:
    """Within the workspace a link is feasible: relative, so that it holds wherever the workspace is mounted."""
    target = _target(wanted, posixpath.basename(rest.rstrip("/")))
    folder, _, name = target.rpartition("/")
    with open_folder(places.layout.root, folder, make=True) as fd:
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass
        os.symlink(posixpath.relpath(rest, folder or "."), name, dir_fd=fd)
    return Staged(wanted.source, target, 0, 1)


def _target(wanted: Input, basename: str) -> str:
    target = posixpath.normpath(wanted.to.removeprefix("workspace://") if wanted.to else f"work/inputs/{basename}")
    for variable, folder in (("$WORK_DIR", "work"), ("${WORK_DIR}", "work"), ("$OUTPUT_DIR", "out")):
        if target == variable or target.startswith(variable + "/"):
            target = folder + target[len(variable) :]
    top = target.split("/")[0]
    if top == "inputs":  # as the file tools understand it
        target = f"work/{target}"
    elif top not in ("work", "out") or target in ("work", "out"):
        raise PathEscape(
            f"'{wanted.to}' is not a place for inputs.",
            op="inputs",
            hint="Use a path below work/ or out/, for instance work/inputs/data.csv.",
        )
    return target


def _write(layout: Layout, target: str, chunks: Iterable[bytes], before: int = 0) -> int:
    folder, _, name = target.rpartition("/")
    size = 0
    with open_folder(layout.root, folder, make=True) as folder_fd:
        try:
            os.unlink(name, dir_fd=folder_fd)  # never written through: what is there may be a link
        except FileNotFoundError:
            pass
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder_fd)
        with open(fd, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if before + size > MAX_INPUT_BYTES:
                    raise _refused(target, f"has more than {MAX_INPUT_BYTES} bytes", "Give a smaller part of it.")
                file.write(chunk)
    return size


def _refused(what: str, problem: str, hint: str) -> WorkspaceError:
    return WorkspaceError(f"The input '{what}' {problem}.", op="inputs", code="input-refused", hint=hint)
