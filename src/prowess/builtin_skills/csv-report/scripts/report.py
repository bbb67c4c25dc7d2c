#!/usr/bin/env python3
"""Describe a CSV file: out/report.md says what is in each column, out/chart.svg shows one column grouped by another.

Exit codes: 0 done, 2 wrong arguments, 3 the input cannot be read, 4 the input is not a usable table,
5 the output cannot be written.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import difflib
import html
import io
import os
import re
import stat
import sys
import unicodedata
from collections import Counter
from datetime import date
from decimal import Decimal, getcontext
from pathlib import Path
from typing import NamedTuple

MAX_BYTES = 200_000_000
MAX_TOP = 1000
MISSING_WORDS = ("na", "n/a", "nan", "null", "none", "-")
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
YES_NO = {"true", "false", "yes", "no", "是", "否"}
NUMERIC = ("integer", "number")
AGGREGATES = ("sum", "mean", "min", "max", "count")
ID_NAME = re.compile(r"(^|[\s_-])(id|no|nr|number|code|zip|year|phone)$|编号|年份|序号", re.IGNORECASE)

_POINT = re.compile(r"[-+−]?(?:\d{1,3}(?:[, \u00a0\u202f']\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d{1,2})?")
_COMMA = re.compile(r"[-+−]?(?:\d{1,3}(?:[. \u00a0\u202f']\d{3})+|\d+)?(?:,\d+)?(?:[eE][-+]?\d{1,2})?")
_UNIT = re.compile(r"(?P<before>[$€£¥￥₹])?\s*(?P<number>.*?)\s*(?P<after>[$€£¥￥₹元%])?")
_DATE = re.compile(
    r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_OTHER_DATE = re.compile(r"\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})")

_GROUPING = re.compile(r"[ \u00a0\u202f']")
_WHOLE = re.compile(r"\d*")

getcontext().prec = 200  # sums and means of money are exact, not nearly right


class Problem(Exception):
    """Ends the script with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Table(NamedTuple):
    header: list[str]
    rows: list[list[str]]
    lines: list[int]  # the line each row ends on
    delimiter: str
    notes: list[str]


class Number(NamedTuple):
    value: Decimal
    unit: str
    has_fraction: bool

    @property
    def places(self) -> int:
        exponent = self.value.as_tuple().exponent
        return -exponent if isinstance(exponent, int) and exponent < 0 else 0


class Column(NamedTuple):
    name: str
    kind: str  # integer | number | date | yes/no | text | empty
    unit: str
    places: int  # the most digits behind the point; results are written with as many
    cells: list[str]
    numbers: list[Decimal | None]
    dates: list[date | None]
    counts: Counter[str]  # what is there
    blanks: Counter[str]  # what counts as missing

    @property
    def filled(self) -> int:
        return sum(self.counts.values())


class Chart(NamedTuple):
    title: str
    group: str
    measure: str
    bars: list[tuple[str, Decimal, int]]  # label, value, rows
    places: int


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    table = parse_table(read_input(args.csv_file, args.encoding), args)
    comma = decides_comma(table, args.decimal)
    columns = [describe(table, index, comma) for index in range(len(table.header))]
    notes = table.notes + column_notes(table, columns, comma)
    chart = make_chart(columns, table, args, notes)
    svg, report = Path(args.out_dir, "chart.svg"), Path(args.out_dir, "report.md")
    for path in (svg, report):
        refuse_input(path, args.csv_file)
    write_output(svg, render_chart(chart))
    write_output(report, render_report(args.csv_file, table, columns, chart, notes, args.top))
    print(f"{report}: {count(len(table.rows), 'row')}, {count(len(columns), 'column')}, {count(len(notes), 'note')}")
    print(f"{svg}: {chart.title}, {count(len(chart.bars), 'bar')}")
    return 0


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="report.py", description=(__doc__ or "").partition("\n")[0], epilog=(__doc__ or "").rpartition("\n\n")[2]
    )
    parser.add_argument("csv_file", help="the table; '-' reads standard input")
    parser.add_argument(
        "--group-by", metavar="COLUMN", help="one bar for each value of this column (default: a fitting one)"
    )
    parser.add_argument("--value", metavar="COLUMN", help="the numbers to chart (default: the first column of numbers)")
    parser.add_argument("--agg", choices=AGGREGATES, help="how the numbers of a group become one (default: sum)")
    parser.add_argument(
        "--bars", type=whole(1, 100), default=20, help="at most so many bars, the rest as one (default: 20)"
    )
    parser.add_argument(
        "--top", type=whole(1, MAX_TOP), default=5, help="so many frequent values for each column (default: 5)"
    )
    parser.add_argument("--delimiter", choices=sorted(DELIMITERS), help="default: found out")
    parser.add_argument("--decimal", choices=("point", "comma"), help="1.5 or 1,5 (default: found out)")
    parser.add_argument("--encoding", default="utf-8", help="for instance gb18030 or cp1252 (default: utf-8)")
    parser.add_argument(
        "--no-header", action="store_true", help="the first row is data; columns are called column 1, column 2, …"
    )
    parser.add_argument("--out-dir", default="out", help="where report.md and chart.svg go (default: out)")
    return parser.parse_args(argv)


