"""Reads the configuration once: defaults, user file, project file, environment and flags. Each overrides the ones
before.

Every value knows its origin. The config file of an untrusted folder can only make things stricter; its other settings
are ignored, with a finding. Nothing below the surface reads a config file or the environment again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prowess._internal.state_folder import find_own_home, find_state, find_state_dir, store_below
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError
from prowess.policy.trust import tighten
from prowess.runtime.config_file import (
    ConfigText,
    check_settings,
    check_type,
    check_words,
    load_config_text,
)
from prowess.runtime.settings import PATHS, Config, build_config, default_values, describe_fields, load_schema

__all__ = ["Config", "ConfigPlaces", "LoadedConfig", "describe_fields", "find_places", "load_config", "split_roots"]


class ConfigPlaces(NamedTuple):
    """Folders of this call. All are absolute; in `cwd` links are resolved."""

    cwd: str
    home: str
    project: str
    git_root: str | None
    cache_dir: str
    state_dir: str


class Accepted(NamedTuple):
    """Config file of the project that is fully in force, because a person trusts exactly this content.

    `otherwise` is the configuration without that trust.
    """

    path: str
    sha256: str
    otherwise: Config


class LoadedConfig(NamedTuple):
    """Configuration with the origin of each value.

    `origins`: field -> default | the file | `environment NAME` | flag. Each entry of a table has its own origin too.
    """

    config: Config
    origins: dict[str, str]
    findings: tuple[Finding, ...]
    extra_roots: tuple[str, ...]
    project_trusted: bool
    for_this_call: bool = False  # trusted by PROWESS_TRUST, which cannot be revoked
    accepted: Accepted | None = None  # None: nothing in the configuration depends on trust


def find_places(cwd: str, environ: Mapping[str, str]) -> ConfigPlaces:
    """Finds the project: the nearest folder upwards with `.agent/`, else the git root, else the working folder.

    The `.agent/` in the home folder belongs to the user. Home is a project only when it is the working folder.
    """
    cwd = os.path.realpath(cwd)
    own_home = find_own_home(environ)
    home = _absolute(environ.get("PROWESS_HOME") or own_home, cwd, own_home)
    git_root = _find_git_root(cwd)
    return ConfigPlaces(
        cwd=cwd,
        home=home,
        project=_find_project(cwd, home, git_root),
        git_root=git_root,
        cache_dir=_find_cache_dir(environ, cwd, home),
        state_dir=find_state_dir(environ, cwd),
    )


def _find_git_root(cwd: str) -> str | None:
    for folder in _upwards(cwd):
        git = os.path.join(folder, ".git")
        if os.path.exists(git):
            return folder
    return None


def _find_project(cwd: str, home: str, git_root: str | None) -> str:
    user_folder = os.path.realpath(home)

    def may_be_project(folder: str) -> bool:
        return folder == cwd or folder != user_folder

    for folder in _upwards(cwd):
        agent = os.path.join(folder, ".agent")
        if may_be_project(folder) and _is_own(agent, cwd):
            return folder
    if git_root is not None and may_be_project(git_root):
        return git_root
    return cwd


def _find_cache_dir(environ: Mapping[str, str], cwd: str, home: str) -> str:
    named = _find_variable(environ, "PROWESS_CACHE_DIR", "SKILLS_CACHE_DIR")
    if named is not None:
        _, folder = named
        return _absolute(folder, cwd, home)
    caches = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):
        caches = os.path.join(home, ".cache")
    return os.path.join(caches, "prowess")


def _is_own(folder: str, cwd: str) -> bool:
    """True when the folder exists and belongs to us, to root, or to the owner of the working folder.

    In a folder that all can write to, anybody could make a `.agent` and then read the files that are kept in it.
    """
    try:
        found = os.lstat(folder)
        working = os.stat(cwd)
    except OSError:
        return False
    if hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0, working.st_uid):
        return False
    return os.path.isdir(folder)


def load_config(
    places: ConfigPlaces,
    environ: Mapping[str, str],
    *,
    flags: Mapping[str, object] | None = None,
    config_file: str | None = None,
    without_files: bool = False,
    is_trusted: Callable[[str], bool],
    accepts: Callable[[str, str], bool],
) -> LoadedConfig:
    """Merges all layers, lowest first. `flags` has dotted names; None means not given.

    `config_file` replaces the project's file, and is trusted because a person named it. `without_files` skips all
    files, for commands that must work even if a file is broken.
    """
    merged = _Merged()
    project = _ProjectFile()
    for_this_call = _is_on(environ, "PROWESS_TRUST")
    trusted = for_this_call or is_trusted(places.project)
    if without_files:
        config_file = None
    elif path := find_config_file(own_config_folder(places)):
        own = _settings_of(load_config_text(path), places.home, places.home)
        if own.get("store") is not None:  # below the project, whoever ships that folder would choose the file
            own["store"] = store_below(own["store"], find_state(places.state_dir, places.project))
        merged.add(own, path)
    if config_file is not None:
        path = _absolute(config_file, places.cwd, places.home)
        named = load_config_text(path)
        merged.add(_settings_of(named, places.project, places.home), path)
    elif not without_files:
        project = _add_project_file(merged, places, trusted, for_this_call, accepts)
    for settings, origin in _above_files(places, environ, flags or {}):
        merged.add(settings, origin)
        if project.otherwise is not None:
            project.otherwise.add(settings, origin)
    accepted = None
    if project.otherwise is not None and project.otherwise.values != merged.values:
        otherwise = build_config(project.otherwise.values)
        accepted = Accepted(project.path, project.sha256, otherwise)
    config = build_config(merged.values)
    extra_roots = _find_extra_roots(places, environ)
    return LoadedConfig(
        config=config,
        origins=merged.origins,
        findings=tuple(project.findings),
        extra_roots=extra_roots,
        project_trusted=trusted,
        for_this_call=for_this_call,
        accepted=accepted,
    )


def own_config_folder(places: ConfigPlaces) -> str:
    """Returns the folder of the configuration that the person writes, wherever the state folder is."""
    return os.path.join(places.home, ".prowess")


def find_config_file(folder: str) -> str | None:
    """Returns the config file of the folder. Two are an error."""
    paths = (os.path.join(folder, "config.toml"), os.path.join(folder, "config.json"))
    found = [path for path in paths if os.path.lexists(path)]
    if len(found) > 1:
        raise ConfigError(
            f"{folder} has both config.toml and config.json.",
            code="config-two-files",
            hint="Keep one of them: nobody can tell which one you meant.",
        )
    return found[0] if found else None


def _find_extra_roots(places: ConfigPlaces, environ: Mapping[str, str]) -> tuple[str, ...]:
    found = _find_variable(environ, "PROWESS_SKILLS_ROOT", "SKILLS_ROOT")
    if found is None:
        return ()
    roots = [_absolute(root, places.cwd, places.home) for root in split_roots(found[1])]
    return tuple(dict.fromkeys(roots))


def _above_files(
    places: ConfigPlaces, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the settings of environment and flags, which override all files, each with its origin."""
    for name, (primary, fallback) in _COMMAND_LISTS.items():
        found = _find_variable(environ, primary, fallback)
        if found is not None:
            variable, text = found
            programs = re.split(r"[,\s]+", text)
            yield {name: tuple(filter(None, programs))}, f"environment {variable}"
    found = _find_variable(environ, "PROWESS_WORKSPACE_DIR")
    if found is not None:
        variable, folder = found
        yield {"workspace.dir": _absolute(folder, places.cwd, places.home)}, f"environment {variable}"
    settings = _settings_of(_nested(flags), places.cwd, places.home)
    yield settings, "flag"


