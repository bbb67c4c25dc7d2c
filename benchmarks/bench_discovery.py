"""Reading a library, as CPU time relative to a bare loop that walks, opens, reads 4 KiB and runs the C YAML loader.

    python benchmarks/bench_discovery.py

The loop is not a competitor: it keeps nothing, checks nothing and dies at the first bad file. It is the floor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from corpus import make_library

import prowess
from prowess.skills.index import Bounds

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
        real = make_library(base / "nine", 9_000)
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
        per_skill = fastest({"5k": lambda: prowess.discover(library), "20k": lambda: discover_all(large)}, rounds=3)
        peak_mb = peak_memory_mb(real)
    report("5,000 skills, CPU ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in times.items()))
    return [
        ("discovery: cold / floor, 5,000 skills", times["cold"] / times["floor"], 1.5),
        ("discovery: cold with index written / floor", times["cold, index written"] / times["floor"], None),
        ("discovery: warm / floor", times["warm"] / times["floor"], 0.15),
        ("discovery: per skill, 20,000 / 5,000 (linear)", per_skill["20k"] / per_skill["5k"] / 4, 1.25),
        ("discovery: peak memory of 9,000 skills, MB", peak_mb, 45),
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


def peak_memory_mb(library: Path) -> float:
    # VmHWM, because ru_maxrss starts at what the process that forked it had.
    code = (
        f"import prowess; catalog = prowess.discover({str(library)!r}); assert len(catalog) == 9000; "
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[1]) / 1024


if __name__ == "__main__":
    main()
