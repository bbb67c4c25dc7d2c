"""Nothing gets out of its folder, nothing but a regular file is opened, and a written file is whole or not there."""

from __future__ import annotations

import os
import random
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from guard import GUARD_S
from prowess._internal.digest import FileDigest, content_sha256, tree_digest
from prowess._internal.files import NotRegular, open_regular, read_regular, write_whole
from prowess._internal.paths import check_safe_name, inside, is_inside
from prowess.errors import PathEscape, SkillInvalid
from prowess.skills.discover import discover
from prowess.skills.load import load, read_resource

# --- containment ----------------------------------------------------------------------------------------------------

_LINKS = {
    "in": "a",
    "in-file": "a/b/c.txt",
    "out": "../outside",
    "out-file": "../outside/secret.txt",
    "out-absolute": "/etc",
    "a/out-deep": "../../outside/secret.txt",
    "up": "..",
    "here": ".",
    "loop": "loop",
    "one": "two",
    "two": "one",
    "gone-out": "../nowhere",
    "gone-in": "a/nowhere",
    "beside": "../root-beside",
    "a/b/chain": "../../out",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """root/ with links in, out, around and to nowhere; outside/ and root-beside/ next to it."""
    top = tmp_path_factory.mktemp("tree")
    for folder in ("root/a/b", "outside", "root-beside"):
        (top / folder).mkdir(parents=True)
    (top / "root/a/b/c.txt").write_text("c", encoding="utf-8")
    for folder in ("outside", "root-beside"):
        (top / folder / "secret.txt").write_text("secret", encoding="utf-8")
    for name, target in _LINKS.items():
        (top / "root" / name).symlink_to(target)
    (top / "link-to-root").symlink_to("root")
    return top


_PARTS = st.sampled_from(
    [*_LINKS, "a", "b", "c.txt", "secret.txt", "chain", "outside", "root-beside", "..", ".", "", " "]
)
_RELATIVE = st.lists(_PARTS | st.text(max_size=4), max_size=7).flatmap(
    lambda parts: st.sampled_from(["/", "//", "\\"]).map(lambda separator: separator.join(parts))
)


@given(_RELATIVE | st.text(st.characters()))
@example("a/../../outside/secret.txt")
@example("out/secret.txt")
@example("out/../a")
@example("a/b/chain/secret.txt")
@example("loop/x")
@example("one/../a")
@example("\ud800")
@example("x\0y")
@example("n" * 300)
@example("n/" * 3000)
@example("~/x")
def test_a_path_ends_up_inside_or_is_refused(tree: Path, relative: str) -> None:
    for root in (tree / "root", tree / "link-to-root"):
        try:
            path = inside(root, relative)
        except PathEscape as error:
            assert error.code == "path-escape" and error.hint
            continue
        real, base = os.path.realpath(path), os.path.realpath(tree / "root")
        assert os.path.isabs(path) and path == real
        assert os.path.commonpath([real, base]) == base


@pytest.mark.parametrize(
    ("relative", "resolved"),
    [
        ("", ""),
        ("a/b/c.txt", "a/b/c.txt"),
        ("./a//b/", "a/b"),
        ("a/...", "a/..."),
        ("in/b/c.txt", "a/b/c.txt"),
        ("in-file", "a/b/c.txt"),
        ("here/here/a", "a"),
        ("up/root/a", "a"),
        ("gone-in", "a/nowhere"),
        ("not/there/yet", "not/there/yet"),
    ],
)
def test_what_is_inside_is_resolved(tree: Path, relative: str, resolved: str) -> None:
    assert inside(tree / "link-to-root", relative) == os.path.realpath(tree / "root" / resolved)


@pytest.mark.parametrize(
    "relative",
    [
        *("../outside/secret.txt", "a/../../outside", "a/..", "/etc/passwd", "\\etc", "C:\\x", "c:x", "a\\..\\..\\x"),
        *("x\0", "\ud800", "out", "out/secret.txt", "out-file", "out-absolute/passwd", "a/out-deep", "up", "gone-out"),
        *("beside", "beside/secret.txt", "a/b/chain", "here/out", "up/outside"),
    ],
)
def test_what_leads_out_is_refused(tree: Path, relative: str) -> None:
    with pytest.raises(PathEscape):
        inside(tree / "root", relative)


def test_a_beginning_of_a_name_is_not_a_folder() -> None:
    assert is_inside("/x/a", "/x/a") and is_inside("/x/a", "/x/a/b") and is_inside("/", "/x")
    assert not is_inside("/x/a", "/x/ab") and not is_inside("/x/a", "/x") and not is_inside("/x/a", "/y")


@given(st.text(st.characters()))
def test_a_name_is_refused_by_its_spelling_alone(name: str) -> None:
    try:
        check_safe_name(name)
    except PathEscape:
        return
    joined = os.path.normpath(os.path.join("/base", name))
    assert joined == "/base" or joined.startswith("/base/")
    assert b"\0" not in os.fsencode(name)


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_files(tmp_path: Path) -> Iterator[dict[str, Path]]:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("regular")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "regular").write_bytes(b"0123456789")
    here = os.getcwd()
    os.chdir(tmp_path)  # the path of a socket may have 107 bytes only
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
            found = {path.name: path for path in tmp_path.iterdir()}
            yield found | {"null": Path("/dev/null"), "zero": Path("/dev/zero")}
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fifo", "FIFO"), ("folder", "folder"), ("socket", "socket"), ("null", "device"), ("zero", "device")],
)
@pytest.mark.parametrize("follow", [True, False])
def test_only_regular_files_are_opened(odd_files: dict[str, Path], name: str, kind: str, follow: bool) -> None:
    before = os.listdir("/dev/fd")
    with pytest.raises(NotRegular, match=f"a {kind}, not a regular file"):
        open_regular(str(odd_files[name]), follow=follow)
    assert os.listdir("/dev/fd") == before, "no descriptor is left open"


