"""Places of skills: every door takes the same ones, alone or together, and refuses the same others."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from command_lines import run_here
from prowess.errors import ConfigError, SkillNotFound
from prowess.models.scripted import ScriptedModel
from prowess.skills.roots import BUILTIN
from prowess.skills.skill import Root, Skill
from prowess.testing import MemoryEventLog, skill_dir

MEMORY: dict[str, Any] = {"store": "memory:", "artifacts": "memory:"}


def made(name: str, body: str = "", source: Any = "explicit") -> Skill:
    return Skill.from_text(
        f"---\nname: {name}\ndescription: Does {name}. Use when asked.\n---\n{body}\n", source=source
    )


class Shop:
    """Skill source."""

    source = "mcp"

    def skills(self) -> Iterable[Skill]:
        return [made("sold", source="mcp")]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def folder(place: Path, *names: str) -> Path:
    for name in names:
        skill_dir(place, name, f"BODY-OF-{name}\n", description=f"Does {name}. Use when asked.")
    return place


def shown(skills: Any) -> str:
    """First request of an agent with these skills."""
    model = ScriptedModel([{"text": "ok"}])
    prowess.run_sync("hi", skills=skills, model=model, **MEMORY)
    return str(model.requests[0])


def offered(door: str, skills: Any) -> str:
    if door == "agent":
        return shown(skills)
    if door == "kit":
        return prowess.SkillKit(skills, **MEMORY).instructions
    if door == "discover":
        return prowess.render_catalog(prowess.discover(skills))
    return prowess.render_catalog(prowess.Library(skills).catalog)


DOORS = ["agent", "kit", "discover", "library"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("place", "found"),
    [
        (lambda at: str(folder(at / "a", "pdf")), "pdf"),
        (lambda at: folder(at / "a", "pdf"), "pdf"),
        (lambda at: made("greet"), "greet"),
        (lambda at: prowess.discover(folder(at / "a", "pdf")), "pdf"),
        (lambda at: prowess.discover(folder(at / "a", "pdf", "csv")).where(names=["pdf"]), "pdf"),
        (lambda at: prowess.Library([folder(at / "a", "pdf")]), "pdf"),
        (lambda at: prowess.Library([folder(at / "a", "pdf", "csv")]).where(names="pdf"), "pdf"),
        (lambda at: Root("user", str(folder(at / "a", "pdf"))), "pdf"),
        (lambda at: "builtin", "csv-report"),
        (lambda at: "default", "csv-report"),
    ],
)
def test_every_door_takes_every_place(door: str, place: Callable[[Path], Any], found: str, here: Path) -> None:
    given = place(here)
    for skills in (given, [given], ([given],)):
        text = offered(door, skills)
        assert found in text and "Does csv." not in text


def test_a_source_and_an_address_are_places_too(here: Path) -> None:
    archive = shutil.make_archive(str(here / "skills"), "zip", folder(here / "a", "pdf"))
    for door in (prowess.discover, lambda *given: prowess.Library(given).catalog):
        found = door(Shop(), f"file://{archive}")
        assert [(entry.id, entry.trusted) for entry in found] == [("url:pdf", False), ("mcp:sold", False)]


def test_without_skills_the_default_places_are_read_and_an_empty_list_reads_none(here: Path) -> None:
    model = ScriptedModel([{"text": "a"}, {"text": "b"}])
    prowess.run_sync("hi", model=model, **MEMORY)
    prowess.run_sync("hi", model=model, skills=[], **MEMORY)
    assert ["csv-report" in str(request) for request in model.requests] == [True, False]
    assert "csv-report" in prowess.SkillKit(**MEMORY).instructions
    assert prowess.SkillKit([], **MEMORY).instructions == ""
    assert len(prowess.discover()) == len(prowess.Library([]).catalog) == 0


def test_default_has_the_places_of_the_command_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(here / "project/.agent/skills", "mine")
    folder(here / "extra", "extra")
    monkeypatch.setenv("PROWESS_SKILLS_ROOT", str(here / "extra"))
    found = prowess.discover("default")
    assert found.get("mine").id == "project:mine" and not found.get("mine").trusted
    assert found.get("extra").id == "explicit:extra" and found.get("csv-report").source == "builtin"
    assert {entry.source for entry in prowess.discover("builtin")} == {"builtin"}
    monkeypatch.setenv("PROWESS_TRUST", "1")
    assert prowess.discover("default").get("mine").trusted
    assert "BODY-OF-mine" in str(load_with("default", "mine"))


def test_a_folder_called_builtin_is_written_as_a_path(here: Path) -> None:
    folder(here / "project/builtin", "pdf")
    assert [entry.name for entry in prowess.discover("./builtin")] == ["pdf"]
    assert [entry.name for entry in prowess.discover(Path("builtin"))] == ["pdf"]
    assert "pdf" not in prowess.discover("builtin")


# --- together ---------------------------------------------------------------------------------------------------------


def test_places_together_keep_their_order_and_their_ids(here: Path) -> None:
    library = prowess.Library([folder(here / "one", "pdf", "csv")])
    catalog = prowess.discover(folder(here / "three", "pdf", "xml", "secret"))
    places = [library, folder(here / "two", "pdf"), "builtin", catalog.where(names=["pdf", "xml"]), made("pdf"), Shop()]
    found = prowess.discover(places)
    ids = [entry.id for entry in found]
    assert len(ids) == len(set(ids)) and "secret" not in found
    pdfs = [entry for entry in found if entry.name == "pdf"]
    assert [entry.path for entry in pdfs] == [
        *(str(here / at / "pdf") for at in ("one", "two", "three")),
        "memory:0/pdf",
    ]
    assert found.get("pdf").id == "explicit:pdf" == pdfs[0].id
    assert [entry.source for entry in found] == sorted(
        (e.source for e in found), key=["explicit", "mcp", "builtin"].index
    )
    for entry in found:
        if entry.trusted:
            assert prowess.load(found, entry.id).entry.id == entry.id
    assert [entry.id for entry in prowess.discover(*places)] == ids, "the same in the next process"


def test_priority_is_that_of_the_sources_whatever_the_order(here: Path) -> None:
    user = prowess.discover(Root("user", str(folder(here / "u", "pdf"))))
    found = prowess.discover("builtin", user, folder(here / "e", "pdf"))
    assert [entry.id for entry in found][:2] == ["explicit:pdf", "user:pdf"]
    assert found.get("pdf").source == "explicit"


def test_each_skill_is_there_once(here: Path) -> None:
    at, greet = folder(here / "a", "pdf"), made("greet")
    catalog = prowess.discover(at, greet)
    found = prowess.discover(at, str(at), catalog, prowess.Library([at]), greet, greet, "builtin", "default")
    assert sorted(entry.id for entry in found if entry.source == "explicit") == ["explicit:greet", "explicit:pdf"]
    assert len([root for root in found.roots if root.path == str(at)]) == 1
    assert len(found.where(source="builtin")) == len(prowess.discover(BUILTIN))


def test_trust_and_modes_of_a_catalog_stay(here: Path) -> None:
    at = folder(here / "a", "doubtful", "off", "shown", "reserved")
    catalog = prowess.discover(Root("project", str(at), trusted=False))
    assert {entry.trusted for entry in prowess.discover(catalog, "builtin").where(source="project")} == {False}
    assert "doubtful" not in shown(catalog)
    modes: Any = {"off": "off", "reserved": "manual", "explicit:shown": "pin"}
    given = prowess.discover(at, modes=modes)
    for places in ([given], [given.where(lambda entry: True)], [prowess.Library([given]), "builtin"]):
        found = prowess.discover(places, modes={"*": "auto"})
        assert found.visibility(found.get("explicit:off")).status == "off"
        assert found.visibility(found.get("reserved")).status == "manual"
        assert prowess.discover(places).visibility(found.get("shown")).mode == "pin"
    text = shown(given)
    assert "Does shown." in text and "Does off." not in text and "Does reserved." not in text


def test_a_catalog_that_refuses_angle_brackets_goes_on_refusing(here: Path) -> None:
    skill_dir(here / "a", "tagged", "x", description="<b>Bold</b>. Use when asked.")
    strict = prowess.discover(here / "a", refuse_angle_brackets=True)
    for found in (prowess.discover(strict), strict.where(names="tagged")):
        assert found.visibility(found.get("tagged")).status == "invalid"


# --- views ------------------------------------------------------------------------------------------------------------


def test_a_view_is_made_by_names_source_or_a_function(here: Path) -> None:
    catalog = prowess.discover(folder(here / "a", "pdf", "pdf-forms", "csv"), "builtin")

    def names(view: prowess.Catalog) -> list[str]:
        return [entry.name for entry in view]

    assert names(catalog.where(names=["pdf", "csv"])) == ["csv", "pdf"]
    assert names(catalog.where(names="PDF_Forms")) == ["pdf-forms"]
    assert names(catalog.where(names=["explicit:pdf*"])) == ["pdf", "pdf-forms"]
    assert names(catalog.where(lambda entry: "p" in entry.name, source="explicit")) == ["pdf", "pdf-forms"]
    assert names(catalog.where(names=[])) == [] and len(catalog.where()) == len(catalog)


def test_a_name_that_fits_nothing_is_an_error(here: Path) -> None:
    at = folder(here / "a", "pdf", "secret-plans")
    view = prowess.discover(at).where(names=["pdf"])
    for where in (prowess.discover(at).where, prowess.Library(at).where):
        with pytest.raises(SkillNotFound, match="No skill 'pfd'") as missing:
            where(names=["pdf", "pfd"])
        assert [*missing.value.near] == ["pdf"]
    with pytest.raises(SkillNotFound) as missing:
        view.where(names=["secret-plan"])
    assert [*missing.value.near] == []
    wrong: list[Any] = [{"keep": "pdf"}, {"names": [1]}, {"source": "elsewhere"}]
    for conditions in wrong:
        with pytest.raises(ConfigError) as refused:
            view.where(**conditions)
        assert refused.value.code == "filter-invalid" and refused.value.hint


def test_a_view_of_one_tenant_tells_nothing_of_the_others(here: Path) -> None:
    (here / "all/zeta/broken").mkdir(parents=True)
    (here / "all/zeta/broken/SKILL.md").write_text("no front matter")
    (here / "all/zeta/loop").symlink_to(here / "nowhere-zeta")
    folder(here / "all/acme", "pdf", "notes")
    folder(here / "all/zeta", "pdf", "zeta-plans")
    folder(here / "zeta-only", "zeta-more", "notes")
    memory = made("zeta-memory")
    whole = prowess.Library([here / "zeta-only", here / "all", memory])
    assert "zeta" in str(whole.catalog.findings)

    def is_acme(entry: prowess.Entry) -> bool:
        return "/acme" in entry.path

    for view in (whole.catalog.where(is_acme), whole.where(is_acme).catalog):
        told = [*view, *view.findings, *view.roots, *view.modes, len(view), prowess.render_catalog(view)]
        for ref in ("zeta-plan", "zeta", "explicit:zeta-more", "zeta-memory"):
            with pytest.raises(SkillNotFound) as missing:
                view.get(ref)
            told += [missing.value.near, missing.value.hint]
        told += prowess.search_catalog(view, "zeta plans more memory pdf").results
        assert "zeta" not in str(told)
        assert [(root.path, root.skills) for root in view.roots] == [(str(here / "all"), 2)]
        assert [entry.id for entry in view] == ["explicit:acme/notes", "explicit:acme/pdf"]
        kit = prowess.SkillKit(view, **MEMORY)
        outcome = asyncio.run(called(kit, "skill_load", skill="zeta-plans"))
        searched = asyncio.run(called(prowess.SkillKit(view, **MEMORY), "skill_search", query="zeta plans"))
        assert outcome.status != "ok" and "did you mean" not in outcome.content.lower()
        assert "zeta" not in kit.instructions + str(kit.findings) + searched.content.replace("zeta plans", "")


def test_what_a_hidden_skill_shadowed_has_its_plain_id(here: Path) -> None:
    a, b = folder(here / "a", "pdf"), folder(here / "b", "pdf")
    catalog = prowess.discover(a, b, modes={"explicit:pdf": "off"})
    view = catalog.where(lambda entry: entry.root == str(b))
    assert [(entry.id, view.visibility(entry).status) for entry in view] == [("explicit:pdf", "active")]
    off = prowess.discover(a, b, modes={[*catalog][1].id: "off"}).where(lambda entry: entry.root == str(b))
    assert off.visibility(off.get("explicit:pdf")).status == "off"


# --- libraries are followed, catalogs are not -------------------------------------------------------------------------


async def called(kit: prowess.SkillKit, tool: str, **args: Any) -> prowess.Outcome:
    async with kit:
        return await kit.call(tool, args)


def load_with(skills: Any, name: str, **options: Any) -> list[Any]:
    """Requests of an agent that loads a skill."""
    model = ScriptedModel([call("skill_load", skill=name), {"text": "ok"}])
    prowess.run_sync("hi", skills=skills, model=model, **{**MEMORY, **options})
    return model.requests


def test_an_agent_sees_what_its_library_reads_later(here: Path) -> None:
    at = folder(here / "a", "one")
    library = prowess.Library(at)
    model = ScriptedModel([{"text": "ok"}] * 5)
    agent = prowess.Agent(model, skills=[library, library.where(names=["one"]), "builtin"], **MEMORY)
    kit = prowess.SkillKit(library.where(lambda entry: entry.name != "hidden"), **MEMORY)
    snapshot = prowess.Agent(model, skills=library.catalog, **MEMORY)

    def sees(text: str) -> list[bool]:
        agent.run_sync("hi")
        return [text in str(model.requests[-1]), text in kit.instructions]

    folder(at, "two", "hidden")
    assert sees("Does two.") == [False, False], "only the owner reloads it"
    assert sorted(library.reload().added) == ["explicit:hidden", "explicit:two"]
    assert sees("Does two.") == [True, True] and "Does hidden." not in kit.instructions
    assert asyncio.run(called(kit, "skill_load", skill="two")).status == "ok"
    snapshot.run_sync("hi")
    assert "Does two." not in str(model.requests[-1])
    shutil.rmtree(at / "one")
    library.reload()
    assert sees("Does one.") == [False, False]


def test_a_library_says_what_was_removed_also_through_another_one(here: Path) -> None:
    at = folder(here / "a", "one", "two")
    inner = prowess.Library(at)
    outer = prowess.Library([inner, "builtin"])
    view = inner.where(lambda entry: entry.name != "two")
    assert "one" in outer.catalog and "one" in view.catalog
    shutil.rmtree(at)
    assert not outer.reload(), "it reloads nothing of somebody else"
    assert inner.reload().removed == ("explicit:one", "explicit:two")
    for catalog, name, code in (
        (outer.catalog, "one", "skill-removed"),
        (view.catalog, "one", "skill-removed"),
        (view.catalog, "two", "skill-not-found"),
    ):
        with pytest.raises(SkillNotFound) as gone:
            catalog.get(name)
        assert gone.value.code == code
    with pytest.raises(SkillNotFound):
        prowess.load(prowess.discover(prowess.discover("builtin"), inner), "one")


def test_a_library_whose_folder_is_gone_still_opens(here: Path) -> None:
    at = folder(here / "a", "one")
    library = prowess.Library(at)
    shutil.rmtree(at)
    assert "removed" in str(load_with(library, "one")[-1])
    library.reload()
    assert "root-missing" in [finding.code for finding in prowess.SkillKit(library, **MEMORY).findings]


def test_an_agent_reads_its_own_folders_again_for_each_session(here: Path) -> None:
    at = folder(here / "a", "one")
    model = ScriptedModel([{"text": "ok"}] * 2)
    agent = prowess.Agent(model, skills=[prowess.Library(folder(here / "b", "other")), at], **MEMORY)
    agent.run_sync("hi")
    folder(at, "two")
    folder(here / "b", "more")
    agent.run_sync("hi")
    assert "Does two." in str(model.requests[1]) and "Does more." not in str(model.requests[1])


# --- the rest of the runtime ------------------------------------------------------------------------------------------


def test_policy_denies_a_skill_of_a_catalog_by_name_and_by_content(here: Path) -> None:
    catalog = prowess.discover(folder(here / "a", "one", "two", "three"), made("four"))
    digests = [prowess.load(catalog, name).digest for name in ("two", "four")]
    (here / "project/.agent").mkdir()
    rule = '[[rule]]\ntool = "skill_load"\nskill = "one"\nverdict = "deny"\nwhy = "Not today."\n'
    (here / "project/.agent/policy.toml").write_text(f"denied_digests = {digests}\n{rule}")
    for places in (catalog, [prowess.Library([catalog]), "builtin"], catalog.where(lambda entry: True)):
        statuses = []
        for name in ("one", "two", "three", "four"):
            outcome = asyncio.run(called(prowess.SkillKit(places, **MEMORY), "skill_load", skill=name))
            statuses.append(outcome.status)
        assert [status == "ok" for status in statuses] == [False, False, True, False], statuses


def test_search_finds_the_skills_of_all_places(here: Path) -> None:
    library = prowess.Library(folder(here / "a", "zebra-one"))
    catalog = prowess.discover(folder(here / "b", "zebra-two", "zebra-hidden")).where(names=["zebra-two"])
    places = [library, catalog, made("zebra-three"), folder(here / "c", "zebra-four"), "builtin"]
    kit = prowess.SkillKit(places, **MEMORY)
    found = asyncio.run(called(kit, "skill_search", query="zebra")).content
    assert [name in found for name in ("one", "two", "three", "four", "hidden")] == [True] * 4 + [False]


def test_a_session_goes_on_with_the_skill_of_a_catalog(here: Path) -> None:
    at, store = folder(here / "a", "one"), f"{here}/runs.db"
    options: dict[str, Any] = {"store": store, "session": "s", "load_mode": "session"}
    load_with([prowess.Library(at), made("pdf"), made("pdf", "OTHER")], "one", **options)
    for places in (prowess.discover(at), at, [prowess.Library(at).where(names="one"), "builtin"]):
        model = ScriptedModel([call("skill_list_docs", skill="explicit:one"), {"text": "ok"}])
        prowess.run_sync("and now?", skills=places, model=model, artifacts="memory:", **options)
        [answer] = [m for m in model.requests[-1][0] if m.role == "tool"][-1:]
        assert "BODY-OF-one" in str(model.requests[0]) and "No skill" not in str(answer)


def test_revoked_trust_counts_for_the_skills_of_a_catalog(here: Path) -> None:
    project = here / "project"
    folder(project / ".agent/skills", "mine")
    folder(here / "a", "given")
    trust(project)
    catalog = prowess.discover("default", here / "a")
    kit = prowess.SkillKit(catalog, **MEMORY)
    assert "Does mine." in kit.instructions and "Does given." in kit.instructions
    trust("--revoke", project)
    assert "Does mine." not in kit.instructions and "Does given." in kit.instructions
    assert asyncio.run(called(kit, "skill_load", skill="mine")).status == "denied"


def trust(*words: str | Path) -> None:
    answer = run_here(["trust", "--yes", *map(str, words)], cwd=Path.cwd())
    assert answer.code == 0, answer


# --- nasty ------------------------------------------------------------------------------------------------------------

NASTY: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "None": (lambda at: None, "root-unknown", "Leave it out"),
    "number": (lambda at: 42, "root-unknown", "Give a folder, an address, a Skill"),
    "None in a list": (lambda at: [at, None], "root-unknown", "Leave it out"),
    "set": (lambda at: {str(at)}, "root-unknown", "Give a list"),
    "generator": (lambda at: (each for each in [at]), "root-unknown", "Give a list"),
    "mapping": (lambda at: {"skills": at}, "root-unknown", "Give a list"),
    "bytes": (lambda at: os.fsencode(at), "root-unknown", "Give a folder"),
    "class": (lambda at: Shop, "root-unknown", "Give a folder"),
    "entry": (lambda at: [*prowess.discover(at)], "root-unknown", "Give its catalog"),
    "empty": (lambda at: "", "root-unknown", "Give a folder"),
    "blank in a list": (lambda at: [at, " "], "root-unknown", "Give a folder"),
    "name": (lambda at: [at, "pdf"], "root-missing", "Create it"),
    "capitals": (lambda at: "BUILTIN", "root-missing", "Did you mean 'builtin'?"),
    "path that is not there": (lambda at: at / "nowhere", "root-missing", "Create it"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", NASTY)
def test_what_is_no_place_is_refused_with_a_hint(case: str, door: str, here: Path) -> None:
    make, code, hint = NASTY[case]
    given = make(folder(here / "a", "pdf"))
    with pytest.raises(ConfigError) as refused:
        offered(door, given)
    assert refused.value.code == code and str(refused.value.hint).startswith(hint)
    if door in ("agent", "kit"):
        assert refused.value.message.startswith("skills=")
        assert case != "name" or 'use=["pdf"]' in str(refused.value.hint)


@pytest.mark.parametrize("door", DOORS)
def test_what_looks_odd_and_is_fine(door: str, here: Path) -> None:
    at = folder(here / "a", "pdf")
    for given in ([(prowess.discover(at),)], [at, str(at), at], [[], at]):
        assert offered(door, given).count("Does pdf.") == 1


def test_the_command_line_has_the_words_too(here: Path) -> None:
    folder(here / "more", "pdf")
    for words, has_pdf in ((["builtin"], False), (["default", str(here / "more")], True)):
        options = [option for word in words for option in ("--root", word)]
        for json in ([], ["--json"]):
            answer = run_here(["list", *json, *options], cwd=Path.cwd())
            assert answer.code == 0 and "warning" not in answer.err
            assert "csv-report" in answer.out and ("Does pdf." in answer.out) == has_pdf


# --- a narrower view of a session that goes on ------------------------------------------------------------------------

PROBES = [
    ("skill_read", {"skill": "secret", "path": "references/more.md"}),
    ("skill_run", {"skill": "secret", "command": "bash scripts/a.sh"}),
    ("read_file", {"file_name": "skill://secret/references/more.md"}),
    ("skill_load", {"skill": "secret"}),
    ("skill_list_docs", {"skill": "secret"}),
    ("grep", {"pattern": "SECRET", "path": "skills"}),
]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    folder = tmp_path / "two"
    files = {"scripts/a.sh": "echo SECRET-RAN\n", "references/more.md": "SECRET-DOC\n"}
    skill_dir(folder, "secret", "SECRET-BODY\n", description="SECRET-TEXT.", files=files)
    skill_dir(folder, "demo", "DEMO-BODY\n", description="Does demos.")
    return folder


@pytest.mark.parametrize("placement", ["tool_result", "system"])
@pytest.mark.parametrize("load_mode", ["turn", "session"])
@pytest.mark.parametrize("is_live", [True, False])
def test_a_skill_that_was_loaded_before_and_is_not_in_the_view_is_gone(
    two: Path, placement: Any, load_mode: Any, is_live: bool
) -> None:
    log = MemoryEventLog()
    model = ScriptedModel([call("skill_load", skill="secret", docs=["references/more.md"]), {"text": "loaded"}])
    options: dict[str, Any] = {"store": log, "placement": placement, "load_mode": load_mode, "executor": "local"}
    assert prowess.run_sync("go", model=model, skills=two, session="s-1", **options).ok
    view = (prowess.Library(two) if is_live else prowess.discover(two)).where(names=["demo"])
    script = [call(tool, **args) for tool, args in PROBES]
    model = ScriptedModel([*script, {"text": "done"}])
    result = prowess.run_sync("and now", model=model, skills=view, session="s-1", approve=["skill_run"], **options)
    assert result.ok
    shown = [part.text or "" for messages, _ in model.requests for message in messages for part in message.parts]
    assert not [text for text in shown if "SECRET-" in text]


def test_nor_does_a_kit_use_it(two: Path) -> None:
    log = MemoryEventLog()
    with prowess.SkillKit(two, store=log, session="s-1") as kit:
        assert kit.call_sync("skill_load", {"skill": "secret"}).ok
    view = prowess.discover(two).where(names=["demo"])
    with prowess.SkillKit(view, store=log, session="s-1", executor="local", approve=["skill_run"]) as kit:
        contents = [kit.call_sync(tool, args).content for tool, args in PROBES]
        assert not [text for text in (*contents, kit.instructions) if "SECRET-" in text]


def test_without_a_view_a_skill_that_was_removed_since_stays_usable(two: Path) -> None:
    log = MemoryEventLog()
    with prowess.SkillKit(two, store=log, session="s-1") as kit:
        assert kit.call_sync("skill_load", {"skill": "secret"}).ok
    shutil.rmtree(two / "secret")
    with prowess.SkillKit(two, store=log, session="s-1") as kit:
        assert "SECRET-DOC" in kit.call_sync(*PROBES[0]).content
