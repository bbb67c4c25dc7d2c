"""A call that names a skill which is not loaded loads it: one load like any other, then the call under its list, and
what the model reads begins with the instructions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import Played, call, calls, play
from prowess.core.events import Envelope
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.models.actions.model import StructuredActions
from prowess.runtime.arguments import NamedApprover
from prowess.stores.memory import MemoryEventLog

DONE = {"text": "done"}
RUN = call("skill_run", skill="demo", command="bash scripts/say.sh hi")
READ = call("skill_read", skill="demo", path="references/more.md")
LOCAL = {"workspace.executor": "local"}
isolated = pytest.mark.needs("isolation")


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    files = {"scripts/say.sh": 'echo "said $1"\n', "references/more.md": "MORE\n"}
    make_skill(folder / "demo", body="DEMO-BODY\n", description="Says words.", files=files)
    make_skill(folder / "other", body="OTHER-BODY\n", description="Does others.", files={"a.md": "OTHER-DOC\n"})
    make_skill(folder / "third", body="THIRD-BODY\n", description="Does thirds.", files={"a.md": "THIRD-DOC\n"})
    front = "name: narrow\ndescription: N.\nallowed-tools: Bash(git:*)\n"
    make_skill(folder / "narrow", front=front, body="NARROW-BODY\n", files={"a.md": "NARROW-DOC\n"})
    make_skill(folder / "apart", front="name: apart\ndescription: A.\nrun-mode: subagent\n", body="APART-BODY\n")
    return folder


def steps(played: Played) -> list[tuple[str, ...]]:
    """Every step of the calls: what was planned, decided, loaded, asked and done, in order."""
    found: list[tuple[str, ...]] = []
    for event in played.events:
        match event["type"]:
            case "call_planned":
                found.append(("planned", event["call"]["id"], event["call"]["tool"]))
            case "call_decided":
                found.append(("decided", event["call_id"], event["decision"]["verdict"]))
            case "skill_loaded":
                found.append(("loaded", event["id"], event["trigger"], event["reason"] or ""))
            case "approval_asked" | "approval_answered":
                found.append((event["type"], event["call_id"]))
            case "call_acted":
                found.append(("acted", event["call_id"], event["outcome"]["code"] or event["outcome"]["status"]))
            case "model_replied":
                found.append(("replied",))
    return found


def loading(id: str, tool: str, skill: str = "demo") -> list[tuple[str, ...]]:
    return [
        ("planned", f"{id}-load", "skill_load"),
        ("decided", f"{id}-load", "allow"),
        ("loaded", f"explicit:{skill}", "model", f"implicit:{tool}"),
        ("acted", f"{id}-load", "ok"),
    ]


def making(id: str, tool: str, verdict: str = "allow", code: str = "ok") -> list[tuple[str, ...]]:
    return [("planned", id, tool), ("decided", id, verdict), ("acted", id, code)]


def result_text(played: Played, request: int = -1) -> str:
    return "\n".join(text for role, text in played.texts(request) if role == "tool")


def in_order(text: str, *parts: str) -> bool:
    places = [text.index(part) for part in parts]
    return places == sorted(places)


def test_a_file_of_a_skill_that_is_not_loaded_is_found_by_its_base_name(root: Path) -> None:
    played = play(root, [call("skill_read", skill="demo", path="more.md"), DONE])
    assert in_order(result_text(played), "DEMO-BODY", "MORE")
    assert played.of("call_planned")[1]["call"]["args"]["path"] == "references/more.md", "policy sees the whole path"


@isolated
def test_the_whole_stream_of_a_run_that_loads_its_skill(root: Path) -> None:
    played = play(root, [RUN, RUN, DONE])
    assert played.kinds == [
        "run_started",
        *("epoch_started", "catalog_planned", "model_requested", "model_replied"),
        *("call_planned", "call_decided", "skill_loaded", "call_acted"),
        *("call_planned", "call_decided", "call_acted"),
        *("model_requested", "model_replied"),
        *("call_planned", "call_decided", "call_acted"),
        *("model_requested", "model_replied"),
        "run_finished",
    ]
    first, second = [each["calls"][0]["id"] for each in played.of("model_replied")[:2]]
    assert steps(played) == [
        ("replied",),
        *loading(first, "skill_run"),
        *making(first, "skill_run"),
        ("replied",),
        *making(second, "skill_run"),
        ("replied",),
    ]
    planned = played.of("call_planned")[0]["call"]
    assert planned["args"] == {"skill": "demo", "reason": "implicit:skill_run"} and planned["trigger"] == "model"
    seen = result_text(played, 1)
    assert seen.startswith("loaded: demo\n<skill_content") and in_order(
        seen, "DEMO-BODY", "</skill_content>", "said hi"
    )
    assert played.text().count("DEMO-BODY") == 1, "it is in view, and not shown again"
    assert not [text for role, text in played.texts() if role != "tool" and "DEMO-BODY" in text]
    assert played.outcomes[1]["data"]["stdout"] == "said hi\n", "the result is the same object as without a load"
    assert played.result.failed == 0


@isolated
def test_a_load_is_no_call_against_the_limit(root: Path) -> None:
    from prowess.agent.agent import Limits

    played = play(root, [RUN, RUN, DONE], limits=Limits(calls=2))
    assert played.result.stop_reason == "answer"
    assert play(root, [RUN, RUN, DONE], limits=Limits(calls=1)).result.stop_reason == "limit:calls"


@isolated
@pytest.mark.parametrize(
    ("tool", "args", "result"),
    [
        ("skill_read", {"path": "references/more.md"}, "MORE"),
        ("skill_run", {"script": "scripts/say.sh", "args": ["you"]}, "said you"),
        ("skill_exec", {"command": "bash scripts/say.sh all", "yield_ms": 5000}, "said all"),
        ("skill_read", {"path": "gone.md"}, "resource-not-found"),
        ("skill_run", {"command": "echo words; exit 3"}, "command-failed"),
    ],
)
def test_what_loads_its_skill(root: Path, tool: str, args: dict[str, Any], result: str) -> None:
    played = play(root, [call(tool, skill="demo", **args), DONE])
    first = played.of("model_replied")[0]["calls"][0]["id"]
    assert steps(played)[1:5] == loading(first, tool)
    assert in_order(result_text(played), "loaded: demo", "DEMO-BODY", "</skill_content>", result)


@pytest.mark.parametrize(
    ("tool", "args"), [("skill_run", {}), ("skill_run", {"command": 7}), ("skill_read", {}), ("skill_exec", {})]
)
def test_invalid_arguments_load_the_skill_too(root: Path, tool: str, args: dict[str, Any]) -> None:
    played = play(root, [call(tool, skill="demo", **args), DONE])
    id = played.of("model_replied")[0]["calls"][0]["id"]
    assert steps(played) == [
        ("replied",),
        *loading(id, tool),
        ("planned", id, tool),
        ("acted", id, "invalid-call"),
        ("replied",),
    ]
    assert in_order(result_text(played), "DEMO-BODY", "</skill_content>", "invalid-call")


EARLY = "before you had read the skill's text"


@isolated
@pytest.mark.parametrize("command", ["echo fine", "false", "parcel 7"])
def test_a_program_that_ran_before_its_skill_was_read_is_told_last(root: Path, command: str) -> None:
    played = play(root, [call("skill_run", skill="demo", command=command)] * 2 + [DONE])
    first, second = result_text(played, 1), result_text(played, 2).rpartition("</skill_content>")[2]
    assert in_order(first, "DEMO-BODY", EARLY) and first.rstrip().endswith("Do what it says.")
    assert second.count(EARLY) == 1, "of the first call alone"


def test_what_was_only_read_is_not_early(root: Path) -> None:
    assert EARLY not in result_text(play(root, [READ, DONE]))


@isolated
@pytest.mark.parametrize("args", [{"command": "parcel 7"}, {}])
def test_a_made_up_program_is_answered_with_the_scripts(root: Path, args: dict[str, Any]) -> None:
    load = call("skill_load", skill="demo")
    played = play(root, [load, call("skill_run", skill="demo", **args), DONE])
    assert "Its scripts: scripts/say.sh." in result_text(played)


@pytest.mark.parametrize("skill", [None, 7, "", "nobody", "\ud800", ["demo"]])
def test_invalid_arguments_without_a_skill_load_nothing(root: Path, skill: Any) -> None:
    played = play(root, [call("skill_run", skill=skill), DONE])
    assert not played.of("skill_loaded") and played.outcomes[-1]["status"] == "failed"


def test_no_parallel_call_asks_before_the_model_has_read_the_skill(root: Path) -> None:
    both = calls(("skill_run", {"skill": "demo", "command": "ls"}), ("skill_run", {"skill": "demo", "command": "id"}))
    person = Person("once")
    played = play(root, [both, both, DONE], settings=LOCAL, approver=person)
    ended = [event["outcome"]["code"] for event in played.of("call_acted")]
    assert ended == [None, "call-again", "call-again", None, None]
    assert person.asked == ["skill_run", "skill_run"], "of the second reply"


def test_the_instructions_are_shown_once(root: Path) -> None:
    played = play(root, [call("skill_read", skill="demo", path="./SKILL.md"), DONE])
    assert played.text().count("DEMO-BODY") == 1


def test_listing_docs_loads_nothing_and_selecting_loads_as_before(root: Path) -> None:
    played = play(root, [call("skill_list_docs", skill="demo"), DONE])
    assert not played.of("skill_loaded") and played.outcomes[0]["status"] == "ok"
    played = play(root, [call("skill_select_docs", skill="demo", docs=["references/more.md"]), DONE])
    assert [each["reason"] for each in played.of("skill_loaded")] == [None]


def test_reading_the_instructions_of_a_skill_is_loading_it(root: Path) -> None:
    played = play(root, [call("skill_read", skill="demo", path="SKILL.md"), DONE])
    first = played.of("model_replied")[0]["calls"][0]["id"]
    assert steps(played)[1:-1] == [
        *loading(first, "skill_read"),
        ("planned", first, "skill_read"),
        ("acted", first, "ok"),
    ]
    assert result_text(played).count("DEMO-BODY") == 1 and result_text(played).startswith("loaded: demo\n<skill_con")


@pytest.mark.parametrize("name", ["Demo", "explicit:demo", "DEMO"])
def test_a_name_that_only_the_catalog_knows(root: Path, name: str) -> None:
    read = call("skill_read", skill=name, path="references/more.md")
    played = play(root, [read, read, DONE])
    assert len(played.of("skill_loaded")) == 1
    assert [each["status"] for each in played.outcomes] == ["ok"] * 3


@isolated
def test_the_call_is_decided_under_the_list_of_the_skill(root: Path) -> None:
    played = play(root, [call("skill_run", skill="narrow", command="ls"), DONE])
    first = played.of("model_replied")[0]["calls"][0]["id"]
    assert steps(played)[1:-1] == [
        *loading(first, "skill_run", "narrow"),
        *making(first, "skill_run", "deny", "denied"),
    ]
    assert played.of("call_decided")[1]["decision"]["rule"] == "allowed-tools:explicit:narrow"
    assert in_order(result_text(played), "NARROW-BODY", "denied [denied]: Denied: The skill 'explicit:narrow' allows")


@pytest.mark.parametrize("spelled", [{}, {"tool": "load_resource"}])
def test_the_list_of_a_skill_that_a_reading_call_loads_binds_its_neighbour(root: Path, spelled: dict[str, str]) -> None:
    """Reading calls are made at the same time, but one that loads a skill is made before the others."""
    read = call("skill_read", skill="narrow", path="a.md")["calls"][0] | spelled
    other = call("read_file", file_name="out/x")["calls"][0]
    played = play(root, [{"calls": [read, other]}, DONE], settings=LOCAL)
    decisions = [event["decision"] for event in played.of("call_decided")]
    assert [(each["verdict"], each["rule"]) for each in decisions][-1] == ("deny", "allowed-tools:explicit:narrow")


# --- people -----------------------------------------------------------------------------------------------------------


class Person:
    def __init__(self, says: str) -> None:
        self.says = says
        self.asked: list[str] = []

    async def __call__(self, call: ToolCall, decision: Decision) -> str:
        self.asked.append(call.tool)
        return self.says


def test_a_call_that_would_ask_is_not_made_before_the_model_has_read_the_skill(root: Path) -> None:
    person = Person("once")
    played = play(root, [RUN, RUN, DONE], settings=LOCAL, approver=person)
    first, second = [each["calls"][0]["id"] for each in played.of("model_replied")[:2]]
    assert steps(played) == [
        ("replied",),
        *loading(first, "skill_run"),
        *making(first, "skill_run", "ask", "call-again"),
        ("replied",),
        ("planned", second, "skill_run"),
        ("decided", second, "ask"),
        ("approval_asked", second),
        ("approval_answered", second),
        ("acted", second, "ok"),
        ("replied",),
    ]
    assert person.asked == ["skill_run"], "about the call that the model made knowing the skill"
    seen = result_text(played, 1)
    assert in_order(seen, "DEMO-BODY", "failed [call-again]: It was not made yet: a person has to approve it.")


@pytest.mark.parametrize("approver", [NamedApprover(frozenset(["skill_run"])), None])
def test_what_was_approved_before_asks_nobody(root: Path, approver: Any) -> None:
    """By name; or for this run, when the skill was unloaded since."""
    replies: list[Any] = [RUN, DONE]
    if approver is None:
        approver = Person("run")
        unload = call("skill_unload", skill="demo")
        replies = [call("skill_load", skill="demo"), RUN, unload, RUN, DONE]
    played = play(root, replies, settings=LOCAL, approver=approver)
    last = played.outcomes[-1]
    assert last["status"] == "ok" and last["data"]["stdout"] == "said hi\n" and "loaded" in last["data"]


def rule(root: Path, verdict: str, tool: str = "skill_load") -> dict[str, Any]:
    path = root.parent / "managed.toml"
    path.write_text(f'[[rule]]\ntool = "{tool}"\nskill = "demo"\nverdict = "{verdict}"\nwhy = "As told."\n')
    return {"PROWESS_MANAGED_POLICY": str(path)}


@pytest.mark.parametrize("replies", [RUN, READ])
def test_a_load_that_is_denied(root: Path, replies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rule(root, "deny").items():
        monkeypatch.setenv(name, value)
    played = play(root, [replies, DONE])
    first = played.of("model_replied")[0]["calls"][0]
    assert steps(played)[1:-1] == [
        ("planned", f"{first['id']}-load", "skill_load"),
        ("decided", f"{first['id']}-load", "deny"),
        ("acted", f"{first['id']}-load", "denied"),
        ("planned", first["id"], first["tool"]),
        ("acted", first["id"], "denied"),
    ]
    assert result_text(played).startswith("denied [denied]: Denied: As told.\nThe call itself was not made.")
    assert "DEMO-BODY" not in played.text()


def test_a_load_that_has_to_be_approved(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person is asked about the load, the run waits, and goes on with both."""
    for name, value in rule(root, "ask").items():
        monkeypatch.setenv(name, value)
    log = MemoryEventLog()
    waiting = play(root, [READ], approver=None, log=log, session="s")
    first = waiting.of("model_replied")[0]["calls"][0]["id"]
    assert steps(waiting)[1:] == [
        ("planned", f"{first}-load", "skill_load"),
        ("decided", f"{first}-load", "ask"),
        ("approval_asked", f"{first}-load"),
        ("acted", f"{first}-load", "approval-needed"),
        ("planned", first, "skill_read"),
        ("acted", first, "approval-needed"),
    ]
    assert waiting.result.stop_reason == "waiting"
    assert [(each.id, each.tool) for each in waiting.result.waiting] == [(f"{first}-load", "skill_load")]
    resumed = play(root, [DONE], {"resume": True}, approver=Person("once"), log=log, session="s")
    assert steps(resumed) == [
        ("planned", f"{first}-load", "skill_load"),
        ("decided", f"{first}-load", "ask"),
        ("approval_asked", f"{first}-load"),
        ("approval_answered", f"{first}-load"),
        ("loaded", "explicit:demo", "model", "implicit:skill_read"),
        ("acted", f"{first}-load", "ok"),
        *making(first, "skill_read"),
        ("replied",),
    ]
    assert in_order(result_text(resumed), "loaded: demo", "DEMO-BODY", "MORE")


