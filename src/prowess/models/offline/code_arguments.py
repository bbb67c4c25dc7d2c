"""Finds the words of a command that are read as code. Values of a request and names of files must not go there.

The check looks at the form of the command, not at a list of all programs: beside an option such as `-c`, `-e` or
`--eval` only a plain value may stand, for any program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MARK = "\0"  # stands for a placeholder
PLAIN = re.compile(r"(?!-)[A-Za-z0-9._/-]+")


class Word(NamedTuple):
    text: str  # without its quotes
    start: int
    end: int


class Simple(NamedTuple):
    """Simple command, in the sense of the shell."""

    words: tuple[Word, ...]
    piped: bool  # behind a pipe


def split_commands(text: str) -> Iterator[Simple]:
    words: list[Word] = []
    piped = False
    for found in _TOKENS.finditer(text):
        if found["word"]:
            words.append(Word(_QUOTES.sub("", found["word"]), *found.span()))
            continue
        yield Simple(tuple(words), piped)
        words = []
        piped = piped or found[0] in ("|", "|&")
    yield Simple(tuple(words), piped)


def reads_code(text: str) -> bool:
    """True when the command reads a filled-in word as a program, or runs a file that may contain one."""
    marked = False
    written: set[str] = set()  # names of files that may contain such words
    for command in split_commands(text):
        head = _before_script(command.words)
        script = command.words[len(head) : len(head) + 2]  # `x.py`, or `-m x`
        script = script if script and script[0].text == "-m" else script[:1]
        own = any(MARK in word.text for word in command.words)
        if own and (_runs_words(head) or _sets_variable(head)):
            return True
        if marked and _runs_written([*head, *script], written):
            return True
        if (own or marked) and _runs_what_it_reads(command, behind=marked):
            return True
        marked = marked or own
        if marked:
            given = len(head) + 1 if script else _first(command.words) + 1
            written.update(name for word in command.words[given:] for name in _names(word))
    return False


def find_risky(text: str) -> list[bool]:
    """Returns a flag for each placeholder: True when only a plain value may stand there."""
    commands = list(split_commands(text))
    counts = "((" in text or any(word.text == "[[" for command in commands for word in command.words)
    return [
        counts or risky
        for command in commands
        for risky in [_is_risky([word.text for word in _before_script(command.words)])]
        for word in command.words
        for _ in range(word.text.count(MARK))
    ]


def find_programs(text: str) -> frozenset[int]:
    """Returns the positions of words that are run, or may be. No given file may replace them."""
    found: set[int] = set()
    for command in split_commands(text):
        head = _before_script(command.words)
        sources = _sources(head)
        runs = bool(_runners(head))
        script = command.words[len(head) : len(head) + 1]
        for word in (*head, *script):
            if sources or (runs and _ENDING.search(word.text)):
                found.update(range(word.start, word.end))
    return frozenset(found)


def _before_script(words: Sequence[Word]) -> Sequence[Word]:
    """Returns the words before `x.py` of `python3 x.py …` or `python3 -m x …`. Later words are for that program."""
    for at in _runners(words):
        rest = at + 1
        while rest < len(words) and re.fullmatch("run|-[uBIO]+", words[rest].text):
            rest += 1
        following = [each.text for each in words[rest : rest + 2]]
        if following and _SCRIPT.fullmatch(following[0]):
            return words[:rest]
        if len(following) == 2 and following[0] == "-m" and _MODULE.fullmatch(following[1]):
            return words[:rest]
    return words


def _runners(words: Sequence[Word]) -> list[int]:
    """Returns the positions of shells, interpreters and their launchers. A variable as program name counts as one."""
    first = _first(words)
    return [
        at
        for at, word in enumerate(words)
        if _RUNNER.fullmatch(word.text) or (at == first and word.text.startswith("$"))
    ]


def _first(words: Sequence[Word]) -> int:
    return next((at for at, word in enumerate(words) if not _PREFIX.fullmatch(word.text)), len(words))


def _runs_words(head: Sequence[Word]) -> bool:
    texts = [word.text for word in head]
    if any(map(_ALWAYS.fullmatch, texts)) or {"env", "-S"} <= set(texts) or _sources(head):
        return True
    return any(_CODE.match(text) for at in _runners(head)[:1] for text in texts[at + 1 :])


def _sets_variable(head: Sequence[Word]) -> bool:
    """True when a placeholder sets a variable. Some variables are read as code, such as BASH_ENV and LD_PRELOAD.

    Any other variable may become more than one word where it is used.
    """
    first, anywhere = _first(head), any(_SETS.fullmatch(word.text) for word in head)
    return any(
        MARK in word.text and _ASSIGNMENT.match(word.text) and (anywhere or at < first) for at, word in enumerate(head)
    )


def _runs_written(words: Sequence[Word], written: set[str]) -> bool:
    """True when one of these files is run: as a program, or through an interpreter or a variable."""
    found = [at for at, word in enumerate(words) if any(name in written or "*" in name for name in _names(word))]
    texts = [word.text for word in words]
    runs = bool(_runners(words)) or _sources(words) or any(map(_ALWAYS.fullmatch, texts))
    return bool(found) and (runs or found[0] <= _first(words))


def _names(word: Word) -> set[str]:
    """Returns the names of files in a word, without folders; a module by its name."""
    names = {part.rsplit("/", 1)[-1] for part in re.split(r"[=:<>&|]+", word.text)} - {""}
    return names | {name.removesuffix(".py") for name in names}


def _runs_what_it_reads(command: Simple, *, behind: bool) -> bool:
    """True for a shell or an interpreter without its own program: `… | bash`, `python3 < x`."""
    head = _before_script(command.words)
    if len(head) < len(command.words) or not _runners(head):
        return False
    return (behind and command.piped) or any("<" in word.text for word in head)


def _is_risky(texts: Sequence[str]) -> bool:
    if any(_BUILTIN.fullmatch(text) or _LONG.match(text) or _ELEMENT.match(text) for text in texts):
        return True
    if "-v" in texts and {"test", "[", "printf"} & set(texts):
        return True
    return not (texts and _READS_ONLY.fullmatch(texts[0])) and any(_SHORT.match(text) for text in texts)


def _sources(words: Sequence[Word]) -> bool:
    return any(word.text == "source" or (word.text == "." and at == _first(words)) for at, word in enumerate(words))


_TOKENS = re.compile(
    r"(?P<word>(?:[^\s;&|()'\"\\>]++|>[|&]?|&>|'[^']*+(?:'|\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|\\(?:.|\Z))++)"
    r"|\|\||\|&|&&|[;&|()\n]",
    re.DOTALL,
)
_QUOTES = re.compile(r"\\\n|[\"'\\]")
_RUNNER = re.compile(
    r"(?:.*/)?(?:python[\d.]*w?|pypy[\d.]*|ipython3?|perl[\d.]*|ruby[\d.]*|node|nodejs|deno|bun|bunx|tsx|ts-node|npx"
    r"|php[\d.]*|lua[\d.]*|luajit|Rscript|R|julia|uvx?|poetry|pipx?|pipenv|hatch|conda|(?:ba|da|z|k|c|tc|fi|a)?sh"
    r"|busybox|pwsh|powershell|groovy|scala|elixir|erl|octave|tclsh|guile|racket|emacs|vim?|nvim)(?:[<>].*)?",
    re.DOTALL,
)
_ALWAYS = re.compile(
    r"(?:.*/)?(?:eval|[gmn]?awk|g?sed|xargs|ssh|parallel|watch|su|make|sqlite3|duckdb|psql|mysql|mariadb|mongosh"
    r"|osascript|trap|ed|ex|dc|m4|gdb)(?:[<>].*)?"
    r"|-(?:exec|execdir|ok|okdir)|--split-string.*|runpy|timeit"
    r"|--(?:checkpoint-action|to-command|use-compress-program|compress-program|rsh).*",
    re.DOTALL,
)
_ENDS_AS_SCRIPT = r"\.(?:pyw?|sh|bash|[mc]?js|[mc]?ts|tsx|jsx|rb|pl|php|lua|[rR]|jl|env)(?!\w)"
_ENDING = re.compile(_ENDS_AS_SCRIPT)
_SCRIPT = re.compile(rf"(?!-)[\w./~${{}}-]*{_ENDS_AS_SCRIPT}")
_MODULE = re.compile(r"(?!(?:runpy|pdb|timeit|code|trace|cProfile|profile|IPython)\b)[A-Za-z_][\w.]*")
_CODE = re.compile(r"-[A-Za-z]*[ceErpBR]|--(?:eval|print|command|exec|execute|expression|run|code)", re.DOTALL)
_SHORT = re.compile(r"-[A-Za-z]{0,2}[cerp](?![\w-])|-[cerp](?=[^A-Za-z-])")
_LONG = re.compile(r"--[\w-]*(?:eval|print|command|exec|expression|code|action|program|script|shell|filter|hook|run)")
_ELEMENT = re.compile(r"\w+\[")
_BUILTIN = re.compile(
    r"let|declare|typeset|local|export|readonly|read|unset|mapfile|readarray|getopts|alias|enable|bind|complete|compgen"
)
_READS_ONLY = re.compile(r"[ef]?grep|ls|cp|mv|mkdir|sort|head|tail|wc|cut|uniq|tr|cat|echo|date|curl")
_ASSIGNMENT = re.compile(r"\w+(?:\[[^]]*\])?\+?=")
_SETS = re.compile(r"(?:.*/)?(?:env|export|declare|typeset|local|readonly)")
_PREFIX = re.compile(r"if|then|elif|else|while|until|do|time|command|builtin|[!{]|\w+\+?=.*", re.DOTALL)
