"""The command line as people and programs use it: output, errors, exit codes, and every document against its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import prowess
from command_lines import run_here
from guard import GUARD_S
from prowess._internal.tokens import estimate
from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import COMMANDS, main
from prowess.runtime.services.documents import finding_row, skill_row
from prowess.skills.render import xml_entry


class Cli:
    def __init__(self, capsys, monkeypatch, cwd: Path) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        self.cwd = cwd

    def __call__(self, *args: str, code: int = 0) -> str:
        """stdout of a call that ends with `code`."""
        self._monkeypatch.chdir(self.cwd)
        self._capsys.readouterr()
        ended = main(list(args))
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert ended == code, f"exit code {ended}: {captured.out}{captured.err}"
        return captured.out

    def json(self, *args: str, code: int = 0) -> dict:
        document = json.loads(self("--json", *args, code=code))
        if "error" in document:
            schema = "error"
        else:
            schema = document["schema"].removeprefix("prowess.").removesuffix("/1")
        jsonschema.validate(document, json.loads((Path(FOLDER) / f"{schema}.json").read_text(encoding="utf-8")))
        return document


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    return Cli(capsys, monkeypatch, tmp_path)


@pytest.fixture
def project(tmp_path, make_skill, cli):
    """A trusted project with four skills, one of them broken and one for people only."""
    skills = tmp_path / ".agent" / "skills"
    make_skill(
        skills / "pdf", description="Reads PDF files. Use when the user has a PDF.", files={"references/a.md": "# A\n"}
    )
    make_skill(skills / "deploy", front="name: deploy\ndescription: Use when told.\ndisable-model-invocation: true\n")
    make_skill(skills / "broken", front="name: broken\n")
    make_skill(skills / "colon", front="name: colon\ndescription: Use when: asked\n")
    cli("trust", "--yes")
    return tmp_path


@pytest.mark.parametrize("words", [["--version"], ["list", "--json"], ["list", "--root", ".", "--json"]])
def test_what_is_asked_most_is_answered_before_click_is_imported(words, tmp_path):
    code = "import sys; from prowess.cli.main import main; main(sys.argv[1:])\n"
    code += "assert not {'click', 'prowess.skills.front_matter'} & {*sys.modules}"  # what is known is not read again
    main(["-C", str(tmp_path), *words])
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(("prowess 0.1.0", '{"schema": "prowess.list/1"')), (
        done.stderr
    )


def test_help_imports_nothing_of_what_the_work_needs(tmp_path):
    code = """
import sys
from prowess.cli.main import COMMANDS, main
for name in COMMANDS:
    main([name, "--help"])
    found = {each.split(".")[1] for each in sys.modules if each.startswith("prowess.")}
    assert not found & {"agent", "evals", "models", "packs", "records", "stores", "tools", "workspace"}, (name, found)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_LIST_WORDS = [
    "--json",
    "--root",
    "skills",
    "--root=skills",
    "missing",
    "a file",
    "--all",
    "-v",
    "--",
    "--max-depth",
    "",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.sampled_from(_LIST_WORDS), max_size=6))
@example(words=["--json", "--root", "missing", "--root", "skills"])
@example(words=["--root", "a file", "--json"])
@example(words=["--root", "--json", "skills"])
@example(words=["--json", "--root"])
def test_a_list_without_a_parser_is_the_list_with_one(tmp_path, make_skill, words):
    """A global option before the verb always takes the parser."""
    if not (tmp_path / "skills").exists():
        make_skill(tmp_path / "skills" / "one")
        make_skill(tmp_path / "skills" / "odd", front="name: odd\n")
        (tmp_path / "a file").touch()
    plain, parsed = (run_here([*before, "list", *words], cwd=tmp_path) for before in ([], ["-C", "."]))
    assert plain == parsed._replace(err=parsed.err.replace(" -C .", ""))  # a suggested command keeps it


def test_help_has_an_example_for_every_verb(cli):
    text = cli("--help")
    for verb in COMMANDS:
        assert f"  {verb} " in text
        page = cli(verb, "--help")
        assert "Example:\n    prowess" in page and "--json" in page


def test_list_for_people_and_programs(cli, project):
    text = cli("list", "--source", "project")
    assert text.splitlines()[0].split() == ["NAME", "STATUS", "SOURCE", "DESCRIPTION"]
    assert [line.split()[:2] for line in text.splitlines()[1:]] == [
        ["broken", "invalid"],
        ["colon", "active"],
        ["deploy", "manual"],
        ["pdf", "active"],
    ]
    assert "4 skills" in cli.err and "2 findings: prowess doctor" in cli.err
    document = cli.json("list", "--source", "project")
    by_name = {skill["name"]: skill for skill in document["skills"]}
    assert by_name["pdf"]["id"] == "project:pdf" and by_name["pdf"]["digest"] is None
    assert by_name["broken"]["finding_codes"] == ["description-missing"]
    assert by_name["colon"]["finding_codes"] == ["yaml-repaired"]
    assert not by_name["deploy"]["model_visible"] and by_name["deploy"]["user_visible"]
    assert {"code": "yaml-repaired", "line": 3}.items() <= document["findings"][1].items()
    project_roots = [root for root in document["roots"] if root["source"] == "project"]
    assert project_roots[0] == {
        "source": "project",
        "path": str(project / ".agent" / "skills"),
        "skills": 4,
        "exists": True,
    }


