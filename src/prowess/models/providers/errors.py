"""Turns every fault of a provider into a ModelError: what happened, where, and whether a retry makes sense.

The provider's own message is passed on, because it is the most exact. The key is removed from it first.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any, NamedTuple

from prowess._internal.urls import shown_url
from prowess.errors import ModelAuth, ModelError, ModelMalformed, ModelOverloaded

_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|(prompt|input) is too long|input too long"
    r"|too many (input )?tokens|exceeds? the (available|maximum) (context|number of tokens)",
    re.IGNORECASE,
)
_NEVER_FITS = re.compile(r"request too large", re.IGNORECASE)  # larger than the limit of tokens per minute
_NO_MONEY = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_BUSY = ("overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down")


class Where(NamedTuple):
    """Model that a message is about, and the key that no message may contain."""

    model: str  # as a person wrote it
    address: str
    key: str
    variable: str  # environment variable of the key

    def say(self, what: str) -> str:
        return self.hide(f"{self.model} at {shown_url(self.address)} {what}")

    def hide(self, text: str) -> str:
        return text.replace(self.key, "***") if len(self.key) > 5 else text


class Fault(NamedTuple):
    """Error as a provider reported it. Inside a stream there is no status."""

    status: int | None
    kind: str
    message: str
    headers: Mapping[str, str] = {}


def failures(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """Returns the exceptions that an SDK raises, and those of its HTTP library that it lets through."""
    base = sdk.OpenAIError if hasattr(sdk, "OpenAIError") else sdk.AnthropicError
    http = http_library(sdk)
    return (base, http.HTTPError, http.StreamError, http.InvalidURL, OSError)


def http_library(sdk: ModuleType) -> ModuleType:
    """Returns httpx or httpx2. The version of the SDK decides: its client class is derived from one of them."""
    homes = (kind.__module__.partition(".")[0] for kind in sdk.DefaultAsyncHttpxClient.__mro__)
    return importlib.import_module(next(home for home in homes if home in ("httpx", "httpx2")))


def explain(error: Exception, where: Where) -> ModelError:
    """Converts an SDK's error into ours."""
    response = getattr(error, "response", None)
    if response is not None and hasattr(error, "status_code"):
        kind, message = _said(getattr(error, "body", None))
        return explain_fault(Fault(response.status_code, kind, message or str(error), response.headers), where)
    causes = [error, *_causes(error)]
    names = {cls.__name__ for cause in causes for cls in type(cause).__mro__}
    told = next((text for cause in reversed(causes) if (text := str(cause))), type(error).__name__)
    if names & {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol", "InvalidURL"}:
        hint = "Check the address and that the server is running."
        again = "certificate" not in told.lower() and not names & {"UnsupportedProtocol", "InvalidURL"}
        return ModelError(
            where.say(f"could not be reached: {told}."), retryable=again, code="model-unreachable", hint=hint
        )
    if names & {"TimeoutException", "TimeoutError"}:
        return timed_out(where)
    return broken(where, told)


def timed_out(where: Where) -> ModelError:
    return ModelError(
        where.say("did not answer in time."),
        retryable=True,
        code="model-timeout",
        hint="Give it more time with the parameter timeout_s, or try again later.",
    )


def broken(where: Where, why: str) -> ModelError:
    message = where.say(f"broke off its reply: {why.rstrip('.')}.")
    return ModelError(message, retryable=True, code="stream-broken", hint="Try again.")


def malformed(where: Where, what: str) -> ModelError:
    hint = "Check that the address is one of a model, such as http://localhost:11434/v1."
    return ModelMalformed(where.say(f"answered something that is not a reply: {what}"), hint=hint)


def find_fault(event: Mapping[str, Any], headers: Mapping[str, str]) -> Fault | None:
    """Finds an error event in place of a piece of a reply."""
    response = event.get("response")
    if event.get("type") == "response.failed" or event.get("status") == "failed":
        event = response if isinstance(response, Mapping) else event
        kind, message = _said(event)
        return Fault(None, kind or "failed", message or "the response failed", headers)
    if event.get("error") or event.get("type") == "error":
        kind, message = _said(event)
        return Fault(None, kind or "error", message or "an error without a message", headers)
    return None


def explain_fault(fault: Fault, where: Where) -> ModelError:
    status, told = fault.status or _status_of(fault.kind), _with_request(fault)
    if status in (401, 403):
        hint = f"Set {where.variable} to a key that may use this model."
        return ModelAuth(where.say(f"refused the key: {told}"), code="model-auth", hint=hint)
    if status == 402 or _NO_MONEY.search(f"{fault.kind} {fault.message}"):
        return ModelError(
            where.say(f"has no quota or credit left: {told}"), code="model-quota", hint="Check your account there."
        )
    if status == 413 or (_NEVER_FITS if status == 429 else _TOO_LONG).search(f"{fault.kind} {fault.message}"):
        hint = "Shorten the request, or use a model with a larger window."
        return ModelError(where.say(f"cannot take such a long request: {told}"), code="context-overflow", hint=hint)
    if status == 404 or fault.kind == "model_not_found":
        return ModelError(where.say(f"was not found: {told}"), code="model-unknown", hint="Check the name and address.")
    wait_s = _retry_after_s(fault.headers)
    if status in (429, 503, 529) or (wait_s is not None and status >= 500):
        hint = "Try again later." if wait_s is None else f"Try again in {wait_s:g} s."
        return ModelOverloaded(where.say(f"asks to wait: {told}"), retry_after_s=wait_s, hint=hint)
    if status == 408:
        return timed_out(where)
    if status in (409, 425) or (status >= 500 and status != 501):
        return ModelError(where.say(f"failed: {told}"), retryable=True, code="model-failed", hint="Try again later.")
    return ModelError(where.say(f"refused the request: {told}"), code="model-refused", hint="Its message says why.")


def _status_of(kind: str) -> int:
    """Returns the HTTP status that matches an error inside a stream."""
    if kind in _BUSY:
        return 429
    if kind in ("authentication_error", "permission_error", "invalid_api_key"):
        return 401
    if kind in ("invalid_request_error", "invalid_prompt", "not_found_error", "billing_error"):
        return 400
    return 500


def _said(body: Any) -> tuple[str, str]:
    """Returns (kind, message) from the many forms that servers send."""
    if isinstance(body, str):
        return "", body.strip()
    table = body if isinstance(body, Mapping) else {}
    inner = table.get("error")
    if isinstance(inner, str):
        return "", inner
    if isinstance(inner, Mapping):
        table = inner
    names = [value for name in ("code", "type") if isinstance(value := table.get(name), str) and value != "error"]
    message = table.get("message") or table.get("detail") or ""
    return " ".join(names[:1]), message if isinstance(message, str) else str(message)


def _with_request(fault: Fault) -> str:
    text = " ".join(fault.message.split())
    text = text[:600] + "…" if len(text) > 600 else text
    status = f"HTTP {fault.status}: " if fault.status else ""
    request_id = request_id_of(fault.headers)
    return f"{status}{text or fault.kind or 'no reason given'}" + (f" (request {request_id})" if request_id else "")


def request_id_of(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-request-id") or headers.get("request-id") or None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Reads milliseconds, seconds or a date; never negative."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) / unit
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and cause not in found and len(found) < 10:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found
