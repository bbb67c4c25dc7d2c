"""Parts are texts or objects of public protocols: policies, executors, stores, secrets."""

from __future__ import annotations

import asyncio
import inspect
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prowess
from agents import call
from guard import GUARD_S
from prowess.errors import ConfigError, ProwessError
from prowess.events import Envelope, ModelReplied
from prowess.ports import Artifact, Decision, Executor, Isolation, Outcome, Place, SessionKey, ToolCall, Workspace
from prowess.runtime.agent import AgentOptions
from prowess.testing import MemoryArtifacts, MemoryEventLog, ScriptedModel, skill_dir

LOAD = call("skill_load", skill="demo")
RUN = call("skill_run", skill="demo", command="cat scripts/a.txt")
DONE = {"text": "done"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    skill_dir(folder, "demo", "DEMO-BODY", description="Does demos.", files={"scripts/a.txt": "a file\n"})
    script = {"scripts/env.sh": 'echo "token=$TOKEN"\n'}
    skill_dir(folder, "other", "OTHER-BODY", description="Does others.", files=script, requires={"env": ["TOKEN"]})
    return folder


def asks(tool: str = "skill_run") -> str:
    return f'[[rule]]\ntool = "{tool}"\nverdict = "ask"\nwhy = "A person looks at it."\n'


def run(root: Path, *steps: Any, **options: Any) -> tuple[list[Envelope], ScriptedModel]:
    """Runs the steps. Returns the events and the model."""
    seen: list[Envelope] = []
    model = ScriptedModel([*steps, DONE])
    with walled() as executor:
        given = {"store": "memory:", "artifacts": "memory:", "executor": executor, "on_ask": "deny", **options}
        prowess.run_sync("do it", model=model, skills=root, on_event=seen.append, **given)
    return seen, model


def outcomes(events: list[Envelope]) -> list[Outcome]:
    return [each.event.outcome for each in events if each.event.type == "call_acted"]


def decisions(events: list[Envelope]) -> list[Decision]:
    return [each.event.decision for each in events if each.event.type == "call_decided"]


def errors(events: list[Envelope]) -> list[tuple[str, str]]:
    return [(each.event.code, each.event.message) for each in events if each.event.type == "error"]


def kit_call(root: Path, tool: str, args: Mapping[str, Any], **options: Any) -> list[Outcome]:
    """Loads the skill of the call and makes the call, with a SkillKit."""

    async def go() -> list[Outcome]:
        async with prowess.SkillKit(root, **given) as kit:
            return [await kit.call("skill_load", {"skill": args["skill"]}), await kit.call(tool, args)]

    with walled() as executor:
        given = {"store": "memory:", "artifacts": "memory:", "executor": executor, "on_ask": "deny", **options}
        return asyncio.run(go())


class Walled:
    """Executor that wraps ours, and says that it isolates. So nobody is asked, on any machine."""

    def __init__(self) -> None:
        self.inner: Executor = prowess.make_executor("local")
        self.opened, self.closed = 0, 0

    async def isolation(self) -> Isolation:
        held = await self.inner.isolation()
        return replace(held, executor="walled", mechanism="wall", network="none", kind="sandbox")

    async def programs(self) -> Any:
        return await self.inner.programs()

    async def open(self, place: Place) -> Workspace:
        self.opened += 1
        workspace: Any = await self.inner.open(place)
        workspace.isolation = await self.isolation()
        return workspace

    async def aclose(self) -> None:
        self.closed += 1
        await self.inner.aclose()


@contextmanager
def walled() -> Iterator[Walled]:
    executor = Walled()
    yield executor
    asyncio.run(executor.aclose())


# --- policy= ----------------------------------------------------------------------------------------------------------


class Says:
    """Policy that gives this answer about a tool."""

    def __init__(self, tool: str, answer: Any) -> None:
        self.tool, self.answer = tool, answer
        self.asked: list[tuple[ToolCall, Decision]] = []

    def decide(self, call: ToolCall, decision: Decision) -> Any:
        self.asked.append((call, decision))
        if call.tool != self.tool:
            return decision
        if isinstance(self.answer, str):
            return replace(decision, verdict=self.answer, why="Says said so.")
        return self.answer(call, decision) if callable(self.answer) else self.answer


def test_a_policy_file_holds_besides_the_others(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text(asks(), encoding="utf-8")
    for policy in ("p.toml", tmp_path / "p.toml", ["p.toml"]):
        events, _ = run(root, LOAD, RUN, policy=policy)
        assert outcomes(events)[1].status == "denied"
        assert decisions(events)[1].why == "A person looks at it."
        assert decisions(events)[1].rule.startswith(f"rule:1 {tmp_path}/p.toml")
    (managed := tmp_path / "managed.toml").write_text(asks("skill_load").replace("ask", "deny"), encoding="utf-8")
    monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(managed))
    events, _ = run(root, LOAD, policy="p.toml")
    assert [each.verdict for each in decisions(events)] == ["deny"]


def test_a_policy_file_allows_what_a_trusted_one_could(root: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[[rule]]\ntool = "skill_run"\nverdict = "allow"\n', encoding="utf-8")
    events, _ = run(root, LOAD, RUN, policy=tmp_path / "p.toml", executor="local")
    assert outcomes(events)[1].status == "ok"
    (tmp_path / "q.toml").write_text(asks(), encoding="utf-8")
    for policy in (["p.toml", "q.toml"], ["q.toml", "p.toml"]):
        files = [tmp_path / name for name in policy]
        events, _ = run(root, LOAD, RUN, policy=files, executor="local")
        assert outcomes(events)[1].status == "denied", "of two files the stricter counts"
    high = call("delete_file", path="out/a.txt")
    (tmp_path / "p.toml").write_text('[[rule]]\ntool = "delete_file"\nverdict = "allow"\n', encoding="utf-8")
    events, _ = run(root, LOAD, high, policy=tmp_path / "p.toml")
    assert outcomes(events)[1].status == "failed", "no rule switches on what the configuration leaves off"


def test_a_policy_file_is_read_again_when_it_changes(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("", encoding="utf-8")

    async def go() -> None:
        async with prowess.SkillKit(root, policy=path, store="memory:", on_ask="deny") as kit:
            assert "demo" in kit.instructions
            assert (await kit.call("skill_load", {"skill": "demo"})).status == "ok"
            path.write_text('[[rule]]\nskill = "demo"\nverdict = "deny"\n', encoding="utf-8")
            assert "demo" not in kit.instructions and "other" in kit.instructions
            denied = await kit.call("skill_load", {"skill": "demo"})
            assert denied.status == "denied" and str(path) in denied.content
            path.unlink()
            broken = await kit.call("skill_load", {"skill": "other"})
            assert (broken.status, broken.code) == ("failed", "policy-unreadable"), "no policy is not a deleted one"
            path.write_text("", encoding="utf-8")

    asyncio.run(go())


def test_denied_content_of_a_policy_file_is_not_loaded(root: Path, tmp_path: Path) -> None:
    digest = prowess.load(prowess.discover(root), "demo").digest
    (tmp_path / "p.toml").write_text(f'denied_digests = ["{digest}"]\n', encoding="utf-8")
    events, model = run(root, LOAD, policy=tmp_path / "p.toml")
    assert outcomes(events)[0].status != "ok"
    assert "Does demos" not in str(model.requests[0][0])


@pytest.mark.parametrize(("answer", "status"), [("ask", "denied"), ("deny", "denied"), ("allow", "ok")])
def test_a_policy_object_makes_a_decision_stricter(root: Path, answer: str, status: str) -> None:
    policy = Says("skill_run", answer)
    events, _ = run(root, LOAD, RUN, policy=policy)
    assert outcomes(events)[1].status == status
    made = decisions(events)[1]
    assert made.verdict == answer and errors(events) == []
    if answer != "allow":
        assert (made.rule, made.why) == ("policy:Says", "Says said so.")
    asked = [each for each, _ in policy.asked if each.tool == "skill_run"]
    assert asked[0].args["command"] == "cat scripts/a.txt"
    facts = next(decision.about for each, decision in policy.asked if each.tool == "skill_run")
    assert (facts["skill"], facts["risk"]) == ("explicit:demo", "medium")
    made_by_kit = kit_call(root, "skill_run", {"skill": "demo", "command": "cat scripts/a.txt"}, policy=policy)
    assert made_by_kit[1].status == status


def test_a_person_may_say_yes_to_what_a_policy_object_asks_about(root: Path) -> None:
    events, _ = run(root, LOAD, RUN, policy=[Says("skill_run", "ask")], approve=["skill_run"])
    assert outcomes(events)[1].status == "ok"
    events, _ = run(root, LOAD, RUN, policy=[Says("skill_run", "deny")], approve=["skill_run"])
    assert outcomes(events)[1].status == "denied"


def test_a_wider_answer_is_an_error_and_the_stricter_decision_holds(root: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(asks(), encoding="utf-8")
    events, _ = run(root, LOAD, RUN, policy=[tmp_path / "p.toml", Says("skill_run", "allow")])
    assert outcomes(events)[1].status == "denied"
    told = "The policy Says said allow, but it can only be stricter than ask."
    assert errors(events) == [("policy-failed", told)]
    assert decisions(events)[1].verdict == "ask" and told in decisions(events)[1].why
    strict = [Says("skill_run", "deny"), Says("skill_run", "ask")]
    events, _ = run(root, LOAD, RUN, policy=strict)
    assert decisions(events)[1].verdict == "deny"


def test_a_policy_cannot_change_the_call_or_its_limits(root: Path) -> None:
    def meddle(call: ToolCall, decision: Decision) -> Decision:
        call.args["command"] = "cat /etc/passwd"
        decision.limits["argv"] = ["cat", "/etc/passwd"]
        return decision

    events, _ = run(root, LOAD, RUN, policy=Says("skill_run", meddle))
    assert "a file" in outcomes(events)[1].content and decisions(events)[1].limits == {}


async def later(call: ToolCall, decision: Decision) -> Decision:
    return decision


def explode(call: ToolCall, decision: Decision) -> Decision:
    raise KeyError("rota")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "The policy Says returned no decision: None"),
        (42, "The policy Says returned no decision: 42"),
        (True, "The policy Says returned no decision: True"),
        ("perhaps", "The policy Says returned no decision: Decision(verdict='perhaps'"),
        (later, "The policy Says returned no decision: <coroutine"),
        (explode, "The policy Says failed: KeyError: 'rota'"),
    ],
)
def test_a_policy_that_fails_denies(root: Path, answer: Any, why: str) -> None:
    events, _ = run(root, LOAD, RUN, policy=Says("skill_run", answer))
    assert outcomes(events)[1].status == "denied"
    assert decisions(events)[1].why.startswith(why) and decisions(events)[1].verdict == "deny"
    code, message = errors(events)[0]
    assert code == "policy-failed" and message.startswith(why)


def test_a_skill_that_a_policy_denies_is_not_advertised(root: Path) -> None:
    class NoDemo:
        def decide(self, call: ToolCall, decision: Decision) -> Decision:
            if decision.about.get("skill") == "explicit:demo":
                return replace(decision, verdict="deny", why="Not today.")
            return decision

    searches = call("skill_search", query="demos")
    events, model = run(root, searches, LOAD, call("skill_load", skill="explicit:demo"), policy=NoDemo())
    first = str(model.requests[0][0])
    assert "Does demos" not in first and "Does others" in first
    searched, by_name, by_id = outcomes(events)
    assert "Does demos" not in searched.content
    assert (by_name.status, by_id.status) == ("denied", "denied") and "Not today." in by_id.content
    kit = prowess.SkillKit(root, policy=[NoDemo()])
    assert "Does demos" not in kit.instructions and "Does others" in kit.instructions


def test_a_policy_that_fails_while_the_catalog_is_made_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = Says("skill_load", explode)
    events, model = run(root, policy=policy)
    assert "Does demos" not in str(model.requests[0][0])
    assert errors(events) == [("policy-failed", "The policy Says failed: KeyError: 'rota'")]
    kit = prowess.SkillKit(root, policy=policy)
    assert kit.instructions == kit.instructions == ""
    assert capsys.readouterr().err.count("KeyError: 'rota'") == 1


def test_a_policy_may_change_its_mind(root: Path) -> None:
    policy = Says("skill_load", "deny")
    kit = prowess.SkillKit(root, policy=policy)
    assert kit.instructions == ""
    policy.answer = "allow"
    assert "Does demos" in kit.instructions


# --- executor= --------------------------------------------------------------------------------------------------------


def test_an_executor_object_is_used_and_stays_open(root: Path) -> None:
    with walled() as executor:
        agent = prowess.Agent(ScriptedModel([LOAD, RUN, DONE]), skills=root, executor=executor, store="memory:")
        result = agent.run_sync("do it")
        assert result.ok and (executor.opened, executor.closed) == (1, 0)
        ran = kit_call(root, "skill_run", {"skill": "demo", "command": "cat scripts/a.txt"}, executor=executor)[1]
        assert ran.status == "ok" and ran.data["isolation"]["executor"] == "walled"
        assert (executor.opened, executor.closed) == (2, 0), "whoever made it closes it"


def test_an_executor_object_runs_scripts_where_the_configuration_has_none(root: Path) -> None:
    with walled() as executor:
        kit = prowess.SkillKit(root, executor=executor, settings={"workspace.executor": "none"})
    assert "skill_run" in [spec.name for spec in kit.tools]


@pytest.mark.parametrize("method", ["isolation", "programs", "open"])
def test_an_executor_that_raises_ends_the_call_and_not_the_run(root: Path, tmp_path: Path, method: str) -> None:
    async def fail(*_: Any) -> Any:
        raise OSError("no such machine")

    (tmp_path / "p.toml").write_text('[[rule]]\ncommand = "cat"\nverdict = "allow"\n', encoding="utf-8")
    with walled() as executor:
        setattr(executor, method, fail)
        events, _ = run(root, LOAD, RUN, executor=executor, policy=tmp_path / "p.toml")
    failed = outcomes(events)[1]
    assert (failed.status, failed.code) == ("failed", "executor-failed")
    assert f"Walled.{method}() failed: OSError: no such machine" in failed.content and "executor=" in str(failed.hint)


def test_an_executor_that_does_not_say_its_isolation_runs_nothing(root: Path) -> None:
    class Silent(Walled):
        async def isolation(self) -> Any:
            return None

    silent = Silent()
    events, _ = run(root, LOAD, RUN, executor=silent)
    asyncio.run(silent.aclose())
    assert "Silent.isolation() returned None, which is no Isolation" in outcomes(events)[1].content


# --- store= and artifacts= --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["runs.db", "sqlite:///runs.db", "sqlite:////{here}/runs.db", "path", "object"])
def test_a_session_in_a_file_goes_on_however_the_file_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".agent").mkdir()
    writes = call("skill_run", skill="demo", command="bash -c 'echo kept > out/kept.txt'")
    log = prowess.SqliteEventLog(tmp_path / "runs.db")
    address = store.replace("/{here}", str(tmp_path))
    given: Any = {"path": Path("runs.db"), "object": log}.get(store, address)
    run(root, LOAD, writes, store="runs.db", session="s-1")
    reads = call("skill_run", skill="demo", command="cat out/kept.txt")
    events, model = run(root, reads, store=given, session="s-1", must_exist=True)
    assert "kept" in outcomes(events)[0].content, "the workspace is that of the same session"
    assert len([part for message in model.requests[0][0] for part in message.parts if part.text == "do it"]) == 2
    asyncio.run(log.close())
    assert not (tmp_path / ".agent" / "prowess.db").exists()


