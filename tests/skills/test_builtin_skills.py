"""The skills that ship are models for authors: nothing is found in them, and every command does what it says."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import prowess
from conftest import dear
from guard import GUARD_S
from prowess._internal.tokens import estimate, get_counter
from prowess.skills.render import xml_entry
from prowess.skills.roots import BUILTIN
from prowess.skills.search import SearchDocument, open_search

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples" / "skills"
DATA = REPOSITORY / "examples" / "data"
SHIPPED = sorted(path.parent for path in Path(BUILTIN).glob("*/SKILL.md"))
SKILLS = [*SHIPPED, *sorted(path.parent for path in EXAMPLES.glob("*/SKILL.md"))]
SCRIPTS = [script for skill in SKILLS for script in sorted((skill / "scripts").glob("*.py"))]
SECTIONS = ["Goal", "Inputs and outputs", "Steps", "Failure modes", "Checklist", "Resources"]
NO_NETWORK = {
    "asyncio",
    "ctypes",
    "ftplib",
    "http",
    "multiprocessing",
    "smtplib",
    "socket",
    "ssl",
    "subprocess",
    "urllib",
}


def by_name(path: Path) -> str:
    return path.parent.parent.name + "/" + path.name if path.suffix else path.name


# --- what is written --------------------------------------------------------------------------------------------------


def test_what_ships() -> None:
    assert [skill.name for skill in SHIPPED] == [
        "csv-report",
        "json-tools",
        "python-math",
        "skill-writer",
        "text-stats",
    ]
    assert len(SKILLS) == 8


@pytest.mark.parametrize("skill", SKILLS, ids=by_name)
@pytest.mark.parametrize("profile", ["default", "spec", "portable", "security"])
def test_nothing_is_found(skill: Path, profile: str) -> None:
    [report] = prowess.check([str(skill)], profile=profile)
    assert report.findings == ()


@pytest.mark.parametrize("skill", SKILLS, ids=by_name)
def test_the_description_says_what_when_and_not_for_what(skill: Path) -> None:
    [entry] = prowess.discover(skill)
    assert " whenever the user " in entry.description
    assert re.search(r"\b(Not|not) for\b", entry.description)
    assert entry.name == "invoice-check" or 40 <= len(entry.description.split()) <= 60  # two languages in one


@pytest.mark.parametrize("skill", SKILLS, ids=by_name)
def test_the_description_costs_50_to_100_tokens_of_a_request(skill: Path) -> None:
    [entry] = prowess.discover(skill)
    shown = xml_entry(entry, (entry.name, None)) + "\n"
    assert 50 <= estimate(shown) <= 100 and 50 <= get_counter(exact=True)(shown) <= 100


@pytest.mark.parametrize("skill", SKILLS, ids=by_name)
def test_the_body_has_its_six_sections_and_names_every_file(skill: Path) -> None:
    [entry] = prowess.discover(skill)
    loaded = prowess.load(prowess.discover(skill), entry.name)
    prose = re.sub(r"^```.*?^```$", "", loaded.body, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^## (?:.* · )?(.+)$", prose, re.MULTILINE)
    assert headings == SECTIONS
    assert loaded.body.count("\n") < 150
    for path in loaded.resources:
        assert path in loaded.body, f"{path} is never mentioned"
    assert loaded.fields["license"] == "Apache-2.0"


@pytest.mark.parametrize("script", SCRIPTS, ids=by_name)
def test_a_script_needs_python_and_nothing_else(script: Path) -> None:
    source = script.read_text(encoding="utf-8")
    assert source.startswith("#!/usr/bin/env python3\n")
    assert os.access(script, os.X_OK)
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported <= sys.stdlib_module_names
    assert not imported & NO_NETWORK


@pytest.mark.parametrize(
    ("request_text", "wanted"),
    [
        ("what is in this csv file?", "csv-report"),
        ("average sales by region, as a chart", "csv-report"),
        ("报表", "csv-report"),
        ("how many words does my essay have", "text-stats"),
        ("how long does it take to read this post", "text-stats"),
        ("统计这篇文章的字数", "text-stats"),
        ("why does this json not parse", "json-tools"),
        ("what changed between old.json and new.json", "json-tools"),
        ("turn this jsonl file into a list", "json-tools"),
        ("print the first 20 fibonacci numbers", "python-math"),
        ("all primes below 1000", "python-math"),
        ("median of these numbers", "python-math"),
        ("make a skill of our release checklist", "skill-writer"),
        ("why does my skill never trigger", "skill-writer"),
        ("minutes from the notes of our meeting", "meeting-notes"),
        ("how should this endpoint report an error", "api-style-guide"),
        ("does this invoice add up", "invoice-check"),
        ("这张发票的合计对不对", "invoice-check"),
    ],
)
def test_a_request_finds_the_skill_that_is_meant(request_text: str, wanted: str) -> None:
    catalog = prowess.discover(BUILTIN, EXAMPLES)
    with open_search([SearchDocument(e.id, e.name, e.description, e.keywords) for e in catalog]) as index:
        best = index.search(request_text, 3)[0]
    assert best.id == f"explicit:{wanted}"


# --- what is promised -------------------------------------------------------------------------------------------------

OLD = '{"name": "Zoë", "price": 1.10, "tags": ["a", "b"], "items": [{"name": "pen"}, {"name": "ink"}], "gone": 1}'
NEW = '{"items": [{"name": "pen"}, {"name": "Ink"}], "price": 1.1, "tags": ["new", "a", "b"], "name": "Zoë"}'
INVOICE = {
    "lines": [
        {"text": "笔记本", "quantity": "12", "unit_price": "4.50", "amount": "54.00"},
        {"text": "ink", "quantity": "3", "unit_price": "6.75", "amount": "20.25"},
    ],
    "tax_rate": "0.06",
    "subtotal": "74.25",
    "tax": "4.46",
    "total": "78.71",
}
INPUTS = {
    "sales.csv": (DATA / "sales.csv").read_text(encoding="utf-8"),
    "notes.txt": (DATA / "notes.txt").read_text(encoding="utf-8"),
    "old.json": OLD,
    "new.json": NEW,
    "list.json": '[{"a": 1.50}, {"b": "é\\n"}]',
    "list.jsonl": '{"a": 1.50}\r\n\r\n{"b": "é\\n"}\r\n',
    "numbers.txt": "# measured on Monday\n3 1 2; 4\n2.5\n",
    "invoice.json": json.dumps(INVOICE, ensure_ascii=False),
}
PLACEHOLDERS = {
    "csv_file": "inputs/sales.csv",
    "group_column": "region",
    "value_column": "amount",
    "text_file": "inputs/notes.txt",
    "number": "3",
    "words_per_minute": "100",
    "characters_per_minute": "200",
    "json_file": "inputs/old.json",
    "path": "items[*].name",
    "old_file": "inputs/old.json",
    "new_file": "inputs/new.json",
    "jsonl_file": "inputs/list.jsonl",
    "count": "20",
    "limit": "30",
    "number_file": "inputs/numbers.txt",
    "skill_name": "tide-table",
    "request": "one kind of input",
    "invoice_file": "inputs/invoice.json",
}


class Ran:
    """A command that was run in a copy of its skill, and what it left behind."""

    def __init__(self, folder: Path, process: subprocess.CompletedProcess[bytes]) -> None:
        self.folder, self.code = folder, process.returncode
        self.stdout, self.stderr = process.stdout.decode("utf-8"), process.stderr.decode("utf-8")

    def text(self, path: str) -> str:
        data = (self.folder / path).read_bytes()
        assert b"\r" not in data
        return data.decode("utf-8")

    def json(self, path: str) -> object:
        return json.loads(self.text(path))

    def produced(self) -> dict[str, bytes]:
        out = self.folder / "out"
        return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.fixture
def stage(tmp_path: Path, machine: Path) -> Callable[..., Callable[..., Ran]]:
    """stage(skill) gives run(command): in a copy of the skill with inputs/ and out/, as a workspace has them, on a
    machine whose locale knows no more than ASCII."""

    def make(skill: Path) -> Callable[..., Ran]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path), skill.name)
        shutil.copytree(skill, folder)
        (folder / "out").mkdir()
        for name, text in INPUTS.items():
            path = folder / "inputs" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        before = fingerprint(folder)

        def run(command: str | list[str], *, stdin: bytes = b"", seed: str = "0") -> Ran:
            tools = os.path.dirname(sys.executable)
            environment = {
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(machine),
                "LC_ALL": "C",
                "PYTHONCOERCECLOCALE": "0",
                "PYTHONUTF8": "0",
                "PYTHONHASHSEED": seed,
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            argv = ["bash", "-c", command] if isinstance(command, str) else command
            process = subprocess.run(
                argv, cwd=folder, env=environment, input=stdin, capture_output=True, timeout=GUARD_S
            )
            assert fingerprint(folder) == before, "the skill or its input was changed"
            return Ran(folder, process)

        return run

    return make


def fingerprint(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and folder / "out" not in path.parents]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def commands_of(skill: Path) -> list[str]:
    """The `Command:` lines of a body and the lines of its bash blocks, as they are written."""
    body = (skill / "SKILL.md").read_text(encoding="utf-8")
    found = re.findall(r"^\s*Command: (.+)$", body, re.MULTILINE)
    for block in re.findall(r"^\s*```bash\n(.*?)^\s*```", body, re.MULTILINE | re.DOTALL):
        found += [line.strip() for line in block.splitlines() if line.strip()]
    return found


def filled(command: str) -> str:
    return re.sub(r"<(\w+)>", lambda found: shlex.quote(PLACEHOLDERS[found[1]]), command)


def check_report(ran: Ran, title: str, first_bar: str) -> None:
    report = ran.text("out/report.md")
    assert "- Rows: 18, of which 16 have no missing value" in report
    assert "| amount | number | 17 | 1 | 16 |" in report
    assert "| amount | 27.00 | 96.52 | 83.80 | 243.00 | 1640.90 |" in report
    assert "| date | 2025-01-06 | 2025-03-31 |" in report
    assert "| product | Ink, blue | 4 | 22.2 % |" in report
    assert f"![{title}](chart.svg)" in report
    assert first_bar in report
    check_chart(ran, title)


def check_chart(ran: Ran, title: str) -> None:
    chart = ET.fromstring(ran.text("out/chart.svg"))
    names = {"svg": "http://www.w3.org/2000/svg"}
    assert chart.findtext("svg:title", namespaces=names) == title
    assert len(chart.findall("svg:rect", names)) > 2


def check_stats(ran: Ran, top: int = 10, seconds: int = 36) -> None:
    stats = ran.json("out/stats.json")
    assert isinstance(stats, dict)
    assert stats["words"]["total"] == stats["words"]["spaced"] + stats["words"]["cjk_characters"] == 111 + 46
    assert stats["sentences"] == 17
    assert stats["paragraphs"] == 6
    assert stats["characters"]["by_script"] == {"digits": 9, "han": 46, "latin": 478, "punctuation": 38}
    assert len(stats["frequent_words"]) == top
    assert stats["frequent_words"][0] == {"word": "customers", "count": 3}
    assert {"pair": "发票", "count": 2} in stats["frequent_han_pairs"][:3]
    assert stats["reading_time"]["seconds"] == seconds


def check_lines(path: str, first: list[str], count: int) -> Callable[[Ran], None]:
    def check(ran: Ran) -> None:
        lines = ran.text(path).splitlines()
        assert lines[: len(first)] == first
        assert len(lines) == count

    return check


def check_numbers(ran: Ran) -> None:
    figures = dict(line.split(": ") for line in ran.text("out/number-stats.txt").splitlines())
    assert figures["count"] == "5"
    assert figures["sum"] == "12.5"
    assert figures["mean"] == figures["median"] == "2.5"
    assert (figures["lower quartile"], figures["upper quartile"]) == ("2", "3")
    assert figures["standard deviation (sample)"] == "1.118034"


def check_started(ran: Ran) -> None:
    text = ran.text("out/tide-table/SKILL.md")
    assert text.startswith("---\nname: tide-table\n")
    assert "# Tide table" in text
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == SECTIONS


def check_equal(actual: object, expected: object) -> None:
    assert actual == expected


def check_differences(ran: Ran) -> None:
    assert ran.json("out/diff.json") == [
        {"change": "added", "path": "$.tags[0]", "to": "new"},
        {"change": "changed", "path": "$.items[1].name", "from": "ink", "to": "Ink"},
        {"change": "removed", "path": "$.gone", "from": 1},
    ]
    assert '~ $.items[1].name: "ink" -> "Ink"' in ran.stdout


BY_REGION = "| East | 513.80 | 4 |"
PROMISES: dict[str, Callable[[Ran], None]] = {
    "python3 scripts/report.py <csv_file>": lambda ran: check_report(
        ran, "sum of quantity by region", "| East | 71 | 4 |"
    ),
    "python3 scripts/report.py <csv_file> --group-by <group_column> --value <value_column>": lambda ran: check_report(
        ran, "sum of amount by region", BY_REGION
    ),
    "python3 scripts/report.py <csv_file> --group-by <group_column> --agg count": lambda ran: check_report(
        ran, "number of rows by region", "| North | 5 | 5 |"
    ),
    "python3 scripts/report.py <csv_file> --group-by <group_column> --value <value_column> --agg mean": lambda ran: (
        check_report(ran, "mean of amount by region", "| East | 128.45 | 4 |")
    ),
    "python3 scripts/stats.py <text_file>": check_stats,
    "python3 scripts/stats.py <text_file> --top <number>": lambda ran: check_stats(ran, top=3),
    "python3 scripts/stats.py <text_file> --wpm <words_per_minute> --cpm <characters_per_minute>": lambda ran: (
        check_stats(ran, seconds=81)
    ),
    "python3 scripts/json_tools.py validate <json_file>": lambda ran: check_equal(
        ran.stdout, "valid: inputs/old.json is JSON, an object with 5 keys\n"
    ),
    "python3 scripts/json_tools.py format <json_file>": lambda ran: check_equal(
        ran.text("out/formatted.json").splitlines()[:3], ["{", '  "name": "Zoë",', '  "price": 1.10,']
    ),
    "python3 scripts/json_tools.py query <json_file> <path>": lambda ran: check_equal(
        ran.json("out/query.json"), ["pen", "ink"]
    ),
    "python3 scripts/json_tools.py diff <old_file> <new_file>": check_differences,
    "python3 scripts/json_tools.py to-jsonl <json_file>": check_lines(
        "out/data.jsonl", ['{"a": 1.50}', '{"b": "é\\n"}'], 2
    ),
    "python3 scripts/json_tools.py to-json <jsonl_file>": lambda ran: check_equal(
        ran.text("out/data.json"), '[\n  {\n    "a": 1.50\n  },\n  {\n    "b": "é\\n"\n  }\n]\n'
    ),
    "python3 scripts/fib.py 10 > out/fib.txt": check_lines("out/fib.txt", "0 1 1 2 3 5 8 13 21 34".split(), 10),
    "python3 scripts/fib.py <count> > out/fib.txt": check_lines("out/fib.txt", ["0", "1", "1", "2", "3", "5"], 20),
    "python3 scripts/primes.py <limit> > out/primes.txt": check_lines(
        "out/primes.txt", "2 3 5 7 11 13 17 19 23 29".split(), 10
    ),
    "python3 scripts/primes.py <limit> --count": lambda ran: check_equal(ran.stdout, "10\n"),
    "python3 scripts/number_stats.py <number_file> > out/number-stats.txt": check_numbers,
    "python3 scripts/number_stats.py <number_file> --skip-words > out/number-stats.txt": check_numbers,
    "python3 scripts/start_skill.py <skill_name>": check_started,
    "prowess validate out/<skill_name>": lambda ran: check_equal("0 invalid" in ran.stderr, True),
    "prowess validate out/<skill_name> --profile portable": lambda ran: check_equal("0 invalid" in ran.stderr, True),
    "prowess validate out/<skill_name> --profile security": lambda ran: check_equal("0 invalid" in ran.stderr, True),
    "prowess search <request> --root out": lambda ran: check_equal("tide-table" in ran.stdout, True),
    "python3 scripts/check_invoice.py <invoice_file>": lambda ran: check_equal(
        ran.json("out/invoice-check.json"), {"ok": True, "problems": []}
    ),
}
COMMANDS = [(skill, command) for skill in SKILLS for command in commands_of(skill)]


def test_every_command_has_a_promise_and_every_promise_a_command() -> None:
    assert sorted(command for _, command in COMMANDS) == sorted(PROMISES)


@pytest.mark.parametrize(
    ("skill", "command"), COMMANDS, ids=lambda value: by_name(value) if isinstance(value, Path) else value
)
def test_every_command_does_what_the_body_promises(skill: Path, command: str, stage: Callable) -> None:
    wanted = filled(command.replace("to-jsonl <json_file>", "to-jsonl inputs/list.json"))
    results = []
    for seed in ("1", "2"):
        run = stage(skill)
        if command.startswith("prowess"):
            assert run(filled("python3 scripts/start_skill.py <skill_name>")).code == 0
        ran = run(wanted, seed=seed)
        assert ran.code == 0, ran.stderr
        assert ran.stderr == "" or command.startswith("prowess")
        PROMISES[command](ran)
        results.append(ran.produced())
    assert results[0] == results[1], "the same input gave another output"


@pytest.mark.parametrize("script", SCRIPTS, ids=by_name)
def test_help_explains_the_exit_codes(script: Path, stage: Callable) -> None:
    run = stage(script.parent.parent)
    for argv in ([f"scripts/{script.name}", "--help"], ["python3", f"scripts/{script.name}", "-h"]):
        ran = run(argv)
        assert (ran.code, ran.stderr) == (0, "")
        assert ran.stdout.startswith(f"usage: {script.name}")
        assert "Exit codes: 0 " in " ".join(ran.stdout.split())


# --- what goes wrong --------------------------------------------------------------------------------------------------

REPORT, STATS, JSON = "report.py", "stats.py", "json_tools.py"
ERRORS: list[tuple[str, list[str], bytes, int, str]] = [
    # script, arguments, standard input, exit code, what the one line says
    (REPORT, ["nowhere.csv"], b"", 3, "nowhere.csv: no such file or directory"),
    (REPORT, ["inputs"], b"", 3, "inputs: this is not a regular file"),
    (REPORT, ["-"], b"", 4, "the file is empty"),
    (REPORT, ["-"], b"a,b\n", 4, "there is a header and no row below it"),
    (REPORT, ["-"], b'a,b\n1,"x\n', 4, "-:2: not a CSV table: a quote that opens is never closed"),
    (
        REPORT,
        ["-"],
        b"a,b,c\n1,2\n3,4\n",
        4,
        "2 of 2 rows have more or fewer fields than the header (3), the first on line 2",
    ),
    (REPORT, ["-"], b"a,b\n\xff\xfe,2\n", 3, "-:2: not utf-8 text; pass --encoding"),
    (REPORT, ["-"], b"a\0b", 3, "binary"),
    (REPORT, ["-", "--encoding", "klingon"], b"a,b\n1,2\n", 2, "there is no encoding 'klingon'"),
    (REPORT, ["inputs/sales.csv", "--group-by", "regoin"], b"", 2, "no column 'regoin'. Did you mean 'region'?"),
    (REPORT, ["inputs/sales.csv", "--value", "product"], b"", 4, "line 2 says 'Notebook A5'"),
    (REPORT, ["inputs/sales.csv", "--bars", "0"], b"", 2, "'0' is not a whole number from 1 to 100"),
    (REPORT, ["inputs/sales.csv", "--out-dir", "SKILL.md"], b"", 5, "cannot be written"),
    (REPORT, [], b"", 2, "required: csv_file; see: python3 scripts/report.py --help"),
    (STATS, ["nowhere.txt"], b"", 3, "nowhere.txt: no such file or directory"),
    (STATS, ["."], b"", 3, "this is not a regular file"),
    (STATS, ["-"], b"ok\n\xc3\x28", 3, "-:2: not utf-8 text"),
    (STATS, ["-"], b"\x7fELF\0\0", 3, "binary"),
    (STATS, ["inputs/notes.txt", "--out", "inputs/notes.txt"], b"", 5, "is the input and is not overwritten"),
    (STATS, ["inputs/notes.txt", "--out", "SKILL.md/x"], b"", 5, "cannot be written"),
    (STATS, ["inputs/notes.txt", "--wpm", "fast"], b"", 2, "'fast' is not a whole number"),
    (JSON, ["validate", "nowhere.json"], b"", 3, "nowhere.json: no such file or directory"),
    (JSON, ["validate", "-"], b"", 4, "-:1:1: not valid JSON: the file is empty"),
    (JSON, ["validate", "-"], b'{\n  "a": 1,\n}', 4, "-:2:9: not valid JSON: a comma before the closing bracket"),
    (
        JSON,
        ["validate", "-"],
        b'\xef\xbb\xbf{\r\n  "a": 1\r\n  "b": 2}',
        4,
        "-:3:3: not valid JSON: ',' is expected here",
    ),
    (JSON, ["validate", "-"], b"[1, 2", 4, "-:1:6: not valid JSON: the text ends too early"),
    (JSON, ["validate", "-"], b"{'a': 1}", 4, "-:1:2: not valid JSON: a single quote"),
    (JSON, ["validate", "-"], b"{a: 1}", 4, "-:1:2: not valid JSON: a key in double quotes is expected"),
    (JSON, ["validate", "-"], b"[True]", 4, "write true, false or null"),
    (JSON, ["validate", "-"], b"[1] // one", 4, "-:1:5: not valid JSON: something follows after the end"),
    (JSON, ["validate", "-"], b"// one\n[1]", 4, "-:1:1: not valid JSON: a comment"),
    (JSON, ["validate", "-"], b'["a\nb"]', 4, "-:1:4: not valid JSON: a line break or tab inside a text"),
    (JSON, ["validate", "-"], b'["\\q"]', 4, "an unknown escape"),
    (JSON, ["validate", "-"], b"[1,\n NaN]", 4, "-:2:2: NaN is not a JSON value"),
    (JSON, ["validate", "-"], b'{"a": {"b": 1,\n "b": 2}}', 4, '-:2:2: the key "b" occurs twice'),
    (JSON, ["validate", "-"], b"[" * 100_000 + b"]" * 100_000, 4, "nested too deeply"),
    (JSON, ["format", "-"], b"[" * 100_000 + b"]" * 100_000, 4, "nested too deeply"),
    (JSON, ["validate", "-"], b"\xff", 3, "not UTF-8 text"),
    (JSON, ["query", "inputs/old.json", "itms"], b"", 1, "$ has no key 'itms'; it has: items"),
    (JSON, ["query", "inputs/old.json", "items[*].size"], b"", 1, "$.items[0] has no key 'size'"),
    (JSON, ["query", "inputs/old.json", "items[9]"], b"", 1, "$.items is a list with 2 items; no item '9'"),
    (JSON, ["query", "inputs/old.json", "name.first"], b"", 1, "$.name is a text and has no 'first'"),
    (JSON, ["query", "inputs/old.json", "items[first]"], b"", 2, "cannot be read at '[first]'"),
    (JSON, ["to-jsonl", "inputs/old.json"], b"", 4, "an object with 5 keys, not a list"),
    (JSON, ["to-json", "-"], b'{"a": 1}\n\n{"b": }\n', 4, "-:3:7: not valid JSON: a value is expected here"),
    (JSON, ["format", "inputs/old.json", "--out", "inputs/old.json"], b"", 5, "is the input and is not overwritten"),
    (JSON, ["frobnicate", "inputs/old.json"], b"", 2, "invalid choice: 'frobnicate'"),
    (JSON, [], b"", 2, "required: VERB"),
    ("fib.py", ["ten"], b"", 2, "N must be a whole number from 1 to 10000, not 'ten'"),
    ("fib.py", ["-1"], b"", 2, "not '-1'"),
    ("fib.py", ["99999999999999999999"], b"", 2, "from 1 to 10000"),
    ("fib.py", [], b"", 2, "required: N"),
    ("primes.py", ["0"], b"", 2, "LIMIT must be a whole number from 1 to 10000000, not '0'"),
    ("primes.py", ["1e9"], b"", 2, "not '1e9'"),
    ("number_stats.py", ["nowhere.txt"], b"", 3, "nowhere.txt: no such file or directory"),
    ("number_stats.py", ["-"], b"1 2\nthree", 4, "-:2: 'three' is not a number; --skip-words leaves it out"),
    ("number_stats.py", ["-"], b"1,234", 4, "'1,234' can mean several things; pass --comma"),
    ("number_stats.py", ["-"], b"# nothing\n", 4, "there is no number in it"),
    ("number_stats.py", ["-"], b"\xff\x00\x01", 3, "not UTF-8 text"),
    ("start_skill.py", ["My Skill"], b"", 2, "'my-skill' would do"),
    ("start_skill.py", ["../escape"], b"", 2, "'escape' would do"),
    ("start_skill.py", ["x" * 65], b"", 2, "is not a name for a skill"),
    ("start_skill.py", ["fine", "--out-dir", "SKILL.md"], b"", 5, "cannot be written"),
    ("check_invoice.py", ["nowhere.json"], b"", 3, "nowhere.json: no such file or directory"),
    ("check_invoice.py", ["inputs"], b"", 3, "this is not a regular file"),
    ("check_invoice.py", ["inputs/notes.txt"], b"", 4, "not JSON"),
    ("check_invoice.py", ["inputs/old.json"], b"", 4, "'lines' must be a list with at least one line"),
    ("check_invoice.py", ["inputs/list.json"], b"", 4, "the top level must be an object"),
    ("check_invoice.py", ["inputs/invoice.json", "--out", "inputs/invoice.json"], b"", 5, "is not overwritten"),
]


@pytest.mark.parametrize(("name", "arguments", "stdin", "code", "says"), ERRORS)
def test_a_failure_is_one_clear_line(
    name: str, arguments: list[str], stdin: bytes, code: int, says: str, stage: Callable
) -> None:
    [script] = [script for script in SCRIPTS if script.name == name]
    ran = stage(script.parent.parent)(["python3", f"scripts/{name}", *arguments], stdin=stdin)
    assert ran.code == code, ran.stderr
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert says in line
    assert ran.produced() == {}, "a failure leaves nothing half done"


def test_every_script_has_its_errors_tried() -> None:
    assert {script.name for script in SCRIPTS} == {name for name, *_ in ERRORS}


# --- what is tolerated ------------------------------------------------------------------------------------------------


@pytest.fixture
def report(stage: Callable) -> Callable[..., str]:
    def run(data: bytes | str, *arguments: str) -> str:
        stdin = data if isinstance(data, bytes) else data.encode("utf-8")
        ran = stage(Path(BUILTIN, "csv-report"))(["python3", "scripts/report.py", "-", *arguments], stdin=stdin)
        assert ran.code == 0, ran.stderr
        ET.fromstring(ran.text("out/chart.svg"))
        return ran.text("out/report.md")

    return run


def test_a_table_from_a_spreadsheet_in_europe(report: Callable) -> None:
    data = (
        '\ufeffsep=;\r\nName;Betrag;Notiz\r\nÄpfel;"1.234,50 €";"a;b"\r\nBirnen;-7,25 €;x\r\n;n/a;"zwei\r\nZeilen"\r\n'
    )
    text = report(data)
    assert "- Delimiter: semicolon" in text
    assert "| Betrag | number (€) | 2 | 1 | 2 |" in text
    assert "| Betrag | -7.25 | 613.62 | 613.62 | 1234.50 | 1227.25 |" in text
    assert "| Notiz | zwei Zeilen | 1 | 33.3 % |" in text
    assert "- Betrag: 'n/a' (1 cell) is counted as missing." in text
    assert "decimal comma" in text


@pytest.mark.parametrize(
    ("data", "delimiter"),
    [
        ("a\tb\n1\t2\n3\t4\n", "tab"),
        ("a|b\r1|2\r3|4\r", "pipe"),
        ("a,b\n1,2\n3,4", "comma"),
        ("a;b\n1;2\n\n3;4\n", "semicolon"),
        ("a;b\n1;2\n3;4\n".encode("utf-16"), "tab"),
        ('"x;y","b"\n"1;1;1",2\n3,4\n', "comma"),
    ],
)
def test_delimiters_encodings_and_line_ends(report: Callable, data: bytes | str, delimiter: str) -> None:
    if isinstance(data, bytes):
        delimiter = "semicolon"
    text = report(data)
    assert f"- Delimiter: {delimiter}" in text
    assert "- Rows: 2, of which 2 have no missing value" in text
    assert "| b | integer | 2 | 0 | 2 |" in text


def test_what_is_odd_is_said(report: Callable) -> None:
    rows = "".join(f"{number},00{number},{number},03/04/2025,x\n" for number in range(10, 30))
    text = report("n,code,mixed,when,n\n" + rows + "9,009,about 7,03/05/2025\n")
    assert "| code | text |" in text
    assert "Two columns are called 'n'; the later one is shown as 'n (2)'." in text
    assert "More or fewer fields than the header (5): 1 row (line 22)." in text
    assert "mixed: 20 of 21 values are numbers; not 'about 7' (line 22)." in text
    assert "when: dates whose order of day and month is not sure" in text


def test_text_from_a_table_cannot_break_the_report(report: Callable) -> None:
    text = report('k,v\n"a|b\n<script>x</script> `c` [d](e)",1\n"a & ""b""",2\n')
    assert "a\\|b &lt;script&gt;x&lt;/script&gt; \\`c\\` \\[d\\](e)" in text


