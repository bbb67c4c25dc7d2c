"""Keeps a model with open connections for the next run. Connections belong to an event loop, so each loop has a model
of its own, which is closed when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

from prowess.core.ports import ClosableModel, Model


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
