"""What the spine needs from the outside world, as protocols; it never names an implementation.

Each docstring is the promise an implementation makes, and its contract suite checks exactly that promise. What does I/O
while a run is going on is async; skills are read before a run, so a skill source is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from prowess.events import ApprovalAnswered, Envelope, ModelReplied
from prowess.values import (
    Artifact,
    Decision,
    Head,
    Isolation,
    Lease,
    Message,
    Outcome,
    SessionInfo,
    SessionKey,
    SkillRef,
    Source,
    ToolCall,
    ToolSpec,
)

if TYPE_CHECKING:
    from prowess.skills.entry import Skill


class Model(Protocol):
    """Answers one request with one reply, or raises a ModelError that says whether trying again can help."""

    @property
    def name(self) -> str:
        """As a person wrote it after `--model`."""
        ...

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> ModelReplied:
        """The whole reply; `on_text` sees its text piece by piece before that."""
        ...


class Toolset(Protocol):
    """Offers tools under fixed schemas and turns every call into an outcome; failure and refusal are outcomes too."""

    def specs(self) -> Sequence[ToolSpec]:
        """The same specs, in the same order, every time it is asked."""
        ...

    async def call(self, call: ToolCall, decision: Decision) -> Outcome:
        """Execute one decided call within the limits that the decision carries."""
        ...


class Workspace(Protocol):
    """Runs commands in one session's folders and reports what isolation really held around them."""

    async def isolation(self) -> Isolation:
        """What holds here, found out by trying, not by asking for a version."""
        ...

    async def stage(self, skill: SkillRef, tree: str) -> str:
        """Make the skill's tree visible to the next run and return the folder a run sees it under."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> Outcome:
        """Run to the end, the whole process tree included; `data` has the result fields of the contract."""
        ...

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """At most `limit_bytes` of a regular file inside the workspace."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file inside the workspace, whole or not at all."""
        ...

    async def close(self) -> None:
        """End every process that is left; the files stay until the workspace is cleaned."""
        ...


class EventLog(Protocol):
    """The single truth about a session: what was appended is durable, ordered, chained and never changed.

    One fencing check serves concurrency, crash recovery and takeover: only the newest lease can append, and only right
    after the last event. A lease does not expire and needs no renewal: it holds until somebody takes the next one.
    Unknown sessions are StoreError `session-unknown`.
    """

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        """Make the session if need be. From now on older leases cannot append; `owner` is for people to read."""
        ...

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        """All of them, durable, numbered from `expected_seq` + 1 and linked; or nothing changed and an error:
        SessionConflict `session-conflict` when somebody else was first, `lease-lost` when somebody took over."""
        ...

    def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        """Everything after that number, in order, as of now."""
        ...

    def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        """The same as it was stored: with fields that this version does not know, so that the chain can be checked."""
        ...

    async def head(self, key: SessionKey) -> Head:
        """How many events there are and the hash of the last, as kept beside them at each append."""
        ...

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """One tenant's sessions, sorted by key: of that app, of that user, whose name begins so."""
        ...

    async def delete(self, key: SessionKey) -> None:
        """Forget the session. Its leases stay lost, also when a session of that name begins anew."""
        ...

    async def close(self) -> None: ...


class ArtifactStore(Protocol):
    """Keeps every version of every saved file: whole or not at all; concurrent saves never lose one.

    A name that begins with `user:` belongs to the user and is seen from all of the user's sessions, others belong to
    the session. What is not there is StoreError `artifact-not-found`.
    """

    async def save(self, key: SessionKey, name: str, data: Content, *, mime_type: str | None = None) -> Artifact:
        """A new version: 0, 1, 2 …; a number is never given twice, even after a delete."""
        ...

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        """That version, or the newest; StoreError `artifact-corrupt` when it is not what was saved."""
        ...

    def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        """The same in pieces, in constant memory."""
        ...

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        """What is known about that version, or the newest."""
        ...

    async def names(self, key: SessionKey) -> Sequence[str]:
        """Every name with at least one version, the user's included, sorted."""
        ...

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        """Every version of that name, oldest first; empty when there is none."""
        ...

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        """Remove that version, or every version of that name."""
        ...


class Readable(Protocol):
    """An open file, as far as reading goes."""

    def read(self, size: int, /) -> bytes: ...


Content = bytes | Readable | Iterable[bytes] | AsyncIterable[bytes]


class Approver(Protocol):
    """Puts one question to a person; None means that nobody answered, which is never a yes."""

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None: ...


class SkillSource(Protocol):
    """Skills from somewhere other than a folder; they behave in every respect like those on disk."""

    @property
    def source(self) -> Source: ...

    def skills(self) -> Iterable[Skill]:
        """All of them, read now; an unreadable one is reported as a finding on its own, never by raising."""
        ...


class SecretProvider(Protocol):
    """Gives the value of a declared secret to whoever runs a call, and to nobody else."""

    async def find(self, name: str) -> str | None:
        """The value, or None when there is no secret of that name."""
        ...
