"""Tools that a person approves beforehand, with `--yes TOOL` or `--yes low`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from prowess.core.events import ApprovalAnswered
from prowess.core.tool_table import ALIASES, CAPABILITIES, RISKS, SWITCHED_TOOLS, find_risk
from prowess.core.values import Decision, ToolCall
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import canonical_tools

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
            raise ConfigError(
                f"--yes {word} is not possible: what is of that risk is approved by its name.",
                code="usage",
                hint=f"Name the tool: {', '.join(SWITCHED_TOOLS)}.",
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
    """Explains a --yes word that names no tool. `allowed-tools` and rules take patterns; --yes takes whole tools."""
    ours = (*_CLASSES, *RISKS, *sorted(CAPABILITIES))
    names = {name.casefold(): name for name in (*ALIASES, *ours)}
    plain = word.partition("(")[0].strip()
    near = difflib.get_close_matches(plain.casefold(), names, n=1)
    meant = f"Did you mean --yes {names[near[0]]}?" if near else f"There are: {', '.join(ours)}."
    whole = "--yes approves every call of a tool and takes no pattern; a rule does. " if plain != word.strip() else ""
    if re.search(r"[*?\[]", plain):
        whole, meant = "There are no wildcards here: name each tool. ", f"There are: {', '.join(ours)}."
    return ConfigError(f"--yes names '{word[:80]}', which is no tool.", code="usage", hint=whole + meant)


def find_preapproval(yes: Mapping[str, str], call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
    """Returns the approval that `parse_yes` gives to a call.

    A risk class is not enough for a call that policy asks about each time: then --yes must name the tool.
    """
    said = yes.get(call.tool)
    if said is None or (said in _CLASSES and decision.about.get("each_time")):
        return None
    return ApprovalAnswered(call_id=call.id, answer="once", by=f"--yes {said}", asked=False)
