"""Lists all built-in tools, always in the same order. Each is made when it is first called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from prowess.core.ports import Asker
from prowess.core.tool_table import SWITCHED_TOOLS
from prowess.core.values import Plan, ToolSpec
from prowess.tools.ask_user import AskUser
from prowess.tools.base import Tool
from prowess.tools.files.grep import Grep
from prowess.tools.files.list import ListDir
from prowess.tools.files.read import Activate, ReadFile
from prowess.tools.files.write import DeleteFile, WriteFile
from prowess.tools.network_request import NetworkRequest
from prowess.tools.plan import UpdatePlan
from prowess.tools.run.skill_run import SkillRun
from prowess.tools.run.terminals import Programs, SkillExec, SkillKillSession, SkillPollSession, SkillWriteStdin
from prowess.tools.session_work import SessionWork
from prowess.tools.skills.docs import SkillListDocs, SkillSelectDocs
from prowess.tools.skills.load import SkillLoad, SkillUnload
from prowess.tools.skills.loaded import LoadedSkills
from prowess.tools.skills.read import SkillRead
from prowess.tools.skills.search import SkillSearch
from prowess.tools.toolset import Tools, no_tool


class ToolMaker(NamedTuple):
    """Schema of a tool, and the function that makes it."""

    spec: ToolSpec
    make: Callable[[], Tool]


class BuiltinTools(Tools):
    """Toolset that makes a tool when it is first called. A tool of high risk is there only if it is enabled."""

    def __init__(self, makers: Sequence[ToolMaker], enabled: Collection[str]) -> None:
        super().__init__()
        self._makers: dict[str, ToolMaker] = {}
        for maker in makers:
            name = maker.spec.name
            if name not in SWITCHED_TOOLS or name in enabled:
                self._makers[name] = maker

    def specs(self) -> Sequence[ToolSpec]:
        return [maker.spec for maker in self._makers.values()]

    def _get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        maker = self._makers.get(name)
        if maker is None:
            raise no_tool(name, self._makers)
        tool = maker.make()
        self._tools[name] = tool
        return tool


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
) -> BuiltinTools:
    """Returns the built-in tools. An enabled tool is not yet allowed: policy decides every call."""
    makers = [
        ToolMaker(SkillLoad.spec, lambda: SkillLoad(shelf)),
        ToolMaker(SkillListDocs.spec, lambda: SkillListDocs(shelf)),
        ToolMaker(SkillSelectDocs.spec, lambda: SkillSelectDocs(shelf)),
        ToolMaker(SkillRead.spec, lambda: SkillRead(shelf)),
        ToolMaker(SkillRun.spec, lambda: SkillRun(work)),
        ToolMaker(SkillExec.spec, lambda: SkillExec(work, programs)),
        ToolMaker(SkillWriteStdin.spec, lambda: SkillWriteStdin(programs)),
        ToolMaker(SkillPollSession.spec, lambda: SkillPollSession(programs)),
        ToolMaker(SkillKillSession.spec, lambda: SkillKillSession(programs)),
        ToolMaker(SkillUnload.spec, lambda: SkillUnload(shelf)),
        ToolMaker(SkillSearch.spec, lambda: SkillSearch(shelf)),
        ToolMaker(UpdatePlan.spec, lambda: UpdatePlan(get_plan, put_plan, limits=plan_limits)),
        ToolMaker(AskUser.spec, lambda: AskUser(asker)),
        ToolMaker(ReadFile.spec, lambda: ReadFile(work, activate=activate, skill_at=skill_at)),
        ToolMaker(ListDir.spec, lambda: ListDir(work)),
        ToolMaker(Grep.spec, lambda: Grep(work)),
        ToolMaker(WriteFile.spec, lambda: WriteFile(work)),
        ToolMaker(DeleteFile.spec, lambda: DeleteFile(work)),
        ToolMaker(NetworkRequest.spec, NetworkRequest),
    ]
    return BuiltinTools(makers, enabled)
