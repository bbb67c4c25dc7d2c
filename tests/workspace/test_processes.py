"""Whatever a command starts is gone when its run is over, however it ended, and nothing of ours is lost on the way."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from prowess.errors import WorkspaceError
from prowess.workspace.process import process_tree as tree
from prowess.workspace.process.client import BELT_S, Processes, StartedCommand
from prowess.workspace.process.command import Command, Ended, NotStarted, ProcessLimits

PATH = "/usr/bin:/bin"
UNPRIVILEGED = 64321
PYTHON = "/usr/bin/python3"


class Lab:
    """Processes whose descendants can all be recognised, by a mark in their environment."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder
        self.restarts: list[str] = []
        self.processes = Processes(on_restart=self.restarts.append)
        self.stdout = bytearray()
        self.stderr = bytearray()

    def command(self, *argv: str, env: dict[str, str] | None = None, **more: Any) -> Command:
        marked = {"PATH": PATH, "MARK": self.mark, **(env or {})}
        return Command(**{"argv": argv, "cwd": str(self.folder), "env": marked, **more})

    def python(self, code: str, *args: str, **more: Any) -> Command:
        return self.command(PYTHON, "-I", "-S", "-c", code, *args, **more)

    async def run(self, command: Command) -> Ended:
        return await self.processes.run(command, self.stdout.extend, self.stderr.extend)

    def alive(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if self.mark.encode() in Path("/proc", name, "environ").read_bytes():
                        found.append(int(name))
                except OSError:
                    continue
        return found


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def go(lab: Lab, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(GUARD_S), lab.processes:
            await story()

    asyncio.run(whole())
    assert lab.alive() == []


async def descriptors_at_rest(lab: Lab) -> int:
    """Of the supervisor, once it has seen every init end and has the next one waiting: the same for a while."""
    seen: list[int] = []
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        await asyncio.sleep(0.05)
        seen.append(len(os.listdir(f"/proc/{lab.processes.supervisor_pid}/fd")))
    return seen[-1]


async def line_of(session_or_pipe: Path) -> str:
    """The first line that somebody writes to a FIFO: an event to wait for."""
    return await asyncio.to_thread(lambda: session_or_pipe.read_text(encoding="utf-8").strip())


def fifo(lab: Lab, name: str = "event") -> Path:
    path = lab.folder / name
    os.mkfifo(path)
    return path


DAEMON = """
import os, signal, sys
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.write(w, b"ready")
        while True:
            signal.pause()
    os._exit(0)
os.wait()
os.read(r, 5)
"""


def test_a_result_has_exit_code_output_and_use(lab: Lab) -> None:
    async def story() -> None:
        ended = await lab.run(lab.command("sh", "-c", "echo out; echo err >&2; exit 7"))
        assert (ended.why, ended.exit_code, ended.signal) == ("exit", 7, None)
        assert (bytes(lab.stdout), bytes(lab.stderr)) == (b"out\n", b"err\n")
        assert ended.duration_s > 0 and ended.max_rss_bytes > 0 and ended.cpu_s > 0
        assert (ended.survivors_killed, ended.left, ended.timed_out, ended.killed) == (0, 0, False, False)

    go(lab, story)


def test_a_command_that_dies_of_a_signal_says_which(lab: Lab) -> None:
    async def story() -> None:
        ended = await lab.run(lab.command("sh", "-c", "kill -SEGV $$"))
        assert (ended.why, ended.exit_code, ended.signal) == ("exit", None, signal.SIGSEGV)

    go(lab, story)


def test_the_environment_is_exactly_the_given_one_and_binary_values_survive(lab: Lab) -> None:
    async def story() -> None:
        odd = os.fsdecode(b"\xff\xfe")
        await lab.run(lab.command("env", "-0", env={"ODD": odd, "EMPTY": "", "LINES": "a\nb=c"}))
        assert set(bytes(lab.stdout).split(b"\0")) == {
            *(b"", b"PATH=" + PATH.encode(), b"MARK=" + lab.mark.encode()),
            *(b"ODD=\xff\xfe", b"EMPTY=", b"LINES=a\nb=c"),
        }

    go(lab, story)


def test_no_descriptor_is_inherited_but_those_that_are_named(lab: Lab) -> None:
    async def story() -> None:
        secret = os.open(lab.folder / "secret", os.O_RDWR | os.O_CREAT)
        os.set_inheritable(secret, True)
        pipes = [os.pipe() for _ in range(20)]
        for end in sum(pipes, ()):
            os.set_inheritable(end, True)
        code = "import os; print(sorted(os.listdir('/proc/self/fd')), os.read(9, 99), os.read(7, 9))"
        read, write = os.pipe()
        os.write(write, b"piped")
        try:
            await lab.run(lab.python(code, fds={9: b"bytes for nine", 7: read}))
        finally:
            for fd in (secret, read, write, *sum(pipes, ())):
                os.close(fd)
        # the listing itself is one of them
        assert lab.stdout.decode().strip() == "['0', '1', '2', '3', '7', '9'] b'bytes for nine' b'piped'"

    go(lab, story)


def test_signals_that_python_ignores_are_not_ignored_in_a_command(lab: Lab) -> None:
    async def story() -> None:
        await lab.run(lab.command("grep", "-E", "SigIgn|SigBlk", "/proc/self/status"))
        # 32 and 33 belong to the C library: nobody else may set them, and it leaves them as they were when we started.
        ours = ~(0b11 << 31)
        masks = [int(line.split()[1], 16) & ours for line in lab.stdout.decode().splitlines()]
        assert masks == [0, 0]

    go(lab, story)


def test_privileges_and_modes_are_narrow(lab: Lab) -> None:
    async def story() -> None:
        await lab.run(lab.command("sh", "-c", "umask; grep NoNewPrivs /proc/self/status; ulimit -c; ulimit -n; pwd"))
        lines = lab.stdout.decode().split("\n")
        assert lines[0] == "0077" and lines[1].split()[1] == "1" and lines[2] == "0"
        assert lines[4] == str(lab.folder)
        lab.stdout.clear()
        await lab.run(lab.command("sh", "-c", "ulimit -n; ulimit -t", limits=ProcessLimits(open_files=77, cpu_s=5)))
        assert lab.stdout.decode().split() == ["77", "5"]

    go(lab, story)


def test_a_program_that_is_not_there_or_may_not_run_is_an_error_and_no_exit_code(lab: Lab) -> None:
    plain = lab.folder / "plain.txt"
    plain.write_text("no program\n", encoding="utf-8")
    bare = lab.folder / "bare"
    bare.write_text("echo no first line\n", encoding="utf-8")
    bare.chmod(0o755)
    orphan = lab.folder / "orphan"
    orphan.write_text("#!/nowhere/python\n", encoding="utf-8")
    orphan.chmod(0o755)
    (lab.folder / "here").write_text("#!/bin/sh\n", encoding="utf-8")
    (lab.folder / "here").chmod(0o755)
    cases = [
        (("no-such-program",), {}, "exec", errno.ENOENT),
        (("/no/such/program",), {}, "exec", errno.ENOENT),
        ((str(plain),), {}, "exec", errno.EACCES),
        ((str(bare),), {}, "exec", errno.ENOEXEC),  # a shell would have run it
        ((str(orphan),), {}, "exec", errno.ENOENT),
        (("here",), {"env": {"PATH": ".::relative"}}, "exec", errno.ENOENT),  # the working folder is not searched
        (("true",), {"cwd": str(lab.folder / "gone")}, "cwd", errno.ENOENT),
        (("true\0x",), {}, "exec", errno.EINVAL),
        (("true",), {"env": {"A": "\ud800"}}, "exec", errno.EINVAL),
    ]

    async def story() -> None:
        for argv, more, step, number in cases:
            with pytest.raises(NotStarted) as caught:
                await lab.run(lab.command(*argv, **more))
            assert (caught.value.step, caught.value.errno) == (step, number), argv
        assert (await lab.run(lab.command("true"))).exit_code == 0  # and nothing is broken by it

    go(lab, story)


@pytest.mark.parametrize("stdin", ["bytes", "file", "nothing"])
def test_stdin_is_bytes_a_file_or_empty(lab: Lab, stdin: str) -> None:
    data = os.urandom(300_000) if stdin != "nothing" else b""
    (lab.folder / "in").write_bytes(data)
    given = {"bytes": data, "file": lab.folder / "in", "nothing": None}[stdin]

    async def story() -> None:
        await lab.run(lab.command("cat", stdin=given))
        assert bytes(lab.stdout) == data  # binary output, byte for byte

    go(lab, story)


def test_100_megabytes_pass_through_in_constant_memory(lab: Lab) -> None:
    async def story() -> None:
        before = _rss()
        seen = largest = 0

        def count(data: bytes) -> None:
            nonlocal seen, largest
            seen += len(data)
            largest = max(largest, len(data))

        ended = await lab.processes.run(lab.command("head", "-c", "104857600", "/dev/zero"), count)
        assert (ended.exit_code, seen) == (0, 104857600)
        assert largest <= 65536
        assert _rss() - before < 20 << 20

    go(lab, story)


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_daemon_that_left_session_group_and_parent_ends_with_the_command(lab: Lab) -> None:
    async def story() -> None:
        ended = await lab.run(lab.python(DAEMON))
        assert (ended.exit_code, ended.survivors_killed) == (0, 1)
        assert lab.alive() == []

    go(lab, story)


def test_a_grandchild_that_holds_the_pipes_does_not_delay_the_end(lab: Lab) -> None:
    async def story() -> None:
        ended = await lab.run(lab.command("sh", "-c", "echo before; (trap '' TERM HUP; exec sleep 1000) & echo after"))
        assert bytes(lab.stdout) == b"before\nafter\n"
        assert (ended.why, ended.survivors_killed) == ("exit", 1)

    go(lab, story)


def test_a_pipe_that_was_handed_to_a_stranger_does_not_delay_the_end(lab: Lab) -> None:
    """The stranger is this test itself: it opens the command's stdout and keeps it."""

    async def story() -> None:
        event = fifo(lab)
        run = asyncio.ensure_future(lab.run(lab.command("sh", "-c", f"echo $$ > {event}; read x < {event}; echo end")))
        pid = await line_of(event)
        kept = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
        try:
            await asyncio.to_thread(event.write_text, "go\n", encoding="utf-8")
            assert (await run).exit_code == 0
        finally:
            os.close(kept)
        assert bytes(lab.stdout) == b"end\n"

    go(lab, story)


def test_a_time_out_first_asks_and_then_kills_the_whole_tree(lab: Lab) -> None:
    async def story() -> None:
        polite = await lab.run(
            lab.command("sh", "-c", "trap 'echo bye; exit 3' TERM; sleep 1000 & wait", timeout_s=0.3)
        )
        assert (polite.why, polite.timed_out, polite.exit_code) == ("timeout", True, 3)
        assert bytes(lab.stdout) == b"bye\n"
        deaf = await lab.run(
            lab.python(DAEMON + "signal.signal(15, signal.SIG_IGN)\nwhile 1: signal.pause()", timeout_s=1)
        )
        assert (deaf.why, deaf.signal, deaf.survivors_killed) == ("timeout", signal.SIGKILL, 2)
        assert lab.alive() == []

    go(lab, story)


def test_a_stopped_command_ends_too(lab: Lab) -> None:
    async def story() -> None:
        ended = await lab.run(lab.command("sh", "-c", "kill -STOP $$", timeout_s=0.2))
        assert (ended.why, ended.signal) == ("timeout", signal.SIGTERM)

    go(lab, story)


def test_cancelling_the_task_ends_the_tree_before_it_goes_on(lab: Lab) -> None:
    async def story() -> None:
        event = fifo(lab)
        code = DAEMON + f"open({str(event)!r}, 'w').write('up')\nwhile 1: signal.pause()"
        task = asyncio.ensure_future(lab.run(lab.python(code)))
        assert await line_of(event) == "up"
        assert len(lab.alive()) == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert lab.alive() == []

    go(lab, story)


def test_a_callback_that_raises_ends_the_command(lab: Lab) -> None:
    async def story() -> None:
        def refuse(data: bytes) -> None:
            raise LookupError("no more of this")

        with pytest.raises(LookupError, match="no more"):
            await lab.processes.run(lab.command("sh", "-c", "echo x; exec sleep 1000"), refuse)
        assert lab.alive() == []

    go(lab, story)


def test_a_command_that_kills_its_init_is_ended_by_the_supervisor(lab: Lab) -> None:
    code = DAEMON + "import time\nos.kill(os.getppid(), signal.SIGKILL)\nwhile 1: signal.pause()"

    async def story() -> None:
        ended = await lab.run(lab.python(code))
        assert (ended.why, ended.exit_code, ended.killed) == ("lost", None, True)
        assert lab.alive() == []
        assert (await lab.run(lab.command("true"))).exit_code == 0
        assert lab.restarts == []

    go(lab, story)


def test_a_command_that_stops_its_init_hangs_nobody(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "prowess.workspace.process.client.BELT_S", 0.5
    )  # the belt is for this case alone: wear it tighter

    async def story() -> None:
        code = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nwhile 1: signal.pause()"
        ended = await lab.run(lab.python(code, timeout_s=0.2))
        assert ended.why == "lost"
        assert lab.alive() == []

    go(lab, story)


HOARD = """
import os, signal, sys
memory = os.memfd_create("memory")
for _ in range(int(sys.argv[1])):
    os.write(memory, bytes(1 << 20))
print("full", flush=True)
signal.pause()
"""


def test_a_process_that_takes_long_to_give_back_its_memory_is_waited_for() -> None:
    """With patience for 5 ms, and memory that takes longer."""
    code = f"""
import subprocess, sys
from prowess.workspace.process import process_tree as tree
from prowess.workspace.process.seccomp import become_subreaper
become_subreaper()
def reap():
    for _ in tree.ended_children(): pass
    return tree.any_left()
process = subprocess.Popen([{PYTHON!r}, "-I", "-S", "-c", {HOARD!r}, "400"], stdout=subprocess.PIPE)
process.stdout.readline()
print(tree.end_all(reap, patience_s=0.005))
while reap(): pass
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "(1, 0)\n", done


def test_a_process_that_cannot_be_ended_is_counted_and_not_waited_for() -> None:
    """It belongs to somebody else."""
    code = f"""
import os, subprocess
from prowess.workspace.process import process_tree as tree
process = subprocess.Popen([{PYTHON!r}, "-c", "input()"], stdin=subprocess.PIPE, user={UNPRIVILEGED})
os.setresuid(0, 65432, 0)
told = []
print(tree.end_all(tree.any_left, patience_s=0.6, tell=lambda: told.append(1)), bool(told))
"""
    if os.geteuid() == 0:
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout == "(0, 1) True\n", done


def test_an_init_that_still_ends_processes_is_not_taken_for_stuck() -> None:
    """Its words come in time, on a clock that the test moves."""
    ours, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    async def story() -> None:
        loop, gone = asyncio.get_running_loop(), 0.0
        clock = loop.time
        loop.time = lambda: clock() + gone
        run = StartedCommand(Processes(), 1, Command(argv=["x"], cwd="/", env={}, timeout_s=1.0, grace_s=0.0), ours)
        waiting = asyncio.ensure_future(run.wait())
        ended = {"why": "timeout", "survivors": 1, "left": 0}
        for word in ({"started": 7}, {"ending": True}, {"ending": True}, {"ended": ended}):
            init.send(json.dumps(word).encode())
            for _ in range(5):
                await asyncio.sleep(0)
            gone += BELT_S - 0.5
        assert (await waiting).timed_out

    with ours, init:
        ours.setblocking(False)
        init.setblocking(False)
        asyncio.run(story())
        with pytest.raises(BlockingIOError):
            init.recv(9)  # nobody asked it to end anything


def test_when_the_supervisor_is_killed_its_runs_end_and_the_next_one_starts_another(lab: Lab) -> None:
    async def story() -> None:
        event = fifo(lab)
        code = DAEMON + f"open({str(event)!r}, 'w').write('up')\nwhile 1: signal.pause()"
        task = asyncio.ensure_future(lab.run(lab.python(code)))
        assert await line_of(event) == "up"
        first = lab.processes.supervisor_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        ended = await task
        assert (ended.why, ended.killed) == ("supervisor", True)
        assert lab.alive() == []
        assert (await lab.run(lab.command("true"))).exit_code == 0
        assert lab.processes.supervisor_pid != first
        assert len(lab.restarts) == 1 and "-9" in lab.restarts[0]

    go(lab, story)


def test_when_the_runtime_is_killed_everything_ends(lab: Lab) -> None:
    """In a process of its own, which is killed without a chance to say goodbye."""
    event = fifo(lab)
    story = f"""
import asyncio
from prowess.workspace.process import process_tree as tree
from prowess.workspace.process.command import Command
from prowess.workspace.process.client import Processes
code = {DAEMON!r} + "open({str(event)!r}, 'w').write(str(os.getppid()))\\nwhile 1: signal.pause()"
env = {{"MARK": {lab.mark!r}}}
asyncio.run(Processes().run(Command(argv=[{PYTHON!r}, "-I", "-S", "-c", code], cwd="/", env=env)))
"""

    async def whole() -> None:
        async with asyncio.timeout(GUARD_S):
            runtime = await asyncio.create_subprocess_exec(sys.executable, "-c", story)
            init = int(await line_of(event))
            watched = [os.pidfd_open(pid) for pid in (init, _parent(init), *lab.alive())]
            assert len(watched) == 4
            runtime.kill()
            await runtime.wait()
            for pidfd in watched:
                await _readable(pidfd)  # a pidfd is readable when its process has ended
                os.close(pidfd)

    asyncio.run(whole())
    assert lab.alive() == []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    await ready
    loop.remove_reader(fd)


def test_a_process_that_keeps_changing_its_number_is_caught(lab: Lab) -> None:
    code = "import os\nos.write(1, b'x')\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()"

    async def story() -> None:
        ended = await lab.run(lab.python(code))
        assert (ended.exit_code, ended.left) == (0, 0)
        assert ended.survivors_killed >= 1
        assert lab.alive() == []

    go(lab, story)


def test_a_bounded_fork_bomb_is_cleared_away(lab: Lab, not_run: Callable[[str, str], None]) -> None:
    if os.geteuid() != 0:
        not_run("a fork bomb", "needs root, to give it a user of its own whose processes can be counted")
        return
    lab.folder.chmod(0o777)
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"

    async def story() -> None:
        bomb = lab.python(code, uid=UNPRIVILEGED, cwd="/", limits=ProcessLimits(processes=40), timeout_s=1)
        ended = await lab.run(bomb)
        assert (ended.why, ended.left) == ("timeout", 0)
        assert lab.alive() == []

    go(lab, story)


def test_another_user_is_become_for_good_and_can_still_open_its_streams(
    lab: Lab, not_run: Callable[[str, str], None]
) -> None:
    if os.geteuid() != 0:
        not_run("becoming another user", "only root can")
        return
    script = "id -u; id -g; id -G; echo reopened > /dev/stdout; echo oops > /dev/stderr; cat /proc/$PPID/environ"

    async def story() -> None:
        ended = await lab.run(lab.command("sh", "-c", script, uid=UNPRIVILEGED, cwd="/"))
        me = str(UNPRIVILEGED)
        assert lab.stdout.decode().split() == [me, me, me, "reopened"]
        assert lab.stderr.decode().startswith("oops\n") and "denied" in lab.stderr.decode()
        assert ended.exit_code != 0
        with pytest.raises(NotStarted) as caught:
            await lab.run(lab.command("true", uid=UNPRIVILEGED, cwd="/root"))
        assert (caught.value.step, caught.value.errno) == ("cwd", errno.EACCES)
        with pytest.raises(ValueError, match="root"):
            await lab.run(lab.command("true", uid=0))

    go(lab, story)


def test_a_kernel_without_lists_of_children_is_scanned() -> None:
    child = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        assert child.pid in tree.children(os.getpid())
        assert child.pid in tree._children_by_scan(os.getpid())
    finally:
        child.kill()
        child.wait()


def test_100_runs_at_once_leave_no_process_descriptor_or_thread(lab: Lab) -> None:
    async def story() -> None:
        await lab.run(lab.command("true"))
        before = sorted(os.listdir("/proc/self/fd")), threading.active_count()
        theirs = await descriptors_at_rest(lab)

        async def one(number: int) -> None:
            out = bytearray()
            command = lab.command("sh", "-c", f"(sleep 1000 &) ; echo {number}; exit {number}")
            ended = await lab.processes.run(command, out.extend, lambda _: None)
            assert (ended.exit_code, out.decode()) == (number, f"{number}\n")

        await asyncio.gather(*(one(number) for number in range(100)))
        assert (sorted(os.listdir("/proc/self/fd")), threading.active_count()) == before
        assert await descriptors_at_rest(lab) == theirs
        assert lab.alive() == []

    go(lab, story)


def test_closing_ends_what_still_runs(lab: Lab) -> None:
    async def whole() -> None:
        async with asyncio.timeout(GUARD_S):
            event = fifo(lab)
            task = asyncio.ensure_future(lab.run(lab.command("sh", "-c", f"echo up > {event}; exec sleep 1000")))
            await line_of(event)
            await lab.processes.aclose()
            assert (await task).why == "supervisor"
            with pytest.raises(WorkspaceError, match="closed"):
                await lab.run(lab.command("true"))

    asyncio.run(whole())
    assert lab.alive() == []


def test_the_thread_that_started_it_may_end(lab: Lab) -> None:
    """To the kernel, that is the death of a parent."""
    thread = threading.Thread(target=lambda: asyncio.run(lab.run(lab.command("true"))))
    thread.start()
    thread.join()
    first = lab.processes.supervisor_pid
    assert asyncio.run(lab.run(lab.command("true"))).exit_code == 0
    assert lab.processes.supervisor_pid == first and lab.restarts == []
    asyncio.run(lab.processes.aclose())


def test_an_init_that_is_killed_while_it_waits_is_replaced(lab: Lab) -> None:
    async def story() -> None:
        await lab.run(lab.command("true"))
        for _ in range(3):
            await descriptors_at_rest(lab)
            assert lab.processes.supervisor_pid is not None
            for pid in tree.children(lab.processes.supervisor_pid):
                os.kill(pid, signal.SIGKILL)
            ended = await lab.run(lab.command("sh", "-c", "exit 9"))
            assert (ended.exit_code, ended.why) in ((9, "exit"), (None, "lost"))
        assert (await lab.run(lab.command("true"))).exit_code == 0
        assert lab.restarts == []

    go(lab, story)


def test_one_supervisor_serves_several_event_loops_one_after_the_other(lab: Lab) -> None:
    for _ in range(2):
        assert asyncio.run(lab.run(lab.command("true"))).exit_code == 0
    asyncio.run(lab.processes.aclose())


def test_a_terminal_session(lab: Lab) -> None:
    async def story() -> None:
        session = await lab.processes.open_session(lab.command("sh", tty=True, rows=40, columns=100))
        await session.write(b"stty size; tty\n")
        seen = await _until(session, b"/dev/pts/")
        assert b"40 100" in seen
        session.resize(50, 120)
        await session.write(b"stty size\n")
        await _until(session, b"50 120")
        await session.write(b"sh -c 'echo up-$((1 + 1)); exec sleep 1000'\n")
        await _until(session, b"up-2")
        await session.write(b"\x03")  # in the foreground of a real terminal, Ctrl-C ends it
        await session.write(b"echo still-$((40 + 2))\n")
        await _until(session, b"still-42")
        await session.write(b"(trap '' HUP TERM; exec sleep 1000) & exit 5\n")
        ended = await session.wait()
        assert (ended.exit_code, ended.survivors_killed) == (5, 1)
        assert lab.alive() == []
        await session.aclose()

    go(lab, story)


async def _until(session: Any, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        data = await session.read(wait_s=GUARD_S)
        assert data, seen
        seen += data
    return seen


def test_a_session_without_a_terminal_and_its_bounds(lab: Lab) -> None:
    async def story() -> None:
        session = await lab.processes.open_session(lab.command("cat"), buffer_bytes=1000)
        await session.write(b"hello\n")
        assert await _until(session, b"hello\n") == b"hello\n"
        assert await session.read() == b""
        await session.write(b"x" * 200_000 + b"end")  # more than the pipes hold
        session.close_stdin()
        assert (await session.wait()).exit_code == 0
        assert session.dropped_bytes == 200_003 - 1000
        assert await session.read(997) == b"x" * 997
        assert await session.read() == b"end"
        assert session.ended is not None and await session.read(wait_s=GUARD_S) == b""
        await session.aclose()

    go(lab, story)


def test_a_session_is_killed_and_ends_with_its_runtime(lab: Lab) -> None:
    async def story() -> None:
        first = await lab.processes.open_session(lab.command("sh", "-c", "trap '' TERM HUP; sleep 1000", tty=True))
        second = await lab.processes.open_session(lab.command("sleep", "1000"))
        ended = await first.kill()
        assert (ended.why, ended.killed) == ("kill", True)
        await first.aclose()
        await lab.processes.aclose()
        assert (await second.wait()).why == "supervisor"
        await second.aclose()

    go(lab, story)
