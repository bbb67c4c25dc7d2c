"""Rules about commands: what asks or denies fits a line that mentions its words; what allows fits one plain command.

A rule that **asks or denies** fits when its words occur in this order among the words of the line. Quotes and
backslashes are removed, quoted text is split again, the last part of a path counts; case, a version suffix of the
program and options do not, in the line and in the rule: `rm -rf` fits every `rm`. It also fits when the line cannot be
read, or when the first word of a simple command, or a word after an interpreter or `eval`, holds an expansion, a
substitution or a pattern, or when one that does stands where the next word of the rule could be.

A rule that **allows** fits one simple command without shell syntax whose first word is the named program: a file of the
system that only root can change, found in the PATH of the run; or a file of the skill that the rule names by its path.
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
_INPUTS = ("work", "out", "inputs")  # as a command sees the places of inputs from its skill's folder


class RuleWord(NamedTuple):
    """One word of a rule that asks or denies."""

    name: str
    is_program: bool = False  # a version behind it makes no difference
    is_folder: bool = False  # whatever lies in it is meant


class CommandRule(NamedTuple):
    words: tuple[str, ...]  # as an argv begins
    wanted: tuple[RuleWord, ...]


class Fit(NamedTuple):
    """Whether a rule fits a command. `why` names what was found, or why a rule that allows does not fit a command that
    mentions its words; `argv` is what such a rule allows to run."""

    fits: bool
    why: str = ""
    argv: tuple[str, ...] = ()


def parse_command_rule(text: str) -> CommandRule | str:
    """`git push` is the beginning of a command, with or without `:*` behind it. A text says what is wrong."""
    command = split_command(text.removesuffix(":*").removesuffix(" *"))
    if isinstance(command, NotSimple):
        return command.why.rstrip(".")
    wanted = [each for word in without_options(command.argv) for each in _WORD.findall(word)]
    return CommandRule(command.argv, tuple(_wanted(word, number == 0) for number, word in enumerate(wanted)))


def without_options(words: Sequence[str]) -> tuple[str, ...]:
    """The words that a line has to mention: an option can be written in too many ways (`-rf`, `-fr`, `-r -f`)."""
    return (words[0], *(word for word in words[1:] if not word.startswith("-")))


def starts_anything(rule: CommandRule) -> bool:
    """Tell whether the rule names a program that starts others, and not what that starts (`env`, `timeout 5`), or a
    pattern for programs of the system (`*`, `g*`)."""
    program, *others = rule.words
    of_system = "/" not in program or program.startswith("/") or match_path(program, "env")
    is_pattern = of_system and bool(re.search(r"[*?]", program))
    named = (word for word in others if not re.match(r"[-+\d.]|\w+=|[*?]+$", word))
    return (is_pattern or program_name(program) in STARTERS) and not any(named)


# --- what asks or denies --------------------------------------------------------------------------------------------


def may_fit(rules: Sequence[CommandRule], args: Mapping[str, Any]) -> Fit:
    """Tells whether a call runs what one of the rules is about, as far as its words tell."""
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
    """The words of a call of skill_run or skill_exec: its folder, its command or script, and a program on its stdin."""
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
    """The words of the line that are those of the rule, in this order; None when they are not all there."""
    found: list[str] = []
    for word, key in zip(line.words, line.keys, strict=True):
        if _is_wanted(wanted[len(found)], key):
            found.append(word)
            if len(found) == len(wanted):
                return found
    return None


def name_wanted(name: str) -> tuple[RuleWord, ...]:
    """A denied name of a list."""
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
    """Tell whether a word that is not known, behind these of one simple command, may be the next one of the rule:
    between them are only options and their values."""
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
    """Tells whether an interpreter is in the line, unless that is all it is: an interpreter, its file and arguments."""
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
    """Whether the call is one of the commands that begin so. In another folder the same words start other files, and so
    they do where the call puts files of its own; `names_folder` says that the rule itself tells in which folder."""
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
        if "/" in words[0] and not words[0].startswith("/"):  # a file of the skill, as the rule names it
            if not _may_be_input(posixpath.join(cwd or "", words[0])):
                return Fit(True, argv=words)
            why = why or f"'{show(words[0])}' is where a run can write, so it may be anything."
            continue
        found = find_program(words[0])
        if found.path:
            return Fit(True, argv=(found.path, *words[1:]))
        why = why or found.why_not
    return Fit(False, why)


def _why_none_begins(rules: Sequence[Sequence[str]], args: Mapping[str, Any], *, plain: bool) -> str:
    """Why a call that mentions the words of a rule is no command that begins so; "" when it does not mention them."""
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


@lru_cache(maxsize=8)  # every rule is held against the same command
def _mentioned_names(command: str) -> frozenset[str]:
    return frozenset(key.rpartition("/")[2] for key in read_line(command).keys)


def _names_input(words: Sequence[str], cwd: str) -> bool:
    """Whether a word of the rule may lie where inputs go. What a call says beyond the rule's words is for it to say."""
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
