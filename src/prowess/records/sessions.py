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
