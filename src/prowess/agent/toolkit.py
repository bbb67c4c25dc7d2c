"""Kit: skills for an agent, over ports. What it is shown, what it can call, and `call`, which does it.

    async with kit:
        prompt = kit.instructions
        outcome = await kit.call("skill_load", {"skill": "pdf-forms"})

Every call goes through the same door, policy, workspace and record, whoever makes it: our loop, another framework's, or
`prowess exec`. A skill is activated in one way, whoever wants it: by a call of skill_load.
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
from prowess.core.values import CatalogPlan, Outcome, Plan, ToolCall, ToolSpec, Trigger
from prowess.errors import ProwessError, ResourceNotFound, SkillDenied, SkillError
from prowess.policy.allowed_tools import (
    TOOLS,
    canonical_tools,
)
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

_PATIENCE_S = 10.0
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
        self.again: tuple[str, ...] = ()  # options that a command has to be told again to repeat a run
        self.ancestry: tuple[str, ...] = ()  # ids of the skills whose child runs led here
        self.plan_limits: Mapping[str, int] = {}  # which a plan may tighten
        self._hidden: dict[str, str] = {}
        self._planned: tuple[CatalogPlan, Sequence[Rules], CatalogPlan] | None = None
        self.unhidden: tuple[str, ...] = ()  # secrets that are too short to be found in a text
        self._secrets, self._toolsets, self._on_output = secrets, toolsets, on_output
        self._programs = Programs()
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
        self._learning = asyncio.Lock()
        self._busy: set[asyncio.Future[None]] = set()  # calls that are being made
        self._contents: dict[tuple[str, str], LoadedSkill] = {}  # everything that was in use here
        self._ranks: dict[str, int] = {}  # of what was searched for
        self._error: ProwessError | None = None  # why the last activation failed
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
            keep=self.keep,
            given=self.facts.given,
            standing=self.facts.standing,
            changed=self.facts.changed,
            remember=self.facts.remember,
            preview=self._preview,
        )

    # --- what an agent is shown -------------------------------------------------------------------------------------

    @property
    def plan(self) -> CatalogPlan:
        """What is shown of the library now; planned once for a catalog and the rules, because every turn asks."""
        whole, rules = self.skills.plan(), self.policy.rules()
        if self._planned is None or self._planned[0] is not whole or self._planned[1] is not rules:
            self._planned = (whole, rules, plan_offer(self.skills.catalog(), whole, self.facts.surroundings, rules))
        return self._planned[2]

    @property
    def instructions(self) -> str:
        """The catalog and how to work with it, for the prompt; empty when there are no skills."""
        return render_offer(self.skills, self.plan, self.style)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The schemas for its model. What is not among them, and every alias, can be called all the same."""
        given = [spec for toolset in self._toolsets for spec in toolset.specs()]
        return offered_tools(self.plan, self.style, self._own, given, self.facts.surroundings.enabled)

    def is_read_only(self, tool: str) -> bool:
        return self._read_only.get(canonical_tools(tool)[0], False)

    @property
    def activation_error(self) -> ProwessError | None:
        """Why the last activation failed."""
        return self._error

    def names(self) -> list[str]:
        """Of the skills that a model may load."""
        catalog = self.skills.catalog()
        return [entry.name for entry in catalog if catalog.visibility(entry).model_visible]

    # --- what an agent does -----------------------------------------------------------------------------------------

    async def call(self, tool: str, args: Mapping[str, Any] | None = None, *, id: str | None = None) -> Outcome:
        """One call, decided, done and written down; its content is all that a model has to be given. A denial, a
        failure and a question that nobody could answer are outcomes."""
        given = dict(args) if isinstance(args, Mapping) else {} if args is None else {"arguments": args}
        outcome = await self.act(ToolCall(id=id or self.new_call_id("call"), tool=str(tool), args=given))
        self.shelf.new_turn()
        return self.with_skill_text(outcome)

    async def act(self, call: ToolCall, *, before_end: Callable[[], Awaitable[object]] | None = None) -> Outcome:
        """The same, as it is recorded: a loaded skill is named in it, and its text is put in by whoever composes."""
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
        """Load a skill from now on. SkillNotFound, SkillDenied or SkillInvalid says why not; ResourceNotFound that a
        doc is not there."""
        outcome = await self.wish(ref, source=source, trigger=trigger, arguments=arguments, docs=docs)
        if outcome.status != "ok":
            raise self._error or SkillDenied(outcome.content, code=outcome.code, hint=outcome.hint)
        if outcome.data.get("missing_docs"):  # a model is told, and goes on; a caller has made a mistake
            about = outcome.content.rpartition("\n")[2]
            raise ResourceNotFound(about, code="doc-not-found", hint="The skill itself is loaded.")
        return self.work.get(outcome.data["skill"])

    async def wish(
        self,
        ref: str,
        *,
        source: str | None = None,
        trigger: Trigger = "caller",
        arguments: str = "",
        docs: Sequence[str] = (),
        id: str | None = None,
    ) -> Outcome:
        """The activation as a call, and what came of it."""
        given = {"source": source, "arguments": arguments, "docs": list(docs)}
        args = {"skill": ref, **{name: value for name, value in given.items() if value}}
        self._error = None
        id = id or self.new_call_id("load")
        return await self.act(ToolCall(id=id, tool="skill_load", args=args, trigger=trigger))

    def new_call_id(self, kind: str) -> str:
        """One that no call of this session had: what a person said about that one is not said about this."""
        used, numbers = self.conversation.call_ids, self._numbers[kind]
        id = next(id for number in numbers if (id := f"{kind}-{number}") not in used)
        used.add(id)
        return id

    def redacted(self, event: Event) -> Any:
        return redact_event(event, self.scene.redactor)

    async def append(self, *events: Event) -> None:
        """Without secrets; written first, and only then true."""
        clean = [redact_event(event, self.scene.redactor) for event in events]
        await self.recorder.append(*clean)
        for event in clean:
            self.conversation.apply(event)

    def make_child(self, work: SessionWork, run_id: str, skill: str) -> Toolkit:
        """A kit for a run that is a part of this one: its own conversation, at most these permissions."""
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
        child.hide(self._hidden)
        child.scene.for_run = self.scene.for_run
        return child

    # --- a run of somebody else's loop ------------------------------------------------------------------------------

    async def __aenter__(self) -> Toolkit:
        await self.append(RunStarted(model="caller", versions={"prowess": __version__}, again=self.again))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.end_programs()
            await self.work.aclose()
            if self._busy:  # what they ran has ended, and what came of it belongs before the end of the run
                await asyncio.wait(self._busy, timeout=_PATIENCE_S)
        finally:
            if not self.recorder.broken:
                reason: StopReason = (
                    "answer" if kind is None else "error" if issubclass(kind, Exception) else "cancelled"
                )
                await self.append(RunFinished(stop_reason=reason))
            await self.recorder.close()

    async def end_programs(self) -> None:
        await self._programs.aclose()

    # --- what tools are given ---------------------------------------------------------------------------------------

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
        """Reading a SKILL.md as a file, or selecting docs of a skill that is not loaded, is loading it, under the same
        rules. The call has the id of that other one, so that an answer to it is found when it is made again."""
        call = ToolCall(id=f"{within.call_id}-load", tool="skill_load", args=dict(args), trigger=within.trigger)
        return await act(call, self.scene)

    def _look(self, ref: str, trigger: Trigger) -> Skill | None:
        """The skill that is meant, as it is now; None when it may not be loaded, or there is none."""
        try:
            skill = self.skills.load(ref, None, trigger)
        except SkillError:
            return None
        return None if skill.entry.id in self.plan.hidden else skill

    def _skill_at(self, path: str) -> str | None:
        """The id of the skill whose SKILL.md that is."""
        return next((entry.id for entry in self.skills.catalog() if entry.location == path), None)

    async def keep(self, call: ToolCall, text: str) -> str | None:
        if self.work.artifacts is None:
            return None
        name = f"outputs/{call.id}.txt"
        try:
            kept = await self.work.artifacts.save(self.work.key, name, text.encode(), mime_type="text/plain")
        except (ProwessError, OSError):  # then the outcome says that the rest was not kept
            return None
        return f"artifact://{name}@{kept.version}"

    async def _preview(self, call: ToolCall) -> str:
        """What write_file would change, line by line."""
        path, content = call.args.get("path"), call.args.get("content")
        if call.tool != "write_file" or not isinstance(path, str) or not isinstance(content, str):
            return ""
        before = None if path.startswith("/") else await self.read_workspace(path, _MOST_COMPARED)
        old = "" if before is None else before.decode("utf-8", "replace")
        lines = difflib.unified_diff(old.splitlines(), content.splitlines(), path, path, lineterm="")
        return "\n".join(itertools.islice(lines, _MOST_LINES))

    async def read_workspace(self, path: str, limit_bytes: int) -> bytes | None:
        """A file of the workspace; None when it is not there, or larger."""
        _, place = await self.work.workspace()
        try:
            return await asyncio.to_thread(read_beneath, place.root, path, limit_bytes)
        except (OSError, ProwessError):
            return None

    def find_content(self, id: str, digest: str) -> LoadedSkill | None:
        """A skill with exactly that content: from this run, or as it was published before."""
        found = self._contents.get((id, digest))
        if found is None:
            skill = self.skills.pinned(id, digest)
            if skill is not None:
                found = self._contents[id, digest] = self.work.restore(skill)
        return found

    def take_up_skills(self) -> None:
        """What the session has loaded, from the content that was pinned then: usable until it was unloaded, whether it
        is in view or not, as in the process that loaded it."""
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
        """The values of what it declares: for its runs, and to be taken out of everything from now on."""
        if self._secrets is None or not (wanted := declared_env(skill)):
            return
        values = dict(self.scene.secrets)
        for name in wanted:
            value = await self._secrets.find(name)
            if value is not None:
                values[name] = value
        self.scene.secrets = values
        self.hide(values)
        self.unhidden = tuple(name for name in self.scene.redactor.unusable if name in values)

    def hide(self, values: Mapping[str, str]) -> None:
        """Take these values out of everything from now on, whoever may use them."""
        self._hidden |= values
        self.scene.redactor = Redactor(self._hidden, self.policy.redact)
