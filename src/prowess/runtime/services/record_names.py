"""Ids of runs and sessions that a shell can complete, from the copies of runs. Opens no store and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prowess._internal.text import one_line
from prowess.runtime.config import find_places
from prowess.runtime.services.find_run import copies, load_summary, named_session
from prowess.runtime.services.skill_names import PLAIN, CompletionPlace
from prowess.runtime.storage import runs_folder

_MOST = 100  # newest first


def find_run_ids(place: CompletionPlace) -> dict[str, str]:
    """Returns id and request of the newest runs."""
    found: dict[str, str] = {}
    for run, told in _summaries(place):
        found[run] = _request_of(told)
    return found


def find_session_ids(place: CompletionPlace) -> dict[str, str]:
    """Returns id and last request of the sessions of these runs."""
    found: dict[str, str] = {}
    for _, told in _summaries(place):
        session = named_session(told)
        if session and PLAIN.fullmatch(session):
            found.setdefault(session, _request_of(told))
    return found


def _summaries(place: CompletionPlace) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yields id and summary of each run."""
    places = find_places(place.cwd, place.environ)
    for number, (name, folder) in enumerate(copies(runs_folder(places))):
        if number >= _MOST:
            return
        _, _, run = name.partition("Z-")
        if PLAIN.fullmatch(run):
            yield run, load_summary(folder) or {}


def _request_of(told: Mapping[str, object]) -> str:
    request = told.get("request")
    if not isinstance(request, str):
        return ""
    return one_line(request, 80)