def test_nobody_to_ask_and_no_waiting(root: Path) -> None:
    played = play(root, [RUN, RUN, DONE], settings=LOCAL, approver=None, on_ask="deny")
    assert [each["code"] for each in played.outcomes] == [None, "call-again", "approval-needed"]
    assert played.outcomes[-1]["status"] == "denied" and played.result.stop_reason == "answer"


# --- limits and settings ----------------------------------------------------------------------------------------------


def test_a_skill_that_does_not_exist(root: Path) -> None:
    played = play(root, [call("skill_read", skill="demmo", path="x"), DONE])
    said = result_text(played)
    assert said.startswith("failed [skill-not-found]: No skill 'demmo'.") and "The call itself was not made." in said


def test_a_skill_that_the_model_may_not_load(root: Path) -> None:
    played = play(root, [READ, DONE], settings={"skills.modes": {"demo": "manual"}})
    assert not played.of("skill_loaded") and played.outcomes[-1]["status"] != "ok"
    loaded = play(root, [call("skill_load", skill="demo"), DONE], settings={"skills.modes": {"demo": "manual"}})
    assert loaded.outcomes[0]["code"] == played.outcomes[0]["code"], "as with skill_load"


@pytest.mark.parametrize("replies", [RUN, READ, call("skill_exec", skill="demo", command="ls")])
def test_a_load_can_be_required(root: Path, replies: Any) -> None:
    played = play(root, [replies, DONE], settings={"skills.require_load": True})
    assert [each["code"] for each in played.outcomes] == ["skill-not-loaded"]
    assert not played.of("skill_loaded")


