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
from prowess.runtime.config import LoadedConfig
from prowess.runtime.default_places import all_roots
from prowess.runtime.runtime import Runtime, open_runtime
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
        data = read_regular(policy, _MOST_POLICY, follow=True)
        trusted = runtime.accepts(policy, data.decode("utf-8", "replace"))
    found = all_roots(runtime.places, runtime.loaded, runtime.trust, roots)
    there = [root for root in found if root.url or os.path.isdir(root.path)]
    return PortableValues(runtime.places.cwd, there, trusted, _changed_settings(runtime.loaded))


def _changed_settings(loaded: LoadedConfig) -> dict[str, Any]:
    """Returns the settings that are not the default, besides the roots."""
    known = default_values()
    settings: dict[str, Any] = {}
    for name, origin in loaded.origins.items():
        if origin == "default" or name not in known or name == "skill_roots":
            continue
        settings[name] = reduce(getattr, name.split("."), loaded.config)
    return settings


def open_values(values: PortableValues, *, off: Collection[str] = (), more: Sequence[Skill] = ()) -> Runtime:
    """Opens a runtime that stores nothing. Skills in `off` are not there; those in `more` are added."""
    modes = dict(values.settings.get("skills.modes", {}))
    modes |= dict.fromkeys(sorted(off), "off")
    trust = "1" if values.trusted else "0"
    flags = {**values.settings, "skills.modes": modes or None, "store": "memory:", "artifacts": "memory:"}
    opened = open_runtime(
        cwd=values.cwd,
        environ={**os.environ, "PROWESS_TRUST": trust},
        without_files=True,  # the settings have what they say
        flags=flags,
        skills=[*values.roots, *more],
    )
    # Nothing has to be closed: a runtime owns no resources until a session is opened.
    return ExitStack().enter_context(opened)


def catalog_digest(runtime: Runtime) -> str:
    """Returns the digest of the skills that a model can choose from."""
    catalog = runtime.catalog
    entries = [entry for entry in catalog.entries if catalog.visibility(entry).model_visible]
    entries.sort(key=lambda entry: entry.id)
    found: list[tuple[str, str]] = []
    for entry in entries:
        try:
            digest = runtime.load_entry(entry).digest
        except ProwessError:  # it cannot be loaded, so no model can choose it either
            digest = ""
        found.append((entry.id, digest))
    data = json.dumps(found).encode()
    return hashlib.sha256(data).hexdigest()[:16]
