"""Starts every command from one small process, and ends them all when the runtime ends.

The supervisor has a single thread, so it may fork. Nothing is imported between the fork and the command, so no new
interpreter starts, and the forks are made one run ahead. Each command has an *init*: its parent and subreaper. A
process below init that loses its parent becomes init's child. So when init has no child left, nothing is left, and init
reports.

    the command ends, times out or is to be killed     init ends the tree and reports
    init itself is killed, by a command of its user    the supervisor inherits the tree, ends it and reports
    the supervisor or the runtime is killed            each init gets a signal, or its socket closes: it ends the tree

Started by path, as `python -I -S supervisor.py SOCKET PARENT`. Imports the standard library and the modules below.
Messages are JSON, one per packet; a run brings the descriptors [socket of its init, spec, streams …].
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from prowess.workspace.process import process_tree as tree
from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process.child import become

TYPE_CHECKING = False  # importing typing would take a tenth of the start
if TYPE_CHECKING:
    from typing import Any, NoReturn

PARENT_GONE = signal.SIGUSR1
SHUTDOWN_S = 3.0
ENDING = {"ending": True}  # told while killed processes still end, so that nobody takes us for stuck
LINGER_S = 0.05  # longer than a sandbox needs to end
IDLE_MS = 30  # idle time before the next init is forked: a run that has just begun needs the processor first
SUSPICIOUS_S = 1.0  # after an init is lost, children that appear within this time are counted as its own


def main(args: list[str]) -> None:
    gc.disable()  # a collection in a forked child would copy every memory page
    heed_all_signals()
    Supervisor(socket.socket(fileno=int(args[0])), parent=int(args[1])).serve()


class Supervisor:
    def __init__(self, link: socket.socket, *, parent: int) -> None:
        self.link = link
        self.parent = parent
        self.wake = Wake(signal.SIGCHLD, signal.SIGTERM, PARENT_GONE)
        self.inits: dict[int, tuple[int, int]] = {}  # pid of an init -> (run number, our copy of its socket)
        self.waiting: tuple[int, socket.socket, socket.socket] | None = None  # init without a run, its two sockets
        self.suspicious_until: float | None = None

    def serve(self) -> None:
        kernel.become_subreaper()
        kernel.signal_when_parent_ends(PARENT_GONE)
        kernel.hold(kernel.PROC)
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(self.wake.fd, select.POLLIN)
        while os.getppid() == self.parent:  # the signal is not enough: perhaps only the thread that started us ended
            ready = [fd for fd, _ in poll.poll(self.wait_ms())]
            if signal.SIGTERM in self.wake.take():
                break
            self.reap()
            if self.link.fileno() in ready:
                if not self.receive():
                    break
            elif self.waiting is None:  # idle, and a run that has just begun had its time
                self.prepare_ahead()
        self.shut_down()

    def wait_ms(self) -> int | None:
        if self.suspicious_until is not None:
            return 20
        return IDLE_MS if self.waiting is None else None

    def receive(self) -> bool:
        """Handles one message. False when the client is gone."""
        try:
            data, fds, flags, _ = socket.recv_fds(self.link, 4096, 64, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        if not data:
            return False
        message = json.loads(data)
        if flags & socket.MSG_CTRUNC:  # too many descriptors: that run sees its socket close, the others go on
            close(fds)
        elif message["op"] == "run":
            self.start(message, fds)
        elif message["op"] == "kill":  # init did not answer: its command may have stopped it
            for pid, (run, _) in self.inits.items():
                if run == message["run"]:
                    os.kill(pid, signal.SIGKILL)
        return True

    def start(self, message: dict[str, Any], fds: list[int]) -> None:
        """Gives the run to the waiting init."""
        control, *given = fds
        try:
            pid = self.hand_over(message, control, given)
            self.inits[pid] = (message["run"], control)
        except OSError as error:
            tell(control, {"failed": {"step": "fork", "errno": error.errno, "text": str(error)}})
            os.close(control)
        close(given)

    def hand_over(self, message: dict[str, Any], control: int, given: list[int]) -> int:
        while True:
            pid, to_init, to_command = self.waiting or self.prepare([control, *given])
            self.waiting = None
            with to_init, to_command:
                try:
                    socket.send_fds(to_init, [json.dumps(message).encode()], [control])
                except (BrokenPipeError, ConnectionResetError):  # init was killed while it waited
                    continue
                try:
                    socket.send_fds(to_command, [b"run"], given)
                except (BrokenPipeError, ConnectionResetError):  # init notices and reports that; nothing runs twice
                    pass
                return pid

    def prepare_ahead(self) -> None:
        """Forks an init before a run needs it, so that the run does not wait for the fork."""
        try:
            self.prepare([])
        except OSError:  # tried again later
            pass

    def prepare(self, not_its: list[int]) -> tuple[int, socket.socket, socket.socket]:
        """Forks an init and closes `not_its` there: these descriptors would keep the command's streams open."""
        to_init, init_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        to_command, command_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with init_end, command_end:
            pid = os.fork()
            if pid == 0:
                try:
                    supervisor = os.getppid()
                    for ours in (self.link, to_init, to_command):
                        ours.close()
                    self.wake.close()
                    close(not_its)
                    close(copy for _, copy in self.inits.values() if copy >= 0)
                    Init(init_end, command_end, supervisor).run()
                finally:
                    give_up()
        self.inits[pid] = (0, -1)
        self.waiting = (pid, to_init, to_command)
        return self.waiting

    def reap(self) -> None:
        """Forgets inits that ended well. Ends what a lost init left behind, and reports in its place."""
        lost, orphans = [], 0
        for pid, status in tree.ended_children():
            if pid not in self.inits:
                orphans += 1
                continue
            _, control = self.inits.pop(pid)
            if status != 0 and control >= 0:
                lost.append(control)
            elif control >= 0:
                os.close(control)
        now = time.monotonic()
        if lost or orphans:
            self.suspicious_until = now + SUSPICIOUS_S
        if self.suspicious_until is None:
            return

        def say_so() -> None:
            for control in lost:
                tell(control, ENDING)

        killed, left = tree.end_all(self.reap_orphans, spare=self.inits, tell=say_so)
        for control in lost:
            tell(control, {"ended": {"why": "lost", "survivors": killed + orphans, "left": left}})
            os.close(control)
        if now > self.suspicious_until and not left:
            self.suspicious_until = None

    def reap_orphans(self) -> bool:
        """Reaps children other than inits, which `reap` handles. False when none is left."""
        mine = [pid for pid in tree.children(os.getpid()) if pid not in self.inits]
        for pid in mine:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        return bool(mine)

    def shut_down(self) -> None:
        """Ends all runs: first each init ends its own, then the supervisor ends the rest."""
        self.link.close()
        for ours in (self.waiting or ())[1:]:
            ours.close()  # the waiting init sees that and exits
        for pid in self.inits:
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + SHUTDOWN_S
        while self.inits and time.monotonic() < until:
            select.select([self.wake.fd], [], [], until - time.monotonic())
            self.wake.take()
            self.reap()
        tree.end_all(reap_all)


