"""Finds the folder for the data of a project's runs, and keeps that data out of version control."""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import unquote

from prowess._internal.files import read_regular, write_whole
from prowess.errors import ConfigError

RUN_DATA = ("/runs/", "/artifacts/", "/eval-runs/", "/prowess.db*")
_HEADER = "# Written by prowess: what a machine makes, not what a project is."
_MOST_BYTES = 64 * 1024
GITIGNORE = "\n".join((_HEADER, *RUN_DATA, ""))
_WHERE_TO_STORE = (
    "Use a path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, memory:, or none. "
    "A folder of such a name is written ./NAME."
)


def state_folder(project: str, state_dir: str) -> str:
    """Returns the project's `.agent/` folder if it exists, else the user's state folder."""
    own = os.path.join(project, ".agent")
    return own if os.path.isdir(own) else state_dir


def artifacts_folder(text: str, base: str, home: str) -> str:
    """Returns the folder that the setting `artifacts` names: a path, or `file:` and a path. A relative path is below
    `base`."""
    path = text.removeprefix("file:")
    if path.startswith("//"):
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
