from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from archive_bytes import tarred, zipped
from loopback import Exchange, Server, cutting, in_turn, redirecting, serving
from prowess._internal.digest import FileDigest, content_sha256, tree_digest
from prowess.skills.url_root import UrlRoot, open_url_root

HEAD = b"---\nname: pdf-forms\ndescription: Fills forms.\n---\nBody.\n"
FILES = {
    "pdf-forms/SKILL.md": HEAD,
    "pdf-forms/scripts/fill.py": b"print(1)\n",
    "other/SKILL.md": b"---\nname: other\n---\n",
}


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


class Cache:
    """A cache folder, a clock, and the questions the tests ask of both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()

    def open(self, url: str, *, offline: bool = False, max_age_s: float = 600) -> UrlRoot:
        root = open_url_root(url, str(self.folder), offline=offline, max_age_s=max_age_s, now=self.clock)
        if root.path is None:
            assert (root.digest, root.sha256, root.fetched_at) == (None, None, None)
        else:
            assert root.digest == digest_of(root.path)
        for left in self.folder.rglob("*"):
            assert not left.name.startswith("."), "something temporary was left behind"
        return root

    @property
    def meta(self) -> Path:
        (found,) = self.folder.glob("urls/*/meta.json")
        return found


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def content(root: UrlRoot) -> dict[str, bytes]:
    assert root.path is not None, root.findings
    base = Path(root.path)
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def digest_of(folder: str) -> str:
    return tree_digest(
        FileDigest(str(path.relative_to(folder)), os.access(path, os.X_OK), content_sha256(path.read_bytes()))
        for path in Path(folder).rglob("*")
        if path.is_file()
    )


def codes(root: UrlRoot) -> list[str]:
    return [finding.code for finding in root.findings]


# --- what is behind a URL ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [zipped(FILES), tarred(FILES), gzip.compress(tarred(FILES))], ids=["zip", "tar", "tgz"]
)
def test_an_archive(cache: Cache, data: bytes):
    with Server(serving(data)) as server:
        root = cache.open(server.url("/download?id=7"))
    assert content(root) == FILES
    assert (root.sha256, root.fetched_at, root.findings) == (hashlib.sha256(data).hexdigest(), cache.clock.at, ())


def test_a_folder_around_everything_is_fine(cache: Cache):
    files = {f"repo-main/skills/{name}": data for name, data in FILES.items()}
    with Server(serving(zipped(files))) as server:
        assert content(cache.open(server.url())) == files


def test_the_executable_bit_is_part_of_the_digest(cache: Cache):
    with Server(in_turn(serving(tarred(FILES)), serving(tarred(FILES, 0o755)))) as server:
        plain, executable = cache.open(server.url("/a")), cache.open(server.url("/b"))
    assert plain.digest != executable.digest


@pytest.mark.parametrize("file", ["SKILL.md", "skill.md"])
def test_a_skill_at_the_top_gets_a_folder_of_its_name(cache: Cache, file: str):
    with Server(serving(zipped({file: HEAD, "scripts/fill.py": b"1"}))) as server:
        assert content(cache.open(server.url())) == {f"pdf-forms/{file}": HEAD, "pdf-forms/scripts/fill.py": b"1"}


def test_one_skill_md(cache: Cache):
    with Server(serving(HEAD)) as server:
        assert content(cache.open(server.url("/raw/SKILL.md?ref=main"))) == {"pdf-forms/SKILL.md": HEAD}


@pytest.mark.parametrize(
    ("head", "path", "name"),
    [
        (b'---\nname: "quoted"   # why\n---\n', "/x/SKILL.md", "quoted"),
        (b"\xef\xbb\xbf---\r\nname: 'bom'\r\n---\r\n", "/x/SKILL.md", "bom"),
        ("---\nname: größe\n---\n".encode(), "/x/SKILL.md", "größe"),
        (b"---\nname: ../../evil\n---\n", "/x/pdf.md", "pdf"),
        (b"---\nname: a/b\n---\n", "/x/pdf.md", "pdf"),
        (b"---\nname: .hidden\n---\n", "/x/pdf.md", "pdf"),
        (b"---\nname: " + b"n" * 65 + b"\n---\n", "/x/pdf.md", "pdf"),
        (b"---\ndescription: none\n---\nname: body\n", "/x/pdf.md", "pdf"),
        (b"---\nname:\n---\n", "/skills/pdf/SKILL.md", "pdf"),
        (b"---\nname:\n---\n", "/SKILL.md", "SKILL"),
        (b"---\nname:\n---\n", "/a/%2e%2e%2fevil.md", "skill"),
        (b"---\nname:\n---\n", "/", "skill"),
    ],
)
def test_the_name_of_the_folder(cache: Cache, head: bytes, path: str, name: str):
    with Server(serving(head)) as server:
        assert content(cache.open(server.url(path))) == {f"{name}/SKILL.md": head}


@pytest.mark.parametrize("extension", [".zip", ".tar", ".tar.gz", ".tgz", ".ZIP", ""])
def test_the_name_from_the_address_of_an_archive(cache: Cache, extension: str):
    with Server(serving(zipped({"SKILL.md": b"no front matter"}))) as server:
        assert list(content(cache.open(server.url(f"/x/my-skill{extension}")))) == ["my-skill/SKILL.md"]


def test_a_file_url_is_looked_at_every_time(cache: Cache, tmp_path: Path):
    source = tmp_path / "skills.zip"
    source.write_bytes(zipped(FILES))
    assert content(cache.open(source.as_uri(), offline=True)) == FILES
    source.write_bytes(zipped({"new/SKILL.md": HEAD}))
    assert content(cache.open(source.as_uri())) == {"new/SKILL.md": HEAD}


# --- the cache --------------------------------------------------------------------------------------------------------


def test_the_layout_of_the_cache(cache: Cache):
    with Server(serving(zipped(FILES))) as server:
        url = server.url("/s.zip?token=hidden")
        secret = url.replace("//", "//me:secret@")
        root = cache.open(secret)
    key = hashlib.sha256(secret.encode()).hexdigest()[:32]
    assert root.digest is not None and root.path is not None
    assert root.path == str(cache.folder / "urls" / key / "trees" / root.digest.removeprefix("sha256:"))
    meta = json.loads(cache.meta.read_text())
    assert meta == {
        "schema": "prowess.url-root/1",
        "url": server.url("/s.zip"),
        "etag": meta["etag"],
        "last_modified": None,
        "sha256": root.sha256,
        "digest": root.digest,
        "tree": root.digest.removeprefix("sha256:"),
        "fetched_at": cache.clock.at,
    }


def test_young_is_served_without_a_request(cache: Cache):
    with Server(serving(zipped(FILES))) as server:
        first = cache.open(server.url())
        cache.clock.at += 599
        assert cache.open(server.url()) == first
        assert len(server.requests) == 1


@pytest.mark.parametrize("passed_s", [600, 10**9, -1], ids=["old", "very-old", "from-the-future"])
def test_old_is_asked_about_and_kept(cache: Cache, passed_s: float):
    with Server(serving(zipped(FILES))) as server:
        first = cache.open(server.url())
        cache.clock.at += passed_s
        second = cache.open(server.url())
        assert (second.path, second.findings, second.fetched_at) == (first.path, (), cache.clock.at)
        assert server.requests[1].headers["if-none-match"]
        assert cache.open(server.url()) == second
        assert len(server.requests) == 2


def test_old_without_a_validator_is_fetched_again(cache: Cache):
    with Server(serving(zipped(FILES), etag="")) as server:
        first = cache.open(server.url())
        cache.clock.at += 600
        second = cache.open(server.url())
    assert (second.path, second.findings, len(server.requests)) == (first.path, (), 2)


def test_changed_content_is_a_new_tree_and_the_old_one_stays_for_its_readers(cache: Cache):
    with Server(in_turn(serving(zipped(FILES)), serving(zipped({"new/SKILL.md": HEAD})))) as server:
        first = cache.open(server.url())
        cache.clock.at += 600
        second = cache.open(server.url())
    assert content(second) == {"new/SKILL.md": HEAD}
    assert content(first) == FILES
    assert second.findings == ()


def test_two_addresses_do_not_share(cache: Cache):
    with Server(in_turn(serving(zipped(FILES)), serving(HEAD))) as server:
        assert content(cache.open(server.url("/a?v=1"))) != content(cache.open(server.url("/a?v=2")))


@pytest.mark.parametrize(
    "meta",
    [
        "",
        "not json",
        "[" * 50_000,
        "{}",
        "null",
        '{"schema": "prowess.url-root/2"}',
        {"tree": "../../../../etc"},
        {"digest": "sha256:" + "0" * 64},
        {"digest": "sha256:" + "0" * 64, "tree": "0" * 64},
        {"fetched_at": "yesterday"},
        {"sha256": None},
    ],
)
def test_a_damaged_record_is_made_anew(cache: Cache, meta: str | dict[str, object]):
    with Server(serving(zipped(FILES))) as server:
        cache.open(server.url())
        given = meta if isinstance(meta, str) else json.dumps(json.loads(cache.meta.read_text()) | meta)
        cache.meta.write_text(given)
        root = cache.open(server.url())
        assert (content(root), codes(root)) == (FILES, ["cache-corrupt"])
        assert root.findings[0].severity == "info"
        assert (codes(cache.open(server.url())), len(server.requests)) == ([], 2)
    assert "if-none-match" not in server.requests[1].headers


def remove_tree(tree: Path) -> None:
    for path in sorted(tree.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    tree.rmdir()


@pytest.mark.parametrize(
    "damage",
    [
        remove_tree,
        lambda tree: (remove_tree(tree), tree.write_text("a file")),
        lambda tree: (tree / "pdf-forms" / "SKILL.md").write_text("changed"),
        lambda tree: (tree / "pdf-forms" / "SKILL.md").unlink(),
        lambda tree: (tree / "pdf-forms" / "SKILL.md").chmod(0o755),
        lambda tree: (tree / "pdf-forms" / "more.md").write_text("added"),
        lambda tree: (tree / "pdf-forms" / "link").symlink_to("/etc"),
        lambda tree: os.mkfifo(tree / "pdf-forms" / "fifo"),
    ],
    ids=["removed", "replaced", "changed", "lost", "made-executable", "added", "link", "fifo"],
)
def test_a_damaged_tree_is_never_served(cache: Cache, damage):
    with Server(serving(zipped(FILES))) as server:
        first = cache.open(server.url())
        assert first.path is not None
        damage(Path(first.path))
        root = cache.open(server.url())
        assert (content(root), codes(root), root.path) == (FILES, ["cache-corrupt"], first.path)
        damage(Path(first.path))
    gone = cache.open(server.url(), offline=True)
    assert (gone.path, codes(gone)) == (None, ["cache-corrupt", "url-failed"])


def test_many_at_once_all_end_well(cache: Cache, tmp_path: Path):
    """Threads and processes open one URL from an empty cache at the same moment."""
    ready = threading.Barrier(4)

    def wait_for_all(exchange: Exchange) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait(5)
        serving(zipped(FILES))(exchange)

    code = "import sys; from prowess.skills.url_root import open_url_root as o; print(o(sys.argv[1], sys.argv[2]).path)"
    with Server(wait_for_all) as server:
        command = [sys.executable, "-c", code, server.url(), str(cache.folder)]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)]
        found: list[str | None] = []

        def opened() -> None:
            found.append(open_url_root(server.url(), str(cache.folder), max_age_s=-1).path)

        threads = [threading.Thread(target=opened) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found += [process.communicate()[0].strip() for process in processes]
        root = open_url_root(server.url(), str(cache.folder))
    assert found == [root.path] * 4
    assert (content(root), root.findings) == (FILES, ())


# --- when it goes wrong -----------------------------------------------------------------------------------------------


def failing(status: int = 500):
    return lambda exchange: exchange.answer(status)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (failing(404), "404"),
        (redirecting("http://example.invalid/x"), "not encrypted"),
        (serving(b"<!doctype html><title>Sign in</title>"), "neither an archive nor a SKILL.md"),
        (serving(b""), "neither an archive nor a SKILL.md"),
        (serving(b"---\n" + b"x" * 1_100_000), "neither an archive nor a SKILL.md"),
        (serving(zipped(FILES)[:-30]), "damaged or cut off"),
        (serving(zipped({"../evil": b"1"})), "not a plain relative path"),
    ],
    ids=["status", "redirect", "html", "empty", "huge", "corrupt", "unsafe"],
)
def test_bad_answers_are_findings(cache: Cache, handler, reason: str):
    with Server(handler) as server:
        root = cache.open(server.url("/s.zip?token=hidden").replace("//", "//me:secret@"))
    (finding,) = root.findings
    assert (root.path, finding.code, finding.severity) == (None, "url-failed", "error")
    assert finding.path == server.url("/s.zip")
    assert reason in finding.message and finding.hint
    assert "secret" not in repr(root) and "hidden" not in repr(root)
    assert list(cache.folder.rglob("meta.json")) == []


def test_a_good_copy_is_used_while_the_server_is_bad(cache: Cache):
    bad = [
        failing(500),
        failing(404),
        cutting(zipped({"x/SKILL.md": HEAD}), 50),
        serving(b"<html>"),
        serving(b"PK\x03\x04"),
    ]
    with Server(in_turn(serving(zipped(FILES)), *bad)) as server:
        first = cache.open(server.url())
        cache.clock.at += 3 * 3600
        for _ in bad:
            root = cache.open(server.url())
            assert (content(root), root.digest, root.fetched_at) == (FILES, first.digest, first.fetched_at)
            (finding,) = root.findings
            assert (finding.code, finding.severity) == ("url-stale", "warning")
            assert "3 hours ago" in finding.message and finding.hint
        assert len(server.requests) == 1 + len(bad)  # with a copy at hand nobody waits for retries


def test_a_good_copy_is_used_while_nobody_is_there(cache: Cache):
    with Server(serving(zipped(FILES))) as server:
        cache.open(server.url())
    cache.clock.at += 601
    root = cache.open(server.url())
    assert (content(root), codes(root)) == (FILES, ["url-stale"])


def test_offline(cache: Cache):
    with Server(serving(zipped(FILES))) as server:
        nothing = cache.open(server.url(), offline=True)
        assert (nothing.path, codes(nothing)) == (None, ["url-failed"])
        assert server.requests == []
        cache.open(server.url())
        assert cache.open(server.url(), offline=True).findings == ()
        cache.clock.at += 601
        old = cache.open(server.url(), offline=True)
        assert (content(old), codes(old), len(server.requests)) == (FILES, ["url-stale"], 1)


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://example.invalid/x", "http://example.invalid/x", "http://[::1/x"]
)
def test_bad_addresses_are_findings(cache: Cache, url: str):
    assert codes(cache.open(url)) == ["url-failed"]


def test_a_cache_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with Server(serving(zipped(FILES))) as server:
        assert codes(open_url_root(server.url(), str(tmp_path / "file"))) == ["url-failed"]


@pytest.mark.parametrize("room_bytes", [0, 30_000, 150_000], ids=["nothing", "not-the-download", "not-the-tree"])
def test_a_full_disk_is_a_finding(cache: Cache, room_bytes: int):
    """No file may grow beyond the limit: writing fails as it does on a full disk, for root too."""
    big = {"new/SKILL.md": HEAD, "new/data": b"x" * 200_000}
    data = gzip.compress(tarred(big) if room_bytes > 100_000 else tarred(big | {"new/random": os.urandom(50_000)}))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextlib.contextmanager
    def little_room() -> Iterator[None]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with Server(in_turn(serving(data), serving(zipped(FILES)), serving(data))) as server:
        with little_room():
            root = open_url_root(server.url(), str(cache.folder))
        assert (root.path, codes(root)) == (None, ["url-failed"])
        assert content(cache.open(server.url())) == FILES
        with little_room():
            root = open_url_root(server.url(), str(cache.folder), max_age_s=-1)
        assert (content(root), codes(root)) == (FILES, ["url-stale"])
        cache.open(server.url())


# --- pins -------------------------------------------------------------------------------------------------------------


def pinned(url: str, data: bytes) -> str:
    return f"{url}#sha256={hashlib.sha256(data).hexdigest()}"


def test_a_pin_that_holds_needs_no_more_requests(cache: Cache):
    data = zipped(FILES)
    with Server(serving(data)) as server:
        url = pinned(server.url(), data)
        first = cache.open(url)
        cache.clock.at += 10**6
        assert cache.open(url) == first
    assert cache.open(url, offline=True) == first
    assert content(first) == FILES


def test_a_pin_that_does_not_hold_is_never_served(cache: Cache):
    data, other = zipped(FILES), zipped({"x/SKILL.md": HEAD})
    with Server(serving(data)) as server:
        url = pinned(server.url(), other)
        root = cache.open(url)
        assert (root.path, codes(root)) == (None, ["url-failed"])
        assert "pinned" in root.findings[0].message
        assert content(cache.open(server.url())) == FILES  # now it is in the cache, without a pin
        root = cache.open(url)
        assert (root.path, codes(root)) == (None, ["url-failed"])
        assert content(cache.open(pinned(server.url(), data))) == FILES
    root = cache.open(url, offline=True)
    assert (root.path, codes(root)) == (None, ["url-failed"])


@pytest.mark.parametrize("fragment", ["sha256=", "sha256=abc", "sha512=" + "0" * 128, "main", "sha256=" + "g" * 64])
def test_a_pin_that_cannot_be_read_is_not_ignored(cache: Cache, fragment: str):
    with Server(serving(zipped(FILES))) as server:
        root = cache.open(f"{server.url()}#{fragment}")
    assert (root.path, codes(root), server.requests) == (None, ["url-failed"], [])


def test_an_upper_case_pin_holds_too(cache: Cache):
    data = zipped(FILES)
    with Server(serving(data)) as server:
        assert content(cache.open(f"{server.url()}#sha256={hashlib.sha256(data).hexdigest().upper()}")) == FILES
