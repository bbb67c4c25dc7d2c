"""Skills for other people's loops: one kit, many sessions, any thread and any event loop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import prowess
from command_lines import run_here
from guard import GUARD_S
from kits import StuckLog
from prowess.errors import ConfigError, SkillNotFound, StoreError, ToolFailed, ToolRetry, WorkspaceError
from prowess.ports import SessionKey
from prowess.stores.memory import MemoryEventLog
from prowess.stores.sqlite import SqliteEventLog
from prowess.testing import ScriptedModel

LOAD = ("skill_load", {"skill": "demo"})
RUN = ("skill_run", {"skill": "demo", "command": "bash scripts/go.sh there"})
who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    files = {"references/more.md": "MORE", "scripts/go.sh": "echo went $1; echo R > out/r.txt\n"}
    make_skill(folder / "demo", body="DEMO-BODY\n", description="Does demos.", files=files)
    make_skill(folder / "beta", body="BETA-BODY\n", description="Does betas.")
    return folder


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "managed.toml"
    path.write_text("")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(path))
    return path


def deny(skill: str) -> str:
    return f'[[rule]]\ntool = "skill_load"\nskill = "{skill}"\nverdict = "deny"\nwhy = "Not this one."\n'


def make_kit(root: Path, **options: Any) -> prowess.SkillKit:
    given: dict[str, Any] = {"store": "memory:", "artifacts": "memory:", "executor": "local", "approve": ["skill_run"]}
    return prowess.SkillKit(root, **{**given, **options})


def events_of(log: Any, session: str, user: str = "default") -> list[Any]:
    async def read() -> list[Any]:
        key = SessionKey(session=session, user=user)
        return [each.event async for each in log.read(key)]

    return asyncio.run(read())


def types_of(log: Any, session: str) -> list[str]:
    return [event.type for event in events_of(log, session)]


# --- what a model is told ---------------------------------------------------------------------------------------------


def test_the_prompt_follows_the_policy_while_the_kit_is_in_use(root: Path, policy: Path) -> None:
    with make_kit(root) as kit:
        before = kit.version
        assert "beta" in kit.instructions
        policy.write_text(deny("beta"), encoding="utf-8")
        assert "beta" not in kit.instructions and "demo" in kit.instructions
        assert kit.version != before
        assert kit.call_sync("skill_load", {"skill": "beta"}).status == "denied"
        policy.write_text("", encoding="utf-8")
        assert kit.version == before, "it says what is told, and not when"


def test_a_reload_finds_new_skills_for_all_sessions(root: Path, make_skill: Any) -> None:
    with make_kit(root) as kit, kit.session() as session:
        before = session.version
        make_skill(root / "late", body="LATE-BODY\n", description="Came later.")
        assert session.call_sync("skill_load", {"skill": "late"}).code == "skill-not-found"
        assert session.version == before
        assert kit.reload().added == ("explicit:late",)
        assert "Came later." in session.instructions and session.version != before
        assert "LATE-BODY" in session.call_sync("skill_load", {"skill": "late"}).content
        after = kit.version
        (root / "late" / "more.md").write_text("more")
        kit.reload()
        assert kit.version == after, "the text for the model is the same"


def test_only_skill_tools_are_offered_unless_more_is_asked_for(root: Path) -> None:
    def names(**options: Any) -> list[str]:
        return [spec.name for spec in make_kit(root, **options).tools]

    skills = ["skill_load", "skill_list_docs", "skill_select_docs", "skill_read", "skill_run"]
    files = ["read_file", "list_dir", "grep", "write_file"]
    assert names() == skills
    assert names(offer="files") == [*skills, *files]
    assert names(offer=["skill_load", "grep", "skill_search", "update_plan"]) == [
        *("skill_load", "skill_search", "update_plan", "grep")
    ]
    assert names(offer="files", executor="none") == [*skills[:-1], *files[:-1]], "nothing could run what is written"
    enabled = {"tools.enable": ["delete_file", "network_request", "update_plan"]}
    assert names(settings=enabled) == skills
    assert names(settings=enabled, offer="files") == [*skills, *files, "delete_file"]
    assert names(offer=["skill_load"], tools=stock) == ["skill_load", "stock"]


def test_an_offer_of_what_is_not_there_names_what_is(root: Path) -> None:
    with pytest.raises(ConfigError, match="no tool") as raised:
        make_kit(root, offer=["skill_lod"])
    assert raised.value.code == "tool-unknown" and "skill_load" in str(raised.value.hint)
    with pytest.raises(ConfigError) as raised:
        make_kit(root, offer="file")
    assert "files" in str(raised.value.hint)
    with pytest.raises(ConfigError, match="switched off"):
        make_kit(root, offer=["delete_file"])
    with pytest.raises(ConfigError) as raised:
        make_kit(root, prefix="my tools/")
    assert raised.value.code == "prefix-invalid"


def test_the_guidance_names_what_is_offered_and_nothing_else(root: Path) -> None:
    text = make_kit(root, offer=["skill_load", "skill_read"]).instructions
    assert "call skill_load at once" in text and "Body first, then the docs you need: skill_read." in text
    for absent in (
        "skill_run",
        "skill_list_docs",
        "skill_select_docs",
        "update_plan",
        "include_all_docs",
        "write",
        "inputs/",
        "out/",
    ):
        assert absent not in text
    lean = make_kit(root, offer=["skill_load"], settings={"tools.profile": "lean"}).instructions
    assert "skill_read" not in lean and "skill_run" not in lean and "call skill_load at once" in lean


def test_a_prefix_is_before_every_name_that_a_model_is_told(root: Path) -> None:
    plain = {spec.name for spec in make_kit(root, offer="files").tools}
    with make_kit(root, prefix="pdf_", offer="files", tools=stock, approve=None) as kit:
        assert {spec.name for spec in kit.tools} == {f"pdf_{name}" for name in [*plain, "stock"]}
        told = kit.instructions + json.dumps(kit.schemas())
        for name in plain:
            if "_" in name:
                assert told.count(name) == told.count(f"pdf_{name}"), name
        assert "DEMO-BODY" in kit.call_sync("pdf_skill_load", {"skill": "demo"}).content
        assert kit.call_sync("pdf_stock", {"item": "nut"}).content == "nut: 3"
        question = kit.call_sync("pdf_" + RUN[0], RUN[1], id="c1").question
        assert question is not None and question.tool == "pdf_skill_run"
    with make_kit(root, prefix="pdf_", settings={"skills.require_load": True}) as kit:
        early = kit.call_sync("pdf_skill_run", {"skill": "beta", "command": "true"})
        assert "with pdf_skill_load" in early.content


def lookup(x: str) -> str:
    """Looks up."""
    if x == "raise":
        raise ValueError("skill_run is no number")
    if x == "retry":
        raise ToolRetry("lookup: use read_file")
    raise ToolFailed(f"Nothing; use {x}")


def prefixed_kit(root: Path, **options: Any) -> prowess.SkillKit:
    return make_kit(root, prefix="p_", offer="files", tools=lookup, **options)


@pytest.mark.parametrize(
    ("tool", "args", "told"),
    [
        ("skill_run", {"skill": "demo", "command": "echo read_file; exit 3"}, "\nread_file"),
        ("read_file", {"file_name": "read_file"}, "There is no file 'read_file'"),
        ("skill_load", {"skill": "skill_run"}, "No skill 'skill_run'"),
        ("lookup", {"x": "read_file"}, "Nothing; use read_file"),
        ("lookup", {"x": "retry"}, ": lookup: use read_file"),
        ("lookup", {"x": "raise"}, "p_lookup raised ValueError: skill_run is no number"),
        ("write_file", {"path": "x.txt", "content": "x"}, "tools.enable = ['write_file']"),
    ],
)
def test_a_prefix_changes_no_text_of_others(root: Path, tool: str, args: Any, told: str) -> None:
    with prefixed_kit(root) as kit:
        outcome = kit.call_sync(f"p_{tool}", args)
        assert not outcome.ok and told in outcome.content


def test_a_prefix_changes_nothing_that_a_person_said(root: Path) -> None:
    with prefixed_kit(root, approve=None) as kit, kit.session("s") as session:
        assert session.call_sync(f"p_{LOAD[0]}", LOAD[1]).ok
        assert session.call_sync(f"p_{RUN[0]}", RUN[1], id="c1").status == "waiting"
        session.answer_sync("c1", "no, because skill_run is switched off. It is bad")
        denied = session.call_sync(f"p_{RUN[0]}", RUN[1], id="c1")
        assert "Denied: skill_run is switched off. It is bad" in denied.content


def test_a_prefix_is_before_every_name_in_our_own_words(root: Path) -> None:
    with prefixed_kit(root) as kit:
        unknown = kit.call_sync("p_nope", {}).content
        assert "There is no tool 'nope'. There are: " in unknown
        listed = unknown.split("There are: ")[1].splitlines()[0].rstrip(".").split(", ")
        assert sorted(listed) == sorted(spec.name for spec in kit.tools)
        assert "There is no tool 'gripp'. Did you mean p_grep?" in kit.call_sync("p_gripp", {}).content
        assert ": p_grep: 'pattern' is required" in kit.call_sync("p_grep", {}).content
        assert ": p_lookup: 'x' is required" in kit.call_sync("p_lookup", {}).content
        assert "The arguments of p_grep are not valid JSON" in kit.call_sync("p_grep", "{").content
        edit = kit.call_sync("p_write_file", {"path": "work/a", "old_string": "a", "new_string": "b"}).content
        assert ": p_write_file replaces" in edit and "with p_read_file, and" in edit
        for _ in range(3):
            kit.call_sync("p_lookup", {"x": "grep"})
        again = kit.call_sync("p_lookup", {"x": "grep"}).content
        assert ": p_lookup failed 3 times" in again and " p_grep, " in again and "p_lookup. Do" in again


def test_schemas_have_the_form_of_each_provider(root: Path) -> None:
    kit = make_kit(root)
    assert kit.schemas("mcp")[0]["inputSchema"]["required"] == ["skill"]
    assert kit.schemas("gemini")[0]["parametersJsonSchema"]["required"] == ["skill"]
    assert kit.schemas("bedrock")[0]["toolSpec"]["inputSchema"]["json"]["required"] == ["skill"]
    unknown: Any = "opanai"
    with pytest.raises(ConfigError, match="no form"):
        kit.schemas(unknown)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def test_an_outcome_says_yes_or_no_and_all_that_a_model_has_to_know(root: Path) -> None:
    with make_kit(root) as kit:
        early = kit.call_sync("skill_run", {"skill": "demmo", "command": "true"})
        assert not early.ok and early.hint and early.content.startswith("failed [skill-not-found]: No skill 'demmo'")
        assert early.content.endswith(early.hint)
        loaded = kit.call_sync(*LOAD)
        assert loaded.ok and "DEMO-BODY" in loaded.content and loaded.files == ()
        ran = kit.call_sync("skill_run", {**RUN[1], "output_files": ["out/*"]})
        assert ran.ok and [file.name for file in ran.files] == ["out/r.txt"]
        assert ran.question is None


def test_files_that_a_call_made_can_be_read_and_saved_also_binary_ones(root: Path, tmp_path: Path) -> None:
    command = "printf '\\0\\377' > out/x.bin; echo failed later; exit 3"
    with make_kit(root, offer="files", approve=["skill_run", "write_file"]) as kit:
        kit.call_sync(*LOAD)
        failed = kit.call_sync("skill_run", {"skill": "demo", "command": command})
        (file,) = failed.files
        assert not failed.ok and (file.name, file.size_bytes, file.read_bytes()) == ("out/x.bin", 2, b"\0\xff")
        assert file.save(tmp_path / "saved.bin").read_bytes() == b"\0\xff"
        written = kit.call_sync("write_file", {"path": "out/note.md", "content": "# Hi\n"})
    assert [(file.ref, file.read_text()) for file in written.files] == [("workspace://out/note.md", "# Hi\n")]


def stock(item: str) -> str:
    """Says how many there are."""
    return f"{item}: 3"


def test_own_tools_files_and_skills_in_use(root: Path, tmp_path: Path) -> None:
    given, other = tmp_path / "sales.csv", tmp_path / "costs.csv"
    given.write_text("1,2\n")
    other.write_text("3,4\n")
    log = MemoryEventLog()
    kit = make_kit(root, tools=[stock], files=given, use=["demo"], store=log)
    with kit, kit.session("s", files=[other], use=["beta"]) as session:
        assert session.call_sync("stock", {"item": "bolt"}).content == "bolt: 3"
        cat = {"skill": "demo", "command": "cat $WORK_DIR/inputs/*.csv"}
        assert session.call_sync("skill_run", cat).content == "3,4\n1,2"
        told = session.instructions
        assert "Files given:\n- inputs/sales.csv\n- inputs/costs.csv" in told
        assert "DEMO-BODY" in told and "BETA-BODY" in told
        assert "DEMO-BODY" in kit.instructions and "BETA-BODY" not in kit.instructions
    started = events_of(log, "s")[0]
    assert [part.text for part in started.attachments] == ["inputs/sales.csv", "inputs/costs.csv"]
    with pytest.raises(ConfigError, match="There is no file"):
        make_kit(root, files="nothing.csv")
    with make_kit(root) as kit, pytest.raises(SkillNotFound), kit.session(use=["nope"]):
        pass


@pytest.mark.parametrize("args", ['{"skill": "demo"}', b'{"skill": "demo"}', ' {"skill":\n"demo"} '])
def test_arguments_may_be_the_text_that_a_provider_gives(root: Path, args: Any) -> None:
    async def use(kit: prowess.SkillKit) -> tuple[str, str]:
        outcome = await kit.call("skill_load", args)
        return outcome.status, (await kit.decide("skill_load", args)).verdict

    with make_kit(root) as kit:
        assert kit.call_sync("skill_load", args).ok and kit.decide_sync("skill_load", args).verdict == "allow"
        assert asyncio.run(use(kit)) == ("ok", "allow")
        assert kit.session("s-2").call_sync("skill_load", args).ok


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ('{"arguments": ', "Expecting value at its end"),
        ('{"arguments": "a"} x', "Extra data at character 20 of 20"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"arguments": ' + "9" * 5000 + "}", "Exceeds the limit"),
        ('["a"]', "it is a list, and must be an object"),
        (5, "must be an object"),
    ],
)
def test_arguments_that_are_no_json_object_are_an_outcome_that_says_where(root: Path, args: Any, why: str) -> None:
    made: list[str] = []

    def echo(arguments: str = "") -> None:
        made.append(arguments)

    with make_kit(root, tools=[echo]) as kit:
        outcome = kit.call_sync("echo", args)
        assert outcome.code == "invalid-json" and why in outcome.content and not made
        decision = kit.decide_sync("echo", args)
        assert decision.rule == "invalid-call" and why in decision.why


def test_a_blank_text_means_no_arguments(root: Path) -> None:
    def echo(arguments: str = "none") -> str:
        return arguments

    with make_kit(root, tools=[echo]) as kit:
        assert [kit.call_sync("echo", args).content for args in ("", " ", "{}", None)] == ["none"] * 4


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_named_session_goes_on_in_another_kit(root: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "log.db")
    with make_kit(root, store=store, session="talk") as kit:
        assert kit.call_sync(*LOAD).ok
    with make_kit(root, store=store) as kit, kit.session("talk") as session:
        assert "went there" in session.call_sync(*RUN).content
    events = events_of(SqliteEventLog(store), "talk")
    calls = [event.call.id for event in events if event.type == "call_planned"]
    assert calls == ["call-1", "call-2"], "no id is used twice"
    assert [event.resumes is None for event in events if event.type == "run_started"] == [True, False]


def test_sessions_of_one_kit_share_its_library_and_nothing_else(root: Path) -> None:
    log = MemoryEventLog()

    async def work() -> None:
        async with make_kit(root, store=log) as kit:
            async with kit.session("a", user="ann") as one, kit.session("b", user="bob") as other:
                await one.call(*LOAD)
                assert "DEMO-BODY" in (await other.call(*RUN)).content, "loaded for this one, too"
                assert (await one.call(*RUN)).ok
                with pytest.raises(WorkspaceError) as raised:
                    await kit.session("a", user="ann").call(*LOAD)
                assert raised.value.code == "session-in-use"
            with pytest.raises(ConfigError) as closed:
                await one.call(*LOAD)
            assert closed.value.code == "kit-closed" and "goes on" in str(closed.value.hint)
            async with kit.session("a", user="ann") as again:
                assert (await again.call(*RUN)).ok, "also in memory"

    asyncio.run(work())
    assert [event.type for event in events_of(log, "b", user="bob")][-1] == "run_finished"


def test_closing_the_kit_closes_its_sessions(root: Path) -> None:
    log = MemoryEventLog()
    before = threading.enumerate()  # of kits that others left
    with make_kit(root, store=log) as kit:
        session = kit.session("left")
        session.call_sync(*LOAD)
        [own] = [each for each in threading.enumerate() if each.name == "prowess-kit" and each not in before]
    assert types_of(log, "left")[-1] == "run_finished"
    with pytest.raises(ConfigError, match="closed"):
        session.call_sync(*LOAD)
    own.join(GUARD_S)  # on a busy machine it may end after the kit has said that it does not
    assert not own.is_alive()


def test_a_thread_that_does_not_end_with_its_kit_is_a_finding(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = StuckLog()
    before = threading.enumerate()
    try:
        with make_kit(root, store=log) as kit:
            kit.call_sync(*LOAD)
            [own] = [each for each in threading.enumerate() if each.name == "prowess-kit" and each not in before]
            assert not kit.findings
        assert own.is_alive() and [each.code for each in kit.findings] == ["kit-not-closed"]
        assert "its thread did not end" in capsys.readouterr().err
    finally:
        log.end.set()
    own.join(GUARD_S)
    assert not own.is_alive()


def test_an_error_in_the_body_is_recorded_as_one(root: Path) -> None:
    log = MemoryEventLog()

    async def work() -> None:
        async with make_kit(root, store=log) as kit, kit.session("s") as session:
            await session.call(*LOAD)
            raise ValueError("a mistake of mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(work())
    end = events_of(log, "s")[-1]
    assert (end.stop_reason, end.code) == ("error", "caller-raised") and "a mistake of mine" in end.text
    with pytest.raises(KeyError), make_kit(root, store=log, session="t") as kit:
        kit.call_sync(*LOAD)
        raise KeyError("x")
    assert events_of(log, "t")[-1].stop_reason == "error"


def test_a_kit_that_was_not_called_leaves_nothing(root: Path) -> None:
    log = MemoryEventLog()
    before = threading.active_count()
    with make_kit(root, store=log) as kit:
        assert kit.instructions and kit.tools and kit.version
        assert threading.active_count() == before
    assert asyncio.run(log.sessions()) == []


# --- questions --------------------------------------------------------------------------------------------------------


def test_a_waiting_call_has_a_question_and_runs_after_the_answer(root: Path) -> None:
    async def work() -> None:
        async with make_kit(root, approve=None) as kit:
            await kit.call(*LOAD)
            outcome = await kit.call(*RUN, id="c1")
            assert outcome.status == "waiting" and not outcome.ok
            question = outcome.question
            assert question is not None
            assert (question.call_id, question.tool) == ("c1", "skill_run")
            assert question.args["command"] == RUN[1]["command"]
            assert question.why and question.about["skill"] == "explicit:demo"
            json.dumps(question.to_dict())
            assert await kit.waiting() == [question]
            await kit.answer("c1", "once", by="ann")
            assert await kit.waiting() == []
            assert (await kit.decide(*RUN, id="c1")).verdict == "allow"
            assert "went there" in (await kit.call(*RUN, id="c1")).content
            assert (await kit.call(*RUN, id="c1")).status == "waiting", "once is once"

    asyncio.run(work())


def test_a_refusal_is_recorded_with_its_reason_and_its_author(root: Path) -> None:
    log = MemoryEventLog()
    with make_kit(root, approve=None, store=log, session="s") as kit:
        kit.call_sync(*LOAD)
        kit.call_sync(*RUN, id="c1")
        kit.answer_sync("c1", "no, because it is late", by="ann")
        denied = kit.call_sync(*RUN, id="c1")
        assert denied.status == "denied" and "it is late" in denied.content
    answers = [event for event in events_of(log, "s") if event.type == "approval_answered"]
    assert (answers[0].by, answers[0].answer, answers[0].why) == ("ann", "no", "it is late")


def test_an_answer_for_the_run_and_one_for_ever(root: Path) -> None:
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD)
        kit.call_sync(*RUN, id="c1")
        kit.answer_sync("c1", "run")
        assert kit.call_sync(*RUN, id="c1").ok and kit.call_sync(*RUN, id="c2").ok
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD)
        assert kit.call_sync(*RUN, id="c1").status == "waiting"
        kit.answer_sync("c1", "always", by="ann")
        assert kit.call_sync(*RUN, id="c1").ok
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD)
        assert kit.call_sync(*RUN, id="c1").ok


def test_an_approval_for_good_is_that_of_its_owner(root: Path) -> None:
    def status(answer: str = "", **owner: Any) -> str:
        with make_kit(root, approve=None) as kit, kit.session(**owner) as session:
            session.call_sync(*LOAD)
            outcome = session.call_sync(*RUN, id="c1")
            if answer and outcome.question:
                session.answer_sync("c1", answer)
                outcome = session.call_sync(*RUN, id="c1")
            return outcome.status

    assert status("always", user="ann", tenant="acme") == "ok"
    assert status(user="ann", tenant="acme") == "ok", "in each of their sessions"
    others = [{"user": "bob", "tenant": "acme"}, {"user": "ann", "tenant": "other"}, {"user": "ann"}, {}]
    assert [status(**owner) for owner in others] == ["waiting"] * 4
    assert status("always") == "ok" and status() == "ok" and status(user="bob") == "waiting"


def test_an_answer_counts_for_the_call_that_it_is_about_only(root: Path) -> None:
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD)
        kit.call_sync(*RUN, id="c1")
        kit.answer_sync("c1", "once")
        other = {"skill": "demo", "command": "bash scripts/go.sh elsewhere"}
        assert kit.decide_sync("skill_run", other, id="c1").verdict == "ask"
        assert kit.call_sync("skill_run", other, id="c1").status == "waiting"


OTHER = ("skill_run", {"skill": "demo", "command": "bash scripts/go.sh elsewhere"})


def test_another_call_under_an_id_that_waits_has_a_question_of_its_own(root: Path) -> None:
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD)
        first = kit.call_sync(*RUN, id="c1").question
        second = kit.call_sync(*OTHER, id="c1").question
        assert first is not None and second is not None
        assert (first.call_id, second.call_id) == ("c1", "c1-2") and first.token != second.token
        assert kit.waiting_sync() == [first, second]
        assert kit.call_sync(*OTHER, id="c1").question == second, "the same call is the same question"
        assert kit.call_sync("skill_run", {"skill": "demo"}, id="c1").code == "invalid-call"
        assert kit.waiting_sync() == [first, second], "an invalid call takes no question away"
        kit.answer_sync("c1", "once")
        assert kit.call_sync(*OTHER, id="c1").status == "waiting", "the yes was for the first"
        assert (kit.decide_sync(*OTHER, id="c1").verdict, kit.decide_sync(*RUN, id="c1").verdict) == ("ask", "allow")
        assert "went there" in kit.call_sync(*RUN, id="c1").content
        kit.answer_sync(second, "once")
        assert kit.decide_sync(*OTHER, id="c1").verdict == "allow"
        assert "went elsewhere" in kit.call_sync(*OTHER, id="c1").content
        assert kit.waiting_sync() == []


def test_an_answer_counts_for_the_question_that_was_shown(root: Path) -> None:
    """An id that is used again has another question. With the id alone nobody knows which one is meant."""
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD)
        first = kit.call_sync(*RUN, id="c1").question
        assert first is not None
        kit.answer_sync(first, "once")
        assert kit.call_sync(*RUN, id="c1").ok
        now = kit.call_sync(*OTHER, id="c1").question
        assert now is not None and now.call_id == "c1" and now.token != first.token
        late: list[dict[str, Any]] = [
            {"question": first},
            {"question": "c1"},
            {"question": "c1", "token": first.token},
            {"question": now, "token": first.token},
        ]
        for given in late:
            with pytest.raises(StoreError) as raised:
                kit.answer_sync(answer="once", **given)
            assert raised.value.code == "question-changed" and "scripts/go.sh elsewhere" in raised.value.message
            assert now.token in str(raised.value.hint)
            assert kit.waiting_sync() == [now]
        kit.answer_sync("c1", "once", token=now.token)
        assert kit.call_sync(*OTHER, id="c1").ok


def test_a_question_that_is_asked_again_is_the_same_one(root: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"store": str(tmp_path / "log.db"), "session": "talk", "approve": None}
    with make_kit(root, **given) as kit:
        kit.call_sync(*LOAD)
        first = kit.call_sync(*RUN, id="c1").question
        assert first is not None and kit.call_sync(*RUN, id="c1").question == first
    with make_kit(root, **given) as kit:
        assert kit.call_sync(*RUN, id="c1").question == first
        kit.answer_sync("c1", "once")
        assert kit.call_sync(*RUN, id="c1").ok
        with pytest.raises(StoreError) as raised:
            kit.answer_sync(first, "once")
        assert raised.value.code == "not-waiting"


def test_a_question_of_before_counts_as_one_of_the_id(root: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"store": str(tmp_path / "log.db"), "session": "talk", "approve": None}
    with make_kit(root, **given) as kit:
        kit.call_sync(*LOAD)
        first = kit.call_sync(*RUN, id="c1").question
    with make_kit(root, **given) as kit:
        kit.answer_sync("c1", "no")
        kit.call_sync(*RUN, id="c1")
        now = kit.call_sync(*OTHER, id="c1").question
        assert now is not None and first is not None and now.token != first.token
        with pytest.raises(StoreError) as raised:
            kit.answer_sync("c1", "once")
        assert raised.value.code == "question-changed"


def test_a_load_and_the_call_that_needs_it_are_two_questions_in_order(root: Path, policy: Path) -> None:
    policy.write_text('[[rule]]\ntool = "skill_load"\nverdict = "ask"\nwhy = "Always."\n', encoding="utf-8")
    other = ("skill_run", {"skill": "beta", "command": "echo beta"})
    with make_kit(root, approve=None) as kit:
        load = kit.call_sync(*RUN, id="c1").question
        beta = kit.call_sync(*other, id="c1").question
        assert load is not None and beta is not None
        assert (load.call_id, load.tool, load.args["skill"]) == ("c1-load", "skill_load", "demo")
        assert (beta.call_id, beta.args["skill"]) == ("c1-2-load", "beta"), "it takes no place of the first"
        kit.answer_sync("c1-load", "once")
        assert "DEMO-BODY" in kit.call_sync(*RUN, id="c1").content
        run = kit.call_sync(*RUN, id="c1").question
        assert run is not None and (run.call_id, run.tool) == ("c1", "skill_run")
        kit.answer_sync("c1", "once")
        assert "went there" in kit.call_sync(*RUN, id="c1").content
        assert kit.waiting_sync() == [beta]


def test_a_load_that_waits_is_not_replaced_by_a_call_with_its_id(root: Path, policy: Path) -> None:
    policy.write_text('[[rule]]\ntool = "skill_load"\nverdict = "ask"\nwhy = "Always."\n', encoding="utf-8")
    with make_kit(root, approve=None) as kit:
        load = kit.call_sync(*RUN, id="c1").question
        posing = kit.call_sync("skill_load", {"skill": "beta"}, id="c1-load").question
        assert load is not None and posing is not None and posing.call_id == "c1-load-2"
        assert kit.waiting_sync() == [load, posing]
        kit.answer_sync("c1-load", "once")
        assert kit.call_sync(load.tool, load.args, id=load.call_id).ok
        early = kit.call_sync("skill_load", {"skill": "beta"}, id="c9-load").question
        assert early is not None and early.call_id == "c9-load-2", "such an id is that of a load that a call needs"


def test_once_is_once_for_calls_that_are_made_at_the_same_time(root: Path) -> None:
    done: list[int] = []

    @prowess.tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pays."""
        done.append(amount)
        await asyncio.sleep(0)
        return "paid"

    async def work() -> None:
        async with make_kit(root, approve=None, tools=[pay]) as kit:
            await kit.call("pay", {"amount": 5}, id="c1")
            await kit.answer("c1", "once")
            made = await asyncio.gather(*(kit.call("pay", {"amount": 5}, id="c1") for _ in range(4)))
            assert sorted(each.status for each in made) == ["ok", "waiting", "waiting", "waiting"]
            [question] = await kit.waiting()
            assert {each.question.token for each in made if each.question} == {question.token}
            others = await asyncio.gather(*(kit.call("pay", {"amount": n}, id="c2") for n in range(4)))
            assert len({each.question.call_id for each in others if each.question}) == 4, "each has its own"

    asyncio.run(work())
    assert done == [5]


