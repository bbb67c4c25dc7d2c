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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from prowess._internal.digest import content_sha256
from prowess._internal.files import read_regular
from prowess._internal.json_file import UserFile, file_signature, now
from prowess._internal.paths import is_inside
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError, StoreError

SCHEMA = "prowess.trust/1"
TRUSTED_BY_CONTENT = (".agent/config.toml", ".agent/config.json", ".agent/policy.toml")

_FILE_LIMIT_BYTES = 1 << 20  # larger config or policy files are refused
_GIT_LIMIT_BYTES = 1 << 14
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


class Trust(NamedTuple):
    """Trust at the time the store was read. Paths are resolved before they are compared."""

    folders: tuple[TrustedFolder, ...] = ()
    files: tuple[TrustedFile, ...] = ()
    urls: tuple[TrustedUrl, ...] = ()
    skills: tuple[TrustedSkill, ...] = ()
    findings: tuple[Finding, ...] = ()

    def trusts_folder(self, path: str) -> bool:
        """True when the folder, a folder above it, or its counterpart in the repository of a worktree is trusted."""
        real = os.path.realpath(path)
        return bool(self.folders) and (
            self._covers(real) or any(self._covers(twin) for twin in _places_in_main_worktree(real))
        )

    def accepts_file(self, path: str, sha256: str) -> bool:
        """True when a person gave trust to exactly this content."""
        real = _file_key(path)
        accepted = {record.path for record in self.files if record.sha256 == sha256}
        return bool(accepted) and (real in accepted or any(twin in accepted for twin in _places_in_main_worktree(real)))

    def accepts_url(self, url: str, digest: str) -> bool:
        return any(record.url == without_userinfo(url) and record.digest == digest for record in self.urls)

    @property
    def accepted_skills(self) -> dict[str, str]:
        """Digest by folder of each installed skill that a person accepted: the newest record of a folder counts."""
        return {record.path: record.digest for record in self.skills}

    def accepted_once(self, path: str, digest: str) -> bool:
        """True when a person accepted this content before, now or earlier. For a return to that content."""
        real = os.path.realpath(path)
        return any((record.path, record.digest) == (real, digest) for record in self.skills)

    def _covers(self, real: str) -> bool:
        return any(is_inside(folder.path, real) for folder in self.folders)


_KINDS: dict[str, Any] = {"folders": TrustedFolder, "files": TrustedFile, "urls": TrustedUrl, "skills": TrustedSkill}


def load_trust(state_dir: str) -> Trust:
    """Loads the current trust. A missing store trusts nothing. A broken store trusts nothing and adds a finding."""
    store = _store(state_dir)
    try:
        return _parse(store.read())
    except FileNotFoundError:
        return Trust()
    except (OSError, ValueError, RecursionError) as error:
        return Trust(findings=(_corrupt(store.path, str(error) or type(error).__name__),))


class TrustFile:
    """Current trust: read again when the file changes, else the same object."""

    def __init__(self, state_dir: str) -> None:
        self.path = _store(state_dir).path
        self._state_dir = state_dir
        self._seen: object = None
        self._trust = Trust()

    def current(self) -> Trust:
        seen = file_signature(self.path)
        if seen != self._seen:
            self._trust, self._seen = load_trust(self._state_dir), seen
        return self._trust


def still_trusted(before: Trust, now: Trust) -> Trust:
    """Returns what was trusted before and still is; `before` itself when nothing was revoked."""
    narrower = (f for f in now.folders if f not in before.folders and before.trusts_folder(f.path))
    before_skills, now_skills = before.accepted_skills, now.accepted_skills
    left = Trust(
        folders=(*(f for f in before.folders if now.trusts_folder(f.path)), *narrower),
        files=tuple(f for f in before.files if now.accepts_file(f.path, f.sha256)),
        urls=tuple(u for u in before.urls if now.accepts_url(u.url, u.digest)),
        skills=tuple(
            s for s in before.skills if before_skills[s.path] != s.digest or now_skills.get(s.path) == s.digest
        ),
        findings=now.findings,
    )
    kept_all = len(left.files) == len(before.files) and {*before.folders} <= {*left.folders}
    return before if kept_all and (left.urls, left.skills) == (before.urls, before.skills) else left


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
        keys = {_file_key(os.path.join(real, name)) for name in TRUSTED_BY_CONTENT}
        at = now()
        files = [TrustedFile(path=key, sha256=sha, at=at) for key in sorted(keys) if (sha := _find_sha256(key))]
        trust = trust._replace(
            folders=(*(f for f in trust.folders if f.path != real), TrustedFolder(path=real, at=at)),
            files=(*(f for f in trust.files if f.path not in keys), *files),
        )
        _write(state_dir, trust)
    return trust


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
        others = (u for u in trust.urls if (u.url, u.digest) != (clean, digest))
        trust = trust._replace(urls=(*others, TrustedUrl(url=clean, digest=digest, at=now())))
        _write(state_dir, trust)
    return trust


