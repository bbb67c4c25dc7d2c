from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import resource
import shutil
import stat
import struct
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess._internal.archive import ArchiveLimits, extract
from prowess.errors import PackError, PackUnsafe

MIB = 1024 * 1024
SKILL = {"pdf/SKILL.md": b"---\nname: pdf\n---\n", "pdf/scripts/run.py": b"print(1)\n" * 50, "pdf/empty": b""}


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return data.getvalue()


def tarred(files: dict[str, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    return tar_of(*(member(name, content=content) for name, content in files.items()), format=format)


Given = tuple[tarfile.TarInfo, bytes]


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **fields: object) -> Given:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar_of(*members: Given, format: int = tarfile.PAX_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=format) as bundle:
        for info, content in members:
            bundle.addfile(info, io.BytesIO(content))
    return data.getvalue()


def tgz(files: dict[str, bytes]) -> bytes:
    return gzip.compress(tarred(files))


def zip_entry(name: str, content: bytes = b"", *, mode: int = 0o100644, **fields: int) -> bytes:
    """A zip of one entry; fields are set in its directory after it was written, so that they may be lies."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as bundle:
        info = zipfile.ZipInfo(name)
        info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
        bundle.writestr(info, content)
        for field, value in fields.items():
            setattr(info, field, value)
    return data.getvalue()


class Place:
    def __init__(self, folder: Path) -> None:
        self.archive, self.into = folder / "archive", folder / "into"

    def extract(self, data: bytes, limits: ArchiveLimits | None = None) -> dict[str, bytes]:
        self.archive.write_bytes(data)
        written = extract(self.archive, self.into, limits=limits or ArchiveLimits())
        contents = {name: (self.into / name).read_bytes() for name in written}
        assert written == {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        return contents

    def refused(self, data: bytes, limits: ArchiveLimits | None = None) -> str:
        with pytest.raises(PackError) as caught:
            self.extract(data, limits)
        assert not self.into.exists()
        assert caught.value.hint
        return str(caught.value.code)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- the good way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        zipped(SKILL),
        zipped(SKILL, zipfile.ZIP_STORED),
        tarred(SKILL),
        tarred(SKILL, tarfile.GNU_FORMAT),
        tarred(SKILL, tarfile.USTAR_FORMAT),
        tgz(SKILL),
    ],
    ids=["zip", "zip-stored", "tar-pax", "tar-gnu", "tar-ustar", "tar.gz"],
)
def test_kinds_are_told_apart_by_content(place: Place, data: bytes):
    assert place.extract(data) == SKILL


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_and_foreign_names(place: Place, format: int):
    files = {"a/" + "n" * 200 + "/é 日本.md": b"1", "tab’le.md": b"2", "a b/c.md": b"3"}
    assert place.extract(tarred(files, format)) == files


def test_zip_names_in_utf8_without_the_flag(place: Place):
    data = zipped({"XXXX.md": b"1"}).replace(b"XXXX", "éé".encode())  # as macOS writes them
    assert place.extract(data) == {"éé.md": b"1"}


@pytest.mark.parametrize("empty", [False, True])
def test_into_may_be_new_or_empty(place: Place, empty: bool):
    if empty:
        place.into.mkdir()
    else:
        place.into = place.into / "a" / "b"
    assert place.extract(zipped(SKILL)) == SKILL


def test_into_that_holds_something_is_left_alone(place: Place):
    place.into.mkdir()
    (place.into / "mine").write_text("mine")
    with pytest.raises(PackError) as caught:
        place.extract(zipped(SKILL))
    assert caught.value.code == "archive-target"
    assert os.listdir(place.into) == ["mine"]


def test_into_that_is_a_link_is_refused(place: Place, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    place.into.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError) as caught:
        place.extract(zipped(SKILL))
    assert caught.value.code == "archive-target"
    assert os.listdir(tmp_path / "elsewhere") == []


def test_modes_keep_only_the_executable_bit(place: Place):
    modes = {"plain": 0o666, "run": 0o700, "setuid": 0o4755, "nothing": 0o000, "sticky": 0o1777}
    expected = {"plain": 0o644, "run": 0o755, "setuid": 0o755, "nothing": 0o644, "sticky": 0o755}
    place.extract(tar_of(*(member(name, content=b"x", mode=mode) for name, mode in modes.items())))
    assert {name: stat.S_IMODE((place.into / name).stat().st_mode) for name in modes} == expected


def test_zip_modes(place: Place):
    place.extract(zip_entry("run", b"x", mode=0o104777))
    assert stat.S_IMODE((place.into / "run").stat().st_mode) == 0o755


@pytest.mark.parametrize("pack", [zipped, tgz])
def test_mac_junk_is_skipped(place: Place, pack: Callable[[dict[str, bytes]], bytes]):
    junk = {"__MACOSX/pdf/._SKILL.md": b"junk", "pdf/.DS_Store": b"junk", ".DS_Store": b"junk"}
    assert place.extract(pack(junk | SKILL)) == SKILL
    assert sorted(os.listdir(place.into)) == ["pdf"]


def test_dots_slashes_and_folders_named_twice_are_harmless(place: Place):
    folders = [member(name, tarfile.DIRTYPE) for name in (".", "./", "./pdf/", "pdf", "pdf//x/./y/")]
    assert place.extract(tar_of(*folders, member("./pdf//SKILL.md", content=b"1"))) == {"pdf/SKILL.md": b"1"}


def test_an_empty_folder_is_not_made(place: Place):
    """No digest has it, so nobody could tell that it is there."""
    folders = [member(name, tarfile.DIRTYPE) for name in ("pdf", "pdf/.git", "pdf/.git/hooks")]
    for data in (
        zipped({"pdf/": b"", "pdf/.git/hooks/": b"", "pdf/SKILL.md": b"1"}),
        tar_of(*folders, member("pdf/SKILL.md", content=b"1")),
    ):
        assert place.extract(data) == {"pdf/SKILL.md": b"1"}
        assert os.listdir(place.into / "pdf") == ["SKILL.md"]
        shutil.rmtree(place.into)


def test_an_empty_folder_has_a_name_like_any_other(place: Place):
    assert place.refused(zipped({"pdf/a/": b"", "pdf/a": b"1"})) == "pack-unsafe-duplicate"
    assert place.refused(zipped({"pdf/a": b"1", "pdf/a/": b""})) == "pack-unsafe-duplicate"
    assert place.refused(zipped({"pdf/a/": b"", "pdf/A": b"1"})) == "pack-unsafe-case"


def test_an_empty_zip_is_an_empty_folder(place: Place):
    assert place.extract(zipped({})) == {}
    assert place.into.is_dir()


def test_the_comment_that_git_writes_is_fine(place: Place):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", pax_headers={"comment": "0" * 40}) as bundle:
        bundle.addfile(tarfile.TarInfo("a/b"))
    assert place.extract(data.getvalue()) == {"a/b": b""}


# --- not an archive, or a broken one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        b"---\nname: x\n---\n",
        b"<html>",
        gzip.compress(b"hello", mtime=0),
        gzip.compress(b"x" * 9999, mtime=0),
        b"\0" * 10240,
    ],
)
def test_unknown(place: Place, data: bytes):
    assert place.refused(data) == "archive-unknown"


@pytest.mark.parametrize(
    "data",
    [zipped(SKILL), zipped(SKILL, zipfile.ZIP_STORED), tarred(SKILL), tgz(SKILL)],
    ids=["zip", "zip0", "tar", "tgz"],
)
@pytest.mark.parametrize("twentieth", range(1, 20))
def test_truncated(place: Place, data: bytes, twentieth: int):
    """Either it is refused or, when only the padding of a tar is missing, nothing is."""
    try:
        assert place.extract(data[: len(data) * twentieth // 20]) == SKILL
        assert data[257:262] == b"ustar"
    except PackError as error:
        assert error.code in ("archive-corrupt", "archive-unknown")
        assert not place.into.exists()


def test_a_tar_cut_off_between_two_members(place: Place):
    whole = tar_of(member("a", content=b"1"), member("b", content=b"2"))
    assert place.refused(whole[:1024]) == "archive-corrupt"
    assert place.refused(gzip.compress(whole[:1024])) == "archive-corrupt"


@pytest.mark.parametrize(
    "data", [zipped(SKILL), zipped(SKILL, zipfile.ZIP_STORED), tgz(SKILL)], ids=["zip", "zip0", "tgz"]
)
def test_no_flipped_byte_is_taken_for_another_file(place: Place, data: bytes):
    for at in range(0, len(data), 17):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        try:
            found = place.extract(bytes(broken))
            assert set(found.values()) <= set(SKILL.values())  # a name or a date may differ, a content may not
            for folder, _, files in os.walk(place.into, topdown=False):
                for name in files:
                    os.unlink(os.path.join(folder, name))
                os.rmdir(folder)
        except PackError:
            assert not place.into.exists()


def test_an_archive_that_is_not_there(place: Place):
    with pytest.raises(PackError) as caught:
        extract(place.archive, place.into)
    assert caught.value.code == "archive-io"
    assert not place.into.exists()


def test_a_fifo_is_no_archive(place: Place):
    os.mkfifo(place.archive)
    with pytest.raises(PackError):
        extract(place.archive, place.into)


def test_a_disk_that_is_full_leaves_nothing(place: Place):
    place.archive.write_bytes(zipped({"a": b"1", "big": os.urandom(200_000)}))
    with room_for(100_000), pytest.raises(PackError) as caught:
        extract(place.archive, place.into)
    assert caught.value.code == "archive-io"
    assert not place.into.exists()


@contextlib.contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """No file may grow beyond this: writing fails as it does on a full disk, for root too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- unsafe members ---------------------------------------------------------------------------------------------------

HOSTILE_NAMES = [
    "/etc/passwd",
    "../evil",
    "a/../../evil",
    "a/..",
    "..",
    "C:/evil",
    "c:evil",
    "./C:/evil",
    "..\\evil",
    "a\\b",
    "\\\\host\\share",
    "a\nb",
    "a\x1b[2Jb",
    "a" * 256,
    "/".join(["a" * 200] * 6),
    "/".join("a" * 33),
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("pack", [zipped, tarred, tgz])
def test_hostile_names(place: Place, name: str, pack: Callable[[dict[str, bytes]], bytes]):
    assert place.refused(pack({"pdf/SKILL.md": b"1", name: b"2"})) == "pack-unsafe-path"


def test_hostile_folder_names(place: Place):
    for name in ("../up/", "/abs/", "a/../../b/"):
        assert place.refused(tar_of(member(name, tarfile.DIRTYPE))) == "pack-unsafe-path"
        assert place.refused(zipped({name: b""})) == "pack-unsafe-path"


def test_a_nul_hides_nothing(place: Place):
    data = zipped({"evil.sh_.md": b"1"}).replace(b"evil.sh_.md", b"evil.sh\0.md")
    assert place.refused(data) == "pack-unsafe-path"
    assert place.refused(tar_of(member("a", pax_headers={"path": "evil.sh\0.md"}))) == "pack-unsafe-path"


def test_names_that_are_not_utf8(place: Place):
    assert place.refused(tarred({"a\udcff": b"1"}, tarfile.GNU_FORMAT)) == "pack-unsafe-path"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "SKILL.md"])
