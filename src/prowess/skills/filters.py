"""Makes the condition of a filtered view from a function, names and a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prowess.core.catalog_values import Source
from prowess.errors import ConfigError
from prowess.skills.name_patterns import matches_any, matches_pattern
from prowess.skills.skill import PRIORITY, Entry

if TYPE_CHECKING:
    from prowess.skills.catalog import Catalog

Keep = Callable[[Entry], bool]


def make_filter(
    catalog: Catalog, keep: Keep | None, names: str | Iterable[str] | None, source: Source | None
) -> Callable[[Entry], bool]:
    """Returns a function that is true for the entries that satisfy all conditions. Names are resolved in the catalog
    now: SkillNotFound for one that means no skill."""
    if keep is not None and not callable(keep):
        raise _refused(
            f"where({keep!r}) is no function.", 'Give a function of an entry, or names, as in names=["pdf"].'
        )
    if source is not None and source not in PRIORITY:
        raise _refused(f"where(source={source!r}) is no source.", f"Use one of {', '.join(PRIORITY)}.")
    patterns = None if names is None else _resolve(catalog, names)

    def is_kept(entry: Entry) -> bool:
        if source is not None and entry.source != source:
            return False
        if patterns is not None and not any(matches_pattern(pattern, entry) for pattern in patterns):
            return False
        return keep is None or bool(keep(entry))

    return is_kept


def _resolve(catalog: Catalog, names: str | Iterable[str]) -> list[str]:
    """Returns the patterns. A nearly right name becomes the right one."""
    patterns: list[str] = []
    for name in [names] if isinstance(names, str) else names:
        if not isinstance(name, str):
            raise _refused(f"where(names=…) has {name!r}, which is no name.", 'Give names, as in names=["pdf"].')
        if not matches_any(name, catalog):
            name = catalog.get(name).qualified
        patterns.append(name)
    return patterns


def _refused(message: str, hint: str) -> ConfigError:
    return ConfigError(message, code="filter-invalid", hint=hint)
