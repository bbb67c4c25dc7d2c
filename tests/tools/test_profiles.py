"""What a model is told about the tools, and what that costs: numbers that only go down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from prowess._internal.tokens import get_counter
from prowess.core.tool_table import Profile
from prowess.core.values import SessionKey, ToolSpec
from prowess.errors import ConfigError
from prowess.models.providers.message_order import OrderedMessages
from prowess.models.providers.openai_chat import render_request
from prowess.runtime.kit_preview import fixed_prompt
from prowess.runtime.runtime import open_runtime
from prowess.runtime.services.inspect_skill import count_fixed
from prowess.tools.ask_user import AskUser
from prowess.tools.builtin import PROFILES, advertised, slim
from prowess.tools.files.grep import Grep
from prowess.tools.files.list import ListDir
from prowess.tools.files.read import ReadFile
from prowess.tools.files.write import DeleteFile, WriteFile
from prowess.tools.network_request import NetworkRequest
from prowess.tools.plan import UpdatePlan
from prowess.tools.run.skill_run import SkillRun
from prowess.tools.run.terminals import SkillExec, SkillKillSession, SkillPollSession, SkillWriteStdin
from prowess.tools.session_work import SessionWork, WorkOptions
from prowess.tools.skills.docs import SkillListDocs, SkillSelectDocs
from prowess.tools.skills.load import SkillLoad
from prowess.tools.skills.loaded import LoadedSkills
from prowess.tools.skills.read import SkillRead
from prowess.tools.skills.search import SkillSearch
from prowess.tools.skills.unload import SkillUnload

NOTHING = cast(Any, None)  # a spec does not depend on what its tool works with
EMPTY = LoadedSkills(SessionWork(SessionKey(session="s"), WorkOptions(dir=""), NOTHING), NOTHING, load_first=NOTHING)
SPECS = {
    tool.spec.name: tool.spec
    for tool in (
        SkillLoad,
        SkillListDocs,
        SkillSelectDocs,
        SkillRead,
        SkillUnload,
        SkillSearch,
        SkillRun(NOTHING),
        SkillExec(NOTHING, NOTHING),
        SkillWriteStdin,
        SkillPollSession,
        SkillKillSession,
        UpdatePlan,
        AskUser,
        ReadFile,
        ListDir,
        Grep,
        WriteFile,
        DeleteFile,
        NetworkRequest,
    )
}
SWITCHED = ("delete_file", "network_request")
DEFAULT = (
    *("skill_load", "skill_list_docs", "skill_select_docs", "skill_read", "skill_run"),
    *("read_file", "write_file"),
)
LEAN = ("skill_load", "skill_read", "skill_run")
INTERACTIVE = {"skill_exec", "skill_write_stdin", "skill_poll_session", "skill_kill_session"}


def names(
    profile: str, *, has_skills: bool = True, can_run: bool = True, needs_search: bool = False, enabled: Any = ()
) -> tuple[str, ...]:
    return advertised(profile, has_skills=has_skills, can_run=can_run, needs_search=needs_search, enabled=enabled)


def render(spec: ToolSpec) -> str:
    told = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)


def test_the_three_profiles() -> None:
    assert PROFILES == ("default", "lean", "full")
    assert names("default") == DEFAULT and names("lean") == LEAN
    more = {"skill_unload", "ask_user", "update_plan", "list_dir", "grep"}
    assert set(names("full")) == {*DEFAULT, *INTERACTIVE, *more}
    assert set(names("full", needs_search=True, enabled=SWITCHED)) == SPECS.keys()


def test_any_tool_can_be_enabled_in_any_profile() -> None:
    assert names("default", enabled=("grep", "update_plan")) == (
        *DEFAULT[:5],
        "update_plan",
        "read_file",
        "grep",
        "write_file",
    )
    assert names("lean", enabled=("update_plan",)) == (*LEAN, "update_plan")
    assert names("lean", enabled=("write_file", "skill_exec"), can_run=False) == ("skill_load", "skill_read")
    assert names("lean", has_skills=False, enabled=("update_plan", "delete_file")) == ("update_plan", "delete_file")


@pytest.mark.parametrize("profile", PROFILES)
def test_what_cannot_be_used_is_not_told(profile: str) -> None:
    assert names(profile, has_skills=False, needs_search=True) == (("update_plan",) if profile == "full" else ())
    still = names(profile, can_run=False)
    assert not INTERACTIVE & set(still) and "skill_read" in still
    assert "skill_run" not in still and "write_file" not in still
    assert "skill_search" not in names(profile) and "skill_search" in names(profile, needs_search=True)
    assert [name for name in names(profile, needs_search=True) if name != "skill_search"] == list(names(profile))


def test_an_unknown_profile() -> None:
    for call in (lambda: names("leen"), lambda: slim(SPECS["skill_run"], "leen")):
        with pytest.raises(ConfigError) as refused:
            call()
        assert refused.value.code == "profile-unknown" and "'lean'" in (refused.value.hint or "")


# Raising one of these is a decision: every request of every user pays for it.
@pytest.mark.parametrize(("profile", "most"), [("default", 800), ("lean", 450)])
@pytest.mark.parametrize("skills", [1, 20])
def test_what_every_request_pays(tmp_path: Path, make_skill: Any, profile: Profile, most: int, skills: int) -> None:
    """In the bytes of Chat Completions; the lean profile also names the skills in a schema."""
    for number in range(skills):
        make_skill(tmp_path / f"report-writer-{number}")
    exact = get_counter(exact=True)
    with open_runtime(cwd=str(tmp_path), environ={}, roots=[str(tmp_path)]) as runtime:
        guidance, specs = fixed_prompt(runtime, profile)
        counted = count_fixed(runtime, exact)[profile]
    body = render_request(OrderedMessages(system=[], turns=[]), specs, None)
    tools = exact(json.dumps(body["tools"], ensure_ascii=False, separators=(",", ":")))
    assert [spec.name for spec in specs] == list(names(profile))
    assert "Tooling and workspace guidance:" in guidance
    assert counted == (exact(guidance), tools, exact(guidance) + tools)
    assert counted.tokens <= most


@pytest.mark.parametrize("name", SPECS)
def test_no_schema_makes_a_model_write_bash_c(name: str) -> None:
    for profile in PROFILES:
        assert "bash" not in render(slim(SPECS[name], profile))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", SPECS)
def test_a_slim_spec_is_the_same_tool(profile: str, name: str) -> None:
    spec = SPECS[name]
    told = slim(spec, profile)
    jsonschema.Draft202012Validator.check_schema(told.parameters)
    assert (told.name, told.read_only) == (name, spec.read_only) and told.description
    assert told.parameters["properties"].keys() <= spec.parameters["properties"].keys()
    assert told.parameters.get("required") == spec.parameters.get("required")
    assert len(render(told)) <= len(render(spec)) and render(slim(spec, profile)) == render(told)
    assert slim(told, profile).parameters == told.parameters, "once is enough"
    if profile == "full":
        assert told == spec


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_told_is_accepted(profile: str) -> None:
    """A call that fits the schema is one that the tool takes."""
    given = {
        "skill_load": {"skill": "a"},
        "skill_read": {"skill": "a", "path": "x.md", "section": "Setup"},
        "skill_run": {"skill": "a", "script": "x.py", "args": ["1"], "output_files": ["out/*.txt"]},
        "update_plan": {"plan": {"goal": "g", "steps": [{"id": "s1", "title": "t", "status": "pending"}]}},
    }
    tools = {"skill_load": SkillLoad(NOTHING), "skill_read": SkillRead(EMPTY), "skill_run": SkillRun(NOTHING)}
    tools["update_plan"] = UpdatePlan(NOTHING, NOTHING)
    for name, args in given.items():
        jsonschema.validate(args, slim(SPECS[name], profile).parameters)
        assert tools[name].normalise(args)
    if profile != "lean":
        whole = {
            "skill": "a",
            "command": "x",
            "cwd": "$WORK_DIR",
            "env": {"A": "1"},
            "stdin": "y",
            "inputs": [{"from": "artifact://a", "to": "work/a.csv", "mode": "link", "pin": True}],
            "outputs": {"globs": ["out/**"], "inline": True, "save": True, "name_template": "p/", "max_files": 5},
            "output_files": ["out/*.txt"],
            "timeout": 5,
            "save_as_artifacts": True,
            "omit_inline_content": True,
            "artifact_prefix": "p/",
        }
        jsonschema.validate(whole, slim(SPECS["skill_run"], profile).parameters)
        assert tools["skill_run"].normalise(whole) == whole
    short = {"skill": "a", "command": "x", "inputs": ["workspace://out/a.csv"]}
    assert tools["skill_run"].normalise(short)["inputs"] == [{"from": "workspace://out/a.csv"}]


def test_the_default_profile_tells_every_argument_of_the_source() -> None:
    """Of skill_run as the source documents have it, down to the fields of inputs and outputs."""
    told = slim(SPECS["skill_run"], "default").parameters["properties"]
    assert {*SPECS["skill_run"].parameters["properties"]} - {*told} == {"install"}, "the source has none"
    whole = SPECS["skill_run"].parameters["properties"]
    for name, fields in (("inputs", whole["inputs"]["items"]), ("outputs", whole["outputs"])):
        assert not [field for field in fields["properties"] if field not in told[name]["description"]]
    for scheme in ("artifact://name[@version]", "host:///", "workspace://", "skill://name/", "copy|link"):
        assert scheme in told["inputs"]["description"]


def test_what_is_not_told_is_accepted_as_well() -> None:
    whole = {"skill": "a", "command": "x", "cwd": "assets", "env": {"A": "1"}, "stdin": "y", "save_as_artifacts": True}
    assert SkillRun(NOTHING).normalise(whole) == whole
    assert SkillRead(EMPTY).normalise({"skill": "a", "path": "x", "start_line": 3, "num_lines": 2})
    assert UpdatePlan(NOTHING, NOTHING).normalise({"patch": {"remove": ["s1"]}})
