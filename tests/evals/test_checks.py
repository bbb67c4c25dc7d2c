"""Checks of cases: what each means, and what hostile cases, runs and files cannot do to them."""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import GUARD_S
from prowess._internal.json_values import load_only_json
from prowess.core.values import Usage
from prowess.evals.case import Case
from prowess.evals.checks import check_case, find_status, run_checks
from prowess.evals.results import CheckResult
from prowess.records.trajectory import CallStep, Trajectory

HANGS = r"^(?:a+)+$"
LONG = "a" * 60 + "!"


def make(**fields: Any) -> Case:
    return Case.model_validate({"id": "c", "prompt": "go", **fields})


def steps(*told: str) -> Trajectory:
    """`load csv` is a call that went well, `!run csv` one that failed."""
    made = []
    for index, text in enumerate(told):
        tool, _, skill = text.lstrip("!").partition(" ")
        ok = not text.startswith("!")
        made.append(CallStep(index=index, tool=f"skill_{tool}", skill=skill, status="ok" if ok else "failed"))
    return Trajectory(steps=tuple(made))


def look(
    trajectory: Trajectory, base: str = "/", workspace: str | None = None, constraints: Any = None, **expect: Any
) -> list[CheckResult]:
    case = make(expect=expect, constraints=constraints)
    return run_checks(case, trajectory, base=base, workspace=workspace)


def passed(trajectory: Trajectory, **expect: Any) -> list[bool | None]:
    return [check.passed for check in look(trajectory, **expect)]


