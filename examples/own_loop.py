"""Skills for an agent that you already have: its prompt, its tools, and a dispatcher.

It prints:

    prompt   3 skills in 1 catalog
    tools    skill_load skill_list_docs skill_select_docs skill_read skill_run update_plan read_file list_dir grep
    loaded   <skill_content name="meeting-notes" source="explicit">
    wrong    No skill 'meeting-note'. Did you mean: meeting-notes?
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import prowess

SKILLS = Path(__file__).parent / "skills"


async def main() -> None:
    async with prowess.SkillKit(SKILLS, store="memory:", artifacts="memory:") as kit:
        prompt = kit.instructions  # goes into the system prompt of your agent
        print("prompt  ", prompt.count("<skill>"), "skills in", prompt.count("<available_skills>"), "catalog")
        print("tools   ", *(tool["function"]["name"] for tool in kit.schemas("openai")))  # go to your model

        # What your model asks for goes to `call`; what comes back goes to your model.
        outcome = await kit.call("skill_load", {"skill": "meeting-notes"})
        print("loaded  ", outcome.content.splitlines()[2])
        outcome = await kit.call("skill_load", {"skill": "meeting-note"})
        print("wrong   ", outcome.content)


asyncio.run(main())
