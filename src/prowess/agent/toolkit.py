"""Toolkit: skills and tools for an agent: the prompt text, the tool schemas, and `call`, which makes a call.

    async with kit:
        prompt = kit.instructions
        outcome = await kit.call("skill_load", {"skill": "pdf-forms"})

Every call uses the same policy, workspace and record. It does not matter if our loop, another framework or
`prowess exec` makes it. Every activation of a skill is a call of skill_load.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from prowess import __version__
from prowess.agent.call_policy import Facts, declared_env
from prowess.agent.call_repair import RepeatedFailures, check_complete, route_to_skill
from prowess.agent.context import Conversation
from prowess.agent.context.render import make_safe
from prowess.agent.context.skill_text import SkillTextRenderer
from prowess.agent.prompt import offered_tools, plan_offer, render_offer
from prowess.agent.recorder import Recorder, RecorderPart, redact_event
from prowess.agent.tool_call import Scene, act
from prowess.agent.toolkit_options import HumanChannels, KitPolicy, KitStyle, SkillAccess
from prowess.core.events import (
    Event,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    StopReason,
)
from prowess.core.ports import CallGrant, SecretProvider, Toolset
from prowess.core.tool_table import TOOLS
from prowess.core.values import CatalogPlan, Outcome, Plan, ToolCall, ToolSpec, Trigger
from prowess.errors import ProwessError, ResourceNotFound, SkillDenied, SkillError
from prowess.policy.allowed_tools import canonical_tools
from prowess.policy.rules import Rules
from prowess.policy.secrets import Redactor
from prowess.skills.skill import Entry, Skill
from prowess.tools.base import Tool, Tools
from prowess.tools.builtin import make_tools
from prowess.tools.run.terminals import Programs
from prowess.tools.session_work import LoadedSkill, SessionWork
from prowess.tools.skills.loaded import LoadedSkills
from prowess.tools.toolset import Joined
from prowess.workspace.dirfd import read_beneath

_WAIT_S = 10.0
_MOST_COMPARED, _MOST_LINES = 1 << 20, 400


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
        on_output: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.skills, self.work, self.recorder = skills, work, recorder
        style, people = style or KitStyle(), people or HumanChannels()
        self.policy, self.style, self.people = policy, style, people
        self.conversation = Conversation(SkillTextRenderer(self.find_content, self._redact_text), recorder.vouches)
        self.resume_arguments: tuple[str, ...] = ()  # command-line options that are needed again to repeat a run
        self.ancestry: tuple[str, ...] = ()  # ids of the skills whose child runs led here, outermost first
        self.plan_limits: Mapping[str, int] = {}  # limits that a plan may tighten
        self._hidden: dict[str, str] = {}
        self._planned: tuple[CatalogPlan, Sequence[Rules], CatalogPlan] | None = None
        self.unredacted_secrets: tuple[str, ...] = ()  # secrets that are too short to be redacted
        self._secrets, self._toolsets, self._on_output = secrets, toolsets, on_output
        self._programs = Programs()
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
        self._learning = asyncio.Lock()
        self._busy: set[asyncio.Future[None]] = set()  # calls that are being made
        self._contents: dict[tuple[str, str], LoadedSkill] = {}  # all skills that were in use here
        self._ranks: dict[str, int] = {}  # id -> rank in the search that last found it
        self._error: ProwessError | None = None  # error of the last activation
        self.shelf = LoadedSkills(
            work,
            activate=self._activate,
            unloaded=self._unloaded,
            search=self._search,
            names=self.names,
            find=self._find_entry,
            look=self._look,
            load_first=self._load_first,
            max_loaded=style.max_loaded,
            max_bodies_per_turn=style.max_bodies_per_turn,
        )
        self.shelf.state = self.conversation.state.values
        own = Tools(*self._own_tools())
        self._own = own.specs()
        every = [*self._own, *(spec for toolset in toolsets for spec in toolset.specs())]
        self._read_only = {spec.name: spec.read_only for spec in every}
        joined = Joined(own, *toolsets) if toolsets else own
        self.facts = Facts(
            policy,
            skills,
            work,
            self._programs,
            self.conversation,
            given=frozenset(spec.name for toolset in toolsets for spec in toolset.specs()),
            tools=lambda: [spec.name for spec in joined.specs()],
        )
        self._repeated = RepeatedFailures(self.names, lambda: [spec.name for spec in self.tools])
        self.scene = Scene(
            tools=joined,
            append=self.append,
            broken=lambda: recorder.broken,
            approver=people.approver,
            around=self.facts.around,
            named=self.facts.named,
            touched=self.facts.touched,
            lists=self.facts.lists,
            rules=policy.rules,
            redactor=Redactor({}, policy.redact),
            on_output=on_output,
            on_ask=policy.on_ask,
            ask_unisolated=policy.ask_unisolated,
            route=self._route,
            refuse=lambda call: self._repeated.refuse(call) or check_complete(call, self.conversation.replied),
            store_full_output=self.store_full_output,
            given=self.facts.given,
            standing=self.facts.standing,
            changed=self.facts.changed,
            remember=self.facts.remember,
            preview=self._preview,
        )

    # --- prompt and schemas -----------------------------------------------------------------------------------------

    @property
    def plan(self) -> CatalogPlan:
        """Catalog plan for the current library and rules. Cached, because every turn needs it."""
        whole, rules = self.skills.plan(), self.policy.rules()
        if self._planned is None or self._planned[0] is not whole or self._planned[1] is not rules:
            self._planned = (whole, rules, plan_offer(self.skills.catalog(), whole, self.facts.surroundings, rules))
        return self._planned[2]

    @property
    def instructions(self) -> str:
        """Text for the prompt: the catalog and the guidance. Empty if there are no skills."""
        return render_offer(self.skills, self.plan, self.style)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Schemas of the tools that the model is told. Other tools and all aliases can be called, too."""
        given = [spec for toolset in self._toolsets for spec in toolset.specs()]
        return offered_tools(self.plan, self.style, self._own, given, self.facts.surroundings.enabled)

    def is_read_only(self, tool: str) -> bool:
        return self._read_only.get(canonical_tools(tool)[0], False)

    @property
    def activation_error(self) -> ProwessError | None:
        """Error of the last activation."""
        return self._error

    def names(self) -> list[str]:
        """Names of the skills that a model may load."""
        catalog = self.skills.catalog()
        return [entry.name for entry in catalog if catalog.visibility(entry).model_visible]

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, tool: str, args: Mapping[str, Any] | None = None, *, id: str | None = None) -> Outcome:
        """Decides, executes and records one call. The content of the outcome is the full text for the model. A denial,
        a failure, and a question that nobody could answer are outcomes, not exceptions."""
        given = dict(args) if isinstance(args, Mapping) else {} if args is None else {"arguments": args}
        outcome = await self.act(ToolCall(id=id or self.new_call_id("call"), tool=str(tool), args=given))
        self.shelf.new_turn()
        return self.with_skill_text(outcome)

    async def act(self, call: ToolCall, *, before_end: Callable[[], Awaitable[object]] | None = None) -> Outcome:
        """Makes a call and returns the recorded outcome. It names a loaded skill; its text is added when rendering."""
        done = asyncio.get_running_loop().create_future()
        self._busy.add(done)
        try:
            outcome = await act(call, self.scene, before_end=before_end)
        finally:
            done.set_result(None)
            self._busy.discard(done)
        self._repeated.note(call, outcome)
        return outcome

    def with_skill_text(self, outcome: Outcome) -> Outcome:
        data = outcome.data
        outcome = replace(
            outcome, content=outcome.content if data.get("framed") is True else make_safe(outcome.content)
        )
        if outcome.status != "ok" or "show" not in data:
            return outcome
        shown = self.conversation.shown
        texts = [shown.text(data["skill"], data["digest"], path) for path in data["show"]]
        if data.get("arguments"):
            texts.append(shown.arguments(data["skill"], data["digest"], data["arguments"]))
        return replace(outcome, content="\n\n".join([outcome.content, *(text for text in texts if text)]))

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
            raise self._error or SkillDenied(outcome.content, code=outcome.code, hint=outcome.hint)
        if outcome.data.get("missing_docs"):  # only a note for a model, but an error for a caller
            about = outcome.content.rpartition("\n")[2]
            raise ResourceNotFound(about, code="doc-not-found", hint="The skill itself is loaded.")
        return self.work.get(outcome.data["skill"])

    async def request_skill(
        self,
        ref: str,
        *,
        source: str | None = None,
        trigger: Trigger = "caller",
        arguments: str = "",
        docs: Sequence[str] = (),
        id: str | None = None,
    ) -> Outcome:
        """Activates a skill with a call of skill_load, and returns its outcome."""
        given = {"source": source, "arguments": arguments, "docs": list(docs)}
        args = {"skill": ref, **{name: value for name, value in given.items() if value}}
        self._error = None
        id = id or self.new_call_id("load")
        return await self.act(ToolCall(id=id, tool="skill_load", args=args, trigger=trigger))

    def new_call_id(self, kind: str) -> str:
        """Returns an unused call id, because an approval belongs to one call id of a session."""
        used, numbers = self.conversation.call_ids, self._numbers[kind]
        id = next(id for number in numbers if (id := f"{kind}-{number}") not in used)
        used.add(id)
        return id

    def redacted(self, event: Event) -> Any:
        return redact_event(event, self.scene.redactor)

    async def append(self, *events: Event) -> None:
        """Redacts and records events, and only then applies them to the conversation."""
        clean = [redact_event(event, self.scene.redactor) for event in events]
        await self.recorder.append(*clean)
        for event in clean:
            self.conversation.apply(event)

    def make_child(self, work: SessionWork, run_id: str, skill: str) -> Toolkit:
        """Makes a kit for a child run: its own conversation, and at most the permissions of this kit."""
        child = Toolkit(
            skills=self.skills,
            work=work,
            recorder=self.recorder.part(run_id),
            policy=self.policy,
            style=self.style,
            people=self.people,
            secrets=self._secrets,
            toolsets=self._toolsets,
            on_output=self._on_output,
        )
        child.ancestry = (*self.ancestry, skill)
        child.conversation.call_ids = self.conversation.call_ids
        child.scene.ceiling = lambda: {**self.scene.ceiling(), **self.facts.lists()}
        child.scene.secrets = self.scene.secrets
        child.add_redactions(self._hidden)
        child.scene.for_run = self.scene.for_run
        return child

    # --- a run driven by another framework --------------------------------------------------------------------------

    async def __aenter__(self) -> Toolkit:
        await self.append(
            RunStarted(model="caller", versions={"prowess": __version__}, resume_arguments=self.resume_arguments)
        )
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
            if not self.recorder.broken:
                reason: StopReason = (
                    "answer" if kind is None else "error" if issubclass(kind, Exception) else "cancelled"
                )
                await self.append(RunFinished(stop_reason=reason))
            await self.recorder.close()

    async def end_programs(self) -> None:
        await self._programs.aclose()

    # --- callbacks for tools ----------------------------------------------------------------------------------------

    def _own_tools(self) -> list[Tool]:
        return make_tools(
            self.work,
            self.shelf,
            self._programs,
            get_plan=lambda: self.conversation.plan,
            put_plan=self._put_plan,
            plan_limits=lambda: self.plan_limits,
            asker=self.people.asker,
            enabled=self.policy.surroundings.enabled,
            activate=lambda ref, within: self._load_first({"skill": ref}, within),
            skill_at=self._skill_at,
        )

    async def _activate(self, ref: str, source: str | None, trigger: Trigger, reason: str | None) -> LoadedSkill:
        try:
            skill = self.skills.load(ref, source, trigger)
            async with self._learning:
                await self._learn_secrets(skill)
        except ProwessError as error:
            self._error = error
            raise
        loaded = await self.work.load(skill)
        id, digest = skill.entry.id, skill.digest
        self._contents[id, digest] = loaded
        await self.append(
            SkillLoaded(id=id, name=skill.name, digest=digest, trigger=trigger, rank=self._ranks.get(id), reason=reason)
        )
        return loaded

    def _find_entry(self, ref: str, source: str | None) -> Entry:
        try:
            return self.skills.catalog().get(ref, source=source)
        except ProwessError as error:
            self._error = error
            raise

    async def _unloaded(self, loaded: LoadedSkill, reason: str) -> None:
        await self.append(SkillUnloaded(id=loaded.skill.entry.id, reason=reason))

    def _search(self, query: str, limit: int) -> Sequence[tuple[Entry, float]]:
        found = self.skills.search(query, limit)
        self._ranks.update({entry.id: rank for rank, (entry, _) in enumerate(found, 1)})
        return found

    async def _put_plan(self, plan: Plan) -> None:
        await self.append(PlanChanged(plan=plan))

    async def _load_first(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        """Makes a call of skill_load for a tool that needs a skill loaded: read_file of a SKILL.md, skill_select_docs.
        Its id derives from that tool's call, so that an approval of it is found when the call is made again."""
        call = ToolCall(id=f"{within.call_id}-load", tool="skill_load", args=dict(args), trigger=within.trigger)
        return await act(call, self.scene)

    def _look(self, ref: str, trigger: Trigger) -> Skill | None:
        """Reads a skill without loading it. None if it does not exist or may not be loaded."""
        try:
            skill = self.skills.load(ref, None, trigger)
        except SkillError:
            return None
        return None if skill.entry.id in self.plan.hidden else skill

    def _skill_at(self, path: str) -> str | None:
        """Finds the id of the skill whose SKILL.md is at this path."""
        return next((entry.id for entry in self.skills.catalog() if entry.location == path), None)

    async def store_full_output(self, call: ToolCall, text: str) -> str | None:
        if self.work.artifacts is None:
            return None
        name = f"outputs/{call.id}.txt"
        try:
            kept = await self.work.artifacts.save(self.work.key, name, text.encode(), mime_type="text/plain")
        except (ProwessError, OSError):  # the outcome then says that the rest was not kept
            return None
        return f"artifact://{name}@{kept.version}"

    async def _preview(self, call: ToolCall) -> str:
        """Diff of the changes that a write_file call would make; "" for other calls."""
        path, content = call.args.get("path"), call.args.get("content")
        if call.tool != "write_file" or not isinstance(path, str) or not isinstance(content, str):
            return ""
        before = None if path.startswith("/") else await self.read_workspace(path, _MOST_COMPARED)
        old = "" if before is None else before.decode("utf-8", "replace")
        lines = difflib.unified_diff(old.splitlines(), content.splitlines(), path, path, lineterm="")
        return "\n".join(itertools.islice(lines, _MOST_LINES))

    async def read_workspace(self, path: str, limit_bytes: int) -> bytes | None:
        """Reads a workspace file. None if it does not exist or is larger than the limit."""
        _, place = await self.work.workspace()
        try:
            return await asyncio.to_thread(read_beneath, place.root, path, limit_bytes)
        except (OSError, ProwessError):
            return None

    def find_content(self, id: str, digest: str) -> LoadedSkill | None:
        """Finds a skill with exactly that content: from this run, or published before. None if policy denies it now."""
        if any(digest in rules.denied_digests for rules in self.policy.rules()):
            return None
        found = self._contents.get((id, digest))
        if found is None:
            skill = self.skills.pinned(id, digest)
            if skill is not None:
                found = self._contents[id, digest] = self.work.restore(skill)
        return found

    def take_up_skills(self) -> None:
        """Takes over the skills that the session loaded in other processes, with their pinned content. A skill stays in
        use until it is unloaded, in view or not."""
        for id, digest in self.conversation.contents.items():
            loaded = self.find_content(id, digest)
            if loaded is not None:
                self.work.adopt(loaded, in_use=id not in self.conversation.unloaded)

    def _route(self, call: ToolCall) -> tuple[ToolCall, str]:
        known = {*(spec.name for spec in self.scene.tools.specs()), *TOOLS}
        if canonical_tools(call.tool)[0] in known and call.tool not in ("Skill", "skill", "select_skills"):
            return call, ""
        load = "select_skills" if self.style.protocol == "actions" else "skill_load"
        return route_to_skill(call, known, self._find_name, load=load)

    def _find_name(self, text: str) -> str | None:
        catalog = self.skills.catalog()
        entry = catalog.find(text.strip())
        return text.strip() if entry is not None and catalog.visibility(entry).model_visible else None

    def _redact_text(self, text: str) -> str:
        return self.scene.redactor.redact_text(text)

    async def _learn_secrets(self, skill: Skill) -> None:
        """Reads the secrets that the skill declares, for its runs and for redaction."""
        if self._secrets is None or not (wanted := declared_env(skill)):
            return
        values = dict(self.scene.secrets)
        for name in wanted:
            value = await self._secrets.find(name)
            if value is not None:
                values[name] = value
        self.scene.secrets = values
        self.add_redactions(values)
        self.unredacted_secrets = tuple(name for name in self.scene.redactor.unusable if name in values)

    def add_redactions(self, values: Mapping[str, str]) -> None:
        """Redacts these values from everything from now on."""
        self._hidden |= values
        self.scene.redactor = Redactor(self._hidden, self.policy.redact)