def grant_skills(state_dir: str, digests: Mapping[str, str]) -> Trust:
    """Accepts installed skills, each in its folder and with exactly this digest; with "" it is accepted no more. A link
    in the place of a folder is not followed."""
    known = load_trust(state_dir)
    known_digests = known.accepted_skills
    resolve = cache(os.path.realpath)  # the folder above: most skills share it
    accepted = {os.path.join(resolve(os.path.dirname(p)), os.path.basename(p)): d for p, d in digests.items()}
    accepted = {path: digest for path, digest in accepted.items() if digest or path in known_digests}
    if not accepted:
        return known
    with _locked(state_dir):
        trust = _load_or_move_aside(state_dir)
        at = now()
        new = [TrustedSkill(path=path, digest=digest, at=at) for path, digest in accepted.items()]
        same, number = {(s.path, s.digest) for s in new}, Counter[str]()
        kept: list[TrustedSkill] = []
        for record in reversed(trust.skills):
            number[record.path] += 1
            if (record.path, record.digest) not in same and number[record.path] <= _MOST_BEFORE:
                kept.append(record)
        trust = trust._replace(skills=(*reversed(kept), *new))
        _write(state_dir, trust)
    return trust


def revoke(state_dir: str, path_or_url: str) -> bool:
    """Revokes the trust in exactly this folder or URL, and in installed skills there. False when there was none."""
    if not os.path.lexists(_store(state_dir).path):
        return False
    url = without_userinfo(path_or_url)
    # A folder that was replaced by a link is still found under its old name.
    real = {os.path.realpath(path_or_url), os.path.abspath(path_or_url)}
    keys = {_file_key(os.path.join(folder, name)) for folder in real for name in TRUSTED_BY_CONTENT}
    with _locked(state_dir):
        trust = load_trust(state_dir)
        if trust.findings:
            problem = trust.findings[0]
            raise StoreError(problem.message, code=problem.code, hint=problem.hint)
        left = trust._replace(
            folders=tuple(f for f in trust.folders if f.path not in real),
            files=tuple(f for f in trust.files if f.path not in keys),
            urls=tuple(u for u in trust.urls if u.url != url),
            skills=tuple(s for s in trust.skills if not any(is_inside(folder, s.path) for folder in real)),
        )
        if left == trust:
            return False
        _write(state_dir, left)
    return True