def test_bodies_in_a_turn_are_limited(root: Path) -> None:
    reads = [("skill_read", {"skill": name, "path": "a.md"}) for name in ("other", "third", "narrow")]
    played = play(root, [calls(*reads), DONE], settings={"skills.max_bodies_per_turn": 2})
    acted = {each["call_id"]: each["outcome"] for each in played.of("call_acted")}
    ids = [each["id"] for each in played.of("model_replied")[0]["calls"]]
    assert [acted[id]["code"] for id in ids] == [None, None, "too-many-bodies"]
    assert "NARROW-DOC" not in played.text() and in_order(played.text(), "OTHER-BODY", "OTHER-DOC")


def test_skills_in_use_are_limited(root: Path) -> None:
    other = call("skill_read", skill="other", path="a.md")
    played = play(root, [READ, other, DONE], settings={"skills.max_loaded": 1})
    assert [each["id"] for each in played.of("skill_unloaded")] == ["explicit:demo"]
    assert in_order(result_text(played), "unloaded to make room: demo", "OTHER-BODY", "OTHER-DOC")


def test_what_a_load_made_room_for_is_said_once(root: Path) -> None:
    other = call("skill_read", skill="other", path="a.md")
    played = play(root, [READ, other, DONE], settings={"skills.max_loaded": 1})
    assert result_text(played).count("unloaded to make room: demo") == 1
    assert not [each["text"] for each in played.of("note_appended") if each["kind"] == "skill"]


