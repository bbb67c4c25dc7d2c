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
from itertools import pairwise
from typing import NamedTuple

from prowess.policy.commands.parse import find_hidden
from prowess.policy.commands.scan import QUOTE_MARKS, RESERVED, LineScan, LineUnread, ShellWord

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
    run-parts entr hyperfine valgrind bwrap gosu sshpass faketime eatmydata ltrace ld-linux.so ld-linux-x86-64.so
    ld-linux-aarch64.so m4
    """.split()
)
# For each variable that Prowess sets: any mention, a use, and a use as a word or as the beginning of a path.
_OURS = {
    name: (
        rf"\b{name}\b",
        rf"\$(?:{name}\b|\{{{name}\}})",
        rf"(?<![^\s=:;&|<>(`'\"])(?<![^\s=:;&|<>(`]['\"])\$(?:{name}\b|\{{{name}\}})(?=['\"]?(?:[/\s:;&|<>)`]|$))",
    )
    for name in ("WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR", "SKILL_DIR")
}
_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_TOKEN = re.compile(r"[\w.+\-/]+")
_TAKING = frozenset("cCSOPIx")  # option letters that take a program
_EXECS = frozenset("-exec -execdir -ok -okdir".split())  # of find
_BETWEEN = re.compile(r"[-+\d.]|\w+=")  # begins a word that may stand between a starter and what it starts
_TEMPLATE = re.compile(r"(?:-\w*?[IJ]|--replace=)(.*)", re.DOTALL)  # of xargs
_SED = ("sed", "gsed")
_SED_OPTION = re.compile(r"^(?:--expression=|-[nErsuz]*e)")
_SED_RUNS = re.compile(r"(?<![A-Za-z0-9_\\])[0-9gpIiMm]*+e(?:[0-9gpIiMmw]*+$|[\s;}](.*))", re.DOTALL)  # 1e ls, s/a/b/e
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
    keys = tuple(map(word_key, words))
    unclear, guesses = _find_unclear(text)
    return ShellLine(tuple(words), keys, find_hidden(text) or unclear, guesses)


def word_key(word: str) -> str:
    """Returns the word in the form for comparison: case and Unicode form ignored, a path without `.` and `..`."""
    if not word.isascii():
        word = unicodedata.normalize("NFKC", word)
    if "/" in word:
        word = posixpath.normpath(word)
    return word.casefold().removesuffix(".exe")


def program_name(word: str) -> str:
    """Returns the program of a word: the last part of its path, in lower case, without a version. `/usr/bin/Python3.11`
    is `python`."""
    last = word_key(word).rpartition("/")[2]
    return _VERSION.sub("", last)


def show(word: str) -> str:
    """Returns the word for people: printable and short."""
    shown = "".join(c if c.isprintable() else "?" for c in word)
    if len(shown) <= 60:
        return shown
    return shown[:57] + "…"


def _with_our_variables(text: str) -> str:
    """Replaces the variables that Prowess sets by fixed paths. A variable that the line mentions in another way may be
    set there, so it stays."""
    joined = text.translate(QUOTE_MARKS)
    for name, (mentioned, used, alone) in _OURS.items():
        if len(re.findall(mentioned, joined)) == len(re.findall(used, joined)):
            text = re.sub(alone, f"/{name}", text)
    return text


def _find_words(text: str) -> Iterator[str]:
    """Yields the words in every reading. Quotes can join (`r''m`) or separate (`-c'rm x'`), and so can backslashes
    (`r\\m`, `x\\nrm`)."""
    for chunk in _UNSEEN.sub("", text).split():
        joined = re.sub(r"\$(?=['\"])", "", chunk).translate(QUOTE_MARKS)
        for word in _TOKEN.findall(joined):
            yield word
            if word.startswith("-") and not word.startswith("--"):
                yield from _programs_of_option(word)
        if re.search(r"['\"\\]", chunk):
            separated = re.sub(r"\\.|['\"]", " ", chunk)
            yield from _TOKEN.findall(separated)


def _programs_of_option(word: str) -> Iterator[str]:
    """Yields what an option may take: `-crm` may be `-c rm`."""
    for number, letter in enumerate(word[1:9], 2):
        program = word[number:]
        if program and letter in _TAKING:
            yield program


# --- what is only known while it runs -------------------------------------------------------------------------------


def _find_unclear(text: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Returns why the programs of the line, or of a line within it, are unknown; and the guesses of a ShellLine."""
    guesses: list[tuple[str, ...]] = []
    lines = [(text, 0)]
    seen = {text}
    left = MAX_READ
    for line, depth in lines:  # grows in the loop
        left -= len(line)
        if depth > MAX_DEPTH or left < 0:
            return f"The command has more than {MAX_DEPTH} lines within one another, or too long ones.", ()
        scan = LineScan(line)
        try:
            scan.run()
        except LineUnread as unread:
            return str(unread), ()
        for words in scan.commands:
            unclear = _judge(words)
            if unclear:
                return unclear, ()
            guesses += _guesses(words)
            within = [each for each in _lines_within(words) if each not in seen]
            seen.update(within)
            lines += [(each, depth + 1) for each in within]
    return "", tuple(guesses)


