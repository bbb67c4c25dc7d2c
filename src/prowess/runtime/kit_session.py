"""KitSession: one conversation of another framework's agent with the skills of a kit.

    async with kit.session("conv-7", user="ann") as session:
        outcome = await session.call("skill_load", {"skill": "pdf"})

The session is opened by the first call. One of the same id goes on where it was: with its loaded skills, its files, and
the questions that nobody answered.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

from prowess.agent.approvals import parse_answer
from prowess.agent.context.render import CONTEXT, asked_parts, render_outcome
from prowess.agent.foreign_calls import as_call
from prowess.agent.session import stage_files
from prowess.agent.tool_call import WATCHER
from prowess.agent.toolkit import Toolkit
from prowess.core.events import RunStarted
from prowess.core.values import Decision, Outcome, Question, ToolCall, ToolSpec
from prowess.errors import ConfigError
from prowess.records.pending import PendingSession, Waiting
from prowess.runtime.arguments import check_options
from prowess.runtime.callers import OnOutput, watch_output
from prowess.runtime.factories import KitOptions, open_kit
from prowess.runtime.kit_home import KitHome, make_version
from prowess.runtime.services.approvals import check_answer_counts, choose_question, question_changed
from prowess.runtime.storage import whoami
from prowess.workspace.run_file import RunFile

SchemaForm = Literal["openai", "responses", "anthropic", "gemini", "bedrock", "mcp"]
CallArguments = Mapping[str, Any] | str | None  # an object, or its JSON text
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KitOutcome(Outcome):
    """Outcome of a call that a kit made, with the files that the call made, to read and to save."""

    files: tuple[RunFile, ...] = ()


class KitSession:
    """Conversation with skills. Any thread and any event loop may call it, also at the same time.

    Use `async with` or `with`, or close it, so that nothing is left running.
    """

    def __init__(
        self, home: KitHome, options: KitOptions, *, files: Sequence[str] = (), use: Sequence[str] = ()
    ) -> None:
        """Takes paths to copy into the workspace, and names of skills to load at once."""
        assert options.session is not None
        self.id: str = options.session
        self._home = home
        self._options = options
        self._files = tuple(files)
        self._use = tuple(use)
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._kit: Toolkit | None = None
        self._added: Sequence[str] = ()  # texts about files and skills in use
        self._answering = asyncio.Lock()
        self._tokens: dict[str, set[str]] = {}  # of the questions since the session was opened here, by call id
        self._is_closed = False
        home.sessions.add(self)

    def __repr__(self) -> str:
        if self._is_closed:
            return f"KitSession({self.id!r}, closed)"
        return f"KitSession({self.id!r})"

    # --- what a model is told -----------------------------------------------------------------------------------------

    @property
    def instructions(self) -> str:
        """Text for the model's prompt: the catalog, how to work with it, given files, and skills in use. Empty when
        there is nothing of it."""
        text = self._home.instructions
        if not self._files and not self._use:
            return text
        if self._kit is None and not self._added:
            self._run(self._open)
        return "\n\n".join(filter(None, [text, *self._added]))

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Tool schemas for the model, in a form that belongs to no provider."""
        return self._home.tools

    @property
    def version(self) -> str:
        """Short text that changes when `instructions` or `tools` change. A key for what is made of them."""
        return make_version(self.instructions, self.tools)

    def schemas(self, form: SchemaForm = "openai") -> list[dict[str, Any]]:
        """Returns the tool schemas in the form that a provider takes."""
        return render_schemas(self.tools, form)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        args: CallArguments = None,
        *,
        id: str | None = None,
        on_output: OnOutput | None = None,
    ) -> KitOutcome:
        """Makes the call. `outcome.content` is all that the model has to be told, also after a failure.

        `args`: the model's arguments, as an object or as JSON text. `id`: the id that the model gave the call.
        `on_output` is given the output of a script while it runs.
        """
        return await self._carry(partial(self._call, tool, args, id, on_output))

    def call_sync(
        self,
        tool: str,
        args: CallArguments = None,
        *,
        id: str | None = None,
        on_output: OnOutput | None = None,
    ) -> KitOutcome:
        """Makes the call, and waits for it in this thread. An event loop may be running here."""
        return self._run(partial(self._call, tool, args, id, on_output))

    async def decide(self, tool: str, args: CallArguments = None, *, id: str | None = None) -> Decision:
        """Returns the decision that the call would meet: allow, ask or deny, and why. Records nothing."""
        return await self._carry(partial(self._decide, tool, args, id))

    def decide_sync(self, tool: str, args: CallArguments = None, *, id: str | None = None) -> Decision:
        """Returns what `decide` does, and waits for it in this thread."""
        return self._run(partial(self._decide, tool, args, id))

    async def answer(
        self, question: Question | str, answer: str | bool, *, token: str | None = None, by: str | None = None
    ) -> None:
        """Records a person's answer to a question: once, run, always, no, or "no, because …". The same call, made
        again, then runs or is denied. `by` names the person.

        Give the question, or the id of its call and its token: then the answer counts for what was shown only. With an
        id alone it counts if this id has had one question since the session was opened here.
        """
        await self._carry(partial(self._answer, question, answer, token, by))

    def answer_sync(
        self, question: Question | str, answer: str | bool, *, token: str | None = None, by: str | None = None
    ) -> None:
        """Does what `answer` does, and waits for it in this thread."""
        self._run(partial(self._answer, question, answer, token, by))

    async def waiting(self) -> list[Question]:
        """Returns the questions that nobody has answered, also those that were asked in another process."""
        return await self._carry(self._find_waiting)

    def waiting_sync(self) -> list[Question]:
        """Returns what `waiting` does, and waits for it in this thread."""
        return self._run(self._find_waiting)

    # --- opening and closing ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._files or self._use:
            await self._carry(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(error)

    def __enter__(self) -> Self:
        self._check_open()
        if self._files or self._use:
            self._run(self._open)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    async def aclose(self, error: BaseException | None = None) -> None:
        """Ends what is running, and records the end. `error` is what ended the conversation, if anything did."""
        self._home.check_not_waiting([self])
        if not self._is_closed and not self._home.is_gone:
            await self._home.carry(partial(self.close_here, error))

    def close(self, error: BaseException | None = None) -> None:
        """Does what `aclose` does, and waits for it in this thread."""
        self._home.check_not_waiting([self])
        if not self._is_closed and not self._home.is_gone:
            self._home.run(partial(self.close_here, error))

    async def close_here(self, error: BaseException | None) -> None:
        """Closes the session. Used on the kit's loop."""
        self._is_closed = True
        async with self._opening:
            self._kit = None
            self._home.opened.pop(self.close_here, None)
            trace = None if error is None else error.__traceback__
            await self._stack.__aexit__(None if error is None else type(error), error, trace)

    async def _carry(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_open()
        return await self._home.carry(work, self)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_open()
        return self._home.run(work, self)

    def _check_open(self) -> None:
        self._home.check_open()
        if self._is_closed:
            hint = "Open another one: with the same id it goes on."
            raise ConfigError(f"The session '{self.id}' is closed.", code="kit-closed", hint=hint)

    # --- on the kit's loop --------------------------------------------------------------------------------------------

    async def _open(self) -> Toolkit:
        async with self._opening:
            if self._kit is not None:
                return self._kit
            self._check_open()
            async with AsyncExitStack() as stack:
                kit = await stack.enter_async_context(open_kit(self._home.runtime, self._options))
                self._added = await self._add(kit)
                if kit.conversation.questions.waiting():
                    await self._find_questions(kit)
                self._stack.push_async_exit(stack.pop_all())
            self._kit = kit
            self._home.opened[self.close_here] = None
            return kit

    async def _add(self, kit: Toolkit) -> list[str]:
        """Copies the given files, and loads the skills in use. Returns the texts about them."""
        attachments, _ = await stage_files(kit.work, self._files)
        if attachments or self._use:
            await kit.begin(attachments)
        started = RunStarted(model="", attachments=attachments)
        texts = [part.text or "" for part in asked_parts(started) if part.ref == "note:files"]
        for ref in self._use:
            skill = (await kit.activate(ref)).skill
            body = kit.conversation.shown.text(skill.entry.id, skill.digest, "")
            texts.append(f"{CONTEXT}\n{body}")
        return texts

    async def _call(self, tool: str, args: CallArguments, id: str | None, on_output: OnOutput | None) -> KitOutcome:
        check_options(id=id)
        kit = await self._open()
        await kit.begin()
        WATCHER.set(on_output and watch_output(on_output, kit.recorder.observer_failed))
        made = self._make_call(tool, args, id or kit.new_call_id("call"))
        async with kit.own_ids.hold(made) as call:
            outcome = await kit.make_call(call)
            question = await self._find_question(kit, call.id) if outcome.status == "waiting" else None
        if outcome.status == "ok":
            told = kit.with_skill_text(outcome)
        else:
            told = self._tell(outcome, question)
            told = replace(told, content=kit.add_texts(outcome.data, told.content))
        files = tuple(kit.work.find_output(file) for file in outcome.data.get("output_files") or ())
        return KitOutcome(**{each.name: getattr(told, each.name) for each in fields(Outcome)}, files=files)

    def _make_call(self, tool: str, args: object, id: str) -> ToolCall:
        inner = self._home.names.remove(str(tool))
        return as_call(id, inner, args)

    def _tell(self, outcome: Outcome, question: Question | None) -> Outcome:
        """Returns an outcome that is no success, with all that the model is told in its content."""
        renamed = self._home.names.rename_outcome(outcome)
        data = outcome.data
        if question is not None:
            data = {**data, "question": question.to_dict()}
        return replace(renamed, content=render_outcome(renamed), data=data)

    async def _decide(self, tool: str, args: CallArguments, id: str | None) -> Decision:
        check_options(id=id)
        kit = await self._open()
        call = self._make_call(tool, args, id or "")
        if id:
            call = replace(call, id=kit.own_ids.find(call))
        return await kit.calls.foresee(call)

    async def _find_question(self, kit: Toolkit, id: str) -> Question | None:
        """Finds the question that a call waits for: about itself, or about the skill that it loads first."""
        for waiting in (await self._find_questions(kit)).questions:
            if waiting.answer is None and waiting.call.id in (id, f"{id}-load"):
                return self._as_question(waiting)
        return None

    async def _find_waiting(self) -> list[Question]:
        kit = await self._open()
        pending = await self._find_questions(kit)
        return [self._as_question(each) for each in pending.questions if each.answer is None]

    async def _find_questions(self, kit: Toolkit) -> PendingSession:
        pending = await kit.recorder.find_pending()
        for each in pending.questions:
            self._tokens.setdefault(each.call.id, set()).add(each.token)
        return pending

    def _as_question(self, waiting: Waiting) -> Question:
        question = waiting.question
        return replace(question, tool=self._home.names.add(question.tool))

    async def _answer(self, question: Question | str, said: str | bool, token: str | None, by: str | None) -> None:
        if isinstance(question, Question):
            token = token or question.token
            question = question.call_id
        call_id = question
        check_options(call_id=call_id, token=token, by=by)
        answer = parse_answer(call_id, said)
        if answer is None:
            message = f"{said!r:.80} is no answer."
            raise ConfigError(message, code="answer-invalid", hint='Say "once", "run", "always" or "no, because …".')
        kit = await self._open()
        async with self._answering:
            pending = await self._find_questions(kit)
            waiting = choose_question([pending], call_id, None, token=token, see="session.waiting()")
            if not token and len(self._tokens[call_id]) > 1:
                raise question_changed(self._as_question(waiting), see="session.waiting()")
            check_answer_counts(waiting, answer.answer, lambda _: "make the call again.")
            event = replace(answer, by=by or whoami(), capability=waiting.capability, later=True)
            await kit.begin()
            await kit.append(event)


# --- schemas ----------------------------------------------------------------------------------------------------------


def render_schemas(tools: Sequence[ToolSpec], form: SchemaForm) -> list[dict[str, Any]]:
    render = _FORMS.get(form)
    if render is None:
        known = ", ".join(get_args(SchemaForm))
        raise ConfigError(
            f"There is no form '{str(form)[:80]}' of schemas.", code="form-unknown", hint=f"There are: {known}."
        )
    return [copy.deepcopy(render(spec)) for spec in tools]  # callers change what they are given


def _openai(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _responses(spec: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _anthropic(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def _gemini(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parametersJsonSchema": spec.parameters}


def _bedrock(spec: ToolSpec) -> dict[str, Any]:
    schema = {"json": spec.parameters}
    return {"toolSpec": {"name": spec.name, "description": spec.description, "inputSchema": schema}}


def _mcp(spec: ToolSpec) -> dict[str, Any]:
    annotations = {"readOnlyHint": spec.read_only}
    shown = {"name": spec.name, "description": spec.description, "inputSchema": spec.parameters}
    return {**shown, "annotations": annotations}


_FORMS: Mapping[str, Callable[[ToolSpec], dict[str, Any]]] = {
    "openai": _openai,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "mcp": _mcp,
}
