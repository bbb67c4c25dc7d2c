"""Writes output: tables and sentences for people, one JSON document for programs. Never both on stdout.

JSON goes to stdout alone. Text for people goes to stderr, except the answer itself. Colour and cut columns
appear only on a terminal; piped output is plain, aligned and never cut. Text from a skill is always escaped.
"""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from prowess.core.catalog_values import Finding
from prowess.core.findings import visible
from prowess.errors import ProwessError


class Screen:
    def __init__(self, *, json: bool = False, verbose: int = 0) -> None:
        self.is_json = json
        self.verbose = verbose

    # --- for programs --------------------------------------------------------------------------------------------

    def document(self, document: Mapping[str, Any]) -> None:
        indent = None
        if sys.stdout.isatty():
            indent = 2
        text = json_module.dumps(document, indent=indent)
        self.text(text)

    def long_document(self, document: dict[str, str | Iterable[str]]) -> None:
        """Writes a document whose lists are rows of JSON. In a pipe, rows are written as they come, never all kept."""
        if sys.stdout.isatty():
            self.document(_whole(document))
            return
        mark = "{"
        for key, value in document.items():
            sys.stdout.write(f'{mark}"{key}": ')
            mark = ", "
            if isinstance(value, str):
                sys.stdout.write(json_module.dumps(value))
            else:
                _write_rows(value)
        sys.stdout.write("}\n")

    def error(self, error: ProwessError) -> None:
        if self.is_json:
            self.document({"error": error.to_json()})
            return
        label = self._styled("Error", "error", sys.stderr)
        message = _indented(error.message)
        sys.stderr.write(f"{label}: {message}\n")
        if error.hint:
            hint = _indented(error.hint)
            sys.stderr.write(f"  {hint}\n")
        sys.stderr.write(f"  [{error.code}]\n")

    # --- for people ----------------------------------------------------------------------------------------------

    def text(self, text: str = "") -> None:
        """Writes a line of the answer, on stdout."""
        sys.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        """Writes a line for people, on stderr."""
        sys.stderr.write(text + "\n")

    def heading(self, text: str) -> None:
        styled = self.styled(text, "heading")
        self.text(styled)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, styled: int | None = None) -> None:
        """Writes a table. The words in the column `styled` have a colour."""
        cells: list[list[str]] = []
        for row in rows:
            cells.append([visible(cell) for cell in row])
        if sys.stdout.isatty():
            self._terminal_table(columns, cells, styled)
        else:
            _plain_table(columns, cells)
        sys.stdout.flush()  # a summary on stderr comes below it, also where both are one pipe

    def _terminal_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], styled: int | None) -> None:
        """Writes one line per row. The last column is cut to the width that the others leave."""
        import shutil

        from rich.cells import cell_len

        titles = [column.upper() for column in columns]
        widths = [min(_WIDEST, width) for width in _column_widths([titles, *rows])]
        gaps = 2 * len(widths)
        room = max(20, shutil.get_terminal_size().columns - sum(widths) - gaps)
        self._write_titles(titles, widths)
        for row in rows:
            cells = list(map(_cut, row, widths))
            if styled is not None and styled < len(cells):
                cells[styled] = self.styled(cells[styled], row[styled])
            last = row[-1]
            if cell_len(last) > room:
                last = _cut(last, room).rstrip()
            self.text("  ".join([*cells, last]))

    def _write_titles(self, titles: Sequence[str], widths: Sequence[int]) -> None:
        cells = [*map(_cut, titles, widths), titles[-1]]
        styled = [self.styled(cell, "heading") for cell in cells]
        self.text("  ".join(styled))

    def fields(self, rows: Sequence[tuple[str, str]], *, gap: int = 2) -> None:
        """Writes labels and texts in two columns. On a terminal a long text is wrapped in its column."""
        longest = max(len(label) for label, _ in rows)
        width = longest + gap
        indent = " " * width
        for label, text in rows:
            shown = _wrapped(visible(text), indent)
            self.text(label.ljust(width) + shown)

    def findings(self, findings: Sequence[Finding], *, base: str | None = None) -> None:
        """Writes each finding on two lines: place and message; hint."""
        indent = " " * 9
        for finding in findings:
            message = _finding_line(finding, base)
            wrapped = _wrapped(message, indent)
            severity = self.styled(finding.severity, finding.severity)
            shown = wrapped.replace(finding.severity, severity, 1)
            self.text(f"  {shown}")
            if finding.hint:
                hint = _wrapped(visible(finding.hint), indent)
                self.text(indent + hint)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Shows a spinner when the work takes over a second, but not in a pipe or with JSON."""
        if self.is_json or not sys.stderr.isatty():
            yield
            return
        import threading

        done = threading.Event()
        thread = threading.Thread(target=_spin, args=(what, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def styled(self, text: str, style: str) -> str:
        """Returns the text in the colour of a style, if stdout shows colours."""
        return self._styled(text, style, sys.stdout)

    def _styled(self, text: str, style: str, stream: Any) -> str:
        is_plain = not stream.isatty() or os.environ.get("NO_COLOR")
        if is_plain or os.environ.get("TERM", "dumb") == "dumb":
            return text
        code = _ANSI.get(style)
        if code is None:
            return text
        return f"\x1b[{code}m{text}\x1b[0m"


_ROWS_AT_ONCE = 200

_ANSI = {
    "error": "1;31",
    "invalid": "1;31",
    "denied": "1;31",
    "warning": "33",
    "untrusted": "33",
    "info": "36",
    "manual": "36",
    "valid": "32",
    "same": "32",
    "differs": "1;31",
    "missing": "1;31",
    "hashed": "36",
    "active": "32",
    "shadowed": "2",
    "hidden": "2",
    "off": "2",
    "heading": "1",
}


def _whole(document: Mapping[str, str | Iterable[str]]) -> dict[str, Any]:
    """Reads the rows of all lists."""
    whole: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, str):
            whole[key] = value
        else:
            whole[key] = [json_module.loads(row) for row in value]
    return whole


def _write_rows(rows: Iterable[str]) -> None:
    left = iter(rows)
    mark = "["
    while some := list(islice(left, _ROWS_AT_ONCE)):
        joined = ", ".join(some)
        sys.stdout.write(mark + joined)
        mark = ", "
    end = "]"
    if mark == "[":
        end = "[]"
    sys.stdout.write(end)


def is_terminal() -> bool:
    """True if stderr can show lines that change."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def printable(text: str, *, lines: bool = False) -> str:
    """Escapes control characters in text of a script or a skill. With `lines`, line breaks and tabs stay."""
    if not lines:
        return visible(text)
    escaped: list[str] = []
    for line in text.split("\n"):
        cells = map(visible, line.split("\t"))
        escaped.append("\t".join(cells))
    return "\n".join(escaped)


