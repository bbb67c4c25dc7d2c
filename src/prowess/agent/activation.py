"""Activates skills without a tool call: named in the user's text, by the caller, or by a file name.

`/name arguments` at the start of a request activates a skill with arguments; `$name` anywhere activates a skill without
arguments. A skill with `paths` is activated when a matching file is given, read, written or created.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from prowess.agent.agent import SkillRequest, Task, skill_requests_of
from prowess.agent.tool_call import Spawner
from prowess.agent.toolkit import Toolkit
from prowess.core.events import ErrorRaised
from prowess.core.values import Outcome, ToolCall
from prowess.errors import SkillDenied
from prowess.policy.globs import match_path
from prowess.skills.catalog import Catalog
from prowess.skills.spelling import near_names

_SLASH = re.compile(r"/(?P<name>[\w:-]+(?:/[\w:-]+)?)(?:\s+(?P<rest>.*))?", re.DOTALL)
_DOLLAR = re.compile(r"(?<![\w$\\])\$(?P<name>[a-z][a-z0-9]*(?:[-:/][a-z0-9]+)*)(?![\w(])")
_ARGUMENTS = ("file_name", "path", "script")
_PLACES = ("work/inputs/", "inputs/", "work/", "out/")
_FILE_LISTS = ("output_files", "staged_inputs", "artifact_files")  # in the data of an outcome


def find_requested_skills(text: str, catalog: Catalog) -> tuple[list[SkillRequest], list[tuple[str, str | None]]]:
    """Returns the skills that a user's text names, and unknown /names with a hint."""
    requests: list[SkillRequest] = []
    unknown: list[tuple[str, str | None]] = []
    slash = _SLASH.fullmatch(text.strip())
    if slash is not None:
        name = slash["name"]
        if catalog.find(name) is not None:
            arguments = slash["rest"] or ""
            requests.append(SkillRequest(ref=name, trigger="user", arguments=arguments.strip()))
        elif "/" not in name:
            hint = _near(name, catalog)
            unknown.append((f"/{name}", hint))
    known = {requested.ref for requested in requests}
    for found in _DOLLAR.finditer(text):
        name = found["name"]
        if name not in known and catalog.find(name) is not None:
            known.add(name)
            requests.append(SkillRequest(ref=name, trigger="user", firm=False))
    return requests, unknown


def _near(name: str, catalog: Catalog) -> str:
    names = [entry.name for entry in catalog]
    near = near_names(name, names)
    if not near:
        return "See: prowess list"
    return f"Did you mean /{near[0]}?"


def names_in(call: ToolCall, outcome: Outcome) -> list[str]:
    """Returns every file name in the arguments and the outcome of a call."""
    found: list[Any] = []
    for argument in _ARGUMENTS:
        value = call.args.get(argument)
        if isinstance(value, str):
            found.append(value)
    for each in call.args.get("inputs") or ():
        found += [each.get("from"), each.get("to")] if isinstance(each, dict) else [each]
    paths = outcome.data.get("paths")
    if isinstance(paths, list):
        found += [path for path in paths if isinstance(path, str)]
    for key in _FILE_LISTS:
        for each in outcome.data.get(key) or ():
            found.append(each.get("name") or each.get("to") if isinstance(each, dict) else each)
    return [str(name) for name in found if name]


def skills_for_paths(names: Sequence[str], catalog: Catalog, loaded: Collection[str]) -> list[str]:
    """Ids of skills whose `paths` match a file name and that are not loaded yet."""
    wanting = [entry for entry in catalog if entry.controls.paths and entry.id not in loaded]
    if not wanting:
        return []
    written: set[str] = set()
    for name in names:
        written.update(_forms(name))
    found: list[str] = []
    for entry in wanting:
        fits = _fits(entry.controls.paths, written)
        if fits and catalog.visibility(entry).model_visible:
            found.append(entry.id)
    return found


def _forms(name: str) -> Iterable[str]:
    """Yields forms of a file name for matching: `work/inputs/a/b.csv` is also `a/b.csv`."""
    plain = name.partition("://")[2] or name
    yield plain
    for place in _PLACES:
        if plain.startswith(place):
            yield plain.removeprefix(place)


