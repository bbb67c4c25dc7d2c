"""Starting up, as CPU time of whole processes relative to `python -c pass` in the same environment.

python benchmarks/bench_start.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from corpus import make_library

ROUNDS = 15
Row = tuple[str, float, float | None]


def main() -> None:
    for name, value, limit in measure(report=print):
        print(f"{name:60}{value:10.3f}" + (f"   limit {limit:g}" if limit is not None else ""))


def measure(report: Callable[[str], object] = lambda line: None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        library = str(make_library(base / "skills", 20))
        (base / "work").mkdir()
        time.sleep(0.1)
        environment = {
            **{
                key: value for key, value in os.environ.items() if not key.startswith(("PROWESS_", "SKILLS_", "PYTHON"))
            },
            "PROWESS_HOME": str(base / "home"),
            "NO_COLOR": "1",
        }
        prowess = str(Path(sys.executable).with_name("prowess"))
        commands = {
            "pass": [sys.executable, "-c", "pass"],
            "import prowess": [sys.executable, "-c", "import prowess"],
            "import prowess.skills": [sys.executable, "-c", "import prowess.skills.catalog, prowess.skills.parse"],
            "--version": [prowess, "--version"],
            "list --json": [prowess, "list", "--json", "--root", library],
            "list": ["script", "-qec", f"{prowess} list --root {library}", "/dev/null"],
            "run --help": [prowess, "run", "--help"],
            "chat --help": [prowess, "chat", "--help"],
            "exec": [prowess, "exec", "python-math", "--yes", "skill_run", "--", "scripts/fib.py", "8"],
            "runs list": [prowess, "runs", "list"],
        }
        best = dict.fromkeys(commands, float("inf"))
        for turn in range(ROUNDS + 1):
            for name, command in commands.items():
                ms = cpu_ms(command, environment, base / "work")
                if turn:  # the first turn compiles modules and fills the cache
                    best[name] = min(best[name], ms)
    report("CPU ms: " + ", ".join(f"{name} {ms:.1f}" for name, ms in best.items()))
    beyond = {name: (ms - best["pass"]) / 1000 for name, ms in best.items()}
    return [
        ("start: import prowess, s beyond the interpreter", beyond["import prowess"], 0.1),
        ("start: import prowess.skills, s beyond the interpreter", beyond["import prowess.skills"], 0.05),
        ("start: prowess --version / python -c pass", best["--version"] / best["pass"], 2.5),
        ("start: list --json of 20 skills, warm / python -c pass", best["list --json"] / best["pass"], 6.0),
        ("start: list as a table on a terminal / python -c pass", best["list"] / best["pass"], 10.0),
        ("start: run --help / python -c pass", best["run --help"] / best["pass"], 6.0),
        ("start: chat --help / python -c pass", best["chat --help"] / best["pass"], 6.0),
        ("start: exec of a script / python -c pass", best["exec"] / best["pass"], 32.0),
        ("start: runs list / python -c pass", best["runs list"] / best["pass"], 15.0),
    ]


def cpu_ms(command: list[str], environment: dict[str, str], cwd: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


if __name__ == "__main__":
    main()
