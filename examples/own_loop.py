"""Skills for an agent that you already have: its prompt, its tools, a dispatcher, and a question for a person.

It prints:

    prompt   3 skills in 1 catalog
    tools    skill_load skill_list_docs skill_select_docs skill_read skill_run
    loaded   <skill_content name="meeting-notes" source="explicit">
    wrong    failed [skill-not-found]: No skill 'meeting-note'. Did you mean: meeting-notes?
    asked    skill_run echo hello
    ran      hello
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import prowess

SKILLS = Path(__file__).parent / "skills"


async def main() -> None:
    kit = prowess.SkillKit(SKILLS, executor="local", store="memory:", artifacts="memory:")
    async with kit, kit.session("conv-7", user="ann") as session:
        prompt = session.instructions  # goes into the system prompt of your agent
        print("prompt  ", prompt.count("<skill>"), "skills in", prompt.count("<available_skills>"), "catalog")
        print("tools   ", *(tool["function"]["name"] for tool in session.schemas("openai")))  # go to your model

        # What your model asks for goes to `call`; what comes back goes to your model.
        outcome = await session.call("skill_load", {"skill": "meeting-notes"})
        print("loaded  ", outcome.content.splitlines()[2])
        outcome = await session.call("skill_load", {"skill": "meeting-note"})
        print("wrong   ", outcome.content.splitlines()[0])

        # Without a sandbox, a person is asked first. The same call under the same id then runs.
        args = {"skill": "meeting-notes", "command": "echo hello"}
        outcome = await session.call("skill_run", args, id="call_3")
        if outcome.question is not None:
            print("asked   ", outcome.question.tool, outcome.question.args["command"])
            await session.answer(outcome.question, "once", by="ann")
            outcome = await session.call("skill_run", args, id="call_3")
        print("ran     ", outcome.content)


asyncio.run(main())
