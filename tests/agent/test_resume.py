"""Whatever event a process dies at: nothing recorded is lost, and what may have been done is not done again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call, open_session, play
from crash_run import CountingModel, crash_at_every_append, marking
from prowess.agent.agent import Limits
from prowess.core.events import Envelope, render_event
from prowess.core.values import SessionKey
from prowess.errors import AuditBroken, ModelError, SessionConflict, StoreError
from prowess.models.scripted import ScriptedModel
from prowess.stores.memory import MemoryEventLog
from prowess.stores.sqlite import SqliteEventLog
from prowess.tools.toolset import Tools

KEY = SessionKey(session="s")


def read_all(path: Path) -> list[Envelope]:
    async def read() -> list[Envelope]:
        log = SqliteEventLog(str(path))
        try:
            return [envelope async for envelope in log.read(KEY)]
        finally:
            await log.close()

    return asyncio.run(read())


def resume(folder: Path) -> Any:
    from prowess.runtime.factories import SessionOptions
    from prowess.runtime.factories import open_session as wired
    from prowess.runtime.runtime import open_runtime

    async def work() -> Any:
        flags = {"artifacts": "memory:", "store": str(folder / "log.db")}
        with open_runtime(
            cwd=str(folder), environ=os.environ, roots=[str(folder.parent / "skills")], flags=flags
        ) as runtime:
            options = SessionOptions(model=CountingModel(), session="s", toolsets=[marking(folder)])
            async with wired(runtime, options) as session:
                return await session.run(resume=True)

    return asyncio.run(work())


def test_for_every_append_that_a_process_dies_at(tmp_path: Path) -> None:
    """One process is killed at each append of the run in turn, and another one finishes what it left."""
    (tmp_path / "skills").mkdir()
    interrupted, died = 0, crash_at_every_append(tmp_path)
    for folder in died:
        before = read_all(folder / "log.db")
        finished = before[-1].event.type == "run_finished"
        if finished:
            with pytest.raises(StoreError, match="nothing to resume"):
                resume(folder)
        else:
            result = resume(folder)
            assert result.stop_reason == "answer" and result.text == "All 10 done."
        after = read_all(folder / "log.db")
        assert after[: len(before)] == before, "nothing that was recorded is lost or changed"
        marks = (folder / "marks").read_text().split() if (folder / "marks").exists() else []
        assert len(marks) == len(set(marks)), f"a call was made twice when it died at append {folder.name}"
        acted = [render_event(each)["outcome"] for each in after if each.event.type == "call_acted"]
        assert len(acted) == 10
        cut = [outcome for outcome in acted if outcome["status"] == "interrupted"]
        interrupted += len(cut)
        assert len(cut) <= 1
        assert len(marks) == 10 or (len(marks) == 9 and cut), "what was not done is reported as interrupted"
    assert len(died) > 35, "a run of ten calls has more appends than that"
    assert interrupted >= 10, "each call was in flight once"


def test_an_unknown_session_is_said_before_anything_begins(tmp_path: Path) -> None:
    async def work() -> None:
        settings = {"store": str(tmp_path / "log.db")}
        async with open_session(tmp_path, ScriptedModel([]), settings=settings, session="known") as session:
            with pytest.raises(StoreError) as raised:
                await session.run(resume=True)
            assert raised.value.code == "nothing-to-resume"
        async with open_session(
            tmp_path, ScriptedModel([{"text": "a"}]), settings=settings, session="known"
        ) as session:
            await session.run("go")
        with pytest.raises(StoreError) as raised:
            async with open_session(tmp_path, ScriptedModel([]), settings=settings, session="knwon", must_exist=True):
                pass
        assert raised.value.code == "session-unknown" and raised.value.hint == "Did you mean 'known'?"

    asyncio.run(work())


def test_two_writers_never_mix(tmp_path: Path) -> None:
    """The one that comes later takes over; the first one stops at once, and its events are not in between."""
    log = MemoryEventLog()

    async def work() -> None:
        async with open_session(
            tmp_path, ScriptedModel([call("update_plan", plan={"goal": "a", "steps": []})] * 3), log=log
        ) as one:
            key = one.key
            lease = await log.lease(key, owner="somebody else")
            with pytest.raises(SessionConflict) as raised:
                await one.run("go")
            assert raised.value.code == "lease-lost"
            assert (await log.head(key)).seq == 0
            assert lease.token

    asyncio.run(work())


class FullLog(MemoryEventLog):
    """A disk that is full after so many appends."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self.left = appends

    async def append(self, *args: Any, **more: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StoreError("No space left on device.", code="disk-full", hint="Make room.")
        return await super().append(*args, **more)


@pytest.mark.parametrize("appends", range(1, 8))
def test_a_full_disk_stops_the_run_before_the_next_thing_happens(tmp_path: Path, appends: int) -> None:
    log = FullLog(appends)
    played = play(
        tmp_path, [call("mark", number=1), {"text": "done"}], log=log, toolsets=[marking(tmp_path)], session="s"
    )
    assert isinstance(played.error, StoreError) and played.error.code == "disk-full"

    async def types() -> list[str]:
        return [each.event.type async for each in log.read(KEY)]

    stored = asyncio.run(types())
    assert (tmp_path / "marks").exists() == ("call_decided" in stored), "decided in the record, then done"
    log.left = 100
    resumed = play(
        tmp_path, [{"text": "went on"}] * 2, {"resume": True}, log=log, toolsets=[marking(tmp_path)], session="s"
    )
    assert resumed.result.text in ("went on", "done")


def test_a_loaded_skill_is_there_again_in_another_process(tmp_path: Path, make_skill: Any) -> None:
    make_skill(tmp_path / "skills" / "demo", body="DEMO-BODY\n", files={"scripts/a.sh": "echo ran\n"})
    settings = {"store": str(tmp_path / "log.db")}
    root = tmp_path / "skills"
    first = play(
        root, [call("skill_load", skill="demo"), {"text": "a"}], settings=settings, session="s", load_mode="session"
    )
    assert first.result.ok
    (root / "demo" / "SKILL.md").write_text("---\nname: demo\ndescription: d\n---\nCHANGED\n")
    script = [call("skill_run", skill="demo", command="bash scripts/a.sh"), {"text": "b"}]
    second = play(root, script, "again", settings=settings, session="s", load_mode="session")
    assert "DEMO-BODY" in second.text(0) and "CHANGED" not in second.text(0)
    assert second.outcomes[0]["status"] == "ok" and "ran" in second.outcomes[0]["content"]
    third = play(root, [{"text": "c"}], "once more", settings=settings, session="s", load_mode="turn")
    assert "DEMO-BODY" not in third.text(0) and "loaded: demo" in third.text(0)


@pytest.mark.parametrize("change", ["an answer", "a request"])
def test_a_record_that_was_changed_is_no_history(tmp_path: Path, make_skill: Any, change: str) -> None:
    """An answer that somebody has turned into another one in the database is nobody's."""
    import sqlite3

    make_skill(tmp_path / "skills" / "demo", files={"scripts/a.sh": "echo ran\n"})
    settings = {"workspace.executor": "local", "store": str(tmp_path / "log.db")}
    given = {"settings": settings, "session": "s", "approver": lambda call, decision: "no"}
    script = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="bash scripts/a.sh")]
    play(tmp_path / "skills", [*script, {"text": "done"}], "the request", **given)
    old, new = ('"answer":"no"', '"answer":"once"') if change == "an answer" else ("the request", "another one")
    with sqlite3.connect(tmp_path / "log.db") as database:
        changed = database.execute("UPDATE events SET line = replace(line, ?, ?)", (old, new)).rowcount
        assert (
            changed and database.execute("SELECT count(*) FROM events WHERE line LIKE ?", (f"%{new}%",)).fetchone()[0]
        )
    database.close()
    with pytest.raises(AuditBroken) as broken:
        play(tmp_path / "skills", [{"text": "on"}], "go on", **given)
    assert "was changed since it was written" in broken.value.message and "runs verify" in str(broken.value.hint)


