"""Runs a function on the nodes of a Ray cluster. Text goes in and comes back; bytes that all calls share travel once.

A call whose worker or node dies is made again elsewhere by Ray. Without its head, a cluster is lost: Ray waits for it
for a while, and then ends this process. The pool gives up earlier, with an error.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from prowess.errors import EvalError, MissingExtra

_CONNECT_S = 5.0
_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"  # a setting of Ray
_PROBE_S = 1.0  # between two questions to the head
_TRIES = 5  # of a call whose worker dies
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"  # how a client of HTTP/2 begins
_ADDRESS = re.compile(r"(?:ray://)?(\[[0-9A-Fa-f:.]{2,45}\]|[^:/\[\]]{1,253}):(\d{1,5})")


class RayPool:
    """Cluster that runs `work(text, shared)`. Without an address, one is started on this machine. `slots` calls are
    under way at a time."""

    def __init__(
        self, work: Callable[[str, bytes], str], shared: bytes, *, address: str | None, slots: int | None
    ) -> None:
        ray = _import_ray()
        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, address)
        processors = max(1.0, ray.cluster_resources().get("CPU", 1.0))
        self.slots = slots or int(processors) * 2  # twice, so that no node waits for the driver
        share = 1.0
        if slots is not None and slots > processors:
            share = processors / slots
        self._head: str
        if address and address.startswith("ray://"):  # of a client, only this port of the head may be in reach
            self._head = address.removeprefix("ray://")
        else:
            self._head = ray.get_runtime_context().gcs_address
        self._lost: asyncio.Task[None] | None = None
        self._shared = ray.put(shared)
        remote = ray.remote(work)
        self._work = remote.options(num_cpus=share, max_retries=_TRIES, scheduling_strategy="SPREAD")

    async def perform(self, text: str) -> str:
        if self._lost is None:
            self._lost = asyncio.create_task(_wait_until_lost(self._head))
        reference = self._work.remote(text, self._shared)
        work = asyncio.ensure_future(reference)
        try:
            await asyncio.wait((work, self._lost), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not self._lost.done():
                self._ray.cancel(reference)
            raise
        if not work.done():
            raise EvalError(
                f"The Ray cluster at {_shown(self._head)} is lost: its head does not answer any more.",
                code="ray-lost",
                hint="Look at the logs of its head, and start it again.",
            )
        try:
            return work.result()
        except self._ray.exceptions.RayError as error:
            raise _failed(error) from error

    async def aclose(self) -> None:
        if self._lost is not None:
            self._lost.cancel()
        if self._is_ours:
            await asyncio.to_thread(self._ray.shutdown)


async def _wait_until_lost(head: str) -> None:
    """Returns when the head of a cluster has not answered for a third of the time that Ray itself waits for it: closing
    takes time, too."""
    host, _, port = head.rpartition(":")
    patience_s = float(os.environ.get(_PATIENCE) or 60) / 3
    answered_at = time.monotonic()
    while time.monotonic() < answered_at + patience_s:
        await asyncio.sleep(_PROBE_S)
        with suppress(OSError):  # a TimeoutError is one
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            answered_at = time.monotonic()


def _failed(error: Exception) -> EvalError:
    """Returns the error of our own that a node raised, or else what Ray says."""
    if isinstance(cause := getattr(error, "cause", None), EvalError):
        return cause
    return EvalError(
        f"The cluster could not run a task: {_shown(str(error).strip().splitlines()[-1])}",
        code="ray-failed",
        hint=f"A task whose worker dies is tried {_TRIES + 1} times. Look at the logs of the nodes.",
    )


def _import_ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns at every start
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", wanted_for="The engine ray") from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    if address not in (None, "auto", "local"):
        _check_answers(address or "")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=True)
    except (ConnectionError, RuntimeError, ValueError, OSError, SystemExit) as error:
        raise _unreachable(address or "", str(error)) from error


def _check_answers(address: str) -> None:
    """Asks the address itself first: Ray would try for two minutes, and then end the process."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise EvalError(
            f"{address[:100]!a} is no address of a Ray cluster.",
            code="ray-address-invalid",
            hint="Write HOST:PORT, ray://HOST:PORT, or auto.",
        )
    try:
        with socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=_CONNECT_S) as asked:
            asked.settimeout(_CONNECT_S)
            asked.sendall(_HTTP2)
            said = asked.recv(9, socket.MSG_WAITALL)
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from error
    encrypted = os.environ.get("RAY_USE_TLS", "0") not in ("", "0")
    if not encrypted and said[3:4] != b"\x04":  # a server of HTTP/2, which Ray speaks, begins with its settings
        raise _unreachable(address, "what listens there is something else")


def _unreachable(address: str, why: str) -> EvalError:
    reason = "no answer"
    lines = why.strip().splitlines()
    if lines:
        reason = _shown(lines[0])
    message = f"No Ray cluster answers at {address[:100]!a}: {reason}."
    hint = "Start one with: ray start --head. Or leave out --address, which starts one here."
    return EvalError(message, code="ray-unreachable", hint=hint)


def _shown(text: str) -> str:
    """Shortens and escapes a text for a message."""
    return ascii(text[:300])[1:-1]
