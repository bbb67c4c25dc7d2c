"""What the documentation says about permissions, as a function that knows nothing of the code: the verdict about a
call, and whose it is. Decisions are compared with it, and what comes of a call through the kit."""

from __future__ import annotations

from typing import NamedTuple

NEVER_NARROWED = (
    "skill_load skill_read skill_list_docs skill_select_docs skill_unload skill_search update_plan ask_user"
)
READS = {*NEVER_NARROWED.split(), "read_file", "list_dir", "grep"}
STARTS = {"skill_run", "skill_exec"}
TALKS, WATCHES = {"skill_write_stdin"}, {"skill_poll_session", "skill_kill_session"}
HIGH = {"write_file", "delete_file", "network_request"}
EVERY_TOOL = sorted(READS | STARTS | TALKS | WATCHES | HIGH)
ORDER = ("allow", "ask", "deny")

SAYS = (None, *ORDER)  # what a rule may say; None: there is none that fits


class Case(NamedTuple):
    tool: str
    enabled: bool  # tools.enable names it
    required: bool  # execution.require_approval_for names it
    who: str  # which lists there are: see `lists` of the test
    rule: str | None  # what a rule of a trusted policy says
    tightening: str | None  # what a rule of a managed file, or of a folder that nobody trusted, says
    isolation: str
    trusted: bool
    granted: bool
    inside: bool = True  # its path is below work/ or out/


def oracle(case: Case) -> tuple[str, str]:
    """(verdict, whose it is)"""
    verdict, by = _first(case)
    for says, whose in ((case.tightening, "tightening"), ("ask" if case.required else None, "required")):
        if says is not None and ORDER.index(says) > ORDER.index(verdict):
            verdict, by = says, whose
    return verdict, by


def _first(case: Case) -> tuple[str, str]:
    writes_inside = case.tool == "write_file" and case.inside
    if case.tool in HIGH and not case.enabled and not writes_inside:
        return "deny", "off"
    if case.who in ("named-forbids", "ambient-none") and case.tool not in NEVER_NARROWED.split():
        return "deny", "list"
    if case.rule is not None:
        return case.rule, "rule"
    if case.tool in READS | WATCHES:
        return "allow", "table"
    if writes_inside and case.isolation in ("sandbox", "container"):
        return "allow", "table"
    if case.tool in HIGH or case.tool not in EVERY_TOOL:
        return "ask", "table"
    if case.isolation in ("sandbox", "container"):
        return "allow", "table"
    if not case.trusted or case.who.startswith("ambient"):
        return "deny", "table"
    return ("allow", "grant") if case.granted and case.who == "named-allows" else ("ask", "table")
