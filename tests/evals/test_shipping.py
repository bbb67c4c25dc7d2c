"""Files of tasks on other machines: nothing of the driver's file system is needed there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prowess import __version__
from prowess._internal.file_bundle import find_files
from prowess.errors import EvalError
from prowess.evals.case import Case
from prowess.evals.engines import perform_shipped, ship
from prowess.evals.results import EvalTask, RunKey, SkillPlace
from prowess.evals.run_task import TaskOutcome
from prowess.testing import skill_dir


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvalTask:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROWESS_CACHE_DIR", str(tmp_path / "cache"))
    driver = tmp_path / "driver"
    skill_dir(driver / "skills", "greeter", "# Greet\n", files={"scripts/hi.sh": "#!/bin/sh\necho hi\n"})
    (driver / ".agent").mkdir()
    (driver / ".agent" / "policy.toml").write_text('[[rule]]\ntool = "grep"\nverdict = "deny"\n', encoding="utf-8")
    (driver / "cases" / "data").mkdir(parents=True)
    (driver / "cases" / "data" / "names.txt").write_text("Ada\n", encoding="utf-8")
    script = [
        {"calls": [{"tool": "skill_load", "args": {"skill": "greeter"}}]},
        {"calls": [{"tool": "read_file", "args": {"file_name": "work/inputs/names.txt"}}]},
        {"text": "Hello, Ada."},
    ]
    expect = {"skills": {"load": ["greeter"]}, "steps": [{"requires": "read_file"}]}
    return EvalTask(
        key=RunKey(suite="s", case="hello", arm="with_skill", repeat=1, model="scripted", skills=""),
        case=Case.model_validate(
            {"id": "hello", "prompt": "Hi.", "files": ["data/names.txt"], "expect": expect, "script": script}
        ),
        base=str(driver / "cases"),
        cwd=str(driver),
        places=(SkillPlace(source="explicit", path=str(driver / "skills"), trusted=True),),
        model="scripted",
    )


def test_a_node_needs_no_file_of_the_driver(task: EvalTask, tmp_path: Path) -> None:
    shipment = ship([task])
    assert ship([task]).digest == shipment.digest
    (tmp_path / "driver").rename(tmp_path / "gone")
    for _ in range(2):  # the second finds everything unpacked
        work = {"task": task.model_dump(mode="json"), "digest": shipment.digest, "version": __version__}
        text = perform_shipped(json.dumps(work), shipment.data)
        record = TaskOutcome.model_validate_json(text).record
        assert (record.status, record.loaded_skills, record.text) == ("passed", ("greeter",), "Hello, Ada."), record
    (home,) = (tmp_path / "cache" / "eval-inputs").iterdir()
    assert len(list(home.rglob("policy.toml"))) == 1
    assert [path.stat().st_mode & 0o111 != 0 for path in home.rglob("hi.sh")] == [True]


def test_another_version_on_a_node_is_refused() -> None:
    with pytest.raises(EvalError, match=r"The driver has prowess 0\.0\.0, and this node has"):
        perform_shipped('{"version": "0.0.0"}', b"")


def test_links_that_lead_out_are_not_shipped(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "config").write_text("x", encoding="utf-8")
    (root / "a.txt").write_text("a", encoding="utf-8")
    (root / "inner").symlink_to("a.txt")
    (root / "outer").symlink_to(tmp_path / "secret")
    assert sorted(find_files(str(root))) == ["a.txt", "inner"]
