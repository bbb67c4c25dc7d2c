"""Every store of artifacts keeps the same promises; the one in a folder keeps them among processes that are killed.

What a bucket promises as well is in test_objects.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets import S3, open_s3
from prowess.core.ports import ArtifactStore
from prowess.core.values import Artifact, ArtifactRef, SessionKey
from prowess.errors import StoreError
from prowess.stores.artifacts import FolderArtifacts, parse_artifact_ref, render_artifact_ref
from prowess.stores.memory import MemoryArtifacts
from prowess.stores.object_artifacts import ObjectArtifacts

KEY = SessionKey(tenant="acme", user="ann", session="s")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with open_s3(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture(params=["memory", "folder", "bucket"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., ArtifactStore]:
    if request.param == "memory":
        return MemoryArtifacts
    if request.param == "folder":
        return lambda **options: FolderArtifacts(tmp_path / "artifacts", **options)
    server: S3 = request.getfixturevalue("s3")
    bucket = server.make_bucket()
    return lambda **options: ObjectArtifacts(f"s3://{bucket}/kept", environ=server.environ, **options)


@pytest.fixture
def store(make_store: Callable[..., ArtifactStore]) -> ArtifactStore:
    return make_store()


def run(awaitable: Any) -> Any:
    async def go() -> Any:
        return await awaitable

    return asyncio.run(go())


def refused(awaitable: Any) -> str:
    with pytest.raises(StoreError) as caught:
        run(awaitable)
    assert caught.value.hint
    return str(caught.value.code)


# --- what every store promises


def test_versions_count_from_nought_and_each_stays_what_it_was(store: ArtifactStore) -> None:
    for number, data in enumerate((b"one", b"", b"\x00\xff" * 1000)):
        saved = run(store.save(KEY, "out/a.bin", data))
        assert (saved.name, saved.version, saved.size_bytes) == ("out/a.bin", number, len(data))
        assert saved.sha256 == hashlib.sha256(data).hexdigest() and saved.created_at.endswith("Z")
        assert run(store.get(KEY, "out/a.bin")) == run(store.get(KEY, "out/a.bin", version=number)) == saved
    assert run(store.load(KEY, "out/a.bin", version=0)) == b"one"
    assert run(store.load(KEY, "out/a.bin", version=1)) == b""
    assert run(store.load(KEY, "out/a.bin")) == b"\x00\xff" * 1000
    assert list(run(store.versions(KEY, "out/a.bin"))) == [0, 1, 2]
    assert list(run(store.names(KEY))) == ["out/a.bin"]


def test_what_is_not_there_is_said_not_to_be(store: ArtifactStore) -> None:
    run(store.save(KEY, "a", b""))
    for attempt in (store.load, store.get, store.delete):
        assert refused(attempt(KEY, "b")) == "artifact-not-found"
        assert refused(attempt(KEY, "a", version=1)) == "artifact-not-found"
        assert refused(attempt(KEY, "a", version=-1)) == "artifact-not-found"
        assert refused(attempt(SessionKey(session="s"), "a")) == "artifact-not-found"
    assert list(run(store.versions(KEY, "b"))) == list(run(store.names(SessionKey(session="s")))) == []


def test_a_name_is_of_its_session_or_of_its_user(store: ArtifactStore) -> None:
    other = SessionKey(tenant="acme", user="ann", session="t")
    stranger = SessionKey(tenant="acme", user="bob", session="s")
    run(store.save(KEY, "user:a", b"shared"))
    run(store.save(KEY, "a", b"own"))
    assert run(store.save(other, "user:a", b"shared again")).version == 1
    assert run(store.load(KEY, "user:a")) == b"shared again"
    assert list(run(store.names(KEY))) == ["a", "user:a"]
    assert list(run(store.names(other))) == ["user:a"]
    assert list(run(store.names(stranger))) == []
    assert refused(store.load(other, "a")) == refused(store.load(stranger, "user:a")) == "artifact-not-found"
    for key in (
        SessionKey(tenant="x", user="ann", session="s"),
        SessionKey(tenant="acme", app="x", user="ann", session="s"),
    ):
        assert list(run(store.names(key))) == []


def test_a_deleted_number_is_not_given_again(store: ArtifactStore) -> None:
    for data in (b"0", b"1", b"2"):
        run(store.save(KEY, "a", data))
    run(store.delete(KEY, "a", version=2))
    assert list(run(store.versions(KEY, "a"))) == [0, 1]
    assert run(store.load(KEY, "a")) == b"1"
    assert (
        refused(store.load(KEY, "a", version=2)) == refused(store.delete(KEY, "a", version=2)) == "artifact-not-found"
    )
    assert run(store.save(KEY, "a", b"3")).version == 3
    run(store.delete(KEY, "a"))
    assert list(run(store.names(KEY))) == list(run(store.versions(KEY, "a"))) == []
    assert refused(store.delete(KEY, "a")) == "artifact-not-found"
    assert run(store.save(KEY, "a", b"4")).version == 4


def test_names_that_look_alike_are_apart(store: ArtifactStore) -> None:
    names = [
        "a",
        "a/b",
        "a@",
        "a@0",
        "A",
        "e\u0301",
        "\u00e9",
        "con",
        "CON",
        "a.",
        "a ",
        ".a",
        "~",
        "a~b",
        "user:a",
        "u/ser:a",
    ]
    names += [
        "%2e%2e",
        "x" * 255,
        "x" * 254 + "y",
        "会议/纪要.md",
        "0",
        "0/data",
        "artifact.json",
        "deleted",
        ".drafts/x",
    ]
    for name in names:
        run(store.save(KEY, name, name.encode()))
    for name in names:
        assert run(store.load(KEY, name)) == name.encode()
        assert list(run(store.versions(KEY, name))) == [0]
    assert list(run(store.names(KEY))) == sorted(names)


BAD_NAMES = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "./a", "a\\b", "..\\a", "C:/a", "c:a"]
BAD_NAMES += [
    "a\x00",
    "a\nb",
    "a\x1b[31m",
    "a\ud800",
    "a\u202eb",
    "x" * 256,
    "é" * 128,
    "user:",
    "user:../a",
    "user:/a",
]
BAD_NAMES += ["a/" * 32 + "a", "/".join(["x" * 200] * 6)]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_hostile_name_is_refused_everywhere(store: ArtifactStore, name: str) -> None:
    for attempt in (
        store.load(KEY, name),
        store.save(KEY, name, b""),
        store.delete(KEY, name),
        store.versions(KEY, name),
    ):
        assert refused(attempt) == "artifact-name-invalid"


PIECES = [b"a" * 300_000, b"", b"b", b"c" * 600_000]


async def crumbs() -> AsyncIterator[bytes]:
    for piece in PIECES:
        yield piece


@pytest.mark.parametrize("form", ["bytes", "file", "generator", "async"])
def test_content_comes_and_goes_in_pieces(store: ArtifactStore, form: str) -> None:
    whole = b"".join(PIECES)
    data: Any = {"bytes": whole, "file": io.BytesIO(whole), "generator": iter(PIECES), "async": crumbs()}[form]

    async def go() -> tuple[Artifact, list[bytes]]:
        saved = await store.save(KEY, "a", data)
        return saved, [piece async for piece in store.stream(KEY, "a")]

    saved, back = asyncio.run(go())
    assert b"".join(back) == whole and len(back) > 2
    assert (saved.size_bytes, saved.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())


async def endless_async() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000


def endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 1000


def test_too_much_is_refused_and_leaves_nothing(make_store: Callable[..., ArtifactStore], tmp_path: Path) -> None:
    store = make_store(max_bytes=10_000)
    for data in (b"x" * 10_001, endless(), endless_async()):
        assert refused(store.save(KEY, "a", data)) == "artifact-too-large"
    assert list(run(store.names(KEY))) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run(store.save(KEY, "a", b"x" * 10_000)).version == 0


def test_a_stream_that_breaks_saves_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    async def breaks_async() -> AsyncIterator[bytes]:
        yield b"x"
        raise ConnectionResetError("gone")

    def breaks() -> Iterator[bytes]:
        yield b"x"
        raise ConnectionResetError("gone")

    for data in (breaks(), breaks_async()):
        with pytest.raises(ConnectionResetError):
            run(store.save(KEY, "a", data))
    for data in ("text", [1, 2], 5, io.StringIO("text")):
        assert refused(store.save(KEY, "a", data)) == "artifact-not-bytes"  # type: ignore[arg-type]
    assert list(run(store.names(KEY))) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cancelled_save_leaves_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    async def go() -> None:
        begun = asyncio.Event()

        async def waits() -> AsyncIterator[bytes]:
            yield b"x" * 300_000
            begun.set()
            await asyncio.Event().wait()

        save = asyncio.ensure_future(store.save(KEY, "a", waits()))
        await begun.wait()
        save.cancel()
        with pytest.raises(asyncio.CancelledError):
            await save

    asyncio.run(go())
    assert list(run(store.names(KEY))) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("name", "data", "mime_type"),
    [
        ("a.json", b"x", "application/json"),
        ("A.PNG", b"x", "image/png"),
        ("a.csv", b"x", "text/csv"),
        ("a.md", b"x", "text/markdown"),
        ("a.docx", b"PK\x03\x04", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.tar.gz", b"x", "application/gzip"),
        ("a", b"\x89PNG\r\n\x1a\n...", "image/png"),
        ("a", b"%PDF-1.7", "application/pdf"),
        ("a", "é".encode() * 1000, "text/plain"),
        ("a", b"x" + "é".encode() * 1000, "text/plain"),
        ("a", "é".encode()[:1], "application/octet-stream"),
        ("a", b"", "text/plain"),
        ("a", b"a\x00b", "application/octet-stream"),
        ("a.unheard-of", b"\xff\xfe", "application/octet-stream"),
    ],
)
def test_the_kind_of_content(store: ArtifactStore, name: str, data: bytes, mime_type: str) -> None:
    assert run(store.save(KEY, name, data)).mime_type == mime_type
    assert run(store.save(KEY, name, data, mime_type="x/y")).mime_type == "x/y"


def test_many_savers_in_one_process(store: ArtifactStore) -> None:
    async def go() -> list[Artifact]:
        return await asyncio.gather(*(store.save(KEY, "a", str(n).encode()) for n in range(50)))

    saved = asyncio.run(go())
    assert sorted(each.version for each in saved) == list(range(50))
    assert {run(store.load(KEY, "a", version=n)) for n in range(50)} == {str(n).encode() for n in range(50)}


@pytest.mark.parametrize("make_store", ["folder", "bucket"], indirect=True)
def test_the_sessions_of_a_user_can_be_told(store: Any) -> None:
    sessions = ["s-1", "My Session", "会议", "a/b", "con", "x" * 200, "..."]
    for session in sessions:
        run(store.save(SessionKey(tenant="acme", user="ann", session=session), "Deep/er/a", b""))
        run(store.save(SessionKey(tenant="acme", user="bob", session="of bob"), "a", b""))
    run(store.save(KEY, "user:a", b""))
    assert list(run(store.sessions(KEY))) == sorted(sessions)
    assert list(run(store.sessions(SessionKey(session="s-1")))) == []


# --- references


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("artifact://a.txt", "a.txt", None),
        ("artifact://a.txt@0", "a.txt", 0),
        ("artifact://charts/a b.png@12", "charts/a b.png", 12),
        ("artifact://user:a@3", "user:a", 3),
        ("artifact://icon@2x.png", "icon@2x.png", None),
        ("artifact://a@", "a@", None),
        ("artifact://a@5@1", "a@5", 1),
        ("artifact://a@-1", "a@-1", None),
    ],
)
def test_a_reference_is_read_and_written(text: str, name: str, version: int | None) -> None:
    assert parse_artifact_ref(text) == ArtifactRef(name=name, version=version)
    assert render_artifact_ref(name, version) == text


@pytest.mark.parametrize(
    "text", ["", "a", "artifact:a", "workspace://a", "artifact://", "artifact://@5", "artifact://../a"]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse_artifact_ref(text)
    assert caught.value.code in ("artifact-ref-invalid", "artifact-name-invalid")


def test_a_name_that_looks_versioned_needs_its_version() -> None:
    with pytest.raises(StoreError) as caught:
        render_artifact_ref("a@5")
    assert caught.value.code == "artifact-ref-invalid"
    assert parse_artifact_ref(render_artifact_ref("a@5", 0)) == ArtifactRef(name="a@5", version=0)


AWKWARD = st.text(st.sampled_from("aA.~@/\\: \x00\n\u202e\ud800é%-0") | st.characters(), max_size=12) | st.sampled_from(
    BAD_NAMES
)


@given(name=AWKWARD, version=st.none() | st.integers(0, 999_999_999))
def test_any_reference_is_read_as_it_was_written(name: str, version: int | None) -> None:
    try:
        text = render_artifact_ref(name, version)
    except StoreError:
        return
    assert parse_artifact_ref(text) == ArtifactRef(name=name, version=version)


# --- what the one in a folder promises as well


@settings(max_examples=50)  # each makes a folder and waits for the disk
@given(name=AWKWARD, tenant=AWKWARD, session=AWKWARD)
def test_no_name_and_no_key_leads_out_of_the_folder(
    tmp_path_factory: pytest.TempPathFactory, name: str, tenant: str, session: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    store = FolderArtifacts(outside / "inside")
    try:
        run(store.save(SessionKey(tenant=tenant or "t", session=session or "s"), name, b"x"))
    except StoreError as error:
        assert error.code in ("artifact-name-invalid", "session-key-invalid")
        assert not list(outside.iterdir())
    else:
        assert [path.name for path in outside.iterdir()] == ["inside"]
        key = SessionKey(tenant=tenant or "t", session=session or "s")
        assert list(run(store.names(key))) == [name]
        assert run(store.load(key, name)) == b"x"


def test_plain_names_are_readable_on_disk_and_only_for_the_owner(tmp_path: Path) -> None:
    store = FolderArtifacts(tmp_path / "kept")
    run(store.save(KEY, "charts/sales-2024.png", b"x"))
    version = tmp_path / "kept/acme/default/ann/session/s/charts/sales-2024.png@/0"
    assert (version / "data").read_bytes() == b"x"
    known = json.loads((version / "artifact.json").read_text())
    assert known["schema"] == "prowess.artifact/1" and known["name"] == "charts/sales-2024.png"
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "kept/.drafts").iterdir()) == []


def test_it_is_still_there_tomorrow(tmp_path: Path) -> None:
    saved = run(FolderArtifacts(tmp_path).save(KEY, "a", b"x"))
    assert run(FolderArtifacts(tmp_path).get(KEY, "a")) == saved


def test_what_was_spoiled_is_noticed(tmp_path: Path) -> None:
    store = FolderArtifacts(tmp_path)
    run(store.save(KEY, "a", b"xyz"))
    (data,) = tmp_path.rglob("data")
    data.write_bytes(b"xyy")
    assert refused(store.load(KEY, "a")) == "artifact-corrupt"
    (known,) = tmp_path.rglob("artifact.json")
    for text in ("[", "[1]", "null", "[" * 50_000):
        known.write_text(text)
        assert refused(store.load(KEY, "a")) == refused(store.names(KEY)) == "artifact-corrupt"
        assert refused(store.sessions(KEY)) == "artifact-corrupt"


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    store = FolderArtifacts(tmp_path / "kept")
    run(store.save(KEY, "a", b"x"))
    (data,) = (tmp_path / "kept").rglob("data")
    data.unlink()
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError):
        run(store.load(KEY, "a"))


def test_a_file_in_the_way_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(FolderArtifacts(tmp_path / "file").save(KEY, "a", b"")) == "store-unavailable"
    assert refused(FolderArtifacts(tmp_path / "file" / "x").save(KEY, "a", b"")) == "store-unavailable"


def test_what_a_killed_saver_left_is_swept_after_a_day(tmp_path: Path) -> None:
    new = f"draft-{1:032x}"
    for name, age_s in ((f"draft-{0:032x}", 25 * 3600), (new, 60)):
        draft = tmp_path / ".drafts" / name
        draft.mkdir(parents=True)
        (draft / "data").write_text("")
        for path in (draft / "data", draft):
            os.utime(path, (time.time() - age_s,) * 2)
    run(FolderArtifacts(tmp_path).save(KEY, "a", b""))
    assert [path.name for path in (tmp_path / ".drafts").iterdir()] == [new]


@pytest.mark.parametrize("link", ["kept/.drafts", "kept", f"kept/.drafts/draft-{0:032x}", "version"])
def test_no_link_leads_a_save_or_a_removal_elsewhere(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    for folder in (outside, outside / "work", outside / ".drafts" / "work", outside / f"draft-{0:032x}" / "work"):
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("data", "artifact.json"):
            (folder / file).write_text("{}", encoding="utf-8")
            os.utime(folder / file, (0, 0))
        os.utime(folder, (0, 0))
    store = FolderArtifacts(tmp_path / "kept")
    version = tmp_path / "kept/acme/default/ann/session/s/a@/0"
    place = version if link == "version" else tmp_path / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    before = tree_of(outside)
    if link == "kept/.drafts":
        assert refused(store.save(KEY, "a", b"x")) == "store-unavailable"
    else:
        saved = run(store.save(KEY, "a", b"x"))
        assert saved.version == (1 if link == "version" else 0)
        run(store.delete(KEY, "a"))
    after = tree_of(outside)
    assert before.items() <= after.items()
    assert link == "kept" or before == after, "nothing is written there, either"


def tree_of(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


CHILD = """
import asyncio, sys
sys.path[:0] = {tests!r}
from test_artifacts import *

