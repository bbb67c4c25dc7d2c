r"""The words of a shell line at any depth of quoting, and why nobody can say which programs it starts.

For rules that ask or deny. `Line.words` has every word that the line mentions, in order: `bash -c "git 'pu'sh"` has
git and push, and `r\m` is rm. `Line.unclear` says what is only known while the line runs: a program whose name is an
expansion, a substitution or a pattern, or a text that cannot be read. What is returned is never run.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from prowess.policy.lexer import find_hidden

MAX_CHARACTERS = 128 << 10  # no argument of a program can be longer, and a line is one of the shell's
MAX_DEPTH = 8  # of lines within lines; quotes grow exponentially with it
MAX_READ = 2 * MAX_CHARACTERS  # of a line and all lines within it, each counted where it is read
# What runs a text that it is given as a line of shell.
SHELLS = frozenset(
    "sh bash rbash zsh dash ash ksh mksh fish csh tcsh busybox eval trap env su ssh script watch parallel".split()
)
# What starts the program, or runs the code, that its words name. Who allows one of these allows what it starts.
STARTERS = SHELLS | frozenset(
    """
    . source exec command builtin time nice ionice nohup setsid stdbuf timeout xargs find flock sudo doas runuser chroot
    unshare nsenter setpriv taskset chrt strace gdb tini dumb-init ccache systemd-run screen tmux docker podman npx uvx
    pipx uv make python pypy ipython perl ruby node nodejs deno bun php lua luajit tclsh rscript julia awk gawk mawk
    pwsh
    """.split()
)
_OURS = {
    name: (re.compile(rf"\b{name}\b"), re.compile(rf"\$(?:{name}\b|\{{{name}\}})"))
    for name in ("WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR", "SKILL_DIR")
}
_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_TOKEN = re.compile(r"[\w.+\-/]+")
_QUOTED = str.maketrans("", "", "'\"\\")
_RESERVED = frozenset("! { } if then elif else fi while until do done esac coproc".split())
_NO_COMMAND = frozenset("for select case function".split())
_ASSIGNMENT = re.compile(r"\w+(?:\[[^]]*\])?\+?=")
_VERSION = re.compile(r"(?<=[^\W\d])[-.]?\d[\d.\-]*$")


class Line(NamedTuple):
    words: tuple[str, ...]
    keys: tuple[str, ...]  # the same, as they are compared
    unclear: str = ""


@lru_cache(maxsize=8)
def read_line(text: str) -> Line:
    """The line, read in time that grows with its length."""
    if len(text) > MAX_CHARACTERS:
        return Line((), (), f"The command is longer than {MAX_CHARACTERS} characters.")
    text = _with_our_variables(text)
    words = list(_find_words(text))
    if "\\\n" in text:  # which joins two lines, unless the backslash is itself quoted
        words += _find_words(text.replace("\\\n", ""))
    return Line(tuple(words), tuple(map(word_key, words)), find_hidden(text) or _find_unclear(text))


def word_key(word: str) -> str:
    """The word as file systems see it that do not care about case or form; a path without `.` and `..`."""
    word = word if word.isascii() else unicodedata.normalize("NFKC", word)
    return (posixpath.normpath(word) if "/" in word else word).casefold().removesuffix(".exe")


def program_name(word: str) -> str:
    """`/usr/bin/Python3.11` is `python`: the last part of a path, in small letters, without a version."""
    return _VERSION.sub("", word_key(word).rpartition("/")[2])


def show(word: str) -> str:
    """The word for people: printable, and not long."""
    shown = "".join(c if c.isprintable() else "?" for c in word)
    return shown if len(shown) <= 60 else shown[:57] + "…"


def _with_our_variables(text: str) -> str:
    """Their values are ours, unless the line mentions one in another way, by which it may set it."""
    for name, (mentioned, used) in _OURS.items():
        if len(mentioned.findall(text)) == len(used.findall(text)):
            text = used.sub(f"/{name}", text)
    return text


def _find_words(text: str) -> Iterator[str]:
    """Quotes join (`r''m`) and they part (`-c'rm x'`), and so do backslashes (`r\\m`, `x\\nrm`): both are read."""
    for chunk in _UNSEEN.sub("", text).split():
        yield from _TOKEN.findall(chunk.translate(_QUOTED))
        if re.search(r"['\"\\]", chunk):
            yield from _TOKEN.findall(re.sub(r"\\.|['\"]", " ", chunk))


# --- what is only known while it runs -------------------------------------------------------------------------------


class _Word(NamedTuple):
    text: str  # without its quotes
    known: bool  # no expansion, substitution or pattern is in it
    quoted: bool = False


def _find_unclear(text: str) -> str:
    """Why the programs of the line, or of a line within it, are not known."""
    lines, seen, left = [(text, 0)], {text}, MAX_READ
    for line, depth in lines:  # which grows
        left -= len(line)
        if depth > MAX_DEPTH or left < 0:
            return f"The command has more than {MAX_DEPTH} lines within one another, or too long ones."
        scan = _Scan(line)
        try:
            scan.run()
        except _Unread as unread:
            return str(unread)
        for words in scan.commands:
            if unclear := _judge(words):
                return unclear
            within = [each for each in _lines_within(words) if each not in seen]
            seen.update(within)
            lines += [(each, depth + 1) for each in within]
    return ""


def _judge(words: list[_Word]) -> str:
    """Why the programs of one simple command are not known."""
    starts = True  # the first word is a program
    for number, word in enumerate(words[_find_program(words) :]):
        if not word.known and starts:
            return f"'{show(word.text)}' is only known while the command runs."
        starts = (starts and number > 0) or program_name(word.text) in STARTERS
    return ""


def _lines_within(words: list[_Word]) -> Iterator[str]:
    """The quoted words behind a shell, which it runs as lines."""
    reads = False
    for word in words[_find_program(words) :]:
        if reads and word.quoted:
            yield word.text
        reads = reads or program_name(word.text) in SHELLS


def _find_program(words: list[_Word]) -> int:
    """The place of the first word that is a program; behind the last word when there is none."""
    at = 0
    while at < len(words) and (words[at].text in _RESERVED or _ASSIGNMENT.match(words[at].text)):
        at += 1
    return len(words) if at < len(words) and words[at].text in _NO_COMMAND else at


class _Unread(Exception):
    """Why a text cannot be read."""


class _Frame:
    """A part of the line that `end` closes. Only a list of commands has words; inside `${…}`, an array or a sum there
    are none, but for those of a substitution."""

    def __init__(self, end: str, *, lists: bool) -> None:
        self.end, self.lists = end, lists
        self.sum = False  # another `)` has to follow its end
        self.words: list[_Word] = []
        self.parts: list[str] | None = None  # of the word that is being read
        self.known, self.quoted = True, False
        self.target = False  # the next word is where a redirection leads


class _Scan:
    """One pass over a line. `commands` are its simple commands, those of substitutions included."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.frames = [_Frame("", lists=True)]
        self.commands: list[list[_Word]] = []
        self.documents: list[tuple[str, bool, bool, list[_Word]]] = []  # end, quoted, indented, of which command

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
        if character == frame.end:
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
        elif character == ")":  # behind a pattern of `case`
            self._drop(frame)
        elif character == "#" and frame.parts is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif frame.parts is None and (alone := _ALONE.match(self.text, self.at - 1)):
            self._add(alone[0])
            self.at = alone.end()
        else:  # * ? [ { } #
            self._add(character, known=character in "}#" or self.text.startswith("{}", self.at - 1))

    def _open(self, frame: _Frame) -> None:
        if frame.parts is None:
            self.frames.append(_Frame(")", lists=True))
        elif frame.parts[-1].endswith("="):
            self.frames.append(_Frame(")", lists=False))
        elif function := _FUNCTION.match(self.text, self.at):
            self.at = function.end()
            self._drop(frame)
        else:
            raise _Unread("A '(' within a word cannot be read.")

    def _expand(self, character: str) -> None:
        """Begin what stands for something else. The word around it is not known."""
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
        if self.text.startswith("(", self.at):  # a substitution that is a file
            self._add(character, known=False)
            self.frames.append(_Frame(")", lists=True))
            self.at += 1
            return
        self._end_word()
        if character == "<" and (found := _DOCUMENT.match(self.text, self.at)):
            self.at = found.end()
            end = found["end"].translate(_QUOTED)
            self.documents.append((end, end != found["end"], bool(found["tabs"]), frame.words))
            return
        if character == "<" and self.text.startswith("<<", self.at):  # what follows is read by the program
            self.at += 2
            return
        while self.text[self.at : self.at + 1] in ("<", ">", "&", "|"):
            self.at += 1
        frame.target = True

    def _read_documents(self) -> None:
        """What stands below a line that asked for it is a word of that command, and of the last one of the line."""
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
        """Add to the word that is being read, which may have begun outside of the quotes that we are in."""
        frame = next(each for each in reversed(self.frames) if each.lists or each.end != '"')
        if not frame.lists:
            return
        if frame.parts is None:
            frame.parts = []
        frame.parts.append(text)
        frame.known, frame.quoted = frame.known and known, frame.quoted or quoted

    def _end_word(self) -> None:
        frame = self.frames[-1]
        if frame.parts is not None and not frame.target:
            frame.words.append(_Word("".join(frame.parts), frame.known, frame.quoted))
        if frame.parts is not None:
            frame.target = False
        frame.parts, frame.known, frame.quoted = None, True, False

    def _drop(self, frame: _Frame) -> None:
        """Forget what is no command."""
        frame.words, frame.parts, frame.known, frame.quoted = [], None, True, False

    def _end_command(self) -> None:
        self._end_word()
        frame = self.frames[-1]
        if frame.words:
            self.commands.append(frame.words)
        frame.words, frame.target = [], False


_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>(){}#*?\[]+")
_ALONE = re.compile(r"(?:\[\[?|\{\}?|\})(?=[\s;&|)]|$)")
_FUNCTION = re.compile(r"\s*\)")
_DOCUMENT = re.compile(r"<(?P<tabs>-?)[ \t]*(?P<end>(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|<>()'\"\\])+)")
