"""SkillKit: skills for an agent that you already have.

async with prowess.SkillKit("./skills") as kit:
    outcome = await kit.call("skill_load", {"skill": "pdf"})
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

from prowess.core.ports import Asker
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import ConfigError
from prowess.runtime.arguments import (
    Approve,
    Observers,
    SkillPlace,
    SkillPlaces,
    as_observers,
    check_asker,
    list_places,
    make_approver,
    make_runtime,
    split_skills,
)
from prowess.runtime.factories import KitOptions, make_policy, preview_kit
from prowess.runtime.parts import ArtifactsPart, ExecutorPart, PolicyParts, SecretsPart, StorePart, read_parts
from prowess.runtime.storage import print_problem


class SkillKit:
    """Skills for another framework's agent: the texts and schemas for its model, and `call`, which makes the model's
    calls.

    A kit opens its resources at the first call. Use `async with`, or `aclose()`, so that nothing is left running.
    """

    def __init__(
        self,
        *skills: SkillPlaces,
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
        settings: Mapping[str, object] | None = None,
    ) -> None:
        flat: list[SkillPlace] = []
        for each in skills:
            flat.extend(list_places(each))
        places, names = split_skills(flat)
        if names:
            raise ConfigError(
                f"There is no folder '{names[0]}'.", code="root-missing", hint="Give folders; load skills with call()."
            )
        approver = make_approver(approve)
        check_asker(ask)
        parts = read_parts(policy=policy, executor=executor, store=store, artifacts=artifacts, secrets=secrets)
        self._runtime = make_runtime(places, settings, parts)
        self._options: dict[str, Any] = {
            "session": session,
            "approver": approver,
            "asker": ask,
            "on_event": as_observers(on_event),
            "instructions": instructions,
            "on_ask": on_ask,
            "must_exist": must_exist,
            "log": parts.log,
            "objects": parts.objects,
            "tenant": tenant,
            "app": app,
            "user": user,
        }
        rules = make_policy(self._runtime, KitOptions(objects=parts.objects, standing=False))
        self._preview = preview_kit(self._runtime, instructions, policy=rules, objects=parts.objects)
        self._kit: Any = None
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def instructions(self) -> str:
        """Text for the model's prompt: the catalog, and how to work with it. Empty when there are no skills. A skill
        that policy denies is not in it."""
        text = self._preview.instructions
        for problem in self._preview.offer.take_problems():
            print_problem(problem.message)
        return text

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
