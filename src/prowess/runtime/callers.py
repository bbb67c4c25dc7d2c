"""Runs a caller's code where the call came from: in the loop that awaits it, or in the thread that waits for it.

A kit works on a loop of its own. Its tools, approver, asker and observers belong to whoever calls it, and may need the
caller's loop, thread or context variables.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from prowess.agent.observers import Failed, Feed, Observer, ObserverFeed, Shielded
from prowess.core.events import Envelope
from prowess.core.ports import Approver, Asker, CallGrant, CapabilityRequest, Toolset
from prowess.core.values import Decision, Outcome, Spawn, ToolCall, ToolSpec
from prowess.runtime.arguments import NamedApprover
from prowess.runtime.loop_thread import LoopThread, carry_to
from prowess.tools.base import RUN_PLAIN

T = TypeVar("T")
OnOutput = Callable[[str, bytes], Awaitable[None] | None]  # ("stdout" | "stderr", bytes)
Told = tuple[Callable[[], object], Callable[[Exception], None]]
_WAIT_S = 5.0  # for observers, at the end of a call


class Caller:
    """Place that a call came from. Its methods are used on the kit's loop."""

    def __init__(self, owner: object) -> None:
        """Takes the session that makes the call."""
        self._owner = owner
        self._outer = _CALLER.get()  # the call that this one was made in
        self._is_serving = False
        self._told: asyncio.Queue[Told | None] = asyncio.Queue()
        self._say_behind: Callable[[], None] = lambda: None
        self._telling: asyncio.Task[None] | None = None

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function there, awaits it there if it is async, and returns its result."""
        raise NotImplementedError

    async def run_plain(self, function: Callable[[], Any]) -> Any:
        """Runs a tool that is a plain function."""
        raise NotImplementedError

    async def serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work of a call. Ends when observers have been told everything, or after five seconds."""
        _CALLER.set(self)
        self._is_serving = True
        try:
            return await work
        finally:
            await self._tell_rest()
            self._is_serving = False

    def owners(self) -> list[object]:
        """Sessions that wait for code that runs here."""
        owners: list[object] = []
        if self._outer is not None:
            owners = self._outer.owners()
        if self._is_serving:
            owners.append(self._owner)
        return owners

    def tell(self, what: Callable[[], object], feed: ObserverFeed) -> None:
        """Calls an observer there, after what was told before. Does not wait."""
        self._told.put_nowait((what, feed.say))
        self._say_behind = feed.say_behind
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell_all(self._told))

    async def _tell_all(self, told: asyncio.Queue[Told | None]) -> None:
        while (item := await told.get()) is not None:
            what, failed = item
            with Shielded(failed):
                await self.run(what)

    async def _tell_rest(self) -> None:
        telling = self._telling
        if telling is None:
            return
        self._told.put_nowait(None)
        self._told = asyncio.Queue()
        self._telling = None
        await asyncio.wait([telling], timeout=_WAIT_S)
        if not telling.done():
            telling.cancel()
            self._say_behind()


