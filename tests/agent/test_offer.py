"""What the model of our own loop is told besides the skills: few words, and nothing that is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import Played, call, play
from prowess.agent.prompt import render_guidance
from prowess.models.actions.model import StructuredActions

DONE = {"text": "done"}
LEAN = {"tools.profile": "lean"}
HEADING = "Tooling and workspace guidance:\n"
LOAD = "- When a task matches a skill's description, call skill_load at once.\n"
DOCS = "- Body first, then the docs you need: skill_list_docs, skill_select_docs.\n"
RUN = "- Run what the skill's text asks for with skill_run."
WRITE = " Code that it tells you to write: write_file into work/, then run it."
PLACES = "- Given files are in inputs/. Results belong in out/."


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    make_skill(folder / "demo", description="Does demos.", body="DEMO-BODY\n")
    make_skill(folder / "other", description="Does others.")
    return folder


def system(played: Played, request: int = 0) -> str:
    return "\n".join(text for role, text in played.texts(request) if role == "system")


def schema(played: Played, request: int = 0) -> dict[str, Any]:
    """Of skill_load."""
    tools = played.model.requests[request][1]
    return next(dict(spec.parameters) for spec in tools if spec.name == "skill_load")


@pytest.mark.parametrize(
    ("settings", "guidance"),
    [
        ({}, LOAD + DOCS + RUN + WRITE + "\n" + PLACES),
        (LEAN, LOAD + "- Body first, then the docs you need: skill_read.\n" + RUN + "\n" + PLACES),
        ({"workspace.executor": "none"}, LOAD + DOCS + "- Given files are in inputs/."),
        ({**LEAN, "workspace.executor": "none"}, LOAD + "- Body first, then the docs you need: skill_read."),
        (
            {"tools.profile": "full"},
            f"{LOAD}{DOCS}{RUN}{WRITE}\n{PLACES}\n- More than one step: keep a plan with update_plan.",
        ),
        (
            {"tools.enable": ["TodoWrite"]},
            f"{LOAD}{DOCS}{RUN}{WRITE}\n{PLACES}\n- More than one step: keep a plan with update_plan.",
        ),
        ({**LEAN, "tools.enable": ["write_file"]}, None),
        ({"guidance": "Be good."}, "Be good."),
    ],
)
def test_the_guidance(root: Path, settings: dict[str, Any], guidance: str | None) -> None:
    told = system(play(root, [DONE], settings=settings))
    if guidance is None:
        assert RUN + WRITE in told
    else:
        assert told == f"Available skills:\n- demo: Does demos.\n- other: Does others.\n\n{HEADING}{guidance}"


def test_the_guidance_of_actions(root: Path) -> None:
    told = system(play(root, [{"action": {"type": "final_answer", "content": "x"}}], wrap=StructuredActions))
    assert "- When a task matches a skill's description, select_skills at once.\n" in told
    assert "the docs you need: load_resource.\n- Run what the skill's text asks for with run_script." in told
    assert "write: write_file into work/, then skill_run.\n" in told and '"plan"' not in told


def test_the_guidance_of_nothing() -> None:
    assert render_guidance([]) == "" and render_guidance(["stock"]) == ""


@pytest.mark.parametrize(("format", "first"), [("xml", "<available_skills>\n<skill>"), ("json", '{"skills": [')])
def test_the_form_of_the_catalog_is_a_setting(root: Path, format: str, first: str) -> None:
    told = system(play(root, [DONE], settings={"skills.catalog_format": format}))
    assert told.startswith(f"Available skills:\n{first}")
    kit = prowess.SkillKit(root, settings={"skills.catalog_format": "markdown"})
    assert kit.instructions.startswith("Available skills:\n- demo: Does demos.\n")
    assert prowess.SkillKit(root).instructions.startswith("Available skills:\n<available_skills>\n")


def test_a_source_is_told_where_a_name_is_ambiguous(tmp_path: Path, make_skill: Any) -> None:
    from prowess.skills.render import render_catalog

    for org in ("one", "two"):
        make_skill(tmp_path / org / "pdf", description=f"Of {org}.")
    make_skill(tmp_path / "csv", description="Alone.")
    catalog = prowess.discover(tmp_path)
    assert render_catalog(catalog, format="markdown", sources=False) == (
        "- csv: Alone.\n- one/pdf: Of one.\n- two/pdf: Of two."
    )


# --- names in the schema of skill_load --------------------------------------------------------------------------------


def test_a_small_model_is_held_to_the_names_that_there_are(root: Path) -> None:
    played = play(root, [call("skill_load", skill="demo"), DONE], settings=LEAN)
    assert schema(played) == {
        "type": "object",
        "properties": {"skill": {"type": "string", "enum": ["demo", "other"]}},
        "required": ["skill"],
    }
    assert "DEMO-BODY" in played.text()
    for settings in ({}, {"tools.profile": "full"}, {**LEAN, "skills.budget": 1}):
        assert "enum" not in json.dumps(schema(play(root, [DONE], settings=settings))["properties"]["skill"])
    kit = prowess.SkillKit(root, settings=LEAN)
    assert "enum" not in json.dumps(kit.schemas())


def test_of_those_that_it_may_load_and_at_most_thirty(root: Path, make_skill: Any) -> None:
    settings = {**LEAN, "skills.modes": {"other": "manual", "demo": "name-only"}}
    assert schema(play(root, [DONE], settings=settings))["properties"]["skill"]["enum"] == ["demo"]
    for number in range(28):
        make_skill(root / f"skill-{number:02}")
    assert len(schema(play(root, [DONE], settings=LEAN))["properties"]["skill"]["enum"]) == 30
    make_skill(root / "one-more")
    assert "enum" not in schema(play(root, [DONE], settings=LEAN))["properties"]["skill"]


def test_the_names_stay_as_they_are_within_an_epoch(root: Path, make_skill: Any) -> None:
    def adds(messages: Any, tools: Any) -> Any:
        make_skill(root / "late")
        return call("skill_load", skill="demo")

    played = play(root, [adds, DONE, DONE], "one", "two", settings=LEAN)
    names = [schema(played, request)["properties"]["skill"]["enum"] for request in range(3)]
    assert names[:2] == [["demo", "other"]] * 2
    assert len(played.of("epoch_started")) == 2, "one for each request of the user"


def test_a_tool_that_is_not_told_is_called_all_the_same(root: Path) -> None:
    script = [
        call("update_plan", plan={"goal": "g", "steps": []}),
        call("skill_load", skill="demo", docs=[], include_all_docs=True),
        call("list_dir", path="work"),
        call("grep", pattern="x"),
        DONE,
    ]
    played = play(root, script, settings=LEAN)
    assert [each["status"] for each in played.outcomes] == ["ok"] * 4
