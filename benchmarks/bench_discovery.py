"""Reading a library, as CPU time relative to a bare loop that walks, opens, reads 4 KiB and runs the C YAML loader.

    python benchmarks/bench_discovery.py

The loop is not a competitor: it keeps nothing, checks nothing and dies at the first bad file. It is the floor.

`list --json` is a whole process, so it has two floors: the loop alone, in a process that already runs, and the loop as
a process, which also starts Python and imports PyYAML. The first is the harder one.
"""

from __future__ import annotations

import inspect
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

import prowess
from corpus import make_library, make_real_library
from prowess.skills.scanner import Bounds

ROUNDS = 7
Row = tuple[str, float, float | None]


def main() -> None:
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        library = make_library(base / "five", 5_000)
        large = make_library(base / "twenty", 20_000)
        real = make_real_library(base / "real", 5_000)
        nine = make_real_library(base / "nine", 9_001)
        time.sleep(0.1)  # older than the clock's grain, so that the index believes the time stamps
        cache = base / "cache"
        prowess.discover(library, cache_dir=cache)
        times = fastest(
            {
                "floor": lambda: floor(library),
                "cold": lambda: prowess.discover(library),
                "cold, index written": lambda: discover_and_forget(library, base / "other"),
                "warm": lambda: prowess.discover(library, cache_dir=cache),
            }
        )
        of_real = fastest(
            {"floor": lambda: floor(real), "written": lambda: discover_and_forget(real, base / "third")}, rounds=5
        )
        per_skill = fastest({"5k": lambda: prowess.discover(library), "20k": lambda: discover_all(large)}, rounds=3)
        listing = listing_ms(library, base)
        peaks = [peak_memory_mb(nine, base / "fourth"), peak_memory_mb(nine, base / "fourth")]
    report("5,000 skills, CPU ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in times.items()))
    report("5,000 skills, CPU ms of processes: " + ", ".join(f"{name} {ms:.0f}" for name, ms in listing.items()))
    return [
        ("discovery: cold / floor, 5,000 skills", times["cold"] / times["floor"], 1.5),
        ("discovery: cold with index written / floor", times["cold, index written"] / times["floor"], 1.3),
        ("discovery: the same with real skills", of_real["written"] / of_real["floor"], 1.3),
        ("discovery: warm / floor", times["warm"] / times["floor"], 0.15),
        ("discovery: list --json, warm / floor alone", listing["list --json"] / listing["floor alone"], 0.37),
        ("discovery: list --json, warm / floor as a process", listing["list --json"] / listing["floor"], 0.33),
        ("discovery: per skill, 20,000 / 5,000 (linear)", per_skill["20k"] / per_skill["5k"] / 4, 1.25),
        ("discovery: peak of list, 9,001 skills, index written, MB", peaks[0], 45),
        ("discovery: peak of list, 9,001 skills, warm, MB", peaks[1], 45),
    ]


def floor(library: Path) -> int:
    found = 0
    for folder, _, files in os.walk(library):
        if "SKILL.md" in files:
            with open(os.path.join(folder, "SKILL.md"), "rb") as file:
                text = file.read(4096).decode()
            yaml.load(text[4 : text.index("\n---", 3)], Loader=yaml.CSafeLoader)
            found += 1
    return found


def discover_and_forget(library: Path, cache: Path) -> None:
    for file in cache.glob("index/*"):
        file.unlink()
    prowess.discover(library, cache_dir=cache)


def discover_all(library: Path) -> None:
    assert len(prowess.discover(library, bounds=Bounds(max_entries=50_000))) == 20_000


def fastest(actions: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """The least CPU milliseconds of each, measured in turns, so that a busy moment hits all of them alike."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.process_time()
            action()
            best[name] = min(best[name], (time.process_time() - start) * 1000)
    return best


def listing_ms(library: Path, base: Path) -> dict[str, float]:
    """CPU of whole processes, whose modules were compiled before, and of the floor alone, in turns with them."""
    commands = {
        "floor": [sys.executable, "-c", f"{FLOOR_CODE}\nfloor({str(library)!r})"],
        "list --json": [sys.executable, "-m", "prowess", "list", "--json", "--root", str(library)],
    }
    best = dict.fromkeys(["floor alone", *commands], float("inf"))
    for turn in range(ROUNDS + 3):
        best["floor alone"] = min(best["floor alone"], fastest({"floor": lambda: floor(library)}, rounds=1)["floor"])
        for name, command in commands.items():
            ms = process_ms(command, environment(base))
            if turn:  # the first turn compiles modules and fills the cache
                best[name] = min(best[name], ms)
    return best


FLOOR_CODE = "import os, yaml\n" + inspect.getsource(floor).replace("library: Path", "library")


def environment(base: Path, cache: Path | None = None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PROWESS_", "SKILLS_", "PYTHON"))}
    own = {"PROWESS_HOME": str(base / "home"), "PYTHONPYCACHEPREFIX": str(base / "compiled")}
    return {**kept, **own, **({"PROWESS_CACHE_DIR": str(cache)} if cache else {})}


def process_ms(command: list[str], environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def peak_memory_mb(library: Path, cache: Path) -> float:
    """Of `prowess list --json`, which writes the index the first time."""
    # VmHWM, because ru_maxrss starts at what the process that forked it had.
    code = (
        f"from prowess.cli.main import main; assert main(['list', '--json', '--root', {str(library)!r}]) == 0\n"
        "import sys; sys.stderr.write(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(cache.parent, cache),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stderr.split()[-1]) / 1024


if __name__ == "__main__":
    main()
