"""prowess policy check: the decision that an agent's call would get, the rule, file and line behind it, and the way
to change it; explained, never made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_lines import Cli
from kits import with_kit
from prowess.cli.main import main
from prowess.core.tool_table import SWITCHED_TOOLS
from prowess.core.values import Decision
from prowess.policy.approvals import UserApprovals
from prowess.skills.discover import discover
from prowess.skills.load import load

POLICY = """\
# Of this project.
[[rule]]
tool = "Bash"
command = "git push"
verdict = "ask"
why = "A push cannot be taken back."

[[rule]]
tool = "WebFetch"
verdict = "allow"
"""


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capfd, "policy", "check")


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a policy and two skills; trusted, unless a test says otherwise."""
    front = "description: Releases things. Use when shipping.\nallowed-tools: Bash(git:*) Read(docs/**)\n"
    make_skill(tmp_path / ".agent/skills/release", front=f"name: release\n{front}")
    make_skill(tmp_path / ".agent/skills/plain")
    (tmp_path / ".agent/policy.toml").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROWESS_TRUST", "1")
    return tmp_path


def decided(document: dict[str, Any]) -> dict[str, Any]:
    (step,) = [step for step in document["steps"] if step["decided"]]
    return step


def verdict(document: dict[str, Any]) -> tuple[str, str]:
    return document["verdict"], document["rule"]


# --- what is said -----------------------------------------------------------------------------------------------------


def test_a_rule_is_named_with_its_file_and_line(project: Path, cli: Cli) -> None:
    path = str(project / ".agent/policy.toml")
    found = cli.json("Bash", "git push origin main", "--skill", "release", "--executor", "local")
    assert verdict(found) == ("ask", f"rule:1 {path}:2")
    assert found["place"] == {"path": path, "line": 2, "number": 1}
    assert found["why"] == "A push cannot be taken back. Found in the command: 'git', 'push'."
    assert (found["tool"], found["called"]) == ("skill_run", "Bash")
    assert found["args"] == {"skill": "release", "command": "git push origin main"}
    assert found["skill"] == {"id": "project:release", "source": "project", "trusted": True, "status": "active"}
    assert found["isolation"]["executor"] == "local"
    assert any("--yes skill_run" in each for each in found["change"]) and any(f"{path}:2" in t for t in found["change"])
    said = cli("Bash", "git push origin main", "--skill", "release", "--executor", "local")
    assert said.startswith("ask  skill_run {")
    assert f"rule 1 of {path}, line 2" in said and "Bash is another name for skill_run" in said
    assert f"=> {path}" in said


def test_why_a_rule_does_not_allow_what_begins_with_its_words(project: Path, cli: Cli) -> None:
    commands = ('["sort", "no-such-program", "out/x"]', '"git status"', '"sort y"')
    rules = "".join(f'[[rule]]\ncommand = {each}\nverdict = "allow"\n' for each in commands)
    (project / ".agent/policy.toml").write_text(rules, encoding="utf-8")

    def check(command: str, **more: Any) -> tuple[str, dict[str, Any], str]:
        args = json.dumps({"skill": "plain", "command": command, **more})
        found = cli.json("skill_run", args, "--executor", "local")
        (step,) = [step for step in found["steps"] if step["by"] == "policy"]
        said = cli("skill_run", args, "--executor", "local")
        assert all(" ".join(each.split()) in " ".join(said.split()) for each in step["looked_at"])
        return found["verdict"], found["limits"], "; ".join(step["looked_at"])

    verdict, limits, _ = check("sort x")
    assert verdict == "allow" and limits["argv"][0].endswith("bin/sort") and limits["argv"][0].startswith("/")
    for command, more, why in (
        ("no-such-program", {}, "Rule 1 does not allow it: There is no program 'no-such-program' in /"),
        ("sort x", {"env": {"PSQLRC": "x"}}, "Rule 1 does not allow it: The call sets 'PSQLRC'"),
        ("out/x", {}, "Rule 1 does not allow it: 'out/x' is where a run can write"),
        ("sort x; ls", {}, "Rule 1 does not allow it: It is not one plain command. "),
        ("sort x | cat", {}, "Rule 1 does not allow it: It is not one plain command. "),
        ("sort *.csv", {}, "Rule 1 does not allow it: It is not one plain command. A shell would expand its patterns"),
        ("SORT x", {}, "Rule 1 does not allow it: It does not begin with 'sort', written in this way."),
        ("env sort x", {}, "Rule 1 does not allow it: It does not begin with 'sort', written in this way."),
        ("sort y", {"cwd": "docs"}, "Rules 1, 3 do not allow it: It starts in the folder 'docs', and the rule"),
        ("git status; ls", {}, "Rule 2 does not allow it: It is not one plain command. "),
        ("git -C x status", {}, "Rule 2 does not allow it: It does not begin with 'git status', written in this way."),
    ):
        verdict, limits, said = check(command, **more)
        assert verdict == "ask" and "argv" not in limits and why in said and said.count("plain command") <= 1
    for command in ("ls z", "git log; ls"):
        assert check(command)[2] == "3 rules, of which none fits"