def test_the_same_addresses_are_settings(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for store in ("sqlite:///a.db", "sqlite:///~/b.db"):
        run(root, store=None, settings={"store": store})
    assert (tmp_path / "a.db").exists() and Path("~/b.db").expanduser().exists()
    for wrong in ("sqlite:///:memory:", "sqlite://", "sqlite://a.db", "sqlite:a.db", "sqlite:///a.db?mode=ro"):
        with pytest.raises(ConfigError, match="names no file") as refused:
            prowess.Agent(skills=root, store=wrong)
        assert refused.value.code == "store-unknown" and "memory:" in str(refused.value.hint)
        assert refused.value.message.startswith("store= cannot be used.")


class Journal(MemoryEventLog):
    """Event log of somebody else, which counts its sessions, and so is false while it is empty."""

    closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def close(self) -> None:
        self.closed = True


def test_an_event_log_is_used_and_stays_open(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".agent").mkdir()
    log = Journal()
    run(root, LOAD, store=log, session="s-1")
    events, _ = run(root, RUN, store=log, session="s-1", must_exist=True)
    assert outcomes(events)[0].status == "ok", "the skill is still loaded"
    assert not log.closed and len(asyncio.run(log.sessions())) == 1
    assert sorted(os.listdir(tmp_path / ".agent")) == [], "no copy of the runs: where they are is up to the log"
    assert kit_call(root, "skill_read", {"skill": "demo", "path": "scripts/a.txt"}, store=log)[1].status == "ok"
    assert not log.closed


def test_a_log_that_cannot_write_stops_the_run(root: Path) -> None:
    class Full(MemoryEventLog):
        async def append(self, *given: Any, **more: Any) -> Any:
            raise OSError("disk full")

    model = ScriptedModel([DONE])
    with pytest.raises(OSError, match="disk full"):
        prowess.run_sync("do it", model=model, skills=root, store=Full())
    assert model.requests == []


SAVE = call(
    "skill_run", skill="demo", command="cp scripts/a.txt out/b.txt", output_files=["out/*"], save_as_artifacts=True
)


def test_an_artifact_store_keeps_files(root: Path) -> None:
    artifacts = MemoryArtifacts()
    events, _ = run(root, LOAD, SAVE, artifacts=artifacts, session="s-1")
    saved = outcomes(events)[1].data["artifact_files"]
    assert len(saved) == 1
    key = SessionKey(session="s-1")
    (name,) = asyncio.run(artifacts.names(key))
    assert asyncio.run(artifacts.load(key, name)) == b"a file\n"
    events, _ = run(root, call("read_file", file_name=f"artifact://{name}"), artifacts=artifacts, session="s-1")
    assert "a file" in outcomes(events)[0].content


def test_an_artifact_store_that_fails_is_told_and_the_run_goes_on(root: Path) -> None:
    class Broken(MemoryArtifacts):
        async def save(self, *given: Any, **more: Any) -> Artifact:
            raise RuntimeError("bucket is gone")

        async def stream(self, *given: Any, **more: Any) -> AsyncIterator[bytes]:
            yield b"a"
            raise RuntimeError("bucket is gone")

        async def get(self, *given: Any, **more: Any) -> Artifact:
            raise RuntimeError("bucket is gone")

    events, _ = run(root, LOAD, SAVE, call("read_file", file_name="artifact://a@0"), artifacts=Broken())
    ran, read = outcomes(events)[1:]
    assert ran.status == "ok" and "Broken.save() failed: RuntimeError: bucket is gone" in ran.content
    assert (read.status, read.code) == ("failed", "artifacts-failed")


# --- secrets= ---------------------------------------------------------------------------------------------------------

NEEDS = call("skill_load", skill="other")
TELL = call("skill_run", skill="other", command="bash scripts/env.sh")


class Vault:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def find(self, name: str) -> str | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if name == "TOKEN" else None


class PlainVault(Vault):
    def find(self, name: str) -> Any:  # not async
        return self.answer


@pytest.mark.parametrize("secrets", [{"TOKEN": "tok-1-secret"}, Vault("tok-1-secret"), PlainVault("tok-1-secret")])
def test_secrets_reach_the_skill_that_declares_them_and_no_record(root: Path, secrets: Any) -> None:
    events, model = run(root, NEEDS, TELL, secrets=secrets)
    assert "token=[secret TOKEN]" in outcomes(events)[1].content
    assert "tok-1-secret" not in str(events) + str(model.requests)
    made = kit_call(root, "skill_run", {"skill": "other", "command": "bash scripts/env.sh"}, secrets=secrets)
    assert "token=[secret TOKEN]" in made[1].content


def test_values_of_a_mapping_are_hidden_though_no_skill_asks(root: Path) -> None:
    events, _ = run(root, {"text": "It is tok-2-secret."}, secrets={"OTHER": "tok-2-secret"})
    assert "tok-2-secret" not in str(events) and "[secret OTHER]" in str(events)


def test_configured_secrets_are_there_besides(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REAL", "tok-3-configured")
    settings = {"secrets": {"TOKEN": "env:REAL"}}
    events, _ = run(root, NEEDS, TELL, secrets={"OTHER": "tok-2-secret"}, settings=settings)
    assert "token=[secret TOKEN]" in outcomes(events)[1].content
    log = MemoryEventLog()
    events, _ = run(root, NEEDS, TELL, secrets={"TOKEN": "tok-1-given"}, settings=settings, store=log)
    assert "token=[secret TOKEN]" in outcomes(events)[1].content
    assert "tok-3-configured" not in str(events)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ConnectionError("vault is sealed"), "Vault.find('TOKEN') failed: ConnectionError: vault is sealed"),
        (42, "Vault.find('TOKEN') returned an object of int, not a text."),
    ],
)
def test_a_provider_that_fails_is_told(root: Path, answer: Any, told: str) -> None:
    events, _ = run(root, NEEDS, secrets=Vault(answer))
    failed = outcomes(events)[0]
    assert (failed.status, failed.code) == ("failed", "secret-failed") and told in failed.content


