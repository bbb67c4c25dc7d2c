"""The front door: five lines are enough, and every event can be seen on the way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import ConfigError, ModelAuth, ModelError
from prowess.models.scripted import ScriptedModel
from prowess.stores.memory import MemoryEventLog
from prowess.testing import events_of, skill_dir
from prowess.tools.toolset import Prefixed, Tools


def add_one(a: int) -> int:
    """One more."""
    return a + 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    skill_dir(
        folder, "demo", "DEMO-BODY\n", description="Does demos.", files={"scripts/a.sh": "echo ran > out/a.txt\n"}
    )
    return folder


RUN = [
    call("skill_load", skill="demo"),
    call("skill_run", skill="demo", command="bash scripts/a.sh", output_files=["out/*.txt"]),
    {"text": "done"},
]


def test_five_lines(root: Path) -> None:
    result = prowess.run_sync("do it", skills=root, model=ScriptedModel(RUN), store="memory:", approve=["skill_run"])
    assert (result.text, result.ok) == ("done", True)
    assert [file.ref for file in result.files] == ["workspace://out/a.txt"]


def test_named_skills_are_put_to_use(root: Path) -> None:
    model = ScriptedModel([{"text": "a"}])
    prowess.run_sync("do it", skills=root, use=["demo"], model=model, store="memory:")
    assert "DEMO-BODY" in str(model.requests[0])


def test_functions_are_tools(root: Path) -> None:
    def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        Args:
            a: The first one.
        """
        return a + b

    model = ScriptedModel([call("add", a=40), {"text": "42"}])
    result = prowess.run_sync("add", skills=root, model=model, tools=[add], store="memory:")
    assert result.ok
    messages, tools = model.requests[1]
    assert [m.parts[0].text for m in messages if m.role == "tool"] == ["42"]
    [spec] = [spec for spec in tools if spec.name == "add"]
    assert spec.description == "Add two numbers." and spec.parameters["required"] == ["a"]


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (add_one, ["add_one"]),
        (prowess.tool(name="more")(add_one), ["more"]),
        (Prefixed(Tools(add_one), "my_"), ["my_add_one"]),
        (
            [Prefixed(Tools(add_one), "my_"), add_one, prowess.tool(name="more")(add_one)],
            ["my_add_one", "add_one", "more"],
        ),
        ((each for each in (add_one,)), ["add_one"]),
        ((), []),
    ],
)
def test_functions_tools_and_sets_of_them_are_taken_as_they_come(root: Path, tools: Any, names: list[str]) -> None:
    model = ScriptedModel([*(call(name, a=1) for name in names), {"text": "a"}])
    result = prowess.run_sync("add", skills=root, model=model, tools=tools, store="memory:", approve=names)
    messages, specs = model.requests[-1]
    assert result.ok and [m.parts[0].text for m in messages if m.role == "tool"] == ["2"] * len(names)
    assert [spec.name for spec in specs][len(specs) - len(names) :] == names


async def in_time(call: ToolCall, decision: Decision) -> str:
    return "once" if call.tool == "skill_run" and decision.about["risk"] else "no"


@pytest.mark.parametrize(
    ("approve", "status"),
    [
        (in_time, "ok"),
        (lambda call, decision: call.tool == "skill_run", "ok"),
        (lambda *about: "no, because it is late", "denied"),
        (lambda call, decision: None, "denied"),
        (lambda call, decision: 42, "denied"),
    ],
)
def test_a_function_approves(root: Path, approve: Any, status: str) -> None:
    events: list[Any] = []
    prowess.run_sync(
        "do it",
        skills=root,
        model=ScriptedModel(RUN),
        store="memory:",
        executor="local",
        approve=approve,
        on_ask="deny",
        on_event=events.append,
    )
    assert [each.event.outcome.status for each in events if each.event.type == "call_acted"] == ["ok", status]


@pytest.mark.parametrize("option", ["modle", "approver", "file", "workspace_executor"])
def test_a_misspelt_keyword_is_refused_at_once(root: Path, option: str) -> None:
    options: Any = {option: None}
    with pytest.raises(TypeError, match=option):
        prowess.run_sync("x", skills=root, **options)
    with pytest.raises(TypeError, match=option):
        prowess.Agent(skills=root, **options)
    with pytest.raises(TypeError, match=option):
        prowess.SkillKit(root, **options)


