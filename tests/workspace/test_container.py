"""The container executor keeps the contract, and a container holds what is said of it: against a real dockerd.

The engine is started for this file alone, in a folder of its own; DOCKER_HOST names another one. Without root or
dockerd nothing here is run, and REQUIRE_TIERS=docker makes that a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import docker.errors
import jsonschema
import pytest

from prowess.cli.main import main
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.container import init as inside
from prowess.workspace.container.container import Container, NotTheSame
from prowess.workspace.container.engine import OWNER_LABEL, SESSION_LABEL, Engine, connect, owner, sweep
from prowess.workspace.container.executor import ContainerExecutor
from prowess.workspace.container.image import DEFAULT_IMAGE, DIGEST_LABEL, build_image, find_packages, write_image
from prowess.workspace.container.selftest import read_limits
from prowess.workspace.container.spec import OWN_PROCESSES, ContainerSpec, Folder
from prowess.workspace.container.workspace import Setup
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from workspace_contract import CASES, LIMITS, Claims, Desk, Ground, Tier, case_name, check_limit, said

TOOL = Path(__file__).resolve().parents[2] / "tools" / "docker.sh"
AS_ROOT = os.geteuid() == 0
UID = DEFAULT_UID if AS_ROOT else os.geteuid()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A dockerd with our image in it."""
    named = os.environ.get("DOCKER_HOST")
    folder = None
    if not named:
        why = "a dockerd needs root" if not AS_ROOT else None if shutil.which("dockerd") else "there is no dockerd here"
        if why and "docker" in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail(f"REQUIRE_TIERS names docker: {why}")
        if why:
            pytest.skip(f"containers: {why} (make system installs it)")
        folder = tempfile.mkdtemp(prefix="prowess-dockerd-")
    try:
        if folder:
            named = subprocess.run(
                [TOOL, "start", folder], check=True, stdout=subprocess.PIPE, text=True
            ).stdout.strip()
        found = connect(named)
        try:
            build_image(found.client, offline=True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(
                    "REQUIRE_TIERS", f"{os.environ.get('REQUIRE_TIERS', '')},docker"
                )  # there is one, so it works
                yield found
        finally:
            found.close()
    finally:
        if folder:
            subprocess.run([TOOL, "stop", folder], check=True)
            shutil.rmtree(folder)


def tier(engine: Engine, files: Any) -> Tier:
    def make(processes: Processes, limits: RunLimits, folder: str) -> ContainerExecutor:
        return ContainerExecutor(engine=engine.address, limits=limits, files=files, folder=folder)

    # Without mounts a run's folder in the container is the script's own; that on the host is not, and is not touched.
    claims = Claims(files_protected=AS_ROOT and files == "mount", programs_of_host=False)
    return Tier(name="docker", make=make, claims=claims)


class Grounds:
    """One ground for each way that files get into a container, made when it is wanted."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: dict[str, Ground] = {}

    def get(self, files: str) -> Ground:
        if files not in self._made:
            self._made[files] = Ground(tier(self._engine, files))
        return self._made[files]

    def close(self) -> None:
        for ground in self._made.values():
            ground.close()


@pytest.fixture(scope="module")
def grounds(engine: Engine) -> Iterator[Grounds]:
    grounds = Grounds(engine)
    yield grounds
    grounds.close()


@pytest.fixture
def mounted(grounds: Grounds) -> Ground:
    return grounds.get("mount")


@pytest.fixture
def carried(grounds: Grounds) -> Ground:
    return grounds.get("tar")


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_contract(case: Any, mounted: Ground, not_run: Callable[[str, str], None]) -> None:
    mounted.not_run = not_run
    mounted.go(case)


# What has to do with files, or with the end of a program, after which they come back; the rest is the same code.
CARRIED = re.compile(
    "folder|variable|skill|staged|venv|started|time_out|cancel|callback|clos|session_(is|can)|nothing_of"
)


@pytest.mark.parametrize("case", [case for case in CASES if CARRIED.search(case_name(case))], ids=case_name)
def test_contract_where_files_are_carried(case: Any, carried: Ground, not_run: Callable[[str, str], None]) -> None:
    carried.not_run = not_run
    carried.go(case)


@pytest.mark.parametrize("case", LIMITS, ids=case_name)
def test_limit(case: Any, mounted: Ground, not_run: Callable[[str, str], None]) -> None:
    mounted.not_run = not_run
    check_limit(case, mounted)


# --- what is taken away -----------------------------------------------------------------------------------------------

CALLS = """
import ctypes, errno, json, os, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    ctypes.set_errno(0)
    result = function(*arguments)
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def make(family, kind):
    try: socket.socket(family, kind).close()
    except OSError as error: return errno.errorcode[error.errno]
    return "ok"
def mode(path, bits):
    open(path, "w").close()
    try: os.chmod(path, bits)
    except OSError as error: return errno.errorcode[error.errno]
    return "ok"
x86 = os.uname().machine == "x86_64"
said = {
    "vsock": make(40, socket.SOCK_STREAM), "netlink": make(16, socket.SOCK_RAW), "alg": make(38, socket.SOCK_SEQPACKET),
    "packet": make(17, socket.SOCK_RAW), "io_uring": call(libc.syscall, 425, 1, ctypes.create_string_buffer(120)),
    "keyctl": call(libc.syscall, 250 if x86 else 219, 0, -3, 1), "ptrace": call(libc.ptrace, 0, 0, 0, 0),
    "setuid bit": mode(sys.argv[1] + "/setuid", 0o4755), "setgid bit": mode(sys.argv[1] + "/setgid", 0o2755),
    "setns": call(libc.setns, os.open("/proc/self/ns/uts", os.O_RDONLY), 0),
    "mount": call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None), "user": call(libc.unshare, 0x10000000),
}
print(json.dumps(said))
"""


def without_a_container(code: str, argument: str, gid: int | None) -> dict[str, str]:
    python = "/usr/bin/python3" if AS_ROOT else sys.executable
    become: dict[str, Any] = {"user": UID, "group": gid, "extra_groups": []} if AS_ROOT else {}
    argv = [python, "-I", "-c", code, argument]
    return json.loads(subprocess.run(argv, **become, cwd="/", check=True, stdout=subprocess.PIPE).stdout)


def test_system_calls_that_lead_out_are_refused(mounted: Ground, not_run: Callable[[str, str], None]) -> None:
    async def story(desk: Desk) -> None:
        result = await desk.python(CALLS, "/workspace/work")
        assert result.ended.exit_code == 0, result.err.decode()
        said = json.loads(result.out)
        assert "ok" not in said.values(), said
        control = await asyncio.to_thread(without_a_container, CALLS, str(desk.host("out")), desk.place.gid)
        for name, came_of_it in control.items():  # the attempts are real ones: without a container they succeed
            if came_of_it != "ok":
                not_run(f"control of '{name}' in a container", f"refused to everybody here: {came_of_it}")
        assert control["netlink"] == control["setuid bit"] == control["ptrace"] == "ok", control

    mounted.go(story)


def test_everything_is_read_only_but_its_own_folders(mounted: Ground) -> None:
    code = """
