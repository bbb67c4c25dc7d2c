"""The offline planner says when it failed, and never runs a command with an example in place of a given file."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from agents import open_session
from command_lines import Answer, run_here
from conftest import dear
from kits import yes
from prowess.core.events import CallPlanned, Envelope
from prowess.core.ports import ShownSkill
from prowess.models.offline.fill import choose
from prowess.models.offline.model import OfflineModel
from prowess.models.offline.request_values import parse_request

DOCS = Path(__file__).parents[2] / "docs"
MEMORY: dict[str, Any] = {"store": "memory:", "artifacts": "memory:"}
COUNT = "import sys; print(len(open(sys.argv[1]).read().splitlines()), 'lines')\n"
SKILLS = {
    "line-count": ("Counts the lines of a text file.", "Command: python3 scripts/count.py <input.txt>"),
    "word-count": ("Counts the words of a text file.", "Command: python3 scripts/count.py path/to/input.txt"),
    "broken-clock": ("Tells the time on a broken clock.", "Command: python3 scripts/none.py"),
    "greeting-card": ("Writes a greeting card.", "Command: echo Dear <name>"),
    "poem-advice": ("Gives advice about poems.", "Read a lot of poems."),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, (description, body) in SKILLS.items():
        folder = tmp_path / "skills" / name
        (folder / "scripts").mkdir(parents=True)
        (folder / "scripts" / "count.py").write_text(COUNT, "utf-8")
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}\n", "utf-8")
    (tmp_path / "notes.txt").write_text("one\ntwo\n", "utf-8")
    (tmp_path / "table.csv").write_text("a,b\n", "utf-8")
    return tmp_path


def ask(root: Path, *words: str, input: bytes = b"", command: str = "run") -> Answer:
    given = ["--root", "skills", "--model", "offline", "--yes", "skill_run"]
    return run_here([command, *words, *given], cwd=root, input=input)


# --- failures ---------------------------------------------------------------------------------------------------------

FAILURES = [
    ("What time is it on the broken clock?", "command-failed"),
    ("Fly me to the moon", "no-skill-fits"),
    ("Write a greeting card", "value-missing"),
    ("Some advice about my poems", "no-command"),
]


@pytest.mark.parametrize(("request_text", "code"), FAILURES)
def test_a_failure_is_an_error_with_a_code_and_exit_1(root: Path, request_text: str, code: str) -> None:
    answer = ask(root, request_text, "--json")
    end = json.loads(answer.out.splitlines()[-1])
    assert (answer.code, end["type"], end["stop_reason"], end["code"]) == (1, "run_finished", "error", code)
    told = ask(root, request_text)
    assert (told.code, told.out.splitlines()[0]) == (1, end["text"].splitlines()[0])
    assert f"[error: {code} · " in told.err and "To go on" not in told.err


def test_a_call_that_was_refused_is_a_failure(root: Path) -> None:
    given: dict[str, Any] = {"approve": lambda call, decision: False, "executor": "local", **MEMORY}
    result = prowess.run_sync("What time is it on the broken clock?", skills=root / "skills", model="offline", **given)
    assert (result.ok, result.stop_reason, result.code) == (False, "error", "call-refused")


def test_python_gets_a_result_and_not_an_exception(root: Path) -> None:
    result = prowess.run_sync("Fly me to the moon", skills=root / "skills", model="offline", **MEMORY)
    assert (result.ok, result.code) == (False, "no-skill-fits")
    assert result.text.startswith("No installed skill fits this request")


def test_a_chat_goes_on_and_a_failure_is_told_once(root: Path) -> None:
    answer = ask(root, command="chat", input=b"Fly me to the moon\nCount the lines of @notes.txt\n")
    assert answer.code == 1  # of the line that had no answer
    assert "No installed skill fits" in answer.out and "2 lines" in answer.out

    async def work() -> list[str]:
        async with open_session(root / "skills", OfflineModel(), approver=yes) as session:
            for text in ("Fly me to the moon", "Fly me to Mars"):
                await session.run(text)
            messages = session.kit.conversation.request().messages
            return [part.text or "" for message in messages for part in message.parts if message.role == "assistant"]

    assert len([text for text in asyncio.run(work()) if "No installed skill fits" in text]) == 2


def test_going_on_makes_no_answer_of_a_failure(root: Path) -> None:
    assert ask(root, "Fly me to the moon", "--session", "s-moon").code == 1
    again = ask(root, "--session", "s-moon", "--resume")
    assert (again.code, "No installed skill fits" in again.out) == (1, True)


def test_a_failure_of_a_child_run_keeps_its_code(root: Path) -> None:
    skill = root / "skills" / "broken-clock" / "SKILL.md"
    skill.write_text(skill.read_text("utf-8").replace("---\nCommand", "run-mode: subagent\n---\nCommand"), "utf-8")
    answer = ask(root, "What time is it on the broken clock?", "--json")
    events = [json.loads(line) for line in answer.out.splitlines()]
    ends = [(event["stop_reason"], event["code"]) for event in events if event["type"] == "run_finished"]
    assert ends == [("error", "command-failed"), ("error", "call-refused")]
    failed = [event["outcome"]["code"] for event in events if event["type"] == "call_acted"]
    assert failed[-1] == "command-failed"  # what the parent was told about its load


def test_the_page_names_every_code() -> None:
    source = (DOCS.parent / "src" / "prowess" / "models" / "offline" / "model.py").read_text("utf-8")
    page = (DOCS / "offline.md").read_text("utf-8")
    codes = set(re.findall(r'Decided\("([a-z-]+)"', source))
    assert codes >= {code for _, code in FAILURES}
    assert {code for code in codes if f"| `{code}` |" not in page} == set()


# --- files that are only examples -------------------------------------------------------------------------------------


def test_a_command_with_an_example_is_not_run_and_the_reason_is_told(root: Path) -> None:
    answer = ask(root, "Count the words of @notes.txt")
    assert (answer.code, "it names a file only as an example" in answer.out) == (1, True)


def test_a_file_of_another_kind_does_not_and_nothing_runs(root: Path) -> None:
    events: list[Envelope] = []

    async def work() -> prowess.Result:
        async with open_session(root / "skills", OfflineModel(), approver=yes, on_event=(events.append,)) as session:
            return await session.run("Count the lines", files=[str(root / "table.csv")])

    result = asyncio.run(work())
    assert (result.code, "<input.txt>: a .txt file" in result.text) == ("value-missing", True)
    calls = [each.event.call.tool for each in events if isinstance(each.event, CallPlanned)]
    assert "skill_load" in calls and "skill_run" not in calls


def commands(command: str, request: str = "do it", *given: str, own: tuple[str, ...] = ()) -> str | None:
    skill = ShownSkill("demo", body=f"Command: {command}", files=own)
    filled, _ = choose(skill, parse_request(request, [f"inputs/{name}" for name in given]))
    return filled.command if filled and filled.ready else None


@pytest.mark.parametrize(
    ("written", "runs"),
    [
        *(
            (line, None)
            for line in (
                "python3 scripts/x.py input.csv",
                "python3 x.py --input=data/sales.csv > out/x.txt",
                "wc -l FILE",
                "./count.sh INPUT_FILE",
                "wc -l /path/to/table.csv",
                "wc -l 'my table.csv'",
                'wc -l "$WORK_DIR/inputs/input.csv"',
                "cat 2024.csv | wc -l",
                "head -n 10 < input.csv",
                "curl -F file=@data.csv localhost",
                "ls path/to/folder",
                "pdftotext path/to/x.pdf",
                "diff old.csv new.csv",
                "bash -c 'wc -l input.csv'",
                "python3 -c \"print(open('input.csv').read())\"",
            )
        ),
        # Not examples: programs, files of the skill, results, variables, addresses, what a shell expands.
        ("python3 -m json.tool assets/own.json", "python3 -m json.tool assets/own.json"),
        ("bash run.sh -q own.csv", "bash run.sh -q own.csv"),
        ("cat out/table.csv work/b.csv /usr/share/x.csv", "cat out/table.csv work/b.csv /usr/share/x.csv"),
        ("cat $HOME/x.csv *.csv .env", "cat $HOME/x.csv *.csv .env"),
        ("curl https://example.org/x.csv", "curl https://example.org/x.csv"),
        ("jq .rows.json", "jq .rows.json"),
    ],
)
def test_what_is_only_an_example(written: str, runs: str | None) -> None:
    assert commands(written, "the first 7 rows", "a.csv", own=("own.csv",)) == runs


def test_without_a_file_a_command_is_as_it_is_written() -> None:
    assert commands("python3 scripts/x.py input.csv") == "python3 scripts/x.py input.csv"
    assert commands("python3 scripts/x.py input.csv", "save it as b.csv") == "python3 scripts/x.py input.csv"


STEMS = st.from_regex(r"q[a-z0-9]{0,8}", fullmatch=True)
ENDINGS = st.sampled_from(["csv", "json", "pdf", "txt", "xlsx", "png"])
FOLDERS = st.sampled_from(["", "./", "path/to/", "/path/to/", "data/", "inputs/"])


@given(FOLDERS, STEMS, ENDINGS, st.sampled_from(["{}", "'{}'", '"{}"', "-i {}", "--in={}", "< {}"]))
@dear
def test_no_example_ever_runs_where_a_file_was_given(folder: str, stem: str, ending: str, place: str) -> None:
    written = f"python3 scripts/x.py {place.format(f'{folder}{stem}.{ending}')}"
    assert commands(written, "do it", f"given.{ending}") is None
    assert commands(written, "do it") == written


# --- no name and no text becomes code ---------------------------------------------------------------------------------

INJECTED = "x;echo INJECTED $(id -u);#.csv"
CODE = """\
timeout 10 bash -c "wc -l @"
timeout 10 bash -c "wc @"
timeout 10 python3 -c @
uv run python -c @
poetry run python -c @
nice -n 5 awk @
while true; do bash -c @; done
{ python3 -c @; }
! python3 -c @
python3 -W ignore -c @
python3 -c"print('@')"
node --eval=@
"python3" -c @
$PYTHON -c @
timeout 5 $PYTHON -c @
pypy3 -c @
tsx -e @
julia -e @
duckdb -c @
somelang -e @
somelang --eval=@
somelang -c"@"
somelang \\\n-c @
echo @ | bash
echo @ | python3
echo @ | sh -s
echo @ | tee out/x | (cd out; bash)
bash <<< @
bash<<<@
bash < @
python3 -m timeit @
[[ @ -eq 1 ]]
[[ 1 && @ -eq 1 ]]
(( x = @ ))
test -v @
[ -v @ ]
[[ -v @ ]]
let x=@
declare -i n=@
typeset -i n=@
local n=@
export n=@
read @
unset @
printf -v @ x
a[@]=1
tar cf out/x.tar --checkpoint=1 --checkpoint-action=exec=@ inputs
source @
. @""".split("\n")


@pytest.mark.parametrize("written", [line.replace("\\n", "\n") for line in CODE])
def test_a_name_or_a_text_is_never_code(written: str) -> None:
    """Neither what a request says, nor a file that takes the place of an example."""
    assert commands(written.replace("@", "<text>"), f'do "{INJECTED} "') is None
    assert commands(written.replace("@", "<file>"), "do it", INJECTED) is None
    filled = commands(written.replace("@", "data.csv"), "do it", INJECTED)
    assert filled is None or "INJECTED" not in filled


WRITTEN = """\
echo @ > work/x.sh && bash work/x.sh
echo @ > work/x; chmod +x work/x; work/x
printf %s @ > work/x.py && python3 ./work/x.py
cp @ work/run.sh && timeout 5 sh work/run.sh
echo @ | tee x.sh && . ./x.sh
echo @ | tee -a x.sh; bash x.sh
echo @ &> x.sh; bash x.sh
echo @ >&x.sh; bash x.sh
echo @ >| x.sh; bash x.sh
cd work && echo @ >x.sh && cd .. && bash work/x.sh
echo @ > "$OUT_DIR/x.sh" && bash "$OUT_DIR/x.sh"
echo @ > work/x.py; python3 -m x
echo @ > work/x.sh && bash work/*.sh
echo @ > a.awk && awk -f a.awk b.csv
python3 scripts/make.py @ > out/x.py && python3 out/x.py
echo @ > <out.sh> && bash <out.sh>
echo @ > x && BASH_ENV=x scripts/y
BASH_ENV=@ bash scripts/y.sh
LD_PRELOAD=@ ls
X+=@ ls
env PYTHONSTARTUP=@ python3 scripts/y.py
env -u HOME X=@ ls
export BASH_ENV=@; bash scripts/y.sh
X=@; ls $X""".split("\n")


@pytest.mark.parametrize("written", WRITTEN)
def test_no_value_runs_from_a_file_or_a_variable(written: str) -> None:
    """Plain ones neither: a file is run by its name."""
    for value in (INJECTED, "x.sh"):
        assert commands(written.replace("@", "<text>"), f'do "{value}"') is None
        assert commands(written.replace("@", "<file>"), "do it", value) is None


@pytest.mark.parametrize("written", ["timeout 10 bash -c <text>", "echo <text> | bash", "uv run python -c <text>"])
def test_a_plain_word_is_a_program_too(written: str) -> None:
    assert commands(written, 'do "reboot"') is None


@pytest.mark.parametrize(
    ("written", "runs"),
    [
        ("python3 scripts/x.py -e <text>", "python3 scripts/x.py -e 'a b'"),
        ("echo -e <text> | python3 -u scripts/x.py", "echo -e 'a b' | python3 -u scripts/x.py"),
        ("echo <text> | tee $OUT_DIR/x", "echo 'a b' | tee $OUT_DIR/x"),
        ("grep -c <text> notes.txt", "grep -c 'a b' notes.txt"),
        ("python3 -m x -c <text>", None),
        ("tool -c <text>", None),
        ("python3 scripts/x.py <text> && python3 scripts/x.py --check", None),
        ("python3 x.py <text> 2>&1 | sort", "python3 x.py 'a b' 2>&1 | sort"),
        ("LANG=C python3 scripts/x.py key=<text>", None),
        ("python3 scripts/x.py key=<text>", "python3 scripts/x.py key='a b'"),
    ],
)
def test_an_argument_of_a_program_is_none(written: str, runs: str | None) -> None:
    assert commands(written, 'do "a b"') == runs


@pytest.mark.parametrize(
    "written",
    [
        "source settings.env",
        ". config.env",
        "set -a; . config.env",
        "uv run --with pandas analyze.py",
        "python3 -W ignore analyze.py",
        "python3 -m runpy analyze.py",
        "python3 path/to/analyze.py",
        "timeout 5 python3 -u 'analyze.py'",
        "deno run app.ts",
        "deno run -A app.ts",
    ],
)
def test_a_given_file_is_never_run_in_the_place_of_a_program(written: str) -> None:
    for mine in ("mine.py", "mine.env", "mine.ts"):
        assert commands(written, "do it", mine) in (None, written)


def test_a_file_that_a_program_reads_may_be_a_program() -> None:
    assert commands("python3 scripts/lint.py <file>", "do it", "a.py") == "python3 scripts/lint.py inputs/a.py"
    assert commands("uv run y.py <csv_file>", "do it", "a.csv") == "uv run y.py inputs/a.csv"
