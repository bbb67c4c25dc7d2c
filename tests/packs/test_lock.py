"""skills.toml and skills.lock: edited line by line, read strictly, and in agreement with each other."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pack_machines import PackMachine
from pack_samples import refused, skill_folder
from prowess.errors import PackError, in_one_line
from prowess.packs.lock import PackPlace, WantedSkill, check_name, edit_wanted, read_lock, read_wanted


@pytest.fixture
def here(tmp_path: Path) -> PackMachine:
    return PackMachine(tmp_path / "here")


def place_of(folder: Path) -> PackPlace:
    return PackPlace(str(folder), str(folder / "skills.toml"), str(folder / "skills.lock"), str(folder), str(folder))


def edited(folder: Path, text: str, **changes: WantedSkill | None) -> str:
    (folder / "skills.toml").write_text(text, newline="")
    data = edit_wanted(place_of(folder), changes)
    return text if data is None else data.decode()


# --- wanted -----------------------------------------------------------------------------------------------------------

NEW = WantedSkill("./new", "pdf")
ODD_FORMS = {
    "": '[skills]\npdf = "./new"\n',
    "# only a comment\n": '# only a comment\n[skills]\npdf = "./new"\n',
    '[skills]\ncsv = "./csv"': '[skills]\ncsv = "./csv"\npdf = "./new"\n',
    '# a\n[skills]\npdf = "./old"  # why # really\n# b\ncsv = "./csv"\n': (
        '# a\n[skills]\npdf = "./new"  # why # really\n# b\ncsv = "./csv"\n'
    ),
    "[skills]\n'pdf'='./a#b'#c\n": '[skills]\npdf = "./new"  #c\n',
    '[skills]\n"p\\u0064f" = "./old"\n': '[skills]\npdf = "./new"\n',
    '[skills]\r\ncsv = "./csv"\r\npdf = "./old"\r\n': '[skills]\r\ncsv = "./csv"\r\npdf = "./new"\n',
    '\ufeff[skills]\npdf = "./old"\n': '[skills]\npdf = "./new"\n',
    '# a\u2028b\x85c\n[skills]\npdf = "./old"\n': '# a\u2028b\x85c\n[skills]\npdf = "./new"\n',
    '[ skills ]\npdf = { source = "./old", skill = "other" }\n': '[ skills ]\npdf = "./new"\n',
}


@pytest.mark.parametrize("text", ODD_FORMS)
def test_a_line_is_changed_where_it_is(tmp_path: Path, text: str) -> None:
    assert edited(tmp_path, text, pdf=NEW).endswith(ODD_FORMS[text])


@pytest.mark.parametrize(
    "text",
    [
        'skills = { pdf = "./old" }\n',
        'skills.pdf = "./old"\n',
        '[skills.pdf]\nsource = "./old"\n',
        '[skills]\npdf.source = "./old"\n',
        '[skills]\npdf = """\n./old"""\n',
        '[skills]\ncsv = """\npdf = "x"\n"""\n',
    ],
)
def test_forms_that_are_not_edited_line_by_line(tmp_path: Path, text: str) -> None:
    """They are read, and edited rightly or not at all."""
    before = {}
    try:
        result = edited(tmp_path, text, pdf=NEW)
    except PackError as error:
        assert error.code == "wanted-not-editable"
        assert (tmp_path / "skills.toml").read_text() == text
        return
    finally:
        before = read_wanted(place_of(tmp_path))
    (tmp_path / "skills.toml").write_text(result)
    assert read_wanted(place_of(tmp_path)) == {**before, "pdf": NEW}


def test_other_lines_keep_their_order(tmp_path: Path) -> None:
    text = '[skills]\nz = "./z"  # last letter\na = "./a"\n\n# the end\n'
    same = {"z": WantedSkill("./z", "z"), "a": WantedSkill("./a", "a")}
    assert edited(tmp_path, text, **same) == text
    assert edited(tmp_path, text, **same, pdf=NEW) == text + 'pdf = "./new"\n'
    assert edited(tmp_path, text, z=None, pdf=NEW) == '[skills]\na = "./a"\n\n# the end\npdf = "./new"\n'
    assert edited(tmp_path, text, a=None, z=None) == "[skills]\n\n# the end\n"


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
sources = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30)
wanted_skills = st.builds(
    WantedSkill, sources, st.sampled_from(["pdf", "a b", 'q"q']).filter(lambda name: '"' not in name)
)


def is_name(name: str) -> bool:
    try:
        return check_name(name, "here") == name
    except PackError:
        return False


@given(st.lists(st.dictionaries(names.filter(is_name), st.none() | wanted_skills, max_size=4), max_size=4))
def test_what_is_written_is_what_was_meant(steps: list[dict[str, WantedSkill | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = place_of(Path(folder))
        expected: dict[str, WantedSkill] = {}
        for changes in steps:
            for name, skill in changes.items():
                expected.pop(name, None)
                if skill is not None:
                    expected[name] = skill
            data = edit_wanted(place, changes)
            if data is not None:
                Path(place.wanted).write_bytes(data)
            assert read_wanted(place) == expected


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assume(not any("\ud800" <= letter <= "\udfff" for letter in text))
    with tempfile.TemporaryDirectory() as folder:
        place = place_of(Path(folder))
        Path(place.wanted).write_text(text, encoding="utf-8")
        Path(place.lock).write_text(text, encoding="utf-8")
        for read in (read_wanted, read_lock):
            try:
                read(place)
            except PackError as error:
                assert error.hint and in_one_line(error).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "[skills",
        "[other]\n",
        "pdf = 1\n",
        "skills = 3\n",
        "[skills]\npdf = 3\n",
        '[skills]\npdf = { source = "x", mode = "y" }\n',
        '[skills]\n"../x" = "./x"\n',
        '[skills]\npdf = { source = "./x", skill = "../x" }\n',
        '[skills]\n"\\u001b[31m" = "./x"\n',
        f"{'a' * 5000} = 1\n",
        f"{'a.' * 400_000}a = 1\n",
        f"[skills]\nx = {'[' * 100_000}\n",
        "# long\n" + "#" * (1 << 20),
    ],
)
def test_a_wanted_file_that_cannot_be_used(here: PackMachine, text: str) -> None:
    skill_folder(here.project / "src", "pdf")
    here.agent.mkdir()
    here.wanted.write_text(text)
    for call in (here.install, lambda: here.install("./src"), here.update):
        error = refused(call)
        assert error.code in ("wanted-invalid", "name-unsafe") and len(str(error)) < 1000
    assert here.on_disk() == {} and here.wanted.read_text() == text and not here.lock.exists()


def test_without_the_lock_nothing_is_verified(tmp_path: Path, here: PackMachine) -> None:
    assert here.verify().same  # nothing is wanted
    here.install(str(skill_folder(tmp_path / "src", "pdf")))
    here.lock.unlink()
    for check in (here.verify, lambda: here.verify("pdf"), lambda: here.install(frozen=True)):
        assert refused(check).code == "lock-missing"


def test_a_merge_conflict_is_resolved_as_the_hint_says(tmp_path: Path, here: PackMachine) -> None:
    sources = {name: str(skill_folder(tmp_path / name, name)) for name in ("pdf", "notes")}
    here.install(sources["pdf"])
    mine = here.lock.read_text()
    here.install(sources["notes"])
    for file in (here.lock, here.wanted):
        text = file.read_text()
        file.write_text(f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n")
        error = refused(here.verify if file == here.lock else here.install)
        assert "merge conflict" in error.message and str(error.hint).endswith("prowess install")
        file.write_text(mine if file == here.lock else text)
    here.install()
    here.install(frozen=True)
    assert here.locked().keys() == here.wants().keys() == sources.keys()


def test_a_wanted_file_that_is_not_text(here: PackMachine) -> None:
    here.agent.mkdir()
    here.wanted.write_bytes(b"\xff\xfe")
    assert refused(here.install).code == "wanted-invalid"
    here.wanted.unlink()
    os.mkfifo(here.wanted)
    assert refused(here.install).code == "wanted-invalid"


# --- lock -------------------------------------------------------------------------------------------------------------


def row(**changes: Any) -> dict[str, Any]:
    files = {"SKILL.md": {"sha256": "0" * 64, "size": 3, "mode": "644"}}
    whole = {"source": "./src", "kind": "folder", "skill": "pdf", "path": "", "digest": f"sha256:{'0' * 64}"}
    return whole | {"files": files, "installed_at": "2026-01-01T00:00:00Z"} | changes


def lock_text(rows: object, schema: str = "prowess.lock/1") -> str:
    return json.dumps({"schema": schema, "skills": rows})


FILE = {"sha256": "0" * 64, "size": 3, "mode": "644"}
BAD_LOCKS = {
    "cut": lock_text({"pdf": row()})[:-20],
    "text": "hello",
    "list": "[]",
    "no skills": '{"schema": "prowess.lock/1"}',
    "skills are a list": lock_text([row()]),
    "other schema": lock_text({}, "npm/3"),
    "row": lock_text({"pdf": 3}),
    "no digest": lock_text({"pdf": {name: value for name, value in row().items() if name != "digest"}}),
    "bad digest": lock_text({"pdf": row(digest="sha256:x")}),
    "bad commit": lock_text({"pdf": row(commit="main\0")}),
    "half of a pair": lock_text({"pdf": row(version="\ud800")}),
    "bad kind": lock_text({"pdf": row(kind="magic")}),
    "path that leads out": lock_text({"pdf": row(files={"../../x": FILE})}),
    "absolute path": lock_text({"pdf": row(files={"/etc/x": FILE})}),
    "mode": lock_text({"pdf": row(files={"x": FILE | {"mode": "4755"}})}),
    "deep": "[" * 100_000,
    "merge": '<<<<<<< HEAD\n{"schema": "prowess.lock/1"}',
}


@pytest.mark.parametrize("text", BAD_LOCKS.values(), ids=BAD_LOCKS)
def test_a_lock_that_cannot_be_used(here: PackMachine, text: str) -> None:
    skill_folder(here.project / "src", "pdf")
    here.agent.mkdir()
    here.lock.write_text(text)
    calls = (here.install, lambda: here.install(frozen=True), lambda: here.install("./src"), here.update, here.verify)
    for call in (*calls, lambda: here.uninstall("pdf"), lambda: here.rollback("pdf")):
        assert refused(call).code == "lock-invalid"
    assert here.on_disk() == {} and here.lock.read_text() == text and not here.wanted.exists()


@pytest.mark.parametrize("name", ["..", ".prowess", "a/b", "con", "a\x1b[2J", "skills.toml", "node_modules"])
def test_a_lock_with_names_that_are_not_safe(here: PackMachine, name: str) -> None:
    here.agent.mkdir()
    here.lock.write_text(lock_text({name: row()}))
    for call in (here.install, here.verify, here.update):
        assert refused(call).code == "name-unsafe"


def test_a_lock_of_a_newer_release(here: PackMachine) -> None:
    here.agent.mkdir()
    here.lock.write_text(lock_text({}, "prowess.lock/2\x1b[31m"))
    assert refused(here.install).code == "lock-newer"
    assert refused(lambda: here.install("./src")).code in ("lock-newer", "source-missing")


def test_a_lock_says_what_no_source_has(here: PackMachine) -> None:
    skill_folder(here.project / "src", "pdf")
    here.agent.mkdir()
    for changes in ({"skill": "\x1b[31mx"}, {"source": "\x1b[31m"}, {"source": "ext::sh"}, {"source": "./gone"}):
        here.lock.write_text(lock_text({"pdf": row(**changes)}))
        refused(here.install)
        assert here.on_disk() == {}
    here.lock.write_text(lock_text({"pdf": row()}))
    assert refused(here.install).code == "lock-mismatch"


def test_a_huge_lock(here: PackMachine) -> None:
    here.agent.mkdir()
    with here.lock.open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert refused(here.verify).code == "lock-invalid"


def test_the_lock_is_the_same_for_the_same_skills(tmp_path: Path, here: PackMachine) -> None:
    source = tmp_path / "src"
    for name in ("pdf", "csv"):
        skill_folder(source, name)
    here.install(str(source))
    text = here.lock.read_text()
    here.install(str(source))
    here.update()
    here.install(frozen=True)
    assert here.lock.read_text() == text
    assert [*json.loads(text)["skills"]] == ["csv", "pdf"]


# --- agreement --------------------------------------------------------------------------------------------------------


def test_frozen_refuses_each_disagreement(tmp_path: Path, here: PackMachine) -> None:
    source = tmp_path / "src"
    for name in ("pdf", "csv"):
        skill_folder(source, name)
    here.install(str(source))
    wanted = here.wanted.read_text()
    line = f'pdf = "{source}"'
    assert line in wanted
    for text in (
        wanted.replace(line, ""),
        wanted.replace(line, 'pdf = "./other"'),
        wanted.replace(line, f'pdf = {{ source = "{source}", skill = "csv" }}'),
        wanted + 'new = "./new"\n',
        "",
    ):
        here.wanted.write_text(text)
        error = refused(lambda: here.install(frozen=True))
        assert error.code == "lock-stale"
        assert "prowess update" in str(error.hint) or "prowess uninstall" in str(error.hint)
    here.wanted.write_text(wanted)
    here.install(frozen=True)
    (here.root / "pdf/new.md").write_text("mine")
    assert refused(lambda: here.install(frozen=True)).code == "local-edits"
    (here.root / "pdf/new.md").unlink()
    here.lock.unlink()
    assert refused(lambda: here.install(frozen=True)).code == "lock-missing"


def test_a_link_that_was_added_is_an_edit(tmp_path: Path, here: PackMachine) -> None:
    """It is no part of the digest, but `verify` tells it, and a restore removes it."""
    here.install(str(skill_folder(tmp_path / "src", "pdf")))
    (here.root / "pdf/more").symlink_to(tmp_path)
    assert not here.verify().same
    for call in (here.install, lambda: here.install(frozen=True)):
        assert refused(call).code == "local-edits"
    here.install(force=True)
    assert here.verify().same and here.install(frozen=True)


def test_all_skills_that_are_not_as_wanted_are_named(tmp_path: Path, here: PackMachine) -> None:
    for name in "abcde":
        skill_folder(tmp_path / "src", name)
    here.install(str(tmp_path / "src"))
    wanted = here.wanted.read_text()
    here.wanted.write_text(wanted.replace("/src", "/other"))
    error = refused(lambda: here.install(frozen=True))
    assert "disagree about 'a', 'b', 'c' and 2 more." in error.message
    assert str(error.hint).endswith("prowess update a b c d e")
    here.wanted.write_text("".join(line for line in wanted.splitlines(True) if not line.startswith(("b ", "c "))))
    error = refused(lambda: here.install(frozen=True))
    assert "disagree about 'b', 'c'." in error.message
    assert str(error.hint).endswith("prowess uninstall b c")
    here.uninstall("b", "c")
    here.install(frozen=True)


def test_a_hand_that_edits_the_wanted_file(tmp_path: Path, here: PackMachine) -> None:
    skill_folder(tmp_path / "one", "pdf", {"a": "1"})
    skill_folder(tmp_path / "two", "pdf", {"a": "2"})
    here.agent.mkdir()
    here.wanted.write_text(f'# mine\n[skills]\npdf = "{tmp_path}/one/../one"  # first\n')
    here.install()
    assert here.verify().same
    assert here.wanted.read_text().startswith("# mine\n") and here.wanted.read_text().endswith("  # first\n")
    here.install(frozen=True)
    here.wanted.write_text(here.wanted.read_text().replace("one", "two"))
    assert refused(here.install).code == "lock-stale"
    here.update("pdf")
    assert (here.root / "pdf/a").read_text() == "2"
    here.install(frozen=True)


def test_a_line_that_a_person_removed_stays_removed(tmp_path: Path, here: PackMachine) -> None:
    for name in ("pdf", "csv"):
        skill_folder(tmp_path / "src", name)
    here.install(str(tmp_path / "src"))
    here.wanted.write_text(
        "".join(line for line in here.wanted.read_text().splitlines(True) if not line.startswith("pdf"))
    )
    done = here.install()
    assert [*here.wants()] == ["csv"] and "prowess uninstall pdf" in done.notes[0]


def test_a_lock_cannot_invent_where_a_skill_comes_from(tmp_path: Path, here: PackMachine) -> None:
    source = skill_folder(here.project / "vendor", "pdf")
    here.install(str(source))
    lock = json.loads(here.lock.read_text())
    shutil.rmtree(here.root / "pdf")
    for change in (
        {"kind": "git", "commit": "8f3c2d1e9a7b"},
        {"commit": "8f3c2d1e9a7b"},
        {"source": "./vendor/../vendor/pdf"},
    ):
        here.lock.write_text(json.dumps({**lock, "skills": {"pdf": {**lock["skills"]["pdf"], **change}}}))
        here.wanted.write_text(f'[skills]\npdf = "{change.get("source", lock["skills"]["pdf"]["source"])}"\n')
        assert refused(here.install).code == "lock-mismatch", change
    assert here.on_disk() == {}