import os
written = []
for folder, _, _ in os.walk("/"):
    if folder.startswith(("/proc", "/sys")): continue
    try:
        open(folder + "/written", "w").close()
        os.unlink(folder + "/written")
        written.append(folder)
    except OSError: pass
print("\\n".join(sorted(written)))
"""

    async def story(desk: Desk) -> None:
        result = await desk.python(code, run="mine")
        skill = "/workspace/skills/demo"
        own = ["/workspace/out", "/workspace/work", "/workspace/work/inputs", "/workspace/runs/mine"]
        own += [f"{skill}/{name}" for name in (".venv", "inputs", "out", "work", "work/inputs")]
        assert set(result.lines) == {*own, "/dev/mqueue", "/dev/shm", "/tmp", "/tmp/mine"}

    mounted.go(story)


def test_who_it_is_and_what_it_can_see(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        status = dict(line.split(":\t") for line in await desk.sh("cat /proc/self/status") if ":\t" in line)
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert set(status["Uid"].split()) == {str(desk.workspace.isolation.uid)}
        assert set(status["Gid"].split()) == {str(desk.place.gid or desk.workspace.isolation.uid)}
        seen = await desk.sh("ls /sys/class/net; uname -n; grep -v 127.0.0.1 /etc/resolv.conf; true")
        assert seen == ["lo", "box"], "no network, and no names of the host's"
        sockets = await desk.sh(
            "find / -type s 2>/dev/null; ls /var/run/docker.sock /run/docker.sock 2>/dev/null; true"
        )
        assert sockets == [], "there is no way to the engine"
        passwd = await desk.sh("cat /etc/passwd")
        assert len(passwd) == 2 and passwd[1].startswith("box:")
        assert int((await desk.sh("echo /proc/[0-9]* | wc -w"))[0]) < 10, "its own processes, and ours in there"

    mounted.go(story)


def test_a_program_cannot_speak_for_process_1(mounted: Ground) -> None:
    """Neither by what it prints, nor through anybody's descriptors or memory; and it cannot stop or end process 1."""
    forged = b"".join(
        inside.FRAME.pack(kind, number, len(content)) + content
        for number in range(3)
        for kind in (inside.ENDED, inside.FAILED, inside.STARTED)
        for content in [json.dumps({"ended": {"why": "exit", "exit_code": 0}, "clean": True, "oom": False}).encode()]
    )
    forged = b"\x01\x00\x00\x00" + len(forged).to_bytes(4, "big") + forged
    code = """
import os, signal, sys
forged = bytes.fromhex(sys.argv[1])
for fd in (1, 2): os.write(fd, forged)
got = []
for pid in (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
    for name in ("mem", "fd/0", "fd/1", "fd/3", "environ", "maps"):
        try: open(f"/proc/{pid}/{name}", "r+b" if name != "environ" else "rb", buffering=0); got.append(f"{pid}/{name}")
        except OSError: pass
for name in "KILL STOP TERM INT HUP USR1 TSTP".split(): os.kill(1, getattr(signal, "SIG" + name))
print("got", got, flush=True)
sys.exit(9)
"""

    async def story(desk: Desk) -> None:
        result = await desk.python(code, forged.hex())
        assert result.ended.exit_code == 9
        assert result.out == forged + b"got []\n" and result.err == forged
        assert await desk.sh("echo still here") == ["still here"]

    mounted.go(story)


