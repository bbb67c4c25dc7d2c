"""What the spine needs from the outside world, as protocols; it never names an implementation.

Each docstring is the promise an implementation makes, and its contract suite checks exactly that promise. What does I/O
while a run is going on is async; skills are read before a run, so a skill source is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from prowess.events import ApprovalAnswered, Envelope, ModelReplied
from prowess.values import Decision, Isolation, Message, Outcome, SkillRef, Source, ToolCall, ToolSpec

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
    """The single truth about a session: what was appended is durable, ordered and never changed."""

    async def lease(self, session: str) -> int:
        """A number larger than every lease before it; from now on older leases cannot append."""
        ...

    async def append(
        self, session: str, expected_seq: int, lease: int, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        """Append all, numbered from `expected_seq` + 1, or nothing: SessionConflict when somebody else was first."""
        ...

    def read(self, session: str, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        """Everything after that number, in order."""
        ...


class ArtifactStore(Protocol):
    """Keeps every version of every saved file; concurrent saves never lose one."""

    async def save(self, session: str, name: str, data: bytes, *, mime_type: str | None = None) -> int:
        """The new version: 0, 1, 2 …"""
        ...

    async def load(self, session: str, name: str, *, version: int | None = None) -> bytes:
        """That version, or the newest."""
        ...

    async def names(self, session: str) -> Sequence[str]:
        """Every name with at least one version, sorted."""
        ...

    async def versions(self, session: str, name: str) -> Sequence[int]:
        """Every version of that name, oldest first; empty when there is none."""
        ...

    async def delete(self, session: str, name: str) -> None:
        """Remove every version of that name."""
        ...


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
