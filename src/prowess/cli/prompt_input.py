"""Reads the lines of a chat: from a terminal with editing, history and completion, or from a pipe.

On a terminal prompt_toolkit reads them; without that extra the standard library's readline does, with the same history
and completion. The prompt goes to stderr, because stdout belongs to the answers.

The history file has one line of JSON per line typed, and only its owner can read it. Completion offers commands, skill
names and files; its only side effect is to list folders.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from prowess._internal.files import read_regular, write_whole
from prowess.cli.line_input import read_line
from prowess.errors import ConfigError

_KEPT, _MOST_BYTES = 1000, 4 << 20


class History:
    """Lines typed before. A chat works without them: a file that cannot be read or written is reported once."""

    def __init__(self, path: str, warn: Callable[[str], object]) -> None:
        self._path = path
        self._warn = warn
        self._broken = False
        self.lines = self._load()

    def _load(self) -> list[str]:
        try:
            data = read_regular(self._path, _MOST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fail(error)
            return []
        texts = map(_parse, data.decode("utf-8", "replace").splitlines())
        found = [text for text in texts if text]
        kept = found[-_KEPT:]
        if len(found) > 2 * _KEPT or len(data) > _MOST_BYTES:
            whole = "".join(map(_render, kept))
            try:
                write_whole(self._path, whole.encode(), mode=0o600)
            except OSError as error:
                self._fail(error)
        return kept

    def add(self, line: str) -> None:
        """Keeps a line, unless it is empty or the same as the one before."""
        if not line.strip() or self.lines[-1:] == [line]:
            return
        self.lines.append(line)
        if self._broken:
            return
        folder = os.path.dirname(self._path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            fd = os.open(self._path, flags, 0o600)
            with open(fd, "ab") as file:
                file.write(_render(line).encode())
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if self._broken:
            return
        self._broken = True
        reason = error.strerror or error
        self._warn(f"warning: the history is not kept: {reason}: {self._path}")


def _render(line: str) -> str:
    return json.dumps(line, ensure_ascii=True) + "\n"


def _parse(line: str) -> str | None:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(text, str):
        return text
    return None


_COMMAND = re.compile(r"/([\w:-]*)")
_ARGUMENT = re.compile(r"/(?:load|unload)\s+(\S*)")
_DOLLAR = re.compile(r"(?<!\S)\$([\w-]*)$")
_FILE = re.compile(r"""(?<!\S)@(?:"([^"]*)|([^\s"]*))$""")
_MOST = 100


class Completions(NamedTuple):
    """Texts, one of which can replace the `length` characters before the cursor."""

    length: int
    texts: tuple[str, ...]


def complete(before: str, *, commands: Sequence[str], skills: Sequence[str], cwd: str, home: str) -> Completions:
    """Completes `before`, the line up to the cursor."""
    found = _COMMAND.fullmatch(before)
    if found:
        names = [f"/{name}" for name in commands]
        for name in skills:
            names.append(f"/skill:{name}" if name in commands else f"/{name}")
        return _begin(f"/{found[1]}", names)
    found = _ARGUMENT.fullmatch(before)
    if found:
        return _begin(found[1], skills)
    found = _DOLLAR.search(before)
    if found:
        names = [f"${name}" for name in skills]
        return _begin(f"${found[1]}", names)
    found = _FILE.search(before)
    if found:
        quoted, plain = found.groups()
        typed = plain if quoted is None else quoted
        return _files(typed, cwd, home, len(found[0]))
    return Completions(0, ())


def _begin(typed: str, names: Iterable[str]) -> Completions:
    """Returns the names that begin with what was typed."""
    fitting = {name for name in names if name.startswith(typed)}
    first = sorted(fitting)[:_MOST]
    return Completions(len(typed), tuple(first))


def _files(typed: str, cwd: str, home: str, length: int) -> Completions:
    """Completes a path. A name with spaces is quoted; the quote of a folder stays open for the names in it."""
    folder, slash, start = typed.rpartition("/")
    place = folder or slash
    if folder == "~" or folder.startswith("~/"):
        place = f"{home}{folder[1:]}"
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(os.path.join(cwd, place)) as entries:
            for entry in entries:
                if _fits(entry.name, start):
                    found.append((entry.name, entry.is_dir()))
    except (OSError, ValueError):  # no such folder, or not readable
        return Completions(0, ())
    texts: list[str] = []
    for name, is_folder in sorted(found)[:_MOST]:
        if name.isprintable():
            path = f"{folder}{slash}{name}"
            texts.append(_attachment(path, is_folder))
    return Completions(length, tuple(texts))


def _fits(name: str, start: str) -> bool:
    """True if the name begins so. A hidden file has to be asked for by its dot."""
    if not name.startswith(start):
        return False
    return start.startswith(".") or not name.startswith(".")


def _attachment(path: str, is_folder: bool) -> str:
    if is_folder:
        path += "/"
    if " " not in path and "'" not in path:
        return f"@{path}"
    if is_folder:
        return f'@"{path}'
    return f'@"{path}"'


Complete = Callable[[str], Completions]
PROMPT = "> "
LONGEST_LINE = 1 << 20


class LineReader(Protocol):
    interactive: bool
    typed: bool  # True when Ctrl-C cleared a line that had text

    def read(self) -> str | None:
        """Returns the next line, or None at the end. Raises KeyboardInterrupt on Ctrl-C."""
        ...


def open_reader(complete: Complete, history: History, note: Callable[[str], object]) -> LineReader:
    """Returns the reader for this standard input: a terminal with a line editor, or a pipe."""
    if not _is_interactive():
        return PipeReader()
    try:
        return PromptReader(complete, history)
    except ImportError:
        note("The line editor is Python's own; with prowess[chat] there is a better one.")
    return ReadlineReader(complete, history)


def _is_interactive() -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return sys.stderr.isatty() or sys.stdout.isatty()


class PipeReader:
    """Reads one request per line, without a prompt."""

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

        self._history = history
        self._complete = complete
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
        """Returns completion number `state`. Readline asks for one after the other, and expects whole words."""
        if state == 0:
            end = self._readline.get_endidx()
            before = self._readline.get_line_buffer()[:end]
            found = self._complete(before)
            typed = before[len(before) - found.length :]
            fitting = [text for text in found.texts if text.startswith(typed)]
            self._found = tuple(word + text.removeprefix(typed) for text in fitting)
        if state < len(self._found):
            return self._found[state]
        return None


def _ask() -> str:
    sys.stderr.write(PROMPT)
    sys.stderr.flush()
    line = read_line()
    if not line:
        raise EOFError
    return line.rstrip("\n")
