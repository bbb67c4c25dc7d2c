"""Reads what a person gives to a command: --input options, standard input, and files; and prints text of files.

On a terminal the text of a file is escaped.
"""

from __future__ import annotations

import codecs
import os
import select
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from prowess._internal.files import open_regular
from prowess._internal.mime import is_text
from prowess.cli.screen import printable
from prowess.errors import ConfigError, StoreError
from prowess.runtime.services.files import InputFile, check_inputs

LONGEST_REQUEST = 1 << 20
LONGEST_STDIN = 256 << 20
_WAIT_S = 1.0


def split_inputs(inputs: Sequence[str], cwd: str) -> tuple[list[InputFile], list[dict[str, Any]]]:
    """Returns files of this machine, which are granted because they are named, and refs to things elsewhere."""
    granted: list[InputFile] = []
    refs: list[dict[str, Any]] = []
    for text in inputs:
        source, to = _split_input(text, cwd)
        if "://" in source:
            ref = {"from": source}
            if to:
                ref["to"] = to
            refs.append(ref)
            continue
        path = os.path.join(cwd, os.path.expanduser(source))
        if not os.path.exists(path):
            raise ConfigError(f"There is no file '{source}'.", code="no-file", hint="Check the value of --input.")
        granted.append((path, to or None))
    check_inputs(cwd, granted)
    return granted, refs


def _split_input(text: str, cwd: str) -> tuple[str, str]:
    """Splits FROM=TO. A file whose name has a `=` is taken whole, and `host://` is a path of this machine."""
    source, mark, to = text.rpartition("=")
    is_file = bool(text) and os.path.exists(os.path.join(cwd, text))
    if not mark or is_file:
        source = text
        to = ""
    if not source:
        hint = "Write --input FILE or --input FILE=PLACE."
        raise ConfigError("--input names nothing.", code="usage", hint=hint)
    if source.startswith("host://"):
        path = source.removeprefix("host://")
        source = "/" + path.lstrip("/")
    return source, to


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


def stage_stdin(folder: str) -> InputFile | None:
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
    ready, _, _ = select.select([stream], [], [], _WAIT_S)
    if not ready:
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
    """Returns the text. Raises if it is none."""
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
    """Returns the error for content that a terminal cannot show."""
    message = f"'{name}' is not text."
    return ConfigError(message, code="needs-output", hint="Add -o FILE, or send it into a pipe.")


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
    """Copies standard input into `spool`. Raises StoreError when it is too large."""
    if sys.stdin is None:
        raise ConfigError("There is no stdin to read.", code="no-file", hint="Name a file.")
    while piece := sys.stdin.buffer.read(256 * 1024):
        size_bytes = spool.tell() + len(piece)
        if size_bytes > _MOST_STDIN_BYTES:
            most = render_size(_MOST_STDIN_BYTES)
            message = f"'{name}' is larger than {most}; nothing was saved."
            raise StoreError(message, code="artifact-too-large", hint="Save less.")
        spool.write(piece)


def render_size(number: float) -> str:
    """Renders `1.5 MB`."""
    if number < 1000:
        return f"{number:.0f} bytes"
    for unit in ("KB", "MB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} GB"