def test_many_groups_days_and_signs(report: Callable) -> None:
    text = report("d,v\n" + "".join(f"2025-{n % 12 + 1:02}-{n % 28 + 1:02},{n}\n" for n in range(200)))
    assert "| 2025-01 |" in text
    assert "the chart shows one bar for each month" in text
    text = report("k,v\n" + "".join(f"k{n},{n - 20}\n" for n in range(40)), "--bars", "5", "--group-by", "k")
    assert "| other (36 groups) |" in text


def test_numbers_add_up_exactly(report: Callable) -> None:
    assert "| v | 0.10 | 0.10 | 0.10 | 0.10 | 1.00 |" in report("k,v\n" + "a,0.10\n" * 10)


def test_a_text_in_many_scripts(stage: Callable) -> None:
    text = "It's 4.5 o'clock. これはペンです。Ｆull ภาษาไทย नमस्ते दुनिया! 한국어 문장\r\nе́"
    ran = stage(Path(BUILTIN, "text-stats"))(["python3", "scripts/stats.py", "-"], stdin=text.encode("utf-16"))
    assert ran.code == 0
    stats = ran.json("out/stats.json")
    assert isinstance(stats, dict)
    scripts = stats["characters"]["by_script"]
    assert (scripts["hiragana"], scripts["katakana"], scripts["hangul"], scripts["cyrillic"]) == (5, 2, 5, 1)
    assert stats["words"]["cjk_characters"] == 7
    assert [row["word"] for row in stats["frequent_words"] if row["word"].startswith("o")] == ["o'clock"]
    assert any(row["word"] == "नमस्ते" for row in stats["frequent_words"])
    assert stats["notes"] == ["thai is written without spaces; its words are counted too low"]
    assert stats["sentences"] == 4