# --- wrong parts ------------------------------------------------------------------------------------------------------


class Half:
    def decide(self, call: ToolCall) -> None: ...

    async def isolation(self) -> None: ...

    async def append(self) -> None: ...

    async def save(self) -> None: ...


class AsyncPolicy:
    async def decide(self, call: ToolCall, decision: Decision) -> Decision:
        return decision


WRONG = [
    ({"policy": 42}, "policy=42 is not a Policy."),
    ({"policy": [Says("x", "ask"), None]}, "policy=None is not a Policy."),
    ({"policy": Says}, "policy=Says is a class."),
    ({"policy": AsyncPolicy()}, "policy=<AsyncPolicy> has an async decide."),
    ({"policy": "missing.toml"}, "policy= cannot be used. The policy "),
    ({"policy": b"p.toml"}, "policy=<bytes> is not a Policy."),
    ({"executor": 42}, "executor=42 is not an Executor."),
    ({"executor": "sendbox"}, "executor='sendbox' is no executor."),
    ({"executor": Walled}, "executor=Walled is a class."),
    ({"executor": Half()}, "executor=<Half> lacks programs(), open(), aclose()."),
    ({"store": 42}, "store=42 is not an EventLog."),
    ({"store": ["runs.db"]}, "store=<list> is not an EventLog."),
    ({"store": MemoryEventLog}, "store=MemoryEventLog is a class."),
    ({"store": "shalf://here"}, "store= cannot be used. The setting store begins with 'shalf:'"),
    ({"store": Half()}, "store=<Half> lacks lease(), read(), lines(), head(), sessions()"),
    ({"artifacts": 42}, "artifacts=42 is not an ArtifactStore."),
    ({"artifacts": Half()}, "artifacts=<Half> lacks load(), stream(), get(), names(), versions(), delete()."),
    ({"artifacts": "ftp://x"}, "artifacts= cannot be used. The setting artifacts begins with 'ftp:'"),
    ({"secrets": "tok-1-secret"}, "secrets=<str> is not a SecretProvider."),
    ({"secrets": [("TOKEN", "tok-1-secret")]}, "secrets=<list> is not a SecretProvider."),
    ({"secrets": {"TOKEN": None}}, "The value of secrets['TOKEN'] is no text, but an object of NoneType."),
    ({"secrets": {"TOKEN": b"tok-1-secret"}}, "The value of secrets['TOKEN'] is no text, but an object of bytes."),
    ({"secrets": Vault}, "secrets=Vault is a class."),
    ({"approve": Vault}, "approve=Vault is a class."),
]


