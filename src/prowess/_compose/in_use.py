"""Which skills a session has loaded, and which of their docs: its state, under the keys of `tools/skill_state`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from prowess.tools.skill_state import DOCS_KEY, LOADED_KEY, parse_docs


class InUse(NamedTuple):
    id: str
    digest: str


class State:
    """The state of a session. A delta with None removes a key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.skills: dict[str, InUse] = {}  # by the name in their key

    def merge(self, delta: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """`data` of the outcome says which content a loaded key means."""
        for key, value in delta.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
            name = key.removeprefix(LOADED_KEY)
            if name == key:
                continue
            if value is None:
                self.skills.pop(name, None)
            elif isinstance(data.get("skill"), str) and isinstance(data.get("digest"), str):
                self.skills[name] = InUse(data["skill"], data["digest"])

    def unload(self, id: str) -> None:
        for name in [name for name, each in self.skills.items() if each.id == id]:
            del self.skills[name]
            self.values.pop(f"{LOADED_KEY}{name}", None)
            self.values.pop(f"{DOCS_KEY}{name}", None)

    def clear_temporary(self) -> None:
        for key in [key for key in self.values if key.startswith("temp:")]:
            del self.values[key]  # in place: tools look at this very table
        self.skills.clear()

    def wanted(self) -> dict[tuple[str, str], list[str] | None]:
        """(id, digest) -> selected docs; None is all of them."""
        found: dict[tuple[str, str], list[str] | None] = {}
        for name, each in self.skills.items():
            found[each.id, each.digest] = parse_docs(self.values.get(f"{DOCS_KEY}{name}"))
        return found
