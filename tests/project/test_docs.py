"""If it is printed, it ran: every block of the documentation is executed, and says what it really says.

```python    runs; the blocks of one page share their names. `>>>` lines are compared with what they print.
```bash      runs with `bash -e`.
```console   has lines `$ command`, each followed by what it prints. `…` on a line of its own stands for any lines,
             inside a line for anything. A command that fails is followed by `$ echo $?`.

The blocks of one page run in order, in one folder: an empty one, or a copy of examples/ if the page says to stand in
`examples/`. A Python block after `<!-- in FOLDER -->` runs in a folder that the page made. A comment
`<!-- not run: why -->` right before a block leaves it out, `<!-- needs isolation -->` where nothing isolates scripts,
and the test run counts it. In CONTRIBUTING.md only blocks after `<!-- run -->` are run.
"""

from __future__ import annotations

import difflib
import doctest
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fork_server import open_fork_server
from prowess.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [page for page in PAGES if page.is_file()]
ONLY_WHEN_TOLD = {"CONTRIBUTING.md"}

BLOCK = re.compile(
    r"(?:^<!--[ ]*(?P<mark>[^\n]*?)[ ]*-->\n\s*)?"
    r"^(?P<indent>[ ]*)```(?P<language>python|bash|console)\b[^\n]*\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """`prowess`, for the pages' shells."""
    with tempfile.TemporaryDirectory() as folder, open_fork_server(Path(folder)) as found:
        yield found


@pytest.fixture
def reader(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, programs, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_the_page_does_what_it_says(
    page: Path, reader: Reader, not_run: Callable[[str, str], None], lacks: Callable[[str], str]
) -> None:
    text = page.read_text(encoding="utf-8")
    reader.stand("`examples/`" in text)
    for block in find_blocks(text, page.relative_to(ROOT).as_posix()):
        if block.mark.startswith("not run:"):
            not_run(block.place, block.mark.removeprefix("not run:").strip())
        elif block.mark.startswith("needs ") and (cause := lacks(block.mark.removeprefix("needs "))):
            not_run(block.place, cause)
        elif block.page not in ONLY_WHEN_TOLD or block.mark == "run":
            reader.follow(block)


def test_every_documented_verb_exists() -> None:
    unknown = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"(?:^\s*(?:\$ )?|`|\| |&& )prowess ([a-z][a-z-]+)\b(?!\.)", text, re.MULTILINE):
            if found[1] not in COMMANDS:
                unknown.append(f"{page.name}:{_line(text, found.start(1))}: prowess {found[1]}")
    assert not unknown, "\n".join(unknown)


_SAVE = """trap 'code=$?; { export -p; printf "cd %q\\n" "$PWD"; } > "$PAGE_STATE"; exit $code' EXIT"""


class Reader:
    """Somebody who follows a page from top to bottom, in one folder and one shell."""

    def __init__(self, folder: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.status = folder / "examples", 0
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.folder.mkdir()
        monkeypatch.chdir(self.folder)
        nobody = "http://127.0.0.1:9"  # so that nothing of a page reaches the network
        self.environ = os.environ | {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PAGE_STATE": str(folder / "shell-state"),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",  # stdout and stderr arrive in the order they were written
            **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), nobody),
            "no_proxy": "127.0.0.1,localhost",
        }

    def stand(self, in_examples: bool) -> None:
        if in_examples:
            shutil.copytree(ROOT / "examples", self.folder, symlinks=True, dirs_exist_ok=True)

    def follow(self, block: Block) -> None:
        if block.language == "python":
            place = block.mark.removeprefix("in ") if block.mark.startswith("in ") else "."
            with chdir(self.folder / place):
                self.follow_python(block)
        elif block.language == "bash":
            status, printed = self.shell("set -e\n" + block.text)
            assert status == 0, f"{block.place} ended with exit code {status}:\n{printed}"
        else:
            self.follow_console(block)

    def follow_python(self, block: Block) -> None:
        if block.text.lstrip().startswith(">>>"):
            said: list[str] = []
            test = doctest.DocTestParser().get_doctest(block.text, self.names, block.page, block.page, block.line)
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
            self.names = test.globs  # a copy of what we gave it, and what the block added
            if said:
                pytest.fail("".join(said), pytrace=False)
        else:
            exec(compile("\n" * block.line + block.text, block.page, "exec"), self.names)

    def follow_console(self, block: Block) -> None:
        steps = list(find_steps(block.text))
        assert steps, f"{block.place}: a console block needs a line that begins with '$ '"
        for number, (command, expected) in enumerate(steps):
            status, printed = self.shell(command)
            if difference := compare(expected, printed):
                pytest.fail(
                    f"{block.place}: $ {command}\nprinted something else (- the page, + the command):\n{difference}",
                    pytrace=False,
                )
            shown = number + 1 < len(steps) and steps[number + 1][0] == "echo $?"
            if status and not shown:
                pytest.fail(f"{block.place}: $ {command}\nended with exit code {status}:\n{printed}", pytrace=False)

    def shell(self, command: str) -> tuple[int, str]:
        """Folder, exported variables and $? carry over from one command to the next, as in a terminal."""
        script = f'[ ! -e "$PAGE_STATE" ] || . "$PAGE_STATE"\n{_SAVE}\n(exit {self.status})\n{command}'
        answer = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=120,
        )
        self.status = answer.returncode
        return answer.returncode, answer.stdout


