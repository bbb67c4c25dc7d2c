"""The filter and the rules say what we mean, on both architectures; and this kernel does what they say."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import struct
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prowess.workspace.process import seccomp as kernel
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, Landlock

MACHINES = ["x86_64", "aarch64"]
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
UNPRIVILEGED = 64321
ALLOWED = kernel.ALLOW
PYTHON = "/usr/bin/python3"


def refused(number: int) -> int:
    return kernel.ERRNO | number


def simulate(program: bytes, *, arch: int, number: int, args: tuple[int, ...] = ()) -> int:
    """What the kernel would answer: an interpreter of classic BPF, as far as seccomp has it."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(*args, *[0] * (6 - len(args))))
    code = list(struct.iter_unpack("<HBBI", program))
    at, a = 0, 0
    while True:
        op, yes, no, k = code[at]
        at += 1
        if op == 0x20:
            assert k % 4 == 0 and k < len(data)
            (a,) = struct.unpack_from("<I", data, k)
        elif op == 0x06:
            return k
        else:
            holds = {0x15: a == k, 0x25: a > k, 0x35: a >= k, 0x45: bool(a & k)}[op]
            at += yes if holds else no


class Box:
    def __init__(self, machine: str, *, namespaces: bool) -> None:
        self.numbers = kernel.SYSCALLS[machine]
        self.arch = kernel.AUDIT_ARCH[machine]
        self.program = kernel.filter_program(namespaces=namespaces, machine=machine)

    def __call__(self, name: str, *args: int) -> int:
        return simulate(self.program, arch=self.arch, number=self.numbers[name], args=args)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_number_is_the_one_in_the_headers_of_linux(machine: str, not_run: Callable[[str, str], None]) -> None:
    if not HEADERS[machine].exists():
        not_run(f"system call numbers of {machine} against the headers", "no headers here")
        return
    text = HEADERS[machine].read_text(encoding="utf-8")
    found = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
    assert found
    for name, number in kernel.SYSCALLS[machine].items():
        if name in found:
            assert found[name] == number, name
        else:  # newer than these headers, so in the part that all architectures share
            assert number > max(found.values()) or name in ("nfsservctl", "lookup_dcookie"), name
    assert set(kernel.REFUSED) | set(kernel.ABSENT) <= {*kernel.SYSCALLS["x86_64"]}


def test_jumps_stay_inside_and_every_way_ends_in_an_answer(machine: str) -> None:
    for namespaces in (True, False):
        program = kernel.filter_program(namespaces=namespaces, machine=machine)
        code = list(struct.iter_unpack("<HBBI", program))
        assert len(code) < 4096
        for at, (op, yes, no, _) in enumerate(code):
            if op & 0x07 == 0x05:
                assert at + 1 + max(yes, no) < len(code)
        assert code[-1][0] == 0x06


def test_what_is_refused_and_what_does_not_exist(machine: str) -> None:
    box = Box(machine, namespaces=True)
    for name in kernel.REFUSED:
        if name in box.numbers:
            assert box(name) == refused(errno.EPERM), name
    for name in kernel.ABSENT:
        assert box(name) == refused(errno.ENOSYS), name
    alone = Box(machine, namespaces=False)
    for name in kernel.SHARED:
        assert (box(name), alone(name)) == (ALLOWED, refused(errno.EPERM)), name
    for name in set(kernel.WATCHES) & set(box.numbers):
        assert (box(name), alone(name)) == (ALLOWED, refused(errno.ENOSYS)), name
    known = set(box.numbers.values())
    for number in range(kernel.NEWEST + 1):
        if number not in known:
            assert simulate(box.program, arch=box.arch, number=number) == ALLOWED, number
    for number in (kernel.NEWEST + 1, 512, 0x3FFFFFFF):
        assert simulate(box.program, arch=box.arch, number=number) == refused(errno.ENOSYS), number


def test_foreign_architectures_are_shut_out(machine: str) -> None:
    box = Box(machine, namespaces=True)
    i386, arm = 0x40000003, 0x40000028
    for arch in {i386, arm, *kernel.AUDIT_ARCH.values()} - {box.arch}:
        for number in (0, 1, 11, 102, 359):
            assert simulate(box.program, arch=arch, number=number) == kernel.KILL
    x32 = simulate(box.program, arch=box.arch, number=kernel.X32_BIT | 1)
    assert x32 == refused(errno.EPERM if machine == "x86_64" else errno.ENOSYS)


