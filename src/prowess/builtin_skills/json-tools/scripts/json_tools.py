#!/usr/bin/env python3
"""Validate, format, query, compare and convert JSON. Numbers, key order and Unicode stay as they were written.

Exit codes: 0 done, 1 nothing at that path or (with --exit-code) the files differ, 2 wrong arguments,
3 the input cannot be read, 4 the input is not valid JSON, 5 the output cannot be written.
"""

from __future__ import annotations

import argparse
import codecs
import difflib
import json
import os
import re
import stat
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

MAX_BYTES = 100_000_000
MAX_ALIGNED = 2000  # longer lists are compared place by place

_TOKEN = re.compile(
    r'\s*(?:(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<word>-?[A-Za-z]+)|(?P<number>-?[0-9.eE+-]+)|(?P<mark>[][{}:,]))',
    re.DOTALL,
)
_STEP = re.compile(
    r"""\.?(?P<key>[^.\[\]"'\s][^.\[\]]*)|\[(?P<index>-?\d{1,9})\]|(?P<all>\[\*\])|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
)
_PLAIN_KEY = re.compile(r"[^\W\d]\w*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Problem(Exception):
    """Ends the script with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Number(str):
    """A number as it was written, so that 1.10 stays 1.10 and long numbers lose no digit."""


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    try:
        return args.run(args)
    except RecursionError:
        raise Problem(4, "the input is nested too deeply") from None


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    summary, _, codes = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="json_tools.py", description=summary, epilog=codes)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, run: Any, help: str, *files: str, out: str | None = None) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=help, description=help, epilog=codes)
        for file in files:
            made.add_argument(file, help="'-' reads standard input")
        made.add_argument(
            "--allow-duplicates", action="store_true", help="of a key that occurs twice the last value counts"
        )
        if out:
            made.add_argument("--out", default=out, metavar="FILE", help=f"default: {out}")
        made.set_defaults(run=run)
        return made

    verb("validate", validate, "Say whether a file is JSON (a .jsonl file: whether every line is).", "json_file")
    made = verb("format", format_file, "Write a file with regular indentation.", "json_file", out="out/formatted.json")
    made.add_argument(
        "--indent", type=int, choices=range(9), default=2, metavar="0-8", help="default: 2; 0 writes one line"
    )
    made.add_argument("--sort-keys", action="store_true", help="keys in alphabetical order")
    made = verb("query", query, "Write the part of a file that a path names.", "json_file", out="out/query.json")
    made.add_argument("path", help='for instance items[0].name, items[*].price or ["a key"].b')
    made = verb("diff", diff, "List what differs between two files.", "old_file", "new_file", out="out/diff.json")
    made.add_argument("--exit-code", action="store_true", help="end with 1 when they differ")
    verb("to-jsonl", to_jsonl, "Write the items of a JSON list one on a line.", "json_file", out="out/data.jsonl")
    verb("to-json", to_json, "Write JSON lines as one JSON list.", "jsonl_file", out="out/data.json")
    return parser.parse_args(argv)


# --- the verbs ------------------------------------------------------------------------------------------------------


def validate(args: argparse.Namespace) -> int:
    if args.json_file.lower().endswith((".jsonl", ".ndjson")):
        items = parse_lines(args, args.json_file)
        print(f"valid: {args.json_file} is JSON lines with {count(len(items), 'item')}")
    else:
        print(f"valid: {args.json_file} is JSON, {shape(parse_file(args, args.json_file))}")
    return 0


def format_file(args: argparse.Namespace) -> int:
    value = parse_file(args, args.json_file)
    return finish(args, render(value, args.indent, sort_keys=args.sort_keys), shape(value), args.json_file)


def query(args: argparse.Namespace) -> int:
    value = find(parse_file(args, args.json_file), parse_path(args.path))
    text = render(value, 2)
    print(text if len(text) <= 2000 else text[:2000] + "…")
    return finish(args, text, shape(value), args.json_file)


def diff(args: argparse.Namespace) -> int:
    changes = list(compare(parse_file(args, args.old_file), parse_file(args, args.new_file), "$"))
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for change in changes[:50]:
        values = [cut(render(change[side], 0)) for side in ("from", "to") if side in change]
        print(f"{signs[change['change']]} {change['path']}: {' -> '.join(values)}")
    if len(changes) > 50:
        print(f"… and {len(changes) - 50} more")
    finish(args, render(changes, 2), count(len(changes), "difference"), args.old_file, args.new_file)
    return 1 if changes and args.exit_code else 0


def to_jsonl(args: argparse.Namespace) -> int:
    items = parse_file(args, args.json_file)
    if not isinstance(items, list):
        raise Problem(4, f"{args.json_file}: the top level is {shape(items)}, not a list; query the list first")
    return finish(args, "\n".join(render(item, 0) for item in items), count(len(items), "line"), args.json_file)


def to_json(args: argparse.Namespace) -> int:
    items = parse_lines(args, args.jsonl_file)
    return finish(args, render(items, 2), shape(items), args.jsonl_file)


