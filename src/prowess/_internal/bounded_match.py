"""Matches patterns and JSON Schemas of others in bounded time. A worker process does it; a hopeless one ends it.

One worker serves all checks of this process, because its start takes longer than a hundred checks.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any

from prowess._internal import match_worker
from prowess.errors import MissingExtra

LIMIT_S = 2.0  # of the processor
_LONGEST = 20_000_000  # characters of a text


def search(pattern: str, text: str) -> bool:
    """Returns True if the pattern matches anywhere. ValueError if it is no regular expression, or takes too long."""
    if len(text) > _LONGEST:
        raise ValueError(f"a text of more than {_LONGEST} characters is not searched")
    return not _ask({"pattern": pattern, "text": text})


def check_schema(schema: Any) -> None:
    """Raises ValueError if the JSON Schema is invalid, or refers to anything outside of it."""
    if problem := _ask({"schema": schema}):
        raise ValueError(problem)


def validate(schema: Any, value: Any) -> str:
    """Returns the reason why a value does not fit a schema, or nothing."""
    return _ask({"schema": schema, "value": value})


def _ask(order: dict[str, Any]) -> str:
    """Returns nothing for a yes, and the reason for a no. Raises ValueError if it cannot be told in time."""
    try:
        answer = _WORKER.ask(json.dumps({**order, "seconds": LIMIT_S}))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if answer is None:
        raise ValueError(f"given up after {LIMIT_S:g} s")
    if answer.get("missing"):
        raise MissingExtra("evals", wanted_for="A check with a JSON Schema")
    if "ok" not in answer:
        raise ValueError(answer["why"])
    return "" if answer["ok"] else answer.get("why") or "no match"


class _Worker:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Leaves the worker to the process that started it. A forked process starts its own."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, line: str) -> dict[str, Any] | None:
        """Returns the answer, or None if the worker ended instead."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            process, answer = self._process, None
            assert process is not None and process.stdin is not None and process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError, ValueError):  # it ended, maybe within its answer
                    process.stdin.write(line.encode("ascii") + b"\n")
                    process.stdin.flush()
                    answer = json.loads(process.stdout.readline())
            finally:
                if answer is None:  # or we were interrupted
                    self.end()
            return answer

    def _start(self) -> None:
        self.end()
        argv = [sys.executable, "-I", "-S", "-X", "utf8", match_worker.__file__]
        env: dict[str, str] = {}
        if "LD_LIBRARY_PATH" in os.environ:
            env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,  # so that signals of our terminal do not reach it
        )
        assert self._process.stdin is not None
        paths = [path for path in sys.path if path]
        self._process.stdin.write(json.dumps(paths).encode() + b"\n")

    def end(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            process.communicate()


_WORKER = _Worker()
atexit.register(_WORKER.end)
os.register_at_fork(after_in_child=_WORKER.forget)
