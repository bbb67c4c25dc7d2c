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
_EMPTY_LINES = re.compile(r"(?<![ \t])(?:[ \t]*+\n){6,}+")


class Question(NamedTuple):
    text: str
    is_cut: bool
    may_always: bool  # the skill has a digest to bind it to, and policy does not ask each time


def make_question(call: ToolCall, decision: Decision, *, columns: int | None = None, whole: bool = False) -> Question:
    """Builds the question. No line is longer than `columns`. With `whole`, nothing is cut."""
    about = decision.about
    cut: list[str] = []
    lines = [f"{_name(call.tool)} asks for permission{_risk(about)}."]
    for label, text, longest in _fields(call, decision):
        short = text if whole else _shortened(text, longest)
        cut += [label] if short != text else []
        lines += _paragraph(label, short, columns, squeeze=not whole)
    may_always = bool(about.get("skill") and about.get("digest")) and not about.get("each_time")
    return Question("\n".join(lines), bool(cut), may_always)


def render_question(call: ToolCall, decision: Decision) -> str:
    """Renders the question and its prompt, unwrapped."""
    question = make_question(call, decision)
    return f"{question.text}\n{render_prompt(call, question)}"


def render_prompt(call: ToolCall, question: Question) -> str:
    always = "always (a), " if question.may_always else ""
    show = "show all (s), " if question.is_cut else ""
    return f"Allow {_name(call.tool)}? once (o), this run (r), {always}no (n), {show}explain (?) [NO] "


def render_help(question: Question) -> str:
    always = [
        "  a  always: this tool for exactly this content of the skill; see 'prowess approvals'",
        *(["  s  show everything, uncut"] if question.is_cut else []),
    ]
    return "\n".join(
        [
            "  o  once: exactly this call",
            "  r  this run: the same tool for the same skill, until the run ends",
            *(always if question.may_always else always[1:]),
            "  n  no; what you write behind it is told to the model: n, because …",
            "  An empty line is a no.",
        ]
    )


def describe_enforced(isolation: Mapping[str, Any]) -> str:
    """Renders `local (none, user 64321, network host) · enforced: time · best effort: memory · absent: files`."""
    user = isolation.get("uid")
    inside = [
        str(isolation.get("mechanism") or "none"),
        "our own user" if user is None else f"user {user}",
        f"network {isolation.get('network')}",
    ]
    limits: Mapping[str, str] = isolation.get("limits") or {}
    held = [
        f"{word}: {', '.join(names)}"
        for kind, word in (("enforced", "enforced"), ("best-effort", "best effort"), ("absent", "absent"))
        if (names := [name.replace("_", " ") for name, how in limits.items() if how == kind])
    ]
    return " · ".join([f"{isolation.get('executor')} ({', '.join(inside)})", *held])


def is_ours(uid: int | None) -> bool:
    """True when a script of that user has the same rights as the person who reads this."""
    return uid is None or (hasattr(os, "geteuid") and uid == os.geteuid())


def describe_changes(changed: Mapping[str, Any], most: int = 12) -> str:
    """Renders `since it was approved on 2026-11-16: changed scripts/a.sh · added b.sh`."""
    kinds = [
        f"{kind} {', '.join(names[:most])}{f' and {len(names) - most} more' if len(names) > most else ''}"
        for kind in ("changed", "added", "removed")
        if (names := [str(name) for name in changed.get(kind) or ()])
    ]
    return f"since it was approved on {str(changed.get('since'))[:10]}: {' · '.join(kinds) or 'only its digest'}"


def _fields(call: ToolCall, decision: Decision) -> Iterator[tuple[str, str, int]]:
    """Yields (label, text, maximum length)."""
    about, args = decision.about, dict(call.args)
    yield "why", decision.why, _LONGEST
    if about.get("skill"):
        args.pop("skill", None)  # the name that the model used
        trusted = "trusted" if about.get("trusted") else "NOT trusted"
        yield "skill", f"{about['skill']} · source {about.get('source')}, {trusted}", _LONGEST
    elif "skill" in args:
        yield "skill", _text(args.pop("skill")), _LONGEST
    if about.get("digest"):
        yield "digest", _short_digest(str(about["digest"])), _LONGEST
    diff = about.get("diff") or ""
    for name in [*(name for name in _FIRST if name in args), *(name for name in args if name not in _FIRST)]:
        value = args[name]
        if value in (None, "", [], {}):
            continue
        text = _text(value)
        if name == "content" and diff:
            text = f"{len(text)} characters: see diff"
        yield _label(name), text, _LONGEST
    if isinstance(isolation := about.get("isolation"), Mapping):
        yield "runs in", describe_enforced(isolation), _LONGEST
        if recorded_kind(isolation) in ("none", "process") and is_ours(isolation.get("uid")):
            yield "reaches", _AS_YOU, _LONGEST
    if isinstance(changed := about.get("changed"), Mapping):
        yield "changed", describe_changes(changed), _LONGEST
    if diff:
        yield "diff", str(diff), _DIFF


