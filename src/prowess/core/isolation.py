"""Isolation in records: how it is written into events and documents, and read from them.

`kind` is written only where the name of the executor does not say it. So the records of our own executors have the form
that earlier versions wrote, and those can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from prowess.core.codec import to_json
from prowess.core.values import Isolation, IsolationKind, LimitStatus

_OWN: dict[str, IsolationKind] = {"local": "process", "sandbox": "sandbox", "container": "container"}


class IsolationRecord(TypedDict):
    executor: str
    mechanism: str
    uid: int | None
    network: str
    limits: dict[str, LimitStatus]
    notes: list[str]
    kind: NotRequired[IsolationKind]  # where the name of the executor does not say it


def record_isolation(isolation: Isolation) -> IsolationRecord:
    data: IsolationRecord = to_json(isolation)
    if _OWN.get(isolation.executor) == isolation.kind:
        del data["kind"]
    return data


def recorded_kind(told: Mapping[str, Any]) -> IsolationKind:
    """Returns the kind in a record. Anything unknown counts as no isolation."""
    said = told.get("kind")
    for executor, kind in _OWN.items():
        if said == kind or (said is None and told.get("executor") == executor):
            return kind
    return "none"


def was_isolated(told: Mapping[str, Any]) -> bool:
    """True when a record says that the run was isolated: see Isolation.is_isolated."""
    mechanism = told.get("mechanism") or ""
    network = told.get("network") or ""
    recorded = Isolation(executor="", mechanism=mechanism, network=network, kind=recorded_kind(told))
    return recorded.is_isolated
