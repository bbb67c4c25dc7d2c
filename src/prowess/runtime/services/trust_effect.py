"""Finds the settings and rules of a folder that are ignored until it is trusted, and that are in force afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prowess._internal.digest import content_sha256
from prowess.core.values import Verdict
from prowess.errors import ConfigError
from prowess.policy.rules import PolicyRule, parse_rules
from prowess.policy.trust import Trust
from prowess.runtime.config import ConfigPlaces, find_places, load_config
from prowess.runtime.policy_files import read_policy
from prowess.runtime.services.settings_in_force import flat_settings


class NewSetting(NamedTuple):
    name: str  # with the key, for an entry of a table: `secrets.TOKEN`
    value: Any  # as JSON, without passwords


class NewRule(NamedTuple):
    rule: int
    line: int | None
    verdict: Verdict
    text: str  # all that it asks of a call


class TrustEffect(NamedTuple):
    """Difference that trust in a folder makes, besides its skills. `problems` are mistakes in its files."""

    settings: tuple[NewSetting, ...] = ()
    rules: tuple[NewRule, ...] = ()
    problems: tuple[str, ...] = ()


def find_effect(target: str, environ: Mapping[str, str], trust: Trust) -> TrustEffect:
    """Compares what is in force in the folder now with what will be, under the user's own settings."""
    variables = {name: value for name, value in environ.items() if name != "PROWESS_TRUST"}
    places = find_places(target, variables)
    if places.project != target:  # then nothing reads its files
        return TrustEffect()
    settings: list[NewSetting] = []
    rules: list[NewRule] = []
    problems: list[str] = []
    try:
        settings += _new_settings(places, variables, trust)
    except ConfigError as error:
        problems.append(error.message)
    try:
        rules += _new_rules(target, trust)
    except ConfigError as error:
        problems.append(error.message)
    return TrustEffect(tuple(settings), tuple(rules), tuple(problems))


def _new_settings(places: ConfigPlaces, environ: Mapping[str, str], trust: Trust) -> Iterator[NewSetting]:
    before = load_config(places, environ, is_trusted=trust.trusts_folder, accepts=trust.accepts_file)
    after = load_config(places, environ, is_trusted=lambda folder: True, accepts=lambda path, sha256: True)
    now = flat_settings(before.config)
    for name, value in flat_settings(after.config).items():
        if value == now[name]:
            continue
        if not isinstance(value, dict) or not isinstance(now[name], dict):
            yield NewSetting(name, value)
            continue
        for key, entry in value.items():
            if key not in now[name] or now[name][key] != entry:
                yield NewSetting(f"{name}.{key}", entry)


def _new_rules(target: str, trust: Trust) -> Iterator[NewRule]:
    """Yields the rules that allow. Those that ask or deny are in force without trust."""
    path = os.path.join(target, ".agent", "policy.toml")
    if not os.path.lexists(path):
        return
    text = read_policy(path)
    rules = parse_rules(text, path)
    sha256 = content_sha256(text.encode())
    if trust.trusts_folder(target) and trust.accepts_file(path, sha256):
        return
    for rule in rules.rules:
        if rule.verdict == "allow":
            yield NewRule(rule.number, rule.line, rule.verdict, _render_rule(rule))


def _render_rule(rule: PolicyRule) -> str:
    """Renders `skill_run · command git status · skill release`."""
    commands = [" ".join(command.words) for command in rule.commands]
    parts = [", ".join(rule.tools) or "every tool"]
    conditions = {"command": commands, "skill": rule.skills, "source": rule.sources, "path": rule.paths}
    for name, patterns in (*conditions.items(), *rule.args):
        if patterns:
            parts.append(f"{name} {', '.join(patterns)}")
    return " · ".join(parts)