def test_an_empty_text_is_counted_too(stage: Callable) -> None:
    ran = stage(Path(BUILTIN, "text-stats"))(["python3", "scripts/stats.py", "-"], stdin=b"")
    assert ran.code == 0
    assert "words: 0" in ran.stdout


def test_json_keeps_what_it_was_given(stage: Callable) -> None:
    text = (
        '{"z": 1.10, "big": '
        + "9" * 5000
        + ', "tiny": 1e-999, "half": "\\ud800", "é": "\\u00e9 \\"\\n", "e": [], "n": null}'
    )
    run = stage(Path(BUILTIN, "json-tools"))
    ran = run(["python3", "scripts/json_tools.py", "format", "-", "--indent", "0"], stdin=text.encode())
    assert ran.code == 0
    assert ran.text("out/formatted.json") == text.replace("\\u00e9", "é") + "\n"
    ran = run(["python3", "scripts/json_tools.py", "format", "-", "--sort-keys", "--indent", "0"], stdin=text.encode())
    assert list(json.loads(ran.text("out/formatted.json").replace("9" * 5000, "9"))) == sorted(
        json.loads(text.replace("9" * 5000, "9"))
    )


def test_json_that_is_the_same_has_no_difference(stage: Callable) -> None:
    run = stage(Path(BUILTIN, "json-tools"))
    ran = run("python3 scripts/json_tools.py diff inputs/old.json inputs/old.json --exit-code")
    assert (ran.code, ran.json("out/diff.json")) == (0, [])
    assert run("python3 scripts/json_tools.py diff inputs/old.json inputs/new.json --exit-code").code == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", {"orders": [{"id": 7, "lines": [{"sku": "A1"}]}, {"id": 8, "lines": []}], "unit price": 4.5}),
        ("orders[*].id", [7, 8]),
        ("orders[-1].lines", []),
        ("orders[*].lines[*].sku", [["A1"], []]),
        ('["unit price"]', 4.5),
        ("$.orders.0.id", 7),
    ],
)
def test_paths_mean_what_the_reference_says(path: str, value: object, stage: Callable) -> None:
    reference = Path(BUILTIN, "json-tools", "references", "paths.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```json\n(.*?)```", reference, re.DOTALL)
    run = stage(Path(BUILTIN, "json-tools"))
    ran = run(["python3", "scripts/json_tools.py", "query", "-", path], stdin=example.encode())
    assert ran.json("out/query.json") == value


