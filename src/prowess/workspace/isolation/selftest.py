"""Tests a sandbox on this machine: a program inside tries actions that must fail, and the host watches.

If the host can see for itself that something got out (a connection, a file, a signal), only that counts, not the report
of the program inside. Only a result in which every promise held is cached, until the next boot or a change of anything
that it depends on. So a repaired machine passes at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from prowess._internal.files import read_regular, write_whole
from prowess.core.codec import to_json
from prowess.errors import WorkspaceError, in_one_line
from prowess.workspace.isolation import selftest_probe as attempts
from prowess.workspace.isolation.bwrap import Bind, Box, boxed, find_trusted, system_of_host, why_no_bubblewrap
from prowess.workspace.isolation.landlock import walled
from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command

Mechanism = Literal["bwrap+seccomp", "landlock+seccomp", "none"]  # `none` is the control: few promises hold there
DEFAULT_UID = 64321
PROMISES = (
    "reads nothing else",
    "writes nothing else",
    "changes no skill",
    "no network",
    "no unix sockets",
    "no vsock",
    "not root",
    "no new privileges",
    "no set-id files",
    "no namespaces",
    "signals nobody else",
    "slows nobody else down",
    "clean environment",
    "tree ended",
)
TIMEOUT_S = 20.0
_LACKS: dict[Mechanism, Callable[[], str | None]] = {
    "bwrap+seccomp": why_no_bubblewrap,
    "landlock+seccomp": kernel.why_no_landlock,
    "none": lambda: None,
}
_REACHABLE, _OPEN = 0o711, 0o777  # for the other user: the sandbox has to stop it, not these modes


class Proof(NamedTuple):
    """Result of a self-test: for each promise if it held, and why not. `error` is set when the test could not run."""

    mechanism: str
    uid: int
    held: Mapping[str, bool] = {}
    why: Mapping[str, str] = {}
    interpreter: str | None = None
    program: str | None = None
    landlock_abi: int = 0
    error: str | None = None

    @property
    def holds(self) -> bool:
        if self.error is not None:
            return False
        return all(self.held.get(promise) is True for promise in PROMISES)


async def probe(
    mechanism: Mechanism,
    processes: Processes,
    *,
    run_as: int = DEFAULT_UID,
    cache: str | None = None,
    folder: str | None = None,
) -> Proof:
    """Runs the self-test, as user `run_as` if we are root.

    `cache` is a folder for a good result. `folder` is where to run the test; that user must be able to reach it.
    """
    uid = run_as if os.geteuid() == 0 else os.geteuid()
    if not processes.linux:
        return Proof(mechanism=mechanism, uid=uid, error="it needs Linux.")
    program = find_trusted("bwrap") if mechanism == "bwrap+seccomp" else None
    key = cache_key(mechanism, uid, program)
    known = _remembered(cache, mechanism, key)
    if known is not None:
        return known
    proof = Proof(mechanism=mechanism, uid=uid, program=program, landlock_abi=kernel.landlock_abi())
    if uid == 0:
        return proof._replace(error="A sandbox never runs as root; `run_as` must be another user.")
    lack = _LACKS[mechanism]()
    if lack is not None:
        return proof._replace(error=lack)
    base = tempfile.mkdtemp(prefix="prowess-selftest-", dir=folder)
    try:
        proof = await _Trial(processes, base, proof).run()
    except (WorkspaceError, OSError, NotImplementedError, ValueError, KeyError) as error:
        proof = proof._replace(error=in_one_line(error) or repr(error))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if cache is not None and proof.holds:
        text = json.dumps({"key": key, "proof": to_json(proof)})
        await asyncio.to_thread(write_whole, _cache_file(cache, mechanism), text.encode(), mode=0o600)
    return proof


async def find_interpreter(processes: Processes, uid: int | None, *, run: str = "pass") -> str | None:
    """Finds a Python that this user can execute. One in a home folder is often closed to other users."""
    for path in _interpreters():
        command = Command(argv=[path, "-I", "-S", "-c", run], cwd="/", env={}, uid=uid, timeout_s=TIMEOUT_S)
        try:
            if (await processes.run(command)).exit_code == 0:
                return path
        except WorkspaceError:
            continue
    return None


def folders_of_interpreter(interpreter: str) -> list[str]:
    """Folders outside the system that the interpreter needs in a sandbox."""
    if not interpreter or interpreter.startswith("/usr/"):
        return []
    return [sys.base_prefix]


def _interpreters() -> list[str]:
    own = os.path.realpath(sys.executable)
    found = (find_trusted("python3"), find_trusted("python"), own)
    return list(dict.fromkeys(path for path in found if path))


class _Trial:
    """Test run of all attempts, with the traps that the host watches."""

    def __init__(self, processes: Processes, base: str, proof: Proof) -> None:
        self.processes = processes
        self.proof = proof
        self.drop = proof.uid if os.geteuid() == 0 else None
        self.canary = os.path.join(base, "canary")
        self.outside = os.path.join(base, "outside")
        self.skill = os.path.join(base, "skill")
        self.work = os.path.join(base, "work")
        os.chmod(base, _REACHABLE)
        for path in (self.outside, self.skill, self.work):
            os.mkdir(path)
            os.chmod(path, 0o700)
            if self.drop is not None:
                os.chown(path, self.drop, self.drop)
        with open(self.canary, "w", encoding="ascii") as file:
            file.write("canary")
        if self.drop is not None:
            os.chown(self.canary, self.drop, self.drop)

    async def run(self) -> Proof:
        # First without a sandbox: the user can reach all this, so later only the sandbox can be what stops it.
        control = f"open({self.canary!r}).read(); [open(p + '/control', 'w') for p in {[self.outside, self.skill]!r}]"
        interpreter = await find_interpreter(self.processes, self.drop, run=control)
        if interpreter is None:
            reason = f"No Python was found that user {self.proof.uid} can execute, and that reaches {self.outside}."
            return self.proof._replace(error=reason)
        tcp = socket.socket()
        udp = socket.socket(type=socket.SOCK_DGRAM)
        unix = socket.socket(socket.AF_UNIX)
        pair = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ends_r, ends_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        victim = await self.processes.open_session(Command(argv=["/bin/sleep", "600"], cwd="/", env={}, uid=self.drop))
        try:
            self._listen(tcp, udp, unix, pair)
            task = {
                "canary": self.canary,
                "outside": self.outside,
                "victim": victim.pid,
                "ends": 7,
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                **self._paths_inside(),
            }
            argv = [interpreter, "-I", "-S", "-c", _source(attempts), json.dumps(task)]
            command = self._command(argv, interpreter)
            command = command._replace(fds={**command.fds, 7: ends_w})
            before = _priority(victim.pid)
            out = bytearray()
            err = bytearray()
            ended = await self.processes.run(command, out.extend, err.extend)
            os.close(ends_w)
            ends_w = -1
            if ended.exit_code != 0:
                said = err.decode("utf-8", "replace").strip()[-500:]
                return self.proof._replace(error=f"The sandbox did not run: {said or ended}")
            traps = {
                "tcp": _arrived(lambda: tcp.accept()[0].close()),
                "unix": _arrived(lambda: unix.accept()[0].close()) or _arrived(lambda: pair.recv(16)),
                "udp": _arrived(lambda: udp.recv(16)),
                "victim": not _untouched(victim.pid),
                "priority": _priority(victim.pid) != before,
                "ended": os.read(ends_r, 1) == b"" if ended.left == 0 else False,
            }
            if not out.startswith(b"{"):
                reason = "The self-test in the sandbox ended without a report."
                return self.proof._replace(error=reason)
            return self._judge(interpreter, json.loads(out), traps)
        finally:
            for listener in (tcp, udp, unix, pair):
                listener.close()
            os.close(ends_r)
            if ends_w >= 0:
                os.close(ends_w)
            await victim.aclose()

    def _listen(self, tcp: socket.socket, udp: socket.socket, unix: socket.socket, pair: socket.socket) -> None:
        for listener in (tcp, udp):
            listener.bind(("127.0.0.1", 0))
        for listener, name in ((unix, "socket"), (pair, "datagram")):
            path = os.path.join(self.outside, name)
            listener.bind(path)
            os.chmod(path, _OPEN)
        for listener in (tcp, unix):
            listener.listen(8)
        for listener in (tcp, udp, unix, pair):
            listener.setblocking(False)

    def _paths_inside(self) -> dict[str, str]:
        if self.proof.mechanism == "bwrap+seccomp":
            return {"work": "/workspace", "skill": "/skill"}
        return {"work": self.work, "skill": self.skill}

    def _command(self, argv: list[str], interpreter: str) -> Command:
        env = {"PATH": "/usr/bin:/bin", "PROMISED": "1"}
        if self.proof.mechanism == "bwrap+seccomp":
            system, links = system_of_host()
            skill = Bind(source=self.skill, target="/skill")
            work = Bind(source=self.work, target="/workspace", write=True)
            own = [Bind(source=path, target=path) for path in folders_of_interpreter(interpreter)]
            box = Box(system=system, links=links, binds=(skill, work, *own), chdir="/workspace", env=env)
            return boxed(self.proof.program or "", box, argv, uid=self.drop, timeout_s=TIMEOUT_S)
        more: dict[str, Any] = {"cwd": self.work, "env": env, "uid": self.drop, "timeout_s": TIMEOUT_S}
        if self.proof.mechanism == "landlock+seccomp":
            read = [self.skill, *folders_of_interpreter(interpreter)]
            return walled(argv, read=read, write=[self.work], **more)
        return Command(argv=argv, **more)

    def _judge(self, interpreter: str, said: dict[str, Any], traps: dict[str, bool]) -> Proof:
        made = os.stat(os.path.join(self.work, "made"))
        new_outside = set(os.listdir(self.outside)) - {"socket", "datagram", "control"}
        held = {
            "reads nothing else": said["read"] != "ok" and said["read through a link"] != "ok",
            "writes nothing else": not new_outside and said["truncate"] != "ok" and os.path.getsize(self.canary) == 6,
            "changes no skill": os.listdir(self.skill) == ["control"],
            "no network": not traps["tcp"] and not traps["udp"],
            "no unix sockets": not traps["unix"],
            "no vsock": said["vsock"] != "ok",
            "not root": made.st_uid == self.proof.uid != 0,
            "no new privileges": said["no new privileges"] == "1",
            "no set-id files": not made.st_mode & (stat.S_ISUID | stat.S_ISGID),
            "no namespaces": said["namespace"] != "ok",
            "signals nobody else": not traps["victim"],
            "slows nobody else down": not traps["priority"],
            "clean environment": set(said["environment"]) <= {"PATH", "PROMISED", "PWD", "LC_CTYPE"},
            "tree ended": traps["ended"],
        }
        why = {promise: json.dumps({"inside": said, "outside": traps}) for promise, kept in held.items() if not kept}
        return self.proof._replace(held=held, why=why, interpreter=interpreter)


def _arrived(take: Callable[[], object]) -> bool:
    try:
        take()
    except BlockingIOError:
        return False
    return True


def _priority(pid: int) -> int | None:
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        return None


def _untouched(pid: int) -> bool:
    """True when the process lives and no signal is pending for it."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return False
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return status["State"][0] in "SR" and not pending


