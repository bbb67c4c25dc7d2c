"""Matches commands against policy rules.

A rule that **asks or denies** matches when its words occur in this order among the words of the line. Quotes and
backslashes are removed, quoted text is split again, and of a path only the last part counts. Case, a version suffix of
the program, and options are ignored in the line and in the rule: `rm -rf` matches every `rm`.

It also matches when the line cannot be read. And it matches when an expansion, a substitution or a pattern stands in
one of these places: the first word of a simple command; a word after an interpreter or `eval`; the place where the next
word of the rule could be.

A rule that **allows** matches one simple command without shell syntax whose first word is the named program. This is a
system file that only root can change, found in the PATH of the run, or a file of the skill that the rule names by its
path.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from prowess.core.values import Located
from prowess.policy.allowed_tools import command_words, is_own_folder
from prowess.policy.commands.check import SYSTEM_FOLDERS, begins_with
from prowess.policy.commands.env_names import find_unlisted
from prowess.policy.commands.parse import NotSimple, split_command
from prowess.policy.commands.words import STARTERS, ShellLine, program_name, read_line, show, word_key
from prowess.policy.globs import is_plain_path, match_anything, match_path

FindProgram = Callable[[str], Located]
_WORD = re.compile(r"[\w.+\-/*?]+")
_INPUTS = ("work", "out", "inputs")  # folders of inputs, as seen from the skill's folder


class RuleWord(NamedTuple):
    """Word of a rule that asks or denies."""

    name: str
    is_program: bool = False  # a version suffix is ignored
    is_folder: bool = False  # everything in it is meant


class CommandRule(NamedTuple):
    words: tuple[str, ...]  # the beginning of an argv
    wanted: tuple[RuleWord, ...]


class Fit(NamedTuple):
    """Result of matching a rule with a command. `why` names the words found, or says why a rule that allows does not
    match although its words occur. `argv` is the command that such a rule allows."""

    fits: bool
    why: str = ""
    argv: tuple[str, ...] = ()


def parse_command_rule(text: str) -> CommandRule | str:
    """Parses a command of a rule. `git push` is the beginning of a command, with or without `:*` after it. Returns the
    problem as text if it is not a simple command."""
    command = split_command(text.removesuffix(":*").removesuffix(" *"))
    if isinstance(command, NotSimple):
        return command.why.rstrip(".")
    wanted = [each for word in without_options(command.argv) for each in _WORD.findall(word)]
    return CommandRule(command.argv, tuple(_wanted(word, number == 0) for number, word in enumerate(wanted)))


def without_options(words: Sequence[str]) -> tuple[str, ...]:
    """Removes the options: an option can be written in too many ways (`-rf`, `-fr`, `-r -f`)."""
    return (words[0], *(word for word in words[1:] if not word.startswith("-")))


def starts_anything(rule: CommandRule) -> bool:
    """True when the rule names a program that starts others, but not what that starts (`env`, `timeout 5`), or when it
    is a pattern for system programs (`*`, `g*`)."""
    program, *others = rule.words
    of_system = "/" not in program or program.startswith("/") or match_path(program, "env")
    is_pattern = of_system and bool(re.search(r"[*?]", program))
    named = (word for word in others if not re.match(r"[-+\d.]|\w+=|[*?]+$", word))
    return (is_pattern or program_name(program) in STARTERS) and not any(named)


# --- what asks or denies --------------------------------------------------------------------------------------------


def may_fit(rules: Sequence[CommandRule], args: Mapping[str, Any]) -> Fit:
    """Matches a call with rules that ask or deny, as far as its words tell."""
    line = read_call(args)
    for rule in rules:
        if (found := find_mentioned(rule.wanted, line)) is not None:
            shown = ", ".join(f"'{show(word)}'" for word in found)
            return Fit(True, f"Found in the command: {shown}.")
        if any(_may_go_on(rule.wanted, words) for words in line.guesses):
            named = show(rule.wanted[0].name)
            return Fit(True, f"A word behind '{named}' is only known while the command runs; write it out.")
    return Fit(bool(line.unclear), line.unclear and f"{line.unclear} So it counts as what the rule is about.")


def read_call(args: Mapping[str, Any]) -> ShellLine:
    """Reads the words of a skill_run or skill_exec call: its folder, its command or script, and a program on its
    stdin."""
    command, script = args.get("command"), args.get("script")
    if script is not None and (written := command_words(args)):
        names = [words[0] for words in written[1:]]
        command, script = shlex.join((*names, *written[0])), None
    if not isinstance(command, str) or script is not None or not command.strip():
        return ShellLine((), (), "The call does not say either command, or script and args.")
    if not is_own_folder(cwd := args.get("cwd")):
        command = f"{shlex.quote(str(cwd))}\n{command}"
    line = read_line(command)
    if (stdin := args.get("stdin")) and _reads_program(command, line):
        return read_line(f"{command} {shlex.quote(str(stdin))}")
    return line


def find_mentioned(wanted: Sequence[RuleWord], line: ShellLine) -> list[str] | None:
    """Returns the words of the line that are the rule's words, in this order; None when one is missing."""
    found: list[str] = []
    for word, key in zip(line.words, line.keys, strict=True):
        if _is_wanted(wanted[len(found)], key):
            found.append(word)
            if len(found) == len(wanted):
                return found
    return None


