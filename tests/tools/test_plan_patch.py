"""Plans as models write them become valid plans; a patch does exactly what it says; limits are only ever tightened."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess._internal.text import strip_invisible
from prowess.core.codec import from_json, to_json
from prowess.core.values import Plan, Step
from prowess.errors import ToolRetry
from prowess.tools.plan import (
    LIMITS,
    MAX_STEPS,
    MAX_TITLE,
    STATUSES,
    apply_patch,
    change_plan,
    parse_plan,
    tighten,
)


def steps(*texts: str) -> tuple[Step, ...]:
    return tuple(Step(id=f"s{n}", title=text) for n, text in enumerate(texts, 1))


THREE = Plan(goal="g", steps=steps("a", "b", "c"))


# --- a whole plan -----------------------------------------------------------------------------------------------------


def test_the_plan_of_the_contract_is_itself() -> None:
    given = {
        "goal": "Finish the task",
        "steps": [{"id": "s1", "title": "Load skills", "status": "pending"}],
        "assumptions": ["it is UTF-8"],
        "constraints": {"max_turns": 12, "max_tool_calls": 30},
    }
    plan = parse_plan(given)
    assert to_json(plan) == given and parse_plan(to_json(plan)) == plan


@pytest.mark.parametrize(
    "data",
    [
        {"goal": "", "steps": ["a", "b"]},
        {"steps": [{"title": "a"}, {"title": "b"}]},
        ["a", "b"],
        [{"content": "a"}, "b"],
        {
            "todos": [
                {"content": "a", "status": "pending", "activeForm": "Doing a"},
                {"content": "b", "priority": "low"},
            ]
        },
        {"plan": [{"step": "a", "status": "pending"}, {"step": "b"}]},
        {"steps": [{"id": None, "title": " a "}, {"id": "", "title": "b\n"}]},
        {"goal": None, "steps": [{"id": "s1", "title": "a", "status": None}, "b"], "constraints": None},
    ],
)
def test_steps_in_many_shapes(data: Any) -> None:
    assert parse_plan(data) == Plan(goal="", steps=steps("a", "b"))


def test_nothing_invisible_gets_into_a_plan() -> None:
    plan = parse_plan({"goal": "g\x1b[31m", "steps": [{"id": "\0 a\x07", "title": "\u202ex\ny"}]})
    assert plan == Plan(goal="g[31m", steps=(Step(id="a", title="x y"),))
    assert apply_patch(plan, {"set": {"\0 a": "done"}}).steps[0].status == "completed"
    with pytest.raises(ToolRetry, match="no id of a step"):
        parse_plan([{"id": "\u200b", "title": "x"}])


def test_ids_that_are_given_are_kept_and_others_found() -> None:
    plan = parse_plan({"steps": ["a", {"id": "s1", "title": "b"}, {"id": 7, "title": "c"}, "d"]})
    ids = [step.id for step in plan.steps]
    assert ids[1:3] == ["s1", "7"] and len(set(ids)) == 4


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("done", "completed"),
        ("complete", "completed"),
        ("Finished", "completed"),
        ("completed", "completed"),
        ("doing", "in_progress"),
        ("in-progress", "in_progress"),
        ("In Progress", "in_progress"),
        ("active", "in_progress"),
        ("current", "in_progress"),
        ("todo", "pending"),
        ("TO-DO", "pending"),
        ("pending", "pending"),
    ],
)
def test_other_words_for_a_status(word: str, status: str) -> None:
    assert parse_plan([{"title": "a", "status": word}]).steps[0].status == status


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (5, "A plan is an object"),
        ("text", "A plan is an object"),
        ({"steps": 5}, "Steps are a list"),
        ({"steps": [5]}, "A step is a text"),
        ({"steps": [{"id": "x"}]}, "Step 'x' has no title"),
        ({"steps": ["", "a"]}, "Step 's1' has no title"),
        ({"steps": [{"title": 5}]}, "is a text"),
        ({"steps": [{"id": "a", "title": "x"}, {"id": "a", "title": "y"}]}, "two steps 'a'"),
        ({"steps": [{"id": ["a"], "title": "x"}]}, "no id of a step"),
        ({"steps": [{"id": "i" * 65, "title": "x"}]}, "no id of a step"),
        ({"steps": [{"title": "x", "status": "blocked"}]}, "pending, in_progress, completed"),
        ({"steps": [{"title": "x", "status": True}]}, "pending, in_progress, completed"),
        ({"steps": ["x"] * (MAX_STEPS + 1)}, "at most 50 steps"),
        ({"steps": ["x" * (MAX_TITLE + 1)]}, "more than 200 characters"),
        ({"goal": 5}, "The goal is a text"),
        ({"goal": "x" * 1001}, "The goal is a text"),
        ({}, "needs its steps"),
        ({"goal": "g", "stepz": ["a"]}, "needs its steps"),
        ({"set": {"s1": "done"}}, "a patch"),
        ({"steps": [], "assumptions": 5}, "assumptions"),
        ({"steps": [], "assumptions": [5]}, "assumptions"),
        ({"steps": [], "constraints": {"max_tokens": 5}}, "max_turns, max_tool_calls, max_script_runs"),
        ({"steps": [], "constraints": {"max_turns": 0}}, "above 0"),
        ({"steps": [], "constraints": {"max_turns": True}}, "above 0"),
        ({"steps": [], "constraints": {"max_turns": 1.5}}, "above 0"),
        ({"steps": [], "constraints": {"max_turns": "many"}}, "above 0"),
        ({"steps": [], "constraints": ["fast"]}, "constraints is an object"),
    ],
)
def test_what_is_no_plan(data: Any, words: str) -> None:
    with pytest.raises(ToolRetry) as refused:
        parse_plan(data)
    assert words in str(refused.value) and len(str(refused.value)) < 400


def test_the_limits_themselves_are_fine() -> None:
    plan = parse_plan(
        {"steps": ["x" * MAX_TITLE] * MAX_STEPS, "constraints": {"max_turns": "12", "max_tool_calls": 3.0}}
    )
    assert len(plan.steps) == MAX_STEPS and plan.constraints == {"max_turns": 12, "max_tool_calls": 3}
    with pytest.raises(ToolRetry, match="at most 50"):
        apply_patch(plan, {"add": "one more"})
    assert len(apply_patch(plan, {"add": "one more", "remove": "s1"}).steps) == MAX_STEPS


# --- a patch ----------------------------------------------------------------------------------------------------------


def test_each_part_of_a_patch() -> None:
    after = apply_patch(
        THREE,
        {
            "set": {"s1": {"status": "completed"}, "s2": {"title": "B"}},
            "add": ["d", {"id": "x", "title": "e", "status": "doing"}],
            "remove": ["s3"],
            "order": ["x", "s2"],
            "assumptions": ["none"],
            "goal": "h",
            "constraints": {"max_turns": 4},
        },
    )
    assert after == Plan(
        goal="h",
        steps=(
            Step(id="x", title="e", status="in_progress"),
            Step(id="s2", title="B"),
            Step(id="s1", title="a", status="completed"),
            Step(id="s4", title="d"),
        ),
        assumptions=("none",),
        constraints={"max_turns": 4},
    )


@pytest.mark.parametrize(
    "patch",
    [
        {"set": {"s2": {"status": "completed"}}},
        {"set": {"s2": "done"}},
        {"set": [{"id": "s2", "status": "done"}]},
        {"set": {"s2": {"status": "done", "title": None}}, "add": None, "remove": [], "order": []},
    ],
)
def test_ways_to_set(patch: Any) -> None:
    after = apply_patch(THREE, patch)
    assert [step.status for step in after.steps] == ["pending", "completed", "pending"]
    assert [step.title for step in after.steps] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (5, "A patch is an object"),
        ({"steps": ["a"]}, "A whole list of steps is a plan"),
        ({"sett": {}}, "Did you mean 'set'?"),
        ({"set": {"s9": {}}}, "no step 's9'. There are: s1, s2, s3."),
        ({"set": ["s1"]}, "There are: s1, s2, s3."),
        ({"set": {"s1": 5}}, "{title, status}"),
        ({"set": {"s1": "maybe"}}, "pending, in_progress, completed"),
        ({"add": {"id": "s1", "title": "x"}}, "two steps 's1'"),
        ({"remove": "s9"}, "There are: s1, s2, s3."),
        ({"remove": {"s1": 1}}, "There are: s1, s2, s3."),
        ({"order": ["s1", "s1"]}, "twice"),
        ({"order": ["s4"]}, "There are: s1, s2, s3."),
        ({"remove": ["s1"], "order": ["s1"]}, "There are: s2, s3."),
    ],
)
def test_what_is_no_patch_names_the_steps_that_exist(patch: Any, words: str) -> None:
    with pytest.raises(ToolRetry) as refused:
        apply_patch(THREE, patch)
    assert words in str(refused.value)


def test_a_patch_of_nothing() -> None:
    with pytest.raises(ToolRetry, match="no steps yet"):
        apply_patch(Plan(goal=""), {"set": {"s1": "done"}})
    assert apply_patch(THREE, {}) == THREE
    assert change_plan(None, patch={"add": ["a"]}).plan.steps == steps("a")
    with pytest.raises(ToolRetry, match="Give a plan"):
        change_plan(None)


# --- laws -------------------------------------------------------------------------------------------------------------

ids = st.sampled_from(["s1", "s2", "s3", "s4", "x", "y z", "7"])
titles = st.text(min_size=1, max_size=20).map(lambda text: " ".join(strip_invisible(text).split())).filter(bool)
made_steps = st.lists(
    st.builds(Step, id=ids, title=titles, status=st.sampled_from(STATUSES)), max_size=6, unique_by=lambda step: step.id
)
limits = st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 50))
plans = st.builds(
    Plan,
    goal=titles,
    steps=made_steps.map(tuple),
    assumptions=st.lists(titles, max_size=2).map(tuple),
    constraints=limits,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | ids,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(ids | st.sampled_from(["id", "title"]), inner, max_size=3)
    ),
    max_leaves=6,
)
changes = st.fixed_dictionaries({}, optional={"title": titles, "status": st.sampled_from([*STATUSES, "done", "x"])})
patches = st.fixed_dictionaries(
    {},
    optional={
        "set": st.dictionaries(ids, changes, max_size=3) | json_values,
        "add": st.lists(titles | st.fixed_dictionaries({"title": titles}, optional={"id": ids}), max_size=3)
        | json_values,
        "remove": st.lists(ids, max_size=3) | json_values,
        "order": st.lists(ids, max_size=3, unique=True) | json_values,
        "assumptions": st.lists(titles, max_size=2) | json_values,
        "constraints": limits | json_values,
        "goal": json_values,
    },
)


def assert_valid(plan: Plan) -> None:
    assert from_json(Plan, json.loads(json.dumps(to_json(plan)))) == plan
    assert parse_plan(to_json(plan)) == plan, "a plan that was made can be given again"
    assert len({step.id for step in plan.steps}) == len(plan.steps) <= MAX_STEPS
    assert all(0 < len(step.title) <= MAX_TITLE and step.status in STATUSES for step in plan.steps)
    assert all(name in LIMITS and value > 0 for name, value in plan.constraints.items())


@given(plans, patches)
def test_any_patch_gives_a_valid_plan_or_says_why_not(plan: Plan, patch: Any) -> None:
    try:
        after = apply_patch(plan, patch)
    except ToolRetry as error:
        assert str(error)
        return
    assert_valid(after)
    for name, value in plan.constraints.items():
        assert after.constraints[name] <= value


@given(json_values)
def test_anything_is_a_plan_or_not(data: Any) -> None:
    try:
        plan = parse_plan(data)
    except ToolRetry:
        return
    assert_valid(plan)


@given(plans, st.data())
def test_set_changes_those_steps_and_no_others(plan: Plan, data: st.DataObject) -> None:
    known = [step.id for step in plan.steps]
    change = data.draw(
        st.dictionaries(st.sampled_from(known), changes.filter(lambda c: c.get("status") != "x"))
        if known
        else st.just({})
    )
    after = apply_patch(plan, {"set": change})
    assert [step.id for step in after.steps] == known
    for before, now in zip(plan.steps, after.steps, strict=True):
        assert now == before if not change.get(before.id) else now.title == change[before.id].get("title", before.title)
    assert apply_patch(after, {"set": change}) == after, "the same again changes nothing"


@given(plans, st.lists(titles, max_size=3))
def test_what_is_added_comes_last_and_can_be_removed(plan: Plan, added: list[str]) -> None:
    after = apply_patch(plan, {"add": added})
    assert after.steps[: len(plan.steps)] == plan.steps
    assert [step.title for step in after.steps[len(plan.steps) :]] == added
    fresh = [step.id for step in after.steps[len(plan.steps) :]]
    assert apply_patch(after, {"remove": fresh}) == plan


@given(plans, st.data())
def test_order_moves_and_loses_nothing(plan: Plan, data: st.DataObject) -> None:
    known = [step.id for step in plan.steps]
    order = data.draw(st.permutations(known))[: data.draw(st.integers(0, len(known)))]
    after = apply_patch(plan, {"order": order})
    assert [step.id for step in after.steps[: len(order)]] == order
    rest = [step for step in plan.steps if step.id not in order]
    assert list(after.steps[len(order) :]) == rest
    assert apply_patch(after, {"order": order}) == after


@given(limits, limits, limits)
def test_limits_are_only_tightened(kept: dict[str, int], wanted: dict[str, int], run: dict[str, int]) -> None:
    after, notes = tighten(kept, wanted, run)
    for name in LIMITS:
        ceilings = [each[name] for each in (kept, run) if name in each]
        assert (name in after) == (name in kept or name in wanted)
        if name in after:
            assert after[name] == min([*ceilings, *([wanted[name]] if name in wanted else [])])
        refused = name in wanted and bool(ceilings) and wanted[name] > min(ceilings)
        assert any(note.startswith(f"{name} stays ") for note in notes) == refused
    assert tighten(after, after, run)[1] == ()


@given(st.none() | plans, plans, patches)
def test_a_whole_plan_and_a_patch_together(before: Plan | None, plan: Plan, patch: Any) -> None:
    try:
        after, _ = change_plan(before, plan=to_json(plan), patch=patch, limits={"max_turns": 12})
    except ToolRetry:
        return
    assert_valid(after)
    assert after.constraints.get("max_turns", 0) <= 12
    for name, value in (before.constraints if before else {}).items():
        assert after.constraints[name] <= value
