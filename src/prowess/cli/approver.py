"""Asks the person at the terminal: to approve a tool call, or to answer a question of the model.

An approval is once, this run, always or no. A tool that --yes names is approved without a question. An empty line, the
end of input, a time-out and an absent person never count as yes.

The question shows everything that a yes would approve. Text of a skill or a model cannot look like our own text: it
begins at column 11 at the earliest, also on wrapped lines, and terminal control characters are escaped. A long text is
cut in the middle, so that its end is visible, and the cut is marked.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import termios
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from prowess.cli.screen import printable
from prowess.core.events import Answer, ApprovalAnswered
from prowess.core.findings import visible
from prowess.core.isolation import recorded_kind
from prowess.core.values import Decision, ToolCall
from prowess.runtime.services.preapproved import find_preapproval

_FIRST = ("command", "script", "args", "cwd", "env", "inputs", "stdin", "dependencies", "path", "url", "method")
_OURS = ("why", "skill", "digest", "runs in", "reaches", "changed", "diff")
_AS_YOU = "what you can: it runs as you, so your files, keys, programs and approvals are open to it"
_LONGEST, _TAIL, _DIFF = 6000, 2000, 30_000
_WIDTH = 8  # columns of a label
_INDENT = " " * (_WIDTH + 3)
_NARROWEST = 20  # columns of a text, even on a narrower terminal
_BLANK = re.compile(r" {40,}")
_EMPTY_LINES = re.compile(r"(?<![ \t])(?:[ \t]*+\n){6,}")


class ShownQuestion(NamedTuple):
    text: str
    is_cut: bool
    may_always: bool  # the skill has a digest to bind it to, and policy does not ask each time


def make_question(
    call: ToolCall, decision: Decision, *, columns: int | None = None, whole: bool = False
) -> ShownQuestion:
    """Builds the question. No line is longer than `columns`. With `whole`, nothing is cut."""
    about = decision.about
    is_cut = False
    lines = [f"{_name(call.tool)} asks for permission{_risk(about)}."]
    for label, text, longest in _fields(call, decision):
        shown = text
        if not whole:
            shown = _shortened(text, longest)
        if shown != text:
            is_cut = True
        lines += _paragraph(label, shown, columns, squeeze=not whole)
    return ShownQuestion("\n".join(lines), is_cut, _may_always(about))


def _may_always(about: Mapping[str, Any]) -> bool:
    if about.get("each_time"):
        return False
    return bool(about.get("skill") and about.get("digest"))


def render_question(call: ToolCall, decision: Decision) -> str:
    """Renders the question and its prompt, unwrapped."""
    question = make_question(call, decision)
    return f"{question.text}\n{render_prompt(call, question)}"


def render_prompt(call: ToolCall, question: ShownQuestion) -> str:
    """Renders the line behind which the person types."""
    tool = _name(call.tool)
    choices = "once (o), this run (r), "
    if question.may_always:
        choices += "always (a), "
    choices += "no (n), "
    if question.is_cut:
        choices += "show all (s), "
    return f"Allow {tool}? {choices}explain (?) [NO] "


def render_help(question: ShownQuestion) -> str:
    """Renders a line for each answer that is possible."""
    lines = [
        "  o  once: exactly this call",
        "  r  this run: the same tool for the same skill, until the run ends",
    ]
    if question.may_always:
        lines.append("  a  always: this tool for exactly this content of the skill; see 'prowess approvals'")
    if question.is_cut:
        lines.append("  s  show everything, uncut")
    lines.append("  n  no; what you write behind it is told to the model: n, because …")
    lines.append("  An empty line is a no.")
    return "\n".join(lines)


def describe_enforced(isolation: Mapping[str, Any]) -> str:
    """Renders `local (none, user 64321, network host) · enforced: time · best effort: memory · absent: files`."""
    mechanism = isolation.get("mechanism") or "none"
    uid = isolation.get("uid")
    user = "our own user"
    if uid is not None:
        user = f"user {uid}"
    inside = f"{mechanism}, {user}, network {isolation.get('network')}"
    parts = [f"{isolation.get('executor')} ({inside})"]
    limits: Mapping[str, str] = isolation.get("limits") or {}
    for kind in ("enforced", "best-effort", "absent"):
        names = [name for name, how in limits.items() if how == kind]
        if names:
            word = kind.replace("-", " ")
            listed = ", ".join(names).replace("_", " ")
            parts.append(f"{word}: {listed}")
    return " · ".join(parts)


def is_ours(uid: int | None) -> bool:
    """True when a script of that user has the same rights as the person who reads this."""
    if uid is None:
        return True
    return hasattr(os, "geteuid") and uid == os.geteuid()


def describe_changes(changed: Mapping[str, Any], most: int = 12) -> str:
    """Renders `since it was approved on 2026-11-16: changed scripts/a.sh · added b.sh`."""
    parts: list[str] = []
    for kind in ("changed", "added", "removed"):
        names = [str(name) for name in changed.get(kind) or ()]
        if not names:
            continue
        text = ", ".join(names[:most])
        left_out = len(names) - most
        if left_out > 0:
            text += f" and {left_out} more"
        parts.append(f"{kind} {text}")
    since = str(changed.get("since"))
    day = since[:10]
    files = " · ".join(parts) or "only its digest"
    return f"since it was approved on {day}: {files}"


def _fields(call: ToolCall, decision: Decision) -> Iterator[tuple[str, str, int]]:
    """Yields (label, text, maximum length)."""
    about = decision.about
    args = dict(call.args)
    yield "why", decision.why, _LONGEST
    skill = _skill_field(about, args)
    if skill is not None:
        yield "skill", skill, _LONGEST
    digest = about.get("digest")
    if digest:
        yield "digest", _short_digest(str(digest)), _LONGEST
    diff = about.get("diff") or ""
    for name, text in _argument_fields(args):
        if name == "content" and diff:
            yield name, f"{len(text)} characters: see diff", _LONGEST
        else:
            yield _label(name), text, _LONGEST
    isolation = about.get("isolation")
    if isinstance(isolation, Mapping):
        yield "runs in", describe_enforced(isolation), _LONGEST
        if recorded_kind(isolation) in ("none", "process") and is_ours(isolation.get("uid")):
            yield "reaches", _AS_YOU, _LONGEST
    changed = about.get("changed")
    if isinstance(changed, Mapping):
        yield "changed", describe_changes(changed), _LONGEST
    if diff:
        yield "diff", str(diff), _DIFF


def _skill_field(about: Mapping[str, Any], args: dict[str, Any]) -> str | None:
    """Takes the name that the model used out of the arguments. The skill that policy found goes before it."""
    is_named = "skill" in args
    named = args.pop("skill", None)
    skill = about.get("skill")
    if skill:
        trusted = "NOT trusted"
        if about.get("trusted"):
            trusted = "trusted"
        return f"{skill} · source {about.get('source')}, {trusted}"
    if is_named:
        return _text(named)
    return None


def _argument_fields(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the arguments that are not empty, the important ones first."""
    first = [name for name in _FIRST if name in args]
    others = [name for name in args if name not in _FIRST]
    for name in first + others:
        value = args[name]
        if value not in (None, "", [], {}):
            yield name, _text(value)


