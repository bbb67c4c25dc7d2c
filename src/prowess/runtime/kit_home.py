"""Home of a kit: the library and the policy that its sessions share, and the loop on which they work.

The loop has a thread of its own, which begins with the first call. Any thread and any event loop may call.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import threading
import weakref
from collections.abc import Callable, Collection, Container, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from prowess._internal.digest import content_sha256
from prowess.agent.toolkit_options import Offer
from prowess.core.codec import to_json
from prowess.core.findings import Note, make_finding
from prowess.core.tool_table import SWITCHED_TOOLS, TOOLS
from prowess.core.values import Finding, Outcome, ToolSpec
from prowess.errors import ConfigError
from prowess.runtime.arguments import PythonDoor, list_names
from prowess.runtime.callers import AwaitingCaller, BlockedCaller, find_waiting_sessions
from prowess.runtime.factories import KitOptions
from prowess.runtime.kit_preview import preview_kit
from prowess.runtime.loop_thread import END_S, LoopThread
from prowess.runtime.policy_files import find_surroundings
from prowess.runtime.runtime import Runtime
from prowess.runtime.storage import print_problem
from prowess.skills.skill import Changes

T = TypeVar("T")
CloseSession = Callable[[BaseException | None], Coroutine[Any, Any, None]]
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,40}")


class KitHome:
    def __init__(self, runtime: Runtime, options: KitOptions) -> None:
        own = list_names(options.toolsets)
        check_offer(options.offer or "skills", own, find_surroundings(runtime.config).enabled)
        self.runtime = runtime
        self.options = options
        self.names: OuterNames = OuterNames(options.prefix, own)
        self.is_closed: bool = False
        self.findings: list[Finding] = []  # of its end
        self.opened: dict[CloseSession, None] = {}  # changed on the kit's loop only
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._preview = preview_kit(runtime, options)
        self._reading = threading.RLock()
        self._thread = LoopThread("prowess-kit")
        self._end = weakref.finalize(self, self._thread.close)

    # --- what a model is told -----------------------------------------------------------------------------------------

    @property
    def instructions(self) -> str:
        with self._reading:
            text = self._preview.instructions
            for problem in self._preview.offer.take_problems():
                print_problem(problem.message)
            return text

    @property
    def tools(self) -> list[ToolSpec]:
        with self._reading:
            return [self.names.rename(spec) for spec in self._preview.tools]

    def reload(self) -> Changes:
        with self._reading:
            return self.runtime.library.reload()

    # --- work ---------------------------------------------------------------------------------------------------------

    async def carry(self, work: Callable[[], Coroutine[Any, Any, T]], owner: object = None) -> T:
        """Does the work on the kit's loop. Waits in the calling loop; cancelling it cancels the work."""
        self.check_open()
        caller = AwaitingCaller(owner)
        with PythonDoor():
            return await self._thread.carry(caller.serve(work()))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], owner: object = None) -> T:
        """Does the work on the kit's loop. Waits in the calling thread, which runs the caller's code meanwhile."""
        self.check_open()
        caller = BlockedCaller(owner)
        try:
            with PythonDoor():
                return self._thread.run(caller.serve(work()), caller.wait)
        finally:
            caller.close()

    def check_open(self) -> None:
        if self.is_closed:
            hint = "Call it inside its `with`, or make another one; a session of the same id goes on."
            raise ConfigError("This SkillKit is closed.", code="kit-closed", hint=hint)
        if self.is_forked:
            message = "This SkillKit was called before this process was forked; its thread is not in this process."
            raise ConfigError(
                message, code="kit-forked", hint="Make a SkillKit in each worker process, after the fork."
            )

    @property
    def is_forked(self) -> bool:
        return self._thread.is_forked

    @property
    def is_gone(self) -> bool:
        """True when its sessions cannot be closed any more, and need not be."""
        return self._thread.is_gone

    def check_not_waiting(self, sessions: Container[object]) -> None:
        """Refuses to close sessions from one of their own calls, which would wait for itself."""
        if any(owner in sessions for owner in find_waiting_sessions()):
            message = "A tool, approver or observer of a call cannot close what makes the call."
            raise ConfigError(message, code="kit-in-use", hint="Close it when the call has returned.")

    async def aclose(self, error: BaseException | None) -> None:
        """Closes the sessions, and ends the thread."""
        self.check_not_waiting(self.sessions)
        if self.opened and not self.is_gone:
            await self.carry(partial(self._close_sessions, error))
        self.is_closed = True
        await asyncio.to_thread(self._end_thread)

    def close(self, error: BaseException | None) -> None:
        self.check_not_waiting(self.sessions)
        if self.opened and not self.is_gone:
            self.run(partial(self._close_sessions, error))
        self.is_closed = True
        self._end_thread()

    def _end_thread(self) -> None:
        """Ends the thread, or says that it did not end."""
        if self._end() is False:
            self.findings.append(make_finding(Note("kit-not-closed", None, {"seconds": f"{END_S:g}"}), ""))
            print_problem(self.findings[-1].message)

    async def _close_sessions(self, error: BaseException | None) -> None:
        for close in list(self.opened):
            await close(error)


