"""Whatever an approver says: only what is a yes is one, and what cannot be understood is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents import Played, call, play
from prowess.core.events import ApprovalAnswered

RUN = call("skill_run", skill="demo", command="bash scripts/a.sh")
SCRIPT = [call("skill_load", skill="demo"), RUN, {"text": "done"}]


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    make_skill(tmp_path / "skills" / "demo", files={"scripts/a.sh": "echo ran\n"})
    return tmp_path / "skills"


def ask(root: Path, approver: Any, script: Any = SCRIPT) -> Played:
    return play(root, script, settings={"workspace.executor": "local"}, approver=approver)


def saying(said: Any) -> Any:
    async def approver(call: Any, decision: Any) -> Any:
        return said

    return approver


def given(answer: Any, **more: Any) -> Any:
    return ApprovalAnswered(call_id="x", answer=answer, **more)


@pytest.mark.parametrize("said", ["once", "yes", "YES", " run ", "always", True, given("once"), given("run")])
def test_what_is_a_yes(root: Path, said: Any) -> None:
    played = ask(root, saying(said))
    assert played.result.ok and played.outcomes[1]["status"] == "ok"


@pytest.mark.parametrize(
    ("said", "why"),
    [("no", None), ("NO", None), ("no, because late", "late"), ("No: it is late", "it is late"), (False, None)],
)
def test_what_is_a_no(root: Path, said: Any, why: str | None) -> None:
    played = ask(root, saying(said))
    assert played.result.ok and played.outcomes[1]["status"] == "denied"
    [answered] = played.of("approval_answered")
    assert (answered["answer"], answered["why"]) == ("no", why)


RUBBISH = ["perhaps", "", "nope", "deny", 1, 1.0, [], {}, object(), given("NO"), given("deny"), given(None), given("")]


@pytest.mark.parametrize("said", [*RUBBISH, given("once", why=3), given("once", by=3), given("once", asked="no")])
def test_what_is_no_answer_is_never_a_yes(root: Path, said: Any) -> None:
    played = ask(root, saying(said), SCRIPT[:2])
    assert played.result.stop_reason == "waiting" and played.of("approval_answered") == []
    [problem] = [event for event in played.of("error") if event["code"] == "approver-failed"]
    assert "which is none of: once, run, always, no" in problem["message"]
    assert problem["message"][:20] in played.outcomes[1]["content"], "whoever waits is told why"


def test_one_that_fails(root: Path) -> None:
    def broken(call: Any, decision: Any) -> Any:
        raise TypeError("mine")

    played = ask(root, broken, SCRIPT[:2])
    assert played.result.stop_reason == "waiting" and "TypeError: mine" in played.outcomes[1]["content"]


def test_one_that_is_a_plain_function(root: Path) -> None:
    assert ask(root, lambda call, decision: "once").result.ok
    assert ask(root, lambda call, decision: None, SCRIPT[:2]).result.stop_reason == "waiting"
