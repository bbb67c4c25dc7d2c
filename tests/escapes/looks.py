"""What came of an attempt. The host's own look decides, wherever it can look.

A secret that was read is proven by its content, which nobody can guess; a file, a connection, a signal, a changed byte
is seen from here. Only what leaves no trace, such as an open socket, is taken from the report that comes from inside.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from escapes.scene import SKILL, Scene
from prowess.workspace.session_folder import Place

libc = ctypes.CDLL(None, use_errno=True)
Said = dict[str, dict[str, Any]]
SIGNALS = {  # as bits of SigPnd and ShdPnd
    "signal": 10,
    "signal-group": 12,
    "signal-thread": 28,
    "signal-by-descriptor": 23,
    "signal-queued": 35,
    "signal-by-pipe": 36,
}
_ARRIVE = (
    *("tcp-loopback", "tcp-loopback-6", "tcp-host-address", "udp-loopback", "udp-host-address", "dns", "mptcp"),
    *("fast-open", "uring-connect", "resolve-and-connect", "unix-abstract", "unix-abstract-datagram", "unix-path"),
    *("unix-path-datagram", "unix-by-link", "unix-pair-datagram", "unix-pair-raw"),
)
_SET_ID = (
    *("setuid-chmod", "setgid-chmod", "setgid-folder", "setuid-fchmod", "setuid-fchmodat2", "setuid-open"),
    *("setuid-creat", "setuid-openat2", "setuid-tmpfile", "setuid-mknod", "setuid-open-old", "setuid-chmod-old"),
    *("setuid-fchmodat", "setuid-mknod-old"),
)
_TOLD = {  # attempt -> the secret that proves it
    **dict.fromkeys(("read-home", "symlink-read", "dot-dot", "dot-dot-by-descriptor", "rename-mount-point"), "home"),
    **dict.fromkeys(("proc-1-root", "proc-ppid-root", "proc-any-root", "proc-any-cwd", "proc-any-fd"), "home"),
    **{"take-descriptor": "home", "read-shadow": "shadow", "read-other-workspace": "other"},
    **{"read-other-input": "other-input", "read-dev-shm": "shm", "list-home": "name", "list-host-tmp": "listed"},
    **{"skill-other": "neighbour", "environment": "inherited", "proc-environ": "env", "proc-cmdline": "argv"},
    **{"inherited-descriptor": "descriptor", "keyring": "keyring", "vm-read": "memory", "sysv-memory": "sysv"},
    **{"message-queue": "message", "other-run-environ": "other-run"},
}


class Looks:
    """Made before the attempts, because some of them show only by comparison."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.before = _state_of(scene.facts["victim"])

    def judge(self, place: Place, said: Said, other_run: int) -> Said:
        """For each attempt: did it get through, by whose word, and what was said inside."""
        work, skill = Path(place.root, "work"), Path(place.root, "skills", SKILL)
        arrived = self._arrived()
        pending, other_pending = _pending(self.scene.facts["victim"]), _pending(other_run)
        memory = self._memory_of_victim()
        seen, before = _state_of(self.scene.facts["victim"]), self.before
        looks: dict[str, Callable[[], bool]] = {
            **{name: (lambda name=name: name in arrived) for name in _ARRIVE},
            **{name: (lambda bit=bit: bool(pending >> (bit - 1) & 1)) for name, bit in SIGNALS.items()},
            **{name: (lambda name=name: _set_id(work / "set-id" / name)) for name in _SET_ID},
            "signal-other-run": lambda: bool(other_pending >> 9 & 1),
            "skill-new": lambda: any(path for tree in self._trees(skill) for path in Path(tree).rglob("planted")),
            "skill-modify": lambda: self._changed(skill, "modify"),
            "skill-truncate": lambda: self._changed(skill, "truncate"),
            "skill-unlink": lambda: self._changed(skill, "unlink"),
            "skill-rename": lambda: self._changed(skill, "rename"),
            "skill-published": lambda: self._changed(skill, "published"),
            "skill-chmod": lambda: any(_mode(Path(tree, "assets", "chmod")) == 0o766 for tree in self._trees(skill)),
            "skill-source": lambda: (self.scene.source / SKILL / "SKILL.md").read_text(encoding="utf-8") == "changed",
            "write-host-tmp": self.scene.new_in_tmp.exists,
            "write-dev-shm": self.scene.new_in_shm.exists,
            "write-home": lambda: "owned" in (self.scene.home / ".bashrc").read_text(encoding="utf-8"),
            "write-outside": (self.scene.outside / "new").exists,
            "write-other-workspace": (self.scene.other_work.parent / "planted").exists,
            "truncate-outside": lambda: (self.scene.outside / "truncate").stat().st_size == 0,
            "unlink-outside": lambda: not (self.scene.outside / "unlink").exists(),
            "rename-outside": lambda: (self.scene.outside / "rename").read_text(encoding="utf-8") == "mine",
            "take-outside": lambda: not (self.scene.outside / "take").exists(),
            "mkdir-outside": (self.scene.outside / "folder").exists,
            "chmod-outside": lambda: _mode(self.scene.outside / "chmod") == 0o777,
            "utime-outside": lambda: (self.scene.outside / "utime").stat().st_mtime == 1,
            "xattr-outside": lambda: "user.planted" in os.listxattr(self.scene.outside / "xattr"),
            "symlink-write": (self.scene.outside / "by-link").exists,
            "symlink-lead": (self.scene.outside / "by-lead").exists,
            "hardlink": lambda: self.scene.credentials.stat().st_nlink > 1,
            "exe-rewrite": lambda: self.scene.tool.read_bytes() != self.scene.tool_before,
            "mknod-disk": lambda: stat.S_ISBLK(_whole_mode(work / "set-id" / "mknod-disk")),
            "mknod-null": lambda: stat.S_ISCHR(_whole_mode(work / "set-id" / "mknod-null")),
            "file-capability": lambda: _has_capability(work / "set-id" / "file-capability"),
            "cgroup": self._made_cgroup,
            "owner": lambda: _owner(work / "owned") == 0,
            "ptrace": lambda: memory[0:8] == "ptrace!!",
            "vm-write": lambda: memory[8:16] == "vmwrite!",
            "proc-mem": lambda: memory[16:24] == "procmem!" or self._told(said, "proc-mem", "memory"),
            "limits-of-victim": lambda: seen["files"] != before["files"],
            "priority-of-victim": lambda: seen["nice"] != before["nice"],
            "processor-of-victim": lambda: seen["processors"] != before["processors"],
            "io-priority-of-victim": lambda: seen["io"] != before["io"],
            "oom-score": lambda: seen["oom"] != before["oom"],
        }
        return {name: self._judged(name, looks, said) for name in said}

    def _judged(self, name: str, looks: dict[str, Callable[[], bool]], said: Said) -> dict[str, Any]:
        answer = said[name]
        if answer["got"] == "mistake":
            through, by = None, "nobody"
        elif name in looks:
            through, by = looks[name](), "the host"
        elif name in _TOLD:
            through, by = self._told(said, name, _TOLD[name]), "a secret"
        elif name in _FACTS:
            through, by = answer["got"] == "ok" and _FACTS[name](self.scene, answer["value"]), "a fact"
        else:
            through, by = answer["got"] == "ok", "the inside"
        return {"through": through, "by": by, "said": json.dumps(answer)[:400]}

    def _told(self, said: Said, name: str, what: str) -> bool:
        return self.scene.canary(what) in json.dumps(said[name].get("value"))

    def _trees(self, skill: Path) -> list[str]:
        return [tree for tree in (str(skill), self.scene.trees[SKILL].path) if os.path.isdir(f"{tree}/assets")]

    def _changed(self, skill: Path, name: str) -> bool:
        def content(tree: str) -> str | None:
            path = Path(tree, "assets", name)
            return path.read_text(encoding="utf-8") if path.exists() else None

        return any(content(tree) != f"as it was: {name}" for tree in self._trees(skill))

    def _arrived(self) -> set[str]:
        found: set[str] = set()
        for ours in self.scene.sockets.values():
            while True:
                try:
                    if ours.type == socket.SOCK_DGRAM:
                        word = ours.recv(512)
                    else:
                        with ours.accept()[0] as connection:
                            connection.settimeout(1)
                            word = connection.recv(512)
                except (BlockingIOError, ConnectionError, TimeoutError):
                    break
                found.add("dns" if b"\x03dns" in word else word.decode("utf-8", "replace"))
        return found

    def _memory_of_victim(self) -> str:
        assert self.scene.victim.stdin is not None and self.scene.victim.stdout is not None
        self.scene.victim.stdin.write(b"\n")
        self.scene.victim.stdin.flush()
        return json.loads(self.scene.victim.stdout.readline())

    def _made_cgroup(self) -> bool:
        """Found and removed again."""
        made = [
            os.path.join(folder, name)
            for folder, names, _ in os.walk("/sys/fs/cgroup")
            for name in names
            if name == f"prowess-escape-{self.scene.nonce}"
        ]
        for path in made:
            os.rmdir(path)
        return bool(made)


