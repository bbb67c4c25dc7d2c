"""What a run left behind, collected after it is dead: regular files that match, within limits; a word about the rest.

Links, devices and FIFOs are refused and reported; one that is broken does not cost the others. Text is given inline
where asked for; what is cut says so; what is saved is saved whole.
"""

from __future__ import annotations

import mimetypes
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from prowess._files import kind_of
from prowess.errors import WorkspaceError
from prowess.workspace.beneath import open_child, walk
from prowess.workspace.layout import Layout, resolve_pattern

_COLLECTED_FROM = ("out", "work", "runs")


class OutputLimits(NamedTuple):
    max_files: int = 100
    max_file_bytes: int = 4 * 1024 * 1024
    max_total_bytes: int = 64 * 1024 * 1024


class OutputFile(NamedTuple):
    name: str  # relative to the workspace, `out/a.txt`
    mime_type: str
    size_bytes: int
    content: str | None  # text only, and only when asked for
    truncated: bool

    @property
    def ref(self) -> str:
        return f"workspace://{self.name}"


class Collected(NamedTuple):
    files: tuple[OutputFile, ...]
    warnings: tuple[str, ...]


def collect(
    layout: Layout, patterns: Sequence[str], *, inline: bool = True, limits: OutputLimits = OutputLimits()
) -> Collected:
    """Files below out/, work/ and runs/ that match any of the patterns, sorted by name."""
    wanted = [(pattern, compile_pattern(resolve_pattern(pattern))) for pattern in patterns]
    matched: set[str] = set()
    files: list[OutputFile] = []
    warnings: list[str] = []
    room = limits.max_total_bytes
    left_out = 0
    for rel, status, folder_fd, name in _everything(layout):
        fitting = [pattern for pattern, expression in wanted if expression.fullmatch(rel)]
        if not fitting or stat.S_ISDIR(status.st_mode):
            continue
        matched.update(fitting)
        if not stat.S_ISREG(status.st_mode):
            warnings.append(f"'{rel}' is {kind_of(status.st_mode)} and was not collected.")
            continue
        if len(files) >= limits.max_files:
            left_out += 1
            continue
        try:
            file, used = _read(rel, status, folder_fd, name, inline, min(limits.max_file_bytes, max(room, 0)))
        except (OSError, WorkspaceError) as error:
            warnings.append(f"'{rel}' could not be read: {getattr(error, 'strerror', None) or error}")
            continue
        room -= used
        files.append(file)
        if file.truncated and inline:
            warnings.append(f"'{rel}' has {file.size_bytes} bytes; its content is cut at {used}.")
    if left_out:
        warnings.append(f"{left_out} more files match; only the first {limits.max_files} were collected.")
    warnings += [f"'{pattern}' matches no file." for pattern, _ in wanted if pattern not in matched]
    return Collected(tuple(files), tuple(warnings))


def primary_output(files: Sequence[OutputFile], *, max_bytes: int = 32 * 1024) -> OutputFile | None:
    """The one small text that is most likely the answer: the only one, or the first in out/."""
    texts = [file for file in files if file.content and not file.truncated and file.size_bytes <= max_bytes]
    return min(
        texts, key=lambda file: (not file.name.startswith("out/"), file.name.count("/"), file.name), default=None
    )


def _everything(layout: Layout) -> Iterator[tuple[str, os.stat_result, int, str]]:
    for folder in _COLLECTED_FROM:
        if os.path.isdir(layout.host(folder)):
            yield from walk(layout.root, folder)


def _read(
    rel: str, status: os.stat_result, folder_fd: int, name: str, inline: bool, limit: int
) -> tuple[OutputFile, int]:
    fd = open_child(folder_fd, name, rel)
    try:
        data = os.pread(fd, limit + 1, 0) if inline else os.pread(fd, 4096, 0)
    finally:
        os.close(fd)
    is_text = _is_text(data[:4096])
    content, truncated = None, False
    if inline and is_text:
        truncated = status.st_size > limit or len(data) > limit
        content = data[:limit].decode("utf-8", "replace")
    mime = mimetypes.guess_type(rel)[0] or ("text/plain" if is_text else "application/octet-stream")
    used = min(len(data), limit) if content is not None else 0
    return OutputFile(rel, mime, status.st_size, content, truncated), used


def _is_text(sample: bytes) -> bool:
    if b"\0" in sample:
        return False
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 3 and len(sample) >= 4096  # a character that the sample cuts
    return True


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` crosses folders, `[…]` is a set. A trailing `/` or a bare folder means all
    that is in it."""
    if pattern.endswith("/") or not pattern:
        pattern += "**"
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            body = pattern[at + 1 : end].replace("\\", "\\\\")
            body = "^" + body[1:] if body[0] in "!^" else body
            out, at = out + f"(?!/)[{body}]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    try:
        return re.compile(out, re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))
