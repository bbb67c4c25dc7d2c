"""Which policy is in force: settings and policy files, as values that `policy` decides with."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prowess._files import read_regular
from prowess.config import Config
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import TOOLS, canonical_tools, describe_unknown
from prowess.policy.decision import CAPABILITIES, RISKS, Surroundings, find_risk
from prowess.policy.rules import Rules, parse_rules

if TYPE_CHECKING:
    from prowess.runtime import Runtime

SYSTEM_POLICY = "/etc/prowess/policy.toml"
_POLICY_BYTES = 1 << 20


def find_surroundings(config: Config) -> Surroundings:
    """The configuration's part in every decision."""
    workspace = config.workspace
    return Surroundings(
        enabled=enabled_tools(config.tools.enable),
        require_approval_for=config.execution.require_approval_for,
        commands_allow=workspace.commands_allow,
        commands_deny=workspace.commands_deny,
        require_isolation=workspace.require_isolation,
        limits={
            "network_request": {"hosts": list(workspace.network_allow), "max_bytes": 1_000_000, "timeout_s": 30},
            "write_file": {"roots": list(workspace.host_roots)},
            "delete_file": {"roots": list(workspace.host_roots)},
        },
    )


def enabled_tools(names: Sequence[str]) -> frozenset[str]:
    """High-risk tools that are switched on, by our names or those of other systems. Others need no switch, and a name
    that means none is a mistake."""
    found = {tool for name in names for tool in canonical_tools(name)}
    wrong = [name for name in names if find_risk(canonical_tools(name)[0]) != "high"]
    if wrong:
        high = [tool for tool, risk in RISKS.items() if risk == "high"]
        near = difflib.get_close_matches(wrong[0], high, n=1)
        meant = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"tools.enable names '{wrong[0][:80]}', which is no tool that can be switched on.{meant}",
            code="tool-unknown",
            hint=f"There are: {', '.join(high)}.",
        )
    return frozenset(found)


class RuleFiles:
    """The policy files as they are now: read again when one was changed, so that what a person takes back holds from
    the next call on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seen: tuple[object, ...] | None = None
        self._rules: list[Rules] = []

    def current(self) -> Sequence[Rules]:
        now = tuple(map(_signature, rule_paths(self._runtime)))
        if now != self._seen:
            self._rules = load_rules(self._runtime)
            self._seen = now
        return self._rules


def _of_project(rules: Rules, accepted: bool) -> Rules:
    return rules if accepted else rules._replace(only_tightens=True, trusted=False)


def _signature(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def rule_paths(runtime: Runtime) -> list[str]:
    """The managed one first: where the variable says, else the system's, if there is one."""
    managed = runtime.environ.get("PROWESS_MANAGED_POLICY") or SYSTEM_POLICY
    return [managed, os.path.join(runtime.places.project, ".agent", "policy.toml")]


def load_rules(runtime: Runtime) -> list[Rules]:
    """The managed file, which can only tighten, and the project's, which can only tighten until it is trusted."""
    found: list[Rules] = []
    managed, path = rule_paths(runtime)
    if runtime.environ.get("PROWESS_MANAGED_POLICY") or os.path.exists(managed):
        found.append(parse_rules(_text(managed), managed)._replace(only_tightens=True))
    if os.path.exists(path):
        text = _text(path)
        found.append(_of_project(parse_rules(text, path), runtime.accepts(path, text)))
    return found


def _text(path: str) -> str:
    try:
        data = read_regular(path, _POLICY_BYTES, follow=True)
        if len(data) > _POLICY_BYTES:
            raise OSError(f"it has more than {_POLICY_BYTES} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The policy {path} cannot be read: {error}.", code="policy-unreadable", hint="Nothing runs without it."
        ) from error


def unknown_tools(rules: Sequence[Rules], known: Sequence[str]) -> list[str]:
    """A rule about a tool that does not exist fits nothing, and a typing mistake would go unseen."""
    names = {*TOOLS, *CAPABILITIES, *known}
    return [
        f"Rule {rule.number} of {rule.path} names a tool that is not known here: {describe_unknown(tool, known=known)}."
        for each in rules
        for rule in each.rules
        for tool in rule.tools
        if tool not in names and "*" not in tool and "?" not in tool and not tool.startswith("mcp__")
    ]
