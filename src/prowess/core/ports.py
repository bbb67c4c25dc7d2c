"""Protocols of models, tools, workspaces, stores and approvers. The runtime names no implementation.

Each docstring is a promise that an implementation makes, and a contract suite checks this promise. I/O during a run is
async. A skill source is not async, because skills are read before a run.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from prowess._internal.light_dataclass import dataclass
from prowess.core.events import (
    ApprovalAnswered,
    CallDelta,
    Compacted,
    Envelope,
    ErrorRaised,
    ModelReplied,
    NoteAppended,
    TextDelta,
)
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
from prowess.errors import ToolFailed

if TYPE_CHECKING:
    from prowess.core.tool_context import ToolContext
    from prowess.skills.skill import Skill
    from prowess.workspace.layout import Layout
    from prowess.workspace.process.command import Ended
    from prowess.workspace.session_folder import Place
    from prowess.workspace.skill_trees import Tree


class Model(Protocol):
    """Answers one request with one reply, or raises a ModelError that says whether a retry can help.

    A model never retries by itself. A reply that broke off is an error, never a shorter reply.

    A model can have more powers: the members of `ModelInfo`, and the methods of `ClosableModel`, `FiniteModel`,
    `RecordedModel` and `SkillReader`. A `SkillReader` is asked by `reply_with_skills` instead.
    """

    @property
    def name(self) -> str:
        """Name as a person wrote it after `--model`."""
        ...

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        """Returns the whole reply. `on_delta` gets its pieces before that. With a JSON Schema, the text is a document
        that fits the schema, as far as the provider can guarantee it."""
        ...


@runtime_checkable
class ClosableModel(Protocol):
    """Model that holds connections or processes until it is closed."""

    async def aclose(self) -> None: ...


@runtime_checkable
class PreparedModel(Protocol):
    """Model whose first request needs something slow, such as an import. `prepare` may be called in a thread."""

    def prepare(self) -> None: ...


@runtime_checkable
class FiniteModel(Protocol):
    """Model with a fixed number of replies. It fails if a run ended before all of them were used."""

    def assert_finished(self) -> None: ...


class Shortened(NamedTuple):
    """Decision that was taken when a request did not fit, and the error if the summary failed."""

    event: Compacted
    failed: ErrorRaised | None


@runtime_checkable
class RecordedModel(Protocol):
    """Model that plays back a recorded run, and knows its requests. `request_form` is `versions["requests"]` of that
    run; None: an older release recorded it."""

    request_form: str | None

    def expect(self, sha256: str, bytes: int) -> None:
        """Takes the next request, as `model_requested` describes it."""
        ...

    def shortened(self, run: str, task: str, *, take: bool = False) -> Shortened | None:
        """Returns how the recorded run was shortened before the next request of `run`; with `take`, only once."""
        ...

    def recorded_notes(self, run: str, task: str) -> Sequence[NoteAppended]:
        """Returns the recorded notes of the next request of `run`."""
        ...


class ShownSkill(NamedTuple):
    """Skill as a request shows it."""

    name: str
    description: str = ""
    body: str = ""  # empty if the skill is only listed
    files: tuple[str, ...] = ()


class SkillsInRequest(NamedTuple):
    """Skills and results behind the text of a request."""

    listed: Sequence[ShownSkill] = ()  # in the catalog
    loaded: Mapping[str, ShownSkill] = {}  # by the ref of the part that shows the skill
    results: Mapping[str, Mapping[str, Any]] = {}  # `data` of the outcome of each call, by its id


@runtime_checkable
class SkillReader(Protocol):
    """Optional power of a model: takes the skills and results of a request as values, and parses no rendered text."""

    async def reply_with_skills(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        skills: SkillsInRequest,
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
    ) -> ModelReplied:
        """Returns the whole reply, as `Model.reply` does."""
        ...


class Redaction(Protocol):
    """Removes secrets from a stream or from a whole value."""

    def feed(self, data: bytes) -> bytes: ...
    def flush(self) -> bytes: ...
    def finish(self) -> bytes: ...
    def fresh(self) -> Redaction:
        """Returns the same redaction for another stream."""
        ...

    def redact_text(self, text: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGrant:
    """Permissions and settings that a decided call gets and must keep to."""

    decision: Decision
    redaction: Redaction
    call_id: str = ""
    trigger: Trigger = "model"
    can_spawn: bool = False  # True if a Spawn would be carried out
    env: Mapping[str, str] = field(default_factory=dict)  # of the run: declared secrets, and variables set by the model
    granted: frozenset[str] = frozenset()  # capabilities that an answer, not a rule, allowed for this call
    on_output: Callable[[str, bytes], None] | None = None  # ("stdout" | "stderr", redacted bytes), as they arrive
    made: dict[str, dict[str, Any]] = field(default_factory=dict)  # files that the tool wrote below out/, by name
    make_context: Callable[[CallGrant], ToolContext[Any]] | None = None  # of this grant; None: outside of an agent

    def context(self) -> ToolContext[Any]:
        """Makes the context of this call."""
        if self.make_context is None:
            raise ToolFailed("The tool needs a ToolContext, and was called without an agent.")
        return self.make_context(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityRequest:
    """Capability that a call needs besides its own permission, with the exact arguments."""

    capability: str
    args: Mapping[str, Any] = field(default_factory=dict)


class Toolset(Protocol):
    """Offers tools with fixed schemas, and turns every call into an outcome. Failures and refusals are outcomes too."""

    def specs(self) -> Sequence[ToolSpec]:
        """Returns the same specs in the same order every time."""
        ...

    def normalise(self, call: ToolCall) -> ToolCall:
        """Returns the call with canonical names, complete and checked. ToolRetry says what is wrong with it."""
        ...

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        """Returns the other capabilities that must be granted before this call is executed."""
        ...

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome | Spawn:
        """Executes one decided, normalised call within its grant. A returned Spawn is only a request for a child
        run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Program that a run executes, in terms of its workspace. No path of the host appears here."""

    argv: Sequence[str]
    skill: str  # folder below skills/; the run sees only this skill's tree
    run: str  # folder below runs/ that belongs to this run
    cwd: str  # relative to the workspace
    env: Mapping[str, str]  # the complete environment
    stdin: bytes | None = None
    timeout_s: float | None = None
    readable: Sequence[str] = ()  # folders of the host that it may read, under the same paths
    tty: bool = False


class Workspace(Protocol):
    """Folders of one session, and a way to run programs in them.

    Inside a staged skill, `out/ work/ inputs/` lead to the workspace and `.venv/` is writable; all else is read-only.
    After `run` returns, raises or is cancelled, no process that the program started is left.
    """

    @property
    def layout(self) -> Layout: ...

    @property
    def isolation(self) -> Isolation:
        """Isolation that is in force around a run here."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that every program needs here: PATH, HOME, TMPDIR, LANG."""
        ...

    @property
    def python(self) -> str:
        """Interpreter for a script that names none, as a path that the program sees; "" if there is none."""
        ...

    async def stage(self, tree: Tree, name: str) -> None:
        """Makes this tree visible at skills/<name> to every later run that names this skill."""
        ...

    async def run(
        self,
        program: Program,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Ended:
        """Runs the program to its end. The callbacks get every byte, in order, as it arrives. NotStarted if it could
        not start."""
        ...

    async def open_session(self, program: Program, on_output: Callable[[bytes], None] | None = None) -> Interactive:
        """Starts a program and leaves it running, with an open stdin and both outputs in one stream."""
        ...

    async def aclose(self) -> None:
        """Ends all processes that are left. The files stay until the workspace is cleaned."""
        ...


class Interactive(Protocol):
    """Program that keeps running between calls. It ends with its workspace."""

    @property
    def ended(self) -> Ended | None: ...

    @property
    def dropped_bytes(self) -> int:
        """Number of dropped bytes: the oldest output is dropped if it arrives faster than it is read."""
        ...

    async def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    async def read(self, limit_bytes: int = 65536, *, wait_s: float = 0.0) -> bytes: ...
    async def kill(self) -> Ended: ...
    async def wait(self) -> Ended: ...
    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSetup:
    """Settings that an executor is made with. An entry point of the group `prowess.workspaces` is a function that takes
    this and returns an Executor. Making one starts nothing."""

    dir: str  # folder of the workspaces
    uid: int | None = None  # user of scripts when Prowess is root, else None
    limits: Mapping[str, float] = field(default_factory=dict)  # workspace.limits
    network_allow: tuple[str, ...] = ()
    image: str | None = None
    python: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)  # variables of the process, such as DOCKER_HOST