@pytest.mark.needs("isolation")
@pytest.mark.parametrize("load_mode", ["turn", "once", "session"])
@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_a_loaded_skill_is_usable_in_the_next_process_and_the_one_after(
    tmp_path: Path, make_skill: Any, load_mode: str, placement: str
) -> None:
    """As it is for the next requests of the process that loaded it, whether its text is still in view or not."""
    make_skill(tmp_path / "demo", files={"scripts/say.sh": "echo said\n"})
    given = {"settings": {"store": str(tmp_path / "log.db")}, "session": "s"}
    given |= {"load_mode": load_mode, "placement": placement}
    use = [call("skill_run", skill="demo", command="bash scripts/say.sh"), {"text": "done"}]
    assert play(tmp_path, [call("skill_load", skill="demo"), *use], **given).result.ok
    for _ in range(2):
        assert [outcome["status"] for outcome in play(tmp_path, use, **given).outcomes] == ["ok"]
    make_skill(tmp_path / "demo", files={"scripts/say.sh": "echo changed\n"})
    assert "said" in play(tmp_path, use, **given).outcomes[0]["content"], "what was loaded is what runs"


@pytest.mark.parametrize("load_mode", ["turn", "once", "session"])
def test_an_unloaded_skill_is_not_usable_in_the_next_process(tmp_path: Path, make_skill: Any, load_mode: str) -> None:
    make_skill(tmp_path / "demo", files={"docs/a.md": "A"})
    settings = {"store": str(tmp_path / "log.db"), "tools.profile": "full"}
    given: dict[str, Any] = {"settings": settings, "session": "s", "load_mode": load_mode}
    use = [call("skill_read", skill="demo", path="docs/a.md"), {"text": "done"}]
    load, unload = call("skill_load", skill="demo"), call("skill_unload", skill="demo")
    assert play(tmp_path, [load, unload, {"text": "done"}], **given).result.ok
    required = {**given, "settings": {**settings, "skills.require_load": True}}
    assert [outcome["code"] for outcome in play(tmp_path, use, **required).outcomes] == ["skill-not-loaded"]
    loaded = play(tmp_path, [*use[:1], unload, {"text": "done"}], **given).of("skill_loaded")
    assert [each["reason"] for each in loaded] == ["implicit:skill_read"], "it is loaded again"
    assert play(tmp_path, [load, {"text": "done"}], **given).result.ok
    assert [outcome["status"] for outcome in play(tmp_path, use, **given).outcomes] == ["ok"]


