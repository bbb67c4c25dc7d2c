"""Command `prowess trust`: trusts a folder or an address, lists trust, and revokes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

import click

from prowess._internal.paths import is_inside
from prowess._internal.urls import shown_url
from prowess.cli.app import Call, verb
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.core.values import to_json
from prowess.errors import ConfigError, FetchError, SkillDenied
from prowess.policy.trust import TRUSTED_BY_CONTENT, grant_folder, grant_url, load_trust, revoke
from prowess.runtime.config import find_places
from prowess.runtime.policy_files import read_rules
from prowess.runtime.services.documents import finding_row
from prowess.skills.catalog import Catalog
from prowess.skills.discover import discover
from prowess.skills.roots import FOLDERS, is_url
from prowess.skills.scanner import SKIPPED, Bounds
from prowess.skills.skill import Root
from prowess.skills.url_root import open_url_root


@verb(
    "trust",
    example="prowess trust\nprowess trust ../other-project --yes\nprowess trust --list\nprowess trust --revoke .",
)
@click.argument("place", required=False, metavar="[PATH|URL]")
@click.option("--list", "listing", is_flag=True, help="Show what is trusted.")
@click.option("--revoke", "revoking", is_flag=True, help="Take trust back.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")
def command(call: Call, place: str | None, listing: bool, revoking: bool, yes: bool) -> int:
    """Trust a folder or an address, show what is trusted, or take it back.

    Without PATH, the project around the working folder. Skills of a folder that is not trusted are listed for people
    and kept from models. An address is trusted by its content: when that changes, you are asked again.
    """
    places = find_places(call.cwd, os.environ)
    if listing:
        return _list(call, places.state_dir)
    target = place if place and is_url(place) else os.path.realpath(os.path.join(call.cwd, place or places.project))
    if revoking:
        return _revoke(call, places.state_dir, target)
    if is_url(target):
        return _trust_url(call, places.state_dir, places.cache_dir, target, yes)
    if not os.path.isdir(target):
        raise ConfigError(f"There is no folder {target}.", code="no-folder", hint="Trust is given to a folder.")
    if os.path.dirname(target) == target:
        raise ConfigError(
            "The whole file system cannot be trusted.", code="trust-too-wide", hint="Name the folder of a project."
        )
    roots = (Root("project", place, expected=False) for place in roots_below(target))
    catalog = discover(*roots, nested=True)  # the folder's configuration may turn nested skills on
    files = [path for path in configs_below(target) if os.path.isfile(path)]
    wide = " That is your home folder, with everything in it." if target == os.path.realpath(places.home) else ""
    _say_records(call, target)
    _confirm(call, f"Trust {visible(target)} and what is below it?{wide}", catalog, files, yes)
    grant_folder(places.state_dir, target)
    return _done(call, "folder", target, catalog, digest=None, records=records_below(target))


def roots_below(target: str) -> list[str]:
    """Returns every place below a folder where project skills are searched: all become trusted, so all are shown."""
    return [os.path.join(folder, name, "skills") for folder in _folders(target) for name in FOLDERS]


def records_below(target: str) -> list[str]:
    """Returns the records of sessions and runs that are already in the folder, made by anybody."""
    places = (os.path.join(folder, ".agent", name) for folder in _folders(target) for name in ("prowess.db", "runs"))
    return [place for place in places if os.path.lexists(place)]


def configs_below(target: str) -> list[str]:
    return [os.path.join(target, name) for name in TRUSTED_BY_CONTENT]


def _folders(target: str) -> Iterator[str]:
    bounds = Bounds()
    for seen, (folder, below, _) in enumerate(os.walk(target)):
        depth = folder[len(target) :].count(os.sep)
        below[:] = sorted(n for n in below if n not in SKIPPED and n not in FOLDERS) if depth < bounds.max_depth else []
        if seen >= bounds.max_entries:
            return
        yield folder


def _say_records(call: Call, target: str) -> None:
    for place in () if call.screen.is_json else records_below(target):
        call.screen.note(
            f"  {visible(place)} is a record that is here already. If you did not make it, it was shipped."
        )
        call.screen.note("    Answers in it count only where you gave them; everything else is asked again.")


def _trust_url(call: Call, state_dir: str, cache_dir: str, url: str, yes: bool) -> int:
    with call.screen.working("Fetching"):
        opened = open_url_root(url, cache_dir, max_age_s=0)
        if opened.path is None or opened.digest is None:
            problem = opened.findings[0]
            raise FetchError(problem.message, code=problem.code, hint=problem.hint)
        catalog = discover(Root("url", opened.path, True, url=None))
    shown = shown_url(url)
    for finding in opened.findings:
        call.screen.note(f"{finding.severity}: {visible(finding.message)}")
    _confirm(call, f"Trust this content of {shown}?\n  {opened.digest}", catalog, [], yes)
    grant_url(state_dir, url, opened.digest)
    return _done(call, "url", shown, catalog, digest=opened.digest)


def _confirm(call: Call, question: str, catalog: Catalog, files: list[str], yes: bool) -> None:
    screen = call.screen
    if not screen.is_json:
        screen.note(f"{count(len(catalog), 'skill')} here:" if len(catalog) else "No skills here yet.")
        for entry in catalog:
            description = visible(" ".join(entry.description.split()))
            short = description if len(description) <= 100 else description[:99] + "…"
            screen.note(f"  {visible(entry.name)}: {short}  ({visible(entry.path)})")
        for path in files:
            screen.note(f"  {visible(path)} will be in force as it is now:")
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file.read(100_000).splitlines()]
            for line in [line for line in lines if line and not line.startswith("#")]:
                screen.note(f"    {visible(line)}")
            if problem := _find_mistake(path):
                screen.note(f"  It has a mistake, and once it is trusted nothing runs until that is mended: {problem}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "Nobody is there to say yes.", code="needs-yes", hint="Look at the skills first, then add --yes."
        )
    if not click.confirm(question, err=True):
        raise SkillDenied("Not trusted.", code="not-confirmed", hint="Nothing was changed.")


def _find_mistake(path: str) -> str | None:
    """Returns the mistake in a policy file. A mistake in a configuration is reported by the next command."""
    if not path.endswith("policy.toml"):
        return None
    try:
        read_rules(path)
    except ConfigError as error:
        return visible(error.message)
    return None


def _done(
    call: Call, kind: str, place: str, catalog: Catalog, *, digest: str | None, records: Sequence[str] = ()
) -> int:
    if call.screen.is_json:
        skills = [entry.name for entry in catalog]
        document = {"kind": kind, "place": place, "digest": digest, "skills": skills, "records": list(records)}
        call.screen.document({"schema": "prowess.trust-given/1", **document})
    else:
        call.screen.note(f"Trusted: {place}. Take it back with: prowess trust --revoke {place}")
    return 0


def _revoke(call: Call, state_dir: str, target: str) -> int:
    if not revoke(state_dir, target):
        above = [folder.path for folder in load_trust(state_dir).folders if is_inside(folder.path, target)]
        through = f"It is trusted through {above[0]}: prowess trust --revoke {above[0]}" if above else ""
        raise ConfigError(
            f"{target} was not trusted by itself.", code="not-trusted", hint=through or "See: prowess trust --list"
        )
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.trust-revoked/1", "place": target})
    else:
        call.screen.note(f"No longer trusted: {target}")
    return 0


def _list(call: Call, state_dir: str) -> int:
    trust = load_trust(state_dir)
    if call.screen.is_json:
        document = to_json(trust)
        document["findings"] = [finding_row(finding) for finding in trust.findings]
        call.screen.document({"schema": "prowess.trust-list/1", **document})
        return 0
    rows = [["folder", folder.path, folder.at] for folder in trust.folders]
    rows += [["url", f"{url.url} {url.digest[:19]}", url.at] for url in trust.urls]
    if rows:
        call.screen.table(["kind", "since", "place"], [[kind, at, what] for kind, what, at in rows])
    else:
        call.screen.note("Nothing is trusted yet. See: prowess trust --help")
    call.screen.findings(trust.findings)
    return 0
