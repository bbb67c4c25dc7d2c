"""Files that are more than files: set-id bits, devices, the kernel's own settings. Cases 9 to 11, and 22."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from harness import AT_FDCWD, attempt, call, checked, first, libc, unless_refused, write

# --- files that carry a privilege, and devices ------------------------------------------------------------------------


def fresh(name):
    folder = os.path.join(os.environ["WORK_DIR"], "set-id")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def made(name):
    path = fresh(name)
    write(path, "")
    return path


SETUID = stat.S_ISUID | 0o755


@attempt("setuid-chmod")
def setuid_chmod(task):
    os.chmod(made("setuid-chmod"), SETUID)


@attempt("setgid-chmod")
def setgid_chmod(task):
    os.chmod(made("setgid-chmod"), stat.S_ISGID | 0o755)


@attempt("setgid-folder")
def setgid_folder(task):
    os.mkdir(fresh("setgid-folder"))
    os.chmod(fresh("setgid-folder"), stat.S_ISGID | 0o777)


@attempt("setuid-fchmod")
def setuid_fchmod(task):
    fd = os.open(made("setuid-fchmod"), os.O_WRONLY)
    os.fchmod(fd, SETUID)


@attempt("setuid-fchmodat2")
def setuid_fchmodat2(task):
    call("fchmodat2", AT_FDCWD, made("setuid-fchmodat2").encode(), SETUID, 0)


@attempt("setuid-open")
def setuid_open(task):
    os.close(os.open(fresh("setuid-open"), os.O_CREAT | os.O_WRONLY, SETUID))


@attempt("setuid-open-old")
def setuid_open_old(task):
    call("open", fresh("setuid-open-old").encode(), os.O_CREAT | os.O_WRONLY, SETUID)


@attempt("setuid-chmod-old")
def setuid_chmod_old(task):
    call("chmod", made("setuid-chmod-old").encode(), SETUID)


@attempt("setuid-fchmodat")
def setuid_fchmodat(task):
    call("fchmodat", AT_FDCWD, made("setuid-fchmodat").encode(), SETUID)


@attempt("setuid-mknod-old")
def setuid_mknod_old(task):
    call("mknod", fresh("setuid-mknod-old").encode(), stat.S_IFREG | SETUID, 0)


@attempt("setuid-creat")
def setuid_creat(task):
    call("creat", fresh("setuid-creat").encode(), SETUID)


@attempt("setuid-openat2")
def setuid_openat2(task):
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, SETUID, 0)
    call("openat2", AT_FDCWD, fresh("setuid-openat2").encode(), how, len(how))


@attempt("setuid-tmpfile")
def setuid_tmpfile(task):
    fd = os.open(os.path.dirname(fresh("x")), os.O_TMPFILE | os.O_RDWR, SETUID)
    here = b"/proc/self/fd/%d" % fd
    checked(libc.linkat(AT_FDCWD, here, AT_FDCWD, fresh("setuid-tmpfile").encode(), 0x400))  # AT_SYMLINK_FOLLOW


@attempt("setuid-mknod")
def setuid_mknod(task):
    os.mknod(fresh("setuid-mknod"), stat.S_IFREG | SETUID)


@attempt("file-capability")
def file_capability(task):
    """What setuid is for a user, this is for single privileges: cap_setuid+ep."""
    rights = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0)
    os.setxattr(made("file-capability"), "security.capability", rights)


@attempt("mknod-disk")
def mknod_disk(task):
    path = fresh("mknod-disk")
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(*task["disk"]))
    fd = os.open(path, os.O_RDONLY)
    os.close(fd)


@attempt("mknod-null")
def mknod_null(task):
    path = fresh("mknod-null")
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@attempt("open-disk")
def open_disk(task):
    names = [name for name in os.listdir("/dev") if stat.S_ISBLK(os.lstat("/dev/" + name).st_mode)]
    first(lambda name=name: os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK)) for name in names)


@attempt("open-kmsg")
def open_kmsg(task):
    first(
        lambda flags=flags: os.close(os.open("/dev/kmsg", flags | os.O_NONBLOCK))
        for flags in (os.O_RDONLY, os.O_WRONLY)
    )


@attempt("open-mem")
def open_mem(task):
    first(lambda name=name: os.close(os.open(name, os.O_RDONLY)) for name in ("/dev/mem", "/dev/port", "/proc/kcore"))


# --- the kernel's own files: written back as they are, or only opened -------------------------------------------------


@attempt("core-pattern")
def core_pattern(task):
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
        same = file.read()
    write("/proc/sys/kernel/core_pattern", same, os.O_WRONLY)


@attempt("sysrq")
def sysrq(task):
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))


@attempt("sysctl")
def sysctl(task):
    names = ["kernel/hostname", "kernel/modprobe", "kernel/panic", "vm/overcommit_memory", "net/ipv4/ip_forward"]
    first(lambda name=name: os.close(os.open("/proc/sys/" + name, os.O_WRONLY)) for name in names)


@attempt("sysfs")
def sysfs(task):
    names = ["kernel/mm/ksm/run", "kernel/uevent_helper", "power/state", "module/kernel/parameters/panic"]
    first(lambda name=name: os.close(os.open("/sys/" + name, os.O_WRONLY)) for name in names)


@attempt("sysfs-visible")
def sysfs_visible(task):
    return len(os.listdir("/sys/kernel"))


@attempt("cgroup")
def cgroup(task):
    folders = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.count("/") < 6]
    first(lambda folder=folder: os.mkdir(os.path.join(folder, task["cgroup"])) for folder in folders)


@attempt("oom-score")
def oom_score(task):
    """Somebody else shall be killed first."""
    fd = os.open(f"/proc/{task['victim']}/oom_score_adj", os.O_WRONLY)
    os.write(fd, b"900")


@attempt("open-by-handle")
def open_by_handle(task):
    """A file by its number instead of its path, which asks nobody on the way."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + b"\0" * 128)
    mount = ctypes.c_int()
    call("name_to_handle_at", AT_FDCWD, os.environ["WORK_DIR"].encode(), handle, ctypes.byref(mount), 0)
    fd = os.open(os.environ["WORK_DIR"], os.O_RDONLY)
    call("open_by_handle_at", fd, handle, os.O_RDONLY)


@attempt("chroot")
def chroot(task):
    call("chroot", os.environ["WORK_DIR"].encode())


@attempt("pivot-root")
def pivot_root(task):
    unless_refused(lambda: call("pivot_root", b"/no-such-folder-a", b"/no-such-folder-b"))


@attempt("owner")
def owner(task):
    """Whom the host sees in what we make."""
    write(os.path.join(os.environ["WORK_DIR"], "owned"), "x")


@attempt("sysv-memory")
def sysv_memory(task):
    """Memory that a program of the same user shares by number."""
    number = call("shmget", task["shm_key"], 0, 0)
    libc.shmat.restype = ctypes.c_void_p
    at = libc.shmat(number, None, 0o10000)
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno() or errno.EINVAL, "shmat")
    return ctypes.string_at(at, 64).rstrip(b"\0").decode()