def test_a_link_is_opened_only_when_asked_for(odd_files: dict[str, Path]) -> None:
    with pytest.raises(NotRegular, match="a link, not a regular file"):
        read_regular(str(odd_files["link"]), 100)
    assert read_regular(str(odd_files["link"]), 100, follow=True) == b"0123456789"
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(str(odd_files["loop"]), 100, follow=True)


@pytest.mark.parametrize(("limit", "read"), [(0, b"0"), (5, b"012345"), (9, b"0123456789"), (10, b"0123456789")])
def test_a_read_is_bounded_and_tells_at_from_over(odd_files: dict[str, Path], limit: int, read: bytes) -> None:
    assert read_regular(str(odd_files["regular"]), limit) == read


def test_a_fifo_cannot_hang_us_whoever_asks(tmp_path: Path) -> None:
    """In a process of its own: if it hung, the time-out would end it."""
    skill = tmp_path / "library" / "pipe"
    skill.mkdir(parents=True)
    os.mkfifo(skill / "SKILL.md")
    program = (
        "import sys; from prowess.skills.discover import discover; from prowess.runtime.check import check\n"
        "print([f.code for f in discover(sys.argv[1]).findings])\n"
        "print([f.code for r in check([sys.argv[1] + '/pipe'], profile='spec') for f in r.findings])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, skill.parent], capture_output=True, text=True, timeout=GUARD_S
    )
    assert done.stdout == "['not-regular']\n['not-regular']\n", done.stderr


