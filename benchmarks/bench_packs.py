"""Installing and verifying 1,000 skills of one pack, as CPU time relative to the least that such work can cost.

    python benchmarks/bench_packs.py

The floor of an installation is a bare unzip plus hashing the same bytes; of `verify`, hashing them; of `install
--frozen` with nothing to do, `prowess list` of the same project, both as processes. Memory is what a process grew by
while it installed files of 16 MB, beyond what a small installation took.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from corpus import make_library
from prowess.packs import api

SKILLS = 1_000
ROUNDS = 5
LARGE_MB = 16
Row = tuple[str, float, float | None]


def main() -> None:
    if sys.argv[1:2] == ["memory"]:
        print(grown_mb(Path(sys.argv[2])))
        return
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        pack = base / "skills.zip"
        api.pack(add_files(make_library(base / "library", SKILLS)), output=pack)
        times = fastest(
            {
                "unzip and hash": lambda new: unzip_and_hash(pack, new),
                "install": lambda new: install(pack, new),
                "hash": lambda new: hash_all(base / "library"),
                "verify": lambda new: verify(base / "installed"),
            },
            base,
            before=lambda: install(pack, base / "installed"),
        )
        processes = process_times(base / "installed", base / "home")
        grown = grown_while_installing(base)
    report(f"{SKILLS:,} skills, CPU ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in times.items()))
    report("CPU ms of processes: " + ", ".join(f"{name} {ms:.0f}" for name, ms in processes.items()))
    return [
        ("packs: install / bare unzip and hashing, 1,000 skills", times["install"] / times["unzip and hash"], 2.5),
        ("packs: verify / hashing, 1,000 skills", times["verify"] / times["hash"], 1.5),
        ("packs: install --frozen, nothing to do / prowess list", processes["install --frozen"] / processes["list"], 2),
        (f"packs: MB grown by installing 6 files of {LARGE_MB} MB", grown, LARGE_MB),
    ]


def add_files(library: Path) -> Path:
    """Gives each skill a script and a reference, as usual ones have."""
    for number, skill in enumerate(sorted(library.iterdir())):
        for path, text in {
            "scripts/run.py": f"print({number})\n" * 40,
            "references/guide.md": "# Guide\n" * 200,
        }.items():
            (skill / path).parent.mkdir()
            (skill / path).write_text(text, encoding="utf-8")
    return library


def unzip_and_hash(pack: Path, new: Path) -> None:
    with zipfile.ZipFile(pack) as bundle:
        bundle.extractall(new)
    hash_all(new)


def hash_all(folder: Path) -> None:
    for parent, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(parent, name), "rb") as file:
                hashlib.sha256(file.read()).hexdigest()


def install(pack: Path, project: Path) -> None:
    (project / ".agent").mkdir(parents=True)
    done = api.install(str(pack), cwd=project, environ=environment(project.parent / "home"))
    assert done.applied


def verify(project: Path) -> None:
    found = api.verify(cwd=project, environ=environment(project.parent / "home"))
    assert found.same
    assert found.skills


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PROWESS_", "SKILLS_", "PYTHON"))}
    return {**kept, "PROWESS_HOME": str(home), "NO_COLOR": "1"}


def fastest(
    actions: dict[str, Callable[[Path], object]], base: Path, *, before: Callable[[], object]
) -> dict[str, float]:
    """The least CPU milliseconds of each, measured in turns, so that a busy moment hits all of them alike. Each gets
    the path of a new folder."""
    before()
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(ROUNDS):
        for name, action in actions.items():
            start = time.process_time()
            action(base / "new")
            best[name] = min(best[name], (time.process_time() - start) * 1000)
            shutil.rmtree(base / "new", ignore_errors=True)
    return best


def process_times(project: Path, home: Path) -> dict[str, float]:
    commands = {
        "list": [sys.executable, "-m", "prowess", "list"],
        "install --frozen": [sys.executable, "-c", "from prowess import packs; packs.install(frozen=True)"],
    }
    best = dict.fromkeys(commands, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, command in commands.items():
            ms = cpu_ms(command, environment(home), project)
            if turn:  # the first turn compiles modules and fills the cache
                best[name] = min(best[name], ms)
    return best


def cpu_ms(command: list[str], environ: dict[str, str], cwd: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def grown_while_installing(base: Path) -> float:
    for name, files in (("small", 1), ("large", 6)):
        library = make_library(base / name, files)
        for skill in library.iterdir() if name == "large" else ():
            (skill / "data.bin").write_bytes(os.urandom(LARGE_MB << 20))
        api.pack(library, output=base / f"{name}.zip")
    command = [sys.executable, __file__, "memory", str(base)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def grown_mb(base: Path) -> float:
    install(base / "small.zip", base / "one")
    before = peak_mb()
    install(base / "large.zip", base / "two")
    return peak_mb() - before


def peak_mb() -> float:
    # VmHWM, because ru_maxrss starts at what the process that forked it had.
    return int(Path("/proc/self/status").read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
