"""skill_unload: a skill is no longer in use. What it forbids stays forbidden, and what is in view stays in view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prowess.core.ports import Within
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import SkillError
from prowess.tools.knowledge_arguments import SkillArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.skills.loaded import ShelfTool, describe, shown_name, shown_names


class SkillUnload(ShelfTool):
    kind = SkillArguments
    spec = ToolSpec(
        name="skill_unload",
        description="Stop using a loaded skill.",
        parameters=advertise(SkillArguments, "skill"),
    )

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(SkillArguments, args, self.spec.name)
        try:
            loaded = self._shelf.work.get(wanted.skill)
        except SkillError as error:
            if error.code != "skill-not-loaded":
                raise
            names = shown_names([each.skill.name for each in self._shelf.work.loaded.values()]) or "none"
            return Outcome(
                status="failed",
                code="skill-not-loaded",
                content=error.message,
                hint=f"There is nothing to unload. Loaded: {names}",
            )
        delta = await self._shelf.drop(loaded, "asked")
        content = f"unloaded: {shown_name(loaded.skill.name)}. Do not follow its instructions any more."
        return Outcome(status="ok", content=content, data=describe(loaded.skill), state_delta=delta)
