"""Stores the trust that a person gave to folders, config files, URLs and installed skills.

A folder is trusted with everything below it, a config file by its content, a URL or an installed skill by its digest.
The store is `<state_dir>/trust.json`. An unreadable store trusts nothing, and is moved aside before a new one is
written. A revocation holds from the next check on; new trust holds for runs that start later. A linked git worktree is
trusted like its repository, when each of them points to the other.

A file that nobody trusts may only make settings stricter. So every setting it may change has one direction. A value in
the other direction is left out, and so is a setting without a direction.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from prowess._internal.digest import content_sha256
from prowess._internal.files import UserFile, file_signature, now, read_regular
from prowess._internal.paths import is_inside
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError, StoreError
from prowess.policy.worktrees import file_key, places_in_main_worktree

SCHEMA = "prowess.trust/1"
TRUSTED_BY_CONTENT = (".agent/config.toml", ".agent/config.json", ".agent/policy.toml")

_FILE_LIMIT_BYTES = 1 << 20  # larger config or policy files are refused
_MOST_BEFORE = 6  # accepted contents of an installed skill that are remembered, for a rollback


class TrustedFolder(NamedTuple):
    path: str
    at: str


class TrustedFile(NamedTuple):
    path: str
    sha256: str
    at: str


class TrustedUrl(NamedTuple):
    url: str
    digest: str
    at: str


class TrustedSkill(NamedTuple):
    """Installed skill that a person accepted, in exactly this content."""

    path: str
    digest: str
    at: str


class MadeProject(NamedTuple):
    """Folder whose `.agent` the person made with `prowess init`. It is not trusted by that."""

    path: str
    at: str


class Trust(NamedTuple):
    """Trust at the time the store was read. Paths are resolved before they are compared."""

    folders: tuple[TrustedFolder, ...] = ()
    files: tuple[TrustedFile, ...] = ()
    urls: tuple[TrustedUrl, ...] = ()
    skills: tuple[TrustedSkill, ...] = ()
    findings: tuple[Finding, ...] = ()
    made: tuple[MadeProject, ...] = ()

    def trusts_folder(self, path: str) -> bool:
        """True when the folder, a folder above it, or its counterpart in the repository of a worktree is trusted."""
        if not self.folders:
            return False
        real = os.path.realpath(path)
        return self._covers(real) or any(map(self._covers, places_in_main_worktree(real)))

    def has_made(self, project: str) -> bool:
        """True when the person made this folder a project."""
        return any(record.path == project for record in self.made)

    def accepts_file(self, path: str, sha256: str) -> bool:
        """True when a person gave trust to exactly this content."""
        accepted = {record.path for record in self.files if record.sha256 == sha256}
        if not accepted:
            return False
        real = file_key(path)
        return real in accepted or not accepted.isdisjoint(places_in_main_worktree(real))

    def accepts_url(self, url: str, digest: str) -> bool:
        wanted = (without_userinfo(url), digest)
        return any((record.url, record.digest) == wanted for record in self.urls)

    @property
    def accepted_skills(self) -> dict[str, str]:
        """Digest by folder of each installed skill that a person accepted: the newest record of a folder counts."""
        return {record.path: record.digest for record in self.skills}

    def accepted_once(self, path: str, digest: str) -> bool:
        """True when a person accepted this content before, now or earlier. For a return to that content."""
        wanted = (os.path.realpath(path), digest)
        return any((record.path, record.digest) == wanted for record in self.skills)

    def _covers(self, real: str) -> bool:
        return any(is_inside(folder.path, real) for folder in self.folders)


_KINDS: dict[str, Any] = {
    "folders": TrustedFolder,
    "files": TrustedFile,
    "urls": TrustedUrl,
    "skills": TrustedSkill,
    "made": MadeProject,
}


def load_trust(state_dir: str) -> Trust:
    """Loads the current trust. A missing store trusts nothing. A broken store trusts nothing and adds a finding."""
    store = _store(state_dir)
    try:
        return _parse(store.read())
    except FileNotFoundError:
        return Trust()
    except (OSError, ValueError, RecursionError) as error:
        why = str(error) or type(error).__name__
        finding = _corrupt(store.path, why)
        return Trust(findings=(finding,))


class TrustFile:
    """Current trust: read again when the file changes, else the same object."""

    def __init__(self, state_dir: str) -> None:
        self.path: str = _store(state_dir).path
        self._state_dir = state_dir
        self._seen: object = None
        self._trust = Trust()

    def current(self) -> Trust:
        seen = file_signature(self.path)
        if seen != self._seen:
            self._trust = load_trust(self._state_dir)
            self._seen = seen
        return self._trust


def still_trusted(before: Trust, now: Trust) -> Trust:
    """Returns what was trusted before and still is; `before` itself when nothing was revoked."""
    folders = [folder for folder in before.folders if now.trusts_folder(folder.path)]
    for folder in now.folders:  # trust that was made narrower
        if folder not in before.folders and before.trusts_folder(folder.path):
            folders.append(folder)
    files = [file for file in before.files if now.accepts_file(file.path, file.sha256)]
    urls = [url for url in before.urls if now.accepts_url(url.url, url.digest)]
    skills = _skills_still_trusted(before, now)
    kept_folders = {*before.folders} <= {*folders}
    kept_records = len(files) == len(before.files) and len(urls) == len(before.urls)
    if kept_folders and kept_records and len(skills) == len(before.skills):
        return before
    return Trust(tuple(folders), tuple(files), tuple(urls), tuple(skills), now.findings, now.made)


def _skills_still_trusted(before: Trust, now: Trust) -> list[TrustedSkill]:
    """Keeps the earlier contents of each skill, and its newest one while that is still accepted."""
    newest = before.accepted_skills
    accepted = now.accepted_skills
    kept: list[TrustedSkill] = []
    for skill in before.skills:
        is_earlier = newest[skill.path] != skill.digest
        if is_earlier or accepted.get(skill.path) == skill.digest:
            kept.append(skill)
    return kept


def grant_folder(state_dir: str, path: str) -> Trust:
    """Trusts the folder and everything below it, and its current config and policy files by content."""
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise ConfigError(
            f"{path} is not a folder, so it cannot be trusted.",
            code="trust-not-a-folder",
            hint="Name an existing folder, or a URL.",
        )
    with _locked(state_dir):
        trust = _load_or_move_aside(state_dir)
        at = now()
        folders = [folder for folder in trust.folders if folder.path != real]
        folders.append(TrustedFolder(path=real, at=at))
        keys = _keys_by_content(real)
        files = [file for file in trust.files if file.path not in keys]
        for key in sorted(keys):
            sha256 = _find_sha256(key)
            if sha256:
                files.append(TrustedFile(path=key, sha256=sha256, at=at))
        trust = trust._replace(folders=tuple(folders), files=tuple(files))
        _write(state_dir, trust)
    return trust


def note_made(state_dir: str, project: str) -> None:
    """Notes that the person made this folder a project."""
    real = os.path.realpath(project)
    with _locked(state_dir):
        trust = _load_or_move_aside(state_dir)
        made = [record for record in trust.made if record.path != real]
        made.append(MadeProject(path=real, at=now()))
        _write(state_dir, trust._replace(made=tuple(made)))


def has_grant(trust: Trust, path: str) -> bool:
    """True when `grant_folder` gave trust to this folder, and its config and policy files are as they were then."""
    real = os.path.realpath(path)
    accepted = {(file.path, file.sha256) for file in trust.files}
    found = {(key, _find_sha256(key)) for key in _keys_by_content(real)}
    is_accepted = all(sha256 is None or (key, sha256) in accepted for key, sha256 in found)
    return is_accepted and any(folder.path == real for folder in trust.folders)


def _keys_by_content(folder: str) -> set[str]:
    """Returns the keys of the files in a folder that are trusted by their content."""
    return {file_key(os.path.join(folder, name)) for name in TRUSTED_BY_CONTENT}


def grant_url(state_dir: str, url: str, digest: str) -> Trust:
    """Trusts a URL while its content has this digest."""
    clean = without_userinfo(url)
    if "://" not in clean or not digest:
        raise ConfigError(
            f"{clean!r} with digest {digest!r} cannot be trusted.",
            code="trust-not-a-url",
            hint="Name a URL together with the digest of its content.",
        )
    with _locked(state_dir):
        trust = _load_or_move_aside(state_dir)
        urls = [record for record in trust.urls if (record.url, record.digest) != (clean, digest)]
        urls.append(TrustedUrl(url=clean, digest=digest, at=now()))
        trust = trust._replace(urls=tuple(urls))
        _write(state_dir, trust)
    return trust


def grant_skills(state_dir: str, digests: Mapping[str, str]) -> Trust:
    """Accepts installed skills, each in its folder and with exactly this digest; with "" it is accepted no more. A link
    in the place of a folder is not followed."""
    known = load_trust(state_dir)
    known_digests = known.accepted_skills
    resolve = cache(os.path.realpath)  # the folder above: most skills share it
    by_path: dict[str, str] = {}
    for path, digest in digests.items():
        folder, name = os.path.split(path)
        by_path[os.path.join(resolve(folder), name)] = digest
    accepted = {path: digest for path, digest in by_path.items() if digest or path in known_digests}
    if not accepted:
        return known
    with _locked(state_dir):
        trust = _load_or_move_aside(state_dir)
        at = now()
        skills = _skills_to_remember(trust, accepted)
        for path, digest in accepted.items():
            skills.append(TrustedSkill(path=path, digest=digest, at=at))
        trust = trust._replace(skills=tuple(skills))
        _write(state_dir, trust)
    return trust


def _skills_to_remember(trust: Trust, accepted: Mapping[str, str]) -> list[TrustedSkill]:
    """Returns the newest records of each folder, without those that are accepted again."""
    number = Counter[str]()
    kept: list[TrustedSkill] = []
    for record in reversed(trust.skills):
        number[record.path] += 1
        is_again = accepted.get(record.path) == record.digest
        if not is_again and number[record.path] <= _MOST_BEFORE:
            kept.append(record)
    kept.reverse()
    return kept


def revoke(state_dir: str, path_or_url: str) -> bool:
    """Revokes the trust in exactly this folder or URL, and in installed skills there. False when there was none."""
    if not os.path.lexists(_store(state_dir).path):
        return False
    url = without_userinfo(path_or_url)
    # A folder that was replaced by a link is still found under its old name.
    real = {os.path.realpath(path_or_url), os.path.abspath(path_or_url)}
    with _locked(state_dir):
        trust = load_trust(state_dir)
        if trust.findings:
            problem = trust.findings[0]
            raise StoreError(problem.message, code=problem.code, hint=problem.hint)
        left = _without(trust, url, real)
        if left == trust:
            return False
        _write(state_dir, left)
    return True


def _without(trust: Trust, url: str, real: Collection[str]) -> Trust:
    """Returns the trust without the URL and without what is in one of the folders."""
    keys: set[str] = set()
    for folder in real:
        keys |= _keys_by_content(folder)
    folders = [folder for folder in trust.folders if folder.path not in real]
    files = [file for file in trust.files if file.path not in keys]
    urls = [record for record in trust.urls if record.url != url]
    skills: list[TrustedSkill] = []
    for skill in trust.skills:
        if not any(is_inside(folder, skill.path) for folder in real):
            skills.append(skill)
    made = tuple(record for record in trust.made if record.path not in real)
    return Trust(tuple(folders), tuple(files), tuple(urls), tuple(skills), trust.findings, made)


def without_userinfo(url: str) -> str:
    """Returns the URL without `user:password@` and without its pin. Neither is part of what is trusted, and no password
    is stored."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    rest = rest.partition("#")[0]
    end = len(rest)
    for separator in "/?":
        at = rest.find(separator, 0, end)
        if at >= 0:
            end = at
    authority = rest[:end].rpartition("@")[2]
    return scheme + mark + authority + rest[end:]


