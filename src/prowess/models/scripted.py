"""Model that plays a script: the same script gives the same run, and a script that does not fit is an error.

    ScriptedModel([{"calls": [{"tool": "skill_load", "args": {"skill": "pdf"}}]}, {"text": "Done."}])

A request without a reply raises `script-exhausted`. `assert_finished` raises `script-unused` when replies are left. A
reply may also be a ModelReplied, an error to raise, or a function of the request.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess._internal.tokens import estimate
from prowess._internal.yaml_lines import LinedValue, UnreadableText, read_lined
from prowess.core.codec import to_json
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.values import Message, ToolCall, ToolSpec, Usage
from prowess.errors import ConfigError, ModelError
from prowess.models.actions.calls import translate
from prowess.models.actions.schema import parse_document

Request = tuple[tuple[Message, ...], tuple[ToolSpec, ...]]
Reply = Mapping[str, Any] | ModelReplied | Exception
Entry = Reply | Callable[[Sequence[Message], Sequence[ToolSpec]], Reply]


class ScriptedModel:
    """Model that needs no provider. `requests` holds the requests it got, in order."""

    def __init__(self, replies: Sequence[Entry], *, name: str = "scripted", context_tokens: int | None = None) -> None:
        self.name = name
        self.context_tokens = context_tokens
        self.requests: list[Request] = []
        self._replies = list(replies)
        for number, entry in enumerate(self._replies, 1):
            if not isinstance(entry, (ModelReplied, Exception)) and not callable(entry):
                check_entry(entry, f"Reply {number} of the script")
        self._ids = _free_ids(self._replies)
        self._counter = _Counter()

    @property
    def unused(self) -> int:
        """Number of replies that were not asked for."""
        return max(0, len(self._replies) - len(self.requests))

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        self.requests.append((tuple(messages), tuple(tools)))
        number = len(self.requests)
        if number > len(self._replies):
            raise self._exhausted(number, messages)
        entry = self._replies[number - 1]
        if callable(entry) and not isinstance(entry, Exception):
            entry = entry(messages, tools)
        if isinstance(entry, Exception):
            raise entry
        if isinstance(entry, Mapping):
            check_entry(entry, f"Reply {number} of the script")
            entry = self._compose(entry, as_text=schema is not None, input=self._counter.count(*self.requests[-1]))
        _stream(entry, on_delta)
        return entry

    def assert_finished(self) -> None:
        if self.unused:
            raise ModelError(
                f"{self.unused} of {len(self._replies)} replies of the script ({self.name}) were not used: "
                f"the run made {len(self.requests)} requests.",
                code="script-unused",
                hint="Take the rest out of the script, or find out why the run ended early.",
            )

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _compose(self, entry: Mapping[str, Any], *, as_text: bool, input: int) -> ModelReplied:
        """Builds a reply from an entry. With `as_text` an action stays JSON text: a wrapper makes the calls."""
        text, calls, finish = entry.get("text") or "", (), "stop"
        if "action" in entry and as_text:
            text = json.dumps(dict(entry), ensure_ascii=False)
        elif "action" in entry:
            text, calls, finish = translate(parse_document(entry), self._ids)
        elif entry.get("calls"):
            calls, finish = tuple(self._call(given) for given in entry["calls"]), "calls"
        written = text + "".join(f"{call.tool} {json.dumps(call.args, ensure_ascii=False)}" for call in calls)
        usage = Usage(input=input, output=estimate(written), requests=1)
        return ModelReplied(text=text, calls=calls, finish=finish, usage=usage, model=self.name)

    def _call(self, given: Mapping[str, Any]) -> ToolCall:
        return ToolCall(id=given.get("id") or next(self._ids), tool=given["tool"], args=dict(given.get("args") or {}))

    def _exhausted(self, number: int, messages: Sequence[Message]) -> ModelError:
        return ModelError(
            f"The script ({self.name}) has {len(self._replies)} replies and was asked for number {number}. "
            f"The last message was {_summary(messages)}.",
            code="script-exhausted",
            hint="Add the reply that should come next, or find out why the run did not end.",
        )


def load_script(path: str | os.PathLike[str], *, name: str | None = None) -> ScriptedModel:
    """Makes a model from a JSON or YAML file. ConfigError `script-invalid` names the file, line and reply."""
    return ScriptedModel(read_script(path), name=name or f"scripted:{os.fspath(path)}")


def _free_ids(replies: Sequence[Entry]) -> Iterator[str]:
    """Yields c1, c2 …, without the ids that the script itself gives."""
    given = {call.get("id") for entry in replies if isinstance(entry, Mapping) for call in entry.get("calls") or ()} | {
        call.id for entry in replies if isinstance(entry, ModelReplied) for call in entry.calls
    }
    return (name for number in count(1) if (name := f"c{number}") not in given)


# --- streaming, messages, tokens -------------------------------------------------------------------------------------

_PIECES = 4


def _stream(reply: ModelReplied, on_delta: Callable[[TextDelta | CallDelta], None] | None) -> None:
    if on_delta is None:
        return
    size = -(-len(reply.text) // _PIECES) or 1
    for start in range(0, len(reply.text), size):
        on_delta(TextDelta(text=reply.text[start : start + size]))
    for index, call in enumerate(reply.calls):
        on_delta(CallDelta(index=index, tool=call.tool, args=json.dumps(call.args, ensure_ascii=False)))


def _summary(messages: Sequence[Message]) -> str:
    if not messages:
        return "none at all"
    last = messages[-1]
    text = " ".join(part.text or f"({part.kind})" for part in last.parts).strip()
    return f"from the {last.role}: {text[:200]!r}"


class _Counter:
    """Estimates the tokens of a request. A request that extends the previous one costs only the added part."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._tools: tuple[ToolSpec, ...] = ()
        self._totals = [0]  # of the first n messages
        self._of_tools = 0

    def count(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> int:
        same = 0
        for old, new in zip(self._messages, messages, strict=False):
            if old is not new:
                break
            same += 1
        del self._totals[same + 1 :]
        for message in messages[same:]:
            self._totals.append(self._totals[-1] + _estimate_message(message))
        if tools != self._tools:
            self._of_tools = sum(
                estimate(f"{tool.name} {tool.description} {json.dumps(tool.parameters)}") for tool in tools
            )
        self._messages, self._tools = messages, tools
        return self._totals[-1] + self._of_tools


def _estimate_message(message: Message) -> int:
    texts = [part.text or "" for part in message.parts]
    texts += [
        f"{call.tool} {json.dumps(to_json(call.args), ensure_ascii=False, default=str)}" for call in message.calls
    ]
    return estimate("\n".join(texts))


# --- the script -------------------------------------------------------------------------------------------------------

LIMIT_BYTES = 4 << 20


def read_script(path: str | os.PathLike[str]) -> list[JsonObject]:
    """Reads and checks the replies of a file."""
    file = os.fspath(path)
    found = _read(file)
    entries = found.value
    if not isinstance(entries, list):
        raise _refused(file, None, f"it must be a list of replies, not {entries!r}")
    for at, entry in enumerate(entries):
        line = found.lines[at,]
        number = at + 1
        check_entry(entry, f"{file}:{line}: reply {number}")
    return entries


_KEYS = ("text", "calls", "action", "plan", "plan_update")
_CALL_KEYS = ("tool", "args", "id")


def check_entry(entry: Any, where: str) -> None:
    """Checks one reply. ConfigError `script-invalid` says what is wrong and where."""
    if not isinstance(entry, Mapping):
        raise _invalid(where, f"must be an object, not {entry!r}", 'Such as {"text": "…"} or {"calls": […]}.')
    _check_known(entry, _KEYS, where)
    _check_action(entry, where)
    text = entry.get("text", "")
    if not isinstance(text, str):
        raise _invalid(where, f"text must be a text, not {text!r}", "Put it into quotes.")
    calls = entry.get("calls", ())
    if not isinstance(calls, (list, tuple)):
        raise _invalid(where, f"calls must be a list, not {calls!r}", 'Such as [{"tool": "…", "args": {}}].')
    for number, call in enumerate(calls, 1):
        _check_call(call, f"{where}, call {number}")


def _check_action(entry: Mapping[str, Any], where: str) -> None:
    """Checks that a reply is a valid action, or text and calls without a plan."""
    says = "text" in entry or "calls" in entry
    if "action" in entry:
        if says:
            raise _invalid(where, "has an action and also text or calls", "Say one of them.")
        try:
            parse_document(entry)
        except ValueError as error:
            raise _invalid(where, str(error), "See the page on structured actions.") from error
    elif "plan" in entry or "plan_update" in entry:
        raise _invalid(where, "has a plan without an action", "Add the action, or call update_plan.")
    elif not says:
        raise _invalid(where, "says nothing", "It needs one of: text, calls, action.")


def _check_call(call: Any, where: str) -> None:
    """Checks one call of a reply."""
    if not isinstance(call, Mapping):
        raise _invalid(where, f"must be an object, not {call!r}", 'Such as {"tool": "…", "args": {}}.')
    _check_known(call, _CALL_KEYS, where)
    tool = call.get("tool")
    if not isinstance(tool, str) or not tool:
        raise _invalid(where, "names no tool", 'Such as {"tool": "skill_load", "args": {"skill": "pdf"}}.')
    args = call.get("args") or {}
    if not isinstance(args, Mapping):
        raise _invalid(where, f"args must be an object, not {args!r}", 'Such as {"skill": "pdf"}.')
    id = call.get("id") or ""
    if not isinstance(id, str):
        raise _invalid(where, f"id must be a text, not {id!r}", "Or leave it out.")


def _check_known(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuses a field that is not known, and names the nearest one."""
    for name in given:
        if name in known:
            continue
        written = str(name)[:64]
        names = ", ".join(known)
        hint = f"There are: {names}."
        for near in difflib.get_close_matches(written, known, n=1):
            hint = f"Did you mean '{near}'?"
        raise _invalid(where, f"there is no field {written!r}", hint)


def _invalid(where: str, what: str, hint: str) -> ConfigError:
    shown = what[:300]
    message = f"{where}: {shown}."
    return ConfigError(message, code="script-invalid", hint=hint)


# --- the file -------------------------------------------------------------------------------------------------------


def _read(file: str) -> LinedValue:
    """Reads the values of a file and the lines on which they stand."""
    try:
        return read_lined(file, LIMIT_BYTES)
    except UnreadableText as error:
        raise _refused(file, error.line, error.why) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"The script {file} cannot be read: {why}."
        hint = "It must be a readable, regular file."
        raise ConfigError(message, code="script-unreadable", hint=hint) from error


def _refused(file: str, line: int | None, why: str) -> ConfigError:
    place = f"{file}:{line}" if line else file
    shown = why[:200]
    message = f"The script {place} cannot be used: {shown}."
    hint = 'A script is a list of {"text": …}, {"calls": […]} or {"action": {…}}.'
    return ConfigError(message, code="script-invalid", hint=hint)
