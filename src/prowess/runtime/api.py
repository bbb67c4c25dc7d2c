"""Public functions of the library: strings and paths in, an answer out.

`run` answers a request:

    result = await prowess.run("Summarise sales.csv", skills="./skills", model="openai:gpt-5", files=["sales.csv"])
    print(result.text)

`SkillKit` has skills for an agent that you already have:

    async with prowess.SkillKit("./skills") as kit:
        outcome = await kit.call("skill_load", {"skill": "pdf"})
"""

from __future__ import annotations

import asyncio
import copy
import difflib
import inspect
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any, Literal

from prowess.agent.agent import Limits, Result
from prowess.agent.observers import Observer
from prowess.core.events import ApprovalAnswered, Envelope
from prowess.core.ports import Approver, Asker, Model, SkillSource, Toolset
from prowess.core.tool_table import CAPABILITIES, RISKS
from prowess.core.values import Decision, Outcome, ToolCall, ToolSpec
from prowess.errors import ConfigError
from prowess.runtime.factories import preview_kit
from prowess.runtime.runtime import Runtime, open_runtime
from prowess.runtime.settings import default_values
from prowess.skills.roots import check_file, check_present, named_root
from prowess.skills.skill import Skill
from prowess.tools.base import Tool
from prowess.tools.function import is_tool
from prowess.tools.toolset import Joined, Tools, is_toolset

Skills = str | os.PathLike[str] | Skill | SkillSource
Approve = Approver | Callable[[ToolCall, Decision], Any] | Collection[str] | None
AnyTool = Callable[..., Any] | Tool | Toolset
_SESSION = (
    *("protocol", "limits", "load_mode", "placement", "instructions", "on_ask", "summarise", "must_exist", "log"),
    *("tenant", "app", "user"),
)
_OF_KIT = ("on_ask", "must_exist", "log", "tenant", "app", "user")


async def run(
    request: str = "",
    *,
    skills: Skills | Sequence[Skills] = (),
    use: Sequence[str] = (),
    model: str | Model | None = None,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    tools: AnyTool | Iterable[AnyTool] = (),
    session: str | None = None,
    resume: bool = False,
    approve: Approve = None,
    ask: Asker | None = None,
    on_event: Observer | Sequence[Observer] = (),
    **options: Any,
) -> Result:
    """Runs one request to its end.

    `skills`: folders, addresses or skills made in code; without any, the default places. A plain name among them
    activates that skill at once, like the names in `use`. `approve`: names of tools that need no question, or an
    Approver. `tools`: functions, tools and sets of tools, or one of them. `options`: `limits`, `protocol`, `load_mode`,
    `placement`, `instructions`, `on_ask`, `summarise`; `tenant`, `app` and `user`, the owner of the session; and
    settings, with `_` for a dot, such as `workspace_executor="local"`.
    """
    given, settings = _split_options(options, named=run.__kwdefaults__)
    places, names = split_skills(skills)
    paths = _paths(files)
    toolsets = as_toolsets(tools)
    own: list[str] = []
    for toolset in toolsets:
        own.extend(spec.name for spec in toolset.specs())
    approver = make_approver(approve, own)
    _check_asker(ask)
    with _open(places, settings) as runtime:
        async with runtime.open_session(
            model=model,
            session=session,
            approver=approver,
            asker=ask,
            on_event=_observers(on_event),
            toolsets=toolsets,
            **given,
        ) as opened:
            return await opened.run(request, skills=[*names, *use], files=paths, resume=resume)


