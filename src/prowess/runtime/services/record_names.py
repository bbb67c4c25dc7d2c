"""Names of runs and sessions that a shell can complete, from the log. Asks no server, and makes no file."""

from __future__ import annotations

import asyncio
import os

from prowess._internal.text import one_line
from prowess.runtime.runtime import open_runtime
from prowess.runtime.services.runs import RunRow, list_runs
from prowess.runtime.services.skill_names import PLAIN, CompletionPlace
from prowess.runtime.storage import is_shared, store_name

_MOST = 100  # newest first


def find_run_ids(place: CompletionPlace) -> dict[str, str]:
    """Returns id and request of the newest runs."""
    return {row.run: one_line(row.request, 80) for row in _rows(place) if PLAIN.fullmatch(row.run)}


def find_session_ids(place: CompletionPlace) -> dict[str, str]:
    """Returns id and last request of the sessions of these runs."""
    found: dict[str, str] = {}
    for row in _rows(place):
        if PLAIN.fullmatch(row.session):
            found.setdefault(row.session, one_line(row.request, 80))
    return found


def _rows(place: CompletionPlace) -> list[RunRow]:
    with open_runtime(cwd=place.cwd, environ=place.environ, config_file=place.config_file) as runtime:
        store = store_name(runtime.config, runtime.places)
        if is_shared(runtime.config) or not os.path.exists(store):
            return []
        return asyncio.run(list_runs(runtime, limit=_MOST)).runs
