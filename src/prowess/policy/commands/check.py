"""Matches a program against the command lists (`workspace.commands_allow`, `commands_deny`).

With a list, one plain command runs, without a shell. An allowed name means the bare name, or that name in a system
folder: `./python3` is not `python3`. A denied name is denied anywhere among the words, as in rules that deny. A list
knows only names: if it allows a program that starts others, it allows those too. Isolation is the real barrier.
"""

from __future__ import annotations

import posixpath
import re
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
    folder, _, base = word.rpartition("/")
    return base == name and (folder in SYSTEM_FOLDERS or "/" not in word)


def begins_with(words: Sequence[str], rule: Sequence[str]) -> bool:
    """True when a command begins with the words of a rule, which may contain `*` and `?`."""
    if len(words) < len(rule):
        return False
    pattern = rule[0] if re.search(r"[*?]", rule[0]) else ""
    first = is_program(words[0], rule[0]) or (bool(pattern) and match_path(pattern, words[0]))
    return first and all(map(match_word, rule[1:], words[1:]))


def why_not_listed(word: str, allow: Sequence[str]) -> str:
    """Returns why the program is not on the list of allowed names; "" when it is."""
    if any(is_program(word, name) for name in allow):
        return ""
    base = posixpath.basename(word)
    if "/" in word and base in allow:
        return f"'{show(word)}' is not '{base}': only the bare name, or the one in a system folder, is on the list."
    shown = ", ".join(allow[:10]) + (" …" if len(allow) > 10 else "")
    return f"'{show(word)}' is not on the list of allowed commands ({shown})."
