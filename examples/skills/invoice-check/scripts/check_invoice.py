#!/usr/bin/env python3
"""Check that an invoice adds up: each line, the subtotal, the tax and the total. Writes out/invoice-check.json.

Exit codes: 0 right, 1 wrong (see the output), 2 wrong arguments, 3 the input cannot be read, 4 it is not an invoice,
5 the output cannot be written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path

CENT = Decimal("0.01")


class Problem(Exception):
    """Ends the script with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(argv: list[str]) -> int:
    summary, _, codes = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="check_invoice.py", description=summary, epilog=codes)
    parser.add_argument("invoice_file", help="the invoice as JSON")
    parser.add_argument(
        "--out", default="out/invoice-check.json", metavar="FILE", help="default: out/invoice-check.json"
    )
    args = parser.parse_args(argv)
    problems = check(read_invoice(args.invoice_file), args.invoice_file)
    write_output(Path(args.out), args.invoice_file, {"ok": not problems, "problems": problems})
    for problem in problems:
        print(f"{problem['where']}: {problem['printed']} is printed, {problem['computed']} is right")
    print("right" if not problems else f"wrong in {len(problems)} places")
    return 1 if problems else 0


def check(invoice: dict, name: str) -> list[dict[str, str]]:
    problems: list[dict[str, str]] = []

    def compare(where: str, printed: Decimal, computed: Decimal) -> None:
        computed = computed.quantize(CENT, ROUND_HALF_UP)
        if printed != computed:
            difference = printed - computed
            problems.append(
                {"where": where, "printed": str(printed), "computed": str(computed), "difference": str(difference)}
            )

    lines = invoice.get("lines")
    if not isinstance(lines, list) or not lines:
        raise Problem(4, f"{name}: 'lines' must be a list with at least one line")
    subtotal = Decimal(0)
    for number, line in enumerate(lines, 1):
        quantity, price, amount = (
            figure(line, key, f"{name}: line {number}") for key in ("quantity", "unit_price", "amount")
        )
        compare(f"line {number}", amount, quantity * price)
        subtotal += amount
    compare("subtotal", figure(invoice, "subtotal", name), subtotal)
    compare("tax", figure(invoice, "tax", name), figure(invoice, "subtotal", name) * figure(invoice, "tax_rate", name))
    compare("total", figure(invoice, "total", name), figure(invoice, "subtotal", name) + figure(invoice, "tax", name))
    return problems


def figure(record: object, key: str, where: str) -> Decimal:
    value = record.get(key) if isinstance(record, dict) else None
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        raise Problem(4, f"{where}: '{key}' is missing or not a number")
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() > 15:
        raise Problem(4, f"{where}: '{key}' is not a usable number: {value!r:.40}")
    return number


def read_invoice(name: str) -> dict:
    if os.path.exists(name) and not os.path.isfile(name):
        raise Problem(3, f"{name}: this is not a regular file")
    try:
        invoice = json.loads(Path(name).read_bytes().decode("utf-8-sig"), parse_float=Decimal)
    except OSError as error:
        raise Problem(3, f"{name}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise Problem(3, f"{name}: not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise Problem(4, f"{name}: not JSON: {error}") from None
    if not isinstance(invoice, dict):
        raise Problem(4, f"{name}: the top level must be an object")
    return invoice


def write_output(path: Path, name: str, result: dict) -> None:
    try:
        if path.exists() and path.samefile(name):
            raise Problem(5, f"{path}: this is the input and is not overwritten; pass another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes((json.dumps(result, ensure_ascii=False, indent=2) + "\n").encode("utf-8"))
        os.replace(part, path)
    except OSError as error:
        raise Problem(5, f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


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
        print(f"check_invoice.py: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(problem.code)
