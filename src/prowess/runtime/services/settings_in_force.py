"""Finds the value and the origin of every setting, and the environment variables that are read."""

from __future__ import annotations

from typing import Any, NamedTuple

from prowess._internal.urls import shown_url
from prowess.core.codec import to_json
from prowess.runtime.config import describe_fields
from prowess.runtime.runtime import OLDER_NAMES, VARIABLES, Runtime


class SettingInForce(NamedTuple):
    name: str
    value: Any  # as JSON
    origin: str  # default, a file, environment or flag


def find_settings(runtime: Runtime) -> list[SettingInForce]:
    """Returns every setting, without passwords."""
    names = [name for name, *_ in describe_fields()]
    values = _flat(to_json(runtime.config), names)
    origins = runtime.loaded.origins
    return [SettingInForce(name, _without_password(values.get(name)), origins.get(name, "default")) for name in names]


def find_environment(runtime: Runtime) -> dict[str, str]:
    """Returns the environment variables that are set and that Prowess reads."""
    return {name: value for name in (*VARIABLES, *OLDER_NAMES) if (value := runtime.environ.get(name))}


def _without_password(value: Any) -> Any:
    """Hides the password in an address, such as that of a store."""
    return shown_url(value) if isinstance(value, str) and "://" in value and "@" in value else value


def _flat(document: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Turns sections into dotted names. Tables that users fill stay tables."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if key in names:
            flat[key] = value
        elif isinstance(value, dict):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
    return flat