def test_a_pipe_that_closes_early_is_no_failure(stage: Callable) -> None:
    ran = stage(Path(BUILTIN, "python-math"))("set -o pipefail; python3 scripts/primes.py 1000000 | head -n 1")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "2\n", "")


def test_a_skill_is_never_started_twice(stage: Callable) -> None:
    run = stage(Path(BUILTIN, "skill-writer"))
    assert run(["python3", "scripts/start_skill.py", "tide-table"]).code == 0
    again = run(["python3", "scripts/start_skill.py", "tide-table"])
    assert again.code == 5
    assert "there is already something" in again.stderr


def test_a_wrong_invoice_is_found_to_be_wrong(stage: Callable) -> None:
    invoice = {**INVOICE, "total": "87.71", "lines": [{**INVOICE["lines"][0], "amount": "45.00"}, INVOICE["lines"][1]]}
    run = stage(EXAMPLES / "invoice-check")
    ran = run(
        "cat > out/invoice.json; python3 scripts/check_invoice.py out/invoice.json", stdin=json.dumps(invoice).encode()
    )
    assert (ran.code, ran.stderr) == (1, "")
    result = ran.json("out/invoice-check.json")
    assert isinstance(result, dict)
    assert result["ok"] is False
    assert [(problem["where"], problem["difference"]) for problem in result["problems"]] == [
        ("line 1", "-9.00"),
        ("subtotal", "9.00"),
        ("total", "9.00"),
    ]


