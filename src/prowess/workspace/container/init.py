"""Process 1 of a container: starts programs, relays their streams, and reports how each ended.

Messages are frames (kind, run number, size, content) on its own stdin and stdout, which no program gets. As process 1
with dumping off, it cannot be opened, traced, killed or stopped from inside the container, so no program can send
messages in its name. Output of a program is relayed as content only. The same supervisor as on a host runs below it and
ends what programs leave behind. If the supervisor is killed, process 1 ends, and with it the container.

Also reads the container's limits, and empties its temporary folders. Sent as source to the Python of a new container,
together with the modules it imports; otherwise it uses only the standard library.
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

SCRATCH = tuple(f"/{name}" for name in ("tmp", "dev/shm"))  # each container has its own


def read_facts() -> dict[str, Any]:
    """Returns the limits of this container, read where they apply; None where there is no limit."""
    facts: dict[str, Any] = {"python": sys.executable, "uid": os.geteuid(), "gid": os.getegid()}
    facts["memory"] = read_limit("memory.max", "memory/memory.limit_in_bytes")
    facts["processes"] = read_limit("pids.max", "pids/pids.max")
    return facts


def read_limit(*files: str) -> int | None:
    text = read_cgroup(*files).strip()
    if not text.isdigit():
        return None
    return int(text)


def identity(path: str) -> list[int]:
    """Returns [device, inode, owner] of a folder, by which the container's maker recognizes it; [] when it is
    missing."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return []
    return [status.st_dev, status.st_ino, status.st_uid]


