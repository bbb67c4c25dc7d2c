"""Looks up names that installed packages add through entry points.

The lookup reads the metadata of all packages, so it is made only for a name that is not our own. A package cannot
replace one of our own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from prowess.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def installed(group: str) -> dict[str, EntryPoint]:
    """Returns the entry points of a group, by name."""
    from importlib.metadata import entry_points  # slow import

    return {entry.name: entry for entry in entry_points(group=group)}


class PluginTable(Generic[T]):
    """Our own names of one kind of thing, and the entry-point group in which packages add more."""

    def __init__(self, group: str, what: str, own: Mapping[str, str]) -> None:
        """Takes `what`, a word for messages, and `own`: name -> `module:attribute`, as in an entry point."""
        self.group = group
        self.what = what
        self.own = own

    def has(self, name: str) -> bool:
        if name in self.own:
            return True
        return name in installed(self.group)

    def added(self) -> list[str]:
        """Returns the names that packages add, sorted."""
        found = installed(self.group)
        return sorted(found.keys() - self.own.keys())

    def names(self) -> list[str]:
        """Returns our own names, then those that packages add."""
        return [*self.own, *self.added()]

    def load(self, name: str) -> T:
        """Imports what the name stands for."""
        place = self.own.get(name)
        if place is not None:
            return _import(place)
        entry = installed(self.group).get(name)
        if entry is None:
            raise self._unknown(name)
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The {self.what} '{name}' is offered by {entry.value}, which cannot be imported: {error}.",
                code="plugin-broken",
                hint="Reinstall or remove the package that offers it.",
            ) from error

    def _unknown(self, name: str) -> ConfigError:
        import difflib

        names = self.names()
        hint = f"There are: {', '.join(names)}."
        near = difflib.get_close_matches(name, names, n=1)
        if near:
            hint = f"Did you mean '{near[0]}'? {hint}"
        return ConfigError(f"There is no {self.what} '{name[:80]}'.", code="plugin-unknown", hint=hint)


def _import(place: str) -> Any:
    from importlib import import_module

    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
