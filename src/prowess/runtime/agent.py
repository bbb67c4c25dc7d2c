"""Agent: a model, skills, tools and permissions, made once and used for any number of requests.

    agent = prowess.Agent("openai:gpt-5", skills=["./skills", "builtin"], tools=[stock])
    result = agent.run_sync("Check invoice.pdf", files=["invoice.pdf"])

Each run is a session of its own, unless one is named. `session` keeps a conversation open.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, Generic, Literal, Self, TypedDict, Unpack

from prowess.agent.agent import Limits, LoadMode, OutputT, Placement, Result
from prowess.agent.observers import Observer
from prowess.agent.session import Session
from prowess.core.events import Envelope, ProtocolName
from prowess.core.ports import Asker, Model
from prowess.core.values import Message, Plan, Usage
from prowess.errors import ConfigError
from prowess.runtime.arguments import (
    AnyTools,
    Approve,
    ArtifactsPart,
    ExecutorPart,
    FilePaths,
    Observers,
    PolicyParts,
    PythonDoor,
    SecretsPart,
    SkillPlaces,
    StorePart,
    as_names,
    as_observers,
    as_paths,
    as_toolsets,
    check_asker,
    check_fields,
    check_model_part,
    check_options,
    list_names,
    make_approver,
    make_limits,
    make_runtime,
    read_parts,
)
from prowess.runtime.factories import SessionOptions, open_session
from prowess.runtime.loop_thread import shared_loop
from prowess.runtime.output_type import make_output
from prowess.runtime.runtime import shown_store
from prowess.runtime.services.files import check_output_dir, copy_files
from prowess.runtime.session_models import KeptModels
from prowess.runtime.storage import path_of, store_name
from prowess.stores.memory import MemoryEventLog


class AgentOptions(TypedDict, total=False):
    """Keywords of Agent, for functions that make one."""

    skills: SkillPlaces
    tools: AnyTools
    instructions: str
    policy: PolicyParts
    approve: Approve
    ask: Asker | None
    executor: ExecutorPart
    store: StorePart
    artifacts: ArtifactsPart
    secrets: SecretsPart
    limits: Limits | Mapping[str, float | None] | None
    load_mode: LoadMode | None
    placement: Placement | None
    protocol: ProtocolName | None
    on_ask: Literal["wait", "deny"]
    summarise: bool
    deps: object
    settings: Mapping[str, object] | None


class RunOptions(TypedDict, total=False):
    """Keywords of Agent.run, for functions that run one request."""

    files: FilePaths
    use: Sequence[str]
    output_dir: str | os.PathLike[str] | None
    session: str | None
    resume: bool
    must_exist: bool
    on_event: Observers
    deps: object
    tenant: str
    app: str
    user: str


class Agent(Generic[OutputT]):
    """Agent with skills. It may be used by several threads and event loops at the same time.

    `skills`: one or a list of folders, addresses, skills made in code, skill sources, catalogs, libraries, and the
    words "builtin" and "default". An empty list means no skills. Folders are read again for each session, a catalog
    is a snapshot, and a library is followed: its owner reloads it. `approve`: names of tools that need no question,
    or a function. `tools`: functions, tools and sets of tools, or one of them. `deps`: an object that they find in
    their ToolContext. `output_type`: type of `result.output`: a pydantic model, a dataclass, a TypedDict or a plain
    type. `settings`: any other setting by its dotted name, such as {"skills.budget": 2000}. `policy`, `executor`,
    `store`, `artifacts`, `secrets`: texts, or objects of the protocols in `prowess.ports`, which the caller owns
    and closes.
    """

    @PythonDoor()
    def __init__(
        self,
        model: str | Model | None = None,
        *,
        skills: SkillPlaces = "default",
        tools: AnyTools = (),
        instructions: str = "",
        policy: PolicyParts = None,
        approve: Approve = None,
        ask: Asker | None = None,
        on_event: Observers = (),
        executor: ExecutorPart = None,
        store: StorePart = None,
        artifacts: ArtifactsPart = None,
        secrets: SecretsPart = None,
        limits: Limits | Mapping[str, float | None] | None = None,
        load_mode: LoadMode | None = None,
        placement: Placement | None = None,
        protocol: ProtocolName | None = None,
        on_ask: Literal["wait", "deny"] = "wait",
        summarise: bool = False,
        output_type: type[OutputT] | None = None,
        deps: object = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Reads the configuration and checks the arguments. Opens nothing."""
        toolsets = as_toolsets(tools)
        check_asker(ask)
        check_model_part(model)
        parts = read_parts(policy=policy, executor=executor, store=store, artifacts=artifacts, secrets=secrets)
        self._runtime = make_runtime([skills], settings, parts)
        self._observers = as_observers(on_event)
        self._was_used = False
        log = parts.log
        if log is None and self._runtime.config.store == "memory:":
            log = MemoryEventLog()  # one for all runs, so that a session goes on
        self._models = KeptModels() if isinstance(model, str | None) else None  # an object belongs to the caller
        self._options = SessionOptions(
            model=model,
            models=self._models,
            approver=make_approver(approve, list_names(toolsets)),
            asker=ask,
            toolsets=toolsets,
            instructions=instructions,
            log=log,
            objects=parts.objects,
            limits=make_limits(limits),
            load_mode=load_mode,
            placement=placement,
            protocol=protocol,
            on_ask=on_ask,
            summarise=summarise,
            output=None if output_type is None else make_output(output_type),
            deps=deps,
            resume_arguments=None,
        )
        check_fields(self._options, "instructions", "load_mode", "placement", "protocol", "on_ask", "summarise")

    def __repr__(self) -> str:
        model = self._options.model
        configured = self._runtime.config.model
        name = configured.provider or "offline"
        if isinstance(model, str):
            name = model
        elif model is not None:
            name = model.name
        skills = self._runtime.describe_skills()
        return f"Agent({name!r}{skills})"

    # --- requests -----------------------------------------------------------------------------------------------------

    async def run(
        self,
        request: str = "",
        *,
        files: FilePaths = (),
        use: Sequence[str] = (),
        output_dir: str | os.PathLike[str] | None = None,
        session: str | None = None,
        resume: bool = False,
        must_exist: bool = False,
        on_event: Observers = (),
        deps: object = None,
        tenant: str = "default",
        app: str = "default",
        user: str = "default",
    ) -> Result[OutputT]:
        """Runs one request to its end.

        `files` are copied into the workspace. `output_dir` is the folder that files from the run are copied to; a file
        that exists there is not replaced, and `result.warnings` says so. `use` names skills to activate at once.
        `session` names the conversation that goes on, and `resume` continues its last run. `deps` replaces those of the
        agent.
        """
        opening = self.session(session, must_exist=must_exist, tenant=tenant, app=app, user=user)
        with PythonDoor():
            if resume and session is None:
                message = "resume=True continues a conversation, and none is named."
                raise ConfigError(message, code="option-invalid", hint="Name it: session=…")
            paths = as_paths(files)
            async with opening as chat:
                return await chat.run(
                    request, files=paths, use=use, output_dir=output_dir, resume=resume, on_event=on_event, deps=deps
                )

    def run_sync(self, request: str = "", **options: Unpack[RunOptions]) -> Result[OutputT]:
        """Runs one request in a thread of its own, and waits. An event loop may be running here."""
        return shared_loop().run(self.run(request, **options))

    async def stream(self, request: str = "", **options: Unpack[RunOptions]) -> AsyncGenerator[Envelope]:
        """Yields every event as it happens, with pieces of text. The last is `run_finished`. Leaving early ends the
        run."""
        watching = as_observers(options.pop("on_event", ()))
        work = partial(self.run, request, **options)
        async with aclosing(_stream(work, watching)) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def session(
        self,
        id: str | None = None,
        *,
        must_exist: bool = False,
        tenant: str = "default",
        app: str = "default",
        user: str = "default",
    ) -> AsyncIterator[AgentSession[OutputT]]:
        """Opens a conversation: a new one, or the one of this id, which goes on where it was."""
        with PythonDoor():
            check_options(session=id, must_exist=must_exist, tenant=tenant, app=app, user=user)
        options = replace(
            self._options,
            session=id,
            must_exist=must_exist,
            tenant=tenant,
            app=app,
            user=user,
        )
        if self._was_used:
            self._runtime.library.reload()
        self._was_used = True
        with PythonDoor():
            async with open_session(self._runtime, options) as opened:
                chat: AgentSession[OutputT] = AgentSession(opened, self._observers, store=self._find_store())
                try:
                    yield chat
                finally:
                    chat._is_closed = True

    def _find_store(self) -> list[str] | None:
        """Returns the options that name the store to a command; None if no other process can open it."""
        log = self._options.log
        if log is not None:
            path = path_of(log)
            if not os.path.isfile(path):
                return None
            return ["--store", os.path.abspath(path)]
        config = self._runtime.config
        if config.store is None:
            return []
        name = store_name(config, self._runtime.places)
        return ["--store", shown_store(name)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections of the running event loop. A loop that ends closes its own."""
        if self._models is not None:
            await self._models.aclose()

    def close(self) -> None:
        """Closes the connections of `run_sync`. They are closed at the end of the process, too."""
        shared = shared_loop()
        if not shared.is_gone:
            shared.run(self.aclose())


class AgentSession(Generic[OutputT]):
    """Open conversation of an agent."""

    def __init__(
        self, session: Session, observers: Sequence[Observer] = (), *, store: Sequence[str] | None = None
    ) -> None:
        """Takes the options that name the store to a command, if one can open it."""
        self._session = session
        self._observers = observers
        self._store = store
        self._is_closed = False
        self._is_running = False

    def __repr__(self) -> str:
        return f"AgentSession({self.id!r})"

    @property
    def id(self) -> str:
        return self._session.key.session

    @property
    def plan(self) -> Plan | None:
        return self._session.plan

    @property
    def state(self) -> dict[str, object]:
        """Copy of the session state: `temp:skill:loaded:<name>`, `temp:skill:docs:<name>`, and values of tools."""
        return self._session.state

    @property
    def messages(self) -> Sequence[Message]:
        """Messages of the last request to the model."""
        return self._session.messages

    @property
    def usage(self) -> Usage:
        """Tokens of all runs of this object."""
        return self._session.usage

    async def run(
        self,
        request: str = "",
        *,
        files: FilePaths = (),
        use: Sequence[str] = (),
        output_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        on_event: Observers = (),
        deps: object = None,
    ) -> Result[OutputT]:
        """Runs one request to its end, with the conversation so far. `deps` replaces those of the agent."""
        session = self._session
        recorder = session.kit.recorder
        with PythonDoor(), self._alone():
            check_options(resume=resume, output_dir=output_dir)
            workspaces = session.kit.work.options.dir
            folder = None if output_dir is None else check_output_dir(output_dir, workspaces)
            paths, names = as_paths(files), as_names(use)
            async with recorder.watched_by([*self._observers, *as_observers(on_event)]):
                result = await session.run(request, skills=names, files=paths, resume=resume, deps=deps)
            problems = tuple(recorder.problems)  # now the observers have seen all of it
        result = replace(result, problems=problems, to_go_on=self._find_call(), to_answer=self._find_command(result))
        if folder is None:
            return result
        stop = Event()
        copying = asyncio.ensure_future(asyncio.to_thread(_copy_files, result, folder, stop))
        try:
            return await asyncio.shield(copying)
        finally:
            stop.set()  # a cancellation is raised when the file that is being written is whole
            await asyncio.wait([copying])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuses a request after the end of the session, and one beside another: they would share the record and the
        `deps` of tools."""
        if self._is_closed:
            hint = "Open another one: with the same id it goes on."
            raise ConfigError(f"The session '{self.id}' is closed.", code="session-closed", hint=hint)
        if self._is_running:
            hint = "Wait until the other request has ended, or open another session."
            raise ConfigError(f"The session '{self.id}' is in use.", code="session-in-use", hint=hint)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    def _find_call(self) -> str:
        """Returns the call that goes on with the last run of this session."""
        key = self._session.key
        named = [f"{part}={json.dumps(name, ensure_ascii=False)}" for part, name in key.owner.items()]
        call = f"run({', '.join([f'session={json.dumps(self.id, ensure_ascii=False)}', *named, 'resume=True'])})"
        return call if self._store is not None else f"{call} of the same Agent, because its store is in memory"

    def _find_command(self, result: Result[OutputT]) -> str:
        """Returns the command that answers the first call that waits."""
        if not result.questions or self._store is None:
            return ""
        question = result.questions[0]
        words = ["prowess", "approvals", "answer", question.call_id, "yes", "--session", self.id]
        for part, name in self._session.key.owner.items():
            words += [f"--{part}", name]
        return shlex.join([*words, "--token", question.token, *self._store])

    async def stream(
        self,
        request: str = "",
        *,
        files: FilePaths = (),
        use: Sequence[str] = (),
        output_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        on_event: Observers = (),
        deps: object = None,
    ) -> AsyncGenerator[Envelope]:
        """Yields every event of one request as it happens. Leaving early ends the run."""
        work = partial(self.run, request, files=files, use=use, output_dir=output_dir, resume=resume, deps=deps)
        async with aclosing(_stream(work, as_observers(on_event))) as events:
            async for event in events:
                yield event


_REPLACE = "To replace it: file.save(path, force=True)."


def _copy_files(result: Result[OutputT], folder: str, stop: Event) -> Result[OutputT]:
    """Copies the files of a run, until `stop` is set. Each of them is then read from its copy."""
    files = [*result.files]
    if not files:
        return result
    names = [file.name for file in files]
    where: dict[str, Any] = {"cwd": os.getcwd(), "folder": folder, "searched": files[0].searched}
    copies = copy_files(files[0].folder, names, **where, force=False, is_over=stop.is_set)
    for number, file in enumerate(files):
        if file.name in copies.targets:
            files[number] = replace(file, folder=folder, below=file.name.removeprefix("out/"))
    notes = [text.replace("Add --force to replace it.", _REPLACE) for text in copies.notes]
    return replace(result, files=tuple(files), warnings=(*result.warnings, *notes))


async def _stream(
    work: Callable[..., Awaitable[Result[Any]]], observers: Sequence[Observer]
) -> AsyncGenerator[Envelope]:
    queue: asyncio.Queue[Envelope | None] = asyncio.Queue()

    async def tell(envelope: Envelope) -> None:
        queue.put_nowait(envelope)

    async def run() -> None:
        try:
            await work(on_event=(tell, *observers))
        finally:
            queue.put_nowait(None)

    task = asyncio.ensure_future(run())
    try:
        while (envelope := await queue.get()) is not None:
            yield envelope
        await task  # raises the error that ended the run
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