def count_ooms() -> int:
    """Number of processes in this container that the kernel ended because memory ran out."""
    for line in read_cgroup("memory.events", "memory/memory.oom_control").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def make_expendable(pid: int) -> None:
    """Makes the kernel end programs first when memory runs out, not the processes that watch them."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:  # it has ended already
        pass


def read_cgroup(*files: str) -> str:
    """Returns the first file that exists: cgroup versions 1 and 2 use different names."""
    for file in files:
        try:
            with open(f"/sys/fs/cgroup/{file}", encoding="ascii") as opened:
                return opened.read()
        except OSError:
            continue
    return ""


def empty_scratch() -> bool:
    """Empties the temporary folders between programs. False when something cannot be removed; then nothing more should
    run here."""
    return all(empty(folder) for folder in SCRATCH)


def remove(path: str) -> bool:
    """Removes a folder of ours with its contents."""
    if not empty(path):
        return False
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def empty(top: str) -> bool:
    """Empties a folder. Files of other users are mounts and the folders above them, and stay. False when something
    cannot be removed, such as paths that are too deep."""
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
RUN, INPUT, END_INPUT, KILL, RESIZE = b"R", b"I", b"C", b"K", b"W"  # messages to process 1
READY, STARTED, FAILED, ENDED, OUT, ERR, TAKEN = b"r", b"s", b"f", b"x", b"o", b"e", b"t"  # messages from process 1
ENDING = b"g"
HIGH_BYTES = 4 * CHUNK_BYTES  # above this much waiting output, programs are not read
WAIT_S = 5.0  # for a supervisor that a program may have stopped
PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4


def main(task: dict[str, Any]) -> NoReturn:
    supervisor.heed_all_signals()
    kernel.seccomp_install(kernel.filter_program(namespaces=True))  # added to the engine's; inherited by all programs
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
    """Turns dumping off: even processes of our own user cannot open our descriptors or memory through /proc."""
    libc = ctypes.CDLL(None, use_errno=True)
    zeros = [ctypes.c_ulong(0)] * 4
    if libc.prctl(PR_SET_DUMPABLE, *zeros) != 0 or libc.prctl(PR_GET_DUMPABLE, *zeros) != 0:
        raise OSError(ctypes.get_errno(), "cannot hide from the programs that will run here")


def wake_all() -> None:
    """Continues all stopped processes. A program can stop every process but this one, also those that start and end
    programs."""
    try:
        os.kill(-1, signal.SIGCONT)
    except OSError:
        pass


class Relay:
    """Loop for all runs. Waits for all of them at once, never for a single one."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.link.settimeout(WAIT_S)
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
            if self.link.fileno() in ready:  # it never sends anything, so it is gone, and nothing can end programs
                os._exit(3)
            if 0 in ready:
                self.hear()
            if 1 in ready:
                self.flush()
            for run in list(self.runs.values()):
                run.attend(ready)

    def hear(self) -> None:
        data = os.read(0, 1 << 18)
        if not data:  # the client is gone, so process 1 and everything here ends
            os._exit(0)
        self.heard += data
        while len(self.heard) >= FRAME.size:
            kind, number, size = FRAME.unpack_from(self.heard)
            end = FRAME.size + size
            if len(self.heard) < end:
                return
            content = bytes(memoryview(self.heard)[FRAME.size : end])
            del self.heard[:end]
            if kind == RUN:
                run = InitRun(self, number, json.loads(content))
                self.runs[number] = run
                if not run.task["stdin_bytes"]:
                    run.start()
            elif number in self.runs:  # otherwise the run ended in the meantime
                self.runs[number].told(kind, content)

    def say(self, kind: bytes, number: int, content: bytes) -> None:
        frame = FRAME.pack(kind, number, len(content)) + content
        self.to_say.append(memoryview(frame))
        self.to_say_bytes += len(frame)

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
        self.relay = relay
        self.number = number
        self.task = task
        self.control: socket.socket | None = None
        self.outputs: dict[int, bytes] = {}  # descriptor -> kind of its frames
        self.input = -1
        self.pending = bytearray()  # waiting input
        self.end_input = False
        self.stdin = -1  # complete input of a program that is not interactive
        self.stdin_left = task["stdin_bytes"]
        self.ooms = count_ooms()

    def start(self) -> None:
        """Starts the program through the supervisor. A failure here fails this program only."""
        step = "cwd"
        theirs: list[int] = []
        try:
            self.check_may_leave(self.task["spec"]["cwd"], self.task["within"])
            step = "tmp"
            if self.task["tmp"]:
                os.mkdir(self.task["tmp"], 0o700)
            step = "streams"
            if self.task["interactive"]:
                self.open_terminal(theirs)
            else:
                self.open_streams(theirs)
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
        """Raises OSError when `cwd` leaves `within` through a link, or does not exist."""
        real = os.path.realpath(cwd)
        if real != within and not real.startswith(within.rstrip("/") + "/"):
            raise OSError(errno.EXDEV, f"{real} is not below {within}")
        os.stat(real)

    def fail(self, step: str, error: OSError) -> None:
        """Reports that the program did not start."""
        clean = True
        if step == "streams" and self.task["tmp"]:
            clean = remove(self.task["tmp"])
        self.let_go()
        failure = {"step": step, "errno": error.errno, "text": str(error)}
        report = {"failed": failure, "clean": clean}
        self.relay.say(FAILED, self.number, json.dumps(report).encode())

    def open_streams(self, theirs: list[int]) -> None:
        """Opens the streams. stdin is complete, and is sealed against changes."""
        if self.stdin >= 0:
            os.lseek(self.stdin, 0, os.SEEK_SET)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            fcntl.fcntl(self.stdin, fcntl.F_ADD_SEALS, seals)
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
        """Stores input. The program starts when all of it is here."""
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
        if self.control is None:  # it was cancelled before all input was here
            self.fail("stdin", OSError(errno.ECANCELED, "it was to end before it began"))
            return
        wake_all()
        try:
            self.control.send(b"{}")
        except OSError:
            pass

    def resize(self, size: list[int]) -> None:
        if self.task["spec"]["tty"] and self.input >= 0:
            packed = struct.pack("HHHH", *size, 0, 0)
            fcntl.ioctl(self.input, termios.TIOCSWINSZ, packed)

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
        """Writes as much pending input as the program accepts; reports when all was accepted."""
        if self.pending:
            try:
                while self.pending and self.input >= 0:
                    del self.pending[: os.write(self.input, self.pending)]
            except BlockingIOError:
                return
            except OSError:  # the program no longer reads
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
            except OSError:  # EIO: no process has the other side of the terminal open
                data = b""
            if not data:
                del self.outputs[fd]
                if fd != self.input:
                    os.close(fd)
                return
            self.relay.say(self.outputs[fd], self.number, data)

    def hear(self) -> None:
        """Handles a message about the program from its init, or from the supervisor in its place."""
        assert self.control is not None
        try:
            data = self.control.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:  # raised once if init left our last message unread; its own messages follow
            data = self.control.recv(1 << 16)
        message = json.loads(data or b"{}")
        if "started" in message:
            make_expendable(message["started"])
            self.relay.say(STARTED, self.number, data)
            return
        if "ending" in message:
            self.relay.say(ENDING, self.number, b"")
            return
        if not message:  # init was killed, and the supervisor, too
            os._exit(3)
        self.close()
        kind = FAILED if "failed" in message else ENDED
        clean = remove(self.task["tmp"]) if self.task["tmp"] else True
        if not self.relay.runs:
            clean = empty_scratch() and clean
        message |= {"clean": clean, "oom": count_ooms() > self.ooms}
        self.relay.say(kind, self.number, json.dumps(message).encode())

    def close(self) -> None:
        """Relays all remaining output before the end is reported."""
        for fd in list(self.outputs):
            size = 1 << 20 if self.task["spec"]["tty"] else fcntl.fcntl(fd, F_GETPIPE_SZ)
            self.listen(fd, size // 4096 + 1)
        self.let_go()

    def let_go(self) -> None:
        if self.control is not None:
            self.control.close()
        supervisor.close({fd for fd in (self.input, self.stdin, *self.outputs) if fd >= 0})
        self.relay.runs.pop(self.number)