def test_an_approver_that_says_once_says_it_to_one_call(root: Path) -> None:
    asked: list[str] = []

    async def approve(call: Any, decision: Any) -> str:
        asked.append(call.id)
        return "once"

    async def work() -> None:
        async with make_kit(root, approve=approve) as kit:
            await kit.call(*LOAD)
            made = await asyncio.gather(*(kit.call(*RUN, id="c1") for _ in range(3)))
            assert all(each.ok for each in made)

    asyncio.run(work())
    assert len(asked) == 3


def test_an_answer_that_fits_nothing_is_an_error(root: Path) -> None:
    with make_kit(root, approve=None) as kit:
        kit.call_sync(*LOAD, id="c0")
        kit.call_sync(*RUN, id="call-17")
        with pytest.raises(StoreError) as raised:
            kit.answer_sync("call-71", "once")
        assert raised.value.code == "call-unknown" and "call-17" in str(raised.value.hint)
        assert "session.waiting()" in str(raised.value.hint)
        with pytest.raises(StoreError) as raised:
            kit.answer_sync("c0", "once")
        assert raised.value.code == "not-waiting"
        with pytest.raises(ConfigError) as invalid:
            kit.answer_sync("call-17", "perhaps")
        assert invalid.value.code == "answer-invalid"
        kit.answer_sync("call-17", True)
        with pytest.raises(StoreError) as raised:
            kit.answer_sync("call-17", "no")
        assert raised.value.code == "already-answered"


