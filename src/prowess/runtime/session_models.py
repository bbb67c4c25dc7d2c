"""Models of sessions: made from a name, a recording or an object, and kept with their connections for the next run.

Connections belong to an event loop, so each loop has a model of its own, which is closed when the loop ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prowess.core.events import Envelope
from prowess.core.ports import ClosableModel, Model
from prowess.core.values import describe_model
from prowess.runtime.storage import open_log

if TYPE_CHECKING:
    from prowess.runtime.factories import SessionOptions
    from prowess.runtime.runtime import Runtime


class KeptModels:
    """Models of one agent, by event loop."""

    def __init__(self) -> None:
        self._models: WeakKeyDictionary[asyncio.AbstractEventLoop, Model] = WeakKeyDictionary()
        self._closers: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[None]] = WeakKeyDictionary()

    def find(self) -> Model | None:
        """Returns the model of the running loop."""
        return self._models.get(asyncio.get_running_loop())

    async def keep(self, model: Model) -> None:
        """Keeps a model that can be closed. Any other is made anew for each run."""
        if not isinstance(model, ClosableModel):
            return
        loop = asyncio.get_running_loop()
        closer = _close_at_end(model)
        await anext(closer)
        self._models[loop] = model
        self._closers[loop] = closer

    async def aclose(self) -> None:
        """Closes the model of the running loop."""
        loop = asyncio.get_running_loop()
        self._models.pop(loop, None)
        closer = self._closers.pop(loop, None)
        if closer is not None:
            await closer.aclose()


async def _close_at_end(model: ClosableModel) -> AsyncGenerator[None]:
    """Waits until it is closed: by its owner, or by the loop, which closes its generators when it ends."""
    try:
        yield
    finally:
        await model.aclose()


async def find_model(runtime: Runtime, options: SessionOptions) -> Model:
    """Returns the model of a session: the kept one, or one that is made now."""
    if options.models is not None:
        kept = options.models.find()
        if kept is not None:
            return kept
    recording = await find_recording(runtime, options)
    model = make_model(runtime, options, recording)
    if options.models is not None:
        await options.models.keep(model)
    return model


def make_model(runtime: Runtime, options: SessionOptions, recording: Sequence[Envelope] = ()) -> Model:
    """Returns the model that was given, named or configured, in the requested protocol. A recording keeps its own."""
    from prowess.models.registry import resolve_model

    model = options.model
    spec = ""
    if model is None or isinstance(model, str):
        config = runtime.config.model
        spec = model or config.provider or ""
        recordings = (lambda run: recording) if recording else None
        base = runtime.places.cwd
        model = resolve_model(spec, environ=runtime.environ, params=config.params, base=base, recordings=recordings)
    if options.protocol != "actions" or spec.startswith("replay:"):
        return model
    if describe_model(model).protocol == "actions":
        return model
    from prowess.models.actions.model import StructuredActions

    return StructuredActions(model)


async def find_recording(runtime: Runtime, options: SessionOptions) -> Sequence[Envelope]:
    """Returns the events of the run that `replay:RUN` names, from the log; nothing for a file or another model."""
    spec = options.model if isinstance(options.model, str) else runtime.config.model.provider or ""
    run = spec.removeprefix("replay:")
    if run == spec or "/" in run or run.endswith(".jsonl"):
        return ()
    log = open_log(runtime.config, runtime.places) if options.log is None else options.log
    try:
        for session in await log.sessions():
            found = [envelope async for envelope in log.read(session.key)]
            runs = {run}
            for each in found:
                if getattr(each.event, "parent", None) == run:
                    runs.add(each.run)
            events = [each for each in found if each.run in runs]
            if events:
                return events
    finally:
        if options.log is None:
            await log.close()
    return ()
