"""Renders the neutral transcript for a text model: system text with the protocol, documents, observations.

A rendered message does not change when messages are added: it depends on the tools, on its own message and on those
before it. Results in a row become one message that grows at its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from prowess.core.values import Message, Part, ToolCall, ToolSpec
from prowess.models.actions.calls import name_action, render_documents
from prowess.models.actions.schema import NEEDS, NOT_TOOLS, PLANNING, callable_tools, constraints, offered_actions


def render_transcript(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    rendered: list[Message] = []
    calls: dict[str, ToolCall] = {}
    before = ""
    stated = Part(text=render_protocol(tools), ref="note:protocol")
    if not any(message.role == "system" for message in messages[:1]):
        rendered.append(Message(role="system", parts=(stated,)))
    for at, message in enumerate(messages):
        if message.role == "system":
            rendered.append(replace(message, parts=(*message.parts, stated)) if at == 0 else message)
        elif message.role == "assistant":
            calls |= {call.id: call for call in message.calls}
            said = "".join(part.text or "" for part in message.parts if part.kind == "text")
            document = Part(text=render_documents(said, message.calls))
            others = tuple(part for part in message.parts if part.kind != "text")
            rendered.append(Message(role="assistant", parts=(*others, document)))
        elif message.role == "tool":
            parts = _observation(message, calls.get(message.call_id or ""))
            if before == "tool":
                rendered[-1] = replace(rendered[-1], parts=(*rendered[-1].parts, *parts))
            else:
                rendered.append(Message(role="user", parts=parts))
        else:
            rendered.append(message)
        before = message.role
    return rendered


def _observation(message: Message, call: ToolCall | None) -> tuple[Part, ...]:
    about = ""
    if call is not None:
        name, skill = name_action(call), call.args.get("skill")
        about = f" ({name} {skill})" if isinstance(skill, str) else f" ({name})"
    head = f"Observation{about}:\n"
    if message.parts and message.parts[0].kind == "text":
        first = replace(message.parts[0], text=head + _in_actions(message.parts[0].text or ""))
        return (first, *message.parts[1:])
    return (Part(text=head + ("" if message.parts else "(nothing)")), *message.parts)


_REFUSED = re.compile(r"(?:failed|denied|waiting)(?: \[[^\]\n]{1,80}\])?: ")


def _in_actions(text: str) -> str:
    """Replaces tool names in a refusal, because these tools are actions here. Other results are not changed."""
    return (
        re.sub(r"\b(?:skill_load|update_plan)\b", lambda found: NOT_TOOLS[found[0]], text)
        if _REFUSED.match(text)
        else text
    )


_SHAPES = {
    "select_skills": '"skills": [Skill], "reason": "…"}: load skills, before anything else is done with them',
    "load_resource": '"skill": Skill, "relative_path": "…", "section_hint"?: "## …"}: read a file of a skill',
    "run_script": '"skill": Skill, "relative_path": "…", "args": []}: run a script of a skill',
    "call_tool": '"tool": "…", "args": {…}}: use one of the tools below',
    "final_answer": '"content": "…"}: answer the user; this ends the work',
}


def render_protocol(tools: Sequence[ToolSpec]) -> str:
    """Renders the text that tells the model how to reply; the same for the same tools."""
    names = [tool.name for tool in tools]
    offered = offered_actions(names)
    planning = PLANNING in names
    document = '{"plan"?: Plan, "plan_update"?: Patch, "action": Action}' if planning else '{"action": Action}'
    lines = [
        "How to reply:",
        f"Every reply is exactly one JSON object and nothing else: {document}. "
        'What comes of an action is shown to you as "Observation". Action is one of:',
        *(f'- {{"type": "{kind}", {_SHAPES[kind]}' for kind in offered),
    ]
    if NEEDS.keys() & set(offered):
        lines.append('Skill: {"name": "…"}; with "source": "…" where the list of skills says one.')
    if planning:
        limits = ", ".join(f'"{name}"?: N' for name in constraints(names))
        lines.append(
            'Plan, in the first reply only: {"goal": "…", "steps": [{"id": "s1", "title": "…", "status": '
            f'"pending|in_progress|completed"}}], "assumptions"?: ["…"], "constraints"?: {{{limits}}}}}. '
            'Patch, later, when it changes: {"set": {"s1": {"status": "completed"}}, "add": [steps], '
            '"remove": [ids], "order": [ids]}, or goal, assumptions, constraints anew.'
        )
    listed = [tool for tool in tools if tool.name in callable_tools(names)]
    if listed:
        lines.append("Tools for call_tool, with the schemas of their args:")
        lines += [f"- {t.name}: {t.description} {json.dumps(t.parameters, ensure_ascii=False)}" for t in listed]
    return "\n".join(lines)
