"""RunError of a result: why a run has no answer, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from prowess.core.events import StopReason
from prowess.core.values import ToolCall
from prowess.errors import RunError

_WHY = {
    "denied": "The run ended because what it was asked for is denied.",
    "cancelled": "The run was cancelled.",
    "error": "The run ended with an error.",
}


def make_run_error(
    stop_reason: StopReason,
    *,
    to_go_on: str,
    waiting: Sequence[ToolCall],
    report: str,
    code: str | None,
    to_answer: str = "",
) -> RunError:
    """Makes the error for a run that ended without an answer. `to_go_on` is the call that goes on with it, and
    `to_answer` a command for what waits."""
    if code == "output-invalid":
        message = "The run ended because no answer of the model fitted output_type."
        hint = "`result.text` is the last answer. Try a simpler output_type, or another model."
        return RunError(message, stop_reason=stop_reason, code=code, hint=hint)
    go_on = f"Go on with it: {to_go_on}."
    kind, _, limit = stop_reason.partition(":")
    if kind == "limit":
        message = f"The run reached its limit on {limit} before it had an answer."
        hint = f"Give it more: limits=Limits({limit}=…). {go_on}"
    elif kind == "waiting":
        names = list(dict.fromkeys(call.tool for call in waiting))
        listed = ", ".join(names)
        message = f"The run waits for a person to approve {listed or 'a call'}."
        quoted = ", ".join(f'"{name}"' for name in names)
        answer = f" Or answer it: {to_answer}." if to_answer else ""
        hint = f"Give approve=[{quoted}], or a function that asks somebody.{answer} {go_on}"
    else:
        first, _, _ = report.partition("\n")
        message = first[:500] or _WHY[stop_reason]
        hint = go_on if kind == "cancelled" else "`result.report` says what was done and what was not."
    return RunError(message, stop_reason=stop_reason, code=code or stop_reason.replace(":", "-"), hint=hint)
