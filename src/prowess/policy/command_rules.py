"""Whether a call runs a command that begins in a certain way: certainly, for what allows; possibly, for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prowess.policy.allowed_tools import AllowRule, allows_words, command_words
from prowess.policy.commands import Command, NotSimple, is_denied_name, split_command, split_compound
from prowess.policy.globs import match_anything
from prowess.policy.launchers import ANYTHING, Start, find_starts

CommandRule = AllowRule
_WORD = re.compile(r"[\w.+\-]+")


def parse_command_rule(text: str) -> CommandRule | str:
    """`git push` is the beginning of a command, with or without `:*` behind it. A text says what is wrong."""
    command = split_command(text.removesuffix(":*").removesuffix(" *"))
    if isinstance(command, NotSimple):
        return command.why.rstrip(".")
    return AllowRule(text, (), "command", words=command.argv, prefix=True)


def fits_command(rules: Sequence[CommandRule], args: Mapping[str, Any], *, strict: bool) -> bool:
    written = command_words(args)
    if strict:
        return any(allows_words(rules, words) for words in written)
    commands: Iterable[tuple[str, ...]] = written
    if not written:
        text = args.get("command")
        parts = split_compound(text) if isinstance(text, str) else None
        if not isinstance(parts, tuple) or isinstance(parts, NotSimple):
            return True  # nobody can say that it is not among them
        commands = [part.argv for part in parts if isinstance(part, Command)]
    return any(_may_be(rule, start) for words in commands for start in find_starts(words) for rule in rules)


def _may_be(rule: CommandRule, start: Start) -> bool:
    program, *rest = rule.words
    if start.hidden or start.word == ANYTHING or ANYTHING in start.argv[1:]:
        return True
    if start.code and any(is_denied_name(word, program) for word in _WORD.findall(start.code)):
        return True
    if not is_denied_name(start.word, program) and not (start.like and is_denied_name(start.like, program)):
        return False
    words = iter(start.argv[1:])  # in this order, with options between them: `git -C x push` is a push
    return all(any(match_anything(wanted, word) for word in words) for wanted in rest)
