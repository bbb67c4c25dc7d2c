"""Which programs a command would start, as far as its words tell; and where they do not, that they do not.

`find_starts(argv)` names the program itself and then every one behind it: `env nice -n 5 git status` starts `env`,
`nice` and `git`. Whatever is not certain is reported as hidden, never guessed: an option that this page does not know
may be the one that names a program. It is a page of names and options, so it knows the usual programs and no others.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prowess.policy.escapes import OPAQUE, SUBCOMMANDS, find_escape
from prowess.policy.interpreters import AWKS, INTERPRETERS, SHELLS, find_awk_code, find_code
from prowess.policy.lexer import NotSimple, split_command
from prowess.policy.names import changes_startup
from prowess.policy.wrappers import WATCH, WRAPPERS, XARGS, Wrapper, is_option

ANYTHING = "\0anything"  # a word that is only known while the command runs; no argv can hold a NUL
_A_PATH = "./\0path"  # a file name that find will put there: never an option, but perhaps a program
_DEEPEST = 12
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_CHDIR = re.compile(r"(^|\s)(-[iv0]*C|--c)")
_LOADER = re.compile(r"ld(-linux.*|-musl.*|-[0-9.]+|64|)\.so(\.[0-9]+)*|ld\.so.*|rtld")
_VERSIONED = re.compile(r"([a-z][a-z+]+?)[-.]?[0-9].*")


class Start(NamedTuple):
    """One program that a command would start."""

    argv: tuple[str, ...]
    code: str | None = None  # what it was handed to interpret; with it, it can start anything
    hidden: str | None = None  # why it cannot be told what would be started
    in_code: bool = False  # found in the code of the one before it
    like: str | None = None  # a program that does the same; who denies that one denies this
    elsewhere: bool = False  # in a folder that the one before it chose, where a relative path is another file

    @property
    def word(self) -> str:
        return self.argv[0] if self.argv else ""


def find_starts(argv: Sequence[str]) -> list[Start]:
    """The program, then each program behind it, outermost first. Never empty."""
    return list(_unfold(tuple(argv), 0))


def _unfold(argv: tuple[str, ...], depth: int) -> Iterator[Start]:
    if not argv or not argv[0]:
        yield Start(argv, hidden="There is no program to start.")
        return
    if depth > _DEEPEST:
        yield Start(argv, hidden=f"More than {_DEEPEST} programs that start one another.")
        return
    word = argv[0]
    if "\0" in word:
        yield Start((ANYTHING,))
        return
    name = _family(word)
    inner: tuple[str, ...] | str | None = None
    if name in WRAPPERS:
        inner = _behind(name, WRAPPERS[name], argv)
    elif special := _SPECIAL.get(name):
        yield from special(argv, depth)
        return
    elif _LOADER.fullmatch(posixpath.basename(word)):
        inner = argv[1:] if len(argv) > 1 and not argv[1].startswith("-") else "Options of the loader choose what runs."
    elif name in SHELLS:
        yield from _shell(argv, depth)
        return
    elif name in INTERPRETERS:
        yield Start(argv, code=find_code(INTERPRETERS[name], argv, ANYTHING))
        return
    elif name in AWKS:
        yield Start(argv, code=find_awk_code(argv[1:], ANYTHING))
        return
    elif name in OPAQUE or (name in SUBCOMMANDS and SUBCOMMANDS[name] & {*argv[1:], *_anything_in(argv)}):
        yield Start(argv, code=" ".join(argv[1:]))
        return
    elif escape := find_escape(name, argv[1:], ANYTHING):
        yield Start(argv, hidden=_sentence(f"'{name}' can start any program with {escape}"))
        return
    if isinstance(inner, str):
        yield Start(argv, hidden=_unclear(name, inner))
        return
    yield Start(argv)
    if inner:
        yield from _moved(_unfold(inner, depth + 1), name == "env" and _changes_folder(argv, inner))


def _changes_folder(argv: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    """Whether env was told a folder. With -S its options may stand within a word."""
    own = argv[1 : len(argv) - len(inner)] if argv[-len(inner) :] == inner else argv[1:]
    return any(_CHDIR.search(word) for word in own)


def _moved(starts: Iterator[Start], elsewhere: bool) -> Iterator[Start]:
    return (start._replace(elsewhere=True) for start in starts) if elsewhere else starts


def _unclear(name: str, why: str | tuple[str, ...]) -> str:
    return _sentence(f"What '{name}' would start cannot be told: {why}")


def _sentence(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return (shown if len(shown) <= 200 else shown[:197] + "…").rstrip(".") + "."


def runs_files(word: str) -> bool:
    """Whether it is a shell or another interpreter, which runs the file that it is given."""
    return _family(word) in SHELLS or _family(word) in INTERPRETERS


def reads_as_shell(word: str) -> bool:
    """Whether the code that it is handed is a shell's, where `$x` and backticks may become any word."""
    return _family(word) in SHELLS or _family(word) in ("eval", "su", "runuser", "script", "watch", "parallel")


def _family(word: str) -> str:
    """The name by which this page knows a program, wherever it lies and whichever version it is."""
    base = posixpath.basename(posixpath.normpath(word.replace("\\", "/"))).casefold().removesuffix(".exe")
    if base in _KNOWN:
        return base
    versioned = _VERSIONED.fullmatch(base)
    return versioned[1] if versioned and versioned[1] in _KNOWN else base


def _anything_in(argv: tuple[str, ...]) -> frozenset[str]:
    """Unknown words may be any subcommand."""
    return frozenset().union(*SUBCOMMANDS.values()) if ANYTHING in argv else frozenset()


