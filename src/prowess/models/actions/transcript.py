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
from prowess.models.actions.schema import NEEDS, NOT_TOOLS, PLANNING, callable_tools, offered_actions


def render_transcript(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    rest = list(messages)
    system = Message(role="system")
    if rest and rest[0].role == "system":
        system = rest.pop(0)
    protocol = Part(text=render_protocol(tools), ref="note:protocol")
    system = replace(system, parts=(*system.parts, protocol))
    rendered = [system]
    calls: dict[str, ToolCall] = {}
    before = ""
    for message in rest:
        if message.role == "assistant":
            calls |= {call.id: call for call in message.calls}
            documents = _documents(message)
            rendered.append(documents)
        elif message.role == "tool":
            parts = _observation(message, calls.get(message.call_id or ""))
            if before == "tool":
                last = rendered.pop()
                parts = (*last.parts, *parts)
            observations = Message(role="user", parts=parts)
            rendered.append(observations)
        else:
            rendered.append(message)
        before = message.role
    return rendered


def _documents(message: Message) -> Message:
    """Renders a message of the assistant; its text and its calls become documents."""
    said = ""
    others: list[Part] = []
    for part in message.parts:
        if part.kind == "text":
            said += part.text or ""
        else:
            others.append(part)
    document = Part(text=render_documents(said, message.calls))
    return Message(role="assistant", parts=(*others, document))


def _observation(message: Message, call: ToolCall | None) -> tuple[Part, ...]:
    head = f"Observation{_about(call)}:\n"
    if not message.parts:
        head += "(nothing)"
    if not message.parts or message.parts[0].kind != "text":
        title = Part(text=head)
        return (title, *message.parts)
    first, *rest = message.parts
    text = _in_actions(first.text or "")
    first = replace(first, text=head + text)
    return (first, *rest)


def _about(call: ToolCall | None) -> str:
    """Returns the name of the action, and of its skill."""
    if call is None:
        return ""
    name = name_action(call)
    skill = call.args.get("skill")
    return f" ({name} {skill})" if isinstance(skill, str) else f" ({name})"


_REFUSED = re.compile(r"(?:failed|denied|waiting)(?: \[[^\]\n]{1,80}\])?: ")


def _in_actions(text: str) -> str:
    """Replaces tool names in a refusal, because these tools are actions here. Other results are not changed."""
    if not _REFUSED.match(text):
        return text
    return re.sub(r"\b(?:skill_load|update_plan)\b", lambda found: NOT_TOOLS[found[0]], text)


_REPLY = "Every reply is exactly one JSON object and nothing else"
_OBSERVED = 'What comes of an action is shown to you as "Observation". Action is one of:'
_DOCUMENT = '{"action": Action}'
_PLANNED = '{"plan"?: Plan, "plan_update"?: Patch, "action": Action}'
_SHAPES = {
    "select_skills": '"skills": [Skill], "reason": "…"}: load skills, before anything else is done with them',
    "load_resource": '"skill": Skill, "relative_path": "…", "section_hint"?: "## …"}: read a file of a skill',
    "run_script": '"skill": Skill, "relative_path": "…", "args": []}: run a script of a skill',
    "call_tool": '"tool": "…", "args": {…}}: use one of the tools below',
    "final_answer": '"content": "…"}: answer the user; this ends the work',
}


_SKILL = 'Skill: {"name": "…"}; with "source": "…" where the list of skills says one.'
_PLAN = (
    'Plan, in the first reply only: {"goal": "…", "steps": [{"id": "s1", "title": "…", "status": '
    '"pending|in_progress|completed"}], "assumptions"?: ["…"], "constraints"?: {LIMITS}}. '
    'Patch, later, when it changes: {"set": {"s1": {"status": "completed"}}, "add": [steps], '
    '"remove": [ids], "order": [ids]}, or goal, assumptions, constraints anew.'
)
_LIMITS = '"max_turns"?: N, "max_tool_calls"?: N'
_SCRIPT_LIMIT = ', "max_script_runs"?: N'


def render_protocol(tools: Sequence[ToolSpec]) -> str:
    """Renders the text that tells the model how to reply; the same for the same tools."""
    names = [tool.name for tool in tools]
    offered = offered_actions(names)
    planning = PLANNING in names
    document = _PLANNED if planning else _DOCUMENT
    lines = ["How to reply:", f"{_REPLY}: {document}. {_OBSERVED}"]
    lines += [f'- {{"type": "{kind}", {_SHAPES[kind]}' for kind in offered]
    if NEEDS.keys() & set(offered):
        lines.append(_SKILL)
    if planning:
        limits = _LIMITS + _SCRIPT_LIMIT if "run_script" in offered else _LIMITS
        lines.append(_PLAN.replace("LIMITS", limits))
    if "call_tool" in offered:
        lines.append("Tools for call_tool, with the schemas of their args:")
    callable_names = callable_tools(names)
    for tool in tools:
        if tool.name in callable_names:
            parameters = json.dumps(tool.parameters, ensure_ascii=False)
            lines.append(f"- {tool.name}: {tool.description} {parameters}")
    return "\n".join(lines)
