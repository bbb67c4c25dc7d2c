"""Brings a source to disk, as one folder that is searched for skills. Nothing of it is run or imported."""

from __future__ import annotations

import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prowess._internal.archive import DEFAULT_LIMITS, ArchiveLimits, write_members
from prowess._internal.fetch import fetch
from prowess._internal.files import hash_regular, read_chunks
from prowess._internal.python_packages import find_distribution, find_package_folder, folder_members
from prowess._internal.tar import Member
from prowess._internal.unpack import name_from_url, unpack
from prowess._internal.urls import shown_url
from prowess.core.findings import visible
from prowess.errors import FetchError, PackError, PackMismatch, PackUnsafe
from prowess.packs.git import obtain_commit
from prowess.packs.values import Obtained, PackSource, Progress, no_progress
from prowess.runtime.services.site_index import SiteSkill, read_index
from prowess.skills.scanner import SKIPPED

ENTRY_POINTS = "prowess.skills"  # group of a Python distribution; the value is `package.folder` or `package:folder`
_NOT_LOCKED = "The lock has its address without password and query: give the whole address again to update it."
_ENTRY_NAME = re.compile(r"\w[\w.-]{0,63}")


def obtain(
    source: PackSource,
    into: str,
    *,
    commit: str | None = None,
    sha256: str | None = None,
    skills: Sequence[str] = (),
    progress: Progress = no_progress,
    environ: Mapping[str, str],
) -> Obtained:
    """Returns the source on disk, in place or below `into`, a new folder that the caller removes. `commit` and `sha256`
    are pins of a lock; PackMismatch if the content is another. `skills` are those that are wanted of a site."""
    shown = visible(source.text[:200])
    if source.kind in ("folder", "archive") and not os.path.exists(source.location):
        message = f"There is no {source.kind} {shown}."
        hint = "Check the path."
        if re.search("[@#]", source.text):
            hint += " With @ref or #path it is a git repository."
        raise PackError(message, code="source-missing", hint=hint)
    try:
        os.makedirs(into, exist_ok=True)
        match source.kind:
            case "folder":
                return Obtained(source=source, folder=source.location, is_ours=False)
            case "archive" | "url":
                return _file(source, into, sha256, progress)
            case "git":
                return obtain_commit(source, into, commit=commit, progress=progress, environ=environ)
            case "site":
                return obtain_site(source, into, skills=skills, progress=progress)
            case "package":
                return _package(source, into, environ)
    except FetchError as error:
        if error.code != "fetch-mismatch":
            raise
        hint = "Its index and this file disagree: tell the owner of the site." if source.kind == "site" else error.hint
        raise PackMismatch(error.message, code="digest-mismatch", hint=hint) from error
    except OSError as error:
        message = f"Cannot obtain {shown}: {visible(error.strerror or str(error))[:200]}."
        hint = "Check that it can be read, that the folder of skills can be written to, and that the disk has room."
        raise PackError(message, code="pack-io", hint=hint) from error


def _file(source: PackSource, into: str, locked: str | None, progress: Progress) -> Obtained:
    """Unpacks an archive, or the file behind an address."""
    file = source.location
    shown = visible(source.text[:200])
    notes: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(dir=into, prefix=".download-") as work:
        if source.kind == "url":
            file = os.path.join(work, "file")
            address = shown_url(source.location)
            notes = () if address == source.location else (_NOT_LOCKED,)
            what = f"Downloading {visible(address[:200])}"
            pin = locked or source.sha256
            fetch(source.location, file, sha256=pin, report=lambda done, total: progress(what, done, total))
        found = hash_regular(file)
        for pin in (source.sha256, locked):
            if pin not in (None, found):
                message = f"{shown} has sha256 {found}, but {pin} is pinned."
                hint = "Its content has changed. Read it, and change the pin if you accept the new content."
                raise PackMismatch(message, code="digest-mismatch", hint=hint)
        folder = os.path.join(os.path.realpath(into), name_from_url(source.location))
        written = unpack(file, folder, shown=shown, report=lambda count: progress("Unpacking", count, None))
    hashes = {os.path.join(folder, path): digest for path, digest in written.items()}
    return Obtained(source=source, folder=folder, is_ours=True, sha256=found, notes=notes, hashes=hashes)