def _label(name: str) -> str:
    """Returns the name of an argument, quoted when it could look like one of our own fields."""
    plain = name.isidentifier() and name not in _OURS and len(name) <= 40
    return name if plain else json.dumps(name[:40], ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _name(tool: str) -> str:
    return visible(tool if len(tool) <= 80 else f"{tool[:79]}…")


def _risk(about: Mapping[str, Any]) -> str:
    return f" ({about['risk']} risk)" if about.get("risk") in ("low", "medium", "high", "unknown") else ""


def _short_digest(digest: str) -> str:
    kind, mark, hex_ = digest.rpartition(":")
    return f"{kind}{mark}{hex_[:16]}"


def _shortened(text: str, longest: int) -> str:
    """Keeps the beginning and the end: the harmful part may stand at the end."""
    if len(text) <= longest:
        return text
    left_out = len(text) - longest
    mark = f"\n[… {left_out} of {len(text)} characters are not shown here …]\n"
    return f"{text[: longest - _TAIL]}{mark}{text[-_TAIL:]}"


def _paragraph(label: str, text: str, columns: int | None, *, squeeze: bool) -> list[str]:
    """Puts the first line beside the label, and each further line behind a bar, so that none looks like ours."""
    if squeeze:
        text = _EMPTY_LINES.sub(lambda found: f"\n[{found[0].count(chr(10))} empty lines]\n", text)
        text = _BLANK.sub(lambda found: f" [{len(found[0])} spaces] ", text)
    first = f"  {visible(label):<{_WIDTH}} "
    lines: list[str] = []
    for number, line in enumerate(text.rstrip("\n").split("\n")):
        start = first if number == 0 else f"{_INDENT}| "
        shown = "    ".join(map(visible, line.split("\t")))
        pieces = [shown] if columns is None else _wrapped(shown, columns - max(len(first), len(_INDENT) + 2))
        lines.append(f"{start}{pieces[0]}")
        lines += [f"{_INDENT}  {piece}" for piece in pieces[1:]]
    return lines


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
        self._yes = dict(yes) if isinstance(yes, Mapping) else {name: name for name in yes}
        self._ask, self._around, self._timeout_s = ask, around, timeout_s
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


def parse_answer(said: str, question: Question) -> tuple[Answer, str | None] | None:
    """Returns (answer, why not), or None if not understood. `no, because it is late` and `n it is late` say why."""
    text = said.strip()
    answer = _WORDS.get(text.lower().rstrip(".!"))
    if answer is not None:
        return None if answer == "always" and not question.may_always else (answer, None)
    refused = _NO.fullmatch(text)
    return None if refused is None else ("no", refused[1][:_LONGEST_WHY] or None)


def somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def read_answer(question: str) -> str:
    """Reads one line of the terminal. Lines typed ahead stay in the terminal for the next question."""
    sys.stderr.write(question)
    sys.stderr.flush()
    fd = sys.stdin.fileno()
    await _readable(fd)  # no thread: Ctrl-C would have to wait for it
    return os.read(fd, 65536).decode("utf-8", "replace").strip()


async def _readable(fd: int) -> None:
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
        self._ask, self._around = ask, around

    async def __call__(self, question: str, choices: Sequence[str]) -> str | None:
        if not self._ask or not somebody_is_there():
            return None
        with self._around():
            said = await read_answer(render_choices(question, choices))
        return find_choice(said, choices)


def render_choices(question: str, choices: Sequence[str]) -> str:
    lines = [f"The model asks: {printable(question[:_LONGEST_QUESTION], lines=True)}"]
    lines += [f"  {number}  {printable(choice[:_LONGEST_QUESTION])}" for number, choice in enumerate(choices, 1)]
    how = f"A number from 1 to {len(choices)}, or your own answer" if choices else "Your answer"
    return "\n".join([*lines, f"{how} (empty: no answer): "])


def find_choice(said: str, choices: Sequence[str]) -> str | None:
    if not said:
        return None
    if said.isascii() and said.isdigit() and 1 <= int(said[:6]) <= len(choices):
        return choices[int(said[:6]) - 1]
    return said
