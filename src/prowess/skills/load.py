"""Loads a skill: its whole body, the list of its files, and the digest that pins them.

A body is read whole or not at all. Docs and resources are read one at a time, on request. Every path is resolved and
must stay inside the skill. Files are read from the source folder until they are staged; a resource that changed since
the load is refused, because the digest pins the loaded content.
"""

from __future__ import annotations

import bisect
import difflib
import operator
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prowess._internal.digest import FileDigest, content_sha256, file_sha256, tree_digest
from prowess._internal.files import NotRegular, open_regular, read_regular
from prowess._internal.globs import Glob
from prowess._internal.paths import check_safe_name, inside, is_inside
from prowess.core.catalog_values import Source, Trigger
from prowess.core.findings import Note, make_finding
from prowess.errors import PathEscape, ResourceNotFound, SkillError, SkillInvalid, SkillNotFound
from prowess.skills.catalog import Catalog
from prowess.skills.head import Controls
from prowess.skills.metadata import read_fields
from prowess.skills.parse import MAX_BODY_BYTES, parse_body, parse_front
from prowess.skills.scanner import SKIPPED, scan
from prowess.skills.skill import PRIORITY, Entry, Root, Skill, SkillFile

MAX_FILES = 10_000
MAX_TREE_BYTES = 1024 * 1024 * 1024
MAX_RESOURCE_BYTES = 2 * 1024 * 1024
TOO_LARGE = ("too-many-files", "tree-too-large")  # codes of notes: the list of files is not whole
_name_of = operator.attrgetter("name")


def load(
    catalog: Catalog,
    ref: str,
    *,
    source: str | None = None,
    trigger: Trigger = "caller",
    max_body_lines: int | None = None,
) -> Skill:
    """Loads the skill that `ref` means, if the caller may use it. Raises SkillNotFound, SkillDenied or SkillInvalid."""
    entry = catalog.get(ref, source=source)
    catalog.allow(entry, trigger=trigger)
    skill = catalog.memory_skill(entry) or load_entry(entry)
    if skill.entry.controls != entry.controls:  # changed on disk since it was found
        catalog.allow(skill.entry, trigger=trigger)
    lines = skill.body.count("\n") + 1
    if max_body_lines is not None and lines > max_body_lines:
        note = Note("body-over-limit", skill.body_line, {"lines": lines, "limit": max_body_lines})
        raise _refused(entry, note)
    return skill


def load_entry(entry: Entry) -> Skill:
    """Loads a skill from disk without a permission check. Its controls are those of the content that was read."""
    directory = os.path.realpath(entry.real_path)
    data = _read_skill_md(entry, directory)
    front = parse_front(data)
    if isinstance(front, Note):  # it was valid when it was found
        raise _refused(entry, front)
    body, line, notes = parse_body(data)
    files, more, *_ = list_files(directory, known={entry.file: data})
    for note in more:
        if note.code in TOO_LARGE:
            raise _refused(entry, note)
    digests = [FileDigest(file.path, file.executable, file.sha256) for file in files]
    return Skill(
        entry=_put(entry, read_fields(front, entry.name).controls),
        fields=front.fields,
        body=body,
        body_line=line,
        digest=tree_digest(digests),
        files=tuple(files),
        notes=(*notes, *more),
        directory=directory,
    )


def _put(entry: Entry, controls: Controls) -> Entry:
    """Returns the same object if the controls did not change: a catalog knows its entries by identity."""
    return entry if entry.controls == controls else entry._replace(controls=controls)


def _read_skill_md(entry: Entry, directory: str) -> bytes:
    """Reads the whole file. Raises SkillNotFound or SkillInvalid."""
    path = os.path.join(directory, entry.file)
    try:
        if os.path.islink(path):
            path = inside(directory, entry.file)
        data = read_regular(path, MAX_BODY_BYTES)
    except FileNotFoundError:
        problem = f"The skill '{entry.name}' was removed from {entry.path}."
        hint = "Go on without it, or restore its folder."
        raise SkillNotFound(problem, code="skill-removed", hint=hint) from None
    except PathEscape:
        raise _refused(entry, Note("file-outside", None, {"what": entry.file})) from None
    except NotRegular as error:
        kind = str(error).partition(",")[0].replace("a", "A", 1)
        raise _refused(entry, Note("not-regular", None, {"kind": kind})) from None
    except OSError as error:
        raise _refused(entry, Note("unreadable", None, {"reason": _reason(error)})) from None
    if len(data) > MAX_BODY_BYTES:
        raise _refused(entry, Note("body-too-large", None, {"limit_bytes": MAX_BODY_BYTES}))
    return data