def _guesses(words: list[ShellWord]) -> Iterator[tuple[str, ...]]:
    for at, word in enumerate(words):
        if not word.known:
            if at:
                yield tuple(word_key(each.text) for each in words[:at])
            return


def _judge(words: list[ShellWord]) -> str:
    """Returns why the programs of one simple command are unknown; "" when they are known."""
    for word in words:
        if _DECIDES.match(word.text):
            return f"'{show(word.text)}' decides what a shell starts."
    runs_lines = bool(_sed_lines(words))
    starts = True  # the first word is a program
    for number, word in enumerate(words[_find_program(words) :]):
        is_ours = number == 0 and word.text[1:] in _OURS
        if starts and (is_ours or not word.known):
            return f"'{show(word.text)}' is only known while the command runs; write it out."
        if number == 0 or not starts:
            starts = _is_starter(word.text) or (runs_lines and program_name(word.text) in _SED)
    return _why_filled_in([word.text for word in words[_find_program(words) :]])


def _why_filled_in(words: list[str]) -> str:
    """Returns why `find` or `xargs` puts words of its own where a program stands; "" when they do not."""
    names = [program_name(word) for word in words]
    has_xargs = "xargs" in names
    templates = {"{}"}
    if has_xargs:
        for option, behind in pairwise(words):
            found = _TEMPLATE.fullmatch(option)
            if found:
                templates.add(found[1] or behind)
    if len(templates) > MAX_DEPTH:
        return "Too many words of the command may be replaced by others."
    before = ""  # the last word that is no option, number or assignment
    for at, word in enumerate(words):
        is_filled_in = not word.startswith("-") and any(each in word for each in templates)
        starts = before in _EXECS or (_is_starter(before) and program_name(before) != "find")
        if is_filled_in and starts and words[at - 1][-1:] not in ("I", "J"):
            break
        if word in _EXECS or not (word in templates or _BETWEEN.match(word)):
            before = word
    else:
        if not has_xargs or not _is_starter(before) or program_name(before) == "xargs":  # which starts echo
            return ""
    return f"'{show(before)}' starts what is only known while the command runs."


def _sed_lines(words: list[ShellWord]) -> list[str]:
    """Returns the lines that scripts of `sed` run; "" for one that is read from a file."""
    if not any(program_name(word.text) in _SED for word in words):
        return []
    lines: list[str] = []
    for word in words:
        script = _SED_OPTION.sub("", word.text)
        found = _SED_RUNS.search(script)
        if found:
            line = found[1] or ""
            lines.append(line)
    return lines


def _is_starter(word: str) -> bool:
    last = word.rpartition("/")[2]
    return last in STARTERS or program_name(word) in STARTERS


def _lines_within(words: list[ShellWord]) -> Iterator[str]:
    """Yields the quoted words after a shell, which it runs as lines."""
    reads = False
    for word in words[_find_program(words) :]:
        if reads and word.quoted:
            yield word.text
        reads = reads or program_name(word.text) in SHELLS
    yield from filter(None, _sed_lines(words))


def _find_program(words: list[ShellWord]) -> int:
    """Returns the index of the first word that is a program; the number of words when there is none."""
    at = 0
    while at < len(words):
        word = words[at].text
        if word == "case":
            return len(words)
        if word in _LOOPS:
            at = _find_body(words, at)
        elif word == "function" or (word == "coproc" and _is_compound(words, at + 2)):
            at += 2
        elif word in RESERVED or _ASSIGNMENT.match(word):
            at += 1
        else:
            break
    return min(at, len(words))


def _find_body(words: list[ShellWord], loop: int) -> int:
    """Returns the index of the word that begins the body of a loop."""
    for at in range(loop, len(words)):
        if words[at].text in ("do", "{"):
            return at
    return len(words)


def _is_compound(words: list[ShellWord], at: int) -> bool:
    return at < len(words) and words[at].text in _COMPOUND
