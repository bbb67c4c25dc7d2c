"""Prints the answers of a chat: as Markdown on a terminal with colours, else as plain text.

Control characters are escaped before the text is parsed, so that they never reach the terminal. Nothing of the text is
left out: HTML is shown as it is written, and a link with its address.
"""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

from prowess.cli.run_result import print_answer
from prowess.cli.screen import printable

_MOST = 50_000  # characters; parsing takes a second then


def print_markdown(text: str) -> None:
    """Prints an answer to stdout."""
    if not _can_be_styled() or len(text) > _MOST:
        print_answer(text)
        return
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    shown = printable(text, lines=True).strip("\n")
    console.print(_parse(shown))
    sys.stdout.flush()


def _can_be_styled() -> bool:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("TERM", "dumb") != "dumb"


def _parse(text: str) -> Any:
    from markdown_it import MarkdownIt
    from rich.markdown import Heading, Markdown, TableElement

    class WholeTable(TableElement):
        """Table that wraps a long word, such as an address, instead of cutting it."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            for table in super().__rich_console__(console, options):
                for column in getattr(table, "columns", ()):
                    column.overflow = "fold"
                yield table

    class LeftHeading(Heading):
        """Heading at the left, where the text is."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            for part in super().__rich_console__(console, options):
                text: Any = getattr(part, "renderable", part)
                text.justify = "left"
                yield part

    class Document(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": WholeTable, "heading_open": LeftHeading}

    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["strikethrough", "table"])
    parser.disable(["image", "reference"])  # they would hide an address
    tokens = parser.parse(text)
    for token in tokens:
        for child in token.children or ():
            child.content = printable(child.content, lines=True)  # `&#x202e;` is a character only now
            if child.type == "softbreak":  # models write one line below the other and mean it
                child.type = "hardbreak"
    document = Document("", code_theme="ansi_dark", hyperlinks=False)
    document.parsed = tokens
    return document