def _reason(error: OSError) -> str:
    return (error.strerror or "error").lower()


def load_published(trees: str, id: str, digest: str, entry: Entry | None) -> Skill | None:
    """Loads a skill from the tree published under its digest, with the front matter of that content. Returns None when
    that content is gone. Without a matching entry the source is gone, and the published content is not trusted."""
    name = digest.removeprefix("sha256:")
    path = os.path.join(trees, name)
    if not os.path.isdir(path):
        return None
    if entry is None or entry.id != id:
        entry = _find_published(path, id)
    if entry is None:
        return None
    published = entry._replace(root=trees, rel=os.path.basename(path), linked=None)
    try:
        skill = load_entry(published)
    except SkillError:
        return None
    if skill.digest != digest:
        return None
    return skill._replace(entry=_put(entry, skill.entry.controls))


def _find_published(path: str, id: str) -> Entry | None:
    """Returns the entry that the skill of this id had, read from its published tree."""
    said, _, qualified = id.partition(":")
    sources: dict[str, Source] = {source: source for source in PRIORITY}
    if said not in sources:
        return None
    found = scan(Root(source=sources[said], path=path, trusted=False)).entries
    if len(found) != 1:
        return None
    _, _, name = qualified.rpartition("/")
    entry = found[0]._replace(name=name, declared=None, rel=qualified)
    if entry.id != id:
        return None
    return entry


class SkillTree(NamedTuple):
    """Files of a skill's folder, and what is not listed among them."""

    files: list[SkillFile]
    notes: list[Note]
    unsafe: list[str]  # links and special files that a skill may not have
    left_out: list[str]  # `.git`, `__pycache__/` and the like, which are no part of any skill


def list_files(directory: str, *, known: Mapping[str, bytes] = {}, hashes: Mapping[str, str] = {}) -> SkillTree:
    """Lists every regular file of the tree with its sha256. The path of the folder has no links.

    A link to a file inside counts as that file. A link to the outside, a FIFO or a device is not part of the skill and
    is reported. `known` holds bytes that were already read, so body and digest come from the same bytes. `hashes` holds
    the sha256 of files by their paths, for files that only this process can have written.
    """
    files: list[SkillFile] = []
    tree = SkillTree(files, notes := [], unsafe := [], left_out := [])
    total = 0
    folders = [""]
    for folder in folders:  # grows while it is walked
        try:
            with os.scandir(os.path.join(directory, folder)) as listing:
                children = sorted(listing, key=_name_of)
        except OSError as error:
            notes.append(Note("unreadable", None, {"reason": f"{folder or '.'}: {_reason(error)}"}))
            continue
        for child in children:
            rel = f"{folder}/{child.name}" if folder else child.name
            if child.is_dir(follow_symlinks=False):
                if child.name in SKIPPED:
                    left_out.append(f"{rel}/")
                else:
                    folders.append(rel)
                continue
            if child.name == ".git":  # of a submodule: it leads git to another folder
                left_out.append(rel)
                continue
            if len(files) >= MAX_FILES:
                notes.append(Note("too-many-files", None, {"limit": MAX_FILES}))
                return tree
            room_bytes = MAX_TREE_BYTES - total
            file = _file_of(directory, rel, child, known.get(rel), hashes.get(child.path), notes, room_bytes)
            if file is not None:
                files.append(file)
                total += file.size_bytes
                if total > MAX_TREE_BYTES:
                    notes.append(Note("tree-too-large", None, {"limit_bytes": MAX_TREE_BYTES}))
                    return tree
            elif child.is_symlink() or not child.is_file():
                unsafe.append(rel)
    files.sort()
    return tree