# --- the table ------------------------------------------------------------------------------------------------------


def parse_table(text: str, args: argparse.Namespace) -> Table:
    delimiter, skipped = DELIMITERS.get(args.delimiter or "", ""), 0
    declared = re.match(r"sep=([,;|\t])\n", text)  # a line that spreadsheet programs write
    if declared:
        delimiter, text, skipped = delimiter or declared[1], text[declared.end() :], 1
    delimiter = delimiter or find_delimiter(text)
    csv.field_size_limit(max(len(text), 1))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    raw: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                raw.append((reader.line_num + skipped, [cell.strip() for cell in row]))
    except csv.Error as error:
        why = "a quote that opens is never closed" if "unexpected end" in str(error) else str(error)
        raise Problem(4, f"{args.csv_file}:{reader.line_num + skipped}: not a CSV table: {why}") from None
    if not raw:
        raise Problem(4, f"{args.csv_file}: the file is empty")
    notes: list[str] = []
    if args.no_header:
        header = [f"column {number + 1}" for number in range(len(raw[0][1]))]
    else:
        header = unique_names(raw.pop(0)[1], notes)
    if not raw:
        raise Problem(4, f"{args.csv_file}: there is a header and no row below it")
    rows = [cells for _, cells in raw]
    lines = [line for line, _ in raw]
    ragged = [line for line, cells in raw if len(cells) != len(header)]
    unlike = f"more or fewer fields than the header ({len(header)})"
    if len(ragged) > len(raw) // 2:
        hint = f"the first on line {ragged[0]}; pass --delimiter if it is not {name_of(delimiter)}"
        raise Problem(4, f"{args.csv_file}: {len(ragged)} of {len(raw)} rows have {unlike}, {hint}")
    if ragged:
        some = ", ".join(map(str, ragged[:5])) + (", …" if len(ragged) > 5 else "")
        notes.append(
            f"{unlike.capitalize()}: {count(len(ragged), 'row')} (line {some}). "
            "Missing cells count as missing, extra cells are left out."
        )
    width = len(header)
    return Table(header, [(cells + [""] * width)[:width] for cells in rows], lines, delimiter, notes)


def find_delimiter(text: str) -> str:
    """The candidate that parts the first rows into the same number of fields, the more fields the better."""
    head = text[:100_000].splitlines(keepends=True)[:60]
    best, best_score = ",", (0.0, 0)
    for candidate in DELIMITERS.values():
        try:
            widths = [len(row) for row in csv.reader(head, delimiter=candidate, skipinitialspace=True) if row]
        except csv.Error:
            continue
        width, rows = Counter(widths).most_common(1)[0] if widths else (1, 0)
        score = (rows / len(widths), width) if width > 1 else (0.0, 0)
        if score > best_score:
            best, best_score = candidate, score
    return best


def unique_names(names: list[str], notes: list[str]) -> list[str]:
    found: list[str] = []
    for number, name in enumerate(names, 1):
        base = name or f"column {number}"
        name, again = base, 1
        while name in found:
            again += 1
            name = f"{base} ({again})"
        if name != base:
            notes.append(f"Two columns are called '{base}'; the later one is shown as '{name}'.")
        found.append(name)
    if all(_POINT.fullmatch(name) and name for name in names):
        notes.append("The first row holds only numbers. If it is data, run again with --no-header.")
    return found


