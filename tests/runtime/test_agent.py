"""Agent: made once, used for any number of requests, from any thread and any event loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, ForwardRef

import pytest

import prowess
from agents import call
from guard import GUARD_S
from prowess.errors import ConfigError, ResourceNotFound, WorkspaceError
from prowess.runtime.agent import Agent, AgentOptions, RunOptions
from prowess.testing import ScriptedModel, skill_dir
from stub_provider import Answer, Stub, chat, open_stub

BINARY = bytes(range(256))
MAKE = 'import pathlib, sys\npathlib.Path("out/all.bin").write_bytes(bytes(range(256)))\nprint("made")\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    skill_dir(folder, "demo", "DEMO-BODY\n", description="Does demos.", files={"scripts/make.py": MAKE})
    return folder


MAKING = [
    call("skill_load", skill="demo"),
    call("skill_run", skill="demo", command="python3 scripts/make.py", output_files=["out/*.bin"]),
    {"text": "done"},
]


def make(root: Path, replies: list[Any], **given: Any) -> prowess.Agent:
    return prowess.Agent(ScriptedModel(replies), **{"skills": root, "store": "memory:", **given})


def test_one_agent_answers_from_threads_and_loops(root: Path) -> None:
    agent = make(root, [{"text": "a"}] * 8)

    async def inside() -> str:
        waited = agent.run_sync("in a running loop").text
        return waited + (await agent.run("awaited")).text

    texts = [agent.run_sync("x").text, asyncio.run(inside()), asyncio.run(inside())]
    with ThreadPoolExecutor(3) as pool:
        texts += [each.text for each in pool.map(agent.run_sync, "123")]
    assert "".join(texts) == "a" * 8


def test_run_sync_has_one_thread_and_the_context_of_its_caller(root: Path) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[tuple[str, str]] = []

    async def note() -> str:
        """Take a note."""
        seen.append((who.get(), threading.current_thread().name))
        return "ok"

    agent = make(root, [call("note"), {"text": "a"}] * 2, tools=[note])
    for name in ("ada", "bob"):
        who.set(name)
        assert agent.run_sync("go").ok
    assert seen == [("ada", "prowess-run-sync"), ("bob", "prowess-run-sync")]


def test_a_run_within_the_thread_of_run_sync_is_refused_and_not_waited_for(root: Path) -> None:
    async def nested() -> str:
        """Run again."""
        with pytest.raises(ConfigError) as raised:
            agent.run_sync("again")
        return str(raised.value.code)

    agent = make(root, [call("nested"), {"text": "a"}], tools=[nested])
    events: list[Any] = []
    agent.run_sync("go", on_event=events.append)
    [acted] = [each.event.outcome for each in events if each.event.type == "call_acted"]
    assert acted.content == "loop-running"


def test_a_policy_that_ends_the_process_ends_the_wait_and_no_other(root: Path) -> None:
    class Leaving:
        def decide(self, call: Any, decision: Any) -> Any:
            raise SystemExit(3)

    def ok() -> str:
        """Says ok."""
        return "ok"

    with pytest.raises(SystemExit):
        make(root, [call("ok"), {"text": "a"}], tools=[ok], policy=Leaving()).run_sync("go")
    assert make(root, [{"text": "still there"}]).run_sync("go").text == "still there"


def test_a_report_does_not_call_words_of_a_tool_words_of_the_model(root: Path) -> None:
    result = make(root, [call("skill_load", skill="demo")], limits=prowess.Limits(turns=1)).run_sync("go")
    assert (result.text, result.stop_reason) == ("", "limit:turns")
    assert "Done:" in result.report and "cut off" not in result.report


CTRL_C = """
import asyncio, os, signal, sys, prowess
from prowess.testing import ScriptedModel
async def wait() -> str:
    "Wait."
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.Event().wait()
    finally:
        print("ended", flush=True)
model = ScriptedModel([{"calls": [{"tool": "wait", "args": {}}]}])
agent = prowess.Agent(model, skills=sys.argv[1], tools=[wait], store="memory:")
try:
    agent.run_sync("go")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_run_and_then_the_wait(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CTRL_C, str(root)], capture_output=True, text=True, timeout=GUARD_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\ninterrupted\n", "")


