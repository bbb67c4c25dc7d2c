"""A person at the terminal is asked, and says once or no. What was named with --yes was answered before."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection

from prowess.events import ApprovalAnswered
from prowess.skills.findings import visible
from prowess.values import Decision, ToolCall

_SHOWN = ("skill", "command", "script", "args", "cwd", "env", "inputs", "stdin", "dependencies")
_LONGEST = 20_000


class TerminalApprover:
    """An Approver. Where nobody can answer there is no answer, and that is never a yes."""

    def __init__(self, yes: Collection[str] = (), *, ask: bool = True) -> None:
        self._yes = frozenset(yes)
        self._ask = ask
        self.nobody: list[str] = []  # what could not be asked, for whoever explains it

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        if call.tool in self._yes:
            return ApprovalAnswered(call_id=call.id, answer="once", by=f"--yes {call.tool}")
        if not self._ask or not sys.stdin.isatty() or not sys.stderr.isatty():
            self.nobody.append(call.tool)
            return None
        sys.stderr.write(render_question(call, decision))
        sys.stderr.flush()
        await _readable(sys.stdin.fileno())  # not a thread that waits: Ctrl-C would have to wait for it
        said = sys.stdin.readline().strip().lower()
        yes = said in ("y", "yes", "once")
        return ApprovalAnswered(call_id=call.id, answer="once" if yes else "no", by="terminal")


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def render_question(call: ToolCall, decision: Decision) -> str:
    """Everything that would be done, so that a yes is a yes to exactly that."""
    rows = [(name, call.args[name]) for name in _SHOWN if call.args.get(name) not in (None, "", [], {})]
    lines = [f"{call.tool} asks for permission.", f"  why      {visible(decision.why)}"]
    for name, value in rows:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        cut = f" … ({len(text)} characters)" if len(text) > _LONGEST else ""
        lines.append(f"  {name:<8} {visible(text[:_LONGEST])}{cut}")
    return "\n".join([*lines, "Once, or no? [once/NO] "])
