"""Finds and opens the places where records, runs and workspaces are kept. Imports no agent, so that reading records is
cheap."""

from __future__ import annotations

import difflib
import os
import pwd
import secrets
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from prowess._internal.named_paths import result_folder
from prowess._internal.plugins import PluginTable
from prowess._internal.state_folder import find_meant, find_scheme
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, StoreError
from prowess.runtime.config import Config, ConfigPlaces
from prowess.runtime.project_state import DATABASE, is_project, make_state, settle_state, state_path, store_of_project
from prowess.stores.run_folders import CopyingLog, CopyPlace
from prowess.workspace.export import find_outside

if TYPE_CHECKING:
    from prowess.core.ports import EventLog
    from prowess.runtime.runtime import Runtime

ROOT_DIR = "/var/lib/prowess"
# Addresses NAME://… of stores. Other packages add theirs in the entry-point group: functions of the address. Besides,
# there are `memory:`, and a SQLite file as a path or as sqlite:///PATH.
STORES: PluginTable[Callable[[str], EventLog]] = PluginTable(
    "prowess.stores",
    "store",
    dict.fromkeys(("postgresql", "postgres"), "prowess.stores.postgres:PostgresEventLog"),
)


def open_log(config: Config, places: ConfigPlaces, copies: CopyPlace | None = None) -> EventLog:
    """Opens the store. With `copies`, runs that end there get a copy, and deleting a session removes its copies."""
    log = open_store(config, places)
    return log if copies is None else CopyingLog(log, copies, on_problem=print_problem)


def find_copies(runtime: Runtime, named: str | None = None) -> CopyPlace | None:
    """Returns the place for copies of runs: the `named` folder, else `.agent/runs` of the project.

    They are written only in a project that the person made or trusts. A store in memory leaves nothing on disk.
    """
    places = runtime.places
    if named is not None:
        return name_copies(places, named)
    agent = os.path.join(places.project, ".agent")
    if runtime.config.store == "memory:" or not os.path.lexists(agent):
        return None
    is_ours = runtime.trusts_project or runtime.trust.has_made(places.project)
    return CopyPlace(places.project, in_project=True, writes=is_ours and runtime.config.record.copies)


def is_shared(config: Config) -> bool:
    """True when other machines may use the same store: it has an address."""
    return config.store is not None and _find_server(config.store) is not None


def _find_server(store: str) -> str | None:
    """Returns the NAME of an address NAME://… that is known, or None."""
    name, mark, _ = store.partition("://")
    if name == "sqlite":
        return None
    is_address = bool(mark) and bool(find_scheme(store))
    return name if is_address and STORES.has(name) else None


def open_store(config: Config, places: ConfigPlaces) -> EventLog:
    """Opens `memory:`, an address such as PostgreSQL's, or a SQLite file: one in the state folder, or one that was
    named. A file that this home did not make is only read."""
    store = config.store
    if store == "memory:":
        from prowess.stores.memory import MemoryEventLog

        return MemoryEventLog()
    if store is not None and (server := _find_server(store)):
        return STORES.load(server)(store)
    from prowess.stores.own_stores import OwnStores
    from prowess.stores.sqlite import SqliteEventLog

    path = log_file(config, places)
    prepare = partial(make_state, places)
    if store is None:
        since = settle_state(places, print_problem)
        if is_project(places) and os.path.lexists(os.path.join(places.project, ".agent", DATABASE)):
            from prowess.runtime.take_over import look_at_old_record

            since = max(since, look_at_old_record(places, print_problem))
        return SqliteEventLog(path, state_dir=places.state_dir, prepare=prepare, answers_since=since)
    result_folder(places.cwd, path)  # a link of a clone could lead to another store of the person
    if OwnStores(places.state_dir).is_foreign(path):
        from prowess.stores.foreign_sqlite import open_foreign

        return open_foreign(path)
    return SqliteEventLog(path, state_dir=places.state_dir, prepare=prepare)


def check_store(config: Config, places: ConfigPlaces) -> None:
    """Refuses an address that is no store. Opens and creates nothing, and asks no server."""
    if is_shared(config):
        open_store(config, places)
    else:
        store_name(config, places)


def store_name(config: Config, places: ConfigPlaces) -> str:
    """Returns the name of the store that sessions belong to, without opening it and without a password.

    A store in memory belongs to its project.
    """
    if config.store == "memory:":
        return f"memory:{os.path.realpath(places.project)}"
    if config.store is not None and is_shared(config):
        return _without_password(config.store)
    if config.store is None:
        return store_of_project(places)
    return os.path.realpath(log_file(config, places))