@pytest.mark.parametrize("path", ["references/more.md", "SKILL.md"])
def test_a_load_whose_text_was_above_is_gone_in_the_next_turn(root: Path, path: str) -> None:
    other = call("skill_read", skill="other", path="a.md")
    again = call("skill_read", skill="demo", path=path)
    played = play(root, [READ, other, again, DONE, DONE], "one", "two", settings={"skills.max_loaded": 1})
    last = played.texts(4)[-3][1]
    assert last.startswith("loaded: demo (unloaded after that turn; load it again") and last.count("loaded: demo") == 1


def test_reads_that_are_made_at_the_same_time_load_a_skill_once(root: Path) -> None:
    reads = [("skill_read", {"skill": "demo", "path": path}) for path in ("references/more.md", "scripts/say.sh")]
    played = play(root, [calls(*reads, ("skill_read", {"skill": "other", "path": "a.md"})), DONE])
    assert [each["id"] for each in played.of("skill_loaded")] == ["explicit:demo", "explicit:other"]
    assert played.text().count("DEMO-BODY") == 1
    assert in_order(played.text(), "DEMO-BODY", "MORE", "said $1", "OTHER-BODY", "OTHER-DOC")


@pytest.mark.parametrize("load_mode", ["turn", "once", "session"])
@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_in_every_load_mode_and_placement(root: Path, load_mode: str, placement: str) -> None:
    again = call("skill_read", skill="demo", path="scripts/say.sh")
    replies = [READ, again, DONE, again, DONE]
    played = play(root, replies, "one", "two", load_mode=load_mode, placement=placement)
    assert [each["reason"] for each in played.of("skill_loaded")] == ["implicit:skill_read"], "it stays in use"
    assert in_order(played.text(1), "DEMO-BODY", "</skill_content>", "MORE") and played.text(1).count("DEMO-BODY") == 1
    role = {"tool_result": "tool", "system": "system"}[placement]
    assert [who for who, text in played.texts(1) if "DEMO-BODY" in text] == [role]
    assert played.text(2).count("DEMO-BODY") == (load_mode != "once" or placement == "tool_result")
    assert played.text(4).count("DEMO-BODY") == (load_mode == "session")
    assert "loaded: demo" in result_text(played, 4), "the result of the first turn is still what it was"


