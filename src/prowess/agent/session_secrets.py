"""Knows the secrets of a session, and redacts them from everything that is shown or recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from prowess.core.ports import SecretProvider
from prowess.policy.secrets import Redactor


class SessionSecrets:
    """Secrets that the skills of a session declared. A child run shares them with its parent."""

    def __init__(self, provider: SecretProvider | None = None, patterns: Sequence[str] = ()) -> None:
        self.values: Mapping[str, str] = {}  # a run gets those that its skill declares
        self.redactor = Redactor({}, patterns)
        self._provider, self._patterns = provider, patterns
        self._hidden: dict[str, str] = {}
        self._learning = asyncio.Lock()

    @property
    def unredacted(self) -> tuple[str, ...]:
        """Names of secrets that are too short to be redacted."""
        return tuple(name for name in self.redactor.unusable if name in self.values)

    async def learn(self, names: Sequence[str]) -> None:
        """Reads the secrets that a skill declares, for its runs and for redaction."""
        if self._provider is None or not names:
            return
        async with self._learning:
            values = dict(self.values)
            for name in names:
                value = await self._provider.find(name)
                if value is not None:
                    values[name] = value
            self.values = values
            self.hide(values)

    def hide(self, values: Mapping[str, str]) -> None:
        """Redacts these values from everything from now on."""
        self._hidden |= values
        self.redactor = Redactor(self._hidden, self._patterns)

    def redact_text(self, text: str) -> str:
        return self.redactor.redact_text(text)
