"""Turns a case of another system into a native one. Keys that no system has stay, and the reader reports them.

- trigger sets `[{query, should_trigger}]`, and `{input, expected, constraints}`
- `evals/evals.json` of a skill: `{skill_name, evals: [{id, prompt, expected_output, files, assertions|expectations}]}`
- one file per case in `evaluations/`: `{name, skills, query, context, expected_behavior, success_criteria}`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = dict[str, Any]

_STATEMENTS = ("assertions", "expectations", "expected_behavior", "success_criteria")
KEYS = frozenset(("input", "query", "should_trigger", "expected", "expected_output", *_STATEMENTS))
_OUTPUT = {"keywords": "contains", "patterns": "matches", "regex": "matches", "schema": "json_schema"}
_LIMITS = {"max_tool_calls": "max_calls", "timeout": "max_seconds", "max_usd": "max_cost"}


def to_native(entry: Mapping[str, Any], skill: str | None) -> Fields:
    """Returns the native case; `skill` is the skill of its file. ValueError(what, hint)."""
    case = {key: value for key, value in entry.items() if key not in ("name", "rationale")}
    prompt = next((case.pop(key) for key in ("input", "query", "prompt") if key in case), None)
    context = case.pop("context", None)
    case["prompt"] = f"{prompt}\n\nContext: {context}" if prompt and context else prompt
    expect = _convert_expected(case.pop("expected", None))
    names = _names(case.pop("skills", None))
    if names:  # one is often a short form of the skill that the file lies in
        expect["skills"] = {"load": [skill] if skill and len(names) == 1 else names}
    if "should_trigger" in case:
        expect["skills"] = _convert_trigger(case.pop("should_trigger"), case.pop("skill", skill))
    result = case.pop("expected_output", None)
    judged = [f"The result is as expected: {result}"] if result else []
    for key in _STATEMENTS:
        judged += _as_list(case.pop(key, None))
    if judged:
        expect["judge"] = judged
    if isinstance(limits := case.get("constraints"), Mapping):
        case["constraints"] = {_LIMITS.get(key, key): value for key, value in limits.items()}
    return {**case, "expect": expect}


def _convert_trigger(should_trigger: Any, skill: Any) -> Fields:
    if not isinstance(should_trigger, bool):
        raise ValueError("should_trigger must be true or false", "Write it without quotes.")
    if skill is None:
        hint = "Put the file into the skill's evals folder, or name it in each case with `skill`."
        raise ValueError("it is not known which skill should trigger", hint)
    return {"load" if should_trigger else "not_load": [skill]}


def _convert_expected(expected: Any) -> Fields:
    """Returns the checks of `expected`. A text, or a list of texts, is part of the answer."""
    if not isinstance(expected, Mapping):
        return {"output": {"contains": expected}} if expected else {}
    expect: Fields = {}
    for key, value in expected.items():
        if key == "skills" and not isinstance(value, Mapping):
            names = _names(value)
            expect[key] = {"load": names} if names else {"at_most": 0}
        elif key == "steps":
            expect[key] = _convert_steps(_as_list(value))
        elif key in ("output", "contains", "keywords"):
            given = value if isinstance(value, Mapping) else {"contains": value}
            output = {_OUTPUT.get(name, name): wanted for name, wanted in given.items()}
            expect["output"] = expect.get("output", {}) | output
        else:
            expect[key] = value
    return expect


def _convert_steps(given: list[Any]) -> list[Any]:
    """Returns rules for a list of actions: each is needed, in this order. Native rules stay as they are."""
    rules = [step for step in given if isinstance(step, Mapping)]
    texts = [str(step).replace("load_skill", "skill_load") for step in given if step not in rules]
    actions = [text for text in dict.fromkeys(texts) if text != "final_answer"]
    rules += [{"requires": action} for action in actions]
    return [*rules, {"before": actions}] if len(actions) > 1 else rules


def _names(value: Any) -> list[Any]:
    """Returns names of skills, each a text or `{name, source}`."""
    return [each.get("name") if isinstance(each, Mapping) else each for each in _as_list(value)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
