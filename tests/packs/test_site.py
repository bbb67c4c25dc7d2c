from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from archive_bytes import tarred, zipped
from loopback import Exchange, Handler, Server
from prowess._internal.archive import ArchiveLimits
from prowess._internal.fetch import Fetched, fetch
from prowess.errors import FetchError, PackError, PackMismatch, PackUnsafe, in_one_line
from prowess.packs.obtain import obtain, obtain_site
from prowess.packs.source import parse_source
from prowess.packs.values import Obtained
from prowess.runtime.services.site_index import SCHEMA, read_index

SKILL = b"---\nname: pdf\ndescription: Reads.\n---\nBody.\n"
NEW, OLD = "/.well-known/agent-skills", "/.well-known/skills"


def site(pages: Mapping[str, bytes | str]) -> Handler:
    """A page that is text is a redirect to it."""

    def handle(exchange: Exchange) -> None:
        page = pages.get(exchange.request.path)
        if page is None:
            exchange.answer(404)
        elif isinstance(page, str):
            exchange.answer(302, location=page)
        else:
            exchange.answer(200, page)

    return handle


def entry(name: str, data: bytes, url: str, type: str = "archive", **more: object) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"name": name, "type": type, "description": f"About {name}.", "url": url, "digest": digest, **more}


def index(*entries: dict[str, Any], schema: str | None = SCHEMA) -> bytes:
    return json.dumps(({"$schema": schema} if schema else {}) | {"skills": entries}).encode()


ZIP, TAR = zipped({"SKILL.md": SKILL, "a.txt": b"a"}), tarred({"SKILL.md": SKILL, "run.sh": b""}, mode=0o755)
GOOD = {
    f"{NEW}/index.json": index(
        entry("pdf", ZIP, "pdf.zip", future="field"),
        entry("csv", TAR, "/elsewhere/csv.tar"),
        entry("one", SKILL, "one/SKILL.md", type="skill-md"),
        entry("odd", b"", "odd", type="hologram\x1b"),
    ),
    f"{NEW}/pdf.zip": ZIP,
    "/elsewhere/csv.tar": "/moved/csv.tar",
    "/moved/csv.tar": TAR,
    f"{NEW}/one/SKILL.md": SKILL,
}
OLDER = {
    f"{OLD}/index.json": index(
        {"name": "pdf", "description": "Reads.", "files": ["SKILL.md", "a b/ü.txt"]},
        {"name": "csv", "files": ["SKILL.md"]},
        schema=None,
    ),
    f"{OLD}/pdf/SKILL.md": SKILL,
    f"{OLD}/pdf/a%20b/%C3%BC.txt": b"u",
    f"{OLD}/csv/SKILL.md": SKILL,
}

Get = Callable[..., Obtained]


@pytest.fixture
def get(tmp_path: Path, machine: Path) -> Get:
    def get(url: str, *skills: str) -> Obtained:
        source = parse_source(url, cwd=str(tmp_path), home=str(machine))
        assert source.kind == "site"
        into = tmp_path / "into"
        try:
            return obtain(source, str(into), skills=skills, environ={})
        finally:
            assert not list(into.glob(".*")), "a download was left behind"

    return get