def test_questions_outlive_the_kit(root: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"store": str(tmp_path / "log.db"), "session": "talk", "approve": None}
    with make_kit(root, **given) as kit:
        kit.call_sync(*LOAD)
        kit.call_sync(*RUN, id="c1")
    assert events_of(SqliteEventLog(given["store"]), "talk")[-1].stop_reason == "waiting"
    with make_kit(root, **given) as kit:
        assert [question.call_id for question in kit.waiting_sync()] == ["c1"]
    with make_kit(root, **given) as kit:
        kit.answer_sync("c1", "once", by="ann")
    with make_kit(root, **given) as kit:
        assert kit.waiting_sync() == []
        assert kit.call_sync(*RUN, id="c1").ok


def test_the_command_line_answers_for_a_kit_that_is_closed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".agent").mkdir()
    given: dict[str, Any] = {"store": None, "session": "talk", "approve": None}
    with make_kit(root, **given) as kit:
        kit.call_sync(*LOAD)
        kit.call_sync(*RUN, id="c1")
        during = run_here(["approvals", "answer", "c1", "yes"], cwd=tmp_path)
        assert during.code == 1 and "session-in-use" in during.err
    assert "# in the program that asked: make the call c1 again" in run_here(["approvals"], cwd=tmp_path).out
    assert run_here(["approvals", "answer", "c1", "yes"], cwd=tmp_path).code == 0
    with make_kit(root, **given) as kit:
        assert kit.waiting_sync() == [] and kit.call_sync(*RUN, id="c1").ok
    assert "0 questions" in run_here(["approvals"], cwd=tmp_path).err


