"""A record file outside the state folder is ours if this home made it: by path, device, inode and 128 random bits."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from command_lines import Cli
from guard import GUARD_S
from prowess.errors import StoreError
from prowess.stores.own_stores import OwnStores
from prowess.stores.sqlite import SqliteEventLog
from prowess.testing import ScriptedModel

ADD = """
import asyncio, sys
from prowess import SqliteEventLog
from prowess.ports import SessionKey

async def main():
    log = SqliteEventLog(sys.argv[1])
    lease = await log.lease(SessionKey(session=sys.argv[2]))
    print(len(await log.sessions()))
    await log.close()

asyncio.run(main())
"""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "app" / "runs.db"
    path.parent.mkdir()
    write(path)
    return path


def write(path: Path) -> None:
    """Opens the file for writing, and makes it if it is missing."""

    async def go() -> None:
        async with SqliteEventLog(path):
            pass

    asyncio.run(go())


def refused(path: Path) -> str:
    beside = sorted(path.parent.iterdir())
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        write(path)
    assert path.read_bytes() == before and sorted(path.parent.iterdir()) == beside
    assert caught.value.hint
    return caught.value.code


def registry(machine: Path) -> Path:
    return machine / ".prowess" / "stores.json"


def bits_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        ((bits,),) = connection.execute("SELECT id FROM identity").fetchall()
    return bits


def test_a_file_of_this_home_is_ours_in_the_next_process(db: Path) -> None:
    for number in (1, 2):
        command = [sys.executable, "-c", ADD, str(db), f"s{number}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S)
        assert done.stdout == f"{number}\n", done.stderr


def test_it_is_foreign_for_another_home(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROWESS_HOME", str(tmp_path / "other"))
    assert refused(db) == "store-foreign"


def test_a_copy_is_foreign_and_the_file_itself_stays_ours(db: Path) -> None:
    copy = db.with_name("copy.db")
    shutil.copy2(db, copy)
    assert refused(copy) == "store-foreign"
    write(db)


def test_another_file_in_its_place_is_foreign(db: Path, machine: Path) -> None:
    db.rename(db.with_name("first.db"))
    shutil.copy2(db.with_name("first.db"), db)
    assert refused(db) == "store-foreign"
    document = json.loads(registry(machine).read_text())
    document["stores"][0]["inode"] = db.stat().st_ino
    registry(machine).write_text(json.dumps(document))
    write(db)  # the control: all of it fits


@pytest.mark.parametrize("is_moved", [False, True])
def test_the_bits_decide_when_the_inode_is_the_same_by_chance(db: Path, machine: Path, is_moved: bool) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE identity SET id = ?", ("0" * 32,))
    if is_moved:
        db = db.rename(db.with_name("elsewhere.db"))
    assert OwnStores().is_foreign(str(db)), "it is read from a copy"
    assert refused(db) == "store-foreign"


def test_it_is_compared_once_more_when_it_is_open(db: Path) -> None:
    bits = bits_of(db)
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("DELETE FROM identity")
        connection.execute("INSERT INTO identity VALUES (?)", ("0" * 32,))
        connection.execute("CREATE TABLE kept (text TEXT)")
        connection.execute("INSERT INTO kept VALUES (?)", (bits,))
    assert not OwnStores().is_foreign(str(db))
    with pytest.raises(StoreError) as caught:
        write(db)
    assert caught.value.code == "store-foreign"


def test_a_file_that_was_moved_stays_ours_whatever_comes_after(db: Path, machine: Path) -> None:
    moved = db.rename(db.parent.parent / "moved.db")
    write(db.with_name("another.db"))  # must not make this home forget the one that is not there now
    write(moved)
    write(db)  # a new one at the old place
    assert bits_of(moved) != bits_of(db)
    write(moved)
    write(db)
    paths = {row["path"] for row in json.loads(registry(machine).read_text())["stores"]}
    assert {str(moved), str(db)} <= paths


def test_a_hard_link_beside_the_file_is_foreign(db: Path) -> None:
    link = db.with_name("link.db")
    os.link(db, link)
    assert refused(link) == "store-foreign"
    write(db)


def test_a_new_file_with_the_number_of_a_removed_one_is_ours(db: Path, machine: Path) -> None:
    document = json.loads(registry(machine).read_text())
    new = db.with_name("new.db")
    db.unlink()
    write(new)
    document["stores"][0]["inode"] = new.stat().st_ino  # as most file systems give it
    document["stores"] += json.loads(registry(machine).read_text())["stores"]
    registry(machine).write_text(json.dumps(document))
    write(new)


def test_a_rollback_journal_beside_the_file_refuses_it(db: Path) -> None:
    journal = Path(f"{db}-journal")
    journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    assert refused(db) == "store-foreign-journal"
    assert journal.exists()
    journal.unlink()
    write(db)


STEPS = ("os.rename", "os.link", "os.mkdir", "os.remove", "sqlite3.connect", "sqlite3.connect/handle", "os.chmod")


def _die_at(step: int) -> None:
    """Ends this process as a kill does, at the given step on disk."""
    seen = 0

    def hook(event: str, args: Any) -> None:
        nonlocal seen
        is_write = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if event in STEPS or is_write:
            seen += 1
            if seen == step:
                os._exit(9)

    sys.addaudithook(hook)


def test_killed_at_any_step_a_file_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    killed = 0
    for step in range(1, 100):
        path = tmp_path / str(step) / "runs.db"
        child = os.fork()
        if child == 0:
            _die_at(step)
            write(path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        assert ended in (0, 9), f"step {step}"
        if path.exists():
            assert len(bits_of(path)) == 32, f"half a file at step {step}"
        write(path)
        write(path)
        if ended == 0:
            break
        killed += 1
    assert killed > 8


def test_two_processes_that_make_it_at_once_get_one_file(tmp_path: Path, machine: Path) -> None:
    path = tmp_path / "new" / "runs.db"
    command = [sys.executable, "-c", ADD, str(path)]
    both = [subprocess.Popen([*command, f"s{n}"], stdout=subprocess.PIPE) for n in range(4)]
    assert [each.wait(GUARD_S) for each in both] == [0] * 4
    assert sorted(int(each.communicate()[0]) for each in both)[-1] == 4
    (entry,) = json.loads(registry(machine).read_text())["stores"]
    assert entry["id"] == bits_of(path) and entry["path"] == str(path)
    assert [each.name for each in path.parent.iterdir()] == ["runs.db"]


@pytest.mark.parametrize("content", ["{", '{"schema": "prowess.stores/1", "stores": [{"id": 1}]}', "[]", ""])
def test_a_damaged_registry_is_said_to_be_and_not_overwritten(db: Path, machine: Path, content: str) -> None:
    registry(machine).write_text(content)
    for path in (db, db.with_name("new.db")):
        with pytest.raises(StoreError) as caught:
            write(path)
        assert caught.value.code == "stores-corrupt" and caught.value.hint
    assert registry(machine).read_text() == content
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]


def test_a_foreign_store_is_read_and_nothing_in_it_approves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sold: list[str] = []

    @prowess.tool(requires_approval=True)
    def sell(item: str) -> str:
        """Sells."""
        sold.append(item)
        return "sold"

    def go(*replies: Any, **options: Any) -> prowess.Result:
        agent = prowess.Agent(ScriptedModel(list(replies)), tools=[sell], skills=[], store="sqlite:///other.db")
        return agent.run_sync(session="s", **options)

    folder = tmp_path / "theirs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    cli, store = Cli(capfd), ("--store", "other.db")
    result = go(call("sell", item="bolt"), request="go")
    assert result.stop_reason == "waiting"
    cli("approvals", "answer", result.waiting[0].id, "yes", *store)
    monkeypatch.setenv("PROWESS_HOME", str(tmp_path / "mine"))
    before = (folder / "other.db").read_bytes()
    (session,) = cli.json("sessions", "list", *store)["sessions"]
    assert session["session"] == "s" and "go" in cli("sessions", "show", "s", *store)
    assert cli.json("runs", "verify", "--all", *store)["valid"]
    (row,) = cli.json("approvals", "list", *store)["waiting"]
    assert (row["answer"], row["to_answer"]) == (None, None)
    refusals = [
        ("sessions", "delete", "s", "--yes", *store),
        ("approvals", "answer", result.waiting[0].id, "yes", *store),
        ("run", "hi", "--model", "offline", *store),
    ]
    for words in refusals:
        error = cli.refused(*words)
        assert error["code"] in ("store-foreign", "question-not-yours"), words
    with pytest.raises(StoreError) as caught:
        go({"text": "Sold."}, resume=True)
    assert caught.value.code == "store-foreign" and sold == []
    assert (folder / "other.db").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["other.db"]
    monkeypatch.setenv("PROWESS_HOME", os.environ["HOME"])
    assert go({"text": "Sold."}, resume=True).ok and sold == ["bolt"], "the control: for whoever made it, it counts"
