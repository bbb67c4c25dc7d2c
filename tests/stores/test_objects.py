"""What a bucket promises beyond every other store: nothing is lost when savers race, are killed or lose an answer, and
whatever is wrong with the server or its settings is said, in time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from buckets import S3, Asked, Kept, open_kept, open_s3, open_wrong
from prowess.core.values import Artifact, SessionKey
from prowess.errors import ConfigError, MissingExtra, ProwessError, StoreError
from prowess.stores.object_artifacts import ObjectArtifacts

KEY = SessionKey(tenant="acme", user="ann", session="s")
FOLDER = "kept/acme/default/ann/session/s/a@"
MIB = 1 << 20


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with open_s3(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.make_bucket()


@pytest.fixture
def make_store(s3: S3, bucket: str) -> Callable[..., ObjectArtifacts]:
    return lambda **options: ObjectArtifacts(f"s3://{bucket}/kept", environ=s3.environ, **options)


def run(awaitable: Any) -> Any:
    async def go() -> Any:
        return await awaitable

    return asyncio.run(go())


def refused(awaitable: Any) -> ProwessError:
    with pytest.raises(StoreError) as caught:
        run(awaitable)
    assert caught.value.hint
    return caught.value


# --- savers that race


def test_sixteen_savers_get_sixteen_versions(make_store: Callable[..., ObjectArtifacts]) -> None:
    async def go() -> list[Artifact]:
        stores = [make_store() for _ in range(16)]  # each for itself, as in sixteen processes
        return await asyncio.gather(*(store.save(KEY, "a", f"{n}".encode()) for n, store in enumerate(stores)))

    saved = asyncio.run(go())
    assert sorted(each.version for each in saved) == list(range(16))
    for number, each in enumerate(saved):
        assert run(make_store().load(KEY, "a", version=each.version)) == f"{number}".encode()


CHILD = """
import asyncio, json, os, signal, sys
sys.path[:0] = {tests!r}
from test_objects import *

url, environ = sys.argv[1], json.loads(sys.argv[2])

async def main():
{body}

asyncio.run(main())
"""


def child(s3: S3, bucket: str, body: str) -> subprocess.Popen[str]:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    code = CHILD.format(tests=[str(folder) for folder in Path(__file__).parents[:2]], body=lines)
    return subprocess.Popen(
        [sys.executable, "-c", code, f"s3://{bucket}/kept", json.dumps(s3.environ)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_lose_no_version_and_share_none(
    s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]
) -> None:
    body = """
store = ObjectArtifacts(url, environ=environ)
print("ready", flush=True)
name = sys.stdin.readline().strip()
for n in range(12):
    print((await store.save(KEY, "a", f"{name} {n}".encode())).version, f"{name} {n}")
"""
    processes = [child(s3, bucket, body) for _ in range(4)]
    for number, process in enumerate(processes):
        assert process.stdout and process.stdin and process.stdout.readline() == "ready\n"
        process.stdin.write(f"p{number}\n")
    for process in processes:
        assert process.stdin
        process.stdin.flush()
    said = [line.split(" ", 1) for process in processes for line in process.communicate()[0].splitlines()]
    assert sorted(int(version) for version, _ in said) == list(range(48))
    store = make_store()
    assert list(run(store.versions(KEY, "a"))) == list(range(48))
    for version, content in said:
        assert run(store.load(KEY, "a", version=int(version))) == content.encode()


# --- savers that die


def test_one_killed_between_content_and_record_leaves_no_version(
    s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]
) -> None:
    body = """
def kill():  # the time of a save is asked for when its content is there, and its record is not
    os.kill(os.getpid(), signal.SIGKILL)