# --- the columns ----------------------------------------------------------------------------------------------------


def describe(table: Table, index: int, comma: bool) -> Column:
    cells = [row[index] for row in table.rows]
    texts = Counter(cells)
    blanks = Counter({text: times for text, times in texts.items() if is_missing(text)})
    counts = texts - blanks
    numbers = {text: parse_number(text, comma) for text in counts}
    days = {text: parse_date(text) for text in counts}
    read = [number for number in numbers.values() if number]
    kind, unit, places = "text", "", 0
    if not counts:
        kind = "empty"
    elif len(read) == len(counts) and len({number.unit for number in read}) == 1:
        kind = "number" if any(number.has_fraction for number in read) else "integer"
        unit, places = read[0].unit, min(12, max(number.places for number in read))
    elif all(days.values()):
        kind = "date"
    elif {text.lower() for text in counts} <= YES_NO:
        kind = "yes/no"
    values = {text: number.value for text, number in numbers.items() if number} if kind in NUMERIC else {}
    return Column(
        name=table.header[index],
        kind=kind,
        unit=unit,
        places=places,
        cells=cells,
        numbers=[values.get(cell) for cell in cells],
        dates=[days.get(cell) for cell in cells] if kind == "date" else [None for _ in cells],
        counts=counts,
        blanks=blanks,
    )


def is_missing(cell: str) -> bool:
    return not cell or cell.lower() in MISSING_WORDS


def parse_number(text: str, comma: bool) -> Number | None:
    """None for what is not a number, and for identifiers: 007, or more than 18 digits."""
    parts = _UNIT.fullmatch(text)
    if parts is None or (parts["before"] and parts["after"]):
        return None
    number = parts["number"]
    if not (_COMMA if comma else _POINT).fullmatch(number) or not any(c.isdigit() for c in number):
        return None
    number = _GROUPING.sub("", number).replace("−", "-")
    number = number.replace(".", "").replace(",", ".") if comma else number.replace(",", "")
    whole = _WHOLE.match(number.lstrip("+-"))
    digits = whole[0] if whole else ""
    if (len(digits) > 1 and digits.startswith("0")) or len(digits) > 18:
        return None
    return Number(Decimal(number), parts["before"] or parts["after"] or "", "." in number or "e" in number.lower())


def parse_date(text: str) -> date | None:
    found = _DATE.fullmatch(text)
    if not found:
        return None
    try:
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return None


def decides_comma(table: Table, wanted: str | None) -> bool:
    """Whether 1,5 is one and a half: one answer for the whole file, from the cells that can be read one way only."""
    if wanted:
        return wanted == "comma"
    only_point = only_comma = either = 0
    for cell in {cell for row in table.rows[:20_000] for cell in row}:
        if "," not in cell and "." not in cell:
            continue
        as_point, as_comma = parse_number(cell, False), parse_number(cell, True)
        only_point += bool(as_point and not as_comma)
        only_comma += bool(as_comma and not as_point)
        either += bool(as_point and as_comma)
    if only_point != only_comma:
        return only_comma > only_point
    return bool(either) and table.delimiter == ";"


def column_notes(table: Table, columns: list[Column], comma: bool) -> list[str]:
    notes = []
    if comma:
        notes.append(
            "Numbers are read with a decimal comma (1.234,5). If that is wrong, run again with --decimal point."
        )
    for column in columns:
        for word, times in sorted(column.blanks.items()):
            if word:
                notes.append(f"{column.name}: '{word}' ({count(times, 'cell')}) is counted as missing.")
        if column.kind != "text":
            continue
        filled = column.filled
        odd = [text for text in column.counts if not parse_number(text, comma)]
        rest = sum(column.counts[text] for text in odd)
        if odd and rest * 10 <= filled:
            line = table.lines[column.cells.index(odd[0])]
            notes.append(
                f"{column.name}: {filled - rest} of {filled} values are numbers; not '{cut(odd[0], 40)}' (line {line})."
            )
        elif not odd:
            notes.append(f"{column.name}: the numbers have different units, so they are read as text.")
        elif all(_OTHER_DATE.fullmatch(text) for text in column.counts):
            notes.append(
                f"{column.name}: dates whose order of day and month is not sure are read as text; YYYY-MM-DD is."
            )
    return notes