@isolated
@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_a_later_turn_is_told_that_the_body_is_gone_and_not_that_it_is_above(root: Path, placement: str) -> None:
    played = play(root, [RUN, DONE, DONE], "one", "two", load_mode="turn", placement=placement)
    assert "text, which is above" in result_text(played, 1)
    gone = "loaded: demo (unloaded after that turn; load it again if you need it)"
    assert result_text(played, 2) == f"{gone}\nsaid hi", "the result of the program stays as it is"


@isolated
def test_a_body_that_was_unloaded_is_not_said_to_be_above(root: Path) -> None:
    replies = [RUN, call("skill_unload", skill="demo"), DONE, DONE]
    played = play(root, replies, "one", "two", load_mode="session")
    assert "text, which is above" in result_text(played, 1) and "text, which is above" not in result_text(played, 3)


def test_structured_actions(root: Path) -> None:
    action = {"type": "load_resource", "skill": {"name": "demo"}, "relative_path": "references/more.md"}
    final = {"action": {"type": "final_answer", "content": "done"}}
    played = play(root, [{"action": action}, final], wrap=StructuredActions)
    assert steps(played)[1:5] == loading("a1", "skill_read")
    assert in_order(played.text(), "Observation (load_resource demo):\nloaded: demo", "DEMO-BODY", "MORE")