def _file_of(
    directory: str,
    rel: str,
    child: os.DirEntry[str],
    data: bytes | None,
    sha256: str | None,
    notes: list[Note],
    room_bytes: int,
) -> SkillFile | None:
    path = child.path
    try:
        is_plain = child.is_file(follow_symlinks=False)
        if sha256 is not None and is_plain:
            found = child.stat(follow_symlinks=False)
            return SkillFile(rel, found.st_size, bool(found.st_mode & 0o111), sha256)
        if child.is_symlink():
            path = os.path.realpath(path, strict=True)
            if not is_inside(directory, path):
                notes.append(Note("file-outside", None, {"what": rel}))
                return None
            if os.path.isdir(path):
                return None  # its files are listed in their real place
        fd = open_regular(path, was_regular=is_plain)
        try:
            return _hashed(rel, fd, data, room_bytes)
        finally:
            os.close(fd)
    except NotRegular as error:
        kind, _, _ = str(error).partition(",")
        notes.append(Note("special-file", None, {"target": rel, "kind": kind}))
    except OSError as error:
        notes.append(Note("unreadable", None, {"reason": f"{rel}: {_reason(error)}"}))
    return None


def _hashed(rel: str, fd: int, data: bytes | None, room_bytes: int) -> SkillFile:
    """Returns a file with its sha256. A file larger than the remaining room is not hashed, to save time."""
    found = os.fstat(fd)
    size = found.st_size
    is_executable = bool(found.st_mode & 0o111)
    sha256 = ""
    if size <= room_bytes:
        sha256 = file_sha256(fd, size) if data is None else content_sha256(data)
    return SkillFile(rel, size, is_executable, sha256)


def read_resource(skill: Skill, path: str) -> bytes:
    """Reads one file of a loaded skill, exactly as it was when the skill was loaded."""
    check_safe_name(path)
    wanted = path.removeprefix("./")
    at = bisect.bisect_left(skill.files, wanted, key=lambda file: file.path)
    listed = skill.files[at] if at < len(skill.files) else None
    if listed is None or listed.path != wanted:
        raise _no_file(skill, wanted, path)
    if skill.contents is not None:
        return skill.contents[wanted]
    assert skill.directory is not None
    named = f"'{wanted}' of the skill '{skill.name}'"
    try:
        data = read_regular(inside(skill.directory, wanted), MAX_RESOURCE_BYTES)
    except OSError as error:
        problem = f"{named} cannot be read: {_reason(error)}."
        raise ResourceNotFound(problem, code="resource-unreadable", hint="Load the skill again.") from None
    if len(data) > MAX_RESOURCE_BYTES:
        problem = f"{named} has more than {MAX_RESOURCE_BYTES} bytes."
        raise ResourceNotFound(problem, code="resource-too-large", hint="Read it in parts, or with a script.")
    if content_sha256(data) != listed.sha256:
        problem = f"{named} changed since the skill was loaded."
        hint = "Load the skill again to work with the new content."
        raise ResourceNotFound(problem, code="resource-changed", hint=hint)
    return data


def _no_file(skill: Skill, wanted: str, path: str) -> ResourceNotFound:
    names = [file.path for file in skill.files]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) or names[:5]
    hint = f"It has: {', '.join(near)}"
    if len(names) > len(near):
        hint += " …"
    return ResourceNotFound(f"The skill '{skill.name}' has no file '{path[:200]}'.", hint=hint)


def select_docs(skill: Skill, patterns: Iterable[str]) -> list[str]:
    """Returns the docs that the patterns match. A pattern without a match raises an error that lists the docs."""
    chosen: list[str] = []
    for pattern in patterns:
        glob = Glob(pattern, sets=True, folders=False)
        found = [doc for doc in skill.docs if glob.fullmatch(doc)]
        if not found:
            problem = f"The skill '{skill.name}' has no doc '{pattern[:200]}'."
            real = ", ".join(skill.docs) or "none"
            raise ResourceNotFound(problem, code="doc-not-found", hint=f"Its docs: {real}")
        chosen += [doc for doc in found if doc not in chosen]
    return chosen


def _refused(entry: Entry, note: Note) -> SkillInvalid:
    finding = make_finding(note, entry.location)
    problem = f"The skill '{entry.name}' cannot be loaded: {finding.message}"
    hint = f"{finding.hint} File: {entry.location}"
    return SkillInvalid(problem, findings=[finding], code=finding.code, hint=hint)
