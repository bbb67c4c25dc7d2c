"""A kit whose caller obeys the model: what comes under an id that the model chose, and who said yes to what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import prowess
from hostile.table import case, holds
from prowess.errors import StoreError

PAID: list[int] = []


@prowess.tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pays."""
    PAID.append(amount)
    return "paid"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[prowess.SkillKit]:
    PAID.clear()
    with prowess.SkillKit(tmp_path, tools=[pay], store="memory:", artifacts="memory:", executor="local") as kit:
        yield kit


@case(
    by="model",
    tries="make another call under the id of one that waits, and take the yes for it",
    stopped_by="it gets an id and a question of its own; an answer names what was shown by its token",
)
def test_call_under_the_id_of_a_question(kit: prowess.SkillKit) -> None:
    assert kit.call_sync("pay", {"amount": 1}, id="c1").status == "waiting"
    kit.call_sync("pay", {"amount": 1_000_000}, id="c1")
    kit.answer_sync("c1", "yes")
    kit.call_sync("pay", {"amount": 1_000_000}, id="c1")
    kit.call_sync("pay", {"amount": 1}, id="c1")
    holds(PAID == [1], f"the yes paid {PAID}")


@case(
    by="model",
    tries="use an id again when its call is done, so that a second yes to the first question is one to another call",
    stopped_by="an id that had another question is answered with the token of the one that is meant",
)
def test_second_yes_to_a_used_id(kit: prowess.SkillKit) -> None:
    kit.call_sync("pay", {"amount": 1}, id="c1")
    kit.answer_sync("c1", "yes")
    assert kit.call_sync("pay", {"amount": 1}, id="c1").ok
    kit.call_sync("pay", {"amount": 1_000_000}, id="c1")
    with pytest.raises(StoreError) as refused:
        kit.answer_sync("c1", "yes")
    assert refused.value.code == "question-changed"
    kit.call_sync("pay", {"amount": 1_000_000}, id="c1")
    holds(PAID == [1], f"the yes paid {PAID}")


@case(
    by="neighbour",
    tries="use what another user or tenant of a program approved for good",
    stopped_by="a standing approval holds in the sessions of the tenant and user who gave it",
)
def test_always_of_another_user(tmp_path: Path, make_skill: Any) -> None:
    make_skill(tmp_path / "demo", files={"scripts/a.sh": "echo ran\n"})
    run = ("skill_run", {"skill": "demo", "command": "bash scripts/a.sh"})

    def status(user: str, tenant: str, answer: str = "") -> str:
        with kit.session(user=user, tenant=tenant) as session:
            session.call_sync("skill_load", {"skill": "demo"})
            if answer and session.call_sync(*run, id="c1").status == "waiting":
                session.answer_sync("c1", answer)
            return session.call_sync(*run, id="c1").status

    with prowess.SkillKit(tmp_path, store="memory:", artifacts="memory:", executor="local") as kit:
        assert status("ann", "acme", "always") == "ok" and status("ann", "acme") == "ok"
        holds([status("bob", "acme"), status("ann", "other")] == ["waiting", "waiting"], "it ran for somebody else")