def finish(args: argparse.Namespace, text: str, what: str, *inputs: str) -> int:
    path = Path(args.out)
    if any(name != "-" and path.exists() and path.samefile(name) for name in inputs):
        raise Problem(5, f"{path}: this is the input and is not overwritten; pass another --out")
    write_output(path, text + "\n" if text else "")
    print(f"wrote {path}: {what}")
    return 0


# --- reading --------------------------------------------------------------------------------------------------------


def parse_file(args: argparse.Namespace, name: str) -> Any:
    text = read_input(name)
    return parse(text, text, 0, name, args.allow_duplicates)


def parse_lines(args: argparse.Namespace, name: str) -> list[Any]:
    text = read_input(name)
    items, start = [], 0
    for line in text.split("\n"):
        if line.strip():
            items.append(parse(line, text, start, name, args.allow_duplicates))
        start += len(line) + 1
    return items


def parse(text: str, whole: str, start: int, name: str, allow_duplicates: bool) -> Any:
    """The value that `text` holds, which begins at `start` of the `whole` file; every problem says line and column."""
    suspicious: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            suspicious.append("a key occurs twice")
        return made

    try:
        value = json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=suspicious.append, object_pairs_hook=pairs
        )
    except json.JSONDecodeError as error:
        at, why = explain(text, error)
        raise Problem(4, f"{place(whole, start + at, name)}: not valid JSON: {why}") from None
    if suspicious:
        for at, why, fatal in find_suspicious(text):
            if fatal or not allow_duplicates:
                raise Problem(4, f"{place(whole, start + at, name)}: {why}")
    return value


