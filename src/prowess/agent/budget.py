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
_LONGEST = 600
_NEAR = 0.85  # part of the window that starts compaction


class Budget:
    """Limits of the agent, tightened by the plan. A plan can never widen them."""

    def __init__(
        self, limits: Limits, prices: Mapping[str, float], talk: Conversation, clock: Callable[[], float]
    ) -> None:
        self._limits, self._prices, self._talk, self._clock = limits, prices, talk, clock
        self._began = clock()

    def _limit(self, name: str) -> int | None:
        limit, plan = getattr(self._limits, name), self._talk.plan
        wanted = None if plan is None else plan.constraints.get(_CONSTRAINTS[name])
        return limit if wanted is None else wanted if limit is None else min(limit, wanted)

    def plan_limits(self) -> dict[str, int]:
        """Limits of the run under the names of plan constraints."""
        return {
            word: limit for name, word in _CONSTRAINTS.items() if (limit := getattr(self._limits, name)) is not None
        }

    def reached(self) -> StopReason | None:
        """Limit that is reached before another turn, else None."""
        spent, usage = self._talk.spent, self._talk.spent.usage
        if _used_up(spent.turns, self._limit("turns")):
            return "limit:turns"
        if _used_up(usage.input + usage.output, self._limits.tokens):
            return "limit:tokens"
        if _used_up(usage.cost or 0.0, self._limits.cost):
            return "limit:cost"
        left = self.seconds_left()
        return "limit:seconds" if left is not None and left <= 0 else None

    def reached_by(self, call: ToolCall, under_way: int = 0) -> StopReason | None:
        """Limit that is reached before this call, while `under_way` others are being made."""
        if call.tool in UNCOUNTED_TOOLS:
            return None
        if _used_up(self._talk.spent.calls + under_way, self._limit("calls")):
            return "limit:calls"
        if call.tool in COMMAND_TOOLS and _used_up(self._talk.spent.scripts, self._limit("scripts")):
            return "limit:scripts"
        return None

    def seconds_left(self) -> float | None:
        return None if self._limits.seconds is None else self._limits.seconds - (self._clock() - self._began)

    def left(self) -> dict[str, float]:
        """Rest of the budget as the model is shown it with the next request."""
        spent, usage = self._talk.spent, self._talk.spent.usage
        used = {"turns": spent.turns + 1, "calls": spent.calls, "scripts": spent.scripts}
        found: dict[str, float] = {
            name: max(0, limit - used[name]) for name in _CONSTRAINTS if (limit := self._limit(name)) is not None
        }
        if self._limits.tokens is not None:
            found["tokens"] = max(0, self._limits.tokens - usage.input - usage.output)
        if self._limits.cost is not None:
            found["of the money"] = max(0.0, self._limits.cost - (usage.cost or 0.0))
        return found

    def share(self, counted: UsageTotals | None = None) -> Limits:
        """Limits for a child run: its own turns, and at most what is left of the rest. `counted` is what the child used
        before; it is added back, because the child counts it itself."""
        spent, limits = self._talk.spent.less(counted or UsageTotals()), self._limits
        usage = spent.usage
        return replace(
            limits,
            calls=_rest(self._limit("calls"), spent.calls),
            scripts=_rest(self._limit("scripts"), spent.scripts),
            tokens=_rest(limits.tokens, usage.input + usage.output),
            seconds=self.seconds_left(),
            cost=None if limits.cost is None else max(0.0, limits.cost - (usage.cost or 0.0)),
        )

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
        name = limit.removeprefix("limit:")
        value = self._limit(name) if name in _CONSTRAINTS else getattr(self._limits, name)
        words = {
            "turns": f"the limit of {value} turns was reached",
            "calls": f"the limit of {value} calls was reached",
            "scripts": f"the limit of {value} script runs was reached",
            "tokens": f"the limit of {value} tokens was reached",
            "seconds": f"the limit of {value} seconds was reached",
            "cost": f"the limit of {value} in money was reached",
        }
        return words[name]


def is_near(agent: AgentSpec, talk: Conversation) -> bool:
    """True if the next request comes near the model's window. Cheap if it is far away. A replayed recording knows where
    the recorded model compacted."""
    if agent.recording is not None:
        return agent.recording.shortened(talk.run or "", talk.task) is not None
    window = agent.info.context_tokens
    if not window or talk.request().size_bytes < window * _NEAR:  # a token is at least one byte
        return False
    return count_tokens(talk) > window * _NEAR


def count_tokens(talk: Conversation) -> int:
    request = talk.request()
    texts = [part.text or "" for message in request.messages for part in message.parts]
    calls = [str(call.args) for message in request.messages for call in message.calls]
    return estimate("\n".join([*texts, *calls])) + sum(estimate(str(tool.parameters)) for tool in request.tools)


def render_partial(talk: Conversation, why: str) -> str:
    """Renders a useful report of an unfinished run: the reason, what was done, and what was not."""
    lines = [f"Not finished: {why}."]
    done = [f"- {tool}: {_short(outcome.content)}" for tool, outcome in talk.outcomes() if outcome.status == "ok"]
    failed = [
        f"- {tool} ({outcome.code or outcome.status}): {_short(outcome.content)}"
        for tool, outcome in talk.outcomes()
        if outcome.status != "ok"
    ]
    plan = talk.plan
    if plan is not None:
        done = [f"- {step.title}" for step in plan.steps if step.status == "completed"] or done
        failed = [f"- {step.title}" for step in plan.steps if step.status != "completed"] + failed
    if done:
        lines += ["Done:", *done[-10:]]
    if failed:
        lines += ["Not done:", *failed[-10:]]
    if talk.last_text:
        lines += ["Last said:", talk.last_text[:_LONGEST]]
    return "\n".join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:157]}…"


def _used_up(used: float, limit: float | None) -> bool:
    return limit is not None and used >= limit


def _rest(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)
