"""Restricts a process before it becomes a command: system call filter, Landlock, resource limits, user.

`filter_program`, `landlock_rights`, `landlock_ruleset` and `landlock_rule` are pure. The functions below them each make
one permanent change to the calling process. The supervisor loads this file by its path, so it imports only a small part
of the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
import struct
from collections.abc import Iterable

Program = bytes  # array of struct sock_filter, for seccomp(2) and `bwrap --seccomp`

# System calls that the filter checks, with their numbers on x86_64 and aarch64; `-` means none.
_NUMBERS = """
    open 2 - · ioctl 16 29 · socket 41 198 · socketpair 53 199 · clone 56 220 · creat 85 - · chmod 90 -
    fchmod 91 52 · ptrace 101 117 · syslog 103 116 · mknod 133 - · uselib 134 - · personality 135 92
    vhangup 153 58 · pivot_root 155 41 · _sysctl 156 - · adjtimex 159 171 · chroot 161 51 · acct 163 89
    settimeofday 164 170 · mount 165 40 · umount2 166 39 · swapon 167 224 · swapoff 168 225 · reboot 169 142
    sethostname 170 161 · setdomainname 171 162 · iopl 172 - · ioperm 173 - · init_module 175 105
    delete_module 176 106 · quotactl 179 60 · nfsservctl 180 42 · lookup_dcookie 212 18 · clock_settime 227 112
    kexec_load 246 104 · add_key 248 217 · request_key 249 218 · keyctl 250 219 · openat 257 56 · mknodat 259 33
    fchmodat 268 53 · unshare 272 97 · perf_event_open 298 241 · fanotify_init 300 262 · open_by_handle_at 304 265
    clock_adjtime 305 266 · setns 308 268 · process_vm_readv 310 270 · process_vm_writev 311 271 · kcmp 312 272
    finit_module 313 273 · kexec_file_load 320 294 · bpf 321 280 · userfaultfd 323 282 · io_uring_setup 425 425
    io_uring_enter 426 426 · io_uring_register 427 427 · open_tree 428 428 · move_mount 429 429 · fsopen 430 430
    fsconfig 431 431 · fsmount 432 432 · fspick 433 433 · clone3 435 435 · openat2 437 437 · pidfd_getfd 438 438
    process_madvise 440 440 · mount_setattr 442 442 · quotactl_fd 443 443 · fchmodat2 452 452
    inotify_init 253 - · inotify_init1 294 26
    lsm_set_self_attr 460 460 · open_tree_attr 467 467 · statmount 457 457 · listmount 458 458
    shmget 29 194 · shmat 30 196 · shmctl 31 195 · semget 64 190 · semop 65 193 · semctl 66 191 · semtimedop 220 192
    msgget 68 186 · msgsnd 69 189 · msgrcv 70 188 · msgctl 71 187 · mq_open 240 180 · mq_unlink 241 181
    prlimit64 302 261 · setpriority 141 140 · ioprio_set 251 30 · sched_setparam 142 118 · sched_setscheduler 144 119
    sched_setaffinity 203 122 · sched_setattr 314 274
"""


def _numbers(column: int) -> dict[str, int]:
    rows = [row.split() for row in _NUMBERS.replace("\n", " · ").split(" · ") if row.strip()]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


SYSCALLS = {"x86_64": _numbers(1), "aarch64": _numbers(2)}
NEWEST = 469  # file_setattr, Linux 6.17; newer calls were not reviewed yet, so a sandbox answers ENOSYS

REFUSED = """
    io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl setns ptrace process_vm_readv
    process_vm_writev process_madvise kcmp pidfd_getfd userfaultfd perf_event_open bpf open_by_handle_at fanotify_init
    mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl quotactl_fd
    nfsservctl lookup_dcookie syslog vhangup uselib _sysctl iopl ioperm sethostname setdomainname settimeofday
    clock_settime clock_adjtime adjtimex lsm_set_self_attr
