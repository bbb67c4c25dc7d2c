"""Which names may be written outside a workspace, and how a file gets there: by descriptor and whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess._internal.protected_names import ACTING, PROTECTED, find_acting, find_protected, hidden_parts
from prowess.errors import ConfigError, ProwessError
from prowess.workspace.export import check_unprotected, is_named, open_outside, pattern_for

UNSEEN = "\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u206a\u206f\ufeff\u00ad\ufe0f"
NAMES = sorted(PROTECTED)
ACTING_NAMES = sorted({*ACTING, "agents.md", "claude.local.md", "x.pth", "dockerfile.dev", "vite.config.ts"})


def spelled(name: str, capitals: list[bool], unseen: str, at: int, end: str) -> str:
    """The same name to some file system."""
    letters = "".join(each.upper() if up else each for each, up in zip(name, capitals, strict=True))
    at = min(at, len(letters))
    return letters[:at] + unseen + letters[at:] + end


@given(st.data())
def test_no_spelling_of_a_protected_name_passes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    size = len(name)
    part = spelled(
        name,
        data.draw(st.lists(st.booleans(), min_size=size, max_size=size)),
        data.draw(st.text(UNSEEN, max_size=3)),
        data.draw(st.integers(0, size)),
        data.draw(st.sampled_from(["", ".", " ", " . .", "::$INDEX_ALLOCATION", ":x"])),
    )
    way = data.draw(st.sampled_from(["{}", "a/{}", "{}/x", "a\\{}\\x", "/home/me/{}/hooks/x"]))
    assert find_protected(way.format(part)) == part


@given(st.data())
def test_every_spelling_of_an_acting_name_acts(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ACTING_NAMES))
    size = len(name)
    capitals = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    end = data.draw(st.sampled_from(["", ".", " ", " . .", "::$DATA"]))
    unseen, at = data.draw(st.text(UNSEEN, max_size=3)), data.draw(st.integers(0, size))
    part = spelled(name, capitals, unseen, at, end)
    for way in (part, f"a/{part}", f"a\\{part}"):
        assert find_acting(way) == part


SAME = """
    GIT~1 git~12/config AGENTS~1 github~1 CLAUDE~1 gi7eba~1 BASHRC~1 ENVRC~1 VSCODE~1.X MCP~1.JSO
    ．git/config .ｇｉｔ/config head bare/HEAD HEAD. .Git/x .vſcode/x .env.production .ENV.x/y .env.local
    .config/fish/config.fish .local/bin/git .mise.local.toml .zed/tasks.json .pdbrc .eslintrc.js .pnp.cjs .bazelrc
    .gradle/init.gradle .xsessionrc .pam_environment .opencode .continue .roo .aider.conf.yml .gitlab-ci.yaml .mise/x
"""
ORDINARY = """
    report.md git github/x .gitignore Makefile x.git a.env header.txt HEAD.md
    HEAD/x images/head/a.png .environment notes~1.txt
    agent/skills/x a~ claude.md AGENTS.md 图表.png …总结.md ...
"""


@pytest.mark.parametrize("name", SAME.split())
def test_other_names_of_the_same_file_are_protected(name: str) -> None:
    assert find_protected(name) is not None


@pytest.mark.parametrize("name", ORDINARY.split())
def test_ordinary_names_are_written(name: str) -> None:
    assert find_protected(name) is None


PLAIN = """
    report.md makefile.md make my-agents.md agents.csv package.json.txt data.json setup.txt main.py requirements.txt
    config.js index.js dockerfiles/x.txt notes~1.txt SKILL.md skills.md 图表.png workspace/a.csv build/a.csv
