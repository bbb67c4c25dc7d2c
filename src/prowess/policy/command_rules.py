"""Whether a call runs a command that begins in a certain way: certainly, for what allows; possibly, for the rest."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any

from prowess.policy.allowed_tools import AllowRule, allows_words, command_words, is_own_folder
from prowess.policy.commands import (
    SYSTEM_FOLDERS,
    NotSimple,
    is_denied_name,
    split_command,
    split_compound,
)
from prowess.policy.globs import is_plain_path, match_anything, match_path
from prowess.policy.launchers import ANYTHING, Start, find_starts, reads_as_shell, runs_files

CommandRule = AllowRule
_WORD = re.compile(r"[\w.+\-]+")
_PATTERN = re.compile(r"[*?\[]")
_MODULE = re.compile(r"-[bBdEIOPqRsSuvx]*m(.*)")
_MOVES = frozenset(("cd", "chdir", "pushd", "popd"))
_INPUTS = ("work", "out", "inputs")  # as a command sees the places of inputs from its skill's folder


def parse_command_rule(text: str) -> CommandRule | str:
    """`git push` is the beginning of a command, with or without `:*` behind it. A text says what is wrong."""
    command = split_command(text.removesuffix(":*").removesuffix(" *"))
    if isinstance(command, NotSimple):
        return command.why.rstrip(".")
    return AllowRule(text, (), "command", words=command.argv, prefix=True)


def fits_command(
    rules: Sequence[CommandRule], args: Mapping[str, Any], *, strict: bool, names_folder: bool = False
) -> bool:
    """`names_folder` says that the rule itself tells in which folder (`args.cwd`), and that this was looked at."""
    if strict:
        return _fits_certainly(rules, args, names_folder)
    commands = _read_commands(args)
    if isinstance(commands, str):
        return True  # nobody can say that it is not among them
    starts = [start for words in commands for start in find_starts(words)]
    moved = not is_own_folder(args.get("cwd")) or any(posixpath.basename(each.word) in _MOVES for each in starts)
    return any(_may_be(rule, start, moved or start.elsewhere) for start in starts for rule in rules)


def find_unread(args: Mapping[str, Any]) -> str | None:
    """Why nobody can say which commands these are, so that they count as any that is asked about or denied."""
    commands = _read_commands(args)
    return commands if isinstance(commands, str) else None


def _read_commands(args: Mapping[str, Any]) -> list[tuple[str, ...]] | str:
    written = command_words(args)
    if written:
        return written
    text = args.get("command")
    if not isinstance(text, str) or args.get("script") is not None:
        return "The call does not say either command, or script and args."
    parts = split_compound(text)
    return parts.why if isinstance(parts, NotSimple) else [part.argv for part in parts]


# --- certainly ------------------------------------------------------------------------------------------------------


def _fits_certainly(rules: Sequence[CommandRule], args: Mapping[str, Any], names_folder: bool) -> bool:
    """In another folder the same words start other files, and so they do where the call puts files of its own."""
    cwd = args.get("cwd")
    if not is_own_folder(cwd) and not (names_folder and isinstance(cwd, str) and is_plain_path(cwd)):
        return False
    if args.get("inputs"):
        rules = [rule for rule in rules if not _names_input(rule, cwd or "")]
    return any(
        allows_words(rules, words) and not any(start.elsewhere for start in find_starts(words))
        for words in command_words(args)
    )


def _names_input(rule: CommandRule, cwd: str) -> bool:
    """Whether a word of the rule may lie where inputs go. What a call says beyond the rule's words is for it to say."""
    program, *rest = rule.words
    return any(
        _may_be_input(posixpath.join(cwd, path))
        for word in (*([program] if "/" in program else ()), *rest)
        for path in (word, word.rpartition("=")[2], re.sub(r"^-\w", "", word), _module_path(word))
        if path
    )


def _may_be_input(path: str) -> bool:
    path = posixpath.normpath(path)
    if path.startswith("/"):
        return posixpath.dirname(path) not in SYSTEM_FOLDERS
    first = path.split("/")[0].casefold()
    return first.startswith(("..", "$", "~")) or any(match_anything(first, place) for place in _INPUTS)


# --- possibly -------------------------------------------------------------------------------------------------------


