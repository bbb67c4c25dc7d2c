"""The doors before a run: who may run at all, as whom, and in what. Cases 53 to 58.

Where a machine has to be worse than this one, it is made worse for real: by a filter that takes system calls away from
a process, or by a mount that only that process sees.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escapes.opened import KINDS, UID, Opened
from escapes.reports import ROOT
from escapes.scene import ORDINARY, PYTHON
from prowess.core.codec import from_json
from prowess.core.ports import Executor
from prowess.core.values import Isolation
from prowess.errors import ConfigError, WorkspaceUnavailable
from prowess.policy.decision import PolicyContext, PolicyQuery, decide
from prowess.workspace.isolation.bwrap import SECCOMP_FD, Box, boxed, find_trusted, system_of_host
from prowess.workspace.limits import MIB, RunLimits, check_installed
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, Ended, NotStarted

NotRun = Callable[[str, str], None]


# --- 53, 58: a machine without what a sandbox needs -------------------------------------------------------------------

WORSE = """
import asyncio, errno, json, struct, sys
from prowess.errors import WorkspaceUnavailable
from prowess.core.codec import to_json
from prowess.workspace.process import seccomp as kernel
from prowess.workspace.executors.auto import AutoExecutor
from prowess.workspace.limits import RunLimits
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.process.client import Processes
from prowess.workspace.executors.sandbox import SandboxExecutor

