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
from prowess.errors import WorkspaceError, in_one_line
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
        files = min(self.max_files, MOST_FILES)
        return OutputLimits(files, min(self.max_file_bytes, most), min(self.max_total_bytes, most))


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
    untold: tuple[str, ...] = ()  # warnings about texts that a model is not shown


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
    taken = _Taken(limits, owner, redact if inline else None)
    warnings = taken.warnings
    names = _MOST_COMPARED // max(1, sum(map(len, wanted)))
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
        names -= 1
        if names < 0:
            warnings.append("Not all files were looked at: there are too many for so many patterns. Name fewer.")
            break
        text = IndexedText(rel)
        fitting = [pattern for pattern, glob in wanted.items() if glob.fullmatch(text)]
        if not fitting:
            continue
        matched.update(fitting)
        if not is_encodable(rel):
            warnings.append(f"{rel!a} is no name in UTF-8, and was not collected.")
        elif is_named(rel, [wanted[pattern].pattern for pattern in fitting]):
            taken.add(rel, status, folder_fd, name)
        else:
            hidden.append(rel)
    if taken.left_out:
        warnings.append(f"{taken.left_out} more files match; only the first {limits.max_files} were collected.")
    if hidden:
        warnings.append(_say_hidden(hidden))
    if must_match:
        warnings += [f"'{pattern}' matches no file." for pattern in wanted if pattern not in matched]
    left_out = tuple(hidden[:_MOST_WARNINGS])
    return Collected(tuple(taken.files), _few(warnings), left_out, tuple(taken.cut))


class _Taken:
    """Files collected so far, within the limits. `redact` cleans the text of each; None: no text is read."""

    def __init__(self, limits: OutputLimits, owner: int | None, redact: Callable[[str], str] | None) -> None:
        self.files: list[OutputFile] = []
        self.warnings: list[str] = []
        self.cut: list[str] = []  # warnings about cut texts
        self.left_out = 0  # files that match, after the limit was reached
        self._limits = limits
        self._owner = owner
        self._redact = redact
        self._room = limits.max_total_bytes

    def add(self, rel: str, status: os.stat_result, folder_fd: int, name: str) -> None:
        """Adds a file, or a warning that says why it was not added."""
        refusal = _why_not(status, self._owner)
        if refusal:
            self.warnings.append(f"'{rel}' {refusal} and was not collected.")
            return
        if len(self.files) >= self._limits.max_files:
            self.left_out += 1
            return
        limit = min(self._limits.max_file_bytes, max(self._room, 0))
        try:
            file, used = _read(rel, status, folder_fd, name, self._redact, limit)
        except (OSError, WorkspaceError) as error:
            self.warnings.append(f"'{rel}' could not be read: {_reason(error)}")
            return
        self._room -= used
        self.files.append(file)
        if file.truncated:
            shown = f"Of '{rel}' the first {used} bytes are shown here"
            warning = f"{shown}; the file has all {file.size_bytes}."
            self.warnings.append(warning)
            self.cut.append(warning)


def _reason(error: OSError | WorkspaceError) -> str:
    return getattr(error, "strerror", None) or in_one_line(error)


def _say_hidden(names: Sequence[str]) -> str:
    verb = "was" if len(names) == 1 else "were"
    left_out = f"{name_some(names)} {verb} left out"
    for name in names:
        if find_protected(name) is None:
            hint = "a name that begins with a dot leaves the workspace only when a pattern names it, such as"
            return f"{left_out}: {hint} {pattern_for(name)}"
    return f"{left_out}: programs act on files of such names, and they stay in the workspace."


def read_pattern(pattern: str) -> Glob:
    """Parses an output pattern. A trailing `/` means all files in the folder."""
    resolved = resolve_pattern(pattern)
    if not resolved or resolved.endswith("/"):
        resolved += "**"
    return Glob(resolved, sets=True)


def look_at_outputs(layout: Layout) -> dict[str, Look]:
    """Records the files in out/ now, so that `collect` can find new ones. Too many files: records those it saw;
    `collect` warns then."""
    found: dict[str, Look] = {}
    for rel, status, _, _ in _everything(layout, [], ("out",)):
        if not stat.S_ISDIR(status.st_mode):
            found[rel] = _look(status)
    return found


def _look(status: os.stat_result) -> Look:
    return status.st_ctime_ns, status.st_ino, status.st_size


def _find_folders(patterns: Sequence[str]) -> tuple[str, ...]:
    """Returns the top folders that the patterns can match. Skips runs/ if possible: in a long session it is large."""
    named = {resolve_pattern(pattern).partition("/")[0] for pattern in patterns}
    if named <= {*_COLLECTED_FROM}:
        return tuple(each for each in _COLLECTED_FROM if each in named)
    return _COLLECTED_FROM


def primary_output(files: Sequence[OutputFile], *, max_bytes: int = 32 * 1024) -> OutputFile | None:
    """Returns the small text file that is most likely the answer. Prefers out/, then fewer folders, then the name."""
    whole = [file for file in files if file.is_text and not file.truncated]
    small = [file for file in whole if 0 < file.size_bytes <= max_bytes]
    texts = [file for file in small if not file.mime_type.startswith("image/")]  # SVG is text, but not an answer
    return min(texts, key=_likely_answer_first, default=None)


def _likely_answer_first(file: OutputFile) -> tuple[bool, int, str]:
    return not file.name.startswith("out/"), file.name.count("/"), file.name


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
            warnings.append(f"Not all of {folder}/ could be looked at: {_reason(error)}")


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
    if more <= 0:
        return tuple(warnings)
    return (*warnings[:_MOST_WARNINGS], f"And {more} more warnings of this kind.")


def _read(
    rel: str, status: os.stat_result, folder_fd: int, name: str, redact: Callable[[str], str] | None, limit: int
) -> tuple[OutputFile, int]:
    """Reads one file. Reads more than it shows, so that the cut cannot hide half a secret from redaction."""
    fd = open_child(folder_fd, name, rel)
    try:
        data = os.pread(fd, 4096 if redact is None else limit + MARGIN, 0)
    finally:
        os.close(fd)
    content = None
    truncated = False
    text = is_text(data[:4096], whole=len(data) < 4096)
    used = 0
    if redact is not None and text:
        clean = redact(data.decode("utf-8", "replace")).encode("utf-8", "replace")
        truncated = status.st_size > limit
        content = clean[:limit].decode("utf-8", "ignore")
        used = len(content.encode())
    mime = guess_mime(rel, data[:512])
    return OutputFile(rel, mime, status.st_size, content, truncated, text), used


def is_encodable(text: str) -> bool:
    """True when the text can be encoded in UTF-8. Other names cannot be sent in a result."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
