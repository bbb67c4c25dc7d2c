"""Attempts, each made in a process of its own and reported as JSON, so that one that kills itself costs no other.

Runs inside a workspace: the standard library alone. What an attempt returns is proof for the host to check, such as the
content of a file; an OSError is a refusal; any other exception is a mistake in the attempt, and is reported as that.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
import traceback

ATTEMPTS = {}
WAIT_S = 10.0
AT_FDCWD, O_PATH = -100, 0o10000000
libc = ctypes.CDLL(None, use_errno=True)
SYSCALLS = {  # name: (x86_64, aarch64)
    "open": (2, -1), "creat": (85, -1), "mknod": (133, -1), "chmod": (90, -1), "fchmod": (91, 52), "clone": (56, 220),
    "ptrace": (101, 117), "personality": (135, 92), "pivot_root": (155, 41), "chroot": (161, 51), "mount": (165, 40),
    "umount2": (166, 39), "swapon": (167, 224), "reboot": (169, 142), "init_module": (175, 105),
    "delete_module": (176, 106), "quotactl": (179, 60), "kexec_load": (246, 104), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "mknodat": (259, 33), "fchmodat": (268, 53),
    "unshare": (272, 97), "perf_event_open": (298, 241), "fanotify_init": (300, 262), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "setns": (308, 268), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "finit_module": (313, 273), "kexec_file_load": (320, 294),
    "bpf": (321, 280), "userfaultfd": (323, 282), "pidfd_send_signal": (424, 424), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "pidfd_open": (434, 434), "clone3": (435, 435),
    "openat2": (437, 437), "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "mount_setattr": (442, 442),
    "fchmodat2": (452, 452), "rt_sigqueueinfo": (129, 138), "prlimit64": (302, 261), "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30), "capget": (125, 90), "syslog": (103, 116), "shmget": (29, 194), "shmat": (30, 196),
    "mq_open": (240, 180), "mq_timedreceive": (243, 183), "setxattr": (188, 5), "tgkill": (234, 131),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "move_pages": (279, 239), "getpid": (39, 172),
    "listmount": (458, 458),
}  # fmt: skip


def opened():
    found = []
    for number in range(3, 1024):
        try:
            os.fstat(number)
            found.append(number)
        except OSError:
            continue
    return found


OPENED = opened()


def attempt(name):
    def known(function):
        assert name not in ATTEMPTS, name
        ATTEMPTS[name] = function
        return function

    return known


def call(name, *arguments):
    """A system call by its number: the C library may not know it, and must not put another in its place."""
    number = SYSCALLS[name][os.uname().machine == "aarch64"]
    if number < 0:
        raise OSError(errno.ENOSYS, name)
    return raw(number, *arguments)


def raw(number, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *words))


def checked(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def unless_refused(do, *refusals):
    """The call is made with arguments that the kernel turns down, so that nothing happens; it got through all the same
    when the answer is about the arguments and not a refusal."""
    try:
        do()
    except OSError as error:
        if error.errno in (refusals or (errno.EPERM, errno.EACCES, errno.ENOSYS)):
            raise
        return errno.errorcode.get(error.errno, "?")
    return "done"


def read(path, limit=1 << 16):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, limit).decode("utf-8", "replace")
    finally:
        os.close(fd)


def write(path, text, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def first(does):
    """The first of several ways that works; the last refusal when none does."""
    problem = OSError(errno.ENOENT, "there was nothing to try")
    for do in does:
        try:
            return do()
        except OSError as error:
            problem = error
    raise problem


def all_of(does):
    """What every way that works brings; the last refusal when none does."""
    found, problem = [], OSError(errno.ENOENT, "there was nothing to try")
    for do in does:
        try:
            found.append(do())
        except OSError as error:
            problem = error
    if not found:
        raise problem
    return found


def run_all(task, names=None):
    said = {}
    for name in names or ATTEMPTS:
        said[name] = run_one(ATTEMPTS[name], task)
    return said


def run_one(do, task):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _report(writer, do, task)
    os.close(writer)
    data, until = b"", time.monotonic() + WAIT_S
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        data += piece
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    if data:
        return json.loads(data)
    return {"got": f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "nothing was said"}


def _report(writer, do, task):
    try:
        said = {"got": "ok", "value": do(task)}
    except OSError as error:
        said = {"got": errno.errorcode.get(error.errno or 0, str(error))}
    except BaseException:
        said = {"got": "mistake", "value": traceback.format_exc()[-600:]}
    os.write(writer, json.dumps(said).encode()[:60000])
    os._exit(0)


def main():
    task = json.loads(os.environ["TASK"]) if "TASK" in os.environ else json.load(sys.stdin)
    said = run_all(task, task.get("only"))
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