def test_list_digest_and_tokens(cli, project):
    root = ("--root", str(project / ".agent" / "skills" / "pdf"))  # its path is in the text that is counted
    document = cli.json("list", "--digest", "--tokens", *root)
    [skill] = document["skills"]
    assert (
        skill["digest"].startswith("sha256:")
        and 60 < skill["tokens"]["body"] < 200
        and skill["tokens"]["exact"] is False
    )
    assert skill["source"] == "explicit"
    titles, *lines = cli("list", "--tokens", *root).splitlines()
    assert titles.split() == ["NAME", "STATUS", "SOURCE", "CATALOG", "BODY", "DESCRIPTION"]
    [line] = (line.split() for line in lines if line.startswith("pdf "))
    assert line[3:5] == [str(skill["tokens"]["catalog"]), str(skill["tokens"]["body"])]
    assert cli("list", "--tokens", "--digest").splitlines()[0].split()[3:6] == ["DIGEST", "CATALOG", "BODY"]


def test_hidden_ones_are_counted_and_shown_with_all(cli, project, make_skill, machine):
    make_skill(machine / ".agents" / "skills" / "pdf")
    (project / ".agent" / "config.toml").write_text('[skills.modes]\ncolon = "off"\n', encoding="utf-8")
    cli("trust", "--yes")
    assert "2 more with --all" in (cli("list"), cli.err)[1]
    statuses = {skill["id"]: skill["status"] for skill in cli.json("list", "--all")["skills"]}
    assert statuses["user:pdf"] == "shadowed" and statuses["project:colon"] == "off"


def test_an_untrusted_project_is_listed_for_people_and_kept_from_models(cli, tmp_path, make_skill):
    make_skill(tmp_path / ".claude" / "skills" / "pdf")
    [skill] = [s for s in cli.json("list")["skills"] if s["source"] == "project"]
    assert skill["status"] == "untrusted" and not skill["model_visible"]
    assert "pdf" not in cli("prompt")
    error = cli.json("load", "pdf", code=3)["error"]
    assert error["code"] == "skill-untrusted" and f"prowess trust {tmp_path}" in error["hint"]
    assert cli.json("trust", code=2)["error"]["code"] == "needs-yes"
    assert cli.json("trust", "--yes")["skills"] == ["pdf"]
    assert "<name>\npdf\n</name>" in cli("prompt")
    assert [folder["path"] for folder in cli.json("trust", "--list")["folders"]] == [str(tmp_path)]
    cli.json("trust", "--revoke")
    assert "pdf" not in cli("prompt")
    assert cli.json("trust", "--revoke", code=2)["error"]["code"] == "not-trusted"


CONFIG = """
[skills]
budget = 99
[model]
provider = "openai:x"
params = {base_url = "http://me:secret@evil.example/v1"}
[secrets]
TOKEN = "env:AWS_KEY"
[mcp_servers.files]
command = "npx\\u001b[2J"
[workspace]
network_allow = ["evil.example"]
"""
POLICY = """
[[rule]]
tool = "skill_run"
command = "git push"
skill = "pdf"
verdict = "allow"
[[rule]]
tool = "Bash"
command = "git status"
verdict = "deny"
"""