class Executor(Protocol):
    """Opens workspaces of one kind, and finds out by trial which isolation is in force in them."""

    async def isolation(self) -> Isolation:
        """Tests the isolation by trial, not by a version number. WorkspaceUnavailable if nothing can run here."""
        ...

    async def programs(self) -> Callable[[str], Located]:
        """Returns a function that finds the system file that a program's name leads to in a run here."""
        ...

    async def open(self, place: Place) -> Workspace:
        """Opens the workspace whose files are at this place."""
        ...

    async def aclose(self) -> None:
        """Ends all workspaces that are left."""
        ...


class EventLog(Protocol):
    """Log of all sessions. An appended event is durable, ordered, chained and never changed.

    A single check handles concurrency, crash recovery and takeover: only the newest lease can append, and only right
    after the last event. A lease does not expire and needs no renewal; it is valid until somebody takes the next one.
    An unknown session is StoreError `session-unknown`.
    """

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        """Takes a new lease and creates the session if needed. Older leases can no longer append. `owner` is only for
        people."""
        ...

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        """Stores all events, durable, numbered from `expected_seq` + 1 and chained, and returns them with the stored
        lines. On an error nothing is stored: SessionConflict `session-conflict` if another writer was first,
        `lease-lost` if another writer took the lease."""
        ...

    def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        """Yields all events after that number, in order, as of now."""
        ...

    def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        """Yields the stored lines unchanged, with unknown fields, so that the chain can be checked."""
        ...

    async def head(self, key: SessionKey) -> ChainHead:
        """Returns the number of events and the hash of the last one, as stored beside them at each append."""
        ...

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """Returns a tenant's sessions, sorted by key, filtered by app, user and the start of the session's name."""
        ...

    async def orphans(self) -> Sequence[OrphanedEvents]:
        """Returns events of all tenants that cannot be reached by reading any session. They mean that somebody
        changed the store by hand."""
        ...

    async def expire(self, key: SessionKey, at: str | None) -> None:
        """Sets a moment from which the session counts as deleted, even if events are appended until then. None:
        never."""
        ...

    async def delete(self, key: SessionKey) -> None:
        """Deletes the session. Its old leases stay invalid, even if a new session gets the same name."""
        ...

    async def close(self) -> None: ...


