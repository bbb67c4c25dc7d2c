"""Types that a type checker sees at the main doors. `tools/check_types.py` checks this file; nothing runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type

import prowess
from prowess.errors import SkillInvalid
from prowess.events import (
    ApprovalAnswered,
    CallActed,
    CallPlanned,
    Envelope,
    Event,
    SkillLoaded,
    StopReason,
    TextDelta,
    parse_event,
)
from prowess.ports import (
    ArtifactStore,
    Decision,
    EventLog,
    Finding,
    Isolation,
    Model,
    SkillSource,
    Source,
    ToolCall,
    Usage,
)
from prowess.testing import MemoryArtifacts, MemoryEventLog, ScriptedApprover, ScriptedModel, skill_dir


@prowess.tool
def stock(item: str, shop: int = 1) -> float:
    """Pieces in stock."""
    return float(len(item) * shop)


@prowess.tool(name="now", read_only=True)
async def moment() -> str:
    """Time of day."""
    return "12:00"


assert_type(stock("pen", shop=2), float)
assert_type(stock.spec.parameters, dict[str, Any])


def ask(call: ToolCall, decision: Decision) -> bool:
    return call.tool == "stock" and decision.verdict == "ask"


async def ask_later(call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
    return ApprovalAnswered(call_id=call.id, answer="once")


async def answer(question: str, choices: Sequence[str]) -> str | None:
    return choices[0] if choices else question


def watch(envelope: Envelope) -> None:
    event = envelope.event
    if isinstance(event, SkillLoaded):
        assert_type(event.name, str)
    elif isinstance(event, CallPlanned):
        assert_type(event.call, ToolCall)


def text_of(envelope: Envelope) -> str:
    if envelope.event.type == "text_delta":
        return envelope.event.text
    event = envelope.event
    if event.type == "call_acted":
        assert_type(event, CallActed)
        return event.outcome.content
    return ""


async def texts_of(agent: prowess.Agent) -> None:
    async for envelope in agent.stream("hi"):
        if envelope.event.type == "text_delta":
            assert_type(envelope.event.text, str)
    agent.run_sync("hi", on_event=text_of_event)


def text_of_event(envelope: Envelope) -> None:
    match envelope.event:
        case TextDelta(text=text):
            assert_type(text, str)
        case _:
            pass


def name_of(event: Event) -> str:
    if event.type == "skill_loaded":
        assert_type(event, SkillLoaded)
        return event.name
    return event.type


class Office:
    """Skills from another place."""

    source: Source = "explicit"

    def skills(self) -> list[prowess.Skill]:
        return [prowess.Skill.from_text("---\nname: demo\n---\n")]


model: Model = ScriptedModel([{"text": "Done."}, RuntimeError("down")])
log: EventLog = MemoryEventLog()
artifacts: ArtifactStore = MemoryArtifacts()
source: SkillSource = Office()
agent = prowess.Agent(
    model,
    skills=["./skills", Path("more"), source],
    tools=[stock, moment, len],
    approve=ask,
    ask=answer,
    on_event=watch,
    store=log,
    limits=prowess.Limits(turns=3, seconds=1.5),
    settings={"skills.budget": 2000},
)
prowess.Agent("openai:gpt-5", skills="./skills", tools=stock, approve=["skill_run"], limits={"turns": 3, "cost": None})
prowess.Agent(approve=ScriptedApprover(["once", None]))
prowess.Agent(approve=ask_later)

result = agent.run_sync("hi", files=["a.csv", Path("b.csv")], use=["pdf"], session="s-1")
assert_type(result.text, str)
assert_type(result.stop_reason, StopReason)
assert_type(result.usage, Usage)
assert_type(result.ok, bool)
assert_type(prowess.run_sync("hi", model=model, skills="./skills", files="a.csv").text, str)


async def run() -> None:
    assert_type((await prowess.run("hi", tools=[stock])).text, str)
    async for envelope in agent.stream("hi"):
        assert_type(envelope, Envelope)
    async for envelope in prowess.stream("hi", model="offline"):
        assert_type(envelope.run, str)
    async with agent.session("s-1") as chat:
        assert_type(chat, prowess.AgentSession)
        assert_type((await chat.run("hi")).text, str)
    async with prowess.SkillKit("./skills", Path("more"), store="memory:") as kit:
        assert_type(kit.instructions, str)
        assert_type(await kit.call("skill_load", {"skill": "pdf"}), prowess.KitOutcome)
        assert_type(kit.schemas("anthropic"), list[dict[str, Any]])
        assert_type(list(kit.findings), list[Finding])
    with prowess.open_runtime(cwd=".", environ={}, flags={"skills.budget": 2000}) as runtime:
        async with runtime.open_session(model=model, limits=prowess.Limits(turns=1)) as session:
            await session.run("hi")


catalog = prowess.discover("./skills", Path("more"), source, modes={"pdf": "pin"})
library = prowess.Library(["./skills"], modes={"pdf": "off"}, nested=True)
skill = prowess.load(catalog, "pdf")
assert_type(library.catalog, prowess.Catalog)
assert_type(library.reload().added, tuple[str, ...])
assert_type(catalog.get("pdf"), prowess.Entry)
assert_type(skill, prowess.Skill)
assert_type(prowess.render_skill(skill), str)
assert_type(prowess.read_resource(skill, "a.txt"), bytes)
assert_type(parse_event({}), Envelope)
assert_type([report.valid for report in prowess.check("./skills", profile="spec")], list[bool])
assert_type(skill_dir("skills", "demo", allowed_tools=["grep"], metadata={"version": 1}), Path)
assert_type(Isolation(executor="local", mechanism="none").is_isolated, bool)
try:
    prowess.load(catalog, "pdf")
except SkillInvalid as error:
    assert_type(error.findings, tuple[Finding, ...])
except prowess.SkillNotFound as error:
    assert_type(error.near, tuple[str, ...])
except prowess.ProwessError as error:
    assert_type(error.code, str)
    assert_type(error.hint, str | None)