def test_trust_lists_what_comes_into_force(cli, tmp_path, make_skill, monkeypatch):
    make_skill(tmp_path / ".agent" / "skills" / "pdf")
    (tmp_path / ".agent" / "config.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / ".agent" / "policy.toml").write_text(POLICY, encoding="utf-8")
    monkeypatch.setenv("PROWESS_TRUST", "1")  # of this call; what is listed is what the others will see
    assert cli.json("trust", code=2)["error"]["code"] == "needs-yes"
    listed = cli.err
    cli("trust", code=2)
    assert listed and cli.err.startswith(listed), "stdout has the error alone; what would be trusted is for a person"
    for line in (
        "1 skill here:",
        "Settings that were ignored until now:",
        '  model.provider = "openai:x"',
        '  secrets.TOKEN = "env:AWS_KEY"',
        '  workspace.network_allow = ["evil.example"]',
        "Rules that were ignored until now:",
        "  allow skill_run · command git push · skill pdf  (.agent/policy.toml, line 2)",
    ):
        assert f"{line}\n" in cli.err, cli.err
    assert "[needs-yes]" in cli.err and "skills.budget" not in cli.err, "it tightens, so it counts already"
    assert "git status" not in cli.err and "secret@" not in cli.err and "\x1b" not in cli.err
    document = cli.json("trust", "--yes")
    settings = {row["name"]: row["value"] for row in document["settings"]}
    assert settings["mcp_servers.files"] == {"command": "npx\x1b[2J"}
    assert "evil.example" in settings["model.params.base_url"] and "secret" not in settings["model.params.base_url"]
    assert [row["rule"] for row in document["rules"]] == [1] and document["skills"] == ["pdf"]
    again = cli.json("trust", "--yes")
    assert (again["settings"], again["rules"], again["problems"]) == ([], [], []), "it is in force already"


def test_trust_does_not_ask_again_until_the_content_changes(cli, tmp_path):
    (tmp_path / ".agent").mkdir()
    cli("trust", "--yes")
    cli("trust")
    assert cli.err.startswith(f"Trusted already: {tmp_path}. ")
    assert cli.json("trust")["place"] == str(tmp_path)
    (tmp_path / ".agent" / "policy.toml").write_text(POLICY, encoding="utf-8")
    assert cli.json("trust", code=2)["error"]["code"] == "needs-yes"
    cli("trust", "--yes")
    assert cli("trust") == "" and "already" in cli.err
    (tmp_path / "below").mkdir()
    assert cli.json("trust", "below", code=2)["error"]["code"] == "needs-yes", "it would be trusted by itself"


def test_trust_says_that_there_is_nothing_to_list_and_what_is_wrong(cli, tmp_path):
    cli("trust", "--yes")
    assert cli.err.startswith("Nothing here was ignored until now: ")
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.toml").write_text("[skils]\n", encoding="utf-8")
    cli("trust", "--yes")
    assert "There is a mistake, and once it is trusted nothing runs until that is mended: " in cli.err


def test_trust_for_one_call(cli, tmp_path, make_skill, monkeypatch):
    make_skill(tmp_path / ".agent" / "skills" / "pdf")
    monkeypatch.setenv("PROWESS_TRUST", "1")
    assert "<name>\npdf\n</name>" in cli("prompt")
    monkeypatch.delenv("PROWESS_TRUST")
    assert "pdf" not in cli("prompt")


def test_roots_from_the_working_folder_up_to_the_git_root_nearest_first(cli, tmp_path, make_skill):
    (tmp_path / ".git").mkdir()
    package = tmp_path / "packages" / "web"
    make_skill(package / ".agents" / "skills" / "pdf", description="Nearest. Use when asked.")
    make_skill(tmp_path / ".agents" / "skills" / "pdf", description="Farther. Use when asked.")
    make_skill(tmp_path.parent / ".agents" / "skills" / "outside")
    cli("trust", str(tmp_path), "--yes")
    cli.cwd = package
    skills = {skill["id"]: skill for skill in cli.json("list", "--all")["skills"]}
    assert skills["project:pdf"]["description"].startswith("Nearest")
    assert [s["status"] for id, s in skills.items() if id.startswith("project:pdf@")] == ["shadowed"]
    assert not any("outside" in id for id in skills)


def test_environment_roots_and_their_older_name(cli, tmp_path, make_skill, monkeypatch):
    make_skill(tmp_path / "a" / "one")
    make_skill(tmp_path / "b" / "two")
    monkeypatch.setenv("SKILLS_ROOT", str(tmp_path / "a"))
    assert "explicit:one" in [skill["id"] for skill in cli.json("list")["skills"]]
    monkeypatch.setenv("PROWESS_SKILLS_ROOT", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}")
    assert {"explicit:one", "explicit:two"} <= {skill["id"] for skill in cli.json("list")["skills"]}


def test_inspect_says_everything_and_why(cli, project):
    document = cli.json("inspect", "pdf")
    assert document["skill"]["files"][0]["path"] == "SKILL.md" and document["skill"]["docs"] == ["references/a.md"]
    assert document["why"]["in_prompt"] == "shown" and document["why"]["reasons"]
    assert "project:deploy: manual" in cli("inspect", "deploy", "--why")
    assert "disable-model-invocation: true" in cli("inspect", "deploy", "--why")
    (project / ".agent" / "config.toml").write_text("[skills]\nbudget = 40\n", encoding="utf-8")
    cli("trust", "--yes")
    assert "budget of 40 tokens" in cli("inspect", "pdf", "--why")
    broken = cli.json("inspect", "broken")
    assert broken["why"]["status"] == "invalid" and broken["skill"]["files"] == []
    assert cli.json("inspect", "pfd", code=1)["error"]["hint"].startswith("Did you mean 'pdf'?")


def test_validate(cli, project):
    skills = str(project / ".agent" / "skills")
    document = cli.json("validate", skills, code=1)
    assert {skill["name"]: skill["valid"] for skill in document["skills"]} == {
        "broken": False,
        "colon": False,
        "deploy": True,
        "pdf": True,
    }
    assert cli.json("validate", f"{skills}/pdf/SKILL.md", "--profile", "spec")["valid"]
    assert not cli.json("validate", f"{skills}/deploy", "--profile", "spec", code=1)["valid"]
    text = cli("validate", f"{skills}/pdf")
    assert text.startswith(f"valid  {skills}/pdf\n") and "1 skill checked · 0 invalid" in cli.err
    missing = cli.json("validate", "nowhere", code=1)
    assert missing["skills"][0]["findings"][0]["code"] == "root-missing"
    sarif = json.loads(cli("validate", skills, "--sarif", code=1))
    [run] = sarif["runs"]
    assert sarif["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "prowess"
    result = next(r for r in run["results"] if r["ruleId"] == "yaml-repaired")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "yaml-repaired"
    place = result["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": ".agent/skills/colon/SKILL.md"},
        "region": {"startLine": 3},
    }


def test_prompt_forms_and_plan(cli, project):
    assert cli("prompt").startswith("<available_skills>\n<skill>\n<name>\ncolon\n</name>")
    assert cli("prompt", "--format", "markdown").startswith("- colon: Use when: asked (project)\n")
    assert json.loads(cli("prompt", "--format", "json"))["skills"][0]["name"] == "colon"
    plan = cli.json("prompt", "--plan", "--budget", "90")
    assert plan["shown"][0] == "project:colon" and plan["searchable"] and "project:deploy" in plan["hidden"]
    assert "over the budget" in (cli("prompt", "--budget", "90"), cli.err)[1]
    assert cli.json("prompt")["text"] + "\n" == cli("prompt")


def test_prompt_of_nothing_is_nothing(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    assert cli("prompt", "--root", "empty") == ""


def test_load_and_docs(cli, project):
    assert cli("load", "pdf").startswith('<skill_content name="pdf" source="project">\n')
    assert '<skill_doc skill="pdf" path="references/a.md">' in cli("load", "pdf", "--docs", "*.md")
    document = cli.json("load", "pdf", "--docs", "references/*")
    assert document["docs"] == ["references/a.md"] and document["skill"]["digest"].startswith("sha256:")
    assert cli.json("load", "pdf", "--docs", "x", code=1)["error"]["code"] == "doc-not-found"
    assert cli.json("load", "broken", code=1)["error"]["code"] == "skill-invalid"
    assert "deploy" in cli("load", "deploy"), "a person may load what is kept for people"
    assert "yaml-repaired" in (cli("load", "colon"), cli.err)[1]


def test_search(cli, project):
    results = cli.json("search", "pdf", "file")["results"]
    assert results[0]["id"] == "project:pdf" and results[0]["score"] > 0
    assert "deploy" not in cli("search", "deploy") and "deploy" in cli("search", "deploy", "--all")
    assert cli("search", "zzzz") == "" and "None of" in cli.err


def test_tokens_are_labelled(cli, project):
    estimated = cli.json("tokens")
    assert estimated["method"] == "estimate" and not estimated["exact"]
    exact = cli.json("tokens", "pdf", "--exact")
    assert exact["exact"] and "o200k" in exact["method"] and [skill["name"] for skill in exact["skills"]] == ["pdf"]
    assert "(estimate" in (cli("tokens"), cli.err)[1]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["completion"], "Choose from: bash, ", "prowess completion --help"),
        (["runs", "--limit", "abc"], "'abc' is not a whole number.", "prowess runs list --help"),
        (["run", "--max-cost", "abc", "x"], "'abc' is not a number.", "prowess run --help"),
        (["run", "--model"], "'--model' requires an argument.", "prowess run --help"),
    ],
)
def test_a_mistake_in_the_words_is_told_in_our_words(cli, words, message, hint):
    error = cli.json(*words, code=2)["error"]
    assert message in error["message"] and hint in error["hint"] and "\t" not in error["message"]


