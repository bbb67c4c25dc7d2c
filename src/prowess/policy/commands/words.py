r"""Reads all words of a shell line, at any depth of quoting, and says when its programs are unknown.

For rules that ask or deny. `ShellLine.words` has every word that the line mentions, in order: `bash -c "git 'pu'sh"`
has git and push, and `r\m` is rm. `ShellLine.unclear` says what is only known while the line runs: a program name with
an expansion, a substitution or a pattern, or a text that cannot be read. The result is never run.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from prowess.policy.commands.parse import find_hidden

MAX_CHARACTERS = 128 << 10  # the limit for one argument of a program; a line is an argument of the shell
MAX_DEPTH = 8  # of lines within lines; quotes grow exponentially with depth
MAX_READ = 2 * MAX_CHARACTERS  # of a line and all lines within it, each counted when it is read
# Programs that run an argument as a shell line.
SHELLS = frozenset(
    "sh bash rbash zsh dash ash ksh mksh fish csh tcsh busybox eval trap env su ssh script watch parallel".split()
)
# Programs that start the program, or run the code, named in their arguments. Allowing one allows everything it starts.
STARTERS = SHELLS | frozenset(
    """
    . source exec command builtin time nice ionice nohup setsid stdbuf timeout xargs find flock sudo doas runuser chroot
    unshare nsenter setpriv taskset chrt strace gdb tini dumb-init ccache systemd-run screen tmux docker podman npx uvx
    pipx uv make python pypy ipython perl ruby node nodejs deno bun php lua luajit tclsh rscript julia awk gawk mawk
    pwsh hash mapfile readarray compgen alias split setarch linux32 linux64 i386 x86_64 uname26 prlimit choom logsave
    sg newgrp capsh pkexec fakeroot ssh-agent dbus-run-session dpkg-architecture start-stop-daemon cpulimit xvfb-run
    faketime eatmydata ltrace ld-linux.so ld-linux-x86-64.so ld-linux-aarch64.so
    """.split()
)
# For each variable that Prowess sets: any mention, a use, and a use as a word or as the beginning of a path.
_OURS = {
    name: (
        re.compile(rf"\b{name}\b"),
        re.compile(rf"\$(?:{name}\b|\{{{name}\}})"),
        re.compile(
            rf"(?<![^\s=:;&|<>(`'\"])(?<![^\s=:;&|<>(`]['\"])\$(?:{name}\b|\{{{name}\}})(?=['\"]?(?:[/\s:;&|<>)`]|$))"
        ),
    )
    for name in ("WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR", "SKILL_DIR")
}
_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_TOKEN = re.compile(r"[\w.+\-/]+")
_QUOTED = str.maketrans("", "", "'\"\\")
_TAKING = frozenset("cCSOPIx")  # option letters that take a program
_RESERVED = frozenset("! { } if then elif else fi while until do done esac coproc".split())
_LOOPS = frozenset("for select".split())
_COMPOUND = frozenset("{ if while until for select case [[".split())
_DECIDES = re.compile(r"(?:BASH_CMDS|BASH_ALIASES|BASH_ENV|PS4|PROMPT_COMMAND)[\[+=]")  # sets what a shell starts
_ASSIGNMENT = re.compile(r"\w+(?:\[[^]]*\])?\+?=")
_VERSION = re.compile(r"(?<=[^\W\d])[-.]?\d[\d.\-]*$")


class ShellLine(NamedTuple):
    words: tuple[str, ...]
    keys: tuple[str, ...]  # the same words in the form for comparison
    unclear: str = ""
    guesses: tuple[tuple[str, ...], ...] = ()  # words of simple commands, each up to the first unknown word


@lru_cache(maxsize=8)
def read_line(text: str) -> ShellLine:
    """Reads a line, in time proportional to its length."""
    if len(text) > MAX_CHARACTERS:
        return ShellLine((), (), f"The command is longer than {MAX_CHARACTERS} characters.")
    text = _with_our_variables(text)
    words = list(_find_words(text))
    if "\\\n" in text:  # joins two lines, unless the backslash is quoted
        words += _find_words(text.replace("\\\n", ""))
    unclear, guesses = _find_unclear(text)
    return ShellLine(tuple(words), tuple(map(word_key, words)), find_hidden(text) or unclear, guesses)


def word_key(word: str) -> str:
    """Returns the word in the form for comparison: case and Unicode form ignored, a path without `.` and `..`."""
    word = word if word.isascii() else unicodedata.normalize("NFKC", word)
    return (posixpath.normpath(word) if "/" in word else word).casefold().removesuffix(".exe")


def program_name(word: str) -> str:
    """Returns the program of a word: the last part of its path, in lower case, without a version. `/usr/bin/Python3.11`
    is `python`."""
    return _VERSION.sub("", word_key(word).rpartition("/")[2])


def show(word: str) -> str:
    """Returns the word for people: printable and short."""
    shown = "".join(c if c.isprintable() else "?" for c in word)
    return shown if len(shown) <= 60 else shown[:57] + "…"


def _with_our_variables(text: str) -> str:
    """Replaces the variables that Prowess sets by fixed paths. A variable that the line mentions in another way may be
    set there, so it stays."""
    joined = text.translate(_QUOTED)
    for name, (mentioned, used, alone) in _OURS.items():
        if len(mentioned.findall(joined)) == len(used.findall(joined)):
            text = alone.sub(f"/{name}", text)
    return text


def _find_words(text: str) -> Iterator[str]:
    """Yields the words in every reading. Quotes can join (`r''m`) or separate (`-c'rm x'`), and so can backslashes
    (`r\\m`, `x\\nrm`)."""
    for chunk in _UNSEEN.sub("", text).split():
        for word in _TOKEN.findall(re.sub(r"\$(?=['\"])", "", chunk).translate(_QUOTED)):
            yield word
            if word.startswith("-") and not word.startswith("--"):  # `-crm` may be `-c rm`
                yield from (word[at + 1 :] for at in range(1, 9) if word[at : at + 1] in _TAKING and word[at + 1 :])
        if re.search(r"['\"\\]", chunk):
            yield from _TOKEN.findall(re.sub(r"\\.|['\"]", " ", chunk))


# --- what is only known while it runs -------------------------------------------------------------------------------


class _Word(NamedTuple):
    text: str  # without quotes
    known: bool  # contains no expansion, substitution or pattern
    quoted: bool = False


def _find_unclear(text: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Returns why the programs of the line, or of a line within it, are unknown; and the guesses of a ShellLine."""
    guesses: list[tuple[str, ...]] = []
    lines, seen, left = [(text, 0)], {text}, MAX_READ
    for line, depth in lines:  # grows in the loop
        left -= len(line)
        if depth > MAX_DEPTH or left < 0:
            return f"The command has more than {MAX_DEPTH} lines within one another, or too long ones.", ()
        scan = _Scan(line)
        try:
            scan.run()
        except _Unread as unread:
            return str(unread), ()
        for words in scan.commands:
            if unclear := _judge(words):
                return unclear, ()
            guesses += _guesses(words)
            within = [each for each in _lines_within(words) if each not in seen]
            seen.update(within)
            lines += [(each, depth + 1) for each in within]
    return "", tuple(guesses)