class _ProjectFile(NamedTuple):
    findings: Sequence[Finding] = ()
    path: str = ""
    sha256: str = ""
    otherwise: _Merged | None = None  # when the whole file counts: the layers without that trust


def _add_project_file(
    merged: _Merged, places: ConfigPlaces, trusted: bool, for_this_call: bool, accepts: Callable[[str, str], bool]
) -> _ProjectFile:
    """Adds the project's file: all of it when it is accepted, else only the settings that tighten.

    A broken file in an untrusted folder is only a finding: a stranger's mistake must not stop anybody's work.
    """
    folder = os.path.join(places.project, ".agent")
    try:
        path = find_config_file(folder)
        if path is None:
            return _ProjectFile()
        file = load_config_text(path)
        settings = _settings_of(file, places.project, places.home)
    except ConfigError as error:
        if trusted:
            raise
        found = Finding(code=error.code, severity="error", path=folder, message=error.message, hint=error.hint)
        return _ProjectFile([found])
    kept, ignored = tighten(merged.values, settings)
    if trusted and (for_this_call or accepts(path, file.sha256)):
        otherwise = merged.copy()
        otherwise.add(kept, path)
        merged.add(settings, path)
        return _ProjectFile((), path, file.sha256, otherwise)
    merged.add(kept, path)
    changed = [make_finding(Note("config-changed"), path)] if trusted else []
    why = "this file changed since the folder was trusted" if trusted else "this folder is not trusted"
    for name in ignored:
        note = Note("config-ignored-untrusted", file.find_line(name), {"field": name[:100], "why": why})
        changed.append(make_finding(note, path))
    return _ProjectFile(changed)


def split_roots(text: str, separator: str = os.pathsep) -> list[str]:
    """Splits a text like PATH, except that the colons of a URL (scheme, password, port) do not end an entry."""
    pieces = re.findall(_ROOT, text) if separator == ":" else text.split(separator)
    stripped = [piece.strip() for piece in pieces]
    return [piece for piece in stripped if piece]


