"""Renders the system prompt: instructions of the developer, then the catalog, then guidance.

Guidance names only tools that are offered: actions if the model writes actions, and no scripts without an executor.
"""

from __future__ import annotations

from prowess.core.events import ProtocolName

HEADER = "Available skills:"
GUIDANCE_HEADER = "Tooling and workspace guidance:"

_GUIDANCE = """\
- When a task matches a skill's description, {load} at once, before you try anything else.
- Body first. Then {docs} for the docs it needs{all_docs}.
{run}- Given files are in inputs/.{results}
- More than one step: keep a plan with {plan}, from your first reply on."""
_LEAN = """\
- When a task matches a skill's description, {load} at once. Body first, then docs with {read}.
- {run}Given files: inputs/.{results}
- More than one step: {plan}."""

_NAMES = {
    "tools": {
        "load": "call skill_load",
        "docs": "skill_list_docs and skill_select_docs",
        "all_docs": "; avoid include_all_docs",
        "read": "skill_read",
        "plan": "update_plan",
    },
    "actions": {
        "load": "select_skills",
        "docs": "load_resource",
        "all_docs": "",
        "read": "load_resource",
        "plan": "plan and plan_update",
    },
}
_RUN = {
    "tools": "- skill_run runs only commands that the skill's text documents; it is not for looking around.\n",
    "actions": "- run_script runs only scripts that the skill's text documents; it is not for looking around.\n",
}
_RESULTS = {
    "tools": " Results belong in out/; name them in output_files.",
    "actions": " Results belong in out/.",
}
_LEAN_RUN = {
    "tools": "skill_run runs only commands that the skill documents. ",
    "actions": "run_script runs only scripts that the skill documents. ",
}


def render_guidance(*, lean: bool = False, protocol: ProtocolName = "tools", can_run: bool = True) -> str:
    run, results = (_LEAN_RUN[protocol], " Results: out/.") if lean else (_RUN[protocol], _RESULTS[protocol])
    runs = {"run": run, "results": results} if can_run else {"run": "", "results": ""}
    return (_LEAN if lean else _GUIDANCE).format(**_NAMES[protocol], **runs)


GUIDANCE, LEAN_GUIDANCE = render_guidance(), render_guidance(lean=True)


def render_system(
    instructions: str,
    catalog: str,
    guidance: str | None,
    *,
    lean: bool = False,
    protocol: ProtocolName = "tools",
    can_run: bool = True,
    always: bool = False,
) -> str:
    """Renders the system prompt. `guidance` None means the built-in text, an empty text means none. Without skills,
    catalog and guidance are left out, except with `always`."""
    parts = [instructions.strip()] if instructions.strip() else []
    if catalog or always:
        parts.append(f"{HEADER}\n{catalog}".rstrip())
        ours = render_guidance(lean=lean, protocol=protocol, can_run=can_run)
        text = ours if guidance is None else guidance.strip()
        if text:
            parts.append(f"{GUIDANCE_HEADER}\n{text}")
    return "\n\n".join(parts)