def find_blocks(text: str, page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        indent = len(found["indent"])
        lines = "".join(
            line[indent:] if line[:indent].isspace() or not indent else line for line in found["text"].splitlines(True)
        )
        yield Block(page, _line(text, found.start("language")), found["language"], lines, found["mark"] or "")


def find_steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """(command, the lines it prints). A command goes on while its line ends in a backslash."""
    lines = text.splitlines()
    while lines and not lines[0].startswith("$ "):
        lines.pop(0)
    while lines:
        command = lines.pop(0).removeprefix("$ ")
        while command.endswith("\\") and lines:
            command += "\n" + lines.pop(0).removeprefix("> ")
        expected = []
        while lines and not lines[0].startswith("$ "):
            expected.append(lines.pop(0))
        yield command, expected


def compare(expected: list[str], printed: str) -> str:
    """Empty when they match, else the difference, without the lines that match by `…`."""
    wanted = "\n".join(line.rstrip() for line in expected).strip("\n").splitlines()
    actual = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n").splitlines()
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "…" else _line_pattern(line) + r"\n" for line in wanted)
    if re.fullmatch(pattern, "".join(line + "\n" for line in actual)):
        return ""
    same = [
        next((got for got in actual if re.fullmatch(_line_pattern(line), got)), line) if len(line) > 1 else line
        for line in wanted
    ]
    return "\n".join(difflib.ndiff(same, actual))


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


# --- and the rules above hold -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "printed", "matches"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a", "a\nb\n", False),
        ("a\n…", "a\nb\nc\n", True),
        ("a\n…\nc", "a\nc\n", True),
        ("…\nz", "a\nb\n", False),
        ("took … ms", "took 1.4 ms", True),
        ("took … ms", "took 1.4 s", False),
        ("", "something", False),
        ("a  \n", "a", True),
    ],
)
def test_output_is_compared_line_by_line(expected: str, printed: str, matches: bool) -> None:
    assert (compare(expected.splitlines(), printed) == "") is matches


def _blocks(text: str) -> list[Block]:
    return list(find_blocks(text, "page.md"))


def test_a_page_is_followed_in_one_shell(reader: Reader) -> None:
    page = """
```bash
mkdir sub && cd sub
export WORD=hello
```
```console
$ basename "$PWD"; \\
> echo $WORD
sub
hello
$ false
$ echo $?
1
$ prowess --version
prowess …
```
```python
one = 1
```
```python
assert one == 1
```
```python
>>> one + 1
2
```
<!-- in sub -->
```python
import os
assert os.path.basename(os.getcwd()) == "sub"
```
"""
    for block in _blocks(page):
        reader.follow(block)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "- two\n+ one"),
        ("```console\n$ false\n```\n", "ended with exit code 1"),
        ("```bash\nfalse\necho never\n```\n", "ended with exit code 1"),
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected:\n    3\nGot:\n    2"),
        ("```python\nassert 1 == 2\n```\n", ""),
        ("```console\nprowess list\n```\n", "needs a line that begins with"),
    ],
    ids=["output", "status", "bash", "doctest", "python", "no-command"],
)
def test_a_block_that_is_wrong_fails_and_says_how(reader: Reader, block: str, says: str) -> None:
    (parsed,) = _blocks(block)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        reader.follow(parsed)
    assert says in str(caught.value)


def test_a_comment_leaves_a_block_out() -> None:
    first, second = _blocks("<!-- not run: needs a key -->\n```bash\nfalse\n```\n\n```bash\ntrue\n```\n")
    assert (first.mark, first.line, second.mark) == ("not run: needs a key", 2, "")
