"""discover: what is found, in which order, once each; and what is said about everything that is not."""

from __future__ import annotations

import json
import os
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

import prowess
from prowess.skills.scanner import Bounds
from prowess.skills.skill import Root
from prowess.testing import ScriptedModel


def names(catalog: prowess.Catalog) -> list[str]:
    return [entry.qualified for entry in catalog]


def codes(catalog: prowess.Catalog) -> list[str]:
    return [finding.code for finding in catalog.findings]


# --- the walk ---------------------------------------------------------------------------------------------------------


def test_flat_and_nested_mix_and_a_skill_is_a_leaf(tmp_path, make_skill):
    make_skill(tmp_path / "pdf")
    make_skill(tmp_path / "acme" / "csv")
    make_skill(tmp_path / "acme" / "deep" / "er" / "xlsx")
    make_skill(tmp_path / "pdf" / "inner")  # below a skill: part of it, not another one
    assert names(prowess.discover(tmp_path)) == ["acme/csv", "acme/deep/er/xlsx", "pdf"]


def test_the_root_may_be_the_skill_itself(tmp_path, make_skill):
    make_skill(tmp_path / "pdf")
    assert names(prowess.discover(tmp_path / "pdf")) == ["pdf"]


def test_depth_and_entry_bounds_are_findings(tmp_path, make_skill):
    make_skill(tmp_path / "1/2/3/4/5/six")
    make_skill(tmp_path / "1/2/3/4/5/6/seven")
    found = prowess.discover(tmp_path)
    assert names(found) == ["1/2/3/4/5/six"]
    assert codes(found) == ["depth-limit"]
    assert names(prowess.discover(tmp_path, bounds=Bounds(max_depth=7))) == ["1/2/3/4/5/6/seven", "1/2/3/4/5/six"]
    wide = tmp_path / "wide"
    for number in range(10):
        make_skill(wide / f"s{number}")
    cut = prowess.discover(wide, bounds=Bounds(max_entries=4))
    assert names(cut) == ["s0", "s1", "s2", "s3"]
    assert codes(cut) == ["entry-limit"] and "s4" in cut.findings[0].message
    exact = prowess.discover(wide, bounds=Bounds(max_entries=10))
    assert len(exact) == 10 and not exact.findings


def test_dependency_folders_are_skipped_and_a_skill_in_one_is_mentioned(tmp_path, make_skill):
    make_skill(tmp_path / "good")
    make_skill(tmp_path / "node_modules" / "package" / "skill")
    make_skill(tmp_path / "venv")
    found = prowess.discover(tmp_path)
    assert names(found) == ["good"]
    assert [(f.code, os.path.basename(f.path)) for f in found.findings] == [("skipped-folder", "venv")]


def test_links_are_followed_once_and_loops_end(tmp_path, make_skill):
    library, elsewhere = tmp_path / "library", tmp_path / "elsewhere"
    make_skill(elsewhere / "pdf")
    make_skill(library / "csv")
    (library / "linked").symlink_to(elsewhere / "pdf")
    (library / "again").symlink_to(elsewhere / "pdf")
    (library / "loop").symlink_to(library)
    (library / "up").symlink_to(tmp_path)
    (library / "gone").symlink_to(tmp_path / "nowhere")
    found = prowess.discover(library)
    assert names(found) == ["again", "csv"]  # the first link in order is the one that counts
    assert sorted(codes(found)) == ["link-again", "link-again", "link-again", "link-broken", "name-mismatch"]
    linked = found.get("again")
    assert linked.real_path == str(elsewhere / "pdf") and linked.path == str(library / "again")
    assert prowess.load(found, "again").directory == str(elsewhere / "pdf")


def test_one_skill_reached_from_two_roots_is_one_skill(tmp_path, make_skill):
    store, agents, claude = tmp_path / "store", tmp_path / "agents", tmp_path / "claude"
    make_skill(store / "pdf")
    for place in (agents, claude):
        place.mkdir()
        (place / "pdf").symlink_to(store / "pdf")
    found = prowess.discover(Root("project", str(agents), False), Root("user", str(claude), True))
    assert [entry.id for entry in found] == ["user:pdf"], "the trusted way to it counts"


def test_the_same_root_twice_and_by_a_link_counts_once(tmp_path, make_skill):
    make_skill(tmp_path / "real" / "pdf")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = prowess.discover(tmp_path / "real", tmp_path / "link", str(tmp_path / "real") + "/")
    assert len(found) == 1 and len(found.roots) == 1


