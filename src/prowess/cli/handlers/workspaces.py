"""Handler of `prowess workspaces`: lists and cleans workspaces, packages and published skills; builds the image."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from prowess.cli.app import Call, confirm_removal
from prowess.cli.screen import Screen, count, size
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.runtime.services.cleanup import CleanedWorkspaces, WorkspaceList, clean_workspaces, list_workspaces

if TYPE_CHECKING:
    from prowess.runtime.documents.shared import OnDisk
    from prowess.runtime.documents.work import (
        EnvironmentRow,
        ImageDocument,
        PublishedSkills,
        TreeRow,
        WorkspaceRow,
        WorkspacesCleanedDocument,
        WorkspacesDocument,
    )

if TYPE_CHECKING:  # the values that these services return
    from prowess.workspace.cleanup import Leftovers
    from prowess.workspace.scripts.environment_store import EnvironmentInfo
    from prowess.workspace.session_folder import PlaceInfo
    from prowess.workspace.skill_trees_in_use import TreeInfo

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PACKAGES = 60  # characters of a list of packages
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def workspaces(call: Call, action: str, **given: Any) -> int:
    if action == "build-image":
        return _build(call, given["base"], given["tag"], given["offline"])
    if action == "list":
        with call.runtime() as runtime:
            found = list_workspaces(runtime)
        return _list(call, found)
    older = parse_age(given["older_than"])
    keep = parse_size(given["keep"])
    if older is None and keep is None and not given["everything"]:
        hint = "--older-than 7d, --keep 2G, or --all for everything not in use."
        raise ConfigError("Say what to clean.", code="usage", hint=hint)
    is_dry = given["dry_run"]
    with call.runtime() as runtime:
        if not is_dry and not given["yes"]:
            planned = clean_workspaces(runtime, older_than_s=older, keep_bytes=keep, dry_run=True)
            if any(planned.removed):
                confirm_removal(_counted(planned.removed))
        cleaned = clean_workspaces(runtime, older_than_s=older, keep_bytes=keep, dry_run=is_dry)
    if call.screen.is_json:
        document = _cleaned_document(cleaned, is_dry)
        call.screen.document(document)
    else:
        _show_cleaned(call, cleaned, is_dry)
    return 0


def parse_age(text: str | None) -> float | None:
    """Returns seconds: 43200 for `12h`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if not found:
        hint = "Write a number and s, m, h, d or w: 12h, 7d."
        raise ConfigError(f"'{text}' is no age.", code="usage", hint=hint)
    number = float(found[1])
    return number * _UNITS[found[2]]


