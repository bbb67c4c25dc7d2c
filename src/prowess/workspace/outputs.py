"""Collects the files that a run wrote, after the run has ended: regular files that match a pattern, within limits.

Links, devices and FIFOs are refused with a warning. One bad file does not stop the others. Text can be returned inline;
a cut text is marked as truncated. Saved files are always whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prowess._internal.files import kind_of
from prowess._internal.globs import Glob, IndexedText
from prowess._internal.mime import guess_mime, is_text
from prowess._internal.protected_names import find_protected
from prowess._internal.text import name_some
from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import MAX_DEPTH, open_child, walk
from prowess.workspace.export import is_named, pattern_for
from prowess.workspace.layout import Layout, resolve_pattern

_COLLECTED_FROM = ("out", "work", "runs")
_MOST_WARNINGS = 50
Look = tuple[int, int, int]  # ctime, which a script cannot set; inode; size
MARGIN = 64 << 10  # longer than any secret that is redacted


DEFAULT_INLINE_BYTES = 4 << 20  # as workspace.inline_bytes
MOST_FILES = 1000
MOST_PATTERNS = 32
LONGEST_PATTERN = 1000
_MOST_COMPARED = 4_000_000  # pattern characters times file names: a few seconds of matching


class OutputLimits(NamedTuple):
    """Limits on the list of files and on their inline text. The files on disk stay whole."""

    max_files: int = 100
    max_file_bytes: int = 4 * 1024 * 1024
    max_total_bytes: int = 64 * 1024 * 1024

    def within(self, inline_bytes: int) -> OutputLimits:
        """Returns these limits, lowered to MOST_FILES and `inline_bytes`, the most that a result may hold."""
        most = max(0, inline_bytes)
        return OutputLimits(
            min(self.max_files, MOST_FILES), min(self.max_file_bytes, most), min(self.max_total_bytes, most)
        )


class OutputFile(NamedTuple):
    name: str  # relative to the workspace, `out/a.txt`
    mime_type: str
    size_bytes: int
    content: str | None  # text only, and only when asked for
    truncated: bool
    is_text: bool

    @property
    def ref(self) -> str:
        return f"workspace://{self.name}"


class Collected(NamedTuple):
    files: tuple[OutputFile, ...]
    warnings: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # hidden files that no pattern names


def collect(
    layout: Layout,
    patterns: Sequence[str],
    *,
    inline: bool = True,
    limits: OutputLimits = OutputLimits(),
    before: Mapping[str, Look] | None = None,
    must_match: bool = True,
    owner: int | None = None,
    redact: Callable[[str], str] = str,
) -> Collected:
    """Returns files below out/, work/ and runs/ that match a pattern, sorted by name.

    Files that did not change since `before` are left out. `owner` is the user that scripts run as.
    """
    wanted = {pattern: read_pattern(pattern) for pattern in patterns}
    matched: set[str] = set()
    files: list[OutputFile] = []
    warnings: list[str] = []
    room = limits.max_total_bytes
    names = _MOST_COMPARED // max(1, sum(map(len, wanted)))
    left_out = 0
    hidden: list[str] = []
    for rel, status, folder_fd, name in _everything(layout, warnings, _find_folders(patterns)):
        if stat.S_ISDIR(status.st_mode):
            if rel.count("/") >= MAX_DEPTH:
                warnings.append(
                    f"'{rel[:100]}…' is deeper than {MAX_DEPTH} folders, and nothing below it was collected."
                )
            continue
        if before is not None and before.get(rel) == _look(status):
            continue
        if (names := names - 1) < 0:
            warnings.append("Not all files were looked at: there are too many for so many patterns. Name fewer.")
            break
        text = IndexedText(rel)
        fitting = [pattern for pattern, glob in wanted.items() if glob.fullmatch(text)]
        if not fitting:
            continue
        matched.update(fitting)
        if not is_encodable(rel):
            warnings.append(f"{rel!a} is no name in UTF-8, and was not collected.")
            continue
        if not is_named(rel, [wanted[pattern].pattern for pattern in fitting]):
            hidden.append(rel)
            continue
        if refusal := _why_not(status, owner):
            warnings.append(f"'{rel}' {refusal} and was not collected.")
            continue
        if len(files) >= limits.max_files:
            left_out += 1
            continue
        try:
            limit = min(limits.max_file_bytes, max(room, 0))
            file, used = _read(rel, status, folder_fd, name, redact if inline else None, limit)
        except (OSError, WorkspaceError) as error:
            warnings.append(f"'{rel}' could not be read: {getattr(error, 'strerror', None) or error}")
            continue
        room -= used
        files.append(file)
        if file.truncated and inline:
            warnings.append(f"Of '{rel}' the first {used} bytes are shown here; the file has all {file.size_bytes}.")
    if left_out:
        warnings.append(f"{left_out} more files match; only the first {limits.max_files} were collected.")
    if hidden:
        warnings.append(_say_hidden(hidden))
    if must_match:
        warnings += [f"'{pattern}' matches no file." for pattern in wanted if pattern not in matched]
    return Collected(tuple(files), _few(warnings), tuple(hidden[:_MOST_WARNINGS]))


def _say_hidden(names: Sequence[str]) -> str:
    left_out = f"{name_some(names)} {'was' if len(names) == 1 else 'were'} left out"
    free = next((name for name in names if find_protected(name) is None), None)
    if free is None:
        return f"{left_out}: programs act on files of such names, and they stay in the workspace."
    return (
        f"{left_out}: a name that begins with a dot leaves the workspace only when a pattern names it, such as "
        f"{pattern_for(free)}"
    )


def read_pattern(pattern: str) -> Glob:
    """Parses an output pattern. A trailing `/` means all files in the folder."""
    resolved = resolve_pattern(pattern)
    return Glob(f"{resolved}**" if resolved.endswith("/") or not resolved else resolved, sets=True)


def look_at_outputs(layout: Layout) -> dict[str, Look]:
    """Records the files in out/ now, so that `collect` can find new ones. Too many files: records those it saw;
    `collect` warns then."""
    return {
        rel: _look(status)
        for rel, status, _, _ in _everything(layout, [], ("out",))
        if not stat.S_ISDIR(status.st_mode)
    }


def _look(status: os.stat_result) -> Look:
    return status.st_ctime_ns, status.st_ino, status.st_size


def _find_folders(patterns: Sequence[str]) -> tuple[str, ...]:
    """Returns the top folders that the patterns can match. Skips runs/ if possible: in a long session it is large."""
    named = {resolve_pattern(pattern).partition("/")[0] for pattern in patterns}
    return tuple(each for each in _COLLECTED_FROM if each in named) if named <= {*_COLLECTED_FROM} else _COLLECTED_FROM


def primary_output(files: Sequence[OutputFile], *, max_bytes: int = 32 * 1024) -> OutputFile | None:
    """Returns the small text file that is most likely the answer. Prefers out/, then fewer folders, then the name."""
    fitting = [file for file in files if file.is_text and not file.truncated and 0 < file.size_bytes <= max_bytes]
    texts = [file for file in fitting if not file.mime_type.startswith("image/")]  # SVG is text, but not an answer
    return min(
        texts, key=lambda file: (not file.name.startswith("out/"), file.name.count("/"), file.name), default=None
    )


def _everything(
    layout: Layout, warnings: list[str], folders: Sequence[str]
) -> Iterator[tuple[str, os.stat_result, int, str]]:
    """Walks the folders. A folder that cannot be read is a warning, so the output of the run is not lost."""
    for folder in folders:
        try:
            yield from walk(layout.root, folder)
        except FileNotFoundError:
            continue
        except (OSError, WorkspaceError) as error:
            warnings.append(f"Not all of {folder}/ could be looked at: {getattr(error, 'strerror', None) or error}")


def _why_not(status: os.stat_result, owner: int | None) -> str | None:
    """Returns why a file is refused, or None. A script can make a hard link to a file that it may not read, so a linked
    file of another user is refused."""
    if not stat.S_ISREG(status.st_mode):
        return f"is {kind_of(status.st_mode)}"
    if owner is not None and status.st_nlink > 1 and status.st_uid != owner:
        return "is a link to somebody else's file"
    return None


def _few(warnings: list[str]) -> tuple[str, ...]:
    more = len(warnings) - _MOST_WARNINGS
    return tuple(warnings) if more <= 0 else (*warnings[:_MOST_WARNINGS], f"And {more} more warnings of this kind.")


def _read(
    rel: str, status: os.stat_result, folder_fd: int, name: str, redact: Callable[[str], str] | None, limit: int
) -> tuple[OutputFile, int]:
    """Reads one file. Reads more than it shows, so that the cut cannot hide half a secret from redaction."""
    fd = open_child(folder_fd, name, rel)
    try:
        data = os.pread(fd, 4096 if redact is None else limit + MARGIN, 0)
    finally:
        os.close(fd)
    content, truncated = None, False
    text = is_text(data[:4096], whole=len(data) < 4096)
    if redact is not None and text:
        clean = redact(data.decode("utf-8", "replace")).encode("utf-8", "replace")
        truncated = status.st_size > limit
        content = clean[:limit].decode("utf-8", "ignore") if len(clean) > limit else clean.decode()
    used = 0 if content is None else len(content.encode())
    return OutputFile(rel, guess_mime(rel, data[:512]), status.st_size, content, truncated, text), used


def is_encodable(text: str) -> bool:
    """True when the text can be encoded in UTF-8. Other names cannot be sent in a result."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
