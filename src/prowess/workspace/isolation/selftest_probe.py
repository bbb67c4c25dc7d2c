"""Program that `selftest` runs inside a sandbox: tries actions that must fail, and prints the result of each.

Uses the standard library only, because the sandbox has nothing else.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable


def main(task: dict[str, str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    said: dict[str, object] = {}
    made, link = os.path.join(task["work"], "made"), os.path.join(task["work"], "link")
    with open(made, "w", encoding="ascii"):
        pass
    said["read"] = attempt(lambda: opened(task["canary"]))
    os.symlink(task["canary"], link)
    said["read through a link"] = attempt(lambda: opened(link))
    said["truncate"] = attempt(lambda: os.truncate(task["canary"], 1))
    said["write"] = attempt(lambda: opened(os.path.join(task["outside"], "new"), os.O_WRONLY | os.O_CREAT))
    said["skill"] = attempt(lambda: opened(os.path.join(task["skill"], "new"), os.O_WRONLY | os.O_CREAT))
    said["tcp"] = attempt(lambda: socket.create_connection(("127.0.0.1", int(task["tcp"])), 5).close())
    said["udp"] = attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(task["udp"]))))
    said["unix"] = attempt(lambda: socket.socket(socket.AF_UNIX).connect(os.path.join(task["outside"], "socket")))
    pair = os.path.join(task["outside"], "datagram")
    said["unix by pair"] = attempt(lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b"x", pair))
    said["vsock"] = attempt(lambda: socket.socket(40, socket.SOCK_STREAM).close())
    said["set-id"] = attempt(lambda: os.chmod(made, stat.S_ISUID | 0o700))
    said["priority"] = attempt(lambda: os.setpriority(os.PRIO_PROCESS, int(task["victim"]), 19))
    said["signal"] = attempt(lambda: os.kill(int(task["victim"]), 9))
    said["no new privileges"] = str(libc.prctl(39, 0, 0, 0, 0))
    said["environment"] = sorted(os.environ)
    daemon(int(task["ends"]))
    said["namespace"] = "ok" if libc.unshare(0x10000000) == 0 else errno.errorcode[ctypes.get_errno()]
    sys.stdout.write(json.dumps(said))


def attempt(do: Callable[[], object]) -> str:
    try:
        do()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def opened(path: str, flags: int = os.O_RDONLY) -> None:
    os.close(os.open(path, flags))


def daemon(held: int) -> None:
    """Leaves a daemon behind: its own session, no parent of ours, SIGTERM and SIGHUP ignored, `held` kept open."""
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.fstat(held)
            os.write(tell, b"x")
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    os.read(ready, 1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
