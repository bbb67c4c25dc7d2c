"""Builds and finds environments: one per set of packages and interpreter, built once and shared by all runs.

No run changes an environment. Every user that runs start as can read it, and finding it needs no network. Code of a
package is never executed here, neither during installation nor later; only runs execute it.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Literal, NamedTuple

from prowess._internal.files import read_regular
from prowess.errors import WorkspaceError
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, NotStarted
from prowess.workspace.scripts import installers
from prowess.workspace.scripts.environment_store import (
    Attempt,
    find_added,
    is_granted,
    keep_added,
    keep_grant,
    mark_used,
    only_attempt,
    read_record,
    try_hold,
)
from prowess.workspace.scripts.installers import InstallerOutput, PythonTarget, environment_python
from prowess.workspace.scripts.pep723 import ScriptBlock, canonical_name, parse_version, python_fits

_VERSION_CODE = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_HAS_PIP_CODE = "import sys, importlib.util as u; sys.exit(u.find_spec('pip') is None)"
OnLine = Callable[[str], None]


class Built(NamedTuple):
    """A complete environment. `python` starts scripts in it; for a target it is "", and `path` belongs on PYTHONPATH.
    `resolved` lists all packages in it, as `name==version`."""

    key: str
    path: str
    python: str
    resolved: tuple[str, ...]
    note: str = ""

    @property
    def site(self) -> str:
        """Folder with the packages."""
        if self.python:
            return _site_packages(self.path)
        return self.path


class Environments:
    """All environments in `dir`. `environ` says where packages come from. `python` is our own interpreter, whose pip is
    used, so that the interpreters of scripts need none."""

    def __init__(
        self,
        dir: str,
        *,
        processes: Processes,
        environ: Mapping[str, str],
        python: str = sys.executable,
        installer: Literal["auto", "uv", "pip"] = "auto",
        timeout_s: float = 600.0,
    ) -> None:
        self._dir = dir
        self._processes = processes
        self._environ = environ
        self._python = python
        self._installer = installer
        self._timeout_s = timeout_s

    def find(self, block: ScriptBlock, python: str) -> Built | None:
        """Returns the environment for this block and interpreter if it was built before."""
        key, real = _interpreter_key(block, python)
        record = read_record(self._dir, key)
        if not record or record["digest"] != block.digest or record["made_for"] != real:
            return None
        inside = environment_python(os.path.join(self._dir, key, record["folder"]))
        if os.path.realpath(inside) != real:
            return None
        if record["interpreter"] != _fingerprint(real) and not _is_still(real, record["version"]):
            return None
        return self._built(key, record, inside)

    def find_target(self, block: ScriptBlock, *, version: str, machine: str, libc: str = "glibc-2.28") -> Built | None:
        target = _target(version, machine, libc)
        key = _key(block, target.tag)
        record = read_record(self._dir, key)
        if not record or record["digest"] != block.digest or record["made_for"] != target.tag:
            return None
        return self._built(key, record, "")

    def hold(self, built: Built, held: ExitStack) -> bool:
        """Keeps the environment from being removed until `held` is closed. False when it is gone, or another process
        has it locked at this moment."""
        fd = try_hold(self._dir, built.key, os.path.basename(built.path))
        if fd is None:
            return False
        held.callback(os.close, fd)
        return True

    def is_granted(self, built: Built, skill: str) -> bool:
        """True when a person allowed a skill with this digest to use it. Permission for one skill is not permission for
        another."""
        return is_granted(self._dir, built.key, skill)

    def keep_grant(self, built: Built, skill: str, added: Sequence[str] = ()) -> None:
        """Records that a skill may use it. `added` are packages that nobody declares: the skill's runs have them from
        now on."""
        keep_grant(self._dir, built.key, skill)
        if added:
            keep_added(self._dir, built.key, skill, added)

    def find_added(self, skill: str) -> tuple[str, ...]:
        return find_added(self._dir, skill)

    async def build(self, block: ScriptBlock, python: str, *, on_line: OnLine | None = None) -> Built:
        """Returns the environment for this block and interpreter, and builds it if needed. Raises `python-too-old` when
        the block needs another version, `dependencies-failed` when the build failed; then nothing is left of it."""
        found = self.find(block, python)
        if found is not None:
            return found
        version = await self.version(python)
        _check_version(block, version, python)
        key, real = _interpreter_key(block, python)
        until = time.monotonic() + self._timeout_s
        async with self._alone(key, until) as attempt:
            found = self.find(block, python)
            if found is not None:
                return found
            installer, steps = await self._environment_steps(python, attempt.folder, block.dependencies, until)
            await self._run(steps[0], until, on_line)
            before = _interpreter_of(attempt.folder)
            if block.dependencies:
                await self._run(steps[1], until, on_line)
            if _interpreter_of(attempt.folder) != before:
                raise _failed("A package replaced the environment's interpreter.", "Do not use it.")
            site = _site_packages(attempt.folder)
            if installer == "uv":  # pip does this itself. Not with the environment's own interpreter: see installers
                await self._run([python, "-I", "-S", "-m", "compileall", "-q", site], until, None, must=False)
            await _keep(attempt, block, site, made_for=real, version=version, installer=installer)
        return self._get(self.find(block, python))

    async def build_target(
        self, block: ScriptBlock, *, version: str, machine: str, libc: str = "glibc-2.28", on_line: OnLine | None = None
    ) -> Built:
        """Builds the packages for a Python elsewhere: a folder to mount there and put on PYTHONPATH."""
        found = self.find_target(block, version=version, machine=machine, libc=libc)
        if found is not None:
            return found
        target = _target(version, machine, libc)
        _check_version(block, version, f"the one for {machine}")
        until = time.monotonic() + self._timeout_s
        async with self._alone(_key(block, target.tag), until) as attempt:
            found = self.find_target(block, version=version, machine=machine, libc=libc)
            if found is not None:
                return found
            installer, step, note = await self._target_step(attempt.folder, target, block.dependencies, until)
            if block.dependencies:
                await self._run(step, until, on_line)
            folder = attempt.folder
            await _keep(attempt, block, folder, made_for=target.tag, version=version, installer=installer, note=note)
        return self._get(self.find_target(block, version=version, machine=machine, libc=libc))

    async def version(self, python: str) -> str:
        """Returns the version, such as `3.11.2`. Raises WorkspaceError `interpreter-missing` when `python` is no
        Python."""
        said: list[str] = []
        ask = [python, "-I", "-S", "-c", _VERSION_CODE]
        try:
            fine = await self._run(ask, time.monotonic() + 30, said.append, must=False)
        except NotStarted:
            fine = False
        if not fine or not said or not parse_version(said[-1]):
            message = f"'{python}' is no Python that can be started."
            raise WorkspaceError(message, op="dependencies", code="interpreter-missing")
        return said[-1]

    def _built(self, key: str, record: Mapping[str, object], python: str) -> Built:
        mark_used(self._dir, key)
        resolved = record["resolved"]
        assert isinstance(resolved, list)
        path = os.path.join(self._dir, key, str(record["folder"]))
        packages = tuple(map(str, resolved))
        note = str(record.get("note", ""))
        return Built(key=key, path=path, python=python, resolved=packages, note=note)

    def _get(self, built: Built | None) -> Built:
        if built is None:
            raise _failed("The new environment has disappeared.", f"Does something clean {self._dir}?", True)
        return built

    @asynccontextmanager
    async def _alone(self, key: str, until: float) -> AsyncIterator[Attempt]:
        try:
            async with only_attempt(self._dir, key, until) as attempt:
                yield attempt
        except TimeoutError as error:
            message = "Another process is still making or using the same environment."
            raise _failed(message, "Try again later.", True) from error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"The environment could not be made in {self._dir}: {reason}."
            raise _failed(message, "Name a folder that can be written to and has room.") from error

    async def _environment_steps(
        self, python: str, folder: str, dependencies: Sequence[str], until: float
    ) -> tuple[installers.Name, list[list[str]]]:
        uv = self._find_uv()
        if uv is not None:
            steps = installers.uv_environment(uv, python, folder, dependencies)
            return "uv", steps
        pip = await self._find_pip([self._python, python], until)
        steps = installers.pip_environment(pip, python, folder, dependencies)
        return "pip", steps

    async def _target_step(
        self, folder: str, target: PythonTarget, dependencies: Sequence[str], until: float
    ) -> tuple[installers.Name, list[str], str]:
        uv = self._find_uv()
        if uv is not None:
            return "uv", installers.uv_target(uv, self._python, folder, target, dependencies), ""
        pip = await self._find_pip([self._python], until)
        if not pip:
            raise _failed("There is neither uv nor pip.", "Install one of them for Prowess's own interpreter.")
        ours = await self.version(self._python)
        note = ""
        if parse_version(ours)[:2] != target.version[:2]:
            note = f"pip took conditions such as python_version as on Python {ours}; uv would not have."
        return "pip", installers.pip_target(pip, folder, target, dependencies), note

    def _find_uv(self) -> str | None:
        if self._installer == "pip":
            return None
        if self._installer == "auto" and installers.pip_knows_better(self._environ):
            return None
        uv = installers.find_uv(self._environ, self._python)
        if uv is None and self._installer == "uv":
            raise _failed("There is no uv.", "Install it, or leave the choice to Prowess.")
        return uv

    async def _find_pip(self, pythons: Sequence[str], until: float) -> list[str]:
        for python in dict.fromkeys(pythons):
            ask = [python, "-I", "-c", _HAS_PIP_CODE]
            if await self._run(ask, until, None, must=False):
                return [python, "-I", "-m", "pip"]
        return []

    async def _run(self, argv: Sequence[str], until: float, on_line: OnLine | None, *, must: bool = True) -> bool:
        """Runs a command. True when it succeeded; if it fails and `must` is set, raises `dependencies-failed` with its
        last output."""
        lines = InstallerOutput(on_line)
        command = Command(
            argv=argv,
            cwd="/",  # no file here can be mistaken for a setting or a package
            env=installers.installer_environment(self._environ),
            timeout_s=max(0.1, until - time.monotonic()),
        )
        ended = await self._processes.run(command, lines.take, lines.take)
        lines.close()
        if ended.why == "exit" and ended.exit_code == 0:
            return True
        if not must:
            return False
        if ended.timed_out:
            raise _failed(f"Installing took longer than {self._timeout_s:g} s.", "Try again, or allow more time.", True)
        hint, retryable = installers.explain_installer(lines.kept)
        said = "\n".join(lines.kept[-12:])
        raise _failed(f"The dependencies could not be installed:\n{said}\n", hint, retryable)


async def _keep(
    attempt: Attempt,
    block: ScriptBlock,
    site: str,
    *,
    made_for: str,
    version: str,
    installer: installers.Name,
    note: str = "",
) -> None:
    record = {
        "digest": block.digest,
        "dependencies": block.dependencies,
        "requires_python": block.requires_python,
        "made_for": made_for,
        "version": version,
        "interpreter": _fingerprint(made_for),
        "resolved": _resolved(site),
        "installer": installer,
        "note": note,
    }
    await asyncio.to_thread(attempt.keep, record)


def _interpreter_key(block: ScriptBlock, python: str) -> tuple[str, str]:
    """Returns (key, real path of the interpreter). Several names of one interpreter share an environment."""
    real = os.path.realpath(python)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()
    return _key(block, digest[:8]), real


def _key(block: ScriptBlock, made_for: str) -> str:
    digest = block.digest.removeprefix("sha256:")
    return f"{digest[:16]}-{made_for}"


def _target(version: str, machine: str, libc: str) -> PythonTarget:
    numbers = parse_version(version)
    machine_fits = re.fullmatch(r"\w{1,20}", machine)
    libc_fits = re.fullmatch(r"(?:glibc|musl)-\d+\.\d+", libc)
    if len(numbers) < 2 or not machine_fits or not libc_fits:
        message = f"There are no packages for Python '{version}' on '{machine}' with '{libc}'."
        raise _failed(message, "Give them as in 3.11.2, x86_64 and glibc-2.36.")
    return PythonTarget(numbers, machine, libc)


def _fingerprint(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def _is_still(python: str, version: str) -> bool:
    """True when a replaced interpreter has the same version: an update within 3.11 keeps the name python3.11. A name
    without a version counts as changed."""
    found = re.fullmatch(r"python(\d+\.\d+)", os.path.basename(python))
    if found is None:
        return False
    return parse_version(found[1]) == parse_version(version)[:2]


def _interpreter_of(folder: str) -> dict[str, str | bytes]:
    """Returns the files and links that decide which interpreter the environment uses."""
    config = read_regular(os.path.join(folder, "pyvenv.cfg"), 1 << 16)
    found: dict[str, str | bytes] = {"pyvenv.cfg": config}
    for path in glob.glob(os.path.join(glob.escape(folder), "bin", "python*")):
        found[path] = os.readlink(path) if os.path.islink(path) else "a file"
    return found


def _site_packages(folder: str) -> str:
    pattern = os.path.join(glob.escape(folder), "lib", "python*", "site-packages")
    found = glob.glob(pattern)
    return min(found, default=folder)


def _resolved(site: str) -> list[str]:
    """Lists packages by their .dist-info folder names, so that no untrusted content is parsed."""
    packages = []
    for folder in os.listdir(site):
        found = re.fullmatch(r"(.+)-([^-]+)\.dist-info", folder)
        if found:
            packages.append(f"{canonical_name(found[1])}=={found[2]}")
    return sorted(packages)


def _check_version(block: ScriptBlock, version: str, who: str) -> None:
    if not python_fits(block.requires_python, parse_version(version)):
        message = f"The script needs Python {block.requires_python}, and {who} is Python {version}."
        hint = "Whoever runs Prowess installs such a Python, or the skill's author changes requires-python."
        raise WorkspaceError(message, op="dependencies", code="python-too-old", hint=hint)


def _failed(message: str, hint: str, retryable: bool = False) -> WorkspaceError:
    return WorkspaceError(message, op="dependencies", code="dependencies-failed", hint=hint, retryable=retryable)
