"""Files: what is not the workspace is neither read nor changed. Cases 1 to 8."""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import subprocess

from harness import AT_FDCWD, O_PATH, all_of, attempt, call, checked, first, libc, read, write


def reading(name, key):
    attempt(name)(lambda task: read(task[key]))


reading("read-home", "credentials")
reading("read-shadow", "shadow")
reading("read-other-workspace", "other_work")
reading("read-other-input", "other_input")
reading("read-meta", "meta")
reading("read-dev-shm", "dev_shm")


@attempt("read-etc-passwd")
def read_etc_passwd(task):
    return hashlib.sha256(read("/etc/passwd").encode()).hexdigest()


@attempt("list-home")
def list_home(task):
    return os.listdir(task["home"])


@attempt("list-host-tmp")
def list_host_tmp(task):
    return os.listdir(task["host_tmp"])


@attempt("list-other-workspaces")
def list_other_workspaces(task):
    return os.listdir(os.path.dirname(task["meta"]))


@attempt("stat-home")
def stat_home(task):
    return os.stat(task["credentials"]).st_size


@attempt("watch-home")
def watch_home(task):
    """The kernel tells names of files in a folder that is watched, whenever somebody touches one: here the host does,
    as soon as it sees that we watch."""
    fd = call("inotify_init1", os.O_NONBLOCK)
    call("inotify_add_watch", fd, ctypes.c_char_p(task["home"].encode()), 0x3BB)
    return "watching"


@attempt("host-name")
def host_name(task):
    return os.uname().nodename


@attempt("kernel-command-line")
def kernel_command_line(task):
    return read("/proc/cmdline")


@attempt("mount-table")
def mount_table(task):
    return first(
        lambda path=path: read(path)
        for path in ("/proc/self/mountinfo", "/proc/mounts", f"/proc/{os.getppid()}/mountinfo", "/proc/1/mounts")
    )


