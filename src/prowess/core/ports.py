"""What the spine needs from the outside world, as protocols; it never names an implementation.

Each docstring is the promise an implementation makes, and its contract suite checks exactly that promise. What does I/O
while a run is going on is async; skills are read before a run, so a skill source is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from prowess.core.events import ApprovalAnswered, CallDelta, Envelope, ModelReplied, TextDelta
from prowess.core.values import (
    Artifact,
    ChainHead,
    Decision,
    Isolation,
    Lease,
    Located,
    Message,
    OrphanedEvents,
    Outcome,
    SessionInfo,
    SessionKey,
    Source,
    Spawn,
    ToolCall,
    ToolSpec,
    Trigger,
)

if TYPE_CHECKING:
    from prowess.skills.skill import Skill
    from prowess.workspace.layout import Layout
    from prowess.workspace.process.command import Ended
    from prowess.workspace.session_folder import Place
    from prowess.workspace.skill_trees import Tree


class Model(Protocol):
    """Answers one request with one reply, or raises a ModelError that says whether trying again can help.

    It never tries again by itself. A reply that broke off is an error, never a shorter reply. Optional, found by name:
    `context_tokens` (int | None), the size of its window; `notes` (sequence of str), what a person should know;
    `protocol` ("tools" | "actions"); `aclose()`; of a recording `expect(sha256, bytes)`, told each request, and
    `shortened(run, task)`, which knows where the conversation was shortened.
    """

    @property
    def name(self) -> str:
        """As a person wrote it after `--model`."""
        ...

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        """The whole reply; `on_delta` sees it piece by piece before that. With a JSON Schema its text is a document
        that fits, as far as the provider can hold it to that."""
        ...


class Redaction(Protocol):
    """Takes secrets out of a stream, or of a whole value."""

    def feed(self, data: bytes) -> bytes: ...
    def flush(self) -> bytes: ...
    def finish(self) -> bytes: ...
    def fresh(self) -> Redaction:
        """The same, for another stream."""
        ...

    def redact_text(self, text: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGrant:
    """What a decided call is given, and must keep to."""

    decision: Decision
    redaction: Redaction
    call_id: str = ""
    trigger: Trigger = "model"
    can_spawn: bool = False  # whether a Spawn would be carried out
    env: Mapping[str, str] = field(default_factory=dict)  # of the run: declared secrets, and what the model set
    granted: frozenset[str] = frozenset()  # capabilities that somebody was asked about and allowed; rules are not asked
    on_output: Callable[[str, bytes], None] | None = None  # ("stdout" | "stderr", redacted bytes), as they come


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityRequest:
    """A capability that a call needs besides its own permission, and exactly what for."""

    capability: str
    args: Mapping[str, Any] = field(default_factory=dict)


class Toolset(Protocol):
    """Offers tools under fixed schemas and turns every call into an outcome; failure and refusal are outcomes too."""

    def specs(self) -> Sequence[ToolSpec]:
        """The same specs, in the same order, every time it is asked."""
        ...

    def normalise(self, call: ToolCall) -> ToolCall:
        """The call by our own names, complete and checked. ToolRetry says what is wrong with it."""
        ...

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        """What else has to be granted before this call may be executed."""
        ...

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome | Spawn:
        """Execute one decided call, in its normal form, within what it was given. A Spawn is wished for, not done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What one run executes, in the terms of its workspace: nothing here names a path of the host."""

    argv: Sequence[str]
    skill: str  # the folder below skills/ whose tree this run sees, and no other
    run: str  # the folder below runs/ that is this run's own
    cwd: str  # relative to the workspace
    env: Mapping[str, str]  # all of it
    stdin: bytes | None = None
    timeout_s: float | None = None
    readable: Sequence[str] = ()  # folders of the host that it may read, under the same path
    tty: bool = False


class Workspace(Protocol):
    """One session's folders, and a way to run programs in them.

    Inside a staged skill `out/ work/ inputs/` lead to the workspace, `.venv/` can be written to, the rest cannot. When
    `run` returns, raises or is cancelled, nothing that the program started is left.
    """

    @property
    def layout(self) -> Layout: ...

    @property
    def isolation(self) -> Isolation:
        """What holds around a run here."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """What every program needs here: PATH, HOME, TMPDIR, LANG."""
        ...

    @property
    def python(self) -> str:
        """The interpreter for a script that names none, by the path that a program sees; "" when there is none."""
        ...

    async def stage(self, tree: Tree, name: str) -> None:
        """From now on a run that names this skill sees this tree at skills/<name>."""
        ...

    async def run(
        self,
        program: Program,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Ended:
        """Run to the end. The callbacks get every byte, in order, as it comes. NotStarted when it could not begin."""
        ...

    async def open_session(self, program: Program, on_output: Callable[[bytes], None] | None = None) -> Interactive:
        """Start it and leave it running, with an open stdin and both outputs in one stream."""
        ...

    async def aclose(self) -> None:
        """End every process that is left; the files stay until the workspace is cleaned."""
        ...


class Interactive(Protocol):
    """A program that goes on while nobody looks; it ends with its workspace."""

    @property
    def ended(self) -> Ended | None: ...

    @property
    def dropped_bytes(self) -> int:
        """What came faster than it was read, and was left out: always the oldest."""
        ...

    async def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    async def read(self, limit_bytes: int = 65536, *, wait_s: float = 0.0) -> bytes: ...
    async def kill(self) -> Ended: ...
    async def wait(self) -> Ended: ...
    async def aclose(self) -> None: ...


class Executor(Protocol):
    """Opens workspaces of one kind, and knows by trying what holds in them."""

    async def isolation(self) -> Isolation:
        """Found out by trying, not by asking for a version. WorkspaceUnavailable when nothing can run here."""
        ...

    async def programs(self) -> Callable[[str], Located]:
        """Finds the file of the system that a program's name leads to in a run here."""
        ...

    async def open(self, place: Place) -> Workspace:
        """The workspace whose files are at that place."""
        ...

    async def aclose(self) -> None:
        """End every workspace that is left."""
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

    async def head(self, key: SessionKey) -> ChainHead:
        """How many events there are and the hash of the last, as kept beside them at each append."""
        ...

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """One tenant's sessions, sorted by key: of that app, of that user, whose name begins so."""
        ...

    async def strays(self) -> Sequence[OrphanedEvents]:
        """Events that no reading of a session comes to, whoever's they were: somebody has been at the store."""
        ...

    async def expire(self, key: SessionKey, at: str | None) -> None:
        """From that moment on it is as if deleted, whatever is appended until then; None: never, as at first."""
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


class Asker(Protocol):
    """Puts a question of the model to the person it works for; None means that nobody is there."""

    async def __call__(self, question: str, choices: Sequence[str]) -> str | None: ...


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
