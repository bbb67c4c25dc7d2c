"""Connects to the container engine, and removes containers that dead owners left behind.

The `docker` SDK blocks, so every call runs in a thread with a time-out: an engine that does not answer is an error.
Podman offers the same API on its own socket. Each container has a label with its owner; the next owner removes
containers whose owner is dead.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from prowess.errors import MissingExtra, WorkspaceUnavailable

if TYPE_CHECKING:
    import docker

CONNECT_S = 5
WAIT_S = 30  # time-out for one answer of the engine
SESSION_LABEL = "prowess.session"
OWNER_LABEL = "prowess.owner"
_GOING_S = 10.0  # how long a removal may take
_FOREIGN_S = 600.0  # a container of another machine that has not started by then will not start
_T = TypeVar("_T")


class Engine(NamedTuple):
    """An engine that has answered."""

    client: docker.DockerClient
    address: str
    kind: str  # docker or podman
    wait_s: int

    @property
    def local(self) -> bool:
        """True when the engine may see the same files. Only a mount shows if it does."""
        return self.address.startswith(("unix://", "http+unix://"))

    @property
    def socket(self) -> str | None:
        if self.local:
            return self.address.partition("://")[2]
        return None

    async def call(self, op: str, function: Callable[..., _T], *args: Any, within_s: float = 0.0, **named: Any) -> _T:
        """Calls a function in a thread. Raises WorkspaceUnavailable `engine-failed` when no answer comes. The caller
        handles the answer and APIError. The SDK has a time-out for each step, and this method one for the whole
        call."""
        import docker.errors
        import requests

        try:
            async with asyncio.timeout(within_s or 2 * self.wait_s):
                return await asyncio.to_thread(function, *args, **named)
        except docker.errors.APIError:
            raise
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            message = f"The container engine at {self.address} failed: {_brief(error)}."
            hint = "Does it still run? Try: docker info"
            raise WorkspaceUnavailable(message, op=op, code="engine-failed", retryable=True, hint=hint) from error

    def close(self) -> None:
        self.client.close()


def connect(engine: str | None = None, environ: Mapping[str, str] | None = None, *, wait_s: int = WAIT_S) -> Engine:
    """Returns the engine at this address, or the first that answers. Blocks a few seconds at most for each."""
    try:
        import docker
        import docker.errors
        import docker.utils
        import requests
    except ModuleNotFoundError:
        raise MissingExtra("container", wanted_for="The container executor") from None
    environ = os.environ if environ is None else environ
    tried = []
    for address in [engine] if engine else list(_addresses(environ)):
        path = address.partition("://")[2] if address.startswith("unix://") else None
        if path is not None and not os.path.exists(path):
            tried.append(f"{address}: there is no such socket")
            continue
        client = None
        try:
            tls = docker.utils.kwargs_from_env(environment=dict(environ)).get("tls", False)
            if not address.startswith("tcp://"):
                tls = False
            client = docker.DockerClient(base_url=address, timeout=min(CONNECT_S, wait_s), tls=tls)
            components = client.version().get("Components") or []
            client.api.timeout = wait_s
            names = " ".join(str(component.get("Name", "")) for component in components).lower()
            kind = "podman" if "podman" in names else "docker"
            return Engine(client, address, kind, wait_s)
        except (docker.errors.DockerException, requests.RequestException, OSError, ValueError) as error:
            tried.append(f"{address}: {_brief(error)}")
            if client is not None:
                client.close()
    raise WorkspaceUnavailable(
        f"No container engine answers. Tried {'; '.join(tried)}.",
        op="connect",
        code="no-engine",
        hint="Start Docker or Podman's socket, and be allowed to use it; DOCKER_HOST says where it is.",
    )


def _addresses(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the configured address, or the usual places of the engines."""
    if named := environ.get("DOCKER_HOST") or environ.get("CONTAINER_HOST"):
        yield named
        return
    runtime = environ.get("XDG_RUNTIME_DIR")
    home = environ.get("HOME")
    yield "unix:///var/run/docker.sock"
    if runtime:
        yield f"unix://{runtime}/docker.sock"
    if home:
        yield f"unix://{home}/.docker/run/docker.sock"
    if runtime:
        yield f"unix://{runtime}/podman/podman.sock"
    yield "unix:///run/podman/podman.sock"


def _brief(error: BaseException) -> str:
    """Returns the innermost error's text: the SDK wraps errors several times."""
    while error.__cause__ is not None or error.__context__ is not None:
        inner = error.__cause__ or error.__context__
        if inner is None or not str(inner):
            break
        error = inner
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (str(error) or type(error).__name__).strip().rstrip(".")[:300]


# --- owners ---------------------------------------------------------------------------------------------------------


def owner() -> str:
    """Returns a label for this process that a later process with the same pid cannot have."""
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def sweep(client: docker.DockerClient) -> list[str]:
    """Removes the containers whose owner is gone, and returns their names. Containers of another machine are removed
    only when they have ended."""
    removed = []
    for container in client.api.containers(all=True, filters={"label": OWNER_LABEL}):
        labels = container.get("Labels") or {}
        if not _abandoned(labels.get(OWNER_LABEL, ""), container.get("State", ""), container.get("Created")):
            continue
        remove_container(client, container["Id"])
        names = container.get("Names") or [container["Id"]]
        removed.append(names[0].lstrip("/"))
    return removed


def remove_container(client: docker.DockerClient, id: str) -> None:
    """Ends and removes a container, and waits until it is gone. It may also be going by itself; meanwhile engines
    answer with various errors."""
    import docker.errors

    until = time.monotonic() + _GOING_S
    while True:
        try:
            client.api.remove_container(id, v=True, force=True)
            return
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code not in (409, 500) or time.monotonic() > until:
                raise
        time.sleep(0.02)


def _abandoned(label: str, state: str, created: object) -> bool:
    machine, _, process = label.partition("/")
    pid, _, started = process.partition("/")
    if machine == _machine() and pid.isdigit():
        return _started(int(pid)) != started or not _lives(int(pid))
    if state not in ("created", "configured", "exited", "dead", "stopped"):
        return False
    return time.time() - _seconds(created) > _FOREIGN_S


def _seconds(created: object) -> float:
    """Returns the time of creation in seconds. Docker gives a number, Podman sometimes text."""
    if isinstance(created, (int, float)):
        return float(created)
    try:
        return datetime.fromisoformat(str(created)[:19]).timestamp()
    except ValueError:
        return time.time()


def _machine() -> str:
    """Returns an id of this boot and process namespace, or the host name where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Returns the start time of a process in kernel ticks; "" when it has ended or the kernel does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    if fields[0] in (b"Z", b"X"):
        return ""
    return fields[19].decode()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