def test_a_program_that_ends_its_watchers_gains_nothing(mounted: Ground, engine: Engine) -> None:
    """Its init is killed, or everything but process 1: it ends, and that it was not watched to the end is said."""

    async def story(desk: Desk) -> None:
        result = await desk.run("sh", "-c", "kill -9 $PPID; sleep 60")
        assert result.ended.why == "lost"
        assert await desk.sh("echo next") == ["next"]
        try:
            assert (await desk.run("bash", "-c", "kill -9 -1; sleep 60")).ended.why == "lost"
        except WorkspaceError as gone:  # the supervisor had no time to say so
            assert gone.code == "run-lost" and gone.retryable
        assert await desk.sh("echo a new container") == ["a new container"]

    mounted.go(story)


def test_a_program_that_stops_its_watchers_ends_all_the_same(mounted: Ground) -> None:
    async def story(desk: Desk) -> None:
        program = desk.program(desk.workspace.python, "-c", "import os; os.kill(-1, 19)\nwhile 1: print('up', flush=1)")
        up = asyncio.Event()
        task = asyncio.ensure_future(desk.workspace.run(program, lambda data: up.set()))
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await desk.sh("ps ax | grep -c 'o[s].kill(-1'; true")) == ["0"]

    mounted.go(story)


# --- what a container sees --------------------------------------------------------------------------------------------


def containers(engine: Engine, desk: Desk) -> list[dict[str, Any]]:
    label = f"{SESSION_LABEL}={os.path.basename(desk.place.path)}"
    return engine.client.api.containers(all=True, filters={"label": label})


