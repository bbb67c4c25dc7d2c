"""Names that a misspelt name may mean."""

from __future__ import annotations

from collections.abc import Iterable

_CLOSE = 0.6  # of difflib: every second letter or more stands where it should
_SLIP = 2  # letters that are too many or too few


def near_names(wanted: str, names: Iterable[str], limit: int = 1) -> list[str]:
    """The names that are spelled nearly like it, best first. A word that both have is no reason: `production-up` is not
    near `production-down`."""
    import difflib  # late: only a miss pays for it

    close = difflib.get_close_matches(wanted, list(names), n=limit + 5, cutoff=_CLOSE)
    return [name for name in close if _differ_little(wanted, name)][:limit]


def _differ_little(wanted: str, name: str) -> bool:
    """Tell whether what is left is near as well, without the words that both have."""
    import difflib

    words, others = wanted.split("-"), name.split("-")
    here = "-".join(word for word in words if word not in others)
    there = "-".join(word for word in others if word not in words)
    if not here or not there:
        return max(len(here), len(there)) <= _SLIP
    return difflib.SequenceMatcher(None, there, here).ratio() >= _CLOSE
