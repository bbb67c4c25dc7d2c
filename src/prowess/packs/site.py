"""Downloads the wanted skills of a site that publishes an index."""

from __future__ import annotations

import os
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence

from prowess._internal.archive import DEFAULT_LIMITS, ArchiveLimits, write_members
from prowess._internal.fetch import fetch
from prowess._internal.files import read_chunks
from prowess._internal.tar import Member
from prowess._internal.unpack import unpack
from prowess._internal.urls import shown_url
from prowess.core.findings import visible
from prowess.errors import PackError, PackUnsafe
from prowess.packs.values import Obtained, PackSource, Progress, no_progress
from prowess.runtime.services.site_index import SiteSkill, read_index


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
        hint = f"It has: {', '.join(known)[:300]}."
        raise PackError(message, code="site-skill-unknown", hint=hint)
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