def _parse(store: dict[str, Any]) -> Trust:
    kinds: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        rows = store.get(name, [])
        kinds[name] = tuple(_records(rows, name, kind))
    trust = Trust(**kinds)
    for record in (*trust.folders, *trust.files, *trust.skills, *trust.made):
        # An empty or relative path would act as a prefix and could cover far more than intended.
        if not os.path.isabs(record.path) or os.path.normpath(record.path) != record.path:
            raise ValueError(f"{record.path!r} is not a full, plain path")
    return trust


def _records(rows: Any, name: str, kind: Any) -> Iterator[Any]:
    if not isinstance(rows, list):
        raise ValueError(f"{name} is not a list")
    for number, row in enumerate(rows):
        table: dict[str, Any] = row if isinstance(row, dict) else {}
        fields = [table.get(field) for field in kind._fields]
        if not all(isinstance(field, str) for field in fields):
            raise ValueError(f"{name}[{number}] does not have the texts {', '.join(kind._fields)}")
        yield kind(*fields)


def _corrupt(path: str, why: str) -> Finding:
    return make_finding(Note("trust-store-corrupt", None, {"reason": why[:300]}), path)


def _load_or_move_aside(state_dir: str) -> Trust:
    """Loads the store, or moves a broken one aside. Needs the lock. The finding says where the broken store went."""
    trust = load_trust(state_dir)
    if not trust.findings:
        return trust
    problem = trust.findings[0]
    kept = _store(state_dir).move_aside()
    moved = f"{problem.message} It was moved to {kept}; what it trusted is not trusted any more."
    hint = "Run 'prowess trust' again for each folder and URL that you still trust."
    finding = problem._replace(message=moved, hint=hint)
    return Trust(findings=(finding,))


