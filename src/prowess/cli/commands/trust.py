"""Command `prowess trust`: trusts a folder or an address, lists trust, and revokes it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Literal

import click

from prowess._internal.urls import shown_url
from prowess.cli.app import Call, cli_command
from prowess.cli.line_input import confirm
from prowess.cli.screen import Screen, count
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError, SkillDenied
from prowess.runtime.config import find_places
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.trust import (
    TrustPreview,
    give_trust,
    is_trusted,
    load_trust,
    preview_folder,
    preview_url,
    revoke_trust,
)
from prowess.runtime.services.trust_effect import TrustEffect
from prowess.skills.roots import is_url
from prowess.skills.skill import Entry

if TYPE_CHECKING:
    from prowess.policy.trust import Trust
    from prowess.runtime.documents.permissions import TrustGivenDocument, TrustListDocument, TrustRevokedDocument


_MOST_LINES, _LONGEST = 200, 2_000  # a hostile file could hold a hundred thousand


@cli_command(
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
    state_dir = places.state_dir
    if listing:
        return _list(call, state_dir)
    target = place or places.project
    if not is_url(target):
        target = os.path.realpath(os.path.join(call.cwd, target))
    if revoking:
        return _revoke(call, state_dir, target)
    if is_url(target):
        return _trust_url(call, state_dir, places.cache_dir, target, yes)
    trust = load_trust(state_dir)
    content = preview_folder(target, os.environ, trust)
    if is_trusted(trust, content):
        return _done(call, "folder", target, content, "Trusted already")
    _show_content(call, content, yes)
    if not yes:
        question = f"Trust {visible(target)} and what is below it?"
        if target == os.path.realpath(places.home):
            question += " That is your home folder, with everything in it."
        _confirm(question)
    give_trust(state_dir, content)
    return _done(call, "folder", target, content)


def _trust_url(call: Call, state_dir: str, cache_dir: str, url: str, yes: bool) -> int:
    with call.screen.working("Fetching"):
        content = preview_url(url, cache_dir)
    shown = shown_url(url)
    if is_trusted(load_trust(state_dir), content):
        return _done(call, "url", shown, content, "Trusted already")
    for finding in content.findings:
        message = visible(finding.message)
        call.screen.note(f"{finding.severity}: {message}")
    _show_content(call, content, yes)
    if not yes:
        _confirm(f"Trust this content of {shown}?\n  {content.digest}")
    give_trust(state_dir, content)
    return _done(call, "url", shown, content)


def _show_content(call: Call, content: TrustPreview, yes: bool) -> None:
    """Shows what would come into force: skills, settings and rules. The document that --json and --yes print has all of
    it."""
    screen = call.screen
    if screen.is_json and yes:
        return
    effect = content.effect
    if not len(content.catalog) and effect == TrustEffect():
        screen.note(
            "Nothing here was ignored until now: there are no skills, and no settings or rules that trust changes."
        )
        return
    if len(content.catalog):
        skills = count(len(content.catalog), "skill")
        screen.note(f"{skills} here:")
    for entry in content.catalog:
        _show_skill(screen, entry)
    _show_effect(screen, effect)


def _show_skill(screen: Screen, entry: Entry) -> None:
    words = entry.description.split()
    description = visible(" ".join(words))
    if len(description) > 100:
        description = f"{description[:99]}…"
    name = visible(entry.name)
    path = visible(entry.path)
    screen.note(f"  {name}: {description}  ({path})")


def _show_effect(screen: Screen, effect: TrustEffect) -> None:
    if effect.settings:
        screen.note("Settings that were ignored until now:")
    for setting in effect.settings[:_MOST_LINES]:
        name = visible(setting.name)
        value = json.dumps(setting.value, ensure_ascii=False)
        shown = _cut(visible(value))
        screen.note(f"  {name} = {shown}")
        if setting.name == "store" and "://" in str(setting.value):
            screen.note("    Whoever may write to that store can answer questions.")
    if effect.rules:
        screen.note("Rules that were ignored until now:")
    for rule in effect.rules[:_MOST_LINES]:
        place = f"line {rule.line}" if rule.line else f"rule {rule.rule}"
        shown = _cut(visible(rule.text))
        screen.note(f"  {rule.verdict} {shown}  (.agent/policy.toml, {place})")
    left = len(effect.settings[_MOST_LINES:]) + len(effect.rules[_MOST_LINES:])
    if left:
        screen.note(f"  and {left} more, which is unusual: look at the files before you trust them")
    for problem in effect.problems:
        screen.note(f"There is a mistake, and once it is trusted nothing runs until that is mended: {visible(problem)}")


def _cut(text: str) -> str:
    left = len(text) - _LONGEST
    if left <= 0:
        return text
    beginning = text[:_LONGEST]
    return f"{beginning}… and {left} more characters"


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(
            "Nobody is there to say yes.", code="needs-yes", hint="Look at what is listed, then add --yes."
        )
    if not confirm(question):
        raise SkillDenied("Not trusted.", code="not-confirmed", hint="Nothing was changed.")


def _done(call: Call, kind: Literal["folder", "url"], place: str, content: TrustPreview, done: str = "Trusted") -> int:
    if not call.screen.is_json:
        call.screen.note(f"{done}: {visible(place)}. Take it back with: prowess trust --revoke {visible(place)}")
        return 0
    skills = [entry.name for entry in content.catalog]
    document: TrustGivenDocument = {
        "schema": "prowess.trust-given/1",
        "kind": kind,
        "place": place,
        "digest": content.digest,
        "skills": skills,
        "settings": to_json(content.effect.settings),
        "rules": to_json(content.effect.rules),
        "problems": list(content.effect.problems),
    }
    call.screen.document(document)
    return 0


def _revoke(call: Call, state_dir: str, target: str) -> int:
    revoke_trust(state_dir, target)
    if call.screen.is_json:
        document: TrustRevokedDocument = {"schema": "prowess.trust-revoked/1", "place": target}
        call.screen.document(document)
    else:
        call.screen.note(f"No longer trusted: {target}")
    return 0


def _list(call: Call, state_dir: str) -> int:
    trust = load_trust(state_dir)
    if call.screen.is_json:
        findings = [finding_row(finding) for finding in trust.findings]
        document: TrustListDocument = {
            "schema": "prowess.trust-list/1",
            "folders": to_json(trust.folders),
            "files": to_json(trust.files),
            "urls": to_json(trust.urls),
            "skills": to_json(trust.skills),
            "findings": findings,
        }
        call.screen.document(document)
        return 0
    rows = _rows(trust)
    if rows:
        call.screen.table(["kind", "since", "place"], rows)
    else:
        call.screen.note("Nothing is trusted yet. See: prowess trust --help")
    call.screen.findings(trust.findings)
    return 0


def _rows(trust: Trust) -> list[list[str]]:
    """Returns kind, time and place of everything that is trusted now."""
    rows: list[list[str]] = []
    for folder in trust.folders:
        rows.append(["folder", folder.at, folder.path])
    for url in trust.urls:
        place = f"{url.url} {url.digest[:19]}"
        rows.append(["url", url.at, place])
    newest = {skill.path: skill for skill in trust.skills}
    for skill in newest.values():
        if skill.digest:  # without a digest: accepted no more
            place = f"{skill.path} {skill.digest[:19]}"
            rows.append(["skill", skill.at, place])
    return rows
