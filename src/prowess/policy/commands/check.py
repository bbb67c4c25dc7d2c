"""Lists of commands (`workspace.commands_allow`, `commands_deny`): one plain command runs, without a shell.

An allowed name is that bare name, or that name in a folder of the system: `./python3` is not `python3`. A denied name
is denied wherever it occurs among the words, as in rules that deny. A list holds names, and who allows a program that
starts others allows what it starts: isolation is the barrier.
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
    """Tell whether starting `word` starts the program that somebody called `name`."""
    if "/" in name:
        return ".." not in word.split("/") and posixpath.normpath(word) == posixpath.normpath(name)
    folder, _, base = word.rpartition("/")
    return base == name and (folder in SYSTEM_FOLDERS or "/" not in word)


def begins_with(words: Sequence[str], rule: Sequence[str]) -> bool:
    """Tell whether a command begins with the words of a rule, which may have `*` and `?` in them."""
    if len(words) < len(rule):
        return False
    pattern = rule[0] if re.search(r"[*?]", rule[0]) else ""
    first = is_program(words[0], rule[0]) or (bool(pattern) and match_path(pattern, words[0]))
    return first and all(map(match_word, rule[1:], words[1:]))


def why_not_listed(word: str, allow: Sequence[str]) -> str:
    """Say why a list of allowed names does not hold the program; "" when it does."""
    if any(is_program(word, name) for name in allow):
        return ""
    base = posixpath.basename(word)
    if "/" in word and base in allow:
        return f"'{show(word)}' is not '{base}': only the bare name, or the one in a system folder, is on the list."
    shown = ", ".join(allow[:10]) + (" …" if len(allow) > 10 else "")
    return f"'{show(word)}' is not on the list of allowed commands ({shown})."
