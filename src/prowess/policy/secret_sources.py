"""Where the values of secrets are: `env:NAME` or `file:PATH`, as the configuration names them, read when one is needed.

A skill gets a secret only if it declares the name and the configuration has it; nothing is looked up by guessing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from prowess._internal.files import read_regular
from prowess.errors import ConfigError

MAX_BYTES = 64 * 1024


class ConfiguredSecrets:
    """A SecretProvider. `base` is where relative paths start from."""

    def __init__(self, sources: Mapping[str, str], environ: Mapping[str, str], base: str) -> None:
        self._sources, self._environ, self._base = dict(sources), environ, base

    async def find(self, name: str) -> str | None:
        source = self._sources.get(name)
        if source is None:
            return None
        kind, _, place = source.partition(":")
        if kind == "env" and place:
            return self._environ.get(place)
        if kind == "file" and place:
            return await asyncio.to_thread(self._read, name, place)
        raise ConfigError(
            f"secrets.{name} names no place where the value is.",
            code="secret-source",
            hint="Write env:NAME or file:PATH; a value itself never belongs into a configuration file.",
        )

    def _read(self, name: str, place: str) -> str:
        path = os.path.join(self._base, os.path.expanduser(place))
        try:
            data = read_regular(path, MAX_BYTES, follow=True)
        except OSError as error:
            raise ConfigError(
                f"secrets.{name} cannot be read: {(error.strerror or 'error').lower()}: {path}",
                code="secret-unreadable",
                hint="Check that the file exists and may be read.",
            ) from error
        if len(data) > MAX_BYTES:
            raise ConfigError(
                f"secrets.{name} has more than {MAX_BYTES} bytes.", code="secret-unreadable", hint="Name another file."
            )
        return data.decode("utf-8", "surrogateescape").rstrip("\r\n")
