#!/usr/bin/env python3
"""Print the prime numbers up to LIMIT, one on a line; with --count only how many there are.

Exit codes: 0 done, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys

MOST = 10_000_000


def main(argv: list[str]) -> int:
    summary, _, codes = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="primes.py", description=summary, epilog=codes)
    parser.add_argument("limit", metavar="LIMIT", help=f"the largest number to look at, from 1 to {MOST}")
    parser.add_argument("--count", action="store_true", help="print how many there are")
    args = parser.parse_args(argv)
    text = args.limit
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= MOST):
        parser.error(f"LIMIT must be a whole number from 1 to {MOST}, not '{text}'")
    is_prime = sieve(int(text))
    if args.count:
        print(sum(is_prime))
    else:
        for number, prime in enumerate(is_prime):
            if prime:
                print(number)
    return 0


def sieve(limit: int) -> bytearray:
    """For each number from 0 to the limit, 1 if it is prime (the sieve of Eratosthenes)."""
    is_prime = bytearray([1]) * (limit + 1)
    is_prime[:2] = bytes(min(2, limit + 1))
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, limit + 1, number)))
    return is_prime


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
