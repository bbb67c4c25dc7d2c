"""Turns the events of a session into the next request, by applying them one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from prowess.agent.context.render import (
    SkillTextRenderer,
    asked_parts,
    shows,
)
from prowess.agent.context.request import ModelRequest, RequestDraft
from prowess.agent.context.state import (
    SHOWN_ONCE,
    ApprovalQuestions,
    Asked,
    Item,
    Noted,
    Replied,
    State,
    UnloadedSkills,
    UsageTotals,
    find_answer,
    find_last_text,
    find_outcomes,
    find_place,
    find_task,
    find_tools,
    find_waiting,
    parse_spent,
)
from prowess.agent.output import NOTE_KIND
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    CatalogPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    OutputRequested,
    PlanChanged,
    RunFinished,
    RunStarted,
    SessionImported,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
)
from prowess.core.tool_table import COMMAND_TOOLS, UNCOUNTED_TOOLS
from prowess.core.values import CatalogPlan, Outcome, Part, Plan, ToolCall, ToolSpec, add_usage
from prowess.tools.skills.state import part_ref


class Conversation:
    def __init__(
        self,
        shown: SkillTextRenderer,
        vouches: Callable[[Envelope], bool] = lambda envelope: True,
        *,
        call_ids: set[str] | None = None,
    ) -> None:
        """Takes `vouches`, which is true for an answer in the log that was given in this home."""
        self.shown = shown
        self._vouches = vouches
        self.state: State = State()
        self.draft: RequestDraft = RequestDraft(shown, self.state)
        self._waiting: dict[str, CallActed] = {}  # outcomes that are not yet sorted in the order of the calls
        self.last_calls: tuple[ToolCall, ...] = ()  # calls of the last reply
        self._called_at = 0  # number of the request that this reply is for
        self._begun: set[str] = set()  # ids of recorded calls that may have begun, and have no outcome since
        self._runs: dict[str, str | None] = {}  # run -> its parent run, for the runs of this session
        self._started: RunStarted | None = None
        self.first_started: RunStarted | None = None  # first run of the current request, not one that resumes it
        self.requested_loads: dict[str, ToolCall] = {}  # open skill_load calls that the model did not make
        self._shown_once: set[str] = set()
        self.went: UnloadedSkills = UnloadedSkills(self.state)
        self.catalog: CatalogPlan | None = None  # last plan that was recorded
        self.questions: ApprovalQuestions = ApprovalQuestions()
        self.contents: dict[str, str] = {}  # id -> latest digest of every skill that the session loaded
        self.unloaded: set[str] = set()  # ids of unloaded skills, without those shown once
        self.loads: dict[str, str] = {}  # id -> digest of skills that the current request loaded
        self.output: OutputRequested | None = None  # form of the answer to the current request
        self.refused: int = 0  # number of replies of the current run that did not fit this form, before the last reply
        self._is_refused = False  # the last reply does not fit
        self.plan: Plan | None = None
        self.spent: UsageTotals = UsageTotals()
        self.stale: str | None = "run started"  # reason why the next request begins an epoch
        self.finished: RunFinished | None = None  # end of the last run
        self.replied: ModelReplied | None = None  # last reply
        self.run: str | None = None  # last run
        self.call_ids: set[str] = set() if call_ids is None else call_ids  # an id is used once in a session
        self.children: dict[str, str] = {}  # open call -> the last child run that worked on it
        self.counted: dict[str, UsageTotals] = {}  # waiting call -> usage of its child run, already counted

    # --- current values ---------------------------------------------------------------------------------------------

    def request(self) -> ModelRequest:
        return self.draft.lines.request()

    def in_view(self, ref: str) -> bool:
        """True if the text with this ref is in the messages, or will be after the outcomes that are not yet added."""
        if ref in self.draft.lines.refs:
            return True
        for event in self._waiting.values():
            data = event.outcome.data
            for path in shows(event.outcome):
                if ref == part_ref(data["skill"], data["digest"], path):
                    return True
        return False

    @property
    def task(self) -> str:
        """Text of the last request."""
        return find_task(self.draft.items)

    @property
    def attachments(self) -> tuple[Part, ...]:
        """Attachments of the last run."""
        if self._started is None:
            return ()
        return self._started.attachments

    @property
    def last_text(self) -> str:
        """Last text of the model for the current request."""
        return find_last_text(self.draft.items, self.number)

    @property
    def answer(self) -> str | None:
        """Final answer of the model, if it is the last item, apart from outcomes of code in that answer."""
        self._settle()
        return find_answer(self.draft.items)

    def unfinished_calls(self) -> list[tuple[ToolCall, bool]]:
        """Calls without a result or waiting for a person: requested skills, and calls of the last reply. The flag is
        true if the call was begun and may have been done. It is false for a child run, which can continue."""
        found: list[tuple[ToolCall, bool]] = []
        for call in self.requested_loads.values():
            found.append((call, False))
        if self._called_at != self.number:  # those of an earlier request were ended, or given up, with it
            return found
        outcomes = self._outcomes()
        for call in self.last_calls:
            outcome = outcomes.get(call.id)
            if outcome is None or outcome.status == "waiting":
                begun = self.was_begun(call.id)
                found.append((call, begun))
        return found

    def waiting_calls(self) -> list[ToolCall]:
        """Calls that wait for a person. For a call in a child run, the waiting calls of the child."""
        return find_waiting(self._outcomes())

    def find_outcome(self, call_id: str) -> Outcome | None:
        """Finds the outcome of a call of the current request."""
        return self._outcomes().get(call_id)

    def was_begun(self, call_id: str) -> bool:
        """True if the call was begun and has no outcome since, so it may have been done."""
        return call_id in self._begun and call_id not in self.children

    def _outcomes(self) -> dict[str, Outcome]:
        """Outcomes of the current request, by call id."""
        found: dict[str, Outcome] = {}
        for item in find_outcomes(self.draft.items, self.number):
            found[item.call_id] = item.outcome
        for id, event in self._waiting.items():
            found[id] = event.outcome
        return found

    def outcomes(self) -> list[tuple[str, Outcome]]:
        """Outcomes of the current request, as (tool, outcome)."""
        self._settle()
        tools = find_tools(self.draft.items)
        found: list[tuple[str, Outcome]] = []
        for item in find_outcomes(self.draft.items, self.number):
            tool = tools.get(item.call_id, "skill_load")
            found.append((tool, item.outcome))
        return found

    @property
    def items(self) -> Sequence[Item]:
        return self.draft.items

    @property
    def number(self) -> int:
        """Number of the current request."""
        return self.draft.number

    @property
    def turn_once(self) -> list[str]:
        """Ids of skills that were shown in a request, in load mode `once`."""
        if self.draft.load_mode != "once":
            return []
        return [id for id in self.state.ids if id in self._shown_once]

    @property
    def place(self) -> str:
        """Call whose result gets the next note. "" means the user message."""
        self._settle()
        return find_place(self.draft.items)

    # --- events -----------------------------------------------------------------------------------------------------

    def apply_envelope(self, envelope: Envelope) -> None:
        """Applies an event of the log. Events of child runs belong to their own conversations."""
        event = envelope.event
        if isinstance(event, RunStarted):
            self._runs[envelope.run] = event.parent
            if event.parent is not None and self._runs.get(event.parent, "") is None:
                self._note_child(event, envelope.run)
        if self._runs.get(envelope.run) is None or isinstance(event, SessionImported):  # that is for all runs
            self._apply_recorded(envelope)
        elif isinstance(event, ModelReplied):
            self._note_calls(event)
        elif isinstance(event, CallPlanned):
            self.call_ids.add(event.call.id)

    def _note_calls(self, event: ModelReplied) -> None:
        for call in event.calls:
            self.call_ids.add(call.id)

    def take_up(self, envelopes: Iterable[Envelope], runs: Collection[str]) -> None:
        """Restores the conversation of a child run, which may span several runs."""
        self._runs = dict.fromkeys(runs)
        for envelope in envelopes:
            event = envelope.event
            if envelope.run in runs or isinstance(event, SessionImported):
                self._apply_recorded(envelope)
            elif isinstance(event, RunStarted) and event.parent in runs:
                self._note_child(event, envelope.run)
        self.questions.end_begun(self.was_begun)

    def _note_child(self, event: RunStarted, run: str) -> None:
        if event.call is not None:
            self.children[event.call] = run

    def _apply_recorded(self, envelope: Envelope) -> None:
        """Applies a recorded event. An answer that was not asked for, or not given in this home, does not count."""
        event = envelope.event
        self.run = self.run if isinstance(event, SessionImported) else envelope.run
        self.apply(event)
        if isinstance(event, ApprovalAnswered):
            counts = event.asked and self._vouches(envelope)
            if not counts:
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
        self._started = event
        self.draft.start_run(event)
        self.finished = None
        is_new = event.resumes is None
        self.stale = "run resumed" if event.resumes else "run started"
        if is_new:
            self._start_request(event)
        if event.request or event.attachments or is_new:
            asked = Asked(self.number, asked_parts(event))
            self._add(asked)

    def _start_request(self, event: RunStarted) -> None:
        """Begins another request of the session: its usage, plan and loads start anew."""
        self.first_started = event
        self.output = None
        self._forget_refused()
        self.draft.number += 1
        self.spent = UsageTotals()
        self.plan = None
        self.loads = {}
        self.requested_loads = {}
        self.children = {}
        self.counted = {}
        self.went.start_request()
        if event.load_mode != "session":
            self.state.clear_temporary()
            self.draft.forget_view()

    def _output_requested(self, event: OutputRequested) -> None:
        self.output = event

    def _forget_refused(self) -> None:
        self.refused = 0
        self._is_refused = False

    def _epoch_started(self, event: EpochStarted) -> None:
        self._settle()
        self.draft.start_epoch(event.system, event.tools)
        self.stale = None

    def _model_requested(self, event: ModelRequested) -> None:
        self._settle()
        self.draft.note_sent()
        self.spent.turns += 1
        self._shown_once.update(self.state.ids)

    def _model_replied(self, event: ModelReplied) -> None:
        self._settle()
        self.spent.usage = add_usage(self.spent.usage, event.usage)
        self.replied = event
        self.refused += self._is_refused
        self._is_refused = False
        self.last_calls = event.calls
        self._called_at = self.number
        self._begun = set()
        self.went.clear()
        self._note_calls(event)
        is_whole = event.finish == "stop" and event.code is None
        is_final = is_whole and bool(event.text) and not event.calls
        reply = Replied(self.number, event.text, event.calls, is_final)
        self._add(reply)

    def _decided(self, event: CallDecided) -> None:
        if event.decision.verdict == "ask":  # nothing is done before the answer
            self._begun.discard(event.call_id)
        self.questions.note_decision(event)

    def _call_planned(self, event: CallPlanned) -> None:
        call = event.call
        self._begun.add(call.id)
        self.call_ids.add(call.id)
        self.questions.plan(call)
        was_requested = call.trigger != "model"
        if was_requested and call.tool == "skill_load":
            self.requested_loads[call.id] = call

    def _call_acted(self, event: CallActed) -> None:
        call_id = event.call_id
        outcome = event.outcome
        self._waiting[call_id] = event
        self._count_call(call_id, outcome)
        if "child" in outcome.data:
            self._count_child(call_id, outcome)
        self._begun.discard(call_id)
        if outcome.status != "waiting":
            self.requested_loads.pop(call_id, None)
            self.children.pop(call_id, None)
            self.questions.end(call_id)
        self._merge_state(event)
        skill = outcome.data.get("skill")
        if isinstance(skill, str) and outcome.data.get("show"):
            self._shown_once.discard(skill)
        if any(call.id == call_id for call in self.last_calls):
            self.went.note_told(outcome)

    def _count_call(self, call_id: str, outcome: Outcome) -> None:
        """Counts a call of the model, and the run of a script, whoever called for it."""
        tool = None
        for call in self.last_calls:
            if call.id == call_id:
                tool = call.tool
                break
        is_counted = tool is not None and tool not in UNCOUNTED_TOOLS
        if is_counted and outcome.status != "waiting":
            self.spent.calls += 1
        if "exit_code" in outcome.data or ("session_id" in outcome.data and (tool is None or tool in COMMAND_TOOLS)):
            self.spent.scripts += 1

    def _merge_state(self, event: CallActed) -> None:
        if not event.state_delta:
            return
        before = self.state.wanted()
        self.state.merge(event.state_delta, event.outcome.data)
        if self.draft.is_in_system and self.state.wanted() != before:
            self._begin_epoch("skills changed under system placement")

    def _begin_epoch(self, why: str) -> None:
        """Notes that the next request begins an epoch. An earlier reason stays."""
        self.stale = self.stale or why

    def _count_child(self, call_id: str, outcome: Outcome) -> None:
        """Adds the usage of a child run. Usage from before it waited is not counted twice."""
        used = parse_spent(outcome.data)
        before = self.counted.pop(call_id, None)
        new = used if before is None else used.less(before)
        self.spent.add(new)
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
        if event.kind == NOTE_KIND:
            self._is_refused = True
        note = Noted(self.number, event.kind, event.text, stays=event.call_id is not None)
        self._add(note)

    def _loaded(self, event: SkillLoaded) -> None:
        id = event.id
        self.loads[id] = event.digest
        self.contents[id] = event.digest
        self.unloaded.discard(id)

    def _unloaded(self, event: SkillUnloaded) -> None:
        self.state.unload(event.id)
        self.went.add(event)
        if event.reason != SHOWN_ONCE:
            self.unloaded.add(event.id)
        if self.draft.is_in_system:
            self._begin_epoch("skills changed under system placement")

    def _catalog_planned(self, event: CatalogPlanned) -> None:
        self.catalog = event.plan

    def _plan_changed(self, event: PlanChanged) -> None:
        self.plan = event.plan

    def _compacted_now(self, event: Compacted) -> None:
        self._settle()
        self.spent.usage = add_usage(self.spent.usage, event.usage)
        self.draft.compact(event)
        self.stale = "compacted"

    def _run_finished(self, event: RunFinished) -> None:
        self._settle()
        self.finished = event
        self._forget_refused()
        if not event.text or event.stop_reason in ("answer", "waiting"):
            return
        if event.text != self.last_text:  # otherwise the model itself reported the failure
            report = Replied(self.number, event.text, (), ours=True)
            self._add(report)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Adds outcomes in the order of the calls. Outcomes of calls that the model did not make follow as context."""
        if not self._waiting:
            return
        for call in self.last_calls:
            event = self._waiting.pop(call.id, None)
            if event is not None:
                was_answered = self.draft.answer(call.id, event.outcome)
                if was_answered:
                    self._begin_epoch("a call was made after all")
        for id, event in self._waiting.items():
            self.draft.answer(id, event.outcome, own=False)
        self._waiting.clear()

    def first_change(self, system: str, tools: Sequence[ToolSpec]) -> int | None:
        """Finds the first byte of the last request that a new epoch would change."""
        self._settle()
        return self.draft.first_change(system, tuple(tools))

    def _add(self, item: Item) -> None:
        self.draft.add(item)


_HANDLERS: dict[type, Callable[[Conversation, Any], None]] = {
    RunStarted: Conversation._run_started,
    OutputRequested: Conversation._output_requested,
    EpochStarted: Conversation._epoch_started,
    CatalogPlanned: Conversation._catalog_planned,
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
    SessionImported: lambda self, _: self.questions.forget_all(),
}