def explain(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Where and why, in words that say what to change."""
    at = min(error.pos, len(text))
    before, after = text[:at].rstrip(), text[at:].lstrip()
    if after.startswith(",") and after[1:].lstrip()[:1] in ("}", "]"):  # newer Pythons point at the comma
        return text.index(",", at), "a comma before the closing bracket"
    if before.endswith(",") and after[:1] in ("}", "]"):
        return len(before) - 1, "a comma before the closing bracket"
    if not text.strip():
        return 0, "the file is empty"
    if not after:
        return len(before), "the text ends too early: a bracket or quote that opens is never closed"
    if "Extra data" in error.msg:
        return at, "something follows after the end; if it is one value on each line, use to-json"
    if "Unterminated string" in error.msg:
        return at, "the text that begins here is never closed"
    if "control character" in error.msg:
        return at, "a line break or tab inside a text; write \\n or \\t"
    if "escape" in error.msg:
        return at, "an unknown escape; write \\\\ for one backslash"
    if after.startswith(("//", "/*", "#")):
        return at, "a comment; JSON has none"
    if after.startswith("'"):
        return at, "a single quote; texts and keys stand in double quotes"
    if after.startswith(("True", "False", "None", "undefined")):
        return at, "an unknown word; write true, false or null"
    if "property name" in error.msg:
        return at, "a key in double quotes is expected"
    if "delimiter" in error.msg:
        return at, f"{error.msg.split(' ')[1].strip(chr(39))!r} is expected here"
    return at, "a value is expected here"


def find_suspicious(text: str) -> list[tuple[int, str, bool]]:
    """(offset, what, whether it is fatal): keys that occur twice, NaN and Infinity, in a text that json accepts."""
    found: list[tuple[int, str, bool]] = []
    stack: list[set[str] | None] = []
    at, is_key = 0, False
    while token := _TOKEN.match(text, at):
        at = token.end()
        if token["word"] in ("NaN", "Infinity", "-Infinity"):
            found.append((token.start("word"), f"{token['word']} is not a JSON value; write null", True))
        elif token["string"] and is_key and stack and stack[-1] is not None:
            key = json.loads(token["string"], strict=False)
            if key in stack[-1]:
                name = cut(json.dumps(key, ensure_ascii=False))
                what = f"the key {name} occurs twice; --allow-duplicates keeps the last"
                found.append((token.start("string"), what, False))
            stack[-1].add(key)
        if token["mark"] in ("{", "["):
            stack.append(set() if token["mark"] == "{" else None)
        elif token["mark"] in ("}", "]"):
            stack.pop()
        is_key = token["mark"] in ("{", ",")
    return found


def place(text: str, at: int, name: str) -> str:
    return f"{name}:{text.count(chr(10), 0, at) + 1}:{at - (text.rfind(chr(10), 0, at) + 1) + 1}"


# --- paths ----------------------------------------------------------------------------------------------------------


def parse_path(text: str) -> list[str | int | None]:
    """Steps: a key, an index, or None for every item."""
    rest = text.strip()
    rest = rest[1:] if rest.startswith("$") else rest
    steps: list[str | int | None] = []
    while rest and rest != ".":
        found = _STEP.match(rest)
        if not found:
            forms = 'items[0].name, items[*].price or ["a key"]'
            raise Problem(2, f"the path '{text}' cannot be read at '{rest}'; write it as {forms}")
        if found["all"]:
            steps.append(None)
        elif found["index"]:
            steps.append(int(found["index"]))
        else:
            steps.append(json.loads(found["quoted"], strict=False) if found["quoted"] else found["key"])
        rest = rest[found.end() :]
    return steps


def find(value: Any, steps: list[str | int | None], at: str = "$") -> Any:
    for number, step in enumerate(steps):
        if step is None:
            items = list(value.values()) if isinstance(value, dict) else value
            if not isinstance(items, list):
                raise Problem(1, f"nothing found: {at} is {shape(value)} and has no items")
            keys = list(value) if isinstance(value, dict) else list(range(len(items)))
            return [find(item, steps[number + 1 :], at + step_text(key)) for key, item in zip(keys, items)]  # noqa: B905
        if isinstance(value, list) and isinstance(step, str) and re.fullmatch(r"\d{1,9}", step):
            step = int(step)  # items.0 means items[0]
        in_object = isinstance(value, dict) and step in value
        in_list = isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value)
        if in_object or in_list:
            value = value[step]  # type: ignore[index]
        elif isinstance(value, dict):
            near = difflib.get_close_matches(str(step), value, n=3) or list(value)[:10]
            raise Problem(1, f"nothing found: {at} has no key '{step}'; it has: {cut(', '.join(near), 200) or 'none'}")
        elif isinstance(value, list):
            raise Problem(1, f"nothing found: {at} is {shape(value)}; no item '{step}' (use [0], [-1] or [*])")
        else:
            raise Problem(1, f"nothing found: {at} is {shape(value)} and has no '{step}'")
        at += step_text(step)
    return value


def step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"


# --- comparing ------------------------------------------------------------------------------------------------------


def compare(old: Any, new: Any, at: str):
    """Each difference once. A path names the place in the new file, and in the old one for what was removed."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            path = at + step_text(key)
            if key not in new:
                yield {"change": "removed", "path": path, "from": old[key]}
            elif key not in old:
                yield {"change": "added", "path": path, "to": new[key]}
            else:
                yield from compare(old[key], new[key], path)
    elif isinstance(old, list) and isinstance(new, list):
        for i1, i2, j1, j2 in unequal_parts(old, new):
            both = min(i2 - i1, j2 - j1)
            for step in range(both):
                yield from compare(old[i1 + step], new[j1 + step], f"{at}[{j1 + step}]")
            for index in range(i1 + both, i2):
                yield {"change": "removed", "path": f"{at}[{index}]", "from": old[index]}
            for index in range(j1 + both, j2):
                yield {"change": "added", "path": f"{at}[{index}]", "to": new[index]}
    elif key_of(old) != key_of(new):
        yield {"change": "changed", "path": at, "from": old, "to": new}


def unequal_parts(old: list, new: list) -> list[tuple[int, int, int, int]]:
    """The stretches that differ, so that one inserted item is one difference and not a hundred."""
    if max(len(old), len(new)) > MAX_ALIGNED:
        return [(0, len(old), 0, len(new))]
    matcher = difflib.SequenceMatcher(
        None, [key_of(item) for item in old], [key_of(item) for item in new], autojunk=False
    )
    return [(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]


def key_of(value: Any) -> Any:
    """Equal for equal values: 1 and 1.0 are, 1 and "1" and true are not."""
    if isinstance(value, Number):
        try:
            return ("number", Decimal(value))
        except InvalidOperation:
            return ("number", str(value))
    if isinstance(value, dict):
        return ("object", tuple(sorted((key, key_of(item)) for key, item in value.items())))
    if isinstance(value, list):
        return ("list", tuple(key_of(item) for item in value))
    return (type(value).__name__, value)


# --- writing --------------------------------------------------------------------------------------------------------


def render(value: Any, indent: int, *, sort_keys: bool = False, depth: int = 0) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, (dict, list)) and value:
        inner = "\n" + " " * indent * (depth + 1) if indent else ""
        comma = "," + inner if indent else ", "
        end = "\n" + " " * indent * depth if indent else ""
        if isinstance(value, dict):
            keys = sorted(value) if sort_keys else list(value)
            items = [
                f"{quoted(key)}: {render(value[key], indent, sort_keys=sort_keys, depth=depth + 1)}" for key in keys
            ]
            return "{" + inner + comma.join(items) + end + "}"
        items = [render(item, indent, sort_keys=sort_keys, depth=depth + 1) for item in value]
        return "[" + inner + comma.join(items) + end + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def quoted(text: str) -> str:
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(text, ensure_ascii=False))


def shape(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with {count(len(value), 'key')}"
    if isinstance(value, list):
        return f"a list with {count(len(value), 'item')}"
    if isinstance(value, Number):
        return "a number"
    return {"str": "a text", "bool": "true or false", "NoneType": "null"}[type(value).__name__]


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cut(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


# --- files and arguments --------------------------------------------------------------------------------------------


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
        raise Problem(3, f"{name}:{line}: not UTF-8 text; JSON must be UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_output(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text.encode("utf-8"))
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
        print(f"json_tools.py: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(problem.code)