def _fits(patterns: Sequence[str], names: Iterable[str]) -> bool:
    for pattern in patterns:
        for name in names:
            if match_path(pattern, name):
                return True
            if "/" not in pattern and match_path(pattern, posixpath.basename(name)):
                return True
    return False


class SkillActivator:
    """Activates the skills that a request asks for, each with a call of skill_load."""

    def __init__(self, kit: Toolkit, spawn: Spawner | None) -> None:
        self._kit = kit
        self._talk = kit.conversation
        self._spawn = spawn

    async def activate(self, task: Task) -> bool:
        """Activates the skills that the caller and the user named, then those for the given files. If one needs an
        approval, the others are loaded, and the result is True: the run has to wait."""
        task = self._complete(task)
        requests = [*task.skills, *await self._find_named(task)]
        waits = False
        for requested in requests:
            id = self._find_id(requested)
            if task.resume and id is None and self._is_loaded(requested.ref):
                continue
            outcome = await self._request(requested, id)
            if outcome.status == "waiting":
                waits = True
            elif outcome.status != "ok":
                await self._report(requested, outcome)
        given = [part.text or "" for part in task.attachments if part.kind == "file"]
        waits_for_path = await self.activate_for([*given, *task.named])
        return waits or waits_for_path

    async def activate_for(self, names: Sequence[str]) -> bool:
        """Activates skills whose `paths` match a file name. True if one needs an approval."""
        if not names:
            return False
        waits = False
        catalog = self._kit.skills.catalog()
        for id in skills_for_paths(names, catalog, self._kit.work.known):
            outcome = await self._kit.request_skill(id, trigger="path", spawn=self._spawn)
            if outcome.status == "waiting":
                waits = True
        return waits

    def _complete(self, task: Task) -> Task:
        """Adds the requested skills and files again if the resumed run stopped before its first turn."""
        started = self._talk.first_started
        if not task.resume or self._talk.spent.turns or started is None:
            return task
        skills = list(skill_requests_of(started))
        if started.parent is None:
            catalog = self._kit.skills.catalog()
            skills += find_requested_skills(started.request, catalog)[0]
        skills += task.skills
        attachments = (*started.attachments, *task.attachments)
        return replace(task, skills=tuple(skills), attachments=attachments)

    async def _find_named(self, task: Task) -> list[SkillRequest]:
        """Finds the skills that the user's text names. Records unknown ones."""
        if task.parent is not None:
            return []
        requests, unknown = find_requested_skills(task.text, self._kit.skills.catalog())
        for name, hint in unknown:
            text = f"'{name}' is not a skill; it was taken as a part of the text."
            error = ErrorRaised(code="skill-not-found", message=text, hint=hint)
            await self._kit.append(error)
        return requests

    def _find_id(self, requested: SkillRequest) -> str | None:
        """Id of an earlier call for the same skill request, so that its approval counts again."""
        wanted = (requested.ref, requested.source, requested.trigger)
        for id, call in self._talk.requested_loads.items():
            args = call.args
            if (args.get("skill"), args.get("source"), call.trigger) == wanted:
                return id
        return None

    def _is_loaded(self, ref: str) -> bool:
        entry = self._kit.skills.catalog().find(ref)
        return entry is not None and entry.id in self._talk.loads

    async def _request(self, requested: SkillRequest, id: str | None) -> Outcome:
        return await self._kit.request_skill(
            requested.ref,
            source=requested.source,
            trigger=requested.trigger,
            arguments=requested.arguments,
            docs=requested.docs,
            id=id,
            spawn=self._spawn,
        )

    async def _report(self, requested: SkillRequest, outcome: Outcome) -> None:
        """Raises the error of a skill that could not be loaded. If the request is not firm, only records it."""
        error = self._kit.activation_error
        if not requested.firm:  # the name may be part of a pasted text
            text = outcome.content if error is None else error.message
            event = ErrorRaised(code=str(outcome.code), message=text, hint=outcome.hint)
            await self._kit.append(event)
            return
        if error is not None:
            raise error
        hint = outcome.hint
        decided = outcome.data.get("rule")
        if decided:  # the hint for a model does not help a person
            hint = f"What decided: {decided}. See: prowess policy check skill_load"
        raise SkillDenied(outcome.content, code=outcome.code, hint=hint)
