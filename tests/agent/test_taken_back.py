"""Trust that a person takes back is gone from the next call on, in every session that is open; trust that is given
waits for the next one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import KEPT_IN_MEMORY, call
from prowess.agent.toolkit import Toolkit
from prowess.cli.main import main
from prowess.core.events import ApprovalAnswered
from prowess.core.values import Decision, ToolCall
from prowess.models.scripted import ScriptedModel
from prowess.policy.trust import Trust, TrustedFile, TrustedFolder, TrustedUrl, TrustFile, still_trusted
from prowess.runtime.runtime import Runtime, open_runtime

ECHO = {"scripts/a.sh": "echo ran\n"}
COMMAND = "bash scripts/a.sh"


def prowess(*words: str | Path) -> None:
    """As a person says it in another window."""
    assert main(list(map(str, words))) == 0


def prowess_elsewhere(*words: str | Path) -> None:
    """The same in a process of its own."""
    subprocess.run([sys.executable, "-m", "prowess", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, machine: Path) -> Path:
    """Trusted, with a skill, a policy and a configuration that all widen; and a skill of the user's own."""
    folder = tmp_path / "proj"
    make_skill(folder / ".agent/skills/demo", files=ECHO)
    make_skill(machine / ".agent/skills/mine", files=ECHO)
    write(folder / ".agent/policy.toml", '[[rule]]\ntool = "Bash"\ncommand = "bash"\nverdict = "allow"\n')
    write(folder / ".agent/config.toml", '[tools]\nenable = ["write_file"]\n')
    prowess("trust", "--yes", folder)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class Person:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered:
        self.asked.append(call.tool)
        return ApprovalAnswered(call_id=call.id, answer="once", by="test")


class Open:
    """A session's kit, and what came of the last call."""

    def __init__(self, runtime: Runtime, kit: Toolkit, person: Person) -> None:
        self.runtime, self.kit, self.person = runtime, kit, person

    async def __call__(self, tool: str, **args: Any) -> str:
        outcome = await self.kit.call(tool, args)
        self.last = outcome
        return outcome.status

    async def run(self, skill: str) -> str:
        return await self("skill_run", skill=skill, command=COMMAND)


@asynccontextmanager
async def opened(
    project: Path, *, executor: str = "local", environ: dict[str, str] | None = None
) -> AsyncIterator[Open]:
    flags = {**KEPT_IN_MEMORY, "workspace.executor": executor}
    person = Person()
    with open_runtime(cwd=str(project), environ={**os.environ, **(environ or {})}, flags=flags) as runtime:
        async with runtime.open_kit(approver=person) as kit:
            yield Open(runtime, kit, person)


def working(project: Path, work: Callable[[Open], Awaitable[None]], **options: Any) -> None:
    async def go() -> None:
        async with opened(project, **options) as session:
            await work(session)

    asyncio.run(go())


# --- a folder ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["local", "auto"])
def test_a_skill_that_is_in_use_is_denied_from_the_next_call_on(project: Path, executor: str, machine: Path) -> None:
    async def work(session: Open) -> None:
        assert await session("skill_load", skill="demo") == "ok"
        assert await session.run("demo") == "ok"
        prowess_elsewhere("trust", "--revoke", project)
        assert await session.run("demo") == "denied"
        assert "not trusted any more" in session.last.content
        assert str(machine / ".prowess/trust.json") in session.last.data["rule"]
        assert await session("skill_read", skill="demo", path="scripts/a.sh") == "denied"
        assert await session("skill_unload", skill="demo") == "ok", "it can always be let go of"
        assert await session("skill_load", skill="demo") == "denied"
        assert await session("skill_load", skill="mine") == "ok", "what is the user's own is as it was"
        assert await session.run("mine") == "ok"

    working(project, work, executor=executor)