"""


@pytest.mark.parametrize("name", PLAIN.split())
def test_usual_results_do_not_act(name: str) -> None:
    assert find_acting(name) is None
    assert find_acting(name, as_skill=True) == ("SKILL.md" if name == "SKILL.md" else None)


@given(st.text(), st.text())
def test_judging_a_name_never_fails(one: str, other: str) -> None:
    find_protected(f"{one}/{other}")
    find_acting(f"{one}/{other}", as_skill=True)
    hidden_parts(f"{one}/{other}")


@pytest.mark.parametrize(
    ("rel", "patterns", "named"),
    [
        ("out/a", [], True),
        ("out/.a", ["out/*", "out/**", "**", "out/?a", "out/[.]a"], False),
        ("out/.a", ["out/.a"], True),
        ("out/.a", ["out/.*"], True),
        ("out/.a/b", ["out/.a/**"], True),
        ("out/.a/.b/c", ["out/.a/**"], False),
        ("out/.a/.b/c", ["out/.a/**", "out/.a/.b/*"], True),
        ("out/x/.git/config", ["out/**/config"], False),
        ("out/\u200c.git/config", ["out/**"], False),
    ],
)
def test_a_hidden_file_is_named_by_a_dot(rel: str, patterns: list[str], named: bool) -> None:
    assert is_named(rel, patterns) is named


@given(st.lists(st.sampled_from(["a", ".b", "c.d", ".e.f"]), min_size=1, max_size=4))
def test_the_pattern_that_is_offered_names_the_file(parts: list[str]) -> None:
    rel = "/".join(["out", *parts, ".last"])
    assert is_named(rel.split("/.")[0] + "/." + rel.split("/.")[1].split("/")[0], [pattern_for(rel)])


@pytest.mark.parametrize(
    ("root", "rel", "refused"),
    [
        ("/home/me/.claude/worktrees/shop", "results/report.md", False),
        ("/home/me/.claude/worktrees/shop/results", "report.md", False),
        ("/home/me/.local/share/shop", "report.md", False),
        ("/home/me", ".local/share/shop/report.md", True),
        ("/home/me/.claude/worktrees/shop", ".git/config", True),
        ("/home/me/.claude/worktrees/shop/.git", "config", True),
        ("/home/me/.claude/worktrees/.git", "config", True),
        ("/home/me/.claude/worktrees", "shop/x", True),
        ("/home/me", ".claude/x", True),
        ("/home/me", ".claude/worktrees/shop/x", True),
        ("/home/me", "a/.codex/worktrees/.git/config", True),
        ("/home/me", ".git/.claude/worktrees/a/x", True),
        ("/home/me", "shop/.git/worktrees/a/x", True),
    ],
)
def test_a_project_that_an_agent_keeps_is_a_project_of_the_person_alone(root: str, rel: str, refused: bool) -> None:
    try:
        check_unprotected(root, rel)
    except ProwessError as error:
        assert refused and error.code == "protected-name"
    else:
        assert not refused


def write(cwd: Path, folder: str, rel: str, text: str = "new", *, force: bool = False) -> None:
    with open_outside(str(cwd), folder, rel, force=force, make=True) as file:
        file.write(text.encode())


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path, "results", "a/b.txt")
    assert (tmp_path / "results" / "a" / "b.txt").read_text() == "new"
    with pytest.raises(RuntimeError), open_outside(str(tmp_path), ".", "half", force=False) as file:
        file.write(b"x")
        raise RuntimeError
    assert sorted(os.listdir(tmp_path)) == ["results"]


def test_who_was_faster_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused, open_outside(str(tmp_path), ".", "a", force=False) as file:
        file.write(b"ours")
        (tmp_path / "a").write_text("theirs")
    assert refused.value.code == "file-exists"
    assert (tmp_path / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["a"]


def test_no_link_is_followed_below_where_one_stands(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    (here / "link").symlink_to(there)
    (here / "deep").mkdir()
    (here / "deep" / "link").symlink_to(there)
    (here / "file").symlink_to(there / "file")
    for folder, rel in (("link", "x"), ("deep", "link/x"), (str(here / "link"), "x"), (".", "link/x")):
        with pytest.raises(ProwessError):
            write(here, folder, rel, force=True)
    write(here, ".", "file", force=True)
    assert not (here / "file").is_symlink() and os.listdir(there) == [], "the link was replaced, not followed"


def test_a_link_on_the_way_to_a_folder_elsewhere_is_the_persons(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    (tmp_path / "disk").symlink_to(there)
    write(here, "../disk", "x")
    assert (there / "x").read_text() == "new"
    (there / ".git").mkdir()
    (tmp_path / "hooks").symlink_to(there / ".git")
    with pytest.raises(ProwessError) as refused:
        write(here, "../hooks", "x")
    assert refused.value.code == "protected-name"


@pytest.mark.parametrize("rel", ["../x", "a/../../x", "/etc/x"])
def test_a_name_does_not_lead_out(tmp_path: Path, rel: str) -> None:
    with pytest.raises(ProwessError):
        write(tmp_path, "results", rel)
