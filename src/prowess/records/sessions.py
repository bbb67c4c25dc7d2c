"""Lists the sessions of a store, whoever owns them."""

from __future__ import annotations

from prowess.core.ports import EventLog
from prowess.core.values import SessionInfo


async def all_sessions(log: EventLog) -> list[SessionInfo]:
    """Returns the sessions of every tenant. A store of another package may not tell its tenants: then, of `default`."""
    tell = getattr(log, "tenants", None)
    tenants = ["default"] if tell is None else await tell()
    found: list[SessionInfo] = []
    for tenant in tenants:
        found += await log.sessions(tenant)
    return found


def answers_since(log: EventLog) -> str | None:
    """Returns the time from which questions and answers of a log count: "" means all of them, None means none, because
    somebody else wrote it. A log around another one counts as that one."""
    while (inner := getattr(log, "inner", None)) is not None:
        log = inner
    return getattr(log, "answers_since", "")
