"""Objects that a program gives instead of settings: policies, an executor, an artifact store, secrets.

The caller owns them, and closes them when no run uses them any more. They are foreign code: an exception becomes an
error of ours that names the object, so that it is recorded and ends one call, not the program.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from prowess._internal.caught import catching
from prowess.core.ports import ArtifactStore, Content, Executor, Policy, SecretProvider, Workspace
from prowess.core.values import Artifact, Isolation, Located, SessionKey
from prowess.errors import ConfigError, StoreError, WorkspaceUnavailable
from prowess.workspace.session_folder import Place

T = TypeVar("T")


class GivenObjects(NamedTuple):
    """Objects of one agent. None, or no policy: as the settings say."""

    policies: tuple[Policy, ...] = ()
    executor: Executor | None = None
    artifacts: ArtifactStore | None = None
    secrets: Mapping[str, str] | SecretProvider | None = None


class GivenExecutor:
    """Executor of a program. It is not closed here."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self._name = type(inner).__name__

    async def isolation(self) -> Isolation:
        found: object = await self._ask("isolation", self._inner.isolation)
        if not isinstance(found, Isolation):
            raise _unusable(f"{self._name}.isolation() returned {found!r:.200}, which is no Isolation.")
        return found

    async def programs(self) -> Callable[[str], Located]:
        return await self._ask("programs", self._inner.programs)

    async def open(self, place: Place) -> Workspace:
        return await self._ask("open", lambda: self._inner.open(place))

    async def aclose(self) -> None:
        """Does nothing: its owner closes it."""

    async def _ask(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        with catching(f"{self._name}.{method}()", _unusable):
            return await call()


def _unusable(text: str) -> WorkspaceUnavailable:
    hint = "This is a mistake in the object that was given as executor=, not in the call."
    return WorkspaceUnavailable(text, op="executor", code="executor-failed", hint=hint)


class GivenArtifacts:
    """Artifact store of a program."""

    def __init__(self, inner: ArtifactStore) -> None:
        self._inner = inner
        self._name = type(inner).__name__

    async def save(self, key: SessionKey, name: str, data: Content, *, mime_type: str | None = None) -> Artifact:
        return await self._ask("save", self._inner.save(key, name, data, mime_type=mime_type))

    async def load(self, key: SessionKey, name: str, *, version: int | None = None) -> bytes:
        return await self._ask("load", self._inner.load(key, name, version=version))

    async def stream(self, key: SessionKey, name: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        pieces = self._inner.stream(key, name, version=version)
        while (piece := await self._ask("stream", anext(pieces, None))) is not None:
            yield piece

    async def get(self, key: SessionKey, name: str, *, version: int | None = None) -> Artifact:
        return await self._ask("get", self._inner.get(key, name, version=version))

    async def names(self, key: SessionKey) -> Sequence[str]:
        return await self._ask("names", self._inner.names(key))

    async def versions(self, key: SessionKey, name: str) -> Sequence[int]:
        return await self._ask("versions", self._inner.versions(key, name))

    async def delete(self, key: SessionKey, name: str, *, version: int | None = None) -> None:
        await self._ask("delete", self._inner.delete(key, name, version=version))

    async def _ask(self, method: str, answer: Awaitable[T]) -> T:
        with catching(f"{self._name}.{method}()", _not_kept):
            return await answer


def _not_kept(text: str) -> StoreError:
    return StoreError(text, code="artifacts-failed", hint="This is a mistake in the object given as artifacts=.")


class GivenSecrets:
    """Secrets of a program, before those of the configuration."""

    def __init__(self, given: Mapping[str, str] | SecretProvider, configured: SecretProvider) -> None:
        self._given = given
        self._configured = configured

    async def find(self, name: str) -> str | None:
        value = await self._find_given(name)
        return await self._configured.find(name) if value is None else value

    async def _find_given(self, name: str) -> str | None:
        given = self._given
        if isinstance(given, Mapping):
            return given.get(name)
        what = type(given).__name__
        with catching(f"{what}.find({name!r})", _not_found):
            value: object = given.find(name)
            if inspect.isawaitable(value):
                value = await value
        if value is None or isinstance(value, str):
            return value
        raise _not_found(f"{what}.find({name!r}) returned an object of {type(value).__name__}, not a text.")


def _not_found(text: str) -> ConfigError:
    return ConfigError(text, code="secret-failed", hint="This is a mistake in the object given as secrets=.")


def find_members(protocol: type[Any]) -> list[str]:
    """Returns the names of the methods that a protocol asks for."""
    return [name for name in vars(protocol) if not name.startswith("_")]