def _package(source: PackSource, into: str, environ: Mapping[str, str]) -> Obtained:
    """Copies the folders that a distribution declares. The package is found by its files and never imported."""
    name = visible(source.location)
    found = find_distribution(source.location, environ)
    if found is None:
        message = f"The Python package '{name}' is not installed here."
        hint = "Check the spelling. If you trust this package, install it in this environment, then try again."
        raise PackError(message, code="package-missing", hint=hint)
    distribution, bases = found
    try:
        entries = distribution.entry_points.select(group=ENTRY_POINTS)
        version = distribution.version
    except (ValueError, TypeError, KeyError):  # not UTF-8, a line without '=', or no version
        message = f"The metadata of the Python package '{name}' cannot be read."
        raise PackError(message, code="package-unreadable", hint="Tell the author of the package.") from None
    if not entries:
        hint = f"Its author adds an entry point to the group '{ENTRY_POINTS}', with the folder of the skills."
        raise PackError(f"The Python package '{name}' declares no skills.", code="package-no-skills", hint=hint)
    folder = os.path.join(into, source.location)
    write_members(_find_members([(entry.name, entry.value) for entry in entries], bases), folder)
    return Obtained(source=source, folder=folder, is_ours=True, version=version)


def _find_members(declared: Iterable[tuple[str, str]], bases: Sequence[str]) -> Iterator[Member]:
    """Yields the files of the folders that entry points name."""
    for name, value in declared:
        folder = find_package_folder(value, bases) if _ENTRY_NAME.fullmatch(name) else None
        if folder is None:
            message = f"The entry point {name[:80]!a} = {value[:80]!a} names no folder of the package."
            raise PackError(message, code="package-entry-invalid", hint="Tell the author of the package.")
        yield from folder_members(name, folder, SKIPPED)


def obtain_site(
    source: PackSource,
    into: str,
    *,
    skills: Sequence[str] = (),
    progress: Progress = no_progress,
    limits: ArchiveLimits = DEFAULT_LIMITS,
) -> Obtained:
    """Downloads the skills of these names, or all, each into `into/NAME`."""
    notes: list[str] = []
    shown = visible(source.text[:200])
    known = {skill.name: skill for skill in read_index(source.location, notes=notes)}
    if unknown := [name for name in skills if name not in known]:
        message = f"{shown} publishes no skill '{visible(unknown[0][:64])}'."
        raise PackError(message, code="site-skill-unknown", hint=f"It has: {', '.join(known)[:300]}.")
    wanted = dict.fromkeys(skills or known)
    total_files = total_bytes = 0
    for number, name in enumerate(wanted):
        progress("Downloading skills", number, len(wanted))
        for file in _download_skill(known[name], into, limits):
            total_files += 1
            total_bytes += os.path.getsize(os.path.join(into, name, file))
        if total_files > limits.max_entries or total_bytes > limits.max_total_bytes:
            message = f"The skills of {shown} together are too large."
            raise PackUnsafe(message, code="pack-too-large", hint="Install them one by one with --skill NAME.")
    progress("Downloading skills", len(wanted), len(wanted))
    return Obtained(source=source, folder=into, is_ours=True, notes=tuple(notes))


def _download_skill(skill: SiteSkill, into: str, limits: ArchiveLimits) -> dict[str, str]:
    folder = os.path.join(into, skill.name)
    with tempfile.TemporaryDirectory(dir=into, prefix=".download-") as work:
        file = os.path.join(work, "file")
        if skill.files:
            members = (Member(path, "file", False, _content(skill, path, file)) for path in skill.files)
            return write_members(members, folder, limits=limits)
        fetch(skill.url, file, sha256=skill.digest, linked_from=skill.index)
        return unpack(file, folder, shown=visible(shown_url(skill.url)[:200]))


def _content(skill: SiteSkill, path: str, file: str) -> Iterator[bytes]:
    """Downloads a file when its first chunk is read, which is after its path was checked."""
    fetch(skill.url + urllib.parse.quote(path), file, linked_from=skill.index)
    yield from read_chunks(file)
