"""Isolation in records: our own executors keep the old form, and anything odd is no isolation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess.core.isolation import record_isolation, recorded_kind, was_isolated
from prowess.core.values import Isolation, IsolationKind

_FIELDS = ["executor", "mechanism", "uid", "network", "limits", "notes"]


def _made(executor: str, kind: IsolationKind) -> Isolation:
    return Isolation(executor=executor, mechanism="bwrap+seccomp", uid=7, network="none", notes=("a",), kind=kind)


@pytest.mark.parametrize(
    ("executor", "kind", "isolated"),
    [("local", "process", False), ("sandbox", "sandbox", True), ("container",) * 2 + (True,)],
)
def test_our_own_are_written_as_before(executor: str, kind: IsolationKind, isolated: bool) -> None:
    told = json.loads(json.dumps(record_isolation(_made(executor, kind))))
    assert list(told) == _FIELDS
    assert recorded_kind(told) == kind and was_isolated(told) is isolated is _made(executor, kind).is_isolated


@pytest.mark.parametrize("executor", ["microvm", "sandbox", "local"])
@pytest.mark.parametrize("kind", ["none", "process", "sandbox", "container"])
def test_another_executor_says_its_kind(executor: str, kind: IsolationKind) -> None:
    told = json.loads(json.dumps(record_isolation(_made(executor, kind))))
    assert list(told)[:6] == _FIELDS
    assert recorded_kind(told) == kind and was_isolated(told) is _made(executor, kind).is_isolated


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"executor": "microvm", "mechanism": "kvm", "network": "none"},
        {"executor": ["sandbox"], "mechanism": "bwrap", "network": "none"},
        {"executor": "sandbox", "mechanism": None, "network": "none"},
        {"executor": "sandbox", "mechanism": "bwrap", "network": None},
        {"executor": "sandbox", "mechanism": "bwrap", "network": "host"},
        {"executor": "sandbox", "mechanism": "bwrap", "network": "none", "kind": "none"},
        {"executor": "sandbox", "mechanism": "bwrap", "network": "none", "kind": ["sandbox"]},
        {"executor": "sandbox", "mechanism": "bwrap", "network": "none", "kind": "fortress"},
    ],
)
def test_an_odd_record_is_no_isolation(told: dict[str, Any]) -> None:
    assert not was_isolated(told)
