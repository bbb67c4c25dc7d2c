"""SkillKit: skills for an agent that you already have.

    kit = prowess.SkillKit("./skills")
    async with kit.session("conv-7", user="ann") as session:
        outcome = await session.call("skill_load", {"skill": "pdf"})

A kit is the library with its policy and settings; it opens nothing. A session is one conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

from prowess.agent.toolkit_options import Offer
from prowess.core.ports import Asker, EventLog
from prowess.core.values import Decision, Finding, Question, SessionKey, ToolSpec
from prowess.runtime.arguments import (
    AnyTools,
    Approve,
    ArtifactsPart,
    ExecutorPart,
    FilePaths,
    Observers,
    Parts,
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
    check_options,
    list_names,
    make_approver,
    make_runtime,
    read_parts,
)
from prowess.runtime.callers import (
    CallersObserver,
    CallersTools,
    OnOutput,
    as_callers_approver,
    as_callers_asker,
)
from prowess.runtime.factories import KitOptions
from prowess.runtime.kit_home import KitHome, make_version
from prowess.runtime.kit_session import CallArguments, KitOutcome, KitSession, SchemaForm, render_schemas
from prowess.runtime.storage import new_session
from prowess.skills.skill import Changes
from prowess.stores.memory import MemoryEventLog


class SkillKit:
    """Skills for another framework's agent: the texts and schemas for its model, and `call`, which makes the model's
    calls.

    Any thread and any event loop may use a kit. `kit.call` and its like work in one session, `kit.session` opens others
    over the same library. Use `async with` or `with`, or close the kit, so that nothing is left running.
    """

    @PythonDoor()
    def __init__(
        self,
        *skills: SkillPlaces,
        offer: Offer = "skills",
        prefix: str = "",
        tools: AnyTools = (),
        files: FilePaths = (),
        use: Sequence[str] = (),
        session: str | None = None,
        policy: PolicyParts = None,
        approve: Approve = None,
        ask: Asker | None = None,
        on_event: Observers = (),
        instructions: str = "",
        store: StorePart = None,
        artifacts: ArtifactsPart = None,
        executor: ExecutorPart = None,
        secrets: SecretsPart = None,
        on_ask: Literal["wait", "deny"] = "wait",
        must_exist: bool = False,
        tenant: str = "default",
        app: str = "default",
        user: str = "default",
        deps: object = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Reads the configuration and checks the arguments. Opens nothing. Without `skills`: the default places.

        `offer`: tools that the model is told: `skills`, `files` (these and file tools), or names. `prefix` stands
        before their names. `tools` are your own, which are offered as well. `files` are copied into the workspace of
        each session, and the skills in `use` are loaded at once. `session` names the conversation of `kit.call`.
        """
        check_options(offer=offer, prefix=prefix, instructions=instructions, on_ask=on_ask)
        toolsets = as_toolsets(tools)
        approver = make_approver(approve, list_names(toolsets))
        check_asker(ask)
        parts = read_parts(policy=policy, executor=executor, store=store, artifacts=artifacts, secrets=secrets)
        runtime = make_runtime(skills or ["default"], settings, parts)
        self._files, self._use = as_paths(files), as_names(use)
        options = KitOptions(
            approver=as_callers_approver(approver),
            asker=as_callers_asker(ask),
            on_event=_as_callers_observers(on_event),
            toolsets=[CallersTools(each) for each in toolsets],
            instructions=instructions,
            on_ask=on_ask,
            log=_find_log(parts, runtime.config.store),
            objects=parts.objects,
            tenant=tenant,
            app=app,
            user=user,
            deps=deps,
            goes_on=True,
            offer=offer,
            prefix=prefix,
        )
        self._home = KitHome(runtime, options)
        self._session = self.session(session, must_exist=must_exist, user=user, tenant=tenant, app=app)

    def __repr__(self) -> str:
        home = self._home
        shown = home.runtime.describe_skills()
        if home.is_closed:
            shown += ", closed"
        return f"SkillKit(session={self._session.id!r}{shown})"

    @PythonDoor()
    def session(
        self,
        id: str | None = None,
        *,
        user: str | None = None,
        tenant: str | None = None,
        app: str | None = None,
        approve: Approve = None,
        ask: Asker | None = None,
        on_event: Observers = (),
        files: FilePaths = (),
        use: Sequence[str] = (),
        must_exist: bool = False,
    ) -> KitSession:
        """Returns a conversation over this library: a new one, or the one of this id, which goes on where it was.

        What is not given is as for the kit. Observers, files and skills in use are added to those of the kit.
        """
        kits = self._home.options
        user = kits.user if user is None else user
        tenant = kits.tenant if tenant is None else tenant
        app = kits.app if app is None else app
        check_options(session=id, must_exist=must_exist, user=user, tenant=tenant, app=app)
        key = SessionKey(session=new_session() if id is None else id, user=user, tenant=tenant, app=app)
        check_asker(ask)
        approver = as_callers_approver(make_approver(approve, list_names(kits.toolsets)))
        options = replace(
            kits,
            session=key.session,
            user=user,
            tenant=tenant,
            app=app,
            approver=approver or kits.approver,
            asker=as_callers_asker(ask) or kits.asker,
            on_event=(*kits.on_event, *_as_callers_observers(on_event)),
            must_exist=must_exist,
        )
        paths = [*self._files, *as_paths(files)]
        return KitSession(self._home, options, files=paths, use=[*self._use, *as_names(use)])

    # --- what a model is told -----------------------------------------------------------------------------------------

    @property
    def instructions(self) -> str:
        """Text for the model's prompt: the catalog without skills that policy denies, and how to work with it. Empty
        when there are no skills."""
        return self._session.instructions

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Tool schemas for the model, in a form that belongs to no provider."""
        return self._home.tools

    def schemas(self, form: SchemaForm = "openai") -> list[dict[str, Any]]:
        """Returns the tool schemas in the form that a provider takes."""
        return render_schemas(self.tools, form)

    @property
    def version(self) -> str:
        """Short text that changes when `instructions` or `tools` change: a key for what is made of them."""
        return make_version(self.instructions, self.tools)

    def reload(self) -> Changes:
        """Reads the skills again, for all sessions. Returns the ids of those that were added, changed or removed."""
        return self._home.reload()

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings about the skills and the configuration, and about the end of a kit that did not close."""
        return [*self._home.runtime.findings, *self._home.findings]

    # --- calls, in the session of the kit -----------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        args: CallArguments = None,
        *,
        id: str | None = None,
        on_output: OnOutput | None = None,
    ) -> KitOutcome:
        """Makes the call. `outcome.content` is all that the model has to be told, also after a failure. `args` are an
        object or its JSON text."""
        return await self._session.call(tool, args, id=id, on_output=on_output)

    def call_sync(
        self,
        tool: str,
        args: CallArguments = None,
        *,
        id: str | None = None,
        on_output: OnOutput | None = None,
    ) -> KitOutcome:
        """Makes the call, and waits for it in this thread. An event loop may be running here."""
        return self._session.call_sync(tool, args, id=id, on_output=on_output)

    async def decide(self, tool: str, args: CallArguments = None, *, id: str | None = None) -> Decision:
        """Returns the decision that the call would meet: allow, ask or deny, and why. Records nothing."""
        return await self._session.decide(tool, args, id=id)

    def decide_sync(self, tool: str, args: CallArguments = None, *, id: str | None = None) -> Decision:
        """Returns what `decide` does, and waits for it in this thread."""
        return self._session.decide_sync(tool, args, id=id)

    async def answer(
        self, question: Question | str, answer: str | bool, *, token: str | None = None, by: str | None = None
    ) -> None:
        """Records a person's answer to a question, or to the call of this id: once, run, always, no, or "no, because
        …"."""
        await self._session.answer(question, answer, token=token, by=by)

    def answer_sync(
        self, question: Question | str, answer: str | bool, *, token: str | None = None, by: str | None = None
    ) -> None:
        """Does what `answer` does, and waits for it in this thread."""
        self._session.answer_sync(question, answer, token=token, by=by)

    async def waiting(self) -> list[Question]:
        """Returns the questions that nobody has answered."""
        return await self._session.waiting()

    def waiting_sync(self) -> list[Question]:
        """Returns what `waiting` does, and waits for it in this thread."""
        return self._session.waiting_sync()

    # --- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self, error: BaseException | None = None) -> None:
        """Closes all sessions of this kit. `error` is what ended them, if anything did."""
        await self._home.aclose(error)

    def close(self, error: BaseException | None = None) -> None:
        """Does what `aclose` does, and waits for it in this thread."""
        self._home.close(error)

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(error)

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


def _find_log(parts: Parts, configured: str | None) -> EventLog | None:
    """Returns the log that was given, or one in memory for all sessions, so that each goes on. None: as configured."""
    if parts.log is not None:
        return parts.log
    return MemoryEventLog() if configured == "memory:" else None


def _as_callers_observers(on_event: Observers) -> tuple[CallersObserver, ...]:
    return tuple(CallersObserver(each) for each in as_observers(on_event))
