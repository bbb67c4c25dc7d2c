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
        """Returns a sentence about the model, without the key."""
        address = shown_url(self.address)
        return self.hide(f"{self.model} at {address} {what}")

    def hide(self, text: str) -> str:
        if len(self.key) <= 5:
            return text
        return text.replace(self.key, "***")


class Fault(NamedTuple):
    """Error as a provider reported it. Inside a stream there is no status."""

    status: int | None
    kind: str
    message: str
    headers: Mapping[str, str] = {}


def failures(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """Returns the exceptions that an SDK raises, and those of its HTTP library that it lets through."""
    http = http_library(sdk)
    if hasattr(sdk, "OpenAIError"):
        base = sdk.OpenAIError
    else:
        base = sdk.AnthropicError
    return (base, http.HTTPError, http.StreamError, http.InvalidURL, OSError)


def http_library(sdk: ModuleType) -> ModuleType:
    """Returns httpx or httpx2. The version of the SDK decides: its client class is derived from one of them."""
    for kind in sdk.DefaultAsyncHttpxClient.__mro__:
        home, _, _ = kind.__module__.partition(".")
        if home in ("httpx", "httpx2"):
            return importlib.import_module(home)
    raise AssertionError("the client of an SDK is derived from that of an HTTP library")


def explain(error: Exception, where: Where) -> ModelError:
    """Converts an SDK's error into ours."""
    response = getattr(error, "response", None)
    if response is not None and hasattr(error, "status_code"):
        body = getattr(error, "body", None)
        kind, message = _said(body)
        message = message or str(error)
        fault = Fault(response.status_code, kind, message, response.headers)
        return explain_fault(fault, where)
    causes = [error, *_causes(error)]
    names: set[str] = set()
    told = ""
    for cause in causes:
        names.update(cls.__name__ for cls in type(cause).__mro__)
        told = str(cause) or told  # the text of the deepest cause that has one
    told = told or type(error).__name__
    if names & _NOT_REACHED:
        return _unreachable(where, told, names)
    if names & {"TimeoutException", "TimeoutError"}:
        return timed_out(where)
    return broken(where, told)


_INVALID_ADDRESS = {"UnsupportedProtocol", "InvalidURL"}
_NOT_REACHED = {"ConnectError", "ConnectTimeout", "ProxyError", *_INVALID_ADDRESS}


def _unreachable(where: Where, told: str, names: set[str]) -> ModelError:
    """Describes a failed connection. A retry does not help against a wrong address or certificate."""
    is_certificate = "certificate" in told.lower()
    retryable = not is_certificate and names.isdisjoint(_INVALID_ADDRESS)
    message = where.say(f"could not be reached: {told}.")
    hint = "Check the address and that the server is running."
    return ModelError(message, retryable=retryable, code="model-unreachable", hint=hint)


def timed_out(where: Where) -> ModelError:
    """Describes a provider that did not answer."""
    message = where.say("did not answer in time.")
    hint = "Give it more time with the parameter timeout_s, or try again later."
    return ModelError(message, retryable=True, code="model-timeout", hint=hint)


def broken(where: Where, why: str) -> ModelError:
    """Describes a reply that is not whole."""
    reason = why.rstrip(".")
    message = where.say(f"broke off its reply: {reason}.")
    return ModelError(message, retryable=True, code="stream-broken", hint="Try again.")


def malformed(where: Where, what: str) -> ModelError:
    """Describes an answer that does not come from a model."""
    message = where.say(f"answered something that is not a reply: {what}")
    hint = "Check that the address is one of a model, such as http://localhost:11434/v1."
    return ModelMalformed(message, hint=hint)


def find_fault(event: Mapping[str, Any], headers: Mapping[str, str]) -> Fault | None:
    """Finds an error event in place of a piece of a reply."""
    type = event.get("type")
    if type == "response.failed" or event.get("status") == "failed":
        response = event.get("response")
        failed = response if isinstance(response, Mapping) else event
        kind, message = _said(failed)
        message = message or "the response failed"
        return Fault(None, kind or "failed", message, headers)
    if type == "error" or event.get("error"):
        kind, message = _said(event)
        message = message or "an error without a message"
        return Fault(None, kind or "error", message, headers)
    return None


def explain_fault(fault: Fault, where: Where) -> ModelError:
    """Converts a provider's error into ours."""
    status = fault.status or _status_of(fault.kind)
    told = _with_request(fault)
    said = f"{fault.kind} {fault.message}"
    if status in (401, 403):
        message = where.say(f"refused the key: {told}")
        hint = f"Set {where.variable} to a key that may use this model."
        return ModelAuth(message, code="model-auth", hint=hint)
    if status == 402 or _NO_MONEY.search(said):
        message = where.say(f"has no quota or credit left: {told}")
        return ModelError(message, code="model-quota", hint="Check your account there.")
    if status == 413 or _is_too_long(status, said):
        message = where.say(f"cannot take such a long request: {told}")
        hint = "Shorten the request, or use a model with a larger window."
        return ModelError(message, code="context-overflow", hint=hint)
    if status == 404 or fault.kind == "model_not_found":
        message = where.say(f"was not found: {told}")
        return ModelError(message, code="model-unknown", hint="Check the name and address.")
    if status == 408:
        return timed_out(where)
    wait_s = _retry_after_s(fault.headers)
    is_server = status >= 500
    if status in (429, 503, 529) or (is_server and wait_s is not None):
        return _overloaded(where, told, wait_s)
    if status in (409, 425) or (is_server and status != 501):
        message = where.say(f"failed: {told}")
        return ModelError(message, retryable=True, code="model-failed", hint="Try again later.")
    message = where.say(f"refused the request: {told}")
    return ModelError(message, code="model-refused", hint="Its message says why.")


def _is_too_long(status: int, said: str) -> bool:
    """True when the request does not fit the model. A rate limit has its own words for it."""
    words = _NEVER_FITS if status == 429 else _TOO_LONG
    return words.search(said) is not None


def _overloaded(where: Where, told: str, wait_s: float | None) -> ModelError:
    """Describes a provider that asks to wait; a retry waits as long as it says."""
    hint = "Try again later."
    if wait_s is not None:
        hint = f"Try again in {wait_s:g} s."
    message = where.say(f"asks to wait: {told}")
    return ModelOverloaded(message, retry_after_s=wait_s, hint=hint)


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
    message = table.get("message") or table.get("detail") or ""
    return _kind_of(table), str(message)


def _kind_of(table: Mapping[str, Any]) -> str:
    for name in ("code", "type"):
        kind = table.get(name)
        if isinstance(kind, str) and kind != "error":
            return kind
    return ""


def _with_request(fault: Fault) -> str:
    """Returns the message of a fault with its status and the id of the request."""
    text = " ".join(fault.message.split())
    if len(text) > 600:
        text = text[:600] + "…"
    text = text or fault.kind or "no reason given"
    if fault.status:
        text = f"HTTP {fault.status}: {text}"
    request_id = request_id_of(fault.headers)
    if request_id:
        text += f" (request {request_id})"
    return text


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """Returns the id by which the provider finds the request again."""
    id = headers.get("x-request-id") or headers.get("request-id")
    return id or None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Reads milliseconds, seconds or a date; never negative."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) / unit
    written = headers.get("retry-after", "")
    try:
        at = parsedate_to_datetime(written).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, at - time.time())


def _causes(error: BaseException) -> list[BaseException]:
    """Returns the errors that led to this one, the nearest first."""
    found: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and cause not in found and len(found) < 10:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found
