"""What stays on disk is seen and can be cleaned: never what somebody uses, nor what a session may go on from."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from test_dependencies import make_wheel

from guard import GUARD_S
from kits import open_kit, with_kit
from prowess.cli.commands.schema import FOLDER
from prowess.cli.main import main
from prowess.core.values import SessionKey
from prowess.errors import WorkspaceError
from prowess.skills.discover import discover
from prowess.skills.load import load
from prowess.skills.skill import Skill
from prowess.tools.run.skill_run import SkillRun
from prowess.tools.session_work import SessionWork, WorkBackend, WorkOptions
from prowess.workspace.cleanup import clean, list_leftovers
from prowess.workspace.executors.none import NoExecutor
from prowess.workspace.scripts.environment_store import list_environments, remove_environment
from prowess.workspace.session_folder import OpenPlace, read_meta, write_meta
from prowess.workspace.skill_trees import lock_folder, publish
from prowess.workspace.skill_trees_in_use import TreeUser, find_users, remove_published
from state_places import database_of
from works import open_work, within

BLOCK = '# /// script\n# dependencies = ["tinydep"]\n# ///\nimport tinydep\n'
WAITS = BLOCK + "import os\nos.mkfifo('out/go')\nprint(tinydep.SAYS, flush=True)\nopen('out/go').read()\n"
SKILL = "---\nname: demo\ndescription: Does one thing.\n---\n{}\n"


def no_backend() -> WorkBackend:
    return WorkBackend(executor=NoExecutor())


@pytest.fixture
def dir(workspace_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of its own for what stays; the current folder has no project."""
    folder = os.path.join(workspace_dir, f"left-{tmp_path.name}")
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def root(tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A skill whose scripts declare a package, which can be installed without a network."""
    make_wheel(tmp_path, "tinydep", "1.0", {"tinydep.py": "SAYS = 'ready'\n"})
    for name in ("PIP", "UV"):
        monkeypatch.setenv(f"{name}_NO_INDEX", "1")
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(tmp_path))
    files = {"scripts/x.py": BLOCK + "print(tinydep.SAYS)\n", "scripts/waits.py": WAITS}
    return make_skill(tmp_path / "skills" / "demo", files=files).parent


def prowess(*words: str) -> subprocess.CompletedProcess[str]:
    """Somebody else, in a process of their own."""
    return subprocess.run(
        [sys.executable, "-m", "prowess", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.fixture
def cleaned(capfd: pytest.CaptureFixture[str]) -> Any:
    """`prowess workspaces clean … --yes --json`, as it is promised."""

    def call(*words: str) -> dict[str, Any]:
        capfd.readouterr()
        code = main(["workspaces", "clean", *words, "--yes", "--json"])
        document = json.loads(capfd.readouterr().out)
        assert code == 0, document
        jsonschema.validate(document, json.loads(Path(FOLDER, "workspaces-cleaned.json").read_text(encoding="utf-8")))
        return document

    return call


def find_fifo(dir: str) -> Path:
    """What the script waits at."""
    (fifo,) = Path(dir).glob("workspaces/*/root/out/go")
    return fifo


def let_go(dir: str) -> None:
    find_fifo(dir).write_text("go", encoding="utf-8")


def digests(rows: list[dict[str, Any]]) -> list[str]:
    return [row["digest"] for row in rows]


def trees(dir: str) -> list[str]:
    return [info.digest for info in list_leftovers(dir).trees]


# --- environments -----------------------------------------------------------------------------------------------------


def test_an_environment_is_kept_while_a_script_uses_it_and_made_anew_afterwards(dir: str, root: Path) -> None:
    async def story() -> tuple[Any, ...]:
        ready = asyncio.Event()

        def watch(stream: str, data: bytes) -> None:
            ready.set()

        async with asyncio.timeout(GUARD_S), open_kit(root, environ=dict(os.environ), on_output=watch) as kit:
            running = asyncio.ensure_future(kit.call("skill_run", {"skill": "demo", "script": "scripts/waits.py"}))
            try:
                await ready.wait()
                meanwhile = await asyncio.to_thread(prowess, "workspaces", "clean", "--all", "--yes")
                listed = await asyncio.to_thread(prowess, "workspaces", "list")
                left = list_environments(f"{dir}/environments")
                await asyncio.to_thread(let_go, dir)
            except BaseException:
                running.cancel()
                raise
            outcome = await running
            afterwards = await asyncio.to_thread(prowess, "workspaces", "clean", "--all", "--yes")
            gone = list_environments(f"{dir}/environments")
            again = await kit.call("skill_run", {"skill": "demo", "script": "scripts/x.py"})
            return meanwhile, listed, left, outcome, afterwards, gone, again

    meanwhile, listed, left, outcome, afterwards, gone, again = asyncio.run(story())
    assert meanwhile.returncode == 0 and "in use, kept  environment tinydep" in meanwhile.stdout, meanwhile
    assert "removed" not in meanwhile.stdout and [info.in_use for info in left] == [True]
    assert "tinydep" in listed.stdout and "1 environment" in listed.stderr, listed
    assert outcome.status == "ok" and outcome.data["stdout"] == "ready\n", outcome
    assert "removed  environment tinydep" in afterwards.stdout and gone == [], "the session goes on, the run is over"
    assert again.data["stdout"] == "ready\n" and again.data["dependencies"] == ["tinydep==1.0"], again


def test_a_program_that_goes_on_holds_its_environment_until_it_has_ended(dir: str, root: Path) -> None:
    async def story() -> list[list[bool]]:
        def look() -> list[bool]:
            return [info.in_use for info in list_environments(f"{dir}/environments")]

        async with asyncio.timeout(GUARD_S), open_kit(root, environ=dict(os.environ)) as kit:
            call = {"skill": "demo", "script": "scripts/waits.py", "yield_ms": 60_000}
            started = await kit.call("skill_exec", call)
            assert started.data["status"] == "running" and started.data["output"] == "ready\n", started
            seen = [look()]
            await kit.call("skill_kill_session", {"session_id": started.data["session_id"]})
            seen.append(look())
            second = await kit.call("skill_exec", {**call, "script": "scripts/x.py"})
            assert second.data["status"] == "exited", second
            seen.append(look())
            os.unlink(find_fifo(dir))
            assert (await kit.call("skill_exec", call)).data["status"] == "running"
            seen.append(look())
        return [*seen, look()]

    assert asyncio.run(story()) == [[True], [False], [False], [True], [False]]


def test_what_was_removed_after_the_decision_is_not_installed_without_asking(
    dir: str, root: Path, machine: Path
) -> None:
    args = {"skill": "demo", "script": "scripts/x.py"}

    async def story() -> tuple[list[str], list[str], WorkspaceError]:
        async with open_work(dir, root, use=("demo",), environments=f"{dir}/environments") as work:
            tool = SkillRun(work)
            first = [need.capability for need in await tool.needs(args)]
            granted = within(granted=frozenset(first))
            assert (await tool.call(args, granted)).status == "ok", "it was granted"
            second = [need.capability for need in await tool.needs(args)]
            [info] = list_environments(f"{dir}/environments")
            assert remove_environment(f"{dir}/environments", info.key)
            with pytest.raises(WorkspaceError) as refused:
                await tool.call(args, within())
            return first, second, refused.value

    first, second, refused = asyncio.run(story())
    assert (first, second) == (["install_dependencies"], [])
    assert refused.code == "environment-removed" and refused.retryable and list_leftovers(dir).environments == []


def make_environment(dir: str, name: str, *, age_s: float, size: int = 0, dependencies: tuple[str, ...] = ()) -> str:
    """As an installer leaves it."""
    key = f"{name * 16}-test"
    folder = Path(dir, "environments", key, "env-x")
    folder.mkdir(parents=True)
    (folder / "big").write_bytes(b"x" * size)
    record = {"schema": "prowess.environment/1", "digest": "", "dependencies": dependencies, "made_for": "", "note": ""}
    text = json.dumps({**record, "version": "", "interpreter": [], "resolved": [], "folder": "env-x"})
    (folder.parent / "record.json").write_text(text, encoding="utf-8")
    used_at = time.time() - age_s
    os.utime(folder.parent / "record.json", (used_at, used_at))
    return key


def make_place(dir: str, session: str, *, age_s: float, size: int = 0) -> None:
    with OpenPlace(dir, SessionKey(session=session)) as place:
        Path(place.root, "work", "big").write_bytes(b"x" * size)
        write_meta(place.path, {**read_meta(place.path), "used_at": time.time() - age_s})


def test_workspaces_and_environments_share_the_size_that_is_kept(tmp_path: Path) -> None:
    dir = str(tmp_path)
    a, c = (make_environment(dir, name, age_s=age, size=1_000_000) for name, age in (("a", 400), ("c", 200)))
    make_place(dir, "b", age_s=300, size=1_000_000)
    make_place(dir, "d", age_s=100, size=1_000_000)

    def names(**wanted: Any) -> list[str]:
        removed, kept = clean(dir, **wanted)
        assert not any(kept)
        return [*(info.key for info in removed.environments), *(info.session for info in removed.places)]

    assert names(keep_bytes=5_000_000) == [] and names(older_than_s=500) == []
    assert names(keep_bytes=2_500_000, dry_run=True) == [a, "b"] and len(list_leftovers(dir).environments) == 2
    assert names(keep_bytes=3_500_000) == [a], "the oldest of all first"
    assert names(older_than_s=250) == ["b"]
    fd = lock_folder(f"{dir}/environments/{c}", fcntl.LOCK_SH)
    assert fd is not None
    removed, kept = clean(dir, keep_bytes=1_500_000)
    assert [info.key for info in kept.environments] == [c] and [info.session for info in removed.places] == ["d"]
    os.close(fd)
    assert names() == [c] and os.listdir(tmp_path / "environments") == []


def test_the_list_shows_environments_and_what_an_interrupted_attempt_left(dir: str, capfd: Any) -> None:
    make_environment(dir, "a", age_s=7300, size=100_000, dependencies=("rich>=13", "evil\x1b[2J", "x" * 100))
    os.makedirs(f"{dir}/environments/{'b' * 16}-test/env-left")
    os.makedirs(f"{dir}/environments/not-ours")
    Path(dir, "environments", f"{'c' * 16}-file").write_text("no folder", encoding="utf-8")
    os.symlink("not-ours", f"{dir}/environments/{'d' * 16}-link")
    assert main(["workspaces"]) == 0
    out, err = capfd.readouterr()
    assert "ENVIRONMENT" in out and "rich>=13, evil\\u{1b}[2J" in out and "x…" in out and "2h ago" in out, out
    assert "(unfinished)" in out and "not-ours" not in out and "\x1b" not in out
    assert err.startswith("\n0 workspaces · 2 environments · 1") and dir in err
    assert main(["workspaces", "list", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    jsonschema.validate(document, json.loads(Path(FOLDER, "workspaces.json").read_text(encoding="utf-8")))
    assert [row["whole"] for row in document["environments"]] == [True, False]
    assert document["published"] == {"path": f"{dir}/trees", "skills": 0, "size_bytes": 0}
    assert main(["workspaces", "clean", "--all"]) == 2
    assert "2 environments" in capfd.readouterr().err, "nobody was there to say yes"
    assert main(["workspaces", "clean", "--all", "--yes"]) == 0
    assert sorted(name[-8:] for name in os.listdir(f"{dir}/environments")) == ["ccc-file", "ddd-link", "not-ours"]


def test_what_cannot_be_listed_is_said(dir: str, capfd: Any) -> None:
    os.makedirs(dir)
    for name in ("environments", "trees"):
        Path(dir, name).write_text("in the way", encoding="utf-8")
        assert main(["workspaces"]) != 0
        assert f"{dir}/{name} cannot be listed: not a directory" in capfd.readouterr().err
        os.unlink(Path(dir, name))


# --- published skills -------------------------------------------------------------------------------------------------


@pytest.mark.needs("isolation")
def test_a_published_skill_stays_for_as_long_as_a_session_may_go_on_from_it(
    dir: str, root: Path, cleaned: Any, capfd: Any
) -> None:
    words = ["exec", "demo", "--root", str(root)]
    assert main([*words, "--session", "one", "--", "true"]) == 0
    [first] = trees(dir)
    (root / "demo" / "SKILL.md").write_text(SKILL.format("new"), encoding="utf-8")
    assert main([*words, "--session", "two", "--", "true"]) == 0
    [second] = set(trees(dir)) - {first}
    told = cleaned("--all")["published"]
    assert (told["removed"], told["needed"], told["problem"]) == ([], 2, None)
    assert main(["workspaces", "clean", "--all", "--yes"]) == 0
    assert "kept: 2 published skills that sessions may go on from\n" in capfd.readouterr().err
    assert main(["sessions", "delete", "one", "--yes"]) == 0
    assert cleaned("--keep", "0")["published"]["removed"] == [], "by age alone"
    assert cleaned("--older-than", "1h")["published"]["removed"] == []
    assert digests(cleaned("--all", "--dry-run")["published"]["removed"]) == [first] and first in trees(dir)
    assert digests(cleaned("--all")["published"]["removed"]) == [first] and trees(dir) == [second]
    os.utime(f"{dir}/trees/{second.removeprefix('sha256:')}", (1, 1))
    assert main(["sessions", "delete", "two", "--yes"]) == 0
    assert digests(cleaned("--older-than", "1h")["published"]["removed"]) == [second]
    assert main([*words, "--", "true"]) == 0 and trees(dir) == [second], "and is published again when it is needed"


def test_nothing_published_goes_when_the_store_cannot_be_read(
    dir: str, cleaned: Any, tmp_path: Path, capfd: Any
) -> None:
    tree = publish(Skill.from_text(SKILL.format("x")), f"{dir}/trees")
    make_place(dir, "old", age_s=100)
    database_of(tmp_path).parent.mkdir(parents=True)
    database_of(tmp_path).write_bytes(b"this is no database " * 100)
    document = cleaned("--all", "--dry-run")
    assert "damaged" in document["published"]["problem"] and document["published"]["removed"] == []
    assert main(["workspaces", "clean", "--all", "--yes"]) == 0
    said = capfd.readouterr()
    assert "warning: No published skill was removed" in said.err and "removed  old" in said.out
    assert os.path.isdir(tree.path)
    database_of(tmp_path).unlink()
    assert digests(cleaned("--all")["published"]["removed"]) == [tree.digest]


@contextlib.contextmanager
def working(dir: str, text: str, *, store: str | None = None, tenant: str = "default") -> Iterator[str]:
    """Somebody who has that skill loaded; its digest."""
    work = SessionWork(SessionKey(session="s", tenant=tenant), WorkOptions(dir=dir, store=store), no_backend)

    async def begin() -> str:
        return (await work.load(Skill.from_text(SKILL.format(text)))).skill.digest

    try:
        yield asyncio.run(begin())
    finally:
        asyncio.run(work.aclose())


def test_a_published_skill_is_not_removed_under_who_works_with_it(dir: str, cleaned: Any) -> None:
    """Nor by somebody who found it idle, and comes when it was used meanwhile."""
    with working(dir, "a") as digest:
        told = cleaned("--all")["published"]
        assert (told["removed"], digests(told["in_use"])) == ([], [digest])
    [info] = list_leftovers(dir).trees
    os.utime(info.path, (1, 1))
    [seen] = list_leftovers(dir).trees
    with working(dir, "a"):
        assert not remove_published(f"{dir}/trees", seen), "in use"
    assert not remove_published(f"{dir}/trees", seen), "used since"
    assert digests(cleaned("--all")["published"]["removed"]) == [digest]


@pytest.mark.needs("isolation")
def test_what_sessions_of_other_projects_may_need_is_theirs_to_clean(
    dir: str, cleaned: Any, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """A folder for all projects of a user, and a record for each of them."""
    for name in ("a", "b"):
        os.mkdir(tmp_path / name)
    stores = {name: str(database_of(tmp_path / name)) for name in ("a", "b")}
    for name, store in stores.items():
        monkeypatch.chdir(tmp_path / name)
        assert main(["exec", "python-math", "--session", "s", "--", "true"]) == 0
        capfd.readouterr()
        assert os.path.exists(store)
    used_by_all, *_ = trees(dir)
    with working(dir, "of a", store=stores["a"]) as of_a, working(dir, "of both", store=stores["a"]) as of_both:
        pass
    with working(dir, "of both", store=stores["b"]):
        pass
    assert {user.store for user in find_users(f"{dir}/trees", of_both)} == {*stores.values()}
    told = cleaned("--all")["published"]  # in b
    assert told["removed"] == [] and told["needed_by_others"] == [stores["a"]]
    assert [user.store for user in find_users(f"{dir}/trees", of_both)] == [stores["a"]], "b needs it no more"
    assert main(["workspaces", "clean", "--all", "--yes"]) == 0
    assert f"; some by sessions in {stores['a']}" in capfd.readouterr().err
    monkeypatch.chdir(tmp_path / "a")
    assert sorted(digests(cleaned("--all")["published"]["removed"])) == sorted([of_a, of_both])
    with working(dir, "of a", store=stores["a"]):
        pass
    os.rename(tmp_path / "a", tmp_path / "moved-away")
    monkeypatch.chdir(tmp_path / "b")
    assert cleaned("--all")["published"]["needed_by_others"] == [stores["a"]], "its record is still kept"
    assert main(["projects", "prune", "--yes"]) == 0
    capfd.readouterr()
    assert digests(cleaned("--all")["published"]["removed"]) == [of_a], "a project that is gone needs nothing"
    assert trees(dir) == [used_by_all]


def test_a_note_of_who_needs_it_that_cannot_be_read_is_taken_for_a_yes(dir: str, cleaned: Any) -> None:
    with working(dir, "x", store="postgresql://db/x") as digest:
        pass
    assert cleaned("--all")["published"]["needed_by_others"] == ["postgresql://db/x"], "it may be anywhere"
    [note] = Path(dir, "trees", ".users", digest.removeprefix("sha256:")).iterdir()
    for broken in ("", "[]", '{"store": 1}', "\x00", "[" * 100_000):
        note.write_text(broken, encoding="utf-8")
        told = cleaned("--all")["published"]
        assert told["removed"] == [] and told["needed_by_others"] == [f"whoever wrote {note}"]
    note.unlink()
    assert digests(cleaned("--all")["published"]["removed"]) == [digest]


def test_sessions_of_every_tenant_are_asked(dir: str, root: Path, cleaned: Any, machine: Path) -> None:
    store = str(machine / ".prowess" / "prowess.db")

    async def nothing(kit: Any) -> None: ...

    with_kit(root, nothing, executor="none", settings={"store": store}, session="s", tenant="other")
    [digest] = trees(dir)
    work = SessionWork(SessionKey(session="s", tenant="other"), WorkOptions(dir=dir, store=store), no_backend)

    async def known() -> None:
        await work.load(load(discover(root), "demo"))
        await work.aclose()

    asyncio.run(known())
    assert find_users(f"{dir}/trees", digest) == [TreeUser(store, "other")]
    assert (cleaned("--all")["published"]["needed"], trees(dir)) == (1, [digest])


def test_what_was_left_half_published_or_half_removed_goes(dir: str, cleaned: Any) -> None:
    tree = publish(Skill.from_text(SKILL.format("x")), f"{dir}/trees")
    for name in (".new-a", ".new-b", ".new-c", ".gone-d"):
        Path(dir, "trees", name, "folder").mkdir(parents=True)
        if name != ".new-b":
            os.utime(Path(dir, "trees", name), (1, 1))
    fd = lock_folder(f"{dir}/trees/.new-c", fcntl.LOCK_SH)
    assert fd is not None
    cleaned("--older-than", "1h")
    assert sorted(os.listdir(f"{dir}/trees")) == [".new-b", ".new-c", os.path.basename(tree.path)], (
        "new, or in the making"
    )
    os.close(fd)


def test_who_loads_while_others_clean_has_a_whole_skill(dir: str) -> None:
    worker = """
import asyncio, os, sys
from prowess.skills.skill import Skill
from prowess.tools.session_work import SessionWork, WorkBackend, WorkOptions
from prowess.core.values import SessionKey
from prowess.workspace.executors.none import NoExecutor
skill = Skill.from_text("---\\nname: demo\\ndescription: x\\n---\\n", files={f"f{n}": "x" for n in range(20)})
async def once():
    options = WorkOptions(dir=sys.argv[1], store="/dev/null")
    work = SessionWork(SessionKey(session="s"), options, lambda: WorkBackend(executor=NoExecutor()))
    loaded = await work.load(skill)
    for _ in range(3):
        await asyncio.sleep(0)
        assert all(os.path.isfile(os.path.join(loaded.tree.path, f"f{n}")) for n in range(20))
    await work.aclose()
for _ in range(40): asyncio.run(once())
"""
    cleaner = """
import sys
from prowess.workspace.cleanup import clean_trees, find_old_trees
for _ in range(150): clean_trees(sys.argv[1], "/dev/null", find_old_trees(sys.argv[1], "/dev/null"), ())
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code, dir], stderr=subprocess.PIPE, text=True)
        for code in (worker, cleaner, worker, cleaner)
    ]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 4


