"""Splits a shell line into its simple commands, in one pass, at any depth of substitutions and quotes."""

from __future__ import annotations

import re
from typing import NamedTuple

RESERVED = frozenset("! { } if then elif else fi while until do done esac coproc".split())
QUOTE_MARKS = str.maketrans("", "", "'\"\\")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>(){}#*?\[]+")
_ALONE = re.compile(r"(?:\[\[?|\{\}?|\})(?=[\s;&|)]|$)")
_FUNCTION = re.compile(r"\s*\)")
_DOCUMENT = re.compile(r"<(?P<tabs>-?)[ \t]*(?P<end>(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|<>()'\"\\])+)")


class ShellWord(NamedTuple):
    text: str  # without quotes
    known: bool  # contains no expansion, substitution or pattern
    quoted: bool = False


_CASE = ShellWord("case", known=True)
_IN = ShellWord("in", known=True)
_ESAC = ShellWord("esac", known=True)


class LineUnread(Exception):
    """Reason why a text cannot be read."""


class _Frame:
    """Part of the line that `end` closes. Only a list of commands collects words. Inside `${…}`, an array or a sum,
    only substitutions have words."""

    def __init__(self, end: str, *, lists: bool) -> None:
        self.end = end
        self.lists = lists
        self.sum = False  # another `)` must follow its end
        self.words: list[ShellWord] = []
        self.parts: list[str] | None = None  # parts of the current word
        self.known = True
        self.quoted = False
        self.target = False  # the next word is the target of a redirect
        self.here = False  # the program reads that word as its input
        self.read: list[ShellWord] = []
        self.cases = 0  # number of open cases: inside one, `)` ends a pattern
        self.fresh = True  # a reserved word is possible here
        self.may_be_sum = False

    def start_word(self) -> None:
        self.parts = None
        self.known = True
        self.quoted = False


