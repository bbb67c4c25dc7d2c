"""Questions are found and answered without a command line, as evals and a service need it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agents import call, play
from prowess.core.values import Decision, ToolCall
from prowess.errors import StoreError
from prowess.runtime.runtime import open_runtime
from prowess.runtime.services.approvals import CallAnswer, answer_call, find_approvals, find_standing, question_row
from prowess.runtime.services.preapproved import find_preapproval, parse_yes
from prowess.runtime.storage import open_log

STEPS = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="bash scripts/a.sh")]


def test_a_waiting_question_is_answered_for_good(tmp_path: Path, make_skill: Any, workspace_dir: str) -> None:
    make_skill(tmp_path / "skills" / "demo", files={"scripts/a.sh": "echo ran\n"})
    settings = {"workspace.executor": "local", "store": str(tmp_path / "prowess.db")}
    given: dict[str, Any] = {"settings": settings, "cwd": tmp_path, "approver": None, "session": "s-1"}
    assert play(tmp_path / "skills", STEPS, **given).result.stop_reason == "waiting"
    with open_runtime(cwd=str(tmp_path), environ=os.environ, roots=["skills"], flags=settings) as runtime:

        async def answer() -> None:
            log = open_log(runtime.config, runtime.places)
            [question] = (await find_approvals(runtime, log)).waiting
            row = question_row(question, asking=False)
            assert (row["call_id"], row["state"], row["answer"]) == ("c2", "waiting", None)
            reply = CallAnswer("c2", "always")
            done = await answer_call(runtime, log, reply, lambda each: each.key.session)
            assert (done.question.key.session, done.others) == ("s-1", ())
            with pytest.raises(StoreError) as refused:
                await answer_call(runtime, log, reply, lambda each: each.key.session)
            assert refused.value.code == "already-answered"
            await log.close()

        asyncio.run(answer())
        [approved] = find_standing(runtime.places.state_dir, "demo")
        assert (approved.skill, find_standing(runtime.places.state_dir, "1")) == ("explicit:demo", [approved])


def test_a_risk_class_is_not_enough_where_policy_asks_each_time() -> None:
    request, yes = ToolCall(id="c1", tool="skill_run"), parse_yes(["medium"])
    each_time = Decision(verdict="ask", rule="", why="", about={"each_time": True})
    approved = find_preapproval(yes, request, Decision(verdict="ask", rule="", why=""))
    assert approved is not None and (approved.by, approved.asked) == ("--yes medium", False)
    assert find_preapproval(yes, request, each_time) is None
    assert find_preapproval(parse_yes(["skill_run"]), request, each_time) is not None