@attempt("list-mounts")
def list_mounts(task):
    """All below the root, by number, with no /proc at all."""
    asked = struct.pack("IIQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0)
    return call("listmount", asked, ctypes.create_string_buffer(8 * 256), 256, 0)


# --- the skill's own files --------------------------------------------------------------------------------------------


def own(task, name):
    """A file of the skill, after the first thing that anybody would try with it."""
    folder = os.path.join(os.environ["SKILL_DIR"], "assets")
    for path, mode in ((folder, 0o755), (os.path.join(folder, name), 0o644 if name else 0o755)):
        first([lambda path=path, mode=mode: os.chmod(path, mode), lambda: None])
    return os.path.join(folder, name)


@attempt("skill-new")
def skill_new(task):
    first(
        lambda folder=folder: write(os.path.join(own(task, ""), "..", folder, "planted"), "x")
        for folder in ("", "assets", "scripts")
    )


@attempt("skill-modify")
def skill_modify(task):
    write(own(task, "modify"), "changed", os.O_WRONLY)


@attempt("skill-truncate")
def skill_truncate(task):
    os.truncate(own(task, "truncate"), 0)


@attempt("skill-unlink")
def skill_unlink(task):
    os.unlink(own(task, "unlink"))


@attempt("skill-rename")
def skill_rename(task):
    os.rename(own(task, "rename"), own(task, "renamed"))


@attempt("skill-chmod")
def skill_chmod(task):
    os.chmod(own(task, "chmod"), 0o766)


@attempt("skill-replace")
def skill_replace(task):
    """The whole tree is put aside, and another in its place; and back, for those that come after."""
    mine = os.environ["SKILL_DIR"]
    os.rename(mine, mine + ".aside")
    os.mkdir(mine)
    os.rmdir(mine)
    os.rename(mine + ".aside", mine)


@attempt("skill-source")
def skill_source(task):
    write(os.path.join(task["source"], "SKILL.md"), "changed", os.O_WRONLY | os.O_TRUNC)


@attempt("skill-published")
def skill_published(task):
    path = os.path.join(task["published"], "assets", "published")
    first([lambda: os.chmod(path, 0o644), lambda: None])
    write(path, "changed", os.O_WRONLY | os.O_TRUNC)


@attempt("skill-other")
def skill_other(task):
    """Only the named skill's tree is visible to a run; this one was staged in the same workspace."""
    return read(os.path.join(os.environ["SKILLS_DIR"], task["other_skill"], "secret.txt"))


# --- the host's files -------------------------------------------------------------------------------------------------


@attempt("write-host-tmp")
def write_host_tmp(task):
    write(task["new_in_tmp"], "x")


@attempt("write-home")
def write_home(task):
    write(os.path.join(task["home"], ".bashrc"), "echo owned\n", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@attempt("write-dev-shm")
def write_dev_shm(task):
    write(task["new_in_shm"], "x")


@attempt("write-outside")
def write_outside(task):
    write(os.path.join(task["outside"], "new"), "x")


@attempt("write-other-workspace")
def write_other_workspace(task):
    write(os.path.join(os.path.dirname(task["other_work"]), "planted"), "x")


@attempt("truncate-outside")
def truncate_outside(task):
    os.truncate(os.path.join(task["outside"], "truncate"), 0)


@attempt("unlink-outside")
def unlink_outside(task):
    os.unlink(os.path.join(task["outside"], "unlink"))


@attempt("rename-outside")
def rename_outside(task):
    """Out of the workspace, over a file of the host."""
    mine = os.path.join(os.environ["WORK_DIR"], "mine")
    write(mine, "mine")
    os.rename(mine, os.path.join(task["outside"], "rename"))


@attempt("take-outside")
def take_outside(task):
    os.rename(os.path.join(task["outside"], "take"), os.path.join(os.environ["WORK_DIR"], "taken"))


@attempt("mkdir-outside")
def mkdir_outside(task):
    os.mkdir(os.path.join(task["outside"], "folder"))


@attempt("chmod-outside")
def chmod_outside(task):
    os.chmod(os.path.join(task["outside"], "chmod"), 0o777)


@attempt("utime-outside")
def utime_outside(task):
    os.utime(os.path.join(task["outside"], "utime"), (1, 1))


@attempt("xattr-outside")
def xattr_outside(task):
    os.setxattr(os.path.join(task["outside"], "xattr"), "user.planted", b"x")


# --- links and other ways round ---------------------------------------------------------------------------------------


@attempt("symlink-read")
def symlink_read(task):
    link = os.path.join(os.environ["WORK_DIR"], "link-to-secret")
    os.symlink(task["credentials"], link)
    return read(link)


@attempt("symlink-write")
def symlink_write(task):
    link = os.path.join(os.environ["WORK_DIR"], "link-to-outside")
    os.symlink(os.path.join(task["outside"], "by-link"), link)
    write(link, "x")


@attempt("symlink-lead")
def symlink_lead(task):
    """Where the skill's out/ leads: somewhere else from now on."""
    lead = os.path.join(os.environ["SKILL_DIR"], "out")
    first([lambda: os.chmod(os.environ["SKILL_DIR"], 0o755), lambda: None])
    os.rename(lead, lead + ".aside")
    os.symlink(task["outside"], lead)
    write(os.path.join(lead, "by-lead"), "x")


@attempt("hardlink")
def hardlink(task):
    os.link(task["credentials"], os.path.join(os.environ["WORK_DIR"], "hard"))


@attempt("proc-1-root")
def proc_1_root(task):
    return read("/proc/1/root" + task["credentials"])


@attempt("proc-ppid-root")
def proc_ppid_root(task):
    pid, found = os.getppid(), []
    while pid > 1:  # up to whoever started us
        found.append(pid)
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return first(lambda pid=pid: read(f"/proc/{pid}/root{task['credentials']}") for pid in found)


@attempt("proc-any-root")
def proc_any_root(task):
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return all_of(lambda pid=pid: read(f"/proc/{pid}/root{task['credentials']}") for pid in pids)


@attempt("proc-any-cwd")
def proc_any_cwd(task):
    """The victim stands in the home folder."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    rel = os.path.relpath(task["credentials"], task["home"])
    return all_of(lambda pid=pid: read(f"/proc/{pid}/cwd/{rel}") for pid in pids)


@attempt("proc-any-fd")
def proc_any_fd(task):
    """The victim holds the secret open."""
    pids = [name for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())]
    ways = [f"/proc/{pid}/fd/{task['victim_fd']}" for pid in pids]
    return all_of(lambda way=way: read(way, 200) for way in ways)


@attempt("exe-rewrite")
def exe_rewrite(task):
    """A program of the host that we may execute, kept by descriptor while it runs and written to once it has ended."""
    program = subprocess.Popen([task["tool"], "600"], stdin=subprocess.DEVNULL)
    held = os.open(f"/proc/{program.pid}/exe", O_PATH)
    program.kill()
    program.wait()
    write(f"/proc/self/fd/{held}", "owned", os.O_WRONLY)


@attempt("dot-dot")
def dot_dot(task):
    up = "../" * 40
    return first(
        lambda base=base: read(os.path.join(base, up) + task["credentials"].lstrip("/"))
        for base in (os.getcwd(), os.environ["WORKSPACE_DIR"], os.environ["SKILL_DIR"] + "/out", "/proc/self/cwd")
    )


@attempt("dot-dot-by-descriptor")
def dot_dot_by_descriptor(task):
    fd = os.open(os.environ["WORK_DIR"], O_PATH | os.O_DIRECTORY)
    for _ in range(40):
        fd = os.open("..", O_PATH | os.O_DIRECTORY, dir_fd=fd)
    inner = os.open(task["credentials"].lstrip("/"), os.O_RDONLY, dir_fd=fd)
    return os.read(inner, 1 << 16).decode()


@attempt("rename-mount-point")
def rename_mount_point(task):
    """A folder that was moved away while we stand in it is above everything that was bound below it."""
    work = os.environ["WORK_DIR"]
    os.chdir(work)
    os.rename(work, os.path.join(os.environ["WORKSPACE_DIR"], "moved"))
    try:
        return read("../../../../../../../../.." + task["credentials"])
    finally:
        first([lambda: os.rename(os.path.join(os.environ["WORKSPACE_DIR"], "moved"), work), lambda: None])


@attempt("exchange-mount-point")
def exchange_mount_point(task):
    """work/ becomes a link to the host's folder, in one step, for whoever comes next; put back at once."""
    top = os.environ["WORKSPACE_DIR"]
    link = os.path.join(os.environ["OUTPUT_DIR"], "to-exchange")
    os.symlink(task["outside"], link)
    swap = (AT_FDCWD, link.encode(), AT_FDCWD, os.path.join(top, "work").encode(), 2)  # RENAME_EXCHANGE
    checked(libc.renameat2(*swap))
    checked(libc.renameat2(*swap))
