"""Test kit for agents and skills: a scripted model, stores in memory, and a scripted approver.

Each double implements the same protocol as the real thing. It complains about steps that are missing or were not used.

    model = ScriptedModel([{"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}, {"text": "Done."}])
    root = skill_dir(tmp_path, "demo", "# How to demo").parent
    approver = ScriptedApprover(["once"])

As a pytest plugin, it runs eval cases as tests: `pytest -p prowess.testing skills/`, or in conftest.py
`pytest_plugins = ["prowess.testing"]`.

- eval_cases: collects case files, and runs each case as a test
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from prowess._internal.json_values import JsonValue
from prowess.core.events import Answer, ApprovalAnswered, render_event
from prowess.core.ports import EventLog
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import ConfigError
from prowess.models.actions.model import StructuredActions
from prowess.models.replay import ReplayModel, load_recording
from prowess.models.scripted import ScriptedModel, load_script
from prowess.stores.memory import MemoryArtifacts, MemoryEventLog

if TYPE_CHECKING:
    import pytest

__all__ = [
    "MemoryArtifacts",
    "MemoryEventLog",
    "ReplayModel",
    "ScriptedApprover",
    "ScriptedModel",
    "StructuredActions",
    "events_of",
    "load_recording",
    "load_script",
    "skill_dir",
]


def skill_dir(
    folder: str | os.PathLike[str],
    name: str,
    body: str = "",
    *,
    description: str = "Does one thing. Use when the user asks for it.",
    files: Mapping[str, str | bytes] | None = None,
    **front_matter: JsonValue,
) -> Path:
    """Writes the skill `folder/name` and returns its path. `allowed_tools=…` becomes the field `allowed-tools`."""
    skill = Path(folder, name)
    fields: dict[str, JsonValue] = {"name": skill.name, "description": description}
    for field, value in front_matter.items():
        fields[field.replace("_", "-")] = value
    lines = ["---"]
    for field, value in fields.items():
        text = json.dumps(value, ensure_ascii=False)
        lines.append(f"{field}: {text}")
    lines += ["---", "", body]
    contents: dict[str, str | bytes] = {"SKILL.md": "\n".join(lines)}
    contents.update(files or {})
    for path, content in contents.items():
        data = content if isinstance(content, bytes) else content.encode()
        _write(skill / path, data)
    return skill


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    if data.startswith(b"#!"):
        file.chmod(0o755)


class ScriptedApprover:
    """Approver that takes the next answer for each question. None means that nobody answered. `asked` has the
    questions."""

    def __init__(self, answers: Sequence[Answer | ApprovalAnswered | None]) -> None:
        known = get_args(Answer)
        for answer in answers:
            if isinstance(answer, str) and answer not in known:
                message = f"{answer!r} is not an answer to an approval question."
                hint = f"There are: {', '.join(known)}, None."
                raise ConfigError(message, code="approver-script", hint=hint)
        self.asked: list[tuple[ToolCall, Decision]] = []
        self._answers = list(answers)

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        at = len(self.asked)
        self.asked.append((call, decision))
        if at >= len(self._answers):
            asked = f"{call.tool} {call.args} ({decision.why})"
            raise AssertionError(f"Question {at + 1} has no answer in the script: {asked}")
        answer = self._answers[at]
        if isinstance(answer, str):
            return ApprovalAnswered(call_id=call.id, answer=answer, by="script")
        return answer

    def assert_finished(self) -> None:
        """Checks that each answer was used and that none was missing. A missing answer is reported here too, because a
        run treats an approver that raises like one that did not answer."""
        given = len(self._answers)
        asked = len(self.asked)
        if asked == given:
            return
        tools = ", ".join(call.tool for call, _ in self.asked) or "nothing"
        raise AssertionError(f"{given} answers were given and {asked} asked for: {tools}")


async def events_of(log: EventLog, key: SessionKey) -> list[dict[str, Any]]:
    """Returns a session's events as flat dictionaries, without the fields that differ each time: time, owner and hash
    chain. Calls and runs get numbers in order of appearance (`c1`, `r1`), so that two whole streams can be compared."""
    names = _Names()
    events: list[dict[str, Any]] = []
    async for envelope in log.read(key):
        line = render_event(envelope)
        event = names.plain(line)
        events.append(event)
    return events


_LEFT_OUT = ("seq", "at", "tenant", "app", "user", "session", "prev", "hash", "request_id")


class _Names:
    """Numbers for the ids of runs and calls, in order of appearance."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._calls: dict[str, str] = {}

    def plain(self, line: dict[str, Any]) -> dict[str, Any]:
        """The event without `_LEFT_OUT`, with numbers instead of ids."""
        event: dict[str, Any] = {}
        for name, value in line.items():
            if name not in _LEFT_OUT:
                event[name] = value
        for field in ("run", "parent", "resumes"):
            run = event.get(field)
            if isinstance(run, str):
                event[field] = self._run(run)
        id = event.get("call_id")
        if isinstance(id, str):
            event["call_id"] = self._call_id(id)
        call = event.get("call")
        if isinstance(call, dict):
            event["call"] = self._call(call)
        calls = event.get("calls")
        if isinstance(calls, list):
            event["calls"] = [self._call(each) for each in calls]
        replaced = event.get("replaced")
        if isinstance(replaced, dict):
            event["replaced"] = {self._call_id(each): ref for each, ref in replaced.items()}
        return event

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        """The same call, with the number instead of its id."""
        id = self._call_id(call["id"])
        return {**call, "id": id}

    def _run(self, id: str) -> str:
        """Name of a run: `r1` for the first."""
        number = len(self._runs) + 1
        return self._runs.setdefault(id, f"r{number}")

    def _call_id(self, id: str) -> str:
        """Name of a call: `c1` for the first."""
        number = len(self._calls) + 1
        return self._calls.setdefault(id, f"c{number}")


# --- pytest plugin ----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of eval cases to pytest."""
    group = parser.getgroup("prowess", "eval cases")
    group.addoption("--eval-model", metavar="M", help="Model for eval cases.  [default: scripted]")
    group.addoption("--eval-yes", action="append", default=[], metavar="TOOL", help="Approve a tool in eval cases.")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects the case files in folders that are called `evals` or `evaluations`."""
    folder = file_path.parent.name
    if folder not in ("evals", "evaluations") or file_path.suffix not in (".yaml", ".yml", ".json"):
        return None
    from prowess.testing.eval_cases import CaseFileCollector

    return CaseFileCollector.from_parent(parent, path=file_path)