def test_everybody_is_asked_in_the_order_in_which_they_count(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = project / "managed.toml"
    managed.write_text('[[rule]]\ntool = "grep"\nverdict = "deny"\n', encoding="utf-8")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(managed))
    found = cli.json("grep", "x")
    kinds = ["configuration", "allowed-tools", "policy", "grant", "table", "policy", "require_approval_for"]
    assert [step["by"] for step in found["steps"]] == kinds
    assert [step["path"] for step in found["steps"] if step["by"] == "policy"] == [
        str(project / ".agent/policy.toml"),
        str(managed),
    ]
    assert decided(found)["path"] == str(managed) and decided(found)["tightens"]
    assert found["verdict"] == "deny"
    assert "no other file lifts it" in found["change"][0]


def test_a_policy_of_a_folder_that_nobody_trusts_only_tightens(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".agent/config.toml").write_text("", encoding="utf-8")
    monkeypatch.delenv("PROWESS_TRUST")
    found = cli.json("Bash", "git push", "--skill", "release")
    assert found["verdict"] != "allow"
    assert any(step["tightens"] for step in found["steps"] if step["by"] == "policy")
    assert any("No model can load project:release" in note for note in found["notes"])
    local = cli.json("Bash", "git status", "--skill", "release", "--executor", "local")
    assert verdict(local) == ("deny", "table:local-untrusted")
    assert any(f"prowess trust {project}" in each for each in local["change"])


def test_lists_say_what_they_allow(project: Path, cli: Cli) -> None:
    named = cli.json("skill_run", "ls", "--skill", "release")
    assert verdict(named) == ("deny", "allowed-tools:project:release")
    (list_said,) = [step["looked_at"] for step in named["steps"] if step["by"] == "allowed-tools"]
    assert list_said == ["project:release does not allow it: Bash(git:*), Read(docs/**)"]
    assert "SKILL.md" in named["change"][0]
    ambient = cli.json("Read", "secret.txt", "--skill", "release")
    assert verdict(ambient) == ("deny", "allowed-tools:project:release") and ambient["skill"] is None
    assert cli.json("Read", "docs/a.md", "--skill", "release")["verdict"] == "allow"
    both = cli.json("Read", "secret.txt", "--skill", "release", "--skill", "plain")
    assert both["verdict"] == "deny", "a skill without a list does not lift another's"
    never = cli.json("skill_read", '{"skill": "release", "path": "x"}')
    assert never["verdict"] == "allow"
    assert ["skill_read is narrowed by no list"] in [step["looked_at"] for step in never["steps"]]


