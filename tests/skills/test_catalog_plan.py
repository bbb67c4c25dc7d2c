"""What the model is shown: whole descriptions within a budget, everything else said; the same bytes every time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from agents import play
from command_lines import run_here
from prowess._internal.tokens import estimate
from prowess.models.scripted import ScriptedModel
from prowess.skills.skill import Root
from stub_provider import Answer, chat, open_stub


def test_nothing_when_there_are_no_skills():
    catalog = prowess.discover()
    assert [prowess.render_catalog(catalog, format=form) for form in ("xml", "markdown", "json")] == ["", "", ""]
    plan = prowess.plan_catalog(catalog)
    assert plan.tokens.used == 0 and prowess.render_catalog(catalog, plan) == ""


def test_the_three_forms(tmp_path, make_skill):
    make_skill(tmp_path / "pdf", description='Reads <PDF> & "forms".\nUse when asked.')
    make_skill(tmp_path / "csv")
    catalog = prowess.discover(tmp_path)
    assert prowess.render_catalog(catalog) == (
        "<available_skills>\n"
        "<skill>\n<name>\ncsv\n</name>\n<description>\n"
        "Does one thing. Use when the user asks for it.\n</description>\n</skill>\n"
        "<skill>\n<name>\npdf\n</name>\n<description>\n"
        "Reads &lt;PDF&gt; &amp; &quot;forms&quot;.\nUse when asked.\n</description>\n</skill>\n"
        "</available_skills>"
    )
    assert prowess.render_catalog(catalog, format="markdown") == (
        "- csv: Does one thing. Use when the user asks for it. (explicit)\n"
        '- pdf: Reads &lt;PDF&gt; &amp; "forms". Use when asked. (explicit)'
    )
    assert json.loads(prowess.render_catalog(catalog, format="json", locations=True)) == {
        "skills": [
            {
                "name": "csv",
                "description": "Does one thing. Use when the user asks for it.",
                "source": "explicit",
                "location": str(tmp_path / "csv" / "SKILL.md"),
            },
            {
                "name": "pdf",
                "description": 'Reads <PDF> & "forms".\nUse when asked.',
                "source": "explicit",
                "location": str(tmp_path / "pdf" / "SKILL.md"),
            },
        ]
    }


def test_a_source_is_added_only_where_the_name_is_not_enough(tmp_path):
    far = "---\nname: pdf\ndescription: Use when far.\n---\n"
    near = "---\nname: pdf\ndescription: Use when near.\n---\n"
    catalog = prowess.discover(
        prowess.Skill.from_text(far, source="mcp"), prowess.Skill.from_text(near), accepts=lambda place, digest: True
    )
    text = prowess.render_catalog(catalog)
    assert "<name>\npdf\n</name>" in text and "<name>\nmcp:pdf\n</name>" in text
    assert text.count("<source>") == 1 and "<source>\nmcp\n</source>" in text


def test_over_budget_the_rest_is_searchable_and_one_line_says_so(tmp_path, make_skill):
    for number in range(30):
        make_skill(tmp_path / f"s{number:02}", description=f"Number {number}. Use when asked for {number}.")
    catalog = prowess.discover(tmp_path, modes={"s29": "pin", "s28": "name-only", "s27": "manual", "s26": "off"})
    plan = prowess.plan_catalog(catalog, budget_tokens=300)
    assert plan.shown[0] == "explicit:s29", "pinned first"
    assert plan.shown[1:3] == ("explicit:s00", "explicit:s01"), "then by name"
    assert plan.hidden == ("explicit:s26", "explicit:s27")
    assert plan.tokens.used <= 300
    text = prowess.render_catalog(catalog, plan)
    assert estimate(text) <= 300 and text.count("<skill>") == len(plan.shown)
    assert (
        text.splitlines()[-1].startswith(f"{len(plan.searchable)} more skills are installed") and "skill_search" in text
    )
    whole = prowess.plan_catalog(catalog)
    assert not whole.searchable and whole.name_only == ("explicit:s28",)
    assert "<name>\ns28\n</name>\n</skill>" in prowess.render_catalog(catalog, whole)


@pytest.fixture
def library(tmp_path, make_skill):
    for number in range(30):
        make_skill(tmp_path / "skills" / f"s{number:02}", description=f"Number {number}. Use when asked for {number}.")
    return tmp_path / "skills"


LEAST = "the least; 2 % of 10000, the window of openai:mine, are 200"
MORE = "more skills are installed and not listed here"


def test_the_budget_is_a_share_of_the_window_of_the_model_that_is_asked(library):
    def planned(window, **settings):
        model = ScriptedModel([{"text": "done"}], name="m", context_tokens=window)
        played = play(library, [], model=model, settings={f"skills.{name}": value for name, value in settings.items()})
        [event] = played.of("catalog_planned")
        assert (MORE in played.text(0)) is bool(event["plan"]["searchable"]), "what was left out is said"
        return event["plan"]["tokens"]["budget"]

    assert planned(4_096) == planned(10_000) == planned(20_000) == 400, "a small window has room for some skills"
    assert planned(20_050) == 401
    assert planned(1_000_000) == 20_000
    assert planned(None) == 4_000
    assert planned(10_000, budget=500) == 500, "a budget that is configured wins"


@pytest.mark.parametrize("verb", ["run", "chat"])
def test_the_command_line_takes_the_window_of_the_named_model(library, tmp_path, verb):
    (tmp_path / "small.toml").write_text("[model.params]\ncontext_tokens = 9000\n", encoding="utf-8")
    words = ["--config", "small.toml", verb, "--root", str(library), "--model", "openai:some"]
    with open_stub() as stub:
        stub.say(Answer(body=chat({"content": "Good day."})))
        environ = {"OPENAI_BASE_URL": f"{stub.url}/v1", "OPENAI_API_KEY": "sk-none"}
        given = ["hi"] if verb == "run" else []
        answer = run_here([*words, *given], cwd=tmp_path, input=b"hi\n", environ=environ)
        assert answer.code == 0, answer.err
        assert MORE in json.dumps(stub.body)


def test_prompt_and_doctor_say_which_budget_holds_and_why(library, tmp_path):
    def ask(*words):
        answer = run_here([*words, "--root", str(library), "--json"], cwd=tmp_path)
        assert answer.code == 0, answer.err
        return json.loads(answer.out)

    def budget(*words):
        plan = ask("prompt", "--plan", *words)
        return plan["tokens"]["budget"], plan["budget_why"]

    assert budget() == (4_000, "2 % of 200000: the window of offline is not known")
    assert budget("--model", "openai:gpt-4o") == (2_560, "2 % of 128000, the window of openai:gpt-4o")
    assert budget("--model", "openai:gpt-4o", "--budget", "300") == (300, "--budget")
    assert budget("--model", "scripted:x.yaml")[0] == 4_000
    config = tmp_path / "own.toml"
    config.write_text('[model]\nprovider = "openai:mine"\nparams = { context_tokens = 10000 }\n', encoding="utf-8")
    own = ["--config", str(config)]
    assert budget(*own) == (400, LEAST)
    catalog = ask("doctor", *own)["catalog"]
    assert (catalog["tokens"]["budget"], catalog["budget_why"]) == (400, LEAST)
    shown = run_here(["prompt", "--root", str(library), *own], cwd=tmp_path)
    assert f"over the budget of 400 tokens ({LEAST})" in shown.err and MORE in shown.out
    config.write_text("[skills]\nbudget = 700\n", encoding="utf-8")
    assert budget(*own, "--model", "openai:gpt-4o") == (700, f"skills.budget, {config}")


def test_a_kit_takes_the_window_of_the_model_that_it_is_for(library):
    small = {"model.provider": "openai:mine", "model.params": {"context_tokens": 10_000}}
    assert MORE in prowess.SkillKit(library, settings=small).instructions
    assert MORE not in prowess.SkillKit(library, settings={**small, "skills.budget": 9_000}).instructions
    assert MORE not in prowess.SkillKit(library).instructions


def test_source_priority_comes_before_names(tmp_path, make_skill):
    make_skill(tmp_path / "builtin" / "aaa")
    make_skill(tmp_path / "project" / "zzz")
    catalog = prowess.discover(Root("builtin", str(tmp_path / "builtin")), Root("project", str(tmp_path / "project")))
    assert prowess.plan_catalog(catalog).shown == ("project:zzz", "builtin:aaa")


@given(
    st.lists(st.integers(1, 400), min_size=0, max_size=25),
    st.integers(0, 1500),
    st.lists(st.sampled_from(["pin", "auto", "name-only", "manual", "off"]), min_size=25, max_size=25),
)
def test_the_budget_holds_and_nothing_is_lost(lengths, budget, modes):
    texts = [f"---\nname: s{n}\ndescription: {'word ' * length}when\n---\n" for n, length in enumerate(lengths)]
    catalog = prowess.discover(
        *(prowess.Skill.from_text(text) for text in texts), modes={f"s{n}": modes[n] for n in range(len(texts))}
    )
    plan = prowess.plan_catalog(catalog, budget_tokens=budget)
    lists = [*plan.shown, *plan.name_only, *plan.searchable, *plan.hidden]
    assert sorted(lists) == sorted(entry.id for entry in catalog)
    text = prowess.render_catalog(catalog, plan)
    pinned = [id for id in plan.shown if catalog.visibility(catalog.get(id)).mode == "pin"]
    shown_beyond_pins = len(plan.shown) + len(plan.name_only) - len(pinned)
    if shown_beyond_pins:
        assert estimate(text) <= budget
    for id in plan.shown:
        assert catalog.get(id).description in text, "a description is never cut"
    assert prowess.render_catalog(catalog, plan) == text
    assert (f"{len(plan.searchable)} more skill" in text) == bool(plan.searchable)


def test_the_order_in_which_files_were_written_changes_nothing(tmp_path, make_skill):
    for order, folder in (([1, 2, 3], "a"), ([3, 1, 2], "b")):
        for number in order:
            make_skill(tmp_path / folder / f"s{number}")
    assert prowess.render_catalog(prowess.discover(tmp_path / "a")) == prowess.render_catalog(
        prowess.discover(tmp_path / "b")
    )
