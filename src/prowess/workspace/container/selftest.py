"""Checks that containers isolate: a program in one attempts forbidden actions, and the result is checked from outside.

The trial workspace is made and run like any session's. Limits are read where they apply, because an engine may accept a
limit and ignore it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable
from importlib.resources import files
from types import ModuleType
from typing import Any, NamedTuple

from prowess.core.ports import Program
from prowess.core.values import Isolation, LimitStatus, SessionKey
from prowess.errors import WorkspaceUnavailable
from prowess.workspace import system_programs as system_files
from prowess.workspace.container import selftest_probe as look
from prowess.workspace.container.container import Container
from prowess.workspace.container.spec import INSIDE, OWN_PROCESSES
from prowess.workspace.container.workspace import ContainerWorkspace, Setup
from prowess.workspace.isolation import selftest_probe as attempts
from prowess.workspace.isolation.selftest import PROMISES
from prowess.workspace.layout import LEADS
from prowess.workspace.limits import NAMES, RunLimits
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import Tree

TRIAL_S = 30.0
SKILL = "self-test"
# Open to the other user, because the container must keep it out, not these modes.
_REACHABLE = 0o711
_OPEN = 0o777


class Trial(NamedTuple):
    """Result of the self-test: each promise and each limit."""

    promises: dict[str, bool]
    limits: dict[str, LimitStatus]
    python: str
    programs: dict[str, tuple[str, str]]  # see system_files.list_system_files
    said: dict[str, Any]


async def try_out(setup: Setup, folder: str | None = None) -> Trial:
    """Runs the self-test in a temporary container, with files in `folder` or the default folder for temporary files."""
    base = await asyncio.to_thread(tempfile.mkdtemp, prefix="prowess-selftest-", dir=folder)
    try:
        os.chmod(base, _REACHABLE)
        uid = setup.uid if os.geteuid() == 0 else None
        with (
            OpenPlace(base, SessionKey(session=f"self-test-{secrets.token_hex(4)}"), uid=uid) as place,
            _Traps(base, uid) as traps,
        ):
            return await _try_in(setup, place, traps)
    finally:
        await asyncio.to_thread(shutil.rmtree, base, ignore_errors=True)


async def _try_in(setup: Setup, place: Place, traps: _Traps) -> Trial:
    base = os.path.dirname(traps.canary)
    tree = _make_tree(os.path.join(base, "skill"), traps.uid)
    containers: list[Container] = []
    isolation = Isolation(executor="container", mechanism="")
    workspace = ContainerWorkspace(place, setup, isolation=isolation, python="python3", check=containers.append)
    try:
        await workspace.stage(tree, SKILL)
        looked, _ = await _run(workspace, look, {})
        programs, _ = await _run(workspace, system_files, {"path": setup.path})
        task = traps.task
        task["work"] = f"{INSIDE}/work"
        task["skill"] = f"{INSIDE}/skills/{SKILL}"
        task["ends"] = 1
        tried, survivors = await _run(workspace, attempts, task)
        said = {**tried, "look": looked}
        facts = containers[-1].facts
        promises = _judge(setup, place, tree, traps, said, survivors)
        limits = read_limits(setup, facts, looked)
        return Trial(promises, limits, str(facts["python"]), programs, said)
    finally:
        await workspace.aclose()


async def _run(workspace: ContainerWorkspace, module: ModuleType, task: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Runs a module as a script in the container. Returns its JSON, and the number of processes that outlived it."""
    package, _, name = module.__name__.rpartition(".")
    source = files(package) / f"{name}.py"
    text = source.read_text(encoding="utf-8")
    run = f"run-{secrets.token_hex(6)}"
    argv = ["python3", "-I", "-S", "-c", text, json.dumps(task)]
    env = {"PATH": workspace.environment["PATH"], "PROMISED": "1"}
    program = Program(argv=argv, skill=SKILL, run=run, cwd="work", env=env, timeout_s=TRIAL_S)
    out = bytearray()
    err = bytearray()
    ended = await workspace.run(program, out.extend, err.extend)
    if ended.exit_code != 0:
        printed = err.decode("utf-8", "replace").strip()
        message = f"The self-test did not run in the container: {printed[-500:] or ended}"
        raise WorkspaceUnavailable(message, op="isolation", code="isolation-failed")
    survivors = ended.survivors_killed if ended.left == 0 else -1
    return json.loads(out), survivors


def _judge(
    setup: Setup, place: Place, tree: Tree, traps: _Traps, said: dict[str, Any], survivors: int
) -> dict[str, bool]:
    """Decides for each promise if it is kept. An attempt that was not prevented said "ok"."""
    looked = said["look"]
    refused = {name for name, answer in {**looked, **said}.items() if answer != "ok"}
    made = os.stat(os.path.join(place.root, "work", "made"))
    has_set_id = made.st_mode & (stat.S_ISUID | stat.S_ISGID) != 0
    skill_files = {*LEADS, ".venv"}
    kept: dict[str, bool] = {}
    kept["reads nothing else"] = {"read", "read through a link"} <= refused
    kept["writes nothing else"] = traps.untouched() and "truncate" in refused and not looked["written"]
    kept["changes no skill"] = "skill" in refused and set(os.listdir(tree.path)) == skill_files
    kept["no network"] = not traps.arrived("tcp", "udp") and looked["interfaces"] == ["lo"]
    kept["no unix sockets"] = not traps.arrived("unix")
    kept["no vsock"] = "vsock" in refused and not looked["sockets"]
    kept["not root"] = set(looked["uid"]) == {setup.uid} == {made.st_uid} and setup.uid != 0
    kept["no new privileges"] = said["no new privileges"] == "1" and not any(looked["capabilities"])
    kept["no set-id files"] = "set-id" in refused and not has_set_id
    kept["no namespaces"] = "namespace" in refused and looked["seccomp"] == "2"
    kept["signals nobody else"] = traps.lives() and {"ptrace", "process 1"} <= refused
    kept["slows nobody else down"] = traps.priority() == traps.priority_before
    kept["clean environment"] = set(said["environment"]) <= _PROMISED_ENVIRONMENT
    kept["tree ended"] = survivors >= 1
    kept["no keys and rings"] = {"keyctl", "io_uring"} <= refused
    assert set(PROMISES) <= set(kept)
    return kept