def _source(module: Any) -> str:
    with open(module.__file__, encoding="utf-8") as file:
        return file.read()


def cache_key(mechanism: str, uid: int, program: str | None) -> str:
    """Hash of all facts that a result depends on. When one of them changes, the test runs again."""
    facts: list[object] = [mechanism, uid, os.geteuid(), *os.uname(), program]
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        facts.append(file.read())
    for space in ("mnt", "user", "pid", "net"):  # a container has its own, and may share our cache
        facts.append(os.stat(f"/proc/self/ns/{space}").st_ino)
    if program is not None:
        status = os.stat(program)
        facts += [status.st_mtime_ns, status.st_size]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in (
        "isolation/selftest_probe",
        "process/child",
        "isolation/bwrap",
        "process/seccomp",
        "isolation/landlock",
        "isolation/selftest",
        "process/supervisor",
        "process/process_tree",
    ):
        with open(os.path.join(here, f"{name}.py"), "rb") as file:
            facts.append(hashlib.sha256(file.read()).hexdigest())
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _cache_file(cache: str, mechanism: str) -> str:
    return os.path.join(cache, f"selftest-{mechanism}.json")


def _remembered(cache: str | None, mechanism: str, key: str) -> Proof | None:
    """Reads a cached result. Trusts only a file that is ours and that no other user can change."""
    if cache is None:
        return None
    path = _cache_file(cache, mechanism)
    try:
        status = os.stat(path, follow_symlinks=False)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        document = json.loads(read_regular(path, 1 << 20))
        if document["key"] != key:
            return None
        proof = Proof(**document["proof"])  # the key stands for this very module, so its fields are those of today
        return proof if proof.holds else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