@pytest.mark.parametrize("place", ["nowhere", "file.txt/below"])
def test_a_path_that_does_not_exist_is_an_error_for_whoever_names_it(tmp_path, place):
    (tmp_path / "file.txt").write_text("x", encoding="utf-8")
    named = str(tmp_path / place)
    doors = (
        lambda: prowess.discover(named),
        lambda: prowess.discover(Path(named)),
        lambda: prowess.Library([named]),
        lambda: prowess.SkillKit(named),
        lambda: prowess.run_sync("hello", skills=named, model=ScriptedModel([])),
    )
    for door in doors:
        with pytest.raises(prowess.ConfigError, match=place) as refused:
            door()
        assert refused.value.code == "root-missing"


def test_a_folder_that_vanishes_is_a_finding_of_the_next_reload(tmp_path, make_skill):
    make_skill(tmp_path / "library" / "pdf")
    library = prowess.Library([tmp_path / "library"])
    (tmp_path / "library").rename(tmp_path / "elsewhere")
    assert library.reload().removed == ("explicit:pdf",)
    assert codes(library.catalog) == ["root-missing"]


@pytest.mark.parametrize("kind", ["missing", "file", "fifo"])
def test_a_root_that_is_no_folder_is_a_finding(tmp_path, kind):
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("x", encoding="utf-8")
    elif kind == "fifo":
        os.mkfifo(place)
    found = prowess.discover(Root("explicit", str(place)))
    assert codes(found) == ["root-missing" if kind == "missing" else "root-not-folder"]
    assert not found.roots[0].exists


def test_a_two_gigabyte_skill_is_found_and_not_read(tmp_path, make_skill):
    make_skill(tmp_path / "huge")
    make_skill(tmp_path / "good")
    with open(tmp_path / "huge" / "SKILL.md", "r+b") as file:
        file.truncate(2 << 30)  # sparse
    found = prowess.discover(tmp_path)
    assert names(found) == ["good", "huge"] and codes(found) == ["body-too-large"]
    assert found.visibility(found.get("huge")).status == "invalid" and "huge" not in prowess.render_catalog(found)
    with pytest.raises(prowess.SkillInvalid, match="has more than"):
        prowess.load(found, "huge")


def test_the_api_looks_only_where_it_is_told(tmp_path, make_skill, machine, monkeypatch):
    make_skill(machine / ".agent" / "skills" / "ambient")
    make_skill(tmp_path / ".agents" / "skills" / "ambient-too")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROWESS_SKILLS_ROOT", str(machine / ".agent" / "skills"))
    assert len(prowess.discover()) == 0
    assert len(prowess.discover(tmp_path / ".agents" / "skills")) == 1


def test_it_opens_each_skill_file_once_and_nothing_else(tmp_path, make_skill):
    """One open per skill, of SKILL.md, and not much further than the closing fence."""
    for number in range(20):
        make_skill(tmp_path / f"s{number:02}", body="x" * 100_000, files={"scripts/a.py": "print()", "b.md": "doc"})
    opened: list[str] = []
    watching = [True]
    # An audit hook cannot be removed; it is told to stop looking instead.
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if watching[0] and event == "open" else None)
    try:
        prowess.discover(tmp_path)
    finally:
        watching[0] = False
    ours = sorted(path for path in opened if path.startswith(str(tmp_path)))
    assert ours == sorted(str(tmp_path / f"s{number:02}" / "SKILL.md") for number in range(20))


@pytest.mark.parametrize("padding", [0, 3_000, 4_080, 4_090, 8_000, 12_280, 40_000])
def test_it_reads_at_most_8_kib_past_the_fence(tmp_path, make_skill, padding):
    front = f"name: big\ndescription: Use when big.\nlicense: {'y' * padding}\n"
    make_skill(tmp_path / "big", front=front, body="z" * 300_000)
    fence = len(f"---\n{front}---\n")
    location = str(tmp_path / "big" / "SKILL.md")
    child = f"""
import os, prowess
total = 0
real = os.read
def counting(fd, size):
    global total
    data = real(fd, size)
    if os.readlink(f"/proc/self/fd/{{fd}}") == {location!r}:
        total += len(data)
    return data
os.read = counting
catalog = prowess.discover({str(tmp_path)!r})
assert [e.name for e in catalog] == ["big"] and not [f for f in catalog.findings if f.severity != "info"]
print(total)
"""
    import subprocess

    total = int(subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True).stdout)
    assert 0 < total <= fence + 8192