def _write(state_dir: str, trust: Trust) -> None:
    tables: dict[str, Any] = {}
    for name in _KINDS:
        records = getattr(trust, name)
        tables[name] = [record._asdict() for record in records]
    _store(state_dir).write(tables)


@contextmanager
def _locked(state_dir: str) -> Iterator[None]:
    try:
        with _store(state_dir).locked():
            yield
    except OSError as error:
        raise StoreError(
            f"Trust cannot be written in {state_dir}: {error.strerror or error}.",
            code="trust-store-unwritable",
            hint="Make the folder writable, or set PROWESS_STATE_DIR to one that is.",
        ) from error


def _find_sha256(path: str) -> str | None:
    try:
        data = read_regular(path, _FILE_LIMIT_BYTES, follow=True)
    except OSError:
        return None
    if len(data) > _FILE_LIMIT_BYTES:
        return None
    return content_sha256(data)


def _store(state_dir: str) -> UserFile:
    return UserFile(state_dir, "trust", SCHEMA)


_STRICTNESS = ("pin", "auto", "name-only", "manual", "off")

# The least that 2 % of a context window usually is. Without a budget to compare with, more might not be stricter.
_USUAL_BUDGET_TOKENS = 4_000
_MOST_NAMED = 20  # a hostile file could hold a hundred thousand patterns


