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
        self.is_json, self.verbose = json, verbose

    # --- for programs --------------------------------------------------------------------------------------------

    def document(self, document: Mapping[str, Any]) -> None:
        sys.stdout.write(json_module.dumps(document, indent=2 if sys.stdout.isatty() else None) + "\n")

    def long_document(self, document: dict[str, str | Iterable[str]]) -> None:
        """Writes a document whose lists are rows of JSON. In a pipe, rows are written as they come, never all kept."""
        if sys.stdout.isatty():
            whole = {
                key: value if isinstance(value, str) else [json_module.loads(row) for row in value]
                for key, value in document.items()
            }
            self.document(whole)
            return
        for at, (key, value) in enumerate(document.items()):
            sys.stdout.write(f'{", " if at else "{"}"{key}": ')
            if isinstance(value, str):
                sys.stdout.write(json_module.dumps(value))
                continue
            rows = iter(value)
            mark = "["
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                sys.stdout.write(mark + ", ".join(some))
                mark = ", "
            sys.stdout.write("[]" if mark == "[" else "]")
        sys.stdout.write("}\n")

    def error(self, error: ProwessError) -> None:
        if self.is_json:
            self.document({"error": error.to_json()})
            return
        message, hint = (_indented(text or "") for text in (error.message, error.hint))
        sys.stderr.write(f"{self._styled('Error', 'error', sys.stderr)}: {message}\n")
        if hint:
            sys.stderr.write(f"  {hint}\n")
        sys.stderr.write(f"  [{error.code}]\n")

    # --- for people ----------------------------------------------------------------------------------------------

    def text(self, text: str = "") -> None:
        sys.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        sys.stderr.write(text + "\n")

    def heading(self, text: str) -> None:
        sys.stdout.write(self._styled(text, "heading", sys.stdout) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, styled: int | None = None) -> None:
        """Writes a table. The words in the column `styled` have a colour."""
        cells = [[visible(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            self._terminal_table(columns, cells, styled)
        else:
            _plain_table(columns, cells)

    def _terminal_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], styled: int | None) -> None:
        """Writes one line per row. The last column is cut to the width that the others leave."""
        import shutil

        from rich.cells import cell_len

        columns = [column.upper() for column in columns]
        lines = [columns, *rows]
        widths = [min(_WIDEST, max(cell_len(line[n]) for line in lines)) for n in range(len(columns) - 1)]
        room = max(20, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths))
        for line in lines:
            cells = [_cut(cell, width) for cell, width in zip(line, widths, strict=False)]
            if line is columns:
                cells = [self.styled(cell, "heading") for cell in cells]
                last = self.styled(line[-1], "heading")
            else:
                cells = [self.styled(cell, line[n]) if n == styled else cell for n, cell in enumerate(cells)]
                last = line[-1] if cell_len(line[-1]) <= room else _cut(line[-1], room).rstrip()
            sys.stdout.write("  ".join([*cells, last]) + "\n")

    def fields(self, rows: Sequence[tuple[str, str]], *, gap: int = 2) -> None:
        """Writes labels and texts in two columns. On a terminal a long text is wrapped in its column."""
        width = max(len(label) for label, _ in rows) + gap
        for label, text in rows:
            self.text(label.ljust(width) + _wrapped(visible(text), " " * width))

    def findings(self, findings: Sequence[Finding], *, base: str | None = None) -> None:
        """Writes each finding on two lines: place and message; hint."""
        for finding in findings:
            place = visible(_shorter(finding.path, base))
            line = f":{finding.line}" if finding.line else ""
            message = f"{finding.severity}  {place}{line}  {visible(finding.message)}  [{finding.code}]"
            severity = self._styled(finding.severity, finding.severity, sys.stdout)
            self.text("  " + _wrapped(message, "         ").replace(finding.severity, severity, 1))
            if finding.hint:
                self.text("         " + _wrapped(visible(finding.hint), "         "))

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
        return self._styled(text, style, sys.stdout)

    def _styled(self, text: str, style: str, stream: Any) -> str:
        if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
            return text
        code = _ANSI.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if code else text


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


def is_terminal() -> bool:
    """True if stderr can show lines that change."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def printable(text: str, *, lines: bool = False) -> str:
    """Escapes control characters in text of a script or a skill. With `lines`, line breaks and tabs stay."""
    if not lines:
        return visible(text)
    return "\n".join("\t".join(visible(cell) for cell in line.split("\t")) for line in text.split("\n"))


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
    return printable(text, lines=True).replace("\n", "\n    ")


def count(number: int, thing: str, things: str | None = None) -> str:
    return f"{number} {thing if number == 1 else things or thing + 's'}"


_WIDEST = 40  # characters of any column but the last, on a terminal


def _cut(cell: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(cell, width) if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"


def _wrapped(text: str, indent: str) -> str:
    """Wraps a text at words, on a terminal only. Further lines begin with `indent`."""
    if not sys.stdout.isatty():
        return text
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns - len(indent))
    return f"\n{indent}".join(textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""])


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(_width(line[n]) for line in lines) for n in range(len(columns) - 1)]
    for line in lines:
        padded = [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=False)]
        sys.stdout.write("  ".join([*padded, line[-1]]).rstrip() + "\n")


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def _shorter(path: str, base: str | None) -> str:
    if base and path.startswith(base.rstrip(os.sep) + os.sep):
        return path[len(base.rstrip(os.sep)) + 1 :]
    return path


def _spin(what: str, done: Any) -> None:
    if done.wait(1.0):
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        done.wait()
