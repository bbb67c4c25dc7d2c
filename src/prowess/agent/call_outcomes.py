"""Decisions and outcomes that follow from a person's answer, from an error, and from an interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prowess._internal.own_line import describe_error, find_own_line
from prowess.agent.call_policy import CallFacts
from prowess.core.events import ApprovalAnswered
from prowess.core.isolation import record_isolation
from prowess.core.ports import CallGrant
from prowess.core.tool_table import TOOLS
from prowess.core.values import Decision, Outcome, ToolCall
from prowess.errors import ProwessError, WorkspaceUnavailable
from prowess.policy.rules import PolicyQuery
from prowess.tools.session_work import SessionWork

APPROVED = "approval"  # rule of a decision that a person made when asked
NOT_BEGUN = Outcome(status="interrupted", code="interrupted", content="It was not begun.")

MAX_CONTENT = 64 << 10  # most characters of an outcome


async def shorten(text: str, work: SessionWork, call_id: str) -> str:
    """Shortens the content of an outcome. The cut says where the full text is."""
    ref = await work.store_output(call_id, text)
    where = f"all of it: read_file {ref}" if ref else "the rest was not kept"
    half = MAX_CONTENT // 2
    missing = len(text) - 2 * half
    cut = f"[… {missing} characters were left out here; {where} …]"
    return f"{text[:half]}\n{cut}\n{text[-half:]}"


def decide_answered(query: PolicyQuery, decision: Decision, answer: ApprovalAnswered) -> Decision:
    """Returns the decision that a person's answer makes of a question."""
    if answer.answer == "no":
        why = answer.why or _said_no(query)
        return Decision(verdict="deny", rule=APPROVED, why=why)
    rule = APPROVED if answer.asked else "approval:given"
    why = f"Approved: {answer.answer}."
    return Decision(verdict="allow", rule=rule, why=why, limits=decision.limits)


def _said_no(query: PolicyQuery) -> str:
    names = ""
    if query.kind == "capability":
        packages = query.args.get("dependencies") or ()
        names = ", ".join(map(str, packages))
    if not names:
        return "A person said no."
    return f"A person said no to installing {names[:500]}."


def make_invalid(why: str, hint: str | None = None) -> Outcome:
    """Outcome of a call that the model has to write again."""
    return Outcome(status="failed", code="invalid-call", content=why, hint=hint)


def make_raised(call: ToolCall, error: Exception) -> Outcome:
    """Outcome of a tool that raised. Its place in the code is for people, in `data`, and not for the model."""
    text = f"{call.tool} raised {describe_error(error)}"
    data = {"raised": type(error).__name__, "at": find_own_line(error)}
    hint = "This is a mistake in the tool, not in the call."
    return Outcome(status="failed", code="tool-raised", content=text[:2000], hint=hint, data=data)


def add_files(outcome: Outcome, grant: CallGrant) -> Outcome:
    """Adds the files that a function wrote, which are files of the run like those of a script."""
    files = [*outcome.data.get("output_files", ()), *grant.made.values()]
    return replace(outcome, data={**outcome.data, "output_files": files})


def make_failed(error: ProwessError) -> Outcome:
    data: dict[str, Any] = {}
    if isinstance(error, WorkspaceUnavailable):
        data["unavailable"] = True
    return Outcome(status="failed", code=str(error.code), content=error.message, hint=error.hint, data=data)


def make_interrupted(facts: CallFacts, seconds: float) -> Outcome:
    content = "It was interrupted and has ended."
    if facts.call.tool not in TOOLS:  # a thread cannot be killed
        content = "It was given up, and what it does may still go on."
    data: dict[str, Any] = {}
    isolation = facts.context.isolation
    if isolation is not None:  # a program: record its duration and isolation
        data["isolation"] = record_isolation(isolation)
        data["duration_ms"] = round(1000 * seconds)
    return Outcome(status="interrupted", code="interrupted", content=content, data=data)
