"""Every case by its name: who attacks, what is tried, what stops it. docs/threat-model.md has this very table.

python -m hostile.table, in tests/, prints it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import pytest

from tiers import ISOLATED

MODULES = (
    "test_reading",
    "test_widening",
    "test_going_around",
    "test_posing",
    "test_results",
    "test_leaving",
    "test_cloned",
    "test_records",
    "test_network",
    "test_kit",
)
ATTACKERS = {
    "skill": "The author of a skill",
    "output": "The author of a file or of a tool's output",
    "clone": "A cloned repository",
    "network": "A network peer",
    "neighbour": "Another session, or another user of the machine",
    "model": "The model itself",
}
Test = TypeVar("Test", bound=Callable[..., Any])


class Case(NamedTuple):
    name: str
    module: str
    by: str  # of ATTACKERS
    tries: str
    stopped_by: str
    everywhere: bool  # tried in each isolation tier


CASES: dict[str, Case] = {}


def holds(true: bool, what: str = "") -> None:
    """The very thing that the case is about."""
    assert true, what


def case(*, by: str, tries: str, stopped_by: str, everywhere: bool = False) -> Callable[[Test], Test]:
    """Enter a test into the table. `everywhere`: what comes of it depends on the isolation, so it is tried in each."""

    def enter(test: Test) -> Test:
        name = test.__name__.removeprefix("test_").replace("_", "-")
        assert by in ATTACKERS and name not in CASES, name
        CASES[name] = Case(name, test.__module__.rpartition(".")[2], by, tries, stopped_by, everywhere)
        return pytest.mark.parametrize("tier", ISOLATED, indirect=True)(test) if everywhere else test

    return enter


def load_cases() -> list[Case]:
    for name in MODULES:
        importlib.import_module(f"hostile.{name}")
    return sorted(CASES.values(), key=lambda each: MODULES.index(each.module))  # whichever was imported first


def render_table() -> str:
    lines = ["| attempt | what stops it | tried in | test |", "|---|---|---|---|"]
    cases = load_cases()
    for key, attacker in ATTACKERS.items():
        lines.append(f"| **{attacker}** | | | |")
        for each in cases:
            if each.by == key:
                where = "every tier" if each.everywhere else "one"
                lines.append(f"| {each.tries} | {each.stopped_by} | {where} | `{each.name}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(importlib.import_module("hostile.table").render_table(), end="")  # not this copy of it, which has no cases