# --- the cached index -------------------------------------------------------------------------------------------------


def settle(folder: Path) -> None:
    """Wait until the files are old enough for the index to believe their time stamps."""
    import time

    newest = max(path.lstat().st_ctime_ns for path in folder.rglob("SKILL.md"))
    while time.time_ns() - newest < 60_000_000:
        threading.Event().wait(0.005)


def opens(action) -> int:
    count = [0, True]
    sys.addaudithook(
        lambda event, args: (
            count.__setitem__(0, count[0] + 1)
            if count[1] and event == "open" and str(args[0]).endswith("SKILL.md")
            else None
        )
    )
    action()
    count[1] = False
    return count[0]


def test_a_second_scan_opens_nothing_and_says_the_same(tmp_path, make_skill):
    library, cache = tmp_path / "library", tmp_path / "cache"
    make_skill(library / "plain")
    make_skill(library / "acme" / "rich", front=RICH)
    make_skill(library / "broken", front="name: broken\n")
    settle(library)
    first = prowess.discover(library, cache_dir=cache)
    second = []
    assert opens(lambda: second.append(prowess.discover(library, cache_dir=cache))) == 0
    assert second[0].entries == first.entries and second[0].findings == first.findings
    assert prowess.discover(library).entries == first.entries, "a cache never changes an answer"


RICH = """name: rich
description: 'Reports: with colours. Use when asked.'
version: 1.10
allowed-tools: Read, Bash(git:*)
disable-model-invocation: true
argument-hint: "[file]"
paths: ["**/*.csv"]
requires: {bins: [ffmpeg], env: KEY}
keywords: [alpha, beta]
metadata: {role: coordinator}
odd: kept
"""


def test_an_edit_an_addition_and_a_removal_are_seen(tmp_path, make_skill):
    library, cache = tmp_path / "library", tmp_path / "cache"
    for name in ("a", "b", "c"):
        make_skill(library / name)
    settle(library)
    prowess.discover(library, cache_dir=cache)
    make_skill(library / "a", description="Edited. Use when asked.")
    before = (library / "b" / "SKILL.md").stat()
    text = (library / "b" / "SKILL.md").read_text(encoding="utf-8").replace("Does one", "Does two")
    (library / "b" / "SKILL.md").write_text(text, encoding="utf-8")
    os.utime(library / "b" / "SKILL.md", ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, mtime, inode
    (library / "c" / "SKILL.md").unlink()
    make_skill(library / "d")
    found = prowess.discover(library, cache_dir=cache)
    assert names(found) == ["a", "b", "d"]
    assert found.get("a").description.startswith("Edited")
    assert found.get("b").description.startswith("Does two"), "an edit that hides its time is seen all the same"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "json", "rows", "lines", "folder", "deep"])
