"""Both boxes keep the contract, and each says exactly what holds in it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from machine_contract import MachineContract, grounds
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, WorkspaceError, WorkspaceUnavailable
from prowess.workspace.executors.auto import AutoExecutor
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.executors.sandbox import SandboxExecutor
from prowess.workspace.isolation import selftest
from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import NotStarted
from prowess.workspace.session_folder import OpenPlace
from prowess.workspace.skill_trees import remove_tree
from workspace_contract import Claims, Desk, Ground, Tier, said

AS_ROOT = os.geteuid() == 0
UID = selftest.DEFAULT_UID if AS_ROOT else None


def bwrap(processes: Processes, limits: RunLimits, folder: str) -> SandboxExecutor:
    return SandboxExecutor(processes, mechanism="bwrap+seccomp", limits=limits, dir=folder)


def landlock(processes: Processes, limits: RunLimits, folder: str) -> SandboxExecutor:
    return SandboxExecutor(processes, mechanism="landlock+seccomp", limits=limits, dir=folder)


TIERS = [
    Tier(
        name="bwrap",
        make=bwrap,
        claims=Claims(exact_signals=False, adds_to_environment=frozenset({"PWD"})),
    ),
    Tier(name="landlock", make=landlock, claims=Claims()),
]


whole, ground = grounds(*TIERS)


class TestContract(MachineContract):
    pass


def test_each_box_says_what_holds_in_it(ground: Ground) -> None:
    async def ask(desk: Desk) -> None:
        isolation = desk.workspace.isolation
        boxed = ground.tier.name == "bwrap"
        assert (isolation.executor, isolation.network, isolation.notes) == ("sandbox", "none", ())
        assert isolation.mechanism == f"{ground.tier.name}+seccomp"
        assert isolation.uid == (UID if AS_ROOT else os.geteuid())
        assert isolation.limits == {
            **dict.fromkeys(("cpu", "open_files", "file_size"), "enforced"),
            **{"disk": "best-effort", "memory": "absent", "tmp": "enforced" if boxed else "absent"},
            "processes": "best-effort" if not boxed else "enforced" if find_trusted("prlimit") else "absent",
        }
        assert desk.workspace.layout.root == desk.place.root
        assert desk.workspace.layout.inside == ("/workspace" if boxed else desk.place.root)
        assert desk.workspace.environment["PATH"].endswith("/usr/local/bin:/usr/bin:/bin")

    ground.go(ask)


def test_bubblewrap_needs_no_copy(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        if ground.tier.name == "bwrap":
            assert await desk.sh("cat data.txt", cwd="skills/demo") == ["published"]
            assert list(desk.host("skills").iterdir()) == []

    ground.go(look)


def test_what_earlier_runs_left_can_be_read_and_not_changed(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        await desk.sh("echo first > $RUN_DIR/f", run="first")
        script = "cd $WORKSPACE_DIR/runs/first; cat f; echo x > f; rm -f f; touch new; true"
        assert await desk.sh(script) == ["first"]
        assert desk.host("runs/first/f").read_text(encoding="utf-8") == "first\n"

    ground.go(look)


def test_folders_that_were_made_readable_can_be_read_and_nothing_else(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        shown, hidden = (Path(tempfile.mkdtemp(dir=os.path.dirname(desk.trees))) for _ in range(2))
        for folder in (shown, hidden):
            folder.chmod(0o755)
            (folder / "file").write_text("content\n", encoding="utf-8")
            (folder / "file").chmod(0o666)
        script = f"cat {shown}/file; echo x > {shown}/file; cat {hidden}/file; true"
        assert await desk.sh(script, readable=[str(shown)]) == ["content"]
        assert (shown / "file").read_text(encoding="utf-8") == "content\n"
        assert await desk.sh(script) == []
        for path in (
            "/",
            "relative",
            "/nowhere",
            "/proc",
            "/proc/self",
            "/dev",
            "/usr/../etc",
            "/etc",
            f"{shown}/",
            "/tmp",
        ):
            with pytest.raises(WorkspaceError) as refused:
                await desk.run("true", readable=[path])
            assert refused.value.code == "not-readable" and f"'{path}'" in refused.value.message
        (hidden / "link").symlink_to(shown)
        with pytest.raises(WorkspaceError) as refused:
            await desk.run("true", readable=[f"{hidden}/link"])
        assert refused.value.code == "not-readable"
        if AS_ROOT:
            hidden.chmod(0o700)
            (hidden / "below").mkdir()
            with pytest.raises(WorkspaceError) as refused:
                await desk.run("true", readable=[str(hidden / "below")])
            assert refused.value.code == "workspace-unreachable"

    ground.go(look)


def test_a_box_that_cannot_be_made_is_no_result_of_the_program(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        if ground.tier.name != "bwrap":
            return
        tree = desk.publish({"soon": "gone"})
        await desk.workspace.stage(tree, "demo")
        remove_tree(tree.path)
        with pytest.raises(WorkspaceError) as refused:
            await desk.run("/usr/bin/true")
        assert refused.value.code == "box-failed" and tree.path in refused.value.message
        session = await desk.workspace.open_session(desk.program("cat"))
        with pytest.raises(WorkspaceError) as refused:
            await session.wait()
        assert refused.value.code == "box-failed" and session.ended is not None
        await session.aclose()
        with pytest.raises(WorkspaceError) as refused:
            await desk.workspace.stage(tree, "demo")
        assert refused.value.code == "stage-failed" and tree.path in refused.value.message

    ground.go(look)


def test_a_tree_that_the_user_cannot_reach_is_refused(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        if AS_ROOT and ground.tier.name == "bwrap":
            closed = tempfile.mkdtemp(dir=desk.trees)
            with pytest.raises(WorkspaceError) as refused:
                await desk.workspace.stage(desk.publish()._replace(path=f"{closed}/tree"), "demo")
            assert refused.value.code == "workspace-unreachable" and closed in refused.value.message

    ground.go(look)


def test_more_arguments_than_a_program_can_have(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        for arguments, env in ((["x" * 3_000_000], {}), ([], {"LONG": "x" * 300_000})):
            with pytest.raises(NotStarted) as refused:
                await desk.run("true", *arguments, env=env)
            assert (refused.value.step, refused.value.errno) == ("exec", errno.E2BIG)
            assert "'true'" in refused.value.message

    ground.go(look)


# --- which box, and when there is none --------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="prowess-test-")
    os.chmod(path, 0o711)
    yield path
    remove_tree(path)


@pytest.fixture
def no_bwrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is where bubblewrap would be and does nothing of the kind."""
    monkeypatch.setattr(
        "prowess.workspace.isolation.selftest.find_trusted",
        lambda name: find_trusted("true" if name == "bwrap" else name),
    )


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system in which nothing can be reached under Landlock."""
    monkeypatch.setattr("prowess.workspace.isolation.landlock.SYSTEM", ("/nowhere",))


def go(story: Callable[[Processes], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            await story(processes)

    asyncio.run(whole())


def test_nobody_enters_a_box_as_root(folder: str) -> None:
    async def story(processes: Processes) -> None:
        with pytest.raises(WorkspaceUnavailable) as refused:
            await SandboxExecutor(processes, run_as=0, limits=RunLimits(), dir=folder).isolation()
        assert refused.value.code == "run-as-root" and "workspace.run_as" in (refused.value.hint or "")

    if AS_ROOT:
        go(story)


def test_without_any_box_nothing_runs_and_every_reason_is_told(folder: str, no_bwrap: None, no_landlock: None) -> None:
    async def story(processes: Processes) -> None:
        executor = SandboxExecutor(processes, limits=RunLimits(), dir=folder)
        errors = []
        for ask in (executor.isolation, executor.isolation):
            with pytest.raises(WorkspaceUnavailable) as refused:
                await ask()
            errors.append(refused.value)
        assert errors[0].code == "no-sandbox" and errors[0] is not errors[1]
        assert "bubblewrap: " in errors[0].message and "Landlock: " in errors[0].message
        assert "workspace.executor" in (errors[0].hint or "")
        with OpenPlace(folder, SessionKey(session="s"), uid=UID) as place, pytest.raises(WorkspaceUnavailable):
            await executor.open(place)
        assert not [name for name in os.listdir(folder) if name.startswith("selftest")], "only good proofs are kept"

    go(story)


def test_without_bubblewrap_there_is_landlock_and_it_says_why(
    folder: str, no_bwrap: None, not_run: Callable[[str, str], None]
) -> None:
    async def story(processes: Processes) -> None:
        try:
            isolation = await SandboxExecutor(processes, limits=RunLimits(), dir=folder).isolation()
        except WorkspaceUnavailable as error:
            not_run("falling back to Landlock", str(error))
            return
        assert isolation.mechanism == "landlock+seccomp"
        assert len(isolation.notes) == 1 and isolation.notes[0].startswith("bubblewrap does not work here")

    go(story)


def test_many_who_ask_at_once_try_once_and_a_good_proof_is_kept(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    probe = selftest.probe

    async def counted(mechanism: selftest.Mechanism, *args: Any, **more: Any) -> selftest.Proof:
        tries.append(mechanism)
        return await probe(mechanism, *args, **more)

    monkeypatch.setattr("prowess.workspace.executors.sandbox.probe", counted)

    async def story(processes: Processes) -> None:
        executor = SandboxExecutor(processes, limits=RunLimits(), dir=folder)
        try:
            found = await asyncio.gather(*(executor.isolation() for _ in range(10)))
        except WorkspaceUnavailable:
            assert len(set(tries)) == len(tries)
            return
        assert len(tries) == len(set(tries)) and len({json.dumps(each.limits) for each in found}) == 1
        await processes.aclose()  # from here on nothing can be tried any more
        again = await SandboxExecutor(processes, limits=RunLimits(), dir=folder).isolation()
        assert again.mechanism == found[0].mechanism

    go(story)


def test_auto_is_the_sandbox_where_there_is_one(folder: str) -> None:
    async def story(processes: Processes) -> None:
        sandbox = SandboxExecutor(processes, limits=RunLimits(), dir=folder)
        executor = AutoExecutor(sandbox, LocalExecutor(processes, uid=UID, limits=RunLimits()))
        try:
            expected = await sandbox.isolation()
        except WorkspaceUnavailable:
            return
        assert await executor.isolation() == expected
        with OpenPlace(folder, SessionKey(session="s"), uid=UID) as place:
            assert (await executor.open(place)).isolation == expected
        await executor.aclose()

    go(story)


def test_auto_without_a_sandbox_is_local_and_everybody_is_told(folder: str, no_bwrap: None, no_landlock: None) -> None:
    async def story(processes: Processes) -> None:
        sandbox = SandboxExecutor(processes, limits=RunLimits(), dir=folder)
        executor = AutoExecutor(sandbox, LocalExecutor(processes, uid=UID, limits=RunLimits()))
        with OpenPlace(folder, SessionKey(session="s"), uid=UID) as place:
            for isolation in (
                *await asyncio.gather(executor.isolation(), executor.isolation()),
                (await executor.open(place)).isolation,
            ):
                assert isolation.executor == "local" and len(isolation.notes) == 1
                assert isolation.notes[0].startswith(
                    "No sandbox works here, so a script runs without isolation: bubblewrap: "
                )
                assert "Landlock: " in isolation.notes[0]
        await executor.aclose()

    go(story)


def test_auto_does_not_give_a_script_the_whole_network_instead_of_some_hosts(folder: str, no_bwrap: None) -> None:
    async def story(processes: Processes) -> None:
        sandbox = SandboxExecutor(processes, limits=RunLimits(), dir=folder, network_allow=["example.org"])
        executor = AutoExecutor(sandbox, LocalExecutor(processes, uid=UID, limits=RunLimits()))
        with pytest.raises(WorkspaceUnavailable) as refused:
            await executor.isolation()
        assert refused.value.code == "network-not-available"
        assert "bubblewrap: " in refused.value.message and "workspace.network_allow" in (refused.value.hint or "")

    go(story)


# --- some hosts -------------------------------------------------------------------------------------------------------


@contextmanager
def web_server() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello from the host")

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


ASK = """
import os, socket, sys, urllib.error, urllib.request
for port in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=300).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
    print("reached directly")
