"""Finds the case files of paths and reads them into a suite. A suite without a case is an error, not a pass."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from prowess._internal.files import hash_regular
from prowess._internal.paths import inside
from prowess.core.findings import visible
from prowess.errors import EvalError, PathEscape
from prowess.evals.case import Case, CaseCatalog, SkillsExpected
from prowess.evals.case_files import CasesRead, SuiteCase, read_case_file
from prowess.skills.discover import discover
from prowess.skills.reference import find_skill_md
from prowess.skills.spelling import near_names

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Suite:
    """Cases to run. The digest is the same on every machine, and changes with every case and every fixture."""

    name: str
    digest: str
    cases: tuple[SuiteCase, ...]
    notes: tuple[str, ...] = ()  # what is not known or was left out


def read_suite(paths: Sequence[str], *, cwd: str) -> Suite:
    """Reads the cases of case files, folders of them, skills, projects and folders of skills."""
    given = [os.path.abspath(os.path.join(cwd, path)) for path in paths]
    files = {os.path.realpath(file): file for path in given for file in _find_files(path)}
    read: dict[str, CasesRead] = {}
    for file in files.values():
        read[file] = read_case_file(file, shown=os.path.relpath(file, cwd))
        if file in given and not read[file].cases:
            raise _no_cases([file])
    cases = _make_unique(read)
    if not cases:
        raise _no_cases(paths)
    names = [each.name for each in read.values() if each.cases]
    name = names[0] if len(names) == 1 else None
    notes = tuple(note for each in read.values() for note in each.notes)
    return Suite(name or ", ".join(map(os.path.basename, given)), _digest(cases), cases, notes)


def _no_cases(paths: Sequence[str]) -> EvalError:
    what = f"There are no cases in {', '.join(map(os.path.normpath, paths))}."
    hint = "Cases are a list: `cases: [{id: …, prompt: …}]`. Write some with: prowess evals init SKILL"
    return EvalError(what, code="evals-empty", hint=hint)


def _find_files(path: str) -> Iterator[str]:
    """Yields the files right in the folders for cases. Those below them are fixtures."""
    if os.path.isfile(path):
        yield path
    elif not os.path.isdir(path):
        raise EvalError(f"There is no file or folder {path!r}.", code="evals-not-found", hint="See: prowess eval -h")
    else:
        for folder in map(Path, _find_folders(path)):
            for file in sorted(folder.iterdir()) if folder.is_dir() else ():
                if file.suffix in _SUFFIXES and not file.name.startswith(".") and file.is_file():
                    yield str(file)


def _find_folders(path: str) -> list[str]:
    """Finds the folders for cases of a project, or of a skill or a folder of them."""
    project = os.path.join(path, ".agent", "evals")
    if os.path.isdir(project) and not find_skill_md(path):
        return [project]
    below = [os.path.join(entry.path, name) for entry in discover(path) for name in ("evals", "evaluations")]
    return below if find_skill_md(path) else [path, *below]


def _make_unique(read: Mapping[str, CasesRead]) -> tuple[SuiteCase, ...]:
    """Puts the path of a file in front of its ids if another file has one of them."""
    times = Counter(each.case.id for file in read.values() for each in file.cases)
    clash = [path for path, file in read.items() if any(times[each.case.id] > 1 for each in file.cases)]
    cases: list[SuiteCase] = []
    for path, file in read.items():
        if path not in clash:
            cases += file.cases
            continue
        stem = Path(path).relative_to(os.path.commonpath(clash)).with_suffix("")
        for each in file.cases:
            case = each.case.model_copy(update={"id": f"{stem}/{each.case.id}"})
            cases.append(replace(each, case=case))
    for id, number in Counter(each.case.id for each in cases).items():
        if number > 1:  # one result would stand for both
            where = " and ".join(f"{each.file}:{each.line}" for each in cases if each.case.id == id)
            what = f"Two cases have the id {visible(id[:80])!r}: {visible(where)}."
            raise EvalError(what, code="eval-id-twice", hint="Give one of them another id.")
    return tuple(cases)


def fixtures(case: Case, base: str) -> list[str]:
    """Paths of the files that a case names. One that is not below `base` is left to the checks of the case."""
    schemas = [each.json_schema for each in (case.expect.output, *case.expect.files) if each is not None]
    found = []
    for path in (*(case.files or ()), case.script, *schemas):
        with suppress(PathEscape):
            if isinstance(path, str):
                found.append(inside(base, path))
    return found


def _digest(cases: Sequence[SuiteCase]) -> str:
    whole = hashlib.sha256()
    hashed = cache(_hash_files)
    for each in sorted(cases, key=lambda each: each.case.id):  # the order of the paths does not matter
        text = json.dumps([each.skill, each.case.model_dump(mode="json")], sort_keys=True, ensure_ascii=True)
        for line in (text, *map(hashed, fixtures(each.case, each.base))):
            whole.update(f"{line}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _hash_files(path: str) -> str:
    """Renders the names and hashes of a file, or of the files below a folder."""
    below = sorted(os.path.join(at, name) for at, _, names in os.walk(path) for name in names)
    lines = []
    for file in below or [path]:
        with suppress(OSError):  # a pipe; a missing file is left to the checks of the case
            lines.append(f"{os.path.relpath(file, path)!a} {hash_regular(file)}\n")
    return "".join(lines)


def check_skill_names(suite: Suite, known: Mapping[str, str]) -> None:
    """Checks that every skill that a case names is `known`, and that a model can load those that it should."""
    for each in suite.cases:
        skills = each.case.expect.skills or SkillsExpected()
        catalog = each.case.catalog or CaseCatalog()
        where = f"{each.file}:{each.line}: case {each.case.id!r}: "
        in_steps = (name for rule in each.case.expect.steps for name in sorted(rule.find_skills()))
        for name in (*skills.load, *skills.not_load, *(catalog.skills or ()), *in_steps):
            if name not in known:
                near = near_names(name, known)
                hint = f"Did you mean {near[0]!r}?" if near else "Add its folder with --root. See: prowess list"
                raise EvalError(f"{where}no skill {name!r}.", code="eval-unknown-skill", hint=hint)
            if name in skills.load and known[name] in ("untrusted", "denied", "invalid"):
                what = f"{where}no model can load {name!r}: it is {known[name]}."
                hint = f"Look at it: prowess inspect {name} --why. Then trust its folder, or name it with --root."
                raise EvalError(what, code="eval-skill-unusable", hint=hint)
