"""Names and fields that programs rely on: every one of the Python interface, seen on real objects.

A name that is renamed or removed here needs a line in the CHANGELOG. The public modules are in test_public_imports.py.
"""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from prowess.events import EVENT_TYPES, Envelope
from prowess.testing import ScriptedModel, skill_dir

AGENT = (
    "skills tools instructions policy approve ask on_event executor store artifacts secrets limits load_mode placement "
    "protocol on_ask summarise output_type deps settings"
).split()
RUN = "files use output_dir session resume must_exist on_event deps tenant app user".split()
IN_SESSION = "files use output_dir resume on_event deps".split()
KIT = (
    "offer prefix tools files use session policy approve ask on_event instructions store artifacts executor secrets "
    "on_ask must_exist tenant app user deps settings"
).split()
KIT_SESSION = "user tenant app approve ask on_event files use must_exist".split()

RESULT = "text output files usage stop_reason session run ok raise_for_status".split()
FILE = "name path read_bytes read_text save mime_type size_bytes".split()
BOTH_KITS = (
    "instructions tools schemas version call call_sync decide decide_sync answer answer_sync waiting waiting_sync "
    "close aclose"
).split()
OUTCOME = "ok status content code hint data files question".split()
EVENTS = (
    "run_started epoch_started catalog_planned model_requested model_replied model_retried text_delta call_delta "
    "plan_changed call_planned call_decided approval_asked approval_answered call_acted skill_loaded skill_unloaded "
    "note_appended compacted error run_finished session_imported"
).split()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    skill_dir(tmp_path / "skills", "demo", description="Does demos.")
    return tmp_path / "skills"


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (prowess.Agent, AGENT),
        (prowess.Agent.run, RUN),
        (prowess.AgentSession.run, IN_SESSION),
        (prowess.SkillKit, KIT),
        (prowess.SkillKit.session, KIT_SESSION),
    ],
    ids=lambda given: getattr(given, "__qualname__", ""),
)
def test_a_function_has_its_keywords(function: Any, names: list[str]) -> None:
    found = inspect.signature(function).parameters
    assert [name for name in names if name not in found or found[name].kind is not inspect.Parameter.KEYWORD_ONLY] == []


@pytest.mark.parametrize("name", ["run", "run_sync", "stream"])
def test_one_request_takes_the_keywords_of_an_agent_and_of_its_run(root: Path, name: str) -> None:
    values: dict[str, Any] = {
        **dict.fromkeys({*AGENT, *RUN}),  # None is as if it was not given
        **{"skills": root, "tools": [], "instructions": "Be short.", "on_ask": "deny", "summarise": False},
        **{"files": [], "use": [], "resume": False, "must_exist": False, "on_event": [], "store": "memory:"},
        **dict.fromkeys(["tenant", "app", "user"], "default"),
    }
    made = getattr(prowess, name)("Hello", model=ScriptedModel([{"text": "Good day."}]), **values)

    async def finish() -> str:
        if name == "run":
            return str((await made).text)
        return [str(event.to_dict().get("text")) async for event in made][-1]

    assert (made.text if name == "run_sync" else asyncio.run(finish())) == "Good day."


def test_a_result_and_its_files_have_their_fields(root: Path, tmp_path: Path) -> None:
    def note(context: prowess.ToolContext) -> str:
        context.files.write_bytes_sync("out/a.txt", b"made")
        return "written"

    seen: list[Envelope] = []
    agent = prowess.Agent(
        ScriptedModel([call("note"), {"text": "3"}]),
        skills=root,
        tools=note,
        output_type=int,
        store="memory:",
        on_event=seen.append,
    )
    result = agent.run_sync("Write, and count.", session="s-1")
    assert [name for name in RESULT if not hasattr(result, name)] == []
    assert (result.output, result.ok, result.stop_reason, result.session) == (3, True, "answer", "s-1")
    (file,) = result.files
    assert [name for name in FILE if not hasattr(file, name)] == []
    assert (file.name, file.mime_type, file.size_bytes) == ("out/a.txt", "text/plain", 4)
    assert file.read_bytes() == file.path.read_bytes() == file.save(tmp_path / "b.txt").read_bytes() == b"made"
    assert file.read_text() == "made"
    for envelope in seen:  # an event says of itself what its line says
        assert envelope.to_dict()["type"] == envelope.type == envelope.event.type == envelope.event.to_dict()["type"]
        assert envelope.to_dict()["run"] == result.run


def test_every_type_of_event_is_there() -> None:
    assert [name for name in EVENTS if name not in EVENT_TYPES] == []


def test_a_kit_its_session_and_an_outcome_have_their_fields(root: Path) -> None:
    with prowess.SkillKit(root, executor="local", store="memory:") as kit, kit.session("s-1", user="ann") as session:
        assert [name for name in (*BOTH_KITS, "session", "reload", "findings") if not hasattr(kit, name)] == []
        assert [name for name in (*BOTH_KITS, "id") if not hasattr(session, name)] == []
        loaded = session.call_sync("skill_load", {"skill": "demo"})
        asked = session.call_sync("skill_run", {"skill": "demo", "command": "true"}, id="c-1")
        assert [name for name in OUTCOME if not hasattr(loaded, name)] == []
        assert (loaded.ok, loaded.status, loaded.question) == (True, "ok", None)
        assert asked.question is not None and [each.call_id for each in session.waiting_sync()] == ["c-1"]
        session.answer_sync("c-1", "once")
        assert session.call_sync("skill_run", {"skill": "demo", "command": "true"}, id="c-1").data["exit_code"] == 0
        for form in ("openai", "responses", "anthropic", "gemini", "bedrock", "mcp"):
            assert session.schemas(form) == kit.schemas(form) != []
