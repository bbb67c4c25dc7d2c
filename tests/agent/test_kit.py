"""Skills for an agent that is not ours: the same door, policy, workspace and record, and a content that is enough."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_profiles import SPECS

import prowess
from agents import play
from kits import with_kit
from prowess.core.values import Source
from prowess.errors import ConfigError, SkillNotFound
from prowess.models.actions.model import StructuredActions
from prowess.models.actions.schema import render_schema
from prowess.skills.skill import Skill
from prowess.tools.builtin import PROFILES
from prowess.tools.plan import LIMITS


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    files = {"references/more.md": "MORE", "scripts/go.sh": "echo went $1\n"}
    make_skill(folder / "demo", body="DEMO-BODY\n", description="Does demos.", files=files)
    make_skill(folder / "sub", front="name: sub\ndescription: S.\nrun-mode: subagent\n", body="SUB-BODY\n")
    return folder


DEFAULT = """\
Available skills:
<available_skills>
<skill>
<name>
demo
</name>
<description>
Does demos.
</description>
</skill>
<skill>
<name>
sub
</name>
<description>
S.
</description>
</skill>
</available_skills>

Tooling and workspace guidance:
- When a task matches a skill's description, call skill_load at once.
- Body first, then the docs you need: skill_list_docs, skill_select_docs.
- Run what the skill's text asks for with skill_run.
- Given files are in inputs/. Results belong in out/."""


def test_what_a_model_is_shown(root: Path) -> None:
    kit = prowess.SkillKit(root)
    assert kit.instructions == DEFAULT
    assert prowess.SkillKit(root, settings={"guidance": ""}).instructions == DEFAULT.partition("\n\nTooling")[0]
    assert prowess.SkillKit(root, settings={"guidance": "Be good."}).instructions.endswith(
        "Tooling and workspace guidance:\nBe good."
    )
    lean = prowess.SkillKit(root, settings={"tools.profile": "lean"})
    assert "Body first, then the docs you need: skill_read.\n" in lean.instructions
    assert prowess.SkillKit(root, instructions="You are Bob.").instructions.startswith("You are Bob.\n\nAvailable")


def names_in(node: Any) -> set[str]:
    """Every name that a JSON document says: fields, constants, choices."""
    if isinstance(node, dict):
        return {*node, *(name for value in node.values() for name in names_in(value))}
    if isinstance(node, list | tuple):
        return {name for value in node for name in names_in(value)}
    return {node} if isinstance(node, str) else set()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("protocol", ["tools", "actions"])
@pytest.mark.parametrize("executor", ["auto", "none"])
def test_what_a_model_is_told_names_what_exists_and_nothing_else(
    root: Path, profile: str, protocol: str, executor: str
) -> None:
    settings = {"tools.profile": profile, "workspace.executor": executor}
    played = play(
        root, [{"text": "done"}], settings=settings, wrap=StructuredActions if protocol == "actions" else None
    )
    specs = played.of("epoch_started")[0]["tools"]
    tools = [spec["name"] for spec in specs]
    messages, native = played.model.requests[0]
    told = "\n".join(part.text or "" for message in messages for part in message.parts)
    assert [spec.name for spec in native] == ([] if protocol == "actions" else tools)
    exists = {*tools, *names_in([spec["parameters"] for spec in specs])}
    exists |= names_in([SPECS[name].parameters for name in tools if name in SPECS])  # as short ones mention
    if protocol == "actions":
        document = render_schema(tools)
        exists |= {*names_in(document), *LIMITS} - {"skill_load", "update_plan", "include_all_docs"}
        listed = [f"- {spec['name']}: " in told for spec in specs]
        assert listed == [name not in ("skill_load", "update_plan") for name in tools], "all that call_tool is for"
        for name in names_in(document) - names_in(Source.__args__) - SCHEMA_WORDS - {"skill_load", "update_plan"}:
            assert name in told, f"{name} is in the schema and nobody told the model"
        assert ('"order"' in told) is (profile == "full"), "only who may plan is told how"
    described = "\n".join(spec["description"] for spec in specs)
    assert {*re.findall(r"[a-z]+(?:_[a-z]+)+", told.partition("Tooling and workspace")[2] + described)} <= exists
    running = re.search(r"skill_run|skill_exec|_script|\bscript|stdin|_session", told + json.dumps(specs))
    assert (running is not None) is (executor != "none")


SCHEMA_WORDS = set("type properties required additionalProperties items enum const anyOf $defs $ref".split()) | set(
    "object string array integer false #/$defs/skill skill".split()
)


def test_without_skills_there_is_nothing_to_say(tmp_path: Path) -> None:
    kit = prowess.SkillKit(tmp_path)
    assert kit.instructions == ""
    assert list(kit.tools) == []


def test_profiles(root: Path) -> None:
    names = [spec.name for spec in prowess.SkillKit(root, settings={"tools.profile": "lean"}).tools]
    assert names == ["skill_load", "skill_read", "skill_run"]
    without = [spec.name for spec in prowess.SkillKit(root, executor="none").tools]
    assert "skill_run" not in without and "skill_load" in without


def test_schemas_in_the_forms_of_providers(root: Path) -> None:
    kit = prowess.SkillKit(root)
    assert kit.schemas("openai")[0]["function"]["name"] == "skill_load"
    assert kit.schemas("responses")[0]["name"] == "skill_load"
    assert kit.schemas("anthropic")[0]["input_schema"]["required"] == ["skill"]
    assert json.dumps(kit.schemas()) == json.dumps(kit.schemas())


@pytest.mark.needs("isolation")
def test_a_call_gives_all_that_a_model_has_to_be_given(root: Path) -> None:
    async def work() -> None:
        events: list[Any] = []
        async with prowess.SkillKit(root, store="memory:", artifacts="memory:", on_event=events.append) as kit:
            loaded = await kit.call("skill_load", {"skill": "demo", "docs": ["references/more.md"]})
            assert loaded.content.startswith("loaded: demo; docs: references/more.md\n\n<skill_content name=")
            assert "DEMO-BODY" in loaded.content and "MORE" in loaded.content
            assert "Skill directory: $SKILLS_DIR/demo" in loaded.content
            ran = await kit.call("skill_run", {"skill": "demo", "command": "bash scripts/go.sh there; pwd"})
            assert ran.content.startswith("went there\n/")
            wrong = await kit.call("skill_load", {"skill": "demmo"})
            assert wrong.status == "failed" and "Did you mean: demo" in wrong.content
            inline = await kit.call("skill_load", {"skill": "sub"})
            assert "SUB-BODY" in inline.content and "not possible here" in inline.content
            missing = await kit.call("skill_read", {"skill": "demo", "path": "references/mor.md"})
            assert missing.code == "resource-not-found" and "references/more.md" in (missing.hint or "")
        acted = [each.event.outcome.content for each in events if each.event.type == "call_acted"]
        assert acted[0] == "loaded: demo; docs: references/more.md", "the record keeps the stub"
        assert [each.event.type for each in events][-1] == "run_finished"

    asyncio.run(work())


def test_a_pause_is_an_outcome_with_the_call_to_make_again(root: Path) -> None:
    async def work() -> None:
        async with prowess.SkillKit(root, store="memory:", executor="local") as kit:
            await kit.call("skill_load", {"skill": "demo"})
            paused = await kit.call("skill_run", {"skill": "demo", "command": "echo hi"})
            assert paused.status == "waiting" and paused.code == "approval-needed"
            again = paused.data["call"]
        async with prowess.SkillKit(root, store="memory:", executor="local", approve=["skill_run"]) as kit:
            await kit.call("skill_load", {"skill": "demo"})
            assert (await kit.call(again["tool"], again["args"])).status == "ok"

    asyncio.run(work())


def test_skills_made_in_code(tmp_path: Path) -> None:
    skill = Skill.from_text("---\nname: coded\ndescription: Made in code.\n---\nCODED-BODY\n", files={"a.txt": "A"})

    async def work() -> None:
        async with prowess.SkillKit(skill, store="memory:") as kit:
            assert "coded" in kit.instructions and "csv-report" not in kit.instructions
            loaded = await kit.call("skill_load", {"skill": "coded", "docs": ["a.txt"]})
            assert "CODED-BODY" in loaded.content

    asyncio.run(work())


def test_options_that_do_not_exist(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'workspace\.executor'"):
        prowess.SkillKit(root, settings={"workspace.exekutor": "local"})
    with pytest.raises(ConfigError, match="no folder"):
        prowess.SkillKit("nowhere")
    with pytest.raises(ConfigError, match="There is no file"):
        prowess.run_sync("x", skills=root, files=["nothing.csv"])


def test_activation_raises_what_was_wrong(root: Path) -> None:
    async def work(kit: Any) -> None:
        with pytest.raises(SkillNotFound):
            await kit.activate("nope")
        loaded = await kit.activate("demo", arguments="x", docs=["references/more.md"])
        assert loaded.skill.name == "demo"
        assert kit.conversation.state.values == {
            "temp:skill:loaded:demo": "1",
            "temp:skill:docs:demo": '["references/more.md"]',
        }

    with_kit(root, work, load=None)


def test_a_model_that_denies_itself_nothing_is_denied_by_rules(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / "managed.toml"
    policy.write_text('[[rule]]\ntool = "skill_load"\nskill = "demo"\nverdict = "deny"\nwhy = "Not this one."\n')

    async def work(kit: Any) -> None:
        outcome = await kit.call("skill_load", {"skill": "demo"})
        assert outcome.status == "denied" and "Not this one." in outcome.content
        read = await kit.call("read_file", {"file_name": str(root / "demo" / "SKILL.md")})
        assert read.status == "denied", "reading its file is loading it"
        assert "DEMO-BODY" not in read.content

    with_kit(root, work, load=None, environ={"PROWESS_MANAGED_POLICY": str(policy)})
