"""A policy that is broken ends everything before it begins, unless nobody trusts its folder: a stranger's file can only
tighten, and must not be able to stop anybody's work. Then it is said, loudly, and the rest goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents import call, play
from prowess.cli.main import main
from prowess.errors import ConfigError
from prowess.runtime.runtime import open_runtime

NOT_TRUSTED = "policy-ignored-untrusted"


def _text(text: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode())


BROKEN: dict[str, tuple[Callable[[Path], object], str, int | None]] = {
    "no TOML": (_text("\n\nx = [[["), "policy-invalid", None),
    "no TOML in line 2": (_text("\nx y\n"), "policy-invalid", 2),
    "a typing mistake": (_text('\n\n[[rule]]\ntol = "x"\nverdict = "deny"\n'), "policy-invalid", 3),
    "a failed example": (
        _text('[[rule]]\ncommand = "git"\nverdict = "deny"\nmatches = ["ls"]\n'),
        "policy-example",
        1,
    ),
    "never fits": (_text('\n[[rule]]\ntool = "Read"\ncommand = "x"\nverdict = "deny"\n'), "rule-unreachable", 2),
    "another version": (_text('schema = "prowess.policy/9"\n'), "policy-invalid", 1),
    "too deep": (_text("x = " + "[" * 5000), "policy-invalid", None),
    "not UTF-8": (_text(b"\xff\xfe"), "policy-unreadable", None),
    "too large": (_text("#" * ((1 << 20) + 1)), "policy-unreadable", None),
    "a folder": (lambda path: path.mkdir(), "policy-unreadable", None),
    "a FIFO": (lambda path: os.mkfifo(path), "policy-unreadable", None),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), "policy-unreadable", None),
    "a link to itself": (lambda path: path.symlink_to(path), "policy-unreadable", None),
}


@pytest.fixture(params=BROKEN)
def broken(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int | None]:
    """The working folder is a clone with such a policy; its code, and the line that is named."""
    make, code, line = BROKEN[request.param]
    (tmp_path / ".agent").mkdir()
    make(tmp_path / ".agent/policy.toml")
    (tmp_path / "s.json").write_text('[{"text": "done"}]', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return code, line


def run(*words: str) -> int:
    return main(["run", "go", "--model", "scripted:s.json", *words])


def test_nobody_is_stopped_by_a_file_of_a_stranger(broken: tuple[str, int | None], capfd: Any) -> None:
    assert run() == 0
    out, err = capfd.readouterr()
    assert out == "done\n"
    assert f"[{NOT_TRUSTED}]" in err and "its rules are not in force" in err and "policy.toml" in err
    assert "\x1b" not in err


def test_doctor_says_where(broken: tuple[str, int | None], tmp_path: Path, capfd: Any) -> None:
    assert main(["doctor", "--json"]) == 0
    (row,) = [row for row in json.loads(capfd.readouterr().out)["findings"] if row["code"] == NOT_TRUSTED]
    assert (row["severity"], row["path"], row["line"]) == ("warning", str(tmp_path / ".agent/policy.toml"), broken[1])
    assert "Mend or remove" in row["hint"]


def test_policy_check_says_that_it_does_not_count(broken: tuple[str, int | None], capfd: Any) -> None:
    assert main(["policy", "check", "grep", "x", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["verdict"] == "allow"
    assert any("its rules are not in force" in note for note in found["notes"])
    (step,) = [step for step in found["steps"] if step["by"] == "policy"]
    assert step["looked_at"] == ["it is broken, so that nothing in it is in force"]


def test_in_a_trusted_folder_nothing_begins(
    broken: tuple[str, int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("PROWESS_TRUST", "1")
    assert run() == 2
    assert f"[{broken[0]}]" in capfd.readouterr().err
    assert not (tmp_path / ".agent/runs").exists(), "and nothing was written"
    assert main(["doctor", "--json"]) == 1
    assert broken[0] in [row["code"] for row in json.loads(capfd.readouterr().out)["findings"]]
    assert main(["policy", "check", "grep", "x", "--json"]) == 2
    assert json.loads(capfd.readouterr().out)["error"]["code"] == broken[0]


def test_whoever_trusts_it_is_told_before(broken: tuple[str, int | None], tmp_path: Path, capfd: Any) -> None:
    assert main(["trust", "--yes", str(tmp_path)]) == 0
    assert "nothing runs until that is mended" in capfd.readouterr().err


def test_a_managed_one_ends_everything_whoever_trusts_what(
    broken: tuple[str, int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / ".agent/policy.toml").rename(tmp_path / "managed.toml")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(tmp_path / "managed.toml"))
    assert run() == 2
    assert f"[{broken[0]}]" in capfd.readouterr().err


def test_a_trusted_policy_that_was_broken_since_is_still_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    policy = tmp_path / ".agent/policy.toml"
    policy.parent.mkdir()
    policy.write_text('[[rule]]\ntool = "Grep"\nverdict = "deny"\n', encoding="utf-8")
    (tmp_path / "s.json").write_text('[{"text": "done"}]', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["trust", "--yes", "."]) == 0
    assert run() == 0
    policy.write_text('[[rule]]\ntol = "Grep"\n', encoding="utf-8")
    assert run() == 2, "nobody takes a rule away by breaking it"
    assert "[policy-invalid]" in capfd.readouterr().err


def test_what_the_others_say_still_holds(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clone's file is broken, and the managed one is in force all the same."""
    make_skill(tmp_path / "skills/demo")
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent/policy.toml").write_text("x = [", encoding="utf-8")
    (tmp_path / "managed.toml").write_text('[[rule]]\ntool = "Grep"\nverdict = "deny"\n', encoding="utf-8")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(tmp_path / "managed.toml"))
    played = play(tmp_path / "skills", [call("grep", pattern="x"), {"text": "done"}], cwd=tmp_path)
    assert [outcome["status"] for outcome in played.outcomes] == ["denied"]


def test_a_program_is_told_as_well(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent/policy.toml").write_text("x = [", encoding="utf-8")
    with open_runtime(cwd=str(tmp_path), environ=os.environ) as runtime:
        assert NOT_TRUSTED in [finding.code for finding in runtime.findings]
    with open_runtime(cwd=str(tmp_path), environ={**os.environ, "PROWESS_TRUST": "1"}) as runtime:
        assert NOT_TRUSTED not in [finding.code for finding in runtime.findings]
        with pytest.raises(ConfigError) as refused:
            runtime.offer(runtime.plan())
    assert refused.value.code == "policy-invalid"
