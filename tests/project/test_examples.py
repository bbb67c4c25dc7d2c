"""Every example runs as it is and prints what its docstring says."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prowess
from conftest import make_skill
from guard import GUARD_S
from loopback import Exchange, Server
from terminals import Terminal

REPOSITORY = Path(__file__).parents[2]
GAIA = REPOSITORY / "examples" / "gaia"
EXAMPLES = sorted([*(REPOSITORY / "examples").glob("*.py"), GAIA / "run.py"])


def run(example: Path, *arguments: str, lines: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(example), *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", **environ},
        input=lines,
        capture_output=True,
        encoding="utf-8",
        timeout=GUARD_S,
    )


def promised(example: Path) -> str:
    """The first indented block of the docstring; `...` stands for anything."""
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    block = re.search(r"^(?: {4}.*\n|\n(?= {4}))+", text + "\n", re.MULTILINE)
    assert block, f"{example.name} does not say what it prints"
    return "".join(line[4:] for line in block[0].splitlines(keepends=True))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_prints_what_it_says(example: Path) -> None:
    ran = run(example)
    assert (ran.returncode, ran.stderr) == (0, "")
    wanted = promised(example)
    assert doctest.OutputChecker().check_output(wanted, ran.stdout, doctest.ELLIPSIS), f"{wanted}\n---\n{ran.stdout}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_uses_only_what_is_public(example: Path) -> None:
    tree = ast.parse(example.read_text(encoding="utf-8"))
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    ours = {name for name in imported if name.startswith("prowess")}
    assert ours <= {"prowess.errors", "prowess.events", "prowess.ports", "prowess.testing"}
    used = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "prowess"
    }
    assert used
    assert used <= set(prowess.__all__)


def test_five_lines_are_five_lines() -> None:
    tree = ast.parse((REPOSITORY / "examples" / "five_lines.py").read_text(encoding="utf-8"))
    assert len(tree.body) - 1 == 5


def test_validation_fails_for_a_bad_skill(tmp_path: Path) -> None:
    make_skill(tmp_path / "good-one")
    make_skill(tmp_path / "bad-one", name="Bad_One")
    ran = run(REPOSITORY / "examples" / "validate_in_ci.py", str(tmp_path))
    assert ran.returncode == 1
    assert "FAIL  bad-one\n" in ran.stdout
    assert "ok    good-one\n" in ran.stdout
    assert "[name-invalid]" in ran.stdout
    assert ran.stdout.endswith("2 skills, 1 failed\n")


def test_the_readme_lists_every_example() -> None:
    text = (REPOSITORY / "examples" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)]+)\)", text))
    assert all((REPOSITORY / "examples" / target).exists() for target in linked)
    assert {str(example.relative_to(REPOSITORY / "examples")) for example in EXAMPLES} <= linked
    skills = {
        str(path.relative_to(REPOSITORY / "examples")) for path in (REPOSITORY / "examples").rglob("skills/*/SKILL.md")
    }
    assert skills <= linked
    data = {str(path.relative_to(REPOSITORY / "examples")) for path in (REPOSITORY / "examples" / "data").iterdir()}
    assert data <= linked


# --- a chat with skills -----------------------------------------------------------------------------------------------

CHAT = REPOSITORY / "examples" / "skill_chat.py"


def test_a_chat_takes_lines_keeps_its_session_and_says_what_failed() -> None:
    asked = "the first 3 Fibonacci numbers\nfly me to the moon\nprimes up to 10\n"
    ran = run(CHAT, "--executor", "local", lines=asked)
    assert (ran.returncode, ran.stderr) == (1, "")  # one of them had no answer
    assert ran.stdout.count("you> ") == 3
    assert "0\n1\n1\n" in ran.stdout and "No installed skill fits" in ran.stdout and "2\n3\n5\n7\n" in ran.stdout


def test_a_chat_without_a_container_engine_says_what_it_needs(tmp_path: Path) -> None:
    ran = run(CHAT, "--executor", "container", lines="primes up to 10\n", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "No container engine answers." in ran.stdout or "prowess[container]" in ran.stdout


def test_a_person_in_the_chat_is_asked_before_a_script_runs() -> None:
    terminal = Terminal("--executor", "local", cwd=REPOSITORY, program=[str(CHAT)])
    place = terminal.wait_for("you> ")
    terminal.type("primes up to 10\r")
    place = terminal.wait_for("run python3 scripts/primes.py 10 > out/primes.txt? [y/N] ", after=place)
    terminal.type("y\r")
    place = terminal.wait_for("you> ", after=terminal.wait_for("It ran: python3 scripts/primes.py 10", after=place))
    terminal.type("primes up to 20\r")
    place = terminal.wait_for("[y/N] ", after=place)
    terminal.type("\r")
    place = terminal.wait_for("you> ", after=terminal.wait_for("did not run", after=place))
    terminal.type("\r")
    assert terminal.finish() == 1


# --- the GAIA benchmark -----------------------------------------------------------------------------------------------

ROWS = [
    {
        "task_id": f"t{number}",
        "Question": f'How often does the word "fog" occur in the attached text {number}?',
        "Level": 1,
        "Final answer": "2",
        "file_name": "log.txt" if number == 0 else "",
        "Annotator Metadata": {"Steps": "not for us"},
    }
    for number in range(102)
]


class Hub:
    """The dataset server and the hub; files are somewhere else, as on the real one."""

    def __init__(self) -> None:
        self.rows = ROWS
        self.status = 200
        self.elsewhere = Server(lambda exchange: exchange.answer(200, b"Fog, fog."))
        self.server = Server(self.answer)

    def answer(self, exchange: Exchange) -> None:
        path = exchange.request.path
        if self.status != 200:
            exchange.answer(self.status)
        elif path == "/datasets/gaia-benchmark/GAIA/resolve/main/2023/validation/log.txt":
            exchange.answer(302, location=self.elsewhere.url("/blob", host="localhost"))
        else:
            assert path.startswith("/rows?dataset=gaia-benchmark%2FGAIA&config=2023_level1&split=validation&offset=")
            at = int(path.split("offset=")[1].split("&")[0])
            rows = [{"row_idx": at + n, "row": row} for n, row in enumerate(self.rows[at : at + 100])]
            exchange.answer(200, json.dumps({"rows": rows, "num_rows_total": len(self.rows)}).encode())

    def download(self, out: Path, *arguments: str, token: str = "hf_secret") -> subprocess.CompletedProcess[str]:
        with self.server, self.elsewhere:
            there = ["--server", self.server.url(""), "--hub", self.server.url("")]
            loopback = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
            return run(GAIA / "download.py", "--out", str(out), *there, *arguments, HF_TOKEN=token, **loopback)


def test_questions_and_files_are_downloaded_and_can_be_asked(tmp_path: Path) -> None:
    hub, path = Hub(), tmp_path / "2023_level1_validation.json"
    ran = hub.download(tmp_path, "--with-files")
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    assert ran.stdout == f"{path}: 102 questions, 1 with a file\n"
    first, second, *_ = json.loads(path.read_text(encoding="utf-8"))["questions"]
    assert first == {
        "task_id": "t0", "level": 1, "question": ROWS[0]["Question"], "answer": "2", "file": "files/log.txt"
    }  # fmt: skip
    assert second["file"] is None
    assert (tmp_path / "files" / "log.txt").read_bytes() == b"Fog, fog."
    tokens = [request.headers.get("authorization") for request in hub.server.requests]
    assert tokens == ["Bearer hf_secret"] * 3  # two pages and a file
    assert [request.headers.get("authorization") for request in hub.elsewhere.requests] == [None]
    asked = run(GAIA / "run.py", "--data", str(path), "--limit", "1")
    assert (asked.returncode, asked.stdout.split()) == (0, ["right", "t0", "2", "1", "of", "1", "right"]), asked
    assert hub.download(tmp_path, "--with-files").returncode == 0
    assert len(hub.elsewhere.requests) == 1  # it is there already


def test_without_files_a_question_about_one_is_not_asked(tmp_path: Path) -> None:
    hub = Hub()
    assert hub.download(tmp_path).returncode == 0
    assert hub.elsewhere.requests == [] and not (tmp_path / "files").exists()
    asked = run(GAIA / "run.py", "--data", str(tmp_path / "2023_level1_validation.json"), "--limit", "1")
    assert (asked.returncode, "0 of 1 right" in asked.stdout) == (1, True)
    assert "log.txt is not there. Run download.py --with-files." in asked.stderr
    missing = run(GAIA / "run.py", "--data", str(tmp_path / "none.json"))
    assert (missing.returncode, missing.stdout) == (2, "") and "download.py makes such a file." in missing.stderr


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"file": "/etc/hostname"}, "names the file '/etc/hostname', which is not below"),
        ({"file": "../secret.txt"}, "names the file '../secret.txt', which is not below"),
        ({"file": "link.txt"}, "names the file 'link.txt', which is not below"),
        ({"answer": None}, "question q has no text 'answer'"),
        ({"question": None}, "question q has no text 'question'"),
    ],
)
def test_a_data_file_is_looked_at_before_anything_is_asked(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    (tmp_path / "secret.txt").write_text("x", encoding="utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link.txt").symlink_to(tmp_path / "secret.txt")
    question = {"task_id": "q", "question": "How many lines?", "answer": "1", "file": None, **change}
    path = tmp_path / "data" / "q.json"
    path.write_text(json.dumps({"questions": [question]}), encoding="utf-8")
    ran = run(GAIA / "run.py", "--data", str(path))
    assert (ran.returncode, ran.stdout) == (2, "") and why in ran.stderr, ran


def test_without_a_key_no_question_is_scored() -> None:
    ran = run(GAIA / "run.py", "--model", "openai:gpt-5", OPENAI_API_KEY="")
    assert (ran.returncode, ran.stdout) == (2, "") and "[model-no-key]" in ran.stderr, ran
    for wrong in ("0", "-1"):
        none = run(GAIA / "run.py", "--limit", wrong)
        assert (none.returncode, none.stdout) == (2, "") and "at least 1" in none.stderr


def test_a_server_without_an_end_is_left(tmp_path: Path) -> None:
    class Endless(Hub):
        def answer(self, exchange: Exchange) -> None:
            at = int(exchange.request.path.split("offset=")[1].split("&")[0])
            rows = [{"row": {"task_id": str(at), "Question": "?"}}] * 2_000
            exchange.answer(200, json.dumps({"rows": rows, "num_rows_total": at + 5_000}).encode())

    ran = Endless().download(tmp_path)
    assert (ran.returncode, list(tmp_path.iterdir())) == (1, []) and "the server has no end" in ran.stderr


def test_a_download_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    ran = Hub().download(tmp_path, token="")
    assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.startswith("HF_TOKEN is not set.")
    refused, empty, escaping, nameless = Hub(), Hub(), Hub(), Hub()
    refused.status, empty.rows, nameless.rows = 403, [], [{"file_name": 7}]
    escaping.rows = [{**ROWS[0], "file_name": "../../log.txt"}]
    for hub, why in (
        (refused, "403. Does HF_TOKEN"),
        (empty, "no rows from 0 on"),
        (escaping, "is no name of a file"),
        (nameless, "The download failed: "),
    ):
        ran = hub.download(tmp_path, "--with-files")
        assert (ran.returncode, ran.stdout) == (1, "") and why in ran.stderr
        assert "hf_secret" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ("$1,234.50", "1234.5", True),
        ("12", "13", False),
        ("about 12", "12", False),
        ("The Sea-Gull.", "the seagull", True),
        ("b, a", "a, b", False),
        ("a; 2.0", "A, 2", True),
        ("a", "a, b", False),
    ],
)
def test_answers_are_compared_as_the_benchmark_does(given: str, expected: str, same: bool) -> None:
    spec = importlib.util.spec_from_file_location("gaia_run", GAIA / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.same(given, expected) is same


def test_the_skills_in_its_readme_and_beside_it_are_valid(tmp_path: Path) -> None:
    page = (GAIA / "README.md").read_text(encoding="utf-8")
    for text in re.findall(r"```markdown\n(.*?)```", page, re.DOTALL):
        folder = tmp_path / text.split("name: ")[1].split()[0]
        folder.mkdir()
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
    [script] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ast.parse(script)
    (tmp_path / "whisper" / "scripts").mkdir()
    (tmp_path / "whisper" / "scripts" / "transcribe.py").write_text(script, encoding="utf-8")
    reports = list(prowess.check([tmp_path, GAIA / "skills"]))
    assert sorted(report.name for report in reports) == ["exact-answer", "ocr", "whisper"]
    assert [finding for report in reports for finding in report.findings if finding.severity != "info"] == []