def test_a_setting_that_there_is_not_is_met_with_the_one_that_was_meant(root: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        prowess.run_sync("x", skills=root, settings={"skills.budgt": 1})
    assert (raised.value.code, raised.value.hint) == ("option-unknown", "Did you mean 'skills.budget'?")


def test_a_kit_takes_what_it_can_use_and_refuses_the_rest(root: Path) -> None:
    log = MemoryEventLog()

    async def work() -> None:
        async with prowess.SkillKit(root, store=log, session="s", user="ada") as kit:
            await kit.call("skill_load", {"skill": "demo"})
        with pytest.raises(ConfigError) as raised:
            await kit.call("skill_load", {"skill": "demo"})
        assert raised.value.code == "kit-closed"
        with pytest.raises(ConfigError, match="closed"):
            await kit.__aenter__()

    asyncio.run(work())
    assert [info.key for info in asyncio.run(log.sessions())] == [SessionKey(session="s", user="ada")]


def test_a_stream_that_is_left_in_order_has_left_its_session(root: Path, tmp_path: Path) -> None:
    given: Any = {"skills": root, "session": "talk", "store": str(tmp_path / "log.db")}

    async def work() -> str:
        seen: list[Any] = []
        first = prowess.stream("one", model=ScriptedModel([{"text": "a"}]), on_event=seen.append, **given)
        async with aclosing(first) as events:
            async for _ in events:
                break
        assert seen, "observers are told as well"
        return (await prowess.run("two", model=ScriptedModel([{"text": "b"}]), **given)).text

    assert asyncio.run(work()) == "b"


def test_a_stream_has_every_event_and_ends_with_the_run(root: Path) -> None:
    async def work() -> list[str]:
        events = prowess.stream("do it", skills=root, model=ScriptedModel(RUN), store="memory:", approve=["skill_run"])
        return [envelope.event.type async for envelope in events]

    types = asyncio.run(work())
    assert types[0] == "run_started" and types[-1] == "run_finished" and "text_delta" in types


def test_leaving_a_stream_ends_the_run(root: Path) -> None:
    log = MemoryEventLog()

    async def work() -> None:
        script = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="sleep 100")]
        events = prowess.stream(
            "go", skills=root, model=ScriptedModel(script), store=log, session="s", approve=["skill_run"]
        )
        async for envelope in events:
            if envelope.event.type == "call_decided" and envelope.event.decision.rule == "table:isolated":
                break
            if envelope.event.type == "approval_answered":
                break
        await events.aclose()
        stored = await events_of(log, SessionKey(session="s"))
        assert stored[-1]["type"] == "run_finished" and stored[-1]["stop_reason"] == "cancelled"

    asyncio.run(work())


def test_an_error_of_the_model_is_raised_from_every_door(root: Path) -> None:
    error = ModelError("no", code="model-refused")
    with pytest.raises(ModelError, match="no"):
        prowess.run_sync("x", skills=root, model=ScriptedModel([error]), store="memory:")

    async def work() -> list[str]:
        seen = []
        with pytest.raises(ModelError):
            async for envelope in prowess.stream("x", skills=root, model=ScriptedModel([error]), store="memory:"):
                seen.append(envelope.event.type)
        return seen

    assert asyncio.run(work())[-2:] == ["error", "run_finished"]


def test_a_model_without_its_key(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ModelAuth, match="OPENAI_API_KEY"):
        prowess.run_sync("x", skills=root, model="openai:gpt-5", store="memory:")


def test_a_session_goes_on(root: Path, tmp_path: Path) -> None:
    given: Any = {"skills": root, "session": "talk", "store": str(tmp_path / "log.db")}
    prowess.run_sync("My name is Ada.", model=ScriptedModel([{"text": "Hello Ada."}]), **given)
    model = ScriptedModel([{"text": "Ada."}])
    prowess.run_sync("What is my name?", model=model, **given)
    texts = [part.text for message in model.requests[0][0] for part in message.parts]
    assert "My name is Ada." in texts and "Hello Ada." in texts


