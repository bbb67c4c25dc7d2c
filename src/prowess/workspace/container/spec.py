"""Describes a container and its mounted folders, and creates it with everything removed that is not needed.

The engine's own system call filter stays. Process 1 adds ours before it does anything else: so it is the same filter as
in the other sandboxes, and no engine needs a profile, which each takes in a different form.

An engine resolves the path of a mount with the rights of root, so a link that a script left in its workspace could lead
anywhere. Therefore each folder is opened here without following links, and is recognized later by device and inode.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from prowess.errors import PathEscape, WorkspaceError, WorkspaceUnavailable
from prowess.workspace.container.engine import OWNER_LABEL, SESSION_LABEL, Engine, owner
from prowess.workspace.container.image import image_unfit
from prowess.workspace.container.init import SCRATCH
from prowess.workspace.dirfd import open_folder
from prowess.workspace.layout import LEADS
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree

if TYPE_CHECKING:
    import docker.errors
    import docker.types


OWN_PROCESSES = 3  # process 1, the supervisor and an init; not counted as the program's
USER_PROCESSES = 4096  # for all containers together, because the kernel counts by user
SHM_BYTES = 32 << 20
# Docker's own list, and the command line of the host's kernel.
MASKED = (
    *("/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
    *("/sys/devices/virtual/powercap", "/proc/cmdline"),
)
OPEN_FILES = 1024  # for process 1, and the limit asked of an engine unless a larger one is configured
# Modules of process 1, each after those it imports.
_MODULES = (
    *("process.seccomp", "process.process_tree", "process.streams", "process.child", "process.supervisor"),
    "container.init",
)
_BOOT = """
import json, os, sys, types
if sys.version_info < (3, 10):
    sys.exit("Python 3.10 or newer is needed, and this is " + sys.version.split()[0])
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
task = json.loads(take(int.from_bytes(take(4), "big")))
for name, text in task["modules"]:
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = []
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    exec(compile(text, name, "exec"), module.__dict__)
module.main(task)
"""


class Folder(NamedTuple):
    """A folder of the host and its path in the container. `identity` is (device, inode, owner) of the folder we
    opened."""

    source: str
    target: str
    write: bool
    identity: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """Description of a container to create."""

    image: str  # name for people
    image_id: str
    uid: int
    gid: int
    folders: tuple[Folder, ...] = ()
    memory: int | None = None
    processes: int | None = None
    open_files: int | None = None
    tmp: int | None = None
    in_memory: Mapping[str, int] = field(default_factory=dict)  # folders that are filled later -> size in bytes
    covered: tuple[str, ...] = ()  # volumes of the image, which would be writable
    labels: Mapping[str, str] = field(default_factory=dict)


def create_container(engine: Engine, plan: ContainerSpec) -> str:
    """Asks the engine for the container, and returns its id."""
    name = f"prowess-{secrets.token_hex(6)}"
    labels = {OWNER_LABEL: owner(), SESSION_LABEL: "", **plan.labels}
    host_config = _host_config(engine, plan)
    made = engine.client.api.create_container(
        plan.image_id,
        entrypoint=["python3", "-I", "-S", "-u", "-X", "utf8", "-c", _BOOT],
        command=[],
        user=f"{plan.uid}:{plan.gid}",
        stdin_open=True,
        stop_signal="SIGKILL",  # process 1 ignores other signals, and this avoids the wait
        hostname="box",
        working_dir="/",
        name=name,
        labels=labels,
        healthcheck={"test": ["NONE"]},
        host_config=host_config,
    )
    return made["Id"]


def _host_config(engine: Engine, plan: ContainerSpec) -> docker.types.HostConfig:
    """Returns the part of the request that limits the container: its mounts, rights and resources."""
    from docker.types import LogConfig, Mount, Ulimit

    tmpfs = {SCRATCH[0]: _tmpfs(plan.tmp, "1777")}
    covered = list(plan.covered)
    if engine.kind == "podman":  # it makes some folders writable even with a read-only root
        covered += ["/run", f"/var{SCRATCH[0]}"]
    tmpfs |= dict.fromkeys(covered, "ro,size=4096")
    for target, size in plan.in_memory.items():
        tmpfs[target] = _tmpfs(size, "0755")
    mounts = []
    for folder in plan.folders:
        read_only = not folder.write
        mounts.append(Mount(folder.target, folder.source, type="bind", read_only=read_only, propagation="rprivate"))
    ulimits = {"nofile": max(OPEN_FILES, plan.open_files or 0), "core": 0}
    if engine.kind == "podman":
        ulimits["nproc"] = USER_PROCESSES
    dns = None
    dns_search = None
    if engine.kind == "docker":  # without these it copies the host's name servers
        dns = ["127.0.0.1"]
        dns_search = ["."]
    pids_limit = None if plan.processes is None else plan.processes + OWN_PROCESSES
    host = engine.client.api.create_host_config(
        network_mode="none",
        dns=dns,
        dns_search=dns_search,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],  # `init` adds our system call filter to the engine's
        ipc_mode="private",
        pids_limit=pids_limit,
        mem_limit=plan.memory,
        memswap_limit=plan.memory,
        # Set explicitly: without CAP_SYS_RESOURCE an engine fails when it raises them to its own defaults.
        ulimits=[Ulimit(name=name, soft=most, hard=most) for name, most in ulimits.items()],
        shm_size=SHM_BYTES,
        tmpfs=tmpfs,
        mounts=mounts,
        auto_remove=True,
        log_config=LogConfig(type="none"),  # the output is only for us, and a log would fill the engine's disk
    )
    if engine.kind == "docker":
        host["MaskedPaths"] = list(MASKED)
    if engine.kind == "podman" and engine.client.info().get("Rootless"):
        host["UsernsMode"] = "keep-id"  # keeps our own user id inside; the SDK has no parameter for it
    return host


def _tmpfs(size_bytes: int | None, mode: str) -> str:
    options = f"rw,exec,nosuid,nodev,mode={mode}"
    if size_bytes:
        options += f",size={size_bytes}"
    return options


def payload(paths: list[str]) -> bytes:
    """The task of process 1: the source of its modules, and the folders whose identity it reports."""
    package = "prowess.workspace"
    modules = [(name, "") for name in ("prowess", package, f"{package}.process", f"{package}.container")]
    for name in _MODULES:
        *folders, last = name.split(".")
        source = files(package).joinpath(*folders, f"{last}.py")
        text = source.read_text(encoding="utf-8")
        modules.append((f"{package}.{name}", text))
    task = {"modules": modules, "paths": paths}
    data = json.dumps(task).encode()
    size = len(data).to_bytes(4, "big")
    return size + data


def refused(op: str, error: docker.errors.APIError) -> WorkspaceUnavailable:
    why = str(error.explanation or error)
    why = why.rstrip(".")
    message = f"The container engine refused to {op}: {why}."
    return WorkspaceUnavailable(message, op=op, code="container-refused")


def image_missing(image: str, engine: Engine) -> WorkspaceUnavailable:
    message = f"There is no image '{image}' in the container engine at {engine.address}."
    hint = "Build it: prowess workspaces build-image"
    return WorkspaceUnavailable(message, op="image", code="container-image-missing", hint=hint)


def not_started(image: str, error: docker.errors.APIError) -> WorkspaceUnavailable:
    said = str(error.explanation or error)
    if "python3" in said and ("not found" in said or "no such file" in said.lower()):
        return image_unfit(image, "has no python3, which starts and ends programs in it.")
    return refused("start a container", error)


INSIDE = "/workspace"
_OWN = ("work", "out", "runs")
_OURS = (INSIDE, "/proc", "/sys", "/dev")
_SYSTEM = ("/", "/bin", "/etc", "/lib", "/lib64", "/run", "/sbin", "/usr", "/var", *SCRATCH)


def find_folders(place: Place, tree: Tree, name: str, digest: str, readable: Sequence[str]) -> tuple[Folder, ...]:
    """Returns the folders of a session's container for one skill: the session's own, the skill, and the mounts inside
    the skill that lead to the session's folders."""
    try:
        return tuple(_folders(place, tree, name, digest, readable))
    except OSError as error:
        missing = f"{error.filename}: {error.strerror}"
        message = f"A folder that the skill '{name}' needs in its container is missing: {missing}."
        raise WorkspaceError(message, op="stage", code="stage-failed") from error


