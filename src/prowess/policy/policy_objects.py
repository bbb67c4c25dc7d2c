"""Asks the Policy objects of a program, after the rules. Each can make a decision stricter, and none can make it wider.

A policy is foreign code. If it raises, or returns something that is no decision, the call is denied. If it returns a
wider decision, the stricter one holds. Both are errors that are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import iscoroutine
from typing import Any, get_args

from prowess._internal.caught import catching
from prowess.core.events import ErrorRaised
from prowess.core.ports import Policy
from prowess.core.values import Decision, ToolCall, Trigger, Verdict
from prowess.errors import ConfigError, ProwessError
from prowess.policy.decision import find_risk, stricter
from prowess.policy.rules import PolicyQuery

_MOST = 500  # characters of a foreign text


def ask_policies(
    policies: Sequence[Policy], query: PolicyQuery, decision: Decision, *, id: str = "", trigger: Trigger = "model"
) -> tuple[Decision, Sequence[ErrorRaised]]:
    """Returns the strictest decision, and the mistakes of the policies. `id` and `trigger` are those of the call."""
    problems: list[ErrorRaised] = []
    call = ToolCall(id=id, tool=query.tool, args=dict(query.args), trigger=trigger)
    about = _describe(query)
    for policy in policies:
        decision, problem = _ask(policy, call, decision, about)
        if problem:
            problems.append(ErrorRaised(code="policy-failed", message=problem))
    return decision, problems


def _describe(query: PolicyQuery) -> dict[str, Any]:
    """Returns the facts that a policy is told. A call names its skill as the model wrote it, so its id is a fact."""
    about: dict[str, Any] = {"risk": find_risk(query.tool)}
    if query.skill is not None:
        about |= {"skill": query.skill, "source": query.source, "trusted": query.trusted}
    if query.touches:
        about["reads"] = [id for id, _ in query.touches]
    return about


def _ask(policy: Policy, call: ToolCall, decision: Decision, about: dict[str, Any]) -> tuple[Decision, str]:
    name = type(policy).__name__
    shown = deepcopy((call, replace(decision, about=about)))  # it may change what it is given
    try:
        with catching(f"The policy {name}", ConfigError):
            answer: object = policy.decide(*shown)
            if not isinstance(answer, Decision) or answer.verdict not in get_args(Verdict):
                if iscoroutine(answer):
                    answer.close()
                return _deny(name, decision, f"The policy {name} returned no decision: {answer!r}")
            why = str(answer.why)[:_MOST]
    except ProwessError as error:
        return _deny(name, decision, error.message)
    if answer.verdict == decision.verdict:
        return decision, ""
    if stricter(answer, decision) is decision:
        problem = f"The policy {name} said {answer.verdict}, but it can only be stricter than {decision.verdict}."
        return replace(decision, why=f"{decision.why} {problem}"), problem
    if not why or why == decision.why:
        why = f"The policy {name} says {answer.verdict}."
    return replace(decision, verdict=answer.verdict, rule=f"policy:{name}", why=why), ""


def _deny(name: str, decision: Decision, problem: str) -> tuple[Decision, str]:
    problem = problem[:_MOST]
    return replace(decision, verdict="deny", rule=f"policy:{name}", why=problem), problem