def test_links(place: Place, target: str):
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        assert place.refused(tar_of(member("a/link", kind, linkname=target))) == "pack-unsafe-link"
    assert place.refused(zip_entry("link", target.encode(), mode=stat.S_IFLNK | 0o777)) == "pack-unsafe-link"


def test_writing_through_a_link_is_stopped_at_the_link(place: Place, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    data = tar_of(member("a", tarfile.SYMTYPE, linkname=str(tmp_path / "outside")), member("a/evil", content=b"1"))
    assert place.refused(data) == "pack-unsafe-link"
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.parametrize(
    "kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"V", b"Z"]
)
def test_special_members(place: Place, kind: bytes):
    assert place.refused(tar_of(member("x", kind), format=tarfile.GNU_FORMAT)) == "pack-unsafe-special"


def test_special_members_of_a_zip(place: Place):
    for kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
        assert place.refused(zip_entry("x", mode=kind | 0o644)) == "pack-unsafe-special"


def test_sparse_files_by_extended_header(place: Place):
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": "9"}
    assert place.refused(tar_of(member("x", content=b"0\n", pax_headers=headers))) == "pack-unsafe-special"


def test_a_header_that_renames_everything(place: Place):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", pax_headers={"path": "evil"}) as bundle:
        bundle.addfile(tarfile.TarInfo("a"))
    assert place.refused(data.getvalue()) == "pack-unsafe-special"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compression(place: Place, method: int):
    assert place.refused(zipped(SKILL, method)) == "pack-unsafe-special"


def test_encrypted(place: Place):
    for flag in (0x1, 0x40 | 0x1, 0x2000):
        assert place.refused(zip_entry("a", b"1", flag_bits=flag)) == "pack-unsafe-encrypted"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_path_twice(place: Place):
    same = [("a/b", "a/b"), ("a/b", "a/./b"), ("a/b", "a//b"), ("a/b", "a"), ("a", "a/b"), ("a", "a/b/c")]
    for one, other in same:
        tar = tar_of(member(one, content=b"1"), member(other, content=b"2"))
        assert place.refused(tar) == "pack-unsafe-duplicate"
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as bundle:
            bundle.writestr(one, b"1")
            bundle.writestr(other, b"2")
        assert place.refused(data.getvalue()) == "pack-unsafe-duplicate"
    assert place.refused(tar_of(member("a", content=b"1"), member("a/", tarfile.DIRTYPE))) == "pack-unsafe-duplicate"


# --- bombs ------------------------------------------------------------------------------------------------------------


def test_limits_are_inclusive(place: Place):
    limits = ArchiveLimits(max_entries=2, max_file_bytes=10, max_total_bytes=15, max_depth=2)
    assert place.extract(tgz({"a/b": b"x" * 10, "a/c": b"x" * 5}), limits)


@pytest.mark.parametrize("pack", [zipped, tarred, tgz])
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ArchiveLimits(max_entries=2), "pack-too-many-entries"),
        (ArchiveLimits(max_file_bytes=99), "pack-too-large"),
        (ArchiveLimits(max_total_bytes=299), "pack-too-large"),
        (ArchiveLimits(max_depth=1), "pack-unsafe-path"),
        (ArchiveLimits(max_path_bytes=2), "pack-unsafe-path"),
    ],
)
def test_limits(place: Place, pack: Callable[[dict[str, bytes]], bytes], limits: ArchiveLimits, code: str):
    assert place.refused(pack({f"a/{n}": bytes(100) for n in range(3)}), limits) == code