class LineScan:
    """Single pass over a line. `commands` are its simple commands, including those in substitutions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.frames = [_Frame("", lists=True)]
        self.commands: list[list[ShellWord]] = []
        self.documents: list[
            tuple[str, bool, bool, list[ShellWord]]
        ] = []  # end, quoted, indented, words of its command

    def run(self) -> None:
        while self.at < len(self.text):
            self._step(self.frames[-1])
        if len(self.frames) > 1:
            raise LineUnread(f"A '{self.frames[-1].end}' is missing: something is never closed.")
        self._end_command()

    def _step(self, frame: _Frame) -> None:
        plain = _PLAIN.match(self.text, self.at)
        if plain:
            self._add(plain[0])
            self.at = plain.end()
            return
        character = self.text[self.at]
        if character == frame.end and not (character == ")" and self._ends_pattern(frame)):
            self._close(frame)
        elif character == "\\":
            if self.text[self.at + 1 : self.at + 2] != "\n":
                self._add(self.text[self.at + 1 : self.at + 2], quoted=True)
            self.at += 2
        elif character in "$`":
            self._expand(character)
        elif frame.end == '"':
            self._add(character)
            self.at += 1
        elif character in "'\"":
            self._quote(character)
        elif not frame.lists:
            self.at += 1
            if character == "(" and frame.end == ")":
                self.frames.append(_Frame(")", lists=False))
        else:
            self._syntax(frame, character)

    def _syntax(self, frame: _Frame, character: str) -> None:
        self.at += 1
        if character in " \t":
            self._end_word()
        elif character in ";&|\n":
            self._end_command()
            if character == "\n":
                self._read_documents()
        elif character in "<>":
            self._redirect(frame, character)
        elif character == "(":
            self._open(frame)
        elif character == ")":
            self._end_pattern(frame)
        elif character == "#" and frame.parts is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif frame.parts is None and (alone := _ALONE.match(self.text, self.at - 1)):
            self._add(alone[0])
            self.at = alone.end()
        else:  # * ? [ { } #
            self._add(character, known=character in "}#" or self.text.startswith("{}", self.at - 1))

    def _open(self, frame: _Frame) -> None:
        if frame.parts is None and frame.cases and frame.words[-1:] == [_IN]:
            frame.words.append(ShellWord("(", known=True))
        elif frame.parts is None:
            inner = _Frame(")", lists=True)
            is_double = self.text[max(self.at - 2, 0) : self.at] == "(("
            inner.may_be_sum = frame.may_be_sum or is_double
            self.frames.append(inner)
        elif frame.parts[-1].endswith("="):
            self.frames.append(_Frame(")", lists=False))
        elif function := _FUNCTION.match(self.text, self.at):
            self.at = function.end()
            self._drop(frame)
        else:
            raise LineUnread("A '(' within a word cannot be read.")

    def _expand(self, character: str) -> None:
        """Starts an expansion or substitution. The word around it is unknown."""
        following = self.text[self.at + 1 : self.at + 3]
        first = following[:1]
        if character == "$" and first in ("'", '"') and self.frames[-1].end != '"':
            if first == "'" and "\\" in self.text[self.at + 2 : self.text.find("'", self.at + 2)]:
                raise LineUnread("The escapes in $'…' are not read.")
            self.at += 1
            return
        self._add("$", known=False)
        self.at += 1
        if character == "`":
            self.frames.append(_Frame("`", lists=True))
        elif following == "((":
            inner = _Frame(")", lists=False)
            inner.sum = True
            self.frames.append(_Frame(")", lists=False))
            self.frames.append(inner)
            self.at += 2
        elif first == "(":
            self.frames.append(_Frame(")", lists=True))
            self.at += 1
        elif first == "{":
            self.frames.append(_Frame("}", lists=False))
            self.at += 1

    def _quote(self, character: str) -> None:
        self.at += 1
        if character == '"':
            self._add("", quoted=True)
            self.frames.append(_Frame('"', lists=False))
            return
        end = self.text.find("'", self.at)
        if end < 0:
            raise LineUnread("A single quote is never closed.")
        self._add(self.text[self.at : end], quoted=True)
        self.at = end + 1

    def _redirect(self, frame: _Frame, character: str) -> None:
        if frame.parts is not None and "".join(frame.parts).isdigit():
            frame.parts = None
        if self.text.startswith("(", self.at):  # a process substitution
            self._add(character, known=False)
            self.frames.append(_Frame(")", lists=True))
            self.at += 1
            return
        before = frame.parts
        self._end_word()
        frame.fresh = False
        if character == "<" and (found := _DOCUMENT.match(self.text, self.at)):
            if frame.may_be_sum or "[" in (before or ()):
                raise LineUnread("A '<<' that may be a sum cannot be read.")
            self.at = found.end()
            end = found["end"].translate(QUOTE_MARKS)
            self.documents.append((end, end != found["end"], bool(found["tabs"]), frame.words))
            return
        if character == "<" and self.text.startswith("<<", self.at):  # a here-string: the program reads the next word
            self.at += 2
            frame.target = frame.here = True
            return
        while self.text[self.at : self.at + 1] in ("<", ">", "&", "|"):
            self.at += 1
        frame.target = True

    def _read_documents(self) -> None:
        """Reads here-documents. The text becomes a word of its command, and of the last command of the line."""
        for end, quoted, indented, words in self.documents:
            body = self._read_document(end, indented=indented)
            if not quoted and re.search(r"\$\(|`", body):
                raise LineUnread("A here-document has a substitution in it.")
            word = ShellWord(body, quoted or "$" not in body, quoted=True)
            words.append(word)
            if self.commands and self.commands[-1] is not words:
                self.commands[-1].append(word)
        self.documents.clear()

    def _read_document(self, end: str, *, indented: bool) -> str:
        """Reads up to the line that is `end`. Without such a line the document ends with the text."""
        begin = self.at
        while self.at < len(self.text):
            start = self.at
            self.at = self.text.find("\n", start) + 1 or len(self.text)
            line = self.text[start : self.at].rstrip("\n")
            if indented:
                line = line.lstrip("\t")
            if line == end:
                return self.text[begin:start]
        return self.text[begin : self.at]

    def _close(self, frame: _Frame) -> None:
        self.at += 1
        if frame.lists:
            self._end_command()
        self.frames.pop()
        if frame.sum and not self.text.startswith(")", self.at):
            raise LineUnread("A '$((' that is no sum cannot be read.")

    def _add(self, text: str, *, known: bool = True, quoted: bool = False) -> None:
        """Adds to the current word, which may have begun before the quotes around this text."""
        frame = next(each for each in reversed(self.frames) if each.lists or each.end != '"')
        if not frame.lists:
            return
        if frame.parts is None:
            frame.parts = []
        frame.parts.append(text)
        frame.known = frame.known and known
        frame.quoted = frame.quoted or quoted

    def _end_word(self) -> None:
        frame = self.frames[-1]
        if frame.parts is not None:
            word = ShellWord("".join(frame.parts), frame.known, frame.quoted)
            if not frame.target:
                self._count_cases(frame, word)
                frame.words.append(word)
            elif frame.here:
                frame.read.append(word)
            frame.target = False
            frame.here = False
        frame.start_word()

    def _count_cases(self, frame: _Frame, word: ShellWord) -> None:
        if word == _CASE and frame.fresh:
            frame.cases += 1
        elif word == _ESAC and (frame.fresh or frame.words[-1:] == [_IN]):
            frame.cases -= 1
        if frame.cases < 0:
            raise LineUnread("An 'esac' without 'case' cannot be read.")
        is_reserved = not word.quoted and (word.text in RESERVED or word.text == "time")
        frame.fresh = frame.fresh and is_reserved

    def _ends_pattern(self, frame: _Frame) -> bool:
        """True when a `)` that could close the frame ends a pattern of `case`."""
        if frame.lists:
            self._end_word()
        return frame.cases > 0

    def _end_pattern(self, frame: _Frame) -> None:
        """Drops a pattern of `case`. More than one word is no pattern, so it is kept as a command."""
        self._end_word()
        if not frame.cases:
            raise LineUnread("A ')' that closes nothing cannot be read.")
        if len(frame.words) > 1 and frame.words[0] != _CASE:
            self._end_command()
        self._drop(frame)

    def _drop(self, frame: _Frame) -> None:
        """Drops words that are no command."""
        frame.words = []
        frame.fresh = True
        frame.start_word()

    def _end_command(self) -> None:
        self._end_word()
        frame = self.frames[-1]
        if frame.words:
            frame.words += frame.read
            self.commands.append(frame.words)
        frame.words = []
        frame.read = []
        frame.target = False
        frame.here = False
        frame.fresh = True