def test_it_is_not_offered_any_more_and_not_found(project: Path) -> None:
    async def work(session: Open) -> None:
        assert "project:demo" in session.kit.plan.shown and "demo" in session.kit.names()
        prowess("trust", "--revoke", project)
        assert "project:demo" in session.kit.plan.hidden and "demo" not in session.kit.names()
        assert "demo" not in session.kit.instructions
        await session("skill_search", query="demo")
        assert "project:demo" not in session.last.content
        seen = session.runtime.catalog.visibility(session.runtime.catalog.get("project:demo"))
        assert (seen.status, seen.reasons) == ("untrusted", ("its folder is not trusted",))

    working(project, work)


def test_a_program_that_runs_is_told_nothing_more_and_can_be_ended(project: Path) -> None:
    async def work(session: Open) -> None:
        await session("skill_load", skill="demo")
        assert await session("skill_exec", skill="demo", command="bash -c cat", yield_ms=0) == "ok"
        program = {"session_id": session.last.data["session_id"]}
        prowess("trust", "--revoke", project)
        assert await session("skill_write_stdin", **program, chars="x") == "denied"
        assert await session("skill_poll_session", **program) == "ok"
        assert await session("skill_kill_session", **program) == "ok"

    working(project, work)


def test_the_rules_of_its_policy_only_tighten(project: Path) -> None:
    async def work(session: Open) -> None:
        await session("skill_load", skill="mine")
        assert await session.run("mine") == "ok" and session.person.asked == [], "the project's rule allows it"
        prowess("trust", "--revoke", project)
        assert await session.run("mine") == "ok" and session.person.asked == ["skill_run"]

    working(project, work)


def test_what_its_configuration_switched_on_is_off(project: Path) -> None:
    async def work(session: Open) -> None:
        assert await session("write_file", path="out/a", content="x") == "ok"
        prowess("trust", "--revoke", project)
        assert await session("write_file", path="out/a", content="y") == "denied"
        assert "tools.enable" in session.last.content

    working(project, work)


@pytest.mark.parametrize(
    ("settings", "tool", "args", "status"),
    [
        ('[workspace]\ncommands_allow = ["bash"]\n', "skill_run", {"skill": "mine", "command": COMMAND}, "denied"),
        ('[secrets]\nTOKEN = "env:TOKEN"\n', "skill_run", {"skill": "mine", "command": COMMAND}, "denied"),
        ('[workspace]\nhost_roots = ["/srv"]\n', "read_file", {"file_name": "/srv/x"}, "denied"),
        ('[workspace]\nhost_roots = ["/srv"]\n', "list_dir", {"path": "work"}, "ok"),
        ('[workspace]\ncommands_deny = ["rm"]\n', "skill_run", {"skill": "mine", "command": COMMAND}, "ok"),
        ("[limits]\nturns = 100\n", "skill_run", {"skill": "mine", "command": COMMAND}, "ok"),
    ],
)
def test_what_was_opened_as_it_said_is_used_no_more(
    project: Path, settings: str, tool: str, args: dict[str, str], status: str
) -> None:
    write(project / ".agent/config.toml", settings)
    prowess("trust", "--yes", project)

    async def work(session: Open) -> None:
        await session("skill_load", skill="mine")
        await session(tool, **args)
        assert session.last.code != "denied"
        prowess("trust", "--revoke", project)
        assert await session(tool, **args) == status, session.last.content

    working(project, work)


def test_a_question_that_it_left_out_is_asked_again(project: Path, machine: Path) -> None:
    write(machine / ".prowess/config.toml", '[execution]\nrequire_approval_for = ["Grep"]\n')
    write(project / ".agent/config.toml", "[execution]\nrequire_approval_for = []\n")
    prowess("trust", "--yes", project)

    async def work(session: Open) -> None:
        await session("grep", pattern="x")
        assert session.person.asked == []
        prowess("trust", "--revoke", project)
        await session("grep", pattern="x")
        assert session.person.asked == ["grep"]

    working(project, work)