_COMMAND_LISTS = {
    "workspace.commands_allow": ("PROWESS_RUN_ALLOWED_COMMANDS", "TRPC_AGENT_SKILL_RUN_ALLOWED_COMMANDS"),
    "workspace.commands_deny": ("PROWESS_RUN_DENIED_COMMANDS", "TRPC_AGENT_SKILL_RUN_DENIED_COMMANDS"),
}
# Not compiled: most calls need neither pattern, and compiling takes longer than the rest of this module.
_URL = r"[A-Za-z][A-Za-z0-9+.-]+://"
_ROOT = (
    _URL + r"(?:[^/:@]*(?::[^/@]*)?@)?"  # user:password@
    r"(?:\[[^\]/]*\]|[^/:]*)(?::\d+(?=[:/?#]|$))?"  # host:port
    r"[^:]*"
    r"|[^:]+"
)


class _Merged:
    """Values of the layers so far, with their origins."""

    def __init__(self) -> None:
        self.values = default_values()
        self.origins = dict.fromkeys(self.values, "default")

    def copy(self) -> _Merged:
        other = _Merged()
        other.values = dict(self.values)
        other.origins = dict(self.origins)
        return other

    def add(self, settings: Mapping[str, Any], origin: str) -> None:
        """Adds a layer. Tables merge per key, everything else is replaced.

        An entry of a table is replaced whole: the command of an MCP server in one file must never run with the secrets
        that another file gave to a server of the same name.
        """
        for name, value in settings.items():
            if isinstance(value, dict):
                for key in value:
                    self.origins[f"{name}.{key}"] = origin
                value = self.values[name] | value
            self.values[name] = value
            self.origins[name] = origin


def _settings_of(source: ConfigText | Mapping[str, Any], base: str, home: str) -> dict[str, Any]:
    """Returns checked settings with absolute paths: relative ones start from `base`, `~` is the home of this call."""
    called: ConfigText | str = "command line"
    if isinstance(source, ConfigText):
        called = source
        source = source.table
    if not source:
        return {}
    settings = check_settings(source, load_schema(), called)
    for name in PATHS:
        value = settings.get(name)
        if value is None:
            continue
        paths = (value,) if isinstance(value, str) else value
        if "" in paths:
            check_type(name, "a path ('.' is the folder that relative ones start from)", "", called)
        absolute = [_absolute(path, base, home) for path in paths]
        settings[name] = absolute[0] if isinstance(value, str) else tuple(absolute)
    for name in _COMMAND_LISTS:
        for entry in settings.get(name, ()):
            if entry.split() != [entry]:
                check_words(name, entry, called)
    return settings


def _nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None:
            continue
        section, _, last = name.rpartition(".")
        fields = table.setdefault(section, {}) if section else table
        fields[last] = value
    return table


def _absolute(path: str, base: str, home: str) -> str:
    if "://" in path and re.match(_URL, path):
        return path
    if path == "~" or path.startswith(("~/", f"~{os.sep}")):
        path = home + path[1:]
    joined = os.path.join(base, path)
    return os.path.normpath(joined)


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    while folder != (folder := os.path.dirname(folder)):
        yield folder


def _find_variable(environ: Mapping[str, str], *names: str) -> tuple[str, str] | None:
    """Returns (name, value) of the first variable that is set; an empty one counts as not set."""
    for name in names:
        value = environ.get(name, "")
        if value.strip():
            return name, value
    return None


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "").strip().lower()
    if value in ("1", "true", "yes"):
        return True
    if value in ("", "0", "false", "no"):
        return False
    message = f"{name} must be 1 or 0, not {value[:40]!r}."
    raise ConfigError(message, code="config-wrong-type", hint=f"Set {name}=1.")


VARIABLES = (
    "PROWESS_CACHE_DIR",
    "PROWESS_HOME",
    "PROWESS_MANAGED_POLICY",
    "PROWESS_RUN_ALLOWED_COMMANDS",
    "PROWESS_RUN_DENIED_COMMANDS",
    "PROWESS_SKILLS_ROOT",
    "PROWESS_STATE_DIR",
    "PROWESS_TRUST",
    "PROWESS_WORKSPACE_DIR",
)


OLDER_NAMES = (
    "SKILLS_CACHE_DIR",
    "SKILLS_ROOT",
    "TRPC_AGENT_SKILL_RUN_ALLOWED_COMMANDS",
    "TRPC_AGENT_SKILL_RUN_DENIED_COMMANDS",
)


def unknown_variables(environ: Mapping[str, str]) -> list[Finding]:
    """Returns findings for variables that look like ours but are not: most likely a typing mistake."""
    unknown = [name for name in environ if name.startswith("PROWESS_") and name not in VARIABLES]
    if not unknown:
        return []
    import difflib

    found = []
    for name in sorted(unknown):
        near = difflib.get_close_matches(name, VARIABLES, n=1)
        remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(VARIABLES)}"
        note = Note("environment-unknown", None, {"name": name, "remedy": remedy})
        found.append(make_finding(note, name))
    return found