@pytest.mark.parametrize(("given", "told"), WRONG, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("door", ["agent", "kit", "run"])
def test_a_wrong_part_is_refused_by_its_keyword(root: Path, given: dict[str, Any], told: str, door: str) -> None:
    with pytest.raises(ProwessError) as refused:
        if door == "agent":
            prowess.Agent(skills=root, **given)
        elif door == "kit":
            prowess.SkillKit(root, **given)
        else:
            prowess.run_sync("do it", skills=root, model=ScriptedModel([DONE]), **given)
    error = refused.value
    assert isinstance(error, ConfigError) and error.message.startswith(told)
    assert error.hint and "tok-1-secret" not in str(error)


def test_a_broken_policy_file_is_named_with_its_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[[rule]]\nverdict = "maybe"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^policy= cannot be used\. .*p\.toml:1") as refused:
        prowess.Agent(skills=root, policy=tmp_path / "p.toml")
    assert refused.value.code == "policy-invalid"


def test_a_part_that_is_none_is_as_configured(root: Path) -> None:
    none: dict[str, Any] = dict.fromkeys(("policy", "executor", "store", "artifacts", "secrets"))
    assert "demo" in prowess.SkillKit(root, **none).instructions
    assert prowess.run_sync("do it", skills=root, model=ScriptedModel([DONE]), **none).ok
    assert prowess.Agent(skills=root, policy=[]) is not None


def test_the_functions_take_every_keyword_of_an_agent() -> None:
    of_agent = set(inspect.signature(prowess.Agent).parameters) - {"model", "on_event", "output_type"}
    assert set(AgentOptions.__annotations__) == of_agent
    assert {"policy", "executor", "store", "artifacts", "secrets"} <= set(
        inspect.signature(prowess.SkillKit).parameters
    )


def test_the_file_of_a_store_has_its_sessions(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "runs.db"
    path.parent.mkdir()
    run(root, store=f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("select count(*) from sqlite_master").fetchone()[0] > 0


# --- models -----------------------------------------------------------------------------------------------------------


class WrongModel:
    """Gives one reply, whatever it is."""

    name = "wrong"

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    async def reply(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        return self._reply


WRONG_REPLIES = [
    None,
    "Hello.",
    ModelReplied(text="a", finish="end_turn"),  # pyright: ignore[reportArgumentType]
    ModelReplied(text=5),  # pyright: ignore[reportArgumentType]
    ModelReplied(text="a", calls=5),  # pyright: ignore[reportArgumentType]
    ModelReplied(calls=(ToolCall(id=5, tool="list_dir", args={}),)),  # pyright: ignore[reportArgumentType]
    ModelReplied(text="a", request_id=5),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize("reply", WRONG_REPLIES)
def test_a_reply_that_no_record_can_hold_ends_the_run_and_harms_no_session(reply: Any, tmp_path: Path) -> None:
    def ask(model: Any) -> prowess.Result:
        work = prowess.run("hi", model=model, skills=[], store=tmp_path / "log.db", session="s")
        return asyncio.run(asyncio.wait_for(work, GUARD_S))

    with pytest.raises(ProwessError) as caught:
        ask(WrongModel(reply))
    assert caught.value.code == "model-malformed" and "model=" in str(caught.value.hint)
    assert ask(ScriptedModel([DONE])).text == "done"