def run_sync(request: str = "", **options: Any) -> Result:
    """Runs one request where no event loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(request, **options))
    raise ConfigError(
        "run_sync was called while an event loop is running.", code="loop-running", hint="Use: await prowess.run(…)"
    )


async def stream(request: str = "", **options: Any) -> AsyncIterator[Envelope]:
    """Yields every event as it happens, with pieces of text. The last is `run_finished`. Leaving early ends the run."""
    queue: asyncio.Queue[Envelope | None] = asyncio.Queue()

    async def tell(envelope: Envelope) -> None:
        queue.put_nowait(envelope)

    async def work() -> Result:
        try:
            observers = _observers(options.get("on_event", ()))
            return await run(request, **{**options, "on_event": (tell, *observers)})
        finally:
            queue.put_nowait(None)

    task = asyncio.ensure_future(work())
    try:
        while (envelope := await queue.get()) is not None:
            yield envelope
        await task  # raises the error that ended the run
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class SkillKit:
    """Skills for another framework's agent: the texts and schemas for its model, and `call`, which makes the model's
    calls.

    A kit opens its resources at the first call. Use `async with`, or `aclose()`, so that nothing is left running.
    """

    def __init__(
        self,
        *skills: Skills | Sequence[Skills],
        session: str | None = None,
        approve: Approve = None,
        ask: Asker | None = None,
        on_event: Observer | Sequence[Observer] = (),
        instructions: str = "",
        **settings: Any,
    ) -> None:
        flat: list[Skills] = []
        for each in skills:
            flat.extend(_listed(each))
        places, names = split_skills(flat)
        if names:
            raise ConfigError(
                f"There is no folder '{names[0]}'.", code="root-missing", hint="Give folders; load skills with call()."
            )
        more, given = _split_options(settings, named=SkillKit.__init__.__kwdefaults__, session=_OF_KIT)
        approver = make_approver(approve)
        _check_asker(ask)
        self._open = ExitStack()
        self._runtime = self._open.enter_context(_open(places, given))
        self._options: dict[str, Any] = {
            "session": session,
            "approver": approver,
            "asker": ask,
            "on_event": _observers(on_event),
            "instructions": instructions,
            **more,
        }
        self._preview = preview_kit(self._runtime, instructions)
        self._kit: Any = None
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def instructions(self) -> str:
        """Text for the model's prompt: the catalog, and how to work with it. Empty when there are no skills."""
        return self._preview.instructions

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Tool schemas for the model, in a form that belongs to no provider."""
        return self._preview.tools

    def schemas(self, form: Literal["openai", "responses", "anthropic"] = "openai") -> list[dict[str, Any]]:
        """Returns the tool schemas in the form that a provider takes."""
        render = _FORMS[form]
        return [copy.deepcopy(render(spec)) for spec in self.tools]  # callers change what they are given

    @property
    def findings(self) -> Sequence[Any]:
        """Findings about the skills and the configuration."""
        return self._runtime.findings

    async def call(self, tool: str, args: Mapping[str, Any] | None = None, *, id: str | None = None) -> Outcome:
        """Makes the call. `outcome.content` is the result for the model, also after a failure."""
        async with self._opening:
            self._check_open()
            if self._kit is None:
                opening = self._runtime.open_kit(**self._options)
                self._kit = await self._stack.enter_async_context(opening)
        return await self._kit.call(tool, args, id=id)

    async def aclose(self) -> None:
        self._closed = True
        await self._stack.aclose()
        self._open.close()

    async def __aenter__(self) -> SkillKit:
        self._check_open()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(
                "This SkillKit is closed.",
                code="kit-closed",
                hint="Call it inside its `async with`, or make another one; with the same session= it goes on.",
            )


def _openai(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _responses(spec: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _anthropic(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


_FORMS = {"openai": _openai, "responses": _responses, "anthropic": _anthropic}


@contextmanager
def _open(places: Sequence[Any], settings: Mapping[str, Any]) -> Iterator[Runtime]:
    roots: list[str] = []
    others: list[Any] = []
    for place in places:
        if isinstance(place, str):
            roots.append(place)
        else:
            others.append(place)
    cwd = os.getcwd()
    with open_runtime(cwd=cwd, environ=os.environ, roots=roots, flags=settings, more=others) as runtime:
        for place in roots:
            root = named_root(place, origin="given", base=runtime.places.cwd, home=runtime.places.home)
            present = check_present(root)
            check_file(present, place)
        yield runtime


def _paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    paths: list[str] = []
    for file in files:
        path = os.path.expanduser(os.fspath(file))
        path = os.path.abspath(path)
        if not os.path.exists(path):
            raise ConfigError(f"There is no file '{path}'.", code="no-file", hint="Check the names in files=[…].")
        paths.append(path)
    return paths


def _listed(skills: Any) -> list[Any]:
    if isinstance(skills, Skill) or not isinstance(skills, (list, tuple)):  # a Skill is a tuple as well
        return [skills]
    return list(skills)


def split_skills(skills: Skills | Sequence[Skills]) -> tuple[list[Any], list[str]]:
    """Returns (places to look for skills in, names of skills to activate)."""
    places: list[Any] = []
    names: list[str] = []
    for given in _listed(skills):
        if not isinstance(given, (str, os.PathLike)):
            places.append(given)
            continue
        text = os.fspath(given)
        if isinstance(given, os.PathLike) or _is_place(text):
            places.append(text)
        else:
            names.append(text)
    return places, names


def _is_place(text: str) -> bool:
    """True for a folder, an address and a path, false for the name of a skill."""
    if "://" in text or text.startswith((".", "/", "~")) or os.path.isdir(text):
        return True
    has_suffix = bool(os.path.splitext(text)[1])
    return has_suffix and os.path.isfile(text)  # a place, which then refuses it


def _split_options(
    options: Mapping[str, Any], *, named: Iterable[str] | None, session: Sequence[str] = _SESSION
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits options into those of a session and settings: `workspace_executor` is `workspace.executor`.

    `named` are further names for the hint about a misspelt option.
    """
    known = {name.replace(".", "_"): name for name in default_values()}
    given: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for name, value in options.items():
        if name in session:
            given[name] = value
        elif name in known:
            settings[known[name]] = value
        else:
            raise _unknown_option(name, [*(named or ()), *session], list(known))
    limits = given.get("limits")
    if isinstance(limits, Mapping):
        given["limits"] = _make_limits(limits)
    return given, settings


