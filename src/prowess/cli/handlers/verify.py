"""Handler of `prowess verify`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prowess._internal.unpack import ARCHIVE_ENDINGS
from prowess.cli.app import Call
from prowess.cli.pack_calls import end_in_order, other_place_hint, pack_options
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


def verify(call: Call, targets: tuple[str, ...], everything: bool, to: str) -> int:
    places = find_places(call.cwd, os.environ)
    place = find_place(to, places)
    lock = read_lock(place)
    files = [target for target in targets if target not in lock and _is_path(call, target)]
    names = [target for target in targets if target not in files]
    installed = None
    with end_in_order(), ProgressBars(call.screen) as bars, other_place_hint(call, names, to):
        if names or everything or not targets:
            chosen = [] if everything else names
            options = pack_options(call, to)
            installed = api.verify(*chosen, progress=bars, **options)
        packs: list[VerifiedPack] = []
        for number, file in enumerate(files):
            bars("Verifying packs", number, len(files))
            path = os.path.join(call.cwd, file)
            packs.append(verify_file(path))
    same = all(pack.same for pack in packs)
    if installed is not None and not installed.same:
        same = False
    if call.screen.is_json:
        document = _document(same, installed, packs)
        call.screen.document(document)
    else:
        _show(call, installed, packs, same=same)
    return 0 if same else 1


def _is_path(call: Call, target: str) -> bool:
    """True for what is a file or a folder, or is written like one. Anything else is the name of a skill."""
    if os.sep in target or target in (".", ".."):
        return True
    if target.lower().endswith(ARCHIVE_ENDINGS):
        return True
    path = os.path.join(call.cwd, target)
    return os.path.exists(path)


# --- for people -------------------------------------------------------------------------------------------------------


def _show(call: Call, installed: api.Verified | None, packs: list[VerifiedPack], *, same: bool) -> None:
    is_first = installed is None
    if installed is not None:
        _show_installed(call, installed)
    for pack in packs:
        if not is_first:
            call.screen.text()
        _show_pack(call, pack)
        is_first = False
    _summarise(call, installed, packs, same=same)


def _show_installed(call: Call, installed: api.Verified) -> None:
    _show_skills(call, installed.skills, "lock")
    if installed.unknown:
        call.screen.text()
    for name in installed.unknown:
        folder = installed.place.folder(name)
        path = visible(shown_path(call, folder))
        call.screen.note(f"not in the lock: {path}")


def _show_pack(call: Call, pack: VerifiedPack) -> None:
    screen = call.screen
    path = visible(shown_path(call, pack.path))
    screen.heading(path)
    if pack.sha256:
        screen.text(f"sha256  {pack.sha256}")
    file = os.path.basename(pack.path)
    only, _ = os.path.splitext(file)  # a pack that is one skill itself
    skills = {name or only: found for name, found in pack.skills.items()}
    _show_skills(call, skills, "manifest")
    if not pack.has_manifest:
        screen.note(f"{path} has no manifest to compare with.")
    elif pack.others:
        screen.text()
        lines = [f"not in the manifest: {name}" for name in pack.others]
        _show_lines(call, lines)


def _show_skills(call: Call, skills: Mapping[str, Comparison], record: str) -> None:
    screen = call.screen
    rows: list[list[str]] = []
    for name, found in skills.items():
        verdict = _verdict(found)
        rows.append([verdict, name, found.digest or "-"])
    if rows:
        screen.table(["status", "skill", "digest"], rows, styled=0)
    for name, found in skills.items():
        if found.same:
            continue
        shown = visible(name)
        screen.text(f"\n{shown}")
        if found.expected_digest:
            screen.text(f"  {record}: {found.expected_digest}")
        lines: list[str] = []
        for kind, path in found.differences:
            word = _WORDS[kind].format(record)
            lines.append(f"{word}: {path}")
        lines += found.notes
        _show_lines(call, lines)


def _verdict(found: Comparison) -> str:
    if found.digest is None:
        return "missing"
    if not found.same:
        return "differs"
    if found.expected_digest:
        return "same"
    return "hashed"


def _show_lines(call: Call, lines: Sequence[str]) -> None:
    screen = call.screen
    most = _MOST_LINES
    if screen.verbose:
        most = len(lines)
    for line in lines[:most]:
        shown = visible(line)
        screen.text(f"  {shown}")
    left_out = len(lines) - most
    if left_out > 0:
        screen.text(f"  and {left_out} more with -v")


def _summarise(call: Call, installed: api.Verified | None, packs: list[VerifiedPack], *, same: bool) -> None:
    screen = call.screen
    skills: list[Comparison] = []
    if installed is not None:
        skills += installed.skills.values()
    if installed is not None and not skills:
        where = visible(shown_path(call, installed.place.root))
        screen.note(f"Nothing is installed in {where}.")
    if not skills and not packs:
        return
    what = _verified_counts(skills, packs)
    result = _result(skills, packs, same=same)
    screen.note(f"\n{what} · {result}")
    differing = [found for found in skills if not found.same]
    if differing:
        command = call.follow_up("prowess install")
        if any(found.digest for found in differing):
            command += " --force"
        screen.note(f"Return to the lock: {command}")


def _verified_counts(skills: Sequence[Comparison], packs: Sequence[VerifiedPack]) -> str:
    """Renders `2 skills and 1 pack verified`."""
    parts: list[str] = []
    if skills:
        parts.append(count(len(skills), "skill"))
    if packs:
        parts.append(count(len(packs), "pack"))
    counts = " and ".join(parts)
    if _is_compared(skills, packs):
        return f"{counts} verified"
    return f"{counts} hashed"


def _result(skills: Sequence[Comparison], packs: Sequence[VerifiedPack], *, same: bool) -> str:
    if not same:
        wrong = [each for each in (*skills, *packs) if not each.same]
        return f"{len(wrong)} with differences"
    if _is_compared(skills, packs):
        return "no difference"
    return "nothing to compare with"


def _is_compared(skills: Sequence[Comparison], packs: Sequence[VerifiedPack]) -> bool:
    if skills:
        return True
    return any(pack.has_manifest for pack in packs)


# --- for programs -----------------------------------------------------------------------------------------------------


def _document(same: bool, installed: api.Verified | None, packs: list[VerifiedPack]) -> VerifiedDocument:
    document: VerifiedDocument = {
        "schema": "prowess.verified/1",
        "same": same,
        "folder": None,
        "lock": None,
        "skills": [],
        "unknown": [],
        "packs": [_pack_row(pack) for pack in packs],
    }
    if installed is not None:
        place = installed.place
        document["folder"] = place.root
        document["lock"] = place.lock
        document["skills"] = _named_rows(installed)
        document["unknown"] = list(installed.unknown)
    return document


def _named_rows(installed: api.Verified) -> list[NamedComparison]:
    rows: list[NamedComparison] = []
    for name, found in installed.skills.items():
        folder = installed.place.folder(name)
        row = _row(found, folder)
        rows.append({"name": name, **row})
    return rows


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
    skills = [_row(found, path) for path, found in pack.skills.items()]
    return {
        "path": pack.path,
        "same": pack.same,
        "sha256": pack.sha256,
        "has_manifest": pack.has_manifest,
        "skills": skills,
        "others": list(pack.others),
    }