await ObjectArtifacts(url, environ=environ, clock=kill).save(KEY, "a", b"lost")
"""
    process = child(s3, bucket, body)
    process.communicate()
    assert process.returncode == -9
    assert [size for key, size in s3.keys(bucket).items() if "/data/" in key] == [4]
    store = make_store()
    assert list(run(store.names(KEY))) == list(run(store.versions(KEY, "a"))) == []
    assert run(store.save(KEY, "a", b"kept")).version == 0
    assert run(store.load(KEY, "a")) == b"kept"
    assert len([key for key in s3.keys(bucket) if "/data/" in key]) == 2  # it might still be on its way


@pytest.mark.parametrize("how", ["save", "sweep"])
@pytest.mark.parametrize("wrong_by", [timedelta(0), timedelta(days=4000), timedelta(days=-4000)])
def test_what_a_killed_saver_left_is_swept_after_a_day_by_the_clock_of_the_server(
    how: str, wrong_by: timedelta
) -> None:
    with open_kept() as kept:
        store = google(kept, clock=lambda: datetime.now(UTC) + wrong_by)
        run(store.save(KEY, "a", b"kept"))
        run(store.save(KEY, "b", b"kept"))
        folder = "p/acme/default/ann/session/s/a@"
        lost, fresh, strange = (f"{folder}/data/{name}" for name in ("0" * 32, "1" * 32, "notes.txt"))
        kept.objects |= dict.fromkeys((lost, fresh, strange), b"x")
        assert run(store.sweep()) == 0
        kept.old |= set(kept.objects) - {fresh}
        if how == "save":
            run(store.save(KEY, "a", b"again"))
        else:
            assert run(store.sweep()) == 1
        assert lost not in kept.objects and fresh in kept.objects and strange in kept.objects
        assert run(store.load(KEY, "a", version=0)) == run(store.load(KEY, "b")) == b"kept"
        assert run(store.sweep()) == 0


def test_a_large_upload_that_breaks_or_is_cancelled_is_taken_back(
    s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]
) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        for _ in range(13):
            yield bytes(MIB)
        raise TimeoutError("the source gave up")

    with pytest.raises(TimeoutError, match="the source gave up"):
        run(make_store().save(KEY, "a", breaks()))

    async def go() -> None:
        begun = asyncio.Event()

        async def waits() -> AsyncIterator[bytes]:
            for _ in range(13):
                yield bytes(MIB)
            begun.set()
            await asyncio.Event().wait()

        save = asyncio.ensure_future(make_store().save(KEY, "a", waits()))
        await begun.wait()
        save.cancel()
        with pytest.raises(asyncio.CancelledError):
            await save

    asyncio.run(go())

    def too_much() -> Iterator[bytes]:
        while True:
            yield bytes(MIB)

    assert refused(make_store(max_bytes=12 * MIB).save(KEY, "a", too_much())).code == "artifact-too-large"
    assert s3.half_uploaded(bucket) == []
    assert list(s3.keys(bucket)) == ["kept/.conditional"]


def test_a_large_file_is_saved_and_read_in_constant_memory(s3: S3, bucket: str) -> None:
    body = """
import resource
store = ObjectArtifacts(url, environ=environ)
await store.save(KEY, "a", b"x" * 100)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
async def large():
    for _ in range(600):
        yield os.urandom(1000) * 256
saved = await store.save(KEY, "a", large())
assert saved.size_bytes == 600 * 256_000, saved
assert sum([len(piece) async for piece in store.stream(KEY, "a")]) == saved.size_bytes
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
"""
    process = child(s3, bucket, body)
    grown_kib = int(process.communicate()[0])
    assert process.returncode == 0 and grown_kib < 75_000  # of 150,000


def test_an_exit_waits_for_threads_that_are_still_in_python() -> None:
    """As those of obstore are after an answer: they are none of `threading`, and an exit in their midst aborts."""
    code = """
import _thread, atexit, os, sys
import prowess.stores.bucket
gate = _thread.allocate_lock()
gate.acquire()
def leave():
    ready.release()
    gate.acquire()
    os.write(1, b"left")
ready = _thread.allocate_lock()
ready.acquire()
_thread.start_new_thread(leave, ())
ready.acquire()
sys.setswitchinterval(100)  # the exit does not yield by chance
atexit.register(gate.release)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"left"


# --- answers that are lost, and servers that change their mind


