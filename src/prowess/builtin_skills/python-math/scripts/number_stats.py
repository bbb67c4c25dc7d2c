#!/usr/bin/env python3
"""Print count, sum, mean, median, quartiles and standard deviation of the numbers in a text file, exactly.

Numbers are parted by spaces, line breaks, semicolons or commas; lines that begin with # are left out.

Exit codes: 0 done, 2 wrong arguments, 3 the input cannot be read, 4 something in it is not a number.
"""

from __future__ import annotations

import argparse
import codecs
import os
import re
import stat
import sys
from decimal import Decimal, getcontext
from pathlib import Path

MAX_BYTES = 50_000_000
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")

getcontext().prec = 200


class Problem(Exception):
    """Ends the script with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    numbers, skipped = parse_numbers(read_input(args.number_file), args)
    if not numbers:
        raise Problem(4, f"{args.number_file}: there is no number in it")
    for name, value in describe(sorted(numbers)).items():
        print(f"{name}: {value}")
    if skipped:
        print(f"skipped words: {skipped}")
    return 0


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="number_stats.py", description=summary, epilog=rest)
    parser.add_argument("number_file", help="a text file; '-' reads standard input")
    parser.add_argument(
        "--comma", choices=("separator", "thousands", "decimal"), help="what 1,234 means, where it is not clear"
    )
    parser.add_argument("--skip-words", action="store_true", help="leave out what is not a number, and say how much")
    return parser.parse_args(argv)


def parse_numbers(text: str, args: argparse.Namespace) -> tuple[list[Decimal], int]:
    numbers: list[Decimal] = []
    skipped = 0
    for line_number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        for token in re.split(r"[\s;]+", line.replace("−", "-")):
            for word in part(token.strip(","), args.comma, f"{args.number_file}:{line_number}"):
                if _NUMBER.fullmatch(word):
                    numbers.append(Decimal(word))
                elif word and args.skip_words:
                    skipped += 1
                elif word:
                    raise Problem(
                        4,
                        f"{args.number_file}:{line_number}: '{word[:40]}' is not a number; --skip-words leaves it out",
                    )
    return numbers, skipped


def part(token: str, comma: str | None, place: str) -> list[str]:
    """The words of a token; a comma that can mean several things is a question for the user, not a guess."""
    if "," not in token:
        return [token]
    if comma == "decimal":
        return [token.replace(",", ".") if token.count(",") == 1 and "." not in token else token]
    if comma == "thousands":
        return [token.replace(",", "") if _THOUSANDS.fullmatch(token) else token]
    words = token.split(",")
    if comma is None and all(map(_NUMBER.fullmatch, words)) and (len(words) == 2 or _THOUSANDS.fullmatch(token)):
        raise Problem(
            4, f"{place}: '{token[:40]}' can mean several things; pass --comma separator, thousands or decimal"
        )
    return words


def describe(numbers: list[Decimal]) -> dict[str, str]:
    """The figures of a sorted list. Quartiles lie between neighbours in proportion, as QUARTILE.INC of spreadsheets."""
    count = len(numbers)
    total = sum(numbers, Decimal(0))
    mean = total / count
    figures = {
        "count": Decimal(count),
        "sum": total,
        "min": numbers[0],
        "lower quartile": quantile(numbers, Decimal("0.25")),
        "median": quantile(numbers, Decimal("0.5")),
        "upper quartile": quantile(numbers, Decimal("0.75")),
        "max": numbers[-1],
        "mean": mean,
    }
    if count > 1:
        variance = sum(((number - mean) ** 2 for number in numbers), Decimal(0)) / (count - 1)
        figures["standard deviation (sample)"] = variance.sqrt()
    return {name: plain(value) for name, value in figures.items()}


def quantile(numbers: list[Decimal], share: Decimal) -> Decimal:
    position = share * (len(numbers) - 1)
    below = int(position)
    above = min(below + 1, len(numbers) - 1)
    return numbers[below] + (numbers[above] - numbers[below]) * (position - below)


def plain(value: Decimal) -> str:
    """At most six digits behind the point, none that say nothing."""
    exponent = value.as_tuple().exponent
    text = format(round(value, 6) if isinstance(exponent, int) and exponent < -6 else value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def read_input(name: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            facts = os.stat(name)
            if not stat.S_ISREG(facts.st_mode):
                raise Problem(3, f"{name}: this is not a regular file")
            data = Path(name).read_bytes() if facts.st_size <= MAX_BYTES else b" " * (MAX_BYTES + 1)
    except OSError as error:
        raise Problem(3, f"{name}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise Problem(3, f"{name}: more than {MAX_BYTES // 1_000_000} MB; take a part of it")
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Problem(3, f"{name}:{line}: not UTF-8 text; save the file as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[override]
        raise Problem(2, f"{message}; see: python3 scripts/{self.prog} --help")


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except Problem as problem:
        print(f"number_stats.py: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(problem.code)
