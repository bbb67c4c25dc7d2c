"""Content that a policy denies is not offered, not found, not loaded and not run, from the next call on; and every
refusal names the policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agents import KEPT_IN_MEMORY, call
from prowess.agent.toolkit import Toolkit
from prowess.core.events import Envelope
from prowess.errors import ConfigError, SkillDenied
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import Runtime, open_runtime

ECHO = {"scripts/a.sh": "echo ran\n"}
RUN = {"skill": "demo", "command": "bash scripts/a.sh"}
LOAD_AND_RUN = [call("skill_load", skill="demo"), call("skill_run", **RUN), {"text": "done"}]


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, machine: Path) -> Path:
    folder = tmp_path / "proj"
    (folder / ".agent").mkdir(parents=True)
    for name in ("demo", "other"):
        make_skill(machine / ".agent/skills" / name, files=ECHO, description=f"Use when {name} is asked for.")
    return folder


def opened(project: Path, **flags: str) -> Any:
    flags = {**KEPT_IN_MEMORY, "workspace.executor": "local", **flags}
    return open_runtime(cwd=str(project), environ=os.environ, flags=flags)


def policy_of(project: Path) -> Path:
    return project / ".agent/policy.toml"


def deny(project: Path, digest: str = "", more: str = "") -> None:
    if not digest:
        with opened(project) as runtime:
            digest = runtime.load_entry(runtime.catalog.get("demo")).digest
    policy_of(project).write_text(f'denied_digests = ["{digest}"]\n{more}', encoding="utf-8")


def working(project: Path, work: Callable[[Runtime, Toolkit], Awaitable[None]], executor: str = "local") -> None:
    async def go() -> None:
        with opened(project, **{"workspace.executor": executor}) as runtime:
            async with runtime.open_kit(approver=lambda call, decision: "once") as kit:
                await work(runtime, kit)

    asyncio.run(go())


def test_it_is_shown_as_denied_with_the_policy_that_denies_it(project: Path) -> None:
    deny(project)
    with opened(project) as runtime:
        entry = runtime.catalog.get("demo")
        seen = runtime.catalog.visibility(entry)
        assert (seen.status, seen.model_visible) == ("denied", False)
        assert seen.reasons == (f"{policy_of(project)} denies its content",)
        (finding,) = runtime.findings
        assert (finding.code, finding.path) == ("digest-denied", entry.location)
        assert str(policy_of(project)) in finding.message
        with pytest.raises(SkillDenied) as caught:
            runtime.load("demo")
        assert caught.value.code == "digest-denied" and str(policy_of(project)) in caught.value.message
        assert [entry.name for entry, _ in runtime.search("demo")[0]] == []
        assert runtime.catalog.visibility(runtime.catalog.get("other")).status == "active"


def test_other_content_of_it_is_not_denied(project: Path, machine: Path) -> None:
    deny(project)
    (machine / ".agent/skills/demo/new.md").write_text("new")
    with opened(project) as runtime:
        assert runtime.catalog.visibility(runtime.catalog.get("demo")).status == "active"
        assert runtime.load("demo")


def test_content_that_is_denied_after_it_was_listed_is_not_loaded(project: Path, machine: Path) -> None:
    deny(project)
    extra = machine / ".agent/skills/demo/new.md"
    extra.write_text("new")
    with opened(project) as runtime:
        assert runtime.catalog.visibility(runtime.catalog.get("demo")).status == "active"
        extra.unlink()
        with pytest.raises(SkillDenied) as caught:
            runtime.load("demo")
        assert caught.value.code == "digest-denied" and str(policy_of(project)) in caught.value.message


def test_a_denied_skill_gives_its_name_to_the_next_one(project: Path, make_skill: Any) -> None:
    make_skill(project / "more/demo", description="Use when another demo is asked for.")
    with open_runtime(cwd=str(project), environ=os.environ, roots=[str(project / "more")]) as runtime:
        digest = runtime.load("demo").digest
    environ = {**os.environ, "PROWESS_SKILLS_ROOT": str(project / "more")}
    with open_runtime(cwd=str(project), environ=environ) as runtime:
        assert runtime.catalog.get("demo").source == "explicit"
        deny(project, digest)
        assert runtime.catalog.get("demo").source == "user"
        assert runtime.catalog.visibility(runtime.catalog.get("explicit:demo")).status == "denied"


def test_a_skill_made_in_code_is_denied_as_well(project: Path) -> None:
    from prowess.skills.skill import Skill

    skill = Skill.from_text("---\nname: made\ndescription: Use when asked.\n---\nDo.\n")
    deny(project, skill.digest)
    with open_runtime(cwd=str(project), environ=os.environ, skills=[skill]) as runtime:
        assert runtime.catalog.visibility(runtime.catalog.get("made")).status == "denied"


def test_a_broken_policy_stops_loading_and_not_listing(project: Path) -> None:
    broken = project / "managed.toml"
    broken.write_text("denied_digests = 1\n")
    environ = {**os.environ, "PROWESS_MANAGED_POLICY": str(broken)}
    with open_runtime(cwd=str(project), environ=environ) as runtime:
        assert runtime.catalog.visibility(runtime.catalog.get("demo")).status == "active"
        with pytest.raises(ConfigError):
            runtime.load("demo")


@pytest.mark.parametrize("executor", ["local", "auto"])
def test_a_loaded_skill_is_refused_at_the_next_call(project: Path, executor: str) -> None:
    async def work(runtime: Runtime, kit: Toolkit) -> None:
        assert "demo" in kit.instructions
        assert (await kit.call("skill_load", {"skill": "demo"})).status == "ok"
        assert (await kit.call("skill_run", RUN)).status == "ok"
        deny(project)
        outcome = await kit.call("skill_run", RUN)
        assert outcome.status == "denied" and str(policy_of(project)) in outcome.content
        assert outcome.data["rule"] == f"denied_digests {policy_of(project)}"
        reading = await kit.call("skill_read", {"skill": "demo", "path": "scripts/a.sh"})
        assert reading.status == "denied" and "ran" not in reading.content
        assert "demo" not in kit.instructions and "demo" not in kit.names()
        assert "user:demo" not in (await kit.call("skill_search", {"query": "demo"})).content
        assert (await kit.call("skill_unload", {"skill": "demo"})).status == "ok", "it can always be let go of"
        again = await kit.call("skill_load", {"skill": "demo"})
        assert again.code == "digest-denied" and str(policy_of(project)) in again.content
        assert (await kit.call("skill_load", {"skill": "other"})).status == "ok"
        assert (await kit.call("skill_run", {**RUN, "skill": "other"})).status == "ok"

    working(project, work, executor)


def test_a_program_that_runs_is_told_nothing_more_and_can_be_ended(project: Path) -> None:
    async def work(runtime: Runtime, kit: Toolkit) -> None:
        await kit.call("skill_load", {"skill": "demo"})
        begun = await kit.call("skill_exec", {"skill": "demo", "command": "bash -c cat", "yield_ms": 0})
        program = {"session_id": begun.data["session_id"]}
        deny(project)
        assert (await kit.call("skill_write_stdin", {**program, "chars": "x"})).status == "denied"
        assert (await kit.call("skill_poll_session", program)).status == "ok"
        assert (await kit.call("skill_kill_session", program)).status == "ok"

    working(project, work)


def test_a_rule_that_allows_does_not_lift_it(project: Path) -> None:
    async def work(runtime: Runtime, kit: Toolkit) -> None:
        await kit.call("skill_load", {"skill": "demo"})
        deny(project, more='[[rule]]\ntool = "*"\nskill = "demo"\nverdict = "allow"\n')
        assert (await kit.call("skill_run", RUN)).status == "denied"

    working(project, work)


def test_an_agent_goes_on_without_it_and_does_not_see_its_text_again(project: Path) -> None:
    """The session is continued twice: in the same process, and in another one."""
    model = ScriptedModel([*LOAD_AND_RUN, *LOAD_AND_RUN[1:], *LOAD_AND_RUN[1:]])
    envelopes: list[Envelope] = []

    async def go(*requests: str) -> None:
        with opened(project, store=str(project / "log.db")) as runtime:
            options = {"model": model, "session": "s", "approver": lambda call, decision: "once"}
            async with runtime.open_session(on_event=(envelopes.append,), **options) as session:
                for request in requests:
                    assert (await session.run(request)).ok
                    deny(project)

    def seen(number: int) -> str:
        return "\n".join(part.text or "" for m in model.requests[number][0] for part in m.parts)

    asyncio.run(go("first", "second"))
    asyncio.run(go("third"))
    body = "<skill_content"
    assert body in seen(1) and all(body not in seen(number) for number in (3, 5)), seen(1)
    acted: list[Any] = [each.event for each in envelopes if each.event.type == "call_acted"]
    assert [event.outcome.status for event in acted] == ["ok", "ok", "denied", "failed", "failed"]
    assert acted[3].call_id == f"{acted[4].call_id}-load", "another process would have to load it"
    assert acted[3].outcome.code == acted[4].outcome.code == "digest-denied"
