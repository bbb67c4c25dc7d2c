"""Checks of a case: its form before it runs, and its trajectory after that. A call that failed counts for `never`,
forbidden tools and limits, but not for `before`, `requires` and `count`. A pattern that takes too long fails."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from prowess._internal.bounded_match import check_schema, search, validate
from prowess._internal.files import read_regular
from prowess._internal.json_values import are_equal, load_only_json
from prowess._internal.paths import inside
from prowess._internal.text import name_some, one_line
from prowess.core.findings import visible
from prowess.errors import WorkspaceError, in_one_line
from prowess.evals.case import Case, Constraints, EvalShape, FileExpected, OutputExpected, SkillsExpected, StepRule
from prowess.evals.results import CheckKind, CheckResult, Status
from prowess.policy.call_patterns import parse_call_pattern
from prowess.records.trajectory import CallStep, Trajectory, well_formed
from prowess.workspace.dirfd import FoundPath, open_child, walk
from prowess.workspace.outputs import read_pattern

_MOST_BYTES = 8 << 20  # of a file that is read
_LOOKS_AROUND = re.compile(r"[\^$]|\\[AbBZ]|\(\?<?[=!]")  # in a pattern: at the start, the end, or other characters
_CANNOT_BE_MADE = (ValueError, OSError, WorkspaceError, RecursionError)


class CheckAnswer(NamedTuple):
    """Answer of a check. `passed` is None if it is not known."""

    passed: bool | None
    evidence: str
    vacuous: bool = False


Calls = Sequence[CallStep]
NamedCheck = tuple[str, Callable[[], CheckAnswer]]  # the check in words, and the function that makes it


def check_case(case: Case, base: str) -> Iterator[tuple[str, str]]:
    """Yields (path in the case, message) for everything that is wrong."""
    forms: dict[str, Callable[[str], object]] = {"matches": _check_pattern, "path": read_pattern}
    forms |= dict.fromkeys(("files", "script"), partial(_get_path, base))
    forms |= dict.fromkeys(("before", "requires", "after", "never", "count", "forbidden_tools"), _check_calls)
    forms["not_matches"] = partial(search, text="")
    for path, name, value in _values_of(case):
        try:
            if isinstance(value, str) and name in forms:
                forms[name](value)
            if name == "json_schema" and value is not None:
                check_schema(_load_schema(base, value))
        except _CANNOT_BE_MADE as error:
            yield path.lstrip("."), visible(one_line(in_one_line(error), 300))


def _values_of(value: object, path: str = "", name: str = "") -> Iterator[tuple[str, str, object]]:
    """Yields the path, the name of the field and the value of everything in a case."""
    if isinstance(value, EvalShape):
        for field in type(value).model_fields:
            yield from _values_of(getattr(value, field), f"{path}.{field}", field)
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from _values_of(each, f"{path}.{number}", name)
    else:
        yield path, name, value


def _check_calls(text: str) -> None:
    for test in parse_call_pattern(text).arguments:
        if test.is_pattern and search(test.value, "") and not test.value:
            raise ValueError(f"the pattern of {test.name!r} is empty")


def _check_pattern(pattern: str) -> None:
    """Refuses a pattern that matches nothing at all at the start of every text. One that looks around may fail."""
    if search(pattern, "") and not _LOOKS_AROUND.search(pattern):
        raise ValueError("matches every text")


def _get_path(base: str, name: str) -> str:
    path = inside(base, name)
    if not name.strip():
        raise ValueError("is empty")
    if not os.path.exists(path):
        raise ValueError(f"there is no file '{name}'")
    return path


def _load_schema(base: str, schema: object) -> Any:
    if isinstance(schema, str):
        return load_only_json(read_regular(_get_path(base, schema), _MOST_BYTES).decode())
    return schema


def run_checks(case: Case, trajectory: Trajectory, *, base: str, workspace: str | None) -> list[CheckResult]:
    """Returns the result of every check but those of a judge. It can wait for seconds: call it in a thread."""
    expect = case.expect
    found: list[CheckResult] = []
    if expect.skills is not None:
        found += _make_all("skills", _skill_checks(expect.skills, trajectory.loaded))
    for rule in expect.steps:
        found += _make_all("steps", _step_checks(rule, trajectory.steps))
    if expect.output is not None:
        found += _make_all("output", _text_checks(expect.output, trajectory.text, base))
    for file in expect.files:
        found += _make_all("files", [(f"makes {file.path}", partial(_look_for_file, file, base, workspace))])
    if case.constraints is not None:
        found += _make_all("constraints", _limit_checks(case.constraints, trajectory))
    return found


def find_status(checks: Sequence[CheckResult]) -> Status:
    """Returns the status of a run. A check that was not decided fails nothing, but does not make a pass either."""
    answers = {check.passed for check in checks}
    if False in answers:
        return "failed"
    return "passed" if True in answers else "skipped"


def _make_all(kind: CheckKind, checks: Iterable[NamedCheck]) -> Iterator[CheckResult]:
    """Makes checks. One that cannot be made fails."""
    for name, check in checks:
        try:
            found = check()
        except _CANNOT_BE_MADE as error:
            found = CheckAnswer(False, f"could not be checked: {in_one_line(error)}")
        yield CheckResult(kind=kind, name=name, **found._asdict())


def _skill_checks(wanted: SkillsExpected, loaded: Sequence[str]) -> Iterator[NamedCheck]:
    answer = partial(CheckAnswer, evidence=f"loaded: {', '.join(loaded) or 'no skill'}")
    for name in wanted.load:
        yield f"loads {name}", partial(answer, name.rpartition(":")[2] in loaded)
    for name in wanted.not_load:
        yield f"does not load {name}", partial(answer, name.rpartition(":")[2] not in loaded)
    if wanted.at_most is not None:
        yield f"loads at most {wanted.at_most} skills", partial(answer, len(loaded) <= wanted.at_most)
    elif not wanted.load and not wanted.not_load:
        yield "loads no skill", partial(answer, not loaded)


def _step_checks(rule: StepRule, steps: Calls) -> Iterator[NamedCheck]:
    done = [step for step in steps if step.ok]
    for text in rule.never or ():
        yield f"never {text}", partial(_never, text, steps)
    if rule.before is not None:
        yield " before ".join(rule.before), partial(_before, rule.before, done)
    if rule.requires is not None:
        after = "" if rule.after is None else f" after {rule.after}"
        same = "" if rule.same is None else " of the same skill"
        yield f"requires {rule.requires}{after}{same}", partial(_requires, rule, rule.requires, done, steps)
    if rule.count is not None:
        limits = [f"{name} {value}" for name, value in (("min", rule.min), ("max", rule.max)) if value is not None]
        yield f"count {rule.count}: {', '.join(limits)}", partial(_count, rule, rule.count, done, steps)


def _find(text: str, steps: Calls) -> list[CallStep]:
    pattern = parse_call_pattern(text)
    return [step for step in steps if pattern.fits(step, search)]


def _never(text: str, steps: Calls) -> CheckAnswer:
    found = _find(text, steps)
    return CheckAnswer(not found, _tell(found))


def _before(patterns: Sequence[str], done: Calls) -> CheckAnswer:
    firsts = [step for text in patterns for step in _find(text, done)[:1]]
    indexes = [step.index for step in firsts]
    return CheckAnswer(indexes == sorted(set(indexes)), _tell(firsts), vacuous=len(firsts) < 2)


def _requires(rule: StepRule, text: str, done: Calls, steps: Calls) -> CheckAnswer:
    found = _find(text, done)
    shown = found or _find(text, steps)  # a call that failed tells why
    if rule.after is None:
        return CheckAnswer(bool(found), _tell(shown))
    earlier = _find(rule.after, done)
    evidence = _tell(earlier[:1] + shown)
    for step, one in itertools.product(found, earlier):
        if one.index < step.index and (rule.same is None or one.skill == step.skill != ""):
            return CheckAnswer(True, evidence)
    return CheckAnswer(False, evidence)


def _count(rule: StepRule, text: str, done: Calls, steps: Calls) -> CheckAnswer:
    found = _find(text, done)
    number = len(found)
    fits = number >= (rule.min or 0) and (rule.max is None or number <= rule.max)
    return CheckAnswer(fits, f"{number} calls: {_tell(found or _find(text, steps))}")


def _tell(steps: Calls) -> str:
    return name_some([str(step) for step in steps], quote="") or "no such call"


def _text_checks(wanted: OutputExpected | FileExpected, text: str, base: str) -> Iterator[NamedCheck]:
    """Yields the name and the check of everything that is wanted of a text."""
    begin = one_line(text, 160) or "the text is empty"
    if isinstance(wanted, OutputExpected) and wanted.equals is not None:
        yield f"equals {wanted.equals}", lambda: CheckAnswer(_equals(wanted.equals, text), begin)
    for part in wanted.contains:
        yield f"contains {part}", partial(CheckAnswer, part.casefold() in text.casefold(), begin)
    for pattern in wanted.matches:
        yield f"matches {pattern}", lambda pattern=pattern: CheckAnswer(search(pattern, text), begin)
    if isinstance(wanted, OutputExpected):
        for pattern in wanted.not_matches:
            yield f"does not match {pattern}", lambda pattern=pattern: CheckAnswer(not search(pattern, text), begin)
    schema = wanted.json_schema
    if schema is not None:
        name = schema if isinstance(schema, str) else "the JSON Schema"
        yield f"fits {name}", lambda: _fits_schema(_load_schema(base, schema), text)


def _equals(wanted: Any, text: str) -> bool:
    if isinstance(wanted, str):
        return text.strip() == well_formed(wanted).strip()
    return are_equal(wanted, load_only_json(text))


def _fits_schema(schema: Any, text: str) -> CheckAnswer:
    why = validate(schema, load_only_json(text))
    return CheckAnswer(not why, why)


def _look_for_file(wanted: FileExpected, base: str, workspace: str | None) -> CheckAnswer:
    """Looks for a regular file that matches the path and has everything that is wanted. Follows no link."""
    glob = read_pattern(wanted.path)
    faults: list[str] = []
    for found in walk(os.path.realpath(workspace)) if workspace is not None else ():
        if stat.S_ISREG(found.status.st_mode) and glob.fullmatch(found.rel):
            fault = _find_fault(wanted, base, found)
            if not fault:
                return CheckAnswer(True, f"{found.rel} ({found.status.st_size} bytes)")
            faults.append(f"{found.rel}: {fault}")
    return CheckAnswer(False, "; ".join(faults[:5]) or "no such file")


def _find_fault(wanted: FileExpected, base: str, found: FoundPath) -> str:
    size = found.status.st_size
    if size < wanted.min_bytes:
        return f"{size} bytes, fewer than {wanted.min_bytes}"
    if wanted.max_bytes is not None and size > wanted.max_bytes:
        return f"{size} bytes, more than {wanted.max_bytes}"
    if not (wanted.contains or wanted.matches or wanted.json_schema is not None):
        return ""
    if size > _MOST_BYTES:
        return f"larger than {_MOST_BYTES} bytes, so it was not read"
    with open(open_child(found.folder_fd, found.name, found.rel), "rb") as file:
        text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    for name, check in _text_checks(wanted, text, base):
        answer = check()
        if not answer.passed:
            return f"not {name} ({one_line(answer.evidence)})"
    return ""


def _limit_checks(limits: Constraints, trajectory: Trajectory) -> Iterator[NamedCheck]:
    used = {
        "calls": trajectory.calls,
        "turns": trajectory.turns,
        "tokens": trajectory.usage.input + trajectory.usage.output,
        "seconds": trajectory.seconds,
        "cost": trajectory.usage.cost,
    }
    for name, value in used.items():
        most: float | None = getattr(limits, f"max_{name}")
        if most is not None:
            stopped = f"limit:{name}" in trajectory.stop_reasons
            passed = False if stopped else None if value is None else value <= most
            evidence = "not known" if value is None else f"{round(value, 6)}"
            yield f"at most {most:g} {name}", partial(CheckAnswer, passed, evidence + ", stopped" * stopped)
    for text in limits.forbidden_tools:
        yield f"never {text}", partial(_never, text, trajectory.steps)
