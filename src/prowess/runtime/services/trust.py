"""Finds the content that trust would cover, so that a person sees it first; gives trust and takes it back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prowess._internal.paths import is_inside
from prowess.core.catalog_values import Finding
from prowess.errors import ConfigError, FetchError
from prowess.policy.trust import Trust, grant_folder, grant_url, has_grant, load_trust, revoke
from prowess.runtime.services.trust_effect import TrustEffect, find_effect
from prowess.skills.catalog import Catalog
from prowess.skills.discover import discover
from prowess.skills.roots import FOLDERS
from prowess.skills.scanner import SKIPPED, Bounds
from prowess.skills.skill import Root
from prowess.skills.url_root import open_url_root


class TrustPreview(NamedTuple):
    """Content of a folder or an address that becomes trusted."""

    place: str  # path or address
    catalog: Catalog
    digest: str | None = None  # of an address, which is trusted by its content
    effect: TrustEffect = TrustEffect()  # settings and rules that come into force
    findings: tuple[Finding, ...] = ()


def preview_folder(target: str, environ: Mapping[str, str], trust: Trust) -> TrustPreview:
    """Looks into every place where project skills are searched, and at the configuration and policy. The configuration
    may turn nested skills on."""
    if not os.path.isdir(target):
        raise ConfigError(f"There is no folder {target}.", code="no-folder", hint="Trust is given to a folder.")
    if os.path.dirname(target) == target:
        problem = "The whole file system cannot be trusted."
        raise ConfigError(problem, code="trust-too-wide", hint="Name the folder of a project.")
    roots: list[Root] = []
    for folder in _folders(target):
        places = [os.path.join(folder, name, "skills") for name in FOLDERS]
        roots += [Root("project", place, expected=False) for place in places]
    return TrustPreview(
        place=target,
        catalog=discover(*roots, nested=True),
        effect=find_effect(target, environ, trust),
    )


def _folders(target: str) -> Iterator[str]:
    """Yields the folders in which project skills are searched."""
    bounds = Bounds()
    for seen, (folder, below, _) in enumerate(os.walk(target)):
        if seen >= bounds.max_entries:
            return
        yield folder
        depth = folder[len(target) :].count(os.sep)
        searched: list[str] = []
        if depth < bounds.max_depth:
            searched = [name for name in below if name not in SKIPPED and name not in FOLDERS]
        below[:] = sorted(searched)


def preview_url(url: str, cache_dir: str) -> TrustPreview:
    """Fetches the content of an address."""
    opened = open_url_root(url, cache_dir, max_age_s=0)
    if opened.path is None or opened.digest is None:
        problem = opened.findings[0]
        raise FetchError(problem.message, code=problem.code, hint=problem.hint)
    root = Root("url", opened.path, True, url=None)
    catalog = discover(root)
    return TrustPreview(place=url, catalog=catalog, digest=opened.digest, findings=opened.findings)


def is_trusted(trust: Trust, content: TrustPreview) -> bool:
    """True when this trust was given already, and covers the content as it is now."""
    if content.digest is None:
        return has_grant(trust, content.place)
    return trust.accepts_url(content.place, content.digest)


def give_trust(state_dir: str, content: TrustPreview) -> None:
    """Trusts a folder by its path, or an address by its content."""
    if content.digest is None:
        grant_folder(state_dir, content.place)
    else:
        grant_url(state_dir, content.place, content.digest)


def revoke_trust(state_dir: str, place: str) -> None:
    """Takes trust back. Raises ConfigError when the place was not trusted by itself."""
    if revoke(state_dir, place):
        return
    hint = "See: prowess trust --list"
    folders = [folder.path for folder in load_trust(state_dir).folders]
    above = [path for path in folders if is_inside(path, place)]
    if above:
        hint = f"It is trusted through {above[0]}: prowess trust --revoke {above[0]}"
    raise ConfigError(f"{place} was not trusted by itself.", code="not-trusted", hint=hint)