class ArtifactStore(Protocol):
    """Store of every version of every saved file. A save is whole or fails, and concurrent saves never lose a version.

    A name that starts with `user:` belongs to the user and is visible in all of the user's sessions. Other names belong
    to the session. A missing artifact is StoreError `artifact-not-found`.
    """

    async def save(self, key: SessionKey, name: str, data: Content, *, mime_type: str | None = None) -> Artifact:
        """Saves a new version: 0, 1, 2 … A number is never used twice, even after a delete."""
        ...

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        """Returns this version or the newest. StoreError `artifact-corrupt` if its bytes are not those that were
        saved."""
        ...

    def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        """Yields the same bytes in chunks, in constant memory."""
        ...

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        """Returns the metadata of this version or of the newest."""
        ...

    async def names(self, key: SessionKey) -> Sequence[str]:
        """Returns every name that has a version, including the user's names, sorted."""
        ...

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        """Returns every version of the name, oldest first; empty if there is none."""
        ...

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        """Removes this version, or all versions of the name."""
        ...


class Readable(Protocol):
    """Open file, for reading only."""

    def read(self, size: int, /) -> bytes: ...


Content = bytes | Readable | Iterable[bytes] | AsyncIterable[bytes]


class Approver(Protocol):
    """Asks a person to approve one call. None means that nobody answered, which is never a yes."""

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None: ...


class Policy(Protocol):
    """Judges calls with code, after the rules of the policy files. It can make a decision stricter, never wider.

    It is asked about every call and every capability, and about skill_load of each skill before a model is told of it.
    It may be asked often and from several threads, so it answers at once, without I/O. An exception means deny.
    """

    def decide(self, call: ToolCall, decision: Decision) -> Decision:
        """Returns the decision, or one with a stricter verdict and the reason in `why`. `decision.about` has facts: the
        `risk`, the `skill` that the call names, by its id, its `source`, if it is `trusted`, and in `reads` the skills
        whose files are read. In `call.args` a skill is named as the model wrote it."""
        ...


class Asker(Protocol):
    """Asks the user a question of the model. None means that nobody is there."""

    async def __call__(self, question: str, choices: Sequence[str]) -> str | None: ...


class SkillSource(Protocol):
    """Skills from a place that is not a folder. They behave exactly like skills on disk."""

    @property
    def source(self) -> Source: ...

    def skills(self) -> Iterable[Skill]:
        """Reads and returns all skills. An unreadable skill is reported as a finding, never by raising."""
        ...


class SecretProvider(Protocol):
    """Gives the value of a declared secret to the runner of a call, and to nobody else."""

    async def find(self, name: str) -> str | None:
        """Returns the value, or None if there is no secret of this name."""
        ...
