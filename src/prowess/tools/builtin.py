"""Builds all built-in tools, always in the same order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from prowess.core.ports import Asker
from prowess.core.values import Plan
from prowess.tools.ask_user import AskUser
from prowess.tools.base import Tool, switched_on
from prowess.tools.files.read import Activate
from prowess.tools.files.toolset import file_tools
from prowess.tools.plan import UpdatePlan
from prowess.tools.run.skill_run import SkillRun
from prowess.tools.run.terminals import Programs, SkillExec, SkillKillSession, SkillPollSession, SkillWriteStdin
from prowess.tools.session_work import SessionWork
from prowess.tools.skills.docs import SkillListDocs, SkillSelectDocs
from prowess.tools.skills.load import SkillLoad, SkillUnload
from prowess.tools.skills.loaded import LoadedSkills
from prowess.tools.skills.read import SkillRead
from prowess.tools.skills.search import SkillSearch


def make_tools(
    work: SessionWork,
    shelf: LoadedSkills,
    programs: Programs,
    *,
    get_plan: Callable[[], Plan | None],
    put_plan: Callable[[Plan], Awaitable[None]],
    plan_limits: Callable[[], Mapping[str, int]],
    asker: Asker | None,
    enabled: Collection[str],
    activate: Activate,
    skill_at: Callable[[str], str | None],
) -> list[Tool]:
    tools: list[Tool] = [
        SkillLoad(shelf),
        SkillListDocs(shelf),
        SkillSelectDocs(shelf),
        SkillRead(shelf),
        SkillRun(work),
        SkillExec(work, programs),
        SkillWriteStdin(programs),
        SkillPollSession(programs),
        SkillKillSession(programs),
        SkillUnload(shelf),
        SkillSearch(shelf),
        UpdatePlan(get_plan, put_plan, limits=plan_limits),
        AskUser(asker),
    ]
    files = file_tools(work, enabled=enabled, activate=activate, skill_at=skill_at)
    return [*switched_on(tools, enabled), *files]