class AwaitingCaller(Caller):
    """Caller that awaits a call in an event loop."""

    def __init__(self, owner: object) -> None:
        super().__init__(owner)
        self._loop = asyncio.get_running_loop()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return await carry_to(self._loop, _invoke(function, args))
        except (KeyboardInterrupt, SystemExit) as error:  # ends the caller's loop, and must not end ours
            raise RuntimeError(f"{type(error).__name__} was raised") from error

    async def run_plain(self, function: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(function)


class BlockedCaller(Caller):
    """Caller whose thread waits for a call, and meanwhile runs what the call needs from it."""

    def __init__(self, owner: object) -> None:
        super().__init__(owner)
        self._thread = threading.get_ident()
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._under_way = 0  # work that is being done, without work that waits for more of it
        self._is_over = False
        self._runner: asyncio.Runner | None = None  # for async functions
        self._other: LoopThread | None = None  # for them, if an event loop is running in this thread

    def wait(self, ended: Future[None]) -> None:
        """Runs the work that arrives, until the future is done. Used in the caller's thread."""
        ended.add_done_callback(lambda _: self._work.put(None))
        while not ended.done():
            work = self._work.get()
            if work is not None:
                work()

    def close(self) -> None:
        """Ends the loop of async functions. Used in the caller's thread."""
        self._is_over = True
        if self._runner is not None:
            self._runner.close()
        if self._other is not None:
            self._other.close()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._is_over:
            return await _invoke(function, args)
        done: Future[Any] = Future()
        context = copy_context()
        self._work.put(lambda: context.run(self._run, done, function, args))
        return await asyncio.wrap_future(done)

    async def run_plain(self, function: Callable[[], Any]) -> Any:
        if threading.get_ident() == self._thread:
            return function()
        if not self._under_way:
            return await self.run(function)
        return await asyncio.to_thread(function)  # a run inside of a tool: the thread waits for it

    def _run(self, done: Future[Any], function: Callable[..., Any], args: Sequence[Any]) -> None:
        """Runs one function. Ctrl-C is raised in `wait`, which cancels the call."""
        if not done.set_running_or_notify_cancel():
            return
        self._under_way += 1
        try:
            with Shielded(done.set_exception):  # raised again where the result is awaited
                result = function(*args)
                if inspect.isawaitable(result):
                    result = self._finish(result)
                done.set_result(result)
        finally:
            self._under_way -= 1
            if not done.done():
                done.set_exception(asyncio.CancelledError())

    def _finish(self, result: Awaitable[Any]) -> Any:
        work = _await(result)
        if _has_loop():
            self._other = self._other or LoopThread("prowess-call-sync")
            self._under_way -= 1
            try:
                return self._other.run(work, self.wait)
            finally:
                self._under_way += 1
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(work, context=copy_context())


_CALLER: ContextVar[Caller | None] = ContextVar("prowess-caller", default=None)


def find_waiting_sessions() -> list[object]:
    """Sessions with a call that waits for the code that asks. It cannot wait for their end."""
    caller = _CALLER.get()
    return [] if caller is None else caller.owners()


async def run_at_caller(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function, async or not, where the current call came from."""
    caller = _CALLER.get()
    if caller is None:
        return await _invoke(function, args)
    return await caller.run(function, *args)


async def _invoke(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    result = function(*args)
    if inspect.isawaitable(result):
        return await result
    return result


async def _await(result: Awaitable[T]) -> T:
    return await result


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# --- parts that belong to the caller ----------------------------------------------------------------------------------


class CallersTools:
    """Toolset whose tools run where the call came from."""

    def __init__(self, tools: Toolset) -> None:
        self._tools = tools

    def specs(self) -> Sequence[ToolSpec]:
        return self._tools.specs()

    def normalise(self, call: ToolCall) -> ToolCall:
        return self._tools.normalise(call)

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        return await run_at_caller(self._tools.needs, call)

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome | Spawn:
        caller = _CALLER.get()
        if caller is not None:
            RUN_PLAIN.set(caller.run_plain)
        return await run_at_caller(self._tools.call, call, within)


def as_callers_approver(approver: Approver | None) -> Approver | None:
    """Returns an approver that asks where the call came from."""
    if approver is None or isinstance(approver, NamedApprover):
        return approver

    async def approve(call: ToolCall, decision: Decision) -> Any:
        return await run_at_caller(approver, call, decision)

    return approve


def as_callers_asker(asker: Asker | None) -> Asker | None:
    """Returns an asker that asks where the call came from."""
    if asker is None:
        return None

    async def ask(question: str, choices: Sequence[str]) -> str | None:
        return await run_at_caller(asker, question, choices)

    return ask


class CallersObserver:
    """Observer that is told where the call came from."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __call__(self, envelope: Envelope) -> Awaitable[None] | None:
        return self._observer(envelope)

    def open_feed(self, failed: Failed) -> Feed:
        return _CallersFeed(self._observer, failed)


class _CallersFeed(ObserverFeed):
    def put(self, envelope: Envelope) -> None:
        caller = _CALLER.get()
        if caller is not None:
            caller.tell(partial(self._observer, envelope), self)

    async def close(self, timeout_s: float) -> None:
        """Does nothing: a call ends when its observers have been told."""


def watch_output(on_output: OnOutput, failed: Failed) -> Callable[[str, bytes], None]:
    """Returns a function that passes output on to where the current call came from."""
    caller = _CALLER.get()
    feed = ObserverFeed(on_output, failed)

    def watch(stream: str, data: bytes) -> None:
        if caller is not None:
            caller.tell(partial(on_output, stream, data), feed)

    return watch