def test_settings_are_named_with_their_origin(project: Path, cli: Cli) -> None:
    off = cli.json("WebFetch", "https://example.com")
    assert verdict(off) == ("deny", "config:tools.enable"), "a rule that allows does not switch it on"
    assert decided(off)["looked_at"] == ["tools.enable = [] (default)"]
    assert 'tools.enable = ["network_request"]' in off["change"][0]
    config = project / ".agent/config.toml"
    config.write_text(
        '[tools]\nenable = ["network_request", "delete_file"]\n[execution]\nrequire_approval_for = ["network"]\n'
        '[workspace]\nnetwork_allow = ["example.com"]\ncommands_allow = ["git"]\n',
        encoding="utf-8",
    )
    asked = cli.json("WebFetch", "https://example.com")
    assert verdict(asked) == ("ask", "config:require_approval_for")
    assert asked["limits"]["hosts"] == ["example.com"]
    assert decided(asked)["looked_at"] == [f'execution.require_approval_for = ["network"] ({config})']
    assert cli.json("delete_file", "path=out/x")["rule"] == "table:high-risk"
    write = ("Write", "path=out/x", "content=x")
    assert verdict(cli.json(*write, "--executor", "local")) == ("ask", "table:high-risk")
    assert verdict(cli.json("Write", "path=/srv/x", "content=x")) == ("deny", "config:tools.enable")
    script = cli.json("Bash", "ls", "--skill", "plain", "--executor", "local")
    assert verdict(script) == ("deny", "config:workspace.commands")
    listed = cli.json("Bash", "git status", "--skill", "plain", "--executor", "local")
    assert listed["limits"] == {"argv": ["git", "status"]}


def test_a_tool_that_nobody_knows_is_asked_about(project: Path, cli: Cli) -> None:
    found = cli.json("mcp__github__issue", "title=x")
    assert verdict(found) == ("ask", "table:unknown-tool") and found["risk"] == "unknown"
    assert not any("--yes" in each for each in found["change"]), "--yes does not take names that it does not know"


def test_a_capability_is_decided_as_one(project: Path, cli: Cli) -> None:
    found = cli.json("install_dependencies", "--skill", "plain", "--executor", "local")
    assert verdict(found) == ("ask", "table:capability") and found["kind"] == "capability"


def test_isolation_is_asked_of_the_executor(project: Path, cli: Cli) -> None:
    assert cli.json("grep", "x")["isolation"] is None, "nothing is started for a tool that runs nothing"
    shown = cli.json("grep", "x", "--isolation", "--executor", "local")
    assert shown["isolation"]["executor"] == "local"
    asked = cli.json("skill_run", "ls", "--skill", "plain", "--executor", "local")
    assert verdict(asked) == ("ask", "table:local-trusted")
    (project / ".agent/config.toml").write_text('[workspace]\nexecutor = "none"\n', encoding="utf-8")
    nothing = cli.json("skill_run", "ls", "--skill", "plain")
    assert nothing["isolation"] is None and nothing["isolation_error"]["code"]
    assert any("Nothing can run here" in note for note in nothing["notes"])


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["skill_run", "ls"], "none was given (--skill)"),
        (["skill_run", "--skill", "plain"], "No arguments were given"),
        (["skill_run", '{"command": 5}', "--skill", "plain"], "would fail before policy is asked"),
        (["plain"], "is a skill, not a tool"),
        (["Skill", "plain"], "skill_load"),
    ],
)
def test_what_is_unclear_is_said(project: Path, cli: Cli, words: list[str], note: str) -> None:
    found = cli.json(*words, *(["--executor", "local"] if words[0] == "skill_run" else []))
    assert any(note in each for each in found["notes"]), found["notes"]


def test_arguments_may_have_other_systems_names(project: Path, cli: Cli) -> None:
    found = cli.json("Bash", "skill_name=release", "command=git push", "--executor", "local")
    assert found["skill"]["id"] == "project:release" and found["verdict"] == "ask"
    assert cli.json("Read", "path=docs/x")["args"]["file_name"] == "docs/x"