def test_a_decision_can_be_had_without_the_call(root: Path, policy: Path) -> None:
    log = MemoryEventLog()
    policy.write_text(deny("beta"), encoding="utf-8")

    async def work() -> None:
        async with make_kit(root, approve=None, store=log, session="s") as kit:
            assert (await kit.decide("skill_load", {"skill": "demo"})).verdict == "allow"
            denied = await kit.decide("skill_load", {"skill": "beta"})
            assert denied.verdict == "deny" and "Not this one." in denied.why
            early = await kit.decide(*RUN)
            assert (early.verdict, early.rule) == ("ask", "table:local-trusted"), "it would be loaded first"
            assert (await kit.decide("skill_lod", {})).rule == "invalid-call"
            assert types_of_now(log) == []
            await kit.call(*LOAD)
            before = types_of_now(log)
            asked = await kit.decide(*RUN, id="c1")
            assert asked.verdict == "ask" and asked.about["skill"] == "explicit:demo" and asked.why
            assert types_of_now(log) == before, "nothing is written"
        async with make_kit(root, approve=["skill_run"]) as kit:
            await kit.call(*LOAD)
            assert (await kit.decide(*RUN)).verdict == "allow", "nobody would be asked"

    def types_of_now(log: Any) -> list[str]:
        with ThreadPoolExecutor() as pool:
            return pool.submit(types_of, log, "s").result()

    asyncio.run(work())