def _may_be(rule: CommandRule, start: Start, moved: bool) -> bool:
    program, *rest = rule.words
    if start.hidden or start.word == ANYTHING or ANYTHING in start.argv[1:] or _PATTERN.search(start.word[1:]):
        return True
    if start.code is not None and _may_be_in_code(rule, start.word, start.code):
        return True
    if start.like and _may_be_called(start.like, program) and _has(start.argv, rest, moved):
        return True
    file = tuple(dropwhile(_is_option, start.argv[1:])) if runs_files(start.word) else ()
    if any(_may_be_called(argv[0], program) and _has(argv, rest, moved) for argv in (start.argv, file) if argv):
        return True
    return any(
        _may_be_word(wanted[0], ran[0], moved) and _has(ran, wanted[1:], moved)
        for wanted in _files(rule.words)
        for ran in _files(start.argv)
    )


def _may_be_in_code(rule: CommandRule, word: str, code: str) -> bool:
    """Code may run what it mentions. From its standard input, an interpreter may be given any file."""
    if reads_as_shell(word) and re.search(r"[$`]", code):
        return True
    mentioned = {*_WORD.findall(code), *_WORD.findall(re.sub(r"[\"'\\]", "", code))}
    if any(_may_be_called(each, rule.words[0]) for each in mentioned):
        return True
    files = [posixpath.basename(file[0]) for file in _files(rule.words)[:1]]
    if not code:
        return bool(files) and runs_files(word)
    stems = {posixpath.splitext(file)[0] for file in files}
    return any(match_anything(file, each) for file in files for each in mentioned) or any(
        each.rpartition(".")[2] in stems for each in mentioned
    )


def _files(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """The file that a command runs, with the words behind it: itself, or what an interpreter is given to run, which for
    Python may also be a module or a folder."""
    if not runs_files(argv[0]):
        return [tuple(argv)] if "/" in argv[0] else []
    for at, word in enumerate(argv[1:], 1):
        module = _MODULE.fullmatch(word) if "py" in posixpath.basename(argv[0]).casefold() else None
        if module:
            name, more = (module[1], argv[at + 1 :]) if module[1] else ("".join(argv[at + 1 : at + 2]), argv[at + 2 :])
            path = name.replace(".", "/")
            return [(f"{path}.py", *more), (f"{path}/__main__.py", *more)] if path else []
        if not _is_option(word):
            return [tuple(argv[at:]), (f"{word}/__main__.py", *argv[at + 1 :])]
    return []


def _has(argv: Sequence[str], wanted: Sequence[str], moved: bool) -> bool:
    """In this order, with options between them: `git -C x push` is a push."""
    words = iter(argv[1:])
    return all(any(_may_be_word(each, word, moved) for word in words) for each in wanted)


def _may_be_word(wanted: str, word: str, moved: bool) -> bool:
    """A path may be written in many ways; from a folder that is not known, only its end tells anything."""
    if match_anything(wanted, word):
        return True
    if "/" not in wanted and "/" not in word:
        return False
    if "\0" in word:  # a file that find will name
        return "/" in wanted or "." in wanted
    ours, theirs = _parts(wanted), _parts(word)
    if not ours or not theirs:
        return False
    if moved:
        most = 1 if "**" in wanted else min(len(ours), len(theirs))
        ours, theirs = ours[-most:], theirs[-most:]
    elif word.startswith(("/", "~")) or ".." in word.split("/"):
        theirs = theirs[-len(ours) :]
    if match_anything("/".join(ours), "/".join(theirs)):
        return True
    return len(ours) == len(theirs) and all(map(_may_be_part, ours, theirs))


def _may_be_part(wanted: str, part: str) -> bool:
    """A shell makes a name of a pattern."""
    pattern = re.sub(r"\[.*\]", "*", part)
    return match_anything(wanted, part) or (
        bool(re.search(r"[*?]", pattern)) and (match_anything(pattern, wanted) or bool(re.search(r"[*?]", wanted)))
    )


def _parts(path: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", posixpath.normpath(path)).casefold()
    return [part for part in folded.split("/") if part not in ("", ".", "..")]


def _module_path(word: str) -> str:
    return word.replace(".", "/") if re.fullmatch(r"\w+(\.\w+)+", word) else ""


def _is_option(word: str) -> bool:
    return word.startswith(("-", "+"))


def _may_be_called(word: str, program: str) -> bool:
    """By its name, in any folder. A pattern that says only the folder (`scripts/*`) is about what lies there, however
    the way to it is written."""
    if is_denied_name(word, program):
        return True
    if not re.search(r"[*?]", program):
        return False
    folder, _, base = program.rpartition("/")
    if not folder or base.strip("*"):
        return match_anything(base.casefold(), posixpath.basename(word).casefold())
    parts = posixpath.normpath(word).split("/")
    if ".." in parts or ("/" not in word and folder in SYSTEM_FOLDERS):
        return True
    return any(match_path(program, "/".join(parts[at:])) for at in range(len(parts)))
