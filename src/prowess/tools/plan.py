"""update_plan: creates, replaces or patches the plan of the task. Every change is recorded.

The result is a valid plan, or a ToolRetry with the reason. A patch looks like this:

    {"set": {"s1": {"status": "completed"}}, "add": ["Check the sums"], "remove": ["s4"], "order": ["s3", "s2"]}

A plan may tighten the limits of its run but never widen them. Parsing is tolerant, because models write plans in many
ways: steps as plain texts, other words for a status, the todo lists of other systems.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from pydantic import model_validator

from prowess._internal.text import strip_invisible
from prowess.core.codec import to_json
from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.values import Outcome, Plan, Step, StepStatus, ToolSpec
from prowess.errors import ToolRetry
from prowess.tools.arguments import read_json
from prowess.tools.schema import Arguments, by_our_names, parse_arguments

MAX_STEPS = 50
MAX_TITLE = 200
MAX_TEXT = 1000  # characters of a goal or an assumption
LIMITS = ("max_turns", "max_tool_calls", "max_script_runs")
STATUSES: tuple[StepStatus, ...] = ("pending", "in_progress", "completed")
_PATCH = ("set", "add", "remove", "order", "goal", "assumptions", "constraints")
_TITLES = ("title", "content", "step", "task", "text", "description", "name")
_MEANT: dict[str, StepStatus] = {
    **dict.fromkeys(("pending", "todo", "to_do", "open", "planned", "not_started", ""), "pending"),
    **dict.fromkeys(
        ("in_progress", "inprogress", "doing", "active", "current", "started", "running", "working"), "in_progress"
    ),
    **dict.fromkeys(("completed", "complete", "done", "finished", "closed"), "completed"),
}


class Changed(NamedTuple):
    plan: Plan
    notes: tuple[str, ...] = ()  # requests that were not granted


def change_plan(
    before: Plan | None, *, plan: Any = None, patch: Any = None, limits: Mapping[str, int] | None = None
) -> Changed:
    """Returns the plan after a whole new plan, a patch, or both in this order. `limits` are the limits of the run."""
    if plan is None and patch is None:
        raise ToolRetry("Give a plan {goal, steps}, or a patch {set, add, remove, order}.")
    kept = before.constraints if before else {}
    after = before or Plan(goal="")
    wanted: dict[str, int] = {}
    if plan is not None:
        after = parse_plan(plan)
        wanted |= after.constraints
        if before and not after.goal:
            after = replace(after, goal=before.goal)
    if patch is not None:
        after = apply_patch(after, patch)
        wanted |= _parse_constraints(patch.get("constraints"))
    constraints, notes = tighten(kept, wanted, limits or {})
    return Changed(replace(after, constraints=constraints), notes)


def parse_plan(data: Any) -> Plan:
    """Parses a whole plan: {goal, steps, assumptions, constraints}, or only a list of steps."""
    if isinstance(data, list):
        data = {"steps": data}
    if not isinstance(data, Mapping):
        raise ToolRetry(f"A plan is an object {{goal, steps}}, not {_shown(data)}.")
    goal = _text(data.get("goal"), "The goal")
    given = _first_of(data, ("steps", "todos", "plan"))
    if given is None:  # a misspelt `steps` must not become a plan without steps
        raise ToolRetry(
            "A plan needs its steps, as `steps`: a list of {id, title, status}. What only changes is a patch."
        )
    steps = tuple(_parse_steps(given, ()))
    assumptions = _texts(data.get("assumptions"), "assumptions")
    constraints = _parse_constraints(data.get("constraints"))
    return Plan(goal=goal, steps=steps, assumptions=assumptions, constraints=constraints)


def _first_of(data: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Value of the first of these names that is given. None if none is."""
    for name in names:
        if data.get(name) is not None:
            return data[name]
    return None


