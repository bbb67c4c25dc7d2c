"""The loop: decide, act, observe, until there is an answer, a limit, a pause or a cancel; and it always says which."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import Played, call, calls, open_session, play
from guard import GUARD_S
from kits import yes
from prowess._internal.json_values import INVALID_JSON, parse_object
from prowess.agent.agent import Limits
from prowess.agent.model_call import RetryPolicy
from prowess.core.events import ModelReplied, ModelRequested, ModelRetried, TextDelta
from prowess.core.values import Outcome, ToolCall, ToolSpec
from prowess.errors import ConfigError, ModelError, ModelMalformed, ModelOverloaded, SkillDenied, SkillNotFound
from prowess.models.actions.model import StructuredActions
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import open_runtime
from prowess.stores.memory import MemoryEventLog
from prowess.tools.base import PlainTool
from prowess.tools.function import tool
from prowess.tools.toolset import Tools


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    script = {"scripts/say.sh": 'mkdir -p out; echo "said $1" | tee out/said.txt\n'}
    make_skill(folder / "demo", body="Run: bash scripts/say.sh WORD\n", description="Says words.", files=script)
    make_skill(folder / "other", body="OTHER-BODY\n", description="Does other things.")
    return folder


@pytest.mark.needs("isolation")
def test_the_whole_stream_of_a_run(root: Path) -> None:
    script = [
        calls(
            ("update_plan", {"plan": {"goal": "say", "steps": [{"id": "s1", "title": "load"}]}}),
            ("skill_load", {"skill": "demo"}),
        ),
        call("skill_run", skill="demo", command="bash scripts/say.sh hi", output_files=["out/said.txt"]),
        {"text": "It said hi."},
    ]
    played = play(root, script, "say hi")
    assert played.kinds == [
        "run_started",
        *("epoch_started", "catalog_planned", "model_requested", "model_replied"),
        *("call_planned", "call_decided", "plan_changed", "call_acted"),
        *("call_planned", "call_decided", "skill_loaded", "call_acted"),
        *("model_requested", "model_replied"),
        *("call_planned", "call_decided", "call_acted"),
        *("model_requested", "model_replied"),
        "run_finished",
    ]
    result = played.result
    assert (result.text, result.stop_reason) == ("It said hi.", "answer")
    assert [file.name for file in result.files] == ["out/said.txt"]
    assert result.usage.requests == 3 and result.usage.input > 0
    assert result.plan is not None and result.plan.goal == "say"
    assert played.of("run_finished")[0]["usage"]["requests"] == 3


def noted(played: Played) -> list[tuple[str, str]]:
    """Kind and text of every note."""
    return [(event["kind"], event["text"]) for event in played.of("note_appended")]


def test_a_model_is_told_once_that_a_limit_is_near(root: Path) -> None:
    plan = {"goal": "say", "steps": [{"id": "s1", "title": "first"}]}
    script = [call("update_plan", plan=plan), *[call("skill_load", skill="demo")] * 4, {"text": "done"}]
    played = play(root, script, limits=Limits(turns=6, calls=5))
    assert noted(played) == [
        ("limit:turns", "<note>3 turns left after this one.</note>"),
        (
            "limit:turns:last",
            "<note>This is the last turn: answer now with what you have; do not make up values.</note>",
        ),
        ("limit:calls", "<note>1 call left.</note>"),
    ]
    assert [event["call_id"] for event in played.of("note_appended")] == ["c2", "c5", "c5"]
    ((_, result),) = [(role, text) for role, text in played.texts(2) if "3 turns left" in text]
    assert result.startswith("loaded: demo") or "already loaded" in result
    assert "3 turns left" in played.text(5), "a note stays"
    assert "Plan" not in played.text(), "the model has its plan in its own call"


def test_a_model_that_has_no_calls_left_is_told_to_answer(root: Path) -> None:
    load = call("skill_load", skill="demo")
    played = play(root, [load, load, {"text": "done"}], limits=Limits(calls=2))
    (note,) = noted(played)
    assert note == (
        "limit:calls:last",
        "<note>No calls left: answer now with what you have; do not make up values.</note>",
    )
    assert played.result.ok


def test_a_request_that_is_answered_at_once_has_no_note(root: Path) -> None:
    played = play(root, [{"text": "done"}, {"text": "done"}], "one", "two")
    assert noted(played) == []
    assert [role for role, _ in played.texts()] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("limits", "stop", "done"),
    [
        ({"turns": 2}, "limit:turns", 2),
        ({"calls": 2}, "limit:calls", 2),
        ({"scripts": 1}, "limit:scripts", 1),
        ({"tokens": 10}, "limit:tokens", 1),
    ],
)
def test_at_a_limit_there_is_a_partial_answer(root: Path, limits: dict[str, Any], stop: str, done: int) -> None:
    run = ("skill_run", {"skill": "demo", "command": "bash scripts/say.sh hi"})
    script = [calls(("skill_load", {"skill": "demo"}), run)] + [calls(run)] * 12
    played = play(root, script, limits=Limits(**limits))
    assert played.result.stop_reason == stop
    assert f"the limit of {next(iter(limits.values()))}" in played.result.report
    assert "Done:" in played.result.report and "loaded: demo" in played.result.report
    assert sum(outcome["status"] == "ok" for outcome in played.outcomes) >= done
    assert all(event["call_id"] for event in played.of("call_acted"))


def test_a_call_beyond_the_limit_is_answered_and_not_made(root: Path) -> None:
    run = ("skill_run", {"skill": "demo", "command": "bash scripts/say.sh hi"})
    script = [call("skill_load", skill="demo"), calls(run, run, run)]
    played = play(root, script, limits=Limits(scripts=1))
    assert [outcome["code"] for outcome in played.outcomes] == [None, None, "limit:scripts", "limit:scripts"]
    assert len(played.of("call_planned")) == 2
    assert "Not done:" in played.result.report


def test_seconds_end_a_call_that_is_under_way(root: Path) -> None:
    script = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="sleep 100")]
    played = play(root, script, limits=Limits(seconds=1.5))
    assert played.result.stop_reason == "limit:seconds"
    assert played.outcomes[-1]["status"] == "interrupted"


def test_a_plan_may_tighten_limits_and_never_widen_them(root: Path) -> None:
    plan = {"goal": "g", "steps": [], "constraints": {"max_turns": 2, "max_tool_calls": 500}}
    played = play(root, [call("update_plan", plan=plan), call("skill_load", skill="demo"), {"text": "no"}])
    assert played.result.stop_reason == "limit:turns"
    assert "limit of 2 turns" in played.result.report
    wider = {"goal": "g", "steps": [], "constraints": {"max_turns": 50}}
    script = [call("update_plan", plan=wider), *[call("skill_list_docs", skill="demo")] * 3]
    played = play(root, script, limits=Limits(turns=3))
    assert played.result.stop_reason == "limit:turns" and len(played.model.requests) == 3


def test_money_counts_where_prices_are_known(root: Path) -> None:
    prices = {"prices": {"scripted": {"input": 1_000_000, "output": 1_000_000}}}
    script = [call("skill_load", skill="demo"), {"text": "no"}]
    played = play(root, script, settings=prices, limits=Limits(cost=5))
    assert played.result.stop_reason == "limit:cost"
    assert (played.result.usage.cost or 0) > 5
    with pytest.raises(ConfigError, match="no price"):
        play(root, [], limits=Limits(cost=5))


# --- calls ----------------------------------------------------------------------------------------------------------


def test_neighbours_that_only_read_run_together_and_end_in_their_order(root: Path) -> None:
    arrived: list[str] = []
    both = asyncio.Event()

    @tool(read_only=True)
    async def look(name: str) -> Outcome:
        """Look at something."""
        arrived.append(name)
        if len(arrived) == 3:
            both.set()
        await asyncio.wait_for(both.wait(), GUARD_S)
        if name == "a":
            await asyncio.sleep(0.05)  # the first is the slowest
        return Outcome(status="ok", content=name, state_delta={"last": name})

    @tool
    def touch() -> str:
        """Change something."""
        arrived.append("touch")
        return "touched"

    together = [("look", {"name": name}) for name in "abc"]
    script = [calls(*together, ("touch", {})), {"text": "done"}]
    played = play(root, script, toolsets=[Tools(look, touch)])
    assert sorted(arrived[:3]) == ["a", "b", "c"] and arrived[3] == "touch"
    assert [outcome["content"] for outcome in played.outcomes] == ["a", "b", "c", "touched"]
    assert [text for role, text in played.texts() if role == "tool"] == ["a", "b", "c", "touched"]
    assert (played.result.state or {})["last"] == "c"


def test_malformed_calls_go_back_to_the_model(root: Path) -> None:
    odd = ModelReplied(
        calls=(
            ToolCall(id="x", tool="skill_load", args={"arguments": "{not json"}),
            ToolCall(id="x", tool="no_such_tool", args={}),
            ToolCall(id="y", tool="skill_load", args={"skill": float("nan")}),
            ToolCall(id="", tool="skill_load", args={"skill": "demo\ud800"}),
        ),
        finish="calls",
    )
    played = play(root, [odd, {"text": "I see."}])
    assert [outcome["code"] for outcome in played.outcomes] == [
        *["invalid-call"] * 2,
        *["invalid-json"] * 2,
    ]
    assert "'skill' is required" in played.outcomes[0]["content"]
    assert "There are: " in played.outcomes[1]["content"]
    ids = [event["call_id"] for event in played.of("call_acted")]
    assert len(set(ids)) == 4, "an id is used once"
    assert played.result.ok


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ('{"skill": "demo", "docs": 1e999}', "1e999 is too large a number"),
        ('{"skill": "demo\\ud83d"}', "half of a surrogate pair"),
        ('{"skill": "demo", "docs": ' + "[" * 970 + "]" * 970 + "}", "it is nested too deeply"),
    ],
)
def test_arguments_that_no_log_can_store_are_told_and_kept(root: Path, sent: str, why: str) -> None:
    played = play(root, [call("skill_load", **parse_object(sent)), {"text": "I see."}])
    assert why in played.outcomes[0]["content"] and played.result.ok
    assert played.of("model_replied")[0]["calls"][0]["args"] == {INVALID_JSON: sent}


def test_a_tool_that_raises_and_a_result_of_five_megabytes(root: Path) -> None:
    @tool
    def burst() -> str:
        """Break."""
        raise ZeroDivisionError("by zero")

    @tool
    def shout() -> str:
        """Say much."""
        return "start" + "x" * 5_000_000 + "end"

    script = [calls(("burst", {}), ("shout", {})), {"text": "done"}]
    played = play(root, script, toolsets=[Tools(burst, shout)])
    first, second = played.outcomes
    assert first["code"] == "tool-raised" and "ZeroDivisionError: by zero" in first["content"]
    assert second["status"] == "ok" and len(second["content"]) < 70_000
    assert second["content"].startswith("start") and second["content"].endswith("end")
    assert "read_file artifact://outputs/" in second["content"]


def test_a_tool_named_like_a_skill_is_that_skill(root: Path) -> None:
    script = [
        call("demo", text="hello"),
        call("Skill", skill="other"),
        call("Skill(demo)"),
        {"text": "done"},
    ]
    played = play(root, script)
    first, second, third = played.outcomes
    assert "'demo' is a skill, not a tool" in first["content"] and "loaded: demo" in first["content"]
    assert first["data"]["arguments"] == "hello"
    assert "Skill is called skill_load here." in second["content"]
    assert "already loaded" in third["content"]
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["model"] * 3


def test_the_fourth_failure_alike_is_refused_with_the_real_names(root: Path) -> None:
    wrong = call("skill_load", skill="nope")
    played = play(root, [wrong, wrong, wrong, wrong, call("skill_load", skill="demo"), {"text": "done"}])
    codes = [outcome["code"] for outcome in played.outcomes]
    assert codes == ["skill-not-found"] * 3 + ["repeat-failure", None]
    refusal = played.outcomes[3]
    assert "failed 3 times running" in refusal["content"] and "demo, other" in refusal["hint"]
    assert "repeat-failure" in played.text(4)


def test_what_failed_three_times_stays_refused_until_something_else_was_done(root: Path) -> None:
    wrong, other = call("skill_load", skill_name="nope"), call("skill_load", skill="no")
    plan = call("update_plan", plan={"goal": "g", "steps": []})
    played = play(root, [*[wrong] * 7, other, wrong, plan, wrong, {"text": "done"}])
    codes = [outcome["code"] for outcome in played.outcomes]
    failed, refused = "skill-not-found", "repeat-failure"
    assert codes == [failed] * 3 + [refused] * 4 + [failed, refused, None, failed]
    assert "Skills: " in played.outcomes[3]["hint"]
    assert played.outcomes[4]["hint"] == "Do something else, or say what is in the way.", "the names were told once"
    alias = play(root, [call("skill_load", skill="demo"), *[call("Read", file_name="none")] * 6, {"text": "done"}])
    assert [outcome["code"] for outcome in alias.outcomes[4:]] == [refused] * 3


def test_a_call_that_the_length_limit_cut_is_told_so(root: Path) -> None:
    def cut(*calls: ToolCall, finish: Any = "length") -> ModelReplied:
        return ModelReplied(calls=calls, finish=finish)

    half = ToolCall(id="a2", tool="skill_run", args={"INVALID_JSON": '{"skill": "demo", "command": "echo '})
    whole = ToolCall(id="a1", tool="skill_load", args={"skill": "demo"})
    nothing = ToolCall(id="a3", tool="skill_load", args={})
    other = ToolCall(id="a4", tool="skill_load", args={"skill": "other"})
    garbage = ToolCall(id="a5", tool="skill_run", args={"INVALID_JSON": "]["})
    replies = [cut(whole, half), cut(nothing), cut(other), cut(garbage, finish="calls"), {"text": "done"}]
    played = play(root, replies)
    by_call = {event["call_id"]: event["outcome"] for event in played.of("call_acted")}
    assert [by_call[f"a{n}"]["code"] for n in range(1, 6)] == [None, "cut-off", "cut-off", None, "invalid-json"]
    assert "skill_run was cut off by the length limit" in played.text() and "shorter" in by_call["a2"]["hint"]
    assert "INVALID_JSON" not in played.text(), "the model is not told of an argument that it never sent"


def test_arguments_that_are_no_json_are_told_with_the_place(root: Path) -> None:
    sent = [
        '{"skill": "demo" "docs": []}',
        '{"skill": "demo", "docs": [',
        '["demo"]',
        '{"skill": "demo", "n": NaN}',
        '{"skill": "de\nmo"}',
    ]
    replies = [call("skill_load", INVALID_JSON=text) for text in sent]
    other = call("update_plan", plan={"goal": "g", "steps": []})
    again = call("skill_load", INVALID_JSON='{"skill": "demo"}')  # as it was shown to the model
    story = [*replies[:2], other, *replies[2:4], other, replies[4], again, {"text": "done"}]
    played = play(root, story)
    told = [outcome for outcome in played.outcomes if outcome["code"] == "invalid-json"]
    why = [outcome["content"].removeprefix("The arguments of skill_load are not valid JSON: ") for outcome in told]
    assert why == [
        """Expecting ',' delimiter at character 18 of 28, after `{"skill": "demo" `, before `"docs": []}`.""",
        """Expecting value at its end, after `kill": "demo", "docs": [`.""",
        "it is a list, and must be an object: {…}.",
        "NaN is no JSON.",
        """Invalid control character at character 14 of 18, after `{"skill": "de`, before `<U+000A>mo"}`.""",
    ]
    assert ["shorter" in outcome["hint"] for outcome in told] == [False, True, False, False, False]
    assert played.outcomes[-1]["content"] == "loaded: demo"
    history = [each.args for message in played.model.requests[-1][0] for each in message.calls]
    assert {"INVALID_JSON": sent[0]} in history, "the model sees what it sent"


def test_a_tool_that_takes_anything_gets_no_arguments_that_are_no_json(root: Path) -> None:
    class Anything(PlainTool):
        spec = ToolSpec(name="anything", description="Takes anything.")

        def normalise(self, args: Any) -> dict[str, Any]:
            return dict(args)

        async def call(self, args: Any, within: Any) -> Outcome:
            return Outcome(status="ok", content=f"took {args}")

    story = [call("anything", INVALID_JSON="{"), call("anything", n=1), {"text": "done"}]
    played = play(root, story, toolsets=[Tools(Anything())])
    assert [outcome["code"] for outcome in played.outcomes] == ["invalid-json", None]


def test_an_error_names_only_what_the_model_was_told(root: Path) -> None:
    wrong = call("skill_run", skill="demo", nonsense="ls")
    story = [call("skill_load", skill="demo"), wrong, call("skill_runn"), {"text": "done"}]
    for profile, told in (("lean", "skill, command, script, args, output_files"), ("full", "artifact_prefix, install")):
        played = play(root, story, settings={"tools.profile": profile, "workspace.executor": "local"})
        first, second = [outcome["content"] for outcome in played.outcomes[1:]]
        assert first.startswith("skill_run: there is no 'nonsense'. Its arguments: skill, command") and told in first
        assert ("timeout" in first) == (profile == "full")
        assert second.startswith("There is no tool 'skill_runn'. Did you mean skill_run? There are: skill_load, ")
        assert ("skill_kill_session" in second) == (profile == "full")
    read_only = play(root, story, settings={"workspace.executor": "none"})
    assert "skill_run" not in read_only.outcomes[2]["content"].partition("There are:")[2]


def test_a_file_of_the_workspace_is_not_one_of_the_skill(root: Path, tmp_path: Path, make_skill: Any) -> None:
    make_skill(root / "ships", files={"out/own.md": "of the skill\n"})
    write = call("skill_run", skill="demo", command="echo made > out/made.md; echo b >> out/made.md")
    reads = [
        call("skill_read", skill="demo", path="out/made.md", section="Nothing", num_lines=1),
        call("load_resource", skill="demo", relative_path="./out/made.md"),
        call("skill_read", skill="ships", path="out/own.md"),
    ]
    loads = [call("skill_load", skill="demo"), call("skill_load", skill="ships")]
    story = [loads[0], write, loads[1], *reads, {"text": "done"}]
    local = {"workspace.executor": "local"}
    played = play(root, story, settings=local)
    assert [outcome["content"] for outcome in played.outcomes[3:5]] == ["made\n[lines 1-1 of 2]", "made\nb"]
    assert "of the skill" in played.outcomes[5]["content"]
    policy = tmp_path / "project" / ".agent" / "policy.toml"
    policy.parent.mkdir(parents=True)
    policy.write_text('[[rule]]\ntool = "read_file"\nargs.file_name = "out/*"\nverdict = "deny"\n')
    denied = play(root, story, settings=local, cwd=tmp_path / "project")
    assert [outcome["status"] for outcome in denied.outcomes[3:]] == ["denied", "denied", "ok"]


def test_unknown_skills_are_answered_with_what_comes_near(root: Path, tmp_path: Path) -> None:
    played = play(root, [call("skill_load", skill="demos"), {"text": "done"}])
    assert "Did you mean: demo" in played.outcomes[0]["content"]
    (tmp_path / "none").mkdir()
    played = play(tmp_path / "none", [call("skill_load", skill="demo"), {"text": "done"}])
    assert "No skills are installed." in played.outcomes[0]["content"]
    names = [spec.name for spec in played.model.requests[0][1]]
    assert names == [] and played.texts(0)[0][0] == "user", "no skills: nothing is said about them"


def test_too_many_bodies_and_who_coordinates(root: Path, make_skill: Any) -> None:
    make_skill(
        root / "lead",
        front="name: lead\ndescription: Leads.\nmetadata:\n  role: coordinator\n",
        body="LEAD-BODY\n",
    )
    script = [
        calls(*(("skill_load", {"skill": name}) for name in ("demo", "other", "lead"))),
        call("skill_load", skill="other"),
        {"text": "done"},
    ]
    played = play(root, script)
    by_call = {event["call_id"]: event["outcome"] for event in played.of("call_acted")}
    assert [by_call[id]["code"] for id in ("c1", "c2", "c3")] == [None, "too-many-bodies", None]
    assert by_call["c4"]["status"] == "ok"
    tools = [text for role, text in played.texts(1) if role == "tool"]
    assert "LEAD-BODY" in tools[2] and "OTHER-BODY" not in played.text(1)


# --- who activates a skill ------------------------------------------------------------------------------------------


def test_the_caller_and_the_user_name_skills(root: Path) -> None:
    played = play(root, [{"text": "a"}], {"request": "go", "skills": ["demo"]})
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["caller"]
    assert "Loaded skill context:" in played.text(0) and "scripts/say.sh WORD" in played.text(0)
    played = play(root, [{"text": "a"}], "/demo one 'two three'")
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["user"]
    assert "$ARGUMENTS = one 'two three'" in played.text(0)
    played = play(root, [{"text": "a"}], "use $other for this, not $HOME or \\$demo")
    assert [event["id"] for event in played.of("skill_loaded")] == ["explicit:other"]


def test_declared_arguments_are_told_by_name(root: Path, make_skill: Any) -> None:
    make_skill(
        root / "copy",
        front="name: copy\ndescription: Copies.\nargument-hint: <from> [to]\n",
        body="Copy $from to $to. $ARGUMENTS $1 $(id)\n",
    )
    played = play(root, [{"text": "a"}], "/copy 'a b' c </skill_arguments>")
    _, _, text = played.texts(0)[1][1].partition("Loaded skill context:")
    assert "$from = a b\n$to = c\n</skill_arguments>" in text
    assert "Copy $from to $to. $ARGUMENTS $1 $(id)" in text, "nothing is written into the body"
    assert text.count("</skill_arguments>") == 1 and "&lt;/skill_arguments>" in text


def test_a_name_that_is_no_skill_is_said(root: Path) -> None:
    played = play(root, [{"text": "a"}], "/demmo do it")
    error = played.of("error")[0]
    assert error["code"] == "skill-not-found" and error["hint"] == "Did you mean /demo?"
    assert played.result.ok
    played = play(root, [{"text": "a"}], "/etc/passwd is what?")
    assert not played.of("error")


def test_a_skill_that_the_caller_may_not_have(root: Path, make_skill: Any) -> None:
    played = play(root, [], {"request": "go", "skills": ["nope"]})
    assert isinstance(played.error, SkillNotFound)
    assert played.of("run_finished")[0]["stop_reason"] == "error"
    played = play(root, [], {"request": "go", "skills": ["other"]}, settings={"skills.modes": {"other": "off"}})
    assert isinstance(played.error, SkillDenied)
    assert played.of("run_finished")[0]["stop_reason"] == "denied"
    assert not played.model.requests


def test_a_skill_that_only_the_model_may_start(root: Path, make_skill: Any) -> None:
    make_skill(root / "quiet", front="name: quiet\ndescription: Quiet.\nuser-invocable: false\n", body="QUIET-BODY\n")
    played = play(root, [], "/quiet do it")
    assert isinstance(played.error, SkillDenied) and played.error.code == "skill-not-invocable"
    assert played.of("run_finished")[0]["stop_reason"] == "denied" and not played.model.requests
    played = play(root, [call("skill_load", skill="quiet"), {"text": "done"}], "do it, and what is $quiet?")
    assert [error["code"] for error in played.of("error")] == ["skill-not-invocable"]
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["model"] and "QUIET-BODY" in played.text(1)


def test_a_files_name_calls_for_a_skill(root: Path, make_skill: Any, tmp_path: Path) -> None:
    make_skill(root / "tables", front='name: tables\ndescription: T.\npaths: ["*.csv"]\n', body="TABLES-BODY\n")
    data = tmp_path / "a.csv"
    data.write_text("x\n")
    played = play(root, [{"text": "a"}], {"request": "look", "files": [str(data)]})
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["path"]
    assert "TABLES-BODY" in played.text(0) and "- inputs/a.csv" in played.text(0)
    script = [
        call("skill_load", skill="demo"),
        call("skill_run", skill="demo", command="echo 1 > out/b.csv"),
        {"text": "done"},
    ]
    played = play(root, script)
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["model", "path"]
    assert played.texts(2)[-1][0] == "tool" and "TABLES-BODY" in played.texts(2)[-1][1], "in the result of skill_run"


def test_a_skill_that_another_one_displaced_is_told(root: Path, make_skill: Any) -> None:
    make_skill(root / "tables", front='name: tables\ndescription: T.\npaths: ["*.csv"]\n', body="TABLES-BODY\n")
    run = call("skill_run", skill="demo", command="echo 1 > out/b.csv")
    script = [call("skill_load", skill="demo"), run, call("skill_load", skill="other"), {"text": "done"}]
    played = play(root, script, settings={"skills.max_loaded": 1})
    assert noted(played) == [("skill", "<note>demo was unloaded. Do not follow it any more.</note>")]
    assert played.texts(2)[-1][0] == "tool" and "demo was unloaded" in played.texts(2)[-1][1]
    assert "unloaded to make room: tables" in played.texts(3)[-1][1], "a result of the model's own call says it itself"


def test_a_catalog_that_changed_is_told_with_the_next_request(root: Path, make_skill: Any) -> None:
    @tool
    def late() -> str:
        """Come later."""
        return "late"

    log = MemoryEventLog()
    given = {"log": log, "session": "s"}
    play(root, [{"text": "one"}], "first", **given)
    make_skill(root / "third", body="B\n", description="Third.")
    shutil.rmtree(root / "other")
    played = play(root, [{"text": "two"}], "second", toolsets=[Tools(late)], **given)
    assert noted(played) == [("catalog", "<note>Skills new: third. Skills gone: other. Tools new: late.</note>")]
    assert played.texts()[-1] == ("user", f"second\n{noted(played)[0][1]}")


def test_reading_a_skill_file_is_loading_the_skill(root: Path) -> None:
    played = play(root, [call("read_file", file_name=str(root / "demo" / "SKILL.md")), {"text": "done"}])
    assert [event["id"] for event in played.of("skill_loaded")] == ["explicit:demo"]
    assert played.text(1).count("scripts/say.sh WORD") == 1


# --- child runs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def with_child(root: Path, make_skill: Any) -> Path:
    make_skill(
        root / "helper",
        front="name: helper\ndescription: Helps.\nrun-mode: subagent\nallowed-tools: [read_file]\n",
        body="HELPER-BODY\n",
    )
    return root


def test_a_subagent_skill_is_a_run_of_its_own(with_child: Path) -> None:
    script = [
        call("skill_load", skill="helper", arguments="count to three"),
        {"text": "1 2 3"},  # the child's
        {"text": "It counted: 1 2 3"},
    ]
    played = play(with_child, script, "please count")
    started = played.of("run_started")
    assert [event["parent"] for event in started] == [None, started[0]["run"]]
    assert started[1]["request"] == "count to three"
    assert "HELPER-BODY" in played.text(1) and "HELPER-BODY" not in played.text(2)
    assert [text for role, text in played.texts(2) if role == "tool"] == ["1 2 3"]
    assert played.result.text == "It counted: 1 2 3"
    assert played.result.usage.requests == 3, "what the child used counts"
    assert [event["trigger"] for event in played.of("skill_loaded")] == ["nested"]


def test_a_child_has_at_most_its_parents_permissions(with_child: Path, make_skill: Any) -> None:
    make_skill(
        with_child / "narrow",
        front="name: narrow\ndescription: N.\nallowed-tools: [list_dir]\n",
    )
    make_skill(
        with_child / "wide",
        front="name: wide\ndescription: W.\nrun-mode: subagent\nallowed-tools: [read_file, list_dir]\n",
    )
    script = [
        call("skill_load", skill="narrow"),
        call("skill_load", skill="wide"),
        call("read_file", file_name="work/x"),  # the child's, which its own list allows
        {"text": "child done"},
        {"text": "done"},
    ]
    played = play(with_child, script)
    decided = [event["decision"] for event in played.of("call_decided")]
    assert [d["verdict"] for d in decided] == ["allow", "allow", "allow", "deny"]
    assert "allowed-tools" in decided[-1]["rule"]


def test_a_child_does_not_begin_itself_again_and_depth_ends(with_child: Path, make_skill: Any) -> None:
    again = call("skill_load", skill="helper")
    played = play(with_child, [again, again, {"text": "child"}, {"text": "done"}])
    codes = [outcome["code"] for outcome in played.outcomes]
    assert "self-recursion" in codes and played.result.ok
    for name in ("one", "two", "three"):
        make_skill(with_child / name, front=f"name: {name}\ndescription: D.\nrun-mode: subagent\n")
    script = [
        call("skill_load", skill="one"),
        call("skill_load", skill="two"),
        call("skill_load", skill="three"),
        {"text": "two"},
        {"text": "one"},
        {"text": "done"},
    ]
    played = play(with_child, script)
    assert len(played.of("run_started")) == 3, "the third is loaded into the second child"
    assert any("not possible here" in outcome["content"] for outcome in played.outcomes)


def test_a_child_that_fails_is_an_outcome(with_child: Path) -> None:
    script = [call("skill_load", skill="helper"), ModelError("broken", code="model-broken"), {"text": "went on"}]
    played = play(with_child, script)
    assert played.outcomes[-1]["code"] == "model-broken"
    assert played.result.text == "went on"
    assert [event["stop_reason"] for event in played.of("run_finished")] == ["error", "answer"]


# --- models that fail -----------------------------------------------------------------------------------------------


def play_patiently(root: Path, replies: list[Any], **given: Any) -> tuple[Played, list[float]]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    played = Played(ScriptedModel(replies))

    async def work() -> None:
        async with open_session(root, played.model, on_event=(played.envelopes.append,), **given) as session:
            session._retry_policy = RetryPolicy(sleep=sleep, jitter=lambda: 1.0)
            try:
                played.results.append(await session.run("go"))
            except Exception as error:
                played.error = error

    asyncio.run(work())
    return played, waits


def test_a_model_that_can_be_asked_again_is(root: Path) -> None:
    replies = [
        ModelOverloaded("slow down", retry_after_s=7.0),
        ModelError("gone", retryable=True, code="stream-broken"),
        ModelError("gone", retryable=True, code="stream-broken"),
        {"text": "here"},
    ]
    played, waits = play_patiently(root, replies)
    assert played.result.text == "here"
    assert waits == [7.0, 1.0, 2.0]
    retried = played.of("model_retried")
    assert [event["code"] for event in retried] == ["model-overloaded", "stream-broken", "stream-broken"]
    assert [(event["attempt"], event["tries"], event["wait_s"]) for event in retried] == [
        *((1, 5, 7.0), (2, 5, 1.0), (3, 5, 2.0))
    ]
    assert not played.of("error"), "nothing went wrong in the end"
    assert len(played.of("model_requested")) == 1, "the request is the same one"


class _BreaksOff:
    """Says a part, fails, and says all of it when asked again."""

    name = "breaks-off"

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, messages: Any, tools: Any, *, on_delta: Any = None, schema: Any = None) -> ModelReplied:
        self.asked += 1
        on_delta(TextDelta(text="Half an ans"))
        if self.asked == 1:
            raise ModelOverloaded("busy", retry_after_s=0.0)
        on_delta(TextDelta(text="wer."))
        return ModelReplied(text="Half an answer.")


def test_text_of_a_try_that_failed_can_be_taken_back() -> None:
    async def read() -> str:
        shown = ""
        async for event in prowess.Agent(_BreaksOff(), store="memory:").stream("go"):
            match event.event:
                case ModelRequested() | ModelRetried():
                    shown = ""
                case TextDelta(text=text):
                    shown += text
                case _:
                    pass
        return shown

    assert asyncio.run(read()) == "Half an answer."


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (ModelError("no", code="model-refused"), 1),
        (ModelError("gone", retryable=True, code="stream-broken"), 5),
        (ModelOverloaded("tomorrow", retry_after_s=86_400), 1),
    ],
)
def test_what_cannot_be_helped_is_raised_and_written_down(root: Path, error: ModelError, asked: int) -> None:
    played, _ = play_patiently(root, [error] * asked)
    assert played.error is error
    assert len(played.model.requests) == asked
    finished = played.of("run_finished")[0]
    assert (finished["stop_reason"], finished["code"]) == ("error", str(error.code))


def test_replies_that_are_nothing_or_broke_off(root: Path) -> None:
    played = play(root, [{"text": ""}, {"text": " "}, {"text": "at last"}])
    assert played.result.text == "at last" and "Your reply was empty" in played.text(1)
    played = play(root, [{"text": ""}] * 3)
    assert isinstance(played.error, ModelMalformed) and played.error.code == "empty-reply"
    cut = ModelReplied(text="The first half, ", finish="length")
    played = play(root, [cut, {"text": "and the second."}])
    assert played.result.text == "The first half, and the second."
    played = play(root, [ModelReplied(text="", finish="filter")])
    assert isinstance(played.error, ModelError) and played.error.code == "model-filtered"


def test_a_model_that_returns_garbage_for_ever_meets_a_limit(root: Path) -> None:
    garbage = ModelReplied(calls=(ToolCall(id="c", tool="¿", args={"arguments": "]["}),), finish="calls")
    played = play(root, [garbage] * 25)
    assert played.result.stop_reason == "limit:turns"
    assert "repeat-failure" in [outcome["code"] for outcome in played.outcomes]


# --- people ---------------------------------------------------------------------------------------------------------


def test_nobody_to_ask_means_waiting_and_resume_does_it(root: Path, tmp_path: Path) -> None:
    store = {"store": str(tmp_path / "log.db"), "workspace.executor": "local"}
    run = ("skill_run", {"skill": "demo", "command": "bash scripts/say.sh hi"})
    script = [call("skill_load", skill="demo"), calls(run, ("skill_list_docs", {"skill": "demo"}))]
    waiting = play(root, script, "say hi", settings=store, approver=None, session="s1")
    assert waiting.result.stop_reason == "waiting"
    assert [c.tool for c in waiting.result.waiting] == ["skill_run"], "the one after it waits for nobody"
    assert waiting.outcomes[-1]["data"]["call"]["args"]["command"] == "bash scripts/say.sh hi"
    resumed = play(root, [{"text": "said"}], {"resume": True}, settings=store, approver=yes, session="s1")
    assert resumed.result.text == "said"
    started = resumed.of("run_started")[0]
    assert started["resumes"] == waiting.of("run_started")[0]["run"]
    tools = [text for role, text in resumed.texts() if role == "tool"]
    assert len(tools) == 3 and "said hi" in tools[1] and tools[2] == "(no docs)"
    assert "Says" in resumed.text() or "scripts/say.sh WORD" in resumed.text(), "what was loaded is still in view"


def test_nobody_to_ask_can_mean_no(root: Path) -> None:
    script = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="ls"), {"text": "then not"}]
    played = play(root, script, settings={"workspace.executor": "local"}, approver=None, on_ask="deny")
    assert played.outcomes[-1]["status"] == "denied" and played.result.ok


def test_the_model_asks_the_user(root: Path) -> None:
    async def asker(question: str, choices: Any) -> str | None:
        return f"{question} -> {choices[0]}"

    played = play(root, [call("ask_user", question="Which?", choices=["a", "b"]), {"text": "done"}], asker=asker)
    assert "Which? -> a" in played.outcomes[0]["content"]
    played = play(root, [call("ask_user", question="Which?"), {"text": "done"}])
    assert played.outcomes[0]["code"] == "nobody-to-ask"


def test_cancelling_ends_children_and_is_written_down(root: Path) -> None:
    played = Played(
        ScriptedModel([call("skill_load", skill="demo"), call("skill_run", skill="demo", command="sleep 100")])
    )

    async def work() -> None:
        running = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watch(envelope: Any) -> None:
            played.envelopes.append(envelope)
            if envelope.event.type == "call_decided" and len(played.of("call_decided")) == 2:
                loop.call_soon_threadsafe(running.set)

        async with open_session(root, played.model, on_event=(watch,)) as session:
            task = asyncio.ensure_future(session.run("go"))
            await running.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(work())
    assert played.outcomes[-1]["status"] == "interrupted"
    assert played.of("run_finished")[0]["stop_reason"] == "cancelled"


def test_nothing_runs_without_an_executor(root: Path) -> None:
    script = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="ls"), {"text": "no"}]
    played = play(root, script, settings={"workspace.executor": "none"})
    assert "skill_run" not in [spec.name for spec in played.model.requests[0][1]]
    assert played.outcomes[-1]["code"] == "executor-not-configured"


# --- compaction -----------------------------------------------------------------------------------------------------


def test_near_the_window_old_outputs_become_one_line(root: Path) -> None:
    @tool
    def much(n: int) -> str:
        """Say much."""
        return f"output {n}: " + "word " * 600

    script = [call("skill_load", skill="demo"), *[call("much", n=n) for n in range(6)], {"text": "done"}]
    model = ScriptedModel(script, context_tokens=4_000)
    played = play(root, [], "the request", model=model, toolsets=[Tools(much)])
    compacted = played.of("compacted")
    assert compacted and compacted[0]["after_tokens"] < compacted[0]["before_tokens"]
    assert [event["why"] for event in played.of("epoch_started")][1] == "compacted"
    last = played.text()
    assert "characters were taken out to save room; all of it: read_file artifact://outputs/" in last
    assert "the request" in last and "scripts/say.sh WORD" in last, "request and loaded skills survive"
    assert played.result.ok


def test_after_compaction_the_plan_is_told_once(root: Path) -> None:
    @tool
    def much(n: int) -> str:
        """Say much."""
        return "word " * 600

    plan = {"goal": "say", "steps": [{"id": "s1", "title": "first"}, {"id": "s2", "title": "second"}]}
    script = [call("update_plan", plan=plan), *[call("much", n=n) for n in range(8)], {"text": "done"}]
    played = play(root, [], model=ScriptedModel(script, context_tokens=4_000), toolsets=[Tools(much)])
    told = [event for event in played.of("note_appended") if event["kind"] == "plan"]
    assert len(told) == 1 and len(played.of("compacted")) > 1
    assert told[0]["text"] == "<note>Plan: say\n[ ] s1 first\n[ ] s2 second</note>"
    assert any(told[0]["text"] in text for role, text in played.texts() if role == "tool")


def test_an_overflow_compacts_once(root: Path) -> None:
    @tool
    def much(n: int) -> str:
        """Say much."""
        return f"output {n}: " + "word " * 2000

    full = ModelError("too long", code="context-overflow")
    script = [*[call("much", n=n) for n in range(4)], full, {"text": "done"}]
    played = play(root, script, toolsets=[Tools(much)])
    assert played.result.text == "done" and len(played.of("compacted")) == 1
    played = play(root, [*[call("much", n=n) for n in range(4)], full, full], toolsets=[Tools(much)])
    assert isinstance(played.error, ModelError) and played.error.code == "context-overflow"


def test_earlier_requests_go_with_a_word_or_a_summary(root: Path) -> None:
    long = "lorem ipsum " * 500
    script = [{"text": long}, {"text": long}, {"text": "SUMMARY: two long answers"}, {"text": "third"}]
    model = ScriptedModel(script, context_tokens=3_000)
    played = play(root, [], "one", "two", "three", model=model, summarise=True)
    assert played.results[-1].text == "third"
    assert "Earlier in this conversation:\nSUMMARY: two long answers" in played.text()
    assert "lorem" not in played.text() and "three" in played.text()
    plain = play(
        root, [], "one", "two", "three", model=ScriptedModel([script[0], script[1], script[3]], context_tokens=3_000)
    )
    assert "earlier messages were left out to save room: prowess sessions show" in plain.text()


def test_old_arguments_are_not_replayed(root: Path) -> None:
    @tool
    def much(n: int) -> str:
        """Say much."""
        return "word " * 600

    script = [*[call("much", n=n) for n in range(6)], {"text": "done"}]
    model = ScriptedModel(script, context_tokens=4_000)
    played = play(root, [], "/demo SECRET-ARGUMENT", model=model, toolsets=[Tools(much)])
    assert "$ARGUMENTS = SECRET-ARGUMENT" in played.text(0)
    assert "$ARGUMENTS" not in played.text() and "scripts/say.sh WORD" in played.text()


@pytest.mark.needs("isolation")
def test_code_of_an_answer_runs_only_where_that_is_switched_on(root: Path) -> None:
    answer = {"text": "Do this:\n```bash\necho from-the-answer\n```\n"}
    played = play(root, [call("skill_load", skill="demo"), answer])
    assert len(played.outcomes) == 1
    script = [call("skill_load", skill="demo"), answer, {"text": "done"}]
    played = play(root, script, settings={"tools.code_blocks": True})
    assert "from-the-answer" in played.outcomes[-1]["content"] and "from-the-answer" in played.text()
    assert played.of("call_decided")[-1]["decision"]["rule"] == "table:isolated"


def test_secrets_do_not_reach_the_model_or_the_record(root: Path, make_skill: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("DEMO_TOKEN", "tok-123456789")
    make_skill(
        root / "secret",
        front="name: secret\ndescription: S.\nrequires:\n  env: [DEMO_TOKEN]\n",
        body="The token is tok-123456789\n",
        files={"references/a.md": "also tok-123456789"},
    )
    script = [
        call("skill_load", skill="secret", docs=["references/a.md"]),
        call("skill_run", skill="secret", command="echo $DEMO_TOKEN"),
        {"text": "It is tok-123456789"},
    ]
    played = play(root, script, settings={"secrets": {"DEMO_TOKEN": "env:DEMO_TOKEN"}})
    assert played.outcomes[-1]["status"] == "ok"
    everything = json.dumps(played.events) + "".join(event["text"] for event in played.of("text_delta"))
    everything += "".join(played.text(number) for number in range(3))
    assert "tok-123456789" not in everything


# --- both protocols -------------------------------------------------------------------------------------------------


def test_actions_are_the_same_calls(root: Path) -> None:
    plan = {"goal": "say", "steps": [{"id": "s1", "title": "load", "status": "in_progress"}]}
    script = [
        {"plan": plan, "action": {"type": "select_skills", "skills": [{"name": "demo"}], "reason": "it says words"}},
        {
            "plan_update": {"set": {"s1": {"status": "completed"}}, "add": [{"id": "s2", "title": "say"}]},
            "action": {
                "type": "run_script",
                "skill": {"name": "demo"},
                "relative_path": "scripts/say.sh",
                "args": ["hi"],
            },
        },
        {"action": {"type": "load_resource", "skill": {"name": "demo"}, "relative_path": "scripts/say.sh"}},
        {
            "plan_update": {"set": {"s2": {"status": "completed"}}},
            "action": {"type": "final_answer", "content": "It said hi."},
        },
    ]
    played = play(root, script, "say hi", wrap=StructuredActions)
    assert played.result.text == "It said hi." and played.result.ok
    assert [event["call"]["tool"] for event in played.of("call_planned")] == [
        *("update_plan", "skill_load", "update_plan", "skill_run", "skill_read", "update_plan")
    ]
    assert played.of("run_started")[0]["protocol"] == "actions"
    assert played.of("skill_loaded")[0]["reason"] == "it says words"
    assert played.result.plan is not None
    assert [(step.id, step.status) for step in played.result.plan.steps] == [("s1", "completed"), ("s2", "completed")]
    assert "said hi" in played.outcomes[3]["content"]
    assert "tee out/said.txt" in played.outcomes[4]["content"], "a script is told when it is read by path"
    assert "".join(event["text"] for event in played.of("text_delta")) == "It said hi."


def test_nothing_that_a_text_model_is_told_names_a_tool_that_it_has_not(root: Path) -> None:
    def act(type: str, **more: Any) -> dict[str, Any]:
        return {"action": {"type": type, **more}}

    script = [
        act("run_script", skill={"name": "demo"}, relative_path="scripts/say.sh", args=[]),  # not loaded
        act("call_tool", tool="select_skills", args={"skill": "demo"}),
        act("call_tool", tool="Skill", args={"skill": "other"}),
        act("call_tool", tool="update_plan", args={"patch": {"set": {"s9": {"status": "completed"}}}}),
        act("call_tool", tool="skill_load", args={"skill": "demo", "docs": 7}),
        *[act("select_skills", skills=[{"name": f"nobody-{n}"}], reason="r") for n in range(5)],  # repeat-failure
        act("final_answer", content="```bash\nls\n```"),  # code of a skill, and several are loaded
        act("final_answer", content="done"),
    ]
    settings = {"tools.code_blocks": True, "limits.turns": 20, "skills.require_load": True}
    played = play(root, script, wrap=StructuredActions, settings=settings, load_mode="once", on_ask="deny")
    codes = {outcome.get("code") for outcome in played.outcomes}
    assert {"skill-not-loaded", "skill-not-found", "repeat-failure"} <= codes
    told = [
        text
        for request in range(len(played.model.requests))
        for role, text in played.texts(request)
        if role != "assistant"
    ]
    assert len(told) > 20 and not [text for text in told if "skill_load" in text or "update_plan" in text]
    observed = played.text()
    assert "Observation (select_skills nobody-0):" in observed and "Observation (run_script demo):" in observed
    assert "Load it first with select_skills" in observed and "select_skills failed 3 times running" in observed


def test_a_text_model_that_does_not_understand_actions(root: Path) -> None:
    played = play(root, [{"text": "Sure! I will do that."}] * 9, wrap=StructuredActions)
    assert isinstance(played.error, ModelMalformed) and played.error.code == "action-invalid"
    assert len(played.model.requests) == 3, "asked again twice, and not for ever"


# --- which skill is meant, and where it stands ----------------------------------------------------------------------


def test_of_two_skills_of_one_name_the_source_may_be_named(tmp_path: Path, machine: Path, make_skill: Any) -> None:
    make_skill(tmp_path / ".agent" / "skills" / "csv-report", body="PROJECT-BODY\n", description="Ours.")
    script = [
        call("skill_load", skill="csv-report"),
        call("skill_load", skill="csv-report", source="builtin"),
        {"text": "done"},
    ]
    played = Played(ScriptedModel(script))

    async def work() -> None:
        environ = {"PROWESS_TRUST": "1", "PROWESS_HOME": str(machine)}
        flags = {"store": "memory:", "artifacts": "memory:"}
        with open_runtime(cwd=str(tmp_path), environ=environ, flags=flags) as runtime:
            async with runtime.open_session(model=played.model, on_event=(played.envelopes.append,)) as session:
                played.results.append(await session.run("go"))

    asyncio.run(work())
    assert [event["id"] for event in played.of("skill_loaded")] == ["project:csv-report", "builtin:csv-report"]
    state = played.result.state or {}
    assert set(state) == {"temp:skill:loaded:csv-report", "temp:skill:loaded:builtin:csv-report"}


def test_a_loaded_skill_whose_place_is_gone_is_told_first(root: Path) -> None:
    long = {"text": "lorem ipsum " * 600}
    script = [call("skill_load", skill="demo"), long, long, {"text": "third"}]
    model = ScriptedModel(script, context_tokens=3_500)
    played = play(root, [], "one", "two", "three", model=model, load_mode="session")
    assert played.result.text == "third"
    role, text = played.texts()[1]
    assert role == "system" and text.startswith("Loaded skill context:") and "scripts/say.sh WORD" in text
    assert played.text().count("scripts/say.sh WORD") == 1
