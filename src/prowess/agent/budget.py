"""Checks the limits of a run, prices replies, and reports unfinished work when a limit is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from prowess._internal.tokens import estimate
from prowess.agent.agent import AgentSpec, Limits
from prowess.agent.context import Conversation
from prowess.agent.context.state import UsageTotals
from prowess.core.events import ModelReplied, StopReason
from prowess.core.tool_table import COMMAND_TOOLS, UNCOUNTED_TOOLS
from prowess.core.values import ToolCall, find_cost

_CONSTRAINTS = {"turns": "max_turns", "calls": "max_tool_calls", "scripts": "max_script_runs"}
_WORDS = {"scripts": "script runs", "cost": "in money"}  # of limits whose name is not the word for them
_LONGEST = 600
_NEAR = 0.85  # part of the window that starts compaction
_NEAR_TURNS = 3  # turns left, of which the model is told
_NEAR_LIMIT = 0.2  # part of another limit that is left then
_LAST = {"turns": "This is the last turn", "calls": "No calls left"}
_ANSWER = "answer now with what you have; do not make up values."


class Budget:
    """Limits of the agent, tightened by the plan. A plan can never widen them."""

    def __init__(
        self, limits: Limits, prices: Mapping[str, float], talk: Conversation, clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._prices = prices
        self._talk = talk
        self._clock = clock
        self._began = clock()

    def _limit(self, name: str) -> int | None:
        """Limit of the agent or of the plan, whichever is stricter."""
        limit = getattr(self._limits, name)
        plan = self._talk.plan
        if plan is None:
            return limit
        wanted = plan.constraints.get(_CONSTRAINTS[name])
        if wanted is None or limit is None:
            return limit if wanted is None else wanted
        return min(limit, wanted)

    def plan_limits(self) -> dict[str, int]:
        """Limits of the run under the names of plan constraints."""
        found: dict[str, int] = {}
        for name, word in _CONSTRAINTS.items():
            limit = getattr(self._limits, name)
            if limit is not None:
                found[word] = limit
        return found

    def reached(self) -> StopReason | None:
        """Limit that is reached before another turn, else None."""
        usage = self._talk.spent.usage
        if _used_up(self._talk.spent.turns, self._limit("turns")):
            return "limit:turns"
        if _used_up(usage.input + usage.output, self._limits.tokens):
            return "limit:tokens"
        if _used_up(usage.cost or 0.0, self._limits.cost):
            return "limit:cost"
        left = self.seconds_left()
        if left is not None and left <= 0:
            return "limit:seconds"
        return None

    def reached_by(self, call: ToolCall, under_way: int = 0) -> StopReason | None:
        """Limit that is reached before this call, while `under_way` others are being made."""
        if call.tool in UNCOUNTED_TOOLS:
            return None
        spent = self._talk.spent
        if _used_up(spent.calls + under_way, self._limit("calls")):
            return "limit:calls"
        if call.tool in COMMAND_TOOLS and _used_up(spent.scripts, self._limit("scripts")):
            return "limit:scripts"
        return None

    def seconds_left(self) -> float | None:
        """Seconds until the run has to end. None without a limit."""
        seconds = self._limits.seconds
        if seconds is None:
            return None
        return seconds - (self._clock() - self._began)

    def warnings(self, *, can_run: bool) -> dict[str, str]:
        """Limits that are near, as the model is told them with the next request, by the kind of the note."""
        found: dict[str, str] = {}
        for name, (left, limit) in self._left().items():
            if name == "scripts" and not can_run:
                continue
            if left == 0 and name in _LAST:
                found[f"limit:{name}:last"] = f"{_LAST[name]}: {_ANSWER}"
                continue
            near = _NEAR_TURNS if name == "turns" else limit * _NEAR_LIMIT
            if left <= near:
                found[f"limit:{name}"] = _render_left(name, left)
        return found

    def _left(self) -> dict[str, tuple[float, float]]:
        """Rest of each limit after the next request, and the limit."""
        spent = self._talk.spent
        usage = spent.usage
        limits = self._limits
        used: dict[str, float] = {"turns": spent.turns + 1, "calls": spent.calls, "scripts": spent.scripts}
        used["tokens"] = usage.input + usage.output
        used["cost"] = usage.cost or 0.0
        found: dict[str, tuple[float, float]] = {}
        for name, number in used.items():
            limit = self._limit(name) if name in _CONSTRAINTS else getattr(limits, name)
            if limit is not None:
                left = max(0, limit - number)
                found[name] = (left, limit)
        return found

    def share(self, counted: UsageTotals | None = None) -> Limits:
        """Limits for a child run: its own turns, and at most what is left of the rest. `counted` is what the child used
        before; it is added back, because the child counts it itself."""
        spent = self._talk.spent
        if counted is not None:
            spent = spent.less(counted)
        usage = spent.usage
        limits = self._limits
        calls = _rest(self._limit("calls"), spent.calls)
        scripts = _rest(self._limit("scripts"), spent.scripts)
        tokens = _rest(limits.tokens, usage.input + usage.output)
        cost = None if limits.cost is None else _rest_of(limits.cost, usage.cost)
        seconds = self.seconds_left()
        return replace(limits, calls=calls, scripts=scripts, tokens=tokens, seconds=seconds, cost=cost)

    def priced(self, reply: ModelReplied) -> ModelReplied:
        """Adds the cost to a reply if prices are known. `cached` tokens are part of `input`."""
        if reply.usage.cost is not None:
            return reply
        cost = find_cost(reply.usage, self._prices)
        if cost is None:
            return reply
        usage = replace(reply.usage, cost=cost)
        return replace(reply, usage=usage)

    def explain(self, limit: StopReason) -> str:
        """Says which limit was reached."""
        name = limit.removeprefix("limit:")
        value = self._limit(name) if name in _CONSTRAINTS else getattr(self._limits, name)
        what = _WORDS.get(name, name)
        return f"the limit of {value} {what} was reached"


def is_near(agent: AgentSpec, talk: Conversation) -> bool:
    """True if the next request comes near the model's window. Cheap if it is far away. A replayed recording knows where
    the recorded model compacted."""
    if agent.recording is not None:
        shortened = agent.recording.shortened(talk.run or "", talk.task)
        return shortened is not None
    window = agent.info.context_tokens
    if not window:
        return False
    near = window * _NEAR
    if talk.request().size_bytes < near:  # a token is at least one byte
        return False
    return count_tokens(talk) > near


def count_tokens(talk: Conversation) -> int:
    """Estimates the tokens of the next request."""
    request = talk.request()
    texts: list[str] = []
    calls: list[str] = []
    for message in request.messages:
        texts += [part.text or "" for part in message.parts]
        calls += [str(call.args) for call in message.calls]
    total = estimate("\n".join(texts + calls))
    for tool in request.tools:
        total += estimate(str(tool.parameters))
    return total


def render_partial(talk: Conversation, why: str, said: str = "") -> str:
    """Renders a useful report of an unfinished run: the reason, what was done, and what was not. `said` is the text of
    a reply that was cut off. It is kept whole, because a person has read it."""
    done: list[str] = []
    failed: list[str] = []
    for tool, outcome in talk.outcomes():
        result = _short(outcome.content)
        if outcome.status == "ok":
            done.append(f"- {tool}: {result}")
        else:
            failed.append(f"- {tool} ({outcome.code or outcome.status}): {result}")
    if talk.plan is not None:
        steps = talk.plan.steps
        done = [f"- {step.title}" for step in steps if step.status == "completed"] or done
        failed = [f"- {step.title}" for step in steps if step.status != "completed"] + failed
    lines = [f"Not finished: {why}."]
    if done:
        lines += ["Done:", *done[-10:]]
    if failed:
        lines += ["Not done:", *failed[-10:]]
    if said.strip():
        lines += ["Said until it was cut off:", said]
    elif talk.last_text:
        lines += ["Last said:", talk.last_text[:_LONGEST]]
    return "\n".join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= 160:
        return line
    return f"{line[:157]}…"


def _render_left(name: str, left: float) -> str:
    what = _WORDS.get(name, name)
    if left == 1:
        what = what.removesuffix("s")
    after = " after this one" if name == "turns" else ""
    return f"{_number(left)} {what} left{after}."


def _number(value: float) -> str:
    if isinstance(value, float) and value < 10:
        return f"{value:.4g}"
    return f"{value:.0f}"


def _used_up(used: float, limit: float | None) -> bool:
    return limit is not None and used >= limit


def _rest(limit: int | None, used: int) -> int | None:
    if limit is None:
        return None
    return max(0, limit - used)


def _rest_of(money: float, used: float | None) -> float:
    return max(0.0, money - (used or 0.0))