def apply_patch(plan: Plan, data: Any) -> Plan:
    """Applies `set`, then `add`, `remove`, `order`. Steps that `order` does not name follow in their old order."""
    if not isinstance(data, Mapping):
        raise ToolRetry(f"A patch is an object with {', '.join(_PATCH[:4])}, not {_shown(data)}.")
    for name in data:
        _check_patch_name(name)
    before = {step.id: step for step in plan.steps}
    steps = _set(before, data.get("set"))
    for step in _parse_steps(data.get("add"), steps):
        steps[step.id] = step
    removed = _ids(data.get("remove"), "remove", steps)
    for id in set(removed):
        del steps[id]
    ordered = _ordered(steps, data.get("order"))
    if len(ordered) > MAX_STEPS:
        raise ToolRetry(f"A plan has at most {MAX_STEPS} steps, and this one would have {len(ordered)}.")
    wanted = _parse_constraints(data.get("constraints"))
    constraints, _ = tighten(plan.constraints, wanted, {})
    goal = plan.goal
    if data.get("goal") is not None:
        goal = _text(data["goal"], "The goal")
    assumptions = plan.assumptions
    if data.get("assumptions") is not None:
        assumptions = _texts(data["assumptions"], "assumptions")
    return Plan(goal=goal, steps=ordered, assumptions=assumptions, constraints=constraints)


def _check_patch_name(name: Any) -> None:
    if name in _PATCH:
        return
    near = difflib.get_close_matches(str(name), _PATCH, n=1)
    meant = "A whole list of steps is a plan."
    if near:
        meant = f"Did you mean '{near[0]}'?"
    raise ToolRetry(f"A patch has no {_shown(name)}. {meant} It has: {', '.join(_PATCH)}.")


def _ordered(steps: Mapping[str, Step], order: Any) -> tuple[Step, ...]:
    """Steps that `order` names first, then the others."""
    left = dict(steps)
    ordered: list[Step] = []
    for id in _ids(order, "order", steps):
        if id not in left:
            raise ToolRetry(f"order names a step twice. {_existing(steps)}")
        ordered.append(left.pop(id))
    ordered.extend(left.values())
    return tuple(ordered)


