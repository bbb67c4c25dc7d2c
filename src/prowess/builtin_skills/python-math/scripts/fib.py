#!/usr/bin/env python3
"""Print the first N Fibonacci numbers, one on a line: 0, 1, 1, 2, 3, 5, … exact, however long they are.

Exit codes: 0 done, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys

MOST = 10_000  # the last of them has 2090 digits


def main(argv: list[str]) -> int:
    summary, _, codes = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="fib.py", description=summary, epilog=codes)
    parser.add_argument("n", metavar="N", help=f"how many, from 1 to {MOST}")
    text = parser.parse_args(argv).n
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST):
        parser.error(f"N must be a whole number from 1 to {MOST}, not '{text}'")
    for number in fibonacci(int(text)):
        print(number)
    return 0


def fibonacci(count: int):
    this, following = 0, 1
    for _ in range(count):
        yield this
        this, following = following, this + following


class Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[override]
        print(f"{self.prog}: {message}; see: python3 scripts/{self.prog} --help", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