def _unknown_option(name: str, own: Sequence[str], settings: Sequence[str]) -> ConfigError:
    near = difflib.get_close_matches(name, [*own, *settings], n=1)
    hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(own)}; and every setting."
    return ConfigError(f"There is no option '{name}'.", code="option-unknown", hint=hint)


def _make_limits(given: Mapping[str, Any]) -> Limits:
    for name in given:
        if name not in Limits.__slots__:
            known = ", ".join(Limits.__slots__)
            raise ConfigError(f"There is no limit '{name}'.", code="limit-invalid", hint=f"There are: {known}.")
    return Limits(**given)


def make_approver(approve: Approve, own: Sequence[str] = ()) -> Any:
    """Returns an Approver as it is. From names, makes one that approves these tools and leaves the others unanswered.

    `own` are names of the caller's tools.
    """
    if approve is None:
        return None
    if callable(approve):
        _check_parameters(approve)
        return approve
    names = [approve] if isinstance(approve, str) else approve
    if not _are_names(names):
        message = f"approve={repr(approve)[:80]} is neither names of tools nor a function."
        raise ConfigError(message, code="approve-invalid", hint=_APPROVE)
    allowed = frozenset(names)
    known = sorted({*RISKS, *CAPABILITIES, *own})
    wrong = sorted(allowed.difference(known))
    if wrong:
        near = difflib.get_close_matches(wrong[0], known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(known)}."
        raise ConfigError(f"approve names '{wrong[0]}', which is no tool.", code="tool-unknown", hint=hint)

    async def answer(call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        if call.tool in allowed:
            return ApprovalAnswered(call_id=call.id, answer="once", by=f"approve={call.tool}", asked=False)
        return None

    return answer


def _are_names(given: Any) -> bool:
    if not isinstance(given, Collection) or isinstance(given, Mapping):
        return False
    return all(isinstance(name, str) for name in given)


def _check_parameters(approve: Callable[..., Any]) -> None:
    """Checks the signature now. At the first question it would be too late, because nobody would answer."""
    try:
        inspect.signature(approve).bind(None, None)
    except TypeError as error:
        message = f"approve cannot be called with a call and a decision: {error}."
        raise ConfigError(message, code="approve-invalid", hint=_APPROVE) from error
    except ValueError:  # written in C: the signature is not known
        return


def _check_asker(ask: Any) -> None:
    if ask is not None and not callable(ask):
        raise ConfigError(
            f"ask={repr(ask)[:80]} is no function.",
            code="ask-invalid",
            hint="Give an async function of (question, choices) that returns a text, or None if nobody answers.",
        )


def _observers(on_event: Observer | Sequence[Observer]) -> tuple[Observer, ...]:
    if isinstance(on_event, Sequence):
        return tuple(on_event)
    return (on_event,)


def as_toolsets(given: AnyTool | Iterable[AnyTool]) -> list[Toolset]:
    """Converts functions, tools and sets of tools, or one of them, to sets."""
    is_one = is_toolset(given) or is_tool(given) or callable(given) or isinstance(given, (str, Mapping))
    several: list[Any] = [given]
    if isinstance(given, Iterable) and not is_one:
        several = list(given)
    sets: list[Toolset] = []
    for each in several:
        sets.append(each if is_toolset(each) else Tools(each))
    if len(sets) > 1:
        return [Joined(*sets)]
    return sets


_APPROVE = 'Give names, as in approve=["skill_run"], or a function of (call, decision).'


__all__ = ["SkillKit", "run", "run_sync", "stream"]
