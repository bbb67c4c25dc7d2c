"""The half of the composition root that runs things: settings become an executor, stores and a Kit.

It stands apart from `runtime`, because listing skills must not pay for any of it.
"""

from __future__ import annotations

import os
import pwd
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prowess._files import read_regular
from prowess._kit import Kit, KitPolicy
from prowess._paths import inside
from prowess._record import Observer, Recorder
from prowess._state import ensure_ignored, state_folder
from prowess.config import Config, Places
from prowess.errors import ConfigError, WorkspaceUnavailable
from prowess.policy.decision import Surroundings
from prowess.policy.rules import Rules, parse_rules
from prowess.policy.secret_sources import ConfiguredSecrets
from prowess.ports import Approver, EventLog, Executor
from prowess.tools.work import Work, WorkOptions
from prowess.values import SessionKey
from prowess.workspace.box.selftest import DEFAULT_UID
from prowess.workspace.choose import AutoExecutor
from prowess.workspace.limits import parse_limits
from prowess.workspace.local import LocalExecutor
from prowess.workspace.place import find_dir, hold_session
from prowess.workspace.process.processes import Processes
from prowess.workspace.sandbox import SandboxExecutor
from prowess.workspace.script.dependencies import Environments

if TYPE_CHECKING:
    from prowess.runtime import Runtime


_POLICY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KitOptions:
    """What a surface wants of a kit."""

    session: str | None = None  # None: a new one
    approver: Approver | None = None
    on_event: Sequence[Observer] = ()
    on_output: Callable[[str, bytes], None] | None = None
    granted: Sequence[tuple[str, str | None]] = field(default_factory=tuple)


@asynccontextmanager
async def open_kit(runtime: Runtime, options: KitOptions) -> AsyncIterator[Kit]:
    """A kit with everything behind it, closed in the right order: processes first, the record last."""
    config, places = runtime.config, runtime.places
    key = SessionKey(session=options.session or new_session())
    async with AsyncExitStack() as stack:
        if options.session is not None:
            stack.enter_context(hold_session(workspace_dir(config, places), key))
        log = open_log(config, places)
        stack.push_async_callback(log.close)
        processes = await stack.enter_async_context(Processes())
        executor = make_executor(config, places, processes, runtime.environ)
        stack.push_async_callback(executor.aclose)
        recorder = Recorder(
            log, key, await log.lease(key, owner=f"pid {os.getpid()}"), new_run(), on_event=options.on_event
        )
        dir = workspace_dir(config, places)
        work = Work(
            key,
            executor,
            WorkOptions(
                dir=dir,
                uid=find_uid(config),
                host_roots=config.workspace.host_roots,
                limits=parse_limits(config.workspace.limits),
                require=config.workspace.require,
                granted=options.granted,
            ),
            artifacts=runtime.open_artifacts(),
            environments=Environments(os.path.join(dir, "environments"), processes=processes, environ=runtime.environ),
        )
        kit = Kit(
            load=lambda ref, source, trigger: runtime.load(ref, source=source, trigger=trigger),
            work=work,
            recorder=recorder,
            policy=KitPolicy(surroundings=find_surroundings(config), rules=load_rules(runtime), redact=config.redact),
            approver=options.approver,
            secrets=ConfiguredSecrets(config.secrets, runtime.environ, places.project),
            on_output=options.on_output,
        )
        yield await stack.enter_async_context(kit)


