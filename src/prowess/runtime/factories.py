"""Makes executors, stores, models, kits and sessions from settings.

Apart from `runtime`, because listing skills must not pay for these imports. A kit needs neither loop nor model: they
are imported when a session is opened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypedDict

from prowess._internal.light_dataclass import dataclass
from prowess.agent.observers import Observer
from prowess.agent.output import OutputForm
from prowess.agent.recorder import Recorder, new_run
from prowess.agent.toolkit import Toolkit
from prowess.agent.toolkit_options import HumanChannels, KitPolicy, KitStyle, Offer, SkillAccess
from prowess.core.events import ProtocolName
from prowess.core.ports import (
    Approver,
    Asker,
    ClosableModel,
    EventLog,
    Executor,
    FiniteModel,
    Model,
    RecordedModel,
    SecretProvider,
    Toolset,
)
from prowess.core.values import SessionKey, Usage, describe_model, find_cost
from prowess.errors import ConfigError, ProwessError
from prowess.policy.approvals import UserApprovals
from prowess.policy.secrets import ConfiguredSecrets
from prowess.runtime.config import Config, ConfigPlaces
from prowess.runtime.default_places import all_roots
from prowess.runtime.given_objects import GivenObjects, GivenSecrets
from prowess.runtime.policy_files import RuleFiles, find_surroundings
from prowess.runtime.session_models import KeptModels, find_model, find_recording, make_model
from prowess.runtime.settings import EXECUTORS
from prowess.runtime.storage import (
    check_known,
    find_copies,
    is_in_memory,
    name_log,
    new_session,
    open_log,
    path_of,
    store_name,
    whoami,
    workspace_dir,
)
from prowess.skills.load import load_published
from prowess.skills.skill import Entry, Root, Skill
from prowess.tools.run.packages import configured_packages
from prowess.tools.session_work import SessionWork, WorkBackend, WorkOptions
from prowess.workspace.executors.setup import OwnExecutorSetup
from prowess.workspace.limits import parse_limits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.posix_client import open_processes
from prowess.workspace.run_as import find_uid
from prowess.workspace.scripts.environments import Environments
from prowess.workspace.session_folder import hold_session

if TYPE_CHECKING:
    from prowess.agent.agent import AgentSpec, Limits, LoadMode, Placement
    from prowess.agent.session import Session
    from prowess.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class KitOptions:
    """Options of a kit that a surface sets."""

    session: str | None = None  # None: a new one
    tenant: str = "default"
    app: str = "default"
    user: str = "default"
    approver: Approver | None = None
    on_event: Sequence[Observer] = ()
    on_output: Callable[[str, bytes], None] | None = None
    granted: Sequence[tuple[str, str | None]] = field(default_factory=tuple)
    asker: Asker | None = None
    toolsets: Sequence[Toolset] = ()
    instructions: str = ""
    on_ask: Literal["wait", "deny"] = "wait"
    log: EventLog | None = None  # owned and closed by the caller
    copies: str | None = None  # folder for copies of the runs; None: the project's
    objects: GivenObjects = field(default_factory=GivenObjects)  # used instead of what the settings name
    standing: bool = True  # read and add standing approvals of the user
    must_exist: bool = False  # the session must exist already
    # Options that the command needs again to resume or repeat a run. None: a program makes the run.
    resume_arguments: tuple[str, ...] | None = ()
    ask_unisolated: bool = False  # ask about every command without isolation, even if it is allowed
    goes_on: bool = False  # take up the history of the session; the run begins with the first call
    offer: Offer | None = None  # tools for the model of another agent; None: as configured
    prefix: str = ""  # of the names of these tools
    deps: object = None  # object that functions find in their ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions(KitOptions):
    """Options of a session: a kit, and a model that uses it. None means: as configured."""

    model: str | Model | None = None
    models: KeptModels | None = None  # keeps the model for the next session; None: it is closed with this one
    protocol: ProtocolName | None = None
    limits: Limits | None = None
    load_mode: LoadMode | None = None
    placement: Placement | None = None
    summarise: bool = False
    output: OutputForm | None = None  # form of the answer; None: any text


class KitKeywords(TypedDict, total=False):
    """Fields of KitOptions as keywords."""

    session: str | None
    tenant: str
    app: str
    user: str
    approver: Approver | None
    on_event: Sequence[Observer]
    on_output: Callable[[str, bytes], None] | None
    granted: Sequence[tuple[str, str | None]]
    asker: Asker | None
    toolsets: Sequence[Toolset]
    instructions: str
    on_ask: Literal["wait", "deny"]
    log: EventLog | None
    copies: str | None
    standing: bool
    must_exist: bool
    resume_arguments: tuple[str, ...] | None
    ask_unisolated: bool
    goes_on: bool
    offer: Offer | None
    prefix: str
    deps: object
    objects: GivenObjects


class SessionKeywords(KitKeywords, total=False):
    """Fields of SessionOptions as keywords."""

    model: str | Model | None
    models: KeptModels | None
    protocol: ProtocolName | None
    limits: Limits | None
    load_mode: LoadMode | None
    placement: Placement | None
    summarise: bool
    output: OutputForm | None


@asynccontextmanager
async def open_kit(runtime: Runtime, options: KitOptions) -> AsyncIterator[Toolkit]:
    """Opens a kit with everything behind it. Closes in the right order: processes first, the record last."""
    async with AsyncExitStack() as stack:
        kit, log = await _open_kit(runtime, options, stack)
        if options.goes_on:
            from prowess.agent.session import restore_from_log

            stack.push_async_exit(kit)
            await restore_from_log(kit, log)
            yield kit
        else:
            yield await stack.enter_async_context(kit)


@asynccontextmanager
async def open_session(runtime: Runtime, options: SessionOptions) -> AsyncIterator[Session]:
    """Opens a session with its history, ready for a request."""
    from prowess.agent.session import Session, restore_from_log

    model = await _find_model(runtime, options)
    agent = _make_agent(runtime, options, model)
    async with AsyncExitStack() as stack:
        is_ours = isinstance(options.model, str | None)
        if is_ours and options.models is None and isinstance(model, ClosableModel):
            stack.push_async_callback(model.aclose)
        kit, log = await _open_kit(runtime, options, stack, model)
        stack.push_async_callback(kit.recorder.close)
        stack.push_async_callback(kit.work.aclose)
        if options.session is not None:
            await restore_from_log(kit, log)
        session = Session(agent, kit, resume_arguments=options.resume_arguments)
        yield session
        if is_ours and session.answered and isinstance(model, FiniteModel):
            model.assert_finished()  # replies that were not asked for: the script does not fit this run


async def check_model(runtime: Runtime, options: SessionOptions) -> None:
    """Makes the model of a session and closes it. Sends nothing."""
    recording = await find_recording(runtime, options)
    model = make_model(runtime, options, recording)
    _make_agent(runtime, options, model)
    if isinstance(model, ClosableModel):
        await model.aclose()


async def _find_model(runtime: Runtime, options: SessionOptions) -> Model:
    model = options.model
    if isinstance(model, str | None) or options.protocol == "actions":
        return await find_model(runtime, options)
    return model


def _make_agent(runtime: Runtime, options: SessionOptions, model: Model) -> AgentSpec:
    from prowess.agent.agent import AgentSpec, Limits  # only a session needs them
    from prowess.runtime.recorded_output import find_recorded_output

    config = runtime.config
    name = str(getattr(model, "name", ""))
    limits = options.limits or Limits(**config.limits._asdict())
    prices = find_prices(runtime, name)
    if limits.cost is not None:
        check_price(name, prices)
    output = options.output
    if output is None and isinstance(model, RecordedModel):
        output = find_recorded_output(model)
    return AgentSpec(
        model=model,
        limits=limits,
        load_mode=options.load_mode or config.skills.load_mode,
        placement=options.placement or config.skills.placement,
        prices=prices,
        code_blocks=config.tools.code_blocks,
        summarise=options.summarise,
        output=output,
    )


def find_prices(runtime: Runtime, model: str) -> Mapping[str, float]:
    """Returns the prices of a model, which the configuration has by its whole name or by the part after `:`."""
    prices = runtime.config.prices
    short_name = model.partition(":")[2]
    return prices.get(model) or prices.get(short_name) or {}


def check_price(model: str, prices: Mapping[str, float]) -> None:
    """Raises ConfigError when the cost of a model is not known, so that no limit on it can be kept."""
    if find_cost(Usage(), prices) is not None:
        return
    message = f"There is a cost limit, but no price of the model '{model}' is known."
    hint = f'Add it to the configuration: [prices."{model}"] input = …, cached = …, output = …'
    raise ConfigError(message, code="price-unknown", hint=hint)


async def _open_kit(
    runtime: Runtime, options: KitOptions, stack: AsyncExitStack, model: Model | None = None
) -> tuple[Toolkit, EventLog]:
    config = runtime.config
    places = runtime.places
    session = new_session() if options.session is None else options.session
    key = SessionKey(tenant=options.tenant, app=options.app, user=options.user, session=session)
    store = store_name(config, places) if options.log is None else name_log(options.log, places.project)
    if options.session is not None or config.store != "memory:":  # a new session in memory is known to nobody else
        held = hold_session(workspace_dir(config, places), store, key)
        stack.enter_context(held)
    log = options.log
    if log is None:
        log = open_log(config, places, find_copies(runtime, options.copies))
        stack.push_async_callback(log.close)
    if options.must_exist:
        await check_known(log, key)
    work = await _open_work(runtime, options, stack, key, store, log)
    recorder = await _open_recorder(runtime, options, log, key)
    skills = skill_access(runtime, f"{work.options.dir}/trees", model)
    policy = make_policy(runtime, options)
    style = find_style(config, options, model)
    people = HumanChannels(approver=options.approver, asker=options.asker)
    secrets: SecretProvider = ConfiguredSecrets(config.secrets, runtime.environ, places.project)
    given = options.objects.secrets
    if given is not None:
        secrets = GivenSecrets(given, secrets)
    kit = Toolkit(
        skills=skills,
        work=work,
        recorder=recorder,
        policy=policy,
        style=style,
        people=people,
        secrets=secrets,
        toolsets=options.toolsets,
        on_output=options.on_output,
        resume_arguments=options.resume_arguments,
        goes_on=options.goes_on,
        deps=options.deps,
    )
    hidden = await configured_secrets(runtime)
    if isinstance(given, Mapping):
        hidden |= given
    kit.secrets.hide(hidden)
    return kit, log


def make_policy(runtime: Runtime, options: KitOptions) -> KitPolicy:
    rules = RuleFiles(runtime)
    rules.current()  # a file that cannot be read fails before anything begins
    approvals = None
    if options.standing:
        approvals = UserApprovals(runtime.places.state_dir, whoami(), options.tenant, options.user)
    return KitPolicy(
        surroundings=find_surroundings(runtime.config),
        rules=rules.current,
        objects=options.objects.policies,
        approvals=approvals,
        redact=runtime.config.redact,
        on_ask=options.on_ask,
        ask_unisolated=options.ask_unisolated,
    )


async def _open_work(
    runtime: Runtime, options: KitOptions, stack: AsyncExitStack, key: SessionKey, store: str, log: EventLog
) -> SessionWork:
    """Makes the work of a session. The stack closes what is behind it."""
    config = runtime.config
    settings = config.workspace
    is_kept = config.store != "memory:" and not is_in_memory(options.log)
    kept_in = path_of(log) or "elsewhere" if is_kept else None
    work_options = WorkOptions(
        dir=workspace_dir(config, runtime.places),
        host_roots=settings.host_roots,
        require=settings.require,
        inline_bytes=settings.inline_bytes,
        granted=options.granted,
        searched=find_searched(runtime),
        store_name=store,
        store=kept_in,
    )
    opened = await stack.enter_async_context(AsyncExitStack())
    if not _has_plain_work(config):
        backend = make_backend(runtime, opened, options.objects)  # a wrong setting fails before anything begins
        return SessionWork(key, work_options, lambda: backend)
    return SessionWork(key, work_options, lambda: make_backend(runtime, opened, options.objects))


def _has_plain_work(config: Config) -> bool:
    """True when nothing that the backend is made of can be wrong, because it has its defaults."""
    workspace = config.workspace
    given = (workspace.run_as, workspace.limits, workspace.network_allow, workspace.image, workspace.python)
    if workspace.executor != "auto" or any(given):
        return False
    return config.artifacts is None and not config.skills.dependencies


def find_searched(runtime: Runtime) -> list[str]:
    """Returns the folders that are searched for skills, now or without --root."""
    usual: list[Root] = []
    with suppress(ConfigError):  # a wrong root is told where it is used
        usual = all_roots(runtime.places, runtime.loaded, runtime.trust, ())
    return [root.path for root in (*runtime.catalog.roots, *usual) if root.path]


def make_backend(runtime: Runtime, stack: AsyncExitStack, given: GivenObjects) -> WorkBackend:
    """Makes the executor and what it works with, unless they are given. The stack closes them."""
    config = runtime.config
    places = runtime.places
    processes = open_processes()
    stack.push_async_callback(processes.aclose)
    executor = given.executor or make_executor(config, places, processes, runtime.environ)
    stack.push_async_callback(executor.aclose)
    folder = os.path.join(workspace_dir(config, places), "environments")
    environments = Environments(folder, processes=processes, environ=runtime.environ)
    packages = configured_packages(lambda: runtime.trusted_config.skills.dependencies)
    artifacts = given.artifacts or runtime.open_artifacts()
    return WorkBackend(
        executor=executor,
        uid=find_uid(config.workspace.run_as),
        limits=parse_limits(config.workspace.limits),
        packages=packages,
        artifacts=artifacts,
        environments=environments,
    )


async def _open_recorder(runtime: Runtime, options: KitOptions, log: EventLog, key: SessionKey) -> Recorder:
    observers = list(options.on_event)
    if "opentelemetry" in sys.modules or "OTEL_PYTHON_TRACER_PROVIDER" in runtime.environ:  # else nobody wants spans
        from prowess.records.spans import live_spans

        spans = live_spans()
        if spans is not None:
            observers.append(spans)
    lease = await log.lease(key, owner=f"pid {os.getpid()}")
    return Recorder(log, key, lease, new_run(), on_event=observers)


def find_style(config: Config, options: KitOptions, model: Model | None = None) -> KitStyle:
    skills = config.skills
    can_run = options.objects.executor is not None or config.workspace.executor != "none"
    protocol = "tools" if model is None else describe_model(model).protocol
    form = skills.catalog_format
    if form is None:
        form = "markdown" if options.offer is None else "xml"
    return KitStyle(
        profile=config.tools.profile,
        instructions=options.instructions,
        offer=options.offer,
        prefix=options.prefix,
        catalog_format=form,
        guidance=config.guidance,
        max_loaded=skills.max_loaded,
        max_bodies_per_turn=skills.max_bodies_per_turn,
        require_load=skills.require_load,
        can_run=can_run,
        protocol=protocol,
    )


def skill_access(runtime: Runtime, trees: str, model: Model | None = None) -> SkillAccess:
    budget = runtime.budget(model)

    def search(query: str, limit: int) -> list[tuple[Entry, float]]:
        hits, _ = runtime.search(query, limit=limit)
        return hits

    def pinned(id: str, digest: str) -> Skill | None:
        entry = runtime.catalog.find(id)
        if entry is None and runtime.library.is_view:  # not removed since, but not for this caller
            return None
        found = load_published(trees, id, digest, entry)
        return None if found is None else runtime.check_digest(found)

    return SkillAccess(
        catalog=lambda: runtime.catalog,
        load=lambda ref, source, trigger: runtime.load(ref, source=source, trigger=trigger),
        plan=lambda: runtime.current_plan(budget.tokens),
        search=search,
        pinned=pinned,
    )


def make_executor(config: Config, places: ConfigPlaces, processes: Processes, environ: Mapping[str, str]) -> Executor:
    """Makes the configured executor, ours or that of an installed package."""
    make = EXECUTORS.load(config.workspace.executor)
    setup = setup_executor(config, places, processes, environ)
    return make(setup)


def setup_executor(
    config: Config, places: ConfigPlaces, processes: Processes, environ: Mapping[str, str]
) -> OwnExecutorSetup:
    workspace = config.workspace
    return OwnExecutorSetup(
        dir=workspace_dir(config, places),
        uid=find_uid(workspace.run_as),
        limits=workspace.limits,
        network_allow=workspace.network_allow,
        image=workspace.image,
        python=workspace.python,
        environ=environ,
        processes=processes,
    )


async def configured_secrets(runtime: Runtime) -> dict[str, str]:
    """Returns the secret values that are never written down, even if no skill asks for them.

    A secret that cannot be read is reported when a skill asks for it.
    """
    provider = ConfiguredSecrets(runtime.config.secrets, runtime.environ, runtime.places.project)
    found: dict[str, str] = {}
    for name in runtime.config.secrets:
        with suppress(ProwessError):
            value = await provider.find(name)
            if value:
                found[name] = value
    return found