def test_few_names_cannot_make_many_folders(place: Place):
    data = tarred({f"{n}/" + "/".join("abcdefghij"): b"" for n in range(10)})
    assert place.refused(data, ArchiveLimits(max_entries=50)) == "pack-too-many-entries"
    data = zipped({f"{n}/" + "/".join("abcdefghij/"): b"" for n in range(10)})
    assert place.refused(data, ArchiveLimits(max_entries=50)) == "pack-too-many-entries"


@pytest.mark.parametrize("pack", [zipped, tgz])
def test_the_ratio_is_judged_after_the_first_mib(place: Place, pack: Callable[[dict[str, bytes]], bytes]):
    limits = ArchiveLimits(max_entries=10)
    assert place.extract(pack({"a": bytes(MIB)}), limits)
    place.into = place.into.with_name("again")
    assert place.refused(pack({"a": bytes(MIB + 1)}), limits) == "pack-ratio"


def test_a_zip_whose_header_lies_about_the_size(place: Place):
    limits = ArchiveLimits(max_file_bytes=1000)
    big = bytes(5000)
    assert place.refused(zip_entry("a", big), limits) == "pack-too-large"
    for lie in (0, 10, 4999, 5001, 2**31):
        code = place.refused(zip_entry("a", big, file_size=lie), limits)
        assert code in ("archive-corrupt", "pack-too-large")
    assert place.refused(zip_entry("a", b"short", file_size=2**31)) == "archive-corrupt"