# --- child runs -------------------------------------------------------------------------------------------------------


def test_a_child_run_loads_as_its_parent_does(root: Path) -> None:
    played = play(root, [call("skill_load", skill="apart"), READ, {"text": "read"}, DONE])
    loaded = [(each["id"], each["trigger"], each["reason"]) for each in played.of("skill_loaded")]
    assert loaded == [("explicit:apart", "nested", None), ("explicit:demo", "model", "implicit:skill_read")]
    assert in_order(played.text(2), "APART-BODY", "DEMO-BODY", "MORE")
    assert "DEMO-BODY" not in played.text(3), "the parent sees the answer"


def test_a_skill_that_works_apart_is_done_by_a_child_run(root: Path) -> None:
    """The load starts it, as a load does; then there is nothing for the call to do."""
    played = play(root, [call("skill_run", skill="apart", command="ls"), {"text": "child's answer"}, DONE])
    first = played.of("model_replied")[0]["calls"][0]["id"]
    acted = {each["call_id"]: each["outcome"] for each in played.of("call_acted")}
    assert acted[first]["status"] == "ok" and "child" not in acted[first]["data"]
    assert result_text(played).startswith("The skill is done by a child run.\nThe call itself was not made.")
    assert played.text().count("child's answer") == 1 and played.result.stop_reason == "answer"


