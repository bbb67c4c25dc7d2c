"""Adds a toy one of each thing that grows, and counts the files: a built-in tool, an executor, a store, a setting, an
event. What is built in is added to a copy of the package; what another package adds comes through real entry points, or
is an object that a program gives. Neither imports anything private.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prowess

SOURCE = Path(prowess.__file__).parent


class Place:
    """Folder on PYTHONPATH, with a project and a home to work in. `touched` are the files added or changed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.touched = folder / "site", set[str]()
        self.project, self.home = folder / "project", folder / "home"
        for each in (self.path, self.project / ".agent", self.home):
            each.mkdir(parents=True)

    def copy_package(self) -> None:
        shutil.copytree(SOURCE, self.path / "prowess")

    def add(self, name: str, text: str) -> None:
        path = self.path / name
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.touched.add(name)

    def insert(self, name: str, *places: tuple[str, str]) -> None:
        """Writes each text before the place that it stands beside; such a place must be there once."""
        path = self.path / name
        text = path.read_text(encoding="utf-8")
        for before, added in places:
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, added + before)
        path.write_text(text, encoding="utf-8")
        self.touched.add(name)

    def install(self, name: str, group: str, offers: str, text: str) -> None:
        """Installs a package of one module, as pip would: with a dist-info folder that lists its entry point."""
        (self.path / f"{name}-1.0.dist-info").mkdir()
        (self.path / f"{name}-1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8"
        )
        self.add(f"{name}-1.0.dist-info/entry_points.txt", f"[{group}]\n{offers} = {name}:make\n")
        self.add(f"{name}.py", text)

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": str(self.path), "HOME": str(self.home), "PROWESS_HOME": str(self.home)}
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.project,
            env={**os.environ, **own, "XDG_CACHE_HOME": str(self.home / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )

    def tell(self, script: str) -> Any:
        """Returns what the script prints, as JSON."""
        ended = self.python("-c", script)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def prowess(self, *words: str, code: int = 0) -> Any:
        ended = self.python("-m", "prowess", *words, "--json")
        assert ended.returncode == code, ended.stdout + ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- a built-in tool --------------------------------------------------------------------------------------------------

TOOL = """
from prowess.core.values import Outcome, ToolSpec
from prowess.tools.base import PlainTool
from prowess.tools.schema import Arguments, parse_arguments, render_schema


class CountArguments(Arguments):
    text: str


class CountWords(PlainTool):
    kind = CountArguments
    spec = ToolSpec(name="count_words", description="Count words.", parameters=render_schema(CountArguments))

    async def call(self, args, within):
        number = len(parse_arguments(CountArguments, args, self.spec.name).text.split())
        return Outcome(status="ok", content=f"{number} words")
"""
ROW = """\
    ToolTraits(
        name="count_words",
        gerund="counting the words of",
        arguments={{"text": _ANY}},
        positional=("text",),
        aliases=("wc",),
        risk="{risk}",
        offered="always",
        profiles=("default", "full"),
    ),
"""
TRY_TOOL = """
import json, sys
import prowess
from prowess.core.values import ToolCall
from prowess.records.call_text import render_doing
from prowess.testing import ScriptedModel

model = ScriptedModel([{"calls": [{"tool": "WC", "args": {"text": "a b c"}}]}, {"text": "Done."}])
found = []
prowess.run_sync(
    "Count",
    model=model,
    store="memory:",
    on_event=found.append,
    approve=["count_words"],
    settings={"tools.enable": ENABLE},
)
outcomes = [each.event.outcome for each in found if each.event.type == "call_acted"]
doing = render_doing(ToolCall(id="1", tool="count_words", args={"path": "a.txt"}))
offered = [spec.name for spec in model.requests[0][1]]
print(json.dumps([outcomes[0].status, outcomes[0].content, "count_words" in offered, doing]))
"""


@pytest.mark.parametrize("risk", ["low", "high"])
def test_a_built_in_tool_touches_three_files(place: Place, risk: str) -> None:
    place.copy_package()
    place.add("prowess/tools/count_words.py", TOOL)
    place.insert("prowess/core/tool_table.py", ('    ToolTraits(\n        name="read_file"', ROW.format(risk=risk)))
    place.insert(
        "prowess/tools/builtin.py",
        ('        ToolMaker("ask_user"', '        ToolMaker("count_words", "count_words:CountWords"),\n'),
    )
    assert len(place.touched) == 3

    switched = risk == "high"
    wanted = ["ok", "3 words", True, "counting the words of a.txt"]
    assert place.tell(TRY_TOOL.replace("ENABLE", '["wc"]' if switched else "[]")) == wanted
    found = place.prowess("policy", "check", "wc", "a b c")
    assert [found["tool"], found["risk"], found["verdict"]] == ["count_words", risk, "deny" if switched else "allow"]
    if switched:
        assert "tools.enable = ['count_words']" in found["why"]
        status, content, offered, _ = place.tell(TRY_TOOL.replace("ENABLE", "[]"))
        assert status == "failed" and "switched off" in content and not offered
    else:
        assert found["args"] == {"text": "a b c"}


# --- an executor ------------------------------------------------------------------------------------------------------

EXECUTOR = """
from dataclasses import replace

from prowess import make_executor


class Walled:
    def __init__(self, inner):
        self.inner = inner
        self.programs, self.aclose = inner.programs, inner.aclose

    async def isolation(self):
        held = await self.inner.isolation()
        return replace(held, executor="walled", mechanism="wall", network="none", kind="sandbox")

    async def open(self, place):
        workspace = await self.inner.open(place)
        workspace.isolation = await self.isolation()
        return workspace


def make(setup):
    return Walled(make_executor("local", setup))
"""
WALLED = {"executor": "walled", "mechanism": "wall", "network": "none", "kind": "sandbox"}


@pytest.mark.parametrize("way", ["built in", "installed"])
def test_an_executor_touches_two_files(place: Place, way: str) -> None:
    if way == "installed":
        place.install("walls", "prowess.workspaces", "walled", EXECUTOR)
    else:
        place.copy_package()
        place.add("prowess/workspace/executors/walled.py", EXECUTOR)
        line = '        "walled": "prowess.workspace.executors.walled:make",\n'
        place.insert("prowess/runtime/settings.py", ('        "none": "prowess.workspace', line))
    assert len(place.touched) == 2

    command = ("--", "python3", "scripts/fib.py", "3")
    ran = place.python("-m", "prowess", "exec", "python-math", "--executor", "walled", "--json", *command)
    found = json.loads(ran.stdout)["isolation"]
    assert ran.returncode == 0, ran.stderr  # nobody had to be asked: it says that it isolates
    assert {name: found[name] for name in WALLED} == WALLED
    (place.project / ".agent" / "config.toml").write_text("workspace.executor = 'walled'\n", encoding="utf-8")
    checked = place.prowess("policy", "check", "Bash", "ls", "--config", ".agent/config.toml", "--skill", "python-math")
    assert checked["rule"] == "table:isolated" and checked["isolation"]["executor"] == "walled"


def test_an_executor_that_nobody_offers_is_told_with_those_there_are(place: Place) -> None:
    place.install("walls", "prowess.workspaces", "walled", EXECUTOR)
    refused = place.prowess("run", "x", "--executor", "wolled", code=2)["error"]
    assert "'walled'" in refused["message"] and "'sandbox'" in refused["message"]
    (place.project / "wrong.toml").write_text("workspace.executor = 'wolled'\n", encoding="utf-8")
    refused = place.prowess("list", "--config", "wrong.toml", code=2)["error"]
    assert refused["code"] == "config-wrong-type" and "container, none, walled" in refused["message"]


def test_an_executor_that_cannot_be_imported_is_named(place: Place) -> None:
    place.install("walls", "prowess.workspaces", "walled", "import a_module_that_is_not_there\n")
    command = ("--", "python3", "scripts/fib.py", "3")
    ran = place.python("-m", "prowess", "exec", "python-math", "--executor", "walled", "--json", *command)
    refused = json.loads(ran.stdout)["error"]
    assert ran.returncode == 125 and refused["code"] == "plugin-broken" and "walls:make" in refused["message"]


# --- a store ----------------------------------------------------------------------------------------------------------

STORE = """
from urllib.parse import urlsplit

from prowess import SqliteEventLog


class Shelf:
    path = "/a/place/on/a/server"

    def __init__(self, path):
        self._log = SqliteEventLog(path)

    def __getattr__(self, name):
        return getattr(self._log, name)


def make(address):
    return Shelf(urlsplit(address).path)
"""


def test_a_store_of_another_package_keeps_sessions(place: Place) -> None:
    place.install("shelves", "prowess.stores", "shelf", STORE)
    assert len(place.touched) == 2
    config, kept = place.project / "mine.toml", place.home / "kept.db"
    config.write_text(f"store = 'shelf://user:secret@here{kept}'\n", encoding="utf-8")
    (place.project / "replies.yaml").write_text("- text: Done.\n", encoding="utf-8")
    words = ("run", "Do it", "--model", "scripted:replies.yaml", "--session", "mine", "--config", str(config))
    ran = place.python("-m", "prowess", *words)
    assert ran.returncode == 0 and ran.stdout == "Done.\n", ran.stderr
    assert kept.exists() and not (place.project / ".agent" / "prowess.db").exists()
    listed = place.prowess("sessions", "list", "--config", str(config))["sessions"]
    assert [each["session"] for each in listed] == ["mine"]
    config.write_text("store = 'shalf://here'\n", encoding="utf-8")
    refused = place.prowess("sessions", "list", "--config", str(config), code=2)["error"]
    assert refused["code"] == "store-unknown" and "postgresql://…, shelf://…" in refused["hint"]


def test_a_file_of_sessions_may_be_written_as_an_address(place: Place) -> None:
    (place.project / "replies.yaml").write_text("- text: Done.\n", encoding="utf-8")
    words = ("run", "Do it", "--model", "scripted:replies.yaml", "--session", "mine", "--config", "mine.toml")
    for store in ("kept.db", "sqlite:///kept.db", f"sqlite:///{place.project}/kept.db"):
        (place.project / "mine.toml").write_text(f"store = '{store}'\n", encoding="utf-8")
        ran = place.python("-m", "prowess", *words)
        assert ran.returncode == 0, ran.stderr
    listed = place.prowess("sessions", "list", "--config", "mine.toml")["sessions"]
    assert [(each["session"], each["runs"]) for each in listed] == [("mine", 3)]
    (place.project / "mine.toml").write_text("store = 'sqlite:///:memory:'\n", encoding="utf-8")
    refused = place.prowess("sessions", "list", "--config", "mine.toml", code=2)["error"]
    assert refused["code"] == "store-unknown" and "memory:" in refused["hint"]


# --- objects that a program gives -------------------------------------------------------------------------------------

OBJECTS = """
import asyncio, json
from collections import defaultdict
from dataclasses import replace
from hashlib import sha256

import prowess
from prowess.errors import StoreError
from prowess.events import parse_event
from prowess.ports import (
    Artifact, ChainHead, Decision, Lease, SessionInfo, SessionKey, ToolCall, check_fence, seal, unknown_session
)
from prowess.testing import ScriptedModel


MOMENT = "2026-01-01T00:00:00Z"


class Evenings:
    def decide(self, call: ToolCall, decision: Decision) -> Decision:
        if "6" in str(call.args.get("command")):
            return replace(decision, verdict="deny", why="Six is for the evening.")
        return decision


class Walled:
    def __init__(self):
        self.inner = prowess.make_executor("local")
        self.programs, self.aclose, self.open = self.inner.programs, self.inner.aclose, self.inner.open

    async def isolation(self):
        held = await self.inner.isolation()
        return replace(held, executor="walled", mechanism="wall", network="none", kind="sandbox")


class Notebook:
    def __init__(self):
        self.stored, self.tokens, self.heads = defaultdict(list), {}, {}

    async def lease(self, key, owner=""):
        self.tokens[key] = self.tokens.get(key, 0) + 1
        self.heads.setdefault(key, ChainHead())
        return Lease(key=key, token=self.tokens[key], owner=owner)

    async def append(self, key, expected_seq, lease, events):
        head = await self.head(key)
        check_fence(key, lease, self.tokens[key], expected_seq, head.seq)
        sealed, lines = seal(key, head, events)
        self.stored[key] += lines
        self.heads[key] = ChainHead(seq=head.seq + len(sealed), hash=sealed[-1].hash)
        return sealed

    async def read(self, key, *, after_seq=0):
        async for line in self.lines(key, after_seq=after_seq):
            yield parse_event(json.loads(line))

    async def lines(self, key, *, after_seq=0):
        for line in self.stored[key][after_seq:]:
            yield line

    async def head(self, key):
        if key not in self.heads:
            raise unknown_session(key)
        return self.heads[key]

    async def sessions(self, tenant="default", *, app=None, user=None, prefix=""):
        heads = self.heads.items()
        return [SessionInfo(key=key, head=head, created_at=MOMENT, updated_at=MOMENT) for key, head in heads]

    async def orphans(self):
        return []

    async def expire(self, key, at):
        raise StoreError("A notebook keeps everything.")

    async def delete(self, key):
        raise StoreError("A notebook keeps everything.")

    async def close(self):
        raise AssertionError("Whoever made it closes it.")


class Drawer:
    def __init__(self):
        self.kept = {}

    async def save(self, key, name, data, *, mime_type=None):
        content = data if isinstance(data, bytes) else b"".join(data)
        versions = self.kept.setdefault(name, [])
        versions.append(content)
        return self._describe(name, len(versions) - 1)

    def _describe(self, name, version):
        data = self.kept[name][version]
        digest = sha256(data).hexdigest()
        facts = {"mime_type": "text/plain", "created_at": MOMENT}
        return Artifact(name=name, version=version, sha256=digest, size_bytes=len(data), **facts)

    async def load(self, key, name, *, version=None):
        return self.kept[name][-1 if version is None else version]

    async def stream(self, key, name, *, version=None):
        yield await self.load(key, name, version=version)

    async def get(self, key, name, *, version=None):
        return self._describe(name, len(self.kept[name]) - 1 if version is None else version)

    async def names(self, key):
        return sorted(self.kept)

    async def versions(self, key, name):
        return list(range(len(self.kept.get(name, ()))))

    async def delete(self, key, name, *, version=None):
        del self.kept[name]


class Vault:
    async def find(self, name):
        return "tok-1-secret" if name == "TOKEN" else None


def fib(number):
    command = f"bash -c 'python3 scripts/fib.py {number} | tee out/fib.txt; echo token=$TOKEN'"
    args = {"skill": "sums", "command": command, "output_files": ["out/*.txt"], "save_as_artifacts": True}
    return {"tool": "skill_run", "args": args}


given = {
    "policy": [Evenings()],
    "executor": Walled(),
    "store": Notebook(),
    "artifacts": Drawer(),
    "secrets": Vault(),
    "on_ask": "deny",
}
load = {"tool": "skill_load", "args": {"skill": "sums"}}
model = ScriptedModel([{"calls": [load]}, {"calls": [fib(3)]}, {"calls": [fib(6)]}, {"text": "Done."}])
seen = []
prowess.Agent(model, skills="skills", on_event=seen.append, **given).run_sync("Count", session="mine")
told = [each.event.outcome for each in seen if each.event.type == "call_acted"]


async def with_kit():
    async with prowess.SkillKit("skills", session="mine", **given) as kit:
        return [await kit.call("skill_load", {"skill": "sums"}), await kit.call(**fib(4)), await kit.call(**fib(6))]


told += asyncio.run(with_kit())
asyncio.run(given["executor"].aclose())
key = SessionKey(session="mine")
print(json.dumps({
    "statuses": [each.status for each in told],
    "hidden": "tok-1-secret" not in str(seen) + str(told) and "token=[secret TOKEN]" in told[1].content,
    "why": told[2].content,
    "saved": [len(each.data["artifact_files"]) for each in told if "artifact_files" in each.data],
    "warnings": [each.data["warnings"] for each in told if each.data.get("warnings")],
    "kept": [len(each) for each in given["artifacts"].kept.values()],
    "runs": len({json.loads(line)["run"] for line in given["store"].stored[key]}),
}))
"""


def test_objects_of_a_program_are_used_by_an_agent_and_by_a_kit(place: Place) -> None:
    shutil.copytree(SOURCE / "builtin_skills" / "python-math", place.project / "skills" / "sums")
    text = (place.project / "skills" / "sums" / "SKILL.md").read_text(encoding="utf-8")
    text = text.replace("name: python-math", "name: sums\nrequires: {env: [TOKEN]}")
    (place.project / "skills" / "sums" / "SKILL.md").write_text(text, encoding="utf-8")
    found = place.tell(OBJECTS)
    assert found["statuses"] == ["ok", "ok", "denied"] * 2
    assert found["hidden"] and "Six is for the evening." in found["why"]
    assert (found["kept"], found["saved"], found["runs"]) == ([2], [1, 1], 2)
    assert found["warnings"] == []


# --- a setting --------------------------------------------------------------------------------------------------------

TRY_SETTING = """
import json
import prowess
from prowess.testing import ScriptedModel

model = ScriptedModel([{"text": "Done."}])
prowess.run_sync("Say it", model=model, store="memory:")
print(json.dumps([part.text for message in model.requests[0][0] for part in message.parts]))
"""


def test_a_setting_touches_three_files(place: Place) -> None:
    place.copy_package()
    place.insert(
        "prowess/runtime/settings.py",
        ("    code_blocks: bool = False", "    motto: str | None = None\n"),
        ('    "tools.code_blocks": "Run', '    "tools.motto": "Said to every model; unset: nothing.",\n'),
        ('    "tools.code_blocks",\n', '    "tools.motto",\n'),
    )
    place.insert("prowess/policy/trust.py", ('    "limits.turns": _lowers', '    "tools.motto": lambda _, __: True,\n'))
    place.insert(
        "prowess/runtime/factories.py",
        ("import os\n", "import dataclasses\n"),
        ("    return KitStyle(", '    options = dataclasses.replace(options, instructions=config.tools.motto or "")\n'),
    )
    assert len(place.touched) == 3

    (place.project / ".agent" / "config.toml").write_text("[tools]\nmotto = 'Measure twice.'\n", encoding="utf-8")
    shown = place.prowess("config", "show")
    assert shown["values"]["tools.motto"] == "Measure twice." and shown["trusted"] is False
    assert any("Measure twice." in text for text in place.tell(TRY_SETTING))
    (place.project / "wrong.toml").write_text("tools.motto = 3\n", encoding="utf-8")
    refused = place.prowess("config", "show", "--config", "wrong.toml", code=2)["error"]
    assert refused["code"] == "config-wrong-type" and "a text" in refused["message"]


# --- an event ---------------------------------------------------------------------------------------------------------

EVENT = """\
@dataclass(frozen=True, slots=True, kw_only=True)
class MilestoneReached:
    type: ClassVar[str] = "milestone_reached"
    title: str


"""
TEXT = """\
def _milestone_reached(event: MilestoneReached, _: EventContext) -> EventText:
    return EventText(EventLine("milestone", f"reached {event.title}"))


"""
TRY_EVENT = """
import asyncio, json
from dataclasses import replace
import prowess
from prowess.agent.recorder import redact_event
from prowess.events import MilestoneReached
from prowess.policy.secrets import Redactor
from prowess.ports import SessionKey
from prowess.records.timeline import timeline
from prowess.stores.sqlite import SqliteEventLog
from prowess.testing import ScriptedModel

given = {"store": "log.db", "session": "mine"}
prowess.run_sync("Begin", model=ScriptedModel([{"text": "Begun."}]), **given)


async def append():
    log, key = SqliteEventLog("log.db"), SessionKey(session="mine")
    found = [envelope async for envelope in log.read(key)]
    event = redact_event(MilestoneReached(title="half of tok-1-secret"), Redactor({"TOKEN": "tok-1-secret"}))
    lease = await log.lease(key)
    await log.append(key, found[-1].seq, lease, [replace(found[-1], seq=None, prev=None, hash=None, event=event)])
    lines = [moment.text for moment in timeline([envelope async for envelope in log.read(key)])]
    await log.close()
    return lines


lines = asyncio.run(append())
model = ScriptedModel([{"text": "Done."}])
prowess.run_sync("Go on", model=model, **given)
texts = [part.text for message in model.requests[0][0] for part in message.parts]
print(json.dumps([lines, texts]))
"""


def test_an_event_touches_four_files(place: Place) -> None:
    place.copy_package()
    place.insert(
        "prowess/core/events.py",
        ("@dataclass(frozen=True, slots=True, kw_only=True)\nclass UnknownEvent:", EVENT),
        ("    | Compacted\n", "    | MilestoneReached\n"),
    )
    place.insert(
        "prowess/events.py",
        ("    ModelReplied,\n", "    MilestoneReached,\n"),
        ('    "ModelReplied",\n', '    "MilestoneReached",\n'),
    )
    place.insert(
        "prowess/agent/context/conversation.py",
        ("    ModelReplied,\n", "    MilestoneReached,\n"),
        (
            "    NoteAppended: Conversation._note,",
            "    MilestoneReached: lambda talk, event: talk._add(Asked(talk.number, (Part(text=event.title),))),\n",
        ),
    )
    place.insert(
        "prowess/records/timeline.py",
        ("    ModelReplied,\n", "    MilestoneReached,\n"),
        ("_TABLE: dict[", TEXT),
        ("    NoteAppended: _note_appended", "    MilestoneReached: _milestone_reached,\n"),
    )
    assert len(place.touched) == 4

    lines, texts = place.tell(TRY_EVENT)
    assert "reached half of [secret TOKEN]" in lines
    assert "half of [secret TOKEN]" in texts
