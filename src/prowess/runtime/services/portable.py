"""Skills, trust and settings of a runtime as values, from which another process or machine opens the same one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any, NamedTuple

from prowess._internal.files import read_regular
from prowess.errors import ProwessError
from prowess.runtime.runtime import Runtime, all_roots, open_runtime
from prowess.runtime.settings import default_values
from prowess.skills.skill import Root, Skill

_MOST_POLICY = 1 << 20  # bytes


class PortableValues(NamedTuple):
    """Everything that decides about a runtime, besides the files in its roots and the project's policy."""

    cwd: str
    roots: Sequence[Root]
    trusted: bool | None  # the project and its policy
    settings: Mapping[str, Any]


def as_values(runtime: Runtime, roots: Sequence[str]) -> PortableValues:
    """Returns the values of a runtime that was opened with these roots."""
    policy = os.path.join(runtime.places.project, ".agent", "policy.toml")
    trusted = runtime.trusts_project
    if trusted and os.path.isfile(policy):
        trusted = runtime.accepts(policy, read_regular(policy, _MOST_POLICY, follow=True).decode("utf-8", "replace"))
    loaded, known = runtime.loaded, default_values()
    settings = {
        name: reduce(getattr, name.split("."), loaded.config)
        for name, origin in loaded.origins.items()
        if origin != "default" and name in known and name != "skill_roots"
    }
    found = all_roots(runtime.places, loaded, runtime.trust, roots)
    there = [root for root in found if root.url or os.path.isdir(root.path)]
    return PortableValues(runtime.places.cwd, there, trusted, settings)


def open_values(values: PortableValues, *, off: Collection[str] = (), more: Sequence[Skill] = ()) -> Runtime:
    """Opens a runtime that stores nothing. Skills in `off` are not there; those in `more` are added."""
    modes = {**values.settings.get("skills.modes", {}), **dict.fromkeys(sorted(off), "off")}
    opened = open_runtime(
        cwd=values.cwd,
        environ={**os.environ, "PROWESS_TRUST": "1" if values.trusted else "0"},
        without_files=True,  # the settings have what they say
        flags={**values.settings, "skills.modes": modes or None, "store": "memory:", "artifacts": "memory:"},
        more=[*values.roots, *more],
    )
    # Nothing has to be closed: a runtime owns no resources until a session is opened.
    return ExitStack().enter_context(opened)


def catalog_digest(runtime: Runtime) -> str:
    """Returns the digest of the skills that a model can choose from."""
    visible = [each for each in runtime.catalog.entries if runtime.catalog.visibility(each).model_visible]
    found: list[tuple[str, str]] = []
    for entry in sorted(visible, key=lambda entry: entry.id):
        try:
            found.append((entry.id, runtime.load_entry(entry).digest))
        except ProwessError:  # it cannot be loaded, so no model can choose it either
            found.append((entry.id, ""))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