def test_entries_that_overlap(place: Place):
    """Many directory entries share the bytes of one member: small on disk, large when unpacked."""
    names = [f"{n:04}" for n in range(400)]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(names[0], os.urandom(500) * 20)
        for name in names[1:]:
            copy = zipfile.ZipInfo(name)
            for field in ("CRC", "file_size", "compress_size", "header_offset", "compress_type", "external_attr"):
                setattr(copy, field, getattr(bundle.filelist[0], field))
            bundle.filelist.append(copy)
    assert place.refused(data.getvalue()) in ("archive-corrupt", "pack-ratio", "pack-too-large")


def test_a_zip_with_a_huge_directory_is_refused_before_it_is_read(place: Place):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as bundle:
        for n in range(30_000):
            info = zipfile.ZipInfo(f"{n}")
            info.header_offset = info.CRC = 0
            bundle.filelist.append(info)
        bundle.writestr("last", b"")
    assert peak_bytes(lambda: place.refused(data.getvalue())) < 4 * MIB
    assert place.refused(data.getvalue()) == "pack-too-many-entries"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_tar_header_of_any_size_is_not_taken_into_memory(place: Place, kind: bytes):
    data = gzip.compress(tar_of(member("x", kind, bytes(20 * MIB))), 1)
    assert peak_bytes(lambda: place.refused(data)) < 4 * MIB
    assert place.refused(data) == "pack-too-large"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_many_headers_without_a_member_are_not_kept_in_memory(place: Place, kind: bytes):
    headers = (b"".join(b"14 %06d=abc\n" % (row * 50_000 + key) for key in range(50_000)) for row in range(20))
    data = gzip.compress(tar_of(*(member("x", kind, header) for header in headers), member("a")), 1)
    assert peak_bytes(lambda: place.refused(data)) < 8 * MIB
    assert place.refused(data) == "pack-too-large"