def test_a_session_has_one_container_for_each_skill_and_not_for_each_run(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        await asyncio.gather(*(desk.sh(f"echo {number}") for number in range(20)))
        assert len(containers(engine, desk)) == 1
        secret = desk.program("sh", "-c", "echo up; cat", env={"TOKEN": "s3cret"})
        session = await desk.workspace.open_session(secret)
        await said(session, b"up")
        for number in range(5):
            await desk.workspace.stage(desk.publish(name=f"other-{number}"), f"other-{number}")
            seen = await desk.sh(
                "cat /proc/*/environ 2>/dev/null | tr -d '\\0'; ls ..", skill=f"other-{number}", cwd="work/.."
            )
            assert "s3cret" not in "".join(seen), "programs of one skill do not see those of another"
        assert len(containers(engine, desk)) <= 4, "those used longest ago are gone"
        await session.write(b"still")
        await said(session, b"still")
        await session.aclose()

    mounted.go(story)


def test_a_session_keeps_its_tree_when_another_is_staged(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        session = await desk.workspace.open_session(desk.program("sh", cwd="skills/demo"))
        await session.write(b"cat data.txt\n")
        assert await said(session, b"\n") == b"published\n"
        await desk.workspace.stage(desk.publish({"data.txt": "newer\n"}), "demo")
        assert await desk.sh("cat data.txt", cwd="skills/demo") == ["newer"]
        await session.write(b"cat data.txt\n")
        assert await said(session, b"\n") == b"published\n"
        assert len(containers(engine, desk)) == 2
        session.close_stdin()
        await session.wait()
        assert len(containers(engine, desk)) == 1

    mounted.go(story)


@pytest.mark.parametrize("files", ["mount", "tar"])
def test_a_readable_folder_is_seen_by_the_run_that_names_it(files: str, grounds: Grounds) -> None:
    ground = grounds.get(files)

    async def story(desk: Desk) -> None:
        library = Path(desk.trees).parent / f"library-{files}"
        (library / "deep").mkdir(parents=True)
        (library / "deep" / "module.py").write_text("print('from the library')\n", encoding="utf-8")
        (library / "tool").write_text("#!/bin/sh\necho tool\n", encoding="utf-8")
        for path in (library, library / "deep", library / "deep" / "module.py", library / "tool"):
            path.chmod(0o755)
        readable = [str(library)]
        script = f"python3 {library}/deep/module.py; {library}/tool; touch {library}/new {library}/tool 2>&1 | wc -l"
        assert await desk.sh(script, readable=readable) == ["from the library", "tool", "2"]
        assert sorted(os.listdir(library)) == ["deep", "tool"]
        assert await desk.sh(f"ls {library} 2>&1 | grep -c 'No such file'") == ["1"]
        for folder in ("/", "/usr", "/workspace/work", "/proc/1", "relative", f"{library}/../x", "/nowhere"):
            with pytest.raises(WorkspaceError) as refused:
                await desk.run("true", readable=[folder])
            assert refused.value.code == "unsafe-folder"

    ground.go(story)


def test_the_way_to_the_engine_is_never_given(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        assert engine.socket is not None
        with pytest.raises(WorkspaceError) as refused:
            await desk.run("true", readable=[os.path.dirname(engine.socket)])
        assert refused.value.code == "unsafe-folder"

    mounted.go(story)


def test_what_the_engine_mounted_is_compared(mounted: Ground, engine: Engine, tmp_path: Path) -> None:
    """As when a script puts a link in the place of a folder between our look at it and the engine's."""
    (tmp_path / "meant").mkdir()
    meant = os.stat(tmp_path / "meant")
    (tmp_path / "other").mkdir()
    folder = Folder(str(tmp_path / "other"), "/workspace/work", True, (meant.st_dev, meant.st_ino, meant.st_uid))
    image = engine.client.api.inspect_image(DEFAULT_IMAGE)["Id"]
    plan = ContainerSpec(
        image=DEFAULT_IMAGE, image_id=image, uid=UID, gid=UID, folders=(folder,), labels={"test": "compared"}
    )

    async def story() -> None:
        with pytest.raises(NotTheSame) as refused:
            await Container.open(engine, plan)
        assert refused.value.target == "/workspace/work"

    asyncio.run(story())
    assert engine.client.api.containers(all=True, filters={"label": "test=compared"}) == []


def test_nothing_of_a_run_is_left_in_the_temporary_folders(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        await desk.sh(
            "echo x > /tmp/mine; mkdir -p /tmp/a/b; chmod 0 /tmp/a; ln -s /etc /tmp/link; echo x > /dev/shm/mine"
        )
        assert await desk.sh("ls -A /tmp /dev/shm | grep -v -e run- -e ^r -e : -e '^$' | wc -l") == ["0"]
        before = containers(engine, desk)[0]["Id"]
        deep = "import os\nos.chdir('/tmp')\nfor _ in range(100): os.mkdir('d' * 200); os.chdir('d' * 200)"
        assert (await desk.python(deep)).ended.exit_code == 0
        assert await desk.sh("ls /tmp | grep -c ddd; true") == ["0"]
        assert containers(engine, desk)[0]["Id"] != before, "what cannot be removed goes with its container"

    mounted.go(story)


def test_inputs_that_a_script_replaced_are_seen_again_when_they_are_a_folder_again(mounted: Ground) -> None:
    async def story(desk: Desk) -> None:
        await desk.sh("rm -rf inputs")
        desk.host("work/inputs").mkdir(exist_ok=True)
        desk.place.own(str(desk.host("work/inputs")))
        desk.put("work/inputs/new.txt", "new\n")
        assert await desk.sh("cat inputs/new.txt", cwd="skills/demo") == ["new"]

    mounted.go(story)


# --- the engine -------------------------------------------------------------------------------------------------------


def test_the_isolation_is_what_was_tried(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        isolation = desk.workspace.isolation
        assert (isolation.executor, isolation.network, isolation.uid) == ("container", "none", UID)
        assert isolation.mechanism == f"{engine.kind}+seccomp" and isolation.notes == ()
        assert isolation.limits == {
            "memory": "enforced",
            "processes": "enforced",
            "cpu": "enforced",
            "open_files": "enforced",
            "file_size": "enforced",
            "tmp": "enforced",
            "disk": "best-effort",
        }
        limits = await desk.sh(
            "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true"
        )
        assert limits == [str(256 << 20)]

    mounted.go(story, RunLimits(memory=256 << 20))


def test_a_limit_that_an_engine_ignores_is_absent(mounted: Ground, engine: Engine) -> None:
    """As Podman does without root on cgroup v1; what it was asked for does not count."""
    limits = RunLimits(memory=256 << 20, tmp=1 << 20)
    setup = Setup(
        engine=engine, image="", image_id="", path="", covered=(), uid=UID, gid=UID, limits=limits, mounted=True
    )
    looked = {"limits": {"cpu": 600, "open_files": None, "file_size": 2 << 30}, "tmp": 2 << 20, "workspace": 1 << 40}
    found = read_limits(setup, {"memory": None, "processes": None}, looked)
    assert found == {
        "memory": "absent",
        "processes": "absent",
        "cpu": "enforced",
        "open_files": "absent",
        "file_size": "absent",
        "tmp": "absent",
        "disk": "best-effort",
    }
    found = read_limits(setup, {"memory": 1 << 62, "processes": 128 + OWN_PROCESSES}, looked)
    assert (found["memory"], found["processes"]) == ("absent", "enforced")


def test_a_container_that_is_killed_is_a_run_that_was_lost(mounted: Ground, engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        up = asyncio.Event()
        session = await desk.workspace.open_session(desk.program("cat"))
        task = asyncio.ensure_future(
            desk.workspace.run(desk.program("sh", "-c", "echo up; cat; sleep 60"), lambda _: up.set())
        )
        await up.wait()
        await asyncio.to_thread(engine.client.api.kill, containers(engine, desk)[0]["Id"])
        with pytest.raises(WorkspaceError) as lost:
            await task
        assert lost.value.code == "run-lost" and lost.value.retryable
        assert (await session.wait()).why == "lost" and session.ended is not None
        await session.write(b"to nobody")
        assert await desk.sh("echo next") == ["next"]

    mounted.go(story)


class Proxy:
    """Between us and the engine: it can go away, or fall silent."""

    def __init__(self, path: Path, target: str) -> None:
        self.address = f"unix://{path}"
        self.silent = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._target = target
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(self._target)
            self._open += [ours, theirs]
            for source, target in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if self.silent.is_set():
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextlib.contextmanager
def proxy(engine: Engine) -> Iterator[Proxy]:
    folder = tempfile.mkdtemp(prefix="prowess-proxy-")
    assert engine.socket is not None
    between = Proxy(Path(folder) / "s", engine.socket)
    try:
        yield between
    finally:
        between.close()
        shutil.rmtree(folder)


def through(address: str, story: Callable[[Desk], Coroutine[Any, Any, None]], **more: Any) -> None:
    """One story with an executor of its own."""

    def make(processes: Processes, limits: RunLimits, folder: str) -> ContainerExecutor:
        return ContainerExecutor(engine=address, limits=limits, folder=folder, **more)

    ground = Ground(Tier(name="docker", make=make, claims=Claims()))
    try:
        ground.go(story)
    finally:
        ground.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its socket open
def test_an_engine_that_is_gone_is_a_run_that_was_lost(engine: Engine) -> None:
    with proxy(engine) as between:

        async def story(desk: Desk) -> None:
            up = asyncio.Event()
            task = asyncio.ensure_future(
                desk.workspace.run(desk.program("sh", "-c", "echo up; sleep 60"), lambda _: up.set())
            )
            await up.wait()
            between.close()
            with pytest.raises(WorkspaceError) as lost:
                await task
            assert lost.value.code == "run-lost"
            with pytest.raises(WorkspaceUnavailable) as failed:
                await desk.run("true")
            assert failed.value.code == "engine-failed" and between.address in failed.value.message

        through(between.address, story, wait_s=2)
    gc.collect()


def test_an_engine_that_falls_silent_is_an_error_and_not_a_wait(engine: Engine) -> None:
    with proxy(engine) as between:

        async def story(desk: Desk) -> None:
            between.silent.set()
            with pytest.raises(WorkspaceUnavailable) as failed:
                await desk.run("true")
            assert failed.value.code == "engine-failed"

        through(between.address, story, wait_s=1)


OWNER = """
import asyncio, sys, time
from prowess.core.ports import Program
from prowess.core.values import SessionKey
from prowess.workspace.container.executor import ContainerExecutor
from prowess.workspace.limits import RunLimits
from prowess.workspace.session_folder import OpenPlace
from prowess.workspace.skill_trees import Tree

async def main(address, folder, tree):
    executor = ContainerExecutor(engine=address, limits=RunLimits(), folder=folder)
    with OpenPlace(folder, SessionKey(session="owner"), uid=executor.uid) as place:
        workspace = await executor.open(place)
        await workspace.stage(Tree(tree, "sha256:1"), "demo")
        argv = ["sh", "-c", "echo up; sleep 600"]
        program = Program(argv=argv, skill="demo", run="r", cwd="work", env=workspace.environment)
        await workspace.run(program, lambda data: print("up", flush=True))

asyncio.run(main(*sys.argv[1:]))
"""


def test_the_container_of_an_owner_who_was_killed_ends(engine: Engine) -> None:
    folder = tempfile.mkdtemp(prefix="prowess-test-")
    os.chmod(folder, 0o711)
    for name in ("tree", "tree/out", "tree/work", "tree/inputs", "tree/.venv"):
        os.mkdir(os.path.join(folder, name))
    argv = [sys.executable, "-c", OWNER, engine.address, folder, os.path.join(folder, "tree")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        label = {"label": f"{SESSION_LABEL}={os.listdir(os.path.join(folder, 'workspaces'))[0]}"}
        (container,) = engine.client.api.containers(filters=label)
        process.kill()
    try:
        engine.client.api.wait(container["Id"], timeout=30, condition="removed")
    except docker.errors.NotFound:  # it was faster
        pass
    assert engine.client.api.containers(all=True, filters=label) == []
    shutil.rmtree(folder)


def stale(engine: Engine, owner: str, *, running: bool) -> str:
    """A container with nothing of ours in it that would end by itself."""
    api = engine.client.api
    made = api.create_container(
        DEFAULT_IMAGE,
        ["sleep", "600"],
        labels={OWNER_LABEL: owner},
        host_config=api.create_host_config(network_mode="none"),
    )["Id"]
    if running:
        api.start(made)
    return made


def test_what_dead_owners_left_is_swept_and_what_lives_is_not(engine: Engine) -> None:
    machine, pid, started = owner().split("/")
    with subprocess.Popen(["sleep", "600"]) as other:
        alive = f"{machine}/{other.pid}/{Path(f'/proc/{other.pid}/stat').read_text(encoding='utf-8').split()[21]}"
        reused = f"{machine}/{other.pid}/1"
        kept = [stale(engine, alive, running=True), stale(engine, owner(), running=False)]
        kept.append(stale(engine, f"another-machine/{pid}/{started}", running=True))
        kept.append(stale(engine, "nonsense", running=True))
        gone = [stale(engine, reused, running=True), stale(engine, f"{machine}/999999999/1", running=False)]
        names = {engine.client.api.inspect_container(each)["Name"].lstrip("/") for each in gone}
        try:
            assert set(sweep(engine.client)) == names
            assert sweep(engine.client) == []
            left = {each["Id"] for each in engine.client.api.containers(all=True, filters={"label": OWNER_LABEL})}
            assert set(kept) <= left and not set(gone) & left
            other.kill()
            other.wait()

            async def story(desk: Desk) -> None:
                await desk.executor.isolation()

            through(engine.address, story)
            left = {each["Id"] for each in engine.client.api.containers(all=True, filters={"label": OWNER_LABEL})}
            assert kept[0] not in left and set(kept[1:]) <= left, "an executor sweeps when it starts"
        finally:
            other.kill()
            for each in (*kept, *gone):
                with contextlib.suppress(docker.errors.NotFound):
                    engine.client.api.remove_container(each, force=True)


def unavailable(code: str, **more: Any) -> WorkspaceUnavailable:
    async def ask() -> None:
        executor = ContainerExecutor(limits=RunLimits(), **more)
        try:
            await executor.isolation()
        finally:
            await executor.aclose()

    with pytest.raises(WorkspaceUnavailable) as refused:
        asyncio.run(ask())
    assert refused.value.code == code
    return refused.value


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its socket open
def test_without_an_engine_it_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    assert nowhere in unavailable("no-engine", engine=nowhere).message
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "connection refused" in unavailable("no-engine", engine=f"unix://{tmp_path}/file").message
    monkeypatch.setenv("DOCKER_HOST", nowhere)
    assert nowhere in unavailable("no-engine").message
    with pytest.raises(WorkspaceUnavailable) as refused:
        connect(environ={"CONTAINER_HOST": nowhere})
    assert refused.value.code == "no-engine" and nowhere in refused.value.message
    gc.collect()


def test_without_the_sdk_it_says_what_to_install() -> None:
    code = """
import asyncio, sys
sys.modules["docker"] = None
from prowess.errors import MissingExtra
from prowess.workspace.container.executor import ContainerExecutor
from prowess.workspace.limits import RunLimits
try: asyncio.run(ContainerExecutor(limits=RunLimits(), run_as=64321).isolation())
except MissingExtra as error: print(error)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "The container executor needs the optional part 'container'" in answer.stdout
    assert "pip install 'prowess[container]'" in answer.stdout


def test_root_is_nobody_to_run_as(engine: Engine) -> None:
    if AS_ROOT:
        unavailable("run-as-root", engine=engine.address, run_as=0)


# --- images -----------------------------------------------------------------------------------------------------------


def imported(engine: Engine, tag: str, names: Sequence[str] = (), changes: Sequence[str] = ()) -> str:
    """An image with empty programs of those names."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("tmp", "proc", "sys", "dev", *names):
            info = tarfile.TarInfo(name)
            info.mode, info.type = 0o755, tarfile.DIRTYPE if name not in names else tarfile.REGTYPE
            tar.addfile(info)
    engine.client.api.import_image_from_data(data.getvalue(), repository=tag, tag="latest", changes=list(changes))
    return tag


def test_an_image_that_is_missing_or_unfit_is_named(engine: Engine) -> None:
    missing = unavailable("container-image-missing", engine=engine.address, image="no-such-image")
    assert "'no-such-image'" in missing.message and "build-image" in str(missing.hint)
    bare = imported(engine, "prowess-test-bare")
    unfit = unavailable("container-image-unfit", engine=engine.address, image=bare)
    assert "'prowess-test-bare'" in unfit.message and "python3" in unfit.message and "build-image" in str(unfit.hint)
    with pytest.raises(WorkspaceUnavailable) as refused:
        build_image(engine.client, base=bare, tag="prowess-test-based")
    assert refused.value.code == "container-image-unfit"
    engine.client.api.remove_image(bare, force=True)


def test_a_base_image_is_checked_and_gets_our_name(engine: Engine) -> None:
    said: list[str] = []
    info = build_image(engine.client, base=DEFAULT_IMAGE, tag="prowess-test-based:1", on_line=said.append)
    assert info.tag == "prowess-test-based:1" and info.python.startswith("3.") and info.packages == () and said
    assert info.id == engine.client.api.inspect_image("prowess-test-based:1")["Id"]
    engine.client.api.remove_image("prowess-test-based:1")


@pytest.mark.parametrize(("exit_code", "built_from"), [(0, "dockerfile"), (100, "packages")])
def test_the_image_comes_from_the_dockerfile_or_else_from_packages(
    engine: Engine, tmp_path: Path, exit_code: int, built_from: str
) -> None:
    """The image of the registry is one of ours, with an apt-get that installs nothing, and has a set-id file."""
    api, tag, said = engine.client.api, "prowess-test-built:1", []
    name = re.search(r"^FROM (\S+)$", (files(inside.__package__) / "Dockerfile").read_text("utf-8"), re.M)
    assert name is not None
    before = [each["Id"] for each in api.images(name[1])]
    apt = f"printf '#!/bin/sh\\nexit {exit_code}\\n' > /usr/bin/apt-get && chmod 4755 /usr/bin/apt-get"
    (tmp_path / "Dockerfile").write_text(f"FROM {DEFAULT_IMAGE}\nUSER 0\nRUN {apt}\n", encoding="utf-8")
    for line in api.build(path=str(tmp_path), tag=name[1], rm=True, decode=True, network_mode="none"):
        assert "error" not in line, line
    try:
        info = build_image(engine.client, tag=tag, on_line=said.append)
    finally:
        api.remove_image(name[1], force=True)
        for each in before:
            api.tag(each, *name[1].split(":"))
    assert info.built_from == built_from and bool(info.packages) == (built_from == "packages")
    assert any("could not be built here" in line for line in said) == (built_from == "packages")
    assert ("from the Dockerfile" if built_from == "dockerfile" else "from this machine's packages") in said[-1]
    assert api.inspect_image(tag)["Config"]["User"] == f"{DEFAULT_UID}:{DEFAULT_UID}"

    async def story(desk: Desk) -> None:
        assert await desk.sh("find / -xdev -type f -perm /6000 2>/dev/null; id -un; python3 -c 'print(1)'") == [
            "box",
            "1",
        ]

    through(engine.address, story, image=tag)
    api.remove_image(tag, force=True)


def test_the_command_builds_offline_and_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    assert main(["workspaces", "build-image", "--offline", "--tag", "prowess-test-offline", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    jsonschema.validate(document, json.loads((files("prowess") / "schemas" / "image.json").read_text("utf-8")))
    assert document["tag"] == "prowess-test-offline" and document["built_from"] == "packages"
    engine.client.api.remove_image("prowess-test-offline")
    assert main(["workspaces", "build-image", "--offline", "--from", DEFAULT_IMAGE]) == 2


def test_folders_that_an_image_would_make_writable_are_not(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {DEFAULT_IMAGE}\nVOLUME /data\nHEALTHCHECK CMD true\n", encoding="utf-8"
    )
    tag = "prowess-test-volume"
    for line in engine.client.api.build(path=str(tmp_path), tag=tag, rm=True, decode=True, network_mode="none"):
        assert "error" not in line, line

    async def story(desk: Desk) -> None:
        assert await desk.sh("test -d /data && touch /data/x 2>&1 | grep -c Read-only") == ["1"]

    through(engine.address, story, image=tag)
    engine.client.api.remove_image(tag, force=True)


def test_the_image_has_nothing_of_this_machine(engine: Engine) -> None:
    info = engine.client.api.inspect_image(DEFAULT_IMAGE)
    assert info["Size"] < 200_000_000 and info["Config"]["User"] == f"{DEFAULT_UID}:{DEFAULT_UID}"
    packages = find_packages()
    assert "python3" in packages and not {"perl-base", "dpkg", "openssh-client"} & set(packages)
    with tempfile.TemporaryFile() as first, tempfile.TemporaryFile() as second:
        assert write_image(first, packages) == write_image(second, packages) == info["Config"]["Labels"][DIGEST_LABEL]
        first.seek(0)
        with tarfile.open(fileobj=first) as tar:
            members = {member.name: member for member in tar}
            passwd = tar.extractfile(members["etc/passwd"])
            assert passwd is not None and len(passwd.read().splitlines()) == 2
    assert all(member.uid == member.gid == 0 and not member.mode & 0o6000 for member in members.values())
    of_etc = {name for name in members if name.startswith("etc/") and members[name].isreg()}
    written = {"etc/passwd", "etc/group", "etc/nsswitch.conf"}
    assert not {
        name for name in of_etc - written if not re.match("etc/(ld.so.conf|python3|mime.types|os-release)", name)
    }
    assert not [name for name in members if re.match(r"(root|home|var|usr/local|usr/share/(doc|man|locale))/", name)]


# --- streams ----------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_hundred_megabytes_in_constant_memory(mounted: Ground) -> None:
    async def story(desk: Desk) -> None:
        await desk.sh("true")
        before, most, total = resident_bytes(), 0, 0

        def take(data: bytes) -> None:
            nonlocal most, total
            total += len(data)
            if total % (1 << 22) < len(data):
                most = max(most, resident_bytes())

        ended = await desk.workspace.run(desk.program("head", "-c", "100000000", "/dev/zero"), take)
        assert ended.exit_code == 0 and total == 100_000_000
        assert most - before < 32 << 20

    mounted.go(story)


def test_what_is_not_read_in_time_is_dropped_and_counted(mounted: Ground) -> None:
    async def story(desk: Desk) -> None:
        session = await desk.workspace.open_session(desk.program("sh", "-c", "head -c 3000000 /dev/zero; echo end"))
        ended = await session.wait()
        assert ended.exit_code == 0
        got = b""
        while piece := await session.read():
            got += piece
        assert got.endswith(b"end\n") and session.dropped_bytes + len(got) == 3_000_004 and len(got) == 1 << 20

    mounted.go(story)


def test_a_session_takes_as_much_as_it_is_given(mounted: Ground) -> None:
    async def story(desk: Desk) -> None:
        session = await desk.workspace.open_session(desk.program("sha256sum"))
        data = os.urandom(3_000_000)
        await session.write(data)
        session.close_stdin()
        assert (await said(session, b"-")).split()[0].decode() == hashlib.sha256(data).hexdigest()
        deaf = await desk.workspace.open_session(desk.program("sleep", "600"))
        writing = asyncio.ensure_future(deaf.write(data))
        assert not (await asyncio.wait([writing], timeout=0.2))[0], "it does not read"
        await deaf.kill()
        await writing

    mounted.go(story)


def test_a_terminal_has_a_size(mounted: Ground) -> None:
    async def story(desk: Desk) -> None:
        session = await desk.workspace.open_session(desk.program("sh", tty=True, env={"PS1": ""}))
        await session.write(b"stty size\n")
        await said(session, b"24 80")
        session.resize(50, 132)  # type: ignore[attr-defined]
        await session.write(b"stty size\n")
        await said(session, b"50 132")
        session.close_stdin()
        assert (await session.wait()).exit_code == 0

    mounted.go(story)


def test_nothing_is_left_when_all_is_closed(engine: Engine) -> None:
    async def story(desk: Desk) -> None:
        await desk.workspace.open_session(desk.program("cat"))
        await desk.sh("true")
        await desk.executor.aclose()
        assert containers(engine, desk) == []

    before = len(os.listdir("/proc/self/fd"))
    through(engine.address, story)
    threads = [thread for thread in threading.enumerate() if thread.name == "prowess-container"]
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert len(os.listdir("/proc/self/fd")) <= before
    ours = {"label": f"{OWNER_LABEL}={owner()}"}
    assert [each for each in engine.client.api.containers(all=True, filters=ours) if each["State"] != "running"] == []


# --- files that are carried -------------------------------------------------------------------------------------------


def test_files_come_back_as_the_script_left_them(carried: Ground) -> None:
    async def story(desk: Desk) -> None:
        desk.put("work/edit", "before\n")
        desk.put("work/remove", "x")
        desk.put("work/same", "same\n")
        await desk.sh("mkdir folder; echo x > folder/file; echo y > folder/other")
        stamp = desk.host("work/same").stat().st_mtime_ns
        await desk.sh(
            "echo after > edit; rm remove; chmod 755 edit; ln -s /etc/passwd link; ln -s edit relative; mkfifo fifo; "
            "rm folder/file; mkdir -p a/b/c; printf 'odd' > \"$(printf 'odd\\nname')\"; echo run > $RUN_DIR/r; "
            "mkdir $RUN_DIR/../evil; echo x > ../.venv/../out/o",
            run="mine",
        )
        work = desk.host("work")
        assert (work / "edit").read_text(encoding="utf-8") == "after\n" and os.access(work / "edit", os.X_OK)
        assert not {"remove", "fifo"} & set(os.listdir(work))
        assert os.readlink(work / "link") == "/etc/passwd" and os.readlink(work / "relative") == "edit"
        assert (work / "a" / "b" / "c").is_dir() and os.listdir(work / "folder") == ["other"]
        assert (work / "odd\nname").read_text(encoding="utf-8") == "odd"
        assert (work / "same").stat().st_mtime_ns == stamp, "what did not change is not written"
        assert os.listdir(desk.host("runs/mine")) == ["r"] and "evil" not in os.listdir(desk.host("runs"))
        if AS_ROOT:
            assert {path.lstat().st_uid for path in work.rglob("*")} == {UID}

    carried.go(story)


def test_what_changed_here_meanwhile_stays(carried: Ground) -> None:
    async def story(desk: Desk) -> None:
        desk.put("work/theirs", "1")
        session = await desk.workspace.open_session(desk.program("sh"))
        await session.write(b"echo from-the-session > mine; echo ready\n")
        await said(session, b"ready")
        desk.put("work/theirs", "2")
        desk.put("work/new", "new")
        assert await desk.sh("cat theirs new") == ["2new"], "the next run sees it"
        session.close_stdin()
        await session.wait()
        assert desk.host("work/theirs").read_text(encoding="utf-8") == "2"
        assert desk.host("work/new").read_text(encoding="utf-8") == "new"
        assert desk.host("work/mine").read_text(encoding="utf-8") == "from-the-session\n"
        await desk.workspace.stage(desk.publish(name="other"), "other")
        assert await desk.sh("cat mine; echo other > mine", skill="other", cwd="work") == ["from-the-session"]
        assert await desk.sh("cat mine") == ["other"], "skills of a session share its files"

    carried.go(story)


def test_too_much_is_not_carried(carried: Ground) -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(WorkspaceError) as refused:
            await desk.run("truncate", "-s", "1G", "sparse")
        assert refused.value.code == "container-sync-failed" and not desk.host("work/sparse").exists()
        result = await desk.run("sh", "-c", "rm sparse; head -c 100000000 /dev/zero > big; rm big")
        assert b"No space left" in result.err, "and no more fits in there"

    carried.go(story, RunLimits(disk=32 << 20))


def test_an_engine_elsewhere_gets_its_files_carried(engine: Engine) -> None:
    """Over TCP nothing says that it sees our folders, so it is not tried."""
    assert engine.socket is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        relay = Path(tempfile.mkdtemp(prefix="prowess-tcp-")) / "relay.py"
        relay.write_text(RELAY, encoding="utf-8")
    with subprocess.Popen([sys.executable, relay, str(port), engine.socket], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"

            async def story(desk: Desk) -> None:
                assert desk.workspace.isolation.limits["disk"] == "enforced"
                desk.put("work/given", "given\n")
                assert await desk.sh("cat given; echo made > $OUTPUT_DIR/made") == ["given"]
                assert desk.host("out/made").read_text(encoding="utf-8") == "made\n"

            through(f"tcp://127.0.0.1:{port}", story)
        finally:
            process.kill()
            shutil.rmtree(relay.parent)


RELAY = """
import asyncio, sys
async def carry(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError: pass
async def serve(reader, writer):
    there, back = await asyncio.open_unix_connection(sys.argv[2])
    await asyncio.gather(carry(reader, back), carry(there, writer))
    back.close(); writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        print("up", flush=True)
        await server.serve_forever()
asyncio.run(main())
"""
