"""Where the lines of a chat come from: a terminal with editing, history and completion, or a pipe.

On a terminal prompt_toolkit reads them; without that extra the standard library's readline does, with the same history
and completion. The prompt goes to stderr, because stdout belongs to the answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from prowess.cli.completion import Completions
from prowess.cli.history import History
from prowess.errors import ConfigError

Complete = Callable[[str], Completions]
PROMPT = "> "
LONGEST_LINE = 1 << 20


class LineReader(Protocol):
    interactive: bool
    typed: bool  # whether there was something on the line that Ctrl-C took away

    def read(self) -> str | None:
        """The next line; None at the end. KeyboardInterrupt on Ctrl-C."""
        ...


def open_reader(complete: Complete, history: History, note: Callable[[str], object]) -> LineReader:
    if sys.stdin is None or not sys.stdin.isatty() or not (sys.stderr.isatty() or sys.stdout.isatty()):
        return PipeReader()
    try:
        return PromptReader(complete, history)
    except ImportError:
        note("The line editor is Python's own; with prowess[chat] there is a better one.")
    return ReadlineReader(complete, history)


class PipeReader:
    """One request per line, and no prompt."""

    interactive = False
    typed = False

    def read(self) -> str | None:
        if sys.stdin is None:
            return None
        data = sys.stdin.buffer.readline(LONGEST_LINE + 1)
        if not data:
            return None
        if len(data) > LONGEST_LINE:
            raise ConfigError(
                f"A line of standard input has more than {LONGEST_LINE >> 20} MiB.",
                code="stdin-too-large",
                hint="Put it into a file, and name that with @path.",
            )
        try:
            return data.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise ConfigError(
                "A line of standard input is not UTF-8 text.", code="stdin-not-text", hint="Name a file with @path."
            ) from None


class PromptReader:
    interactive = True
    typed = False

    def __init__(self, complete: Complete, history: History) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.output import create_output

        class _Completer(Completer):
            def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
                found = complete(document.text_before_cursor)
                for text in found.texts:
                    yield Completion(text, start_position=-found.length)

        self._history = history
        self._session: Any = PromptSession(
            PROMPT,
            completer=_Completer(),
            complete_while_typing=False,
            history=InMemoryHistory(history.lines),
            output=create_output(stdout=sys.stderr if sys.stderr.isatty() else sys.stdout),
            enable_open_in_editor=False,
        )

    def read(self) -> str | None:
        try:
            line = self._session.prompt()
        except EOFError:
            return None
        except KeyboardInterrupt:
            self.typed = bool(self._session.default_buffer.text)
            raise
        self._history.add(line)
        return line


class ReadlineReader:
    interactive = True
    typed = False

    def __init__(self, complete: Complete, history: History) -> None:
        import readline

        self._history, self._complete = history, complete
        self._found: tuple[str, ...] = ()
        self._readline = readline
        readline.set_auto_history(False)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._candidate)
        readline.parse_and_bind("tab: complete")
        for line in history.lines:
            readline.add_history(line)

    def read(self) -> str | None:
        try:
            line = input(PROMPT) if sys.stdout.isatty() else _ask()
        except EOFError:
            sys.stderr.write("\n")
            return None
        except KeyboardInterrupt:
            self.typed = bool(self._readline.get_line_buffer())
            sys.stderr.write("\n")
            raise
        if line.strip():
            self._readline.add_history(line)
        self._history.add(line)
        return line

    def _candidate(self, word: str, state: int) -> str | None:
        """It wants whole words, asks for one after the other, and knows the line besides."""
        if state == 0:
            before = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            found = self._complete(before)
            typed = before[len(before) - found.length :]
            self._found = tuple(word + text[len(typed) :] for text in found.texts if text.startswith(typed))
        return self._found[state] if state < len(self._found) else None


def _ask() -> str:
    sys.stderr.write(PROMPT)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
