"""Within an epoch a request only grows, byte for byte; the log alone gives the same bytes again; and nothing reaches a
model that was not loaded or asked for."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents import Played, call, calls, open_session, play
from prowess.agent.context.conversation import Conversation
from prowess.agent.context.request import RequestLines
from prowess.core.events import Envelope, EpochStarted, ModelRequested, parse_event, render_event
from prowess.core.values import Message, ToolSpec
from prowess.models.scripted import ScriptedModel

NAMES: tuple[str, ...] = ("alpha", "beta", "gamma")


def write_library(root: Path, make_skill: Any) -> None:
    for name in NAMES:
        files = {
            f"references/{name}-one.md": f"DOC-ONE-{name}",
            f"references/{name}-two.md": f"DOC-TWO-{name}",
            f"assets/{name}.json": f'"ASSET-{name}"',
            "scripts/go.sh": f"echo RAN-{name} # SCRIPT-{name}\n",
        }
        make_skill(root / name, body=f"# {name}\n\nBODY-{name}-0\n", description=f"Does {name} things.", files=files)


def bytes_of(request: tuple[tuple[Message, ...], tuple[ToolSpec, ...]]) -> bytes:
    messages, tools = request
    return b"".join(RequestLines(tools, messages).lines)


def check_growth(played: Played) -> None:
    """Requests of one epoch are prefixes of each other, and every recorded hash is that of what was sent."""
    started = [event for event in played.events if event["type"] in ("epoch_started", "model_requested")]
    requests = iter(played.model.requests)
    before: bytes | None = None
    new_epoch = False
    changed: int | None = None
    for event in started:
        if event["type"] == "epoch_started":
            assert event["why"]
            new_epoch, changed = True, event["first_changed"]
            continue
        now = bytes_of(next(requests))
        assert event["bytes"] == len(now)
        if before is None:
            assert new_epoch and changed is None
        elif new_epoch:
            assert changed is not None
            assert now[:changed] == before[:changed], "everything before the first changed byte is as it was"
            assert now[changed : changed + 1] != before[changed : changed + 1] or changed == len(before)
        else:
            assert now.startswith(before), "within an epoch a request only grows"
        before, new_epoch = now, False


def check_refold(played: Played, fold: Conversation) -> None:
    """The log alone gives every request again."""
    for shown in played.envelopes:
        if shown.seq is None:
            continue
        envelope = parse_event(json.loads(json.dumps(render_event(shown), sort_keys=True)))  # as it is stored
        if isinstance(envelope.event, ModelRequested):
            fold.apply_envelope(envelope)
            assert fold.request().sha256 == envelope.event.sha256
        else:
            fold.apply_envelope(envelope)


class View:
    """What of the library belongs into the next request: told from the calls alone, not from the product's own state.
    `asked` is all that ever belonged into one."""

    def __init__(self, load_mode: str) -> None:
        self.load_mode = load_mode
        self.bodies: dict[str, str] = {}  # name -> marker
        self.docs: dict[str, list[str]] = {}  # name -> markers
        self.asked: set[str] = set()
        self.version = dict.fromkeys(NAMES, 0)

    @property
    def wanted(self) -> set[str]:
        return {*self.bodies.values(), *(doc for docs in self.docs.values() for doc in docs)}

    def act(self, tool: str, args: dict[str, Any], outcome: dict[str, Any]) -> None:
        if tool == "update_plan":
            name = args["plan"]["goal"].removeprefix("edited ")
            self.version |= {name: self.version[name] + 1} if name in NAMES else {}
        if outcome["status"] != "ok" or "skill" not in args:
            return
        name = args["skill"]
        named = [f"DOC-{doc.rpartition('-')[2].removesuffix('.md').upper()}-{name}" for doc in args.get("docs", [])]
        if tool == "skill_load":
            self.bodies[name] = f"BODY-{name}-{self.version[name]}"
            self.docs[name] = list(dict.fromkeys([*self.docs.get(name, []), *named]))
        elif tool == "skill_select_docs" and args.get("mode") == "clear":
            self.docs.pop(name, None)
        elif tool == "skill_select_docs":
            self.docs[name] = list(
                dict.fromkeys([*(self.docs.get(name, []) if args.get("mode") == "add" else []), *named])
            )
        elif tool == "skill_unload":
            self.forget(name)
        for id in outcome["data"].get("unloaded", []):
            self.forget(id.rpartition(":")[2])
        self.asked |= self.wanted

    def forget(self, name: str) -> None:
        self.bodies.pop(name, None)
        self.docs.pop(name, None)

    def forget_all(self) -> list[str]:
        gone = [name for name in NAMES if self.bodies.get(name) or self.docs.get(name)]
        self.bodies, self.docs = {}, {}
        return gone


MARKERS = re.compile(r"(?:BODY-[a-z]+-\d+|DOC-(?:ONE|TWO)-[a-z]+)")


def check_view(played: Played, load_mode: str, placement: str) -> None:
    """All that was asked for is in the next request, nothing before it was asked for, nothing that has gone once an
    epoch began; and whatever a result or a note says about it holds."""
    view = View(load_mode)
    planned: dict[str, tuple[str, dict[str, Any]]] = {}
    number, epoch, over = 0, False, list[str]()
    for event in played.events:
        match event["type"]:
            case "run_started":
                over = []
                if load_mode != "session":
                    view.forget_all()
            case "call_planned":
                planned[event["call"]["id"]] = (event["call"]["tool"], event["call"]["args"])
            case "call_acted":
                view.act(*planned[event["call_id"]], event["outcome"])
            case "epoch_started":
                epoch = True
            case "model_requested":
                text = played.text(number)
                seen = set(MARKERS.findall(text))
                assert view.wanted <= seen, "what was asked for is seen"
                assert seen <= view.asked, "nothing is seen before it was asked for"
                if epoch or placement == "system":
                    assert seen == view.wanted, "what has gone is not seen"
                check_claims(played.model.requests[number][0], planned)
                new = "\n".join(text for _, text in played.texts(number)[after_reply(played, number) :])
                for name in NAMES:
                    said = f"{name} was shown once" in new
                    assert said is (name in over and name not in view.bodies), "a note says what has gone, and no more"
                number, epoch = number + 1, False
                over = view.forget_all() if load_mode == "once" else []


def after_reply(played: Played, number: int) -> int:
    roles = [message.role for message in played.model.requests[number][0]]
    return len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0


def check_claims(messages: Sequence[Message], planned: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """A result that says "above" stands below what it means, in this very request."""
    above = ""
    for message in messages:
        text = "\n".join(part.text or "" for part in message.parts)
        if message.role == "tool" and message.call_id in planned:
            name = planned[message.call_id][1].get("skill")
            assert "instructions are above" not in text or f"BODY-{name}-" in above
            assert "instructions above" not in text or f"BODY-{name}-" in above
            if found := re.search(r"already above: ([^;\n]*)", text):
                for doc in found[1].split(", "):
                    assert f"DOC-{doc.rpartition('-')[2].removesuffix('.md').upper()}-{name}" in above
        above += text


OPERATIONS = st.one_of(
    st.tuples(st.just("skill_load"), st.fixed_dictionaries({"skill": st.sampled_from(NAMES)})),
    st.builds(
        lambda name, doc: ("skill_load", {"skill": name, "docs": [f"references/{name}-{doc}.md"]}),
        st.sampled_from(NAMES),
        st.sampled_from(["one", "two"]),
    ),
    st.builds(
        lambda name, docs, mode: (
            "skill_select_docs",
            {"skill": name, "docs": [f"references/{name}-{doc}.md" for doc in docs], "mode": mode},
        ),
        st.sampled_from(NAMES),
        st.lists(st.sampled_from(["one", "two"]), unique=True),
        st.sampled_from(["replace", "add", "clear"]),
    ),
    st.tuples(st.just("skill_unload"), st.fixed_dictionaries({"skill": st.sampled_from(NAMES)})),
    st.tuples(st.just("skill_list_docs"), st.fixed_dictionaries({"skill": st.sampled_from(NAMES)})),
    st.builds(lambda name: ("skill_read", {"skill": name, "path": f"assets/{name}.json"}), st.sampled_from(NAMES)),
    st.builds(lambda name: ("skill_run", {"skill": name, "command": "bash scripts/go.sh"}), st.sampled_from(NAMES)),
    st.builds(
        lambda title: ("update_plan", {"plan": {"goal": "g", "steps": [{"id": "s1", "title": title}]}}),
        st.sampled_from(["a", "b"]),
    ),
    st.tuples(st.just("write_file"), st.just({"path": "work/x", "content": "denied"})),
    st.tuples(st.just("EDIT"), st.sampled_from(NAMES)),
    st.tuples(st.just("TURN"), st.sampled_from(["go on", *(f"/{name} go on" for name in NAMES)])),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    operations=st.lists(st.lists(OPERATIONS, min_size=1, max_size=3), min_size=1, max_size=10),
    load_mode=st.sampled_from(["turn", "once", "session"]),
    placement=st.sampled_from(["tool_result", "system"]),
    max_loaded=st.sampled_from([None, 1, 2]),
)
def test_within_an_epoch_the_request_only_grows_and_what_is_asked_for_reaches_it(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[list[tuple[str, Any]]],
    load_mode: str,
    placement: str,
    max_loaded: int | None,
) -> None:
    """`operations` are the calls of each reply; one that edits a skill or ends the turn ends the reply."""
    from conftest import make_skill

    root = tmp_path_factory.mktemp("library")
    write_library(root, make_skill)
    requests, replies = ["go"], list[Any]()
    edits = dict.fromkeys(NAMES, 0)

    def edit(name: str) -> Any:
        def reply(messages: Any, tools: Any) -> Any:
            edits[name] += 1
            (root / name / "SKILL.md").write_text(
                f"---\nname: {name}\ndescription: Does {name} things.\n---\n\nBODY-{name}-{edits[name]}\n"
            )
            return call("update_plan", plan={"goal": f"edited {name}", "steps": []})

        return reply

    for operation in operations:
        for key, group in groupby(operation, key=lambda each: each[0] if each[0].isupper() else "calls"):
            each = list(group)
            if key == "calls":
                replies.append(calls(*each))
            elif key == "EDIT":
                replies += [edit(name) for _, name in each]
            else:
                replies += [{"text": "done"}] * len(each)
                requests += [text for _, text in each]
    played = Played(ScriptedModel([*replies, {"text": "done"}]))

    async def work() -> None:
        async with open_session(
            root,
            played.model,
            on_event=(played.envelopes.append,),
            load_mode=load_mode,
            placement=placement,
            settings={"skills.max_loaded": max_loaded, "limits.turns": 50, "limits.scripts": 50},
        ) as session:
            for request in requests:
                await session.run(request)
            refold = Conversation(session.kit.conversation.shown)
        check_growth(played)
        check_refold(played, refold)

    asyncio.run(work())
    check_view(played, load_mode, placement)
    seen = "\n".join(json.dumps(outcome) for outcome in played.outcomes)
    seen += "\n".join(played.text(number) for number in range(len(played.model.requests)))
    read = {args["skill"] for reply in operations for tool, args in reply if tool == "skill_read"}
    for name in NAMES:
        assert f"ASSET-{name}" not in seen or name in read, "a file is told when it is read"
        assert f"SCRIPT-{name}" not in seen, "the source of a script is never told unless it is read by path"
    shutil.rmtree(root)


def test_the_stub_of_a_skill_that_was_loaded_again_points_to_nothing_above(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    docs = (
        "skill_select_docs",
        {"skill": "beta", "docs": ["references/beta-one.md"]},
    )  # loads it, as alpha took its room
    replies = [calls(("skill_load", {"skill": "beta"})), calls(("skill_load", {"skill": "alpha"}), docs)]
    settings = {"skills.max_loaded": 1}
    played = play(tmp_path, [*replies, {"text": "one"}, {"text": "two"}], "go", "go on", settings=settings)
    assert "its instructions are above" in played.text(2) and "its instructions are above" not in played.text(3)
    assert "loaded: beta" in played.text(3)


def test_only_skills_that_are_loaded_are_opened(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    opened: set[str] = set()
    watching = False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(args[0], str) and args[0].startswith(str(tmp_path)):
            opened.add(args[0].removeprefix(str(tmp_path) + "/"))

    async def work() -> None:
        nonlocal watching
        model = ScriptedModel([call("skill_load", skill="alpha"), {"text": "done"}])
        async with open_session(tmp_path, model) as session:
            assert "BODY" not in session.kit.instructions
            watching = True
            await session.run("go")
            watching = False

    sys.addaudithook(hook)
    asyncio.run(work())
    assert {name.split("/")[0] for name in opened} <= {"alpha"}


def test_epochs_say_why(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    loads = [call("skill_load", skill="alpha"), {"text": "one"}, {"text": "two"}]
    played = play(tmp_path, loads, "first", "second", placement="system")
    assert [event["why"] for event in played.of("epoch_started")] == [
        "run started",
        "skills changed under system placement",
        "run started",
    ]
    assert played.texts(1)[1][0] == "system"
    assert "BODY-alpha" in played.texts(1)[1][1]
    assert "BODY-alpha" not in played.text(2), "a turn's skills are gone with the turn"


def test_of_a_system_text_that_stays_the_log_holds_one(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    played = play(tmp_path, [{"text": "one"}, {"text": "two"}], "first", "second")
    first, second = played.of("epoch_started")
    assert "Available skills:" in first["system"] and first["tools"]
    assert second["system"] is None and second["tools"] is None


def test_what_an_earlier_turn_loaded_is_a_stub_and_a_session_keeps_it(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    loads = [call("skill_load", skill="alpha"), {"text": "one"}, {"text": "two"}]
    for mode, kept in (("turn", False), ("session", True)):
        played = play(tmp_path, loads, "first", "second", load_mode=mode)
        assert ("BODY-alpha" in played.text(2)) is kept
        assert "loaded: alpha" in played.text(2)
        assert ("temp:skill:loaded:alpha" in (played.result.state or {})) is kept


def test_once_is_for_one_request(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    script = [
        call("skill_load", skill="alpha"),
        call("skill_run", skill="alpha", command="bash scripts/go.sh"),
        {"text": "one"},
        {"text": "two"},
    ]
    played = play(tmp_path, script, "first", "second", load_mode="once")
    assert "BODY-alpha" in played.text(1)
    assert played.of("skill_unloaded")[0]["reason"] == "shown once"
    assert "was shown once" in played.text(2), "it stays where it is, and a note says that it is over"
    assert played.outcomes[1]["status"] == "ok", "its scripts can still be run"
    assert "BODY-alpha" not in played.text(3)


@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_docs_that_are_selected_after_once_are_seen_once(tmp_path: Path, make_skill: Any, placement: str) -> None:
    write_library(tmp_path, make_skill)
    script = [
        call("skill_load", skill="alpha"),
        call("skill_select_docs", skill="alpha", docs=["references/alpha-one.md"]),
        call("update_plan", plan={"goal": "g", "steps": []}),
        {"text": "done"},
    ]
    played = play(tmp_path, script, load_mode="once", placement=placement)
    assert "DOC-ONE-alpha" in played.text(2)
    assert played.result.state == {}, "the docs are over as well"
    if placement == "system":
        assert "BODY-alpha" not in played.text(2) and "DOC-ONE" not in played.text(3)


@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_a_skill_that_is_loaded_again_after_once_is_not_said_to_be_over(
    tmp_path: Path, make_skill: Any, placement: str
) -> None:
    write_library(tmp_path, make_skill)
    script = [call("skill_load", skill="alpha"), call("skill_load", skill="alpha"), {"text": "done"}]
    played = play(tmp_path, script, load_mode="once", placement=placement)
    assert played.outcomes[1]["content"] == "loaded: alpha (its instructions are above: follow them again)"
    assert "BODY-alpha" in played.text(2) and "was shown once" not in played.text(2)


def test_docs_stand_at_their_own_call(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)
    script = [
        call("skill_load", skill="alpha"),
        call("skill_select_docs", skill="alpha", docs=["references/alpha-one.md"]),
        call("skill_load", skill="alpha", docs=["references/alpha-two.md"]),
        {"text": "done"},
    ]
    played = play(tmp_path, script)
    texts = [text for role, text in played.texts() if role == "tool"]
    assert "BODY-alpha" in texts[0] and "DOC" not in texts[0]
    assert "DOC-ONE-alpha" in texts[1] and "BODY-alpha" not in texts[1]
    assert "DOC-TWO-alpha" in texts[2] and "BODY-alpha" not in texts[2] and "already loaded" in texts[2]
    assert (played.result.state or {})[
        "temp:skill:docs:alpha"
    ] == '["references/alpha-one.md","references/alpha-two.md"]'
    stored = [outcome["content"] for outcome in played.outcomes]
    assert stored[0] == "loaded: alpha"
    assert not any("BODY" in text or "DOC" in text for text in stored), "the record keeps stubs"


@pytest.mark.parametrize("placement", ["tool_result", "system"])
def test_what_is_edited_while_a_run_goes_on_stays_as_it_was_loaded(
    tmp_path: Path, make_skill: Any, placement: str
) -> None:
    write_library(tmp_path, make_skill)

    def edit(messages: Any, tools: Any) -> Any:
        (tmp_path / "alpha" / "SKILL.md").write_text("---\nname: alpha\ndescription: Does.\n---\n\nNEW-BODY\n")
        (tmp_path / "alpha" / "references" / "alpha-one.md").write_text("NEW-DOC")
        (tmp_path / "alpha" / "scripts" / "go.sh").write_text("echo NEW-RUN\n")
        return calls(
            ("skill_select_docs", {"skill": "alpha", "docs": ["references/alpha-one.md"]}),
            ("skill_read", {"skill": "alpha", "path": "assets/alpha.json"}),
            ("skill_run", {"skill": "alpha", "command": "bash scripts/go.sh"}),
        )

    script = [call("skill_load", skill="alpha"), edit, call("skill_load", skill="alpha"), {"text": "done"}]
    played = play(tmp_path, script, placement=placement)
    before = played.text(2)
    assert "DOC-ONE-alpha" in before and "NEW" not in before and "RAN-alpha" in before and "ASSET-alpha" in before
    assert "NEW-BODY" in played.text(3)
    assert "content changed" in played.outcomes[-1]["content"]


def test_what_is_removed_while_a_run_goes_on(tmp_path: Path, make_skill: Any) -> None:
    write_library(tmp_path, make_skill)

    def remove(messages: Any, tools: Any) -> Any:
        shutil.rmtree(tmp_path / "alpha")
        shutil.rmtree(tmp_path / "beta")
        return calls(
            ("skill_run", {"skill": "alpha", "command": "bash scripts/go.sh"}),
            ("skill_load", {"skill": "beta"}),
        )

    played = play(tmp_path, [call("skill_load", skill="alpha"), remove, {"text": "done"}])
    assert played.outcomes[1]["status"] == "ok" and "RAN-alpha" in played.outcomes[1]["content"]
    assert played.outcomes[2]["code"] == "skill-removed"


def test_the_events_of_an_epoch_are_enough_for_its_bytes(tmp_path: Path, make_skill: Any) -> None:
    """Also after a run of another process: nothing but the log and the published trees is there."""
    write_library(tmp_path, make_skill)
    envelopes: list[Envelope] = []

    async def work() -> None:
        model = ScriptedModel([call("skill_load", skill="alpha"), {"text": "done"}])
        async with open_session(tmp_path, model, on_event=(envelopes.append,)) as session:
            await session.run("go")
        shutil.rmtree(tmp_path / "alpha")
        async with open_session(tmp_path, model) as other:  # which has loaded nothing
            fold = Conversation(other.kit.conversation.shown)
            requested = [e for e in envelopes if isinstance(e.event, ModelRequested)]
            for envelope in envelopes:
                fold.apply_envelope(envelope)
                if envelope is requested[-1]:
                    assert isinstance(envelope.event, ModelRequested)
                    assert fold.request().sha256 == envelope.event.sha256
            assert any(isinstance(e.event, EpochStarted) for e in envelopes)

    asyncio.run(work())