# --- the chart ------------------------------------------------------------------------------------------------------


def make_chart(columns: list[Column], table: Table, args: argparse.Namespace, notes: list[str]) -> Chart:
    aggregate = args.agg or "sum"
    value = choose_value(columns, table, args) if aggregate != "count" else None
    group = choose_group(columns, value, args.group_by)
    if value is None:
        aggregate = "count"
    labels = group_labels(group, args.bars, notes)
    groups: dict[str, list[Decimal]] = {}
    rows: Counter[str] = Counter()
    for row, label in enumerate(labels):
        rows[label] += 1
        number = value.numbers[row] if value else Decimal(1)
        if number is not None:
            groups.setdefault(label, []).append(number)
    if not groups:
        raise Problem(4, f"{args.csv_file}: column '{value.name if value else ''}' holds no number to chart")
    unit = f" ({value.unit})" if value and value.unit else ""
    measure = f"{aggregate} of {value.name}{unit}" if value else "number of rows"
    bars = [(label, aggregated(aggregate, numbers), rows[label]) for label, numbers in groups.items()]
    if group.kind in ("integer", "number", "date"):
        place: dict[str, tuple[bool, Decimal]] = {}
        for row, label in enumerate(labels):
            place.setdefault(label, sort_key(group, row))
        bars.sort(key=lambda bar: place[bar[0]])
    else:
        bars.sort(key=lambda bar: (-bar[1], bar[0]))
    if len(bars) > args.bars:
        kept = {label for label, _, _ in sorted(bars, key=lambda bar: (-abs(bar[1]), bar[0]))[: args.bars - 1]}
        others = [label for label, _, _ in bars if label not in kept]
        pooled = [number for label in others for number in groups[label]]
        bars = [bar for bar in bars if bar[0] in kept]
        bars.append(
            (
                f"other ({count(len(others), 'group')})",
                aggregated(aggregate, pooled),
                sum(rows[label] for label in others),
            )
        )
        notes.append(
            f"{group.name} has more than {args.bars} groups; the chart shows the largest and the rest as one bar."
        )
    left_out = len(labels) - sum(len(numbers) for numbers in groups.values())
    if value and left_out:
        notes.append(f"Not in the chart: {count(left_out, 'row')} without a number in '{value.name}'.")
    places = 0 if value is None else max(2, value.places) if aggregate == "mean" else value.places
    return Chart(f"{measure} by {group.name}", group.name, measure, bars, places)


def choose_value(columns: list[Column], table: Table, args: argparse.Namespace) -> Column | None:
    if args.value:
        column = named(columns, args.value)
        if column.kind not in NUMERIC:
            comma = decides_comma(table, args.decimal)
            bad = next(
                (
                    row
                    for row, cell in enumerate(column.cells)
                    if not is_missing(cell) and not parse_number(cell, comma)
                ),
                None,
            )
            where = f"; line {table.lines[bad]} says '{cut(column.cells[bad], 40)}'" if bad is not None else ""
            raise Problem(
                4,
                f"{args.csv_file}: column '{column.name}' is {column.kind}, not numbers{where}; --agg count needs none",
            )
        return column
    grouped = named(columns, args.group_by) if args.group_by else None
    for column in columns:
        if column.kind in NUMERIC and column is not grouped and not ID_NAME.search(column.name):
            return column
    if args.agg:
        raise Problem(4, f"{args.csv_file}: there is no column of numbers for --agg {args.agg}; --agg count needs none")
    return None


def choose_group(columns: list[Column], value: Column | None, wanted: str | None) -> Column:
    """The named column; else the first text column with few values, the first date, or whatever is there."""
    if wanted:
        return named(columns, wanted)
    others = [column for column in columns if column is not value]
    few = [column for column in others if column.kind in ("text", "yes/no") and 2 <= len(column.counts) <= 20]
    repeated = [column for column in few if len(column.counts) < column.filled]
    dates = [column for column in others if column.kind == "date"]
    texts = [column for column in others if column.kind == "text"]
    return (repeated or few or dates or texts or others or columns)[0]