class OuterNames:
    """Names that the model uses: our names of tools with a prefix."""

    def __init__(self, prefix: str, own: Collection[str] = ()) -> None:
        if not _PREFIX.fullmatch(prefix):
            message = f"prefix={prefix[:80]!r} cannot begin the name of a tool."
            hint = "Use at most 40 letters, digits, _ and -, such as pdf_."
            raise ConfigError(message, code="prefix-invalid", hint=hint)
        self._prefix = prefix
        names = "|".join(map(re.escape, [*TOOLS, *own]))
        self._name = re.compile(rf"'[^'\n]*'|(?<![\w-])(?:{names})(?![\w-])")

    def add(self, tool: str) -> str:
        return f"{self._prefix}{tool}"

    def remove(self, tool: str) -> str:
        return tool.removeprefix(self._prefix)

    def rename(self, spec: ToolSpec) -> ToolSpec:
        """Returns the spec with the outer name. Its texts name other tools in the same way."""
        if not self._prefix:
            return spec
        name = self.add(spec.name)
        parameters = self._rename_json(spec.parameters)
        return replace(spec, name=name, description=self.rename_text(spec.description), parameters=parameters)

    def rename_text(self, text: str) -> str:
        if not self._prefix:
            return text
        return _TOOL_NAME.sub(lambda found: self.add(found[0]), text)

    def rename_outcome(self, outcome: Outcome) -> Outcome:
        """Renames tools in texts of Prowess. What programs, people and tools said, and what is quoted, stays."""
        if not self._prefix:
            return outcome
        content, hint = outcome.content, outcome.hint
        is_ours = outcome.code in _OURS and not (outcome.code == "invalid-call" and hint)  # a hint: a tool said it
        if is_ours:
            content = self._name.sub(self._add_unquoted, content)
        elif outcome.code in _BEGUN:
            head, space, rest = content.partition(" ")
            content = f"{self._name.sub(self._add_unquoted, head)}{space}{rest}"
        return replace(outcome, content=content, hint=hint and self._name.sub(self._add_unquoted, hint))

    def _add_unquoted(self, found: re.Match[str]) -> str:
        return found[0] if found[0].startswith("'") else self.add(found[0])

    def _rename_json(self, node: Any) -> Any:
        """Renames tools in the descriptions of a schema."""
        if isinstance(node, list):
            return [self._rename_json(item) for item in node]
        if not isinstance(node, dict):
            return node
        renamed: dict[str, Any] = {}
        for name, value in node.items():
            is_text = name == "description" and isinstance(value, str)
            renamed[name] = self.rename_text(value) if is_text else self._rename_json(value)
        return renamed


_OURS = ("invalid-call", "invalid-json", "repeat-failure", "cut-off", "skill-not-found")  # codes of whole texts of ours
_BEGUN = ("tool-raised", "tool-result")  # codes of texts that begin with the name of the tool
_TOOL_NAME = re.compile(rf"\b(?:{'|'.join(name for name in TOOLS if '_' in name)})\b")


def check_offer(offer: Offer, own: Collection[str], enabled: Collection[str]) -> None:
    """Raises ConfigError if an offer names a tool that is not there."""
    if offer in ("skills", "files"):
        return
    names = [offer] if isinstance(offer, str) else list(offer)
    known = [name for name in TOOLS if name not in SWITCHED_TOOLS or name in enabled]
    known += own
    for name in names:
        if name not in known:
            raise _not_offered(str(name)[:80], known)


def _not_offered(name: str, known: Sequence[str]) -> ConfigError:
    if name in SWITCHED_TOOLS:
        hint = f'Enable it: settings={{"tools.enable": ["{name}"]}}.'
        return ConfigError(f"offer names '{name}', which is switched off.", code="tool-disabled", hint=hint)
    near = difflib.get_close_matches(name, [*known, "skills", "files"], n=2)
    hint = f'Say "skills", "files" or some of: {", ".join(known)}.'
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    return ConfigError(f"offer names '{name}', which is no tool.", code="tool-unknown", hint=hint)


def make_version(instructions: str, tools: Sequence[ToolSpec]) -> str:
    """Returns a short text that is another one when the instructions or the tools are."""
    told = repr((instructions, to_json(tools)))
    return content_sha256(told.encode("utf-8", "surrogatepass"))[:12]
