"""Where a project keeps what its runs leave behind, and that version control does not pick it up."""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import unquote

from prowess._internal.files import read_regular, write_whole
from prowess.errors import ConfigError

RUN_DATA = ("/runs/", "/artifacts/", "/prowess.db*")
_HEADER = "# Written by prowess: what a machine makes, not what a project is."
_MOST_BYTES = 64 * 1024
GITIGNORE = "\n".join((_HEADER, *RUN_DATA, ""))


def state_folder(project: str, state_dir: str) -> str:
    """A project's own `.agent/`, else the user's folder."""
    own = os.path.join(project, ".agent")
    return own if os.path.isdir(own) else state_dir


def artifacts_folder(text: str, base: str, home: str) -> str:
    """The folder that the setting `artifacts` names: a path, or `file:` and a path; a relative one is below `base`."""
    path = text.removeprefix("file:")
    if path.startswith("//"):
        path = unquote(path.removeprefix("//localhost").removeprefix("//"))
        path = path if path.startswith("/") else ""  # a folder of another machine
    scheme, meant = find_scheme(path), find_meant("artifacts", text)
    if scheme or meant or not path:
        begins = f" is {text!r}" if meant else f" begins with {scheme!r}" if scheme else " is no path"
        raise ConfigError(
            f"The setting artifacts{begins}, where artifacts cannot be kept.",
            code="artifacts-unknown",
            hint=meant
            or "Use a path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, memory:, or none. "
            "A folder of such a name is written ./NAME.",
        )
    if path == "~" or path.startswith(("~/", f"~{os.sep}")):
        path = home + path[1:]
    return os.path.normpath(os.path.join(base, path))


_NOTHING = ("", "none", "null", "nil", "no", "off", "false", "nothing", "disabled")


def find_meant(setting: Literal["store", "artifacts"], text: str) -> str | None:
    """Hint with the value to write, for a word that is near it (`None`, `off`, `memory`); None of a path."""
    word = text.strip().lower().rstrip(":")
    if word != "memory" and word not in _NOTHING:
        return None
    if setting == "artifacts" and word != "memory":
        write = 'artifacts = "none" (nothing is kept)'
    else:
        write = f'{setting} = "memory:" (kept until the process ends)'
    path = f" A path of that name is written ./{text}." if word else ""
    return f"Write {write}, or leave {setting} out: then it is kept in its default place.{path}"


def find_scheme(text: str) -> str | None:
    """`foo:` of an address `foo://x` or `foo:`; None of a path. One letter and a colon is a drive."""
    found = re.match(r"(?![.~])(?:[^/\\:]{2,}+|[^/\\:](?=://)):", text)
    return found[0][-20:] if found else None


def ensure_ignored(folder: str) -> None:
    """The first write into a project's `.agent/` says what of it is not to be committed. A file of ours that is older
    gets the lines it lacks; anybody else's stays as it is."""
    path = os.path.join(folder, ".gitignore")
    if os.path.basename(folder) != ".agent":
        return
    if not os.path.lexists(path):
        write_whole(path, f"{GITIGNORE}/.gitignore\n".encode())
        return
    try:
        text = read_regular(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError):  # a link, a folder, another encoding: not ours
        return
    lines = text.splitlines()
    missing = [line for line in RUN_DATA if line not in lines]
    if missing and lines[:1] == [_HEADER] and len(text) < _MOST_BYTES:
        write_whole(path, "\n".join((*lines, *missing, "")).encode())