def _without_password(address: str) -> str:
    where, _, query = address.partition("?")
    scheme, _, rest = where.partition("://")
    user, at, host = rest.rpartition("@")
    name = user.partition(":")[0]
    options = [option for option in query.split("&") if not option.startswith("password=")]
    return f"{scheme}://{name}{at}{host}?{'&'.join(options)}"


def log_file(config: Config, places: ConfigPlaces) -> str:
    """Returns the path of the SQLite file that the store is."""
    if config.store is None:
        return os.path.join(state_path(places), DATABASE)
    path = _sqlite_path(config.store)
    if path is None:
        path = config.store
        problem = _find_store_problem(path)
        if problem is not None:
            raise problem
    return os.path.join(places.project, os.path.expanduser(path))


def _sqlite_path(store: str) -> str | None:
    """Returns the path in `sqlite:///runs.db`, `sqlite:////abs/runs.db` or `sqlite:///~/runs.db`; None for another
    store."""
    if not store.startswith("sqlite:"):
        return None
    path = store.removeprefix("sqlite:///")
    if path in (store, "", ":memory:") or "?" in path:
        hint = "Write sqlite:///runs.db or sqlite:////tmp/runs.db, without options; for a store in memory, memory:."
        raise ConfigError(
            f"The setting store is {store[:200]!r}, which names no file.", code="store-unknown", hint=hint
        )
    return path


def _find_store_problem(store: str) -> ConfigError | None:
    meant = find_meant("store", store)
    if meant:
        message = f"The setting store is {store!r}, which is no store."
        return ConfigError(message, code="store-unknown", hint=meant)
    begins = find_scheme(store)
    for damaged in ("postgres/", "postgresql/"):
        if not begins and store.startswith(damaged):
            begins = damaged
    if not begins:
        return None
    message = f"The setting store begins with {begins!r}, which is no store."
    return ConfigError(message, code="store-unknown", hint=f"{_there_are()} A file of such a name is written ./NAME.")


def _there_are() -> str:
    added = "".join(f", {name}://…" for name in STORES.added())
    return f"Use a path or sqlite:///PATH for a SQLite file, postgresql://…{added}, or memory:."


def name_copies(places: ConfigPlaces, folder: str) -> CopyPlace:
    """Returns the place for copies of runs in a folder that a person named. It need not exist."""
    return CopyPlace(find_outside(places.cwd, os.path.expanduser(folder)))


def print_problem(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


def workspace_dir(config: Config, places: ConfigPlaces) -> str:
    """Returns the folder for workspaces and published skills: the configured one, else one in the cache.

    Root uses ROOT_DIR: its cache is in a home folder that the user of the scripts cannot enter.
    """
    if config.workspace.dir is not None:
        return config.workspace.dir
    if os.geteuid() == 0:
        return ROOT_DIR
    return places.cache_dir


def whoami() -> str:
    """Returns the name of the user, recorded with each approval."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def new_session() -> str:
    return f"s-{secrets.token_hex(6)}"


def name_log(log: EventLog, project: str) -> str:
    """Returns the name of a store that is an object. Its sessions have their workspaces under this name.

    A file has the same name as the address of this file. Another object has the name of its class and of the project,
    so that its sessions go on in the next process.
    """
    path = path_of(log)
    if path:
        return os.path.realpath(path)
    top = os.path.realpath(project)
    if is_in_memory(log):
        return f"memory:{top}"
    kind = type(log)
    return f"{kind.__module__}.{kind.__qualname__}:{top}"


def is_in_memory(log: EventLog | None) -> bool:
    return any(each.__name__ == "MemoryEventLog" for each in type(log).__mro__)  # not imported for this


def path_of(log: EventLog) -> str:
    """File of a log that is a file, else an empty text."""
    return str(getattr(log, "path", ""))


async def check_known(log: EventLog, key: SessionKey) -> None:
    """Checks that the session exists, before anything is written: a lease would create it."""
    sessions = await log.sessions(key.tenant, app=key.app, user=key.user)
    names = [each.key.session for each in sessions]
    if key.session in names:
        return
    near = difflib.get_close_matches(key.session, names, n=1)
    hint = f"Did you mean '{near[0]}'?" if near else "See: prowess sessions list"
    raise StoreError(f"There is no session '{key.session[:100]}'.", code="session-unknown", hint=hint)
