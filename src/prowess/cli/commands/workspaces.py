"""Command `prowess workspaces`: lists and cleans workspaces, packages and published skills; builds the image."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from prowess.cli.app import Call, cli_command, confirm_removal
from prowess.cli.screen import count, size
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


@cli_command(
    "workspaces",
    example="prowess workspaces list\nprowess workspaces clean --older-than 7d\nprowess workspaces clean --keep 2G\n"
    "prowess workspaces build-image",
)
@click.argument("action", type=click.Choice(["list", "clean", "build-image"]), default="list")
@click.option("--older-than", metavar="AGE", help="Clean what was not used for so long: 12h, 7d, 4w.")
@click.option("--keep", metavar="SIZE", help="Clean the oldest until what is left has no more than this: 500M, 2G.")
@click.option("--all", "everything", is_flag=True, help="Clean all that are not in use.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--from", "base", metavar="IMAGE", help="For build-image: use this image as it is.")
@click.option("--offline", is_flag=True, help="For build-image: download nothing, use the packages of this machine.")
@click.option("--tag", metavar="NAME", default="prowess-box", show_default=True, help="For build-image: its name.")
def command(call: Call, action: str, **given: Any) -> int:
    """Show and clean what sessions have left on disk; build the image for containers.

    These are workspaces, packages that were installed for scripts, and published skills. What is in use is never
    cleaned, nor is a published skill that a session may go on from. Artifacts and records are kept elsewhere and stay.
    """
    if action == "build-image":
        return _build(call, given["base"], given["tag"], given["offline"])
    if action == "list":
        with call.runtime() as runtime:
            found = list_workspaces(runtime)
        return _list(call, found)
    older, keep = parse_age(given["older_than"]), parse_size(given["keep"])
    if older is None and keep is None and not given["everything"]:
        raise ConfigError(
            "Say what to clean.", code="usage", hint="--older-than 7d, --keep 2G, or --all for everything not in use."
        )
    with call.runtime() as runtime:
        if not given["dry_run"] and not given["yes"]:
            would_go = clean_workspaces(runtime, older_than_s=older, keep_bytes=keep, dry_run=True).removed
            if any(would_go):
                confirm_removal(_counted(would_go))
        cleaned = clean_workspaces(runtime, older_than_s=older, keep_bytes=keep, dry_run=given["dry_run"])
    return _show_cleaned(call, cleaned, given["dry_run"])


def parse_age(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if not found:
        raise ConfigError(f"'{text}' is no age.", code="usage", hint="Write a number and s, m, h, d or w: 12h, 7d.")
    return float(found[1]) * _UNITS[found[2]]


def parse_size(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise ConfigError(f"'{text}' is no size.", code="usage", hint="Write a number and K, M, G or T: 500M, 2G.")
    return int(float(found[1]) * _SIZES[found[2].upper()])


def _list(call: Call, found: WorkspaceList) -> int:
    dir, trees, left = found
    published: PublishedSkills = {"path": trees, "skills": len(left.trees), "size_bytes": _total(left.trees)}
    if call.screen.is_json:
        document: WorkspacesDocument = {
            "schema": "prowess.workspaces/1",
            "dir": dir,
            "workspaces": [_row(info) for info in left.places],
            "environments": [_environment_row(info) for info in left.environments],
            "published": published,
        }
        call.screen.document(document)
        return 0
    if left.places:
        rows = [
            [info.session, _used(info), size(info.size_bytes), _store(info), info.path]
            for info in reversed(left.places)
        ]
        call.screen.table(["session", "used", "size", "store", "path"], rows)
    if left.places and left.environments:
        call.screen.text()
    if left.environments:
        rows = [[info.key, _used(info), size(info.size_bytes), _packages(info)] for info in reversed(left.environments)]
        call.screen.table(["environment", "used", "size", "packages"], rows)
    if left.trees and (left.places or left.environments):
        call.screen.text()
    if left.trees:
        call.screen.text(f"published: {count(len(left.trees), 'skill')}  {size(_total(left.trees))}")
    call.screen.note(f"\n{_counted(left)} · {dir}")
    return 0


def _show_cleaned(call: Call, cleaned: CleanedWorkspaces, dry: bool) -> int:
    removed, in_use = cleaned.removed, cleaned.in_use
    if call.screen.is_json:
        document: WorkspacesCleanedDocument = {
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
        call.screen.document(document)
        return 0
    for said, found in (("would remove" if dry else "removed", removed), ("in use, kept", in_use)):
        for name, info in _named_lines(found):
            call.screen.text(f"{said}  {visible(name)}  {size(info.size_bytes)}  {visible(info.path)}")
    if cleaned.problem is not None:
        call.screen.note(
            f"warning: No published skill was removed, because it is not known which are needed: "
            f"{visible(cleaned.problem)}"
        )
    if cleaned.needed:
        others = f"; some by sessions in {visible(', '.join(cleaned.others))}" if cleaned.others else ""
        call.screen.note(f"kept: {count(cleaned.needed, 'published skill')} that sessions may go on from{others}")
    call.screen.note(f"{_counted(removed)}{' (nothing was removed)' if dry else ''}")
    return 0


def _named_lines(found: Leftovers) -> list[tuple[str, PlaceInfo | EnvironmentInfo | TreeInfo]]:
    return [
        *((info.session, info) for info in found.places),
        *((f"environment {_packages(info)}", info) for info in found.environments),
        *(("published skill", info) for info in found.trees),
    ]


def _counted(left: Leftovers) -> str:
    """Renders `2 workspaces · 1 environment · 31.4 MB`. Leaves out zero counts, except that of workspaces."""
    parts = [count(len(left.places), "workspace")]
    parts += [count(len(left.environments), "environment")] if left.environments else []
    parts += [count(len(left.trees), "published skill")] if left.trees else []
    return " · ".join([*parts, size(left.size_bytes)])


def _build(call: Call, base: str | None, tag: str, offline: bool) -> int:
    from prowess.runtime.services.container_image import build_container_image

    if base is not None and offline:
        raise ConfigError("--from and --offline exclude each other.", code="usage", hint="Leave one of them out.")
    built = build_container_image(tag=tag, base=base, offline=offline, on_line=call.screen.note)
    if call.screen.is_json:
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
    else:
        call.screen.text(f"{built.tag}  {built.id}  {size(built.size_bytes)}")
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
    return {
        "path": info.path,
        "size_bytes": info.size_bytes,
        "used_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.used_at)),
        "in_use": info.in_use,
    }


def _packages(info: EnvironmentInfo) -> str:
    """Renders the requested packages, cut to the length of a line."""
    if not info.is_whole:
        return "(unfinished)"
    text = ", ".join(info.dependencies)
    return text if len(text) <= _PACKAGES else f"{text[: _PACKAGES - 1]}…"


def _used(info: PlaceInfo | EnvironmentInfo) -> str:
    return "in use" if info.in_use else _ago(info.used_at)


def _store(info: PlaceInfo) -> str:
    return f"{info.store or 'unknown'}{' (gone)' if info.store_is_gone else ''}"


def _total(trees: Collection[TreeInfo]) -> int:
    return sum(info.size_bytes for info in trees)


def _ago(used_at: float) -> str:
    seconds = max(0.0, time.time() - used_at)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit} ago"
    return "just now"