def _guesses(words: list[_Word]) -> Iterator[tuple[str, ...]]:
    at = next((n for n, word in enumerate(words) if not word.known), 0)
    if at:
        yield tuple(word_key(word.text) for word in words[:at])


def _judge(words: list[_Word]) -> str:
    """Returns why the programs of one simple command are unknown; "" when they are known."""
    if decides := next((word for word in words if _DECIDES.match(word.text)), None):
        return f"'{show(decides.text)}' decides what a shell starts."
    starts = True  # the first word is a program
    for number, word in enumerate(words[_find_program(words) :]):
        if starts and (not word.known or (number == 0 and word.text[1:] in _OURS)):
            return f"'{show(word.text)}' is only known while the command runs; write it out."
        starts = (starts and number > 0) or not STARTERS.isdisjoint(
            (program_name(word.text), word.text.rpartition("/")[2])
        )
    return ""


def _lines_within(words: list[_Word]) -> Iterator[str]:
    """Yields the quoted words after a shell, which it runs as lines."""
    reads = False
    for word in words[_find_program(words) :]:
        if reads and word.quoted:
            yield word.text
        reads = reads or program_name(word.text) in SHELLS


def _find_program(words: list[_Word]) -> int:
    """Returns the index of the first word that is a program; the number of words when there is none."""
    at = 0
    while at < len(words):
        word = words[at].text
        if word == "case":
            return len(words)
        if word in _LOOPS:
            at = next((n for n in range(at, len(words)) if words[n].text in ("do", "{")), len(words))
        elif word == "function" or (word == "coproc" and at + 2 < len(words) and words[at + 2].text in _COMPOUND):
            at += 2
        elif word in _RESERVED or _ASSIGNMENT.match(word):
            at += 1
        else:
            break
    return min(at, len(words))


