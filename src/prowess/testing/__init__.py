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
    **front_matter: Any,
) -> Path:
    """Writes the skill `folder/name` and returns its path. `allowed_tools=…` becomes the field `allowed-tools`."""
    skill = Path(folder, name)
    fields = {"name": skill.name, "description": description}
    fields |= {field.replace("_", "-"): value for field, value in front_matter.items()}
    head = "".join(f"{field}: {json.dumps(value, ensure_ascii=False)}\n" for field, value in fields.items())
    for path, content in {"SKILL.md": f"---\n{head}---\n\n{body}", **(files or {})}.items():
        file = skill / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        file.write_bytes(data)
        if data.startswith(b"#!"):
            file.chmod(0o755)
    return skill


class ScriptedApprover:
    """Approver that takes the next answer for each question. None means that nobody answered. `asked` has the
    questions."""

    def __init__(self, answers: Sequence[Answer | ApprovalAnswered | None]) -> None:
        for answer in answers:
            if isinstance(answer, str) and answer not in get_args(Answer):
                raise ConfigError(
                    f"{answer!r} is not an answer to an approval question.",
                    code="approver-script",
                    hint=f"There are: {', '.join(get_args(Answer))}, None.",
                )
        self.asked: list[tuple[ToolCall, Decision]] = []
        self._answers = list(answers)

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        self.asked.append((call, decision))
        if len(self.asked) > len(self._answers):
            raise AssertionError(
                f"Question {len(self.asked)} has no answer in the script: {call.tool} {call.args} ({decision.why})"
            )
        answer = self._answers[len(self.asked) - 1]
        return ApprovalAnswered(call_id=call.id, answer=answer, by="script") if isinstance(answer, str) else answer

    def assert_finished(self) -> None:
        """Checks that each answer was used and that none was missing. A missing answer is reported here too, because a
        run treats an approver that raises like one that did not answer."""
        if len(self.asked) != len(self._answers):
            tools = ", ".join(call.tool for call, _ in self.asked) or "nothing"
            raise AssertionError(f"{len(self._answers)} answers were given and {len(self.asked)} asked for: {tools}")


async def events_of(log: EventLog, key: SessionKey) -> list[dict[str, Any]]:
    """Returns a session's events as flat dictionaries, without the fields that differ each time: time, owner and hash
    chain. Calls and runs get numbers in order of appearance (`c1`, `r1`), so that two whole streams can be compared."""
    names = _Names()
    return [names.plain(render_event(envelope)) async for envelope in log.read(key)]


_LEFT_OUT = ("seq", "at", "tenant", "app", "user", "session", "prev", "hash", "request_id")


class _Names:
    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}

    def plain(self, line: dict[str, Any]) -> dict[str, Any]:
        event = {name: value for name, value in line.items() if name not in _LEFT_OUT}
        for field in ("run", "parent", "resumes"):
            if isinstance(event.get(field), str):
                event[field] = self._name("r", event[field])
        if isinstance(event.get("call_id"), str):
            event["call_id"] = self._name("c", event["call_id"])
        if isinstance(event.get("call"), dict):
            event["call"] = self._call(event["call"])
        if isinstance(event.get("calls"), list):
            event["calls"] = [self._call(call) for call in event["calls"]]
        if isinstance(event.get("replaced"), dict):
            event["replaced"] = {self._name("c", call): ref for call, ref in event["replaced"].items()}
        return event

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        return call | {"id": self._name("c", call["id"])}

    def _name(self, kind: str, name: str) -> str:
        number = 1 + sum(1 for known, _ in self._given if known == kind)
        return self._given.setdefault((kind, name), f"{kind}{number}")


# --- pytest plugin ----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("prowess", "eval cases")
    group.addoption("--eval-model", metavar="M", help="Model for eval cases.  [default: scripted]")
    group.addoption("--eval-yes", action="append", default=[], metavar="TOOL", help="Approve a tool in eval cases.")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects the case files in folders that are called `evals` or `evaluations`."""
    if file_path.parent.name not in ("evals", "evaluations") or file_path.suffix not in (".yaml", ".yml", ".json"):
        return None
    from prowess.testing.eval_cases import CaseFileCollector

    return CaseFileCollector.from_parent(parent, path=file_path)