def between(s3: S3, meddle: Callable[[Asked, Callable[[], httpx.Response]], None]) -> Any:
    """A server in front of the real one: `meddle` decides what happens to a request and to its answer."""

    def handle(asked: Asked) -> None:
        headers = {name: value for name, value in asked.headers.items() if name.lower() != "host"}
        meddle(
            asked, lambda: httpx.request(asked.command, s3.endpoint + asked.path, content=asked.body, headers=headers)
        )

    return open_wrong(handle)


def passed_on(asked: Asked, answer: httpx.Response) -> None:
    kept = {name: answer.headers[name] for name in ("etag", "last-modified", "content-range") if name in answer.headers}
    asked.answer(answer.status_code, answer.content, **kept)


def test_a_record_whose_answer_was_lost_is_not_made_twice(s3: S3, bucket: str) -> None:
    lost: list[str] = []

    def meddle(asked: Asked, ask: Callable[[], httpx.Response]) -> None:
        answer = ask()
        if asked.command == "PUT" and asked.path.endswith("/0") and not lost:
            lost.append(asked.path)
            asked.refuse(503, "SlowDown")
        else:
            passed_on(asked, answer)

    with between(s3, meddle) as endpoint:
        store = ObjectArtifacts(f"s3://{bucket}/kept", environ=s3.environ | {"AWS_ENDPOINT_URL": endpoint})
        assert run(store.save(KEY, "a", b"x")).version == 0
        assert list(run(store.versions(KEY, "a"))) == [0] and lost


@pytest.mark.parametrize("times", [2, 1000])
def test_a_refusal_without_a_reason_is_asked_again_but_not_for_ever(s3: S3, bucket: str, times: int) -> None:
    refusals: list[str] = []

    def meddle(asked: Asked, ask: Callable[[], httpx.Response]) -> None:
        if asked.command == "PUT" and asked.path.endswith("/0") and len(refusals) < times:
            refusals.append(asked.path)
            asked.refuse(409, "ConditionalRequestConflict")
        else:
            passed_on(asked, ask())

    with between(s3, meddle) as endpoint:
        store = ObjectArtifacts(f"s3://{bucket}/kept", environ=s3.environ | {"AWS_ENDPOINT_URL": endpoint})
        if times == 2:
            assert run(store.save(KEY, "a", b"x")).version == 0
        else:
            assert refused(store.save(KEY, "a", b"x")).code == "store-error"


def test_content_stays_while_nobody_knows_whether_there_is_a_record(s3: S3, bucket: str) -> None:
    def meddle(asked: Asked, ask: Callable[[], httpx.Response]) -> None:
        answer = ask()
        if asked.command == "PUT" and asked.path.endswith("/0"):
            asked.refuse(400, "Strange")
        else:
            passed_on(asked, answer)

    with between(s3, meddle) as endpoint:
        store = ObjectArtifacts(f"s3://{bucket}/kept", environ=s3.environ | {"AWS_ENDPOINT_URL": endpoint})
        assert refused(store.save(KEY, "a", b"x")).code == "store-error"
    assert run(ObjectArtifacts(f"s3://{bucket}/kept", environ=s3.environ).load(KEY, "a")) == b"x"


# --- the other providers


def google(kept: Kept, **options: Any) -> ObjectArtifacts:
    environ = {"GOOGLE_BASE_URL": kept.endpoint, "GOOGLE_BEARER_TOKEN": "token"}
    return ObjectArtifacts("gs://bucket/p", environ=environ, **options)


def azure(kept: Kept) -> ObjectArtifacts:
    environ = {"AZURE_STORAGE_ENDPOINT": kept.endpoint, "AZURE_SKIP_SIGNATURE": "true"}
    return ObjectArtifacts("az://bucket/p", environ=environ | {"AZURE_STORAGE_ACCOUNT_NAME": "account"})