def test_a_skill_that_is_removed_while_it_is_compared_is_published_again(dir: str) -> None:
    """The clean-up runs when the second file of the published copy is opened."""
    program = """
import os, sys
from prowess.skills.skill import Skill
from prowess.workspace.cleanup import clean_trees, find_old_trees
from prowess.workspace.skill_trees import publish
dir = sys.argv[1]
skill = Skill.from_text("---\\nname: demo\\ndescription: x\\n---\\n", files={"f1": "x", "f2": "x"})
first = publish(skill, f"{dir}/trees")
removed = []
def clean(event, args):
    if not removed and event == "open" and args[0] == f"{first.path}/f2":
        removed.append("")
        removed.extend(clean_trees(dir, "/dev/null", find_old_trees(dir, "/dev/null"), ())[0])
sys.addaudithook(clean)
assert publish(skill, f"{dir}/trees") == first
assert len(removed) == 2 and {"SKILL.md", "f1", "f2"} < set(os.listdir(first.path))
"""
    done = subprocess.run([sys.executable, "-c", program, dir], capture_output=True, text=True, timeout=GUARD_S)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.needs("isolation")
def test_every_run_says_where_its_record_is(
    dir: str, root: Path, cleaned: Any, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """So that whoever cleans from elsewhere keeps what this project's sessions go on from."""
    (tmp_path / "a" / ".agent").mkdir(parents=True)
    (tmp_path / "b" / ".agent").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    assert main(["exec", "demo", "--root", str(root), "--session", "s", "--", "true"]) == 0
    [digest] = trees(dir)
    monkeypatch.chdir(tmp_path / "b")
    told = cleaned("--all")["published"]
    assert told["needed_by_others"] == [str(database_of(tmp_path / "a"))] and trees(dir) == [digest]
    monkeypatch.chdir(tmp_path / "a")
    assert main(["sessions", "delete", "s", "--yes"]) == 0
    assert digests(cleaned("--all")["published"]["removed"]) == [digest]
