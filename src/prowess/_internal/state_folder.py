"""Finds the folder where Prowess keeps what it writes for itself, and makes folders in it.

It lies in the person's home, never in a project: what a project ships is never read back as our own.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Literal

from prowess._internal.files import check_owner, read_regular, write_whole
from prowess.errors import ConfigError, StoreError

RUN_DATA = (
    "/runs/",
    "/artifacts*/",
    "/eval-runs*/",
    "/prowess.db*",
)  # copies of runs; the others are of releases before
_HEADER = "# Written by prowess: what a machine makes, not what a project is."
_MOST_BYTES = 64 * 1024
PROJECTS = "projects"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
GITIGNORE = "\n".join((_HEADER, *RUN_DATA, ""))
_WHERE_TO_STORE = (
    "Use a path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, memory:, or none. "
    "A folder of such a name is written ./NAME."
)


def find_state_dir(environ: Mapping[str, str], cwd: str) -> str:
    """Returns the person's state folder: `$PROWESS_STATE_DIR`, else `.prowess` in `$PROWESS_HOME`, else in the home.

    ConfigError if it lies in a project or a repository: whoever ships that folder could write our state.
    """
    own_home = find_own_home(environ)
    named = environ.get("PROWESS_STATE_DIR", "").strip()
    home = environ.get("PROWESS_HOME", "").strip()
    folder = named or os.path.join(home or own_home, ".prowess")
    if folder == "~" or folder.startswith(("~/", f"~{os.sep}")):
        folder = own_home + folder[1:]
    if not os.path.isabs(own_home) and not os.path.isabs(folder) and not named:
        return os.path.join(os.devnull, ".prowess")  # no home: nothing is read there, and nothing can be written
    folder = os.path.normpath(os.path.join(cwd, folder))
    top = os.path.realpath(own_home)
    for above in _upwards(os.path.realpath(folder)):
        if above == top:  # a home folder may be a repository of the person's own files
            break
        if any(os.path.lexists(os.path.join(above, name)) for name in (".agent", ".git")):
            variable = "PROWESS_STATE_DIR" if named else "PROWESS_HOME"
            raise ConfigError(
                f"The state folder {folder} lies in the project or repository {above}.",
                code="state-in-project",
                hint=f"Set {variable} to a folder outside: what a project ships must not be our own state.",
            )
    return folder


def find_state(state_dir: str, project: str) -> str:
    """Returns the folder of a project's state, or the state folder itself without a project. Makes nothing."""
    if not os.path.isdir(os.path.join(project, ".agent")):
        return state_dir
    real = os.path.realpath(project)
    digest = sha256(os.fsencode(real)).hexdigest()[:32]
    return os.path.join(state_dir, PROJECTS, f"{_UNSAFE.sub('-', os.path.basename(real))[:40]}-{digest}")


def store_below(store: str, folder: str) -> str:
    """Returns a store with a relative path as the path below the folder; any other as it is."""
    prefix = "sqlite:///" if store.startswith("sqlite:///") else ""
    path = store.removeprefix(prefix)
    is_word = not prefix and (find_scheme(path) or find_meant("store", path))
    if is_word or not path or path.startswith("~") or os.path.isabs(path):
        return store
    return prefix + os.path.join(folder, path)


def find_own_home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    while folder != (folder := os.path.dirname(folder)):
        yield folder


def make_state_dir(state_dir: str) -> str:
    """Makes the state folder, and returns its real path. A link of the person is followed here, and nowhere below."""
    real = os.path.realpath(state_dir)
    try:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        make_own_folder(real)
    except OSError as error:
        raise state_unavailable(state_dir, error) from error
    return real


def make_own_folder(path: str) -> None:
    """Makes a folder that only its owner can enter. OSError if there is a link, a file, or a folder of another user."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "it is a link or a file, and no folder")
    check_owner(path)
    if found.st_mode & 0o077:
        os.chmod(path, 0o700)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(13, "it cannot be written")


def state_unavailable(folder: str, error: OSError) -> StoreError:
    why = (error.strerror or str(error)).lower()
    return StoreError(
        f"The state folder {folder} cannot be used: {why}.",
        code="state-unavailable",
        hint='Set PROWESS_STATE_DIR to a folder of yours that can be written, or keep no record: store = "memory:".',
    )


def artifacts_folder(text: str, base: str, home: str) -> str:
    """Returns the folder that the setting `artifacts` names: a path, or `file:` and a path. A relative path is below
    `base`."""
    path = text.removeprefix("file:")
    if path.startswith("//"):
        from urllib.parse import unquote  # imported late: reading the configuration does not need it

        path = unquote(path.removeprefix("//localhost").removeprefix("//"))
        if not path.startswith("/"):
            path = ""  # a folder on another machine
    scheme = find_scheme(path)
    meant = find_meant("artifacts", text)
    if meant:
        raise _no_folder(f"is {text!r}", meant)
    if scheme:
        raise _no_folder(f"begins with {scheme!r}", _WHERE_TO_STORE)
    if not path:
        raise _no_folder("is no path", _WHERE_TO_STORE)
    if path == "~" or path.startswith(("~/", f"~{os.sep}")):
        path = home + path[1:]
    return os.path.normpath(os.path.join(base, path))


def _no_folder(why: str, hint: str) -> ConfigError:
    message = f"The setting artifacts {why}. Artifacts cannot be stored there."
    return ConfigError(message, code="artifacts-unknown", hint=hint)


_NOTHING = ("", "none", "null", "nil", "no", "off", "false", "nothing", "disabled")


def find_meant(setting: Literal["store", "artifacts"], text: str) -> str | None:
    """Returns a hint with the right value for a word that is close to one (`None`, `off`, `memory`), or None for a
    path."""
    word = text.strip().lower().rstrip(":")
    if word != "memory" and word not in _NOTHING:
        return None
    if setting == "artifacts" and word != "memory":
        write = 'artifacts = "none" (nothing is kept)'
    else:
        write = f'{setting} = "memory:" (kept until the process ends)'
    path = f" Write a path of this name as ./{text}." if word else ""
    return f"Write {write}, or leave {setting} out: then it is kept in its default place.{path}"


def find_scheme(text: str) -> str | None:
    """Returns `foo:` for an address `foo://x` or `foo:`, and None for a path. One letter and a colon is a Windows
    drive."""
    found = re.match(r"(?![.~])(?:[^/\\:]{2,}+|[^/\\:](?=://)):", text)
    return found[0][-20:] if found else None


def ensure_ignored(folder: str) -> None:
    """Writes `.gitignore` before the first write into a project's `.agent/`. An older file that Prowess wrote gets the
    missing lines; a file that somebody else wrote stays unchanged."""
    path = os.path.join(folder, ".gitignore")
    if os.path.basename(folder) != ".agent":
        return
    if not os.path.lexists(path):
        write_whole(path, f"{GITIGNORE}/.gitignore\n".encode())
        return
    try:
        text = read_regular(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError):  # a link, a folder or another encoding: Prowess did not write it
        return
    lines = text.splitlines()
    missing = [line for line in RUN_DATA if line not in lines]
    if missing and lines[:1] == [_HEADER] and len(text) < _MOST_BYTES:
        write_whole(path, "\n".join((*lines, *missing, "")).encode())
