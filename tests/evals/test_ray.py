"""Engine ray on a real cluster of two nodes on this machine: same records as local, and nothing is lost with a node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import EvalError
from prowess.evals.batch import run_batch
from prowess.evals.runner import EvalOptions, EvalProgress, EvalRun, run_suite
from prowess.evals.suite import Suite, read_suite
from prowess.testing import skill_dir

pytestmark = pytest.mark.needs("ray")
SLOW = "import time, sys\ntime.sleep(float(sys.argv[1]))\nprint('done')\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with a project; nothing of this machine's user is in sight, also not of the cluster's nodes."""
    folder = tmp_path_factory.mktemp("ray")
    before = {name: os.environ.get(name) for name in ("HOME", "PROWESS_CACHE_DIR")}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns at every start
    os.environ |= {"HOME": str(folder / "home"), "PROWESS_CACHE_DIR": str(folder / "cache")}
    (folder / "home").mkdir()
    (folder / "project" / ".agent").mkdir(parents=True)
    files = {"scripts/slow.py": SLOW}
    skill_dir(folder / "project" / "skills", "sleeper", "Run scripts/slow.py SECONDS.", files=files)
    yield folder
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": quick}
    started = Cluster(initialize_head=True, head_node_args=head)
    started.add_node(num_cpus=1)
    yield started
    started.shutdown()


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Iterator[Any]:
    """The cluster with a connection that all runs share, so that its workers stay."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level=40)
    yield cluster
    ray.shutdown()


def write_cases(place: Path, number: int, seconds: float | None = None) -> Suite:
    """Cases that read a file; with `seconds`, cases that run a script for so long."""
    command = f"python3 scripts/slow.py {seconds}"
    run = {"tool": "skill_run", "args": {"skill": "sleeper", "command": command}}
    read = {"tool": "read_file", "args": {"file_name": "work/inputs/input.txt"}}
    cases = [
        {
            "id": f"c{n}",
            "prompt": f"Number {n}.",
            "files": ["input.txt"],
            "expect": {"skills": {"load": ["sleeper"]}, "steps": [{"requires": (run if seconds else read)["tool"]}]},
            "script": [
                {"calls": [{"tool": "skill_load", "args": {"skill": "sleeper"}}]},
                {"calls": [run if seconds else read]},
                {"text": f"Number {n} is done."},
            ],
        }
        for n in range(number)
    ]
    project = place / "project"
    (project / "input.txt").write_text("one\n", encoding="utf-8")
    (project / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return read_suite([str(project / "cases.json")], cwd=str(project))


def run(
    place: Path, suite: Suite, on_progress: Callable[[EvalProgress], None] | None = None, **options: Any
) -> EvalRun:
    project = place / "project"
    settings = {"workspace.executor": "local"}
    given = {"cwd": str(project), "roots": (str(project / "skills"),), "model": "scripted", "settings": settings}
    chosen = EvalOptions(approved=("skill_run",), **{**given, **options})
    return asyncio.run(run_suite(suite, chosen, on_progress=on_progress))


def test_records_are_the_same_as_those_of_the_local_engine(place: Path, cluster: Any) -> None:
    suite = write_cases(place, 4)
    local = run(place, suite)
    remote = run(place, suite, engine="ray", address=cluster.address)
    assert [record.status for record in local.records] == ["passed"] * 4
    assert [_timeless(record) for record in remote.records] == [_timeless(record) for record in local.records]


def test_an_address_that_does_not_answer_is_told_at_once(place: Path) -> None:
    suite = write_cases(place, 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            with server.accept()[0] as asked:
                asked.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(EvalError, match="something else"):
            run(place, suite, engine="ray", address=address)
        thread.join()
    with pytest.raises(EvalError, match=f"No Ray cluster answers at '{address}'"):
        run(place, suite, engine="ray", address=address)
    with pytest.raises(EvalError, match="is no address of a Ray cluster"):
        run(place, suite, engine="ray", address="http://x")


def test_a_lost_head_is_told_and_the_run_goes_on(place: Path) -> None:
    from ray.cluster_utils import Cluster

    suite = write_cases(place, 8, 0.3)
    lost = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": "24"}  # Ray itself ends the driver after so many seconds
    command = [sys.executable, "-c", DRIVER, str(place / "project"), lost.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **patience}) as driver:
        assert driver.stdout is not None
        assert [driver.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
        lost.remove_node(lost.head_node, allow_graceful=False)
        *lines, code, message, hint = driver.stdout.read().splitlines()
    told = [line for line in lines if line.isdecimal()]  # Ray itself may say something, too
    assert (driver.returncode, code) == (2, "ray-lost"), message
    assert f"{len(told) + 2} of 8 results are kept" in message and hint.endswith("Then go on with --resume latest.")
    more: list[EvalProgress] = []
    again = run(place, suite, more.append, resume="latest")
    assert [record.status for record in again.records] == ["passed"] * 8 and len(more) == 6 - len(told)


DRIVER = """
import asyncio, sys
from prowess.errors import EvalError
from prowess.evals.runner import EvalOptions, run_suite
from prowess.evals.suite import read_suite
project, address = sys.argv[1:]
options = EvalOptions(cwd=project, roots=(f"{project}/skills",), model="scripted", approved=("skill_run",),
                      settings={"workspace.executor": "local"}, engine="ray", address=address)