def _label(name: str) -> str:
    """Returns the name of an argument, quoted when it could look like one of our own fields."""
    is_taken = name in _OURS
    if name.isidentifier() and not is_taken and len(name) <= 40:
        return name
    return json.dumps(name[:40], ensure_ascii=False)


def _text(value: Any) -> str:
    """Returns a text as it is, and anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _name(tool: str) -> str:
    if len(tool) > 80:
        tool = f"{tool[:79]}…"
    return visible(tool)


def _risk(about: Mapping[str, Any]) -> str:
    risk = about.get("risk")
    if risk not in ("low", "medium", "high", "unknown"):
        return ""
    return f" ({risk} risk)"


def _short_digest(digest: str) -> str:
    """Renders `sha256:0123456789abcdef`."""
    kind, mark, hex_ = digest.rpartition(":")
    beginning = hex_[:16]
    return f"{kind}{mark}{beginning}"


def _shortened(text: str, longest: int) -> str:
    """Keeps the beginning and the end: the harmful part may stand at the end."""
    length = len(text)
    if length <= longest:
        return text
    beginning = text[: longest - _TAIL]
    end = text[-_TAIL:]
    mark = f"[… {length - longest} of {length} characters are not shown here …]"
    return f"{beginning}\n{mark}\n{end}"


def _paragraph(label: str, text: str, columns: int | None, *, squeeze: bool) -> list[str]:
    """Puts the first line beside the label, and each further line behind a bar, so that none looks like ours."""
    if squeeze:
        text = _squeezed(text)
    first = f"  {visible(label):<{_WIDTH}} "
    start = first
    lines: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        cells = map(visible, line.split("\t"))
        shown = "    ".join(cells)
        pieces: Sequence[str] = [shown]
        if columns is not None:
            widest_start = max(len(first), len(_INDENT) + 2)
            pieces = _wrapped(shown, columns - widest_start)
        lines.append(f"{start}{pieces[0]}")
        for piece in pieces[1:]:
            lines.append(f"{_INDENT}  {piece}")
        start = f"{_INDENT}| "
    return lines


def _squeezed(text: str) -> str:
    """Replaces many empty lines, and many spaces, by their number."""
    text = _EMPTY_LINES.sub(_count_lines, text)
    return _BLANK.sub(_count_spaces, text)


def _count_lines(found: re.Match[str]) -> str:
    number = found[0].count("\n")
    return f"\n[{number} empty lines]\n"


def _count_spaces(found: re.Match[str]) -> str:
    number = len(found[0])
    return f" [{number} spaces] "


def _wrapped(text: str, width: int) -> Sequence[str]:
    """Splits a text at `width` columns. A terminal would wrap to its left edge, where our own lines begin."""
    width = max(width, _NARROWEST)
    if len(text) <= width and text.isascii():
        return [text]
    if not text.isascii():
        from rich.cells import chop_cells

        return chop_cells(text, width) or [""]
    import textwrap

    wrapper = textwrap.TextWrapper(
        width, expand_tabs=False, replace_whitespace=False, drop_whitespace=False, break_on_hyphens=False
    )
    return wrapper.wrap(text) or [""]


_WORDS: dict[str, Answer] = {
    **dict.fromkeys(("o", "once", "y", "yes"), "once"),
    **dict.fromkeys(("r", "run", "this run"), "run"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("", "n", "no"), "no"),
}
_NO = re.compile(r"no?\b[\s,;:.!]*(?:because\b)?[\s,;:.!]*(.*)", re.IGNORECASE | re.DOTALL)
_TRIES = 3  # after so many answers that are not understood, it is a no
_LONGEST_WHY = 1000


class TerminalApprover:
    """Approver that asks at the terminal, one question at a time. `timeout_s` is the time to answer it."""

    def __init__(
        self,
        yes: Collection[str] | Mapping[str, str] = (),
        *,
        ask: bool = True,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
        timeout_s: float | None = None,
    ) -> None:
        """Takes `around`: a context in which nothing else writes to the terminal."""
        if not isinstance(yes, Mapping):
            yes = {name: name for name in yes}
        self._yes = dict(yes)
        self._ask = ask
        self._around = around
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()  # calls that only read run at the same time
        self.nobody: list[str] = []  # tools that nobody was there to approve

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        approved = find_preapproval(self._yes, call, decision)
        if approved is not None:
            return approved
        if not self._ask or not somebody_is_there():
            self.nobody.append(call.tool)
            return None
        async with self._turn:
            with self._around():
                try:
                    async with asyncio.timeout(self._timeout_s):
                        answer, why = await _ask(call, decision)
                except TimeoutError:
                    why = f"Nobody answered within {self._timeout_s:g} s."
                    sys.stderr.write(f"\n{why} That is a no.\n")
                    _forget_typed(sys.stdin.fileno())
                    return ApprovalAnswered(call_id=call.id, answer="no", why=why, by="time-out")
        return ApprovalAnswered(call_id=call.id, answer=answer, why=why, by="terminal")


async def _ask(call: ToolCall, decision: Decision) -> tuple[Answer, str | None]:
    columns = _columns()
    question = make_question(call, decision, columns=columns)
    text = question.text
    _forget_typed(sys.stdin.fileno())  # typed before the question was shown
    tries = 0
    while tries < _TRIES:
        said = await read_answer(f"{text}\n{render_prompt(call, question)}")
        if said == "?":
            text = render_help(question)
        elif said == "s" and question.is_cut:
            text = make_question(call, decision, columns=columns, whole=True).text
        elif (answer := parse_answer(said, question)) is not None:
            return answer
        else:
            tries += 1
            text = f"Not understood.\n{render_help(question)}"
    sys.stderr.write("That is a no.\n")
    return "no", None


def parse_answer(said: str, question: ShownQuestion) -> tuple[Answer, str | None] | None:
    """Returns (answer, why not), or None if not understood. `no, because it is late` and `n it is late` say why."""
    text = said.strip()
    word = text.lower().rstrip(".!")
    answer = _WORDS.get(word)
    if answer == "always" and not question.may_always:
        return None
    if answer is not None:
        return answer, None
    refused = _NO.fullmatch(text)
    if refused is None:
        return None
    why = refused[1][:_LONGEST_WHY]
    return "no", why or None


def somebody_is_there() -> bool:
    """True if a person can read a question on stderr and type an answer."""
    if sys.stdin is None:
        return False
    return sys.stdin.isatty() and sys.stderr.isatty()


async def read_answer(question: str) -> str:
    """Reads one line of the terminal. Lines typed ahead stay in the terminal for the next question."""
    sys.stderr.write(question)
    sys.stderr.flush()
    fd = sys.stdin.fileno()
    await readable(fd)  # no thread: Ctrl-C would have to wait for it
    line = os.read(fd, 65536)
    return line.decode("utf-8", "replace").strip()


async def readable(fd: int) -> None:
    """Waits until something can be read, or the end."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _columns() -> int:
    """Width of the terminal that shows the question (stderr); stdout may go elsewhere."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _forget_typed(fd: int) -> None:
    try:
        termios.tcflush(fd, termios.TCIFLUSH)
    except termios.error:  # the terminal is gone; the next read reports it
        pass


_LONGEST_QUESTION = 4000


class TerminalAsker:
    """Asker at the terminal. Choices have numbers, a free answer is always possible, an empty line is no answer."""

    def __init__(self, *, ask: bool = True, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._ask = ask
        self._around = around

    async def __call__(self, question: str, choices: Sequence[str]) -> str | None:
        if not self._ask or not somebody_is_there():
            return None
        asked = render_choices(question, choices)
        with self._around():
            said = await read_answer(asked)
        return find_choice(said, choices)


def render_choices(question: str, choices: Sequence[str]) -> str:
    """Renders the question of a model, a line for each choice, and the prompt."""
    shown = printable(question[:_LONGEST_QUESTION], lines=True)
    lines = [f"The model asks: {shown}"]
    for number, choice in enumerate(choices, 1):
        text = printable(choice[:_LONGEST_QUESTION])
        lines.append(f"  {number}  {text}")
    how = "Your answer"
    if choices:
        how = f"A number from 1 to {len(choices)}, or your own answer"
    lines.append(f"{how} (empty: no answer): ")
    return "\n".join(lines)


def find_choice(said: str, choices: Sequence[str]) -> str | None:
    """Returns the choice with the number that was typed, or the answer as it was typed."""
    if not said:
        return None
    if not said.isascii() or not said.isdigit():
        return said
    number = int(said[:6])
    if 1 <= number <= len(choices):
        return choices[number - 1]
    return said
