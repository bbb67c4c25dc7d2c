"""Reads the index of a site that publishes skills, and downloads the wanted ones.

A site has `/.well-known/agent-skills/index.json` (0.2: one file per skill, with its digest) or the older
`/.well-known/skills/index.json` (0.1: a list of files per skill, without digests). Nobody but the site wrote the
addresses in an index, so they may not lead further inside than the index itself.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prowess._internal.archive import DEFAULT_LIMITS, ArchiveLimits, write_members
from prowess._internal.fetch import FetchLimits, fetch
from prowess._internal.files import read_chunks, read_regular
from prowess._internal.tar import Member
from prowess._internal.unpack import unpack
from prowess._internal.urls import shown_url
from prowess.core.findings import visible
from prowess.errors import FetchError, PackError, PackUnsafe
from prowess.packs.source import INDEX_PATHS
from prowess.packs.values import Obtained, PackSource, Progress, no_progress

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_INDEX_LIMITS = FetchLimits(max_bytes=4 * 1024 * 1024)
_MAX_SKILL_FILES = 1000  # of one skill of the older form: each is a request
_NAME = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d)$)\w[\w-]{0,63}", re.IGNORECASE)  # no device on Windows
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSkill:
    """Skill that a site publishes."""

    name: str
    type: Literal["skill-md", "archive", "files"]
    description: str
    url: str  # absolute; of type `files`: the folder, with a slash at the end
    index: str  # address of the index that names it
    digest: str | None = None  # sha256 in hexadecimal; the older form has none
    files: tuple[str, ...] = ()


def read_index(url: str, *, notes: list[str] | None = None) -> list[SiteSkill]:
    """Returns the skills of a site, given by its address or by that of its index. `notes` gets what is left out."""
    addresses = [url] if url.endswith(INDEX_PATHS) else [url.rstrip("/") + path for path in INDEX_PATHS]
    with tempfile.TemporaryDirectory(prefix="prowess-index-") as work:
        file = os.path.join(work, "index.json")
        for address in addresses:
            try:
                got = fetch(address, file, limits=_INDEX_LIMITS)
                data = read_regular(file, _INDEX_LIMITS.max_bytes)
                return _parse_index(data, got.url, [] if notes is None else notes)
            except FetchError as error:
                if error.code != "fetch-status" or error.retryable:
                    raise
            except (ValueError, RecursionError):
                raise _error(address, "its index cannot be read") from None
    raise _error(url, "it has no index of skills", code="site-no-index")


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


def _download_skill(skill: SiteSkill, into: str, limits: ArchiveLimits) -> list[str]:
    folder = os.path.join(into, skill.name)
    with tempfile.TemporaryDirectory(dir=into, prefix=".download-") as work:
        file = os.path.join(work, "file")
        if skill.type == "files":
            members = (Member(path, "file", False, _content(skill, path, file)) for path in skill.files)
            return write_members(members, folder, limits=limits)
        fetch(skill.url, file, sha256=skill.digest, linked_from=skill.index)
        return unpack(file, folder)


def _content(skill: SiteSkill, path: str, file: str) -> Iterator[bytes]:
    """Downloads a file when its first chunk is read, which is after its path was checked."""
    fetch(skill.url + urllib.parse.quote(path), file, linked_from=skill.index)
    yield from read_chunks(file)


def _parse_index(data: bytes, url: str, notes: list[str]) -> list[SiteSkill]:
    index = json.loads(data)
    if not isinstance(index, dict) or not isinstance(index.get("skills"), list):
        raise _error(url, "it has no list 'skills'")
    schema = index.get("$schema")
    if schema not in (None, SCHEMA):
        raise _error(url, f"its schema is not known: {schema!a:.80}", code="site-schema-unknown")
    found: dict[str, SiteSkill] = {}
    for entry in index["skills"]:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name.lower() in found:
            raise _error(url, f"it has an entry without a name, or {name!a:.80} twice")
        if not _NAME.fullmatch(name):
            raise _error(url, f"the skill {name!a:.80} has no safe folder name", code="site-name-unsafe")
        about = str(entry.get("description", ""))[:1024]
        if schema is None:
            found[name.lower()] = _listed(name, about, entry.get("files"), url)
        elif entry.get("type") in ("skill-md", "archive"):
            found[name.lower()] = _artifact(name, about, entry, url)
        else:
            notes.append(f"{name}: left out, its type {entry.get('type')!a:.80} is not known.")
    return list(found.values())


def _artifact(name: str, about: str, entry: dict[str, Any], url: str) -> SiteSkill:
    """Returns a skill of version 0.2, which is one file. ValueError if its address cannot be read."""
    digest = _DIGEST.fullmatch(str(entry.get("digest")))
    if not isinstance(entry.get("url"), str) or digest is None:
        raise _error(url, f"{name!a} has no url or no sha256 digest")
    file, sha256 = urllib.parse.urljoin(url, entry["url"]), digest[1].lower()
    return SiteSkill(name=name, type=entry["type"], description=about, url=file, index=url, digest=sha256)


def _listed(name: str, about: str, files: Any, url: str) -> SiteSkill:
    """Returns a skill of version 0.1, which is a list of files."""
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise _error(url, f"{name!a} has no list of files")
    if len(files) > _MAX_SKILL_FILES or "skill.md" not in map(str.lower, files):
        raise _error(url, f"{name!a} has no SKILL.md, or more than {_MAX_SKILL_FILES} files")
    folder = urllib.parse.urljoin(url, f"{urllib.parse.quote(name)}/")
    return SiteSkill(name=name, type="files", description=about, url=folder, index=url, files=tuple(files))


def _error(url: str, why: str, *, code: str = "site-index-invalid") -> PackError:
    message = f"The site {visible(shown_url(url)[:200])} cannot be used: {why}."
    return PackError(message, code=code, hint="Ask the owner of the site, or install from another source.")