def tighten(below: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the settings that are stricter than those below, and the names of the ignored ones, in order."""
    kept: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in wanted.items():
        if name == "skills.modes":
            kept[name] = _stricter_modes(below[name], value)
            left_out = [f"{name}.{pattern}" for pattern in value if pattern not in kept[name]]
            ignored += left_out if len(left_out) <= _MOST_NAMED else [name]
            continue
        rule = _RULES.get(name)
        if rule is None:
            if value != below.get(name):
                ignored.append(name)
        elif not rule(below[name], value):
            ignored.append(name)
        elif rule is _adds:
            both = (*below[name], *value)
            kept[name] = tuple(dict.fromkeys(both))
        else:
            kept[name] = value
    return kept, ignored


def _stricter_modes(below: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Returns the modes that are at least as strict as the strictest existing one. Patterns overlap and the narrower
    one wins, so none may be milder."""
    modes = ("name-only", *below.values())
    least = max(map(_STRICTNESS.index, modes))
    strict: dict[str, str] = {}
    for pattern, mode in wanted.items():
        if _STRICTNESS.index(mode) >= least:
            strict[pattern] = mode
    return strict


def _lowers(below: float | None, wanted: float | None) -> bool:
    """True when the new limit is not higher. None means no limit."""
    if below is None:
        return True
    return wanted is not None and wanted <= below


def _lowers_budget(below: int | None, wanted: int | None) -> bool:
    if wanted == below:
        return True
    if below is None:
        below = _USUAL_BUDGET_TOKENS
    return _lowers(below, wanted)


def _turns_on(below: bool, wanted: bool) -> bool:
    return wanted or not below


def _adds(below: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Always fits: a list is extended, never replaced."""
    return True


_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "execution.require_approval_for": _adds,
    "security.max_skill_body_lines": _lowers,
    "security.block_angle_brackets_in_frontmatter": _turns_on,
    "skills.max_loaded": _lowers,
    "skills.max_bodies_per_turn": _lowers,
    "skills.budget": _lowers_budget,
    "skills.require_load": _turns_on,
    "workspace.require_isolation": _turns_on,
    "workspace.require": _adds,
    "workspace.inline_bytes": _lowers,
    "workspace.commands_deny": _adds,
    "limits.turns": _lowers,
    "limits.calls": _lowers,
    "limits.scripts": _lowers,
    "limits.tokens": _lowers,
    "limits.seconds": _lowers,
    "limits.cost": _lowers,
    "record.copies": lambda below, wanted: below or not wanted,  # may be turned off
}
