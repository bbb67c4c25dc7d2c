"""Reports of eval runs: every kind, with texts that try to break out of it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from eval_records import run_record, trigger_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prowess.core.values import Usage
from prowess.errors import EvalError
from prowess.evals.document import EvalDocument, load_document, make_document
from prowess.evals.gate import compare
from prowess.evals.reports.write import KINDS, write_report
from prowess.evals.results import CheckResult, RunFault, RunRecord
from prowess.records.trajectory import TimelineEntry

SCHEMA = Path(__file__).parents[2] / "src" / "prowess" / "schemas" / "eval.json"
EVIL = "</script><script>alert(1)</script><!-- & \u2028 \x00\x1b[31m \ud800 ` | @everyone ]]> @DATA@ @SCRIPT@"


def records(word: str = "x") -> list[RunRecord]:
    failed = CheckResult(kind="output", name=f"matches {word}", passed=False, evidence=f"not in {word}")
    timeline = (TimelineEntry(start_ms=0, ms=5, kind="call", label=word, ok=False),)
    return [
        run_record(f"a {word}", seconds=1.5, usage=Usage(input=10, output=2, cost=0.01)),
        run_record("b", "failed", checks=(failed,), text=word, timeline=timeline, calls_by_tool={word: 1}),
        run_record("c", "error", error=RunFault(code="model-error", message=f"No answer {word}.", hint="Wait.")),
        run_record("d", "skipped", error=RunFault(code="no-script", message="It has no script.")),
        run_record("e", "failed", checks=(failed,), gate="soft"),
        trigger_run("f", word.split()[0], "pdf"),
        *(run_record(name, "failed", arm="without_skill", usage=20) for name in (f"a {word}", "b")),
    ]


def document(word: str = "x", **more: Any) -> EvalDocument:
    return make_document(f"suite {word}", records(word), run="r1", notes=[f"note {word}"], **more)


def render(kind: str, value: EvalDocument, folder: Path) -> str:
    file = folder / f"report.{kind}"
    write_report(kind, str(file), value, force=True)
    return file.read_text(encoding="utf-8")


def test_document_has_the_shape_of_the_contract() -> None:
    found = document(prompts={"b": "Do it"}).against(document()).to_json()
    assert found["schema"] == "prowess.eval/1" and found["suite"] == "suite x"
    assert [found[name] for name in ("cases", "passed", "failed", "errors", "skipped")] == [6, 1, 3, 1, 1]
    assert found["trigger"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert found["usage"]["input"] == 50 and found["usage"]["cost"] == 0.01
    assert [one["status"] for one in found["results"]] == ["passed", "failed", "error", "skipped", "failed", "failed"]
    assert found["results"][1]["checks"][0]["name"] == "matches x"
    assert found["results"][1]["why"] == "matches x: not in x" and found["results"][1]["prompt"] == "Do it"
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_document_gives_back_its_records(tmp_path: Path) -> None:
    render("json", document(), tmp_path)
    read = load_document(str(tmp_path / "report.json"), "report.json")
    assert {repr(record.key): record for record in read.records} == {repr(record.key): record for record in records()}
    assert compare(records(), read.records, suite="suite x", baseline_suite=read.suite).broken == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"schema": "prowess.eval/2"}', "[" * 100_000, b"\xff"])
def test_a_file_that_is_no_report_is_an_error(tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "old.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(EvalError, match=r"old\.json is not a report of an eval run") as caught:
        load_document(str(file), "old.json")
    assert caught.value.code == "baseline-invalid" and len(str(caught.value)) < 400


def test_junit_has_the_runs_of_the_main_arm(tmp_path: Path) -> None:
    root = ET.fromstring(render("junit", document(EVIL), tmp_path))
    suite = root[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "1",
        "skipped": "2",
    }
    cases = {case.get("name"): case for case in suite}
    assert cases["c"][0].get("type") == "model-error"
    assert (cases["e"][0].get("message") or "").startswith("soft: matches")
    assert cases["d"][0].get("message") == "It has no script."
    assert "\\u{1b}" in (cases["b"][0].get("message") or "")


def test_junit_names_repeats(tmp_path: Path) -> None:
    value = make_document("s", [run_record("a", repeat=1), run_record("a", "failed", repeat=2)])
    assert [case.get("name") for case in ET.fromstring(render("junit", value, tmp_path))[0]] == ["a", "a #2"]


def test_markdown_is_short_and_other_texts_are_code(tmp_path: Path) -> None:
    text = render("markdown", document(EVIL).against(document(EVIL)), tmp_path)
    assert "1 of 6 cases passed" in text and "**Against the baseline: inconclusive.**" in text
    assert text.count("\n") < 40 and "\x1b" not in text
    outside = re.sub(r"`[^`]*`", "", text)
    assert "script" not in outside and "@everyone" not in outside
    many = make_document("s", [run_record(f"c{n}", "failed") for n in range(500)])
    assert "- and 490 more" in (short := render("markdown", many, tmp_path)) and len(short) < 3000


def test_html_is_one_file_that_runs_its_own_script_only(tmp_path: Path) -> None:
    text = render("html", document(EVIL, prompts={"b": EVIL}), tmp_path)
    assert text.count("<script") == 2 and text.count("</script>") == 2 and "alert(1)</script" not in text
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", text)
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and "default-src 'none'" in text
    assert "innerHTML" not in script and "insertAdjacent" not in script and "document.write" not in script
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert data["results"][1]["runs"][0]["text"] == EVIL and data["results"][1]["prompt"] == EVIL
    summary = html.unescape(text.partition("<noscript>")[2].partition("</noscript>")[0])
    assert "1 of 6 cases passed" in summary


@given(st.text(min_size=1, max_size=60).filter(str.strip))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_valid_report(tmp_path: Path, word: str) -> None:
    value = document(word, prompts={"b": word})
    ET.fromstring(render("junit", value, tmp_path))
    text = render("html", value, tmp_path)
    assert json.loads(text.partition('id="data">')[2].partition("</script>")[0])["suite"] == f"suite {word}"
    assert json.loads(render("json", value, tmp_path)) == value.to_json()
    assert all(len(line) < 1000 for line in render("markdown", value, tmp_path).splitlines())


def test_a_canary_that_failed_is_told(tmp_path: Path) -> None:
    value = make_document("s", [run_record("canary", "failed", canary=True), run_record("a")])
    assert value.cases == 1 and value.failed == 0
    assert "canary case did not pass" in render("markdown", value, tmp_path)


def test_an_unknown_kind_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(EvalError, match=r"'JUnitt'\.\nKinds are json, junit, markdown, html\.") as caught:
        write_report("JUnitt", str(tmp_path / "x"), document())
    assert caught.value.code == "report-unknown" and not (tmp_path / "x").exists()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvalError, match="cannot be written") as caught:
        write_report("json", str(tmp_path), document())
    assert caught.value.code == "report-unwritable"


def test_an_empty_run_has_reports_too(tmp_path: Path) -> None:
    value = make_document("s", [])
    assert all(render(kind, value, tmp_path) for kind in KINDS)
