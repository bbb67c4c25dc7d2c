"""Files between a person's machine and a workspace: attached to a request, copied from a run, written where named.

A request names files as `@sales.csv` or `@"my file.csv"`. Naming a file is the permission to copy it. The text keeps
the plain name, which is also the name of the input. A word with @ that names no file stays text, unless it looks like a
path: that is most likely a mistake, so it is an error.

A file is written whole or not at all, and replaced only with `force`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

from prowess._internal.named_paths import check_input
from prowess._internal.paths import is_inside
from prowess._internal.text import name_some
from prowess.errors import ConfigError, ProwessError, WorkspaceError, in_one_line
from prowess.workspace.dirfd import open_file
from prowess.workspace.export import find_acting_part, find_outside, is_named, is_unused, open_outside

_MARK = re.compile(
    r"""\\@                                   # a plain @
      | (?<![^\s(\[{"'“‘«])@(?:"(?P<double>[^"\n]+)"|'(?P<single>[^'\n]+)'|(?P<word>[^\s"']+))""",
    re.VERBOSE,
)
_AFTER = ".,;:!?)]}>\"'”’»…。，、；：！？）」』】"  # may follow a file's name in a sentence
_PATH = re.compile(r".*/.*|.*\.\w{1,8}", re.DOTALL)

InputFile = tuple[str, str | None]  # (path on this machine, place in the workspace)


def check_inputs(cwd: str, files: Sequence[InputFile]) -> None:
    """ConfigError if a link of a clone leads to a file, or if two files would have one place in the workspace."""
    paths: dict[str, str] = {}  # place -> path
    for path, to in files:
        check_input(cwd, path)
        path = os.path.abspath(path)
        place = posixpath.normpath(to or f"work/inputs/{os.path.basename(path)}")
        other = paths.setdefault(place, path)
        if other != path:
            message = f"'{other}' and '{path}' would both be {place}."
            raise ConfigError(message, code="inputs-collide", hint="Rename one.")


class Attached(NamedTuple):
    text: str
    files: tuple[InputFile, ...]


def find_attachments(text: str, cwd: str, home: str = "~", taken: Collection[str] = ()) -> Attached:
    """Returns the text with plain names, and the files. `taken` are names that other inputs already have."""
    files: dict[str, str] = {}  # path -> name
    used = set(taken)

    def replace(found: re.Match[str]) -> str:
        if found[0] == r"\@":
            return "@"
        quoted = found["double"] or found["single"]
        name, after = _find(quoted, found["word"], cwd, home)
        if name is None:
            return found[0]
        path = _resolve(name, cwd, home)
        if path not in files:
            check_input(cwd, path)
            own_name = os.path.basename(os.path.abspath(path))
            files[path] = _free_name(own_name, used)
        return files[path] + after

    changed = _MARK.sub(replace, text)
    inputs = [(path, f"work/inputs/{name}") for path, name in files.items()]
    return Attached(changed, tuple(inputs))


def _find(quoted: str | None, word: str | None, cwd: str, home: str) -> tuple[str | None, str]:
    """Returns (file name, text after it). The name is None when the word is only text."""
    given = quoted or word or ""
    tried = [given]
    bare = given
    if not quoted:
        tried = [given[:end] for end in _ends(given)]
        bare = given.rstrip(_AFTER)
    for name in tried:
        if name.strip(".") and os.path.lexists(_resolve(name, cwd, home)):
            return name, given[len(name) :]
    if quoted or (bare and _PATH.fullmatch(bare)):
        hint = f"Check the path; if it is only text, write \\@{bare[:60]}"
        raise ConfigError(f"There is no file '{bare[:200]}'.", code="no-file", hint=hint)
    return None, ""


def _ends(word: str) -> Sequence[int]:
    """Returns the ends to try: of the whole word first, then with less and less of its punctuation."""
    bare = word.rstrip(_AFTER)
    return range(len(word), len(bare) - 1, -1)


def _resolve(name: str, cwd: str, home: str) -> str:
    """Returns the path that a person means: relative to `cwd`, or with ~ for the home folder."""
    if name == "~" or name.startswith("~/"):
        below = name[1:]
        name = os.path.expanduser(home) + below
    return os.path.join(cwd, name)


def _free_name(name: str, used: set[str]) -> str:
    """Returns a name that no input has yet: a second `sales.csv` becomes `sales-2.csv`."""
    if not name:
        raise ConfigError("The whole machine cannot be attached.", code="no-file", hint="Name a folder below it.")
    stem, extension = os.path.splitext(name)
    free = name
    number = 1
    while free in used:
        number += 1
        free = f"{stem}-{number}{extension}"
    used.add(free)
    return free


# --- files that a person wants ----------------------------------------------------------------------------------------


class CopiedFiles(NamedTuple):
    targets: dict[str, str]  # path of the copy of each file
    warnings: tuple[str, ...]  # one for each file that was not copied
    notes: tuple[str, ...]  # these, and what a person should know about the copies

    @property
    def paths(self) -> list[str]:
        return [*self.targets.values()]


def copy_files(
    root: str,
    names: Sequence[str],
    *,
    cwd: str,
    folder: str,
    force: bool,
    searched: Sequence[str],
    patterns: Sequence[str] = (),
    is_over: Callable[[], bool] = lambda: False,
) -> CopiedFiles:
    """Copies files of a workspace to `folder`, without the out/ in front, until `is_over`.

    `patterns` are the person's own: a hidden file that only a model named is not copied. `searched` are the folders of
    skills.
    """
    targets: dict[str, str] = {}
    warnings: list[str] = []
    acting: list[str] = []
    unused: bool | None = None
    for name in names:
        if is_over():
            break
        below = name.removeprefix("out/")
        target = os.path.normpath(os.path.join(cwd, folder, below))
        try:
            if not is_named(name, patterns):
                raise WorkspaceError(_HIDDEN, op="write", code="hidden-file")
            if unused is None:
                unused = is_unused(cwd, folder)
            part = find_acting_part(cwd, folder, below, unused=unused, searched=searched, patterns=patterns)
            with (
                open_file(root, name) as fd,
                open(os.dup(fd), "rb") as made,
                open_outside(cwd, folder, below, force=force, make=True, mode=0o666) as out,
            ):
                shutil.copyfileobj(made, out)
            targets[name] = target
            if part:
                acting.append(target)
        except (OSError, ProwessError) as error:
            warnings.append(_why_not_written(target, error))
    notes = [*warnings]
    if acting:
        notes.append(f"Programs act on these by their names: {name_some(acting, 5, quote='')}.")
    return CopiedFiles(targets, tuple(warnings), tuple(notes))


def check_output_dir(output_dir: str | os.PathLike[str], workspaces: str) -> str:
    """Returns the path of a folder for files of a run, without links. It need not exist. ConfigError if it cannot be
    used, or is in the folder of all workspaces."""
    folder = os.path.expanduser(os.fspath(output_dir))
    try:
        if not folder:
            raise FileNotFoundError(errno.ENOENT, "it is empty")
        found = find_outside(os.getcwd(), folder)
        if is_inside(os.path.realpath(workspaces), found):
            raise PermissionError(errno.EACCES, "Prowess keeps its workspaces there")
        return found
    except (OSError, ProwessError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "message", "")
        why = why.rstrip(".")
        message = f"output_dir={folder[:200]!r} cannot be used: {why}."
        hint = "Give a folder, or a path where one can be made. Links below the current folder are not followed."
        raise ConfigError(message, code="output-dir-invalid", hint=hint) from None


def _why_not_written(target: str, error: OSError | ProwessError) -> str:
    strerror = getattr(error, "strerror", None)
    why = strerror or in_one_line(error)
    if why.startswith(target):
        return why
    return f"{target} was not written: {why}"


_HIDDEN = "its name begins with a dot, and you have not named it. Copy it yourself from the workspace if you want it."


@contextmanager
def open_target(cwd: str, target: str, force: bool, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Opens the file as `open_outside` does. The folder must exist."""
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise ConfigError(f"There is no folder {folder}.", code="no-folder", hint="Make it first.")
    with open_outside(cwd, folder, name, force=force, mode=mode) as file:
        yield file
