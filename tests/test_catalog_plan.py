"""What the model is shown: whole descriptions within a budget, everything else said; the same bytes every time."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

import prowess
from prowess._tokens import estimate
from prowess.skills.entry import Root


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