def _folders(place: Place, tree: Tree, name: str, digest: str, readable: Sequence[str]) -> Iterator[Folder]:
    skill = f"{INSIDE}/skills/{name}"
    yield _folder(tree.path, skill, write=False)
    below: dict[str, str] = {}  # path in the container -> path below the workspace
    for folder in _OWN:
        below[f"{INSIDE}/{folder}"] = folder
    for folder, leads_to in LEADS.items():
        below[f"{skill}/{folder}"] = leads_to
    for target, rel in below.items():
        identity = identity_below(place, rel)
        if identity is not None:
            yield Folder(f"{place.root}/{rel}", target, True, identity)
    venv = place.make_venv(name, digest)
    yield _folder(venv, f"{skill}/.venv", write=True)
    for folder in readable:
        yield _folder(folder, folder, write=False)


def _folder(source: str, target: str, *, write: bool) -> Folder:
    identity = _identity(source)
    return Folder(source, target, write, identity)


def identity_below(place: Place, name: str) -> tuple[int, int, int] | None:
    """Returns the identity of a workspace folder, made again if a script removed it. None when a script put something
    else there: it is not mounted, and the skill has an empty folder instead."""
    try:
        with open_folder(place.root, name, make=True, uid=place.uid) as fd:
            return _identity(fd)
    except PathEscape:
        return None


def check_private(folder: str, socket: str | None) -> None:
    """Checks a readable folder: it appears under the same path, so it must not cover a folder there, and it must not
    contain the engine's socket."""
    is_plain = folder.startswith("/") and os.path.normpath(folder) == folder
    if not is_plain or _covers(folder) or _holds(folder, socket):
        why = "is not a folder of its own, or holds the engine's socket"
    elif not os.path.isdir(folder):
        why = "is not there"
    else:
        return
    message = f"'{folder}' cannot be made readable in a container: it {why}."
    raise WorkspaceError(message, op="run", code="unsafe-folder", hint="Name a folder by its whole path.")


def _covers(folder: str) -> bool:
    """True if the folder would cover one of the container."""
    if folder in _SYSTEM or folder in _OURS:
        return True
    return folder.startswith(tuple(f"{own}/" for own in _OURS))


def _holds(folder: str, socket: str | None) -> bool:
    if socket is None:
        return False
    real = os.path.realpath(folder)
    return os.path.realpath(socket).startswith(f"{real}/")


def _identity(path: str | int) -> tuple[int, int, int]:
    """Device, inode and owner of a folder."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_uid
