"""A question of the model, put to the person at the terminal; where nobody is, nobody answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from prowess.cli.approver import read_answer, somebody_is_there
from prowess.cli.screen import printable

_LONGEST = 4000


class TerminalAsker:
    """An Asker: choices have numbers, an own answer is always possible, an empty line is none."""

    def __init__(self, *, ask: bool = True, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._ask, self._around = ask, around

    async def __call__(self, question: str, choices: Sequence[str]) -> str | None:
        if not self._ask or not somebody_is_there():
            return None
        with self._around():
            said = await read_answer(render_choices(question, choices))
        return find_choice(said, choices)


def render_choices(question: str, choices: Sequence[str]) -> str:
    lines = [f"The model asks: {printable(question[:_LONGEST], lines=True)}"]
    lines += [f"  {number}  {printable(choice[:_LONGEST])}" for number, choice in enumerate(choices, 1)]
    how = f"A number from 1 to {len(choices)}, or your own answer" if choices else "Your answer"
    return "\n".join([*lines, f"{how} (empty: no answer): "])


def find_choice(said: str, choices: Sequence[str]) -> str | None:
    if not said:
        return None
    if said.isascii() and said.isdigit() and 1 <= int(said[:6]) <= len(choices):
        return choices[int(said[:6]) - 1]
    return said
