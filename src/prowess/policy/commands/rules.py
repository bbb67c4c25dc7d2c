"""Matches commands against policy rules.

A rule that **asks or denies** matches when its words occur in this order among the words of the line. Quotes and
backslashes are removed, quoted text is split again, and of a path only the last part counts. Case, a version suffix of
the program, and options are ignored in the line and in the rule: `rm -rf` matches every `rm`.

It also matches when the line cannot be read. And it matches when an expansion, a substitution or a pattern stands in
one of these places: the first word of a simple command; a word after an interpreter or `eval`; the place where the next
word of the rule could be.

A rule that **allows** matches one simple command without shell syntax whose first word is the named program. This is a
system file that only root can change, found in the PATH of the run, or a file of the skill that the rule names by its
path. The words behind those of the rule must not start anything; see `commands.options`.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from prowess.core.values import Located
from prowess.policy.allowed_tools import command_words, is_own_folder
from prowess.policy.commands.check import SYSTEM_FOLDERS, begins_with
from prowess.policy.commands.env_names import find_unlisted
from prowess.policy.commands.options import OF_WORKSPACE, CallPlace, is_guarded, why_unfit
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
    wanted: list[RuleWord] = []
    for word in without_options(command.argv):
        for part in _WORD.findall(word):
            is_first = not wanted
            wanted.append(_wanted(part, is_first))
    return CommandRule(command.argv, tuple(wanted))


def without_options(words: Sequence[str]) -> tuple[str, ...]:
    """Removes the options: an option can be written in too many ways (`-rf`, `-fr`, `-r -f`)."""
    program, *others = words
    rest = [word for word in others if not word.startswith("-")]
    return (program, *rest)


def starts_anything(rule: CommandRule) -> bool:
    """True when the rule names a program that starts others, but not what that starts (`env`, `timeout 5`), or when it
    is a pattern for system programs (`*`, `g*`)."""
    program, *others = rule.words
    for word in others:
        if word and not re.match(r"[-+\d.]|\w+=|[*?]+$", word):
            return False
    if program_name(program) in STARTERS and not is_guarded(program):
        return True
    of_system = "/" not in program or program.startswith("/") or match_path(program, "env")
    return of_system and bool(re.search(r"[*?]", program))


# --- what asks or denies --------------------------------------------------------------------------------------------


def may_fit(rules: Sequence[CommandRule], args: Mapping[str, Any]) -> Fit:
    """Matches a call with rules that ask or deny, as far as its words tell."""
    line = read_call(args)
    for rule in rules:
        found = find_mentioned(rule.wanted, line)
        if found is not None:
            shown = ", ".join(f"'{show(word)}'" for word in found)
            return Fit(True, f"Found in the command: {shown}.")
        if any(_may_go_on(rule.wanted, words) for words in line.guesses):
            named = show(rule.wanted[0].name)
            return Fit(True, f"A word behind '{named}' is only known while the command runs; write it out.")
    if not line.unclear:
        return Fit(False)
    return Fit(True, f"{line.unclear} So it counts as what the rule is about.")


def read_call(args: Mapping[str, Any]) -> ShellLine:
    """Reads the words of a skill_run or skill_exec call: its folder, its command or script, and a program on its
    stdin."""
    command = _written_command(args)
    if command is None:
        return ShellLine((), (), "The call does not say either command, or script and args.")
    cwd = args.get("cwd")
    if not is_own_folder(cwd):
        command = f"{shlex.quote(str(cwd))}\n{command}"
    line = read_line(command)
    stdin = args.get("stdin")
    if stdin and _reads_program(command, line):
        return read_line(f"{command} {shlex.quote(str(stdin))}")
    return line


def _written_command(args: Mapping[str, Any]) -> str | None:
    """Returns the command of a call, or its script as a command that names every possible interpreter. None when the
    call has neither, or both."""
    if args.get("script") is not None:
        written = command_words(args)
        if not written:
            return None
        interpreters = [words[0] for words in written[1:]]
        return shlex.join((*interpreters, *written[0]))
    command = args.get("command")
    if isinstance(command, str) and command.strip():
        return command
    return None


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
    if key.startswith("/"):
        return RuleWord("*")
    name = folder.rpartition("/")[2]
    return RuleWord(name, is_folder=True)


def _is_wanted(wanted: RuleWord, key: str) -> bool:
    if key.startswith("-") and not wanted.name.startswith("-"):
        return False
    if wanted.is_folder:
        return any(match_anything(wanted.name, part) for part in key.split("/"))
    last = key.rpartition("/")[2]
    if wanted.name == last:
        return True
    if wanted.is_program and program_name(wanted.name) == program_name(last):
        return True
    is_pattern = "*" in wanted.name or "?" in wanted.name
    return is_pattern and match_anything(wanted.name, last)


def _may_go_on(wanted: Sequence[RuleWord], words: Sequence[str]) -> bool:
    """True when an unknown word after these could be the next word of the rule: only options and their values are
    between."""
    found = 0
    after_option = False
    for word in words:
        if found < len(wanted) and _is_wanted(wanted[found], word):
            found += 1
            after_option = False
        elif found:
            is_option = word.startswith("-")
            if not is_option and not after_option:
                return False
            after_option = is_option
    return 0 < found < len(wanted)


def _reads_program(command: str, line: ShellLine) -> bool:
    """True when an interpreter in the line may read its program from stdin. False for a simple command of interpreter,
    file and arguments."""
    starters = [key for key in line.keys if program_name(key) in STARTERS]
    if len(starters) != 1:
        return bool(starters)
    simple = split_command(command)
    if isinstance(simple, NotSimple) or program_name(simple.argv[0]) not in STARTERS:
        return True
    file = "".join(simple.argv[1:2])
    if file.startswith(("-", "/dev/", "/proc/")):
        return True
    return not re.search(r"[./]", file)


# --- what allows ----------------------------------------------------------------------------------------------------


def certainly_fits(
    rules: Sequence[Sequence[str]],
    args: Mapping[str, Any],
    find_program: FindProgram,
    *,
    names_folder: bool = False,
    files: Collection[str] = (),
) -> Fit:
    """Matches a call with rules that allow: it must begin with the words of one.

    The same words start other files in another folder, or when the call brings its own input files; then there is no
    match. `names_folder` means that the rule itself names the folder. `files` are the paths of the skill's files.
    """
    cwd = args.get("cwd")
    why = ""
    written = command_words(args, plain=True)
    begun = [rule for rule in rules if any(begins_with(words, rule) for words in written)]
    if not begun:
        return Fit(False, _why_none_begins(rules, args, plain=bool(written)))
    if not is_own_folder(cwd):
        is_named = names_folder and isinstance(cwd, str) and is_plain_path(cwd)
        if not is_named:
            folder = show(str(cwd))
            return Fit(False, f"It starts in the folder '{folder}', and the rule does not name that (args.cwd).")
    if args.get("inputs"):
        begun = [words for words in begun if not _names_input(words, cwd or "")]
        if not begun:
            return Fit(False, "The call brings inputs, and the rule names a path where they go.")
    place = CallPlace(_names_in(cwd, files), bool(args.get("stdin")))
    for words in written:
        unfit = [why_unfit(words, rule, place) for rule in begun if begins_with(words, rule)]
        if not unfit:
            continue
        refused = find_unlisted(args.get("env") or {})
        if refused:
            return Fit(False, refused)
        if "" not in unfit:
            why = why or unfit[0]
            continue
        found = _locate(words, cwd or "", find_program)
        if found.fits:
            return found
        why = why or found.why
    return Fit(False, why)


def _names_in(cwd: Any, files: Collection[str]) -> Collection[str] | None:
    """Returns the names in the folder where a command starts; None when a run can write there."""
    folder = ""
    if not is_own_folder(cwd):
        if _may_be_input(cwd):
            return None
        folder = posixpath.normpath(cwd) + "/"
    names = set(OF_WORKSPACE)
    for path in files:
        if path.startswith(folder):
            name = path.removeprefix(folder).partition("/")[0]
            names.add(word_key(name))
    return names


def _locate(words: tuple[str, ...], cwd: str, find_program: FindProgram) -> Fit:
    """Finds the file that the words start: a file of the skill that the rule names, or a system program."""
    program, *others = words
    if "/" in program and not program.startswith("/"):
        if _may_be_input(posixpath.join(cwd, program)):
            return Fit(False, f"'{show(program)}' is where a run can write, so it may be anything.")
        return Fit(True, argv=words)
    found = find_program(program)
    if not found.path:
        return Fit(False, found.reason)
    return Fit(True, argv=(found.path, *others))


def _why_none_begins(rules: Sequence[Sequence[str]], args: Mapping[str, Any], *, plain: bool) -> str:
    """Returns why a call that mentions the words of a rule does not match; "" when it does not mention them."""
    command = args.get("command")
    if not isinstance(command, str):
        return ""
    meant = [words for words in rules if _is_mentioned(words, command)]
    if not meant:
        return ""
    if plain:
        begin = " ".join(meant[0])
        return f"It does not begin with '{show(begin)}', written in this way."
    more = "A shell would expand its patterns, or its '~'."
    split = split_command(command)
    if isinstance(split, NotSimple):
        more = split.why
    return f"It is not one plain command. {more}"


def _is_mentioned(words: Sequence[str], command: str) -> bool:
    for part in _WORD.findall(" ".join(words)):
        name = word_key(part).rpartition("/")[2]
        is_pattern = "*" in name or "?" in name
        if not is_pattern and name not in _mentioned_names(command):
            return False
    return True


@lru_cache(maxsize=8)  # every rule is compared with the same command
def _mentioned_names(command: str) -> frozenset[str]:
    line = read_line(command)
    return frozenset(key.rpartition("/")[2] for key in line.keys)


def _names_input(words: Sequence[str], cwd: str) -> bool:
    """True when a word of the rule may be a path where inputs go. Words after the rule's words are the caller's choice
    and are not checked."""
    program, *named = words
    if "/" in program:
        named.append(program)
    for word in named:
        value = word.rpartition("=")[2]
        after_option = re.sub(r"^-\w", "", word)
        for path in (word, value, after_option, _module_path(word)):
            if path and _may_be_input(posixpath.join(cwd, path)):
                return True
    return False


def _may_be_input(path: str) -> bool:
    path = posixpath.normpath(path)
    if path.startswith("/"):
        return posixpath.dirname(path) not in SYSTEM_FOLDERS
    first = path.split("/")[0].casefold()
    if first.startswith(("..", "$", "~", ".venv")):
        return True
    return any(match_anything(first, place) for place in _INPUTS)


def _module_path(word: str) -> str:
    if not re.fullmatch(r"\w+(\.\w+)+", word):
        return ""
    return word.replace(".", "/")
