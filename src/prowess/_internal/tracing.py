"""Opens OpenTelemetry spans if its API is installed; otherwise spans do nothing.

docs/workspaces.md lists the names of all spans. `records.spans` makes the spans of runs, model requests and calls,
which follow OpenTelemetry's GenAI conventions (docs/audit.md). Attributes hold names, numbers and digests, never
content.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from prowess.errors import ProwessError

Value = str | int | float | bool


class Span(Protocol):
    def set_attribute(self, key: str, value: Value) -> None: ...


class _NoSpan:
    def set_attribute(self, key: str, value: Value) -> None:
        pass


@contextmanager
def span(name: str, **attributes: Value | None) -> Iterator[Span]:
    """Wraps the block in one span. An exception is recorded only by its code or class, because its message may contain
    secrets that are removed later."""
    tracer = find_tracer()
    if tracer is None:
        yield _NoSpan()
        return
    given = {f"prowess.{key}": value for key, value in attributes.items() if value is not None}
    silent = {"record_exception": False, "set_status_on_exception": False}
    with tracer.start_as_current_span(name, attributes=given, **silent) as current:
        before = sys.exception()
        try:
            yield _Prefixed(current)
        finally:
            if (error := sys.exception()) is not before and isinstance(error, Exception):
                _tell_error(current, str(error.code) if isinstance(error, ProwessError) else type(error).__name__)


def _tell_error(span: Any, code: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, code))


class _Prefixed:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def set_attribute(self, key: str, value: Value) -> None:
        self._inner.set_attribute(f"prowess.{key}", value)


def find_tracer() -> Any:
    """Returns the tracer of the program's OpenTelemetry setup, or None if there is none."""
    if "opentelemetry" not in sys.modules and "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ:
        return None  # nobody has set up a provider, and the import takes milliseconds
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("prowess")
