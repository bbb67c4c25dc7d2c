"""Finds and opens the places where records, runs and workspaces are kept. Imports no agent, so that reading records is
cheap."""

from __future__ import annotations

import difflib
import os
import pwd
import secrets
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from prowess._internal.paths import inside
from prowess._internal.plugins import PluginTable
from prowess._internal.state_folder import ensure_ignored, find_meant, find_scheme, state_folder
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, StoreError
from prowess.records.marks import Marks
from prowess.runtime.config import Config, ConfigPlaces
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


def open_marks(runtime: Runtime, place: str, *, given: bool = False) -> Marks | None:
    """Returns None where every question and answer counts, no matter who wrote it.

    Such places are memory, a shared database that the user named, not the project, and a log that a program has `given`
    and that is no file. A file may have come with a project.
    """
    config = runtime.config
    if given and not os.path.isfile(place):
        return None
    if given:
        return Marks(runtime.places.state_dir, place)
    if config.store == "memory:":
        return None
    named_in = os.path.dirname(runtime.loaded.origins["store"])
    of_project = os.path.join(runtime.places.project, ".agent")
    if is_shared(config) and named_in != of_project:
        return None
    return Marks(runtime.places.state_dir, place)


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
    """Opens `memory:`, an address such as PostgreSQL's, or a SQLite file: the project's, else the user's."""
    store = config.store
    if store == "memory:":
        from prowess.stores.memory import MemoryEventLog

        return MemoryEventLog()
    if store is not None and (server := _find_server(store)):
        return STORES.load(server)(store)
    from prowess.stores.sqlite import SqliteEventLog

    path = _log_file(config, places)
    if store is None:
        ensure_ignored(os.path.dirname(path))
    return SqliteEventLog(path)


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
    return os.path.realpath(_log_file(config, places))


def _without_password(address: str) -> str:
    where, _, query = address.partition("?")
    scheme, _, rest = where.partition("://")
    user, at, host = rest.rpartition("@")
    name = user.partition(":")[0]
    options = [option for option in query.split("&") if not option.startswith("password=")]
    return f"{scheme}://{name}{at}{host}?{'&'.join(options)}"


def _log_file(config: Config, places: ConfigPlaces) -> str:
    if config.store is None:
        return default_log(places)
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


def default_log(places: ConfigPlaces) -> str:
    """Returns the path of the default database. A link in a project must not lead it to another place."""
    folder = state_folder(places.project, places.state_dir)
    if folder == places.state_dir:
        return os.path.join(folder, "prowess.db")
    return inside(places.project, os.path.join(".agent", "prowess.db"))


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