_FACTS: dict[str, Callable[[Scene, Any], bool]] = {
    "open-descriptors": lambda scene, value: value != [],
    "read-etc-passwd": lambda scene, value: value == _digest("/etc/passwd"),
    "read-meta": lambda scene, value: "prowess.workspace" in value,
    "list-other-workspaces": lambda scene, value: "meta.json" in value,
    "stat-home": lambda scene, value: value == len(scene.canary("home")),
    "list-pids": lambda scene, value: scene.facts["victim"] in value,
    "guess-pid": lambda scene, value: value == (os.geteuid() if scene.uid is None else scene.uid),
    "host-name": lambda scene, value: value == os.uname().nodename,
    "kernel-command-line": lambda scene, value: value == Path("/proc/cmdline").read_text(encoding="utf-8"),
    "mount-table": lambda scene, value: scene.base.name in value or f" {_root_device()} " in value,
    "setuid-program": lambda scene, value: value == "0",
    "setuid-system-program": lambda scene, value: value == "0",
}


def _state_of(pid: int) -> dict[str, Any]:
    """What others could change about a process."""
    folder = Path("/proc", str(pid))
    limits = (folder / "limits").read_text(encoding="utf-8").splitlines()
    return {
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "files": next(line for line in limits if line.startswith("Max open files")),
        "processors": sorted(os.sched_getaffinity(pid)),
        "io": libc.syscall(31 if os.uname().machine == "aarch64" else 252, 1, pid),
        "oom": (folder / "oom_score_adj").read_text(encoding="utf-8"),
    }


def _root_device() -> str:
    """What is mounted at /, as a table of mounts calls it."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return next(line.split(" - ")[1].split()[1] for line in reversed(lines) if line.split()[4] == "/")


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _pending(pid: int) -> int:
    try:
        lines = Path("/proc", str(pid), "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return -1  # not even there any more: every signal got through
    thread, process = (int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
    return thread | process


def _whole_mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _mode(path: Path) -> int:
    return stat.S_IMODE(_whole_mode(path))


def _set_id(path: Path) -> bool:
    return bool(_whole_mode(path) & (stat.S_ISUID | stat.S_ISGID))


def _owner(path: Path) -> int | None:
    return path.lstat().st_uid if path.exists() else None


def _has_capability(path: Path) -> bool:
    return path.exists() and "security.capability" in os.listxattr(path)
