"""The managed policy at its place in the system, through the command line: it tightens, never widens, is named, and a
broken one ends every run.

Each command has mounts of its own, in which /etc has one more folder; no other process of the machine sees it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from kits import with_kit
from prowess.cli.main import main
from prowess.runtime.runtime import SYSTEM_POLICY
from tiers import leave_out, with_mounts

Found = TypeVar("Found")
UNPRIVILEGED = (
    "setpriv",
    "--bounding-set",
    "-dac_override,-dac_read_search",
)  # files can be closed to it, as to a user
DENY = '[[rule]]\ntool = "Bash"\nverdict = "deny"\nwhy = "Not on these machines."\n'
ALLOW = '[[rule]]\ntool = "*"\nverdict = "allow"\n'
RUNS = (  # each verb under which something would run, or a model be told of something, and how it ends for our fault
    (("exec", "python-math", "--", "echo", "ran"), 125),
    (("run", "Echo something", "--model", "scripted:script.json"), 2),
    (("chat", "--model", "scripted:script.json"), 2),
    (("prompt",), 2),
    (("policy", "check", "Bash", "ls"), 2),
)
ECHO = RUNS[0][0]


class Said(NamedTuple):
    out: str
    err: str


class System:
    """A machine that has a managed policy, or something else in its place."""

    def __init__(self, folder: Path, project: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.project, self._captured = project, captured
        self._upper, self._work = folder / "etc", folder / "work"
        for path in (self._upper, self._work):
            path.mkdir(parents=True, mode=0o755)
        self.policy = self._upper / Path(SYSTEM_POLICY).relative_to("/etc")
        self.policy.parent.mkdir()

    def write(self, text: str) -> None:
        self.policy.write_text(text, encoding="utf-8")

    def run(self, work: Callable[[], Found]) -> Found:
        """On that machine."""
        over = f"lowerdir=/etc,upperdir={self._upper},workdir={self._work}"
        return with_mounts([("overlay", "/etc", "overlay", over)], work)

    def prowess(self, *words: str, code: int = 0) -> Said:
        ended = self.run(lambda: main(list(words)))
        said = Said(*self._captured.readouterr())
        assert ended == code, f"exit code {ended}: {said}"
        return said

    def check(self, *words: str) -> dict[str, Any]:
        return json.loads(self.prowess("policy", "check", *words, "--json").out)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> System:
    project = tmp_path / "project"
    (project / ".agent").mkdir(parents=True)
    (project / "script.json").write_text('[{"text": "A model was asked."}]', encoding="utf-8")
    monkeypatch.chdir(project)
    found = System(tmp_path / "system", project, capfd)
    try:
        found.run(lambda: None)
    except OSError as error:
        leave_out(f"a folder in /etc that only one test sees: {error}")
    return found


def test_it_tightens_and_is_named(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.prowess(*ECHO).out == "ran\n", "the control: without one it runs"
    system.write(f"# Of the house.\n{DENY}")
    (system.project / ".agent/policy.toml").write_text(ALLOW, encoding="utf-8")
    monkeypatch.setenv("PROWESS_TRUST", "1")
    denied = system.prowess(*ECHO, code=126)
    assert "Not on these machines." in denied.err and f"rule:1 {SYSTEM_POLICY}:2" in denied.err and not denied.out
    found = system.check("Bash", "ls", "--skill", "python-math")
    assert (found["verdict"], found["place"]) == ("deny", {"path": SYSTEM_POLICY, "line": 2, "number": 1})
    steps = {step["path"]: step for step in found["steps"] if step["by"] == "policy"}
    assert steps[SYSTEM_POLICY]["decided"] and steps[SYSTEM_POLICY]["tightens"]
    mine = steps[str(system.project / ".agent/policy.toml")]
    assert mine["verdict"] == "allow" and not mine["decided"], "a trusted project does not lift it"
    assert any(SYSTEM_POLICY in each and "no other file lifts it" in each for each in found["change"])
    assert not os.path.exists(SYSTEM_POLICY), "nobody else sees it"


def test_it_widens_nothing(system: System) -> None:
    calls = {
        ("Bash", "ls", "--skill", "python-math", "--executor", "local"): "ask",
        ("Write", "path=out/x", "content=x", "--executor", "local"): "ask",
        ("Write", "path=/srv/x", "content=x"): "deny",
        ("delete_file", "path=out/x"): "deny",
        ("mcp__x__y",): "ask",
    }
    before = {call: system.check(*call)["verdict"] for call in calls}
    system.write(ALLOW)
    assert {call: system.check(*call)["verdict"] for call in calls} == before == calls


def test_the_variable_names_another_one_instead(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.write("not a policy")
    other = tmp_path / "other.toml"
    other.write_text(DENY.replace("Bash", "grep"), encoding="utf-8")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(other))
    assert system.check("grep", "x")["place"]["path"] == str(other)
    assert system.check("Bash", "ls", "--skill", "python-math")["verdict"] == "allow", "and the other is not read"
    other.unlink()
    assert "[policy-unreadable]" in system.prowess(*ECHO, code=125).err, "one that is named has to be there"
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", "")
    assert "[policy-invalid]" in system.prowess(*ECHO, code=125).err, "an empty name is none"


@pytest.mark.parametrize(("words", "code"), RUNS, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_a_broken_one_ends_whatever_would_run(system: System, words: tuple[str, ...], code: int) -> None:
    system.write(f'{DENY}[[rule]]\ntool = "grep"\nverdict = "perhaps"\n')
    said = system.prowess(*words, code=code)
    assert SYSTEM_POLICY in said.err and "[policy-invalid]" in said.err and not said.out
    told = json.loads(system.prowess("--json", *words, code=code).out) if words[0] != "chat" else {}
    assert told.get("error", {}).get("code", "policy-invalid") == "policy-invalid"


def put(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


BROKEN: dict[str, tuple[str, Callable[[Path], object]]] = {
    "not TOML": ("policy-invalid", put(b"[[rule")),
    "an unknown key": ("policy-invalid", put(b'[[rule]]\ntoool = "Bash"\nverdict = "deny"\n')),
    "a failed example": ("policy-example", put(DENY.encode() + b'command = "git push"\nmatches = ["git status"]\n')),
    "not UTF-8": ("policy-unreadable", put(DENY.encode() + b"# \xff\n")),
    "too large": ("policy-unreadable", put(DENY.encode() + b"#" * (1 << 20))),
    "a folder": ("policy-unreadable", lambda path: path.mkdir()),
    "a pipe": ("policy-unreadable", lambda path: os.mkfifo(path)),
    "a device": ("policy-unreadable", lambda path: path.symlink_to("/dev/zero")),
    "a link to nowhere": ("policy-unreadable", lambda path: path.symlink_to("/nowhere")),
    "a link to itself": ("policy-unreadable", lambda path: path.symlink_to(path.name)),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_policy_is_an_error_and_not_the_absence_of_one(system: System, what: str) -> None:
    code, make = BROKEN[what]
    make(system.policy)
    said = system.prowess(*ECHO, code=125)
    assert SYSTEM_POLICY in said.err and f"[{code}]" in said.err and not said.out


def test_a_skill_that_it_denies_is_not_offered_and_why_is_said(system: System) -> None:
    def why() -> dict[str, Any]:
        return json.loads(system.prowess("--json", "inspect", "python-math").out)["why"]

    assert why()["in_prompt"] == "shown" and "<name>\npython-math\n" in system.prowess("prompt").out
    system.write('[[rule]]\nskill = "python-math"\nverdict = "deny"\n')
    assert "<name>\npython-math\n" not in system.prowess("prompt").out
    assert (why()["in_prompt"], why()["model_visible"]) == ("hidden", False)
    assert why()["reasons"] == ["a rule denies it; which one: prowess policy check skill_load builtin:python-math"]
    assert "1 kept from models: builtin:python-math" in system.prowess("doctor").out
    assert system.check("skill_load", "builtin:python-math")["place"]["path"] == SYSTEM_POLICY
    system.write("[[rule")
    assert SYSTEM_POLICY in why()["reasons"][0] and not why()["model_visible"]


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_one_that_is_closed_to_whoever_runs_is_not_passed_over(system: System, closed: str) -> None:
    """A folder that cannot be entered may hold a policy."""
    command = [*UNPRIVILEGED, sys.executable, "-m", "prowess", "prompt"]

    def prompt() -> subprocess.CompletedProcess[str]:
        return system.run(lambda: subprocess.run(command, capture_output=True, text=True))

    system.write("")
    assert prompt().returncode == 0, "the control: one that can be read"
    if closed == "file":
        system.policy.chmod(0)
    else:
        system.policy.parent.chmod(0o700)
        os.chown(system.policy.parent, 64_321, 64_321)
    done = prompt()
    assert (done.returncode, done.stdout) == (2, "") and "[policy-unreadable]" in done.stderr


def test_where_there_is_none_nothing_is_said_of_it(system: System) -> None:
    found = system.check("Bash", "ls", "--skill", "python-math")
    assert found["verdict"] == "allow" and "policy" not in [step["by"] for step in found["steps"]]
    assert SYSTEM_POLICY not in system.prowess("doctor", code=0).out


def test_it_holds_from_the_next_call_on(system: System, make_skill: Callable[..., Path]) -> None:
    """Whatever happens to it while somebody works: it is written, broken, emptied."""
    make_skill(system.project / "skills" / "demo")

    def write(text: str | None) -> None:
        if text is not None:
            Path(SYSTEM_POLICY).write_text(text, encoding="utf-8")

    async def work(kit: Any) -> list[tuple[str, str | None]]:
        found = []
        for text in (None, DENY, "[[rule", ""):
            write(text)
            outcome = await kit.call("skill_run", {"skill": "demo", "command": "echo ran"})
            found.append((outcome.status, outcome.code))
        return found

    found = system.run(lambda: with_kit(system.project / "skills", work, executor="local"))
    assert found == [("ok", None), ("denied", "denied"), ("failed", "policy-invalid"), ("ok", None)]
