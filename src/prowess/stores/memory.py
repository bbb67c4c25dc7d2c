"""Event log and artifact store in memory. They keep the same promises as on disk, but end with the process."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock

from prowess._internal.mime import SNIFF_BYTES, guess_mime
from prowess.core.events import Envelope, parse_event, render_at
from prowess.core.ports import Content
from prowess.core.values import Artifact, ChainHead, Lease, OrphanedEvents, SessionInfo, SessionKey, artifact_scope
from prowess.records.chain import GENESIS, check_fence, parse_expiry, seal, unknown_session
from prowess.stores.artifact_content import large_pieces, not_found, pieces, too_large


class MemoryEventLog:
    """Event log in memory. Lines are stored as text, so that an appended event cannot be changed later."""

    immediate = True  # an append never blocks

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._lock = Lock()  # runs of several threads may share a log
        self._tokens = itertools.count(1)  # shared by all sessions, so that a new session never gets an old token
        self._sessions: dict[SessionKey, _Session] = {}

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        with self._lock:
            now = render_at(self._clock())
            self._remove_expired(now)
            session = self._sessions.setdefault(key, _Session(created_at=now, updated_at=now))
            session.token = next(self._tokens)
            return Lease(key=key, token=session.token, owner=owner)

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        with self._lock:
            session = self._get(key)
            check_fence(key, lease, session.token, expected_seq, session.head.seq)
            sealed, lines = seal(key, session.head, events)
            if sealed:
                session.lines += lines
                session.head = ChainHead(seq=session.head.seq + len(sealed), hash=sealed[-1].hash or "")
                session.updated_at = render_at(self._clock())
            return sealed

    async def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        async for line in self.lines(key, after_seq=after_seq):
            yield parse_event(json.loads(line))

    async def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        """Yields the lines that are stored now."""
        with self._lock:
            lines = self._get(key).lines[max(after_seq, 0) :]
        for line in lines:
            yield line

    async def head(self, key: SessionKey) -> ChainHead:
        with self._lock:
            return self._get(key).head

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        infos: list[SessionInfo] = []
        with self._lock:
            self._remove_expired(render_at(self._clock()))
            for key in sorted(self._sessions):
                if key.tenant != tenant or not key.session.startswith(prefix):
                    continue
                if app not in (None, key.app) or user not in (None, key.user):
                    continue
                infos.append(self._sessions[key].info(key))
        return infos

    async def tenants(self) -> Sequence[str]:
        with self._lock:
            return sorted({key.tenant for key in self._sessions})

    async def expire(self, key: SessionKey, at: str | None) -> None:
        wanted = parse_expiry(at)
        with self._lock:
            self._get(key).expires_at = wanted

    async def prune_expired(self) -> int:
        with self._lock:
            return self._remove_expired(render_at(self._clock()))

    async def delete(self, key: SessionKey) -> None:
        with self._lock:
            self._get(key)
            del self._sessions[key]

    async def orphans(self) -> Sequence[OrphanedEvents]:
        """Returns nothing: here a session and its events cannot be separated."""
        return []

    async def close(self) -> None:
        """Does nothing."""

    def _get(self, key: SessionKey) -> _Session:
        session = self._sessions.get(key)
        if session is None:
            raise unknown_session(key)
        if session.expires_at and session.expires_at <= render_at(self._clock()):
            raise unknown_session(key)
        return session

    def _remove_expired(self, now: str) -> int:
        gone = 0
        for key, session in list(self._sessions.items()):
            if session.expires_at and session.expires_at <= now:
                del self._sessions[key]
                gone += 1
        return gone


class KeptEvents(MemoryEventLog):
    """Event log that also keeps the events of all sessions as values, so that they need not be parsed again."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Envelope] = []

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        stored = await super().append(key, expected_seq, lease, events)
        self.events += stored
        return stored


@dataclass(slots=True, kw_only=True)
class _Session:
    created_at: str
    updated_at: str
    expires_at: str | None = None
    token: int = 0
    head: ChainHead = GENESIS
    lines: list[str] = field(default_factory=list)

    def info(self, key: SessionKey) -> SessionInfo:
        return SessionInfo(
            key=key,
            head=self.head,
            created_at=self.created_at,
            updated_at=self.updated_at,
            expires_at=self.expires_at,
        )


class MemoryArtifacts:
    def __init__(self, *, max_bytes: int = 64 << 20, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = Lock()
        self._kept: dict[_Place, list[tuple[Artifact, bytes] | None]] = {}  # index is the version; None means deleted

    async def save(self, key: SessionKey, name: str, data: Content, *, mime_type: str | None = None) -> Artifact:
        place = _place(key, name)
        content = io.BytesIO()
        if isinstance(data, AsyncIterable):
            async for piece in large_pieces(data):
                self._add(content, piece, name)
        else:
            for piece in pieces(data):
                self._add(content, piece, name)
        whole = content.getvalue()
        if not mime_type:
            mime_type = guess_mime(name, whole[:SNIFF_BYTES])
        with self._lock:
            versions = self._kept.setdefault(place, [])
            artifact = Artifact(
                name=name,
                version=len(versions),
                sha256=hashlib.sha256(whole).hexdigest(),
                size_bytes=len(whole),
                mime_type=mime_type,
                created_at=render_at(self._clock()),
            )
            versions.append((artifact, whole))
            return artifact

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        _, content = self._find(key, name, version)
        return content

    async def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        _, content = self._find(key, name, version)
        for piece in pieces(content):
            yield piece

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        artifact, _ = self._find(key, name, version)
        return artifact

    async def names(self, key: SessionKey) -> Sequence[str]:
        of_session = _place(key, "x")[:4]
        of_user = _place(key, "user:x")[:4]
        found: list[str] = []
        with self._lock:
            for place, kept in self._kept.items():
                *scope, name = place
                if tuple(scope) in (of_session, of_user) and any(kept):
                    found.append(name)
        return sorted(found)

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        """Returns the versions that are not deleted, the newest last."""
        with self._lock:
            return self._live(key, name)

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        self._find(key, name, version)
        with self._lock:
            kept = self._kept[_place(key, name)]
            if version is not None:
                kept[version] = None
                return
            for number in range(len(kept)):
                kept[number] = None

    def _add(self, content: io.BytesIO, piece: bytes, name: str) -> None:
        if content.tell() + len(piece) > self._max_bytes:
            raise too_large(name, self._max_bytes)
        content.write(piece)

    def _find(self, key: SessionKey, name: str, version: int | None) -> tuple[Artifact, bytes]:
        """Returns a version, or else the newest one."""
        with self._lock:
            live = self._live(key, name)
            number = version
            if number is None and live:
                number = live[-1]
            if number is not None and number in live:
                kept = self._kept[_place(key, name)][number]
                if kept is not None:
                    return kept
        raise not_found(name, version, live)

    def _live(self, key: SessionKey, name: str) -> list[int]:
        """Returns the versions that are not deleted, the newest last."""
        live: list[int] = []
        for number, kept in enumerate(self._kept.get(_place(key, name), ())):
            if kept is not None:
                live.append(number)
        return live


_Place = tuple[str, str, str, str, str]


def _place(key: SessionKey, name: str) -> _Place:
    of_user, _ = artifact_scope(name)
    session = "" if of_user else key.session  # no session has an empty name
    return key.tenant, key.app, key.user, session, name
