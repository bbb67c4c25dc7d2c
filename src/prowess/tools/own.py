"""Every tool of ours, in the order in which they are always told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from prowess.ports import Asker
from prowess.tools.ask_user import AskUser
from prowess.tools.base import Tool
from prowess.tools.files import file_tools
from prowess.tools.interactive import SkillExec, SkillKillSession, SkillPollSession, SkillWriteStdin
from prowess.tools.programs import Programs
from prowess.tools.read_file import Activate
from prowess.tools.shelf import Shelf
from prowess.tools.skill_docs import SkillListDocs, SkillSelectDocs
from prowess.tools.skill_load import SkillLoad
from prowess.tools.skill_read import SkillRead
from prowess.tools.skill_run import SkillRun
from prowess.tools.skill_search import SkillSearch
from prowess.tools.skill_unload import SkillUnload
from prowess.tools.update_plan import UpdatePlan
from prowess.tools.work import Work
from prowess.values import Plan


def make_tools(
    work: Work,
    shelf: Shelf,
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
    return [
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
        *file_tools(work, enabled=enabled, activate=activate, skill_at=skill_at),
    ]
