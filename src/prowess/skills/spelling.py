"""Suggests names for a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable

_CLOSE = 0.6  # least difflib ratio of two names that are similar
_SLIP = 2  # letters that are too many or missing


def near_names(wanted: str, names: Iterable[str], limit: int = 1) -> list[str]:
    """Returns the names with nearly the same spelling, best first. A shared word does not count: `production-up` is not
    near `production-down`."""
    import difflib  # late: only needed after a miss

    close = difflib.get_close_matches(wanted, list(names), n=limit + 5, cutoff=_CLOSE)
    return [name for name in close if _differ_little(wanted, name)][:limit]


def _differ_little(wanted: str, name: str) -> bool:
    """True when the names are still similar without the words they share."""
    import difflib

    words, others = wanted.split("-"), name.split("-")
    here = "-".join(word for word in words if word not in others)
    there = "-".join(word for word in others if word not in words)
    if not here or not there:
        return max(len(here), len(there)) <= _SLIP
    return difflib.SequenceMatcher(None, there, here).ratio() >= _CLOSE
