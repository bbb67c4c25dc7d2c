"""With a command list, one plain command runs, without a shell, and every program it would start is on the right list.

`split_command` reads a text as a shell would read it, and refuses everything that a shell would do more than pass on:
what is left is an argv that means the same with and without a shell. `judge_command` looks through programs that start
other programs (`launchers`), and then:

- deny wins, and is generous: a denied name is denied in any folder, in any case, with a version behind it;
- allow is strict: a name on the list is that bare name, or that name in a system folder. `./python3` is not `python3`;
- each program of a chain must be allowed: `timeout 5 git status` needs `timeout` and `git`;
- a program that was handed code (`bash -c …`, `python3 -c …`, an awk program, `ssh host …`) can start anything, and
  nobody can read from a text what it will do. Somebody who puts `python3` on the allow list has decided that; somebody
  who only denies `rm` has not, so with a deny list alone such a command is refused, and a script in a file is not;
- an option by which a program that is no interpreter starts another one (`git -c`, `tar --to-command`, sed's `e`)
  never passes, because nobody who allows `tar` means that.

A list holds names, and names are not programs: whoever can write a file and start it can start anything. Lists keep an
honest agent on its path; isolation is what stops a hostile one.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

from prowess.policy.launchers import ANYTHING, find_starts
from prowess.policy.lexer import Command, NotSimple, split_command, split_compound

__all__ = [
    "NOT_EXPANDED",
    "Command",
    "Judged",
    "NotSimple",
    "is_denied_name",
    "is_program",
    "judge_command",
    "parse_names",
    "split_command",
    "split_compound",
]

NOT_EXPANDED = """\
With a command list there is no shell, so a command is one program and its arguments, and this no longer works:

- variables: `$OUTPUT_DIR`, `${NAME}`, `$?` (write the path; the program still has the variables in its environment)
- command substitution: `$(date)` and backticks
- pipes, lists and background: `a | b`, `a && b`, `a; b`, `a &`, line breaks
- redirections and here-documents: `> out/x.txt`, `< in.txt`, `2>&1`, `<<EOF` (use `stdin` and `outputs`)
- patterns: `*.csv`, `?`, `[ab]` reach the program as they are written, and a note says so
- `~` and `{a,b}`: write the path, and write both
- assignments in front (`LANG=C sort x`), `!`, and the words of the shell's own language (`if`, `for`, `cd`, `export`)

Quotes and backslashes work as in a shell; what stands in quotes may hold any of these characters.
A script of the skill is not affected: what it does inside is its own business.
"""

SYSTEM_FOLDERS = frozenset(
    ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/snap/bin")
)
_VERSION = re.compile(r"[-.]?\d[\d.\-]*")
_WORD = re.compile(r"[\w.+\-]+")


class Judged(NamedTuple):
    """Whether a command may run under the lists, which program decided, and why."""

    verdict: Literal["allow", "deny"]
    program: str
    why: str


def judge_command(argv: Sequence[str], allow: Sequence[str], deny: Sequence[str]) -> Judged:
    """Judge one command. Without any list everything is allowed: then this need not be asked."""
    first = argv[0] if argv else ""
    if not allow and not deny:
        return Judged("allow", first, "There is no command list.")
    for start in find_starts(argv):
        word = start.word
        if start.hidden and not start.in_code:
            return Judged("deny", word, start.hidden)
        if word == ANYTHING and not start.in_code:
            return Judged("deny", first, "Which program it would start is only known while it runs.")
        tried = (word, start.like) if start.like else (word,)
        if denied := next((name for name in deny if any(is_denied_name(one, name) for one in tried)), None):
            return Judged("deny", word, f"'{_short(word)}' is on the list of denied commands ({denied}).")
        if start.in_code:  # who may run any code may run this; only what is denied stays denied
            continue
        if allow and not any(is_program(word, name) for name in allow):
            return Judged("deny", word, _not_allowed(word, allow))
        if start.code is None:
            continue
        if not allow:
            return Judged(
                "deny", word, f"'{_short(word)}' was handed code that can start any program, the denied ones as well."
            )
        if denied := next((name for name in deny if _mentions(start.code, name)), None):
            return Judged("deny", word, f"The code for '{_short(word)}' mentions '{denied}', which is denied.")
    return Judged("allow", first, "Every program it starts is allowed." if allow else "No program it starts is denied.")


def is_program(word: str, name: str) -> bool:
    """Whether starting `word` starts the program that somebody called `name`. Strict, for what allows."""
    if word == ANYTHING:
        return False
    if "/" in name:
        return ".." not in word.split("/") and posixpath.normpath(word) == posixpath.normpath(name)
    folder, _, base = word.rpartition("/")
    return base == name and (folder in SYSTEM_FOLDERS or "/" not in word)


def is_denied_name(word: str, name: str) -> bool:
    """Whether `word` may be the program that somebody called `name`. Generous, for what denies."""
    tried, denied = _plain_name(word), _plain_name(name)
    rest = tried.removeprefix(denied) if denied and tried.startswith(denied) else None
    return rest is not None and (not rest or bool(_VERSION.fullmatch(rest)))


def parse_names(text: str) -> tuple[str, ...]:
    """`python3, ffmpeg git` -> three names: commas and spaces part them."""
    return tuple(dict.fromkeys(name for name in re.split(r"[,\s]+", text) if name))


def _plain_name(word: str) -> str:
    """The last part, in one case, as file systems that do not care about case or form see it."""
    base = posixpath.basename(posixpath.normpath(word.replace("\\", "/")))
    return unicodedata.normalize("NFKC", base).casefold().removesuffix(".exe")


def _mentions(code: str, name: str) -> bool:
    return any(is_denied_name(word, name) for word in _WORD.findall(code))


def _not_allowed(word: str, allow: Sequence[str]) -> str:
    base = posixpath.basename(word)
    if "/" in word and base in allow:
        return f"'{_short(word)}' is not '{base}': only the bare name, or the one in a system folder, is on the list."
    shown = ", ".join(allow[:10]) + (" …" if len(allow) > 10 else "")
    return f"'{_short(word)}' is not on the list of allowed commands ({shown})."


def _short(word: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in word)
    return shown if len(shown) <= 60 else shown[:57] + "…"