def test_a_run_that_goes_on_after_an_error_keeps_the_results_of_the_request_before(tmp_path: Path) -> None:
    """The last reply with calls belongs to a request that has ended: its calls are not cut off, and not made again."""

    @prowess.tool
    def count(number: int) -> str:
        """Counts."""
        return f"counted {number}"

    log = MemoryEventLog()
    given: dict[str, Any] = {"toolsets": [Tools(count)], "log": log, "session": "s"}
    ended = play(tmp_path, [call("count", number=1)], "first", limits=Limits(turns=1), **given)
    assert ended.result.stop_reason == "limit:turns"
    broken = play(tmp_path, [], "second", **given)  # the model has no reply to this
    assert isinstance(broken.error, ModelError)
    resumed = play(tmp_path, [{"text": "done"}], {"resume": True}, **given)
    assert not resumed.of("call_acted")
    assert [text for role, text in resumed.texts() if role == "tool"] == ["counted 1"]


def test_a_skill_keeps_the_front_matter_that_it_was_loaded_with(tmp_path: Path, make_skill: Any) -> None:
    """In the next process, too, though the file was edited: its `allowed-tools`, and the names of its arguments."""
    folder = tmp_path / "narrow"
    front = "name: narrow\ndescription: N.\nargument-hint: <what>\nallowed-tools: Bash(git:*)\n"
    make_skill(folder, front=front, body="Do it.\n")
    given: dict[str, Any] = {"log": MemoryEventLog(), "session": "s", "load_mode": "session"}
    first = play(tmp_path, [{"text": "done"}], "/narrow it", **given)
    make_skill(folder, front="name: narrow\ndescription: N.\n", body="Do it.\n")
    run = call("skill_run", skill="narrow", command="echo hi")
    second = play(tmp_path, [run, {"text": "done"}], "go on", **given)
    assert second.outcomes[0]["data"]["rule"] == "allowed-tools:explicit:narrow"
    assert "$what = it" in first.text() and first.texts()[1] == second.texts()[1]


def test_a_list_that_was_added_since_the_library_was_read_is_in_force(tmp_path: Path, make_skill: Any) -> None:
    """A skill is loaded with the front matter that stands over the loaded body."""
    folder = tmp_path / "narrow"
    make_skill(folder, front="name: narrow\ndescription: N.\n", body="Do it.\n")

    def edit() -> str:
        """Adds a list to the skill."""
        make_skill(folder, front="name: narrow\ndescription: N.\nallowed-tools: Bash(git:*)\n", body="Do it now.\n")
        return "edited"

    replies = [call("edit"), call("skill_run", skill="narrow", command="echo FREE"), {"text": "done"}]
    played = play(tmp_path, replies, "go", toolsets=[Tools(prowess.tool(edit))])
    assert played.outcomes[-1]["data"]["rule"] == "allowed-tools:explicit:narrow"
    assert "Do it now." in played.text()
