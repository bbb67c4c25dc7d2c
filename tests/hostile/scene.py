"""Where the attacks take place: a folder of skills, a person's secrets outside of it, and everything that was seen."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agents
from agents import Played
from prowess.core.codec import to_json
from prowess.core.events import ApprovalAnswered
from prowess.core.values import Decision, ToolCall
from prowess.errors import ProwessError
from prowess.models.scripted import ScriptedModel
from prowess.policy.trust import grant_folder
from prowess.runtime.runtime import Runtime, open_runtime
from tiers import Tier

SECRET = "s3cr3t-0f-th3-p3rs0n"
MakeSkill = Callable[..., Path]  # the fixture
UNCHOSEN = Tier("any", "auto", "whatever this machine has")  # where nothing is run


class Person:
    """An approver who writes down what was asked, and says the same to everything; None is nobody there."""

    def __init__(self, says: Any = "no") -> None:
        self.says = says
        self.asked: list[tuple[ToolCall, Decision]] = []

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        self.asked.append((call, decision))
        if self.says is None:
            return None
        return ApprovalAnswered(call_id=call.id, answer=self.says, by="test")


class Scene:
    def __init__(self, skills: Path, victim: Path, make_skill: MakeSkill, tier: Tier) -> None:
        self.skills, self._make_skill, self.tier = skills, make_skill, tier
        self.victim = victim  # a folder that everybody can read, unless something keeps them out
        self.secret_file = victim / ".ssh" / "id_ed25519"

    def skill(self, folder: str, body: str = "Do as told.\n", **given: Any) -> Path:
        given.setdefault("description", "Helps.")
        return self._make_skill(self.skills / folder, body=body, **given)

    def play(self, replies: Sequence[Any], *requests: Any, says: Any = "no", **options: Any) -> Played:
        """The model obeys: `replies` are the calls that the hostile text asks for. Nobody approves unless told."""
        given = {"approver": Person(says), **options}
        given["settings"] = {"workspace.executor": self.tier.executor, **options.get("settings", {})}
        played = self.tier.run(lambda: agents.play(self.skills, [*replies, {"text": "done"}], *requests, **given))
        if given["settings"]["workspace.executor"] == self.tier.executor:
            for ran in (each["data"] for each in outcomes(played, "skill_run") if "exit_code" in each["data"]):
                assert ran["isolation"]["mechanism"] == self.tier.mechanism, "it is this tier that holds, and no other"
        return played

    def run(self, command: str, *, skill: str = "evil", **options: Any) -> Played:
        """The skill is loaded, and its command run."""
        load = agents.call("skill_load", skill=skill)
        return self.play([load, agents.call("skill_run", skill=skill, command=command)], **options)


def seen(played: Played) -> str:
    """Every byte that a model was sent or that was recorded, as one text."""
    sent = [[to_json(each) for each in (*messages, *tools)] for messages, tools in played.model.requests]
    results = [result.text for result in played.results]
    return json.dumps([sent, played.events, results, str(played.error)], ensure_ascii=False)


def outcome(played: Played, tool: str, number: int = -1) -> Mapping[str, Any]:
    return outcomes(played, tool)[number]


def executed(played: Played) -> list[str]:
    """Tools of calls that were allowed, by policy or by a person, and made; in order."""
    planned = {event["call"]["id"]: event["call"]["tool"] for event in played.of("call_planned")}
    verdicts = {event["call_id"]: event["decision"]["verdict"] for event in played.of("call_decided")}
    verdicts |= {
        each["call_id"]: "deny" if each["answer"] == "no" else "allow" for each in played.of("approval_answered")
    }
    acted = [event["call_id"] for event in played.of("call_acted")]
    return [planned[id] for id in acted if verdicts.get(id) == "allow"]


def decisions(played: Played) -> list[tuple[str, str]]:
    return [(event["decision"]["verdict"], event["decision"]["rule"]) for event in played.of("call_decided")]


def one_by_one(tool: str, tries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each of them, with something that succeeds in between: a fourth failure alike would not even be tried."""
    pairs = [
        ((tool, dict(args)), ("update_plan", {"plan": {"goal": str(n), "steps": []}})) for n, args in enumerate(tries)
    ]
    return agents.calls(*(each for pair in pairs for each in pair))


def outcomes(played: Played, tool: str) -> list[Mapping[str, Any]]:
    """Of every call of that tool."""
    ids = [event["call"]["id"] for event in played.of("call_planned") if event["call"]["tool"] == tool]
    acted = {event["call_id"]: event["outcome"] for event in played.of("call_acted")}
    return [acted[id] for id in ids if id in acted]


def stdout(played: Played) -> str:
    return str(outcome(played, "skill_run")["data"].get("stdout"))


def local(**more: Any) -> dict[str, Any]:
    """Settings without a sandbox: what a control needs."""
    return {"workspace.executor": "local", **more}


def shown_to_model(played: Played, role: str | None = None) -> str:
    """All texts of the last request, of one role or of all, as the model reads them."""
    return "\n".join(text for who, text in played.texts() if role in (None, who))


# --- a project that somebody else wrote -------------------------------------------------------------------------------


class Clone:
    """A repository that was just cloned, opened as a person does who stands in it: no roots are named."""

    def __init__(self, folder: Path, home: Path, make_skill: MakeSkill, tier: Tier = UNCHOSEN) -> None:
        self._make_skill, self._tier = make_skill, tier
        self.folder, self._home, self._state = folder, home, home / ".prowess"
        (folder / ".git").mkdir(parents=True)
        (folder / ".agent").mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def skill(self, name: str, body: str = "Do as told.\n", **given: Any) -> Path:
        given.setdefault("description", "Helps.")
        return self._make_skill(self.folder / ".agent" / "skills" / name, body=body, **given)

    def persons_skill(self, name: str = "mine", **given: Any) -> Path:
        """One of the person's own, for what needs a skill that is offered."""
        return self._make_skill(self._home / ".agent" / "skills" / name, description="Helps.", **given)

    def trust(self) -> None:
        grant_folder(str(self._state), str(self.folder))

    @contextmanager
    def open(self, **flags: Any) -> Iterator[Runtime]:
        given = {**agents.KEPT_IN_MEMORY, **{name.replace("__", "."): value for name, value in flags.items()}}
        with open_runtime(cwd=str(self.folder), environ=os.environ, flags=given) as runtime:
            yield runtime

    def play(
        self,
        replies: Sequence[Any],
        *requests: Any,
        says: Any = "no",
        flags: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Played:
        played = Played(ScriptedModel([*replies, {"text": "done"}]))
        given = {"approver": Person(says), "model": played.model, "on_event": (played.envelopes.append,), **options}

        async def work(runtime: Runtime) -> None:
            async with runtime.open_session(**given) as session:
                for request in requests or ("go",):
                    try:
                        played.results.append(await session.run(request))
                    except ProwessError as error:
                        played.error = error

        def run() -> None:
            with self.open(**{"workspace__executor": self._tier.executor, **(flags or {})}) as runtime:
                asyncio.run(work(runtime))

        self._tier.run(run)
        return played