def test_a_recorded_run_is_a_model(root: Path, tmp_path: Path) -> None:
    given: Any = {"skills": root, "store": str(tmp_path / "log.db"), "approve": ["skill_run"]}
    first = prowess.run_sync("do it", model=ScriptedModel(RUN), **given)
    again = prowess.run_sync("do it", model=f"replay:{first.run}", **given)
    assert again.text == first.text and again.run != first.run


def test_a_loop_that_ends_takes_a_stream_with_it_in_silence(root: Path, tmp_path: Path) -> None:
    """Nobody closed the stream: the record can be resumed, and nothing is printed."""
    script = (
        "import asyncio, prowess\n"
        "from prowess.testing import ScriptedModel\n"
        "async def main():\n"
        f"    async for event in prowess.stream('hi', skills={str(root)!r}, model=ScriptedModel([{{'text': 'a'}}])):\n"
        "        break\n"
        "asyncio.run(main())\n"
    )
    environ = {**os.environ, "PROWESS_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"load_mode": "forever"}, "option-invalid"),
        ({"limits": {"turns": "five"}}, "limit-invalid"),
        ({"limits": {"turn": 5}}, "limit-invalid"),
        ({"limits": {"turns": 0}}, "limit-invalid"),
        ({"model": 42}, "model-unknown"),
        ({"model": ""}, "model-unknown"),
        ({"files": "nothing.csv"}, "no-file"),
        ({"files": "/dev/null"}, "no-file"),
        ({"resume": True}, "option-invalid"),
        ({"approve": ["skil_run"]}, "tool-unknown"),
        ({"approve": 42}, "approve-invalid"),
        ({"approve": True}, "approve-invalid"),
        ({"approve": [42]}, "approve-invalid"),
        ({"approve": {"skill_run": "no"}}, "approve-invalid"),
        ({"approve": lambda call: "once"}, "approve-invalid"),
        ({"ask": 42}, "ask-invalid"),
        ({"tools": "stock"}, "tool-invalid"),
        ({"tools": [Tools]}, "tool-invalid"),
        ({"tools": [None]}, "tool-invalid"),
        ({"tools": {"add": add}}, "tool-invalid"),
        ({"tools": [add, Tools(add)]}, "tool-duplicate"),
        ({"tools": lambda x: x}, "tool-name"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(root: Path, options: dict[str, Any], code: str) -> None:
    log = MemoryEventLog()
    given = {"model": ScriptedModel([{"text": "a"}]), "skills": root, "store": log, **options}
    with pytest.raises(ConfigError) as raised:
        prowess.run_sync("hi", **given)
    assert raised.value.code == code
    assert asyncio.run(log.sessions()) == []


def test_sessions_of_one_name_belong_to_their_owners(root: Path) -> None:
    log = MemoryEventLog()
    for user in ("ada", "bob"):
        given: Any = {"skills": root, "store": log, "session": "talk", "user": user}
        prowess.run_sync(f"I am {user}.", model=ScriptedModel([{"text": "Hello."}]), **given)
    model = ScriptedModel([{"text": "Ada."}])
    prowess.run_sync("Who am I?", model=model, skills=root, store=log, session="talk", user="ada")
    assert "I am ada." in str(model.requests[0]) and "bob" not in str(model.requests[0])


def test_a_picture_is_shown_to_the_model_and_kept_out_of_the_record(root: Path, tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40)
    model, events = ScriptedModel([{"text": "A dot."}]), []
    prowess.run_sync("What is it?", model=model, skills=root, files=picture, store="memory:", on_event=events.append)
    parts = [part for message in model.requests[0][0] for part in message.parts]
    [image] = [part for part in parts if part.kind == "image"]
    assert image.ref is not None and image.ref.startswith("data:image/png;base64,iVBORw0KGgp4eHh4")
    assert any("- inputs/dot.png" in (part.text or "") for part in parts)
    started = next(each.event for each in events if each.event.type == "run_started")
    assert [part.ref for part in started.attachments] == ["workspace://work/inputs/dot.png"] * 2


def test_an_interrupt_while_the_command_is_being_imported_is_no_traceback(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    @staticmethod\n"
        "    def find_spec(name, *more):\n"
        "        if name == 'click':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting)\n"
        "from prowess.cli.main import main\n"
        "sys.exit(main(['list']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_what_was_approved_by_name_was_asked_of_nobody(root: Path) -> None:
    async def work() -> list[Any]:
        given = {"skills": root, "model": ScriptedModel(RUN), "store": "memory:", "executor": "local"}
        return [event async for event in prowess.stream("do it", approve=["skill_run"], **given)]

    events = asyncio.run(work())
    [answered] = [each.event for each in events if each.event.type == "approval_answered"]
    assert answered.by == "approve=skill_run" and not answered.asked
    assert events[-1].event.prompts == 0


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("plain.txt", "Give the folder that holds it: '.'."),
        ("lib/SKILL.md", "Give the folder that holds it: 'lib'."),
        ("./lib/SKILL.md", "Give the folder that holds it: './lib'."),
        (Path("lib/SKILL.md"), "Give the folder that holds it: 'lib'."),
        ("lib.zip", "Give an archive by its address: 'file://"),
    ],
)
def test_a_file_in_the_place_of_a_folder_says_what_to_give(
    given: str | Path, hint: str, tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(tmp_path / "lib")
    for name in ("plain.txt", "lib.zip"):
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    doors = (lambda: prowess.SkillKit(given), lambda: prowess.run_sync("go", skills=given, model=ScriptedModel([])))
    for door in doors:
        with pytest.raises(ConfigError, match="is a file, where a folder of skills is expected") as refused:
            door()
        assert refused.value.code == "root-not-folder" and str(refused.value.hint).startswith(hint)
        assert f"'{given}'" in refused.value.message


def test_to_prompt_names_the_skill_that_cannot_be_shown(tmp_path: Path, make_skill: Any) -> None:
    good, bad = make_skill(tmp_path / "good"), make_skill(tmp_path / "bad", front="name: bad\n")
    with pytest.raises(prowess.SkillInvalid) as refused:
        prowess.to_prompt([good, bad, tmp_path / "other"])
    assert str(bad) in str(refused.value.hint) and refused.value.code == "description-missing"
    with pytest.raises(prowess.SkillInvalid, match=f"^SKILL.md not found in {tmp_path / 'other'}"):
        prowess.to_prompt([good, tmp_path / "other"])


def test_a_link_in_the_project_leads_nothing_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / ".agent").mkdir(parents=True)
    elsewhere.mkdir()
    (project / ".agent" / "artifacts").symlink_to(elsewhere)
    monkeypatch.chdir(project)

    def much() -> str:
        """Says much."""
        return "x" * 200_000

    model = ScriptedModel([call("much"), {"text": "done"}])
    assert prowess.run_sync("go", model=model, skills=[str(root)], tools=[much]).ok
    assert not list(elsewhere.iterdir())


def test_a_schema_that_a_caller_changes_is_the_schema_of_one_tool(root: Path) -> None:
    kit = prowess.SkillKit(root, settings={"tools.profile": "full"})
    before, schemas = kit.schemas(), kit.schemas()
    for number, schema in enumerate(schemas):
        parameters = schema["function"]["parameters"]
        parameters["properties"].clear()
        parameters.setdefault("required", []).clear()
        assert schemas[number + 1 :] == before[number + 1 :]


def test_a_stream_whose_observers_cannot_be_read_ends_with_that_error(root: Path) -> None:
    class Broken(Sequence[Any]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: Any) -> Any:
            raise RuntimeError("broken")

    async def watch() -> None:
        async for _ in prowess.stream("hi", skills=root, model=ScriptedModel([]), on_event=Broken()):
            pass

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(asyncio.wait_for(watch(), 20))


# --- values that a keyword cannot have --------------------------------------------------------------------------------

WRONG: list[tuple[str, Any]] = [
    ("instructions", 5),
    ("limits", 5),
    ("limits", []),
    ("load_mode", "x"),
    ("placement", "x"),
    ("protocol", "x"),
    ("protocol", []),
    ("on_ask", "never"),
    ("on_ask", True),
    ("summarise", "no"),
    ("settings", 5),
    ("on_event", "foo"),
    ("on_event", [5]),
]
WRONG_AT_RUN: list[tuple[str, Any]] = [
    ("files", 5),
    ("files", [5]),
    ("use", 5),
    ("use", [5]),
    ("output_dir", 5),
    ("session", 5),
    ("resume", "no"),
    ("must_exist", "no"),
    ("on_event", 5),
    ("tenant", 5),
]
WRONG_IN_A_KIT: list[tuple[str, Any]] = [
    ("offer", 5),
    ("prefix", 5),
    ("files", 5),
    ("use", [5]),
    ("session", 5),
    ("instructions", 5),
    ("on_ask", "never"),
    ("must_exist", "no"),
    ("user", 5),
    ("on_event", 5),
]


def check_named(keyword: str, make: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.code == "option-invalid" and f"{keyword}=" in caught.value.message and caught.value.hint


@pytest.mark.parametrize(("keyword", "value"), WRONG)
def test_a_value_that_cannot_be_used_is_refused_when_the_agent_is_made(keyword: str, value: Any) -> None:
    check_named(keyword, lambda: prowess.Agent("offline", skills=[], **{keyword: value}))


@pytest.mark.parametrize(("keyword", "value"), WRONG_AT_RUN)
def test_or_before_the_model_is_asked(keyword: str, value: Any) -> None:
    model = ScriptedModel([{"text": "a"}])
    agent = prowess.Agent(model, skills=[], store="memory:")
    check_named(keyword, lambda: agent.run_sync("hi", **{keyword: value}))
    assert not model.requests


@pytest.mark.parametrize(("keyword", "value"), WRONG_IN_A_KIT)
def test_or_when_the_kit_is_made(keyword: str, value: Any) -> None:
    check_named(keyword, lambda: prowess.SkillKit([], store="memory:", **{keyword: value}))


@pytest.mark.parametrize("model", [5, ScriptedModel, object()])
def test_a_model_that_is_none_is_refused_when_the_agent_is_made(model: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        prowess.Agent(model, skills=[])
    assert caught.value.code == "model-unknown"


def test_a_text_in_use_is_one_name(root: Path) -> None:
    model = ScriptedModel([{"text": "a"}])
    assert prowess.run_sync("do it", skills=root, use="demo", model=model, store="memory:").ok
    assert "DEMO-BODY" in str(model.requests[0])
    with prowess.SkillKit(root, use="demo", store="memory:") as kit:
        assert "DEMO-BODY" in kit.instructions


# --- how things are shown ---------------------------------------------------------------------------------------------


def test_things_are_shown_by_what_one_knows_them_by(root: Path) -> None:
    model = ScriptedModel([{"text": "Two\nlines " + "x" * 100}])
    agent = prowess.Agent(model, skills=root, store="memory:", secrets={"KEY": "sesame"}, instructions="sesame")
    assert repr(agent) == f"Agent({model.name!r})"

    async def talk() -> prowess.Result:
        async with agent.session("s-1") as chat:
            assert repr(chat) == "AgentSession('s-1')"
            return await chat.run("go")

    result = asyncio.run(talk())
    assert repr(agent) == f"Agent({model.name!r}, skills=1)" and repr(prowess.Agent(skills=[])) == "Agent('offline')"
    text = "Two lines " + "x" * 49 + "…"
    assert repr(result) == f"Result('answer', text={text!r}, files=0, session='s-1', run={result.run!r})"
    with prowess.SkillKit(root, session="k-1", store="memory:") as kit:
        assert repr(kit).startswith("SkillKit(session='k-1'") and repr(kit.session("k-2")) == "KitSession('k-2')"
    assert repr(kit).endswith(", closed)")


def test_words_of_errors_fit_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(prowess.ProwessError) as caught:
        prowess.Agent("nope:x", skills=[]).run_sync("go")
    assert "Did you mean" not in str(caught.value.hint), "openai is far from nope"
    with pytest.raises(prowess.ProwessError) as caught:
        prowess.Agent("offline", skills=[], policy='[[rule]]\ntool = "x"\nverdict = "deny"\n')
    assert "not the path of a file" in caught.value.message and "\n" not in caught.value.message

    @prowess.tool
    def look() -> object:
        """Looks."""
        return object()

    model = ScriptedModel([{"calls": [{"tool": "look", "args": {}}]}, {"text": "done"}])
    seen: list[str] = []
    prowess.run_sync(
        "go", model=model, tools=[look], skills=[], store="memory:", on_event=lambda e: seen.append(str(e))
    )
    assert any("look returned an object" in event for event in seen)