def test_the_template_is_no_skill() -> None:
    assert sorted(entry.name for entry in prowess.discover(BUILTIN)) == [skill.name for skill in SHIPPED]


# --- whatever comes ---------------------------------------------------------------------------------------------------

CELLS = st.sampled_from(
    [",", ";", "\t", "|", "\n", "\r\n", '"', "1", "-2.5", "1,5", "2025-01-02", "NA", "é", "报", "$", "%", " ", "a"]
)
PIECES = st.sampled_from([*'{}[]:,"\\', "\n", "1", "-0.5e3", "null", "NaN", '"k"', '"k": ', "é", " ", "/*", "'"])


@pytest.mark.parametrize(
    ("script", "arguments", "pieces"),
    [
        ("csv-report/scripts/report.py", ["--out-dir", "OUT"], CELLS),
        ("text-stats/scripts/stats.py", ["--out", "OUT/stats.json"], CELLS),
        ("python-math/scripts/number_stats.py", [], CELLS),
        ("json-tools/scripts/json_tools.py", ["format", "--out", "OUT/formatted.json"], PIECES),
        ("json-tools/scripts/json_tools.py", ["to-json", "--out", "OUT/data.json"], PIECES),
    ],
)
@given(data=st.data())
@settings(dear, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_input_ends_in_a_traceback(
    script: str, arguments: list[str], pieces: st.SearchStrategy[str], data: st.DataObject, tmp_path: Path
) -> None:
    """In this process, where anything but a result or a Problem would be raised."""
    text = data.draw(st.lists(pieces, max_size=40).map("".join) | st.text(max_size=40))
    source = tmp_path / "input"
    source.write_bytes(text.encode("utf-8", "surrogatepass"))
    program = runpy.run_path(str(Path(BUILTIN, script)))
    argv = [argument.replace("OUT", str(tmp_path / "out")) for argument in arguments]
    at = 1 if argv and not argv[0].startswith("-") else 0
    try:
        assert program["main"]([*argv[:at], str(source), *argv[at:]]) == 0
    except program["Problem"] as problem:
        assert problem.code in (3, 4)
    else:
        if (tmp_path / "out" / "formatted.json").exists():
            assert json.loads((tmp_path / "out" / "formatted.json").read_bytes()) == json.loads(
                text.removeprefix("\ufeff")
            )