@pytest.mark.parametrize("provider", [google, azure])
def test_google_and_azure_are_spoken_to_in_their_own_ways(provider: Callable[[Kept], ObjectArtifacts]) -> None:
    async def go(kept: Kept) -> None:
        stores = [provider(kept) for _ in range(4)]
        saved = await asyncio.gather(*(store.save(KEY, "Ä/a.txt", b"%d" % n) for n, store in enumerate(stores)))
        assert sorted(each.version for each in saved) == [0, 1, 2, 3]
        for number, each in enumerate(saved):
            assert await stores[0].load(KEY, "Ä/a.txt", version=each.version) == b"%d" % number
        store = stores[0]
        await store.delete(KEY, "Ä/a.txt", version=3)
        assert list(await store.versions(KEY, "Ä/a.txt")) == [0, 1, 2]
        assert list(await store.names(KEY)) == ["Ä/a.txt"]
        assert (await store.save(KEY, "Ä/a.txt", b"")).version == 4
        with pytest.raises(StoreError) as caught:
            await store.load(KEY, "Ä/a.txt", version=3)
        assert caught.value.code == "artifact-not-found"

    with open_kept() as kept:
        asyncio.run(go(kept))
        assert all(key.startswith("p/") for key in kept.objects) and len(kept.objects) == 1 + 5 + 4


# --- what is in the bucket


def test_keys_are_readable_plain_and_short(s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]) -> None:
    store = make_store()
    run(store.save(KEY, "charts/sales-2024.png", b"x"))
    longest = "/".join("Ж" * 15 for _ in range(32))
    far = SessionKey(tenant="Ä" * 200, app="../" * 60, user="b\u00fc" * 90, session="🐍" * 200)
    run(store.save(far, longest, b"y"))
    keys = list(s3.keys(bucket))
    assert "kept/acme/default/ann/session/s/charts/sales-2024.png@/0" in keys
    assert all(key.isascii() and ".." not in key and len(key) < 900 for key in keys)
    assert list(run(store.names(far))) == [longest] and run(store.load(far, longest)) == b"y"
    assert list(run(store.sessions(far))) == [far.session]
    assert list(run(store.sessions(SessionKey(tenant="acme", user="ann", session="?")))) == ["s"]
    known = json.loads(s3.get(bucket, "kept/acme/default/ann/session/s/charts/sales-2024.png@/0"))
    assert known["schema"] == "prowess.artifact/1" and known["mime_type"] == "image/png"


def test_two_prefixes_of_one_bucket_do_not_see_each_other(s3: S3, bucket: str) -> None:
    here, there, above = (ObjectArtifacts(f"s3://{bucket}/{each}", environ=s3.environ) for each in ("a/b", "a/bc", "a"))
    run(here.save(KEY, "x", b"1"))
    assert list(run(there.names(KEY))) == list(run(above.names(KEY))) == []


def test_a_deleted_version_takes_its_content_along(
    s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]
) -> None:
    store = make_store()
    run(store.save(KEY, "a", b"xyz"))
    run(store.delete(KEY, "a"))
    assert s3.keys(bucket) == {"kept/.conditional": 0, f"{FOLDER}/0": 0}


def test_what_was_spoiled_is_noticed(s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]) -> None:
    store = make_store()
    run(store.save(KEY, "a", b"xyz"))
    run(store.save(KEY, "B", b"secret"))
    (content,) = (key for key in s3.keys(bucket) if key.startswith(f"{FOLDER}/data/"))
    for spoiled in (b"xyy", b"xy", b""):
        s3.put(bucket, content, spoiled)
        assert refused(store.load(KEY, "a")).code in ("artifact-corrupt", "store-error")
    record = json.loads(s3.get(bucket, f"{FOLDER}/0"))
    for change in ({"content": "../../B@/data/0"}, {"content": 5}, {"name": "c"}, {"size_bytes": "3"}):
        s3.put(bucket, f"{FOLDER}/0", json.dumps(record | change).encode())
        assert refused(store.load(KEY, "a")).code == "artifact-corrupt"
    for text in (b"[", b"[]", b"\xff", b"null", b'{"name": "a"}', b"[" * 200_000):
        s3.put(bucket, f"{FOLDER}/0", text)
        assert refused(store.load(KEY, "a")).code == "artifact-corrupt"
    run(store.delete(KEY, "a"))
    assert run(store.save(KEY, "a", b"new")).version == 1


