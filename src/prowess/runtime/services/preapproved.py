"""Tools that a person approves beforehand, with `--yes TOOL` or `--yes low`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from prowess.core.events import ApprovalAnswered
from prowess.core.tool_table import ALIASES, CAPABILITIES, RISKS
from prowess.core.values import Decision, ToolCall
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import canonical_tools
from prowess.policy.decision import find_risk

_CLASSES = {"low": ("low",), "medium": ("low", "medium")}


def parse_yes(said: Sequence[str]) -> dict[str, str]:
    """Maps each approved tool to the --yes word that approves it.

    A name of another system stands for all tools behind it, and a risk class for the tools of that class. A high-risk
    tool is approved only by a name that means no other tool.
    """
    found: dict[str, str] = {}
    for word in said:
        risk_said = word.strip().casefold()
        if risk_said in ("high", "unknown"):
            problem = f"--yes {word} is not possible: what is of that risk is approved by its name."
            names = ", ".join(_tools_of_risk(("high",)))
            raise ConfigError(problem, code="usage", hint=f"Name the tool: {names}.")
        if risk_said in _CLASSES:
            for tool in _tools_of_risk(_CLASSES[risk_said]):
                found.setdefault(tool, risk_said)
            continue
        for tool in _tools_named(word):
            found[tool] = word
    return found


def _tools_of_risk(risks: Sequence[str]) -> list[str]:
    """Returns the tools of these risk classes."""
    found: list[str] = []
    for tool, risk in RISKS.items():
        if risk in risks:
            found.append(tool)
    return found


def _tools_named(word: str) -> list[str]:
    """Returns the tools that a --yes word approves by their name."""
    named = canonical_tools(word)
    for tool in named:
        if tool not in RISKS and tool not in CAPABILITIES:
            raise _unknown_yes(word)
    if len(named) == 1:
        return list(named)
    return [tool for tool in named if find_risk(tool) != "high"]


def _unknown_yes(word: str) -> ConfigError:
    """Explains a --yes word that names no tool. `allowed-tools` and rules take patterns; --yes takes whole tools."""
    ours = (*_CLASSES, *RISKS, *sorted(CAPABILITIES))
    there_are = f"There are: {', '.join(ours)}."
    plain = word.partition("(")[0].strip()
    if re.search(r"[*?\[]", plain):
        hint = f"There are no wildcards here: name each tool. {there_are}"
    else:
        hint = _meant_by(plain, ours) or there_are
        if plain != word.strip():
            hint = f"--yes approves every call of a tool and takes no pattern; a rule does. {hint}"
    return ConfigError(f"--yes names '{word[:80]}', which is no tool.", code="usage", hint=hint)


def _meant_by(word: str, ours: Sequence[str]) -> str | None:
    """Returns a question that names a similar tool, if there is one."""
    names: dict[str, str] = {}
    for name in (*ALIASES, *ours):
        names[name.casefold()] = name
    near = difflib.get_close_matches(word.casefold(), names, n=1)
    if not near:
        return None
    meant = names[near[0]]
    return f"Did you mean --yes {meant}?"


def find_preapproval(yes: Mapping[str, str], call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
    """Returns the approval that `parse_yes` gives to a call.

    A risk class is not enough for a call that policy asks about each time: then --yes must name the tool.
    """
    said = yes.get(call.tool)
    if said is None:
        return None
    if said in _CLASSES and decision.about.get("each_time"):
        return None
    return ApprovalAnswered(call_id=call.id, answer="once", by=f"--yes {said}", asked=False)
