"""Process 1 of a container: starts programs there, carries their streams, and says how each ended.

What it is sent and says are frames (kind, number of the run, size, content) on its own stdin and stdout, which no
program ever holds; and nobody in the container can open them, trace it, signal it to death or stop it, for it is
process 1 and cannot be looked into. So a program cannot say anything in its place. What a program prints is relayed
as content, whatever it looks like. Below it is the same supervisor as on a host, which ends and counts what programs
leave behind; if that is killed, process 1 ends, and by that the container and all that is in it.

Sent to a fresh container's Python as source, with the modules imported below. The standard library alone.

What process 1 finds in its container, and how it empties the temporary folders. The standard library alone.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
from typing import Any, NoReturn

from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process import supervisor
from prowess.workspace.process.streams import CHUNK_BYTES, F_GETPIPE_SZ, memory_file

SCRATCH = tuple(f"/{name}" for name in ("tmp", "dev/shm"))  # which are each container's own


def read_facts() -> dict[str, Any]:
    """What really bounds this container, read where it is in force; None where nothing does."""
    facts: dict[str, Any] = {"python": sys.executable, "uid": os.geteuid(), "gid": os.getegid()}
    for name, files in {
        "memory": ("memory.max", "memory/memory.limit_in_bytes"),
        "processes": ("pids.max", "pids/pids.max"),
    }.items():
        text = read_cgroup(*files).strip()
        facts[name] = int(text) if text.isdigit() else None
    return facts


def identity(path: str) -> list[int]:
    """By which whoever made the container knows the folder again; empty when it is not there."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return []
    return [status.st_dev, status.st_ino, status.st_uid]


def count_ooms() -> int:
    """How many processes of this container the kernel has ended for want of memory."""
    for line in read_cgroup("memory.events", "memory/memory.oom_control").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def make_expendable(pid: int) -> None:
    """When memory is short, the kernel is to end programs, and not those who watch over them."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:  # it has ended already
        pass


def read_cgroup(*files: str) -> str:
    """The first that is there: version 2 has other names for things than version 1."""
    for file in files:
        try:
            with open(f"/sys/fs/cgroup/{file}", encoding="ascii") as opened:
                return opened.read()
        except OSError:
            continue
    return ""


def empty_scratch() -> bool:
    """Nothing runs here: what the last program left in the temporary folders is not for the next. False when some of it
    cannot be removed; then nothing should be run here any more."""
    return all(empty(folder) for folder in SCRATCH)


def remove(path: str) -> bool:
    """A folder of ours, and all that is in it."""
    if not empty(path):
        return False
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def empty(top: str) -> bool:
    """What is not ours in there are mounts, and the way to them. What is deeper than a path can say stays: False."""
    waiting = [top]
    try:
        while waiting:
            folder, below = waiting[-1], []
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        below.append(entry.path)
                    else:
                        os.unlink(entry.path)
            if below:
                waiting += below
                continue
            waiting.pop()
            if folder != top:
                os.rmdir(folder)
    except OSError:
        return False
    return True


FRAME = struct.Struct(">cII")
RUN, INPUT, END_INPUT, KILL, RESIZE = b"R", b"I", b"C", b"K", b"W"  # what it is sent
READY, STARTED, FAILED, ENDED, OUT, ERR, TAKEN = b"r", b"s", b"f", b"x", b"o", b"e", b"t"  # what it says
HIGH_BYTES = 4 * CHUNK_BYTES  # as long as that much is waiting to be said, programs are not listened to
PATIENCE_S = 5.0  # for a supervisor that a program has stopped
PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4


def main(task: dict[str, Any]) -> NoReturn:
    supervisor.heed_all_signals()
    kernel.seccomp_install(kernel.filter_program(namespaces=True))  # on top of the engine's own, and for all below us
    facts = {**read_facts(), "seen": {path: identity(path) for path in task["paths"]}}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            ours.close()
            be_supervisor(theirs)
        finally:
            supervisor.give_up()
    theirs.close()
    hide()
    relay = Relay(ours)
    relay.say(READY, 0, json.dumps(facts).encode())
    relay.serve()


def be_supervisor(link: socket.socket) -> NoReturn:
    hide()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    supervisor.Supervisor(link, parent=1).serve()
    os._exit(0)


def hide() -> None:
    """From now on not even a process of our own user can open our descriptors or our memory below /proc."""
    libc = ctypes.CDLL(None, use_errno=True)
    zeros = [ctypes.c_ulong(0)] * 4
    if libc.prctl(PR_SET_DUMPABLE, *zeros) != 0 or libc.prctl(PR_GET_DUMPABLE, *zeros) != 0:
        raise OSError(ctypes.get_errno(), "cannot hide from the programs that will run here")


def wake_all() -> None:
    """A program can stop everybody but us, also those who are to start or end programs."""
    try:
        os.kill(-1, signal.SIGCONT)
    except OSError:
        pass


class Relay:
    """One loop for all runs. It never waits for anybody but for all of them at once."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.link.settimeout(PATIENCE_S)
        self.runs: dict[int, InitRun] = {}
        self.heard = bytearray()
        self.to_say: collections.deque[memoryview] = collections.deque()
        self.to_say_bytes = 0
        os.set_blocking(0, False)
        os.set_blocking(1, False)

    def serve(self) -> NoReturn:
        while True:
            wanted = {0: select.POLLIN, self.link.fileno(): select.POLLIN}
            if self.to_say:
                wanted[1] = select.POLLOUT
            for run in self.runs.values():
                wanted |= run.wanted(listen=self.to_say_bytes < HIGH_BYTES)
            poll = select.poll()
            for fd, events in wanted.items():
                poll.register(fd, events)
            ready = dict(poll.poll())
            if self.link.fileno() in ready:  # it never says anything: it is gone, and there is nobody to end programs
                os._exit(3)
            if 0 in ready:
                self.hear()
            if 1 in ready:
                self.flush()
            for run in list(self.runs.values()):
                run.attend(ready)

    def hear(self) -> None:
        data = os.read(0, 1 << 18)
        if not data:  # whoever this container was made for is gone, and so are we, and everything here
            os._exit(0)
        self.heard += data
        while len(self.heard) >= FRAME.size:
            kind, number, size = FRAME.unpack_from(self.heard)
            if len(self.heard) < FRAME.size + size:
                return
            content = bytes(memoryview(self.heard)[FRAME.size : FRAME.size + size])
            del self.heard[: FRAME.size + size]
            if kind == RUN:
                self.runs[number] = run = InitRun(self, number, json.loads(content))
                if not run.task["stdin_bytes"]:
                    run.start()
            elif number in self.runs:  # otherwise it ended while this was on its way
                self.runs[number].told(kind, content)

    def say(self, kind: bytes, number: int, content: bytes) -> None:
        self.to_say.append(memoryview(FRAME.pack(kind, number, len(content)) + content))
        self.to_say_bytes += FRAME.size + len(content)

    def flush(self) -> None:
        while self.to_say:
            try:
                written = os.write(1, self.to_say[0])
            except BlockingIOError:
                return
            except OSError:
                os._exit(0)
            self.to_say_bytes -= written
            if written == len(self.to_say[0]):
                self.to_say.popleft()
            else:
                self.to_say[0] = self.to_say[0][written:]


