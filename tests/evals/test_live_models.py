"""Suites with a live model (our stub of a provider): the canary, tries after a fault, the cost cap, a judge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import ConfigError, EvalError, ProwessError
from prowess.evals.results import EvalTask, RunKey
from prowess.evals.run_task import run_task
from prowess.evals.runner import CANARY, EvalOptions, EvalProgress, EvalRun, run_suite
from prowess.evals.suite import Suite, read_suite
from stub_provider import Answer, Stub, chat, open_stub

MODEL = "openai:big-1"
USAGE = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
PRICES = {MODEL: {"input": 1.0, "output": 1.0}}  # so that a request costs 1


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stub]:
    with open_stub() as stub:
        for name, value in (("HOME", tmp_path), ("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", stub.url)):
            monkeypatch.setenv(name, str(value))
        yield stub


def say(*texts: str) -> list[Answer]:
    return [Answer(body=chat({"content": text}, usage=USAGE)) for text in texts]


def write_cases(folder: Path, number: int, **fields: Any) -> Suite:
    expect = {"output": {"contains": "yes"}}
    cases = [{"id": f"c{n}", "prompt": "Say yes.", "expect": expect, **fields} for n in range(number)]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return read_suite(["cases.json"], cwd=str(folder))


def run(folder: Path, suite: Suite, told: list[EvalProgress] | None = None, **options: Any) -> EvalRun:
    settings = {"prices": PRICES, **options.pop("settings", {})}
    given = {"cwd": str(folder), "model": MODEL, "concurrency": 1, **options, "settings": settings}
    return asyncio.run(run_suite(suite, EvalOptions(**given), on_progress=None if told is None else told.append))


def test_a_canary_runs_with_a_live_suite(stub: Stub, tmp_path: Path) -> None:
    stub.say(*say("READY", "yes"))
    done = run(tmp_path, write_cases(tmp_path, 1))
    assert [(record.key.case, record.status, record.canary) for record in done.records] == [
        ("c0", "passed", False),
        (CANARY, "passed", True),
    ]
    assert not done.notes and done.records[0].usage.cost == 1.0


def test_a_canary_that_fails_makes_all_results_suspect(stub: Stub, tmp_path: Path) -> None:
    stub.say(*say("I cannot.", "yes"))
    done = run(tmp_path, write_cases(tmp_path, 1))
    assert "All results are suspect" in done.notes[0]


def test_faults_of_the_infrastructure_are_tried_again(stub: Stub, tmp_path: Path) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    overloaded = Answer(status=429, content_type="application/json", body=b"{}", headers={"retry-after": "90"})
    (each,) = write_cases(tmp_path, 1).cases
    key = RunKey(suite="s", case="c0", arm="with_skill", repeat=1, model=MODEL, skills="")
    task = EvalTask(key=key, case=each.case, base=each.base, cwd=str(tmp_path), model=MODEL, retries=2)
    stub.say(overloaded, *say("yes"))
    record = asyncio.run(run_task(task, sleep=sleep)).record
    assert (record.status, record.attempts, waits) == ("passed", 2, [90.0])
    stub.say(overloaded, overloaded, overloaded)
    record = asyncio.run(run_task(task, sleep=sleep)).record
    assert (record.status, record.attempts, record.error and record.error.retryable) == ("error", 3, True)
    refused = Answer(status=401, content_type="application/json", body=b"{}")
    stub.say(refused)
    record = asyncio.run(run_task(task, sleep=sleep)).record
    assert (record.status, record.attempts, record.error and record.error.code) == ("error", 1, "model-auth")


def test_the_cost_cap_is_kept_and_a_resumed_run_goes_on(stub: Stub, tmp_path: Path) -> None:
    suite = write_cases(tmp_path, 4, constraints={"max_cost": 1.0})
    stub.say(*say("READY", "yes", "yes"))
    done = run(tmp_path, suite, max_cost=3.5)
    assert [record.status for record in done.records] == ["passed", "passed", "skipped", "skipped", "passed"]
    assert {record.error.code for record in done.records if record.error} == {"budget-reached"}
    assert "2 runs were skipped" in done.notes[0]
    stub.say(*say("yes", "yes"))
    again = run(tmp_path, suite, max_cost=9, resume=done.id)
    assert [record.status for record in again.records] == ["passed"] * 5 and len(stub.asked) == 5


def test_without_a_limit_twice_the_highest_cost_is_reserved(stub: Stub, tmp_path: Path) -> None:
    stub.say(*say("READY", "yes"))
    done = run(tmp_path, write_cases(tmp_path, 3), max_cost=3.5)
    assert [record.status for record in done.records] == ["passed", "skipped", "skipped", "passed"]  # 1.5 are left


@pytest.mark.parametrize("prices", [{}, {MODEL: {"input": 1.0}}])  # without the price of output, no cost is known
def test_a_cost_cap_needs_a_price(stub: Stub, tmp_path: Path, prices: dict[str, Any]) -> None:
    capped = {"max_cost": 1.0}, {"settings": {"limits.cost": 1.0}}
    for options in capped:
        settings = {**options.pop("settings", {}), "prices": prices}
        with pytest.raises(ConfigError, match="no price of the model 'openai:big-1' is known") as caught:
            run(tmp_path, write_cases(tmp_path, 1), settings=settings, **options)
        assert caught.value.hint and '[prices."openai:big-1"] input = ' in caught.value.hint
    with pytest.raises(ConfigError, match="no price of the model"):
        run(tmp_path, write_cases(tmp_path, 1, constraints={"max_cost": 1.0}), settings={"prices": prices})
    assert stub.asked == [] and not (tmp_path / ".prowess").exists()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"judge": "anthropic:x"}, "model-no-key"),
        ({"model": "anthropic:x"}, "model-no-key"),
        ({"judge": "scripted"}, "model-incomplete"),
        ({"judge": "scripted:none.yaml"}, "script-unreadable"),
        ({"model": "scripted:none.yaml"}, "script-unreadable"),
    ],
)
def test_a_model_that_cannot_be_asked_is_told_before_anything_runs(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], code: str
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".agent").mkdir()
    with pytest.raises(ProwessError) as caught:
        run(tmp_path, write_cases(tmp_path, 1), **options)
    assert caught.value.code == code
    assert stub.asked == [] and not (tmp_path / ".agent" / "eval-runs").exists()


def test_a_replay_needs_no_key_of_its_model(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write_cases(tmp_path, 1)
    stub.say(*say("READY", "yes"))
    run(tmp_path, suite, record="tapes")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name)
    assert [record.status for record in run(tmp_path, suite, replay="tapes").records] == ["passed"]
    assert [record.status for record in run(tmp_path, suite, replay="tapes", record="tapes").records] == ["passed"] * 2
    with pytest.raises(EvalError, match="OPENAI_API_KEY is not set"):
        run(tmp_path, suite)


def test_money_of_a_run_with_an_error_counts_after_a_resume(stub: Stub, tmp_path: Path) -> None:
    suite = write_cases(tmp_path, 2, expect={"judge": ["It is polite."]})
    stub.say(*say("READY", "yes", "Nonsense.", "yes", "Nonsense."))
    first = run(tmp_path, suite, judge=MODEL)
    assert [(record.status, record.usage.cost) for record in first.records][:2] == [("error", 2.0)] * 2
    told: list[EvalProgress] = []
    done = run(tmp_path, suite, told, judge=MODEL, resume=first.id, max_cost=5.5)
    assert [record.status for record in done.records] == ["skipped", "skipped", "passed"]  # 5 of 5.5 are spent
    assert [record.usage.cost for record in done.records] == [2.0, 2.0, 1.0] and told[-1].cost == 5.0
    stub.say(*say("yes", "Nonsense.", "yes", "Nonsense."))
    done = run(tmp_path, suite, told, judge=MODEL, resume=first.id)
    assert [record.usage.cost for record in done.records] == [4.0, 4.0, 1.0] and told[-1].cost == 9.0


def test_a_judge_costs_too(stub: Stub, tmp_path: Path) -> None:
    stub.say(*say("READY", "yes", "Nonsense."))
    expect = {"judge": ["It is polite."], "output": {"contains": "no"}}
    suite = write_cases(tmp_path, 2, expect=expect, constraints={"max_cost": 1.0})
    done = run(tmp_path, suite, judge=MODEL, max_cost=4.0)
    assert [record.usage.cost for record in done.records] == [2.0, None, 1.0]  # a request of its own, and the judge's
    assert [record.status for record in done.records] == ["failed", "skipped", "passed"]
    assert done.records[0].usage.requests == 1  # tokens are those of the run alone
    with pytest.raises(ConfigError, match="no price of the model 'openai:judge-1' is known"):
        run(tmp_path, suite, judge="openai:judge-1", max_cost=4.0)


def test_a_judge_that_does_not_decide_is_an_error(stub: Stub, tmp_path: Path) -> None:
    suite = write_cases(tmp_path, 1, expect={"judge": ["It is polite."]})
    stub.say(*say("READY"))
    (skipped, _) = run(tmp_path, suite).records
    assert (skipped.status, skipped.error and skipped.error.code) == ("skipped", "no-judge")
    stub.say(*say("READY", "yes", "Nonsense."))
    (record, _) = run(tmp_path, suite, judge=MODEL).records
    assert (record.status, record.error and record.error.code) == ("error", "judge-failed")
