from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from archive_bytes import tarred, zipped
from loopback import Server, cutting, redirecting, serving
from prowess.errors import PackError, PackMismatch, PackUnsafe
from prowess.packs.obtain import obtain
from prowess.packs.source import parse_source
from prowess.packs.values import Obtained

SKILL = b"---\nname: pdf\ndescription: Reads.\n---\nBody.\n"
WRAPPED = {"pdf/SKILL.md": SKILL, "pdf/scripts/run.py": b"print(1)\n"}
AT_TOP = {"SKILL.md": SKILL, "scripts/run.py": b"print(1)\n"}

Get = Callable[..., Obtained]


@pytest.fixture
def get(tmp_path: Path, machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Get:
    def get(text: str, *, environ: Mapping[str, str] | None = None, **options: object) -> Obtained:
        source = parse_source(text, cwd=str(tmp_path), home=str(machine))
        into = tmp_path_factory.mktemp("into") / "new"
        try:
            obtained = obtain(source, str(into), environ=environ or {}, **options)  # pyright: ignore[reportArgumentType]
        except PackError:
            assert not into.exists() or os.listdir(into) == [], "something was left behind"
            raise
        assert os.listdir(into) == ([os.path.basename(obtained.folder)] if obtained.is_ours else [])
        return obtained

    return get


def files_of(obtained: Obtained) -> dict[str, bytes]:
    folder = Path(obtained.folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def code_of(get: Get, *arguments: str, **options: object) -> str:
    with pytest.raises(PackError) as caught:
        get(*arguments, **options)
    assert caught.value.hint
    return str(caught.value.code)


# --- folders and archives ---------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_place(tmp_path: Path, get: Get):
    (tmp_path / "skills").mkdir()
    obtained = get("skills")
    assert (obtained.folder, obtained.is_ours) == (str(tmp_path / "skills"), False)
    assert code_of(get, "./gone") == "source-missing"


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", ["my-pack.zip", "my-pack.skill", "my-pack.tar", "my-pack.tgz"])
@pytest.mark.parametrize("files", [WRAPPED, AT_TOP, {"repo-main/a/SKILL.md": SKILL, "repo-main/b/SKILL.md": SKILL}])
def test_an_archive_with_and_without_a_wrapper(
    tmp_path: Path, get: Get, pack: Callable[[dict[str, bytes]], bytes], name: str, files: dict[str, bytes]
):
    (tmp_path / name).write_bytes(pack(files))
    obtained = get(name)
    assert os.path.basename(obtained.folder) == "my-pack"
    assert files_of(obtained) == files
    assert obtained.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_a_pinned_archive(tmp_path: Path, get: Get):
    data = zipped(WRAPPED)
    (tmp_path / "a.zip").write_bytes(data)
    found, other = hashlib.sha256(data).hexdigest(), "0" * 64
    assert get(f"a.zip#sha256={found}", sha256=found).sha256 == found
    for text, pin in ((f"a.zip#sha256={other}", None), ("a.zip", other), (f"a.zip#sha256={found}", other)):
        with pytest.raises(PackMismatch) as caught:
            get(text, sha256=pin)
        assert caught.value.code == "digest-mismatch"


def test_archives_that_are_none(tmp_path: Path, get: Get):
    (tmp_path / "text.zip").write_bytes(b"hello")
    (tmp_path / "cut.zip").write_bytes(zipped(WRAPPED)[:-30])
    (tmp_path / "out.zip").write_bytes(zipped({"../x": b""}))
    (tmp_path / "folder.zip.d").mkdir()
    os.mkfifo(tmp_path / "pipe.zip")
    assert code_of(get, "text.zip") == "archive-unknown"
    (tmp_path / "empty.zip").write_bytes(b"")
    with pytest.raises(PackError, match=r"\./empty\.zip: This file is empty: "):
        get("empty.zip")
    assert code_of(get, "cut.zip") == "archive-corrupt"
    assert code_of(get, "gone.zip") == "source-missing"
    assert code_of(get, "./pipe.zip") == "pack-io"
    with pytest.raises(PackUnsafe):
        get("out.zip")


@pytest.mark.parametrize("name", ["text.zip", "cut.zip", "out.zip"])
def test_an_error_names_the_source_and_no_folder_of_ours(name: str, tmp_path: Path, get: Get):
    data = {"text.zip": b"hello", "cut.zip": zipped(WRAPPED)[:-30], "out.zip": zipped({"../x": b""})}[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PackError) as caught:
        get(name)
    assert caught.value.message.startswith(f"./{name}: ") and "download" not in caught.value.message
    with Server(serving(data)) as server:
        with pytest.raises(PackError) as caught:
            get(server.url(f"/{name}"))
        assert caught.value.message.startswith(f"{server.url(f'/{name}')}: ")
    assert ".download-" not in str(caught.value)


def test_a_target_that_cannot_be_written(tmp_path: Path, machine: Path):
    (tmp_path / "a.zip").write_bytes(zipped(WRAPPED))
    (tmp_path / "file").write_bytes(b"")
    source = parse_source("a.zip", cwd=str(tmp_path), home=str(machine))
    with pytest.raises(PackError) as caught:
        obtain(source, str(tmp_path / "file"), environ={})
    assert caught.value.code == "pack-io"


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "data", "files"),
    [
        ("/my-pack.zip", zipped(WRAPPED), WRAPPED),
        ("/my-pack.tar.gz?raw=1", gzip.compress(tarred(AT_TOP)), AT_TOP),
        ("/my-pack/SKILL.md", SKILL, {"SKILL.md": SKILL}),
    ],
)
def test_downloads(get: Get, path: str, data: bytes, files: dict[str, bytes]):
    told: list[tuple[str, int, int | None]] = []
    with Server(serving(data)) as server:
        obtained = get(server.url(path), progress=lambda *each: told.append(each))
    assert files_of(obtained) == files
    assert os.path.basename(obtained.folder) == "my-pack"
    assert obtained.sha256 == hashlib.sha256(data).hexdigest()
    shown = server.url(path.partition("?")[0])
    assert [each for each in told if each[0] == f"Downloading {shown}"][-1][1:] == (len(data), len(data))
    assert bool(obtained.notes) == ("?" in path), "the lock has no query, and this is told"
    assert path.endswith(".md") or told[-1] == ("Unpacking", len(files), None)