class InitRun:
    """A program, from its description to its end."""

    def __init__(self, relay: Relay, number: int, task: dict[str, Any]) -> None:
        self.relay, self.number, self.task = relay, number, task
        self.control: socket.socket | None = None
        self.outputs: dict[int, bytes] = {}  # what is read -> the kind of frame that it becomes
        self.input = -1
        self.pending = bytearray()  # for its stdin
        self.end_input = False
        self.stdin, self.stdin_left = -1, task["stdin_bytes"]  # of one that is no session, before it begins
        self.ooms = count_ooms()

    def start(self) -> None:
        """Have it started by the supervisor. What cannot be had for it is its problem and nobody else's."""
        step, theirs = "cwd", []
        try:
            self.check_may_leave(self.task["spec"]["cwd"], self.task["within"])
            step = "tmp"
            if self.task["tmp"]:
                os.mkdir(self.task["tmp"], 0o700)
            step = "streams"
            (self.open_terminal if self.task["interactive"] else self.open_streams)(theirs)
            theirs.append(memory_file(json.dumps(self.task["spec"]).encode()))
            ours, init_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self.fail(step, error)
            return
        finally:
            if self.number not in self.relay.runs:
                supervisor.close(theirs)
        if len(self.relay.runs) == 1:
            wake_all()
        message = {"op": "run", "run": self.number, "wrapped": False}
        message |= {"timeout_s": self.task["timeout_s"], "grace_s": self.task["grace_s"]}
        *streams, spec = theirs
        try:
            socket.send_fds(self.relay.link, [json.dumps(message).encode()], [init_end.fileno(), spec, *streams])
        except OSError:
            os._exit(3)
        init_end.close()
        supervisor.close(theirs)
        ours.setblocking(False)
        self.control = ours

    def check_may_leave(self, cwd: str, within: str) -> None:
        """By way of a link, or to where nothing is."""
        real = os.path.realpath(cwd)
        if real != within and not real.startswith(within.rstrip("/") + "/"):
            raise OSError(errno.EXDEV, f"{real} is not below {within}")
        os.stat(real)

    def fail(self, step: str, error: OSError) -> None:
        """It never began."""
        clean = remove(self.task["tmp"]) if step == "streams" and self.task["tmp"] else True
        self.let_go()
        failure = {"step": step, "errno": error.errno, "text": str(error)}
        self.relay.say(FAILED, self.number, json.dumps({"failed": failure, "clean": clean}).encode())

    def open_streams(self, theirs: list[int]) -> None:
        """stdin is all there, and nobody can change it any more."""
        if self.stdin >= 0:
            os.lseek(self.stdin, 0, os.SEEK_SET)
            fcntl.fcntl(self.stdin, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
            theirs.append(os.dup(self.stdin))
        else:
            theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for kind, listened_to in zip((OUT, ERR), self.task["streams"], strict=True):
            if listened_to:
                reader, writer = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(reader, False)
                self.outputs[reader] = kind
            else:
                writer = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            theirs.append(writer)

    def open_terminal(self, theirs: list[int]) -> None:
        if self.task["spec"]["tty"]:
            self.input, slave = pty.openpty()
            self.outputs[self.input] = OUT
            theirs += [slave, os.dup(slave), os.dup(slave)]
            self.resize(self.task["size"])
        else:
            their_in, self.input = os.pipe2(os.O_CLOEXEC)
            theirs.append(their_in)
            reader, writer = os.pipe2(os.O_CLOEXEC)
            self.outputs[reader] = OUT
            theirs += [writer, os.dup(writer)]
        for fd in (self.input, *self.outputs):
            os.set_blocking(fd, False)

    def told(self, kind: bytes, content: bytes) -> None:
        if kind == KILL:
            self.kill()
        elif kind == RESIZE:
            self.resize(json.loads(content))
        elif kind == END_INPUT:
            self.end_input = True
            self.feed()
        elif self.control is None:
            self.keep_input(content)
        else:
            self.pending += content
            self.feed()

    def keep_input(self, content: bytes) -> None:
        """All of it has to be here before the program begins."""
        try:
            if self.stdin < 0:
                self.stdin = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            view = memoryview(content)
            while view:
                view = view[os.write(self.stdin, view) :]
        except OSError as error:
            self.fail("stdin", error)
            return
        self.stdin_left -= len(content)
        if self.stdin_left <= 0:
            self.start()

    def kill(self) -> None:
        if self.control is None:  # it was given up before all of its input was here
            self.fail("stdin", OSError(errno.ECANCELED, "it was to end before it began"))
            return
        wake_all()
        try:
            self.control.send(b"{}")
        except OSError:
            pass

    def resize(self, size: list[int]) -> None:
        if self.task["spec"]["tty"] and self.input >= 0:
            fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def wanted(self, *, listen: bool) -> dict[int, int]:
        wanted = dict.fromkeys(self.outputs, select.POLLIN) if listen else {}
        if self.control is not None:
            wanted[self.control.fileno()] = select.POLLIN
        if self.pending and self.input >= 0:
            wanted[self.input] = wanted.get(self.input, 0) | select.POLLOUT
        return wanted

    def attend(self, ready: dict[int, int]) -> None:
        if self.pending and self.input in ready:
            self.feed()
        for fd in [fd for fd in self.outputs if fd in ready]:
            self.listen(fd, 1)
        if self.control is not None and self.control.fileno() in ready:
            self.hear()

    def feed(self) -> None:
        """As much of what waits for its stdin as it takes; whoever sent that is told when it was all taken."""
        if self.pending:
            try:
                while self.pending and self.input >= 0:
                    del self.pending[: os.write(self.input, self.pending)]
            except BlockingIOError:
                return
            except OSError:  # nobody reads it any more
                pass
            self.pending.clear()
            self.relay.say(TAKEN, self.number, b"")
        if self.end_input and self.input >= 0:
            self.end_input = False
            if self.task["spec"]["tty"]:
                try:
                    os.write(self.input, b"\x04")
                except OSError:
                    pass
            else:
                os.close(self.input)
                self.input = -1

    def listen(self, fd: int, most_chunks: int) -> None:
        for _ in range(most_chunks):
            try:
                data = os.read(fd, CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:  # EIO: the last one on the other side of a terminal has gone
                data = b""
            if not data:
                del self.outputs[fd]
                if fd != self.input:
                    os.close(fd)
                return
            self.relay.say(self.outputs[fd], self.number, data)

    def hear(self) -> None:
        """What its init, or the supervisor in its place, says about it."""
        assert self.control is not None
        try:
            data = self.control.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:  # said once, when init went without reading our last; what it said comes after
            data = self.control.recv(1 << 16)
        message = json.loads(data or b"{}")
        if "started" in message:
            make_expendable(message["started"])
            self.relay.say(STARTED, self.number, data)
            return
        if not message:  # whoever watched over it was killed, and so was the one above
            os._exit(3)
        self.close()
        kind = FAILED if "failed" in message else ENDED
        clean = remove(self.task["tmp"]) if self.task["tmp"] else True
        if not self.relay.runs:
            clean = empty_scratch() and clean
        message |= {"clean": clean, "oom": count_ooms() > self.ooms}
        self.relay.say(kind, self.number, json.dumps(message).encode())

    def close(self) -> None:
        """All that it printed is said before its end is."""
        for fd in list(self.outputs):
            size = 1 << 20 if self.task["spec"]["tty"] else fcntl.fcntl(fd, F_GETPIPE_SZ)
            self.listen(fd, size // 4096 + 1)
        self.let_go()

    def let_go(self) -> None:
        if self.control is not None:
            self.control.close()
        supervisor.close({fd for fd in (self.input, self.stdin, *self.outputs) if fd >= 0})
        self.relay.runs.pop(self.number)