LD, JEQ, JSET, RET = 0x20, 0x15, 0x45, 0x06
def refusing(*rules):  # (number, argument, test, value, errno); without an argument, the call itself
    code = [(LD, 0, 0, 0)]
    for number, argument, test, value, answer in rules:
        block = [(RET, 0, 0, kernel.ERRNO | answer)]
        if argument is not None:
            block = [(LD, 0, 0, 16 + 8 * argument), (test, 0, 1, value), *block, (LD, 0, 0, 0)]
        code += [(JEQ, 0, len(block), number), *block]
    code.append((RET, 0, 0, kernel.ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)

import os
number = kernel.SYSCALLS[os.uname().machine]
prctl, seccomp = (167, 277) if os.uname().machine == "aarch64" else (157, 317)
WORSE = {
    "as it is": [],
    "no namespaces, no landlock": [
        (number["unshare"], None, 0, 0, errno.EPERM), (number["clone3"], None, 0, 0, errno.ENOSYS),
        (number["clone"], 0, JSET, 0x10000000, errno.EPERM), (kernel.LANDLOCK_CREATE, None, 0, 0, errno.ENOSYS)],
    "no namespaces, and a landlock that only says so": [
        (number["unshare"], None, 0, 0, errno.EPERM), (number["clone3"], None, 0, 0, errno.ENOSYS),
        (number["clone"], 0, JSET, 0x10000000, errno.EPERM), (kernel.LANDLOCK_RESTRICT, None, 0, 0, 0)],
    "a seccomp that only says so": [(prctl, 0, JEQ, kernel.PR_SET_SECCOMP, 0), (seccomp, None, 0, 0, 0)],
    "no seccomp": [(prctl, 0, JEQ, kernel.PR_SET_SECCOMP, errno.EINVAL), (seccomp, None, 0, 0, errno.ENOSYS)],
}
async def story(uid, dir):
    async with Processes() as processes:
        sandbox = SandboxExecutor(processes, run_as=uid or 64321, limits=RunLimits(), dir=dir)
        said = {}
        try:
            said["sandbox"] = to_json(await sandbox.isolation())
        except WorkspaceUnavailable as error:
            said["refused"] = [error.code, str(error)]
        local = LocalExecutor(processes, uid=uid, limits=RunLimits())
        said["auto"] = to_json(await AutoExecutor(sandbox, local).isolation())
        return said
if WORSE[sys.argv[1]]:
    kernel.seccomp_install(refusing(*WORSE[sys.argv[1]]))
print(json.dumps(asyncio.run(story(int(sys.argv[2]) or None, sys.argv[3]))))
"""


def on_a_machine_with(what: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", WORSE, what, str(UID or 0), str(folder / "proofs")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def verdicts(isolation: Isolation) -> tuple[str, str]:
    """For a skill that is trusted, and for one that is not."""
    around = PolicyContext(isolation=isolation)
    requests = [PolicyQuery(tool="skill_run", args={"command": "ls"}, trusted=trusted) for trusted in (True, False)]
    trusted, other = (decide(request, around).verdict for request in requests)
    return trusted, other


@pytest.mark.parametrize(
    "worse",
    [
        *("no namespaces, no landlock", "no namespaces, and a landlock that only says so"),
        *("no seccomp", "a seccomp that only says so"),
    ],
)
def test_case_53_56_and_58_without_a_sandbox_trusted_is_asked_about_and_the_rest_refused(
    worse: str, folder: Path, not_run: NotRun
) -> None:
    here = on_a_machine_with("as it is", folder)
    if "refused" in here:
        not_run("escape 53, 58", f"no isolation on this machine: {here['refused'][1]}")
    else:
        assert verdicts(from_json(Isolation, here["auto"])) == ("allow", "allow")
        assert here["auto"] == here["sandbox"]
    (folder / "proofs").rename(folder / "proofs of a better machine")
    there = on_a_machine_with(worse, folder)
    assert there["refused"][0] == "no-sandbox" and "sandbox" not in there
    if "refused" not in here and "only says so" in worse:
        assert "did not hold" in there["refused"][1], "found out by trying"
    assert there["auto"]["executor"] == "local" and there["auto"]["notes"], "it is said why"
    assert verdicts(from_json(Isolation, there["auto"])) == ("ask", "deny")


def test_case_58_a_filter_that_the_kernel_does_not_take_keeps_the_program_from_starting(folder: Path) -> None:
    made = folder / "work"
    made.mkdir()
    os.chown(made, ORDINARY if ROOT else -1, -1)
    argv = ["/bin/sh", "-c", f"echo ran > {made}/ran"]
    good = b"\x06\0\0\0\0\0\xff\x7f"  # one instruction: allow

    async def story() -> None:
        async with Processes() as processes:
            for filter in (b"\xff" * 8, b"\0" * 12, b"", b"\x06\0\0\0\0\0\xff\x7f" * 5000):
                with pytest.raises(NotStarted) as refused:
                    await processes.run(Command(argv=argv, cwd="/", env={}, uid=UID, seccomp=filter))
                assert refused.value.step == "isolation"
            assert not (made / "ran").exists()
            await processes.run(Command(argv=argv, cwd="/", env={}, uid=UID, seccomp=good))
            assert (made / "ran").exists()

    asyncio.run(story())


def test_case_58_nor_does_bubblewrap_go_on_without_its_filter(not_run: NotRun) -> None:
    program = find_trusted("bwrap")
    if program is None:
        not_run("escape 58", "bubblewrap is not installed")
        return
    system, links = system_of_host()
    command = boxed(program, Box(system=system, links=links), ["/bin/echo", "ran"], uid=UID)
    assert said_by(command) == b"ran\n"
    assert said_by(command._replace(fds={**command.fds, SECCOMP_FD: b"\xff" * 8})) == b""


def said_by(command: Command) -> bytes:
    out = bytearray()

    async def story() -> Ended:
        async with Processes() as processes:
            return await processes.run(command, out.extend)

    asyncio.run(story())
    return bytes(out)


# --- 54, 56: a bubblewrap that is none --------------------------------------------------------------------------------

PLANTED = """#!/bin/sh
echo started >> {trap}
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def test_case_54_a_planted_bubblewrap_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch, go: Any) -> None:
    """In PATH, in the working directory, in the workspace; whoever looks for one by name would take it."""
    trap = folder / "trap"
    trap.touch()
    trap.chmod(0o666)
    planted = folder / "bwrap"
    planted.write_text(PLANTED.format(trap=trap), encoding="utf-8")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:.:{os.environ['PATH']}")
    monkeypatch.chdir(folder)
    assert subprocess.run(["bwrap", "--", "true"]).returncode == 0 and trap.read_text() != "", "the trap works"
    trap.write_text("", encoding="utf-8")

    async def story(executor: Executor) -> None:
        async with Opened(executor, folder) as opened:
            for name in ("work/bwrap", "out/bwrap"):
                opened.link(name, planted)
            ended = await opened.run("true", PATH=f"{opened.layout.seen('work')}:/usr/bin:/bin")
            assert ended.exit_code == 0

    go("bwrap+seccomp", story)
    assert trap.read_text(encoding="utf-8") == ""


