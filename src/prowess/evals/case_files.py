"""Reads one case file, YAML or JSON, native or of another system. A fault is an EvalError with the file and the line.
An unknown key is a note, but an error where checks are: a check that is not made must not look like one that passed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from pydantic import BaseModel, ValidationError

from prowess._internal.model_values import find_extra_keys, first_fault, join_place, with_defaults
from prowess._internal.text import one_line
from prowess._internal.yaml_lines import LinedValue, Place, read_lined
from prowess.core.findings import visible
from prowess.errors import ConfigError, EvalError
from prowess.evals import foreign_cases
from prowess.evals.case import Case, CaseFile
from prowess.evals.checks import check_case
from prowess.models.scripted import check_entry
from prowess.skills.discover import discover
from prowess.skills.reference import find_skill_md
from prowess.skills.skill import Entry
from prowess.skills.spelling import near_names

LIMIT_BYTES = 16 << 20
_REQUESTS = {"prompt", "turns", "query", "input"}
_CHECKS = {"expect", "script", "constraints", *foreign_cases.KEYS} - _REQUESTS
_OF_OTHERS = {"skill_name", "version", "description"}  # keys of a file, not reported
_HINT = "See: prowess schema eval-cases"


@dataclass(frozen=True)
class SuiteCase:
    """Case of a suite, and where it comes from."""

    case: Case  # with the defaults of its file
    base: str  # folder that its paths are relative to, absolute
    file: str  # relative to the working folder if it is below it
    line: int | None
    skill: str | None  # the skill that it is about


class CasesRead(NamedTuple):
    name: str | None
    cases: list[SuiteCase]
    notes: list[str]


def read_case_file(path: str, *, shown: str) -> CasesRead:
    """Reads a file; `shown` is its name in messages. A file without cases is a note."""
    try:
        lined = read_lined(path, LIMIT_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        what = f"{shown}:{getattr(error, 'line', None) or 1}: {visible(one_line(why, 200))}."
        hint = "Use JSON, or YAML without tabs, anchors, aliases and tags. Put other files in a folder below."
        raise EvalError(what, code="eval-file-invalid", hint=hint) from error
    key, entries = _find_entries(lined.value)
    if not entries:
        return CasesRead(None, [], [f"{shown}: left out, because it has no cases."])
    return _CaseReader(shown, lined, key, entries).read(os.path.dirname(path))


def find_skill(folder: str) -> Entry | None:
    """Finds the skill that a folder is, with its name in a catalog."""
    entries = discover(folder) if find_skill_md(folder) else []
    return next((entry for entry in entries if not entry.rel), None)


def _find_entries(value: Any) -> tuple[str | None, list[Any]]:
    """Finds the cases of a file, and the key of their list. Without a key, the file is a case or a list of them."""
    if isinstance(value, dict) and not _is_case(value):
        for key, inner in value.items():
            if isinstance(inner, list) and (key in ("cases", "evals") or any(map(_is_case, inner))):
                return key, inner
    entries = value if isinstance(value, list) else [value]
    return None, entries if any(map(_is_case, entries)) else []


def _is_case(value: Any) -> bool:
    """True if it is a case for sure: it stands alone, and could be anything."""
    if not isinstance(value, dict) or _REQUESTS.isdisjoint(value):
        return False
    return not _CHECKS.isdisjoint(value)


class _CaseReader(NamedTuple):
    """Reader of one file. A place is one of the native form, such as `("cases", 0, "expect")`."""

    shown: str
    lined: LinedValue
    key: str | None
    entries: list[Any]

    def read(self, folder: str) -> CasesRead:
        """Reads the cases. Foreign ones of a skill have paths relative to the skill."""
        above = os.path.dirname(folder)
        around = find_skill(above)
        top: dict[str, Any] = self.lined.value if self.key else {}
        skill = top.get("skill") or (around.name if around else top.get("skill_name"))
        ignored = _OF_OTHERS if self.key != "cases" else {"skill_name"}
        values = {key: value for key, value in top.items() if key not in (self.key, *ignored)}
        values |= {"skill": skill, "cases": list(self._convert(skill))}
        try:
            file = CaseFile.model_validate(values)
        except ValidationError as error:
            self._refuse_invalid(error)
        notes = list(self._find_unknown_keys(file))
        cases: list[SuiteCase] = []
        lines: dict[str, int] = {}
        for number, given in enumerate(file.cases):
            case = with_defaults(given, file.defaults)
            place = ("cases", number)
            line = self._line_of(place)
            if case.id in lines:
                what = f"the id {case.id!r} is there already, on line {lines[case.id]}"
                self._refuse(place, what, "Each case of a file needs an id of its own.", "eval-id-twice")
            lines[case.id] = line
            if not case.expect.model_fields_set and not case.constraints:
                notes.append(f"{self.shown}:{line}: case {case.id!r} checks nothing, so it is not run.")
            base = above if around and self._is_foreign(self.entries[number]) else folder
            self._check(case, base, place)
            cases.append(SuiteCase(case, base, self.shown, line, skill))
        return CasesRead(file.name, cases, [*map(visible, notes)])

    def _is_foreign(self, entry: Mapping[str, Any]) -> bool:
        return "expect" not in entry and (self.key == "evals" or not foreign_cases.KEYS.isdisjoint(entry))

    def _convert(self, skill: str | None) -> Iterator[Mapping[str, Any]]:
        """Yields native cases. Those of other systems get words of their prompt as an id, if they have none."""
        taken = {str(entry.get("id")) for entry in self.entries if isinstance(entry, dict)}
        for number, entry in enumerate(self.entries):
            place = ("cases", number)
            if not isinstance(entry, dict):
                self._refuse(place, f"a case must be an object, not {entry!r}", "Such as {id: …, prompt: …}.")
            try:
                case = foreign_cases.to_native(entry, skill) if self._is_foreign(entry) else entry
            except ValueError as error:
                self._refuse(place, *error.args)
            if case.get("id") is None and (self._is_foreign(entry) or self.key is None):
                words = re.findall(r"\w+", str(case.get("prompt"))[:100].lower().partition("\n")[0])
                id = "-".join(words[:8]) or "case"
                case = {**case, "id": f"{id}-{number + 1}" if id in taken else id}
                taken.add(id)
            yield case

    def _line_of(self, place: Sequence[str | int]) -> int:
        """Returns the line of a place. Parts that the file does not have are skipped, also `cases` and `expect`."""
        other_names = {"cases": (self.key or "cases",), "expect": ("expect", "expected")}
        parts = [name for part in place for name in other_names.get(str(part), (part,))]
        return self.lined.line_of(parts) or 1

    def _refuse(self, place: Sequence[str | int], what: str, hint: str, code: str = "eval-case-invalid") -> NoReturn:
        text = visible(one_line(what, 400)).rstrip(".")
        text += "" if text.endswith("?") else "."
        raise EvalError(f"{self.shown}:{self._line_of(place)}: {text}", code=code, hint=visible(hint))

    def _find_unknown_keys(self, file: CaseFile) -> Iterator[str]:
        """Yields notes about unknown keys. An unknown check is an error."""
        for place, model in find_extra_keys(file):
            *above, key = place
            around = ".".join(map(str, above[2:])) or ("a case" if above else "a case file")
            what = f"{str(key)[:64]!r} in {around}{_near(key, model)}"
            if "expect" in above or "constraints" in above:
                known = f"There are: {', '.join(model.model_fields)}."
                self._refuse(place, f"unknown check {what}", known, "eval-unknown-check")
            yield f"{self.shown}:{self._line_of(place)}: unknown key {what}."

    def _refuse_invalid(self, error: ValidationError) -> NoReturn:
        """Refuses the first fault. The hint is about a misspelt key of the case, if it has one."""
        place, what = first_fault(error)
        in_case = place[0] == "cases"
        fields = self.entries[int(place[1])] if in_case else {}
        case = f"case {fields['id']!r}" if "id" in fields else ""
        label = join_place(place[2:] if in_case else place)
        whole = ": ".join(filter(None, (case, label, what)))
        misspelt = [f"There is an unknown key {key!r}{near}." for key in fields if (near := _near(key, Case))]
        self._refuse(place, whole, misspelt[0] if misspelt else _HINT)

    def _check(self, case: Case, base: str, place: Place) -> None:
        for number, reply in enumerate(case.script if isinstance(case.script, tuple) else ()):
            try:
                check_entry(reply, f"script: reply {number + 1}")
            except ConfigError as error:
                what = f"case {case.id!r}: {error.message}"
                self._refuse((*place, "script", number), what, error.hint or _HINT)
        for path, what in check_case(case, base):
            parts = [int(part) if part.isdecimal() else part for part in path.split(".")]
            hint = f"Paths are relative to {base}." if path.startswith(("files", "script")) else _HINT
            self._refuse((*place, *parts), f"case {case.id!r}: {path}: {what}", hint)


def _near(key: str | int, model: type[BaseModel]) -> str:
    """Suggests a key for one that the model does not have."""
    if key in model.model_fields:
        return ""
    near = near_names(str(key)[:64], model.model_fields)
    return f" (did you mean {near[0]!r}?)" if near else ""
