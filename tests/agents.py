"""A session as a library user opens it, with a scripted model and everything else real."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kits import yes
from prowess.agent.agent import Result
from prowess.agent.session import Session
from prowess.core.events import Envelope, render_event
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import open_runtime

KEPT_IN_MEMORY = {"store": "memory:", "artifacts": "memory:"}


@asynccontextmanager
async def open_session(
    root: Path, model: Any, *, settings: Mapping[str, Any] | None = None, cwd: Path | None = None, **options: Any
) -> AsyncIterator[Session]:
    flags = {**KEPT_IN_MEMORY, **(settings or {})}
    with open_runtime(cwd=str(cwd or root), environ=os.environ, roots=[str(root)], flags=flags) as runtime:
        async with runtime.open_session(model=model, **{"approver": yes, **options}) as session:
            yield session


@dataclass
class Played:
    """What came of a script: results (or the error), the events, and what the model saw."""

    model: ScriptedModel
    results: list[Result] = field(default_factory=list)
    error: Exception | None = None
    envelopes: list[Envelope] = field(default_factory=list)

    @property
    def result(self) -> Result:
        return self.results[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [render_event(envelope) for envelope in self.envelopes]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events if not event["type"].endswith("_delta")]

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        return [event["outcome"] for event in self.of("call_acted")]

    def texts(self, request: int = -1) -> list[tuple[str, str]]:
        """(role, text) of every message of a request."""
        return [(m.role, "\n".join(p.text or "" for p in m.parts)) for m in self.model.requests[request][0]]

    def text(self, request: int = -1) -> str:
        return "\n".join(text for _, text in self.texts(request))


def play(
    root: Path,
    replies: Sequence[Any],
    *requests: str | Mapping[str, Any],
    model: ScriptedModel | None = None,
    wrap: Any = None,
    **options: Any,
) -> Played:
    """Run the requests one after the other in one session. An error ends it, and is kept."""
    played = Played(model or ScriptedModel(replies))

    async def work() -> None:
        used = wrap(played.model) if wrap else played.model
        async with open_session(root, used, on_event=(played.envelopes.append,), **options) as session:
            for request in requests or ("go",):
                given = {"request": request} if isinstance(request, str) else dict(request)
                try:
                    played.results.append(await session.run(**given))
                except Exception as error:
                    played.error = error
                    return

    asyncio.run(work())
    return played


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "args": args}]}


def calls(*pairs: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "args": args} for tool, args in pairs]}
