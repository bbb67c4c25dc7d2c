"""Lists, adopts and removes what the state folder keeps of projects."""

from __future__ import annotations

import os
import shlex
import shutil
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from prowess.core.events import render_at
from prowess.errors import ConfigError
from prowess.runtime.config import ConfigPlaces
from prowess.runtime.project_state import (
    DATABASE,
    FILE,
    ProjectInfo,
    folder_of,
    identify,
    is_project,
    list_projects,
    locked_projects,
    read_info,
    state_path,
    write_info,
)
from prowess.runtime.services.cleanup import size_of


class KnownProject(NamedTuple):
    """`status`: `here`, `gone` (there is no folder at its path), or `unreadable` (its project.json is damaged)."""

    id: str
    path: str | None
    status: Literal["here", "gone", "unreadable"]
    used_at: str | None
    size_bytes: int


def known_projects(state_dir: str) -> list[KnownProject]:
    return [_look_at(state_dir, name, info) for name, info in list_projects(state_dir)]


def _look_at(state_dir: str, name: str, info: ProjectInfo | None) -> KnownProject:
    folder = folder_of(state_dir, name)
    try:
        used_at = render_at(datetime.fromtimestamp(os.stat(os.path.join(folder, DATABASE)).st_mtime, UTC))
    except OSError:
        used_at = None
    size_bytes = size_of(folder)
    if info is None:
        return KnownProject(name, None, "unreadable", used_at, size_bytes)
    return KnownProject(name, info.path, "here" if os.path.isdir(info.path) else "gone", used_at, size_bytes)


def adopt_project(places: ConfigPlaces, ref: str) -> KnownProject:
    """Gives the state of another project, or of an earlier folder at this path, to the project here. Answers in it
    count."""
    if not is_project(places):
        raise ConfigError(
            f"{places.project} is no project: it has no .agent/.", code="no-project", hint="Make it one: prowess init"
        )
    project = os.path.realpath(places.project)
    with locked_projects(places.state_dir):
        known = _find(places, ref)
        info = read_info(folder_of(places.state_dir, known.id))
        if info is None:
            raise _unknown(places, ref)
        target = state_path(places)
        source = folder_of(places.state_dir, known.id)
        command = f"prowess runs import {shlex.quote(os.path.join(source, DATABASE))} --mine"
        if source != target:
            if known.status == "here":
                raise ConfigError(
                    f"{info.path} is still there, and its record belongs to it.",
                    code="project-in-use",
                    hint=f"Name one whose folder has gone; or copy its sessions: {command}",
                )
            if os.path.lexists(target) and os.listdir(target) not in ([], [FILE]):
                raise ConfigError(
                    f"{project} has a record already.",
                    code="project-has-record",
                    hint=f"Take its sessions over: {command}",
                )
            if os.path.lexists(target):
                shutil.rmtree(target)
            os.rename(source, target)
        info = info._replace(path=project, **identify(project)._asdict(), since="")
        write_info(target, info)
    return _look_at(places.state_dir, os.path.basename(target), info)


def prune_projects(state_dir: str, ids: list[str]) -> list[str]:
    """Removes the state of these projects. Returns those that are gone now."""
    removed: list[str] = []
    with locked_projects(state_dir):
        for known in known_projects(state_dir):
            if known.id in ids and known.status == "gone":
                shutil.rmtree(folder_of(state_dir, known.id))  # follows no links
                removed.append(known.id)
    return removed


def _find(places: ConfigPlaces, ref: str) -> KnownProject:
    path = os.path.realpath(os.path.join(places.cwd, os.path.expanduser(ref)))
    known = known_projects(places.state_dir)
    for each in known:
        if each.id == ref or each.path == path:
            return each
    beginning = [each for each in known if each.id.startswith(ref)] if ref else []
    if len(beginning) == 1:
        return beginning[0]
    raise _unknown(places, ref)


def _unknown(places: ConfigPlaces, ref: str) -> ConfigError:
    return ConfigError(
        f"No record of a project '{ref[:200]}' is kept in {places.state_dir}.",
        code="project-unknown",
        hint="See: prowess projects list",
    )