# --- threads and loops ------------------------------------------------------------------------------------------------


def test_one_kit_in_one_event_loop_after_another(root: Path) -> None:
    with make_kit(root) as kit:
        assert asyncio.run(kit.call(*LOAD)).ok
        for _ in range(3):
            assert "went there" in asyncio.run(kit.call(*RUN)).content
        assert "went there" in kit.call_sync(*RUN).content


def test_many_threads_and_loops_at_once(root: Path) -> None:
    log = MemoryEventLog()
    count = 6
    together = threading.Barrier(count)

    def call(number: int) -> bool:
        together.wait()
        if number % 2:
            return kit.call_sync(*RUN, id=f"c{number}").ok
        return asyncio.run(kit.call(*RUN, id=f"c{number}")).ok

    with make_kit(root, store=log, session="s") as kit, ThreadPoolExecutor(count) as pool:
        kit.call_sync(*LOAD)
        assert all(pool.map(call, range(count)))
    acted = {event.call_id for event in events_of(log, "s") if event.type == "call_acted"}
    assert {f"c{number}" for number in range(count)} <= acted


class Seen:
    """Where each callback of a kit ran: thread, event loop, and the caller's context variable."""

    def __init__(self) -> None:
        self.places: dict[str, set[tuple[int, Any, str]]] = {}

    def note(self, name: str) -> None:
        try:
            loop: Any = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        self.places.setdefault(name, set()).add((threading.get_ident(), loop, who.get()))

    def make_kit(self, root: Path) -> prowess.SkillKit:
        async def slow(item: str) -> str:
            await asyncio.sleep(0)
            self.note("async tool")
            return item

        def plain(item: str) -> str:
            self.note("def tool")
            return item

        async def approve(call: Any, decision: Any) -> str:
            self.note("approve")
            return "once"

        async def ask(question: str, choices: Any) -> str:
            self.note("ask")
            return "blue"

        def on_event(envelope: Any) -> None:
            self.note("on_event")

        async def on_event_too(envelope: Any) -> None:
            self.note("async on_event")

        return make_kit(root, tools=[slow, plain], approve=approve, ask=ask, on_event=[on_event, on_event_too])

    def on_output(self, stream: str, data: bytes) -> None:
        self.note("on_output")

    calls = (*(LOAD, RUN, ("slow", {"item": "a"}), ("plain", {"item": "b"}), ("ask_user", {"question": "Which?"})),)
    everything = frozenset(("async tool", "def tool", "approve", "ask", "on_event", "async on_event", "on_output"))