def make_executor(config: Config, places: Places, processes: Processes, environ: Mapping[str, str]) -> Executor:
    """The configured one. `auto` is the sandbox, or local where no sandbox works: policy then decides what may run."""
    workspace = config.workspace
    limits, uid = parse_limits(workspace.limits), find_uid(config)
    run_as = DEFAULT_UID if uid is None else uid
    if workspace.executor == "container":
        from prowess.workspace.container.executor import DEFAULT_IMAGE, ContainerExecutor

        if workspace.network_allow:
            raise WorkspaceUnavailable(
                "A list of hosts (workspace.network_allow) cannot be kept in a container, which has no network at all.",
                op="network",
                code="network-not-available",
                hint="Use the sandbox, with bubblewrap; or leave the setting out.",
            )
        image, engine = workspace.image or DEFAULT_IMAGE, environ.get("DOCKER_HOST")
        folder = workspace_dir(config, places)
        return ContainerExecutor(image=image, engine=engine, run_as=run_as, limits=limits, folder=folder)
    open_network = "A script has all of this machine's network: workspace.network_allow cannot be kept here."
    local = LocalExecutor(processes, uid=uid, limits=limits, notes=[open_network] if workspace.network_allow else [])
    if workspace.executor == "local":
        return local
    sandbox = SandboxExecutor(
        processes,
        run_as=run_as,
        limits=limits,
        dir=workspace_dir(config, places),
        network_allow=workspace.network_allow,
    )
    return sandbox if workspace.executor == "sandbox" else AutoExecutor(sandbox, local)


def open_log(config: Config, places: Places) -> EventLog:
    """`memory:`, or a SQLite file: the project's, else the user's."""
    store = config.store
    if store == "memory:":
        from prowess.stores.memory import MemoryEventLog

        return MemoryEventLog()
    if store is not None and "://" in store:
        raise ConfigError(
            f"store is {store[:80]!r}, which this release cannot open.",
            code="store-unknown",
            hint="Use a path for a SQLite file, or memory:.",
        )
    from prowess.stores.sqlite import SqliteEventLog

    path = os.path.join(places.project, os.path.expanduser(store)) if store else default_log(places)
    if store is None:
        ensure_ignored(os.path.dirname(path))
    return SqliteEventLog(path)


def default_log(places: Places) -> str:
    """A link in a project could lead anywhere, and a database would be made there."""
    folder = state_folder(places.project, places.state_dir)
    if folder == places.state_dir:
        return os.path.join(folder, "prowess.db")
    return inside(places.project, os.path.join(".agent", "prowess.db"))


def workspace_dir(config: Config, places: Places) -> str:
    return find_dir(config.workspace.dir, places.cache_dir)


def find_uid(config: Config) -> int | None:
    """Whom scripts run as when we are root; None when we are not, and they run as we do."""
    if os.geteuid() != 0:
        return None
    wanted = config.workspace.run_as
    if wanted is None:
        return DEFAULT_UID
    if isinstance(wanted, str) and not wanted.isdigit():
        try:
            return pwd.getpwnam(wanted).pw_uid
        except KeyError:
            raise ConfigError(
                f"workspace.run_as names '{wanted}', and there is no such user.",
                code="run-as-unknown",
                hint="Name a user of this machine, or a number.",
            ) from None
    return int(wanted)


def find_surroundings(config: Config) -> Surroundings:
    workspace = config.workspace
    return Surroundings(
        enabled=frozenset(config.tools.enable),
        require_approval_for=config.execution.require_approval_for,
        commands_allow=workspace.commands_allow,
        commands_deny=workspace.commands_deny,
        require_isolation=workspace.require_isolation,
    )


def load_rules(runtime: Runtime) -> list[Rules]:
    """The managed file, which can only tighten, and the project's, which can only tighten until it is trusted."""
    found: list[Rules] = []
    managed = runtime.environ.get("PROWESS_MANAGED_POLICY")
    if managed:
        found.append(parse_rules(_text(managed), managed)._replace(only_tightens=True))
    path = os.path.join(runtime.places.project, ".agent", "policy.toml")
    if os.path.exists(path):
        text = _text(path)
        found.append(parse_rules(text, path)._replace(only_tightens=not runtime.accepts(path, text)))
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


def new_session() -> str:
    return f"s-{secrets.token_hex(6)}"


def new_run() -> str:
    return f"r-{secrets.token_hex(6)}"
