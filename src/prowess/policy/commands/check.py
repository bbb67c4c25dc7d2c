"""Matches a program against the command lists (`workspace.commands_allow`, `commands_deny`).

With a list, one plain command runs, without a shell. An allowed name means the bare name, or that name in a system
folder: `./python3` is not `python3`. A denied name is denied anywhere among the words, as in rules that deny. A list
knows only names: if it allows a program that starts others, it allows those too. Isolation is the real barrier.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from prowess.policy.commands.words import show
from prowess.policy.globs import match_path, match_word

SYSTEM_FOLDERS = frozenset(
    ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/snap/bin")
)


def is_program(word: str, name: str) -> bool:
    """True when starting `word` starts the program called `name`."""
    if "/" in name:
        return ".." not in word.split("/") and posixpath.normpath(word) == posixpath.normpath(name)
    folder, slash, base = word.rpartition("/")
    if base != name:
        return False
    return not slash or folder in SYSTEM_FOLDERS


def begins_with(words: Sequence[str], rule: Sequence[str]) -> bool:
    """True when a command begins with the words of a rule, which may contain `*` and `?`."""
    if len(words) < len(rule):
        return False
    if not _starts_program(words[0], rule[0]):
        return False
    return all(map(match_word, rule[1:], words[1:]))


def _starts_program(word: str, wanted: str) -> bool:
    if is_program(word, wanted):
        return True
    is_pattern = "*" in wanted or "?" in wanted
    return is_pattern and match_path(wanted, word)


def why_not_listed(word: str, allow: Sequence[str]) -> str:
    """Returns why the program is not on the list of allowed names; "" when it is."""
    if any(is_program(word, name) for name in allow):
        return ""
    base = posixpath.basename(word)
    if "/" in word and base in allow:
        return f"'{show(word)}' is not '{base}': only the bare name, or the one in a system folder, is on the list."
    shown = ", ".join(allow[:10])
    if len(allow) > 10:
        shown += " …"
    return f"'{show(word)}' is not on the list of allowed commands ({shown})."
