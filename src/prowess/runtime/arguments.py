"""Arguments of the public functions: strings, paths, functions and objects become the parts that the runtime takes.

Everything that can be wrong with an argument is refused here, before a run begins.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from prowess.agent.agent import Limits
from prowess.agent.observers import Observer
from prowess.core.events import ApprovalAnswered
from prowess.core.ports import Approver, SkillSource, Toolset
from prowess.core.tool_table import CAPABILITIES, RISKS
from prowess.core.values import Decision, ToolCall
from prowess.errors import ConfigError
from prowess.runtime.library import Library, LibraryView, as_places
from prowess.runtime.parts import Parts
from prowess.runtime.runtime import Runtime, open_runtime
from prowess.runtime.settings import default_values
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Root, Skill
from prowess.tools.base import Tool
from prowess.tools.function import is_tool
from prowess.tools.toolset import Joined, Tools, is_toolset

SkillPlace = str | os.PathLike[str] | Root | Skill | SkillSource | Catalog | Library | LibraryView
SkillPlaces = SkillPlace | Sequence[SkillPlace]
FilePaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ApproveAnswer = ApprovalAnswered | str | bool | None
Approve = Approver | Callable[[ToolCall, Decision], ApproveAnswer | Awaitable[ApproveAnswer]] | Collection[str] | None
AnyTool = Callable[..., Any] | Tool | Toolset
AnyTools = AnyTool | Iterable[AnyTool]
Observers = Observer | Sequence[Observer]


def make_runtime(skills: Sequence[SkillPlaces], settings: Mapping[str, object] | None, parts: Parts) -> Runtime:
    """Reads the configuration, and checks the places of skills and stores."""
    places = as_places(*skills, keyword="skills=")
    flags = {**_check_settings(settings or {}), **parts.settings}
    cwd = os.getcwd()
    with open_runtime(
        cwd=cwd, environ=os.environ, skills=places, flags=flags, policy_files=parts.policy_files
    ) as runtime:
        parts.check(runtime)
        return runtime


def as_paths(files: FilePaths) -> list[str]:
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


def _check_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Returns the settings by their dotted names, such as `skills.budget`."""
    known = default_values()
    for name in settings:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else "See: prowess config show"
        raise ConfigError(f"There is no setting '{name}'.", code="option-unknown", hint=hint)
    return dict(settings)


def make_limits(given: Limits | Mapping[str, Any] | None) -> Limits | None:
    """Returns the limits. A mapping has them by name."""
    if given is None or isinstance(given, Limits):
        return given
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
    if isinstance(approve, type):
        message = f"approve={approve.__name__} is a class."
        raise ConfigError(message, code="approve-invalid", hint=f"Give an object: approve={approve.__name__}(…).")
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
    return NamedApprover(allowed)


class NamedApprover:
    """Approver that approves these tools, and leaves questions about others unanswered."""

    def __init__(self, tools: frozenset[str]) -> None:
        self.tools = tools

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        if call.tool not in self.tools:
            return None
        return ApprovalAnswered(call_id=call.id, answer="once", by=f"approve={call.tool}", asked=False)


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
        raise ConfigError(message, code="approve-invalid", hint=_APPROVE) from None
    except ValueError:  # written in C: the signature is not known
        return


def check_asker(ask: Any) -> None:
    if ask is not None and not callable(ask):
        raise ConfigError(
            f"ask={repr(ask)[:80]} is no function.",
            code="ask-invalid",
            hint="Give an async function of (question, choices) that returns a text, or None if nobody answers.",
        )


def as_observers(on_event: Observers) -> tuple[Observer, ...]:
    if isinstance(on_event, Sequence):
        return tuple(on_event)
    return (on_event,)


def as_toolsets(given: AnyTools) -> list[Toolset]:
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
