"""Processes that want to stay. The daemon has no parent, session or group of anybody's, hears no signal, and holds a
lock by which the host sees that it lives. Cases 47 to 49."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time


def wait():
    """Until the input ends; a signal from outside stays pending, for the host to see."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("ready", flush=True)
    sys.stdin.read()


def daemon(name):
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deaf()
            fd = os.open(os.path.join(os.environ["OUTPUT_DIR"], name), os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(tell, b"x")
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()
    os.read(ready, 1)


def deaf():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def leave(name):
    """The command itself ends, as if all were done."""
    daemon(name)
    print("ready", flush=True)


def stay(name):
    """The command goes on, and does not hear that its time is up."""
    daemon(name)
    deaf()
    print("ready", flush=True)
    while True:
        time.sleep(1)


def hold():
    """A grandchild keeps the streams of a command that has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deaf()
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()
    print("over", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
