"""Toolkit: skills and tools for an agent: the prompt text, the tool schemas, and `call`, which makes a call.

    async with kit:
        prompt = kit.instructions
        outcome = await kit.call("skill_load", {"skill": "pdf-forms"})

Every call uses the same policy, workspace and record. It does not matter if our loop, another framework or
`prowess exec` makes it. Every activation of a skill is a call of skill_load.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from types import TracebackType
from typing import Any

from prowess import __version__
from prowess.agent.approvals import ApprovalBook
from prowess.agent.call_policy import CallPolicy
from prowess.agent.call_repair import CallRepair
from prowess.agent.context import Conversation
from prowess.agent.context.render import SkillTextRenderer, early_note, make_safe, render_outcome
from prowess.agent.foreign_calls import OwnIds, as_call
from prowess.agent.implicit_load import ImplicitLoads
from prowess.agent.prompt import SkillOffer, offered_tools
from prowess.agent.recorder import EventWriter, Recorder, RecorderPart, SessionSecrets
from prowess.agent.skill_loader import LoadedContents, SkillLoader
from prowess.agent.tool_call import BeforeEnd, OnOutput, Spawner, ToolCallRunner
from prowess.agent.toolkit_options import HumanChannels, KitPolicy, KitStyle, SkillAccess
from prowess.core.events import Event, ModelReplied, PlanChanged, RunFinished, RunStarted
from prowess.core.ports import CallGrant, SecretProvider, Toolset
from prowess.core.tool_context import ToolContext
from prowess.core.tool_table import LOADING_TOOLS
from prowess.core.values import CatalogPlan, Outcome, Part, Plan, ToolCall, ToolSpec, Trigger
from prowess.errors import ProwessError, ResourceNotFound, SkillDenied, SkillError
from prowess.policy.decision import PolicyContext
from prowess.skills.skill import Entry
from prowess.tools.builtin import BuiltinTools, make_programs, make_tools
from prowess.tools.session_work import LoadedSkill, SessionWork
from prowess.tools.skills.loaded import LoadedSkills
from prowess.tools.toolset import Joined

_WAIT_S = 10.0


class Toolkit:
    def __init__(
        self,
        *,
        skills: SkillAccess,
        work: SessionWork,
        recorder: Recorder | RecorderPart,
        policy: KitPolicy,
        style: KitStyle | None = None,
        people: HumanChannels | None = None,
        secrets: SecretProvider | None = None,
        toolsets: Sequence[Toolset] = (),
        on_output: OnOutput | None = None,
        resume_arguments: tuple[str, ...] | None = (),
        parent: Toolkit | None = None,
        ancestry: tuple[str, ...] = (),
        goes_on: bool = False,
        deps: object = None,
    ) -> None:
        """Takes `resume_arguments`, the command-line options that are needed again to repeat a run, `deps`, the object
        that functions find in their ToolContext, and for a child run the kit of its parent and the ids of the skills
        that led to it, outermost first. `goes_on`: a later kit goes on with the run, and with the questions that are
        open."""
        self.deps: object = deps
        self.skills = skills
        self.work = work
        self.recorder = recorder
        self.policy = policy
        self.style: KitStyle = style or KitStyle()
        self.people: HumanChannels = people or HumanChannels()
        self.ancestry = ancestry
        self._resume_arguments = resume_arguments
        self._goes_on = goes_on
        self._begun = False
        self._toolsets = toolsets
        self._on_output = on_output
        self._contents = LoadedContents(skills, work, policy.rules)
        call_ids: set[str] | None = None
        if parent is None:
            self.secrets: SessionSecrets = SessionSecrets(secrets, policy.redact)
        else:
            self.secrets = parent.secrets
            call_ids = parent.conversation.call_ids
        text = SkillTextRenderer(self._contents.find, self.secrets.redact_text)
        self.conversation: Conversation = Conversation(text, recorder.vouches, call_ids=call_ids)
        self._record = EventWriter(recorder, self.conversation, self.secrets)
        self._programs = cache(make_programs)
        self._plan_limits: Mapping[str, int] = {}
        self._numbers: Counter[str] = Counter()  # of the call ids of each kind
        self._busy: set[asyncio.Future[None]] = set()  # calls that are being made
        names = [spec.name for spec in self._given_specs()]
        asking = [spec.name for spec in self._given_specs() if spec.requires_approval]
        context = policy.surroundings._replace(given=frozenset(names), asking=frozenset(asking))
        self.offer: SkillOffer = SkillOffer(skills, policy, context, self.style)
        self._loader = SkillLoader(skills, work, self._contents, self.offer, self._record, self.secrets)
        self.shelf: LoadedSkills = self._make_shelf()
        own = self._make_own_tools()
        self._own = own
        self._tool_names = [*own.names(), *names]
        joined = Joined(own, *toolsets) if toolsets else own
        self.calls: ToolCallRunner = self._make_runner(joined, context, parent)

    def _make_shelf(self) -> LoadedSkills:
        return LoadedSkills(
            self.work,
            self._loader,
            load_first=self._load_first,
            max_loaded=self.style.max_loaded,
            max_bodies_per_turn=self.style.max_bodies_per_turn,
            state=self.conversation.state.values,
        )

    def _make_own_tools(self) -> BuiltinTools:
        return make_tools(
            self.work,
            self.shelf,
            self._programs,
            get_plan=lambda: self.conversation.plan,
            put_plan=self._put_plan,
            plan_limits=lambda: self._plan_limits,
            asker=self.people.asker,
            enabled=self.policy.surroundings.enabled,
            activate=lambda ref, grant: self._load_first({"skill": ref}, grant),
            skill_at=self._loader.find_id_at,
        )

    def _make_runner(self, tools: Toolset, context: PolicyContext, parent: Toolkit | None) -> ToolCallRunner:
        """Makes the runner of calls. A child run has at most the permissions of its parent."""
        above = None if parent is None else parent.calls
        policy_above = None if above is None else above.policy
        approvals_above = None if above is None else above.approvals
        policy = CallPolicy(
            self.policy, context, self.skills, self.work, self._programs, self._tool_names, parent=policy_above
        )
        approvals = ApprovalBook(
            self._record,
            self.conversation.questions,
            self.secrets,
            self.work,
            approver=self.people.approver,
            standing=self.policy.approvals,
            parent=approvals_above,
        )
        load = "select_skills" if self.style.protocol == "actions" else "skill_load"
        repair = CallRepair(self, load=load)
        return ToolCallRunner(
            tools,
            policy,
            approvals,
            self._record,
            self.secrets,
            self.work,
            repair=repair,
            get_loads=lambda: self._loads,
            on_ask=self.policy.on_ask,
            on_output=self._on_output,
            make_context=self._make_context,
        )

    @cached_property
    def own_ids(self) -> OwnIds:
        """Ids of the calls of a model that is not ours."""
        return OwnIds(self.calls, self.conversation)

    @cached_property
    def _loads(self) -> ImplicitLoads:
        return ImplicitLoads(self.work, self.skills, self.conversation, required=self.style.require_load)

    def _make_context(self, loop: asyncio.AbstractEventLoop, grant: CallGrant) -> ToolContext[Any]:
        run = self.recorder.run_id

        def is_over() -> bool:
            if self.recorder.run_id != run:
                return True
            return self.conversation.finished is not None

        from prowess.tools.context_files import SessionFiles

        return ToolContext(
            session=self.recorder.key,
            run=run,
            call_id=grant.call_id,
            files=SessionFiles(self.work, grant, loop, is_over),
            deps=self.deps,
        )

    # --- prompt and schemas -----------------------------------------------------------------------------------------

    @property
    def plan(self) -> CatalogPlan:
        """Catalog plan for the current library and rules."""
        return self.offer.plan

    @property
    def instructions(self) -> str:
        """Text for the prompt: the catalog and the guidance. Empty if there are no skills."""
        return self.offer.render(self.offered_names())

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Schemas of the tools that the model is told. Other tools and all aliases can be called, too."""
        enabled = self.policy.surroundings.enabled
        choices = self.offer.choices()
        return offered_tools(self.plan, self.style, self._own.specs(), self._given_specs(), enabled, choices)

    def _given_specs(self) -> list[ToolSpec]:
        """Schemas of the tools that the caller added."""
        specs: list[ToolSpec] = []
        for toolset in self._toolsets:
            specs += toolset.specs()
        return specs

    @cached_property
    def _read_only(self) -> Mapping[str, bool]:
        return {spec.name: spec.read_only for spec in self.calls.tools.specs()}

    def is_read_only(self, call: ToolCall) -> bool:
        """True if a call changes nothing. One that may load a skill does: `allowed-tools` bind the calls after it."""
        name = self.calls.repair.find_tool(call.tool)
        may_load = name in LOADING_TOOLS and not self.work.is_loaded(call.args.get("skill"))
        return self._read_only.get(name, False) and not may_load

    @property
    def activation_error(self) -> ProwessError | None:
        """Error of the last activation."""
        return self._loader.error

    @property
    def unredacted_secrets(self) -> tuple[str, ...]:
        """Names of secrets that are too short to be redacted."""
        return self.secrets.unredacted

    # --- names, for the repair of calls -----------------------------------------------------------------------------

    def names(self) -> Sequence[str]:
        """Names of the skills that a model may load."""
        return self._loader.names()

    def tool_names(self) -> Sequence[str]:
        """Names of all tools that can be called."""
        return self._tool_names

    def offered_names(self) -> Sequence[str]:
        """Names of the tools that the model is told."""
        return [spec.name for spec in self.tools]

    def offered_arguments(self, tool: str) -> Collection[str]:
        """Names of the arguments of a tool that the model is told."""
        specs = [spec for spec in self.tools if spec.name == tool]
        return [name for spec in specs for name in spec.parameters.get("properties", ())]

    def find_skill_name(self, text: str) -> str | None:
        """Finds the skill that a text names, if a model may load it."""
        return self._loader.find_name(text)

    def search(self, query: str, limit: int) -> Sequence[tuple[Entry, float]]:
        """Ranks the skills that a model may see."""
        return self._loader.search(query, limit)

    def has_file(self, skill: str, path: str) -> bool:
        """True if the skill is loaded and has a file of this path."""
        try:
            loaded = self.work.get(skill)
        except SkillError:
            return False
        return any(file.path == path for file in loaded.skill.files)

    def last_reply(self) -> ModelReplied | None:
        return self.conversation.replied

    # --- calls ------------------------------------------------------------------------------------------------------

    def start_run(self, plan_limits: Mapping[str, int], *, keep_approvals: bool) -> None:
        """Begins a run of our own loop. `plan_limits` are limits that a plan may tighten."""
        self._plan_limits = plan_limits
        self.shelf.start_run(self.conversation.in_view)
        if not keep_approvals:
            self.calls.approvals.start_run()

    async def call(self, tool: str, args: Mapping[str, Any] | None = None, *, id: str | None = None) -> Outcome:
        """Decides, executes and records one call. The content of the outcome is the full text for the model. A denial,
        a failure, and a question that nobody could answer are outcomes, not exceptions."""
        call = as_call(id or self.new_call_id("call"), tool, args)
        async with self.own_ids.hold(call) as held:
            outcome = await self.make_call(held)
        return self.with_skill_text(outcome)

    async def make_call(self, call: ToolCall) -> Outcome:
        """Makes a held call of a model that is not ours, and returns the recorded outcome. Each call is a turn."""
        outcome = await self.act(call)
        self.shelf.new_turn()
        return outcome

    async def act(
        self,
        call: ToolCall,
        *,
        spawn: Spawner | None = None,
        before_end: BeforeEnd | None = None,
    ) -> Outcome:
        """Makes a call and returns the recorded outcome. It names a loaded skill; its text is added when rendering."""
        done = asyncio.get_running_loop().create_future()
        self._busy.add(done)
        try:
            return await self.calls.run(call, spawn=spawn, before_end=before_end)
        finally:
            done.set_result(None)
            self._busy.discard(done)

    def with_skill_text(self, outcome: Outcome) -> Outcome:
        """Adds the texts that an outcome shows to its content."""
        data = outcome.data
        content = render_outcome(outcome) if outcome.status == "ok" else make_safe(outcome.content)
        return replace(outcome, content=self.add_texts(data, content))

    def add_texts(self, data: Mapping[str, Any], content: str) -> str:
        """Adds the texts that an outcome shows to its content. Those of a skill that was loaded for it come first."""
        if "show" not in data:
            return content
        told = self._texts_for(data)
        loaded = data.get("loaded")
        if loaded is None:
            told.insert(0, content)
        else:
            told = [loaded, *told, content, *early_note(data)]
        return "\n\n".join(told)

    def _texts_for(self, data: Mapping[str, Any]) -> list[str]:
        shown = self.conversation.shown
        skill = data["skill"]
        digest = data["digest"]
        texts = [shown.text(skill, digest, path) for path in data["show"]]
        if data.get("arguments"):
            texts.append(shown.arguments(skill, digest, data["arguments"]))
        return [text for text in texts if text]

    async def activate(
        self,
        ref: str,
        *,
        source: str | None = None,
        trigger: Trigger = "caller",
        arguments: str = "",
        docs: Sequence[str] = (),
    ) -> LoadedSkill:
        """Loads a skill. Raises SkillNotFound, SkillDenied or SkillInvalid, and ResourceNotFound for a missing doc."""
        outcome = await self.request_skill(ref, source=source, trigger=trigger, arguments=arguments, docs=docs)
        if outcome.status != "ok":
            if self.activation_error is not None:
                raise self.activation_error
            raise SkillDenied(outcome.content, code=outcome.code, hint=outcome.hint)
        if outcome.data.get("missing_docs"):  # only a note for a model, but an error for a caller
            about = outcome.content.rpartition("\n")[2]
            raise ResourceNotFound(about, code="doc-not-found", hint="The skill itself is loaded.")
        id = outcome.data["skill"]
        return self.work.get(id)

    async def request_skill(
        self,
        ref: str,
        *,
        source: str | None = None,
        trigger: Trigger = "caller",
        arguments: str = "",
        docs: Sequence[str] = (),
        id: str | None = None,
        spawn: Spawner | None = None,
    ) -> Outcome:
        """Activates a skill with a call of skill_load, and returns its outcome."""
        args: dict[str, Any] = {"skill": ref}
        if source:
            args["source"] = source
        if arguments:
            args["arguments"] = arguments
        if docs:
            args["docs"] = list(docs)
        self._loader.forget_error()
        call_id = id or self.new_call_id("load")
        call = ToolCall(id=call_id, tool="skill_load", args=args, trigger=trigger)
        return await self.act(call, spawn=spawn)

    def new_call_id(self, kind: str) -> str:
        """Returns an unused call id, because an approval belongs to one call id of a session."""
        used = self.conversation.call_ids
        while True:
            self._numbers[kind] += 1
            id = f"{kind}-{self._numbers[kind]}"
            if id not in used:
                used.add(id)
                return id

    def redact(self, events: Sequence[Event]) -> list[Any]:
        """Redacts events as `append` does, without recording them."""
        return self._record.redact(events)

    async def append(self, *events: Event) -> None:
        """Redacts and records events, and only then applies them to the conversation."""
        await self._record.append(*events)

    def take_up_skills(self) -> None:
        """Takes over the skills that the session loaded in other processes, with their pinned content. A skill stays in
        use until it is unloaded, in view or not."""
        talk = self.conversation
        for id, digest in talk.contents.items():
            loaded = self._contents.find(id, digest)
            if loaded is not None:
                self.work.adopt(loaded, in_use=id not in talk.unloaded)

    def make_child(self, work: SessionWork, run_id: str, skill: str) -> Toolkit:
        """Makes a kit for a child run: its own conversation, and at most the permissions of this kit."""
        return Toolkit(
            skills=self.skills,
            work=work,
            recorder=self.recorder.part(run_id),
            policy=self.policy,
            style=self.style,
            people=self.people,
            toolsets=self._toolsets,
            on_output=self._on_output,
            parent=self,
            ancestry=(*self.ancestry, skill),
            deps=self.deps,
        )

    async def _load_first(self, args: Mapping[str, Any], grant: CallGrant) -> Outcome:
        """Makes a call of skill_load for a tool that needs a skill loaded: read_file of a SKILL.md, skill_select_docs.
        Its id derives from that tool's call, so that an approval of it is found when the call is made again."""
        id = f"{grant.call_id}-load"
        call = ToolCall(id=id, tool="skill_load", args=dict(args), trigger=grant.trigger)
        return await self.calls.run_first(call, grant)

    async def _put_plan(self, plan: Plan) -> None:
        await self.append(PlanChanged(plan=plan))

    # --- a run driven by another framework --------------------------------------------------------------------------

    async def begin(self, attachments: Sequence[Part] = ()) -> None:
        """Records that the run begins, once. It goes on with the last run of a conversation that was restored."""
        if self._begun:
            return
        self._begun = True
        started = RunStarted(
            model="caller",
            versions={"prowess": __version__},
            attachments=tuple(attachments),
            resumes=self.conversation.run,
            resume_arguments=self._resume_arguments,
        )
        await self.append(started)

    async def __aenter__(self) -> Toolkit:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.end_programs()
            await self.work.aclose()
            if self._busy:  # their programs have ended; their outcomes belong before RunFinished
                await asyncio.wait(self._busy, timeout=_WAIT_S)
        finally:
            if self._begun and not self.recorder.broken:
                await self.append(self._find_end(error))
            await self.recorder.close()

    def _find_end(self, error: BaseException | None) -> RunFinished:
        """Returns the event that ends the run. `error` left the caller's block."""
        if error is None:
            is_waiting = self._goes_on and self.conversation.waiting_calls()
            return RunFinished(stop_reason="waiting" if is_waiting else "answer")
        if not isinstance(error, Exception):
            return RunFinished(stop_reason="cancelled")
        code = error.code if isinstance(error, ProwessError) else "caller-raised"
        text = f"{type(error).__name__}: {error}"
        return RunFinished(stop_reason="error", code=code, text=text[:2000])

    async def end_programs(self) -> None:
        if self._programs.cache_info().currsize:
            await self._programs().aclose()