def named(columns: list[Column], name: str) -> Column:
    for column in columns:
        if column.name == name:
            return column
    loose = [column for column in columns if column.name.strip().lower() == name.strip().lower()]
    if len(loose) == 1:
        return loose[0]
    near = difflib.get_close_matches(name, [column.name for column in columns], n=1)
    meant = f" Did you mean '{near[0]}'?" if near else ""
    raise Problem(
        2, f"there is no column '{name}'.{meant} The columns are: {', '.join(column.name for column in columns)}"
    )


def group_labels(group: Column, most: int, notes: list[str]) -> list[str]:
    """A label for each row; more days than bars become months, more months than bars become years."""
    if group.kind != "date":
        return [cell if not is_missing(cell) else "(missing)" for cell in group.cells]
    labels, word = [], ""
    for length, period in ((10, ""), (7, "month"), (4, "year")):
        labels, word = [day.isoformat()[:length] if day else "(missing)" for day in group.dates], period
        if len(set(labels)) <= most:
            break
    if word:
        notes.append(f"{group.name} has more than {most} different days; the chart shows one bar for each {word}.")
    return labels


def sort_key(group: Column, row: int) -> tuple[bool, Decimal]:
    """Numbers and days in their own order, what is missing last."""
    number = group.numbers[row]
    day = group.dates[row]
    if day is not None:
        number = Decimal(day.toordinal())
    return number is None, number if number is not None else Decimal(0)


def aggregated(how: str, numbers: list[Decimal]) -> Decimal:
    if how == "mean":
        return sum(numbers, Decimal(0)) / len(numbers)
    if how in ("min", "max"):
        return min(numbers) if how == "min" else max(numbers)
    return sum(numbers, Decimal(0))


def render_chart(chart: Chart) -> str:
    label_width, value_width, plot, row_height, top = 190, 110, 440, 28, 56
    width = label_width + plot + value_width
    height = top + row_height * len(chart.bars) + 16
    low = min(Decimal(0), *(value for _, value, _ in chart.bars))
    high = max(Decimal(0), *(value for _, value, _ in chart.bars))
    span = (high - low) or Decimal(1)

    def x(value: Decimal) -> float:
        return label_width + float((value - low) / span) * plot

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
        f'     width="{width}" height="{height}">',
        f"<title>{xml(chart.title)}</title>",
        "<style>text{font:13px system-ui,'Noto Sans','Noto Sans CJK SC',sans-serif;fill:#222}"
        ".t{font-size:17px;font-weight:600}.l{text-anchor:end}rect{fill:#3b6ea8}.n{fill:#b5533c}line{stroke:#888}</style>",
        f'<rect width="{width}" height="{height}" style="fill:#fff"/>',
        f'<text class="t" x="16" y="30">{xml(cut(chart.title, 70))}</text>',
    ]
    for number, (label, value, _) in enumerate(chart.bars):
        y = top + row_height * number
        start, end = sorted((x(Decimal(0)), x(value)))
        kind = ' class="n"' if value < 0 else ""
        lines.append(f'<text class="l" x="{label_width - 8}" y="{y + 16}">{xml(cut(label, 24))}</text>')
        lines.append(f'<rect{kind} x="{start:.1f}" y="{y + 2}" width="{max(end - start, 0.5):.1f}" height="20"/>')
        lines.append(f'<text x="{end + 6:.1f}" y="{y + 16}">{xml(fixed(value, chart.places))}</text>')
    zero = x(Decimal(0))
    lines.append(f'<line x1="{zero:.1f}" y1="{top - 4}" x2="{zero:.1f}" y2="{height - 12}"/>')
    return "\n".join([*lines, "</svg>", ""])


# --- the report -----------------------------------------------------------------------------------------------------


