"""Every benchmark, one table. Exit code 1 when a ratio is above its limit.

    python benchmarks/run.py [NAME…]

A ratio is measured against its floor in the same run, so that the machine's speed cancels out. One that is over its
limit is measured once more: a limit says what the code can do, not how busy the machine was. One that could not be
measured here is nan: it is counted, and what is missing was said above it.
"""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    sys.path.insert(0, str(FOLDER))
    wanted = sys.argv[1:]
    names = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
    failed = missing = 0
    for name in [name for name in names if not wanted or name.removeprefix("bench_") in wanted]:
        module = importlib.import_module(name)
        rows = module.measure(report=lambda line: print(f"  {line}"))
        if any(limit is not None and value > limit for _, value, limit in rows):
            again = {title: value for title, value, _ in module.measure()}
            rows = [(title, min(value, again[title]), limit) for title, value, limit in rows]
        for title, value, limit in rows:
            verdict = "" if limit is None else "ok" if value <= limit else "OVER"
            if math.isnan(value):
                verdict = "NOT MEASURED"
            failed += verdict == "OVER"
            missing += verdict == "NOT MEASURED"
            print(f"{title:60}{value:10.3f}  {'' if limit is None else f'limit {limit:g}':12}{verdict}")
    print(f"\n{failed} over their limit" if failed else "\nevery ratio that was measured is within its limit")
    if missing:
        print(f"{missing} not measured")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