def test_callbacks_run_in_the_loop_of_the_caller(root: Path) -> None:
    seen = Seen()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        who.set("ann")
        async with seen.make_kit(root) as kit:
            for call in seen.calls:
                assert (await kit.call(*call, on_output=seen.on_output)).ok
        here = {(threading.get_ident(), loop, "ann")}
        plain = seen.places.pop("def tool")
        assert [(each[1], each[2]) for each in plain] == [(None, "ann")], "in a thread, so that it may block"
        assert all(place == here for place in seen.places.values()), seen.places
        assert {*seen.places, "def tool"} == seen.everything

    asyncio.run(work())


def test_callbacks_run_in_the_thread_that_waits(root: Path) -> None:
    seen = Seen()
    with seen.make_kit(root) as kit:
        token = who.set("ann")
        for call in seen.calls:
            assert kit.call_sync(*call, on_output=seen.on_output).ok
        who.reset(token)
        assert {*seen.places} == seen.everything
        for name, places in seen.places.items():
            for thread, _, person in places:
                assert thread == threading.get_ident(), name
                assert person == "ann", name


def test_a_sync_call_inside_a_running_loop_does_not_wait_for_that_loop(root: Path) -> None:
    seen = Seen()

    async def work() -> None:
        who.set("ann")
        with seen.make_kit(root) as kit:
            for call in seen.calls:
                assert kit.call_sync(*call, on_output=seen.on_output).ok
        for name in ("def tool", "on_event", "on_output"):
            assert {each[0] for each in seen.places[name]} == {threading.get_ident()}, name
        for places in seen.places.values():
            assert {each[2] for each in places} == {"ann"}
        assert {*seen.places} == seen.everything

    asyncio.run(work())


def test_a_tool_may_call_the_kit_itself(root: Path) -> None:
    async def within(item: str) -> str:
        return (await kit.call("skill_load", {"skill": item})).content

    def within_too(item: str) -> str:
        return (
            kit.call_sync("skill_load", {"skill": item}).content
            + prowess.run_sync("go", skills=root, store="memory:", tools=[stock], model=ScriptedModel(script)).text
        )

    script = [{"calls": [{"tool": "stock", "args": {"item": "nut"}}]}, {"text": "done"}]
    with make_kit(root, tools=[within, within_too]) as kit:
        assert "DEMO-BODY" in kit.call_sync("within", {"item": "demo"}).content
        assert "BETA-BODY" in asyncio.run(kit.call("within", {"item": "beta"})).content
        assert "done" in kit.call_sync("within_too", {"item": "demo"}).content
        assert "done" in asyncio.run(kit.call("within_too", {"item": "demo"})).content