def test_a_member_may_have_several_headers(place: Place):
    kinds = (tarfile.XGLTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
    headers = [member("x", kind, b"7 ab=c\n" if kind in kinds[:2] else b"name\0") for kind in kinds]
    assert place.extract(tar_of(*headers, member("a"), *headers[:2], member("b"))) == {"name": b"", "b": b""}


def test_bombs_in_constant_memory(place: Place):
    bombs = [zip_entry("a", bytes(40 * MIB)), gzip.compress(tarred({"a": bytes(40 * MIB)}), 1)]
    for bomb in bombs:
        limits = ArchiveLimits(max_ratio=10**9, max_total_bytes=30 * MIB)
        assert peak_bytes(lambda bomb=bomb, limits=limits: place.refused(bomb, limits)) < 4 * MIB


def test_a_bomb_of_skipped_members(place: Place):
    data = gzip.compress(tarred({f"__MACOSX/{n}": bytes(MIB) for n in range(10)}), 1)
    assert place.refused(data, ArchiveLimits(max_total_bytes=5 * MIB, max_entries=100)) == "pack-too-large"
    assert place.refused(data, ArchiveLimits(max_entries=100, max_ratio=10)) == "pack-ratio"


def test_a_bomb_after_the_end_mark(place: Place):
    data = gzip.compress(tarred(SKILL) + bytes(10 * MIB), 1)
    assert place.refused(data, ArchiveLimits(max_total_bytes=5 * MIB, max_entries=100)) == "pack-too-large"


@pytest.mark.parametrize("size", [-1, 2**40, 2**62])
def test_a_tar_that_lies_about_a_size(place: Place, size: int):
    info = tarfile.TarInfo("a")
    info.size = size
    assert place.refused(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)) == "archive-corrupt"
    assert place.refused(tar_of(member("a", pax_headers={"size": str(size)}))) == "archive-corrupt"