def size(number: float) -> str:
    """Renders a number of bytes for people: `1.5 MB`."""
    if number == 1:
        return "1 byte"
    for unit, digits in (("bytes", 0), ("KB", 1), ("MB", 1)):
        if number < 1000:
            return f"{number:.{digits}f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def _indented(text: str) -> str:
    """Escapes a text. Lines after the first one are indented."""
    shown = printable(text, lines=True)
    return shown.replace("\n", "\n    ")


def count(number: int, thing: str, things: str | None = None) -> str:
    """Renders `1 skill`, `2 skills`."""
    if number == 1:
        return f"1 {thing}"
    if things is None:
        things = f"{thing}s"
    return f"{number} {things}"


_WIDEST = 40  # characters of any column but the last, on a terminal


def _cut(cell: str, width: int) -> str:
    """Pads or cuts a text to `width` columns."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(cell) <= width:
        return set_cell_size(cell, width)
    beginning = set_cell_size(cell, width - 1)
    return f"{beginning}…"


def _wrapped(text: str, indent: str) -> str:
    """Wraps a text at words, on a terminal only. Further lines begin with `indent`."""
    if not sys.stdout.isatty():
        return text
    import shutil
    import textwrap

    room = shutil.get_terminal_size().columns - len(indent)
    width = max(40, room)
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    return f"\n{indent}".join(lines)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    titles = [column.upper() for column in columns]
    lines = [titles, *rows]
    widths = _column_widths(lines)
    for line in lines:
        padded: list[str] = []
        for cell, width in zip(line, widths, strict=False):
            missing = width - _width(cell)
            padded.append(cell + " " * missing)
        shown = "  ".join([*padded, line[-1]])
        sys.stdout.write(shown.rstrip() + "\n")


def _column_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Returns the width of each column but the last. The first line has the titles."""
    widths: list[int] = []
    for n in range(len(lines[0]) - 1):
        column = [_width(line[n]) for line in lines]
        widths.append(max(column))
    return widths


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def _finding_line(finding: Finding, base: str | None) -> str:
    """Renders `error  SKILL.md:3  The name is missing.  [name-missing]`."""
    place = visible(_shorter(finding.path, base))
    if finding.line:
        place += f":{finding.line}"
    message = visible(finding.message)
    return f"{finding.severity}  {place}  {message}  [{finding.code}]"


def _shorter(path: str, base: str | None) -> str:
    """Returns a path below `base` as a relative one."""
    if not base:
        return path
    folder = base.rstrip(os.sep) + os.sep
    return path.removeprefix(folder)


def _spin(what: str, done: Any) -> None:
    if done.wait(1.0):
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        done.wait()