suite = read_suite([f"{project}/cases.json"], cwd=project)
try:
    asyncio.run(run_suite(suite, options, on_progress=lambda progress: print(progress.done, flush=True)))
except EvalError as error:
    print(error.code, error.message, error.hint, sep="\\n", flush=True)
    sys.exit(2)
"""


def test_a_model_that_is_a_file_is_refused(place: Path) -> None:
    with pytest.raises(EvalError, match=r"cannot play 'scripted:replies.json'"):
        run(place, write_cases(place, 1), engine="ray", model="scripted:replies.json")


def test_recordings_come_back_to_the_driver_and_go_out_again(place: Path, connected: Any) -> None:
    suite = write_cases(place, 2)
    run(place, suite, engine="ray", record="tapes")
    assert len(list((place / "project" / "tapes").iterdir())) == 2
    done = run(place, suite, engine="ray", replay="tapes")
    assert [(record.status, record.replayed) for record in done.records] == [("passed", True)] * 2


def test_a_killed_worker_loses_no_case(place: Path, connected: Any) -> None:
    killed: list[int] = []

    def kill(progress: EvalProgress) -> None:
        if not killed and (working := _working(connected)):
            killed.append(working[0])
            os.kill(working[0], signal.SIGKILL)

    done = run(place, write_cases(place, 6, 0.3), kill, engine="ray")
    assert killed and [record.status for record in done.records] == ["passed"] * 6


def test_a_killed_node_loses_no_case(place: Path, connected: Any) -> None:
    node = connected.add_node(num_cpus=1)
    told: list[EvalProgress] = []

    def kill(progress: EvalProgress) -> None:
        told.append(progress)
        if len(told) == 2:
            connected.remove_node(node, allow_graceful=False)

    done = run(place, write_cases(place, 8, 0.3), kill, engine="ray")
    assert [record.status for record in done.records] == ["passed"] * 8


def _working(cluster: Any) -> list[int]:
    """Processes of the cluster's nodes that run one of our tasks now."""
    raylets = {process.process.pid for node in cluster.list_all_nodes() for process in node.all_processes["raylet"]}
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path("/proc", name, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            title = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if parent in raylets and title.startswith(b"ray::perform_shipped"):
            found.append(int(name))
    return found


def _timeless(record: Any) -> Any:
    data = record.model_dump(mode="json")
    data["seconds"] = 0
    for entry in data["timeline"]:
        entry["start_ms"] = entry["ms"] = 0
    return data


def test_a_batch_has_the_same_results_on_both_engines(place: Path, connected: Any) -> None:
    project = place / "project"
    lines = [{"id": f"r{n}", "request": f"How long is input.txt? ({n})", "files": ["input.txt"]} for n in range(3)]
    (project / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    for engine in ("local", "ray"):
        options = EvalOptions(cwd=str(project), model="offline", engine=engine)
        asyncio.run(run_batch("in.jsonl", f"{engine}.jsonl", options))
    local, remote = ((project / f"{engine}.jsonl").read_text(encoding="utf-8") for engine in ("local", "ray"))
    assert local == remote and local.count("\n") == 3
