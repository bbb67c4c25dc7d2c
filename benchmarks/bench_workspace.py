"""Starting programs in workspaces, compared in one run with starting them without.

    python benchmarks/bench_workspace.py

The floor of a local run is a bare asyncio subprocess; of a box, bubblewrap itself with the very arguments that the
executor gives it, started by asyncio as the same user; of Landlock, a local run. They take turns, and their quick tenth
counts. Then: what staging writes, what 100 MB of output cost in memory, and what 200 runs at once leave behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import prowess
from prowess._internal.files import write_whole
from prowess.core.events import ApprovalAnswered
from prowess.core.ports import Executor, Program
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import WorkspaceUnavailable
from prowess.runtime.runtime import open_runtime
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.executors.sandbox import SandboxExecutor
from prowess.workspace.executors.workspace import OpenedWorkspace
from prowess.workspace.isolation.bwrap import ARGS_FD, EMPTY_FD, HOSTS_FD, SECCOMP_FD, STATUS_FD
from prowess.workspace.isolation.mounts import Boxed
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.layout import environment
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command
from prowess.workspace.process.streams import memory_file
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import Tree, publish, remove_tree

ROUNDS = 150
AT_ONCE = 200
MEGABYTES = 100
DATA = (SECCOMP_FD, HOSTS_FD, EMPTY_FD)  # descriptors that bubblewrap reads something from
UID = DEFAULT_UID if os.geteuid() == 0 else None
SKILL = "---\nname: bench\ndescription: Is run by benchmarks. Use when measuring.\n---\n\n# Bench\n"
Row = tuple[str, float, float | None]
_numbers = itertools.count(1)


def main() -> None:
    if sys.argv[1:2] == ["memory"]:
        print(asyncio.run(grown_by_output(sys.argv[2])))
        return
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    """Rows of (name, value, limit or None); a value above its limit is a regression."""
    ms = asyncio.run(starts_in_turns())
    report("ms to run `true`: " + ", ".join(f"{kind} {each:.2f}" for kind, each in ms.items()))
    rows: list[Row] = [("workspace: (local run - 5 ms) / bare subprocess", (ms["local"] - 5) / ms["bare"], 1.5)]
    rows.append(("workspace: local run / bare subprocess", ms["local"] / ms["bare"], None))
    rows.append(("workspace: (local call - 5 ms) / bare subprocess", (ms["local call"] - 5) / ms["bare"], 1.5))
    if "bwrap" in ms:
        rows.append(("workspace: bwrap call / bare bwrap with its arguments", ms["bwrap call"] / ms["bare bwrap"], 1.6))
        rows.append(("workspace: bwrap run / bare bwrap with its arguments", ms["bwrap"] / ms["bare bwrap"], 1.3))
    if "landlock" in ms:
        rows.append(("workspace: Landlock run / local run", ms["landlock"] / ms["local"], 1.3))
    for kind in ("local", "bwrap", "landlock"):
        if kind not in ms:
            report(f"{kind} does not work here and was not measured")
            continue
        if kind == "bwrap":
            rows.append(("workspace: files and bytes that staging in bwrap writes", asyncio.run(written()), 0))
        command = [sys.executable, __file__, "memory", kind]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append((f"workspace: MB grown by {MEGABYTES} MB of stdout, {kind}", grown, 16))
        left = asyncio.run(left_by_many(kind))
        report(f"left by {AT_ONCE} runs at once, {kind}: {left}")
        rows.append((f"workspace: left by {AT_ONCE} runs at once, {kind}", sum(left.values()), 0))
    return rows


async def starts_in_turns() -> dict[str, float]:
    """Milliseconds of one run of `true`, of each kind that works here."""
    async with AsyncExitStack() as stack:
        local, bwrap, landlock = [
            await stack.enter_async_context(desk(kind)) for kind in ("local", "bwrap", "landlock")
        ]
        assert local is not None
        call = await stack.enter_async_context(calls("local"))
        kinds: dict[str, Callable[[], Awaitable[object]]] = {"bare": bare, "local": local.true, "local call": call}
        if bwrap is not None:
            call = await stack.enter_async_context(calls("sandbox"))
            kinds |= {"bare bwrap": await bare_bwrap(bwrap), "bwrap": bwrap.true, "bwrap call": call}
        if landlock is not None:
            kinds["landlock"] = landlock.true
        spent: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(ROUNDS):
            for kind, start in kinds.items():
                before = time.perf_counter()
                await start()
                spent[kind].append(time.perf_counter() - before)
    return {kind: 1e3 * sorted(each)[ROUNDS // 10] for kind, each in spent.items()}


@asynccontextmanager
async def calls(executor: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A whole call of skill_run, with its decision, its events in memory, and the look at what it left."""

    async def approve(call: ToolCall, decision: Decision) -> ApprovalAnswered:
        return ApprovalAnswered(call_id=call.id, answer="once")

    folder = tempfile.mkdtemp(prefix="prowess-bench-")
    os.chmod(folder, 0o711)
    skill = os.path.join(folder, "skills", "bench")
    os.makedirs(skill)
    write_whole(os.path.join(skill, "SKILL.md"), SKILL.encode())
    flags = {"store": "memory:", "artifacts": "memory:", "workspace.executor": executor, "workspace.dir": folder}
    try:
        with open_runtime(cwd=folder, environ=os.environ, roots=[os.path.dirname(skill)], flags=flags) as runtime:
            async with runtime.open_kit(approver=approve) as kit:
                await kit.call("skill_load", {"skill": "bench"})

                async def call() -> None:
                    outcome = await kit.call("skill_run", {"skill": "bench", "command": "true"})
                    assert outcome.status == "ok", outcome

                yield call
    finally:
        remove_tree(folder)


