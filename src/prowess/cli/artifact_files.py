"""Files on their way in and out, as a person names them: whole or not at all, none replaced without --force, and no
terminal obeys them."""

from __future__ import annotations

import codecs
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import IO

from prowess._internal.files import open_regular
from prowess._internal.mime import is_text
from prowess.cli.screen import printable
from prowess.errors import ConfigError, StoreError
from prowess.workspace.export import open_outside

_MOST_STDIN_BYTES = 1 << 30


def decode_text(data: bytes, name: str) -> str:
    if not is_text(data, whole=True):
        raise needs_output(name)
    return data.decode()


async def print_text(content: AsyncIterator[bytes], name: str) -> None:
    """On a terminal: text, with whatever the terminal would obey spelled out."""
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
    """Where `-o` leads; None is stdout."""
    if output in (None, "-"):
        if force:
            raise ConfigError(
                "--force is about a file, and there is no -o FILE.", code="usage", hint="Name one: -o FILE."
            )
        return None
    return os.path.normpath(os.path.join(cwd, output))


@contextmanager
def open_target(cwd: str, target: str, force: bool, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """See `open_outside`; the folder has to be there."""
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise ConfigError(f"There is no folder {folder}.", code="no-folder", hint="Make it first.")
    with open_outside(cwd, folder, name, force=force, mode=mode) as file:
        yield file


@contextmanager
def open_source(path: str | None, name: str) -> Iterator[IO[bytes]]:
    if path is None:
        with tempfile.TemporaryFile() as spool:  # read here, where an interrupt ends it, and not in a thread
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
