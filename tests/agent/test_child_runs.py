"""A call that a child run makes waits for a person, or is cut off, and goes on where it was: nothing is done twice, and
what it used is counted once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agents import Played, call, open_session, play
from crash_run import crash_at_every_append, resume_child
from kits import answer_later
from prowess.core.events import ApprovalAnswered, Envelope, RunFinished, render_event
from prowess.core.values import SessionKey
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import open_runtime
from prowess.stores.sqlite import SqliteEventLog

KEY = SessionKey(session="s")
DONE = {"text": "done"}


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    for name in ("inner", "innermost"):
        front = f"name: {name}\ndescription: Works apart. Use when asked.\ncontext: fork\n"
        make_skill(folder / name, front=front, files={"scripts/a.sh": f"echo {name} >> ../../work/made; echo {name}\n"})
    make_skill(folder / "demo", body="DEMO-BODY\n", files={"scripts/a.sh": "echo ran\n"})
    return folder


def load(skill: str) -> dict[str, Any]:
    return call("skill_load", skill=skill)


def run(skill: str) -> dict[str, Any]:
    return call("skill_run", skill=skill, command="bash scripts/a.sh")


def in_file(root: Path, replies: list[Any], *requests: Any, **options: Any) -> Played:
    settings = {"workspace.executor": "local", "store": str(root.parent / "log.db"), **options.pop("settings", {})}
    return play(root, replies, *requests, **{"settings": settings, "approver": None, "session": "s", **options})


def resume(root: Path, *replies: Any, **options: Any) -> Played:
    return in_file(root, list(replies), {"resume": True}, **options)


def read_all(root: Path) -> list[Envelope]:
    async def work() -> list[Envelope]:
        log = SqliteEventLog(str(root.parent / "log.db"))
        try:
            return [envelope async for envelope in log.read(KEY)]
        finally:
            await log.close()

    return asyncio.run(work())


def answer(
    root: Path, call_id: str, said: Any = "once", why: str | None = None, *, capability: str = "skill_run"
) -> None:
    """As `prowess approvals answer` does it: in the run that asked."""
    asked = [each for each in read_all(root) if getattr(each.event, "call_id", "") == call_id]
    last = next(each for each in reversed(asked) if each.event.type == "approval_asked")
    event = ApprovalAnswered(call_id=call_id, answer=said, why=why, by="test", capability=capability, later=True)
    asyncio.run(answer_later(root.parent / "log.db", KEY, last.run, event))


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_process", [True, False])
def test_a_child_that_waited_goes_on_with_the_call_that_was_approved(root: Path, same_process: bool) -> None:
    script: list[Any] = [load("inner"), call("update_plan", steps=["a"]), run("inner")]
    rest: list[Any] = [{"text": "inner done"}, DONE]
    if same_process:
        settings = {"workspace.executor": "local", "store": str(root.parent / "log.db")}
        events: list[Envelope] = []

        async def work() -> None:
            model = ScriptedModel([*script, *rest])
            options = {"settings": settings, "approver": None, "session": "s", "on_event": (events.append,)}
            async with open_session(root, model, **options) as session:
                first = await session.run("go")
                assert first.stop_reason == "waiting" and [each.id for each in first.waiting] == ["c3"]
                question = session.kit.conversation.children["c1"]
                given = ApprovalAnswered(call_id="c3", answer="once", capability="skill_run", later=True)
                await session.kit.recorder.append(given, run=question)
                assert (await session.run(resume=True)).ok

        asyncio.run(work())
    else:
        waiting = in_file(root, script)
        assert waiting.result.stop_reason == "waiting" and waiting.result.waiting[0].tool == "skill_run"
        answer(root, waiting.result.waiting[0].id)
        resumed = resume(root, *rest)
        assert resumed.result.ok and resumed.result.text == "done"
    lines = [render_event(each) for each in read_all(root)]
    children = [line for line in lines if line["type"] == "run_started" and line["parent"]]
    assert [line["call"] for line in children] == ["c1", "c1"] and children[1]["resumes"] == children[0]["run"]
    loads = [line for line in lines if line["type"] == "skill_loaded"]
    assert len(loads) == 1, "it was loaded before it waited, and is in use still"
    made = [line for line in lines if line["type"] == "call_acted" and "exit_code" in line["outcome"]["data"]]
    assert len(made) == 1 and made[0]["outcome"]["data"]["exit_code"] == 0
    plans = [line for line in lines if line["type"] == "plan_changed"]
    assert len(plans) == 1, "what the child did before is not done again"
    ended = [line for line in lines if line["type"] == "run_finished"][-1]
    assert ended["usage"]["requests"] == len(script) + len(rest), "what the child used before it waited counts once"


def test_a_no_is_told_to_the_child(root: Path) -> None:
    waiting = in_file(root, [load("inner"), run("inner")])
    answer(root, waiting.result.waiting[0].id, "no", "use the copy")
    resumed = resume(root, {"text": "I did not run it."}, DONE)
    assert resumed.result.ok
    denied = next(each for each in resumed.outcomes if each["code"] == "denied")
    assert "use the copy" in denied["content"]


def test_for_this_run_holds_for_the_whole_of_it(root: Path) -> None:
    waiting = in_file(root, [load("inner"), run("inner")])
    answer(root, waiting.result.waiting[0].id, "run")
    resumed = resume(root, run("inner"), {"text": "inner done"}, DONE)
    assert resumed.result.ok and "waiting" not in [each["status"] for each in resumed.outcomes]


def test_an_unanswered_one_waits_again_under_the_same_name(root: Path) -> None:
    first = in_file(root, [load("inner"), run("inner")])
    second = resume(root)
    assert second.result.stop_reason == "waiting" and second.result.waiting == first.result.waiting
    answer(root, second.result.waiting[0].id)
    assert resume(root, {"text": "inner done"}, DONE).result.ok


def test_a_child_of_a_child(root: Path) -> None:
    waiting = in_file(root, [load("inner"), load("innermost"), run("innermost")])
    assert [each.args["skill"] for each in waiting.result.waiting] == ["innermost"]
    answer(root, waiting.result.waiting[0].id)
    resumed = resume(root, {"text": "innermost done"}, {"text": "inner done"}, DONE)
    assert resumed.result.ok
    assert [event["text"] for event in resumed.of("run_finished")] == ["innermost done", "inner done", "done"]


def test_a_child_that_the_user_asked_for(root: Path) -> None:
    waiting = in_file(root, [run("inner")], "/inner dig here")
    assert waiting.error is None and waiting.result.stop_reason == "waiting"
    answer(root, waiting.result.waiting[0].id)
    resumed = resume(root, {"text": "inner done"}, DONE)
    assert resumed.result.ok and "inner done" in resumed.text()


def test_limits_hold_over_the_wait(root: Path) -> None:
    """Two calls in all: the one that waited, and one more; what was used before it waited is not given back."""
    from prowess.agent.agent import Limits

    limits = Limits(scripts=1)
    waiting = in_file(root, [load("inner"), run("inner")], limits=limits)
    answer(root, waiting.result.waiting[0].id, "run")
    resumed = resume(root, run("inner"), DONE, limits=limits)
    assert resumed.of("run_finished")[0]["stop_reason"] == "limit:scripts"
    assert len([each for each in resumed.outcomes if "exit_code" in each["data"]]) == 1


def test_what_a_person_is_asked_in_a_child_counts(root: Path) -> None:
    async def once(call: Any, decision: Any) -> ApprovalAnswered:
        return ApprovalAnswered(call_id=call.id, answer="once", by="test")

    played = in_file(root, [load("inner"), run("inner"), {"text": "inner done"}, DONE], approver=once)
    assert [event["prompts"] for event in played.of("run_finished")] == [1, 1]


# --- requests that a person has to approve ----------------------------------------------------------------------------

ASK = '[[rule]]\ntool = "skill_load"\nskill = "demo"\nverdict = "ask"\nwhy = "look at it first"\n'


@pytest.fixture
def asked_first(root: Path) -> Path:
    (root / ".agent").mkdir()
    (root / ".agent" / "policy.toml").write_text(ASK, encoding="utf-8")
    return root


@pytest.mark.parametrize("request_", ["/demo now", {"request": "go", "skills": ["demo"]}, "use $demo"])
def test_a_skill_that_was_named_waits_to_be_approved(asked_first: Path, request_: Any) -> None:
    waiting = in_file(asked_first, [], request_)
    assert waiting.error is None and waiting.result.stop_reason == "waiting"
    [question] = waiting.result.waiting
    assert (question.tool, question.args["skill"]) == ("skill_load", "demo") and waiting.model.requests == []
    again = resume(asked_first)
    assert again.result.waiting == waiting.result.waiting, "it is still the same question"
    answer(asked_first, question.id, capability="skill_load")
    resumed = resume(asked_first, DONE)
    assert resumed.result.ok and "DEMO-BODY" in resumed.text()


def test_one_that_is_refused_ends_the_run(asked_first: Path) -> None:
    waiting = in_file(asked_first, [], "/demo now")
    answer(asked_first, waiting.result.waiting[0].id, "no", capability="skill_load")
    refused = resume(asked_first)
    assert refused.of("run_finished")[0]["stop_reason"] == "denied" and refused.error is not None


def test_the_others_are_loaded_while_one_waits(asked_first: Path, make_skill: Any) -> None:
    make_skill(asked_first / "other", body="OTHER-BODY\n")
    waiting = in_file(asked_first, [], {"request": "/demo now", "skills": ["other"]})
    assert [event["name"] for event in waiting.of("skill_loaded")] == ["other"]
    answer(asked_first, waiting.result.waiting[0].id, capability="skill_load")
    resumed = resume(asked_first, DONE)
    assert resumed.result.ok and [event["name"] for event in resumed.of("skill_loaded")] == ["demo"]
    assert "OTHER-BODY" in resumed.text() and "DEMO-BODY" in resumed.text()


def test_reading_a_skill_that_waits_is_answered_once(asked_first: Path) -> None:
    waiting = in_file(asked_first, [call("read_file", file_name="skill://demo/SKILL.md")])
    assert waiting.result.stop_reason == "waiting", waiting.outcomes
    asked = waiting.of("approval_asked")[0]["call_id"]
    answer(asked_first, asked, capability="skill_load")
    resumed = resume(asked_first, DONE)
    assert resumed.result.ok and "DEMO-BODY" in resumed.text()


# --- an answer is about one call --------------------------------------------------------------------------------------


def test_an_answer_is_not_the_answer_to_another_call_of_that_name(root: Path) -> None:
    asked: list[str] = []

    async def once(call: Any, decision: Any) -> ApprovalAnswered:
        asked.append(call.args["command"])
        return ApprovalAnswered(call_id=call.id, answer="once", by="test")

    async def work() -> None:
        flags = {"store": "memory:", "artifacts": "memory:", "workspace.executor": "local"}
        with open_runtime(cwd=str(root), environ=os.environ, roots=[str(root)], flags=flags) as runtime:
            async with runtime.open_kit(approver=once) as kit:
                await kit.call("skill_load", {"skill": "demo"})
                for command in ("bash scripts/a.sh", "bash scripts/a.sh again"):
                    await kit.call("skill_run", {"skill": "demo", "command": command}, id="same")

    asyncio.run(work())
    assert asked == ["bash scripts/a.sh", "bash scripts/a.sh again"]


def test_code_of_two_requests_is_asked_about_twice(root: Path) -> None:
    asked: list[str] = []

    async def once(call: Any, decision: Any) -> ApprovalAnswered:
        asked.append(call.id)
        return ApprovalAnswered(call_id=call.id, answer="once", by="test")

    block = {"text": "```bash\nbash scripts/a.sh\n```"}
    script = [load("demo"), block, {"text": "one"}, load("demo"), block, {"text": "two"}]
    settings = {"tools.code_blocks": True}
    played = in_file(root, script, "first", "second", approver=once, settings=settings)
    assert played.result.ok and len(asked) == len(set(asked)) == 2, asked


BLOCK = {"text": "```bash\nbash scripts/a.sh one\n```\nand\n```bash\nbash scripts/a.sh two\n```"}


def test_code_that_waits_goes_on_where_it_was(root: Path) -> None:
    settings = {"tools.code_blocks": True}
    waiting = in_file(root, [load("demo"), BLOCK], settings=settings)
    assert [each.args["command"].strip() for each in waiting.result.waiting] == ["bash scripts/a.sh one"]
    answer(root, waiting.result.waiting[0].id)
    second = resume(root, settings=settings)
    assert [each.args["command"].strip() for each in second.result.waiting] == ["bash scripts/a.sh two"]
    answer(root, second.result.waiting[0].id)
    resumed = resume(root, DONE, settings=settings)
    assert resumed.result.ok and "Code block 1 was run." in resumed.text() and "Code block 2 was run." in resumed.text()
    ran = [each for each in read_all(root) if each.event.type == "call_acted"]
    codes = [render_event(each)["outcome"]["data"].get("exit_code") for each in ran]
    assert [code for code in codes if code is not None] == [0, 0], "each was run once"


# --- cut off ----------------------------------------------------------------------------------------------------------


def test_for_every_append_of_a_child_that_a_process_dies_at(tmp_path: Path, make_skill: Any) -> None:
    front = "name: inner\ndescription: Works apart. Use when asked.\ncontext: fork\n"
    make_skill(tmp_path / "skills" / "inner", front=front)
    died = crash_at_every_append(tmp_path, "child")
    for folder in died:
        before = read_all(folder / "skills")
        if isinstance(before[-1].event, RunFinished) and before[-1].run == before[0].run:
            continue
        result = asyncio.run(resume_child(folder))
        assert result.stop_reason == "answer" and result.text == "The child marked 3 times.", (folder, result)
        after = read_all(folder / "skills")
        assert after[: len(before)] == before, "nothing that was recorded is lost or changed"
        marks = (folder / "marks").read_text().split() if (folder / "marks").exists() else []
        assert len(marks) == len(set(marks)), f"a call was made twice when it died at append {folder.name}"
        outcomes = [render_event(each)["outcome"] for each in after if each.event.type == "call_acted"]
        cut = [outcome for outcome in outcomes if outcome["status"] == "interrupted"]
        assert len(cut) <= 1 and (len(marks) == 3 or cut), (folder, marks, cut)
        begun = [each for each in before if each.event.type == "run_started" and each.event.parent]
        assert len(marks) >= 2 or not begun, "a child that has begun goes on"
    assert len(died) > 14
