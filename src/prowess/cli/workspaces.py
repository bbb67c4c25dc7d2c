"""prowess workspaces"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import click

from prowess.cli.app import Call, verb
from prowess.cli.render import count, size
from prowess.errors import ConfigError, SkillDenied
from prowess.workspace.place import PlaceInfo, clean_places, find_dir, list_places

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@verb(
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
@click.option("--from", "base", metavar="IMAGE", help="For build-image: start from this image, not from this machine.")
@click.option("--tag", metavar="NAME", help="For build-image: what to call it.  [default: prowess-box]")
def command(call: Call, action: str, **given: Any) -> int:
    """Show and clean what sessions have left on disk; build the image for containers.

    A workspace that somebody works in is never cleaned. Artifacts and records are kept elsewhere and stay.
    """
    if action == "build-image":
        return _build(call, given["base"], given["tag"])
    with call.runtime() as runtime:
        dir = find_dir(runtime.config.workspace.dir, runtime.places.cache_dir)
    if action == "list":
        return _list(call, dir, list_places(dir))
    older, keep = parse_age(given["older_than"]), parse_size(given["keep"])
    if older is None and keep is None and not given["everything"]:
        raise ConfigError(
            "Say what to clean.", code="usage", hint="--older-than 7d, --keep 2G, or --all for everything not in use."
        )
    dry = given["dry_run"]
    if not dry and not given["yes"]:
        _confirm(clean_places(dir, older_than_s=older, keep_bytes=keep, dry_run=True)[0])
    removed, kept = clean_places(dir, older_than_s=older, keep_bytes=keep, dry_run=dry)
    return _cleaned(call, dir, removed, kept, dry)


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


def _list(call: Call, dir: str, places: list[PlaceInfo]) -> int:
    if call.screen.is_json:
        rows = [_row(info) for info in places]
        call.screen.document({"schema": "prowess.workspaces/1", "dir": dir, "workspaces": rows})
        return 0
    if places:
        rows = [
            [info.session, "in use" if info.in_use else _ago(info.used_at), size(info.size_bytes), info.path]
            for info in reversed(places)
        ]
        call.screen.table(["session", "used", "size", "path"], rows)
    total = sum(info.size_bytes for info in places)
    call.screen.note(f"\n{count(len(places), 'workspace')} · {size(total)} · {dir}")
    return 0


def _cleaned(call: Call, dir: str, removed: list[PlaceInfo], kept: list[PlaceInfo], dry: bool) -> int:
    if call.screen.is_json:
        call.screen.document(
            {
                "schema": "prowess.workspaces-cleaned/1",
                "dir": dir,
                "dry_run": dry,
                "removed": [_row(info) for info in removed],
                "in_use": [_row(info) for info in kept],
            }
        )
        return 0
    for info in removed:
        call.screen.text(
            f"{'would remove' if dry else 'removed'}  {info.session}  {size(info.size_bytes)}  {info.path}"
        )
    for info in kept:
        call.screen.text(f"in use, kept  {info.session}  {info.path}")
    freed = sum(info.size_bytes for info in removed)
    call.screen.note(f"{count(len(removed), 'workspace')} · {size(freed)}{' (nothing was removed)' if dry else ''}")
    return 0


def _build(call: Call, base: str | None, tag: str | None) -> int:
    from prowess.workspace.container.engine import connect
    from prowess.workspace.container.image import DEFAULT_IMAGE, build_image

    engine = connect()
    try:
        built = build_image(engine.client, tag=tag or DEFAULT_IMAGE, base=base, on_line=call.screen.note)
    finally:
        engine.close()
    if call.screen.is_json:
        call.screen.document(
            {"schema": "prowess.image/1", "tag": built.tag, "id": built.id, "size_bytes": built.size_bytes}
        )
    else:
        call.screen.text(f"{built.tag}  {built.id}  {size(built.size_bytes)}")
    return 0


def _confirm(places: list[PlaceInfo]) -> None:
    if not places:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{count(len(places), 'workspace')} would be removed, and nobody is there to say yes.",
            code="needs-yes",
            hint="Look with --dry-run, then add --yes.",
        )
    total = sum(info.size_bytes for info in places)
    if not click.confirm(f"Remove {count(len(places), 'workspace')} with {size(total)}?", err=True):
        raise SkillDenied("Nothing was removed.", code="not-confirmed", hint="")


def _row(info: PlaceInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "session": info.session,
        "path": info.path,
        "size_bytes": info.size_bytes,
        "files": info.files,
        "used_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.used_at)),
        "in_use": info.in_use,
    }


def _ago(used_at: float) -> str:
    seconds = max(0.0, time.time() - used_at)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit} ago"
    return "just now"
