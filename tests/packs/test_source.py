from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess.errors import FetchError, PackError, in_one_line
from prowess.packs.source import FORMS, parse_source
from prowess.packs.values import PackSource

PIN = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with one of each thing, and a home beside it."""
    top = tmp_path_factory.mktemp("place")
    for folder in ("work/skills/pdf", "work/taken/repo/deep", "work/odd@name#1", "home/own", "work/plain.git"):
        (top / folder).mkdir(parents=True)
    (top / "work/skills/pdf/SKILL.md").write_text("---\nname: pdf\n---\n")
    for folder in ("taken/repo@v1", "git@example.com:taken/repo", "evil"):  # names that mean something else
        (top / "work" / folder).mkdir(parents=True)
    (top / "work/taken/SKILL.md").write_text("---\nname: taken\n---\n")
    (top / "work/pack.zip").write_bytes(b"")
    subprocess.run(["git", "init", "-q", "--bare", top / "work/bare"], check=True)
    subprocess.run(["git", "init", "-q", top / "work/tree"], check=True)
    return top


def parse(text: str, place: Path) -> PackSource:
    source = parse_source(text, cwd=str(place / "work"), home=str(place / "home"))
    assert parse_source(source.text, cwd=str(place / "work"), home=str(place / "home")).text == source.text
    return source


def short(source: PackSource, place: Path) -> tuple[str | None, ...]:
    location = source.location.replace(str(place), "")
    return source.kind, source.text, location, source.ref, source.path, source.sha256


LOCAL = {
    ".": ("folder", ".", "/work"),
    "skills": ("folder", "./skills", "/work/skills"),
    "./skills/": ("folder", "./skills", "/work/skills"),
    "./skills/../skills/pdf": ("folder", "./skills/pdf", "/work/skills/pdf"),
    "skills/pdf/SKILL.md": ("folder", "./skills/pdf", "/work/skills/pdf"),
    "./taken/repo": ("folder", "./taken/repo", "/work/taken/repo"),
    "taken/repo/deep": ("folder", "./taken/repo/deep", "/work/taken/repo/deep"),
    "taken/SKILL.md": ("folder", "./taken", "/work/taken"),
    "taken/later.zip": ("archive", "./taken/later.zip", "/work/taken/later.zip"),
    "./not-there": ("folder", "./not-there", "/work/not-there"),
    "odd@name#1": ("folder", "./odd@name#1", "/work/odd@name#1"),
    "~/own": ("folder", "~/own", "/home/own"),
    "../home/own": ("folder", "~/own", "/home/own"),
    "~": ("folder", "~", "/home"),
    "pack.zip": ("archive", "./pack.zip", "/work/pack.zip"),
    "later.TGZ": ("archive", "./later.TGZ", "/work/later.TGZ"),
    "my.skill": ("archive", "./my.skill", "/work/my.skill"),
    f"pack.zip#sha256={PIN.upper()}": ("archive", f"./pack.zip#sha256={PIN}", "/work/pack.zip", None, None, PIN),
    "bare": ("folder", "./bare", "/work/bare"),
    "./bare/": ("folder", "./bare", "/work/bare"),
    "./bare#hooks": ("folder", "./bare#hooks", "/work/bare#hooks"),
    "bare@v1#skills/pdf": ("git", "./bare@v1#skills/pdf", "/work/bare", "v1", "skills/pdf"),
    "./tree@feature/x": ("git", "./tree@feature/x", "/work/tree", "feature/x"),
    "./tree": ("folder", "./tree", "/work/tree"),
    "plain.git": ("git", "./plain.git", "/work/plain.git"),
    "plain.git#skills": ("git", "./plain.git#skills", "/work/plain.git", None, "skills"),
    "./not-there.git@v1": ("folder", "./not-there.git@v1", "/work/not-there.git@v1"),
}
REMOTE = {
    "https://Example.com/a/skills.zip": ("url", "https://example.com/a/skills.zip", "https://example.com/a/skills.zip"),
    f"https://example.com/get#sha256={PIN}": (
        *("url", f"https://example.com/get#sha256={PIN}", "https://example.com/get", None, None, PIN),
    ),
    "http://127.0.0.1:80/pdf/SKILL.md": ("url", "http://127.0.0.1:80/pdf/SKILL.md", "http://127.0.0.1:80/pdf/SKILL.md"),
    "owner/repo": ("git", "https://github.com/owner/repo", "https://github.com/owner/repo"),
    "owner/repo@v1.2#skills/pdf/": (
        *(
            "git",
            "https://github.com/owner/repo@v1.2#skills/pdf",
            "https://github.com/owner/repo",
            "v1.2",
            "skills/pdf",
        ),
    ),
    "https://github.com/owner/repo.git/": ("git", "https://github.com/owner/repo", "https://github.com/owner/repo"),
    "https://github.com/owner/.github@feature/x": (
        *("git", "https://github.com/owner/.github@feature/x", "https://github.com/owner/.github", "feature/x"),
    ),
    "https://github.com/owner/repo/tree/main/skills/my%20pdf": (
        *("git", "https://github.com/owner/repo@main#skills/my pdf", "https://github.com/owner/repo"),
        *("main", "skills/my pdf"),
    ),
    "https://github.com/owner/repo/tree/main": (
        *("git", "https://github.com/owner/repo@main", "https://github.com/owner/repo", "main"),
    ),
    "https://github.com/owner/repo/archive/main.zip": (
        *("url", "https://github.com/owner/repo/archive/main.zip", "https://github.com/owner/repo/archive/main.zip"),
    ),
    "https://gitlab.example.com/a/b/c/-/tree/v2/skills": (
        *("git", "https://gitlab.example.com/a/b/c.git@v2#skills", "https://gitlab.example.com/a/b/c.git"),
        *("v2", "skills"),
    ),
    "https://example.com/x.git@main#a": (
        *("git", "https://example.com/x.git@main#a", "https://example.com/x.git", "main", "a"),
    ),
    "ssh://git@Example.com:22/x.git@v1": (
        *("git", "ssh://git@example.com:22/x.git@v1", "ssh://git@example.com:22/x.git", "v1"),
    ),
    "git@example.com:owner/repo.git@v1#a/b": (
        *("git", "git@example.com:owner/repo.git@v1#a/b", "git@example.com:owner/repo.git", "v1", "a/b"),
    ),
    "git@example.com:owner/repo": ("git", "git@example.com:owner/repo", "git@example.com:owner/repo"),
    "https://example.com/": ("site", "https://example.com", "https://example.com"),
    "https://example.com/.well-known/agent-skills/index.json": (
        *("site", "https://example.com/.well-known/agent-skills/index.json"),
        "https://example.com/.well-known/agent-skills/index.json",
    ),
    "python:My_Skills": ("package", "python:my-skills", "my-skills"),
}


@pytest.mark.parametrize("text", [*LOCAL, *REMOTE])
def test_every_form_is_understood_and_reads_the_same_again(text: str, place: Path):
    expected = {**LOCAL, **REMOTE}[text]
    source = parse(text, place)
    assert short(source, place) == (*expected, *[None] * (6 - len(expected)))
    assert parse(source.text, place) == source


@pytest.mark.parametrize("text", ["taken/repo", "taken/repo/", "taken/repo@v1", "git@example.com:taken/repo"])
def test_a_folder_of_a_clone_never_stands_for_a_repository_elsewhere(text: str, place: Path):
    source = parse(text, place)
    assert (source.kind, source.location.startswith(("https://github.com/taken/", "git@"))) == ("git", True)


def test_a_path_goes_up_also_if_the_working_folder_has_an_odd_name(tmp_path: Path):
    cwd = tmp_path / "c#" / "me@work"
    assert parse_source(f"{cwd}/../skills", cwd=str(cwd), home="/home").location == str(tmp_path / "c#" / "skills")


UNSAFE = [
    *("a/b@v1#skills/x/../../../evil", "./tree@v1#x/../../evil", "a/b/c#../../../evil", "./tree@v1/../../evil"),
    *("ext::sh -c touch% /tmp/x", "fd::3", "--upload-pack=x", "-x/y", "a\nb", "a\x1b[2Jb", "./a\x00"),
    *("owner/repo@--upload-pack=x", "owner/repo@a..b", "owner/repo@a:b", "owner/repo@", "owner/repo@x.lock"),
    *("owner/repo#../x", "owner/repo#/etc", "owner/repo#a\\b", "https://github.com/o/r/tree/main/%2e%2e/x"),
    *("ssh://-oProxyCommand=x/y", "ssh://-x@host/y", "git://example.com/x.git", "http://example.com/x.git"),
    *("file:///x", "ftp://example.com/x.zip", "git+https://example.com/x"),
    *(
        "https://me:hunter2@example.com/x.git@v1",
        "https://hunter2@github.com/o/r",
        "https://github.com/o/r/tree/x/%e2%80%8b",
    ),
]
UNKNOWN = [
    *("", "nothing", "a/b/c", "https://example.com/a/b", "https://example.com?x=1", "python:", "python:a==1"),
    *("git@-oProxyCommand=x:y", "git@host:-x", "http://", "https://example.com/a b.zip", "x" * 5000),
]


@pytest.mark.parametrize("text", UNSAFE)
def test_what_could_start_programs_or_mislead_is_refused(text: str, place: Path):
    with pytest.raises(PackError) as caught:
        parse(text, place)
    assert caught.value.code == "source-unsafe"
    assert in_one_line(caught.value).isprintable()


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_understood_gets_the_forms(text: str, place: Path):
    with pytest.raises(PackError) as caught:
        parse(text, place)
    assert caught.value.code in ("source-unknown", "source-unsafe")
    if caught.value.code == "source-unknown":
        assert caught.value.hint is not None and all(form in caught.value.hint for form in FORMS)
    assert len(str(caught.value)) < 1000


def test_a_pin_that_is_none_is_refused(place: Path):
    for text in ("https://example.com/a.zip#sha256=12", "pack.zip#md5=1"):
        with pytest.raises(FetchError) as caught:
            parse(text, place)
        assert caught.value.code == "fetch-bad-pin"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hunter2@example.com/x.zip", "https://example.com/x.zip"),
        ("https://me:hunter2@example.com", "https://example.com"),
        ("https://example.com/x.zip?a=1&access_token=hunter2", "https://example.com/x.zip"),
    ],
)
def test_credentials_are_never_in_the_text(text: str, shown: str, place: Path):
    source = parse(text, place)
    assert source.text == shown
    assert "hunter2" in source.location


@pytest.mark.parametrize(
    "text",
    [
        *("https://me:hunter2@example.com/a/b", "me:hunter2@example.com:x", "ssh://git:hunter2@example.com/x.git"),
        *("https://hunter2@example.com/a?token=hunter2", "https://me:hunter2@example.com/x.git"),
    ],
)
def test_credentials_are_never_in_a_message(text: str, place: Path):
    with pytest.raises(PackError) as caught:
        parse(text, place)
    assert "hunter2" not in str(caught.value)


WORDS = st.text(st.sampled_from("ab.-_~@#%:/\\ ?=&+é\t中"), max_size=12)
STARTS = (
    "",
    "./",
    "../",
    "~/",
    "/",
    "python:",
    "file:///",
    "ext::",
    "git@h.example:",
    "ssh://git@h/",
    "git+https://h/",
)
HOSTS = ("https://h.example/", "https://h.example", "https://github.com/", "https://u:p@github.com/o/", "http://h/")
ENDS = (
    "",
    ".git",
    ".zip",
    "/index.json",
    "/tree/main/a",
    "/-/tree/main/a",
    f"#sha256={PIN}",
    "@v1",
    "#a/b",
    "/SKILL.md",
)
ANY_TEXT = st.one_of(
    st.text(max_size=30),
    st.builds(
        "{}{}{}{}".format, st.sampled_from([*STARTS, *HOSTS]), WORDS, st.sampled_from(ENDS), st.sampled_from(ENDS)
    ),
)


@given(ANY_TEXT)
@example("https://github.com/o/.git")
@example("https://github.com/o/r.git.git")
@example("https://github.com/o/r/tree/x/y")
@example("https://h.example/o/r.git/-/tree/x/a%23b@c")
@example("https://h.example/a.git@b/-/tree/x/y")
@example("////a//b")
@example("a/.")
@example("ssh://h//")
@example("o/.git.git")
@example("~/../x.zip")
@example("HTTP://0/#")
def test_the_text_is_canonical_whatever_was_written(place: Path, text: str):
    """Without credentials it names exactly the same; with credentials, the same but for them."""
    try:
        source = parse_source(text, cwd=str(place / "work"), home=str(place / "home"))
    except (PackError, FetchError) as error:
        assert in_one_line(error).isprintable() and len(str(error)) < 2000
        return
    again = parse_source(source.text, cwd=str(place / "work"), home=str(place / "home"))
    if source.location.startswith("http") and ("@" in source.location.split("/")[2] or "?" in source.location):
        assert (again.kind, again.text, again.ref, again.path) == (source.kind, source.text, source.ref, source.path)
        assert "@" not in source.text.split("/")[2]
    else:
        assert again == source
    assert source.text.isprintable() and not source.text.startswith("-")
    if source.kind in ("folder", "archive"):
        assert source.location.startswith("/") and source.location == str(Path(source.location))
    if source.ref is not None:
        assert not source.ref.startswith("-")


@given(st.lists(st.sampled_from(["a", "b c", "é", "x@y", "z#1", "p%20q"]), min_size=1, max_size=4))
def test_a_folder_is_found_again_from_another_machine(parts: list[str]):
    here = parse_source("/one/work/" + "/".join(parts), cwd="/one/work", home="/one")
    there = parse_source(here.text, cwd="/two/place", home="/two")
    assert there.location == here.location.replace("/one/work", "/two/place")


def test_an_empty_ref_is_shown_with_its_source():
    with pytest.raises(PackError, match="owner/repo@' is not a branch"):
        parse_source("owner/repo@", cwd="/", home="/")