def without_userinfo(url: str) -> str:
    """Returns the URL without `user:password@` and without its pin. Neither is part of what is trusted, and no password
    is stored."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    rest = rest.partition("#")[0]
    end = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    return scheme + mark + rest[:end].rpartition("@")[2] + rest[end:]


def _parse(store: dict[str, Any]) -> Trust:
    trust = Trust(**{name: tuple(_records(store.get(name, []), name, kind)) for name, kind in _KINDS.items()})
    for record in (*trust.folders, *trust.files, *trust.skills):
        # An empty or relative path would act as a prefix and could cover far more than intended.
        if not os.path.isabs(record.path) or os.path.normpath(record.path) != record.path:
            raise ValueError(f"{record.path!r} is not a full, plain path")
    return trust


def _records(rows: Any, name: str, kind: Any) -> Iterator[Any]:
    if not isinstance(rows, list):
        raise ValueError(f"{name} is not a list")
    for number, row in enumerate(rows):
        fields = [row.get(field) for field in kind._fields] if isinstance(row, dict) else [None]
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
    kept = _store(state_dir).move_aside()
    moved = f"{trust.findings[0].message} It was moved to {kept}; what it trusted is not trusted any more."
    hint = "Run 'prowess trust' again for each folder and URL that you still trust."
    return Trust(findings=(trust.findings[0]._replace(message=moved, hint=hint),))


def _write(state_dir: str, trust: Trust) -> None:
    _store(state_dir).write({name: [record._asdict() for record in getattr(trust, name)] for name in _KINDS})


@contextmanager
def _locked(state_dir: str) -> Iterator[None]:
    try:
        with _store(state_dir).locked():
            yield
    except OSError as error:
        raise StoreError(
            f"Trust cannot be written in {state_dir}: {error.strerror or error}.",
            code="trust-store-unwritable",
            hint="Make the folder writable, or set PROWESS_HOME to one that is.",
        ) from error


def _find_sha256(path: str) -> str | None:
    try:
        data = read_regular(path, _FILE_LIMIT_BYTES, follow=True)
    except OSError:
        return None
    return content_sha256(data) if len(data) <= _FILE_LIMIT_BYTES else None


def _places_in_main_worktree(real: str) -> Iterator[str]:
    """Yields the counterpart of this path in the repository, for every folder above it that is a linked worktree."""
    folder = real
    while folder != (above := os.path.dirname(folder)):
        main = _find_main_worktree(folder)
        if main is not None:
            yield os.path.normpath(os.path.join(main, os.path.relpath(real, folder)))
        folder = above


def _find_main_worktree(folder: str) -> str | None:
    """Returns the repository's folder, when `folder/.git` names its record and the record names `folder/.git` back.

    The record is inside the repository, so a forged, linked or copied `.git` file gains nothing. Both must have the
    same owner: a record may outlive its folder, and anybody can create a folder in /tmp at the old path.
    """
    marker = _find_line(os.path.join(folder, ".git"))
    if marker is None or not marker.startswith("gitdir:"):
        return None
    record = os.path.realpath(os.path.join(folder, marker.removeprefix("gitdir:").strip()))
    git_dir, worktrees = os.path.split(os.path.dirname(record))
    main, dot_git = os.path.split(git_dir)
    if (dot_git, worktrees) != (".git", "worktrees"):
        return None
    back = _find_line(os.path.join(record, "gitdir"))
    if back is None or _file_key(os.path.join(record, back)) != os.path.join(folder, ".git"):
        return None
    return main if _find_owner(folder) == _find_owner(record) else None


def _find_owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _find_line(path: str) -> str | None:
    """Reads the only line of a small regular file. Links are not followed, because the file's own location is the
    proof."""
    try:
        text = os.fsdecode(read_regular(path, _GIT_LIMIT_BYTES)).rstrip("\r\n")
    except (OSError, ValueError):
        return None
    return None if len(text) > _GIT_LIMIT_BYTES or "\0" in text or "\n" in text else text


def _file_key(path: str) -> str:
    """Returns the resolved folder and the file's own name. A link at the end is not followed."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


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
        if rule := _RULES.get(name):
            fits = rule(below[name], value)
            if fits:
                kept[name] = tuple(dict.fromkeys((*below[name], *value))) if rule is _adds else value
        else:
            fits = value == below.get(name)
        if not fits:
            ignored.append(name)
    return kept, ignored


def _stricter_modes(below: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Returns the modes that are at least as strict as the strictest existing one. Patterns overlap and the narrower
    one wins, so none may be milder."""
    least = max(map(_STRICTNESS.index, ("name-only", *below.values())))
    return {pattern: mode for pattern, mode in wanted.items() if _STRICTNESS.index(mode) >= least}


def _lowers(below: float | None, wanted: float | None) -> bool:
    """True when the new limit is not higher. None means no limit."""
    return below is None or (wanted is not None and wanted <= below)


def _lowers_budget(below: int | None, wanted: int | None) -> bool:
    return wanted == below or _lowers(_USUAL_BUDGET_TOKENS if below is None else below, wanted)


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
}
