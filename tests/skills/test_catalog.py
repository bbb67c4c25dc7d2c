"""The catalog: which skill is meant, who may have it, and that listing, loading and searching never disagree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from prowess.core.findings import Note
from prowess.skills.catalog import Catalog
from prowess.skills.head import Controls
from prowess.skills.skill import PRIORITY, Entry


def entry(name: str, source: str = "project", *, rel: str | None = None, trusted: bool = True, **more) -> Entry:
    fields = {
        "file": "SKILL.md",
        "declared": None,
        "description": f"Does {name}. Use when asked.",
        "version": None,
        "keywords": (),
        "controls": Controls(),
        "size_bytes": 100,
        "notes": (),
        **more,
    }
    return Entry(source=source, root=f"/{source}", rel=rel or name, name=name, trusted=trusted, **fields)  # type: ignore[arg-type]


BROKEN = (Note("description-missing", 1),)


def statuses(catalog: Catalog) -> dict[str, str]:
    return {e.id: catalog.visibility(e).status for e in catalog}


# --- which one is meant -----------------------------------------------------------------------------------------------


def test_priority_decides_and_the_loser_is_shadowed_and_loadable_by_id():
    catalog = Catalog([entry("pdf", source) for source in reversed(PRIORITY) if source != "mcp"])
    assert catalog.get("pdf").source == "explicit"
    assert statuses(catalog) == {
        "explicit:pdf": "active",
        "project:pdf": "shadowed",
        "user:pdf": "shadowed",
        "url:pdf": "shadowed",
        "builtin:pdf": "shadowed",
    }
    assert catalog.get("user:pdf").source == "user"
    assert catalog.get("pdf", source="builtin").source == "builtin"
    assert catalog.allow(catalog.get("user:pdf")).status == "shadowed", "a shadowed skill can be had by its id"


@pytest.mark.parametrize(
    ("made", "trigger", "code"),
    [
        (entry("pdf", "user", trusted=False), "caller", "skill-untrusted"),
        (entry("pdf", "user", controls=Controls(mode="manual")), "model", "skill-manual"),
        (entry("pdf", "user", controls=Controls(mode="manual", user_invocable=False)), "caller", "skill-hidden"),
    ],
)
def test_being_shadowed_lifts_no_restriction(made, trigger, code):
    catalog = Catalog([entry("pdf", "project"), made])
    assert catalog.visibility(catalog.get("user:pdf")).status == "shadowed"
    with pytest.raises(prowess.SkillDenied) as refused:
        catalog.allow(catalog.get("user:pdf"), trigger=trigger)
    assert refused.value.code == code


def test_the_narrower_mode_counts_wherever_it_stands():
    modes = {"*": "off", "p*": "manual", "pdf": "name-only", "project:pdf": "pin"}
    for order in (modes, dict(reversed(modes.items()))):
        catalog = Catalog([entry("pdf"), entry("pptx"), entry("csv"), entry("pdf", "user")], modes=order)
        assert [catalog.visibility(e).mode for e in catalog] == ["pin", "manual", "off", "name-only"]


def test_a_name_that_is_there_is_never_suggested_as_itself():
    catalog = Catalog([entry("gamma", rel="a/gamma", trusted=False), entry("gamma", rel="b/gamma", trusted=False)])
    for source in (None, "user"):
        with pytest.raises(prowess.SkillNotFound) as missing:
            catalog.get("gamma", source=source)
        assert "Say which: project:a/gamma, project:b/gamma" in (missing.value.hint or "")


def test_an_untrusted_skill_never_shadows_a_trusted_one():
    catalog = Catalog([entry("pdf", "project", trusted=False), entry("pdf", "user")])
    assert catalog.get("pdf").id == "user:pdf"
    assert statuses(catalog) == {"project:pdf": "shadowed", "user:pdf": "active"}


def test_what_is_broken_or_off_stands_in_nobodys_way():
    catalog = Catalog(
        [entry("pdf", "project", notes=BROKEN), entry("pdf", "user"), entry("csv", "project"), entry("csv", "user")],
        modes={"project:csv": "off"},
    )
    assert catalog.get("pdf").id == "user:pdf" and catalog.get("csv").id == "user:csv"
    assert statuses(catalog) == {
        "project:pdf": "invalid",
        "project:csv": "off",
        "user:pdf": "active",
        "user:csv": "active",
    }


def test_two_of_one_name_in_one_source_have_two_ids():
    catalog = Catalog([entry("pdf", rel="pdf"), entry("pdf", rel="pdf")._replace(root="/project/other")])
    first, second = catalog
    assert first.id == "project:pdf" and second.id.startswith("project:pdf@") and first.id != second.id
    assert catalog.get(second.id) is second


def test_folders_above_a_skill_are_its_namespace():
    catalog = Catalog([entry("pdf", rel="acme/pdf"), entry("csv", rel="acme/csv"), entry("csv", rel="other/csv")])
    assert [e.id for e in catalog] == ["project:acme/pdf", "project:acme/csv", "project:other/csv"]
    assert catalog.get("pdf").id == "project:acme/pdf", "the bare name means it while it is unique"
    assert catalog.get("acme/csv").id == "project:acme/csv"
    with pytest.raises(prowess.SkillNotFound) as unclear:
        catalog.get("csv")
    assert unclear.value.code == "skill-ambiguous" and unclear.value.near == ("project:acme/csv", "project:other/csv")


@pytest.mark.parametrize("asked", ["PDF-Forms", "pdf_forms", "Pdf Forms", "project:pdf-forms", "declared-name"])
def test_look_ups_forgive(asked):
    catalog = Catalog([entry("pdf-forms", declared="declared-name"), entry("csv")])
    assert catalog.get(asked).name == "pdf-forms"


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("pdf-form", ("pdf-forms",)),
        ("csvs", ("csv",)),
        ("pdf", ("pdf-forms",)),
        ("zzzzzz", ()),
        ("", ()),
        ("../etc", ()),
        ("production-down", ()),  # a shared word is no reason
        ("production-upp", ("production-up",)),
        ("up-production", ("production-up",)),
        ("prodction-up", ("production-up",)),
        ("csv-production-up", ()),
    ],
)
def test_a_miss_says_what_comes_close(asked, near):
    catalog = Catalog([entry("pdf-forms"), entry("csv"), entry("production-up")])
    with pytest.raises(prowess.SkillNotFound) as missing:
        catalog.get(asked)
    assert missing.value.near == near and missing.value.hint and missing.value.code == "skill-not-found"


def test_a_miss_in_an_empty_library_says_so():
    with pytest.raises(prowess.SkillNotFound, match="No skills are installed"):
        Catalog().get("pdf")


# --- who may have it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "modes", "status", "model", "user"),
    [
        (entry("a"), {}, "active", True, True),
        (entry("a"), {"a": "pin"}, "active", True, True),
        (entry("a"), {"a": "name-only"}, "active", True, True),
        (entry("a"), {"a": "manual"}, "manual", False, True),
        (entry("a"), {"*": "off"}, "off", False, False),
        (entry("a"), {"*": "off", "a": "auto"}, "active", True, True),
        (entry("a"), {"project:*": "manual"}, "manual", False, True),
        (entry("a", controls=Controls(mode="manual")), {}, "manual", False, True),
        (entry("a", controls=Controls(mode="manual")), {"*": "pin"}, "manual", False, True),
        (entry("a", controls=Controls(mode="manual")), {"a": "name-only"}, "manual", False, True),
        (entry("a", controls=Controls(mode="manual")), {"a": "auto"}, "active", True, True),
        (entry("a", controls=Controls(user_invocable=False)), {}, "active", True, False),
        (entry("a", controls=Controls(mode="manual", user_invocable=False)), {}, "hidden", False, False),
        (entry("a", trusted=False), {"a": "pin"}, "untrusted", False, True),
        (entry("a", notes=BROKEN), {"a": "off"}, "invalid", False, True),
    ],
)
def test_the_visibility_table(made, modes, status, model, user):
    catalog = Catalog([made], modes=modes)
    seen = catalog.visibility(made)
    assert (seen.status, seen.model_visible, seen.user_visible) == (status, model, user)
    assert seen.reasons or (status == "active" and not modes)


@pytest.mark.parametrize(
    ("made", "trigger", "code"),
    [
        (entry("a", trusted=False), "user", "skill-untrusted"),
        (entry("a", controls=Controls(mode="manual")), "model", "skill-manual"),
        (entry("a", controls=Controls(mode="manual")), "user", None),
        (entry("a", controls=Controls(mode="manual")), "caller", None),
        (entry("a", controls=Controls(mode="manual", user_invocable=False)), "caller", "skill-hidden"),
        (entry("a", controls=Controls(user_invocable=False)), "user", "skill-not-invocable"),
        (entry("a", controls=Controls(user_invocable=False)), "model", None),
        (entry("a", controls=Controls(user_invocable=False)), "caller", None),
        (entry("a", notes=BROKEN), "caller", "skill-invalid"),
        (entry("a"), "model", None),
    ],
)
def test_a_refusal_has_a_code_and_says_what_to_do(made, trigger, code):
    catalog = Catalog([made])
    if code is None:
        assert catalog.allow(made, trigger=trigger).status in ("active", "manual")
        return
    with pytest.raises((prowess.SkillDenied, prowess.SkillInvalid)) as refused:
        catalog.allow(made, trigger=trigger)
    assert refused.value.code == code and refused.value.hint
    assert refused.value.exit_code == (3 if isinstance(refused.value, prowess.SkillDenied) else 1)


def test_angle_brackets_are_refused_where_the_owner_says_so(tmp_path, make_skill):
    make_skill(tmp_path / "tagged", description="<b>Bold</b>. Use when asked.")
    assert statuses(prowess.discover(tmp_path)) == {"explicit:tagged": "active"}
    strict = prowess.discover(tmp_path, refuse_angle_brackets=True)
    assert statuses(strict) == {"explicit:tagged": "invalid"}
    assert [f.code for f in strict.findings] == ["angle-brackets-refused"]


def test_a_mode_that_matches_nothing_is_a_finding(tmp_path, make_skill):
    make_skill(tmp_path / "pdf")
    found = prowess.discover(tmp_path, modes={"pdf": "manual", "pfd": "off"})
    assert [(f.code, "pfd" in f.message) for f in found.findings] == [("mode-unmatched", True)]


# --- a filtered view --------------------------------------------------------------------------------------------------


def test_a_hidden_skill_is_as_if_it_were_not_there(tmp_path, make_skill):
    for name in ("secret-plans", "public"):
        make_skill(tmp_path / name, files={"a.md": "x"})
    view = prowess.discover(tmp_path, modes={"secret-plans": "pin"}).where(lambda e: e.name != "secret-plans")
    never = prowess.discover(tmp_path / "public")
    assert prowess.render_catalog(view) == prowess.render_catalog(never)

    def error_of(catalog: Catalog) -> dict:
        with pytest.raises(prowess.SkillNotFound) as missing:
            prowess.load(catalog, "secret-plans")
        return missing.value.to_json()

    assert error_of(view) == error_of(never), "the error does not tell it from one that does not exist"
    assert not any("secret" in str(f) for f in view.findings)
    assert [root.skills for root in view.roots] == [1] and view.modes == {}


def test_what_a_hidden_skill_shadowed_comes_to_light():
    catalog = Catalog([entry("pdf", "project"), entry("pdf", "user")])
    assert catalog.where(lambda e: e.source != "project").get("pdf").id == "user:pdf"


# --- agreement --------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["pdf", "pdf-forms", "PDF", "csv", "a/pdf", "a/b/csv"])
ENTRIES = st.builds(
    lambda name, source, trusted, mode, user, broken: entry(
        name.rpartition("/")[2],
        source,
        rel=name,
        trusted=trusted,
        controls=Controls(mode=mode, user_invocable=user),
        notes=BROKEN if broken else (),
    ),
    NAMES,
    st.sampled_from(PRIORITY),
    st.booleans(),
    st.sampled_from(["auto", "auto", "manual"]),
    st.booleans(),
    st.integers(0, 4).map(lambda n: n == 0),
)
MODES = st.dictionaries(
    st.sampled_from(["pdf", "*", "project:*", "a/*", "csv"]),
    st.sampled_from(["pin", "auto", "name-only", "manual", "off"]),
)


@given(st.lists(ENTRIES, max_size=12), MODES)
def test_listing_resolving_planning_and_rendering_agree(entries, modes):
    catalog = Catalog(entries, modes=modes)
    ids = [e.id for e in catalog]
    assert len(set(ids)) == len(ids), "ids are unique"
    assert all(catalog.get(e.id) is e for e in catalog), "an id means its skill"
    plan = prowess.plan_catalog(catalog, budget_tokens=10_000)
    lists = [*plan.shown, *plan.name_only, *plan.searchable, *plan.hidden]
    assert sorted(lists) == sorted(ids), "every skill is in exactly one list"
    visible = {e.id for e in catalog if catalog.visibility(e).model_visible}
    assert {*plan.shown, *plan.name_only, *plan.searchable} == visible
    from prowess.skills.render import shown_names

    labels = shown_names(catalog, [e for e in catalog if e.id in visible])
    for id, (label, _) in labels.items():
        assert catalog.get(label).id == id, "what a model is shown is what it can ask for"
    for e in catalog:
        if catalog.visibility(e).model_visible:
            catalog.allow(e, trigger="model")
        else:
            if catalog.visibility(e).status != "shadowed" or not e.trusted:
                with pytest.raises((prowess.SkillDenied, prowess.SkillInvalid)):
                    catalog.allow(e, trigger="model")
    for name in {e.qualified for e in catalog}:
        found = catalog.find(name)
        same = [e for e in catalog if e.qualified == name and e.source != "mcp"]
        if found in same:
            usable = [e for e in same if catalog.visibility(e).status not in ("invalid", "off")]
            best = min((not e.trusted, PRIORITY.index(e.source)) for e in usable or same)
            assert (not found.trusted, PRIORITY.index(found.source)) == best