SILENT = """
import os, signal, sys, threading, prowess
from prowess.testing import ScriptedModel
def ask(call, decision):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
given = {"skills": sys.argv[1], "store": "memory:", "executor": "local"}
run = {"tool": "skill_run", "args": {"skill": "demo", "command": "echo ran"}}
model = ScriptedModel([{"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}, {"calls": [run]}])
try:
    prowess.run_sync("go", model=model, approve=ask, **given)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_approver_that_never_answers_does_not_keep_the_process(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SILENT, str(root)], capture_output=True, text=True, timeout=GUARD_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_a_session_goes_on_in_the_same_agent_and_in_another(root: Path, tmp_path: Path) -> None:
    async def work() -> None:
        model = ScriptedModel([{"text": "Hello."}, {"text": "Ada."}, {"text": "Still Ada."}])
        agent = prowess.Agent(model, skills=root, store="memory:")
        async with agent.session("s-1", user="ada") as chat:
            await chat.run("I am Ada.")
            assert (await chat.run("Who am I?")).text == "Ada."
            assert (chat.id, chat.usage.requests) == ("s-1", 2)
        await agent.run("And now?", session="s-1", user="ada")
        assert "I am Ada." in str(model.requests[-1])

    asyncio.run(work())
    store = str(tmp_path / "runs.db")
    prowess.Agent(ScriptedModel([{"text": "a"}]), skills=root, store=store).run_sync("I am Bob.", session="talk")
    model = ScriptedModel([{"text": "Bob."}])
    prowess.Agent(model, skills=root, store=store).run_sync("Who am I?", session="talk", must_exist=True)
    assert "I am Bob." in str(model.requests[0])


def test_each_request_of_a_session_can_be_streamed(root: Path) -> None:
    async def work() -> None:
        agent = make(root, [{"text": "one"}, {"text": "two"}, {"text": "three"}])
        seen: list[Any] = []
        async with agent.session() as chat:
            first = [each.event async for each in chat.stream("1", on_event=seen.append)]
            async with aclosing(chat.stream("2")) as events:
                async for _ in events:
                    break
            last = [each.event async for each in chat.stream("3")]
        for events, text in ((first, "one"), (last, "three")):
            assert (events[0].type, events[-1].type, events[-1].text) == ("run_started", "run_finished", text)
        assert [each.event for each in seen] == first

    asyncio.run(work())


def test_a_session_serves_one_request_at_a_time_until_it_is_closed(root: Path) -> None:
    seen: list[object] = []

    async def whose(context: prowess.ToolContext) -> str:
        await asyncio.sleep(0.05)
        seen.append(context.deps)
        return "ok"

    async def work() -> tuple[Any, Any, Any]:
        agent = make(root, [call("whose"), {"text": "one"}, {"text": "two"}], tools=[whose])
        async with agent.session() as chat:
            one, beside = await asyncio.gather(
                chat.run("1", deps="ann"), chat.run("2", deps="bob"), return_exceptions=True
            )
            assert (await chat.run("3")).text == "two"
        [late] = await asyncio.gather(chat.run("4"), return_exceptions=True)
        return one, beside, late

    one, beside, late = asyncio.run(work())
    assert (one.text, seen) == ("one", ["ann"])
    assert (beside.code, late.code) == ("session-in-use", "session-closed")


def test_skills_that_are_added_later_are_seen_by_the_next_run(root: Path) -> None:
    model = ScriptedModel([{"text": "a"}, {"text": "b"}])
    agent = prowess.Agent(model, skills=root, store="memory:")
    agent.run_sync("1")
    skill_dir(root, "later", description="Came later.")
    agent.run_sync("2")
    assert ["Came later." in str(request) for request in model.requests] == [False, True]


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_of_a_run_can_be_opened_whatever_they_are(root: Path, tmp_path: Path) -> None:
    given = tmp_path / "in.txt"
    given.write_text("given", encoding="utf-8")
    result = make(root, MAKING, approve=["skill_run"]).run_sync("make it", files=[given])
    [file] = result.files
    assert (file.name, file.mime_type, file.size_bytes) == ("out/all.bin", "application/octet-stream", 256)
    assert file.read_bytes() == file.path.read_bytes() == BINARY
    with pytest.raises(UnicodeDecodeError):
        file.read_text()
    (tmp_path / "kept").mkdir()
    assert file.save(tmp_path / "kept").read_bytes() == BINARY
    assert file.save(tmp_path / "new" / "copy.bin").read_bytes() == BINARY
    with pytest.raises(ConfigError) as raised:
        file.save(tmp_path / "kept")
    assert raised.value.code == "file-exists"
    file.save(tmp_path / "kept", force=True)
    file.path.unlink()
    with pytest.raises(ResourceNotFound) as gone:
        file.read_bytes()
    assert gone.value.code == "file-gone" and "output_dir=" in str(gone.value.hint)


def test_a_folder_with_more_files_than_are_listed_can_be_listed(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(600):
        (folder / f"{number}.txt").touch()
    result = make(root, [call("list_dir", path="inputs/many"), {"text": "600."}]).run_sync("how many?", files=[folder])
    assert (result.text, result.left_out) == ("600.", ())


def write_two(context: prowess.ToolContext) -> None:
    """Writes files."""
    context.files.write_bytes_sync("out/a.txt", b"NEW")
    context.files.write_bytes_sync("out/sub/b.txt", b"NEW")


WRITE_TWO = [call("write_two"), {"text": "ok"}]


BAD_PLACES = ["file", "file/below", "cwd/link", "dangling", ".git/hooks", "", "x" * 300, "ws", "ws/workspaces"]


@pytest.mark.parametrize("place", BAD_PLACES)
def test_an_output_dir_that_cannot_be_used_is_refused_before_the_model_is_asked(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd/link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "cwd")
    model = ScriptedModel(WRITE_TWO)
    with pytest.raises(ConfigError) as caught:
        target = str(tmp_path / place) if place else ""
        own = {"workspace.dir": str(tmp_path / "ws")}
        prowess.run_sync("go", model=model, tools=[write_two], store="memory:", output_dir=target, settings=own)
    assert caught.value.code == "output-dir-invalid" and "output_dir=" in caught.value.message
    assert not model.requests


def test_an_output_dir_may_be_a_link_and_files_are_read_where_it_led(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    model = ScriptedModel(WRITE_TWO)
    files = prowess.run_sync("go", model=model, tools=[write_two], store="memory:", output_dir=link).files
    link.unlink()
    link.symlink_to(tmp_path / "other")
    assert [file.path for file in files] == [tmp_path / "real/a.txt", tmp_path / "real/sub/b.txt"]
    assert [file.read_text() for file in files] == ["NEW", "NEW"]


def test_names_in_the_output_dir_that_are_links_are_not_followed(tmp_path: Path) -> None:
    secret, out = tmp_path / "secret", tmp_path / "out"
    secret.mkdir()
    out.mkdir()
    (secret / "keep").write_text("OLD")
    (out / "a.txt").symlink_to(secret / "keep")
    (out / "sub").symlink_to(secret)
    model = ScriptedModel(WRITE_TWO)
    result = prowess.run_sync("go", model=model, tools=[write_two], store="memory:", output_dir=out)
    assert len(result.warnings) == 2 and [file.read_text() for file in result.files] == ["NEW", "NEW"]
    assert (secret / "keep").read_text() == "OLD" and os.listdir(secret) == ["keep"]


def write_acting(context: prowess.ToolContext) -> None:
    """Writes files."""
    for name in ("Makefile", "SKILL.md", "a.txt"):
        context.files.write_bytes_sync(f"out/{name}", b"NEW")


def test_names_that_act_are_not_written_into_a_folder_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, used = tmp_path / "shelf", tmp_path / "used"
    for folder in (shelf, used, tmp_path / "empty", tmp_path / "cwd"):
        folder.mkdir()
    (used / "mine").touch()
    monkeypatch.chdir(tmp_path / "cwd")
    agent = prowess.Agent(
        ScriptedModel([call("write_acting"), {"text": "ok"}] * 5), tools=[write_acting], store="memory:", skills=[shelf]
    )
    for folder in (used, tmp_path / "cwd"):
        result = agent.run_sync("go", output_dir=folder)
        assert {*os.listdir(folder)} - {"mine"} == {"SKILL.md", "a.txt"}
        [warning] = result.warnings
        assert "programs act on 'Makefile'" in warning and "file.save(PATH)" in warning
    result = agent.run_sync("go", output_dir=tmp_path / "empty")
    assert len(os.listdir(tmp_path / "empty")) == 3
    [warning] = result.warnings
    assert warning.startswith("Programs act on") and "Makefile" in warning
    agent.run_sync("go", output_dir=shelf / "new")
    assert os.listdir(shelf / "new") == ["a.txt"], "skills are looked for there"
    files = {file.name: file for file in agent.run_sync("go").files}
    for name, folder in (("out/Makefile", used), ("out/Makefile", tmp_path / "cwd"), ("out/SKILL.md", shelf)):
        with pytest.raises(WorkspaceError) as caught:
            files[name].save(folder, force=True)
        assert caught.value.code == "acting-name" and "in use" in caught.value.message
    assert files["out/Makefile"].save(used / "Makefile").read_text() == "NEW", "a person named it"
    (tmp_path / "other").mkdir()
    assert files["out/Makefile"].save(tmp_path / "other").read_text() == "NEW", "it is empty"


def test_a_cancelled_run_writes_nothing_more_to_the_output_dir(tmp_path: Path) -> None:
    def write_many(context: prowess.ToolContext) -> None:
        """Writes files."""
        for number in range(300):
            context.files.write_bytes_sync(f"out/{number}.txt", b"x" * 100_000)

    def names() -> list[str]:
        return sorted(os.listdir(tmp_path))

    def wait_for_a_file() -> None:
        while not any(name.endswith(".txt") for name in names()):
            time.sleep(0.001)

    async def cancel() -> None:
        model = ScriptedModel([call("write_many"), {"text": "ok"}])
        work = prowess.run("go", model=model, tools=[write_many], store="memory:", output_dir=tmp_path)
        task = asyncio.ensure_future(work)
        await asyncio.to_thread(wait_for_a_file)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        then = names()
        await asyncio.get_running_loop().shutdown_default_executor()  # waits for threads that are left
        assert names() == then and not any(name.endswith(".part") for name in then)

    asyncio.run(cancel())


def test_a_mistyped_keyword_of_one_run_is_named_with_the_right_one() -> None:
    wrong: Any = {"modle": "offline"}
    with pytest.raises(TypeError, match=r"no keyword 'modle'\. Did you mean 'model'\?"):
        prowess.run_sync("x", **wrong)


def test_files_that_cannot_be_given_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "in.dat").write_text(folder)
    twins = [tmp_path / "a/in.dat", tmp_path / "b/in.dat"]
    given: list[tuple[Any, str]] = [([""], "option-invalid"), ("", "option-invalid"), (twins, "inputs-collide")]
    agent = prowess.Agent(ScriptedModel([]), store="memory:")
    for files, code in given:
        with pytest.raises(ConfigError) as caught:
            agent.run_sync("x", files=files)
        assert caught.value.code == code


def test_output_dir_keeps_the_files_and_replaces_none(root: Path, tmp_path: Path) -> None:
    agent = make(root, MAKING * 2, approve=["skill_run"])
    [file] = agent.run_sync("make it", output_dir=tmp_path / "out").files
    assert (file.path, file.name) == (tmp_path / "out" / "all.bin", "out/all.bin")
    file.path.write_bytes(b"mine")
    again = agent.run_sync("make it", output_dir=tmp_path / "out")
    assert (tmp_path / "out" / "all.bin").read_bytes() == b"mine" and "exists already" in again.warnings[0]
    assert again.files[0].read_bytes() == BINARY


def test_a_link_that_a_script_made_is_not_read(root: Path) -> None:
    result = make(root, MAKING, approve=["skill_run"]).run_sync("make it")
    [file] = result.files
    file.path.unlink()
    file.path.symlink_to("/etc/passwd")
    with pytest.raises(prowess.ProwessError):
        file.read_bytes()


def test_a_file_that_the_model_wrote_is_one_of_the_files(root: Path) -> None:
    replies = [call("write_file", path="out/a.txt", content="written"), {"text": "done"}]
    result = make(root, replies, approve=["write_file"], settings={"tools.enable": ("write_file",)}).run_sync("write")
    assert [(file.name, file.read_text()) for file in result.files] == [("out/a.txt", "written")]


# --- the model's client -----------------------------------------------------------------------------------------------


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    with open_stub() as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        stub.say(*[Answer(body=chat({"content": "a"}))] * 6)
        yield stub


def find_clients() -> list[Any]:
    import openai

    return [each for each in gc.get_objects() if isinstance(each, openai.AsyncOpenAI)]


def test_the_client_of_a_model_is_kept_for_each_loop_and_closed_with_it(stub: Stub, root: Path) -> None:
    before = set(map(id, find_clients()))
    agent = prowess.Agent("openai:big-1", skills=root, store="memory:")

    def mine() -> list[Any]:
        return [each for each in find_clients() if id(each) not in before]

    async def twice() -> Any:
        await agent.run("1")
        await agent.run("2")
        [client] = mine()
        return client

    first = asyncio.run(twice())
    assert first.is_closed()
    agent.run_sync("3")
    agent.run_sync("4")
    [kept] = [each for each in mine() if each is not first]
    assert not kept.is_closed()
    agent.close()
    assert kept.is_closed()


def test_a_single_run_leaves_no_client(stub: Stub, root: Path) -> None:
    async def work() -> None:
        before = set(map(id, find_clients()))
        await prowess.run("1", model="openai:big-1", skills=root, store="memory:")
        assert [each for each in find_clients() if id(each) not in before and not each.is_closed()] == []

    asyncio.run(work())


# --- the keywords -----------------------------------------------------------------------------------------------------


def test_run_takes_the_keywords_of_an_agent_and_of_its_run() -> None:
    def annotations(function: Any) -> dict[str, str]:
        names = inspect.unwrap(function).__kwdefaults__
        return {name: text for name, text in function.__annotations__.items() if name in names}

    made = annotations(Agent.__init__)
    del made["on_event"], made["output_type"]  # a keyword of the run, and one that makes the result generic
    assert dict(AgentOptions.__annotations__.items()) == {name: _forward(text) for name, text in made.items()}
    given = annotations(Agent.run)
    assert dict(RunOptions.__annotations__.items()) == {name: _forward(text) for name, text in given.items()}


def _forward(text: str) -> ForwardRef:
    return ForwardRef(text, module="prowess.runtime.agent")


# --- approvers that wait ----------------------------------------------------------------------------------------------


@prowess.tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def test_a_plain_approver_that_waits_for_a_person_holds_up_no_other_run() -> None:
    released = threading.Event()
    asked: list[int] = []

    def approve(call: Any, decision: Any) -> bool:
        asked.append(call.args["amount"])
        return released.wait(GUARD_S)

    def run(amount: int, approve: Any) -> prowess.Result:
        model = ScriptedModel([call("pay", amount=amount), {"text": f"done {amount}"}])
        return prowess.run_sync("go", model=model, tools=[pay], skills=[], store="memory:", approve=approve)

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(run, amount, approve) for amount in range(8)]
        assert run(8, lambda call, decision: True).text == "done 8", "while the others wait"
        assert not any(each.done() for each in waiting)
        released.set()
        assert [each.result().text for each in waiting] == [f"done {amount}" for amount in range(8)]
    assert sorted(asked) == list(range(8))


def test_observers_see_the_context_variables_of_the_run() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: dict[str, set[str]] = {"plain": set(), "async": set()}

    def plain(event: Any) -> None:
        seen["plain"].add(who.get())

    async def later(event: Any) -> None:
        seen["async"].add(who.get())

    who.set("ann")
    model = ScriptedModel([{"text": "ok"}])
    prowess.run_sync("go", model=model, skills=[], store="memory:", on_event=[plain, later])
    assert seen == {"plain": {"ann"}, "async": {"ann"}}


@pytest.mark.parametrize("answer", ["plain", "awaited", "async", "object"])
def test_an_approver_sees_the_context_variables_of_the_run(answer: str) -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    async def later(call: Any, decision: Any) -> bool:
        seen.append(who.get())
        return True

    def plain(call: Any, decision: Any) -> bool:
        seen.append(who.get())
        return True

    class Object:
        async def __call__(self, call: Any, decision: Any) -> bool:
            return await later(call, decision)

    approve: Any = {"plain": plain, "async": later, "awaited": lambda *given: later(*given), "object": Object()}[answer]
    who.set("ada")
    model = ScriptedModel([call("pay", amount=1), {"text": "done"}])
    result = prowess.run_sync("go", model=model, tools=[pay], skills=[], store="memory:", approve=approve)
    assert result.ok and seen == ["ada"]


def test_an_approver_that_raises_stop_iteration_has_not_answered() -> None:
    model = ScriptedModel([call("pay", amount=1)])
    nobody: Any = iter(())
    result = prowess.run_sync(
        "go", model=model, tools=[pay], skills=[], store="memory:", approve=lambda *given: next(nobody)
    )
    assert result.stop_reason == "waiting" and "StopIteration" in result.problems[0]
