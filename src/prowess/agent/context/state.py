"""Holds the session state: loaded skills and selected docs, under the keys of `tools.skills.state`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from prowess.tools.skills.state import DOCS_KEY, LOADED_KEY, parse_docs


class InUse(NamedTuple):
    id: str
    digest: str


class WantedText(NamedTuple):
    """Texts of a skill that belong into the next request."""

    body: bool
    docs: list[str] | None  # None means all docs


class State:
    """State of a session. None in a delta removes a key. Docs of a skill can be selected without its body."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._means: dict[str, InUse] = {}  # by the name in the key

    @property
    def skills(self) -> dict[str, InUse]:
        """Loaded skills, by the name in their key."""
        return {name: each for name, each in self._means.items() if f"{LOADED_KEY}{name}" in self.values}

    @property
    def ids(self) -> list[str]:
        """Ids of skills with a body or docs in use."""
        return [each.id for each in self._means.values()]

    def merge(self, delta: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Applies a delta. `data` of the outcome has the id and digest of the skill that the keys mean."""
        id, digest = data.get("skill"), data.get("digest")
        for key, value in delta.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
            name = key.removeprefix(LOADED_KEY).removeprefix(DOCS_KEY)
            if name != key and value is not None and isinstance(id, str) and isinstance(digest, str):
                self._means[name] = InUse(id, digest)
        self._tidy()

    def unload(self, id: str) -> None:
        for name in [name for name, each in self._means.items() if each.id == id]:
            self.values.pop(f"{LOADED_KEY}{name}", None)
            self.values.pop(f"{DOCS_KEY}{name}", None)
        self._tidy()

    def clear_temporary(self) -> None:
        for key in [key for key in self.values if key.startswith("temp:")]:
            del self.values[key]  # in place, because tools share this dict
        self._tidy()

    def _tidy(self) -> None:
        kept = {key.removeprefix(LOADED_KEY).removeprefix(DOCS_KEY) for key in self.values}
        self._means = {name: each for name, each in self._means.items() if name in kept}

    def wanted(self) -> dict[InUse, WantedText]:
        return {
            each: WantedText(f"{LOADED_KEY}{name}" in self.values, parse_docs(self.values.get(f"{DOCS_KEY}{name}")))
            for name, each in self._means.items()
        }
