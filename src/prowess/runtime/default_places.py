"""Default places: where skills are looked for when nobody says where. The command line and `skills=` use the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from prowess._internal.paths import is_inside
from prowess.policy.trust import Trust, TrustFile
from prowess.runtime.config import ConfigPlaces, LoadedConfig, find_places, load_config
from prowess.skills.roots import BUILTIN_ROOT, default_roots, named_root
from prowess.skills.skill import Root


class DefaultPlaces(NamedTuple):
    roots: list[Root]
    trust: Trust


def find_default_places() -> DefaultPlaces:
    """Reads configuration and trust of the working folder."""
    places = find_places(os.getcwd(), os.environ)
    trust = TrustFile(places.state_dir).current()
    loaded = load_config(places, os.environ, is_trusted=trust.trusts_folder, accepts=trust.accepts_file)
    return DefaultPlaces(all_roots(places, loaded, trust, ()), trust)


def all_roots(places: ConfigPlaces, loaded: LoadedConfig, trust: Trust, flags: Sequence[str]) -> list[Root]:
    """Returns the roots from flags, the environment and the configuration, or the default ones, in that order.

    The flags "builtin" and "default" mean our own skills and the roots without flags.
    """

    def trusts(folder: str) -> bool:
        project = os.path.realpath(places.project)
        if loaded.project_trusted and is_inside(project, os.path.realpath(folder)):
            return True
        return trust.trusts_folder(folder)

    found: list[Root] = []
    for place in flags:
        if place == "default":
            found += all_roots(places, loaded, trust, ())
        elif place == "builtin":
            found.append(BUILTIN_ROOT)
        else:
            found.append(named_root(place, origin="flag", base=places.cwd, home=places.home))
    for place in loaded.extra_roots:
        found.append(named_root(place, origin="environment", base=places.cwd, home=places.home))
    if flags:
        return found
    configured = loaded.config.skill_roots
    if configured is None:
        top = places.git_root or places.project
        return found + default_roots(cwd=places.cwd, top=top, home=places.home, trusts=trusts)
    for place in configured:
        root = named_root(
            place,
            origin="configuration",
            base=places.project,
            home=places.home,
            project=places.project,
            trusts=trusts,
            by_location=True,
        )
        found.append(root)
    return found