# Everything as it should be, but for the network: it takes that one word out of what bubblewrap is told.
WEAK = """#!{python} -IS
import os, sys
told = os.pread(8, 1 << 20, 0).replace(b"--unshare-net\\0", b"")
fd = os.memfd_create("told", 0)
os.write(fd, told)
os.lseek(fd, 0, 0)
os.dup2(fd, 8)
os.close(fd)
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""
BROKEN = """
import asyncio, json, sys
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.executors.sandbox import SandboxExecutor
async def story():
    async with Processes() as processes:
        said = {}
        for mechanism in ("bwrap+seccomp", "auto"):
            executor = SandboxExecutor(processes, mechanism=mechanism, limits=RunLimits(), dir=sys.argv[1])
            try:
                said[mechanism] = [(await executor.isolation()).mechanism, *(await executor.isolation()).notes]
            except WorkspaceUnavailable as error:
                said[mechanism] = [error.code, str(error)]
        return said
print(json.dumps(asyncio.run(story())))
"""


def test_case_56_a_box_that_does_not_hold_is_not_used(folder: Path, not_run: NotRun) -> None:
    """Where only root could have put it, and yet it isolates nothing. It lies over the real one, for one process."""
    real = find_trusted("bwrap")
    if not ROOT or real is None:
        not_run("escape 56", "it needs root, and a bubblewrap to take the place of")
        return
    planted, copy = folder / "bwrap", folder / "real"
    shutil.copy(real, copy)
    planted.write_text(WEAK.format(python=PYTHON, real=str(copy)), encoding="utf-8")
    planted.chmod(0o755)
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$5"'
    private = ["unshare", "-m", "--propagation", "private", "--", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*private, planted, real, sys.executable, BROKEN, folder / "proofs"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    code, why = said["bwrap+seccomp"]
    assert code == "no-sandbox" and "this did not hold: no network" in why
    chosen, *notes = said["auto"]
    assert chosen in ("landlock+seccomp", "no-sandbox") and any("did not hold" in note for note in notes)
    shown = subprocess.run([real, "--version"], capture_output=True, text=True).stdout
    assert "bubblewrap" in shown, "nobody else saw that"


# --- 55, 57: as whom, and under which limits --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_case_55_but_root_with_somebody_to_run_as_is_no_reason_to_refuse(kind: str, go: Any, folder: Path) -> None:
    async def story(executor: Executor) -> None:
        async with Opened(executor, folder) as opened:
            ended = await opened.run("touch", opened.layout.seen("work/mine"))
            assert ended.exit_code == 0
            assert os.stat(opened.path("work/mine")).st_uid == (UID or os.geteuid()) != 0

    go(kind, story)


def test_case_57_a_limit_that_is_required_and_does_not_hold_is_an_error(go: Any) -> None:
    async def story(executor: Executor) -> None:
        held = await executor.isolation()
        check_installed(held, ["cpu", "open_files", "file_size"], RunLimits())
        for name in ("disk", "memory"):
            assert held.limits[name] != "enforced"
            with pytest.raises(WorkspaceUnavailable) as refused:
                check_installed(held, [name], RunLimits(memory=64 * MIB))
            assert refused.value.code == "limit-not-enforced"
        with pytest.raises(ConfigError):
            check_installed(held, ["memory"], RunLimits(memory=None))

    for kind in KINDS:
        go(kind, story)
