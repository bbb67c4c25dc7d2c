"""A PostgreSQL of the tests' own: as an ordinary user, on a socket in a folder of its own, ended by its own process.

Where there is none it is said that nothing was run, and REQUIRE_TIERS=postgres makes that a failure.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from guard import GUARD_S

FAST = ("fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=40", "shared_buffers=16MB")


class Server:
    """`stop` and `start` it at will; `url(name)` is of a database that is made at once."""

    def __init__(self, programs: str, folder: str) -> None:
        self.folder = folder
        self._programs, self._data = programs, os.path.join(folder, "data")
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        os.chmod(folder, 0o755)
        self._as: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:  # whom initdb refuses
            user = _somebody()
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def make(self) -> None:
        options = ["-U", "app", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        command = [f"{self._programs}/initdb", "-D", self._data, *options]
        subprocess.run(command, check=True, capture_output=True, **self._as)

    def start(self) -> None:
        command = [f"{self._programs}/postgres", "-D", self._data, "-k", self.folder]
        for setting in FAST:
            command += ["-c", setting]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
        until = time.monotonic() + GUARD_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, self._said()
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is a fast shutdown, SIGQUIT an immediate one, as in a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(GUARD_S)
            self._process = None

    def url(self) -> str:
        self._databases += 1
        name = f"test{self._databases}"
        self.do(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def url_of(self, name: str, *, host: str | None = None) -> str:
        return f"postgresql://app@/{name}?host={host or self.folder}"

    def do(self, statement: str, *, name: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(self.url_of(name), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=GUARD_S).close()
        except psycopg.OperationalError:
            return False
        return True

    def _said(self) -> str:
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]


@contextmanager
def running_server() -> Iterator[Server]:
    programs = find_programs()
    if programs is None:
        why = "PostgreSQL (initdb, postgres) or psycopg is not installed"
        if "postgres" in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail(f"REQUIRE_TIERS names postgres: {why}")
        pytest.skip(f"{why}: make system, as root")
    folder = tempfile.mkdtemp(prefix="prowess-pg-")  # short, because a socket's path must be
    server = Server(programs, folder)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def find_programs() -> str | None:
    """Debian keeps them off the PATH. The newest of several."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return None
    found = shutil.which("initdb")
    folders = [os.path.dirname(os.path.realpath(found))] if found else []
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=_version, reverse=True)
    return next((folder for folder in folders if os.access(os.path.join(folder, "postgres"), os.X_OK)), None)


def _version(folder: str) -> float:
    try:
        return float(folder.split("/")[-2])
    except ValueError:
        return 0.0


def _somebody() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("There is no user but root to run PostgreSQL.")