def test_sockets_by_family(machine: str) -> None:
    own_network, shared = Box(machine, namespaces=True), Box(machine, namespaces=False)
    for family in range(48):
        lets_in = family in (kernel.AF_UNIX, kernel.AF_INET, kernel.AF_INET6)
        for high in (0, 1 << 32):  # the kernel looks at the lower half alone, and so must we
            assert (own_network("socket", family | high, 1) == ALLOWED) == lets_in, family
            assert shared("socket", family | high, 1) == refused(errno.EAFNOSUPPORT)
            for box in (own_network, shared):
                assert (box("socketpair", family | high, 1) == ALLOWED) == (family == kernel.AF_UNIX)
    assert own_network("socket", kernel.AF_INET, 1, 6) == ALLOWED
    assert own_network("socket", kernel.AF_INET, 1, kernel.IPPROTO_MPTCP) == refused(errno.EPROTONOSUPPORT)


def test_a_pair_that_takes_addresses_is_made_in_a_box_of_its_own_alone(machine: str) -> None:
    own, shared = (Box(machine, namespaces=namespaces) for namespaces in (True, False))
    for kind in range(16):
        for more in (0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC):
            connected = kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
            assert own("socketpair", kernel.AF_UNIX, kind | more) == ALLOWED
            assert (shared("socketpair", kernel.AF_UNIX, kind | more) == ALLOWED) == connected


def test_namespaces_by_flag(machine: str) -> None:
    box = Box(machine, namespaces=True)
    new = {
        "ns": 0x20000,
        "cgroup": 1 << 25,
        "uts": 1 << 26,
        "ipc": 1 << 27,
        "user": 1 << 28,
        "pid": 1 << 29,
        "net": 1 << 30,
    }
    for name, flag in new.items():
        assert box("clone", flag | 17) == box("unshare", flag | 0x400) == refused(errno.EPERM), name
    assert box("unshare", 0x80) == refused(errno.EPERM)
    thread = 0x3D0F00  # what pthread_create asks for
    assert box("clone", thread) == box("clone", 0x01200011) == box("unshare", 0x400) == ALLOWED


def test_set_id_bits_by_mode(machine: str) -> None:
    box = Box(machine, namespaces=True)
    places = {"fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknodat": 2, "chmod": 1, "creat": 1, "mknod": 1}
    for name, place in places.items():
        if name not in box.numbers:
            continue
        for mode in (0o4755, 0o2755, 0o6000, 0o104644):
            assert box(name, *[0] * place, mode) == refused(errno.EPERM), (name, oct(mode))
        assert box(name, *[0] * place, 0o100755) == box(name, *[0] * place, 0o1777) == ALLOWED
    for name, place in {"open": 1, "openat": 2}.items():
        if name not in box.numbers:
            continue
        front = [0] * place
        for flags in (0o100, 0o101, 0o20200000, 0o1101):  # O_CREAT, O_TMPFILE
            assert box(name, *front, flags, 0o4755) == refused(errno.EPERM), (name, oct(flags))
            assert box(name, *front, flags, 0o666) == ALLOWED
        assert box(name, *front, 0o2, 0xFFFFFFFF) == ALLOWED  # without them the mode is not one


def test_small_things_by_argument(machine: str) -> None:
    box = Box(machine, namespaces=True)
    assert box("ioctl", 0, 0x5412) == box("ioctl", 0, 1 << 32 | 0x5412) == refused(errno.EPERM)
    assert box("ioctl", 0, 0x541C) == refused(errno.EPERM)
    assert box("ioctl", 0, 0x5413) == box("ioctl", 0, 0x5401) == ALLOWED
    assert box("personality", 0xFFFFFFFF) == box("personality", 0) == ALLOWED
    assert box("personality", 0x0400000) == box("personality", 0x0040000) == refused(errno.EPERM)


def test_without_namespaces_only_the_calling_process_can_be_limited(machine: str) -> None:
    box, alone = Box(machine, namespaces=True), Box(machine, namespaces=False)
    for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"):
        assert box(name, 1234) == box(name, 0) == alone(name, 0) == ALLOWED, name
        assert alone(name, 1234) == refused(errno.EPERM), name
    assert alone("setpriority", 0, 0) == alone("ioprio_set", 1, 0) == ALLOWED
    for which, who in ((0, 1234), (1, 0), (2, 0)):  # another process, a group, a user
        assert alone("setpriority", which, who) == alone("ioprio_set", which + 1, who) == refused(errno.EPERM)
        assert box("setpriority", which, who) == box("ioprio_set", which + 1, who) == ALLOWED


