"""Compares names loosely, and suggests names for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable

_CLOSE = 0.6  # least difflib ratio of two names that are similar
_SLIP = 2  # letters that are too many or missing


def near_names(wanted: str, names: Iterable[str], limit: int = 1) -> list[str]:
    """Returns the names with nearly the same spelling, best first. A shared word does not count: `production-up` is not
    near `production-down`."""
    import difflib  # late: only needed after a miss

    known = list(names)
    close = difflib.get_close_matches(wanted, known, n=limit + 5, cutoff=_CLOSE)
    near = [name for name in close if _differ_little(wanted, name)]
    return near[:limit]


def _differ_little(wanted: str, name: str) -> bool:
    """True when the names are still similar without the words they share."""
    import difflib

    words = wanted.split("-")
    others = name.split("-")
    here = "-".join(word for word in words if word not in others)
    there = "-".join(word for word in others if word not in words)
    if not here or not there:
        rest = here or there
        return len(rest) <= _SLIP
    matcher = difflib.SequenceMatcher(None, there, here)
    return matcher.ratio() >= _CLOSE


def loose_key(text: str) -> str:
    """Returns a name without differences in case, and with `-` for `_` and blanks."""
    key = text.strip().casefold()
    return key.replace("_", "-").replace(" ", "-")