# --- a process that dies ----------------------------------------------------------------------------------------------


@isolated
def test_for_every_event_that_a_process_dies_at(root: Path) -> None:
    """Between the load and the call, too: the next process makes the call, and the model reads the same."""
    log = MemoryEventLog()
    replies = [RUN, DONE]
    whole = play(root, replies, log=log, session="s")
    wanted = result_text(whole)
    first = whole.of("model_replied")[0]["calls"][0]["id"]
    events = [each for each in whole.envelopes if not each.event.type.endswith("_delta")]
    replied = next(n for n, each in enumerate(events, 1) if each.event.type == "model_replied")
    ended = next(n for n, each in enumerate(events, 1) if is_acted(each, first))
    outcomes: list[str] = []
    for number in range(replied, ended):
        resumed = play(root, [DONE], {"resume": True}, log=cut(events[:number]), session="s")
        assert resumed.result.stop_reason == "answer"
        acted = {each["call_id"]: each["outcome"] for each in resumed.of("call_acted")}
        outcomes.append(acted[first]["status"])
        assert resumed.text().count("DEMO-BODY") == 1, number
        if acted[first]["status"] == "ok":
            assert same_run(result_text(resumed), wanted), number
            assert not resumed.of("approval_asked")
    assert outcomes[:4] == ["ok"] * 4 and set(outcomes[5:]) == {"interrupted"}, "only a call that had begun is not made"


@isolated
def test_a_call_that_a_process_died_in_keeps_the_place_of_the_instructions(root: Path) -> None:
    """They stand in the result of the call, so the next request extends the one before it."""
    whole = play(root, [RUN, DONE], log=MemoryEventLog(), session="s", load_mode="session")
    events = [each for each in whole.envelopes if not each.event.type.endswith("_delta")]
    first = whole.of("model_replied")[0]["calls"][0]["id"]
    ended = next(n for n, each in enumerate(events) if is_acted(each, first))
    resumed = play(root, [DONE], {"resume": True}, log=cut(events[:ended]), session="s", load_mode="session")
    assert result_text(resumed).startswith("loaded: demo\n<skill_content")
    assert in_order(result_text(resumed), "DEMO-BODY", "interrupted [interrupted]")
    assert [role for role, text in resumed.texts() if "DEMO-BODY" in text] == ["tool"]
    before = resumed.of("epoch_started")[0]["first_changed"]
    assert before == whole.of("model_requested")[0]["bytes"]