def test_an_unknown_machine_gets_no_filter_instead_of_a_wrong_one() -> None:
    with pytest.raises(NotImplementedError, match="riscv64"):
        kernel.filter_program(namespaces=True, machine="riscv64")


def test_why_there_is_no_landlock_is_said_in_plain_words() -> None:
    assert kernel.why_no_landlock(0) == "this kernel has no Landlock."
    assert "Linux 6.2" in (kernel.why_no_landlock(2) or "")
    assert kernel.why_no_landlock(3) is None


def test_landlock_asks_for_what_each_abi_knows() -> None:
    assert [len(kernel.landlock_ruleset(abi)) for abi in range(1, 9)] == [8, 8, 8, 16, 16, 24, 24, 24]
    assert kernel.landlock_rights(1) == (0x1FFF, 0, 0)
    assert kernel.landlock_rights(2)[0] == 0x3FFF and kernel.landlock_rights(3)[0] == 0x7FFF
    assert kernel.landlock_rights(4) == (0x7FFF, 3, 0)
    assert kernel.landlock_rights(5) == (0xFFFF, 3, 0)
    assert kernel.landlock_rights(6) == kernel.landlock_rights(7) == (0xFFFF, 3, 3)
    rights, fd = struct.unpack("<Qi", kernel.landlock_rule(7, 5, folder=True, write=False))
    assert (rights, fd) == (0b1101, 5)
    rights, _ = struct.unpack("<Qi", kernel.landlock_rule(7, 5, folder=True, write=True))
    assert rights & (1 << 6 | 1 << 11) == 0 and rights & 0b10
    rights, _ = struct.unpack("<Qi", kernel.landlock_rule(7, 5, folder=False, write=True))
    assert rights == 1 | 2 | 4 | 1 << 14 | 1 << 15


# --- and what this kernel makes of it -------------------------------------------------------------------------------

TRY = """
import ctypes, errno, os, sys
assert os.getuid() and os.geteuid(), "not as root"
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
"""
# name -> (code that prints what it got, what it gets in the box, what it may get outside). Outside, it is let through
# to the kernel: whatever comes from there is another answer than the filter's, or "ok".
N = kernel.SYSCALLS.get(os.uname().machine, {})
ATTEMPTS: dict[str, tuple[str, str, set[str]]] = {
    "vsock": ("call(S['socket'], 40, 1, 0)", "EAFNOSUPPORT", {"ok"}),
    "netlink": ("call(S['socket'], 16, 3, 0)", "EAFNOSUPPORT", {"ok"}),
    "mptcp": ("call(S['socket'], 2, 1, 262)", "EPROTONOSUPPORT", {"ok"}),
    "io_uring": ("call(S['io_uring_setup'], 4, ctypes.create_string_buffer(120))", "EPERM", {"ok"}),
    "keyctl": ("call(S['keyctl'], 0, -3, 0)", "EPERM", {"ok", "ENOKEY"}),
    "add_key": ("call(S['add_key'], b'user', b'a', b'b', 1, -2)", "EPERM", {"ok"}),
    "unshare user": ("call(S['unshare'], 0x10000000)", "EPERM", {"ok"}),
    "clone user": ("clone(0x10000000)", "EPERM", {"ok"}),
    "clone3": ("call(S['clone3'], 0, 0)", "ENOSYS", {"EINVAL"}),
    "openat2": ("call(S['openat2'], -100, b'/', 0, 0)", "ENOSYS", {"EINVAL"}),
    "ptrace": ("call(S['ptrace'], 0, 0, 0, 0)", "EPERM", {"ok"}),
    "process_vm_readv": ("call(S['process_vm_readv'], os.getpid(), 0, 0, 0, 0, 0)", "EPERM", {"ok"}),
    "pidfd_getfd": ("call(S['pidfd_getfd'], os.pidfd_open(os.getpid()), 0, 0)", "EPERM", {"ok"}),
    "personality": ("call(S['personality'], 0x0040000)", "EPERM", {"ok"}),
    "userfaultfd": ("call(S['userfaultfd'], 1)", "EPERM", {"ok"}),
    "setns": ("call(S['setns'], -1, 0)", "EPERM", {"EBADF"}),
    "open_by_handle_at": ("call(S['open_by_handle_at'], -1, 0, 0)", "EPERM", {"EFAULT"}),
    "chmod set-id": ("call(S['fchmodat'], -100, b'f', 0o4755)", "EPERM", {"ok"}),
    "fchmod set-id": ("call(S['fchmod'], os.open('f', 0), 0o2755)", "EPERM", {"ok"}),
    "fchmodat2 set-id": ("call(S['fchmodat2'], -100, b'f', 0o4755, 0)", "EPERM", {"ok", "ENOSYS"}),
    "openat set-id": ("call(S['openat'], -100, b'g', 0o101, 0o4755)", "EPERM", {"ok"}),
    "mknodat set-id": ("call(S['mknodat'], -100, b'h', 0o104755, 0)", "EPERM", {"ok"}),
    "tiocsti": ("call(S['ioctl'], 0, 0x5412, b'x')", "EPERM", {"ENOTTY"}),
    "not judged yet": ("call(900)", "ENOSYS", {"ENOSYS"}),
}
CLONE = """
def clone(flags):
    ctypes.set_errno(0)
    pid = libc.syscall(S['clone'], ctypes.c_long(flags | 17), 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0: os.waitpid(pid, 0)
    return "ok" if pid >= 0 else errno.errorcode[ctypes.get_errno()]
"""
NEEDED = """
import asyncio, socket, sqlite3, subprocess, tempfile, threading
socket.socketpair()
asyncio.run(asyncio.sleep(0))
assert subprocess.run(["/bin/echo", "x"], capture_output=True).stdout == b"x\\n"
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
tempfile.NamedTemporaryFile(dir=".").write(b"x")
os.chmod("f", 0o755)
sqlite3.connect("db").execute("create table t(x)")
print("fine")
"""