class Desk:
    """A workspace with a staged skill."""

    def __init__(self, workspace: OpenedWorkspace, place: Place, tree: Tree) -> None:
        self.workspace, self.place, self.tree = workspace, place, tree

    def program(self, *argv: str) -> Program:
        run = f"r{next(_numbers)}"
        env = {**self.workspace.environment, **environment(self.workspace.layout, skill="bench", run=run)}
        return Program(argv=argv, skill="bench", run=run, cwd="skills/bench", env=env)

    async def true(self) -> None:
        ended = await self.workspace.run(self.program("/usr/bin/true"), _nothing, _nothing)
        assert ended.exit_code == 0


@asynccontextmanager
async def desk(kind: str) -> AsyncIterator[Desk | None]:
    """None when there is no such tier here."""
    folder = tempfile.mkdtemp(prefix="prowess-bench-")
    os.chmod(folder, 0o711)
    try:
        async with Processes() as processes:
            executor = executor_of(kind, processes, folder)
            try:
                await executor.isolation()
            except WorkspaceUnavailable:
                yield None
                return
            with OpenPlace(folder, SessionKey(session="bench"), uid=UID) as place:
                files = {f"assets/{number}": "x" * 10_000 for number in range(100)}
                tree = publish(prowess.Skill.from_text(SKILL, files=files), os.path.join(folder, "trees"))
                workspace = await executor.open(place)
                assert isinstance(workspace, OpenedWorkspace)
                await workspace.stage(tree, "bench")
                yield Desk(workspace, place, tree)
                await executor.aclose()
    finally:
        remove_tree(folder)


def executor_of(kind: str, processes: Processes, folder: str) -> Executor:
    limits = RunLimits()
    if kind == "local":
        return LocalExecutor(processes, uid=UID, limits=limits)
    mechanism = "bwrap+seccomp" if kind == "bwrap" else "landlock+seccomp"
    return SandboxExecutor(processes, mechanism=mechanism, limits=limits, dir=folder)


async def bare() -> None:
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/true", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **drop()
    )
    await process.communicate()