def test_what_was_approved_for_good_is_said(project: Path, cli: Cli, machine: Path) -> None:
    skill = load(discover(project / ".agent/skills"), "release")
    skill = skill._replace(entry=skill.entry._replace(source="project"))
    state = str(machine / ".prowess")
    call = ("Bash", "git status", "--skill", "release", "--executor", "local")
    assert verdict(cli.json(*call)) == ("ask", "table:local-trusted")
    UserApprovals(state, by="me").remember(skill, "skill_run")
    asked = cli.json(*call)
    assert asked["verdict"] == "ask" and "approved for this content" in asked["notes"][0]
    assert cli(*call).startswith("allow (policy alone: ask)  skill_run {"), "nobody would be asked"
    UserApprovals(state, by="me").remember(skill, "allowed-tools")
    granted = cli.json(*call)
    assert verdict(granted) == ("allow", "grant:allowed-tools") and decided(granted)["by"] == "grant"
    assert cli.json("Bash", "git push", "--skill", "release", "--executor", "local")["verdict"] == "ask", "a rule wins"
    (project / ".agent/skills/release/more.md").write_text("changed", encoding="utf-8")
    assert verdict(cli.json(*call)) == ("ask", "table:local-trusted"), "another content needs another approval"


@pytest.mark.parametrize("call", [("skill_list_docs", "release"), ("read_file", "skill://release/SKILL.md")])
def test_the_first_line_is_what_would_come_of_it(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, call: tuple[str, ...]
) -> None:
    assert cli(*call).startswith(f"allow  {call[0]} {{")
    monkeypatch.delenv("PROWESS_TRUST")
    first, second, *_ = cli(*call).splitlines()
    alone = "policy" if call[0] == "skill_list_docs" else "read_file"
    assert first.startswith(f"deny ({alone} alone: allow)  {call[0]} {{")
    assert second.split()[0] == "because" and "No model can load project:release now" in second
    found = cli.json(*call)
    assert (found["verdict"], found["effective"]) == ("allow", "deny")
    assert sum("No model can load" in note for note in found["notes"]) == 1


def test_where_nothing_can_run_no_rule_lets_it(project: Path, cli: Cli) -> None:
    (project / ".agent/policy.toml").write_text('[[rule]]\ntool = "Bash"\nverdict = "allow"\n', encoding="utf-8")
    (project / ".agent/config.toml").write_text('[workspace]\nexecutor = "none"\n', encoding="utf-8")
    assert cli("Bash", "ls", "--skill", "plain", "--require", "deny").startswith("deny (policy alone: allow)")


@pytest.mark.parametrize(
    "path", ["skill://release/SKILL.md", "skills/release/skill.md", "{project}/.agent/skills/release/SKILL.md"]
)
@pytest.mark.parametrize("loaded", [(), ("--skill", "release")])
def test_reading_a_skill_is_loading_it(project: Path, cli: Cli, path: str, loaded: tuple[str, ...]) -> None:
    rules = '[[rule]]\nskill = "rel*"\ntool = "Skill"\nverdict = "ask"\nwhy = "Not on Fridays."\n'
    (project / ".agent/policy.toml").write_text(rules, encoding="utf-8")
    (project / ".agent/skills/release/SKILL.md").write_text(
        "---\nname: release\ndescription: Releases things. Use when shipping.\n---\nTag.\n", encoding="utf-8"
    )
    call = ("read_file", path.format(project=project), *loaded)
    found = cli.json(*call)
    assert (found["verdict"], found["effective"]) == ("allow", "ask")
    rule = f"rule:1 {project}/.agent/policy.toml:1"
    assert found["loads"] == {"skill": "project:release", "verdict": "ask", "rule": rule, "why": "Not on Fridays."}
    first, second, *_ = cli(*call).splitlines()
    assert first.startswith("ask (read_file alone: allow)  read_file {")
    assert "loading project:release" in second and "Not on Fridays." in " ".join(cli(*call).split())
    cli(*call, "--require", "ask")
    other = cli.json("read_file", "docs/SKILL.md")
    assert other["loads"] is None and other["effective"] == "allow", "a file of that name is only a file"
    assert cli.json("read_file", "skill://plain/SKILL.md")["loads"]["verdict"] == "allow"


