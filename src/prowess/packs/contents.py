"""Finds the skills in an obtained pack: each is read whole, hashed once, checked, and described for a person. One skill
that cannot be read, one name twice or one unsafe file refuses the whole pack."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from prowess._internal.paths import inside, is_inside
from prowess._internal.portable_names import check_portable_names, find_git_folder, shown_name, unsafe_name
from prowess._internal.text import find_invisible, name_some
from prowess.core.catalog_values import Finding
from prowess.core.findings import visible
from prowess.errors import PackError, PackMismatch, PackUnsafe, PathEscape
from prowess.packs.bundle import read_manifest
from prowess.packs.values import Obtained, PackedSkill, Progress, no_progress
from prowess.runtime.check import check_loaded
from prowess.runtime.services.capabilities import find_capabilities
from prowess.skills.file_list import digest_of, file_differences
from prowess.skills.load import TOO_LARGE, SkillTree, list_files, load_entry, read_resource
from prowess.skills.metadata import name_notes
from prowess.skills.parse import parse_head
from prowess.skills.scanner import scan
from prowess.skills.skill import FATAL, Entry, Root
from prowess.skills.spelling import near_names
from prowess.skills.validate import graded


def find_skills(
    obtained: Obtained,
    *,
    only: Sequence[str] = (),
    outside: str | None = None,
    progress: Progress = no_progress,
    notes: list[str] | None = None,
) -> list[PackedSkill]:
    """Returns the skills of a pack, sorted by name. `only` chooses some by name. Skills in the folder `outside`, which
    gets the skills, are not of the pack. `notes` gets what was left out."""
    told: list[str] = [] if notes is None else notes
    obtained = replace(obtained, folder=os.path.realpath(obtained.folder))
    entries = _find_entries(obtained, outside, told)
    if only:
        entries = _choose(entries, only, obtained)
    skills: list[PackedSkill] = []
    for number, entry in enumerate(entries):
        progress("checking skills", number, len(entries))
        skill = _read(entry, obtained)
        skills.append(skill)
        if skill.left_out:
            what = name_some(skill.left_out, 5, quote="")[:400]
            told.append(f"{visible(skill.name)}: left out, because it is no part of a skill: {visible(what)}")
    progress("checking skills", len(entries), len(entries))
    skills = _without_copies(skills, told)
    _check_against_manifest(skills, obtained, is_whole=not only and not obtained.source.path)
    return skills


def _find_entries(obtained: Obtained, outside: str | None, told: list[str]) -> list[Entry]:
    source = obtained.source
    shown = shown_name(source.text)
    narrowed = None if source.kind == "git" else source.path  # git has read only this folder
    try:
        folder = inside(obtained.folder, narrowed or "")
    except PathEscape as error:
        raise PackUnsafe(error.message, code="pack-unsafe-path", hint="Name a folder within the source.") from error
    found = scan(Root("explicit", folder))
    problems = [f"{visible(_below(finding.path, obtained))}: {finding.message}" for finding in found.findings]
    if not found.entries:
        hint = problems[0] if problems else "A skill is a folder with a SKILL.md. Check the source."
        raise PackError(f"{shown} has no SKILL.md.", code="pack-no-skill", hint=hint)
    told += problems
    if outside is None or obtained.is_ours:
        return list(found.entries)
    target = os.path.realpath(outside)
    entries = [entry for entry in found.entries if not is_inside(target, entry.path)]
    if not entries:
        message = f"The skills of {shown} are where they would be installed already."
        raise PackError(message, code="pack-no-skill", hint="To let models use them: prowess trust")
    return entries


def _choose(entries: Sequence[Entry], only: Sequence[str], obtained: Obtained) -> list[Entry]:
    names = sorted({name_of(entry) for entry in entries})
    for wanted in only:
        if wanted not in names:
            near = near_names(wanted, names, limit=3)
            some = visible(name_some(near or names, 5, quote="")[:400])
            hint = f"Did you mean {some}?" if near else f"It has: {some}."
            message = f"{shown_name(obtained.source.text)} has no skill {shown_name(wanted)}."
            raise PackError(message, code="pack-skill-unknown", hint=hint)
    return [entry for entry in entries if name_of(entry) in only]


def name_of(entry: Entry) -> str:
    """Returns the name that a skill gets when it is installed: the declared name if it is valid, else its folder's."""
    if entry.declared and all(note.code == "name-not-portable" for note in name_notes(entry.declared)):
        return entry.declared
    return entry.name


def _read(entry: Entry, obtained: Obtained) -> PackedSkill:
    name = name_of(entry)
    path = _below(entry.path, obtained)
    if entry.linked and not is_inside(obtained.folder, os.path.realpath(entry.linked)):
        why = "is a link to a skill outside the source"
        raise unsafe_name("link", path, why, "Name that folder itself as the source.")
    tree = list_files(entry.real_path, hashes=obtained.hashes)
    _check_tree(tree, entry, path, obtained)
    if not obtained.is_ours:  # else they were checked when they were written
        check_portable_names(f"{name}/{file.path}" for file in tree.files)
    digest = digest_of(tree.files)
    return PackedSkill(
        name=name,
        folder=entry.real_path,
        path=path,
        version=entry.version,
        digest=digest,
        files=tuple(tree.files),
        examine=cache(partial(_examine, entry, obtained, digest)),
        left_out=tuple(sorted(tree.left_out)),
    )


