"""Many requests from a file: results in order, and a killed batch goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import ConfigError, EvalError
from prowess.evals.batch import BatchRun, run_batch
from prowess.evals.runner import EvalOptions, EvalProgress
from prowess.testing import skill_dir

MAKING = "for name in ('Makefile', 'a.txt'):\n    open(f'out/{name}', 'w').write('new')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROWESS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "words.txt").write_text("one two three\n", encoding="utf-8")
    return tmp_path


def write(folder: Path, *requests: Any) -> None:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in requests]
    (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(folder: Path, told: list[EvalProgress] | None = None, **options: Any) -> BatchRun:
    more = {name: options.pop(name) for name in ("output_dir", "force") if name in options}
    given = EvalOptions(cwd=str(folder), **{"model": "offline", **options})
    tell = None if told is None else told.append
    return asyncio.run(run_batch("in.jsonl", "out.jsonl", given, on_progress=tell, **more))


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()]


def test_results_have_the_order_of_the_requests(folder: Path) -> None:
    write(
        folder,
        {"id": "count", "request": "Count the words of words.txt", "files": ["words.txt"], "skills": ["text-stats"]},
        {"request": "What is the capital of nowhere?"},
        {"id": 7, "request": "Hello", "files": ["no-such-file.txt"]},
    )
    done = run(folder)
    found = results(folder)
    assert [each["id"] for each in found] == ["count", "2", "7"] and done.total == 3
    assert set(found[0]) == {"id", "status", "text", "stop_reason", "usage", "files", "error"}
    assert found[2]["status"] == "error" and found[2]["error"]["code"]
    assert f"Request 7: {found[2]['error']['message']}" in done.notes
    assert not (folder / "out.jsonl.journal").exists()
    with pytest.raises(ConfigError, match="exists already"):
        run(folder)
    assert run(folder, force=True).total == 3


def test_files_that_act_are_copied_to_a_new_folder_of_their_request_only(folder: Path) -> None:
    skill_dir(folder / "skills", "maker", description="Makes.", files={"scripts/make.py": MAKING})
    write(folder, {"id": "a", "request": "!maker make.py", "skills": ["maker"]})
    replies = [
        {"calls": [{"tool": "skill_run", "args": {"skill": "maker", "command": "python3 scripts/make.py"}}]},
        {"text": "ok"},
    ]
    (folder / "replies.json").write_text(json.dumps(replies), encoding="utf-8")
    more: dict[str, Any] = {"model": f"scripted:{folder / 'replies.json'}", "roots": (str(folder / "skills"),)}
    done = run(folder, output_dir="made", approved=("skill_run",), **more)
    assert {path.name for path in (folder / "made" / "a").iterdir()} == {"Makefile", "a.txt"}
    assert "Programs act on this by its name: a/Makefile." in done.notes
    (folder / "made" / "a" / "Makefile").unlink()
    (folder / "made" / "a" / "a.txt").write_text("mine")
    done = run(folder, output_dir="made", approved=("skill_run",), force=True, **more)
    assert {path.name for path in (folder / "made" / "a").iterdir()} == {"a.txt"}
    assert any("programs act on 'Makefile' where it lies" in note for note in done.notes)


def test_a_killed_batch_goes_on(folder: Path) -> None:
    write(folder, *({"id": f"r{n}", "request": f"Say {n}."} for n in range(4)))
    told: list[EvalProgress] = []

    class Killed(BaseException):
        pass

    def kill(progress: EvalProgress) -> None:
        if progress.done == 2:
            raise Killed

    given = EvalOptions(cwd=str(folder), model="offline", concurrency=1)
    with pytest.raises(Killed):
        asyncio.run(run_batch("in.jsonl", "out.jsonl", given, on_progress=kill))
    journal = folder / "out.jsonl.journal" / "results.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"key": {"sui')  # what a kill leaves of a line
    assert not (folder / "out.jsonl").exists()
    done = run(folder, told)
    assert done.resumed == 2 and [each.done for each in told] == [3, 4]
    assert [each["id"] for each in results(folder)] == ["r0", "r1", "r2", "r3"]
    assert any("cut off" in note for note in done.notes)


def test_a_journal_of_other_requests_is_not_mixed_in(folder: Path) -> None:
    write(folder, {"request": "One."}, {"request": "Two."})

    def stop(progress: EvalProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_batch("in.jsonl", "out.jsonl", EvalOptions(cwd=str(folder), model="offline"), on_progress=stop))
    write(folder, {"request": "Three."})
    with pytest.raises(EvalError, match="of other requests"):
        run(folder)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "in.jsonl:1: there are no requests"),
        (['{"request": "a"}', "nonsense"], "in.jsonl:2: Invalid JSON"),
        (['{"requst": "a"}'], r"in.jsonl:1: request: Field required"),
        (['{"request": "a", "file": []}'], "in.jsonl:1: file: Extra inputs"),
        (['{"request": " "}'], "in.jsonl:1: the request or its id is empty"),
        (
            ['{"id": "1", "request": "a"}', '{"id": 1, "request": "b"}'],
            "in.jsonl:2: an earlier line has the id '1'",
        ),
    ],
)
def test_bad_lines_are_named(folder: Path, lines: list[str], said: str) -> None:
    write(folder, *lines)
    with pytest.raises(EvalError, match=said):
        run(folder)


def test_a_path_that_leads_out_is_refused(folder: Path) -> None:
    write(folder, {"request": "Read it.", "files": ["../../etc/passwd"]})
    run(folder)
    (only,) = results(folder)
    assert (only["status"], only["error"]["code"]) == ("error", "path-escape")