""".split()
# Memory, queues and semaphores of the user's other programs: a namespace separates them, Landlock does not.
SHARED = "shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink".split()
# The first two pass arguments by pointer, which a filter cannot read; the other two show the mounts of the host.
# After ENOSYS the C library falls back to the older calls.
ABSENT = ("clone3", "openat2", "statmount", "listmount")
# Landlock does not restrict them, so they would tell the names of other sessions' folders. Programs then poll.
WATCHES = ("inotify_init", "inotify_init1")

AF_UNIX, AF_INET, AF_INET6, IPPROTO_MPTCP = 1, 2, 10, 262
NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; the same bits in clone and unshare
NEW_TIME = 0x80  # in clone this bit belongs to the exit signal
SET_ID = stat.S_ISUID | stat.S_ISGID
CREATES = 0o20000100  # O_CREAT and the bit of O_TMPFILE: without them the mode argument of open(2) is not set
# STREAM and SEQPACKET only. A datagram socket (or a raw one) can connect to the path of any other socket.
PAIRS = tuple(kind | more for kind in (1, 5) for more in (0, 0o4000, 0o2000000, 0o2004000))
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # both can type into the terminal of another program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000
_LD, _JEQ, _JGT, _JGE, _JSET, _RET = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NR, _ARCH = 0, 4


def filter_program(*, namespaces: bool, machine: str | None = None) -> Program:
    """Returns the system call filter of a sandbox. With its own namespaces, the sandbox may open AF_UNIX, AF_INET and
    AF_INET6 sockets, because they lead nowhere. Without them, it gets only connected socket pairs, no System V IPC, no
    inotify, and no control over limits and priorities of other processes."""
    machine = machine or os.uname().machine
    if machine not in SYSCALLS:
        raise NotImplementedError(f"there is no table of system calls for {machine}")
    code = [(_LD, 0, 0, _ARCH), (_JEQ, 1, 0, AUDIT_ARCH[machine]), _ret(KILL), (_LD, 0, 0, _NR)]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, X32_BIT), _ret(ERRNO | errno.EPERM)]
    code += [(_JGT, 0, 1, NEWEST), _ret(ERRNO | errno.ENOSYS)]
    number = SYSCALLS[machine]
    never = REFUSED if namespaces else REFUSED + SHARED
    absent = ABSENT if namespaces else ABSENT + WATCHES
    for name, answer in [(n, errno.EPERM) for n in never] + [(n, errno.ENOSYS) for n in absent]:
        if name in number:
            code += [(_JEQ, 0, 1, number[name]), _ret(ERRNO | answer)]
    for name, checks in _by_argument(namespaces).items():
        if name in number:
            block = [*checks, _ret(ALLOW)]
            code += [(_JEQ, 0, len(block), number[name]), *block]
    code.append(_ret(ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _by_argument(namespaces: bool) -> dict[str, list[tuple[int, int, int, int]]]:
    """Returns checks for the calls that depend on their arguments. The kernel reads all these arguments as 32 bits."""
    family = _unless(0, (AF_UNIX, AF_INET, AF_INET6) if namespaces else (), errno.EAFNOSUPPORT)
    mptcp = _if_equal(2, (IPPROTO_MPTCP,), errno.EPROTONOSUPPORT)  # rules that know only TCP do not apply to MPTCP
    itself = _unless(0, (0,), errno.EPERM)
    others = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
    pair = _unless(0, (AF_UNIX,), errno.EAFNOSUPPORT)
    alone = {
        "socketpair": pair + _unless(1, PAIRS, errno.ESOCKTNOSUPPORT),
        **dict.fromkeys(others, itself),
        "setpriority": itself + _unless(1, (0,), errno.EPERM),  # for a process, and only the calling one
        "ioprio_set": _unless(0, (1,), errno.EPERM) + _unless(1, (0,), errno.EPERM),
    }
    modes = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
    return {
        "socketpair": pair,
        **({} if namespaces else alone),
        "socket": family + mptcp,
        "clone": _if_any(0, NAMESPACES),
        "unshare": _if_any(0, NAMESPACES | NEW_TIME),
        "personality": _unless(0, (0, 0xFFFFFFFF), errno.EPERM),  # plain Linux, and the query for the current value
        "ioctl": _if_equal(1, (TIOCSTI, TIOCLINUX), errno.EPERM),
        **{name: _if_any(argument, SET_ID) for name, argument in modes.items()},
        "open": [(_LD, 0, 0, _arg(1)), (_JSET, 0, 3, CREATES), *_if_any(2, SET_ID)],
        "openat": [(_LD, 0, 0, _arg(2)), (_JSET, 0, 3, CREATES), *_if_any(3, SET_ID)],
    }


def _if_any(argument: int, bits: int) -> list[tuple[int, int, int, int]]:
    return [(_LD, 0, 0, _arg(argument)), (_JSET, 0, 1, bits), _ret(ERRNO | errno.EPERM)]


def _if_equal(argument: int, values: tuple[int, ...], answer: int) -> list[tuple[int, int, int, int]]:
    tests = [step for value in values for step in ((_JEQ, 0, 1, value), _ret(ERRNO | answer))]
    return [(_LD, 0, 0, _arg(argument)), *tests]


def _unless(argument: int, values: tuple[int, ...], answer: int) -> list[tuple[int, int, int, int]]:
    tests = [(_JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LD, 0, 0, _arg(argument)), *tests, _ret(ERRNO | answer)]


def _arg(index: int) -> int:
    return 16 + 8 * index  # the low half, on a little-endian machine


def _ret(action: int) -> tuple[int, int, int, int]:
    return (_RET, 0, 0, action)


# --- Landlock -------------------------------------------------------------------------------------------------------

_READ_FS = 0b1101  # execute, read a file, list a folder
_FILE_FS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # rights that apply to a file
_DEVICES = 1 << 6 | 1 << 11  # making character and block devices: restricted, and never allowed
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
# Parts of /proc that a sandbox without namespaces can read: of the machine, and of the first process of a run only,
# because a rule cannot name later processes. The rest would show other processes or the mounts of the host.
PROC = tuple(f"/proc/{name}" for name in "cpuinfo filesystems loadavg meminfo stat uptime version".split())
PROC += tuple(f"/proc/sys/{name}" for name in "fs kernel vm".split())
PROC_OF_FIRST = ("cmdline", "comm", "fd", "io", "limits", "maps", "smaps", "smaps_rollup", "stat", "statm", "status")


def landlock_rights(abi: int) -> tuple[int, int, int]:
    """Returns (files, network, scope): all rights this ABI can take away. Before ABI 3 any file can still be truncated,
    so `landlock_restrict` refuses it."""
    files = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):  # refer, truncate, ioctl on devices
        files |= (abi >= since) << bit
    return files, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0


def landlock_ruleset(abi: int) -> bytes:
    """Returns struct landlock_ruleset_attr in the length of this ABI."""
    return struct.pack("<QQQ", *landlock_rights(abi))[: 8 if abi < 4 else 16 if abi < 6 else 24]


def landlock_rule(abi: int, fd: int, *, folder: bool, write: bool) -> bytes:
    """Returns struct landlock_path_beneath_attr, which is packed."""
    rights = landlock_rights(abi)[0] & ~_DEVICES if write else _READ_FS
    return struct.pack("<Qi", rights if folder else rights & _FILE_FS, fd)


def landlock_abi() -> int:
    """Returns the kernel's Landlock ABI; 0 when Landlock is missing or disabled."""
    return max(0, _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def why_no_landlock(abi: int | None = None) -> str | None:
    """Returns the reason why Landlock cannot be used, or None. `abi` defaults to this kernel's."""
    abi = landlock_abi() if abi is None else abi
    if abi == 0:
        return "this kernel has no Landlock."
    if abi < 3:
        return f"this kernel's Landlock (ABI {abi}) cannot keep files from being cut short; Linux 6.2 or newer can."
    return None


def hold(paths: Iterable[str]) -> None:
    """Keeps the inodes of these paths while this process lives. A Landlock rule is bound to an inode, and the kernel
    makes unused inodes of /proc anew when memory is short."""
    for path in paths:
        try:
            os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # some kernels do not have it
            pass


def landlock_restrict(read: list[str], write: list[str]) -> None:
    """Restricts this process to reading below `read`, and reading and writing below `write`. A path of `read` that
    cannot be reached is left out; a path of `write` must exist."""
    abi = landlock_abi()
    if (lack := why_no_landlock(abi)) is not None:
        raise OSError(errno.ENOTSUP, lack)
    attributes = landlock_ruleset(abi)
    ruleset = _checked(_libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path in read + write:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            if path in write:
                raise
            continue
        folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        _checked(_libc.syscall(LANDLOCK_ADD, ruleset, 1, landlock_rule(abi, fd, folder=folder, write=path in write), 0))
        os.close(fd)
    no_new_privileges()
    _checked(_libc.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


# --- the calling process --------------------------------------------------------------------------------------------

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 36, 38
SECCOMP_MODE_FILTER = 2
_libc = ctypes.CDLL(None, use_errno=True)


class _Fprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def seccomp_install(program: Program) -> None:
    no_new_privileges()
    fprog = _Fprog(len(program) // 8, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(fprog))


def no_new_privileges() -> None:
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def become_subreaper() -> None:
    """Makes this process the parent of every process below it that loses its own parent."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_when_parent_ends(signal: int) -> None:
    """Asks for a signal when the parent ends. "Parent" is a thread here, so callers also check os.getppid(), before and
    after."""
    _prctl(PR_SET_PDEATHSIG, signal)


LIMITS = {  # our name -> the kernel's name
    "cpu_s": resource.RLIMIT_CPU,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "file_bytes": resource.RLIMIT_FSIZE,
    "core_bytes": resource.RLIMIT_CORE,
}


def limit_resources(limits: dict[str, int]) -> None:
    """Sets limits, never above those of this process. A process that uses up its CPU seconds gets a signal and one more
    second."""
    for name, value in limits.items():
        kind = LIMITS[name]
        hard = resource.getrlimit(kind)[1]
        most = value + 1 if name == "cpu_s" else value
        resource.setrlimit(kind, (_least(value, hard), _least(most, hard)))


def become_user(uid: int, gid: int) -> None:
    """Changes user and group permanently, drops all other groups, and checks the result."""
    _empty_bounding_set()
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3 or os.getgroups():
        raise PermissionError(errno.EPERM, f"could not become user {uid}, group {gid}")


def _empty_bounding_set() -> None:
    """Empties the bounding set: no program executed later can have a capability. A root without CAP_SETPCAP cannot do
    this and relies on no_new_privileges."""
    try:
        for capability in range(64):
            _prctl(PR_CAPBSET_DROP, capability)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM):  # EINVAL: after the last one; EPERM: not allowed
            raise


def _least(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _prctl(option: int, *arguments: object) -> None:
    padded = [a if not isinstance(a, int) else ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)][:4]
    _checked(_libc.prctl(option, *padded))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
