"""Servers of the providers' protocols that nobody here wrote: llmock (PyPI) and aimock (npm), on a loopback port."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llmock.testing import LLMockServer

from guard import GUARD_S

AIMOCK = "@copilotkit/aimock"
AIMOCK_VERSION = "1.43.0"


class Unavailable(Exception):
    """Why a server cannot be started here."""


@contextlib.contextmanager
def open_llmock() -> Iterator[LLMockServer]:
    with LLMockServer() as server:
        yield server


@contextlib.contextmanager
def open_aimock(fixtures: Sequence[dict[str, Any]], folder: Path) -> Iterator[str]:
    """The root of its addresses. `Unavailable` says why there is none."""
    program = _install_aimock()
    file = folder / "fixtures.json"
    file.write_text(json.dumps({"fixtures": list(fixtures)}), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["node", str(program), "-p", str(port), "-h", "127.0.0.1", "-f", str(file), "--strict"]
    env = os.environ | {"AIMOCK_STRICT_TURN_INDEX": "1"}
    with open(folder / "aimock.log", "wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        _wait(port, process, folder / "aimock.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(GUARD_S)


def _install_aimock() -> Path:
    """Once per version, below the user's cache. The home of a test is an empty one, so the password file is asked."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise Unavailable("node and npm are not installed")
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        raise Unavailable("this user has no entry in the password file, and so no home") from error
    folder = home / ".cache" / "prowess-tests" / f"aimock-{AIMOCK_VERSION}"
    package, whole = folder / "node_modules" / AIMOCK, folder / "node_modules" / ".package-lock.json"
    if not whole.exists():  # npm writes it last
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / "lock", "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it
                if not whole.exists():
                    _npm_install(folder, home)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"npm could not install {AIMOCK}: {error}") from error
    programs = json.loads((package / "package.json").read_text(encoding="utf-8"))["bin"]
    return package / (programs if isinstance(programs, str) else programs["llmock"])


def _npm_install(folder: Path, home: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    command += ["--fetch-retries=0"]  # else it waits for more than a minute where there is no network
    env = os.environ | {"HOME": str(home)}
    done = subprocess.run(
        [*command, f"{AIMOCK}@{AIMOCK_VERSION}"], capture_output=True, text=True, timeout=GUARD_S, env=env
    )
    if done.returncode != 0:
        raise Unavailable(f"npm could not install {AIMOCK}: {done.stderr.strip()[-300:]}")


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise AssertionError(f"aimock ended: {log.read_text(encoding='utf-8', errors='replace')[-1000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.05)  # there is no event to wait for: it is another program
    raise AssertionError("aimock did not start")