def test_a_summary_stands_below_its_table_where_both_are_one_pipe(project):
    command = [sys.executable, "-m", "prowess", "list"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, cwd=project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=GUARD_S
    )
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("NAME") and any(" skills" in line for line in lines[3:])


def test_one_skill_is_no_skills(cli, tmp_path, make_skill):
    make_skill(tmp_path / "one" / "pdf")
    cli("tokens", "--root", "one")
    assert " for 1 skill (" in cli.err


def test_tokens_takes_the_path_of_a_skill(cli, project, make_skill):
    make_skill(project / "drafts" / "notes")
    rows = cli.json("tokens", "drafts/notes", ".agent/skills/pdf", "pdf")["skills"]
    assert [row["name"] for row in rows] == ["notes", "pdf", "pdf"] and rows[1] == rows[2]
    assert cli.json("tokens", "./drafts/nothing", code=1)["error"]["code"] == "skill-not-found"


def test_doctor_explains(cli, project, make_skill, machine):
    make_skill(machine / ".agent" / "skills" / "pdf")
    make_skill(project / ".agent" / "skills" / "node_modules")
    needy = "name: needy\ndescription: Use when asked.\nrequires:\n  bins: [no-such-program]\n  env: NO_SUCH_KEY\n"
    make_skill(project / ".agent" / "skills" / "needy", front=needy)
    document = cli.json("doctor", code=1)
    root = next(r for r in document["roots"] if r["source"] == "project" and r["exists"])
    assert root["repaired"] == ["project:colon"] and root["statuses"]["invalid"] == 1 and len(root["skipped"]) == 1
    user = next(r for r in document["roots"] if r["source"] == "user" and r["exists"])
    assert user["shadowed"] == {"user:pdf": "project:pdf comes first (project before user)"}
    codes = {finding["code"] for finding in document["findings"]}
    assert {"requires-missing", "description-missing", "yaml-repaired", "skipped-folder"} <= codes
    text = cli("doctor", code=1)
    for word in ("Roots", "Catalog", "Findings", "Installation", "shadowed: user:pdf", "no-such-program (program)"):
        assert word in text


