"""Values of the stores: session keys, leases, chain heads and artifact names. They are public in `prowess.ports`.

A key or a name that cannot be stored safely cannot be created, so that no store has to check it again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from prowess._internal.paths import check_safe_name
from prowess.errors import PathEscape, StoreError

# Text on one line. Halves of surrogate pairs are refused, because no file or database takes them. Marks that change the
# writing direction are refused, because they make a name look like another one in a list.
_ONE_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_VERSIONED = re.compile(r"(?s)(.*)@([0-9]{1,9})")
_SCHEME = "artifact://"
USER_SCOPE = "user:"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SessionKey:
    """Owner and name of a session. Every stored thing carries all four parts."""

    tenant: str = "default"
    app: str = "default"
    user: str = "default"
    session: str

    def __post_init__(self) -> None:
        for name in ("tenant", "app", "user", "session"):
            text = getattr(self, name)
            fits = isinstance(text, str) and len(text) <= 200 and _ONE_LINE.fullmatch(text)
            if not fits or text.startswith(("/", "\\")) or text != text.strip():
                problem = f"SessionKey.{name} cannot be {text!r}."
                hint = "Use 1 to 200 characters on one line, without a slash at the start or spaces at either end."
                raise StoreError(problem[:300], code="session-key-invalid", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """End of a session's hash chain: the number of events and the hash of the last one."""

    seq: int = 0
    hash: str = "0" * 64  # the value for a session without events


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Right to append to one session until somebody takes the next lease. `token` is larger than in all leases
    before."""

    key: SessionKey
    token: int
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    key: SessionKey
    head: ChainHead
    created_at: str
    updated_at: str
    expires_at: str | None = None  # from this time on the session counts as deleted


class OrphanedEvents(NamedTuple):
    """Events that cannot be reached by reading a session: the session's row is missing (`orphaned`), or they are
    outside the range that the row counts. Also reports an expiry in the row that no API call set. Names are as stored
    and may not be a valid key."""

    tenant: str
    session: str
    events: int = 0
    first: int | None = None
    orphaned: bool = False
    expiry: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Saved version of a file."""

    name: str
    version: int
    sha256: str
    size_bytes: int
    mime_type: str
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """Reference `artifact://name[@version]`. Without a version it means the newest."""

    name: str
    version: int | None = None


def parse_artifact_ref(text: str) -> ArtifactRef:
    """Parses a reference. The last `@` starts the version if only digits follow; any other `@` belongs to the name."""
    if not text.startswith(_SCHEME):
        raise StoreError(
            f"{text!r} is not a reference to an artifact."[:300],
            code="artifact-ref-invalid",
            hint="Write artifact://name or artifact://name@version.",
        )
    name = text[len(_SCHEME) :]
    versioned = _VERSIONED.fullmatch(name)
    if versioned:
        name = versioned[1]
    artifact_scope(name)
    return ArtifactRef(name=name, version=int(versioned[2]) if versioned else None)


def render_artifact_ref(name: str, version: int | None = None) -> str:
    artifact_scope(name)
    if version is not None:
        return f"{_SCHEME}{name}@{version}"
    if _VERSIONED.fullmatch(name):
        problem = f"'artifact://{name}' would be read as a version of another artifact."
        hint = f"Name the version as well, such as artifact://{name}@0."
        raise StoreError(problem[:300], code="artifact-ref-invalid", hint=hint[:300])
    return f"{_SCHEME}{name}"


def artifact_scope(name: str) -> tuple[bool, tuple[str, ...]]:
    """Returns (belongs to the user, parts of the name). StoreError if the name is invalid.

    A name may contain slashes; they are only part of the name.
    """
    of_user = name.startswith(USER_SCOPE)
    path = name.removeprefix(USER_SCOPE)
    parts = tuple(path.split("/"))
    if not _ONE_LINE.fullmatch(path) or "\\" in path:
        raise _bad_name(name)
    if len(parts) > 32 or len(path.encode()) > 1024:
        raise _bad_name(name)
    for part in parts:
        if part in ("", ".", "..") or len(part.encode()) > 255:
            raise _bad_name(name)
    try:
        check_safe_name(path)
    except PathEscape as error:
        raise _bad_name(name) from error
    return of_user, parts


def _bad_name(name: str) -> StoreError:
    problem = f"{name!r} cannot be the name of an artifact."
    hint = "Use a relative name such as report.pdf, charts/sales.png or user:profile.json."
    return StoreError(problem[:300], code="artifact-name-invalid", hint=hint)