def _examine(entry: Entry, obtained: Obtained, digest: str) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Returns the capabilities of a skill, and its findings with those of the security scan."""
    skill = load_entry(entry)
    if skill.digest != digest:
        raise _changed(entry, obtained)
    # The tools are those of the content that was hashed: the catalog's may be older.
    head = parse_head(read_resource(skill, entry.file), entry.name)
    skill = skill._replace(entry=entry._replace(controls=head.controls))
    # Its folder gets the declared name when it is installed.
    notes = [note for note in head.notes if note.code != "name-mismatch" or name_of(entry) != entry.declared]
    findings = [entry.finding_of(note, graded(note.code, "security")) for note in notes]
    findings += check_loaded(skill, "security")
    told = tuple(finding._replace(path=_below(finding.path, obtained)) for finding in findings)
    return find_capabilities(skill), told


def _check_tree(tree: SkillTree, entry: Entry, path: str, obtained: Obtained) -> None:
    """Refuses an invalid skill, and what would be missing from the installed one."""
    prefix = f"{path}/" if path else ""
    unsafe = [f"{prefix}{name}" for name in sorted(tree.unsafe)]
    unsafe += [link for link in obtained.left_out if link.startswith(prefix)]
    if unsafe:
        why = "is a link or a special file, and would be missing from the installed skill"
        raise unsafe_name("link", unsafe[0], why, "Put a plain file in its place.")
    git = find_git_folder(file.path for file in tree.files)
    if git:
        why = "is part of a git repository, and git would run programs that its configuration names"
        raise unsafe_name("git", f"{prefix}{git}", why, "Leave the repository out, or pack it as an archive.")
    name = os.path.basename(entry.path)
    is_hidden = any(note.details.get("where") == "name" for note in entry.notes)  # of invisible-characters
    if is_hidden or find_invisible(name):
        message = f"The name of the skill {shown_name(path or name)} has invisible characters."
        hint = f"Nobody sees that it is not '{name_of(entry)}'. Ask its author to delete them."
        raise PackUnsafe(message, code="name-unsafe", hint=hint)
    for note in (*entry.notes, *tree.notes):
        if note.code in FATAL or note.code in TOO_LARGE:
            why = entry.finding_of(note)
            message = f"The skill {shown_name(path or '.')} cannot be used: {why.message}"
            raise PackError(message, code="pack-skill-invalid", hint=why.hint or "Ask its author to repair it.")
    if all(file.path != entry.file for file in tree.files):
        raise _changed(entry, obtained)


def _changed(entry: Entry, obtained: Obtained) -> PackMismatch:
    message = f"{shown_name(_below(entry.path, obtained) or '.')} changed while it was being read."
    return PackMismatch(message, code="source-changed", hint="Install it again when nothing writes to it.")


def _without_copies(skills: Iterable[PackedSkill], told: list[str]) -> list[PackedSkill]:
    """Keeps one of equal copies: many repositories have a skill once for each agent."""
    kept: dict[str, PackedSkill] = {}
    for skill in skills:
        first = kept.setdefault(skill.name.casefold(), skill)
        if first.digest != skill.digest:
            both = f"{shown_name(first.path)} and {shown_name(skill.path)}"
            message = f"Two skills have the name '{visible(skill.name)}': {both}."
            hint = "Choose one by its folder: DIR/FOLDER, or SOURCE#FOLDER of a repository."
            raise PackError(message, code="pack-duplicate-skill", hint=hint)
        if first is not skill:
            told.append(f"{visible(skill.path)}: the same as {visible(first.path)}, which is used.")
    return sorted(kept.values(), key=lambda skill: skill.name)


def _check_against_manifest(skills: Iterable[PackedSkill], obtained: Obtained, *, is_whole: bool) -> None:
    manifest = read_manifest(obtained.folder)
    if manifest is None:
        return
    found = {skill.path: skill.files for skill in skills}
    for folder in sorted(found.keys() | manifest.keys() if is_whole else found.keys()):
        for kind, path in file_differences(manifest.get(folder, ()), found.get(folder, ())):
            message = f"{shown_name(f'{folder}/{path}')} is not as the manifest says: {kind}."
            hint = "Get the pack again: somebody changed it after packing."
            raise PackMismatch(message, code="manifest-mismatch", hint=hint)


def _below(path: str, obtained: Obtained) -> str:
    """Returns a path below the source, with forward slashes; "" for the source itself."""
    return path.removeprefix(obtained.folder).strip(os.sep).replace(os.sep, "/")