async def bare_bwrap(bwrap: Desk) -> Callable[[], Awaitable[None]]:
    """What the executor would start, taken from itself."""
    enclosure = bwrap.workspace._enclosure
    assert isinstance(enclosure, Boxed)
    program = bwrap.program("/usr/bin/true")
    bwrap.place.make_run(program.run)
    async with enclosure.enclosed(program, "") as ready:
        given = {number: value for number, value in ready.command.fds.items() if isinstance(value, bytes)}
        command = ready.command._replace(fds=given)
    return lambda: start_bare(command)


async def start_bare(command: Command) -> None:
    """The descriptors' numbers are not ours to choose here, so they are written into what bubblewrap is told."""
    files = {number: memory_file(value) for number in DATA if isinstance(value := command.fds[number], bytes)}
    files[STATUS_FD] = os.memfd_create("status")
    told = re.sub(
        rb"(--(?:seccomp|ro-bind-data|json-status-fd)\0)(\d+)",
        lambda found: found[1] + b"%d" % files[int(found[2])],
        _bytes(command, ARGS_FD),
    )
    args = memory_file(told)
    argv = [str(args) if previous == "--args" else each for previous, each in itertools.pairwise(["", *command.argv])]
    process = await asyncio.create_subprocess_exec(
        *argv,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[args, *files.values()],
        **drop(),
    )
    _, said = await process.communicate()
    for fd in (args, *files.values()):
        os.close(fd)
    assert process.returncode == 0, said


def drop() -> dict[str, object]:
    return {} if UID is None else {"user": UID, "group": UID, "extra_groups": []}


def _bytes(command: Command, number: int) -> bytes:
    value = command.fds[number]
    assert isinstance(value, bytes)
    return value


async def written() -> float:
    """New files and their bytes in the workspace, for a skill of a megabyte that was published before."""
    async with desk("bwrap") as bwrap:
        assert bwrap is not None
        before = _files(bwrap.place.path)
        await bwrap.workspace.stage(bwrap.tree, "another")
        new = {path: size for path, size in _files(bwrap.place.path).items() if path not in before}
        return float(len(new) + sum(new.values()))


def _files(folder: str) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()}


async def grown_by_output(kind: str) -> float:
    """By how many MB this process grew while that much passed through it."""
    async with desk(kind) as place:
        assert place is not None
        seen = 0

        def count(data: bytes) -> None:
            nonlocal seen
            seen += len(data)

        async def print_it(megabytes: int) -> None:
            await place.workspace.run(place.program("head", "-c", str(megabytes << 20), "/dev/zero"), count, count)

        await print_it(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await print_it(MEGABYTES)
        assert seen == (MEGABYTES + 1) << 20
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


async def left_by_many(kind: str) -> dict[str, int]:
    async with desk(kind) as place:
        assert place is not None
        await place.true()

        def counts() -> dict[str, int]:
            return {
                "processes": _descendants(),
                "descriptors": len(os.listdir("/proc/self/fd")),
                "folders": sum(len(folders) for _, folders, _ in os.walk(place.place.path)),
            }

        before = await settled(counts)
        await asyncio.gather(*(place.true() for _ in range(AT_ONCE)))
        after = await settled(counts)
        after["folders"] -= AT_ONCE  # runs/<run> of each, which stays on purpose
        return {name: after[name] - before[name] for name in before}


async def settled(counts: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The supervisor forks one run ahead, and does so a moment after a run has begun: the same twice in a row."""
    last = counts()
    for _ in range(50):
        await asyncio.sleep(0.1)
        if (now := counts()) == last:
            return now
        last = now
    return last


def _descendants() -> int:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, waiting = 0, [os.getpid()]
    while waiting:
        parent = waiting.pop()
        below = [pid for pid, above in parents.items() if above == parent]
        found += len(below)
        waiting += below
    return found


def _nothing(data: bytes) -> None:
    pass


if __name__ == "__main__":
    main()