def tighten(
    kept: Mapping[str, int], wanted: Mapping[str, int], limits: Mapping[str, int]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Returns the new constraints of a plan, and notes on refused ones. `kept` are the old constraints."""
    constraints: dict[str, int] = {}
    notes: list[str] = []
    for name in LIMITS:
        value = wanted.get(name, kept.get(name))
        if value is None:
            continue
        ceiling = min(kept.get(name, value), limits.get(name, value))
        if name in wanted and value > ceiling:
            notes.append(f"{name} stays {ceiling}: a plan may tighten limits, never widen them")
        constraints[name] = min(value, ceiling)
    return constraints, tuple(notes)


def _set(steps: Mapping[str, Step], data: Any) -> dict[str, Step]:
    """Changes steps: {id: {title?, status?}}. Also accepts {id: status} and a list of {id, …}."""
    changed = dict(steps)
    if data is None:
        return changed
    if isinstance(data, list):
        data = _by_id(data, steps)
    if not isinstance(data, Mapping):
        there = _existing(steps)
        raise ToolRetry(f"set is an object {{id: {{title, status}}}}, not {_shown(data)}. {there}")
    for key, change in data.items():
        (id,) = _ids([key], "set", steps)
        changed[id] = _changed(changed[id], change)
    return changed


def _by_id(changes: Iterable[Any], steps: Mapping[str, Step]) -> dict[str, Any]:
    """Turns [{id, …}] into {id: {…}}."""
    by_id: dict[str, Any] = {}
    for each in changes:
        id = each.get("id") if isinstance(each, Mapping) else None
        if id is None:
            raise ToolRetry(f"set is an object {{id: {{title, status}}}}. {_existing(steps)}")
        by_id[str(id)] = each
    return by_id


def _changed(step: Step, change: Any) -> Step:
    """Applies {title?, status?} to a step, or a status alone."""
    if isinstance(change, str):
        change = {"status": change}
    if not isinstance(change, Mapping):
        raise ToolRetry(f"What to set of step '{step.id}' is an object {{title, status}}, not {_shown(change)}.")
    title = _title(change, step.title)
    status = step.status
    if change.get("status") is not None:
        status = _status(change["status"], step.id)
    return Step(id=step.id, title=title, status=status)


def _parse_steps(data: Any, taken: Iterable[str]) -> list[Step]:
    """Parses steps. A step without an id gets the next free id: s1, s2 …"""
    if data is None:
        return []
    if isinstance(data, (str, Mapping)):
        data = [data]
    if not isinstance(data, list):
        raise ToolRetry(f"Steps are a list of {{id, title, status}}, not {_shown(data)}.")
    if len(data) > MAX_STEPS:
        raise ToolRetry(f"A plan has at most {MAX_STEPS} steps, and {len(data)} were given: take larger steps.")
    known = set(taken)
    given = [_given_id(each) for each in data]
    for id in filter(None, given):
        if id in known:
            raise ToolRetry(f"There are two steps '{id}': each needs an id of its own. {_existing(known)}")
        known.add(id)
    steps: list[Step] = []
    number = len(tuple(taken))
    for each, id in zip(data, given, strict=True):
        number += 1
        if id is None:
            while f"s{number}" in known:
                number += 1
            id = f"s{number}"
            known.add(id)
        steps.append(_parse_step(each, id))
    return steps


def _parse_step(data: Any, id: str) -> Step:
    if isinstance(data, str):
        data = {"title": data}
    if not isinstance(data, Mapping):
        raise ToolRetry(f"A step is a text, or an object {{id, title, status}}, not {_shown(data)}.")
    title = _title(data, "")
    if not title:
        raise ToolRetry(f"Step '{id}' has no title.")
    status: StepStatus = "pending"
    if data.get("status") is not None:
        status = _status(data["status"], id)
    return Step(id=id, title=title, status=status)


def _given_id(data: Any) -> str | None:
    """Id of a step, if the model gave one."""
    if not isinstance(data, Mapping):
        return None
    given = data.get("id")
    if given is None or given == "":
        return None
    id = _one_line(given)
    if isinstance(given, bool) or not isinstance(given, (str, int)) or not 0 < len(id) <= 64:
        raise ToolRetry(f"{_shown(given)} is no id of a step: use a short text such as s1.")
    return id


def _title(data: Mapping[str, Any], otherwise: str) -> str:
    """Title of a step, under any of the names that models use for it."""
    found = _first_of(data, _TITLES)
    if found is None:
        return otherwise
    if not isinstance(found, str):
        raise ToolRetry(f"The title of a step is a text, not {_shown(found)}.")
    title = _one_line(found)
    if len(title) > MAX_TITLE:
        raise ToolRetry(f"The title '{title[:40]}…' has more than {MAX_TITLE} characters: say it in fewer.")
    return title or otherwise


def _status(value: Any, id: str) -> StepStatus:
    """Status of a step, also in other words: `done`, `In progress`."""
    status = None
    if isinstance(value, str):
        words = value.casefold().replace("-", " ").split()
        status = _MEANT.get("_".join(words))
    if status is None:
        raise ToolRetry(f"{_shown(value)} is no status for step '{id}'. Use one of {', '.join(STATUSES)}.")
    return status


def _ids(data: Any, what: str, steps: Mapping[str, Step]) -> list[str]:
    """Parses ids of existing steps: a list, or one id alone."""
    if data is None:
        return []
    if isinstance(data, (str, int)) and not isinstance(data, bool):
        data = [data]
    if not isinstance(data, list):
        raise ToolRetry(f"{what} is a list of ids of steps, not {_shown(data)}. {_existing(steps)}")
    ids: list[str] = []
    for each in data:
        id = _one_line(each)
        if id not in steps:
            raise ToolRetry(f"{what}: there is no step {_shown(id)}. {_existing(steps)}")
        ids.append(id)
    return ids


def _one_line(value: Any) -> str:
    words = strip_invisible(str(value)).split()
    return " ".join(words)


def _existing(ids: Iterable[str]) -> str:
    named = ", ".join(ids)
    if not named:
        return "There are no steps yet: give a plan, or add some."
    return f"There are: {named}."


def _parse_constraints(data: Any) -> dict[str, int]:
    if data is None or data == []:
        return {}
    known = ", ".join(LIMITS)
    if not isinstance(data, Mapping):
        raise ToolRetry(f"constraints is an object of {known}, not {_shown(data)}.")
    constraints: dict[str, int] = {}
    for name, value in data.items():
        if name not in LIMITS:
            raise ToolRetry(f"{_shown(name)} is no constraint. There are: {known}.")
        if value is not None:
            constraints[name] = _whole_number(value, name)
    return constraints


def _whole_number(value: Any, name: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 53:
        raise ToolRetry(f"{name} is a whole number above 0, not {_shown(value)}.")
    return value


def _texts(data: Any, what: str) -> tuple[str, ...]:
    if data is None:
        return ()
    if isinstance(data, str):
        data = [data]
    if not isinstance(data, list) or len(data) > MAX_STEPS:
        raise ToolRetry(f"{what} is a list of at most {MAX_STEPS} texts, not {_shown(data)}.")
    texts = [_text(each, f"Each of {what}") for each in data]
    return tuple(filter(None, texts))


def _text(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        shown = _shown(value)
        raise ToolRetry(f"{what} is a text of at most {MAX_TEXT} characters, not {shown}.")
    visible = strip_invisible(value)
    return visible.strip()


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= 60:
        return text
    return f"{text[:60]}…"


_OF_BOTH = frozenset({"goal", "assumptions", "constraints"})
_OF_PLAN = frozenset({"steps"})
_OF_PATCH = frozenset({"set", "add", "remove", "order"})


class PlanArguments(Arguments):
    """Unparsed plan and patch."""

    ALIASES: ClassVar = {"plan_update": "patch", "todos": "plan"}

    plan: Any = None
    patch: Any = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Accepts a plan or a patch without its wrapper. Drops `explanation`."""
        if not isinstance(value, dict):
            return value
        given = by_our_names(cls, value)
        given.pop("explanation", None)
        if _is_bare(given, _OF_PLAN):
            return {"plan": given}
        if _is_bare(given, _OF_PATCH):
            return {"patch": given}
        read = {name: read_json(item) for name, item in given.items()}
        is_empty = not read.get("plan") and not read.get("patch")
        if is_empty and read.keys() <= {"plan", "patch"}:
            raise ValueError("give a plan {goal, steps}, or a patch {set, add, remove, order}")
        return read


def _is_bare(given: Mapping[str, Any], marks: frozenset[str]) -> bool:
    """True for the fields of a plan (or a patch) without its wrapper, if one of them marks it as such."""
    if given.keys().isdisjoint(marks):
        return False
    return given.keys() <= marks | _OF_BOTH


_STEP = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "string", "enum": list(STATUSES)},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plan": {
            "type": "object",
            "properties": {"goal": {"type": "string"}, "steps": {"type": "array", "items": _STEP}},
        },
        "patch": {
            "type": "object",
            "description": "set {id: {title, status}}, add [steps], remove [ids], order [ids]",
        },
    },
}