@pytest.mark.parametrize(
    "record", [b"x", b"9 a=b\n", b"99999999999 a=b\n", b"6 ab\n\n", b"-5 a=b\n", b"0 a=b\n", b"\0"]
)
def test_broken_extended_headers(place: Place, record: bytes):
    assert place.refused(tar_of(member("x", tarfile.XHDTYPE, record))) == "archive-corrupt"


def peak_bytes(call: Callable[[], object]) -> int:
    call()  # imports and caches are not what is measured
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# --- anything at all --------------------------------------------------------------------------------------------------

PARTS = st.one_of(
    st.sampled_from(
        ["..", ".", "", "a", "A", "é", "SKILL.md", "C:", "\\", "a\\..", "__MACOSX", ".DS_Store", "nul\0nul"]
    ),
    st.text(max_size=12),
)
NAMES = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/", "//", "./", "../", "C:\\", "\\\\"]),
    st.lists(PARTS, min_size=1, max_size=4),
    st.sampled_from(["", "/", "/.", "/.."]),
)
FILE, FOLDER = tarfile.REGTYPE, tarfile.DIRTYPE
KINDS = st.sampled_from([FILE, FILE, FOLDER, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"S"])


@given(members=st.lists(st.tuples(NAMES, KINDS), max_size=4), pack=st.sampled_from(["zip", "pax", "gnu", "gz"]))
@example(members=[("a", tarfile.SYMTYPE), ("a/b", tarfile.REGTYPE)], pack="gz")
@example(members=[("../../evil", tarfile.REGTYPE)], pack="zip")
def test_whatever_the_names_every_file_is_inside_or_nothing_is_there(members: list[tuple[str, bytes]], pack: str):
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        place.archive.write_bytes(b"")
        try:
            data = any_archive(members, pack)
        except (ValueError, UnicodeError, struct.error):
            return  # Python itself cannot write such an archive
        try:
            found = place.extract(data)
        except PackUnsafe:
            assert not place.into.exists()
        except PackError as error:
            assert error.code in ("archive-corrupt", "archive-unknown"), error
            assert not place.into.exists()
        else:
            walked = [os.path.relpath(os.path.join(at, f), place.into) for at, _, fs in os.walk(place.into) for f in fs]
            assert sorted(walked) == sorted(found)
            for name in found:
                assert os.path.realpath(place.into / name).startswith(os.path.realpath(place.into) + os.sep)
        assert set(os.listdir(folder)) <= {"archive", "into"}


def any_archive(members: list[tuple[str, bytes]], pack: str) -> bytes:
    if pack != "zip":
        infos = [member(name, kind, b"x" if kind == FILE else b"", linkname="../..") for name, kind in members]
        data = tar_of(*infos, format=tarfile.GNU_FORMAT if pack == "gnu" else tarfile.PAX_FORMAT)
        return gzip.compress(data, 1) if pack == "gz" else data
    modes = {FILE: 0o100644, FOLDER: 0o40755, tarfile.SYMTYPE: 0o120777, tarfile.FIFOTYPE: 0o10644}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as bundle:
        for n, (name, kind) in enumerate(members):
            info = zipfile.ZipInfo(f"{n}")
            info.filename = name  # past the constructor, which cuts at a NUL
            info.external_attr = modes.get(kind, 0) << 16
            if name not in bundle.NameToInfo:
                bundle.writestr(info, b"x")
    return data.getvalue()