def test_the_files_of_a_skill_are_the_skill(project: Path, cli: Cli) -> None:
    rules = '[[rule]]\nskill = "plain"\nverdict = "deny"\n'
    (project / ".agent/policy.toml").write_text(rules, encoding="utf-8")
    assert cli.json("read_file", "skills/plain/docs/a.md", "--skill", "plain")["verdict"] == "deny"
    assert cli.json("read_file", "out/a.md", "--skill", "plain")["verdict"] == "allow"


# --- it is the real answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Bash", {"skill": "release", "command": "git push"}),
        ("Bash", {"skill": "release", "command": "git status"}),
        ("skill_run", {"skill": "release", "command": "ls"}),
        ("skill_run", {"skill": "plain", "command": "ls", "env": {"LD_PRELOAD": "x"}}),
        ("Read", {"file_name": "secret.txt"}),
        ("Read", {"file_name": "docs/x"}),
        ("Write", {"path": "out/x", "content": "x"}),
        ("skill_list_docs", {"skill": "release"}),
    ],
)
def test_the_kit_decides_the_same(project: Path, cli: Cli, tool: str, args: dict[str, Any]) -> None:
    (project / ".agent/config.toml").write_text('[tools]\nenable = ["write_file"]\n', encoding="utf-8")
    skills = str(project / ".agent/skills")
    options = ["--skill", "release", "--skill", "plain", "--root", skills, "--executor", "local"]
    told = cli.json(tool, json.dumps(args), *options)
    events: list[Any] = []

    async def work(kit: Any) -> None:
        await kit.activate("release")
        await kit.activate("plain")
        await kit.call(tool, args, id="asked")

    given = {"executor": "local", "approver": None, "load": None, "environ": {"PROWESS_TRUST": "1"}}
    with_kit(project / ".agent/skills", work, on_event=[events.append], **given)
    decisions: list[Decision] = [
        each.event.decision for each in events if each.event.type == "call_decided" and each.event.call_id == "asked"
    ]
    assert [(each.verdict, each.rule, each.why, each.limits) for each in decisions] == [
        (told["verdict"], told["rule"], told["why"], told["limits"])
    ]


@pytest.mark.parametrize("tool", SWITCHED_TOOLS)
def test_a_run_says_the_same_about_a_tool_that_is_switched_off(project: Path, cli: Cli, tool: str) -> None:
    told = cli.json(tool)
    outcome = with_kit(project / ".agent/skills", lambda kit: kit.call(tool, {}), load=None, executor="local")
    assert verdict(told) == ("deny", "config:tools.enable")
    assert outcome.code == "invalid-call" and outcome.content.startswith(told["why"])


# --- exit codes and mistakes ------------------------------------------------------------------------------------------


