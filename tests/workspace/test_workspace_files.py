"""The workspace's files: where a path leads, how a skill is staged, what goes in, what comes out; hostile ones too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from prowess._internal.globs import Glob
from prowess.errors import PathEscape, WorkspaceError
from prowess.workspace.dirfd import open_file, open_folder, walk
from prowess.workspace.executors.mirrored_folder import Twin
from prowess.workspace.inputs import Input, InputPlaces, stage_granted, stage_input
from prowess.workspace.layout import Layout, environment, resolve_cwd, safe_name
from prowess.workspace.outputs import OutputLimits, collect, look_at_outputs, primary_output, read_pattern
from prowess.workspace.skill_trees import copy_tree, publish, remove_tree


@pytest.fixture
def layout(tmp_path) -> Layout:
    root = tmp_path / "ws"
    for folder in ("skills", "work", "out", "runs"):
        (root / folder).mkdir(parents=True)
    return Layout(str(root), str(root))


# --- layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "leads"),
    [
        (None, "skills/pdf"),
        ("", "skills/pdf"),
        (".", "skills/pdf"),
        ("scripts", "skills/pdf/scripts"),
        ("./a/b", "skills/pdf/a/b"),
        ("~", "skills/pdf/~"),
        ("$WORK_DIR", "work"),
        ("${WORK_DIR}/x", "work/x"),
        ("$OUTPUT_DIR/y", "out/y"),
        ("$WORKSPACE_DIR", ""),
        ("$SKILLS_DIR/pdf", "skills/pdf"),
        ("$RUN_DIR", "runs/r1"),
        ("/workspace/work", "work"),
        ("/workspace", ""),
    ],
)
def test_cwd(cwd, leads):
    assert resolve_cwd(cwd, Layout("/host/ws", "/workspace"), skill="pdf", run="r1") == leads


@pytest.mark.parametrize(
    "cwd",
    ["..", "../x", "a/../../..", "/etc", "/workspace/../etc", "/workspaces", "$WORK_DIR/../..", "a\0b"],
)
def test_leaving_the_workspace_is_an_error(cwd):
    with pytest.raises(PathEscape) as refused:
        resolve_cwd(cwd, Layout("/h", "/workspace"), skill="pdf", run="r")
    assert refused.value.hint


@pytest.mark.parametrize("cwd", ["$HOME", "$work_dir", "${WORK_DIR", "$WORK_DIRX/a", "$"])
def test_a_variable_that_is_none_of_ours_says_which_there_are(cwd):
    with pytest.raises(WorkspaceError) as refused:
        resolve_cwd(cwd, Layout("/h", "/workspace"), skill="pdf", run="r")
    assert refused.value.code == "unknown-variable" and "$WORK_DIR" in (refused.value.hint or "")


@given(st.text(alphabet=st.sampled_from("./a$WORK_DI{}\\~"), max_size=30))
def test_no_cwd_leads_out(cwd):
    try:
        rel = resolve_cwd(cwd, Layout("/h", "/workspace"), skill="pdf", run="r")
    except WorkspaceError:
        return
    assert not rel.startswith("/") and ".." not in rel.split("/")


def test_the_environment_of_a_run():
    assert environment(Layout("/h", "/workspace"), skill="pdf", run="r1") == {
        "WORKSPACE_DIR": "/workspace",
        "SKILLS_DIR": "/workspace/skills",
        "WORK_DIR": "/workspace/work",
        "OUTPUT_DIR": "/workspace/out",
        "RUN_DIR": "/workspace/runs/r1",
        "SKILL_NAME": "pdf",
        "SKILL_DIR": "/workspace/skills/pdf",
    }


@given(st.text(min_size=1, max_size=80))
def test_a_name_is_checked_before_it_becomes_a_path(name):
    folder = safe_name(name)
    assert folder not in (".", "..") and not {"/", "\0", "\\"} & set(folder) and len(folder.encode()) <= 255


# --- staging ----------------------------------------------------------------------------------------------------------


def load(folder: Path, name: str = "pdf") -> prowess.Skill:
    return prowess.load(prowess.discover(folder), name)


def assert_refused_when_changed(skill: prowess.Skill, tree: str) -> None:
    """By whoever runs as the same user: another content, one more file, one less, a link."""
    first = Path(tree, skill.files[0].path)
    kept = first.read_bytes()
    os.chmod(first.parent, 0o755)

    def changed() -> None:
        with pytest.raises(WorkspaceError) as refused:
            publish(skill, os.path.dirname(tree))
        assert refused.value.code == "published-changed" and tree in str(refused.value.hint)

    os.chmod(first, 0o644)
    first.write_bytes(kept + b"#")
    changed()
    first.unlink()
    changed()
    first.symlink_to("/etc/hostname")
    changed()
    first.unlink()
    first.write_bytes(kept)
    (first.parent / "more.py").write_bytes(b"")
    changed()
    (first.parent / "more.py").unlink()
    assert publish(skill, os.path.dirname(tree)).path == tree


def test_a_tree_is_published_once_read_only_and_the_source_is_untouched(tmp_path, make_skill):
    source = make_skill(
        tmp_path / "s" / "pdf", files={"scripts/x.sh": "#!/bin/sh\n", "references/a.md": "a", "out/old": "o"}
    )
    (source / "scripts" / "x.sh").chmod(0o755)
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    skill = load(tmp_path / "s")
    tree = publish(skill, str(tmp_path / "trees"))
    assert [note.code for note in tree.notes] == ["shipped-folder"]
    found = sorted(str(path.relative_to(tree.path)) for path in Path(tree.path).rglob("*") if path.is_file())
    assert found == ["SKILL.md", "_shipped/out/old", "references/a.md", "scripts/x.sh"]
    assert all(os.listdir(os.path.join(tree.path, name)) == [] for name in ("out", "work", "inputs", ".venv"))
    assert os.stat(f"{tree.path}/scripts/x.sh").st_mode & 0o777 == 0o555
    assert os.stat(f"{tree.path}/SKILL.md").st_mode & 0o777 == 0o444
    assert publish(skill, str(tmp_path / "trees")).path == tree.path
    assert_refused_when_changed(skill, tree.path)
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before
    assert os.listdir(tmp_path / "trees") == [skill.digest.removeprefix("sha256:")]


def test_an_edit_after_the_load_is_not_staged(tmp_path, make_skill):
    source = make_skill(tmp_path / "s" / "pdf", files={"scripts/x.py": "print(1)"})
    skill = load(tmp_path / "s")
    (source / "scripts" / "x.py").write_text("print(2)", encoding="utf-8")
    with pytest.raises(WorkspaceError) as refused:
        publish(skill, str(tmp_path / "trees"))
    assert refused.value.code == "resource-changed" and os.listdir(tmp_path / "trees") == []
    (source / "scripts" / "x.py").unlink()
    (source / "scripts" / "x.py").symlink_to("/etc/passwd")
    with pytest.raises(PathEscape):
        publish(skill, str(tmp_path / "trees"))


def test_a_folder_where_nothing_can_be_published_is_named(tmp_path, make_skill):
    make_skill(tmp_path / "s" / "pdf")
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(WorkspaceError) as refused:
        publish(load(tmp_path / "s"), str(tmp_path / "file" / "trees"))
    assert refused.value.code == "workspace-dir" and str(tmp_path / "file" / "trees") in refused.value.message


def test_many_may_publish_the_same_tree_at_once(tmp_path, make_skill):
    make_skill(tmp_path / "s" / "pdf", files={f"assets/{n}": "x" * 1000 for n in range(50)})
    code = (
        "import sys, prowess; from prowess.workspace.skill_trees import publish; "
        "skill = prowess.load(prowess.discover(sys.argv[1]), 'pdf'); print(publish(skill, sys.argv[2]).path)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s"), str(tmp_path / "trees")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    places = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 5 and len(places) == 1
    assert len(os.listdir(tmp_path / "trees")) == 1, "nothing half-made is left"


def test_a_skill_in_code_is_staged_like_one_on_disk(tmp_path, make_skill):
    text = "---\nname: pdf\ndescription: Use when x.\n---\nbody\n"
    coded = prowess.Skill.from_text(text, files={"scripts/x.sh": "#!/bin/sh\n"})
    tree = publish(coded, str(tmp_path / "trees"))
    assert Path(tree.path, "SKILL.md").read_text(encoding="utf-8") == text
    assert os.access(f"{tree.path}/scripts/x.sh", os.X_OK)


def test_a_private_copy_replaces_an_older_one_and_can_be_removed(tmp_path, make_skill, layout):
    make_skill(tmp_path / "s" / "pdf")
    copy_tree(publish(load(tmp_path / "s"), str(tmp_path / "trees")), layout.host("skills/pdf"))
    make_skill(tmp_path / "s" / "pdf", body="new\n")
    copy_tree(publish(load(tmp_path / "s"), str(tmp_path / "trees")), layout.host("skills/pdf"))
    assert "new" in Path(layout.host("skills/pdf"), "SKILL.md").read_text(encoding="utf-8")
    remove_tree(layout.host("skills/pdf"))
    remove_tree(layout.host("skills/pdf"))
    assert os.listdir(layout.host("skills")) == []


# --- beneath ----------------------------------------------------------------------------------------------------------


def test_no_link_is_followed_on_the_way(tmp_path, layout):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key", encoding="utf-8")
    os.symlink(tmp_path / "secret", layout.host("out/link"))
    os.symlink(tmp_path / "secret" / "key", layout.host("out/file"))
    for rel in ("out/link/key", "out/file"):
        with pytest.raises(PathEscape), open_file(layout.root, rel):
            pass
    with pytest.raises(PathEscape), open_folder(layout.root, "out/link", make=True):
        pass
    seen = [found.rel for found in walk(layout.root, "out")]
    assert seen == ["out/file", "out/link"], "links are seen, never entered"


def test_a_walk_ends_at_its_bound_and_leaks_nothing(layout):
    for number in range(50):
        Path(layout.host(f"out/{number}")).touch()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WorkspaceError) as refused:
        list(walk(layout.root, "out", max_entries=20))
    assert refused.value.code == "too-many-entries"
    for _ in walk(layout.root, "out"):
        break
    import gc

    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_host_inputs_only_from_where_the_owner_allows(tmp_path, layout):
    data = tmp_path / "data"
    data.mkdir()
    (data / "notes.txt").write_text("hello\n", encoding="utf-8")
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    (data / "way-out").symlink_to(tmp_path / "secret")
    places = InputPlaces(layout, host_roots=[str(data)])
    staged = stage_input(Input(f"host://{data}/notes.txt"), places)
    assert (staged.to, staged.size_bytes) == ("work/inputs/notes.txt", 6)
    assert stage_input(Input(f"host:///{str(data).lstrip('/')}/notes.txt", "work/x.txt"), places).to == "work/x.txt"
    for place in (
        f"host://{tmp_path}/secret",
        f"host://{data}/way-out",
        f"host://{data}/../secret",
        "host:///etc/passwd",
    ):
        with pytest.raises(PathEscape) as refused:
            stage_input(Input(place), places)
        assert refused.value.code == "host-not-allowed"
    assert stage_granted(str(tmp_path / "secret"), None, layout).to == "work/inputs/secret", "a person's grant"


def test_a_folder_is_staged_whole_and_links_are_left_out(tmp_path, layout):
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "a").write_text("a", encoding="utf-8")
    (tmp_path / "d" / "sub" / "b").write_text("bb", encoding="utf-8")
    (tmp_path / "d" / "link").symlink_to("/etc/passwd")
    staged = stage_input(Input(f"host://{tmp_path}/d"), InputPlaces(layout, host_roots=[str(tmp_path)]))
    assert (staged.files, staged.size_bytes) == (2, 3) and "link" in (staged.note or "")
    assert Path(layout.host("work/inputs/d/sub/b")).read_text(encoding="utf-8") == "bb"


def test_nothing_is_copied_of_an_input_that_is_too_large(tmp_path, layout):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("a", encoding="utf-8")
    with open(tmp_path / "d" / "huge", "wb") as file:
        file.truncate(2 << 30)
    for path in ("d", "d/huge"):
        with pytest.raises(WorkspaceError, match="has more than 1073741824 bytes"):
            stage_granted(str(tmp_path / path), None, layout)
    assert not list(Path(layout.host("work/inputs")).rglob("*"))


@pytest.mark.parametrize(
    "to", ["../x", "/etc/x", "skills/pdf/x", "runs/x", "work", "out/../../x", "x", "work/../skills/x"]
)
def test_inputs_go_to_work_or_out_only(tmp_path, layout, to):
    (tmp_path / "f").write_text("x", encoding="utf-8")
    with pytest.raises(WorkspaceError) as refused:
        stage_input(Input(f"host://{tmp_path}/f", to), InputPlaces(layout, host_roots=[str(tmp_path)]))
    assert refused.value.code == "input-target"


def test_an_input_is_never_written_through_a_link(tmp_path, layout):
    victim = tmp_path / "victim"
    victim.write_text("before", encoding="utf-8")
    (tmp_path / "f").write_text("new", encoding="utf-8")
    os.symlink(victim, layout.host("work/target"))
    os.symlink(tmp_path, layout.host("work/folder"))
    places = InputPlaces(layout, host_roots=[str(tmp_path)])
    stage_input(Input(f"host://{tmp_path}/f", "work/target"), places)
    with pytest.raises(PathEscape):
        stage_input(Input(f"host://{tmp_path}/f", "work/folder/victim"), places)
    assert victim.read_text(encoding="utf-8") == "before"
    assert Path(layout.host("work/target")).read_text(encoding="utf-8") == "new"


def test_inputs_from_the_workspace_skills_and_artifacts(tmp_path, make_skill, layout):
    Path(layout.host("out/a.txt")).write_text("a", encoding="utf-8")
    make_skill(tmp_path / "s" / "pdf", files={"assets/t.txt": "t"})
    tree = publish(load(tmp_path / "s"), str(tmp_path / "trees"))
    places = InputPlaces(layout, skills=lambda name: tree.path, artifact=lambda ref: [b"# R"])
    assert stage_input(Input("workspace://out/a.txt"), places).to == "work/inputs/a.txt"
    linked = stage_input(Input("workspace://out/a.txt", "work/link.txt", "link"), places)
    assert os.readlink(layout.host(linked.to)) == "../out/a.txt"
    assert stage_input(Input("skill://pdf/assets/t.txt"), places).size_bytes == 1
    assert stage_input(Input("artifact://report.md@2"), places).to == "work/inputs/report.md"
    for place in ("workspace://../x", "skill://pdf/../../x", "ftp://x", "plain.txt", "workspace://missing"):
        with pytest.raises(WorkspaceError) as refused:
            stage_input(Input(place), places)
        assert refused.value.hint


# --- outputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits", "misses"),
    [
        ("out/*.txt", ["out/a.txt"], ["out/b/a.txt", "out/a.md", "work/a.txt"]),
        ("$OUTPUT_DIR/**", ["out/a", "out/b/c"], ["work/a"]),
        ("${OUTPUT_DIR}/lines.txt", ["out/lines.txt"], ["out/xlines.txt"]),
        ("out/**/*.csv", ["out/a.csv", "out/b/c/d.csv"], ["out/a.txt"]),
        ("**/*.md", ["out/a.md", "work/x/y.md"], ["out/a.txt"]),
        ("out/[ab]?.txt", ["out/a1.txt"], ["out/c1.txt", "out/a.txt", "out/a/.txt"]),
        ("out/[!a]*", ["out/b"], ["out/a"]),
        ("out/", ["out/a", "out/b/c"], ["work/a"]),
        ("./out/a", ["out/a"], ["out/b"]),
        ("out/a(1)+.txt", ["out/a(1)+.txt"], ["out/a11.txt"]),
    ],
)
def test_patterns(pattern, fits, misses):
    expression = read_pattern(pattern)
    assert all(expression.fullmatch(path) for path in fits) and not any(expression.fullmatch(path) for path in misses)


def test_many_stars_take_no_longer():
    assert not Glob("*a" * 50 + "b").fullmatch("a" * 5_000)
    assert Glob("**/" * 20 + "*").fullmatch("a/" * 200 + "b")


@given(st.text(alphabet="ab/*?[]!", max_size=12), st.text(alphabet="ab/", max_size=12))
def test_a_pattern_means_what_a_regular_expression_would(pattern, path):
    """Where no set is in it, an expression can say the same; slowly."""
    said = re.sub(r"(?:\\\*){2,}/", "(?:(?s:.)*/)?", re.escape(pattern))
    said = said.replace(r"\*\*", "(?s:.)*").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    assert Glob(pattern).fullmatch(path) == bool(re.fullmatch(said, path))


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_pattern_raises_anything_of_its_own(pattern, path):
    try:
        read_pattern(pattern).fullmatch(path)
    except WorkspaceError:
        pass


def test_a_file_that_was_changed_is_new_whatever_time_it_says(tmp_path, layout):
    out = tmp_path / "ws" / "out"
    for name in ("same", "changed"):
        (out / name).write_text("good1")
        os.utime(out / name, (1, 1))
    before = look_at_outputs(layout)
    for _ in range(10_000):  # the clock of a file system is coarse
        (out / "changed").write_text("evil2")
        os.utime(out / "changed", (1, 1))
        if look_at_outputs(layout) != before:
            break
    found = collect(layout, ["out/**"], before=before, must_match=False)
    assert [file.name for file in found.files] == ["out/changed"]


def test_what_is_collected_and_what_is_said(tmp_path, layout):
    out = Path(layout.host("out"))
    (out / "a.txt").write_text("hello", encoding="utf-8")
    (out / "b.bin").write_bytes(b"\0\1\2")
    (out / "big.txt").write_text("x" * 100, encoding="utf-8")
    (out / "sub").mkdir()
    (out / "sub" / "c.json").write_text(json.dumps({"a": "é"}), encoding="utf-8")
    (out / "leak").symlink_to("/etc/passwd")
    os.mkfifo(out / "pipe")
    result = collect(layout, ["out/**", "work/*.none"], limits=OutputLimits(max_file_bytes=50))
    assert [(f.name, f.mime_type, f.size_bytes, f.content, f.truncated) for f in result.files] == [
        ("out/a.txt", "text/plain", 5, "hello", False),
        ("out/b.bin", "application/octet-stream", 3, None, False),
        ("out/big.txt", "text/plain", 100, "x" * 50, True),
        ("out/sub/c.json", "application/json", 15, '{"a": "\\u00e9"}', False),
    ]
    said = "\n".join(result.warnings)
    assert "'out/leak' is a link" in said and "'out/pipe' is a FIFO" in said and "the first 50 bytes" in said
    assert "'work/*.none' matches no file" in said
    assert primary_output(result.files).name == "out/a.txt" and result.files[0].ref == "workspace://out/a.txt"


def test_limits_of_number_and_total(layout):
    for number in range(10):
        Path(layout.host(f"out/{number}.txt")).write_text("x" * 10, encoding="utf-8")
    few = collect(layout, ["out/*"], limits=OutputLimits(max_files=3))
    assert len(few.files) == 3 and "7 more files match" in few.warnings[0]
    total = collect(layout, ["out/*"], limits=OutputLimits(max_total_bytes=25))
    assert [file.truncated for file in total.files] == [False, False, True, *[True] * 7]
    names = collect(layout, ["out/*"], inline=False)
    assert [file.content for file in names.files] == [None] * 10 and not names.warnings


def test_a_sparse_giant_costs_nothing(layout):
    with open(layout.host("out/giant.txt"), "wb") as file:
        file.truncate(10 << 30)
    [found] = collect(layout, ["out/*"]).files
    assert found.size_bytes == 10 << 30 and found.content is None, "zero bytes are no text"


def test_many_patterns_for_many_files_are_bounded_and_that_is_said(layout):
    patterns = [f"out/{n}{'*a' * 490}" for n in range(32)]
    for n in range(130):
        Path(layout.host(f"out/{n}")).write_text("x", encoding="utf-8")
    assert any("Not all files were looked at" in each for each in collect(layout, patterns).warnings)
    assert not any("Not all files" in each for each in collect(layout, ["out/*"]).warnings)


# --- two folders with the same files ----------------------------------------------------------------------------------


@pytest.fixture
def inputs(layout) -> tuple[Path, Path]:
    paths = Path(layout.host("work/inputs")), Path(layout.host("skills/pdf/inputs"))
    for path in paths:
        path.mkdir(parents=True)
    return paths


def twin(layout: Layout) -> Twin:
    return Twin(layout.root, "work/inputs", "skills/pdf/inputs")


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): "/" if path.is_dir() else path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
    }


def test_what_changed_in_one_is_in_the_other(layout, inputs):
    first, second = inputs
    (first / "a" / "b").mkdir(parents=True)
    (first / "a" / "b" / "x").write_text("x", encoding="utf-8")
    (first / "y").write_text("y", encoding="utf-8")
    same = twin(layout)
    same.agree()
    assert content(second) == content(first) == {"a": "/", "a/b": "/", "a/b/x": "x", "y": "y"}
    (second / "y").write_text("changed in place", encoding="utf-8")
    assert (first / "y").read_text(encoding="utf-8") == "changed in place"
    remove_tree(str(second / "a"))
    (second / "a").write_text("now a file", encoding="utf-8")
    (first / "y").unlink()
    (second / "new").write_text("n", encoding="utf-8")
    same.agree()
    assert content(second) == content(first) == {"a": "now a file", "new": "n"}
    for folder, text in ((first, "of the first"), (second, "of the second")):
        (folder / "new").unlink()
        (folder / "new").write_text(text, encoding="utf-8")
    same.agree()
    assert content(second) == content(first) == {"a": "now a file", "new": "of the first"}
    (first / "new").unlink()
    twin(layout).agree()  # as another process would, later
    assert content(second) == content(first) == {"a": "now a file"}


def test_a_link_among_the_inputs_leads_where_it_led(layout, inputs):
    first, second = inputs
    (first / "deep").mkdir()
    Path(layout.host("out/made.txt")).write_text("made", encoding="utf-8")
    for to in ("work/inputs/made.txt", "work/inputs/deep/made.txt"):
        stage_input(Input("workspace://out/made.txt", to, "link"), InputPlaces(layout))
    (second / "of-the-script").symlink_to("/etc")
    same = twin(layout)
    for each in (same, same, twin(layout)):  # the last as another process would
        assert each.agree() is None
        assert os.readlink(second / "of-the-script") == "/etc"
        assert (second / "made.txt").read_text(encoding="utf-8") == "made"
        assert (second / "deep" / "made.txt").read_text(encoding="utf-8") == "made"
        assert sorted(os.listdir(first)) == ["deep", "made.txt"], "a link of the script's own may lead elsewhere there"


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_is_carried_through_a_folder_that_became_a_link(layout, inputs, tmp_path, which):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key", encoding="utf-8")
    (inputs[1 - which] / "mine").write_text("mine", encoding="utf-8")
    inputs[which].rmdir()
    inputs[which].symlink_to(tmp_path / "secret")
    assert "was not carried to the other" in (twin(layout).agree() or "")
    assert content(inputs[1 - which]) == {"mine": "mine"} and content(tmp_path / "secret") == {"key": "key"}


def test_too_many_inputs_are_not_carried_and_that_is_said(layout, inputs):
    first, second = inputs
    for n in range(20_001):
        (second / str(n)).touch()
    assert "more than 20000 files" in (twin(layout).agree() or "")
    assert os.listdir(first) == [] and len(os.listdir(second)) == 20_001


def test_files_near_each_other_are_reached_from_there(layout, inputs):
    """Folders are opened as often as there are folders, not as often as there are files times their depth."""
    first, second = inputs
    deep = first.joinpath(*["d"] * 30)
    deep.mkdir(parents=True)
    for n in range(50):
        (deep / f"f{n}").touch()
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" and args[0] == "d" else None)
    assert twin(layout).agree() is None
    assert content(second) == content(first)
    assert len(opened) < 30 * 10