except OSError:
    print("not reached directly")
"""


def test_allowed_hosts_are_reached_through_the_proxy_and_no_others(
    folder: str, not_run: Callable[[str, str], None]
) -> None:
    asked: list[tuple[str, int, str]] = []

    async def story(processes: Processes) -> None:
        with web_server() as allowed, web_server() as other:
            executor = SandboxExecutor(
                processes,
                limits=RunLimits(),
                dir=folder,
                network_allow=[f"127.0.0.1:{allowed}"],
                on_network=lambda host, port, verdict, why: asked.append((host, port, verdict)),
            )
            try:
                isolation = await executor.isolation()
            except WorkspaceUnavailable as error:
                if "bwrap" in os.environ.get("REQUIRE_TIERS", "").split(","):
                    pytest.fail(str(error))
                not_run("allowed hosts", str(error))
                return
            assert (isolation.mechanism, isolation.network) == ("bwrap+seccomp", "proxy")
            with OpenPlace(folder, SessionKey(session="s"), uid=UID) as place:
                workspace = await executor.open(place)
                desk = Desk(TIERS[0], ground, executor, place, workspace, os.path.join(folder, "trees"))
                await workspace.stage(desk.publish(), "demo")
                result = await desk.python(ASK, str(allowed), str(other))
                assert result.lines == ["hello from the host", "403", "not reached directly"], result.err.decode()
                assert {(port, verdict) for _, port, verdict in asked} == {(allowed, "allowed"), (other, "refused")}
                session = await workspace.open_session(
                    desk.program(workspace.python, "-I", "-S", "-c", ASK, str(allowed))
                )
                assert b"hello from the host" in await said(session, b"directly")
                assert (await session.wait()).exit_code == 0
                await session.aclose()
                result = await desk.run("sh", "-c", "exit 127")
                assert result.ended.exit_code == 127
                with pytest.raises(NotStarted) as refused:
                    await desk.run("no-such-program")
                assert refused.value.errno == errno.ENOENT
                ended = (await desk.run("sleep", "100", timeout_s=0.5)).ended
                assert ended.timed_out
                await workspace.aclose()

    ground = Ground(TIERS[0])
    try:
        go(story)
    finally:
        ground.close()


def test_landlock_cannot_keep_a_script_to_some_hosts(folder: str) -> None:
    async def story(processes: Processes) -> None:
        executor = SandboxExecutor(
            processes, mechanism="landlock+seccomp", limits=RunLimits(), dir=folder, network_allow=["example.org"]
        )
        with pytest.raises(WorkspaceUnavailable) as refused:
            await executor.isolation()
        assert refused.value.code == "network-not-available" and "bubblewrap" in refused.value.message

    go(story)


def test_what_is_no_host_is_refused_at_once(folder: str) -> None:
    with pytest.raises(ConfigError):
        SandboxExecutor(Processes(), limits=RunLimits(), dir=folder, network_allow=["not a host"])
