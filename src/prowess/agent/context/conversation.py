"""Turns the events of a session into the next request, by applying them one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from prowess.agent.context.render import (
    SkillTextRenderer,
    asked_parts,
    paired,
    render_outcome,
    shortened,
    shows,
    without_above,
)
from prowess.agent.context.request import ModelRequest, RequestLines, first_change
from prowess.agent.context.state import (
    AnsweredCall,
    ApprovalQuestions,
    Asked,
    Item,
    Noted,
    Replied,
    State,
    UsageTotals,
    parse_spent,
)
from prowess.core.codec import from_json
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
from prowess.core.tool_table import COMMAND_TOOLS, UNCOUNTED_TOOLS
from prowess.core.values import Message, Outcome, Part, Plan, ToolCall, ToolSpec, add_usage
from prowess.tools.skills.state import part_ref

CONTEXT = "Loaded skill context:"
SHOWN_ONCE = "shown once"  # reason of an unload


class Conversation:
    def __init__(
        self,
        shown: SkillTextRenderer,
        vouches: Callable[[Envelope], bool] = lambda envelope: True,
        *,
        call_ids: set[str] | None = None,
    ) -> None:
        """Takes `vouches`, which is true for an answer in the log that was given in this home."""
        self.shown, self._vouches = shown, vouches
        self._items: list[Item] = []
        self._waiting: dict[str, CallActed] = {}  # outcomes that are not yet sorted in the order of the calls
        self._reply: tuple[ToolCall, ...] = ()  # calls of the last reply
        self._answered: set[str] = set()
        self._begun: set[str] = set()  # ids of recorded calls that may have begun
        self._lines = RequestLines()
        self._sent = 0  # number of lines that a model has seen
        self._system = ""
        self._tools: tuple[ToolSpec, ...] = ()
        self._request = 0
        self._compacted = 0  # number of the request at the last compaction, which drops skill arguments
        self._runs: dict[str, str | None] = {}  # run -> its parent run, for the runs of this session
        self._started: RunStarted | None = None
        self.first_started: RunStarted | None = None  # first run of the current request, not one that resumes it
        self.requested_loads: dict[str, ToolCall] = {}  # open skill_load calls that the model did not make
        self._shown_once: set[str] = set()
        self._over: dict[str, None] = {}  # ids of skills shown once and unloaded since the last reply
        self.questions = ApprovalQuestions()
        self.contents: dict[str, str] = {}  # id -> latest digest of every skill that the session loaded
        self.unloaded: set[str] = set()  # ids of unloaded skills, without those shown once
        self.loads: dict[str, str] = {}  # id -> digest of skills that the current request loaded
        self.state = State()
        self.plan: Plan | None = None
        self.spent = UsageTotals()
        self.stale: str | None = "run started"  # reason why the next request begins an epoch
        self.finished: RunFinished | None = None  # end of the last run
        self.replied: ModelReplied | None = None  # last reply
        self.run: str | None = None  # last run
        self.call_ids: set[str] = set() if call_ids is None else call_ids  # an id is used once in a session
        self.children: dict[str, str] = {}  # open call -> the last child run that worked on it
        self.counted: dict[str, UsageTotals] = {}  # waiting call -> usage of its child run, already counted

    # --- current values ---------------------------------------------------------------------------------------------

    def request(self) -> ModelRequest:
        return self._lines.request()

    def in_view(self, ref: str) -> bool:
        """True if the text with this ref is in the messages, or will be after the outcomes that are not yet added."""
        if ref in self._lines.refs:
            return True
        outcomes = [event.outcome for event in self._waiting.values()]
        return any(ref == part_ref(o.data["skill"], o.data["digest"], path) for o in outcomes for path in shows(o))

    @property
    def task(self) -> str:
        """Text of the last request."""
        asked = next((item for item in reversed(self._items) if isinstance(item, Asked)), None)
        return "" if asked is None else "\n".join(part.text or "" for part in asked.parts if part.ref is None)

    @property
    def attachments(self) -> tuple[Part, ...]:
        """Attachments of the last run."""
        return () if self._started is None else self._started.attachments

    @property
    def last_text(self) -> str:
        """Last text of the model for the current request."""
        for item in reversed(self._items):
            if isinstance(item, Replied) and item.text and not item.ours and item.request == self._request:
                return item.text
        return ""

    @property
    def answer(self) -> str | None:
        """Final answer of the model, if it is the last item, apart from outcomes of code in that answer."""
        self._settle()
        last = next(
            (item for item in reversed(self._items) if not (isinstance(item, AnsweredCall) and not item.own)), None
        )
        return last.text if isinstance(last, Replied) and last.final else None

    def unfinished_calls(self) -> list[tuple[ToolCall, bool]]:
        """Calls without a result or waiting for a person: requested skills, and calls of the last reply. The flag is
        true if the call was begun and may have been done. It is false for a child run, which can continue."""
        found = {id: outcome.status for id, outcome in self._outcomes().items()}
        left = [call for call in self._reply if found.get(call.id) in (None, "waiting")]
        again = [(call, False) for call in self.requested_loads.values()]
        return [*again, *((call, self.was_begun(call.id)) for call in left)]

    def waiting_calls(self) -> list[ToolCall]:
        """Calls that wait for a person. For a call in a child run, the waiting calls of the child."""
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
        """True if the call was begun and has no outcome, so it may have been done."""
        return call_id in self._begun and call_id not in self.children and self.find_outcome(call_id) is None

    def _outcomes(self) -> dict[str, Outcome]:
        """Outcomes of the current request, by call id."""
        answered = (item for item in self._items if isinstance(item, AnsweredCall) and item.request == self._request)
        found = {item.call_id: item.outcome for item in answered}
        return found | {id: event.outcome for id, event in self._waiting.items()}

    def outcomes(self) -> list[tuple[str, Outcome]]:
        """Outcomes of the current request, as (tool, outcome)."""
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
        """Number of the current request."""
        return self._request

    @property
    def turn_once(self) -> list[str]:
        """Ids of skills that were shown in a request, in load mode `once`."""
        if self._started is None or self._started.load_mode != "once":
            return []
        return [id for id in self.state.ids if id in self._shown_once]

    @property
    def over(self) -> list[str]:
        """Ids of skills that were shown once, unloaded, and not loaded again since."""
        loaded = {each.id for each in self.state.skills.values()}
        return [id for id in self._over if id not in loaded]

    # --- events -----------------------------------------------------------------------------------------------------

    def apply_envelope(self, envelope: Envelope) -> None:
        """Applies an event of the log. Events of child runs belong to their own conversations."""
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
        """Restores the conversation of a child run, which may span several runs."""
        self._runs = dict.fromkeys(runs)
        for envelope in envelopes:
            event = envelope.event
            if envelope.run in runs:
                self._apply_recorded(envelope)
            elif isinstance(event, RunStarted) and event.parent in runs and event.call is not None:
                self.children[event.call] = envelope.run

    def _apply_recorded(self, envelope: Envelope) -> None:
        """Applies a recorded event. An answer that was not asked for, or not given in this home, does not count."""
        event, self.run = envelope.event, envelope.run
        self.apply(event)
        if isinstance(event, ApprovalAnswered) and not (event.asked and self._vouches(envelope)):
            self.questions.forget(event)

    def start_run(self, run: str) -> None:
        """Notes which run the next events belong to."""
        self.run = run

    def take_back_turn(self) -> None:
        """Does not count the last turn: its request was too long for the model."""
        self.spent.turns -= 1

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
            self.requested_loads, self.children, self.counted, self._over = {}, {}, {}, {}
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
        if event.decision.verdict == "ask":  # nothing is done before the answer
            self._begun.discard(event.call_id)
        self.questions.note_decision(event)

    def _call_planned(self, event: CallPlanned) -> None:
        call = event.call
        self._begun.add(call.id)
        self.call_ids.add(call.id)
        if call.tool == "skill_load" and call.trigger != "model":
            self.requested_loads[call.id] = call

    def _call_acted(self, event: CallActed) -> None:
        self._waiting[event.call_id] = event
        outcome = event.outcome
        call = next((call for call in self._reply if call.id == event.call_id), None)
        if call is not None and call.tool not in UNCOUNTED_TOOLS and outcome.status != "waiting":
            self.spent.calls += 1
        if "exit_code" in outcome.data or "session_id" in outcome.data:
            self.spent.scripts += bool(call is None or call.tool in COMMAND_TOOLS or "exit_code" in outcome.data)
        if "child" in outcome.data:
            self._count_child(event.call_id, outcome)
        if outcome.status != "waiting":
            self.requested_loads.pop(event.call_id, None)
            self.children.pop(event.call_id, None)
            self.questions.end(event.call_id)
        self._merge_state(event)
        if isinstance(skill := outcome.data.get("skill"), str) and outcome.data.get("show"):
            self._shown_once.discard(skill)

    def _merge_state(self, event: CallActed) -> None:
        if not event.state_delta:
            return
        before = self.state.wanted()
        self.state.merge(event.state_delta, event.outcome.data)
        if self._placed_in_system and self.state.wanted() != before:
            self.stale = self.stale or "skills changed under system placement"

    def _count_child(self, call_id: str, outcome: Outcome) -> None:
        """Adds the usage of a child run. Usage from before it waited is not counted twice."""
        used, before = parse_spent(outcome.data), self.counted.pop(call_id, UsageTotals())
        self.spent.add(used.less(before))
        if outcome.status == "waiting":
            self.counted[call_id] = used

    def _asked(self, event: ApprovalAsked) -> None:
        self.spent.prompts += 1
        self.questions.ask(event)

    def _person_answered(self, event: ApprovalAnswered) -> None:
        """Notes an answer. Unless it came later, while no run was active, the call begins now."""
        was_open = self.questions.answer(event)
        if not event.later and event.answer != "no":
            self._begun.add(event.call_id)
        if was_open and not event.asked:
            self.spent.prompts -= 1

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
        said = event.text == self.last_text  # the model itself reported the failure
        if event.text and event.stop_reason not in ("answer", "waiting") and not said:
            self._add(Replied(self._request, event.text, (), ours=True))

    # --- messages ---------------------------------------------------------------------------------------------------

    @property
    def _placed_in_system(self) -> bool:
        return self._started is not None and self._started.placement == "system"

    def _settle(self) -> None:
        """Adds outcomes in the order of the calls. Outcomes of calls that the model did not make follow as context."""
        if not self._waiting:
            return
        own = [call.id for call in self._reply if call.id in self._waiting]
        for id in [*own, *(id for id in self._waiting if id not in own)]:
            self._answer(AnsweredCall(self._request, id, self._waiting[id].outcome, id in own))
        self._waiting.clear()

    def _answer(self, item: AnsweredCall) -> None:
        """Adds an outcome. The old outcome of a call that waited or was interrupted is replaced, in a new epoch."""
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
        """Texts that a call puts into view."""
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
        """Arguments of a skill, as a part beside the body. The body stays the same bytes for every use."""
        data = outcome.data
        if not isinstance(text := data.get("arguments"), str) or not text or "skill" not in data:
            return []
        block = self.shown.arguments(data["skill"], str(data.get("digest")), text)
        return [Part(text=block, ref="note:arguments")] if block else []

    # --- epochs -----------------------------------------------------------------------------------------------------

    def first_change(self, system: str, tools: Sequence[ToolSpec]) -> int | None:
        """Finds the first byte of the last request that a new epoch would change."""
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
        """Replaces tools read from the log by equal ones with the original order of fields, which a log may change."""
        if tools == self._tools:
            self._tools = tools

    def _build(self, system: str, tools: tuple[ToolSpec, ...]) -> RequestLines:
        """Builds the whole request again. Unused texts are left out; texts whose result is gone come first."""
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
        """True if a result may show texts. In turn mode, results of earlier requests stay stubs."""
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