def files_of(obtained: Obtained) -> dict[str, bytes]:
    folder = Path(obtained.folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def code_of(get: Get, pages: Mapping[str, bytes | str], *skills: str) -> str:
    with Server(site(pages)) as server, pytest.raises((PackError, FetchError)) as caught:
        get(server.url(""), *skills)
    assert caught.value.hint and in_one_line(caught.value).isprintable()
    return str(caught.value.code)


def test_a_site_with_digests(get: Get):
    with Server(site(GOOD)) as server:
        obtained = get(server.url(""))
    assert files_of(obtained) == {
        "pdf/SKILL.md": SKILL,
        "pdf/a.txt": b"a",
        "csv/SKILL.md": SKILL,
        "csv/run.sh": b"",
        "one/SKILL.md": SKILL,
    }
    assert os.access(Path(obtained.folder) / "csv/run.sh", os.X_OK)
    assert obtained.is_ours and obtained.notes == ("odd: left out, its type 'hologram\\x1b' is not known.",)


def test_only_the_wanted_skills_are_downloaded(get: Get):
    with Server(site(GOOD)) as server:
        assert set(files_of(get(server.url(f"{NEW}/index.json"), "one"))) == {"one/SKILL.md"}
    assert [request.path for request in server.requests] == [f"{NEW}/index.json", f"{NEW}/one/SKILL.md"]
    with Server(site(GOOD)) as server, pytest.raises(PackError, match=r"no skill 'pfd'\.\nIt has: pdf") as caught:
        get(server.url(""), "pfd")
    assert caught.value.code == "site-skill-unknown"


def test_an_older_site_lists_files(get: Get):
    with Server(site(OLDER)) as server:
        obtained = get(server.url("/"), "pdf")
        assert files_of(obtained) == {"pdf/SKILL.md": SKILL, "pdf/a b/ü.txt": b"u"}
        first, second = read_index(server.url(""))
    assert (first.name, first.files, first.digest) == ("pdf", ("SKILL.md", "a b/ü.txt"), None)
    assert second.url == server.url(f"{OLD}/csv/")


def test_a_list_of_files_has_no_digest_and_is_left_out_of_a_new_index(get: Get):
    pages = {
        f"{NEW}/index.json": index({"name": "a", "type": "files", "files": ["SKILL.md"]}),
        f"{NEW}/a/SKILL.md": SKILL,
    }
    with Server(site(pages)) as server:
        obtained = get(server.url(""))
    assert (files_of(obtained), obtained.notes) == ({}, ("a: left out, its type 'files' is not known.",))


def test_a_site_without_an_index(get: Get):
    assert code_of(get, {f"{NEW}/index.json": b"<html>", **OLDER}) == "site-index-invalid"
    assert code_of(get, {}) == "site-no-index"


def test_a_wrong_digest(get: Get):
    pages = GOOD | {f"{NEW}/pdf.zip": zipped({"SKILL.md": SKILL + b"!"})}
    with Server(site(pages)) as server, pytest.raises(PackMismatch) as caught:
        get(server.url(""), "pdf")
    assert caught.value.code == "digest-mismatch"
    assert caught.value.hint and "owner" in caught.value.hint and "pin" not in caught.value.hint


def test_a_broken_file_is_named_by_its_address(get: Get):
    pages = {f"{NEW}/index.json": index(entry("pdf", b"no archive", "pdf.zip")), f"{NEW}/pdf.zip": b"no archive"}
    with Server(site(pages)) as server, pytest.raises(PackError) as caught:
        get(server.url(""))
    assert caught.value.message.startswith(f"{server.url(f'{NEW}/pdf.zip')}: ")


BAD = {
    "not json": (b"{", "site-index-invalid"),
    "deep": (b'{"skills":' + b"[" * 100_000, "site-index-invalid"),
    "a list": (b"[]", "site-index-invalid"),
    "no skills": (b'{"skills": 1}', "site-index-invalid"),
    "schema": (index(schema="https://example.com/9.0"), "site-schema-unknown"),
    "files without digests": (index({"name": "a", "type": "archive", "files": ["SKILL.md"]}), "site-index-invalid"),
    "no name": (index({"type": "archive"}), "site-index-invalid"),
    "no digest": (index({**entry("a", b"", "a.zip"), "digest": "sha256:1"}), "site-index-invalid"),
    "no url": (index({**entry("a", b"", "a.zip"), "url": 1}), "site-index-invalid"),
    "broken url": (index(entry("a", b"", "http://[")), "site-index-invalid"),
    "half a character": (index(entry("a", b"", "\ud800")), "fetch-invalid-url"),
    "half a character in the host": (index(entry("a", b"", "https://\ud800/")), "fetch-invalid-url"),
    "a terminal code": (index(entry("a", b"", "a\x1b[2J.zip")), "fetch-invalid-url"),
    "twice": (index(entry("a", b"", "a.zip"), entry("A", b"", "a.zip")), "site-index-invalid"),
    "no files": (index({"name": "a"}, schema=None), "site-index-invalid"),
    "no SKILL.md": (index({"name": "a", "files": ["x"]}, schema=None), "site-index-invalid"),
    "escape": (index({"name": "a", "files": ["SKILL.md", "../x"]}, schema=None), "pack-unsafe-path"),
    "absolute": (index({"name": "a", "files": ["/x", "SKILL.md"]}, schema=None), "pack-unsafe-path"),
    "double": (index({"name": "a", "files": ["SKILL.md", "SKILL.md"]}, schema=None), "pack-unsafe-duplicate"),
    "file": (index(entry("a", b"", "file:///etc/hostname")), "fetch-refused-scheme"),
    "gone": (index(entry("a", b"", "a.zip")), "fetch-status"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_index_that_cannot_be_used(name: str, get: Get, tmp_path: Path):
    data, code = BAD[name]
    assert code_of(get, {f"{NEW}/index.json": data, f"{NEW}/a/SKILL.md": SKILL, f"{NEW}/x": b"x"}) == code
    assert not (tmp_path / "x").exists() and not list((tmp_path / "into").iterdir())


@pytest.mark.parametrize("name", ["..", "a/b", "a\\b", "", ".hidden", "con", "NUL.x", "a.", "a\x00", "x" * 65, "a b"])
def test_names_that_are_not_safe_folders(name: str, get: Get):
    assert code_of(get, {f"{NEW}/index.json": index(entry(name, b"", "a.zip"))}) == "site-name-unsafe"


def test_an_index_may_not_lead_further_inside(get: Get, tmp_path: Path):
    with Server(site({"/a.zip": ZIP})) as inner:
        pages = {f"{NEW}/index.json": index(entry("a", ZIP, inner.url("/a.zip")))}
        with Server(site(pages)) as server:  # both are on this machine
            assert set(files_of(get(server.url("")))) == {"a/SKILL.md", "a/a.txt"}
        asked = len(inner.requests)
        public = Fetched(status="new", url="https://example.com/index.json")
        for address in ("93.184.215.14", "127.0.0.1"):  # the second: its owner says so now, but not for the index
            with pytest.raises(FetchError) as caught:
                fetch(
                    inner.url("/a.zip"),
                    tmp_path / "a",
                    sha256=hashlib.sha256(ZIP).hexdigest(),
                    resolve=lambda host, address=address: [address],
                    linked_from=public,
                )
            assert caught.value.code == "fetch-refused-address"
        assert len(inner.requests) == asked
    pages = {f"{NEW}/index.json": index(entry("a", ZIP, "http://169.254.169.254/a.zip"))}
    assert code_of(get, pages) == "fetch-refused-address"


def test_all_skills_together_have_limits(tmp_path: Path, machine: Path):
    (tmp_path / "into").mkdir()
    with Server(site(GOOD)) as server:
        source = parse_source(server.url(""), cwd=str(tmp_path), home=str(machine))
        for limits in (ArchiveLimits(max_entries=2), ArchiveLimits(max_total_bytes=len(SKILL) + 10)):
            with pytest.raises(PackUnsafe) as caught:
                obtain_site(source, str(tmp_path / "into"), skills=["pdf", "one"], limits=limits)
            assert caught.value.code == "pack-too-large"
            for name in ("pdf", "one"):
                for file in (tmp_path / "into" / name).glob("*"):
                    file.unlink()
