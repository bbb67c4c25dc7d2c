"""Command `prowess verify`: compares installed skills with the lock, and packs with their manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from prowess._internal.unpack import ARCHIVE_ENDINGS
from prowess.cli.app import Call, cli_command
from prowess.cli.pack_calls import end_in_order, other_place_hint, pack_options, to_option
from prowess.cli.pack_plan import shown_path
from prowess.cli.progress import ProgressBars
from prowess.cli.screen import count
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.packs import api
from prowess.packs.compare import Comparison, VerifiedPack, verify_file
from prowess.packs.lock import find_place, read_lock
from prowess.runtime.config import find_places

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import ComparedPack, ComparedSkill, NamedComparison, VerifiedDocument

_MOST_LINES = 10
_WORDS = {"added": "not in the {}", "changed": "changed", "removed": "missing", "mode": "has another mode"}


@cli_command("verify", example="prowess verify --all\nprowess verify pdf-forms\nprowess verify ./skills.zip")
@click.argument("targets", nargs=-1, metavar="[NAME|FILE|DIR…]")
@click.option("--all", "everything", is_flag=True, help="All installed skills. The default without NAME, FILE or DIR.")
@to_option
def command(call: Call, targets: tuple[str, ...], everything: bool, to: str) -> int:
    """Compare installed skills with the lock, or an archive or a folder with its manifest.

    Prints the digest of each. Every file is read and hashed. Exit code 1 when anything differs.
    """
    lock = read_lock(find_place(to, find_places(call.cwd, os.environ)))
    files = [target for target in targets if target not in lock and _is_path(call, target)]
    names = [target for target in targets if target not in files]
    installed = None
    with end_in_order(), ProgressBars(call.screen) as bars, other_place_hint(call, names, to):
        if names or everything or not targets:
            installed = api.verify(*([] if everything else names), progress=bars, **pack_options(call, to))
        packs = []
        for number, path in enumerate(files):
            bars("Verifying packs", number, len(files))
            packs.append(verify_file(os.path.join(call.cwd, path)))
    same = (installed is None or installed.same) and all(pack.same for pack in packs)
    if call.screen.is_json:
        call.screen.document(_document(same, installed, packs))
    else:
        if installed is not None:
            _show_installed(call, installed)
        for number, pack in enumerate(packs):
            if number or installed is not None:
                call.screen.text()
            _show_pack(call, pack)
        _summarise(call, installed, packs, same=same)
    return 0 if same else 1


def _is_path(call: Call, target: str) -> bool:
    """True for what is a file or a folder, or is written like one. Anything else is the name of a skill."""
    is_written_so = os.sep in target or target in (".", "..") or target.lower().endswith(ARCHIVE_ENDINGS)
    return is_written_so or os.path.exists(os.path.join(call.cwd, target))


# --- for people -------------------------------------------------------------------------------------------------------


def _show_installed(call: Call, installed: api.Verified) -> None:
    _show_skills(call, installed.skills, "lock")
    if installed.unknown:
        call.screen.text()
    for name in installed.unknown:
        call.screen.note(f"not in the lock: {visible(shown_path(call, installed.place.folder(name)))}")


def _show_pack(call: Call, pack: VerifiedPack) -> None:
    screen, path = call.screen, visible(shown_path(call, pack.path))
    screen.heading(path)
    if pack.sha256:
        screen.text(f"sha256  {pack.sha256}")
    only = os.path.splitext(os.path.basename(pack.path))[0]  # a pack that is one skill itself
    _show_skills(call, {name or only: found for name, found in pack.skills.items()}, "manifest")
    if not pack.has_manifest:
        screen.note(f"{path} has no manifest to compare with.")
    elif pack.others:
        screen.text()
        _show_lines(call, [f"not in the manifest: {name}" for name in pack.others])


def _show_skills(call: Call, skills: Mapping[str, Comparison], record: str) -> None:
    screen = call.screen
    if skills:
        rows = [[_verdict(found), name, found.digest or "-"] for name, found in skills.items()]
        screen.table(["status", "skill", "digest"], rows, styled=0)
    for name, found in skills.items():
        if not found.same:
            screen.text(f"\n{visible(name)}")
            if found.expected_digest:
                screen.text(f"  {record}: {found.expected_digest}")
            words = [f"{_WORDS[kind].format(record)}: {path}" for kind, path in found.differences]
            _show_lines(call, [*words, *found.notes])


def _verdict(found: Comparison) -> str:
    if found.digest is None:
        return "missing"
    return "differs" if not found.same else "same" if found.expected_digest else "hashed"


def _show_lines(call: Call, lines: Sequence[str]) -> None:
    most = len(lines) if call.screen.verbose else _MOST_LINES
    for line in lines[:most]:
        call.screen.text(f"  {visible(line)}")
    if len(lines) > most:
        call.screen.text(f"  and {len(lines) - most} more with -v")


def _summarise(call: Call, installed: api.Verified | None, packs: list[VerifiedPack], *, same: bool) -> None:
    screen = call.screen
    skills = list(installed.skills.values()) if installed else []
    if installed is not None and not skills:
        where = visible(shown_path(call, installed.place.root))
        screen.note(f"Nothing is installed in {where}.")
    if not skills and not packs:
        return
    wrong = sum(not found.same for found in skills) + sum(not pack.same for pack in packs)
    parts = [count(len(skills), "skill")] if skills else []
    parts += [count(len(packs), "pack")] if packs else []
    is_compared = bool(skills) or any(pack.has_manifest for pack in packs)
    result = f"{wrong} with differences" if not same else "no difference" if is_compared else "nothing to compare with"
    screen.note(f"\n{' and '.join(parts)} {'verified' if is_compared else 'hashed'} · {result}")
    if any(not found.same for found in skills):
        force = " --force" if any(not found.same and found.digest for found in skills) else ""
        screen.note(f"Return to the lock: {call.follow_up('prowess install')}{force}")


# --- for programs -----------------------------------------------------------------------------------------------------


def _document(same: bool, installed: api.Verified | None, packs: list[VerifiedPack]) -> VerifiedDocument:
    rows: list[NamedComparison] = []
    if installed is not None:
        folder = installed.place.folder
        rows = [{"name": name, **_row(found, folder(name))} for name, found in installed.skills.items()]
    return {
        "schema": "prowess.verified/1",
        "same": same,
        "folder": installed.place.root if installed else None,
        "lock": installed.place.lock if installed else None,
        "skills": rows,
        "unknown": list(installed.unknown) if installed else [],
        "packs": [_pack_row(pack) for pack in packs],
    }


def _row(found: Comparison, path: str) -> ComparedSkill:
    return {
        "path": path,
        "same": found.same,
        "digest": found.digest,
        "expected_digest": found.expected_digest,
        "differences": to_json(found.differences),
        "notes": list(found.notes),
    }


def _pack_row(pack: VerifiedPack) -> ComparedPack:
    return {
        "path": pack.path,
        "same": pack.same,
        "sha256": pack.sha256,
        "has_manifest": pack.has_manifest,
        "skills": [_row(found, path) for path, found in pack.skills.items()],
        "others": list(pack.others),
    }