def test_no_call_has_the_id_of_the_load_of_another(root: Path) -> None:
    """Else a process that goes on would take the load for its result, and not make it."""
    write = {"id": "a-load", "tool": "write_file", "args": {"path": "work/a.txt", "content": "A"}}
    replies = [{"calls": [{**READ["calls"][0], "id": "a"}, write]}, DONE]
    whole = play(root, replies, log=MemoryEventLog(), session="s")
    events = [each for each in whole.envelopes if not each.event.type.endswith("_delta")]
    ended = next(n for n, each in enumerate(events, 1) if is_acted(each, "a"))
    resumed = play(root, [DONE], {"resume": True}, log=cut(events[:ended]), session="s")
    assert [each["call"]["tool"] for each in resumed.of("call_planned")] == ["write_file"]


def is_acted(envelope: Envelope, call_id: str) -> bool:
    return envelope.event.type == "call_acted" and envelope.event.call_id == call_id


def same_run(one: str, other: str) -> bool:
    """The same text up to the result of the program, which has times in it."""
    return one.partition("</skill_content>")[0] == other.partition("</skill_content>")[0] and "said hi" in one


def cut(envelopes: list[Envelope]) -> MemoryEventLog:
    """The log of a process that died after these events."""

    async def work() -> MemoryEventLog:
        log = MemoryEventLog()
        key = SessionKey(session="s")
        lease = await log.lease(key, owner="who died")
        await log.append(key, 0, lease, envelopes)
        return log

    return asyncio.run(work())


# --- an agent that is not ours ----------------------------------------------------------------------------------------


def test_a_kit_gives_the_instructions_before_the_result(root: Path) -> None:
    with prowess.SkillKit(root, store="memory:") as kit, kit.session("s") as session:
        read = session.call_sync("skill_read", {"skill": "demo", "path": "references/more.md"})
        assert read.ok and read.content.startswith("loaded: demo\n\n<skill_content")
        assert in_order(read.content, "DEMO-BODY", "</skill_content>", "MORE")
        again = session.call_sync("skill_read", {"skill": "demo", "path": "references/more.md"})
        assert "DEMO-BODY" not in again.content and "MORE" in again.content
        gone = session.call_sync("skill_read", {"skill": "other", "path": "gone.md"})
        assert gone.code == "resource-not-found" and in_order(gone.content, "OTHER-BODY", "failed [resource-not-found]")


def test_a_kit_whose_call_would_ask(root: Path) -> None:
    asked: list[str] = []

    def approve(call: ToolCall, decision: Decision) -> str:
        asked.append(call.tool)
        return "once"

    args = {"skill": "demo", "command": "bash scripts/say.sh hi"}
    with prowess.SkillKit(root, store="memory:", executor="local", approve=approve, prefix="my_") as kit:
        first = kit.call_sync("my_skill_run", args, id="c1")
        assert first.code == "call-again" and in_order(first.content, "DEMO-BODY", "It was not made yet") and not asked
        second = kit.call_sync("my_skill_run", args, id="c1")
        assert second.ok and asked == ["skill_run"] and "DEMO-BODY" not in second.content


def test_a_kit_foresees_the_load_and_the_call(root: Path) -> None:
    run = {"skill": "narrow", "command": "ls"}
    with prowess.SkillKit(root, store="memory:", executor="local") as kit:
        assert kit.decide_sync("skill_run", run).rule == "allowed-tools:explicit:narrow"
        assert kit.decide_sync("skill_run", {**run, "skill": "demo"}).verdict == "ask"
        assert kit.decide_sync("skill_read", {"skill": "demo", "path": "a.md"}).verdict == "allow"
        assert kit.decide_sync("skill_run", {**run, "skill": "demmo"}).rule == "skill-not-found"
    with prowess.SkillKit(root, store="memory:", settings={"skills.require_load": True}) as kit:
        assert kit.decide_sync("skill_run", run).rule == "skill-not-loaded"
        assert kit.call_sync("skill_run", run).code == "skill-not-loaded"