@pytest.mark.parametrize(
    ("executor", "found", "said"),
    [
        ("local", ["local", "none"], "local (none)\n  auto takes a sandbox"),
        ("none", [None, None], "NOTHING CAN RUN; Nothing can run scripts here: there is no executor.\n  Set work"),
    ],
)
def test_doctor_says_which_isolation_a_script_gets(cli, tmp_path, executor, found, said):
    (tmp_path / "own.toml").write_text(f"[workspace]\nexecutor = '{executor}'\n", encoding="utf-8")
    isolation = cli.json("doctor", "--config", "own.toml")["isolation"]
    assert [isolation["configured"], isolation["executor"], isolation["mechanism"]] == [executor, *found]
    assert f"\nIsolation\n  {said}" in cli("doctor", "--config", "own.toml")


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ('store = "foo://x"', "store-unknown", "'foo:'"),
        ('store = "postgresql://[::1/db"', "store-url-invalid", "PostgreSQL"),
        ('artifacts = "foo://x"', "artifacts-unknown", "'foo:'"),
        ('[model]\nprovider = "opnai:gpt-5"', "model-unknown", "opnai"),
        (
            '[skills.dependencies]\npdf = ["pypdf >=> 5"]\nother = ["ok"]',
            "config-dependency",
            "skills.dependencies.pdf",
        ),
        ('[skills.dependencies]\npdfs = ["pypdf"]', "dependency-unmatched", "'pdfs'"),
    ],
)
def test_doctor_names_settings_that_cannot_be_used(cli, make_skill, settings, code, said):
    make_skill(cli.cwd / "s" / "pdf")
    make_skill(cli.cwd / "s" / "other")
    (cli.cwd / "own.toml").write_text(settings, encoding="utf-8")
    before = sorted(cli.cwd.rglob("*"))
    warning = code == "dependency-unmatched"
    findings = cli.json("doctor", "--root", "s", "--config", "own.toml", code=0 if warning else 1)["findings"]
    [found] = [finding for finding in findings if finding["code"] == code]
    assert said in found["message"] and found["hint"] and found["path"] == str(cli.cwd / "own.toml")
    assert ("Did you mean 'pdf'?" in found["hint"]) == warning
    assert sorted(cli.cwd.rglob("*")) == before


def test_prompt_says_what_is_not_known_of_a_model(cli, make_skill):
    make_skill(cli.cwd / "s" / "pdf")
    call = ("prompt", "--root", "s", "--model")
    cli(*call, "openai:gtp-5")
    assert "nothing is known about the model 'openai:gtp-5': the budget is 2 % of 200000" in cli.err
    cli(*call, "openai:gpt-5")
    assert cli.err == ""
    assert cli.json(*call, "opnai:gpt-5", code=2)["error"]["code"] == "model-unknown"


def test_config_show_tells_a_file_that_was_named_from_one_that_is_not_trusted(cli):
    (cli.cwd / "own.toml").write_text("[skills]\nbudget = 700\n", encoding="utf-8")
    assert "700" in cli("config", "show", "--set", "--config", "own.toml")
    assert "configured by own.toml, which counts because you named it" in cli.err and "not trusted" not in cli.err
    cli("config", "show")
    assert "not trusted: its configuration may only restrict" in cli.err


def test_search_says_when_a_query_has_only_common_words(cli, make_skill):
    make_skill(cli.cwd / "s" / "pdf", description="Joins pages. Call when asked.", body="Join.")
    cli("search", "the of", "--root", "s")
    assert "'the of' has only words that every text has" in cli.err
    cli("search", "zebra", "--root", "s")
    assert "matches 'zebra'" in cli.err


