"""The kernel's own interfaces: what a script has no use for is refused, by whatever way it is asked. Cases 31 to 36.

Nothing here does harm where it succeeds: calls with consequences get arguments that the kernel turns down after it has
looked at who is asking.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import termios

from harness import AT_FDCWD, attempt, call, checked, first, libc, unless_refused

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME = (
    0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80,
)  # fmt: skip


def unsharing(name, flags):
    attempt(name)(lambda task: call("unshare", flags))


unsharing("unshare-user", NEWUSER)
unsharing("unshare-user-net", NEWUSER | NEWNET)
unsharing("unshare-user-pid", NEWUSER | NEWPID)
unsharing("unshare-user-ipc", NEWUSER | NEWIPC)
unsharing("unshare-user-uts", NEWUSER | NEWUTS)
unsharing("unshare-user-cgroup", NEWUSER | NEWCGROUP)
unsharing("unshare-user-time", NEWUSER | NEWTIME)
unsharing("unshare-mount", NEWNS)
unsharing("unshare-net", NEWNET)


@attempt("clone-user")
def clone_user(task):
    _child(call("clone", NEWUSER | 17, 0, 0, 0, 0))


@attempt("clone3-user")
def clone3_user(task):
    arguments = struct.pack("11Q", NEWUSER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    _child(call("clone3", arguments, len(arguments)))


def _child(pid):
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attempt("setns")
def setns(task):
    """Into the namespace where we are anyway; the right to is what is asked for."""
    call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)


@attempt("setns-other")
def setns_other(task):
    """Where the victim is, by its descriptor; all at once."""
    fd = call("pidfd_open", task["victim"], 0)
    call("setns", fd, NEWUTS)


@attempt("mount")
def mount(task):
    call("mount", b"none", os.environ["WORK_DIR"].encode(), b"tmpfs", 0, None)
    call("umount2", os.environ["WORK_DIR"].encode(), 2)


@attempt("mount-bind")
def mount_bind(task):
    work = os.environ["WORK_DIR"].encode()
    call("mount", b"/", work, None, 4096, None)
    call("umount2", work, 2)


@attempt("mount-in-namespace")
def mount_in_namespace(task):
    """The classic: root in a namespace of one's own is enough for the kernel's whole mount code."""
    call("unshare", NEWUSER | NEWNS)
    call("mount", b"none", os.environ["WORK_DIR"].encode(), b"tmpfs", 0, None)


@attempt("remount")
def remount(task):
    """What is read-only shall be writable again: MS_REMOUNT | MS_BIND."""
    first(
        lambda path=path: call("mount", None, path.encode(), None, 32 | 4096, None)
        for path in (os.environ["SKILL_DIR"], "/")
    )


@attempt("umount")
def umount(task):
    unless_refused(lambda: call("umount2", os.environ["WORK_DIR"].encode(), 0))


@attempt("fsopen")
def fsopen(task):
    fd = call("fsopen", b"tmpfs", 0)
    call("fsconfig", fd, 6, None, None, 0)
    call("fsmount", fd, 0, 0)


@attempt("open-tree")
def open_tree(task):
    call("open_tree", AT_FDCWD, b"/", 1)  # OPEN_TREE_CLONE


@attempt("move-mount")
def move_mount(task):
    unless_refused(lambda: call("move_mount", -1, b"", -1, b"", 0))


@attempt("mount-setattr")
def mount_setattr(task):
    attributes = struct.pack("QQQQ", 0, 1, 0, 0)  # not read-only any more
    call("mount_setattr", AT_FDCWD, b"/", 0, attributes, len(attributes))


@attempt("bpf")
def bpf(task):
    kind = struct.pack("IIIII", 2, 4, 4, 1, 0).ljust(64, b"\0")  # an array of one
    call("bpf", 0, kind, len(kind))


@attempt("perf")
def perf(task):
    what = struct.pack("IIQQQQQ", 1, 64, 1, 0, 0, 0, 0x60).ljust(
        64, b"\0"
    )  # software clock, of this process, not the kernel
    call("perf_event_open", what, 0, -1, -1, 0)


@attempt("userfaultfd")
def userfaultfd(task):
    call("userfaultfd", 1)  # UFFD_USER_MODE_ONLY


@attempt("io-uring")
def io_uring(task):
    call("io_uring_setup", 4, ctypes.create_string_buffer(120))


@attempt("keyctl")
def keyctl(task):
    call("keyctl", 0, -2, 1, 0, 0)


@attempt("request-key")
def request_key(task):
    unless_refused(lambda: call("request_key", b"user", b"prowess-no-such-key", None, 0))


@attempt("kexec")
def kexec(task):
    unless_refused(lambda: call("kexec_load", 0, 100000, None, 0))


@attempt("kexec-file")
def kexec_file(task):
    unless_refused(lambda: call("kexec_file_load", -1, -1, 0, None, 0))


@attempt("module-load")
def module_load(task):
    unless_refused(lambda: call("init_module", None, 0, b""))


@attempt("module-load-file")
def module_load_file(task):
    unless_refused(lambda: call("finit_module", -1, b"", 0))


@attempt("module-remove")
def module_remove(task):
    unless_refused(lambda: call("delete_module", b"prowess_no_such_module", 0o4000))


@attempt("reboot")
def reboot(task):
    """With a number that the kernel takes for a mistake, after it has looked at who is asking."""
    unless_refused(lambda: call("reboot", 0, 0, 0, None))


@attempt("swap")
def swap(task):
    unless_refused(lambda: call("swapon", b"/no-such-file", 0))


@attempt("kernel-log")
def kernel_log(task):
    call("syslog", 3, ctypes.create_string_buffer(64), 64)


@attempt("fanotify")
def fanotify(task):
    call("fanotify_init", 0x200, 0)  # FAN_REPORT_FID: for everybody, since 5.13


def machine_code(code):
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "x86_64 only")
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def int80(number, *arguments):
    """mov eax, ebx, ecx, edx; int 0x80; the callee saves rbx."""
    words = (*arguments, 0, 0, 0)[:3]
    code = b"\x53\xb8" + struct.pack("<I", number)
    for opcode, word in zip((b"\xbb", b"\xb9", b"\xba"), words, strict=True):
        code += opcode + struct.pack("<I", word & 0xFFFFFFFF)
    _kept, at = machine_code(code + b"\xcd\x80\x5b\xc3")
    return ctypes.CFUNCTYPE(ctypes.c_int)(at)()


@attempt("int80")
def int80_getpid(task):
    if int80(20) != os.getpid():
        raise OSError(errno.ENOSYS, "no 32-bit calls")


@attempt("x32")
def x32(task):
    libc.syscall.restype = ctypes.c_long
    if checked(libc.syscall(ctypes.c_long(0x40000000 | 39))) != os.getpid():
        raise OSError(errno.ENOSYS, "no x32 calls")


@attempt("personality-exec")
def personality_exec(task):
    call("personality", 0x0400000)  # READ_IMPLIES_EXEC


@attempt("personality-no-randomize")
def personality_no_randomize(task):
    call("personality", 0x0040000)


# With a terminal of its own only: `only` names these.


@attempt("tty-type")
def tty_type(task):
    """Type into the terminal that controls us, as if a person had."""
    fd = os.open("/dev/tty", os.O_RDWR)
    fcntl.ioctl(fd, termios.TIOCSTI, b"Z")


@attempt("tty-paste")
def tty_paste(task):
    """TIOCLINUX: what was selected on a console. On any other terminal a kernel that heard it says ENOTTY."""
    fd = os.open("/dev/tty", os.O_RDWR)
    unless_refused(lambda: fcntl.ioctl(fd, 0x541C, b"\x03"))


@attempt("tty-forge")
def tty_forge(task):
    """On a terminal that a person looks at, and that is not ours."""
    fd = os.open(task["terminal"], os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    os.write(fd, task["forged"].encode())


@attempt("tty-keys")
def tty_keys(task):
    fd = os.open(task["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    return os.read(fd, 1 << 12).decode("utf-8", "replace")
