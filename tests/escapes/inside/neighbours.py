"""Secrets and processes of the same user: what others know and do is out of reach. Cases 13 to 22."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import subprocess

from harness import OPENED, attempt, call, checked, first, libc, raw, read


def pids():
    return [name for name in os.listdir("/proc") if name.isdigit()]


def texts(name):
    """Of every process whose file of that name can be read: those lines that are about this suite."""
    found = []
    for pid in pids():
        if pid == str(os.getpid()):
            continue
        try:
            found += [part for part in read(f"/proc/{pid}/{name}").split("\0") if "canary-" in part]
        except OSError:
            continue
    return found


@attempt("environment")
def environment(task):
    return dict(os.environ)


@attempt("proc-environ")
def proc_environ(task):
    return texts("environ")


@attempt("inherited-descriptor")
def inherited_descriptor(task):
    found = []
    for number in range(3, 512):
        try:
            found.append(os.pread(number, 200, 0).decode("utf-8", "replace"))
        except OSError:
            continue
    return found


@attempt("open-descriptors")
def open_descriptors(task):
    return OPENED


@attempt("proc-cmdline")
def proc_cmdline(task):
    return texts("cmdline")


KEYCTL_READ, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING = 11, 0, -4


@attempt("keyring")
def keyring(task):
    room = ctypes.create_string_buffer(200)
    size = call("keyctl", KEYCTL_READ, task["key"], room, 200, 0)
    return room.raw[:size].decode()


@attempt("add-key")
def add_key(task):
    """In the keyring of this process alone, which ends with it."""
    call("add_key", b"user", b"prowess-escapes", b"x", 1, -2)


@attempt("list-pids")
def list_pids(task):
    return [int(pid) for pid in pids()]


@attempt("guess-pid")
def guess_pid(task):
    """Not listed, and there all the same? A refusal says as much as a success."""
    try:
        os.kill(task["victim"], 0)
    except PermissionError:
        pass
    return os.stat(f"/proc/{task['victim']}").st_uid


@attempt("signal")
def send_signal(task):
    os.kill(task["victim"], signal.SIGUSR1)


@attempt("signal-zero")
def signal_zero(task):
    os.kill(task["victim"], 0)


@attempt("signal-group")
def signal_group(task):
    os.killpg(task["victim"], signal.SIGUSR2)


@attempt("signal-thread")
def signal_thread(task):
    call("tgkill", task["victim"], task["victim"], signal.SIGWINCH)


@attempt("signal-by-descriptor")
def signal_by_descriptor(task):
    fd = call("pidfd_open", task["victim"], 0)
    call("pidfd_send_signal", fd, signal.SIGURG, None, 0)


@attempt("signal-queued")
def signal_queued(task):
    info = struct.pack("iiiii", signal.SIGRTMIN + 1, 0, -1, os.getpid(), os.getuid()).ljust(128, b"\0")
    call("rt_sigqueueinfo", task["victim"], signal.SIGRTMIN + 1, info)


@attempt("signal-by-pipe")
def signal_by_pipe(task):
    """The kernel signals whoever is named the owner of a pipe, when something arrives in it."""
    import fcntl

    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, task["victim"])
    fcntl.fcntl(reader, 10, signal.SIGRTMIN + 2)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | fcntl.FASYNC)
    os.write(writer, b"x")


@attempt("signal-other-run")
def signal_other_run(task):
    """Another run of the same user, in a workspace of its own, at the same time."""
    os.kill(task["other_run"], signal.SIGUSR1)


PTRACE_PEEKDATA, PTRACE_POKEDATA, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 2, 5, 17, 0x4206, 0x4207


@attempt("ptrace")
def ptrace(task):
    victim = task["victim"]
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    checked(libc.ptrace(PTRACE_SEIZE, victim, None, None))
    checked(libc.ptrace(PTRACE_INTERRUPT, victim, None, None))
    os.waitpid(victim, 0x40000000)  # __WALL
    word = int.from_bytes(b"ptrace!!", "little")
    checked(libc.ptrace(PTRACE_POKEDATA, victim, task["address"], word))
    checked(libc.ptrace(PTRACE_DETACH, victim, None, None))


@attempt("ptrace-own-child")
def ptrace_own_child(task):
    call("ptrace", 0, 0, 0, 0)  # TRACEME


class Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@attempt("vm-read")
def vm_read(task):
    room = ctypes.create_string_buffer(64)
    ours, theirs = Piece(ctypes.addressof(room), 64), Piece(task["secret_address"], 64)
    call("process_vm_readv", task["victim"], ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    return room.value.decode()


@attempt("vm-write")
def vm_write(task):
    room = ctypes.create_string_buffer(b"vmwrite!", 8)
    ours, theirs = Piece(ctypes.addressof(room), 8), Piece(task["address"] + 8, 8)
    call("process_vm_writev", task["victim"], ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)


@attempt("proc-mem")
def proc_mem(task):
    fd = os.open(f"/proc/{task['victim']}/mem", os.O_RDWR)
    said = os.pread(fd, 64, task["secret_address"]).rstrip(b"\0").decode()
    os.pwrite(fd, b"procmem!", task["address"] + 16)
    return said


@attempt("take-descriptor")
def take_descriptor(task):
    held = call("pidfd_open", task["victim"], 0)
    fd = call("pidfd_getfd", held, task["victim_fd"], 0)
    return os.pread(fd, 200, 0).decode()


@attempt("compare-descriptors")
def compare_descriptors(task):
    call("kcmp", task["victim"], task["victim"], 0, 1, 2)


@attempt("limits-of-victim")
def limits_of_victim(task):
    """64 open files instead of more; prlimit(2) of another process."""
    call("prlimit64", task["victim"], 7, struct.pack("QQ", 64, 64), None)


@attempt("priority-of-victim")
def priority_of_victim(task):
    os.setpriority(os.PRIO_PROCESS, task["victim"], 19)


@attempt("processor-of-victim")
def processor_of_victim(task):
    mask = struct.pack("Q", 1 << (max(os.sched_getaffinity(0))))
    call("sched_setaffinity", task["victim"], len(mask), mask)


@attempt("io-priority-of-victim")
def io_priority_of_victim(task):
    call("ioprio_set", 1, task["victim"], 3 << 13)


@attempt("setuid-program")
def setuid_program(task):
    """A program of root with the setuid bit, which we are allowed to execute."""
    done = subprocess.run([task["setuid_id"], "-u"], capture_output=True)
    if done.returncode:
        raise OSError(errno.EACCES, done.stderr.decode())
    return done.stdout.decode().strip()


@attempt("setuid-system-program")
def setuid_system_program(task):
    """The same with what the system brings along: it waits for a password, and the kernel says as whom."""
    for name in ("su", "passwd", "chsh", "newgrp"):
        path = "/usr/bin/" + name
        if os.path.exists(path) and os.stat(path).st_mode & 0o4000:
            break
    else:
        raise OSError(errno.ENOENT, "no setuid program here")
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([path], env={}, **quiet) as started:
        try:
            owner = os.stat(f"/proc/{started.pid}").st_uid
            for line in read(f"/proc/{started.pid}/status").splitlines():
                if line.startswith("Uid:"):
                    owner = int(line.split()[2])
        finally:
            started.stdin.close()
    return str(owner)


@attempt("become-root")
def become_root(task):
    first([lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0])])


@attempt("capabilities")
def capabilities(task):
    header, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    call("capget", header, sets)
    if not any(sets.raw):
        raise OSError(errno.EPERM, "none")


@attempt("bounding-set")
def bounding_set(task):
    kept = [number for number in range(64) if libc.prctl(23, number, 0, 0, 0) == 1]
    if not kept:
        raise OSError(errno.EPERM, "none")
    return len(kept)


@attempt("new-privileges")
def new_privileges(task):
    if libc.prctl(39, 0, 0, 0, 0) == 1:
        raise OSError(errno.EPERM, "no new privileges")


@attempt("more-descriptors")
def more_descriptors(task):
    """A limit that was set from outside cannot be lifted from inside."""
    now = ctypes.create_string_buffer(16)
    call("prlimit64", 0, 7, None, now)
    hard = struct.unpack("QQ", now)[1]
    call("prlimit64", 0, 7, struct.pack("QQ", hard, hard + 1), None)


@attempt("other-run-environ")
def other_run_environ(task):
    return read(f"/proc/{task['other_run']}/environ")


@attempt("message-queue")
def message_queue(task):
    """A queue of the same user's programs, by name."""
    fd = call("mq_open", task["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK, 0, None)
    room = ctypes.create_string_buffer(8192)
    size = raw(243 if os.uname().machine != "aarch64" else 183, fd, room, 8192, None, None)
    return room.raw[:size].decode()
