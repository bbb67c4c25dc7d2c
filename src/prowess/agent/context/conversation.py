"""A session's events, folded into the request that comes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from prowess.agent.context.items import AnsweredCall, Asked, Item, Noted, Replied
from prowess.agent.context.render import asked_parts, paired, render_outcome, shortened, shows, without_above
from prowess.agent.context.request import ModelRequest, RequestLines, first_change
from prowess.agent.context.skill_text import SkillTextRenderer
from prowess.agent.context.state import State
from prowess.agent.context.usage import UsageTotals, add_usage, parse_spent
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
)
from prowess.core.values import Message, Outcome, Part, Plan, ToolCall, ToolSpec, from_json
from prowess.policy.decision import asked_isolated
from prowess.tools.skills.state import part_ref

CONTEXT = "Loaded skill context:"
SHOWN_ONCE = "shown once"  # why a skill was unloaded
_SCRIPTS = frozenset(("skill_run", "skill_exec"))


class Conversation:
    def __init__(self, shown: SkillTextRenderer, vouches: Callable[[Envelope], bool] = lambda envelope: True) -> None:
        """`vouches` says of an answer in the log whether somebody here gave it."""
        self.shown, self._vouches = shown, vouches
        self._items: list[Item] = []
        self._waiting: dict[str, CallActed] = {}  # acted, and not yet in the order of the reply
        self._reply: tuple[ToolCall, ...] = ()  # calls of the last reply
        self._answered: set[str] = set()
        self._begun: set[str] = set()  # those of them that were written down to be made
        self._lines = RequestLines()
        self._sent = 0  # how many of these lines a model has seen
        self._system = ""
        self._tools: tuple[ToolSpec, ...] = ()
        self._request = 0
        self._compacted = 0  # the request at which arguments of skills were last left behind
        self._runs: dict[str, str | None] = {}  # of this session, and of which run each is a part
        self._started: RunStarted | None = None
        self.first_started: RunStarted | None = None  # of the request that is being worked on: none that resumes it
        self.wished: dict[str, ToolCall] = {}  # skills that were to be loaded, not by the model, and are not yet
        self._asking: set[tuple[str, str]] = set()  # questions that nobody has answered: call, capability
        self._shown_once: set[str] = set()
        self._over: dict[str, None] = {}  # ids of skills that were to be shown once, since the last reply
        self._isolated: dict[str, bool] = {}  # by call, as it was decided about last
        self.asked_isolated: dict[str, bool] = {}  # by call: whether what a person was asked about would be isolated
        self.answers: dict[tuple[str, str], ApprovalAnswered] = {}
        self.contents: dict[str, str] = {}  # id -> digest of every skill that the session has loaded, as it was last
        self.unloaded: set[str] = set()  # those of them that were unloaded; not by being shown once
        self.loads: dict[str, str] = {}  # id -> digest of what the request that is being worked on has loaded
        self.state = State()
        self.plan: Plan | None = None
        self.spent = UsageTotals()
        self.stale: str | None = "run started"  # why the next request begins an epoch
        self.finished: RunFinished | None = None  # of the last run
        self.replied: ModelReplied | None = None  # the last one
        self.run: str | None = None  # the last one
        self.call_ids: set[str] = set()  # of the whole session, child runs included: an id is used once
        self.children: dict[str, str] = {}  # call that has no result yet -> the last child run that worked on it
        self.counted: dict[
            str, UsageTotals
        ] = {}  # call that waits -> what its child run had used, which counts already

    # --- what it is now ---------------------------------------------------------------------------------------------

    def request(self) -> ModelRequest:
        return self._lines.request()

    def in_view(self, ref: str) -> bool:
        """Whether a text of that origin is in the messages, as they are, or will be with what was just done."""
        if ref in self._lines.refs:
            return True
        outcomes = [event.outcome for event in self._waiting.values()]
        return any(ref == part_ref(o.data["skill"], o.data["digest"], path) for o in outcomes for path in shows(o))

    @property
    def task(self) -> str:
        """What was asked for last."""
        asked = next((item for item in reversed(self._items) if isinstance(item, Asked)), None)
        return "" if asked is None else "\n".join(part.text or "" for part in asked.parts if part.ref is None)

    @property
    def attachments(self) -> tuple[Part, ...]:
        """What came with it."""
        return () if self._started is None else self._started.attachments

    @property
    def last_text(self) -> str:
        """What the model said last about the request that is being worked on."""
        for item in reversed(self._items):
            if isinstance(item, Replied) and item.text and not item.ours and item.request == self._request:
                return item.text
        return ""

    @property
    def answer(self) -> str | None:
        """What the model gave as its answer, when that is the last thing that happened, but for what its code did."""
        self._settle()
        last = next(
            (item for item in reversed(self._items) if not (isinstance(item, AnsweredCall) and not item.own)), None
        )
        return last.text if isinstance(last, Replied) and last.final else None

    def unfinished_calls(self) -> list[tuple[ToolCall, bool]]:
        """Calls that have no result or wait for a person: skills that were wished for, and those of the last reply.
        And whether one was being made, so that it may have been done; a child run can go on where it was."""
        outcomes = self._outcomes()
        found = {id: outcome.status for id, outcome in outcomes.items()}
        left = [call for call in self._reply if found.get(call.id) in (None, "waiting")]
        again = [(call, False) for call in self.wished.values()]
        return [*again, *((call, self.was_begun(call.id)) for call in left)]

    def waiting_calls(self) -> list[ToolCall]:
        """Those that a person is asked about; of a call that a child run makes, the child's."""
        found: list[ToolCall] = []
        outcomes = {id: outcome for id, outcome in self._outcomes().items() if outcome.status == "waiting"}
        for id, outcome in outcomes.items():
            if isinstance(inner := outcome.data.get("waiting"), list):
                found += [from_json(ToolCall, each) for each in inner]
            elif f"{id}-load" not in outcomes and isinstance(call := outcome.data.get("call"), dict):
                found.append(ToolCall(id=id, tool=call["tool"], args=call["args"]))
        return found

    def find_outcome(self, call_id: str) -> Outcome | None:
        return self._outcomes().get(call_id)

    def was_begun(self, call_id: str) -> bool:
        """It was being made, and nobody knows how far that came."""
        return call_id in self._begun and call_id not in self.children and self.find_outcome(call_id) is None

    def _outcomes(self) -> dict[str, Outcome]:
        """Of the request that is being worked on, by call."""
        answered = (item for item in self._items if isinstance(item, AnsweredCall) and item.request == self._request)
        found = {item.call_id: item.outcome for item in answered}
        return found | {id: event.outcome for id, event in self._waiting.items()}

    def find_answer(self, call_id: str, capability: str) -> ApprovalAnswered | None:
        """What a person said about a call that waited."""
        return self.answers.get((call_id, capability)) or self.answers.get((call_id, ""))

    def outcomes(self) -> list[tuple[str, Outcome]]:
        """Of the request that is being worked on: tool, what came of it."""
        self._settle()
        tools = {call.id: call.tool for item in self._items if isinstance(item, Replied) for call in item.calls}
        return [
            (tools.get(item.call_id, "skill_load"), item.outcome)
            for item in self._items
            if isinstance(item, AnsweredCall) and item.request == self._request
        ]

    @property
    def items(self) -> Sequence[Item]:
        return self._items

    @property
    def number(self) -> int:
        """Of the request that is being worked on."""
        return self._request

    @property
    def turn_once(self) -> list[str]:
        """Ids of skills that were shown in a request and are to be seen only once."""
        if self._started is None or self._started.load_mode != "once":
            return []
        return [id for id in self.state.ids if id in self._shown_once]

    @property
    def over(self) -> list[str]:
        """Ids of skills whose one request has passed, and which were not loaded again since."""
        loaded = {each.id for each in self.state.skills.values()}
        return [id for id in self._over if id not in loaded]

    # --- events -----------------------------------------------------------------------------------------------------

    def apply_envelope(self, envelope: Envelope) -> None:
        """An event of the log. Those of child runs belong to conversations of their own."""
        event = envelope.event
        if isinstance(event, RunStarted):
            self._runs[envelope.run] = event.parent
            if event.parent is not None and event.call is not None and self._runs.get(event.parent, "") is None:
                self.children[event.call] = envelope.run
        if self._runs.get(envelope.run) is None:
            self._apply_recorded(envelope)
        elif isinstance(event, ModelReplied):
            self.call_ids.update(call.id for call in event.calls)
        elif isinstance(event, CallPlanned):
            self.call_ids.add(event.call.id)

    def take_up(self, envelopes: Iterable[Envelope], runs: Collection[str]) -> None:
        """The conversation of a child run, which went on in several."""
        self._runs = dict.fromkeys(runs)
        for envelope in envelopes:
            event = envelope.event
            if envelope.run in runs:
                self._apply_recorded(envelope)
            elif isinstance(event, RunStarted) and event.parent in runs and event.call is not None:
                self.children[event.call] = envelope.run

    def _apply_recorded(self, envelope: Envelope) -> None:
        """An answer that nobody here gave, or nobody was asked for, is history, and answers nothing."""
        event, self.run = envelope.event, envelope.run
        self.apply(event)
        if isinstance(event, ApprovalAnswered) and not (event.asked and self._vouches(envelope)):
            del self.answers[event.call_id, event.capability]

    def apply(self, event: Event | UnknownEvent) -> None:
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def _run_started(self, event: RunStarted) -> None:
        self._settle()
        self._started, self.finished = event, None
        self.stale = "run resumed" if event.resumes else "run started"
        if event.resumes is None:
            self.first_started = event
            self._request += 1
            self.spent = UsageTotals()
            self.plan = None
            self.loads = {}
            self.wished, self.children, self.counted, self._over = {}, {}, {}, {}
            if event.load_mode != "session":
                self.state.clear_temporary()
        if event.request or event.attachments or event.resumes is None:
            self._add(Asked(self._request, asked_parts(event)))

    def _epoch_started(self, event: EpochStarted) -> None:
        self._settle()
        if event.system is not None:
            self._system = event.system
        if event.tools is not None:
            self._tools = event.tools
        self._lines = self._build(self._system, self._tools)
        self._sent = 0
        self.stale = None

    def _model_requested(self, event: ModelRequested) -> None:
        self._settle()
        self._sent = len(self._lines.lines)
        self.spent.turns += 1
        self._shown_once |= set(self.state.ids)

    def _model_replied(self, event: ModelReplied) -> None:
        self._settle()
        self.spent.usage = add_usage(self.spent.usage, event.usage)
        self.replied, self._reply, self._begun, self._over = event, event.calls, set(), {}
        self.call_ids.update(call.id for call in event.calls)
        final = bool(event.text) and not event.calls and event.finish == "stop" and event.code is None
        self._add(Replied(self._request, event.text, event.calls, final))

    def _decided(self, event: CallDecided) -> None:
        if event.decision.verdict == "ask":  # whatever it needs, nothing is done before that is answered
            self._begun.discard(event.call_id)
        if (isolated := asked_isolated(event.decision)) is not None:
            self._isolated[event.call_id] = isolated

    def _call_planned(self, event: CallPlanned) -> None:
        call = event.call
        self._begun.add(call.id)
        self.call_ids.add(call.id)
        if call.tool == "skill_load" and call.trigger != "model":
            self.wished[call.id] = call

    def _call_acted(self, event: CallActed) -> None:
        self._waiting[event.call_id] = event
        outcome = event.outcome
        call = next((call for call in self._reply if call.id == event.call_id), None)
        if call is not None and call.tool != "update_plan" and outcome.status != "waiting":
            self.spent.calls += 1
        if "exit_code" in outcome.data or "session_id" in outcome.data:
            self.spent.scripts += bool(call is None or call.tool in _SCRIPTS or "exit_code" in outcome.data)
        if "child" in outcome.data:
            self._count_child(event.call_id, outcome)
        if outcome.status != "waiting":
            self.wished.pop(event.call_id, None)
            self.children.pop(event.call_id, None)
            for key in [key for key in self.answers if key[0] == event.call_id]:
                del self.answers[key]  # it was said about that call, and not about another of that name
        before = self.state.wanted()
        self.state.merge(event.state_delta, outcome.data)
        if self._placed_in_system and self.state.wanted() != before:
            self.stale = self.stale or "skills changed under system placement"
        if isinstance(skill := outcome.data.get("skill"), str) and outcome.data.get("show"):
            self._shown_once.discard(skill)

    def _count_child(self, call_id: str, outcome: Outcome) -> None:
        """All that it has used, also before it waited; what counted then does not count again."""
        used, before = parse_spent(outcome.data), self.counted.pop(call_id, UsageTotals())
        self.spent.add(used.less(before))
        if outcome.status == "waiting":
            self.counted[call_id] = used

    def _asked(self, event: ApprovalAsked) -> None:
        """A new question about a call; what was said to an older one is not the answer to it."""
        self.spent.prompts += 1
        self._asking.add((event.call_id, event.capability))
        self.asked_isolated[event.call_id] = self._isolated.get(event.call_id, False)
        for key in [key for key in self.answers if key[0] == event.call_id and key[1] in ("", event.capability)]:
            del self.answers[key]

    def _person_answered(self, event: ApprovalAnswered) -> None:
        """An answer to a call that waits may come while nobody runs; else the call is being made from here on."""
        self.answers[event.call_id, event.capability] = event
        if not event.later and event.answer != "no":
            self._begun.add(event.call_id)
        if (event.call_id, event.capability) in self._asking:
            self._asking.discard((event.call_id, event.capability))
            self.spent.prompts -= not event.asked

    def _note(self, event: NoteAppended) -> None:
        self._settle()
        self._add(Noted(self._request, event.kind, event.text))

    def _loaded(self, event: SkillLoaded) -> None:
        self.loads[event.id] = self.contents[event.id] = event.digest
        self.unloaded.discard(event.id)

    def _unloaded(self, event: SkillUnloaded) -> None:
        self.state.unload(event.id)
        if event.reason == SHOWN_ONCE:
            self._over[event.id] = None
        else:
            self.unloaded.add(event.id)
        if self._placed_in_system:
            self.stale = self.stale or "skills changed under system placement"

    def _plan_changed(self, event: PlanChanged) -> None:
        self.plan = event.plan

    def _compacted_now(self, event: Compacted) -> None:
        self._settle()
        self.spent.usage = add_usage(self.spent.usage, event.usage)
        kept = self._items[event.dropped :]
        if event.summary:
            kept.insert(0, Noted(self._request, "summary", event.summary))
        self._items = [shortened(item, event.replaced) for item in kept]
        self._compacted = self._request
        self.stale = "compacted"

    def _run_finished(self, event: RunFinished) -> None:
        self._settle()
        self.finished = event
        said = event.text == self.last_text  # by the model, which reported a failure
        if event.text and event.stop_reason not in ("answer", "waiting") and not said:
            self._add(Replied(self._request, event.text, (), ours=True))

    # --- messages ---------------------------------------------------------------------------------------------------

    @property
    def _placed_in_system(self) -> bool:
        return self._started is not None and self._started.placement == "system"

    def _settle(self) -> None:
        """Results stand in the order of the calls, whatever came first; what was not called for follows as context."""
        if not self._waiting:
            return
        own = [call.id for call in self._reply if call.id in self._waiting]
        for id in [*own, *(id for id in self._waiting if id not in own)]:
            self._answer(AnsweredCall(self._request, id, self._waiting[id].outcome, id in own))
        self._waiting.clear()

    def _answer(self, item: AnsweredCall) -> None:
        """One that waited, or was cut off, has its place already; then a run began, and an epoch with it."""
        if item.call_id in self._answered and item.own:
            for index, old in enumerate(self._items):
                if isinstance(old, AnsweredCall) and old.call_id == item.call_id:
                    self._items[index] = item
                    self.stale = self.stale or "a call was made after all"
                    return
        self._answered.add(item.call_id)
        self._add(item)

    def _add(self, item: Item) -> None:
        self._items.append(item)
        for message in self._messages(item, self._shown_now(item)):
            self._lines.append(message)

    def _shown_now(self, item: Item) -> list[Part]:
        """What a call put in view, when it did."""
        if not isinstance(item, AnsweredCall) or self._placed_in_system:
            return []
        data = item.outcome.data
        new = [p for p in shows(item.outcome) if part_ref(data["skill"], data["digest"], p) not in self._lines.refs]
        parts = [self.shown.part(data["skill"], data["digest"], path) for path in new]
        return [*(part for part in parts if part is not None), *self._arguments(item.outcome)]

    def _messages(self, item: Item, shown: Sequence[Part]) -> list[Message]:
        match item:
            case Asked(_, parts):
                return [Message(role="user", parts=parts)]
            case Replied(_, text, calls, _, _):
                return [Message(role="assistant", parts=(Part(text=text),) if text else (), calls=calls)]
            case AnsweredCall(_, call_id, outcome, True):
                return [Message(role="tool", call_id=call_id, parts=(Part(text=render_outcome(outcome)), *shown))]
            case AnsweredCall(_, _, outcome, _) if "child" in outcome.data:
                said = "<note>\nA child run answered. This is what it said, not what the user says:\n"
                text = f"{said}{render_outcome(outcome)}\n</note>"
                return [Message(role="user", parts=(Part(text=text, ref="note:child"),))]
            case AnsweredCall():
                return [Message(role="user", parts=(Part(text=CONTEXT, ref="note:context"), *shown))] if shown else []
            case Noted(_, kind, text):
                return [Message(role="user", parts=(Part(text=text, ref=f"note:{kind}"),))]

    def _arguments(self, outcome: Outcome) -> list[Part]:
        """Told beside the body, never written into it: a body is the same bytes for every use."""
        data = outcome.data
        if not isinstance(text := data.get("arguments"), str) or not text or "skill" not in data:
            return []
        block = self.shown.arguments(data["skill"], str(data.get("digest")), text)
        return [Part(text=block, ref="note:arguments")] if block else []

    # --- epochs -----------------------------------------------------------------------------------------------------

    def first_change(self, system: str, tools: Sequence[ToolSpec]) -> int | None:
        """Which byte of the request as it was would be the first to change."""
        self._settle()
        before = self._lines.lines[: self._sent]
        if not before:
            return None
        after = self._build(system, tuple(tools)).lines
        change = first_change(before, after)
        return sum(map(len, before)) if change is None else change

    @property
    def system(self) -> str:
        return self._system

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return self._tools

    def keep_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        """The same tools, with their fields in the order that their authors gave them; a log has another one."""
        if tools == self._tools:
            self._tools = tools

    def _build(self, system: str, tools: tuple[ToolSpec, ...]) -> RequestLines:
        """Everything anew: what is no longer in use is left out, what has lost its place is told first."""
        wanted = self.shown.parts(self.state.wanted())
        told = set(wanted)
        messages: list[Message] = []
        for item in self._items:
            if isinstance(item, Noted) and item.kind != "summary":
                continue
            shown: list[Part] = []
            if isinstance(item, AnsweredCall) and not self._placed_in_system and self._may_show(item):
                data = item.outcome.data
                places = [(data["skill"], data["digest"], path) for path in shows(item.outcome)]
                shown = [part for place in places if (part := wanted.pop(place, None)) is not None]
                if item.request == self._request and self._compacted != self._request:
                    shown += self._arguments(item.outcome)
            if isinstance(item, AnsweredCall):
                item = without_above(item, told if self._may_show(item) else ())
            messages += self._messages(item, shown)
        first = [Message(role="system", parts=(Part(text=system),))] if system else []
        if wanted:
            text = Part(text=CONTEXT, ref="note:context")
            first.append(Message(role="system", parts=(text, *wanted.values())))
        return RequestLines(tools, [*first, *paired(messages)])

    def _may_show(self, item: AnsweredCall) -> bool:
        """In turn mode what an earlier request loaded is a stub, even where the same skill is in use again."""
        return item.request == self._request or (self._started is not None and self._started.load_mode == "session")


_HANDLERS: dict[type, Callable[[Conversation, Any], None]] = {
    RunStarted: Conversation._run_started,
    EpochStarted: Conversation._epoch_started,
    ModelRequested: Conversation._model_requested,
    ModelReplied: Conversation._model_replied,
    CallPlanned: Conversation._call_planned,
    CallDecided: Conversation._decided,
    ApprovalAsked: Conversation._asked,
    ApprovalAnswered: Conversation._person_answered,
    CallActed: Conversation._call_acted,
    NoteAppended: Conversation._note,
    SkillLoaded: Conversation._loaded,
    SkillUnloaded: Conversation._unloaded,
    PlanChanged: Conversation._plan_changed,
    Compacted: Conversation._compacted_now,
    RunFinished: Conversation._run_finished,
}
