"""Runs a function on the nodes of a Ray cluster. Text goes in and comes back; bytes that all calls share travel once.

A call whose worker or node dies is made again elsewhere by Ray.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from typing import Any

from prowess.errors import EvalError, MissingExtra

_CONNECT_S = 5.0
_TRIES = 5  # of a call whose worker dies
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"  # how a client of HTTP/2 begins
_ADDRESS = re.compile(r"(?:ray://)?(\[[0-9A-Fa-f:.]{2,45}\]|[^:/\[\]]{1,253}):(\d{1,5})")


class RayPool:
    """Cluster that runs `work(text, shared)`. Without an address, one is started on this machine. `slots` calls are
    under way at a time."""

    def __init__(
        self, work: Callable[[str, bytes], str], shared: bytes, *, address: str | None, slots: int | None
    ) -> None:
        self._ray = ray = _import_ray()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, address)
        processors = max(1.0, ray.cluster_resources().get("CPU", 1.0))
        self.slots = slots or int(processors) * 2  # twice, so that no node waits for the driver
        share = 1.0 if slots is None or slots <= processors else processors / slots
        self._shared = ray.put(shared)
        self._work = ray.remote(work).options(num_cpus=share, max_retries=_TRIES, scheduling_strategy="SPREAD")

    async def perform(self, text: str) -> str:
        reference = self._work.remote(text, self._shared)
        try:
            return await reference
        except asyncio.CancelledError:
            self._ray.cancel(reference)
            raise
        except self._ray.exceptions.RayError as error:
            raise EvalError(
                f"The cluster lost a task {_TRIES + 1} times: {_shown(str(error).strip().splitlines()[-1])}",
                code="ray-failed",
                hint="Look at the logs of its nodes, then go on with --resume.",
            ) from error

    async def aclose(self) -> None:
        if self._is_ours:
            await asyncio.to_thread(self._ray.shutdown)


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
    reason = _shown(why.strip().splitlines()[0]) if why.strip() else "no answer"
    return EvalError(
        f"No Ray cluster answers at {address[:100]!a}: {reason}.",
        code="ray-unreachable",
        hint="Start one with: ray start --head. Or leave out --address, which starts one here.",
    )


def _shown(text: str) -> str:
    return ascii(text[:300])[1:-1]