def test_downloads_that_fail(get: Get):
    data = zipped(WRAPPED)
    with Server(cutting(data, 20)) as server:
        assert code_of(get, server.url()) == "fetch-truncated"
    with Server(redirecting("/again.zip")) as server:
        assert code_of(get, server.url()) == "fetch-redirects"
    with Server(serving(b"<html>")) as server:
        assert code_of(get, server.url()) == "archive-unknown"
    with Server(lambda exchange: exchange.answer(404)) as server:
        assert code_of(get, server.url()) == "fetch-status"
    assert code_of(get, "http://example.com/a.zip") == "fetch-insecure"


def test_pinned_downloads(get: Get):
    data = zipped(WRAPPED)
    pin, other = hashlib.sha256(data).hexdigest(), "0" * 64
    with Server(serving(data)) as server:
        assert files_of(get(f"{server.url()}#sha256={pin}")) == WRAPPED
        for text, lock in ((f"#sha256={other}", None), ("", other), (f"#sha256={pin}", other)):
            with pytest.raises(PackMismatch) as caught:
                get(server.url() + text, sha256=lock)
            assert caught.value.code == "digest-mismatch"


# --- Python packages --------------------------------------------------------------------------------------------------


def write_package(site: Path, entries: str, files: Mapping[str, bytes]) -> None:
    info = site / "my_skills-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: My_Skills\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entries)
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)


TRAP = b"raise SystemExit('imported')\n"
PACKAGE = {
    "acme/__init__.py": TRAP,
    "acme/skills/__init__.py": TRAP,
    "acme/skills/pdf/SKILL.md": SKILL,
    "acme/skills/pdf/__pycache__/x.pyc": b"",
    "acme/more/csv/SKILL.md": SKILL,
    "acme/other.py": TRAP,
}