def test_skills_from_a_place_that_its_configuration_named_go_with_it(
    project: Path, tmp_path: Path, make_skill: Any
) -> None:
    make_skill(tmp_path / "elsewhere/far", files=ECHO)
    write(project / ".agent/config.toml", f"skill_roots = [{json.dumps(str(tmp_path / 'elsewhere'))}]\n")
    prowess("trust", "--yes", project)

    async def work(session: Open) -> None:
        assert await session("skill_load", skill="far") == "ok"
        prowess("trust", "--revoke", project)
        assert await session.run("far") == "denied"

    working(project, work)


def test_in_a_conversation_the_next_turn_knows(project: Path) -> None:
    """The model obeys the skill; in between, a person takes trust back."""
    load, run = call("skill_load", skill="demo"), call("skill_run", skill="demo", command=COMMAND)
    model = ScriptedModel([load, run, {"text": "one"}, run, {"text": "two"}])
    outcomes: list[Any] = []

    def note(envelope: Any) -> None:
        if envelope.event.type == "call_acted":
            outcomes.append(envelope.event.outcome.status)

    async def go() -> None:
        with open_runtime(
            cwd=str(project), environ=os.environ, flags={**KEPT_IN_MEMORY, "workspace.executor": "local"}
        ) as runtime:
            async with runtime.open_session(model=model, on_event=(note,)) as session:
                assert (await session.run("first")).ok
                prowess("trust", "--revoke", project)
                assert (await session.run("second")).ok

    asyncio.run(go())
    assert outcomes == ["ok", "ok", "denied"]


# --- what does not take it back ---------------------------------------------------------------------------------------


def test_trust_that_is_given_waits_for_the_next_session(project: Path) -> None:
    prowess("trust", "--revoke", project)

    async def work(session: Open) -> None:
        prowess("trust", "--yes", project)
        await session("skill_load", skill="demo")
        assert session.last.code == "skill-untrusted", session.last
        await session("skill_load", skill="mine")
        assert await session.run("mine") == "ok" and session.person.asked == ["skill_run"]

    working(project, work)


