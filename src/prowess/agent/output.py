"""Form of the answer that a run must give, and the texts that tell a model about it.

A form is made above this package, from a Python type or from a recording. The loop knows only its schema, and asks it
to parse an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from prowess.core.events import ProtocolName

MOST_RETRIES = 2  # requests after an answer that does not fit
MISFIT = "The answer does not fit output_type: "  # prefix of the error message
NOTE_KIND = "output"  # of the note that tells the model why its answer does not fit


class OutputMismatch(Exception):
    """An answer does not fit. The text says why, for the model."""


class OutputForm(Protocol):
    """Form of an answer."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of an object."""
        ...

    @property
    def is_closed(self) -> bool:
        """True if providers can hold a model to the schema: no object in it has free keys, none contains itself."""
        ...

    def parse(self, text: str) -> Any:
        """Returns the value of an answer. Raises OutputMismatch if it does not fit."""
        ...


_REQUESTS = {
    "tools": "Your final answer must be only JSON that fits this schema:",
    "actions": 'The "content" of final_answer must be JSON that fits this schema:',
}


def render_form(schema: Mapping[str, Any], protocol: ProtocolName) -> str:
    """Renders the schema for the system prompt of a model whose provider takes no schema."""
    return f"{_REQUESTS[protocol]}\n{render_schema(schema)}"


def render_schema(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def render_mismatch(why: str) -> str:
    return f"Your answer does not fit the schema:\n{why}\nGive the whole answer again."
