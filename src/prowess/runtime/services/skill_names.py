"""Names of skills that a shell can complete. Reads folders; writes nothing and asks no server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prowess._internal.text import one_line
from prowess.runtime.runtime import all_roots, open_runtime
from prowess.skills.scanner import scan

PLAIN = re.compile(r"[\w.@/][\w.@/-]*+")  # a shell would interpret other characters, and `-` begins an option


class CompletionPlace(NamedTuple):
    """Place of a command line that is being typed."""

    cwd: str
    environ: Mapping[str, str]
    roots: Sequence[str] = ()
    config_file: str | None = None


def find_skills(place: CompletionPlace) -> dict[str, str]:
    """Returns name and description of each skill on disk. Addresses are left out, because they would be fetched, and
    there is no cache, because a scan would also write it."""
    found: dict[str, str] = {}
    with open_runtime(
        cwd=place.cwd, environ=place.environ, roots=place.roots, config_file=place.config_file
    ) as runtime:
        for root in all_roots(runtime.places, runtime.loaded, runtime.trust, place.roots):
            if root.url:
                continue
            for entry in scan(root, bounds=runtime.bounds).entries:
                if PLAIN.fullmatch(entry.name):
                    found.setdefault(entry.name, one_line(entry.description, 80))
    return found
