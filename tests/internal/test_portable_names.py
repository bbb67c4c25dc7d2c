from __future__ import annotations

import io
import tarfile
import unicodedata
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess._internal.archive import extract
from prowess._internal.portable_names import check_portable_names
from prowess.errors import PackUnsafe, in_one_line

CAFE = "caf\u00e9"
COLLIDING = [
    ("a/B", "a/b"),
    ("A/x", "a/y"),
    ("SKILL.md", "skill.MD"),
    (f"{CAFE}.md", f"{unicodedata.normalize('NFD', CAFE)}.md"),
    (f"{CAFE}/a", f"{unicodedata.normalize('NFD', CAFE).upper()}/b"),
    ("stra\u00dfe", "STRASSE"),
    ("k", "\u212a"),  # the Kelvin sign
]
RESERVED = [
    "CON",
    "nul",
    "aux.md",
    "COM1",
    "lpt9.tar.gz",
    "com\u00b9.txt",
    "Nul .txt",
    "conin$",
    "prn.",
    "a.",
    "a ",
    "b/a. ",
]
RESERVED += ["aux/SKILL.md", "a/nul/b", "ab:c", "SKILL.md:evil", "what?.md", "a*", 'say "hi"', "a|b", "<a>", "a./b"]
NOT_PLAIN = ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "C:/a", "c:a", "a\\b", "a\0b", "a\nb", "a\x7f", "a\udcff"]
FINE = ["SKILL.md", "a/b/c", ".hidden", "a.b.c", "console.md", "com10", "null", "a b.md", "auxiliary/x", "日本/é.md"]


def code_of(*paths: str) -> str:
    with pytest.raises(PackUnsafe) as caught:
        check_portable_names(paths)
    assert caught.value.hint
    assert in_one_line(caught.value).isprintable()
    return str(caught.value.code)


def test_usual_names_are_fine():
    check_portable_names(FINE)
    check_portable_names([])


@pytest.mark.parametrize(("one", "other"), COLLIDING)
def test_names_that_are_one_file_elsewhere(one: str, other: str):
    assert code_of("SKILL.txt", one, other) == "pack-unsafe-case"
    assert code_of(other, "x/y", one) == "pack-unsafe-case"


@pytest.mark.parametrize("name", RESERVED)
def test_names_that_windows_reserves(name: str):
    assert code_of("SKILL.md", name) == "pack-unsafe-name"


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_names_that_are_no_plain_path(name: str):
    assert code_of("SKILL.md", name) == "pack-unsafe-path"


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/b", "a/b/c")])
def test_duplicates(paths: tuple[str, str]):
    assert code_of(*paths) == "pack-unsafe-duplicate"


def test_the_error_names_both_entries():
    with pytest.raises(PackUnsafe, match=r"'a/b' differs from 'a/B'"):
        check_portable_names(["a/B", "a/b"])


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=5))
def test_what_is_accepted_stays_distinct_where_case_and_accents_do_not_count(paths: list[str]):
    try:
        check_portable_names(paths)
    except PackUnsafe:
        return
    assert len({unicodedata.normalize("NFC", path).lower() for path in paths}) == len(paths)
    for part in (part for path in paths for part in path.split("/")):
        assert part.rstrip(". ") == part
        assert part not in ("", ".", "..")
        assert ":" not in part


# --- every archive ----------------------------------------------------------------------------------------------------


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as bundle:
        for name in names:
            bundle.writestr(name, b"x")
    return data.getvalue()


def tarred(*names: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as bundle:
        for name in names:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            bundle.addfile(info)
    return data.getvalue()


@pytest.mark.parametrize(
    ("names", "code"),
    [
        *((pair, "pack-unsafe-case") for pair in COLLIDING),
        (("a/B/", "a/b/"), "pack-unsafe-case"),
        (("a/B/", "a/b"), "pack-unsafe-case"),
        *(((name,), "pack-unsafe-name") for name in RESERVED),
        (("a:b",), "pack-unsafe-path"),  # a drive letter
        (("x/nul/",), "pack-unsafe-name"),
    ],
)
def test_archives_with_such_names(tmp_path: Path, names: tuple[str, ...], code: str):
    for pack in (zipped, tarred):
        (tmp_path / "archive").write_bytes(pack("pdf/SKILL.txt", *names))
        with pytest.raises(PackUnsafe) as caught:
            extract(tmp_path / "archive", tmp_path / "into")
        assert caught.value.code == code
        assert caught.value.hint
        assert not (tmp_path / "into").exists()


def test_a_folder_may_be_named_before_and_after_its_files(tmp_path: Path):
    (tmp_path / "archive").write_bytes(tarred("pdf/", "pdf/a", "pdf/", "pdf/b/c"))
    assert [*extract(tmp_path / "archive", tmp_path / "into")] == ["pdf/a", "pdf/b/c"]