async def main():
    store = FolderArtifacts(sys.argv[1])
    name, count, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print("ready", flush=True)
    sys.stdin.readline()
    {body}

asyncio.run(main())
"""
SAVE = """
    for n in range(count):
        saved = await store.save(KEY, "a", f"{name} {n} ".encode() + b"x" * size)
        print(saved.version, n, flush=True)
"""


def child(body: str, *args: object) -> subprocess.Popen[str]:
    code = CHILD.format(tests=[str(folder) for folder in Path(__file__).parents[:2]], body=body.strip())
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def start(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()


def test_eight_processes_lose_no_version_and_share_none(tmp_path: Path) -> None:
    processes = [child(SAVE, tmp_path, f"p{n}", 50, 10) for n in range(8)]
    start(*processes)
    said: list[tuple[int, bytes]] = []
    for number, process in enumerate(processes):
        lines = [line.split() for line in process.communicate()[0].splitlines()]
        assert process.returncode == 0 and len(lines) == 50
        said += [(int(version), f"p{number} {n} xxxxxxxxxx".encode()) for version, n in lines]
    assert sorted(version for version, _ in said) == list(range(400))
    store = FolderArtifacts(tmp_path)
    assert list(run(store.versions(KEY, "a"))) == list(range(400))

    async def go() -> None:
        for version, content in said:
            assert await store.load(KEY, "a", version=version) == content

    asyncio.run(go())


def test_a_kill_leaves_a_version_whole_or_not_there(tmp_path: Path) -> None:
    chance = random.Random(11)
    store = FolderArtifacts(tmp_path)
    said = 0
    for turn in range(20):
        process = child(SAVE, tmp_path, f"t{turn}", 10_000, chance.choice([10, 50_000, 3_000_000]))
        start(process)
        assert process.stdout
        for _ in range(chance.randint(1, 5)):
            process.stdout.readline()
            said += 1
        until = time.perf_counter() + chance.random() * 0.01  # anywhere within the next save
        while time.perf_counter() < until:
            pass
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read() + process.communicate()[0]  # which alone forgets what was read ahead
        said += len(rest.splitlines())

    async def go() -> None:
        versions = await store.versions(KEY, "a")
        assert said <= len(versions) <= said + 20 and list(versions) == list(range(len(versions)))
        for version in versions:
            await store.load(KEY, "a", version=version)  # its hash is checked

    asyncio.run(go())


def test_a_full_disk_saves_nothing_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    body = """
    import resource
    await store.save(KEY, "a", b"before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    for data in (b"x" * 200_000, crumbs(), iter(PIECES)):
        try:
            await store.save(KEY, "a", data)
        except StoreError as error:
            print(error.code)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print((await store.save(KEY, "a", b"after")).version)
    """
    process = child(body, tmp_path, "p", 0, 0)
    assert process.communicate("go\n")[0].split() == ["ready", "store-full", "store-full", "store-full", "1"]
    assert Counter(path.name for path in tmp_path.rglob("*") if path.is_file()) == {"data": 2, "artifact.json": 2}


def test_a_large_file_is_saved_and_read_in_constant_memory(tmp_path: Path) -> None:
    body = """
    import resource
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async def large():
        for _ in range(400):
            yield bytes(256 * 1024)
    assert (await store.save(KEY, "a", large())).size_bytes == 100 << 20
    assert sum([len(piece) async for piece in store.stream(KEY, "a")]) == 100 << 20
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
    """
    process = child(body, tmp_path, "p", 0, 0)
    assert int(process.communicate("go\n")[0].split()[-1]) < 20_000  # KiB
