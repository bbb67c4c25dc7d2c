"""Functions for one request: `run`, `run_sync` and `stream`. Each makes an Agent and uses it once.

    result = await prowess.run("Summarise sales.csv", skills="./skills", model="openai:gpt-5", files=["sales.csv"])
    print(result.text)

They take the keywords of `Agent` and of `Agent.run`.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Unpack, cast

from prowess.agent.agent import OutputT, Result
from prowess.core.events import Envelope
from prowess.core.ports import Model
from prowess.runtime.agent import Agent, AgentOptions, RunOptions
from prowess.runtime.loop_thread import shared_loop


class OneRunOptions(AgentOptions, RunOptions, total=False):
    """Keywords of an agent and of its one run."""


async def run(
    request: str = "",
    *,
    model: str | Model | None = None,
    output_type: type[OutputT] | None = None,
    **options: Unpack[OneRunOptions],
) -> Result[OutputT]:
    """Runs one request to its end."""
    made, given = _split(options)
    async with Agent(model, output_type=output_type, **made) as agent:
        return await agent.run(request, **given)


def run_sync(
    request: str = "",
    *,
    model: str | Model | None = None,
    output_type: type[OutputT] | None = None,
    **options: Unpack[OneRunOptions],
) -> Result[OutputT]:
    """Runs one request in a thread of its own, and waits. An event loop may be running here."""
    return shared_loop().run(run(request, model=model, output_type=output_type, **options))


async def stream(
    request: str = "",
    *,
    model: str | Model | None = None,
    output_type: type[Any] | None = None,
    **options: Unpack[OneRunOptions],
) -> AsyncGenerator[Envelope]:
    """Yields every event as it happens, with pieces of text. The last is `run_finished`. Leaving early ends the run."""
    made, given = _split(options)
    agent = Agent(model, output_type=output_type, **made)
    async with agent, aclosing(agent.stream(request, **given)) as events:
        async for event in events:
            yield event


def _split(options: OneRunOptions) -> tuple[AgentOptions, RunOptions]:
    """Splits the keywords into those of the agent and those of the run."""
    made: dict[str, object] = {}
    given: dict[str, object] = {}
    for name, value in options.items():
        if name not in OneRunOptions.__annotations__:
            near = difflib.get_close_matches(name, ["model", "output_type", *OneRunOptions.__annotations__], n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"prowess.run, run_sync and stream have no keyword '{name}'.{hint}")
        kind = given if name in RunOptions.__annotations__ else made
        kind[name] = value
    return cast(AgentOptions, made), cast(RunOptions, given)