_PROMISED_ENVIRONMENT = {"PATH", "PROMISED", "HOME", "TMPDIR", "PWD", "LC_CTYPE"}


def read_limits(setup: Setup, facts: dict[str, Any], looked: dict[str, Any]) -> dict[str, LimitStatus]:
    """Returns the status of each limit; "enforced" only if it was found in force. Disk use on a mounted folder is only
    checked during a run."""
    limits = setup.limits
    found = dict(looked["limits"])
    found |= group_limits(facts)
    found["tmp"] = looked["tmp"]
    held: dict[str, LimitStatus] = {}
    for name in NAMES:
        wanted = getattr(limits, name)
        held[name] = _held(wanted, found.get(name))
    if limits.disk is not None:
        held["disk"] = "best-effort" if setup.mounted else _held(limits.disk, looked["workspace"])
    return held


def group_limits(facts: dict[str, Any]) -> dict[str, int | None]:
    """Returns the control group limits that process 1 read, minus our own processes."""
    processes = facts["processes"]
    if processes is not None:
        processes -= OWN_PROCESSES
    return {"memory": facts["memory"], "processes": processes}


def _held(wanted: int | None, found: int | None) -> LimitStatus:
    if wanted is not None and found is not None and found <= wanted:
        return "enforced"
    return "absent"


def check_not_weaker(limits: RunLimits, held: dict[str, LimitStatus]) -> Callable[[Container], None]:
    """Returns a check that every limit of the self-test also holds in a new container."""

    def check(container: Container) -> None:
        for name, found in group_limits(container.facts).items():
            now = _held(getattr(limits, name), found)
            if held[name] == "enforced" and now != "enforced":
                message = f"The limit '{name}' held in the self-test, but does not hold in this container."
                raise WorkspaceUnavailable(message, op="limits", code="limit-not-enforced")

    return check


def _make_tree(path: str, uid: int | None) -> Tree:
    """Makes a skill folder that its own user could change, if the container allowed it."""
    inside = [os.path.join(path, name) for name in (*LEADS, ".venv")]
    for folder in [path, *inside]:
        os.mkdir(folder)
        if uid is not None:
            os.chown(folder, uid, uid)
    return Tree(path, "sha256:self-test")


class _Traps:
    """Files, sockets and a process that a program in a container must not reach. Without the container its user
    could."""

    def __init__(self, base: str, uid: int | None) -> None:
        self.uid = uid
        self.canary = os.path.join(base, "canary")
        self.outside = os.path.join(base, "outside")

    def __enter__(self) -> _Traps:
        os.mkdir(self.outside)
        with open(self.canary, "w", encoding="ascii") as file:
            file.write("canary")
        self._sockets = {
            "tcp": socket.socket(),
            "udp": socket.socket(type=socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX),
        }
        for name in ("tcp", "udp"):
            self._sockets[name].bind(("127.0.0.1", 0))
        path = os.path.join(self.outside, "socket")
        self._sockets["unix"].bind(path)
        os.chmod(path, _OPEN)
        for name, each in self._sockets.items():
            if name != "udp":
                each.listen(8)
            each.setblocking(False)
        if self.uid is not None:
            for path in (self.outside, self.canary):
                os.chown(path, self.uid, self.uid)
        self._victim = subprocess.Popen(
            ["/bin/sleep", "600"], cwd="/", env={}, user=self.uid, group=self.uid, stdin=subprocess.DEVNULL
        )
        self.priority_before = self.priority()
        return self

    @property
    def task(self) -> dict[str, Any]:
        """Task for the program in the container: everything that it must not reach."""
        task: dict[str, Any] = {"canary": self.canary, "outside": self.outside, "victim": self._victim.pid}
        for name in ("tcp", "udp"):
            _, port = self._sockets[name].getsockname()
            task[name] = port
        return task

    def arrived(self, *names: str) -> bool:
        for name in names:
            try:
                if name == "udp":
                    self._sockets[name].recv(16)
                else:
                    self._sockets[name].accept()[0].close()
            except BlockingIOError:
                continue
            return True
        return False

    def untouched(self) -> bool:
        if os.listdir(self.outside) != ["socket"]:
            return False
        return os.path.getsize(self.canary) == len("canary")

    def lives(self) -> bool:
        return self._victim.poll() is None

    def priority(self) -> int:
        return os.getpriority(os.PRIO_PROCESS, self._victim.pid)

    def __exit__(self, *error: object) -> None:
        for each in self._sockets.values():
            each.close()
        self._victim.kill()
        self._victim.wait()