def _behind(name: str, wrapper: Wrapper, argv: tuple[str, ...]) -> tuple[str, ...] | str:
    """The command behind a wrapper; () when there is none; a text when it cannot be told."""
    words = list(argv[1:])
    while words and words[0].startswith("-") and words[0] != "-":
        option = words.pop(0)
        if option == "--":
            break
        if name == "env" and (split := _split_string(option, words)) is not None:
            return split if isinstance(split, str) else _behind(name, wrapper, ("env", *split))
        if name == "command" and option in ("-v", "-V"):
            return ()
        if option in ("--help", "--version"):
            return ()
        if not is_option(wrapper, option, words):
            return f"it does not know the option {option}."
    if name == "env" and words and words[0] == "-":
        words.pop(0)
    while wrapper.assigns and words and (assigned := _ASSIGNMENT.match(words[0])):
        if changes_startup(assigned[1]):
            return f"{assigned[1]} changes how programs start."
        words.pop(0)
    words = words[wrapper.operands :]
    if name == "flock" and words and words[0] in ("-c", "--command"):
        return ("sh", "-c", *words[1:])
    return tuple(words)


def _split_string(option: str, words: list[str]) -> tuple[str, ...] | str | None:
    """`env -S 'git status' x` -> git status x, however the option is written; None when it is another option."""
    long, has_value, value = option.partition("=")
    if long.startswith("--"):
        if long == "--" or not "--split-string".startswith(long):
            return None
        text = value if has_value else (words.pop(0) if words else "")
    else:
        before, found, rest = option[1:].partition("S")
        if not found or before.strip("i0v"):
            return None
        text = rest or (words.pop(0) if words else "")
    command = split_command(text)
    if isinstance(command, NotSimple) or "\\" in text:  # env has backslashes of its own
        return "its -S text is not plain words."
    return (*command.argv, *words)


# --- programs that are read in their own way ------------------------------------------------------------------------


def _shell(argv: tuple[str, ...], depth: int) -> Iterator[Start]:
    """`sh file` runs a file; `sh -c text`, or a shell that reads its standard input, runs code. Words of code that are
    plain commands are looked through as well, so that a denied program is seen."""
    code = find_code(SHELLS[_family(argv[0])], argv, ANYTHING)
    yield Start(argv, code=code)
    for word in argv[1:] if code else ():
        command = split_command(word)
        if not word.startswith("-") and not isinstance(command, NotSimple):
            yield from (start._replace(in_code=True) for start in _unfold(command.argv, depth + 1))


def _busybox(argv: tuple[str, ...], depth: int) -> Iterator[Start]:
    if len(argv) > 1 and argv[1].startswith("-") and argv[1] not in ("--list", "--help", "--list-full"):
        yield Start(argv, hidden=_unclear(argv[0], argv[1]))
        return
    yield Start(argv)
    if len(argv) > 1 and not argv[1].startswith("-"):
        yield from _unfold(argv[1:], depth + 1)


def _find(argv: tuple[str, ...], depth: int) -> Iterator[Start]:
    """Each command behind -exec and its kin. `-delete` does what rm does, and is denied with it."""
    if ANYTHING in argv:
        yield Start(argv, hidden="'find' with words that are not known yet can start any program.")
        return
    yield Start(argv, like="rm" if "-delete" in argv else None)
    at = 1
    while at < len(argv):
        word = argv[at]
        at += 1
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at, len(argv)) if argv[i] == ";" or argv[i - 1 : i + 1] == ("{}", "+")), None)
            if end is None:
                yield Start(argv, hidden=f"{word} has no end.")
                return
            command = tuple(part.replace("{}", _A_PATH) for part in argv[at:end])
            yield from _moved(_unfold(command, depth + 1), word in ("-execdir", "-okdir"))
            at = end + 1


def _xargs(argv: tuple[str, ...], depth: int) -> Iterator[Start]:
    """Words are added, or put in the place of a mark, while it runs."""
    yield Start(argv)
    words, mark = list(argv[1:]), None
    while words and words[0].startswith("-") and words[0] != "-":
        option = words.pop(0)
        if option == "--":
            break
        if option.startswith(("-I", "--replace", "-i", "-J")):
            value = option.partition("=")[2] if option.startswith("--") else option[2:]
            mark = value or (words.pop(0) if option in ("-I", "-J") and words else "{}")
        elif not is_option(XARGS, option, words):
            yield Start(argv, hidden=_unclear("xargs", f"it does not know {option}"))
            return
    if mark is not None:
        command = tuple(ANYTHING if mark in word else word for word in words)
    else:
        command = (*words, ANYTHING) if words else ()
    if command:
        yield from _unfold(command, depth + 1)


def _watch(argv: tuple[str, ...], depth: int) -> Iterator[Start]:
    """It hands its words, joined, to a shell."""
    inner = _behind("watch", WATCH, argv)
    if isinstance(inner, str) or not inner:
        yield Start(argv, hidden=_unclear("watch", inner or "nothing is named"))
        return
    yield Start(argv)
    command = split_command(" ".join(inner))
    if ANYTHING in inner or isinstance(command, NotSimple):
        yield Start(("sh",), code=" ".join(inner))
    else:
        yield from _unfold(command.argv, depth + 1)


_SPECIAL: dict[str, Callable[[tuple[str, ...], int], Iterator[Start]]] = {
    "busybox": _busybox,
    "toybox": _busybox,
    "find": _find,
    "gfind": _find,
    "xargs": _xargs,
    "gxargs": _xargs,
    "watch": _watch,
}
_KNOWN = frozenset((*WRAPPERS, *_SPECIAL, *SHELLS, *INTERPRETERS, *AWKS, *OPAQUE, *SUBCOMMANDS))
