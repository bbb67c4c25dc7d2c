"""Mistakes that a type checker finds. Each has `type: ignore`, which `tools/check_types.py` reports when there is no
error on its line. Nothing runs this file."""

from __future__ import annotations

import prowess
from prowess.events import Event, SkillLoaded
from prowess.ports import ToolCall
from prowess.testing import ScriptedApprover, ScriptedModel


@prowess.tool
def stock(item: str) -> int:
    """Pieces in stock."""
    return len(item)


stock(5)  # type: ignore[arg-type]
prowess.Agnet("offline")  # type: ignore[attr-defined]
prowess.Agent(modle="x")  # type: ignore[call-arg]
prowess.Agent(limits=5)  # type: ignore[arg-type]
prowess.Agent(limits=prowess.Limits(turn=5))  # type: ignore[call-arg]
prowess.Agent(approve=lambda call: True)  # type: ignore[arg-type,misc]
prowess.Agent(store=5)  # type: ignore[arg-type]
prowess.Agent(load_mode="always")  # type: ignore[arg-type]
prowess.Agent(tools=["stock"])  # type: ignore[list-item]
agent = prowess.Agent(ScriptedModel([]))
agent.run_sync("hi", model="x")  # type: ignore[call-arg]
agent.run_sync("hi", files=[5])  # type: ignore[list-item]
agent.stream("hi", sesion="s-1")  # type: ignore[call-arg]
agent.session(5)  # type: ignore[arg-type]
result = agent.run_sync("hi")
result.txt  # type: ignore[attr-defined]  # noqa: B018
result.text = "other"  # type: ignore[misc]
prowess.run("hi", modle="x")  # type: ignore[call-arg,unused-coroutine]
prowess.run_sync("hi", modle="x")  # type: ignore[call-arg]
prowess.run_sync("hi", load_mode="always")  # type: ignore[arg-type]
prowess.stream("hi", modle="x")  # type: ignore[call-arg]
prowess.tool(read_only="yes")  # type: ignore[call-overload]
prowess.SkillKit("./skills", exectuor="local")  # type: ignore[call-arg]
prowess.SkillKit("./skills").schemas("grpc")  # type: ignore[arg-type]
prowess.discover("./skills", modes={"pdf": "sometimes"})  # type: ignore[dict-item]
prowess.Library(["./skills"], nestde=True)  # type: ignore[call-arg]
prowess.check("./skills", profile="strict")  # type: ignore[arg-type]
ScriptedApprover(["maybe"])  # type: ignore[list-item]
ToolCall(id="c-1", name="grep")  # type: ignore[call-arg]
with prowess.open_runtime(cwd=".", environ={}) as runtime:
    runtime.open_kit(aprover=None)  # type: ignore[call-arg]
    runtime.open_session(model=5)  # type: ignore[arg-type]


def name_of(event: Event) -> str:
    return event.name if event.type == "skill_unloaded" else SkillLoaded.type  # type: ignore[attr-defined]
