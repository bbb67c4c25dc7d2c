"""Reads the files that a person attaches, and writes the files that a person asks for.

A request names files as `@sales.csv` or `@"my file.csv"`; standard input can be one more. Naming a file is the
permission to copy it. The text keeps the plain name, which is also the name of the input. A word with @ that names no
file stays text, unless it looks like a path: that is most likely a mistake, so it is an error.

A file is written whole or not at all, and replaced only with --force. On a terminal its text is escaped.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

from prowess._internal.files import open_regular
from prowess._internal.mime import is_text
from prowess.cli.screen import printable
from prowess.errors import ConfigError, StoreError
from prowess.workspace.export import open_outside

LONGEST_REQUEST = 1 << 20
LONGEST_STDIN = 256 << 20
_MARK = re.compile(
    r"""\\@                                   # a plain @
      | (?<![^\s(\[{"'“‘«])@(?:"(?P<double>[^"\n]+)"|'(?P<single>[^'\n]+)'|(?P<word>[^\s"']+))""",
    re.VERBOSE,
)
_AFTER = ".,;:!?)]}>\"'”’»…。，、；：！？）」』】"  # may follow a file's name in a sentence
_PATH = re.compile(r".*/.*|.*\.\w{1,8}", re.DOTALL)
_PATIENCE_S = 1.0

Given = tuple[str, str | None]  # (path on this machine, place in the workspace)


class Attached(NamedTuple):
    text: str
    files: tuple[Given, ...]


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
            files[path] = _free_name(os.path.basename(os.path.abspath(path)), used)
        return files[path] + after

    changed = _MARK.sub(replace, text)
    return Attached(changed, tuple((path, f"work/inputs/{name}") for path, name in files.items()))


def _find(quoted: str | None, word: str | None, cwd: str, home: str) -> tuple[str | None, str]:
    """Returns (file name, text after it). The name is None when the word is only text."""
    given = quoted or word or ""
    tried = [given] if quoted else [given[:end] for end in _ends(given)]
    for name in tried:
        if name.strip(".") and os.path.lexists(_resolve(name, cwd, home)):
            return name, given[len(name) :]
    bare = given if quoted else given.rstrip(_AFTER)
    if quoted or (bare and _PATH.fullmatch(bare)):
        raise ConfigError(
            f"There is no file '{bare[:200]}'.",
            code="no-file",
            hint=f"Check the path; if it is only text, write \\@{bare[:60]}",
        )
    return None, ""


def _ends(word: str) -> Sequence[int]:
    """Returns the ends to try: of the whole word first, then with less and less of its punctuation."""
    return range(len(word), len(word.rstrip(_AFTER)) - 1, -1)


def _resolve(name: str, cwd: str, home: str) -> str:
    if name == "~" or name.startswith("~/"):
        name = os.path.expanduser(home) + name[1:]
    return os.path.join(cwd, name)


def _free_name(name: str, used: set[str]) -> str:
    """Returns a name that no input has yet: a second `sales.csv` becomes `sales-2.csv`."""
    if not name:
        raise ConfigError("The whole machine cannot be attached.", code="no-file", hint="Name a folder below it.")
    stem, extension = os.path.splitext(name)
    free, number = name, 1
    while free in used:
        number += 1
        free = f"{stem}-{number}{extension}"
    used.add(free)
    return free


# --- standard input ---------------------------------------------------------------------------------------------------


def has_stdin() -> bool:
    """True when standard input is a pipe, a file or a socket, and not a terminal or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed before we started, or not a file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_request() -> str:
    """Reads the request from standard input: UTF-8 text of at most LONGEST_REQUEST bytes."""
    data = _read(sys.stdin.buffer, LONGEST_REQUEST)
    if len(data) > LONGEST_REQUEST:
        raise ConfigError(
            f"A request of more than {LONGEST_REQUEST >> 20} MiB came on standard input.",
            code="stdin-too-large",
            hint='Add a request, and the input is attached as a file: … | prowess run "summarise this"',
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(
            "The request on standard input is not UTF-8 text.",
            code="stdin-not-text",
            hint='Add a request, and the input is attached as a file: … | prowess run "what is this?"',
        ) from None


def stage_stdin(folder: str) -> Given | None:
    """Saves standard input as a file in `folder`, to attach it to the request. None when it was empty."""
    data = _read(sys.stdin.buffer, LONGEST_STDIN)
    if not data:
        return None
    if len(data) > LONGEST_STDIN:
        raise ConfigError(
            f"Standard input has more than {LONGEST_STDIN >> 20} MiB.",
            code="stdin-too-large",
            hint="Write it to a file, and give that with --input.",
        )
    name = "stdin.txt" if _is_text(data) else "stdin.bin"
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path, f"work/inputs/{name}"


def _read(stream: IO[bytes], limit: int) -> bytes:
    """Reads everything, at most one byte over the limit. Says so when it has to wait for an open pipe."""
    if not select.select([stream], [], [], _PATIENCE_S)[0]:
        sys.stderr.write("Reading standard input … (if there is none: < /dev/null)\n")
        sys.stderr.flush()
    return stream.read(limit + 1)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


_MOST_STDIN_BYTES = 1 << 30


def decode_text(data: bytes, name: str) -> str:
    if not is_text(data, whole=True):
        raise needs_output(name)
    return data.decode()


async def print_text(content: AsyncIterator[bytes], name: str) -> None:
    """Prints text to a terminal, with control characters escaped."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace").decode
    begun = False
    async for piece in content:
        if not begun and not is_text(piece):
            raise needs_output(name)
        begun = True
        sys.stdout.write(printable(decode(piece), lines=True))
    sys.stdout.write(printable(decode(b"", final=True), lines=True))


def needs_output(name: str) -> ConfigError:
    return ConfigError(f"'{name}' is not text.", code="needs-output", hint="Add -o FILE, or send it into a pipe.")


def find_target(cwd: str, output: str | None, force: bool) -> str | None:
    """Returns the path that `-o` names, or None for stdout."""
    if output in (None, "-"):
        if force:
            raise ConfigError(
                "--force is about a file, and there is no -o FILE.", code="usage", hint="Name one: -o FILE."
            )
        return None
    return os.path.normpath(os.path.join(cwd, output))


@contextmanager
def open_target(cwd: str, target: str, force: bool, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Opens the file as `open_outside` does. The folder must exist."""
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise ConfigError(f"There is no folder {folder}.", code="no-folder", hint="Make it first.")
    with open_outside(cwd, folder, name, force=force, mode=mode) as file:
        yield file


@contextmanager
def open_source(path: str | None, name: str) -> Iterator[IO[bytes]]:
    if path is None:
        with tempfile.TemporaryFile() as spool:  # read here, not in a thread, so that Ctrl-C ends it
            _copy_stdin(spool, name)
            spool.seek(0)
            yield spool
        return
    try:
        fd = open_regular(path, follow=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {(error.strerror or 'it is not a regular file').lower()}.",
            code="no-file",
            hint="Name a file, or - for stdin.",
        ) from error
    with open(fd, "rb") as file:
        yield file


def _copy_stdin(spool: IO[bytes], name: str) -> None:
    if sys.stdin is None:
        raise ConfigError("There is no stdin to read.", code="no-file", hint="Name a file.")
    while piece := sys.stdin.buffer.read(256 * 1024):
        if spool.tell() + len(piece) > _MOST_STDIN_BYTES:
            raise StoreError(
                f"'{name}' is larger than {render_size(_MOST_STDIN_BYTES)}; nothing was saved.",
                code="artifact-too-large",
                hint="Save less.",
            )
        spool.write(piece)


def render_size(number: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
