"""Finds the value and the origin of every setting, and the environment variables that are read."""

from __future__ import annotations

from typing import Any, NamedTuple

from prowess._internal.urls import shown_url
from prowess.core.codec import to_json
from prowess.runtime.config import OLDER_NAMES, VARIABLES, Config, describe_fields
from prowess.runtime.runtime import Runtime


class SettingInForce(NamedTuple):
    name: str
    value: Any  # as JSON
    origin: str  # default, a file, environment or flag


def find_settings(runtime: Runtime) -> list[SettingInForce]:
    """Returns every setting, without passwords."""
    origins = runtime.loaded.origins
    found: list[SettingInForce] = []
    for name, value in flat_settings(runtime.config).items():
        origin = origins.get(name, "default")
        found.append(SettingInForce(name, value, origin))
    return found


def flat_settings(config: Config) -> dict[str, Any]:
    """Returns the values of all settings by their dotted names, as JSON and without passwords."""
    names = [name for name, *_ in describe_fields()]
    values = _flat(to_json(config), names)
    return {name: _without_password(values.get(name)) for name in names}


def find_environment(runtime: Runtime) -> dict[str, str]:
    """Returns the environment variables that are set and that Prowess reads."""
    found: dict[str, str] = {}
    for name in (*VARIABLES, *OLDER_NAMES):
        value = runtime.environ.get(name)
        if value:
            found[name] = value
    return found


def _without_password(value: Any) -> Any:
    """Hides the password in an address, such as that of a store or of an MCP server."""
    if isinstance(value, dict):
        return {key: _without_password(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_password(item) for item in value]
    if not isinstance(value, str):
        return value
    if "://" in value and "@" in value:
        return shown_url(value)
    return value


def _flat(document: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Turns sections into dotted names. Tables that users fill stay tables."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if key in names:
            flat[key] = value
        elif isinstance(value, dict):
            for name, item in value.items():
                flat[f"{key}.{name}"] = item
    return flat