def test_content_that_vanished_is_not_an_empty_file(
    s3: S3, bucket: str, make_store: Callable[..., ObjectArtifacts]
) -> None:
    store = make_store()
    run(store.save(KEY, "a", b"xyz"))
    (content,) = (key for key in s3.keys(bucket) if "/data/" in key)
    s3.remove(bucket, content)
    assert refused(store.load(KEY, "a")).code == "artifact-not-found"


# --- servers and settings that are wrong


def asking(endpoint: str, **options: Any) -> ObjectArtifacts:
    environ = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "very-secret"}
    return ObjectArtifacts("s3://bucket/p", environ=environ, **options)


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_lost() -> None:
    asked_for: list[str] = []

    def ignore(asked: Asked) -> None:
        asked_for.append(f"{asked.command} {asked.path}")
        asked.answer(200)

    with open_wrong(ignore) as endpoint:
        error = refused(asking(endpoint).save(KEY, "a", b"x"))
    assert error.code == "store-not-conditional" and "s3://bucket/p" in error.message
    assert not [each for each in asked_for if "/data/" in each or "@" in each]


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (403, "InvalidAccessKeyId", "store-denied"),
        (403, "SignatureDoesNotMatch", "store-denied"),
        (401, "Unauthorized", "store-denied"),
        (404, "NoSuchBucket", "bucket-missing"),
        (501, "NotImplemented", "store-not-conditional"),
        (301, "PermanentRedirect", "store-wrong-region"),
        (400, "AuthorizationHeaderMalformed", "store-wrong-region"),
        (400, "EntityTooLarge", "store-error"),
        (500, "InternalError", "store-error"),
        (418, "\x1b[31m", "store-error"),
    ],
)
def test_what_a_server_refuses_is_said_with_what_to_do(status: int, reason: str, code: str) -> None:
    with open_wrong(lambda asked: asked.refuse(status, reason)) as endpoint:
        store = asking(endpoint)
        for attempt in (store.save(KEY, "a", b"x"), store.names(KEY), store.load(KEY, "a"), store.delete(KEY, "a")):
            error = refused(attempt)
            assert error.code == code
            assert "\x1b" not in str(error) and "very-secret" not in str(error)
            assert error.__suppress_context__  # what the library says can hold a signed address


def test_a_bucket_that_is_not_there(s3: S3) -> None:
    store = ObjectArtifacts("s3://no-such-bucket", environ=s3.environ)
    for attempt in (
        store.save(KEY, "a", b"x"),
        store.names(KEY),
        store.get(KEY, "a"),
        store.get(KEY, "a", version=0),
        store.delete(KEY, "a"),
        store.sessions(KEY),
        store.sweep(),
    ):
        error = refused(attempt)
        assert error.code == "bucket-missing" and "no-such-bucket" in error.message


def test_a_server_that_is_not_there_or_says_nothing_is_given_up() -> None:
    assert refused(asking("http://127.0.0.1:9").save(KEY, "a", b"x")).code == "store-unreachable"
    over = threading.Event()
    with open_wrong(lambda asked: (over.wait(), None)[1]) as endpoint:
        store = asking(endpoint, timeout_s=0.3)
        for attempt in (store.save(KEY, "a", b"x"), store.names(KEY), store.load(KEY, "a", version=0)):
            error = refused(attempt)
            assert error.code == "store-unreachable" and "0.3 seconds" in error.message
        over.set()


@pytest.mark.parametrize("headers", [{}, {"last_modified": "Wed, 21 Oct 2015 07:28:00 GMT"}])
def test_a_page_to_log_in_is_no_empty_bucket(headers: dict[str, str]) -> None:
    with open_wrong(lambda asked: asked.answer(200, b"<html>log in</html>", **headers)) as endpoint:
        for attempt in (asking(endpoint).names(KEY), asking(endpoint).load(KEY, "a", version=0)):
            assert refused(attempt).code in ("store-not-a-bucket", "artifact-corrupt")
        assert refused(asking(endpoint).names(KEY)).code == "store-not-a-bucket"