def test_a_verdict_can_be_required(project: Path, cli: Cli) -> None:
    cli("grep", "x", "--require", "allow")
    cli("grep", "x", "--require", "deny", code=1)
    assert "deny was required" in cli.err
    assert cli.json("write_file", "path=x", "--require", "ask", code=1)["verdict"] == "deny"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["skill_run", "{nonsense"], "is not a JSON object"),
        (["skill_run", '{"a": NaN}'], "NaN is no number"),
        (["skill_run", "args=[1"], "is not JSON"),
        (["grep", "x", "y", "z"], "'z' is no argument of grep"),
        (["Bash", "git", "push"], "'push' is no argument of Bash"),
        (["Bsh", "git push"], "'git push' is no argument of Bsh"),
        (["Bash(git:*)"], "is an entry of allowed-tools, not a call"),
        (["skill_run", '["ls"]'], "is not a JSON object"),
        (["update_plan", "x"], "is no argument of update_plan"),
        ([""], "TOOL is empty"),
        (["grep", "x", "--require", "perhaps"], "perhaps"),
    ],
)
def test_mistakes_are_named(project: Path, cli: Cli, words: list[str], says: str) -> None:
    assert says in cli.json(*words, code=2)["error"]["message"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["Bash", "git", "push"], "put it in quotes, 'git push'"),
        (["Bsh", "git push"], "nearest: Bash"),
        (["update_plan", "x"], "Its arguments: plan, patch"),
        (["nothing_like_it", "x"], "KEY=VALUE"),
    ],
)
def test_and_what_to_write_instead(project: Path, cli: Cli, words: list[str], hint: str) -> None:
    assert hint in cli.json(*words, code=2)["error"]["hint"]


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["Grep", "TODO", "src"], {"pattern": "TODO", "path": "src"}),
        (["Glob", "**/*.py"], {"path": ".", "pattern": "**/*.py"}),
        (["LS", "docs"], {"path": "docs"}),
        (["run_script", "scripts/x.py", "--skill", "plain"], {"skill": "plain", "script": "scripts/x.py"}),
        (["skill_run", "[ -f x ]", "--skill", "plain"], {"skill": "plain", "command": "[ -f x ]"}),
        (["Bash", "FOO=1 curl x", "--skill", "plain"], {"skill": "plain", "command": "FOO=1 curl x"}),
        (
            ["skill_exec", "command=FOO=1 ls", "skill_name=plain", "cwd=a"],
            {"skill": "plain", "command": "FOO=1 ls", "cwd": "a"},
        ),
        (["skill_read", "plain", "docs/a.md"], {"skill": "plain", "path": "docs/a.md"}),
        (["ask_user", "Really?"], {"question": "Really?"}),
        (["KillShell", "p-1"], {"session_id": "p-1"}),
    ],
)
def test_a_text_is_the_argument_that_a_person_means(
    project: Path, cli: Cli, words: list[str], args: dict[str, str]
) -> None:
    executor = ["--executor", "local"] if "--skill" in words else []
    assert cli.json(*words, *executor)["args"] == args


def test_a_call_that_is_not_whole_is_judged_by_what_it_says(project: Path, cli: Cli) -> None:
    (project / ".agent/config.toml").write_text('[tools]\nenable = ["Write"]\n', encoding="utf-8")
    rule = '[[rule]]\ntool = "Write"\npath = "out/**"\nverdict = "allow"\n'
    (project / ".agent/policy.toml").write_text(rule, encoding="utf-8")
    found = cli.json("Write", "file_path=out/a.md")
    assert (found["verdict"], found["args"]) == ("allow", {"path": "out/a.md"})
    assert any("A real call also says content" in note for note in found["notes"])
    assert "only below work/, out/" in cli("Write", "out/a.md")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://example.com/x", None),
        ("https://example.com:8443/", "at port 80 and 443, not at 8443"),
        ("https://example.org/", "example.org is not allowed (workspace.network_allow)"),
        ("example.com", "names no host for certain"),
        ("https://127.0.0.1/", "addresses are allowed only when they are listed"),
        ("https://a@example.com/", "names no host for certain"),
    ],
)
def test_a_host_that_is_not_listed_is_said(project: Path, cli: Cli, url: str, says: str | None) -> None:
    config = '[tools]\nenable = ["WebFetch"]\n[workspace]\nnetwork_allow = ["example.com"]\n'
    (project / ".agent/config.toml").write_text(config, encoding="utf-8")
    refused = [note for note in cli.json("WebFetch", url)["notes"] if "refused all the same" in note]
    assert refused == [] if says is None else says in refused[0]