def test_a_fifo_that_is_swapped_in_at_the_last_moment_cannot_hang_us_either(tmp_path: Path) -> None:
    """The interpreter tells an audit hook of an open just before it does it: after we looked, before we opened."""
    (tmp_path / "victim").write_text("regular", encoding="utf-8")
    program = (
        "import os, sys; from prowess._internal.files import open_regular\n"
        "def swap(event, args):\n"
        "    if event == 'open' and args[0] == sys.argv[1]: os.unlink(args[0]); os.mkfifo(args[0])\n"
        "sys.addaudithook(swap)\n"
        "try: open_regular(sys.argv[1])\n"
        "except OSError as error: print(error)\n"
    )
    path = str(tmp_path / "victim")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=GUARD_S)
    assert done.stdout == f"a FIFO, not a regular file: {path}\n", done.stderr


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_file_is_written_with_its_folder_and_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = os.umask(0o077)
    try:
        write_whole("plain.txt", b"one")
        write_whole(tmp_path / "new" / "folders" / "secret.txt", b"two", mode=0o600)
    finally:
        os.umask(old)
    assert (tmp_path / "plain.txt").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "plain.txt").stat().st_mode) == 0o644
    secret = tmp_path / "new" / "folders" / "secret.txt"
    assert (secret.read_bytes(), stat.S_IMODE(secret.stat().st_mode)) == (b"two", 0o600)


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(TypeError):
        write_whole(path, "not bytes")  # type: ignore[arg-type]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", b"a file over a folder")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert path.read_bytes() == b"old"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """Files of this process may have 100,000 bytes, which for a writer is what a full disk is."""
    path = tmp_path / "file"
    write_whole(path, b"old")
    program = (
        "import resource, sys; from prowess._internal.files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: write_whole(sys.argv[1], b'x' * 1_000_000)\n"
        "except OSError as error: print(error.strerror)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=GUARD_S)
    assert done.stdout == "File too large\n", done.stderr
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    """Killed after some number of writes, which is in the middle of the next one; and read all the while."""
    path = tmp_path / "file"
    program = (
        "import sys; from prowess._internal.files import write_whole\n"
        "for number in range(10**6):\n"
        "    write_whole(sys.argv[1], bytes([97 + number % 26]) * 300_000)\n"
        "    print(number, flush=True)\n"
    )
    chance = random.Random(7)
    seen = set()
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(chance.randrange(1, 12)):
                assert child.stdout.readline()
                seen.add(_whole_letter(path))
            for _ in range(chance.randrange(200)):  # a moment later, without a clock
                seen.add(_whole_letter(path))
            child.kill()
        seen.add(_whole_letter(path))
    assert len(seen) > 3, "it was written again and again"


def _whole_letter(path: Path) -> bytes:
    data = path.read_bytes()
    assert len(data) == 300_000 and data == data[:1] * 300_000
    return data[:1]


# --- digests --------------------------------------------------------------------------------------------------------

_TREES = st.dictionaries(
    st.text("ab/-x\n", min_size=1, max_size=5), st.tuples(st.booleans(), st.binary(max_size=3)), max_size=4
)


def _digests(tree: dict[str, tuple[bool, bytes]]) -> list[FileDigest]:
    return [FileDigest(path, executable, content_sha256(data)) for path, (executable, data) in tree.items()]


@given(_TREES, st.randoms())
def test_the_order_of_files_does_not_matter(tree: dict[str, tuple[bool, bytes]], chance: random.Random) -> None:
    files = _digests(tree)
    digest = tree_digest(files)
    chance.shuffle(files)
    assert tree_digest(iter(files)) == digest
    assert digest.startswith("sha256:") and len(digest) == 7 + 64


@given(_TREES, _TREES)
@example({"a": (True, b"")}, {"a": (False, b"")})
@example({"ab": (False, b"c")}, {"a": (False, b"bc")})
@example({"a": (False, b"1"), "b": (False, b"2")}, {"a": (False, b"2"), "b": (False, b"1")})
@example({"a\n-": (False, b"")}, {"a": (False, b"")})
@example({}, {"a": (False, b"")})
def test_two_trees_have_one_digest_exactly_when_they_are_equal(
    one: dict[str, tuple[bool, bytes]], two: dict[str, tuple[bool, bytes]]
) -> None:
    assert (tree_digest(_digests(one)) == tree_digest(_digests(two))) == (one == two)


@given(_TREES, st.data())
def test_no_byte_can_be_moved_between_paths_and_contents(
    tree: dict[str, tuple[bool, bytes]], data: st.DataObject
) -> None:
    assume(tree)
    path = data.draw(st.sampled_from(sorted(tree)))
    executable, content = tree[path]
    moved = {**tree, path + "a": (executable, content[1:])}
    del moved[path]
    swapped = {**tree, path: (not executable, content)}
    digests = [tree_digest(_digests(each)) for each in (tree, moved, swapped)]
    assert digests[0] != digests[2]
    assert (digests[0] == digests[1]) == (tree == moved)


def test_the_digest_of_a_skill_is_that_of_its_files(tmp_path: Path, make_skill) -> None:
    def digest() -> str:
        return load(discover(tmp_path), "pdf").digest

    files = {"scripts/run.py": "print(1)\n", "references/a.md": "A", "references/b.md": "B"}
    skill = make_skill(tmp_path / "pdf", files=files)
    first = digest()
    os.utime(skill / "references/a.md", (0, 0))
    (skill / "references/b.md").unlink()
    (skill / "references/b.md").write_text("B", encoding="utf-8")
    (skill / "empty-folder").mkdir()
    (skill / "__pycache__").mkdir()
    (skill / "__pycache__" / "run.pyc").write_bytes(b"compiled")
    assert digest() == first, "times, order, empty folders and caches are no content"

    changes = []
    (skill / "scripts/run.py").chmod(0o755)
    changes.append(digest())
    (skill / "references/a.md").write_text("B", encoding="utf-8")
    (skill / "references/b.md").write_text("A", encoding="utf-8")
    changes.append(digest())
    (skill / "references/a.md").rename(skill / "references/c.md")
    changes.append(digest())
    (skill / "references/empty.md").touch()
    changes.append(digest())
    assert len({first, *changes}) == 5, "mode, content, name and presence are"


def test_what_changed_since_the_load_is_refused(tmp_path: Path, make_skill) -> None:
    path = make_skill(tmp_path / "pdf", files={"references/a.md": "A", "b.md": "B"})
    catalog = discover(tmp_path)
    skill = load(catalog, "pdf")
    assert read_resource(skill, "references/a.md") == b"A"
    (path / "references/a.md").unlink()
    (path / "references/a.md").symlink_to("../../secret.txt")
    (tmp_path / "secret.txt").write_text("A", encoding="utf-8")
    with pytest.raises(PathEscape):
        read_resource(skill, "references/a.md")
    (path / "SKILL.md").rename(tmp_path / "moved.md")
    (path / "SKILL.md").symlink_to("../moved.md")
    with pytest.raises(SkillInvalid) as refused:
        load(catalog, "pdf")
    assert refused.value.code == "file-outside"
