"""A person at the terminal is asked, and says once, this run, always or no. What was named with --yes was answered
before; nobody, an empty line, the end of input and the end of patience are never a yes."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import sys
import termios
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from prowess.cli.question import Question, make_question, render_help, render_prompt, render_question
from prowess.core.events import Answer, ApprovalAnswered
from prowess.core.values import Decision, ToolCall
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import ALIASES, canonical_tools
from prowess.policy.decision import CAPABILITIES, RISKS, find_risk

__all__ = ["TerminalApprover", "parse_answer", "parse_yes", "read_answer", "render_question", "somebody_is_there"]

_CLASSES = {"low": ("low",), "medium": ("low", "medium")}
_WORDS: dict[str, Answer] = {
    **dict.fromkeys(("o", "once", "y", "yes"), "once"),
    **dict.fromkeys(("r", "run", "this run"), "run"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("", "n", "no"), "no"),
}
_NO = re.compile(r"no?\b[\s,;:.!]*(?:because\b)?[\s,;:.!]*(.*)", re.IGNORECASE | re.DOTALL)
_TRIES = 3  # what is not understood so often is a no
_LONGEST_WHY = 1000


def parse_yes(said: Sequence[str]) -> dict[str, str]:
    """Tool -> the word that approves it. A name of another system stands for all tools behind it, a class of risk for
    its tools; what is of high risk is approved only by a name that means nothing else."""
    found: dict[str, str] = {}
    for word in said:
        risk_said = word.strip().casefold()
        if risk_said in ("high", "unknown"):
            high = ", ".join(tool for tool, risk in RISKS.items() if risk == "high")
            raise ConfigError(
                f"--yes {word} is not possible: what is of that risk is approved by its name.",
                code="usage",
                hint=f"Name the tool: {high}.",
            )
        if risk_said in _CLASSES:
            risks = _CLASSES[risk_said]
            found |= {tool: risk_said for tool, risk in RISKS.items() if risk in risks and tool not in found}
            continue
        named = canonical_tools(word)
        if not all(tool in RISKS or tool in CAPABILITIES for tool in named):
            raise _unknown_yes(word)
        found |= {tool: word for tool in named if len(named) == 1 or find_risk(tool) != "high"}
    return found


def _unknown_yes(word: str) -> ConfigError:
    """A pattern is one of `allowed-tools` and of rules; here a tool is approved whatever it is told."""
    ours = (*_CLASSES, *RISKS, *sorted(CAPABILITIES))
    names = {name.casefold(): name for name in (*ALIASES, *ours)}
    plain = word.partition("(")[0].strip()
    near = difflib.get_close_matches(plain.casefold(), names, n=1)
    meant = f"Did you mean --yes {names[near[0]]}?" if near else f"There are: {', '.join(ours)}."
    whole = "--yes approves every call of a tool and takes no pattern; a rule does. " if plain != word.strip() else ""
    if re.search(r"[*?\[]", plain):
        whole, meant = "There are no wildcards here: name each tool. ", f"There are: {', '.join(ours)}."
    return ConfigError(f"--yes names '{word[:80]}', which is no tool.", code="usage", hint=whole + meant)


class TerminalApprover:
    """An Approver. One question at a time; `timeout_s` is how long somebody may take to answer it."""

    def __init__(
        self,
        yes: Collection[str] | Mapping[str, str] = (),
        *,
        ask: bool = True,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
        timeout_s: float | None = None,
    ) -> None:
        """`around` a question nothing else writes to the terminal."""
        self._yes = dict(yes) if isinstance(yes, Mapping) else {name: name for name in yes}
        self._ask, self._around, self._timeout_s = ask, around, timeout_s
        self._turn = asyncio.Lock()  # calls that only read are made side by side
        self.nobody: list[str] = []  # what could not be asked, for whoever explains it

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        said = self._yes.get(call.tool)
        if said is not None and not (said in _CLASSES and _is_asked_each_time(decision)):
            return ApprovalAnswered(call_id=call.id, answer="once", by=f"--yes {said}", asked=False)
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


def _is_asked_each_time(decision: Decision) -> bool:
    """Somebody has named it to be asked about: a class of risk, which names nothing, is no answer to that."""
    return bool(decision.about.get("each_time"))


async def _ask(call: ToolCall, decision: Decision) -> tuple[Answer, str | None]:
    columns = _columns()
    question = make_question(call, decision, columns=columns)
    text = question.text
    _forget_typed(sys.stdin.fileno())  # it was not typed as an answer to this
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
    """(answer, why not); None when it is no answer. `no, because it is late` and `n it is late` say why."""
    text = said.strip()
    answer = _WORDS.get(text.lower().rstrip(".!"))
    if answer is not None:
        return None if answer == "always" and not question.may_always else (answer, None)
    refused = _NO.fullmatch(text)
    return None if refused is None else ("no", refused[1][:_LONGEST_WHY] or None)


def somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def read_answer(question: str) -> str:
    """One line of the terminal. What was typed ahead stays in the terminal for the next question."""
    sys.stderr.write(question)
    sys.stderr.flush()
    fd = sys.stdin.fileno()
    await _readable(fd)  # not a thread that waits: Ctrl-C would have to wait for it
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
    """Of the terminal that the question is shown on; stdout may be somewhere else."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _forget_typed(fd: int) -> None:
    try:
        termios.tcflush(fd, termios.TCIFLUSH)
    except termios.error:  # it is gone, and reading will say so
        pass
