"""The constant part of a request: who builds the agent speaks first, then the catalog, then how to work with it."""

from __future__ import annotations

HEADER = "Available skills:"
GUIDANCE_HEADER = "Tooling and workspace guidance:"

GUIDANCE = """\
- When a task matches a skill's description, call skill_load at once, before you try anything else.
- Body first. Then skill_list_docs and skill_select_docs for the docs it needs; avoid include_all_docs.
- skill_run runs only commands that the skill's text documents; it is not for looking around.
- Given files are in inputs/. Results belong in out/; name them in output_files.
- More than one step: keep a plan with update_plan, from your first reply on."""

LEAN_GUIDANCE = """\
- When a task matches a skill's description, call skill_load at once. Body first, then docs with skill_read.
- skill_run runs only commands that the skill documents. Given files: inputs/. Results: out/.
- More than one step: update_plan."""


def render_system(
    instructions: str, catalog: str, guidance: str | None, *, lean: bool = False, always: bool = False
) -> str:
    """`guidance` None is ours, an empty text is none. Without skills there is nothing to say about them, unless it is
    wanted always."""
    parts = [instructions.strip()] if instructions.strip() else []
    if catalog or always:
        parts.append(f"{HEADER}\n{catalog}".rstrip())
        text = (LEAN_GUIDANCE if lean else GUIDANCE) if guidance is None else guidance.strip()
        if text:
            parts.append(f"{GUIDANCE_HEADER}\n{text}")
    return "\n\n".join(parts)