def test_a_damaged_index_is_made_anew(tmp_path, make_skill, damage):
    library, cache = tmp_path / "library", tmp_path / "cache"
    make_skill(library / "a")
    make_skill(library / "b", front=RICH)
    settle(library)
    clean = prowess.discover(library, cache_dir=cache)
    [index] = (cache / "index").iterdir()
    data = index.read_bytes()
    if damage == "folder":
        index.unlink()
        index.mkdir()
    else:
        index.write_bytes(
            {
                "truncated": data[: len(data) // 2],
                "flipped": data[:-40] + bytes([data[-40] ^ 1]) + data[-39:],
                "empty": b"",
                "json": b"0badc0de {]\n",
                "rows": data.replace(b'"skills":[[', b'"skills":[[1],['),
                "lines": data[: data.index(b"\n") + 1],
                "deep": b"x\n" + b"[" * 100_000,
            }[damage]
        )
    again = prowess.discover(library, cache_dir=cache)
    assert again.entries == clean.entries
    assert {"cache-corrupt"} <= set(codes(again)) <= {"cache-corrupt", "cache-unwritable", *codes(clean)}
    if damage != "folder":
        assert codes(prowess.discover(library, cache_dir=cache)) == codes(clean), "it was repaired"


def line_of(document: object) -> bytes:
    """A line with the right checksum, whatever is in it."""
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


def change(name: str, header: Any, part: Any) -> list[Any]:
    """The two documents of an index, one thing in them not as it was written."""
    rels, changed, sizes, _, tokens, descriptions, of_kind = columns = part["skills"]
    kind = part["kinds"][of_kind[rels.index("b")]]
    wrong = {
        "null header": lambda: [None, part],
        "list header": lambda: [[], part],
        "no root": lambda: [{"format": header["format"]}, part],
        "deep": lambda: [header, b"[" * 200_000],
        "null part": lambda: [header, None],
        "list of skills": lambda: part.update(skills=[["a", 1]]),
        "short column": lambda: changed.pop(),
        "null column": lambda: columns.__setitem__(1, None),
        "text column": lambda: columns.__setitem__(5, "ab"),
        "no column": lambda: columns.__delitem__(3),
        "one more column": lambda: columns.append([1, 1]),
        "same skill twice": lambda: rels.__setitem__(0, rels[1]),
        "null folder": lambda: rels.__setitem__(0, None),
        "short kind": lambda: kind.pop(),
        "text size": lambda: sizes.__setitem__(1, "1"),
        "text tokens": lambda: tokens.__setitem__(0, "1"),
        "true as tokens": lambda: tokens.__setitem__(0, True),
        "description": lambda: descriptions.__setitem__(0, ["no text"]),
        "kind number": lambda: of_kind.__setitem__(0, 99),
        "negative kind": lambda: of_kind.__setitem__(0, -1),
        "name": lambda: kind.__setitem__(0, 7),
        "version": lambda: kind.__setitem__(2, [1]),
        "keywords": lambda: kind.__setitem__(3, [None]),
        "text keywords": lambda: kind.__setitem__(3, "ab"),
        "control number": lambda: kind.__setitem__(4, 99),
        "negative control": lambda: kind.__setitem__(4, -1),
        "note number": lambda: kind.__setitem__(5, 99),
        "text note number": lambda: kind.__setitem__(5, "x"),
        "no controls": lambda: part.update(controls=[]),
        "bad controls": lambda: part["controls"][0].__setitem__(6, [[]]),
        "null controls": lambda: part["controls"].__setitem__(0, None),
        "unknown note": lambda: part["notes"].__setitem__(1, [["no-such-code", None, {}]]),
        "note details": lambda: part["notes"][1][0].__setitem__(2, None),
    }[name]()
    return wrong if isinstance(wrong, list) else [header, part]


CHANGES = (
    "null header|list header|no root|deep|null part|list of skills|short column|null column|text column|no column"
    "|one more column|same skill twice|null folder|short kind|text size|text tokens|true as tokens|description"
    "|kind number|negative kind|name|version|keywords|text keywords|control number|negative control|note number"
    "|text note number|no controls|bad controls|null controls|unknown note|note details"
)


@pytest.mark.parametrize("name", CHANGES.split("|"))
def test_an_index_with_right_checksums_and_wrong_content_is_made_anew(tmp_path, make_skill, name):
    library, cache = tmp_path / "library", tmp_path / "cache"
    make_skill(library / "a")
    make_skill(library / "b", front=RICH)
    settle(library)
    clean = prowess.discover(library, cache_dir=cache)
    [index] = (cache / "index").iterdir()
    header, part = (json.loads(line.partition(b" ")[2]) for line in index.read_bytes().splitlines())
    assert len(part["notes"]) == 2 and len(part["skills"]) == 7
    index.write_bytes(b"".join(map(line_of, change(name, header, part))))
    again = prowess.discover(library, cache_dir=cache)
    assert again.entries == clean.entries and set(codes(again)) == {"cache-corrupt", *codes(clean)}
    assert codes(prowess.discover(library, cache_dir=cache)) == codes(clean), "it was repaired"


def test_an_index_that_is_a_fifo_stops_nobody(tmp_path, make_skill):
    library, cache = tmp_path / "library", tmp_path / "cache"
    make_skill(library / "a")
    settle(library)
    clean = prowess.discover(library, cache_dir=cache)
    [index] = (cache / "index").iterdir()
    index.unlink()
    os.mkfifo(index)
    found: list[prowess.Catalog] = []
    reader = threading.Thread(target=lambda: found.append(prowess.discover(library, cache_dir=cache)), daemon=True)
    reader.start()
    reader.join(20)
    assert found, "it hangs"
    assert found[0].entries == clean.entries and "cache-corrupt" in codes(found[0]) and index.is_file()


def test_an_index_of_an_older_release_is_replaced_without_a_word(tmp_path, make_skill):
    library, cache = tmp_path / "library", tmp_path / "cache"
    make_skill(library / "a")
    settle(library)
    clean = prowess.discover(library, cache_dir=cache)
    [index] = (cache / "index").iterdir()
    written = index.read_bytes()
    index.write_bytes(b'0badc0de\n{"schema":"prowess.index/1","format":2,"skills":{}}')
    again = prowess.discover(library, cache_dir=cache)
    assert again.entries == clean.entries and codes(again) == codes(clean) and index.read_bytes() == written


def test_an_unwritable_cache_costs_speed_only(tmp_path, make_skill):
    library = tmp_path / "library"
    make_skill(library / "a")
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    settle(library)
    found = prowess.discover(library, cache_dir=tmp_path / "file" / "cache")
    assert names(found) == ["a"]
    assert set(codes(found)) <= {"cache-unwritable", "cache-corrupt"} and codes(found)


def test_many_processes_may_scan_at_once(tmp_path, make_skill):
    import subprocess

    library, cache = tmp_path / "library", tmp_path / "cache"
    for number in range(200):
        make_skill(library / f"s{number:03}")
    settle(library)
    code = (
        "import sys, prowess; c = prowess.discover(sys.argv[1], cache_dir=sys.argv[2]); print(len(c), len(c.findings))"
    )
    command = [sys.executable, "-c", code, str(library), str(cache)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate()[0] for process in running] == ["200 0\n"] * 6
    assert [path.suffix for path in (cache / "index").iterdir()] == [".json"], "no half-written file is left"


# --- reload, watch, skills in code ------------------------------------------------------------------------------------


def test_reload_reports_what_changed_and_remembers_what_is_gone(tmp_path, make_skill):
    for name in ("kept", "edited", "removed"):
        make_skill(tmp_path / name)
    library = prowess.Library([tmp_path])
    old = library.catalog
    assert not library.reload()
    make_skill(tmp_path / "edited", description="New. Use when asked.")
    make_skill(tmp_path / "added")
    (tmp_path / "removed" / "SKILL.md").unlink()
    changes = library.reload()
    assert changes == (("explicit:added",), ("explicit:edited",), ("explicit:removed",))
    assert "removed" in old and "added" not in old, "whoever holds a catalog keeps it"
    with pytest.raises(prowess.SkillNotFound) as gone:
        library.catalog.get("removed")
    assert gone.value.code == "skill-removed"
    with pytest.raises(prowess.SkillNotFound) as gone:
        prowess.load(old, "removed")
    assert gone.value.code == "skill-removed", "an old catalog says so, too"
    make_skill(tmp_path / "removed")
    assert library.reload().added == ("explicit:removed",)
    assert library.catalog.get("removed").name == "removed"


def test_watch_reloads_by_itself(tmp_path, make_skill):
    make_skill(tmp_path / "a")
    library = prowess.Library([tmp_path])
    stop, seen, started = threading.Event(), [], threading.Event()

    def on_change(changes: prowess.Changes) -> None:
        seen.append(changes)
        stop.set()

    def poke() -> None:
        """Until it is noticed: the watcher has no way to say that it is ready."""
        number = 0
        started.wait()
        while not stop.wait(0.2):
            number += 1
            make_skill(tmp_path / f"new-{number}")

    thread = threading.Thread(target=poke)
    thread.start()
    guard = threading.Timer(30, stop.set)
    guard.start()
    started.set()
    library.watch(on_change, stop=stop)
    thread.join()
    guard.cancel()
    assert seen and any(id.startswith("explicit:new-") for id in seen[0].added)


def test_skills_in_code_behave_like_those_on_disk(tmp_path, make_skill):
    text = "---\nname: greet\ndescription: 'Says: hello. Use when asked.'\nversion: 2\n---\n\n# Greet\n"
    coded = prowess.Skill.from_text(text, files={"references/a.md": "# A", "scripts/x.sh": "#!/bin/sh\necho hi\n"})
    folder = make_skill(tmp_path / "greet", files={"references/a.md": "# A", "scripts/x.sh": "#!/bin/sh\necho hi\n"})
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    (folder / "scripts" / "x.sh").chmod(0o755)
    on_disk = prowess.load(prowess.discover(tmp_path), "greet")
    catalog = prowess.discover(coded)
    in_memory = prowess.load(catalog, "greet")
    assert in_memory.digest == on_disk.digest and in_memory.body == on_disk.body and in_memory.docs == on_disk.docs
    assert in_memory.entry[4:12] == on_disk.entry[4:12], "name, description, version, controls, size, notes"
    assert prowess.read_resource(in_memory, "references/a.md") == b"# A"
    assert prowess.render_catalog(catalog) == prowess.render_catalog(prowess.discover(tmp_path))


def test_two_skills_in_code_of_one_name_do_not_answer_for_each_other():
    texts = [f"---\nname: pdf\ndescription: Use when {n}.\n---\nbody {n}\n" for n in (1, 2)]
    catalog = prowess.discover(*(prowess.Skill.from_text(text) for text in texts))
    first, second = catalog
    assert first.id == "explicit:pdf" and second.id.startswith("explicit:pdf@")
    assert [prowess.load(catalog, entry.id).body for entry in catalog] == ["body 1\n", "body 2\n"]


def test_a_source_of_skills(tmp_path):
    class Shelf:
        source = "mcp"

        def skills(self):
            return [prowess.Skill.from_text("---\nname: far\ndescription: Use when far.\n---\nbody\n")]

    catalog = prowess.discover(Shelf())
    assert [entry.id for entry in catalog] == ["mcp:far"]
    with pytest.raises(prowess.SkillNotFound):
        catalog.get("far")  # a bare name never means an MCP skill
    with pytest.raises(prowess.SkillDenied) as refused:
        prowess.load(catalog, "mcp:far")
    assert refused.value.code == "skill-untrusted"
    digest = Shelf().skills()[0].digest
    accepting = prowess.discover(Shelf(), accepts=lambda place, content: (place, content) == ("mcp:far", digest))
    assert prowess.load(accepting, "mcp:far").body == "body\n"


def test_text_that_is_no_skill_says_why():
    with pytest.raises(prowess.SkillInvalid) as refused:
        prowess.Skill.from_text("# no front matter")
    assert [finding.code for finding in refused.value.findings] == ["no-front-matter"]
    with pytest.raises(prowess.ProwessError) as refused:
        prowess.Skill.from_text("---\nname: a\ndescription: b\n---\n", files={"../x": b""})
    assert refused.value.code == "path-escape"


# --- skills below a skill ---------------------------------------------------------------------------------------------


def nested(catalog: prowess.Catalog) -> list[str]:
    return [finding.path for finding in catalog.findings if finding.code == "skill-nested"]


def test_a_skill_below_a_skill_is_named_and_nested_loads_it(tmp_path, make_skill):
    make_skill(tmp_path / "pdf")
    inner = make_skill(tmp_path / "pdf/more/inner")
    innermost = make_skill(tmp_path / "pdf/more/inner/most")
    found = prowess.discover(tmp_path)
    assert names(found) == ["pdf"]
    assert nested(found) == [f"{inner}/SKILL.md", f"{innermost}/SKILL.md"]
    whole = prowess.discover(tmp_path, nested=True)
    assert names(whole) == ["pdf", "pdf/more/inner", "pdf/more/inner/most"] and not whole.findings
    assert prowess.load(whole, "inner").directory == str(inner)


def test_a_skill_file_at_the_top_hides_the_library_and_says_so(tmp_path, make_skill):
    library = make_skill(tmp_path / "library")
    for number in range(30):
        make_skill(library / f"s{number:02}")
    found = prowess.discover(library)
    assert names(found) == ["library"]
    assert nested(found) == [f"{library}/s{number:02}/SKILL.md" for number in range(20)]  # bounded
    assert "10 more" in found.findings[-1].message and "--nested" in (found.findings[-1].hint or "")
    assert len(prowess.discover(library, nested=True)) == 31


def test_a_known_library_names_the_same_nested_files(tmp_path, make_skill):
    library, cache = tmp_path / "library", tmp_path / "cache"
    make_skill(library / "pdf")
    inner = make_skill(library / "pdf/inner")
    make_skill(library / "plain")
    settle(library)
    first = prowess.discover(library, cache_dir=cache)
    assert nested(prowess.discover(library, cache_dir=cache)) == nested(first) == [f"{inner}/SKILL.md"]
    assert len(prowess.discover(library, cache_dir=cache, nested=True)) == 3
    assert nested(prowess.discover(library, cache_dir=cache)) == nested(first)
    (inner / "SKILL.md").unlink()
    assert not nested(prowess.discover(library, cache_dir=cache))
    assert not nested(prowess.discover(library, cache_dir=cache))
