#!/usr/bin/env python3
"""answer.py rows FILE COLUMN VALUE | sum FILE COLUMN | word FILE WORD: prints `FINAL ANSWER: …`."""

from __future__ import annotations

import csv
import re
import sys
from decimal import Decimal, InvalidOperation


def main(what: str, path: str, *words: str) -> int:
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if what == "word":
        found = len(re.findall(rf"\b{re.escape(words[0])}\b", text, re.IGNORECASE))
    else:
        rows = list(csv.DictReader(text.splitlines()))
        cells = [row[words[0]] or "" for row in rows]
        found = cells.count(words[1]) if what == "rows" else sum(map(Decimal, cells), Decimal(0))
    print(f"FINAL ANSWER: {found}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (KeyError, InvalidOperation) as error:
        print(f"answer.py: {error!r}", file=sys.stderr)
        sys.exit(2)