class Init:
    """Parent of one command, until the command and all its processes are gone."""

    def __init__(self, supervisor_end: socket.socket, command_end: socket.socket, supervisor: int) -> None:
        self.wake = Wake(signal.SIGCHLD, signal.SIGTERM)
        self.supervisor = supervisor
        self.supervisor_end = supervisor_end
        self.command_end = command_end
        self.why = "exit"
        self.status: int | None = None  # as returned by wait(2), once the command has ended
        self.ended_at = 0.0

    def run(self) -> NoReturn:
        os.setpgid(0, 0)  # not setsid: that costs a scheduler turn, and the command gets its own session
        kernel.become_subreaper()
        kernel.signal_when_parent_ends(signal.SIGTERM)
        if os.getppid() != self.supervisor:  # the supervisor ended before the line above
            os._exit(0)
        self.errors, errors_of_command = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.command = os.fork()
        if self.command == 0:
            self.supervisor_end.close()
            become(self.command_end, errors_of_command)
        self.command_end.close()
        os.close(errors_of_command)
        kernel.hold(f"/proc/{self.command}/{name}" for name in kernel.PROC_OF_FIRST)
        data, fds, _, _ = socket.recv_fds(self.supervisor_end, 4096, 1, socket.MSG_CMSG_CLOEXEC)
        self.started_at = time.monotonic()
        if not data or not fds:  # no run will come
            tree.end_all(reap_all)
            os._exit(0)
        self.message, self.control = json.loads(data), fds[0]
        self.attend()
        if self.message["wrapped"] and self.why == "exit":
            self.linger()
        survivors, left = tree.end_all(self.reap, tell=lambda: tell(self.control, ENDING))
        failure = self.failure()
        tell(self.control, {"failed": json.loads(failure)} if failure else {"ended": self.ending(survivors, left)})
        os._exit(0)

    def attend(self) -> None:
        """Waits until the command has ended, or its grace period is over."""
        poll = select.poll()
        for fd in (self.control, self.wake.fd, self.errors):
            poll.register(fd, select.POLLIN)
        timeout_s = self.message["timeout_s"]
        until = None if timeout_s is None else self.started_at + timeout_s
        while True:
            ready = dict(poll.poll(milliseconds(until)))
            got = self.wake.take()
            if self.errors in ready:
                poll.unregister(self.errors)
                if not ready[self.errors] & select.POLLIN:  # a successful start closed it
                    tell(self.control, {"started": self.command})
            more = self.reap()
            over = until is not None and time.monotonic() >= until
            if self.why != "exit":
                if over or not more:
                    return
            elif self.status is not None:
                return
            elif self.control in ready or signal.SIGTERM in got or over:
                self.why = self.who_ends_it(self.control in ready, signal.SIGTERM in got)
                poll.unregister(self.control)
                until = time.monotonic() + self.message["grace_s"]
                tree.ask_to_end(spare=self.command if self.message["wrapped"] else 0)

    def linger(self) -> None:
        """Waits a moment after a wrapper has ended. Its program ends right after it, and is not counted as a
        survivor."""
        until = time.monotonic() + LINGER_S
        while self.reap() and time.monotonic() < until:
            select.select([self.wake.fd], [], [], until - time.monotonic())
            self.wake.take()

    def who_ends_it(self, client: bool, supervisor: bool) -> str:
        if client:
            try:
                return "kill" if os.read(self.control, 4096) else "closed"
            except ConnectionResetError:  # closed before it read our last message
                return "closed"
        return "supervisor" if supervisor else "timeout"

    def reap(self) -> bool:
        """Reaps ended children. False when nothing is left below init."""
        for pid, status in tree.ended_children():
            if pid == self.command:
                self.status, self.ended_at = status, time.monotonic()
        return tree.any_left()

    def failure(self) -> bytes:
        """Returns the command's report of a failed start, or b""."""
        try:
            return os.read(self.errors, 4096)
        except BlockingIOError:
            return b""

    def ending(self, survivors: int, left: int) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = self.status
        return {
            "why": self.why,
            "exit_code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "duration_s": (self.ended_at or time.monotonic()) - self.started_at,
            "survivors": survivors,
            "left": left,
            "cpu_s": used.ru_utime + used.ru_stime,
            "max_rss_bytes": used.ru_maxrss * 1024,
        }


def heed_all_signals() -> None:
    """Resets all signals. The runtime's parent may have ignored some (as nohup does), and commands must not inherit
    that."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


class Wake:
    """Turns signals into readable bytes, so that one poll waits for everything."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.fd, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in signals:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)

    def take(self) -> bytes:
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        close([self.fd, self.writer])


def tell(control: int, message: dict[str, Any]) -> None:
    try:
        os.write(control, json.dumps(message).encode())
    except OSError:  # the client is gone
        pass


def close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def reap_all() -> bool:
    for _ in tree.ended_children():
        pass
    return tree.any_left()


def milliseconds(until: float | None) -> int | None:
    return None if until is None else max(0, int((until - time.monotonic()) * 1000) + 1)


def give_up() -> NoReturn:
    """Ends a forked process that must not return into its parent's code; writes the error to stderr."""
    kind, problem, trace = sys.exc_info()
    if kind is not None and problem is not None:
        sys.excepthook(kind, problem, trace)
        sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
