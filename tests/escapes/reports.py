"""Every tier's story is told in a process of its own, several at a time, and only once for all tests.

As root, a tier is told twice: by root, who has scripts run as another user, and by that user, for whom they run as
itself, as they do for most people. Whoever is not root tells it once.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import prowess
from escapes.cases import TIERS
from escapes.scene import ORDINARY, PYTHON
from escapes.tiers import ENGINE
from prowess.workspace.isolation.bwrap import find_trusted

TESTS = Path(__file__).resolve().parent.parent
WAIT_S = 900
AT_ONCE = 4
ENGINE_FOLDER = "ESCAPES_DOCKER_FOLDER"
_ONE_ENGINE = threading.Lock()
FIRST_UID = ORDINARY + 10
ROOT = os.geteuid() == 0
_LIBRARIES = [str(Path(module.__file__ or "").resolve().parents[1]) for module in (prowess, yaml)]


class Report(NamedTuple):
    """`by_user` when whoever told it is whom scripts run as."""

    tier: str
    by_user: bool
    told: dict[str, Any]

    @property
    def missing(self) -> str | None:
        """Why there is nothing to read."""
        return self.told.get("unavailable") or self.told.get("failed")


class Telling(NamedTuple):
    tier: str
    by_user: bool = False
    quick: bool = False
    variant: str = ""  # of the tier

    def told(self, uid: int, env: dict[str, str]) -> Report:
        began = time.monotonic()
        report = self._told(uid, {**env, "ESCAPES_UID": str(uid)})
        report.told["took_s"] = time.monotonic() - began
        return report

    def _told(self, uid: int, env: dict[str, str]) -> Report:
        command, more = [sys.executable, "-B"], {}
        if self.tier == "docker":
            with _ONE_ENGINE:
                engine = _start_engine(env[ENGINE_FOLDER])
            if not engine.startswith("unix://"):
                return self._report({"unavailable": engine})
            env = {**env, ENGINE: engine}
        if self.by_user and ROOT:
            python = find_python()
            if python is None:
                return self._report({"unavailable": f"there is no Python that user {ORDINARY} can execute"})
            command, more = [python, "-B"], {"user": uid, "group": uid, "extra_groups": []}
        elif ROOT:
            command = [find_trusted("unshare") or "unshare", "-m", "--propagation", "private", "--", *command]
        command += ["-m", "escapes.drive", self.tier + self.variant, *(["quick"] if self.quick else [])]
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, timeout=WAIT_S, **more)
        try:
            return self._report(json.loads(done.stdout))
        except ValueError:
            return self._report({"failed": f"{done.returncode}: {done.stderr.decode('utf-8', 'replace')[-3000:]}"})

    def _report(self, told: dict[str, Any]) -> Report:
        return Report(self.tier, self.by_user, told)


def tell_all() -> list[Report]:
    """All of them, those that take longest first."""
    if ROOT:
        tellings = [Telling(tier) for tier in ("docker", "control", "local", "bwrap", "landlock")]
        tellings += [Telling("docker", variant="-tar")]
        tellings += [Telling(tier, by_user=True, quick=True) for tier in ("local", "bwrap", "landlock")]
        tellings += [Telling("root")]
    else:
        tellings = [Telling(tier, by_user=True) for tier in ("control", *TIERS)]
    folder = tempfile.mkdtemp(prefix="prowess-escapes-")
    os.chmod(folder, 0o755)
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": folder,
        "PYTHONPATH": os.pathsep.join([*_LIBRARIES, str(TESTS)]),
        "SETUID_ID": _setuid_id(folder),
        ENGINE_FOLDER: f"{folder}/d",
    }
    try:
        # As root each has a user of its own. Those of one user would take processes from each other: they take turns.
        with ThreadPoolExecutor(AT_ONCE if ROOT else 1) as pool:
            return list(pool.map(lambda telling, uid: telling.told(uid, env), tellings, itertools.count(FIRST_UID)))
    finally:
        _stop_engine(f"{folder}/d")
        shutil.rmtree(folder, ignore_errors=True)


def find_python() -> str | None:
    """One that the other user can execute, and that finds what we have found."""
    for path in dict.fromkeys((sys.executable, PYTHON)):
        command = [path, "-c", "import escapes, prowess, yaml"]
        env = {"PYTHONPATH": os.pathsep.join([*_LIBRARIES, str(TESTS)])}
        user: dict[str, Any] = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []} if ROOT else {}
        try:
            if subprocess.run(command, env=env, cwd="/", capture_output=True, **user).returncode == 0:
                return path
        except OSError:
            continue
    return None


def _setuid_id(folder: str) -> str:
    """A setuid program of root's that tells nothing but who it runs as; plain where nobody is root."""
    path = os.path.join(folder, "bin", "id")
    os.mkdir(os.path.dirname(path), 0o755)
    shutil.copy("/usr/bin/id", path)
    os.chmod(path, 0o4755 if ROOT else 0o755)
    return path


def _start_engine(folder: str) -> str:
    """The address of a container engine of our own, with our image in it; or why there is none."""
    if not ROOT:
        return "a container engine of its own needs root"
    if shutil.which("dockerd") is None:
        return "there is no dockerd here"
    try:
        import docker

        from prowess.workspace.container.image import build_image
    except ModuleNotFoundError as error:
        return str(error)
    script = str(TESTS.parent / "tools" / "docker.sh")
    started = subprocess.run(["bash", script, "start", folder], capture_output=True, text=True)
    if started.returncode != 0:
        return started.stderr.strip()
    address = started.stdout.strip()
    client = docker.DockerClient(base_url=address)
    try:
        build_image(client, offline=True)
    finally:
        client.close()
    return address


def _stop_engine(folder: str) -> None:
    if os.path.isdir(folder):
        subprocess.run(["bash", str(TESTS.parent / "tools" / "docker.sh"), "stop", folder], capture_output=True)
