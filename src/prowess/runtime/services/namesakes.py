"""Finds skills in other roots that have the same name, and tells which one is used, or a name that looks the same. No
root is scanned, nothing is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import cache

from prowess._internal.text import look_of
from prowess.runtime.default_places import all_roots
from prowess.runtime.runtime import Runtime
from prowess.skills.skill import PRIORITY


def find_precedence(runtime: Runtime, folder: str) -> Callable[[str], str]:
    """Returns a function that tells which skill a new, accepted one of a name would stand before or behind in a root.

    It returns "" if no other root has the name, or if the folder is no root. Skills behind an address are not looked
    for. A pack may have 1,000 skills, so the roots are resolved once.
    """
    found = all_roots(runtime.places, runtime.loaded, runtime.trust, ())
    roots = [root for root in found if not root.url]
    roots.sort(key=lambda root: PRIORITY.index(root.source))  # stable: roots keep their given order
    places = [os.path.realpath(root.path) for root in roots]
    here = os.path.realpath(folder)
    if here not in places:
        return lambda name: ""
    at = places.index(here)
    source = roots[at].source
    others: list[int] = []
    for number, place in enumerate(places):
        if number != at and os.path.isdir(place):
            others.append(number)

    @cache
    def looks(number: int) -> dict[str, str]:
        with contextlib.suppress(OSError):
            return {look_of(name): name for name in os.listdir(places[number])}
        return {}

    def tell(name: str) -> str:
        for number in others:
            root = roots[number]
            path = os.path.join(places[number], name)
            skill_md = os.path.join(path, "SKILL.md")
            if not os.path.isfile(skill_md):
                other = looks(number).get(look_of(name), name)
                if other != name:
                    return f"'{name}' looks like {root.source}:{other}, and is another name."
                continue
            id = f"{root.source}:{name}"
            trusted = root.trusted or runtime.trust.accepted_skills.get(path)
            if number > at or not trusted:  # an untrusted skill never stands before a trusted one
                return f"'{name}' will be used instead of {id}, which can still be named by its id."
            return f"'{name}' will stand behind {id}, and can only be named by its id: {source}:{name}."
        return ""

    return tell
