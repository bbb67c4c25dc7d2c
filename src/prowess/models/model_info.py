"""Costs of tokens and context windows of models.

Prices come from the configuration: a price list in this file would soon be out of date. The windows of well-known
models are listed here. For another model, set `context_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.events import ModelReplied
from prowess.core.ports import ClosableModel, Model
from prowess.core.values import Message, ToolSpec, find_cost

_NOT_LIVE = ("scripted", "mock", "offline", "replay")  # models that cost nothing


def is_live(model: str) -> bool:
    """True for a model of a provider, which costs money and answers differently each time."""
    provider, _, _ = model.partition(":")
    return provider not in _NOT_LIVE


class PricedModel:
    """Model that adds up the cost of its replies. `cost` is None as long as no price is known."""

    cost: float | None = None

    def __init__(self, model: Model, prices: Mapping[str, float]) -> None:
        self.name = model.name
        self._model = model
        self._prices = prices

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec], **options: Any) -> ModelReplied:
        replied = await self._model.reply(messages, tools, **options)
        cost = find_cost(replied.usage, self._prices)
        if cost is not None:
            before = self.cost or 0.0
            self.cost = cost + before
        return replied

    async def aclose(self) -> None:
        if isinstance(self._model, ClosableModel):
            await self._model.aclose()


# The longest matching prefix counts. A size is listed only if the provider documents it for every model of the prefix.
_WINDOWS = {
    "gpt-4o": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 400_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude-": 200_000,
}


def configured_window(spec: str, params: Mapping[str, Any]) -> int | None:
    """Returns the window of a model named `provider:name`, without making the model."""
    provider, _, name = spec.partition(":")
    said = params.get("context_tokens")
    if provider not in ("openai", "anthropic"):
        return None
    if isinstance(said, int) and said > 0:
        return said
    return find_window(name)


# Models without structured answers. All newer ones of these providers have them.
_NO_SCHEMAS = {
    "openai": ("gpt-3.5", "gpt-4-", "gpt-4o-2024-05-13", "o1-mini", "o1-preview", "chatgpt-"),
    "anthropic": (
        *("claude-2", "claude-3", "claude-instant"),
        *("claude-opus-4-0", "claude-opus-4-2", "claude-sonnet-4-0", "claude-sonnet-4-2"),  # claude-opus-4-20250514
    ),
}


def takes_schemas(provider: str, name: str) -> bool:
    """True if the provider itself can hold this model to a JSON Schema, also while tools are offered."""
    return name != "gpt-4" and not name.startswith(_NO_SCHEMAS[provider])


def find_window(name: str) -> int | None:
    """Returns the window of a well-known model."""
    fits = [start for start in _WINDOWS if name.startswith(start)]
    if not fits:
        return None
    longest = max(fits, key=len)
    return _WINDOWS[longest]
