"""Settings become what really runs: policy files, secrets, limits, command lists and dependencies, through the kit."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from test_dependencies import make_wheel

from kits import open_kit, with_kit, yes
from prowess.core.events import ApprovalAnswered
from prowess.errors import ConfigError
from prowess.policy.secrets import ConfiguredSecrets
from prowess.runtime.runtime import open_runtime


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    return make_skill(tmp_path / "skills" / "demo").parent


def run(root: Path, command: str = "echo ran", **given: Any) -> Any:
    return with_kit(root, lambda kit: kit.call("skill_run", {"skill": "demo", "command": command}), **given)


# --- policy files -----------------------------------------------------------------------------------------------------

RULES = """
[[rule]]
tool = "skill_run"
command = "rm"
verdict = "deny"
why = "Nothing is removed here."
matches = ["rm x"]
misses = ["ls"]
"""


def test_a_managed_policy_tightens(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / "managed.toml"
    policy.write_text(RULES, encoding="utf-8")
    given = {"executor": "local", "environ": {"PROWESS_MANAGED_POLICY": str(policy)}}
    denied = run(root, "rm -f x", **given)
    assert denied.status == "denied" and "Nothing is removed here." in denied.content
    assert f"rule:1 {policy}:2" in denied.data["rule"]
    assert run(root, **given).status == "ok"
    policy.write_text("[[rule]]\nnonsense = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        run(root, **given)
    policy.unlink()
    with pytest.raises(ConfigError) as missing:
        run(root, **given)
    assert missing.value.code == "policy-unreadable", "a policy that cannot be read is not no policy"


@pytest.mark.parametrize("trusted", [False, True])
def test_a_projects_policy_only_tightens_until_it_is_trusted(root: Path, trusted: bool) -> None:
    (root / ".agent").mkdir()
    allow = '[[rule]]\ntool = "skill_run"\nverdict = "allow"\nwhy = "It is ours."\n'
    (root / ".agent" / "policy.toml").write_text(RULES + allow, encoding="utf-8")
    asked: list[str] = []

    async def approver(call: Any, decision: Any) -> ApprovalAnswered:
        asked.append(call.tool)
        return await yes(call, decision)

    given: dict[str, Any] = {"executor": "local", "approver": approver}
    given["environ"] = {"PROWESS_TRUST": "1"} if trusted else {}
    assert run(root, "rm -f x", **given).status == "denied", "denying is tightening"
    assert run(root, **given).status == "ok"
    assert asked == ([] if trusted else ["skill_run"]), "allowing is not"


# --- what has to hold -------------------------------------------------------------------------------------------------


def test_isolation_can_be_required(root: Path) -> None:
    denied = run(root, executor="local", settings={"workspace.require_isolation": True})
    assert denied.status == "denied" and "require_isolation" in denied.data["rule"]


def test_a_list_of_hosts_that_cannot_be_kept_keeps_scripts_from_running_and_nothing_else(root: Path) -> None:
    async def work(kit: Any) -> Any:
        called = [await kit.call("skill_run", {"skill": "demo", "command": "ls"}), await kit.call("skill_read", READ)]
        return [(outcome.status, outcome.code) for outcome in called]

    settings = {"workspace.network_allow": ["api.example.com"]}
    refused = with_kit(root, work, executor="container", settings=settings)
    assert refused == [("failed", "network-not-available"), ("ok", None)]


READ = {"skill": "demo", "path": "SKILL.md"}


def test_a_limit_can_be_required(root: Path) -> None:
    limits = {"workspace.limits": {"tmp": 1_000_000}, "workspace.require": ["tmp"]}
    refused = run(root, executor="local", settings=limits)
    assert (refused.status, refused.code) == ("failed", "limit-not-enforced") and refused.data == {"unavailable": True}
    unset = run(root, executor="local", settings={"workspace.require": ["memory"]})
    assert (unset.status, unset.code) == ("failed", "limit-not-set")
    with pytest.raises(ConfigError) as unknown:
        run(root, executor="local", settings={"workspace.limits": {"memroy": 1}})
    assert unknown.value.code == "limit-unknown" and "memory" in (unknown.value.hint or "")


@pytest.mark.needs("no root")
def test_who_is_not_root_is_told_that_scripts_run_as_nobody_else(root: Path) -> None:
    for name in ("nobody", 0, os.geteuid() + 1):
        with pytest.raises(ConfigError) as refused:
            run(root, settings={"workspace.run_as": name})
        assert refused.value.code == "run-as-not-root" and str(name) in refused.value.message
    assert run(root, "id -u", settings={"workspace.run_as": os.geteuid()}).data["stdout"] == f"{os.geteuid()}\n"


@pytest.mark.needs("root")
def test_nobody_runs_as_root(root: Path) -> None:
    for executor in ("local", "sandbox", "auto"):
        refused = run(root, executor=executor, settings={"workspace.run_as": 0})
        assert refused.status == "failed" and refused.code in ("run-as-root", "no-sandbox"), (executor, refused)
    assert run(root, "id -u", executor="local", settings={"workspace.run_as": "nobody"}).data["stdout"] == "65534\n"
    with pytest.raises(ConfigError) as unknown:
        run(root, settings={"workspace.run_as": "no-such-user"})
    assert unknown.value.code == "run-as-unknown"


def test_always_asking(root: Path) -> None:
    settings = {"execution.require_approval_for": ["run_script"]}
    assert run(root, executor="auto", settings=settings, approver=None).status == "waiting"


# --- an untrusted folder ----------------------------------------------------------------------------------------------


def test_the_configuration_of_a_cloned_folder_opens_nothing(root: Path) -> None:
    (root / ".agent").mkdir()
    text = (
        'secrets = {API_KEY = "env:HOME"}\nstore = "elsewhere.db"\n[workspace]\nexecutor = "local"\nrun_as = 0\n'
        'host_roots = ["/"]\nnetwork_allow = ["*"]\ndir = "/tmp/theirs"\n'
    )
    (root / ".agent" / "config.toml").write_text(text, encoding="utf-8")
    with open_runtime(cwd=str(root), environ=os.environ, roots=[str(root)]) as runtime:
        workspace = runtime.config.workspace
        assert (workspace.executor, workspace.run_as, workspace.host_roots) == ("auto", None, ())
        assert (workspace.network_allow, runtime.config.secrets, runtime.config.store) == ((), {}, None)
        assert workspace.dir == os.environ["PROWESS_WORKSPACE_DIR"]
        ignored = {finding.message for finding in runtime.findings if finding.code == "config-ignored-untrusted"}
        assert len(ignored) == 7


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_where_secrets_are(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n", encoding="utf-8")
    sources = {"A": "env:REAL", "B": "file:key", "C": "literal-value", "D": "file:none", "E": "env:UNSET"}
    secrets = ConfiguredSecrets(sources, {"REAL": "from-the-environment"}, str(tmp_path))
    assert asyncio.run(secrets.find("A")) == "from-the-environment"
    assert asyncio.run(secrets.find("B")) == "from-a-file"
    assert asyncio.run(secrets.find("E")) is None and asyncio.run(secrets.find("HOME")) is None
    for name, code in (("C", "secret-source"), ("D", "secret-unreadable")):
        with pytest.raises(ConfigError) as refused:
            asyncio.run(secrets.find(name))
        assert refused.value.code == code and "literal-value" not in (refused.value.hint or "")


# --- dependencies -----------------------------------------------------------------------------------------------------

SCRIPT = '# /// script\n# dependencies = ["tinydep"]\n# ///\nimport tinydep\nprint(tinydep.SAYS)\n'


@pytest.mark.parametrize("executor", ["local", pytest.param("sandbox", marks=pytest.mark.needs("isolation"))])
def test_a_script_gets_what_it_declares_once_it_was_granted(tmp_path: Path, make_skill: Any, executor: str) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "tinydep", f"1.{os.getpid()}", {"tinydep.py": "SAYS = 'from a wheel'\n"})
    root = make_skill(tmp_path / "skills" / "demo", files={"scripts/x.py": SCRIPT}).parent
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    asked: list[tuple[str, Any]] = []

    async def approver(call: Any, decision: Any) -> ApprovalAnswered:
        asked.append((call.tool, call.args))
        answer = "no" if refuse and call.tool == "install_dependencies" else "once"
        return ApprovalAnswered(call_id=call.id, answer=answer, by="test")

    async def both() -> list[Any]:
        settings = {"workspace.dir": f"{os.environ['PROWESS_WORKSPACE_DIR']}/deps-{executor}"}
        async with open_kit(root, executor=executor, environ=offline, approver=approver, settings=settings) as kit:
            return [await kit.call("skill_run", {"skill": "demo", "script": "scripts/x.py"}) for _ in range(2)]

    refuse = True
    first, second = asyncio.run(both())
    assert first.status == second.status == "denied"
    refuse = False
    asked.clear()
    first, second = asyncio.run(both())
    assert first.data.get("stdout") == "from a wheel\n", first
    assert first.data["dependencies"] == [f"tinydep==1.{os.getpid()}"]
    assert second.data["stdout"] == "from a wheel\n"
    installs = [args for tool, args in asked if tool == "install_dependencies"]
    assert len(installs) == 1 and installs[0]["dependencies"] == ["tinydep"] and installs[0]["digest"], "asked once"


def test_what_cannot_be_installed_is_said(tmp_path: Path, make_skill: Any) -> None:
    script = SCRIPT.replace("tinydep", "no-such-package-at-all")
    root = make_skill(tmp_path / "skills" / "demo", files={"scripts/x.py": script}).parent
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
    call = {"skill": "demo", "script": "scripts/x.py"}
    outcome = with_kit(root, lambda kit: kit.call("skill_run", call), executor="local", environ=offline)
    assert (outcome.status, outcome.code) == ("failed", "dependencies-failed") and outcome.hint


def test_an_executor_that_cannot_be_had_is_said(root: Path) -> None:
    given = {"executor": "container", "environ": {"DOCKER_HOST": "unix:///nowhere/docker.sock"}}
    outcome = run(root, **given)
    assert outcome.status == "failed" and outcome.data == {"unavailable": True} and outcome.hint, outcome