def test_other_changes_of_the_store_take_nothing_back(project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    async def work(session: Open) -> None:
        await session("skill_load", skill="demo")
        prowess("trust", "--yes", tmp_path / "other")
        prowess("trust", "--yes", project)
        assert await session.run("demo") == "ok" and session.person.asked == []
        prowess("trust", "--revoke", tmp_path / "other")
        assert await session.run("demo") == "ok"
        assert await session("write_file", path="out/a", content="x") == "ok"

    working(project, work)


def test_trust_for_one_call_is_taken_back_by_nobody(project: Path) -> None:
    async def work(session: Open) -> None:
        await session("skill_load", skill="demo")
        prowess("trust", "--revoke", project)
        assert await session.run("demo") == "ok"

    working(project, work, environ={"PROWESS_TRUST": "TRUE"})


def test_a_folder_above_that_stays_trusted_is_enough(project: Path, tmp_path: Path) -> None:
    prowess("trust", "--yes", tmp_path)

    async def work(session: Open) -> None:
        await session("skill_load", skill="demo")
        prowess("trust", "--revoke", project)
        assert await session.run("demo") == "ok", "its folder is trusted through the one above"
        assert session.person.asked == ["skill_run"], "and its policy was trusted by content, which is gone"

    working(project, work)


# --- a store that breaks or goes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "broken", "a folder"])
def test_a_record_that_cannot_be_read_trusts_nothing(project: Path, machine: Path, damage: str) -> None:
    store = machine / ".prowess/trust.json"

    async def work(session: Open) -> None:
        await session("skill_load", skill="demo")
        whole = store.read_bytes()
        store.unlink()
        if damage == "broken":
            store.write_bytes(b"{")
        elif damage == "a folder":
            store.mkdir()
        assert await session.run("demo") == "denied"
        assert ("cannot be read" in session.last.content) is (damage != "gone")
        if damage == "a folder":
            shutil.rmtree(store)
        store.write_bytes(whole)
        assert await session.run("demo") == "ok", "what was trusted from the beginning is so again"

    working(project, work)


# --- an address -------------------------------------------------------------------------------------------------------


def test_the_content_of_an_address_is_taken_back_as_well(tmp_path: Path, make_skill: Any) -> None:
    make_skill(tmp_path / "shelf/far", files=ECHO)
    archive = shutil.make_archive(str(tmp_path / "far"), "zip", tmp_path / "shelf")
    url = Path(archive).as_uri()
    prowess("trust", "--yes", url)

    async def go() -> None:
        flags = {**KEPT_IN_MEMORY, "workspace.executor": "local"}
        with open_runtime(cwd=str(tmp_path), environ=os.environ, roots=[url], flags=flags) as runtime:
            async with runtime.open_kit(approver=Person()) as kit:
                assert (await kit.call("skill_load", {"skill": "far"})).status == "ok"
                prowess("trust", "--revoke", url)
                outcome = await kit.call("skill_run", {"skill": "far", "command": COMMAND})
                assert outcome.status == "denied"
                assert "its content has not been accepted" in str(
                    runtime.catalog.visibility(runtime.catalog.get("far"))
                )

    asyncio.run(go())


# --- as a value -------------------------------------------------------------------------------------------------------

_PLACES = ["/a", "/a/b", "/a/b/c", "/d", "/ab"]
_TRUSTS = st.builds(
    lambda folders, files, urls: Trust(
        tuple(TrustedFolder(path, at) for path, at in folders),
        tuple(TrustedFile(f"{path}/f", sha, "1") for path, sha in files),
        tuple(TrustedUrl(url, digest, "1") for url, digest in urls),
    ),
    st.sets(st.tuples(st.sampled_from(_PLACES), st.sampled_from("12")), max_size=4),
    st.sets(st.tuples(st.sampled_from(_PLACES), st.sampled_from("xy")), max_size=4),
    st.sets(st.tuples(st.sampled_from(["https://a/x", "https://b/x"]), st.sampled_from("xy")), max_size=3),
)


@given(_TRUSTS, _TRUSTS)
def test_what_is_left_is_what_both_trust(before: Trust, now: Trust) -> None:
    left = still_trusted(before, now)
    for path in (*_PLACES, "/a/x", "/", "/d/e"):
        both = before.trusts_folder(path) and now.trusts_folder(path)
        assert left.trusts_folder(path) is both, path
        for sha in "xy":
            both = before.accepts_file(f"{path}/f", sha) and now.accepts_file(f"{path}/f", sha)
            assert left.accepts_file(f"{path}/f", sha) is both
    for url in ("https://a/x", "https://b/x"):
        for digest in "xy":
            both = before.accepts_url(url, digest) and now.accepts_url(url, digest)
            assert left.accepts_url(url, digest) is both
    assert still_trusted(before, before) is before


def test_a_file_that_did_not_change_is_the_same_value(project: Path, machine: Path) -> None:
    file = TrustFile(str(machine / ".prowess"))
    first = file.current()
    assert first.folders and file.current() is first
    prowess("trust", "--revoke", project)
    assert file.current() is not first and not file.current().folders


def test_its_files_are_not_read_in_another_way_either(project: Path) -> None:
    async def work() -> None:
        async with opened(project) as session:
            assert await session("skill_load", skill="demo") == "ok"
            assert await session("skill_load", skill="mine") == "ok"
            ways = [
                ("read_file", {"file_name": "skill://demo/scripts/a.sh"}),
                ("read_file", {"file_name": "skills/demo/scripts/a.sh"}),
                ("grep", {"pattern": "echo", "path": "skill://demo"}),
                ("grep", {"pattern": "echo", "path": "skills"}),
                ("grep", {"pattern": "echo"}),
                ("list_dir", {"path": "skills/demo"}),
            ]
            assert [await session(tool, **args) for tool, args in ways] == ["ok"] * len(ways)
            prowess("trust", "--revoke", project)
            assert [await session(tool, **args) for tool, args in ways] == ["denied"] * len(ways)
            assert await session("read_file", file_name="skill://mine/scripts/a.sh") == "ok"
            assert await session("list_dir", path="work") == "ok"

    asyncio.run(work())
