"""What the hostile skill is after, and the traps around it: secrets that nobody can guess, files, sockets, a victim."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import prowess
from prowess.core.values import SessionKey
from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import Tree, publish, remove_tree

# Who runs a skill's scripts when we are root. Stories that are told at the same time have a user each, because the
# kernel counts processes by user, and because a secret of another story is no secret of this one.
ORDINARY = int(os.environ.get("ESCAPES_UID", DEFAULT_UID))
HERE = Path(__file__).resolve().parent
PYTHON = find_trusted("python3") or sys.executable  # one that anybody can execute
SKILL, NEIGHBOUR = "hostile", "neighbour"
VICTIM_FD, INHERITED_FD = 77, 87
ASSETS = ("modify", "truncate", "unlink", "rename", "chmod", "published")
TOUCHED = ("truncate", "unlink", "rename", "take", "chmod", "utime", "xattr")


class Scene:
    """One set of secrets and traps, for one run of the attempts. `uid`: whose they are; None: ours."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        self.nonce = uuid.uuid4().hex[:12]
        self.base = Path(tempfile.mkdtemp(prefix="prowess-escapes-"))
        self.base.chmod(0o711)
        self.home, self.outside, self.tools = (self._folder(name) for name in ("home", "outside", "tools"))
        self.dir = self._folder("state", mode=0o711, ours=True)
        self._opened: list[OpenPlace] = []
        self.sockets: dict[str, socket.socket] = {}
        self._write_secrets()
        self._listen()
        self.trees = {name: self._publish(name) for name in (SKILL, NEIGHBOUR)}
        self._start_victim()
        self._make_tools()

    def canary(self, what: str) -> str:
        return f"canary-{what}-{self.nonce}"

    def _folder(self, name: str, mode: int = 0o700, ours: bool = False) -> Path:
        path = self.base / name
        path.mkdir()
        path.chmod(mode)
        return path if ours else self._give(path)

    def _give(self, path: Path) -> Path:
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)
        return path

    def _file(self, path: Path, text: str, mode: int = 0o600) -> Path:
        path.parent.mkdir(exist_ok=True)
        self._give(path.parent)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return self._give(path)

    def _write_secrets(self) -> None:
        self.credentials = self._file(self.home / ".aws" / "credentials", self.canary("home"))
        self._file(self.home / self.canary("name"), "")
        self._file(self.home / ".bashrc", "# mine\n")
        self.shadow = self._file(self.base / "etc" / "shadow", self.canary("shadow"))
        for name in TOUCHED:
            self._file(self.outside / name, "as it was")
        self.tmp = Path("/tmp")
        self.new_in_tmp = self.tmp / f"prowess-escape-{self.nonce}"
        self.listed = self.tmp / self.canary("listed")
        self.listed.touch()
        shm = Path("/dev/shm") if os.path.isdir("/dev/shm") else self.tmp
        self.dev_shm = self._give_file(shm / f"prowess-escape-{self.nonce}-secret", self.canary("shm"))
        self.new_in_shm = shm / f"prowess-escape-{self.nonce}-new"
        self.source = self.base / "source"

    def _give_file(self, path: Path, text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return self._give(path)

    def _publish(self, name: str) -> Tree:
        folder = self.source / name
        files = {"SKILL.md": f"---\nname: {name}\ndescription: Gets out. Use when nobody looks.\n---\n\n# Steps\n"}
        if name == SKILL:
            files |= {f"assets/{each}": f"as it was: {each}" for each in ASSETS}
            for script in sorted((HERE / "inside").glob("*.py")):
                files[f"scripts/{script.name}"] = script.read_text(encoding="utf-8")
        else:
            files["secret.txt"] = self.canary("neighbour")
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for path in (self.source, folder, *folder.rglob("*")):
            self._give(path)
        return publish(prowess.load(prowess.discover(self.source), name), str(self.dir / "trees"))

    def _make_tools(self) -> None:
        """Programs of the host that every run may read and execute: one of the user's own, and one of root's."""
        self.tools.chmod(0o755)
        self.tool, self.setuid_id = self.tools / "tool", self.tools / "id"
        shutil.copy("/bin/sleep", self.tool)
        self._give(self.tool)
        self.tool.chmod(0o755)
        self.tool_before = self.tool.read_bytes()
        if os.geteuid() == 0:
            shutil.copy("/usr/bin/id", self.setuid_id)
            self.setuid_id.chmod(0o4755)
        elif "SETUID_ID" in os.environ:  # somebody who is root made one for us
            self.setuid_id = Path(os.environ["SETUID_ID"])
        self.readable = [
            str(self.tools),
            *([str(self.setuid_id.parent)] if self.setuid_id.parent != self.tools else []),
        ]
        self._file(self.tools / "readonly_package.py", "value = 7\n", 0o644)
        self.tools.chmod(0o755)

    def leak(self) -> None:
        """What a careless parent leaves lying about: a variable, and a descriptor."""
        os.environ["PROWESS_LEAK"] = self.canary("inherited")
        path = self.base / "descriptor"
        path.write_text(self.canary("descriptor"), encoding="utf-8")
        os.dup2(os.open(path, os.O_RDONLY), INHERITED_FD, inheritable=True)

    def _listen(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as asked:
            try:
                asked.connect(("198.51.100.7", 9))  # sends nothing
                self.address = asked.getsockname()[0]
            except OSError:
                self.address = ""
        inet, unix, stream, datagram = socket.AF_INET, socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
        wanted: list[tuple[str, int, int, Any]] = [
            ("tcp", inet, stream, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, stream, ("::1", 0)),
            ("udp", inet, datagram, ("127.0.0.1", 0)),
            ("unix", unix, stream, str(self.outside / "docker.sock")),
            ("unix_datagram", unix, datagram, str(self.outside / "log.sock")),
            ("abstract", unix, stream, f"\0prowess-escape-{self.nonce}"),
            ("abstract_datagram", unix, datagram, f"\0prowess-escape-{self.nonce}-datagram"),
        ]
        if self.address:
            wanted += [("tcp_host", inet, stream, (self.address, 0)), ("udp_host", inet, datagram, (self.address, 0))]
        for name, family, kind, address in wanted:
            try:
                ours = socket.socket(family, kind)
                ours.bind(address)
            except OSError:  # no IPv6, say: then its control cannot succeed, and that is said
                continue
            if kind == stream:
                ours.listen(64)
            ours.setblocking(False)
            self.sockets[name] = ours
        for name in ("docker.sock", "log.sock"):
            (self.outside / name).chmod(0o777)

    def _start_victim(self) -> None:
        self.shm_key, self.queue = int(self.nonce[:7], 16) + 1, f"prowess-{self.nonce}"
        task = {name: self.canary(name) for name in ("memory", "keyring", "sysv", "message")}
        task |= {"credentials": str(self.credentials), "victim_fd": VICTIM_FD, "nonce": f"prowess-{self.nonce}"}
        task |= {"shm_key": self.shm_key, "queue": self.queue}
        self.victim = subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", (HERE / "victim.py").read_text(encoding="utf-8"), self.canary("argv")],
            env={"TASK": json.dumps(task), "PROWESS_SECRET": self.canary("env")},
            cwd=self.home if self.uid is None else None,
            preexec_fn=None if self.uid is None else lambda: self._become(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.victim.stdout is not None
        self.facts: dict[str, int] = json.loads(self.victim.stdout.readline())

    def _become(self) -> None:
        assert self.uid is not None
        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.chdir(self.home)

    def open_place(self, session: str, *, uid: int | None = None, dir: str | None = None) -> Place:
        opened = OpenPlace(dir or str(self.dir), SessionKey(session=session), uid=uid)
        place = opened.__enter__()
        self._opened.append(opened)
        return place

    def close_places(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def other_place(self, place: Place) -> None:
        """Another session's workspace, with something in it, which is in use at the same time."""
        self.other_work = Path(place.root, "work", "theirs")
        self.other_input = Path(place.root, "work", "inputs", "theirs")
        for path, what in ((self.other_work, "other"), (self.other_input, "other-input")):
            path.write_text(self.canary(what), encoding="utf-8")
            path.chmod(0o600)
            place.own(str(path))
        self.other_meta = Path(place.path, "meta.json")

    def task(self, *, other_run: int) -> dict[str, Any]:
        ports = {
            name: ours.getsockname()[1]
            for name, ours in self.sockets.items()
            if ours.family in (socket.AF_INET, socket.AF_INET6)
        }
        root = os.stat("/")
        return {
            **dict.fromkeys(("tcp6", "tcp_host", "udp_host"), 9),
            **{name: f"prowess-escape-{self.nonce}{more}" for name, more in _ABSTRACT.items()},
            **ports,
            **self.facts,
            "address_of_host": self.address or "127.0.0.1",
            "credentials": str(self.credentials),
            "shadow": str(self.shadow),
            "home": str(self.home),
            "outside": str(self.outside),
            "host_tmp": str(self.tmp),
            "new_in_tmp": str(self.new_in_tmp),
            "dev_shm": str(self.dev_shm),
            "new_in_shm": str(self.new_in_shm),
            "source": str(self.source / SKILL),
            "published": self.trees[SKILL].path,
            "other_skill": NEIGHBOUR,
            "other_work": str(self.other_work),
            "other_input": str(self.other_input),
            "meta": str(self.other_meta),
            "other_run": other_run,
            "unix": str(self.outside / "docker.sock"),
            "unix_datagram": str(self.outside / "log.sock"),
            "tool": str(self.tool),
            "setuid_id": str(self.setuid_id),
            "disk": [os.major(root.st_dev), os.minor(root.st_dev)],
            "cgroup": f"prowess-escape-{self.nonce}",
            "victim_fd": VICTIM_FD,
            "shm_key": self.shm_key,
            "queue": self.queue,
        }

    def close(self) -> None:
        for ours in self.sockets.values():
            ours.close()
        self.close_places()
        self.victim.communicate()
        for path in (self.new_in_tmp, self.new_in_shm, self.dev_shm, self.listed):
            path.unlink(missing_ok=True)
        remove_tree(str(self.base))

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_ABSTRACT = {"abstract": "", "abstract_datagram": "-datagram"}
