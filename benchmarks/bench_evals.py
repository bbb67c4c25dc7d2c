"""What running a suite costs beyond the runs themselves: time, memory, and how well two Ray nodes share the work.

    python benchmarks/bench_evals.py

The floor of a thousand scripted cases is the same thousand conversations, each in a session and a workspace of its own,
without a harness around them. Both are measured in CPU time. Memory is what a process grew by between its 200th and its
last case. Ray has two nodes of one processor each on this machine; linear is half the time that one of them takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prowess.evals.runner import EvalOptions, EvalProgress, run_suite
from prowess.evals.suite import Suite, read_suite
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import Runtime, open_runtime
from prowess.runtime.services.sessions import session_place
from prowess.stores.memory import MemoryEventLog
from prowess.testing import skill_dir
from prowess.workspace.session_folder import remove_place

CASES = 1_000
ROUNDS = 3
RAY_CASES = 40
CASE_S = 0.2
REPLIES: list[dict[str, Any]] = [
    {"calls": [{"tool": "skill_load", "args": {"skill": "greeter"}}]},
    {"text": "Hello, Ada."},
]
SLEEP = {"calls": [{"tool": "skill_run", "args": {"skill": "greeter", "command": f"sleep {CASE_S}"}}]}
Row = tuple[str, float, float | None]


def main() -> None:
    if sys.argv[1:2] == ["memory"]:
        print(grown_mb(Path(sys.argv[2])))
        return
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    """Rows of (name, value, limit or None); above its limit it is a regression, nan was not measured."""
    with tempfile.TemporaryDirectory() as folder:
        project = make_project(Path(folder))
        suite = write_cases(project, CASES, REPLIES)
        bare, whole = (float("inf"),) * 2
        for _ in range(ROUNDS):  # in turns, so that a busy moment hits both alike
            bare = min(bare, cpu_s(lambda: asyncio.run(converse(project))))
            whole = min(whole, cpu_s(lambda: run(project, suite)))
        grown = grown_in_a_process(project)
        share = ray_share(project, report)
    report(f"{CASES:,} cases, CPU ms each: {bare * 1000 / CASES:.2f} bare, {whole * 1000 / CASES:.2f} in a suite")
    return [
        ("evals: ms of the harness for each of 1,000 scripted cases", (whole - bare) * 1000 / CASES, 3.0),
        ("evals: MB grown between the 200th and the 1,000th case", grown, 8.0),
        ("evals: two Ray nodes / linear, cases of 200 ms", share, round(1 / 0.7, 3)),
    ]


def make_project(folder: Path) -> Path:
    (folder / "home").mkdir()
    os.environ |= {"HOME": str(folder / "home"), "PROWESS_CACHE_DIR": str(folder / "cache")}
    (folder / "project" / ".agent").mkdir(parents=True)
    skill_dir(folder / "project" / "skills", "greeter", "# Greet\nSay hello by name.", description="Greets people.")
    return folder / "project"


def write_cases(project: Path, number: int, script: list[dict[str, Any]]) -> Suite:
    expect = {"skills": {"load": ["greeter"]}, "output": {"contains": "Ada"}, "steps": [{"requires": "skill_load"}]}
    cases = [{"id": f"c{n}", "prompt": "Greet Ada.", "expect": expect, "script": script} for n in range(number)]
    (project / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return read_suite(["cases.json"], cwd=str(project))


def run(project: Path, suite: Suite, tell: Callable[[EvalProgress], None] | None = None, **options: Any) -> None:
    given = EvalOptions(cwd=str(project), roots=(str(project / "skills"),), model="scripted", **options)
    done = asyncio.run(run_suite(suite, given, on_progress=tell))
    assert {record.status for record in done.records} == {"passed"}, done.records[0]


async def converse(project: Path) -> None:
    """The same conversations, as many at a time."""
    flags = {"store": "memory:", "artifacts": "memory:"}
    roots = [str(project / "skills")]
    with open_runtime(cwd=str(project), environ=os.environ, roots=roots, flags=flags) as runtime:
        limit = asyncio.Semaphore(8)
        await asyncio.gather(*(converse_once(runtime, limit) for _ in range(CASES)))


async def converse_once(runtime: Runtime, limit: asyncio.Semaphore) -> None:
    async with limit:
        model = ScriptedModel(REPLIES, name="scripted")
        async with runtime.open_session(model=model, log=MemoryEventLog(), on_ask="deny", standing=False) as session:
            result = await session.run("Greet Ada.")
        remove_place(*session_place(runtime), session.key)
        assert result.ok


def cpu_s(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def grown_in_a_process(project: Path) -> float:
    command = [sys.executable, __file__, "memory", str(project)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def grown_mb(project: Path) -> float:
    sizes: dict[int, float] = {}

    def look(progress: EvalProgress) -> None:
        if progress.done in (200, CASES):
            sizes[progress.done] = resident_mb()

    run(project, read_suite(["cases.json"], cwd=str(project)), look)
    return sizes[CASES] - sizes[200]


def resident_mb() -> float:
    return int(Path("/proc/self/status").read_text(encoding="utf-8").partition("VmRSS:")[2].split()[0]) / 1024


def ray_share(project: Path, report: Callable[[str], object]) -> float:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns at every start
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError:
        report("Ray is not installed (pip install 'prowess[ray]'), so nothing runs on it.")
        return float("nan")
    suite = write_cases(project, RAY_CASES, [REPLIES[0], SLEEP, REPLIES[1]])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=40)
        one = wall_s(project, suite)
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        two = wall_s(project, suite)
    finally:
        ray.shutdown()
        cluster.shutdown()
    report(f"{RAY_CASES} cases of {CASE_S:g} s on Ray: {one:.1f} s on one node, {two:.1f} s on two")
    return two / (one / 2)


def wall_s(project: Path, suite: Suite) -> float:
    """Seconds of the suite when all workers have imported what they need."""
    options = {"engine": "ray", "approved": ("skill_run",), "settings": {"workspace.executor": "local"}}
    run(project, suite, **options)
    start = time.perf_counter()
    run(project, suite, **options)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