def test_commands_that_are_suggested_keep_what_was_said(cli, make_skill):
    library = make_skill(cli.cwd / "a folder" / "lib", description="Joins pages.")
    make_skill(library / "inner")
    (cli.cwd / "own.toml").write_text("", encoding="utf-8")
    said = ["--config", "own.toml", "--nested", "--root", "a folder"]
    for call in (["inspect", "innr"], ["load", "innr"]):
        cli(*call, *said, code=1)
        assert "See: prowess list --config own.toml --nested --root 'a folder'" in cli.err
    cli("search", "zebra", *said)
    assert "See: prowess list --config own.toml --nested --root 'a folder'" in cli.err
    cli("list", "--config", "own.toml", "--root", "a folder")
    assert f"1 finding: prowess doctor --config own.toml --root '{library.parent}'" in cli.err
    cli("-C", "a folder", "runs", "show", "nobody", code=1)
    assert "See: prowess runs list -C 'a folder'" in cli.err


def test_new_makes_a_skill_that_validates(cli, tmp_path):
    for name, description in [
        ("csv-report", None),
        ("a", 'Says: "hi" # and more. Use when asked.'),
        ("技能", "当需要时使用"),
    ]:
        args = ["new", name, *(["-d", description] if description else [])]
        made = cli.json(*args)
        assert made["path"] == str(tmp_path / ".agent" / "skills" / name)
        report = cli.json("validate", made["path"])
        told = [f["code"] for f in report["skills"][0]["findings"] if f["severity"] != "info"]
        assert told == ["template-unedited"], "valid, and to be edited"
        body = Path(made["file"]).read_text(encoding="utf-8")
        for part in ("Goal", "Inputs and outputs", "Steps", "Failure modes", "Checklist", "Resources"):
            assert f"\n## {part}\n" in body
    assert cli.json("inspect", "a")["skill"]["description"] == 'Says: "hi" # and more. Use when asked.'
    assert cli.json("new", "a", code=2)["error"]["code"] == "skill-exists"


@pytest.mark.parametrize("name", ["../x", "A", "a--b", "-a", "a/b", "x" * 65, "", " ", "a\nb", "\x1b[31m"])
def test_new_refuses_a_name_that_is_none(cli, tmp_path, name):
    error = cli.json("new", "--to", str(tmp_path / "to"), "--", name, code=2)["error"]
    assert error["code"].startswith("name-") and error["hint"]
    assert not (tmp_path / "to").exists() and sorted(os.listdir(tmp_path)) == []


def test_init_leaves_what_is_there(cli, tmp_path):
    assert len(cli.json("init")["written"]) == 3
    (tmp_path / ".agent" / "config.toml").write_text("# mine\n", encoding="utf-8")
    again = cli.json("init")
    assert again["written"] == [] and len(again["kept"]) == 3
    assert (tmp_path / ".agent" / "config.toml").read_text(encoding="utf-8") == "# mine\n"
    assert "/runs/" in (tmp_path / ".agent" / ".gitignore").read_text(encoding="utf-8")


def test_the_written_configuration_is_valid_when_uncommented(cli, tmp_path):
    cli("init")
    path = tmp_path / ".agent" / "config.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    active = [line.removeprefix("# ") for line in lines if "=" in line or line.startswith("# [")]
    path.write_text("\n".join(active), encoding="utf-8")
    cli("trust", "--yes")
    assert cli.json("config", "show")["values"]["skills.budget"] == 4000


def test_config_show_says_where_values_come_from(cli, tmp_path, monkeypatch):
    cli("init")
    (tmp_path / ".agent" / "config.toml").write_text("[skills]\nbudget = 99\n", encoding="utf-8")
    untrusted = cli.json("config", "show")
    assert untrusted["values"]["skills.budget"] == 99, "it tightens, so it counts"
    cli("trust", "--yes")
    monkeypatch.setenv("PROWESS_RUN_DENIED_COMMANDS", "rm, curl")
    document = cli.json("config", "show", "--set")
    assert document["origins"] == {
        "skills.budget": str(tmp_path / ".agent" / "config.toml"),
        "workspace.commands_deny": "environment PROWESS_RUN_DENIED_COMMANDS",
        "workspace.dir": "environment PROWESS_WORKSPACE_DIR",
    }
    assert "skills.budget" in cli("config", "show", "--origin")
    (tmp_path / ".agent" / "config.toml").write_text("[skills]\nbugdet = 99\n", encoding="utf-8")
    error = cli.json("config", "show", code=2)["error"]
    assert error["code"] == "config-unknown-field" and "budget" in error["hint"] + error["message"]


def test_max_body_lines_refuses(cli, project):
    (project / ".agent" / "config.toml").write_text("[security]\nmax_skill_body_lines = 2\n", encoding="utf-8")
    assert cli.json("load", "pdf", code=1)["error"]["code"] == "body-over-limit"


