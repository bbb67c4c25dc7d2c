"""A reply that is cut off: its text is recorded and shown, and the next request tells the model what it had said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents import open_session
from prowess.core.events import CallDelta, Envelope, ModelReplied, RunFinished, TextDelta
from prowess.core.values import Message, ToolSpec
from prowess.models.scripted import ScriptedModel

SAID = "The answer has **three** parts. First"


class SlowModel(ScriptedModel):
    """Says something, and never ends its first reply."""

    def __init__(self, said: str, *replies: Any) -> None:
        super().__init__([{"text": "never"}, *replies])
        self.began = asyncio.Event()
        self._said = said

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Any = None,
    ) -> ModelReplied:
        if self.requests:
            return await super().reply(messages, tools, on_delta=on_delta)
        self.requests.append((tuple(messages), tuple(tools)))
        assert on_delta is not None
        for piece in self._said:
            on_delta(TextDelta(text=piece))
        self.began.set()
        return await asyncio.get_running_loop().create_future()


def interrupt(root: Path, model: SlowModel, **options: Any) -> tuple[list[Envelope], list[str]]:
    """Cancels the first request while the model talks, and asks again. Events, and the model's texts in the history."""
    seen: list[Envelope] = []

    async def keep(envelope: Envelope) -> None:
        seen.append(envelope)

    async def work() -> None:
        async with open_session(root, model, on_event=(keep,), **options) as session:
            task = asyncio.create_task(session.run("Explain."))
            await model.began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await session.run("Go on.")

    asyncio.run(work())
    history = [message for message in model.requests[-1][0] if message.role == "assistant"]
    return seen, ["".join(part.text or "" for part in message.parts) for message in history]


def test_what_was_said_is_kept_and_marked_as_cut_off(tmp_path: Path) -> None:
    seen, history = interrupt(tmp_path, SlowModel(SAID, {"text": "Second."}))
    ends = [each.event for each in seen if isinstance(each.event, RunFinished)]
    assert [end.stop_reason for end in ends] == ["cancelled", "answer"]
    assert ends[0].text == f"Not finished: it was cancelled.\nSaid until it was cut off:\n{SAID}"
    assert history == [ends[0].text]


def test_the_start_of_a_secret_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "abcdefgh ijklmnop")
    settings = {"secrets": {"TOKEN": "env:TOKEN"}}
    seen, history = interrupt(tmp_path, SlowModel("It is abcdefgh ijkl", {"text": "No."}), settings=settings)
    shown = "".join(each.event.text for each in seen if isinstance(each.event, TextDelta))
    assert "It is" in history[0] and "abcdefgh" not in history[0] and "abcdefgh" not in shown


def test_a_run_out_of_time_keeps_it_too(tmp_path: Path) -> None:
    model = SlowModel(SAID)

    async def work() -> str:
        async with open_session(tmp_path, model, settings={"limits.seconds": 0.2}) as session:
            result = await session.run("Explain.")
            return result.report

    text = asyncio.run(work())
    assert "the limit of 0.2 seconds was reached" in text and SAID in text