def test_a_tool_of_no_known_name_has_a_neighbour(project: Path, cli: Cli) -> None:
    assert any("Bsh (nearest: Bash)" in note for note in cli.json("Bsh", "command=x")["notes"])
    assert not any("known here" in note for note in cli.json("mcp__x__y", "a=1")["notes"])


def test_a_rule_that_can_never_fit_ends_it_with_its_line(project: Path, cli: Cli) -> None:
    rules = '\n[[rule]]\ntool = "Read"\ncommand = "git"\nverdict = "deny"\n'
    (project / ".agent/policy.toml").write_text(rules, encoding="utf-8")
    error = cli.json("grep", "x", code=2)["error"]
    assert error["code"] == "rule-unreachable" and "policy.toml:2" in error["message"]


def test_a_policy_with_a_mistake_explains_that(project: Path, cli: Cli) -> None:
    (project / ".agent/policy.toml").write_text('[[rule]]\ntol = "x"\nverdict = "deny"\n', encoding="utf-8")
    error = cli.json("grep", "x", code=2)["error"]
    assert error["code"] == "policy-invalid" and "policy.toml:1" in error["message"] and "'tool'" in error["hint"]


def test_a_rule_about_no_tool_is_pointed_out(project: Path, cli: Cli) -> None:
    rules = '[[rule]]\ntool = ["skil_run", "mcp__x", "my_*", "Bash", "install_dependencies"]\nverdict = "deny"\n'
    (project / ".agent/policy.toml").write_text(rules, encoding="utf-8")
    notes = [note for note in cli.json("grep", "x")["notes"] if "is not known here" in note]
    assert len(notes) == 1 and "skil_run (nearest: skill_run)" in notes[0]


@pytest.mark.parametrize(
    "call",
    [
        ("select_skills", '{"skills": ["plain"]}'),
        ("Skill", '{"skill": {"name": "plain"}}'),
        ("Bash", '{"skill_name": "plain", "command": "ls"}'),
        ("skill_read", '{"name": "plain"}'),
        ("skill_list_docs", "project:plain"),
    ],
)
def test_what_a_call_says_is_not_replaced_by_an_option(project: Path, cli: Cli, call: tuple[str, str]) -> None:
    error = cli.json(*call, "--skill", "release", code=2)["error"]
    assert error["code"] == "usage" and "plain', and --skill does not" in error["message"]
    for skills in (("--skill", "plain"), ("--skill", "release", "--skill", "project:plain")):
        assert cli.json(*call, *skills, "--executor", "local")["skill"]["id"] == "project:plain"


def test_nor_is_what_it_says_wrongly(project: Path, cli: Cli) -> None:
    found = cli.json("select_skills", '{"skills": ["plain", "release"]}', "--skill", "release")
    assert any("load one skill at a time" in note for note in found["notes"])
    assert cli.json("skill_load", '{"skill": null}', "--skill", "plain")["skill"]["id"] == "project:plain"


def test_an_unknown_skill_has_a_neighbour(project: Path, cli: Cli) -> None:
    assert "release" in json.dumps(cli.json("skill_run", "ls", "--skill", "relase", code=1)["error"])


def test_nothing_of_an_argument_reaches_the_terminal(project: Path, cli: Cli) -> None:
    out = cli("tool\x1b[31m", "a=\x1b[2J\u202e")
    assert "\x1b" not in out and "\u202e" not in out


def test_a_rule_about_a_tool_that_does_not_exist_is_said_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    managed = tmp_path / "managed.toml"
    managed.write_text('[[rule]]\ntool = "Bsh"\nverdict = "deny"\n', encoding="utf-8")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(managed))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text('[{"text": "done"}]', encoding="utf-8")
    assert main(["run", "x", "--model", "scripted:s.json", "--root", "."]) == 0
    assert "names a tool that is not known here: Bsh (nearest: Bash)" in capsys.readouterr().err