def test_schema_prints_every_schema(cli):
    names = cli.json("schema")["schemas"]
    assert {"list", "event", "config", "error"} <= set(names)
    for name in names:
        jsonschema.Draft202012Validator.check_schema(json.loads(cli("schema", name)))
    assert cli("schema", "prowess.list/1") == cli("schema", "list")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["lst"], "usage"),
        (["list", "--no-such"], "usage"),
        (["list", "--source", "moon"], "usage"),
        (["validate"], "usage"),
        (["-C", "/no/such/folder", "list"], "no-folder"),
        (["--config", "/no/such/file", "list"], "config-unreadable"),
        (["read-properties", "/no/such"], "no-path"),
        (["schema", "nope"], "schema-unknown"),
        (["trust", "/no/such", "--yes"], "no-folder"),
    ],
)
def test_usage_and_configuration_errors(cli, args, code):
    error = cli.json(*args, code=2)["error"]
    assert error["code"] == code and error["message"] and error["hint"]
    cli(*args, code=2)
    assert cli.err.startswith("Error: ") and f"[{code}]" in cli.err and "Traceback" not in cli.err


def test_global_options_work_before_and_after_the_verb(cli, tmp_path, make_skill):
    make_skill(tmp_path / "elsewhere" / ".agent" / "skills" / "pdf")
    before = json.loads(cli("--json", "-C", "elsewhere", "list"))
    after = json.loads(cli("list", "--json", "-C", "elsewhere"))
    assert before == after and before["skills"]


def test_nothing_from_a_skill_reaches_the_terminal_unescaped(cli, tmp_path, make_skill):
    front = 'name: evil\ndescription: "Use when \\e[31mred\\e[0m \\u202Ertl"\n'
    make_skill(tmp_path / "s" / "evil", front=front, body="\x1b]0;title\x07 body")
    make_skill(tmp_path / "s" / "salvaged", front="name: salvaged\ndescription: Use when \x1b[31mred.\nodd\x07: x\n")
    for args in (
        ["list"],
        ["inspect", "evil"],
        ["prompt"],
        ["doctor", "-v"],
        ["search", "evil"],
        ["load", "evil"],
        ["tokens"],
    ):
        out = cli(*args, "--root", str(tmp_path / "s"))
        assert "evil" in out and not {"\x1b", "\u202e", "\x07"} & set(out + cli.err), args


def test_output_survives_any_locale_and_a_closed_pipe(tmp_path, make_skill):
    for number in range(300):
        make_skill(tmp_path / "s" / f"技能-{number}", description="当用户需要时使用 — café ✓")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "prowess", "list", "--root", str(tmp_path / "s")]
    done = subprocess.run(command, env=environment, capture_output=True)
    assert done.returncode == 0 and "技能-1" in done.stdout.decode("utf-8")
    piped = subprocess.run(["bash", "-c", '"$@" | head -1; exit ${PIPESTATUS[0]}', "-", *command], capture_output=True)
    assert (piped.returncode, piped.stderr.count(b"Traceback")) == (0, 0), piped.stderr


def test_a_table_on_a_terminal_has_colour_and_fits(tmp_path, make_skill):
    """On a real pseudo-terminal of 80 columns."""
    import pty
    import struct
    import termios

    make_skill(tmp_path / "s" / "pdf", description="long words " * 40 + "Use when asked.")
    leader, follower = pty.openpty()
    import fcntl

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "prowess", "list", "--root", str(tmp_path / "s")],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**environment, "TERM": "xterm-256color"},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    process.wait()
    os.close(leader)
    text = shown.decode()
    assert "\x1b[32mactive" in text and "…" in text
    import re

    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.splitlines()) <= 80


def test_nested_skills_are_named_by_list_doctor_and_validate_and_loaded_when_asked(cli, make_skill):
    library = make_skill(cli.cwd / "library")
    inner = make_skill(library / "inner")

    def named(document: dict) -> list[str]:
        findings = [
            *document.get("findings", []),
            *(f for s in document.get("skills", []) for f in s.get("findings", [])),
        ]
        return [finding["path"] for finding in findings if finding["code"] == "skill-nested"]

    calls = (["list", "--root", "library"], ["doctor", "--root", "library"], ["validate", "library"])
    for call in calls:
        assert named(cli.json(*call)) == [f"{inner}/SKILL.md"]
        assert not named(cli.json(*call, "--nested"))
    assert "1 finding: prowess doctor" in (cli("list", "--root", "library"), cli.err)[1]
    assert [skill["name"] for skill in cli.json("validate", "library", "--nested")["skills"]] == ["library", "inner"]
    assert "Do the thing" in cli("load", "inner", "--root", "library", "--nested")
    (cli.cwd / "own.toml").write_text("[skills]\nnested = true\n")
    for call in calls:
        assert not named(cli.json(*call, "--config", "own.toml"))
    assert cli("validate", "library", "--profile", "spec", "--config", "own.toml") == "Valid skill: library\n"
    listed = cli.json("list", "--root", "library", "--config", "own.toml")
    assert [skill["id"] for skill in listed["skills"]] == ["explicit:library", "explicit:inner"]


def test_doctor_names_a_file_that_came_below_a_known_skill(cli, make_skill):
    library = cli.cwd / "library"
    make_skill(library / "pdf")
    cli("list", "--root", "library")
    inner = make_skill(library / "pdf" / "inner")
    findings = cli.json("doctor", "--root", "library")["findings"]
    assert [f["path"] for f in findings if f["code"] == "skill-nested"] == [f"{inner}/SKILL.md"]


