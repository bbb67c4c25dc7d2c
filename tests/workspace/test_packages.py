"""Packages that a skill imports and does not declare: the configuration names them, or a failed run has them added."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_container import engine as engine  # a fixture that `tiers` uses
from test_dependencies import PYTHON, make_wheel
from test_missing import advised_lines

from agents import call
from command_lines import Answer, run_here
from conftest import make_skill
from kits import open_kit
from prowess.agent.toolkit import Toolkit
from prowess.core.events import ApprovalAnswered
from prowess.core.values import Outcome
from prowess.errors import ConfigError, WorkspaceUnavailable
from prowess.workspace.scripts.configured_python import folders_of_python
from prowess.workspace.scripts.environment_store import list_environments, remove_environment
from tiers import ISOLATED, Tier, Tiers
from tiers import tiers as tiers

SCRIPT = "import tinydep\nprint(tinydep.SAYS)\n"
RUN = {"skill": "demo", "script": "scripts/x.py"}
TINY = "tinydep"


class Shop:
    """Skills, an index of wheels, and a person who is asked; everything else is as it is for a user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[dict[str, Any]] = []  # about installing
        self.answer = "once"
        self.is_person = True  # else a word such as --yes answers
        self.tier = Tier("local", "local", "none")
        self.settings: dict[str, Any] = {}
        wheels = folder / "wheels"
        wheels.mkdir()
        make_wheel(wheels, "tinydep", "1.0", {"tinydep.py": "SAYS = 'one'\n"})
        make_wheel(wheels, "tinydep", "2.0", {"tinydep.py": "SAYS = 'two'\n"})
        make_wheel(wheels, "otherdep", "1.0", {"otherdep.py": "SAYS = 'other'\n"})
        self.environ = {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1", "PROWESS_WORKSPACE_DIR": str(folder / "workspaces")}
        self.environ |= {"PIP_FIND_LINKS": str(wheels), "UV_FIND_LINKS": str(wheels)}
        self.add("demo", SCRIPT)

    def add(self, name: str, script: str) -> None:
        make_skill(self.folder / "skills" / name, files={"scripts/x.py": script})

    def rule(self, verdict: str) -> None:
        """The only rule there is."""
        self.environ["PROWESS_TRUST"] = "1"
        policy = self.folder / "skills" / ".agent" / "policy.toml"
        policy.parent.mkdir(parents=True, exist_ok=True)
        policy.write_text(f'[[rule]]\ntool = "install_dependencies"\nverdict = "{verdict}"\n', encoding="utf-8")

    def do(self, *calls: Mapping[str, Any], load: str = "demo") -> list[Outcome]:
        """Each `do` is a runtime of its own, so that nothing is remembered but on disk."""

        async def work(kit: Toolkit) -> list[Outcome]:
            return [await kit.call("skill_run", call) for call in calls]

        return self.tier.run(lambda: asyncio.run(self._with(work, load)))

    def one(self, call: Mapping[str, Any], **more: Any) -> Outcome:
        return self.do(call, **more)[0]

    async def _with(self, work: Callable[[Toolkit], Awaitable[Any]], load: str) -> Any:
        async def approver(call: Any, decision: Any) -> ApprovalAnswered:
            if call.tool == "install_dependencies":
                self.asked.append(call.args)
                return ApprovalAnswered(call_id=call.id, answer=self.answer, by="test", asked=self.is_person)
            return ApprovalAnswered(call_id=call.id, answer="once", by="test")

        given = {"executor": self.tier.executor, "environ": {**self.environ, **self.tier.environ}}
        async with open_kit(
            self.folder / "skills", settings=self.settings, approver=approver, load=load, **given
        ) as kit:
            return await work(kit)


@pytest.fixture
def shop(folder: Path) -> Shop:
    return Shop(folder)


@pytest.fixture(params=["local", *ISOLATED])
def tiered(request: pytest.FixtureRequest, tiers: Tiers, shop: Shop) -> Shop:
    shop.tier = tiers.get(request.param)
    return shop


def said(outcome: Outcome) -> str:
    return outcome.data.get("stdout", f"{outcome.status}: {outcome.content}")


def test_what_a_run_lacked_is_installed_once_a_person_says_yes(tiered: Shop) -> None:
    failed, mended, again = tiered.do(RUN, {**RUN, "install": [TINY]}, RUN)
    assert failed.code == "missing-dependency" and failed.data["missing_dependency"]["name"] == TINY
    assert advised_lines(failed.hint or "") == {"demo": [TINY]}
    assert "Interpreter: /" in (failed.hint or "")
    assert said(mended) == said(again) == "two\n", (mended, again)
    assert mended.data["dependencies"] == ["tinydep==2.0"]
    assert [(each["by"], each["dependencies"]) for each in tiered.asked] == [("call", [TINY])]
    assert said(tiered.one(RUN)) == "two\n", "the skill has it from now on, in every session"
    assert len(tiered.asked) == 1


def test_the_configuration_names_packages_for_a_skill(tiered: Shop) -> None:
    tiered.settings["skills.dependencies"] = {"de*": ["tinydep < 2"], "other": ["otherdep"]}
    command = {"skill": "demo", "command": "cd scripts && python3 -c 'import tinydep; print(tinydep.SAYS)'"}
    script, shell = tiered.do(RUN, command)
    assert said(script) == said(shell) == "one\n", (script, shell)
    assert script.data["dependencies"] == ["tinydep==1.0"]
    assert tiered.asked == [], "whoever wrote the configuration has said yes"


def test_what_the_configuration_granted_is_asked_about_once_it_does_not_any_more(shop: Shop) -> None:
    shop.settings["skills.dependencies"] = {"demo": [TINY]}
    assert said(shop.one(RUN)) == said(shop.one(RUN)) == "two\n" and shop.asked == []
    del shop.settings["skills.dependencies"]
    shop.answer = "no"
    denied, failed = shop.do({**RUN, "install": [TINY]}, RUN)
    assert (denied.status, failed.code) == ("denied", "missing-dependency")
    assert [each["by"] for each in shop.asked] == ["call"]
    shop.answer = "once"
    assert said(shop.one({**RUN, "install": [TINY]})) == said(shop.one(RUN)) == "two\n" and len(shop.asked) == 2


def test_a_no_installs_nothing_and_leaves_the_skill_as_it_was(shop: Shop) -> None:
    shop.answer = "no"
    denied, failed = shop.do({**RUN, "install": [TINY]}, RUN)
    assert (denied.status, failed.code) == ("denied", "missing-dependency")
    assert "A person said no to installing tinydep." in denied.content
    assert list_environments(str(shop.folder / "workspaces" / "environments")) == []


def test_a_run_after_a_failed_installation_says_why(shop: Shop) -> None:
    first, second = shop.do({**RUN, "install": ["no-such-dep"]}, RUN)
    assert first.code == "dependencies-failed" and second.code == "missing-dependency"
    assert any("failed before: no-such-dep. No wheel fits." in each for each in second.data["warnings"]), second.data


def test_a_yes_to_one_package_is_none_to_another(shop: Shop) -> None:
    shop.answer = "always"
    shop.add("demo", "import tinydep, otherdep\nprint(tinydep.SAYS, otherdep.SAYS)\n")
    first, second = shop.do({**RUN, "install": [TINY]}, {**RUN, "install": ["otherdep"]})
    assert first.data["missing_dependency"]["name"] == "otherdep" and said(second) == "two other\n"
    assert [each["dependencies"] for each in shop.asked] == [[TINY], ["otherdep", TINY]]


def test_what_was_added_belongs_to_that_content_of_the_skill_and_goes_with_its_environment(shop: Shop) -> None:
    assert said(shop.one({**RUN, "install": [TINY]})) == "two\n"
    shop.add("other", SCRIPT)
    assert shop.one({**RUN, "skill": "other"}, load="other").code == "missing-dependency"
    environments = str(shop.folder / "workspaces" / "environments")
    for info in list_environments(environments):
        assert remove_environment(environments, info.key)
    assert shop.one(RUN).code == "missing-dependency"
    assert said(shop.one({**RUN, "install": [TINY]})) == "two\n"
    shop.add("demo", f"{SCRIPT}# changed\n")
    assert shop.one(RUN).code == "missing-dependency"


def test_policy_is_asked_about_configured_packages_that_are_installed_already(shop: Shop) -> None:
    shop.settings["skills.dependencies"] = {"*": [TINY]}
    assert said(shop.one(RUN)) == "two\n" and shop.asked == []
    shop.add("other", f"{SCRIPT}# another skill\n")
    shop.rule("ask")
    assert said(shop.one(RUN)) == said(shop.one(RUN)) == "two\n"
    assert [each["skill"] for each in shop.asked] == ["demo"], "a person says it once for this content"
    shop.answer = "no"
    assert shop.one({**RUN, "skill": "other"}, load="other").status == "denied"
    assert [each["skill"] for each in shop.asked] == ["demo", "other"]
    shop.rule("deny")
    assert shop.one({**RUN, "skill": "other"}, load="other").status == "denied"


DECLARED = '# /// script\n# dependencies = ["tinydep"]\n# ///\n' + SCRIPT


@pytest.mark.parametrize("way", ["rule", "yes"])
@pytest.mark.parametrize(
    ("script", "first"), [(DECLARED, RUN), (SCRIPT, {**RUN, "install": [TINY]})], ids=["declared", "asked for"]
)
def test_only_a_person_grants_packages_for_later(shop: Shop, way: str, script: str, first: Mapping[str, Any]) -> None:
    shop.add("demo", script)
    if way == "rule":
        shop.rule("allow")
    shop.is_person = False
    assert [said(each) for each in shop.do(first, RUN)] == ["two\n"] * 2, "for as long as it is allowed"
    shop.rule("ask")
    asked, shop.answer = len(shop.asked), "no"
    assert shop.one(first).status == "denied" and len(shop.asked) == asked + 1
    shop.answer, shop.is_person = "once", True
    assert said(shop.one(first)) == said(shop.one(RUN)) == "two\n" and len(shop.asked) == asked + 2


def test_what_a_script_declares_and_the_configuration_names_are_together(shop: Shop) -> None:
    shop.settings["skills.dependencies"] = {"demo": ["otherdep"]}
    block = '# /// script\n# dependencies = ["tinydep<2"]\n# ///\n'
    shop.add("demo", f"{block}import tinydep, otherdep\nprint(tinydep.SAYS, otherdep.SAYS)\n")
    assert said(shop.one(RUN)) == "one other\n"
    assert [each["by"] for each in shop.asked] == ["script"]


def test_the_line_to_add_keeps_what_the_skill_has(shop: Shop) -> None:
    shop.settings["skills.dependencies"] = {"demo": ["otherdep>=1"]}
    assert advised_lines(shop.one(RUN).hint or "") == {"demo": ["otherdep>=1", TINY]}
    shop.add("demo", "import tinydep, no_such_package\n")
    assert advised_lines(shop.one({**RUN, "install": [TINY]}).hint or "") == {
        "demo": ["no_such_package", "otherdep>=1", TINY]
    }


def test_a_package_that_is_there_and_not_found_is_not_to_be_installed_again(shop: Shop) -> None:
    shop.settings["skills.dependencies"] = {"demo": [TINY]}
    lost = shop.one({"skill": "demo", "command": "PYTHONPATH=. python3 scripts/x.py"})
    assert (
        lost.code == "missing-dependency" and "install:" not in (lost.hint or "") and "PYTHONPATH" in (lost.hint or "")
    )


@pytest.mark.parametrize("wrong", ["git+https://example.com/x", "-r x.txt", "./x.whl", "two words"])
def test_only_packages_can_be_named(shop: Shop, wrong: str) -> None:
    outcome = shop.one({**RUN, "install": [wrong]})
    assert outcome.status == "failed" and outcome.code in ("dependency-refused", "block-invalid")
    shop.settings["skills.dependencies"] = {"demo": [wrong]}
    with pytest.raises(ConfigError) as refused:
        shop.one(RUN)
    assert refused.value.code == "config-dependency" and "skills.dependencies.demo" in refused.value.message


def test_a_project_that_is_not_trusted_names_no_packages(shop: Shop, tmp_path: Path) -> None:
    config = tmp_path / ".agent" / "config.toml"
    config.parent.mkdir()
    config.write_text('[workspace]\nexecutor = "local"\n[skills.dependencies]\ndemo = ["tinydep"]\n', encoding="utf-8")

    def run(*words: str, trust: str = "0") -> Answer:
        return run_here(
            ["exec", "demo", "--root", str(shop.folder / "skills"), "--yes", "skill_run", *words, "--", "x.py"],
            cwd=tmp_path,
            environ={**shop.environ, "PROWESS_TRUST": trust},
        )

    ignored = run("--executor", "local")
    assert ignored.code == 1 and 'demo = ["tinydep"]' in ignored.err and "config-ignored-untrusted" in ignored.err
    asked = run("--executor", "local", "--install", TINY)
    assert asked.code == 126 and "install_dependencies" in asked.err, asked
    assert "It would install tinydep for the skill" in asked.err and "wheels from your package index" in asked.err
    installed = run("--executor", "local", "--install", TINY, "--yes", "install_dependencies")
    assert installed.out == "two\n" and "packages: tinydep==2.0" in installed.err
    make_skill(shop.folder / "skills" / "demo", files={"scripts/x.py": f"{SCRIPT}#\n"})
    assert run(trust="1").out == "two\n"


def test_the_question_can_be_answered_while_nobody_runs(shop: Shop, tmp_path: Path) -> None:
    replies = [call("skill_load", skill="demo"), call("skill_run", **RUN), call("skill_run", **RUN, install=[TINY])]
    (tmp_path / "script.json").write_text(json.dumps(replies), encoding="utf-8")
    (tmp_path / "rest.json").write_text(json.dumps([{"text": "done"}]), encoding="utf-8")
    (tmp_path / ".agent").mkdir()

    def prowess(*words: str) -> Answer:
        return run_here(words, cwd=tmp_path, environ=shop.environ)

    options = ("--root", str(shop.folder / "skills"), "--executor", "local", "--yes", "skill_run", "--json", "--model")
    first = prowess("run", "go", *options, "scripted:script.json")
    assert first.code == 4, first
    rows = json.loads(prowess("approvals", "list", "--json").out)["waiting"]
    [row] = [row for row in rows if row["answer"] is None]
    assert row["capability"] == "install_dependencies" and row["args"]["install"] == [TINY]
    assert prowess("approvals", "answer", row["call_id"], "yes").code == 0
    resumed = prowess(*row["to_resume"].replace("script.json", "rest.json").split()[1:], "--yes", "skill_run", "--json")
    acted = [each for each in map(json.loads, resumed.out.splitlines()) if each["type"] == "call_acted"]
    assert [each["outcome"]["data"].get("stdout") for each in acted] == ["two\n"], resumed


# --- the packages that published skills import most ------------------------------------------------------------------

OFFICE = {
    "pypdf": "import io, pypdf\nw = pypdf.PdfWriter()\nw.add_blank_page(72, 72)\nb = io.BytesIO()\nw.write(b)\n"
    "print(len(pypdf.PdfReader(b).pages))\n",
    "openpyxl": "import openpyxl\nb = openpyxl.Workbook()\nb.active['A1'] = 1\nprint(b.active['A1'].value)\n",
    "python-docx": "import docx\nd = docx.Document()\nd.add_paragraph('x')\nprint(len(d.paragraphs))\n",
    "python-pptx": "import pptx\np = pptx.Presentation()\np.slides.add_slide(p.slide_layouts[6])\n"
    "print(len(p.slides))\n",
}


@pytest.mark.parametrize("package", OFFICE)
def test_a_skill_that_reads_documents_runs_with_real_packages(
    shop: Shop, package: str, not_run: Callable[[str, str], None], tmp_path: Path
) -> None:
    if why := _why_not_downloaded(package, tmp_path):
        not_run(f"a skill that imports {package}", f"could not install it: {why}")
        return
    shop.add("demo", OFFICE[package])
    shop.environ |= {"PIP_FIND_LINKS": str(tmp_path), "UV_FIND_LINKS": str(tmp_path)}
    failed = shop.one(RUN)
    assert failed.data["missing_dependency"]["name"] == package
    assert said(shop.one({**RUN, "install": [package]})) == "1\n"


def _why_not_downloaded(package: str, folder: Path) -> str:
    """Wheels from the configured index, for the interpreter that runs scripts here."""
    command = [sys.executable, "-m", "pip", "download", "--only-binary", ":all:", "-q", "-d", str(folder), package]
    environ = {**os.environ, "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "10"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1][:200]


# --- workspace.python -------------------------------------------------------------------------------------------------


@pytest.fixture
def venv(folder: Path) -> Path:
    """An environment with a package that no index has."""
    made = folder / "venv"
    subprocess.run([PYTHON, "-I", "-m", "venv", "--without-pip", str(made)], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    (site / "onlyhere.py").write_text("SAYS = 'from the venv'\n", encoding="utf-8")
    return made


WHO = "import sys, onlyhere\nprint(onlyhere.SAYS, sys.prefix)\n"


@pytest.mark.parametrize("named", ["venv", "venv/bin/python"])
def test_scripts_are_run_by_the_python_that_is_configured(tiered: Shop, venv: Path, named: str) -> None:
    tiered.add("demo", WHO)
    tiered.settings["workspace.python"] = str(venv.parent / named)
    script, command = tiered.do(RUN, {"skill": "demo", "command": "python3 scripts/x.py"})
    if tiered.tier.executor == "container":
        assert script.code == command.code == "missing-dependency"
        assert any("workspace.python has no effect" in note for note in script.data["isolation"]["notes"])
    else:
        assert said(script) == said(command) == f"from the venv {venv}\n", (script, command)


def test_packages_are_seen_beside_those_of_the_configured_python(tiered: Shop, venv: Path) -> None:
    if tiered.tier.executor != "container":
        tiered.add("demo", f"import onlyhere\n{SCRIPT}")
        tiered.settings["workspace.python"] = str(venv)
        failed, mended = tiered.do(RUN, {**RUN, "install": [TINY]})
        assert f"Interpreter: {venv}/bin/python" in (failed.hint or ""), failed
        assert said(mended) == "two\n"


@pytest.mark.parametrize("executor", ["local", pytest.param("sandbox", marks=pytest.mark.needs("isolation"))])
def test_what_is_no_python_is_said_and_nothing_else_is_used(shop: Shop, executor: str) -> None:
    shop.tier = Tier(executor, executor, "")
    for wrong in (str(shop.folder / "nowhere"), "/bin/true", str(shop.folder)):
        shop.settings["workspace.python"] = wrong
        outcome = shop.one(RUN)
        assert (outcome.status, outcome.code) == ("failed", "workspace-python") and wrong in outcome.content


def test_a_python_that_would_show_the_whole_home_is_refused(machine: Path) -> None:
    with pytest.raises(WorkspaceUnavailable) as refused:
        folders_of_python(str(machine / "bin" / "python3"), str(machine))
    assert refused.value.code == "workspace-python" and str(machine) in refused.value.message


@pytest.mark.parametrize("box", ["bwrap", "landlock"])
def test_a_link_to_a_python_shows_nothing_that_lies_beside_it(tiers: Tiers, shop: Shop, venv: Path, box: str) -> None:
    alt = shop.folder / "alt"
    for name in ("usrbin", "etc/alternatives"):
        (alt / name).mkdir(parents=True)
    (alt / "etc" / "secret.conf").write_text("the secret", encoding="utf-8")
    (alt / "etc" / "alternatives" / "python").symlink_to(PYTHON)
    (alt / "usrbin" / "python").symlink_to(alt / "etc" / "alternatives" / "python")
    (alt / "etc" / "to_venv").symlink_to(venv / "bin" / "python")
    secret = str(alt / "etc" / "secret.conf")
    script = f"import sys\ntry:\n    print(open({secret!r}).read())\nexcept OSError:\n    print('hidden', sys.prefix)\n"
    shop.add("demo", script)
    shop.tier = tiers.get(box)
    for named, prefix in (("usrbin/python", ""), ("etc/alternatives/python", ""), ("etc/to_venv", str(venv))):
        shop.settings["workspace.python"] = str(alt / named)
        answer = said(shop.one(RUN)).split()
        assert answer[0] == "hidden" and prefix in answer[1], (named, answer)


@pytest.fixture
def prefix(folder: Path) -> Path:
    """As if a Python were installed there."""
    (folder / "python" / "lib" / "python3.11").mkdir(parents=True)
    (folder / "python" / "bin").mkdir()
    (folder / "python" / "bin" / "python3").write_text("", encoding="utf-8")
    return folder / "python"


def test_only_a_folder_that_a_python_is_installed_in_is_shown(folder: Path, prefix: Path) -> None:
    real = prefix / "bin" / "python3"
    (folder / "srv" / "app").mkdir(parents=True)
    lone, link = folder / "srv" / "app" / "python3", folder / "srv" / "app" / "linked"
    lone.write_text("", encoding="utf-8")
    link.symlink_to(real)
    assert folders_of_python(str(real), str(prefix)) == (str(real), (str(prefix),))
    assert folders_of_python(str(link), str(prefix)) == (str(real), (str(prefix),))
    assert folders_of_python(str(lone), "/usr") == (str(lone), (str(lone),))
    (folder / "srv" / "app" / "bin").mkdir()
    (folder / "srv" / "app" / "bin" / "python").symlink_to("/usr/bin/env")
    path = str(folder / "srv" / "app" / "bin" / "python")
    assert folders_of_python(path, "/usr") == (path, (path,))
    assert folders_of_python("/etc/alternatives/python", "/usr")[1] == ()


@pytest.mark.parametrize("base", ["/etc", "/var", "/srv", "/home", "/root"])
def test_a_python_that_would_show_what_is_not_its_own_is_refused(prefix: Path, base: str) -> None:
    with pytest.raises(WorkspaceUnavailable) as refused:
        folders_of_python(str(prefix / "bin" / "python3"), base)
    assert refused.value.code == "workspace-python"
