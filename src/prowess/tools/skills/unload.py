"""skill_unload takes a skill out of use. Its restrictions stay in force, and its texts stay in view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import SkillError
from prowess.tools.arguments import SkillArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.skills.loaded import ShelfTool, describe, shown_name, shown_names


class SkillUnload(ShelfTool):
    kind = SkillArguments
    spec = ToolSpec(
        name="skill_unload",
        description="Stop using a loaded skill.",
        parameters=advertise(SkillArguments, "skill"),
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SkillArguments, args, self.spec.name)
        work = self._shelf.work
        try:
            loaded = work.get(wanted.skill)
        except SkillError as error:
            if error.code != "skill-not-loaded":
                raise
            names = [each.skill.name for each in work.loaded.values()]
            hint = f"There is nothing to unload. Loaded: {shown_names(names) or 'none'}"
            return Outcome(status="failed", code="skill-not-loaded", content=error.message, hint=hint)
        delta = await self._shelf.drop(loaded, "asked")
        content = f"unloaded: {shown_name(loaded.skill.name)}. Do not follow its instructions any more."
        return Outcome(status="ok", content=content, data=describe(loaded.skill), state_delta=delta)
