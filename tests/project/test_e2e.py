"""make e2e: what it measures of a model, on a server of our own that says what a test gives it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stub_provider import Answer, Stub, chat, open_stub

ROOT = Path(__file__).resolve().parents[2]
TRIGGERS = ROOT / "benchmarks" / "triggers"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with open_stub() as stub:
        yield stub


@pytest.fixture
def e2e(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("e2e")


def load(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((TRIGGERS / name).read_text(encoding="utf-8"))


def calling(tool: str, **args: str) -> Answer:
    call = {"index": 0, "id": "c-1", "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 75}}
    return Answer(body=chat({"tool_calls": [call]}, finish="tool_calls", usage=usage))


def saying(text: str) -> Answer:
    return Answer(body=chat({"content": text}))


def environ(stub: Stub, **more: str) -> dict[str, str]:
    named = {"BASE_URL": stub.url, "KEY": "none", "WIRES": "chat", **more}
    return {f"PROWESS_E2E_{name}": value for name, value in named.items()}


def rows(printed: str) -> dict[str, list[str]]:
    """The last table, by the name of its row."""
    lines = [line for line in printed.splitlines() if "  " in line.strip()]
    return {cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.split("  ") if cell] for line in lines)}


def test_the_set_is_one_that_can_be_measured() -> None:
    requests, skills = load("requests.yaml"), {path.name for path in (TRIGGERS / "skills").iterdir()}
    assert len(skills) == 20 and {each["skill"] for each in requests} == {*skills, None}
    assert [sum(each["half"] == half for each in requests) for half in ("tune", "held_out")] == [30, 30]


def test_choices_are_scored_and_the_half_that_is_held_out_stays_hidden(
    e2e: Any, stub: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {half: [each for each in load("requests.yaml") if each["half"] == half] for half in e2e.HALVES}
    right = [calling("skill_load", skill=each["skill"]) for each in wanted["tune"] if each["skill"]]
    idle = [saying("No skill is needed for that.") for each in wanted["tune"] if not each["skill"]]
    right[1] = calling("skill_load", skill="made-up")
    right[2] = calling("recipe-scaler")  # taken as skill_load, and wrong
    right[3] = calling("read_file", path="work/notes.txt")
    answers = {True: iter(right), False: iter(idle)}
    stub.say(*(next(answers[bool(each["skill"])]) for each in wanted["tune"]), *[saying("Hello.")] * 30)

    assert e2e.main(environ(stub, PART="triggers", PROFILES="default")) == 0

    printed = capsys.readouterr().out
    assert len(stub.asked) == 60, "one reply for each request"
    found = rows(printed)
    assert found["requests"] == ["30", "30"]
    assert found["precision"] == ["0.96 (0.80-0.99, n=25)", "- (n=0)"]
    assert found["recall"] == ["0.89 (0.72-0.96, n=27)", "0.00 (0.00-0.12, n=27)"]
    assert found["F1"] == ["0.92 (0.81-0.97, n=28)", "0.00 (0.00-0.22, n=27)"]
    assert found["wrong loads"] == ["1", "0"] and found["invented names"] == ["1", "0"]
    assert found["nothing loaded"] == ["5, 3 without a call", "30, 30 without a call"]
    assert found["none wanted, none loaded"] == ["3 of 3", "3 of 3"]
    assert found["tokens in per request"][0] == "90" and found["cached"][0] == "75%"
    for each in wanted["held_out"]:
        assert each["id"] not in printed.split() and each["request"] not in printed


def test_tasks_are_run_with_the_real_scripts(e2e: Any, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stock, parcel, _ = load("tasks.yaml")
    stub.say(
        calling("skill_load", skill="warehouse-stock"),
        calling("skill_read", skill="warehouse-stock", path="references/articles.md"),
        calling("skill_run", skill="warehouse-stock", command="python3 scripts/stock.py A-4178"),
        saying(f"There are {stock['answer']} of them."),
        saying(f"{parcel['answer']} must be the code."),  # a guess is not counted
        Answer(status=400, content_type="application/json", body=b'{"error": {"message": "no such model"}}'),
    )

    assert e2e.main(environ(stub, PART="tasks", PROFILES="lean")) == 1, "a request that could not be made"

    printed = capsys.readouterr().out
    assert "loaded, read, ran, answered (4 replies" in printed
    assert 'skill_run {"command": "python3 scripts/stock.py A-4178", "skill": "warehouse-stock"}: ok' in printed
    assert "not loaded, not read, not ran, answered (1 replies" in printed
    assert "ERROR" in printed and "no such model" in printed
    assert rows(printed)["tasks done"] == ["0.33 (0.06-0.79, n=3)"]


def test_settings_come_from_outside(e2e: Any, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.say(*[saying("Hello.")] * 30)
    settings = json.dumps({"guidance": "Look before you leap."})
    assert e2e.main(environ(stub, PART="triggers", PROFILES="lean", HALF="held_out", SETTINGS=settings)) == 0
    assert "Look before you leap." in json.dumps(stub.body["messages"])
    assert ", guidance='Look before you leap.'" in capsys.readouterr().out


def test_without_a_model_nothing_is_run_and_a_wrong_word_is_refused(
    e2e: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert e2e.main({}) == 0
    assert "NOTHING WAS RUN" in capsys.readouterr().out
    assert e2e.main({"PROWESS_E2E_HALF": "both"}) == 2
    assert capsys.readouterr().err == "make e2e: PROWESS_E2E_HALF: both is none of tune, held_out\n"