def parse_size(text: str | None) -> int | None:
    """Returns bytes: 2147483648 for `2G`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        hint = "Write a number and K, M, G or T: 500M, 2G."
        raise ConfigError(f"'{text}' is no size.", code="usage", hint=hint)
    number = float(found[1])
    unit = found[2].upper()
    return int(number * _SIZES[unit])


def _list(call: Call, found: WorkspaceList) -> int:
    dir, trees, left = found
    published: PublishedSkills = {"path": trees, "skills": len(left.trees), "size_bytes": _total(left.trees)}
    if call.screen.is_json:
        workspaces = [_row(info) for info in left.places]
        environments = [_environment_row(info) for info in left.environments]
        document: WorkspacesDocument = {
            "schema": "prowess.workspaces/1",
            "dir": dir,
            "workspaces": workspaces,
            "environments": environments,
            "published": published,
        }
        call.screen.document(document)
        return 0
    _show_left(call.screen, left)
    counted = _counted(left)
    call.screen.note(f"\n{counted} · {dir}")
    return 0


def _show_left(screen: Screen, left: Leftovers) -> None:
    """Shows workspaces, environments and published skills, with an empty line between them."""
    _show_places(screen, left.places)
    if left.places and left.environments:
        screen.text()
    _show_environments(screen, left.environments)
    if not left.trees:
        return
    if left.places or left.environments:
        screen.text()
    skills = count(len(left.trees), "skill")
    total = size(_total(left.trees))
    screen.text(f"published: {skills}  {total}")


def _show_places(screen: Screen, places: Sequence[PlaceInfo]) -> None:
    rows: list[list[str]] = []
    for info in reversed(places):
        used = _used(info)
        written = size(info.size_bytes)
        store = _store(info)
        rows.append([info.session, used, written, store, info.path])
    if rows:
        screen.table(["session", "used", "size", "store", "path"], rows)


def _show_environments(screen: Screen, environments: Sequence[EnvironmentInfo]) -> None:
    rows: list[list[str]] = []
    for info in reversed(environments):
        used = _used(info)
        written = size(info.size_bytes)
        rows.append([info.key, used, written, _packages(info)])
    if rows:
        screen.table(["environment", "used", "size", "packages"], rows)


def _cleaned_document(cleaned: CleanedWorkspaces, dry: bool) -> WorkspacesCleanedDocument:
    removed = cleaned.removed
    in_use = cleaned.in_use
    return {
        "schema": "prowess.workspaces-cleaned/1",
        "dir": cleaned.dir,
        "dry_run": dry,
        "removed": [_row(info) for info in removed.places],
        "in_use": [_row(info) for info in in_use.places],
        "environments": {
            "removed": [_environment_row(info) for info in removed.environments],
            "in_use": [_environment_row(info) for info in in_use.environments],
        },
        "published": {
            "removed": [_tree_row(info) for info in removed.trees],
            "in_use": [_tree_row(info) for info in in_use.trees],
            "needed": cleaned.needed,
            "needed_by_others": list(cleaned.others),
            "problem": cleaned.problem,
        },
    }


def _show_cleaned(call: Call, cleaned: CleanedWorkspaces, dry: bool) -> None:
    screen = call.screen
    _show_lines(screen, "would remove" if dry else "removed", cleaned.removed)
    _show_lines(screen, "in use, kept", cleaned.in_use)
    if cleaned.problem is not None:
        problem = visible(cleaned.problem)
        screen.note(f"warning: No published skill was removed, because it is not known which are needed: {problem}")
    if cleaned.needed:
        skills = count(cleaned.needed, "published skill")
        text = f"kept: {skills} that sessions may go on from"
        if cleaned.others:
            others = visible(", ".join(cleaned.others))
            text += f"; some by sessions in {others}"
        screen.note(text)
    counted = _counted(cleaned.removed)
    if dry:
        counted += " (nothing was removed)"
    screen.note(counted)


def _show_lines(screen: Screen, said: str, found: Leftovers) -> None:
    for info in found.places:
        _show_line(screen, said, info.session, info)
    for info in found.environments:
        packages = _packages(info)
        _show_line(screen, said, f"environment {packages}", info)
    for info in found.trees:
        _show_line(screen, said, "published skill", info)


def _show_line(screen: Screen, said: str, name: str, info: PlaceInfo | EnvironmentInfo | TreeInfo) -> None:
    shown = visible(name)
    written = size(info.size_bytes)
    path = visible(info.path)
    screen.text(f"{said}  {shown}  {written}  {path}")


def _counted(left: Leftovers) -> str:
    """Renders `2 workspaces · 1 environment · 31.4 MB`. Leaves out zero counts, except that of workspaces."""
    parts = [count(len(left.places), "workspace")]
    if left.environments:
        parts.append(count(len(left.environments), "environment"))
    if left.trees:
        parts.append(count(len(left.trees), "published skill"))
    parts.append(size(left.size_bytes))
    return " · ".join(parts)


def _build(call: Call, base: str | None, tag: str, offline: bool) -> int:
    from prowess.runtime.services.container_image import build_container_image

    if base is not None and offline:
        raise ConfigError("--from and --offline exclude each other.", code="usage", hint="Leave one of them out.")
    built = build_container_image(tag=tag, base=base, offline=offline, on_line=call.screen.note)
    if not call.screen.is_json:
        written = size(built.size_bytes)
        call.screen.text(f"{built.tag}  {built.id}  {written}")
        return 0
    document: ImageDocument = {
        "schema": "prowess.image/1",
        "tag": built.tag,
        "id": built.id,
        "size_bytes": built.size_bytes,
        "python": built.python,
        "built_from": built.built_from,
        "packages": list(built.packages),
    }
    call.screen.document(document)
    return 0


def _row(info: PlaceInfo) -> WorkspaceRow:
    return {"id": info.id, "session": info.session, "store": info.store, "files": info.files, **_on_disk(info)}


def _environment_row(info: EnvironmentInfo) -> EnvironmentRow:
    return {
        "key": info.key,
        "dependencies": list(info.dependencies),
        "resolved": list(info.resolved),
        "made_for": info.made_for,
        "whole": info.is_whole,
        **_on_disk(info),
    }


def _tree_row(info: TreeInfo) -> TreeRow:
    return {"digest": info.digest, **_on_disk(info)}


def _on_disk(info: PlaceInfo | EnvironmentInfo | TreeInfo) -> OnDisk:
    used = time.gmtime(info.used_at)
    used_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", used)
    return {
        "path": info.path,
        "size_bytes": info.size_bytes,
        "used_at": used_at,
        "in_use": info.in_use,
    }


def _packages(info: EnvironmentInfo) -> str:
    """Renders the requested packages, cut to the length of a line."""
    if not info.is_whole:
        return "(unfinished)"
    text = ", ".join(info.dependencies)
    if len(text) <= _PACKAGES:
        return text
    return f"{text[: _PACKAGES - 1]}…"


def _used(info: PlaceInfo | EnvironmentInfo) -> str:
    if info.in_use:
        return "in use"
    return _ago(info.used_at)


def _store(info: PlaceInfo) -> str:
    """Names the store that has the records of this session."""
    store = info.store or "unknown"
    if info.store_is_gone:
        return f"{store} (gone)"
    return store


def _total(trees: Collection[TreeInfo]) -> int:
    """Returns the bytes that published skills take."""
    return sum(info.size_bytes for info in trees)


def _ago(used_at: float) -> str:
    """Renders `3d ago`."""
    seconds = max(0.0, time.time() - used_at)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            number = seconds / length
            return f"{number:.0f}{unit} ago"
    return "just now"