def test_a_sync_call_may_stop_a_loop_that_awaits_another_call(root: Path) -> None:
    async def work() -> None:
        began, go = asyncio.Event(), asyncio.Event()

        async def pause(item: str) -> str:
            began.set()
            await go.wait()
            return item

        async with make_kit(root, tools=pause) as kit:
            call = asyncio.ensure_future(kit.call("pause", {"item": "a"}))
            await began.wait()
            assert kit.call_sync(*LOAD).ok and kit.call_sync(*RUN).ok
            go.set()
            assert (await call).content == "a"

    asyncio.run(work())


def test_an_interrupt_in_a_tool_of_a_sync_call_is_raised_and_recorded(root: Path) -> None:
    def stop(item: str) -> str:
        raise KeyboardInterrupt

    log = MemoryEventLog()
    with make_kit(root, tools=stop, store=log, session="s") as kit:
        with pytest.raises(KeyboardInterrupt):
            kit.call_sync("stop", {"item": "a"})
        assert kit.call_sync(*LOAD).ok
    assert [event.outcome.status for event in events_of(log, "s") if event.type == "call_acted"] == [
        "interrupted",
        "ok",
    ]


def test_an_error_of_a_tool_is_an_outcome_wherever_it_runs(root: Path) -> None:
    def bad(item: str) -> str:
        raise ValueError("bad item")

    async def worse(item: str) -> str:
        raise ToolFailed("worse item")

    with make_kit(root, tools=[bad, worse]) as kit:
        for call in (kit.call_sync, lambda *args: asyncio.run(kit.call(*args))):
            raised = call("bad", {"item": "a"})
            assert raised.code == "tool-raised" and "bad item" in raised.content and str(raised.hint) in raised.content
            assert "worse item" in call("worse", {"item": "a"}).content


def test_an_observer_that_fails_is_reported_and_stops_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def bad(envelope: Any) -> None:
        raise ValueError("broken eye")

    def bad_output(stream: str, data: bytes) -> None:
        raise ValueError("broken ear")

    with make_kit(root, on_event=bad) as kit:
        assert kit.call_sync(*LOAD).ok
        assert kit.call_sync(*RUN, on_output=bad_output).ok
    said = capsys.readouterr().err
    assert said.count("broken eye") == 1 and said.count("broken ear") == 1


def test_output_arrives_while_the_script_runs(root: Path) -> None:
    async def work() -> None:
        said = asyncio.Event()
        together = b""

        def hear(stream: str, data: bytes) -> None:
            nonlocal together
            together += data
            if b"first" in together:
                said.set()

        async with make_kit(root) as kit:
            await kit.call(*LOAD)
            command = "echo first; while ! test -e $WORK_DIR/go; do sleep 0.05; done; echo second"
            run = asyncio.create_task(kit.call("skill_run", {"skill": "demo", "command": command}, on_output=hear))
            await said.wait()
            await kit.call("skill_run", {"skill": "demo", "command": "touch $WORK_DIR/go"})
            assert (await run).ok
            assert together == b"first\nsecond\n"

    asyncio.run(work())


@pytest.mark.parametrize("how", ["cancel", "wait_for"])
def test_cancelling_the_caller_ends_the_call_and_its_processes(root: Path, how: str) -> None:
    log = MemoryEventLog()

    async def work() -> None:
        began: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with make_kit(root, store=log, session="s") as kit:
            await kit.call(*LOAD)
            args = {"skill": "demo", "command": "sleep 600 & echo $!; wait"}
            call = asyncio.ensure_future(
                kit.call("skill_run", args, on_output=lambda stream, data: began.set_result(int(data)))
            )
            pid = await began
            if how == "cancel":
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(call, 0)
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert (await kit.call(*RUN)).ok, "and the kit goes on"

    asyncio.run(work())
    acted = [event.outcome.status for event in events_of(log, "s") if event.type == "call_acted"]
    assert acted == ["ok", "interrupted", "ok"]


def test_cancelling_the_caller_cancels_its_tool(root: Path) -> None:
    async def work() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def hang(item: str) -> str:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return item

        async with make_kit(root, tools=hang) as kit:
            call = asyncio.ensure_future(kit.call("hang", {"item": "a"}))
            await began.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert ended.is_set()

    asyncio.run(work())


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_tool_that_closes_its_own_kit_or_session_is_told_so_at_once(
    root: Path, is_async: bool, is_awaited: bool
) -> None:
    log = MemoryEventLog()
    closing: list[Any] = []

    async def stop_later() -> None:
        await closing[-1].aclose()

    def stop_now() -> None:
        closing[-1].close()

    tool: Any = prowess.tool(name="stop")(stop_later if is_async else stop_now)
    kit = make_kit(root, tools=[tool], store=log)
    session, other = kit.session("s-1"), kit.session("s-2")
    other.call_sync(*LOAD)
    for closing in ([kit], [session], [other]):
        outcome = asyncio.run(session.call("stop")) if is_awaited else session.call_sync("stop")
        assert outcome.code == ("kit-in-use" if closing != [other] else None), outcome
    kit.close()
    assert types_of(log, "s-1")[-1] == types_of(log, "s-2")[-1] == "run_finished"


def test_work_that_a_tool_began_may_close_the_kit_when_the_call_has_returned(root: Path) -> None:
    async def use() -> None:
        tasks: list[asyncio.Task[None]] = []
        returned = asyncio.Event()

        async def close() -> None:
            await returned.wait()
            await kit.aclose()

        async def stop() -> None:
            tasks.append(asyncio.create_task(close()))

        kit = make_kit(root, tools=[stop])
        assert (await kit.call("stop")).ok
        returned.set()
        await asyncio.wait_for(tasks[0], GUARD_S)
        with pytest.raises(ConfigError) as caught:
            await kit.call("stop")
        assert caught.value.code == "kit-closed"

    asyncio.run(use())


# --- processes --------------------------------------------------------------------------------------------------------


def start(program: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, args)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


WAITING = """
    import sys, prowess
    kit = prowess.SkillKit(sys.argv[1], store=sys.argv[2], artifacts="memory:", executor="local", session="talk")
    kit.call_sync("skill_load", {"skill": "demo"})
    args = {"skill": "demo", "command": "bash scripts/go.sh there"}
    print(kit.call_sync("skill_run", args, id="c1").status, flush=True)
    sys.stdin.read()
"""


