"""Watches the roots for changes. Reports paths only; the caller reads the library again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prowess.errors import MissingExtra
from prowess.skills.scanner import SKIPPED

if TYPE_CHECKING:
    from threading import Event


def watch_roots(roots: Sequence[str], *, stop: Event | None = None) -> Iterator[set[str]]:
    """Yields the paths of each batch of changes, until `stop` (a threading.Event) is set. Ignores dependency
    folders."""
    try:
        import watchfiles
    except ImportError:
        raise MissingExtra("watch", wanted_for="Watching folders") from None
    folders = [root for root in roots if os.path.isdir(root)]
    if not folders:
        return
    for changes in watchfiles.watch(
        *folders, watch_filter=_is_of_interest, stop_event=stop, step=50, debounce=400, raise_interrupt=False
    ):
        yield {path for _, path in changes}


def _is_of_interest(_: object, path: str) -> bool:
    """True for a path outside of dependency folders."""
    return SKIPPED.isdisjoint(path.split(os.sep))
