"""Case files, native and of other systems: what is read, and what is said about a fault, with its line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from prowess._internal.yaml_lines import parse_yaml
from prowess.errors import EvalError, PathEscape
from prowess.evals.case import Case
from prowess.evals.distractors import choose_distractors, read_distractors
from prowess.evals.starter import write_starter
from prowess.evals.suite import Suite, check_skill_names, read_suite

BUILTIN = Path(prowess.__file__).parent / "builtin_skills"


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def make_skill(folder: Path, name: str = "csv-report") -> Path:
    write(folder / "SKILL.md", f"---\nname: {name}\ndescription: Reports on tables. Use for tables.\n---\nDo it.\n")
    return folder


def read(folder: Path, *paths: str) -> Suite:
    return read_suite(paths or (".",), cwd=str(folder))


def refused(folder: Path, *paths: str) -> EvalError:
    with pytest.raises(EvalError) as caught:
        read(folder, *paths)
    return caught.value


def only(suite: Suite) -> Case:
    (each,) = suite.cases
    return each.case


NATIVE = """\
name: reports
skill: csv-report
defaults:
  repeats: 3
  gate: soft
  constraints: {max_calls: 4, max_turns: 9}
cases:
  - id: top3
    prompt: Top 3 months in sales.csv
    files: files/sales.csv
    constraints: {max_turns: 2}
    repeats: 5
    expect:
      skills: {load: csv-report, not_load: [json-tools], at_most: 2}
      steps:
        - before: [skill_load(csv-report), skill_run(csv-report)]
        - {never: network_request}
      output: {matches: "(?i)march"}
      judge: Both axes are labelled
    script:
      - calls: [{tool: skill_load, args: {skill: csv-report}}]
      - text: March.
  - id: 2
    turns: [Hello, And now?]
    expect: {skills: {at_most: 0}}
