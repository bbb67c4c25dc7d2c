"""Records of eval runs for tests."""

from __future__ import annotations

from typing import Any

from prowess.core.values import Usage
from prowess.evals.results import CheckResult, RunKey, RunRecord


def run_record(
    case: str = "a", status: str = "passed", *, arm: str = "with_skill", repeat: int = 1, **more: Any
) -> RunRecord:
    key = {"suite": "s" * 64, "model": "anthropic:claude", "skills": "d"}
    key |= {name: more.pop(name) for name in list(more) if name in key}
    if isinstance(more.get("usage"), int):
        more["usage"] = Usage(input=more["usage"], requests=1)
    return RunRecord(
        key=RunKey(case=case, arm=arm, repeat=repeat, **key),
        status=status,  # type: ignore[arg-type]
        **more,
    )


def trigger_run(case: str, expected: str = "", loaded: str = "", forbidden: str = "", **more: Any) -> RunRecord:
    """Run of a case about skills; the names are separated by spaces."""
    wanted, found, banned = (tuple(text.split()) for text in (expected, loaded, forbidden))
    right = set(wanted) <= set(found) and not set(banned) & set(found)
    return run_record(
        case,
        more.pop("status", "passed" if right else "failed"),
        is_trigger_case=True,
        expected_skills=wanted,
        loaded_skills=found,
        forbidden_skills=banned,
        checks=(CheckResult(kind="skills", name=f"loads {expected or 'nothing'}", passed=right),),
        **more,
    )