class UpdatePlan:
    """The update_plan tool. `limits` are the limits of the run, by constraint name. A plan cannot widen them."""

    spec = ToolSpec(
        name="update_plan",
        description="Keep the plan of a task with several steps: all of it, or a patch.",
        parameters=SCHEMA,
    )

    def __init__(
        self,
        get: Callable[[], Plan | None],
        put: Callable[[Plan], Awaitable[None]],
        *,
        limits: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._get = get
        self._put = put
        self._limits = limits

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        given = parse_arguments(PlanArguments, args, self.spec.name)
        normal: dict[str, Any] = {}
        if given.plan is not None:
            parsed = parse_plan(given.plan)
            plan = to_json(parsed)
            normal["plan"] = {name: value for name, value in plan.items() if value or name == "steps"}
        if given.patch is not None:
            normal["patch"] = given.patch
        return normal

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return ()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        given = parse_arguments(PlanArguments, args, self.spec.name)
        before = self._get()
        plan, notes = change_plan(before, plan=given.plan, patch=given.patch, limits=self._limits())
        if plan != before:
            await self._put(plan)
        data: dict[str, Any] = {"plan": to_json(plan)}
        if notes:
            data["warnings"] = list(notes)
        content = "; ".join([render_progress(plan), *notes])
        return Outcome(status="ok", content=content, data=data)


def render_progress(plan: Plan) -> str:
    """Renders one line: `plan: 1 of 3 done; next: s2 Read the table`."""
    if not plan.steps:
        return "plan: no steps"
    left = [step for step in plan.steps if step.status != "completed"]
    done = len(plan.steps) - len(left)
    line = f"plan: {done} of {len(plan.steps)} done"
    if not left:
        return line
    left.sort(key=lambda step: step.status)  # "in_progress" sorts before "pending"
    following = left[0]
    return f"{line}; next: {following.id} {following.title}"
