"""ask_user: asks the user a question for the model. "Nobody answered" is a valid result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from prowess._internal.own_line import describe_raised
from prowess.core.ports import Asker, CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.tools.arguments import AskArguments, advertise
from prowess.tools.base import PlainTool
from prowess.tools.schema import parse_arguments

_HINT = "Go on with the most sensible assumption and say which one."


class AskUser(PlainTool):
    kind = AskArguments
    spec = ToolSpec(
        name="ask_user",
        description="Ask the user one question that only they can answer.",
        parameters=advertise(AskArguments, "question", "choices"),
    )

    def __init__(self, asker: Asker | None) -> None:
        self._asker = asker

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(AskArguments, args, self.spec.name)
        # An asker is foreign code, so its errors become results. Cancellation is still raised.
        (answer,) = await asyncio.gather(self._ask(wanted), return_exceptions=True)
        if isinstance(answer, str):
            content = answer.strip() or "The answer is empty."
            return Outcome(status="ok", content=content, data={"answer": answer})
        content = "Nobody answered."
        data: dict[str, Any] = {}
        if isinstance(answer, BaseException):
            why = f" ({type(answer).__name__}: {answer})"
            content += why[:500]
            data["problem"] = describe_raised("ask", answer)
        return Outcome(status="failed", code="nobody-to-ask", content=content, hint=_HINT, data=data)

    async def _ask(self, wanted: AskArguments) -> str | None:
        if self._asker is None:
            return None
        return await self._asker(wanted.question, wanted.choices)