def test_without_a_key_it_says_how_to_give_one() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"}
    error = refused(ObjectArtifacts("s3://bucket", environ=environ, timeout_s=5).names(KEY))
    assert error.code == "store-unreachable" and "AWS_ACCESS_KEY_ID" in str(error)


def test_only_what_is_passed_says_where_and_as_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}
    elsewhere |= {"AWS_ENDPOINT": "http://127.0.0.1:9", "AWS_BUCKET": "other", "AWS_REGION": "eu-west-1"}
    elsewhere |= {"AWS_ACCESS_KEY_ID": "ambient", "AWS_SECRET_ACCESS_KEY": "ambient", "AWS_SESSION_TOKEN": "ambient"}
    elsewhere |= {"AWS_SKIP_SIGNATURE": "true", "AWS_CONDITIONAL_PUT": "disabled"}
    elsewhere |= {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    for name, value in elsewhere.items():
        monkeypatch.setenv(name, value)
    seen: list[Asked] = []

    def handle(asked: Asked) -> None:
        seen.append(asked)
        asked.refuse(403, "No")

    with open_wrong(handle) as endpoint:
        refused(asking(endpoint).save(KEY, "a", b"x"))
        environ = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_REGION": "ap-south-1"}
        options = {"endpoint": endpoint, "region": "us-west-2", "access_key_id": "o", "secret_access_key": "s"}
        refused(ObjectArtifacts("s3://bucket/p", environ=environ, options=options).save(KEY, "a", b"x"))
    by_environ, by_options = seen
    assert by_environ.path == by_options.path == "/bucket/p/.conditional"
    assert (
        "Credential=k/" in by_environ.headers["authorization"] and "/us-east-1/" in by_environ.headers["authorization"]
    )
    assert (
        "Credential=o/" in by_options.headers["authorization"] and "/us-west-2/" in by_options.headers["authorization"]
    )
    assert "x-amz-security-token" not in by_environ.headers and by_environ.headers["if-none-match"] == "*"


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://b",
        "s3:///p",
        "s3://bucket//p",
        "s3://bucket/../p",
        "s3://bucket/p?x=1",
        "s3://key:very-secret@bucket/p",
        "s3://bucket/" + "x" * 201,
        "s3://bucket/a b",
        "s3://buck=et",
        "s3://bucket/\x1b[31m",
        "s4://bucket",
        "http://bucket/p",
        "bucket",
        "",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ObjectArtifacts(url)
    assert caught.value.code == "artifacts-url" and "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "options", "code"),
    [
        ({"AWS_ACCESS_KEY_ID": "k"}, {}, "artifacts-options"),
        ({}, {"secret_access_key": "s"}, "artifacts-options"),
        ({}, {"regoin": "very-secret"}, "artifacts-options"),
        ({}, {"region": None, "s3_express": object()}, "artifacts-options"),
        ({"AWS_ENDPOINT_URL": "http://192.0.2.1"}, {}, "artifacts-not-encrypted"),
        ({}, {"endpoint": "http://example.com"}, "artifacts-not-encrypted"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(environ: dict[str, str], options: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ObjectArtifacts("s3://bucket", environ=environ, options=options)
    assert caught.value.code == code and caught.value.hint and "very-secret" not in str(caught.value)


def test_without_encryption_only_when_told_so() -> None:
    ObjectArtifacts("s3://bucket", environ={"AWS_ENDPOINT_URL": "http://192.0.2.1", "AWS_ALLOW_HTTP": "true"})
    ObjectArtifacts("s3://bucket", options={"endpoint": "http://192.0.2.1", "allow_http": True})


def test_without_the_library_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['obstore'] = None\n"
    code += "from prowess.stores.object_artifacts import ObjectArtifacts\nObjectArtifacts('gs://bucket')"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"LANG": "C"}
    )
    assert MissingExtra.__name__ in answer.stderr and "pip install 'prowess[objects]'" in answer.stderr
