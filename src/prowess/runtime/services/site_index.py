"""Index of a site that publishes skills.

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
from dataclasses import dataclass
from typing import Any

from prowess._internal.fetch import Fetched, FetchLimits, fetch
from prowess._internal.files import read_regular
from prowess._internal.urls import shown_url
from prowess.core.findings import visible
from prowess.errors import FetchError, PackError

INDEX_PATHS = ("/.well-known/agent-skills/index.json", "/.well-known/skills/index.json")
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_INDEX_LIMITS = FetchLimits(max_bytes=4 * 1024 * 1024)
_MAX_SKILL_FILES = 1000  # of one skill of the older form: each is a request
_NAME = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d)$)\w[\w-]{0,63}", re.IGNORECASE)  # no device on Windows
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSkill:
    """Skill that a site publishes."""

    name: str
    url: str  # absolute, of an archive or a SKILL.md; of the older form: the folder, with a slash at the end
    index: Fetched  # the index that names it
    digest: str | None = None  # sha256 in hexadecimal; the older form has none
    files: tuple[str, ...] = ()  # of the older form


def read_index(url: str, *, notes: list[str] | None = None) -> list[SiteSkill]:
    """Returns the skills of a site, given by its address or by that of its index. `notes` gets what is left out."""
    addresses = [url]
    if not url.endswith(INDEX_PATHS):
        site = url.rstrip("/")
        addresses = [site + path for path in INDEX_PATHS]
    if notes is None:
        notes = []
    with tempfile.TemporaryDirectory(prefix="prowess-index-") as work:
        file = os.path.join(work, "index.json")
        for address in addresses:
            try:
                got = fetch(address, file, limits=_INDEX_LIMITS)
                data = read_regular(file, _INDEX_LIMITS.max_bytes)
                return _parse_index(data, got, notes)
            except FetchError as error:
                if error.code != "fetch-status" or error.retryable:
                    raise
            except (ValueError, RecursionError):
                raise _error(address, "its index cannot be read") from None
    raise _error(url, "it has no index of skills", code="site-no-index")


def _parse_index(data: bytes, got: Fetched, notes: list[str]) -> list[SiteSkill]:
    index = json.loads(data)
    url = got.url
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
        kind = entry.get("type")
        if schema is None:
            skill = _listed(name, entry.get("files"), got)
        elif kind in ("skill-md", "archive"):
            skill = _artifact(name, entry, got)
        else:
            notes.append(f"{name}: left out, its type {kind!a:.80} is not known.")
            continue
        found[name.lower()] = skill
    return list(found.values())


def _artifact(name: str, entry: dict[str, Any], index: Fetched) -> SiteSkill:
    """Returns a skill of version 0.2, which is one file. ValueError if its address cannot be read."""
    url = entry.get("url")
    digest = _DIGEST.fullmatch(str(entry.get("digest")))
    if not isinstance(url, str) or digest is None:
        raise _error(index.url, f"{name!a} has no url or no sha256 digest")
    file = urllib.parse.urljoin(index.url, url)
    sha256 = digest[1].lower()
    return SiteSkill(name=name, url=file, index=index, digest=sha256)


def _listed(name: str, files: Any, index: Fetched) -> SiteSkill:
    """Returns a skill of version 0.1, which is a list of files."""
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise _error(index.url, f"{name!a} has no list of files")
    lowered = [file.lower() for file in files]
    if len(files) > _MAX_SKILL_FILES or "skill.md" not in lowered:
        raise _error(index.url, f"{name!a} has no SKILL.md, or more than {_MAX_SKILL_FILES} files")
    quoted = urllib.parse.quote(name)
    folder = urllib.parse.urljoin(index.url, f"{quoted}/")
    return SiteSkill(name=name, url=folder, index=index, files=tuple(files))


def _error(url: str, why: str, *, code: str = "site-index-invalid") -> PackError:
    """Makes the error about a site or its index."""
    shown = visible(shown_url(url)[:200])
    message = f"The site {shown} cannot be used: {why}."
    hint = "Ask the owner of the site, or install from another source."
    return PackError(message, code=code, hint=hint)
