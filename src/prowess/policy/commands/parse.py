"""Splits one simple command into its words, like a shell that expands nothing.

A simple command has words, quotes and backslashes. Everything that a shell expands, connects, redirects or interprets
is refused, so the argv means the same to every runner. Patterns (`*`) and `~` are not refused: they stay as written,
with a note, because nothing expands them.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

MAX_CHARACTERS = 16_384
_RESERVED = frozenset(
    "! [[ ]] { } case coproc do done elif else esac fi for function if in select then until while".split()
)
# Line separators and direction marks are no syntax, but they would show a reader another command.
_FORBIDDEN_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class ShellCommand(NamedTuple):
    """Simple command: its argv, and notes for a person about how it was read."""

    argv: tuple[str, ...]
    notes: tuple[str, ...] = ()


class NotSimple(NamedTuple):
    """Reason why a text is not one simple command, and the position in the text."""

    why: str
    at: int


def split_command(text: str) -> ShellCommand | NotSimple:
    """Splits a text into one simple command, or returns why it is none."""
    if len(text) > MAX_CHARACTERS:
        return NotSimple(f"The command is longer than {MAX_CHARACTERS} characters.", MAX_CHARACTERS)
    try:
        if "\n" in text or "\r" in text:
            raise _NotReadable("The command has a line break; it must be one line.", 0)
        if hidden := find_hidden(text):
            raise _NotReadable(hidden, 0)
        words, notes, at = [], [], 0
        while at < len(text):
            if text[at] in " \t":
                at += 1
                continue
            word, note, at = _read_word(text, at)
            words.append(word)
            notes += note
        return _finished(words, notes)
    except _NotReadable as refused:
        return refused.problem


def find_hidden(text: str) -> str:
    """Names a character that would show a reader another command; "" when there is none."""
    if text.isascii() and text.isprintable():
        return ""
    for character in text:
        if character not in "\t\n" and (
            character in _DIRECTIONS or unicodedata.category(character) in _FORBIDDEN_CATEGORIES
        ):
            return f"The command has the control character U+{ord(character):04X}."
    return ""


class _NotReadable(Exception):
    def __init__(self, why: str, at: int) -> None:
        self.problem = NotSimple(why, at)


def _read_word(text: str, start: int) -> tuple[str, list[str], int]:
    """Returns the word that begins at `start`, notes about it, and its end."""
    parts: list[str] = []
    notes: list[str] = []
    at = start
    while at < len(text) and text[at] not in " \t":
        character = text[at]
        if character == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise _NotReadable("A single quote is never closed.", at)
            parts.append(text[at + 1 : end])
            at = end + 1
        elif character == '"':
            part, at = _read_double_quoted(text, at)
            parts.append(part)
        elif character == "\\":
            if at + 1 == len(text) or text[at + 1] == "\n":
                raise _NotReadable("A backslash stands at the end of the line.", at)
            parts.append(text[at + 1])
            at += 2
        else:
            _check_syntax(text, at, starts_word=at == start)
            if character == "{":  # only {}, which a shell passes on
                parts.append("{}")
                at += 2
                continue
            if character in "*?[":
                notes.append(f"'{character}' reaches the program as it is written: nothing expands patterns.")
            elif character == "~" and at == start:
                notes.append("'~' reaches the program as it is written: nothing expands it.")
            parts.append(character)
            at += 1
    return "".join(parts), notes, at


def _read_double_quoted(text: str, start: int) -> tuple[str, int]:
    parts: list[str] = []
    at = start + 1
    while at < len(text):
        character = text[at]
        if character == '"':
            return "".join(parts), at + 1
        if character == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\"):
            parts.append(text[at + 1])
            at += 2
            continue
        if character in "$`":
            _check_expansion(character, at)
        parts.append(character)
        at += 1
    raise _NotReadable("A double quote is never closed.", start)


def _check_syntax(text: str, at: int, *, starts_word: bool) -> None:
    character = text[at]
    if character in "$`":
        _check_expansion(character, at)
    if character in ";&|":
        raise _NotReadable(f"'{character}' connects commands, and only one command may run.", at)
    if character in "<>":
        raise _NotReadable(f"'{character}' redirects, and nothing here redirects. Use stdin and outputs.", at)
    if character in "()":
        raise _NotReadable(f"'{character}' belongs to the shell's language. Put it in quotes.", at)
    if (character == "{" and text[at : at + 2] != "{}") or character == "}":
        raise _NotReadable("Braces are not expanded. Put them in quotes, or write the words out.", at)
    if character == "#" and starts_word:
        raise _NotReadable("'#' begins a comment. Put it in quotes.", at)


def _check_expansion(character: str, at: int) -> None:
    raise _NotReadable(
        f"'{character}' is not expanded here. Write the value, or put it in single quotes if it is meant as it is.", at
    )


def _finished(words: list[str], notes: list[str]) -> ShellCommand:
    if not words or not words[0]:
        raise _NotReadable("There is no command.", 0)
    program = words[0]
    if "=" in program:
        raise _NotReadable("An assignment in front of the command is the shell's business. Use env.", 0)
    if program in _RESERVED:
        raise _NotReadable(f"'{program}' is a word of the shell's language, not a program.", 0)
    return ShellCommand(tuple(words), tuple(dict.fromkeys(notes)))