def name_wanted(name: str) -> tuple[RuleWord, ...]:
    """Makes the rule word for a denied name of a command list."""
    return (_wanted(name, True),)


def _wanted(word: str, is_program: bool) -> RuleWord:
    key = word_key(word)
    folder, _, last = key.rpartition("/")
    if last.strip("*") or not folder.strip("/"):
        return RuleWord(last, is_program)
    return RuleWord("*" if key.startswith("/") else folder.rpartition("/")[2], is_folder=not key.startswith("/"))


def _is_wanted(wanted: RuleWord, key: str) -> bool:
    if key.startswith("-") and not wanted.name.startswith("-"):
        return False
    if wanted.is_folder:
        return any(match_anything(wanted.name, part) for part in key.split("/"))
    last = key.rpartition("/")[2]
    if wanted.name == last or (wanted.is_program and program_name(wanted.name) == program_name(last)):
        return True
    return bool(re.search(r"[*?]", wanted.name)) and match_anything(wanted.name, last)


def _may_go_on(wanted: Sequence[RuleWord], words: Sequence[str]) -> bool:
    """True when an unknown word after these could be the next word of the rule: only options and their values are
    between."""
    found, after_option = 0, False
    for word in words:
        if found < len(wanted) and _is_wanted(wanted[found], word):
            found, after_option = found + 1, False
        elif found:
            if not word.startswith("-") and not after_option:
                return False
            after_option = word.startswith("-")
    return 0 < found < len(wanted)


def _reads_program(command: str, line: ShellLine) -> bool:
    """True when an interpreter in the line may read its program from stdin. False for a simple command of interpreter,
    file and arguments."""
    starters = [key for key in line.keys if program_name(key) in STARTERS]
    simple = split_command(command)
    if len(starters) != 1 or isinstance(simple, NotSimple) or program_name(simple.argv[0]) not in STARTERS:
        return bool(starters)
    file = "".join(simple.argv[1:2])
    return file.startswith(("-", "/dev/", "/proc/")) or not re.search(r"[./]", file)


# --- what allows ----------------------------------------------------------------------------------------------------


def certainly_fits(
    rules: Sequence[Sequence[str]], args: Mapping[str, Any], find_program: FindProgram, *, names_folder: bool = False
) -> Fit:
    """Matches a call with rules that allow: it must begin with the words of one.

    The same words start other files in another folder, or when the call brings its own input files; then there is no
    match. `names_folder` means that the rule itself names the folder.
    """
    cwd, why, written = args.get("cwd"), "", command_words(args, plain=True)
    begun = [rule for rule in rules if any(begins_with(words, rule) for words in written)]
    if not begun:
        return Fit(False, _why_none_begins(rules, args, plain=bool(written)))
    if not is_own_folder(cwd) and not (names_folder and isinstance(cwd, str) and is_plain_path(cwd)):
        return Fit(False, f"It starts in the folder '{show(str(cwd))}', and the rule does not name that (args.cwd).")
    if args.get("inputs"):
        begun = [words for words in begun if not _names_input(words, cwd or "")]
        why = "" if begun else "The call brings inputs, and the rule names a path where they go."
    for words in written:
        if not any(begins_with(words, rule) for rule in begun):
            continue
        if refused := find_unlisted(args.get("env") or {}):
            return Fit(False, refused)
        if "/" in words[0] and not words[0].startswith("/"):  # a file of the skill, named by the rule
            if not _may_be_input(posixpath.join(cwd or "", words[0])):
                return Fit(True, argv=words)
            why = why or f"'{show(words[0])}' is where a run can write, so it may be anything."
            continue
        found = find_program(words[0])
        if found.path:
            return Fit(True, argv=(found.path, *words[1:]))
        why = why or found.reason
    return Fit(False, why)


def _why_none_begins(rules: Sequence[Sequence[str]], args: Mapping[str, Any], *, plain: bool) -> str:
    """Returns why a call that mentions the words of a rule does not match; "" when it does not mention them."""
    command = args.get("command")
    if not isinstance(command, str) or not (meant := [words for words in rules if _is_mentioned(words, command)]):
        return ""
    if plain:
        return f"It does not begin with '{show(' '.join(meant[0]))}', written in this way."
    split = split_command(command)
    more = split.why if isinstance(split, NotSimple) else "A shell would expand its patterns, or its '~'."
    return f"It is not one plain command. {more}"


def _is_mentioned(words: Sequence[str], command: str) -> bool:
    named = (word_key(each).rpartition("/")[2] for word in words for each in _WORD.findall(word))
    return all(re.search(r"[*?]", each) or each in _mentioned_names(command) for each in named)


@lru_cache(maxsize=8)  # every rule is compared with the same command
def _mentioned_names(command: str) -> frozenset[str]:
    return frozenset(key.rpartition("/")[2] for key in read_line(command).keys)


def _names_input(words: Sequence[str], cwd: str) -> bool:
    """True when a word of the rule may be a path where inputs go. Words after the rule's words are the caller's choice
    and are not checked."""
    program, *rest = words
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
    return first.startswith(("..", "$", "~", ".venv")) or any(match_anything(first, place) for place in _INPUTS)


def _module_path(word: str) -> str:
    return word.replace(".", "/") if re.fullmatch(r"\w+(\.\w+)+", word) else ""