def answer(text: str, **output: Any) -> list[bool | None]:
    return passed(Trajectory(text=text), output=output)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives up soon."""
    monkeypatch.setattr("prowess._internal.bounded_match.LIMIT_S", 0.25)


# --- skills -----------------------------------------------------------------------------------------------------------


def loaded(*names: str) -> Trajectory:
    return Trajectory(loaded=names)


def test_skills_to_load_and_not_to_load() -> None:
    run = loaded("csv", "xlsx")
    assert passed(run, skills={"load": ["csv", "pdf"], "not_load": ["pdf", "xlsx"]}) == [True, False, True, False]
    assert passed(run, skills={"load": "project:csv", "at_most": 2}) == [True, True]
    assert passed(run, skills={"at_most": 1}) == [False]
    assert passed(run, skills=None) == []


def test_no_skill_is_expected() -> None:
    assert passed(loaded(), skills={}) == passed(loaded(), skills={"load": []}) == [True]
    assert passed(loaded("csv"), skills={}) == [False]
    whole = make(expect={"skills": {"not_load": ["pdf"]}})
    again = Case.model_validate_json(whole.model_dump_json())  # as an engine sends it
    assert [check.name for check in run_checks(again, loaded("csv"), base="/", workspace=None)] == ["does not load pdf"]


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "rule", "result"),
    [
        (["load a", "run a"], {"before": ["skill_load", "skill_run"]}, (True, False)),
        (["run a", "load a"], {"before": ["skill_load", "skill_run"]}, (False, False)),
        (["run a"], {"before": ["skill_load", "skill_run"]}, (True, True)),
        ([], {"before": ["skill_load", "skill_run"]}, (True, True)),
        (["!run a", "load a"], {"before": ["skill_load", "skill_run"]}, (True, True)),
        (["load a", "run a", "load a"], {"before": ["skill_load", "skill_run"]}, (True, False)),
        (["poll", "load a"], {"before": ["skill_load", "skill_run", "*(*)"]}, (False, False)),
        (["load a"], {"before": ["skill_load", "*"]}, (False, False)),  # one call is not before itself
        (["run a"], {"requires": "skill_run"}, (True, False)),
        (["!run a"], {"requires": "skill_run"}, (False, False)),
        ([], {"requires": "skill_run"}, (False, False)),
        (["load a", "run a"], {"requires": "skill_run", "after": "skill_load"}, (True, False)),
        (["run a", "load a"], {"requires": "skill_run", "after": "skill_load"}, (False, False)),
        (["run a"], {"requires": "skill_run", "after": "skill_load"}, (False, False)),
        (["load b", "run a"], {"requires": "skill_run", "after": "skill_load", "same": "skill"}, (False, False)),
        (["load a", "run a"], {"requires": "skill_run", "after": "skill_load", "same": "skill"}, (True, False)),
        (["load", "run"], {"requires": "skill_run", "after": "skill_load", "same": "skill"}, (False, False)),
        (["!run a"], {"never": "skill_run"}, (False, False)),
        (["load a"], {"never": "skill_run"}, (True, False)),
        (["load a", "!load a"], {"count": "skill_load(a)", "max": 1}, (True, False)),
        (["load a", "load a"], {"count": "skill_load(a)", "max": 1}, (False, False)),
        (["load a"], {"count": "skill_load(b)", "min": 1}, (False, False)),
    ],
)
def test_rules_about_steps(told: list[str], rule: dict[str, Any], result: tuple[bool, bool]) -> None:
    (found,) = look(steps(*told), steps=[rule])
    assert (found.passed, found.vacuous) == result, found.evidence
    assert found.evidence


_TOLD = st.lists(st.sampled_from(["load a", "!load a", "run a", "run b", "!run b"]), max_size=6)


@given(told=_TOLD)
def test_rules_agree_with_their_definitions(told: list[str]) -> None:
    run = steps(*told)
    done = [text for text in told if not text.startswith("!")]
    [never], [requires], [none] = (
        passed(run, steps=[rule])
        for rule in ({"never": "skill_run(b)"}, {"requires": "skill_run"}, {"count": "skill_run", "max": 0})
    )
    assert never == all(text.lstrip("!") != "run b" for text in told)
    assert requires == any(text.startswith("run") for text in done) and requires == (not none)
    if requires and any(text == "load a" for text in done):
        first = min(done.index(text) for text in done if text.startswith("run"))
        assert passed(run, steps=[{"before": ["skill_load", "skill_run"]}]) == [done.index("load a") < first]


@pytest.mark.usefixtures("short")
def test_patterns_of_arguments() -> None:
    run = Trajectory(steps=(CallStep(index=0, tool="skill_run", args={"command": LONG}, status="ok"),))
    rules = [{"never": ["skill_run(*, command=~'rm -rf')", f"skill_run(*, command=~'{HANGS}')"]}]
    found = look(run, steps=rules)
    assert [check.passed for check in found] == [True, False]
    assert "given up" in found[1].evidence


# --- the answer -------------------------------------------------------------------------------------------------------


def test_texts_and_patterns() -> None:
    assert answer("The March total", contains=["MARCH", "april"]) == [True, False]
    assert answer("a\nMarch", matches=["(?i)march", "(?m)^March$", "^March"]) == [True, True, False]
    assert answer("error 7", not_matches=["error", "fault"]) == [False, True]
    assert answer(" 42 \n", equals="42") == [True]


@pytest.mark.parametrize(
    ("text", "wanted", "same"),
    [
        ('{"a": [1, 2.0]}', {"a": [1.0, 2]}, True),
        ("true", 1, False),
        ("1", True, False),
        ('[{"a": true}]', [{"a": 1}], False),
        ('{"a": 1, "b": 2}', {"a": 1}, False),
        ("```json\n[1]\n```", [1], True),
        ("Here it is:\n```\n[1]\n```\nDone.", [1], True),
        ("```[1]```", [1], True),
        ("```\n[1]\n```\n```\n[1]\n```", [1], False),
        ("see [1]", [1], False),
        ("NaN", 1, False),
        ("[" * 200_000, [1], False),
        ("9" * 10_000, 9, False),
    ],
)
def test_the_json_of_an_answer(text: str, wanted: Any, same: bool) -> None:
    assert answer(text, equals=wanted) == [same]


def test_json_schemas(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}}
    (tmp_path / "out.json").write_text(json.dumps(schema))
    for given_schema in (schema, "out.json"):
        output = {"json_schema": given_schema}
        (good,) = look(Trajectory(text='{"total": 3}'), base=str(tmp_path), output=output)
        (bad,) = look(Trajectory(text='{"total": "3"}'), base=str(tmp_path), output=output)
        (prose,) = look(Trajectory(text="three"), base=str(tmp_path), output=output)
        assert (good.passed, bad.passed, prose.passed) == (True, False, False)
        assert "$.total: '3' is not of type 'number'" in bad.evidence and "not JSON" in prose.evidence
    assert answer('{"total": NaN}', json_schema=schema) == [False]


ANYTHING = st.text(st.characters(exclude_categories=()), max_size=3)


@given(text=st.text(st.characters(exclude_categories=())), part=ANYTHING.filter(str.strip))
def test_every_result_can_be_stored(text: str, part: str) -> None:
    for check in look(Trajectory(text=text), output={"contains": part, "equals": text, "matches": "x"}):
        assert CheckResult.model_validate_json(check.model_dump_json()) == check
        assert len(check.evidence) < 5_000


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_json_is_found_bare_and_fenced(value: Any) -> None:
    text = json.dumps(value)
    assert load_only_json(text) == value
    if "```" not in text:
        assert load_only_json(f"As asked:\n\n```json\n{text}\n```\n") == value


# --- limits -----------------------------------------------------------------------------------------------------------


def test_limits_count_tried_calls_too() -> None:
    run = steps("load a", "!run a")
    assert [check.passed for check in look(run, constraints={"max_calls": 2})] == [True]
    assert [check.passed for check in look(run, constraints={"max_calls": 1})] == [False]
    assert [check.passed for check in look(run, constraints={"forbidden_tools": ["Bash", "network"]})] == [False, True]


def test_a_run_that_was_stopped_at_the_limit_failed() -> None:
    run = Trajectory(turns=3, stop_reasons=("limit:turns", "answer"), usage=Usage(input=5, output=6, cached=5))
    limits = {"max_turns": 3, "max_tokens": 11, "max_seconds": 1, "max_cost": 0.5}
    assert [check.passed for check in look(run, constraints=limits)] == [False, True, True, None]


def test_the_status_of_a_run() -> None:
    yes, no, open_ = (CheckResult(kind="output", name="", passed=passed) for passed in (True, False, None))
    assert find_status([yes, open_]) == "passed"
    assert find_status([yes, no, open_]) == "failed"
    assert find_status([open_]) == find_status([]) == "skipped"


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Path:
    work = tmp_path / "ws"
    for path, text in {"out/a.csv": "month,total\n3,9\n", "out/deep/b.json": '{"a": 1}', "work/empty": ""}.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    return work


def files(workspace: Path | None, **wanted: Any) -> CheckResult:
    (found,) = look(Trajectory(), workspace=workspace and str(workspace), files=[wanted])
    return found


def test_files_that_a_run_made(made: Path) -> None:
    assert files(made, path="out/*.csv", min_bytes=5, contains="MONTH", matches="(?m)^3,").passed
    assert files(made, path="out/**/*.json", json_schema={"required": ["a"]}).passed
    assert files(made, path="$OUTPUT_DIR/a.csv").passed
    assert files(made, path="work/empty", min_bytes=0).passed
    wrong = [{"path": "out/*.json"}, {"path": "out/*.csv", "max_bytes": 3}, {"path": "work/empty"}]
    wrong += [{"path": "out/a.csv", "contains": "April"}, {"path": "out/a.csv", "json_schema": {}}]
    wrong += [{"path": "out/a.csv", "matches": "("}, {"path": "out"}]
    for each in wrong:
        found = files(made, **each)
        assert found.passed is False and found.evidence, each
    assert files(None, path="out/a.csv").passed is False


def test_one_of_several_files_is_enough(made: Path) -> None:
    (made / "out/b.csv").write_text("nothing")
    assert files(made, path="out/*.csv", contains="month").evidence == "out/a.csv (16 bytes)"
    assert "out/a.csv: not contains x" in files(made, path="out/*.csv", contains="x").evidence


def test_links_and_dots_do_not_lead_out(made: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (made / "out/link.txt").symlink_to(tmp_path / "secret.txt")
    (made / "out/folder").symlink_to(tmp_path)
    os.mkfifo(made / "out/fifo.txt")
    for path in ("out/link.txt", "out/folder/secret.txt", "out/**/secret.txt", "out/fifo.txt"):
        assert files(made, path=path).evidence == "no such file"
    for path in ("../secret.txt", "out/../../secret.txt", str(tmp_path / "secret.txt"), "$HOME/secret.txt"):
        assert files(made, path=path).passed is False
        assert [where for where, _ in check_case(make(expect={"files": [{"path": path}]}), "/")] == [
            "expect.files.0.path"
        ]


def test_a_huge_file_is_not_read(made: Path) -> None:
    with open(made / "out/huge.txt", "wb") as file:
        file.truncate(9 << 20)
    assert files(made, path="out/huge.txt", min_bytes=9 << 20).passed
    assert "was not read" in files(made, path="out/huge.txt", contains="x").evidence


# --- the form of a case -----------------------------------------------------------------------------------------------


def problems(base: Path, **fields: Any) -> dict[str, str]:
    return dict(check_case(make(**fields), str(base)))


def test_a_good_case_has_no_problems(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("a")
    (tmp_path / "schema.json").write_text("{}")
    (tmp_path / "script.yaml").write_text("[]")
    output = {"matches": [HANGS, "(?i)march"], "json_schema": "schema.json"}
    rules = [{"before": ["Skill", "Bash"]}, {"requires": "skill_run", "after": "*"}, {"never": "web_fetch"}]
    expect = {"output": output, "steps": rules, "files": [{"path": "out/*"}]}
    constraints = {"forbidden_tools": ["WebFetch"]}
    assert not problems(tmp_path, files=["sales.csv"], script="script.yaml", expect=expect, constraints=constraints)


def test_every_problem_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{NaN")
    (tmp_path / "base").mkdir()
    (tmp_path / "base/out").symlink_to(tmp_path)
    found = problems(
        tmp_path / "base",
        files=["missing.csv", "../bad.json", "out/bad.json", "/etc/passwd"],
        script="no.yaml",
        constraints={"forbidden_tools": ["skil_run"]},
        expect={
            "steps": [{"before": ["skill_load", "skill_run(*, command=~'(')"]}, {"requires": "*", "after": "x y"}],
            "output": {"matches": ["("], "not_matches": ["*"], "json_schema": {"type": "objct"}},
            "files": [{"path": "/x"}, {"path": "out/x", "matches": "[", "json_schema": "out/bad.json"}],
        },
    )
    assert dict.fromkeys(found, True) == dict.fromkeys(
        [
            *(f"files.{number}" for number in range(4)),
            "script",
            "constraints.forbidden_tools.0",
            "expect.steps.0.before.1",
            "expect.steps.1.after",
            "expect.files.0.path",
            "expect.output.matches.0",
            "expect.output.not_matches.0",
            "expect.output.json_schema",
            "expect.files.1.matches.0",
            "expect.files.1.json_schema",
        ],
        True,
    )
    assert found["files.0"] == "there is no file 'missing.csv'"
    assert "did you mean 'skill_run'?" in found["constraints.forbidden_tools.0"]
    assert "the pattern '(' cannot be used: missing ), unterminated subpattern" in found["expect.output.matches.0"]
    assert "'objct'" in found["expect.output.json_schema"]


# --- attacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short")
def test_patterns_and_schemas_that_never_end_are_given_up() -> None:
    blow = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {}}
    start = time.monotonic()
    found = look(
        Trajectory(text=json.dumps(LONG)),
        output={"matches": [HANGS.replace("^", "")], "json_schema": {"$ref": "#/$defs/a0", "$defs": blow}},
    )
    assert [check.passed for check in found] == [False, False]
    assert all("given up after 0.25 s" in check.evidence for check in found)
    assert time.monotonic() - start < GUARD_S
    assert answer("cat", matches="a") == [True]  # the next check has a new worker


@pytest.mark.usefixtures("short")
def test_hostile_schemas() -> None:
    for schema in ({"$ref": "#"}, {"pattern": "("}, {"$ref": "#/nowhere"}, {"type": 7}):
        assert answer('"x"', json_schema=schema) == [False]
    assert answer(json.dumps(LONG), json_schema={"pattern": HANGS}) == [False]
    deep = "[" * 900 + "]" * 900  # a Python version decides whether that is too deep
    assert answer(deep, json_schema={"items": {"$ref": "#"}}) in ([True], [False])
    assert answer(deep, equals=json.loads(deep)) in ([True], [False])


def test_a_schema_never_fetches(tmp_path: Path) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/s.json"
            for schema in ({"$ref": url}, {"$id": url, "$ref": "other"}, {"$schema": url}, {"$dynamicRef": url}):
                answer("1", json_schema=schema)
                problems(tmp_path, expect={"output": {"json_schema": schema}})
            assert "nothing is fetched" in str(problems(tmp_path, expect={"output": {"json_schema": {"$ref": url}}}))
        finally:
            server.shutdown()
            thread.join()
    assert not asked


def test_a_huge_answer() -> None:
    text = "lorem ipsum " * 1_000_000 + "end"
    found = look(Trajectory(text=text), output={"contains": ["END"], "matches": ["end$"], "not_matches": ["x"]})
    assert [check.passed for check in found] == [True, True, True]
    assert all(len(check.evidence) < 1_000 for check in found)
    assert answer(text * 2, matches="end") == [False]  # it is too long to be searched