def render_report(name: str, table: Table, columns: list[Column], chart: Chart, notes: list[str], top: int) -> str:
    blanks = {text for column in columns for text in column.blanks}
    complete = sum(blanks.isdisjoint(row) for row in table.rows)
    title = "standard input" if name == "-" else os.path.basename(name)
    lines = [f"# Report on {cell_text(title)}", ""]
    lines += [f"- Rows: {len(table.rows)}, of which {complete} have no missing value"]
    lines += [f"- Columns: {len(columns)}", f"- Delimiter: {name_of(table.delimiter)}", ""]
    lines += ["## Columns", ""]
    lines += markdown_table(
        ["Column", "Type", "Filled", "Missing", "Distinct"],
        [[c.name, kind_of(c), c.filled, sum(c.blanks.values()), len(c.counts)] for c in columns],
    )
    numeric = [column for column in columns if column.kind in NUMERIC]
    if numeric:
        lines += ["## Numbers", ""]
        lines += markdown_table(["Column", "Min", "Mean", "Median", "Max", "Sum"], [number_row(c) for c in numeric])
    dated = [column for column in columns if column.kind == "date"]
    if dated:
        lines += ["## Dates", ""]
        days = [(column.name, [day for day in column.dates if day]) for column in dated]
        lines += markdown_table(
            ["Column", "Earliest", "Latest"], [[n, min(d).isoformat(), max(d).isoformat()] for n, d in days]
        )
    worded = [column for column in columns if column.kind in ("text", "yes/no")]
    if worded:
        lines += ["## Most frequent values", ""]
        rows = []
        for column in worded:
            filled = column.filled
            ranked = sorted(column.counts.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
            rows += [[column.name, text, times, f"{Decimal(100 * times) / filled:.1f} %"] for text, times in ranked]
        lines += markdown_table(["Column", "Value", "Rows", "Share"], rows)
    lines += ["## Chart", "", f"![{cell_text(chart.title)}](chart.svg)", ""]
    bars = [[label, fixed(value, chart.places), rows] for label, value, rows in chart.bars]
    lines += markdown_table([chart.group, chart.measure, "rows"], bars)
    if notes:
        lines += ["## Notes", ""]
        lines += [f"- {cell_text(note, 400)}" for note in notes]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def number_row(column: Column) -> list[object]:
    numbers = sorted(number for number in column.numbers if number is not None)
    exact, rounded = column.places, max(2, column.places)
    middle = len(numbers) // 2
    median = numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2
    total = sum(numbers, Decimal(0))
    low, high = fixed(numbers[0], exact), fixed(numbers[-1], exact)
    return [column.name, low, fixed(total / len(numbers), rounded), fixed(median, rounded), high, fixed(total, exact)]


def kind_of(column: Column) -> str:
    return f"{column.kind} ({column.unit})" if column.unit else column.kind


def markdown_table(header: list[str], rows: list[list[object]]) -> list[str]:
    lines = ["| " + " | ".join(cell_text(name) for name in header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(cell_text(str(cell)) for cell in row) + " |" for row in rows]
    return [*lines, ""]


def cell_text(text: str, width: int = 60) -> str:
    """Text from the file on one line, unable to break the table it stands in."""
    return re.sub(r"([\\|*`\[\]])", r"\\\1", html.escape(cut(" ".join(text.split()), width), quote=False))


def fixed(value: Decimal, places: int) -> str:
    text = format(round(value, places), "f")
    return text if text.strip("-0.") else text.lstrip("-")


def cut(text: str, width: int) -> str:
    """At most `width` columns on a screen; a Chinese character takes two."""
    used = 0
    for at, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > width:
            return text[: max(0, at - 1)] + "…"
    return text


def xml(text: str) -> str:
    return html.escape("".join(c for c in text if c.isprintable() or c == " "))


def name_of(delimiter: str) -> str:
    return next(name for name, character in DELIMITERS.items() if character == delimiter)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- files and arguments --------------------------------------------------------------------------------------------


def read_input(name: str, encoding: str) -> str:
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
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        text = data.decode("utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise Problem(2, f"there is no encoding '{encoding}'") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Problem(
            3, f"{name}:{line}: not {encoding} text; pass --encoding, for instance gb18030 or cp1252"
        ) from None
    if "\0" in text:
        raise Problem(3, f"{name}: this is a binary file, not a text table")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def refuse_input(path: Path, name: str) -> None:
    if name != "-" and path.exists() and path.samefile(name):
        raise Problem(5, f"{path}: this is the input and is not overwritten; pass another --out-dir")


def write_output(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text.encode("utf-8", "backslashreplace"))
        os.replace(part, path)
    except OSError as error:
        raise Problem(5, f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


class Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[override]
        raise Problem(2, f"{message}; see: python3 scripts/{self.prog} --help")


def whole(least: int, most: int):
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
        return int(text)

    return parse


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except Problem as problem:
        print(f"report.py: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(problem.code)