def test_a_package_that_declares_two_folders(tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch):
    write_package(tmp_path / "site", "[prowess.skills]\nfirst = acme.skills\nsecond = acme:more\n", PACKAGE)
    os.chmod(tmp_path / "site/acme/more/csv/SKILL.md", 0o755)
    monkeypatch.syspath_prepend(tmp_path / "site")
    obtained = get("python:my.skills")
    assert obtained.version == "1.2"
    assert sorted(files_of(obtained)) == ["first/__init__.py", "first/pdf/SKILL.md", "second/csv/SKILL.md"]
    assert os.access(Path(obtained.folder) / "second/csv/SKILL.md", os.X_OK)
    assert "acme" not in sys.modules


@pytest.mark.parametrize("target", ["/etc/passwd", "/etc"])
def test_a_package_with_a_link(target: str, tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch):
    write_package(tmp_path / "site", "[prowess.skills]\nall = acme.skills\n", PACKAGE)
    os.symlink(target, tmp_path / "site/acme/skills/pdf/link")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert code_of(get, "python:my-skills") == "pack-unsafe-link"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ("[console_scripts]\nx = acme:main\n", "package-no-skills"),
        ("[prowess.skills]\nx = acme.other\n", "package-entry-invalid"),
        ("[prowess.skills]\nx = acme:../..\n", "package-entry-invalid"),
        ("[prowess.skills]\nx = /etc\n", "package-entry-invalid"),
        ("[prowess.skills]\nx = acme:/etc\n", "package-entry-invalid"),
        ("[prowess.skills]\n../x = acme.skills\n", "package-entry-invalid"),
    ],
)
def test_packages_that_cannot_be_used(
    entries: str, code: str, tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch
):
    write_package(tmp_path / "site", entries, PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert code_of(get, "python:my-skills") == code


def test_a_package_that_is_missing_may_be_a_misspelt_name(get: Get):
    with pytest.raises(PackError, match="'reqeusts' is not installed") as caught:
        get("python:reqeusts")
    assert caught.value.code == "package-missing"
    assert caught.value.hint and "If you trust" in caught.value.hint and "pip install" not in caught.value.hint


@pytest.mark.parametrize("link", ["acme", "acme/skills", "acme/skills/pdf"])
@pytest.mark.parametrize("target", ["outside", "site/other"])
def test_a_folder_that_leads_out_of_the_package(
    link: str, target: str, tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / target / "skills/pdf").mkdir(parents=True)
    write_package(tmp_path / "site", "[prowess.skills]\nx = acme.skills:pdf\n", {})
    (tmp_path / "site" / link).parent.mkdir(parents=True, exist_ok=True)
    below = Path("acme/skills/pdf").relative_to(link)
    (tmp_path / target / below).mkdir(parents=True, exist_ok=True)
    os.symlink(tmp_path / target, tmp_path / "site" / link)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert code_of(get, "python:my-skills") == "package-entry-invalid"


@pytest.mark.parametrize(
    ("file", "content"),
    [("METADATA", b"\xff"), ("entry_points.txt", b"\xff"), ("entry_points.txt", b"[prowess.skills]\nx\n")],
)
def test_a_package_whose_metadata_is_broken(
    file: str, content: bytes, tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch
):
    write_package(tmp_path / "site", "[prowess.skills]\nall = acme.skills\n", PACKAGE)
    (tmp_path / "site/my_skills-1.2.dist-info" / file).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert code_of(get, "python:my-skills") == "package-unreadable"


@pytest.mark.parametrize("entry", ["", ".", "{here}"])
def test_a_package_in_the_working_folder_is_not_installed(
    entry: str, tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch
):
    """`python -m prowess` has the working folder in sys.path."""
    write_package(tmp_path, "[prowess.skills]\nall = acme.skills\n", PACKAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry.format(here=tmp_path), *sys.path])
    assert code_of(get, "python:my-skills") == "package-missing"


def test_a_package_of_the_active_virtual_environment(tmp_path: Path, get: Get):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    write_package(site, "[prowess.skills]\nall = acme.skills\n", PACKAGE)
    assert code_of(get, "python:my-skills") == "package-missing"
    obtained = get("python:my-skills", environ={"VIRTUAL_ENV": str(tmp_path / "venv")})
    assert sorted(files_of(obtained)) == ["all/__init__.py", "all/pdf/SKILL.md"]