"""


def test_a_native_file_has_defaults_and_lines(tmp_path: Path) -> None:
    write(tmp_path / "files/sales.csv", "a,b\n")
    write(tmp_path / "cases.yaml", NATIVE)
    suite = read(tmp_path, "cases.yaml")
    first, second = suite.cases
    assert (suite.name, suite.notes, first.skill) == ("reports", (), "csv-report")
    assert (first.file, first.line, first.base) == ("cases.yaml", 8, str(tmp_path)) and second.line == 23
    assert first.case.files == ("files/sales.csv",) and first.case.expect.judge == ("Both axes are labelled",)
    assert first.case.repeats == 5 and second.case.repeats == 3 and second.case.gate == "soft"
    limits = first.case.constraints
    assert limits is not None and (limits.max_calls, limits.max_turns) == (4, 2)
    assert second.case.id == "2" and second.case.requests == ("Hello", "And now?")


def test_json_is_the_same(tmp_path: Path) -> None:
    write(tmp_path / "files/sales.csv", "a,b\n")
    case = {"id": "a", "prompt": "p", "files": ["files/sales.csv"], "expect": {"output": {"equals": {"n": 1}}}}
    write(tmp_path / "a.json", json.dumps({"cases": [case]}, indent=1))
    write(tmp_path / "b/a.yaml", json.dumps({"cases": [case]}))
    write(tmp_path / "b/files/sales.csv", "a,b\n")
    from_json, from_yaml = read(tmp_path, "a.json"), read(tmp_path, "b/a.yaml")
    assert only(from_json) == only(from_yaml) and from_json.digest == from_yaml.digest
    assert (from_json.cases[0].line, from_yaml.cases[0].line) == (3, 1)


@pytest.mark.parametrize(
    ("text", "code", "line", "says", "hint"),
    [
        ("cases:\n- id: x\n  promt: y\n", "eval-case-invalid", 2, "a prompt, or turns", "did you mean 'prompt'"),
        ("cases:\n- id: x\n  prompt: y\n  turns: [z]\n", "eval-case-invalid", 2, "a prompt, or turns", "schema"),
        ("cases:\n- prompt: y\n", "eval-case-invalid", 2, "id: is missing", "schema eval-cases"),
        (
            "cases:\n- id: x\n  prompt: y\n  gate: hrad\n",
            "eval-case-invalid",
            4,
            "gate: input should be 'hard' or 'soft'",
            "",
        ),
        (
            "cases:\n- id: x\n  prompt: y\n  expect:\n    skills:\n      at_most: two\n",
            "eval-case-invalid",
            6,
            "case 'x': expect.skills.at_most",
            "",
        ),
        (
            "cases:\n- id: x\n  prompt: y\n  expect:\n    steps:\n    - never: grep\n    - {never: a, count: b}\n",
            "eval-case-invalid",
            7,
            "expect.steps.1: a step has exactly one of",
            "",
        ),
        (
            "cases:\n- id: x\n  prompt: y\n  expect:\n    outptu: {}\n",
            "eval-unknown-check",
            5,
            "did you mean 'output'",
            "skills, steps",
        ),
        (
            "defaults:\n  constraints:\n    max_call: 1\ncases:\n- {id: x, prompt: y}\n",
            "eval-unknown-check",
            3,
            "did you mean 'max_calls'",
            "max_turns",
        ),
        ("cases:\n- id: x\n  prompt: y\n- id: x\n  prompt: z\n", "eval-id-twice", 4, "already, on line 2", ""),
        (
            "cases:\n- id: x\n  prompt: y\n  script:\n  - text: a\n  - tekst: b\n",
            "eval-case-invalid",
            6,
            "reply 2",
            "'text'",
        ),
        ("cases:\n- id: x\n  prompt: y\n  files:\n  - a.csv\n", "eval-case-invalid", 5, "'a.csv'", "relative to"),
        ("cases:\n- id: x\n  prompt: y\n  files: [../a]\n", "eval-case-invalid", 4, "'../a'", "relative to"),
        (
            "cases:\n- id: x\n  prompt: y\n  expect:\n    output:\n      matches:\n      - a\n      - (\n",
            "eval-case-invalid",
            8,
            "matches.1",
            "",
        ),
        (
            "cases:\n- id: x\n  prompt: y\n  expect:\n    steps:\n    - never: skil_load\n",
            "eval-case-invalid",
            6,
            "'skill_load'",
            "",
        ),
        (
            "cases:\n- id: x\n  prompt: y\n  expect: {output: {json_schema: {type: 1}}}\n",
            "eval-case-invalid",
            4,
            "json_schema",
            "",
        ),
        ("cases:\n- id: x\n  prompt: [\n", "eval-file-invalid", 4, "", "without tabs"),
        (
            "cases:\n- id: x\n  prompt: y\n  expect:\n    steps: [{requires: skill_run, same: skill}]\n",
            "eval-case-invalid",
            5,
            "same needs after",
            "",
        ),
        (
            "cases:\n- id: x\n  prompt: y\n  expect: {skills: csv-report}\n",
            "eval-case-invalid",
            4,
            "expect.skills: input should be an object, such as {key: value}.",
            "eval-cases",
        ),
        ("cases:\n- &a {id: x}\n- *a\n", "eval-file-invalid", 2, "anchors", ""),
        ("version: 2\ncases:\n- {id: x, prompt: y}\n", "eval-case-invalid", 1, "version: input should be 1", ""),
        ("cases:\n- {id: x, prompt: y}\n- hello\n", "eval-case-invalid", 3, "must be an object", "id"),
        ("- input: a\n  expected:\n    stepps: []\n", "eval-unknown-check", 3, "did you mean 'steps'", ""),
        ("- {query: a, should_trigger: true}\n", "eval-case-invalid", 1, "which skill", "evals folder"),
        ("skill: s\ncases:\n- {query: a, should_trigger: 1}\n", "eval-case-invalid", 3, "true or false", "quotes"),
    ],
)
def test_a_fault_has_its_file_its_line_and_a_hint(
    tmp_path: Path, text: str, code: str, line: int, says: str, hint: str
) -> None:
    write(tmp_path / "bad.yaml", text)
    error = refused(tmp_path, "bad.yaml")
    assert error.code == code and error.message.startswith(f"bad.yaml:{line}: ")
    assert says in error.message and hint in (error.hint or "")


@pytest.mark.parametrize(
    ("checks", "says"),
    [
        ("output: {contains: ''}", "expect.output.contains.0: is empty"),
        ("output: {contains: [North, ' ']}", "expect.output.contains.1: is empty"),
        ("output: {matches: ''}", "expect.output.matches.0: is empty"),
        ("output: {not_matches: ['']}", "expect.output.not_matches.0: is empty"),
        ("output: {matches: '.*'}", "expect.output.matches.0: matches every text"),
        ("output: {matches: '(?i)a?'}", "expect.output.matches.0: matches every text"),
        ("output: {}", "expect.output: checks nothing"),
        ("output: {contains: []}", "expect.output: checks nothing"),
        ("output: {json_schema: ''}", "expect.output.json_schema: is empty"),
        ("files: [{path: ''}]", "expect.files.0.path: is empty"),
        ("files: [{path: ./}]", "expect.files.0.path: string should match pattern '[^./]'"),
        ("files: [{path: a, matches: ['']}]", "expect.files.0.matches.0: is empty"),
        ("steps: [{}]", "expect.steps.0: a step has exactly one of"),
        ("steps: [{never: []}]", "expect.steps.0: never needs a pattern"),
        ("steps: [{never: ''}]", "expect.steps.0.never.0: is empty"),
        ("steps: [{requires: ''}]", "expect.steps.0.requires: is empty"),
        ("steps: [{before: [grep, '']}]", "expect.steps.0.before.1: is empty"),
        ("steps: [{count: grep, min: 0}]", "expect.steps.0: count needs a min above 0, or max"),
        ("steps: [{requires: grep, min: 2}]", "expect.steps.0: min and max need count"),
        ("steps: [{never: grep, after: skill_load}]", "expect.steps.0: after needs requires"),
        ("steps: [{requires: \"grep(pattern=~'')\"}]", "expect.steps.0.requires: the pattern of 'pattern' is empty"),
        ("skills: {load: ['']}", "expect.skills.load.0: is empty"),
        ("skills: {not_load: ''}", "expect.skills.not_load.0: is empty"),
        ("judge: ['']", "expect.judge.0: is empty"),
    ],
)
def test_a_check_that_cannot_fail_is_refused(tmp_path: Path, checks: str, says: str) -> None:
    write(tmp_path / "bad.yaml", f"cases:\n- id: x\n  prompt: y\n  expect:\n    {checks}\n")
    error = refused(tmp_path, "bad.yaml")
    assert error.message.startswith(f"bad.yaml:5: case 'x': {says}") and error.code == "eval-case-invalid"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("prompt: ''", "prompt: is empty"),
        ("turns: [a, ' ']", "turns.1: is empty"),
        ("{prompt: y, files: ['']}", "files.0: is empty"),
        ("{prompt: y, script: ''}", "script: is empty"),
        ("{prompt: y, arms: ['']}", "arms.0: is empty"),
        ("{prompt: y, constraints: {forbidden_tools: ['']}}", "constraints.forbidden_tools.0: is empty"),
    ],
)
def test_an_empty_text_is_refused(tmp_path: Path, fields: str, says: str) -> None:
    case = parse_yaml(fields).value
    write(tmp_path / "bad.json", json.dumps({"cases": [{"id": "x", **case}]}, indent=1))
    assert f": case 'x': {says}" in refused(tmp_path, "bad.json").message


@pytest.mark.parametrize("pattern", ["^$", "^[^a]*$", "(?!.*error)", "a|b", r"\ba?"])
def test_a_pattern_that_some_text_does_not_match_is_read(tmp_path: Path, pattern: str) -> None:
    case = {"id": "x", "prompt": "y", "expect": {"output": {"matches": pattern, "not_matches": [], "equals": None}}}
    write(tmp_path / "good.json", {"cases": [case]})
    assert only(read(tmp_path)).id == "x"


def test_unknown_keys_are_tolerated_and_told(tmp_path: Path) -> None:
    text = "colour: red\ncases:\n- id: x\n  prompt: y\n  reapets: 3\n  catalog:\n    sed: 1\n"
    write(tmp_path / "cases.yaml", text)
    assert read(tmp_path).notes == (
        "cases.yaml:1: unknown key 'colour' in a case file.",
        "cases.yaml:5: unknown key 'reapets' in a case (did you mean 'repeats'?).",
        "cases.yaml:7: unknown key 'sed' in catalog (did you mean 'seed'?).",
        "cases.yaml:3: case 'x' checks nothing, so it is not run.",
    )


@pytest.mark.parametrize("content", ["", "{}", "[]", "cases: []", "a: 1", "- a", '{"evals": []}'])
def test_no_cases_is_an_error(tmp_path: Path, content: str) -> None:
    write(tmp_path / "a/cases.yaml", content)
    for path in ("a/cases.yaml", "a", "."):
        assert refused(tmp_path, path).code == "evals-empty"
    assert refused(tmp_path, "none").code == "evals-not-found"


# --- other systems --------------------------------------------------------------------------------------------------


def test_input_expected_constraints(tmp_path: Path) -> None:
    case = {
        "input": "Make a report",
        "expected": {
            "skills": [{"name": "csv-report", "source": "project"}],
            "steps": ["load_skill", "run_script(csv-report)", "final_answer", {"never": "network_request"}],
            "output": {"keywords": ["total"], "regex": "[0-9]+"},
        },
        "constraints": {"max_tool_calls": 3, "forbidden_tools": ["network_request"]},
    }
    write(tmp_path / "report.json", [case, {"input": "Hello", "expected": {"skills": []}}])
    first, second = (each.case for each in read(tmp_path).cases)
    assert (first.id, second.id) == ("make-a-report", "hello")
    assert first.prompt == "Make a report" and first.expect.skills and first.expect.skills.load == ("csv-report",)
    assert [rule.model_dump(exclude_none=True) for rule in first.expect.steps] == [
        {"never": ("network_request",)},
        {"requires": "skill_load"},
        {"requires": "run_script(csv-report)"},
        {"before": ("skill_load", "run_script(csv-report)")},
    ]
    assert first.expect.output and first.expect.output.contains == ("total",)
    assert first.expect.output.matches == ("[0-9]+",)
    assert first.constraints and first.constraints.max_calls == 3
    assert second.expect.skills and second.expect.skills.at_most == 0


@pytest.mark.parametrize("key", ["assertions", "expectations"])
def test_evals_json_of_a_skill(tmp_path: Path, key: str) -> None:
    skill = make_skill(tmp_path / "csv-report")
    write(skill / "evals/files/a.csv", "a,b\n")
    entry = {"id": 1, "prompt": "Do", "expected_output": "A chart", "files": ["evals/files/a.csv"], key: ["Has axes"]}
    more = {"id": 2, "prompt": "And", key: ["Has a title"], "colour": 1}
    write(skill / "evals/evals.json", {"skill_name": "Tables", "version": "1.2", "evals": [entry, more]})
    suite = read(tmp_path, "csv-report")
    first, second = suite.cases
    assert suite.name == "csv-report" and first.skill == "csv-report" and first.base == str(skill)
    assert first.case.id == "1" and first.case.files == ("evals/files/a.csv",)
    assert first.case.expect.judge == ("The result is as expected: A chart", "Has axes")
    assert second.case.expect.judge == ("Has a title",)
    assert suite.notes == ("csv-report/evals/evals.json:1: unknown key 'colour' in a case.",)


def test_trigger_sets_keep_every_query(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "csv-report")
    same = [{"query": "A chart?", "should_trigger": True}, {"query": "A chart?", "should_trigger": False}]
    write(skill / "evals/triggers.json", [*same, {"query": "画图", "should_trigger": True, "rationale": "r"}])
    cases = [each.case for each in read(skill).cases]
    assert [case.id for case in cases] == ["a-chart", "a-chart-2", "画图"]
    wrapped = {"skill_name": "csv", "queries": same, "note": "n"}
    write(tmp_path / "w/evals/triggers.json", wrapped)
    assert [each.skill for each in read(tmp_path, "w/evals").cases] == ["csv", "csv"]
    assert read(tmp_path, "w/evals").notes == ("w/evals/triggers.json:1: unknown key 'note' in a case file.",)
    skills = [case.expect.skills for case in cases]
    assert [each and (each.load, each.not_load) for each in skills] == [
        (("csv-report",), ()),
        ((), ("csv-report",)),
        (("csv-report",), ()),
    ]


def test_one_file_per_case(tmp_path: Path) -> None:
    skill = make_skill(tmp_path / "csv-report")
    case = {"name": "Make", "skills": ["report"], "query": "Make it", "context": "A table is open"}
    case |= {"expected_behavior": ["Runs the script"], "success_criteria": ["A chart is there"]}
    write(skill / "evaluations/make-it.json", case)
    write(skill / "evaluations/README.md", "Nothing.")
    (skill / "SKILL.md").rename(skill / "skill.md")
    suite = read(tmp_path, "csv-report")
    found = only(suite)
    assert found.id == "make-it" and found.prompt == "Make it\n\nContext: A table is open" and not suite.notes
    assert found.expect.judge == ("Runs the script", "A chart is there")
    assert found.expect.skills and found.expect.skills.load == ("csv-report",)


def test_native_keys_of_a_foreign_case_count(tmp_path: Path) -> None:
    case = {
        "input": "Sum",
        "expected": {"contains": ["3"]},
        "gate": "soft",
        "script": [{"text": "3"}],
        "validator": "v",
    }
    write(tmp_path / "u.json", {"cases": [case]})
    suite = read(tmp_path)
    assert only(suite).gate == "soft" and only(suite).script == ({"text": "3"},)
    assert suite.notes == ("u.json:1: unknown key 'validator' in a case.",)


# --- where cases are ------------------------------------------------------------------------------------------------


def test_places(tmp_path: Path) -> None:
    one = {"cases": [{"id": "a", "prompt": "p", "expect": {"output": {"json_schema": "s.schema.json"}}}]}
    for name in ("one", "two"):
        skill = make_skill(tmp_path / "skills" / name, name)
        write(skill / "evals/cases.json", one)
        write(skill / "evals/s.schema.json", {"type": "object"})
        write(skill / "evals/data.json", {"n": 1})
    write(tmp_path / ".agent/evals/p.yaml", "cases:\n- id: a\n  prompt: p\n")
    skills = read(tmp_path, "skills")
    assert [each.skill for each in skills.cases] == ["one", "two"]
    assert [each.case.id for each in skills.cases] == ["one/evals/cases/a", "two/evals/cases/a"]
    others = [f"skills/{name}/evals/{other}.json" for name in ("one", "two") for other in ("data", "s.schema")]
    left_out = [f"{other}: left out, because it has no cases." for other in others]
    assert [note for note in skills.notes if "left out" in note] == left_out
    assert [each.file for each in read(tmp_path).cases] == [".agent/evals/p.yaml"]
    both = read(tmp_path, ".", "skills/one", "skills/one/evals", "skills/one/evals/cases.json")
    assert [each.case.id for each in both.cases] == [".agent/evals/p/a", "skills/one/evals/cases/a"]
    assert both.cases[1].skill == "one"


def test_fixtures_are_in_folders_below(tmp_path: Path) -> None:
    write(tmp_path / "files/a.json", "{broken")
    write(tmp_path / "files/b.json", {"cases": [{"id": "z", "prompt": "p"}]})
    files = {"files": ["files/a.json", "files/b.json"], "expect": {"skills": {"at_most": 1}}}
    write(tmp_path / "cases.json", {"cases": [{"id": "a", "prompt": "p", **files}]})
    suite = read(tmp_path)
    assert only(suite).id == "a" and suite.notes == ()
    write(tmp_path / "a.json", "{broken")
    error = refused(tmp_path)
    assert error.code == "eval-file-invalid" and "folder below" in (error.hint or "")
    write(tmp_path / "a.json", "{}")
    assert refused(tmp_path, "cases.json", "a.json").code == "evals-empty"


def test_the_digest_is_about_cases_and_fixtures_only(tmp_path: Path) -> None:
    for name in ("here", "there"):
        write(tmp_path / name / "files/sales.csv", "a,b\n")
        write(tmp_path / name / "cases.yaml", NATIVE)
    digest = read(tmp_path, "here").digest
    assert digest == read(tmp_path / "there").digest
    write(tmp_path / "there/files/sales.csv", "a,c\n")
    assert read(tmp_path, "there").digest != digest
    write(tmp_path / "here/cases.yaml", NATIVE.replace("Hello", "Hallo"))
    assert read(tmp_path, "here").digest != digest


def test_a_skill_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "cases.yaml", "cases:\n- id: a\n  prompt: p\n  expect: {skills: {not_load: csv-reports}}\n")
    suite = read(tmp_path)
    check_skill_names(suite, {"csv-reports": "active"})
    with pytest.raises(EvalError) as caught:
        check_skill_names(suite, {"csv-report": "active"})
    assert caught.value.message == "cases.yaml:2: case 'a': no skill 'csv-reports'."
    assert caught.value.code == "eval-unknown-skill" and caught.value.hint == "Did you mean 'csv-report'?"


def test_what_a_file_says_cannot_reach_a_terminal(tmp_path: Path) -> None:
    write(tmp_path / "cases.yaml", 'cases:\n- id: "x\\e[2J"\n  promt: y\n')
    error = refused(tmp_path)
    assert "\x1b" not in f"{error.message}{error.hint}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "cases evals id prompt turns query input should_trigger expected expect skills steps output files "
                "script constraints context assertions defaults skill name".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_any_content_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, entry: Any, top: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    for content in (
        entry,
        [entry],
        {"cases": [entry], "defaults": top},
        {"evals": [entry]},
        {"input": top, **_fields(entry)},
    ):
        write(folder / "any.json", content)
        try:
            assert read(folder, "any.json").cases
        except EvalError as error:
            assert "any.json" in error.message


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"expected": value}


def test_starter_cases_are_read_and_never_overwritten(tmp_path: Path) -> None:
    for skill in sorted(BUILTIN.iterdir()):
        folder = tmp_path / skill.name
        shutil.copytree(skill, folder)
        shutil.rmtree(folder / "evals", ignore_errors=True)
        path = write_starter(str(folder))
        suite = read(tmp_path, skill.name)
        assert [each.case.id for each in suite.cases] == ["should-trigger", "should-not-trigger"]
        assert all(each.case.script and each.skill == skill.name for each in suite.cases) and not suite.notes
        before = Path(path).read_bytes()
        with pytest.raises(EvalError, match="is there already"):
            write_starter(str(folder))
        assert Path(path).read_bytes() == before and str(tmp_path).encode() not in before
    with pytest.raises(EvalError, match="not the folder of a skill"):
        write_starter(str(tmp_path))
    (make_skill(tmp_path / "out") / "evals").symlink_to(tmp_path)
    with pytest.raises(PathEscape):
        write_starter(str(tmp_path / "out"))
    assert not (tmp_path / "cases.yaml").exists()


@pytest.mark.parametrize("name", ["true", "a-b", "null", "'", "12", "x # y", "[a", "é"])
def test_a_starter_quotes_any_name(tmp_path: Path, name: str) -> None:
    write(tmp_path / "SKILL.md", dedent(f"""\
        ---
        name: {json.dumps(name)}
        description: "Does \\"things\\": #1. More."
        ---
        Do.
        """))  # fmt: skip
    write_starter(str(tmp_path))
    case = read(tmp_path).cases[0].case
    assert case.prompt == 'I need help. Does "things": #1' and case.expect.skills
    assert len(case.expect.skills.load) == 1


def test_distractors_are_the_same_everywhere() -> None:
    builtin = {path.name for path in BUILTIN.iterdir()}
    everything = read_distractors()
    assert len(everything) >= 120 and not everything.keys() & builtin
    chosen = [skill.name for skill in choose_distractors(5, 7, ())]
    assert chosen == ["performance-review", "job-ad-writer", "slide-deck-maker", "profiler-guide", "event-budget"]
    assert [skill.name for skill in choose_distractors(60, 7, ())][:5] == chosen
    assert chosen[0] not in [skill.name for skill in choose_distractors(60, 7, chosen[:1])]
    assert [skill.name for skill in choose_distractors(5, 8, ())] != chosen
    everyone = choose_distractors(len(everything), 0, ())
    assert not [finding for skill in everyone for finding in skill.findings]
    assert len({skill.description for skill in everyone}) == len(everyone)
    with pytest.raises(EvalError, match="are wanted, but"):
        choose_distractors(10_000, 0, ())
    catalog = prowess.discover(BUILTIN, *choose_distractors(20, 1, ()))
    assert len([*catalog]) == 25


def test_the_schema_of_a_case_file_agrees(tmp_path: Path) -> None:
    schema = json.loads((Path(prowess.__file__).parent / "schemas/eval-cases.json").read_text(encoding="utf-8"))
    jsonschema.validate(parse_yaml(NATIVE).value, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cases": [{"id": "a", "gate": "no"}]}, schema)


def test_one_id_never_stands_for_two_cases(tmp_path: Path) -> None:
    for name in ("a.yaml", "a.json"):
        text = '{"cases": [{"id": "x", "prompt": "Hi.", "expect": {"output": {"contains": "a"}}}]}'
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(EvalError, match=r"id 'a/x': a\.json:1 and a\.yaml:1"):
        read_suite([str(tmp_path)], cwd=str(tmp_path))
