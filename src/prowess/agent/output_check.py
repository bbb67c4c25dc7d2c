"""Checks the answer of a run against the form that the caller wants, and asks again if it does not fit."""

from __future__ import annotations

from typing import Any

from prowess.agent.agent import AgentSpec
from prowess.agent.context.render import make_safe
from prowess.agent.output import (
    MISFIT,
    MOST_RETRIES,
    OutputForm,
    OutputMismatch,
    render_form,
    render_mismatch,
)
from prowess.agent.toolkit import Toolkit
from prowess.core.events import ErrorRaised, RunFinished

_CUT_OFF = "- It was cut off at its greatest length. Be shorter."
_HINT = "Try a simpler output_type, or another model."


class OutputCheck:
    """Check of one run."""

    def __init__(self, agent: AgentSpec, output: OutputForm, kit: Toolkit) -> None:
        self._agent = agent
        self._form = output
        self._kit = kit
        self.value: Any = None  # of the answer, if it fits

    def add_to(self, system: str) -> str:
        """Adds the form to a system prompt, unless the provider is told."""
        if self._agent.native_schema is not None:
            return system
        form = render_form(self._form.schema, self._agent.info.protocol)
        return f"{system}\n\n{form}".lstrip()

    async def check(self, answer: str) -> RunFinished | str:
        """Returns the end of the run, or the text that asks for another answer."""
        redacted = self._kit.secrets.redact_text(answer)  # as the record has it, which a resumed run reads
        try:
            self.value = self._form.parse(redacted)
        except OutputMismatch as mismatch:
            return await self._refuse(answer, str(mismatch))
        return RunFinished(stop_reason="answer", text=answer, usage=self._kit.conversation.spent.usage)

    async def _refuse(self, answer: str, why: str) -> RunFinished | str:
        talk = self._kit.conversation
        if talk.replied is not None and talk.replied.finish == "length":
            why = _CUT_OFF
        number = talk.refused + 1
        may_retry = number <= MOST_RETRIES
        hint = f"Asking again ({number} of {MOST_RETRIES})." if may_retry else _HINT
        error = ErrorRaised(code="output-invalid", message=MISFIT + why, hint=hint)
        await self._kit.append(error)
        if may_retry:
            return render_mismatch(make_safe(why))
        return RunFinished(stop_reason="error", text=answer, usage=talk.spent.usage, code=error.code, hint=hint)