@pytest.mark.parametrize(
    "call",
    [
        ["list"],
        ["doctor"],
        ["search", "pdf"],
        ["prompt"],
        ["tokens"],
        ["load", "pdf"],
        ["inspect", "pdf"],
        ["run", "hi"],
    ],
    ids=lambda call: call[0],
)
def test_a_root_that_is_not_there_is_a_warning_and_exit_code_1(cli, make_skill, call):
    make_skill(cli.cwd / "here" / "pdf")
    cli(*call, "--root", "here", "--root", "nowhere", code=1)
    assert cli.err.count("does not exist") == 1
    assert f"warning: {cli.cwd}/nowhere: The root does not exist." in cli.err and "[root-missing]" in cli.err
    if call[0] == "list":
        listed = cli.json("list", "--root", "here", "--root", "nowhere", code=1)
        assert [skill["name"] for skill in listed["skills"]] == ["pdf"]
        assert [finding["code"] for finding in listed["findings"]] == ["root-missing"]


def test_a_skill_that_only_the_model_may_start_is_shown_and_refused_by_name(cli, make_skill):
    make_skill(cli.cwd / "s" / "quiet", front="name: quiet\ndescription: Use when asked.\nuser-invocable: false\n")
    assert "quiet  active, model only  explicit" in cli("list", "--root", "s")
    [row] = cli.json("list", "--root", "s")["skills"]
    assert (row["status"], row["user_visible"], row["controls"]["user_invocable"]) == ("active", False, False)
    cli("run", "/quiet go", "--root", "s", code=3)
    assert "[skill-not-invocable]" in cli.err
    assert "Do the thing" in cli("load", "quiet", "--root", "s")  # what a model gets; nothing is started


def test_metadata_that_is_no_map_is_a_warning(cli, make_skill):
    make_skill(cli.cwd / "s" / "odd", front="name: odd\ndescription: Use when asked.\nmetadata: text\n")
    assert "warning  SKILL.md:4  The field 'metadata' is not a map" in cli("validate", "s/odd")
    assert "1 finding" in (cli("list", "--root", "s"), cli.err)[1]


# --- long lists -----------------------------------------------------------------------------------------------------


def test_rows_of_a_list_are_what_each_skill_says_of_itself(cli):
    """Rows are rendered by kind, many at once: bad names, odd fields and findings come out as they are, one by one."""
    bad = Path(__file__).parents[1] / "fixtures" / "bad"
    for _ in range(2):  # the second time from the index
        listed = cli.json("list", "--all", "--root", str(bad))
        catalog = prowess.discover(bad)
        assert listed["skills"] == [skill_row(catalog, entry) for entry in catalog] != []
        own = [finding_row(finding) for finding in catalog.findings]
        assert [row for row in listed["findings"] if row in own] == own != []
        for entry in catalog:
            row = next(row for row in listed["skills"] if row["id"] == entry.id)
            assert row["tokens"]["catalog"] == estimate(xml_entry(entry, (entry.name, None)) + "\n")
            assert row["finding_codes"] == list(dict.fromkeys(f.code for f in catalog.findings_of(entry)))
    assert json.loads(cli("list", "--json", "--root", str(cli.cwd)))["skills"] == []


def test_a_long_list_is_never_in_memory_as_a_whole(tmp_path, make_skill, monkeypatch):
    for number in range(1_200):
        make_skill(tmp_path / "many" / f"s{number}", description=f"Use when {number}. " + "word " * 180)
    command = ["list", "--json", "--root", str(tmp_path / "many")]
    written = tmp_path / "list.json"
    for turn in ("index written", "warm"):
        with written.open("w", encoding="utf-8") as file, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", file)
            tracemalloc.start()
            try:
                assert main(command) == 0
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        assert len(json.loads(written.read_text(encoding="utf-8"))["skills"]) == 1_200
        # The descriptions themselves, and a part of the document.
        assert peak < 2.2 * written.stat().st_size, turn


@pytest.mark.parametrize("thread", ["", "threading.Timer(0.1, print, ['the thread']).start(); "])
def test_the_end_of_the_process_leaves_nothing_undone(thread: str, project: Path) -> None:
    """It frees no objects, but what was printed arrives, threads are waited for, and exit functions run."""
    code = f"import atexit, sys, threading; atexit.register(print, 'the exit function'); {thread}"
    code += "print('before'); from prowess.cli.main import run_process; run_process()"
    told = subprocess.run([sys.executable, "-c", code, "list", "--bad"], cwd=project, capture_output=True, text=True)
    wanted = ["before", "the thread", "the exit function"] if thread else ["before", "the exit function"]
    assert told.stdout.splitlines() == wanted
    assert told.returncode == 2 and "No such option" in told.stderr