class _Unread(Exception):
    """Reason why a text cannot be read."""


class _Frame:
    """Part of the line that `end` closes. Only a list of commands collects words. Inside `${…}`, an array or a sum,
    only substitutions have words."""

    def __init__(self, end: str, *, lists: bool) -> None:
        self.end, self.lists = end, lists
        self.sum = False  # another `)` must follow its end
        self.words: list[_Word] = []
        self.parts: list[str] | None = None  # parts of the current word
        self.known, self.quoted = True, False
        self.target = False  # the next word is the target of a redirect
        self.here = False  # the program reads that word as its input
        self.read: list[_Word] = []
        self.cases = 0  # number of open cases: inside one, `)` ends a pattern
        self.fresh = True  # a reserved word is possible here
        self.may_be_sum = False


class _Scan:
    """Single pass over a line. `commands` are its simple commands, including those in substitutions."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.frames = [_Frame("", lists=True)]
        self.commands: list[list[_Word]] = []
        self.documents: list[tuple[str, bool, bool, list[_Word]]] = []  # end, quoted, indented, words of its command

    def run(self) -> None:
        while self.at < len(self.text):
            self._step(self.frames[-1])
        if len(self.frames) > 1:
            raise _Unread(f"A '{self.frames[-1].end}' is missing: something is never closed.")
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
            frame.words.append(_Word("(", known=True))
        elif frame.parts is None:
            self.frames.append(_Frame(")", lists=True))
            self.frames[-1].may_be_sum = frame.may_be_sum or self.text[max(self.at - 2, 0) : self.at] == "(("
        elif frame.parts[-1].endswith("="):
            self.frames.append(_Frame(")", lists=False))
        elif function := _FUNCTION.match(self.text, self.at):
            self.at = function.end()
            self._drop(frame)
        else:
            raise _Unread("A '(' within a word cannot be read.")

    def _expand(self, character: str) -> None:
        """Starts an expansion or substitution. The word around it is unknown."""
        following = self.text[self.at + 1 : self.at + 3]
        if character == "$" and following[:1] in ("'", '"') and self.frames[-1].end != '"':
            if following[0] == "'" and "\\" in self.text[self.at + 2 : self.text.find("'", self.at + 2)]:
                raise _Unread("The escapes in $'…' are not read.")
            self.at += 1
            return
        self._add("$", known=False)
        self.at += 1
        if character == "`":
            self.frames.append(_Frame("`", lists=True))
        elif following == "((":
            self.frames += [_Frame(")", lists=False), _Frame(")", lists=False)]
            self.frames[-1].sum = True
            self.at += 2
        elif following[:1] in ("(", "{"):
            self.frames.append(_Frame(")" if following[0] == "(" else "}", lists=following[0] == "("))
            self.at += 1

    def _quote(self, character: str) -> None:
        self.at += 1
        if character == '"':
            self._add("", quoted=True)
            self.frames.append(_Frame('"', lists=False))
            return
        end = self.text.find("'", self.at)
        if end < 0:
            raise _Unread("A single quote is never closed.")
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
                raise _Unread("A '<<' that may be a sum cannot be read.")
            self.at = found.end()
            end = found["end"].translate(_QUOTED)
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
            begin = stop = self.at
            while self.at < len(self.text):
                end_of_line = self.text.find("\n", self.at) + 1 or len(self.text)
                stop, line = self.at, self.text[self.at : end_of_line].rstrip("\n")
                self.at = end_of_line
                if (line.lstrip("\t") if indented else line) == end:
                    break
                stop = self.at
            body = self.text[begin:stop]
            if not quoted and re.search(r"\$\(|`", body):
                raise _Unread("A here-document has a substitution in it.")
            word = _Word(body, quoted or "$" not in body, quoted=True)
            words.append(word)
            if self.commands and self.commands[-1] is not words:
                self.commands[-1].append(word)
        self.documents.clear()

    def _close(self, frame: _Frame) -> None:
        self.at += 1
        if frame.lists:
            self._end_command()
        self.frames.pop()
        if frame.sum and not self.text.startswith(")", self.at):
            raise _Unread("A '$((' that is no sum cannot be read.")

    def _add(self, text: str, *, known: bool = True, quoted: bool = False) -> None:
        """Adds to the current word, which may have begun before the quotes around this text."""
        frame = next(each for each in reversed(self.frames) if each.lists or each.end != '"')
        if not frame.lists:
            return
        if frame.parts is None:
            frame.parts = []
        frame.parts.append(text)
        frame.known, frame.quoted = frame.known and known, frame.quoted or quoted

    def _end_word(self) -> None:
        frame = self.frames[-1]
        if frame.parts is not None:
            word = _Word("".join(frame.parts), frame.known, frame.quoted)
            if not frame.target:
                self._count_cases(frame, word)
                frame.words.append(word)
            elif frame.here:
                frame.read.append(word)
            frame.target = frame.here = False
        frame.parts, frame.known, frame.quoted = None, True, False

    def _count_cases(self, frame: _Frame, word: _Word) -> None:
        if word == _CASE and frame.fresh:
            frame.cases += 1
        elif word == _ESAC and (frame.fresh or frame.words[-1:] == [_IN]):
            frame.cases -= 1
        if frame.cases < 0:
            raise _Unread("An 'esac' without 'case' cannot be read.")
        frame.fresh = frame.fresh and not word.quoted and (word.text in _RESERVED or word.text == "time")

    def _ends_pattern(self, frame: _Frame) -> bool:
        """True when a `)` that could close the frame ends a pattern of `case`."""
        if frame.lists:
            self._end_word()
        return frame.cases > 0

    def _end_pattern(self, frame: _Frame) -> None:
        """Drops a pattern of `case`. More than one word is no pattern, so it is kept as a command."""
        self._end_word()
        if not frame.cases:
            raise _Unread("A ')' that closes nothing cannot be read.")
        if len(frame.words) > 1 and frame.words[0] != _CASE:
            self._end_command()
        self._drop(frame)

    def _drop(self, frame: _Frame) -> None:
        """Drops words that are no command."""
        frame.words, frame.parts, frame.known, frame.quoted, frame.fresh = [], None, True, False, True

    def _end_command(self) -> None:
        self._end_word()
        frame = self.frames[-1]
        if frame.words:
            frame.words += frame.read
            self.commands.append(frame.words)
        frame.words, frame.read, frame.target, frame.here, frame.fresh = [], [], False, False, True


_CASE, _IN, _ESAC = (_Word(text, known=True) for text in ("case", "in", "esac"))
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>(){}#*?\[]+")
_ALONE = re.compile(r"(?:\[\[?|\{\}?|\})(?=[\s;&|)]|$)")
_FUNCTION = re.compile(r"\s*\)")
_DOCUMENT = re.compile(r"<(?P<tabs>-?)[ \t]*(?P<end>(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|<>()'\"\\])+)")
