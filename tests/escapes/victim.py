"""Somebody else's program, of the same user: it has secrets everywhere a program can have them, and notices nothing.

Runs on the host, outside of everything. It says where its secrets are; asked on stdin, what became of its memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
ARM = os.uname().machine == "aarch64"
HEARD = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGURG, signal.SIGRTMIN + 1, signal.SIGRTMIN + 2)
USER_KEYRING, SETPERM, SET_TIMEOUT, UNLINK = -4, 5, 15, 9
ADD_KEY, KEYCTL, MQ_OPEN, MQ_SEND, MQ_UNLINK = (217, 219, 180, 182, 181) if ARM else (248, 250, 240, 242, 241)


def main(task):
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)  # they stay pending, for the host to see
    secret = ctypes.create_string_buffer(task["memory"].encode(), 64)
    target = ctypes.create_string_buffer(b"." * 24, 24)
    os.dup2(os.open(task["credentials"], os.O_RDONLY), task["victim_fd"])
    payload = task["keyring"].encode()
    key = libc.syscall(ADD_KEY, b"user", task["nonce"].encode(), payload, len(payload), USER_KEYRING)
    if key > 0:
        libc.syscall(KEYCTL, SETPERM, key, ctypes.c_uint(0x3F3F0000))
        libc.syscall(KEYCTL, SET_TIMEOUT, key, 300)
    segment = libc.shmget(task["shm_key"], 64, 0o1600)
    if segment >= 0:
        at = libc.shmat(segment, None, 0)
        ctypes.memmove(at, task["sysv"].encode(), len(task["sysv"]))
    queue = libc.syscall(MQ_OPEN, task["queue"].encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    if queue >= 0:
        libc.syscall(MQ_SEND, queue, task["message"].encode(), len(task["message"]), 0, None)
    found = {"address": ctypes.addressof(target), "secret_address": ctypes.addressof(secret), "key": key}
    print(json.dumps({"victim": os.getpid(), **found}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(target.raw.decode("latin-1")), flush=True)
    if key > 0:
        libc.syscall(KEYCTL, UNLINK, key, USER_KEYRING)
    if segment >= 0:
        libc.shmctl(segment, 0, None)
    if queue >= 0:
        libc.syscall(MQ_UNLINK, task["queue"].encode())


if __name__ == "__main__":
    main(json.loads(os.environ["TASK"]))