def test_a_session_goes_on_after_its_process_was_killed(root: Path, tmp_path: Path) -> None:
    store = tmp_path / "log.db"
    command = [sys.executable, "-c", textwrap.dedent(WAITING), str(root), str(store)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "waiting\n"
        killed.kill()
    with make_kit(root, store=str(store), session="talk", approve=None) as kit:
        assert [question.call_id for question in kit.waiting_sync()] == ["c1"]
        kit.answer_sync("c1", "once", by="ann")
        assert "went there" in kit.call_sync(*RUN, id="c1").content


PAYING = """
    import sys, prowess
    @prowess.tool(requires_approval=True)
    def pay() -> str:
        "Pays."
        print("paid", flush=True)
        sys.stdin.read()
        return "paid"
    kit = prowess.SkillKit(sys.argv[1], store=sys.argv[2], artifacts="memory:", tools=[pay], session="talk")
    kit.call_sync("pay", id="c1")
    kit.answer_sync("c1", "once")
    kit.call_sync("pay", id="c1")
"""


def test_an_answer_is_used_up_when_its_process_is_killed_in_the_call(root: Path, tmp_path: Path) -> None:
    @prowess.tool(requires_approval=True)
    def pay() -> str:
        """Pays."""
        raise AssertionError("paid twice")

    store = tmp_path / "log.db"
    command = [sys.executable, "-c", textwrap.dedent(PAYING), str(root), str(store)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "paid\n"
        killed.kill()
    with make_kit(root, store=str(store), session="talk", approve=None, tools=[pay]) as kit:
        assert kit.waiting_sync() == []
        assert kit.decide_sync("pay", id="c1").verdict == "ask"
        assert kit.call_sync("pay", id="c1").status == "waiting", "nobody knows if it was done; a person is asked"


FORKED = """
    import os, sys, prowess
    kit = prowess.SkillKit(sys.argv[1], store="memory:", artifacts="memory:")
    if os.fork() == 0:  # nobody has called it yet
        with kit:
            print("early", kit.call_sync("skill_load", {"skill": "demo"}).status, flush=True)
        os._exit(0)
    os.wait()
    with kit:
        kit.call_sync("skill_load", {"skill": "demo"})
        if os.fork() == 0:
            try:
                kit.call_sync("skill_load", {"skill": "demo"})
            except prowess.ConfigError as error:
                print("late", error.code, error.hint, "demo" in kit.instructions, flush=True)
            kit.close()
            os._exit(0)
        os.wait()
        print("parent", kit.call_sync("skill_load", {"skill": "demo"}).status, flush=True)
"""


def test_after_a_fork_the_error_says_what_to_do(root: Path) -> None:
    said, errors = start(FORKED, root).communicate(timeout=GUARD_S)
    hint = "Make a SkillKit in each worker process, after the fork."
    assert said.splitlines() == ["early ok", f"late kit-forked {hint} True", "parent ok"], errors


INTERRUPTED = """
    import sys, prowess
    kit = prowess.SkillKit(sys.argv[1], store="memory:", artifacts="memory:", executor="local", approve=["skill_run"])
    with kit:
        kit.call_sync("skill_load", {"skill": "demo"})
        args = {"skill": "demo", "command": "sleep 600 & echo $!; wait"}
        try:
            kit.call_sync("skill_run", args, on_output=lambda stream, data: print(int(data), flush=True))
        except KeyboardInterrupt:
            print("interrupted", kit.call_sync("skill_load", {"skill": "demo"}).status, flush=True)
"""


def test_ctrl_c_ends_the_call_and_its_processes(root: Path) -> None:
    with start(INTERRUPTED, root) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted ok\n"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert process.wait(GUARD_S) == 0


UNCLOSED = """
    import sys, prowess
    kit = prowess.SkillKit(sys.argv[1], store="memory:", artifacts="memory:", executor="local", approve=["skill_run"])
    kit.call_sync("skill_load", {"skill": "demo"})
    print(kit.call_sync("skill_run", {"skill": "demo", "command": "echo ran"}).ok)
"""


def test_a_kit_that_nobody_closed_does_not_keep_the_process(root: Path) -> None:
    process = start(UNCLOSED, root)
    said, errors = process.communicate(timeout=GUARD_S)
    assert (said, errors, process.returncode) == ("True\n", "", 0)


# --- what a program gives, and a record keeps -------------------------------------------------------------------------


def test_an_id_or_a_name_that_is_no_text_is_refused_and_harms_no_record(root: Path, tmp_path: Path) -> None:
    def open_kit() -> prowess.SkillKit:
        return make_kit(root, store=tmp_path / "log.db", session="s", approve=None)

    with open_kit() as kit:
        kit.call_sync(*LOAD)
        assert kit.call_sync(*RUN, id="c").status == "waiting"
        wrong: dict[str, Any] = {
            "id=7": lambda: kit.call_sync(*LOAD, id=7),  # pyright: ignore[reportArgumentType]
            "by=7": lambda: kit.answer_sync("c", "once", by=7),  # pyright: ignore[reportArgumentType]
            "call_id=7": lambda: kit.answer_sync(7, "once"),  # pyright: ignore[reportArgumentType]
        }
        for given, make in wrong.items():
            with pytest.raises(ConfigError, match=given) as caught:
                make()
            assert caught.value.code == "option-invalid"
    with open_kit() as kit:
        assert [each.call_id for each in kit.waiting_sync()] == ["c"]


def test_a_session_of_an_empty_name_is_refused_and_is_not_that_of_the_kit(root: Path) -> None:
    with make_kit(root, user="ann", tenant="shop") as kit:
        for given in ({"user": ""}, {"tenant": ""}, {"app": ""}, {"id": ""}, {"id": "a\nb"}):
            with pytest.raises(StoreError) as caught:
                kit.session(**given)
            assert caught.value.code == "session-key-invalid"
    with pytest.raises(StoreError) as caught:
        prowess.run_sync("hi", model=ScriptedModel([{"text": "a"}]), skills=root, store="memory:", session="")
    assert caught.value.code == "session-key-invalid"


ENDING = """
    import sys, prowess
    from prowess import ConfigError

    class Owner:
        def __init__(self):
            self.kit = prowess.SkillKit(sys.argv[1], store="memory:", artifacts="memory:")
            self.agent = prowess.Agent("offline", skills=sys.argv[1], store="memory:")

        def __del__(self):
            self.agent.close()
            self.kit.close()
            try:
                self.agent.run_sync("hi")
            except ConfigError as error:
                print(error.code)

    owner = Owner()
    owner.kit.call_sync("skill_load", {"skill": "demo"})
    owner.agent.run_sync("hi")
"""


def test_an_object_that_is_deleted_at_the_end_of_python_does_not_wait_for_ever(root: Path) -> None:
    with start(ENDING, root) as program:
        said, wrong = program.communicate(timeout=GUARD_S)
    assert (said, wrong) == ("python-ending\n", "")
