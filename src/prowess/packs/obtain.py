"""Brings a source to disk, as one folder that is searched for skills. Nothing of it is run or imported."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from prowess._internal.archive import write_members
from prowess._internal.fetch import fetch
from prowess._internal.files import open_regular, read_chunks
from prowess._internal.paths import inside
from prowess._internal.tar import Member
from prowess._internal.unpack import name_from_url, unpack
from prowess._internal.urls import shown_url
from prowess.core.findings import visible
from prowess.errors import FetchError, PackError, PackMismatch, PathEscape
from prowess.packs.git import obtain_commit
from prowess.packs.site import obtain_site
from prowess.packs.values import Obtained, PackSource, Progress, no_progress
from prowess.skills.scanner import SKIPPED

ENTRY_POINTS = "prowess.skills"  # group of a Python distribution; the value is `package.folder` or `package:folder`
_MODULE = re.compile(r"[A-Za-z_]\w{0,99}(?:\.[A-Za-z_]\w{0,99}){0,9}")
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
    """Returns the source on disk, in place or below `into`, a new folder that the caller removes.

    `commit` and `sha256` are pins of a lock; PackMismatch if the content is another. `skills` are the wanted ones, for
    sources that give skills one by one.
    """
    shown = visible(source.text[:200])
    if source.kind in ("folder", "archive") and not os.path.exists(source.location):
        message = f"There is no {source.kind} {shown}."
        raise PackError(message, code="source-missing", hint="Check the path.")
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
        raise PackMismatch(error.message, code="digest-mismatch", hint=error.hint) from error
    except OSError as error:
        message = f"Cannot obtain {shown}: {visible(error.strerror or str(error))[:200]}."
        hint = f"Check that it can be read, that {visible(into[:200])} can be written to, and that the disk has room."
        raise PackError(message, code="pack-io", hint=hint) from error


def _file(source: PackSource, into: str, locked: str | None, progress: Progress) -> Obtained:
    """Unpacks an archive, or the file behind an address."""
    file, shown = source.location, shown_url(source.location)
    with tempfile.TemporaryDirectory(dir=into, prefix=".download-") as work:
        if source.kind == "url":
            file, pin = os.path.join(work, "file"), locked or source.sha256
            what = f"Downloading {visible(shown[:200])}"
            fetch(source.location, file, sha256=pin, report=lambda done, total: progress(what, done, total))
        with os.fdopen(open_regular(file, follow=True), "rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        for pin in (source.sha256, locked):
            if pin not in (None, found):
                message = f"{visible(source.text[:200])} has sha256 {found}, but {pin} is pinned."
                hint = "Its content has changed. Read it, and change the pin if you accept the new content."
                raise PackMismatch(message, code="digest-mismatch", hint=hint)
        folder = os.path.join(into, name_from_url(source.location))
        unpack(file, folder, report=lambda count: progress("Unpacking", count, None))
    notes = () if source.kind == "archive" or shown == source.location else (_NOT_LOCKED,)
    return Obtained(source=source, folder=folder, is_ours=True, sha256=found, notes=notes)


def _package(source: PackSource, into: str, environ: Mapping[str, str]) -> Obtained:
    """Copies the folders that a distribution declares. The package is found by its files and never imported."""
    import importlib.metadata

    name, venv = visible(source.location), environ.get("VIRTUAL_ENV") or sys.prefix  # not that of Prowess, perhaps
    paths = [*sys.path, *glob.glob(os.path.join(glob.escape(venv), "lib", "python*", "site-packages"))]
    here = os.path.realpath("")  # `python -m` has it in sys.path, and a clone could have a package there
    paths = [path for path in paths if os.path.realpath(path) != here]
    found = next(iter(importlib.metadata.distributions(name=source.location, path=paths)), None)
    if found is None:
        message = f"The Python package '{name}' is not installed here."
        raise PackError(message, code="package-missing", hint=f"Run: pip install {name}")
    try:
        entries, version = found.entry_points.select(group=ENTRY_POINTS), found.version
    except (ValueError, TypeError, KeyError):  # not UTF-8, a line without '=', or no version
        message = f"The metadata of the Python package '{name}' cannot be read."
        raise PackError(message, code="package-unreadable", hint="Tell the author of the package.") from None
    if not entries:
        hint = f"Its author adds an entry point to the group '{ENTRY_POINTS}', with the folder of the skills."
        raise PackError(f"The Python package '{name}' declares no skills.", code="package-no-skills", hint=hint)
    bases = [str(found.locate_file("")), *paths]
    folders = ((entry.name, _entry_folder(entry.name, entry.value, bases)) for entry in entries)
    folder = os.path.join(into, source.location)
    write_members((member for name, top in folders for member in _members(name, top)), folder)
    return Obtained(source=source, folder=folder, is_ours=True, version=version)


def _entry_folder(name: str, value: str, bases: list[str]) -> str:
    """Returns the folder that an entry point names. No link may lead out of the package."""
    module, _, below = value.partition(":")
    if _MODULE.fullmatch(module) and _ENTRY_NAME.fullmatch(name):
        first, *rest = module.split(".")
        for base in bases:
            package = os.path.join(base, first)
            with contextlib.suppress(PathEscape):
                if not os.path.islink(package) and os.path.isdir(
                    folder := inside(package, os.path.join("", *rest, below))
                ):
                    return folder
    message = f"The entry point {name[:80]!a} = {value[:80]!a} names no folder of the package."
    raise PackError(message, code="package-entry-invalid", hint="Tell the author of the package.")


def _members(name: str, top: str) -> Iterator[Member]:
    """Yields the files of a folder. A link becomes a member too, and is refused there."""
    for parent, folders, files in os.walk(top):
        folders[:] = sorted(set(folders) - SKIPPED)
        for each in (*folders, *sorted(files)):
            path = os.path.join(parent, each)
            shown = os.path.join(name, os.path.relpath(path, top))
            if os.path.islink(path):
                yield Member(shown, "link", False, iter(()))
            elif each not in folders:
                yield Member(shown, "file", bool(os.lstat(path).st_mode & 0o111), read_chunks(path))
