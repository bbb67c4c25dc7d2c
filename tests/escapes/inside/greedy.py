"""Wanting more than there is: each attempt ends by itself, at a bound that no machine minds. Cases 37 to 46.

Says how far it got, as JSON, so that the host can compare that with the limit it had set.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import resource
import select
import signal
import sys
import time

MIB = 1 << 20


def enough(most):
    """More than we may have: the kernel counts all that our user runs, and who runs a lot was given a higher limit. One
    that nobody lowered for us is out of the question."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return max(int(most), limit + 1 if limit < 6000 else 0)


def forks(most):
    """Children that only wait; they end with us."""
    count, problem = 0, ""
    reader, writer = os.pipe()
    try:
        while count < int(most):
            if os.fork() == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            count += 1
    except OSError as error:
        problem = errno.errorcode.get(error.errno, "?")
    os.close(writer)
    say(count=count, problem=problem, wanted=int(most))


def fork_bomb(most):
    forks(enough(most))


def hold_forks(most):
    """The same, and they stay until our input ends. What other programs of our user give back meanwhile is taken."""
    count, told, wanted = 0, False, enough(most)
    while True:
        try:
            while count < wanted:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
                count += 1
        except OSError:
            pass
        if not told:
            say(count=count)
            told = True
        if select.select([sys.stdin], [], [], 0.002)[0]:
            return


def memory(most_mib):
    """In this one process, touched, so that it is really there."""
    got, held = 0, []
    try:
        while got < int(most_mib):
            held.append(b"x" * (16 * MIB))
            got += 16
    except MemoryError:
        pass
    say(mib=got)


def shared(most_mib):
    """Memory that no limit of a single process counts: shared with children, and in files without a name."""
    got = 0
    try:
        while got < int(most_mib):
            area = mmap.mmap(-1, 16 * MIB)
            area.write(b"x" * (16 * MIB))
            fd = os.memfd_create("greedy")
            os.write(fd, b"x" * (16 * MIB))
            got += 32
            held.append((area, fd))
    except OSError:
        pass
    say(mib=got)


held = []


def children(count, each_mib):
    """Each within its bounds, all together not."""
    ready, tell = os.pipe()
    started = []
    for _ in range(int(count)):
        pid = os.fork()
        if pid == 0:
            kept = b"x" * (int(each_mib) * MIB)
            os.write(tell, b"x")
            while kept:
                time.sleep(1)
        started.append(pid)
    os.close(tell)
    alive = 0
    while alive < int(count) and select.select([ready], [], [], 0.8)[0]:
        piece = os.read(ready, 100)
        if not piece:
            break
        alive += len(piece)
    ended = [pid for pid in started if os.waitpid(pid, os.WNOHANG)[0]]
    say(alive=alive - len(ended))
    for pid in set(started) - set(ended):
        os.kill(pid, signal.SIGKILL)


def fill(most_mib, folder):
    """One file, a MiB at a time, until there is no more room. The folder by name, or by the variable that names it."""
    folder = os.environ.get(folder, folder)
    path, got, problem = os.path.join(folder, f"prowess-filled-{os.getpid()}"), 0, ""
    try:
        with open(path, "wb", buffering=0) as file:
            while got < int(most_mib):
                got += file.write(b"\1" * MIB) / MIB
    except OSError as error:
        problem = errno.errorcode.get(error.errno, "?")
    try:
        os.unlink(path)
    except OSError:
        pass
    say(mib=got, problem=problem)


def large(most_mib):
    """One file larger than a file may be; the signal that tells is heard."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    fill(most_mib, "OUTPUT_DIR")


def files(count, each_kib):
    """Many files, each of them small."""
    folder = os.path.join(os.environ["WORK_DIR"], "many")
    os.makedirs(folder, exist_ok=True)
    for number in range(int(count)):
        with open(os.path.join(folder, f"{number}"), "wb") as file:
            file.write(b"x" * (int(each_kib) << 10))
    say(count=int(count), flush=True)
    time.sleep(20)


def spin():
    """Until somebody has had enough of it, or half a minute has passed."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pass
    say(spun=True)


def endless(kind):
    """Output without an end, without a line, without a character that a terminal would know."""
    piece = {"line": b"x" * 65536, "binary": bytes(range(256)) * 256, "lines": b"\n" * 65536}[kind]
    while True:
        os.write(1, piece)


def descriptors(most):
    count, problem = 0, ""
    try:
        while count < int(most):
            os.dup(0)
            count += 1
    except OSError as error:
        problem = errno.errorcode.get(error.errno, "?")
    os.closerange(3, 65536)
    say(count=count, problem=problem)


def deep(levels, name_bytes):
    """Folders in folders, further down than any path can say, with the longest names there are."""
    os.chdir(os.environ["OUTPUT_DIR"])
    name = "d" * int(name_bytes)
    count = 0
    try:
        for _ in range(int(levels)):
            os.mkdir(name)
            os.chdir(name)
            count += 1
        with open("bottom", "w", encoding="ascii") as file:
            file.write("x")
    except OSError as error:
        say(levels=count, problem=errno.errorcode.get(error.errno, "?"))
        return
    say(levels=count, problem="")


def say(flush=True, **what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