class Place:
    """A folder of the unprivileged user, and commands that run as that user in it: these attempts are never root's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "f").write_text("x", encoding="utf-8")
        if os.geteuid() == 0:
            for path in (folder, folder / "f"):
                os.chown(path, UNPRIVILEGED, UNPRIVILEGED)

    def run(self, code: str, **more: Any) -> list[str]:
        async def story() -> list[str]:
            out, err = bytearray(), bytearray()
            program = TRY + f"S = {N!r}\n" + CLONE + textwrap.dedent(code)
            who = {"uid": UNPRIVILEGED} if os.geteuid() == 0 else {}
            bare = {"landlock": None, "seccomp": None}
            command = Command(
                argv=[PYTHON, "-I", "-S", "-c", program], cwd=str(self.folder), env={}, timeout_s=60, **who, **more
            )
            async with Processes() as processes:
                victim = await processes.open_session(command._replace(argv=["/bin/sleep", "1000"], **bare))
                command = command._replace(env={"VICTIM": str(victim.pid)})
                ended = await processes.run(command, out.extend, err.extend)
                await victim.aclose()
            assert ended.exit_code == 0, (ended, err.decode())
            return out.decode().split("\n")[:-1]

        return asyncio.run(story())


@pytest.fixture
def place(folder: Path) -> Place:
    if not os.access(PYTHON, os.X_OK):
        pytest.fail(f"this needs {PYTHON}")
    return Place(folder)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_this_kernel_refuses_it_in_the_box_and_lets_it_through_outside(place: Place, name: str) -> None:
    code, inside, outside = ATTEMPTS[name]
    program = kernel.filter_program(namespaces=True)
    assert place.run(f"print({code})")[0] in outside
    for path in ("g", "h"):
        (place.folder / path).unlink(missing_ok=True)
    os.chmod(place.folder / "f", 0o644)
    assert place.run(f"print({code})", seccomp=program) == [inside]
    assert not os.stat(place.folder / "f").st_mode & 0o6000


def test_without_a_network_of_its_own_a_box_makes_no_sockets_but_pairs(place: Place) -> None:
    code = "print(*[call(S['socket'], f, 2, 0) for f in (1, 2, 10)], call(S['socketpair'], 1, 1, 0, b'1234567'))"
    assert place.run(code) == ["ok ok ok ok"]
    assert place.run(code, seccomp=kernel.filter_program(namespaces=True)) == ["ok ok ok ok"]
    shut = " ".join(["EAFNOSUPPORT"] * 3)
    assert place.run(code, seccomp=kernel.filter_program(namespaces=False)) == [f"{shut} ok"]


def test_without_namespaces_other_programs_of_the_user_are_left_alone(place: Place) -> None:
    code = """
    import resource
    def limit():
        try:
            resource.prlimit(int(os.environ["VICTIM"]), resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            return "ok"
        except OSError as error:
            return errno.errorcode[error.errno]
    print(limit(), call(S["shmget"], 0x70726F77, 0, 0), call(S["setpriority"], 0, int(os.environ["VICTIM"]), 19))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(1)
    """
    assert place.run(code) == ["ok ENOENT ok"]  # there is no such memory; a test should not leave any behind
    assert place.run(code, seccomp=kernel.filter_program(namespaces=False)) == ["EPERM EPERM EPERM"]


@pytest.mark.parametrize("namespaces", [True, False])
def test_what_programs_need_still_works_in_the_box(place: Place, namespaces: bool) -> None:
    assert place.run(NEEDED, seccomp=kernel.filter_program(namespaces=namespaces)) == ["fine"]


def test_foreign_system_calls_are_shut_out_by_this_kernel(place: Place, not_run: Callable[[str, str], None]) -> None:
    """getpid by int 0x80 kills the process; by its x32 number it is refused. Outside, the first one works."""
    if os.uname().machine != "x86_64":
        not_run("foreign system calls", "only x86_64 has code here to make them")
        return
    code = """
    import mmap
    if os.fork() == 0:
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(bytes.fromhex("b814000000" "cd80" "c3"))  # mov eax, 20; int 0x80; ret
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        os._exit(0 if function() == os.getpid() else 3)
    print(os.waitstatus_to_exitcode(os.wait()[1]), call(0x40000000 | 39))
    """
    outside, inside = place.run(code), place.run(code, seccomp=kernel.filter_program(namespaces=True))
    assert inside == ["-31 EPERM"]  # SIGSYS
    if outside[0].split()[0] != "0":
        not_run("32-bit system calls outside the box", "this kernel has none")


def test_landlock_leaves_what_was_named_and_nothing_else(place: Place, tier: Callable[[str, bool], bool]) -> None:
    if not tier("landlock", kernel.landlock_abi() >= 3):
        return
    folder = place.folder
    (folder / "secret").write_text("canary", encoding="utf-8")
    (folder / "secret").chmod(0o666)
    (folder / "work").mkdir(mode=0o777)
    (folder / "work").chmod(0o777)
    code = f"""
    def attempt(do):
        try:
            do()
            return "ok"
        except OSError as error:
            return errno.errorcode[error.errno]
    os.chdir("/")
    folder = {str(folder)!r}
    print(
        attempt(lambda: open(folder + "/secret").read()),
        attempt(lambda: os.truncate(folder + "/secret", 3)),
        attempt(lambda: os.listdir("/etc")),
        attempt(lambda: open("/usr/bin/env", "rb").read(1)),
        attempt(lambda: open(folder + "/work/new", "w").write("x")),
        attempt(lambda: os.rename(folder + "/work/new", folder + "/out")),
        attempt(lambda: os.link(folder + "/secret", folder + "/work/link")),
        attempt(lambda: os.kill(int(os.environ["VICTIM"]), 0)),
    )
    """
    box = Landlock(read=("/usr", "/lib", "/lib64", "/nowhere"), write=(str(folder / "work"), "/dev/null"))
    inside = place.run(code, landlock=box)[0].split()
    assert (folder / "secret").read_text(encoding="utf-8") == "canary"
    assert inside[:3] == ["EACCES"] * 3
    assert inside[3:5] == ["ok", "ok"]
    assert set(inside[5:7]) <= {"EACCES", "EXDEV", "EPERM"}
    assert inside[7] == ("EPERM" if kernel.landlock_abi() >= 6 else "ok")
    outside = place.run(code)[0].split()
    assert outside[:6] == ["ok"] * 6 and outside[7] == "ok"


@pytest.fixture
def tier(not_run: Callable[[str, str], None]) -> Callable[[str, bool], bool]:
    """tier(name, there): whether to go on; what is missing is said at the end, or fails when CI asked for it."""

    def decide(name: str, there: bool) -> bool:
        if not there:
            if name in os.environ.get("REQUIRE_TIERS", "").split(","):
                pytest.fail(f"REQUIRE_TIERS names {name}, and it is not available here")
            not_run(name, "not available on this machine")
        return there

    return decide
