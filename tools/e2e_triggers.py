"""Measures how a model chooses and uses skills: the requests and tasks of benchmarks/triggers, per tool profile.

A request is scored by the model's first reply: the skills that it loads, by whatever call. The agent is the one that a
user gets, with its own limits, so that the model sees the same prompt; only the second reply is not asked for.
Of the half `held_out` only totals are printed, so that nobody can tune on it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from prowess import Agent
from prowess._internal.label_scores import LabelChoice, LabelScore, score_labels
from prowess._internal.statistics import Rate, wilson
from prowess.core.events import CallActed, Envelope, EpochStarted, ModelReplied, SkillLoaded
from prowess.core.ports import Model
from prowess.core.values import Usage, add_usage
from prowess.errors import ProwessError

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks" / "triggers"
HALVES = ("tune", "held_out")
TASK_TURNS = 8
READERS = ("skill_read", "skill_select_docs", "read_file")


class OneReply:
    """Model that is asked once. After that it ends the run."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self._model = model
        self._asked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)  # its window, and whatever else decides what it is shown

    async def reply(self, *request: Any, **options: Any) -> ModelReplied:
        if self._asked:
            return ModelReplied(text="That was the first reply.")
        reply = await self._model.reply(*request, **options)
        self._asked = True
        return reply


@dataclass
class Watched:
    """Facts of one run, from its events."""

    tools: frozenset[str] = frozenset()
    replies: list[ModelReplied] = field(default_factory=list[ModelReplied])
    loaded: dict[str, None] = field(default_factory=dict[str, None])
    acted: list[CallActed] = field(default_factory=list[CallActed])
    seconds: float = 0.0
    stop: str = ""
    text: str = ""

    async def __call__(self, envelope: Envelope) -> None:
        match envelope.event:
            case EpochStarted(tools=tools) if tools is not None:
                self.tools = frozenset(tool.name for tool in tools)
            case ModelReplied() as reply:
                self.replies.append(reply)
            case SkillLoaded(name=name):
                self.loaded[name] = None
            case CallActed() as acted:
                self.acted.append(acted)
            case _:
                pass

    @property
    def usage(self) -> Usage:
        return reduce(add_usage, (reply.usage for reply in self.replies), Usage())

    @property
    def chosen(self) -> list[str]:
        """Skills that were loaded, without those whose load failed: their body never came."""
        failed = {acted.call_id for acted in self.acted if acted.outcome.status != "ok"}
        calls = [call for call in self.replies[0].calls if call.id in failed and call.tool == "skill_load"]
        without = {call.args.get("skill") for call in calls}
        return [name for name in self.loaded if name not in without]

    def invented(self, skills: Sequence[str]) -> list[str]:
        """Names of skills and tools in the first reply that do not exist."""
        found: list[str] = []
        for call in self.replies[0].calls:
            skill = call.args.get("skill")
            if isinstance(skill, str) and skill.rpartition(":")[2] not in skills:
                found.append(skill)
            elif call.tool not in self.tools and not self.loaded:
                found.append(call.tool)
        return found


@dataclass
class Tally:
    """Scores of one profile over one half."""

    title: str
    choices: list[LabelChoice] = field(default_factory=list[LabelChoice])
    watched: list[Watched] = field(default_factory=list[Watched])
    invented: int = 0
    errors: int = 0

    def add(self, wanted: str | None, watched: Watched, skills: Sequence[str]) -> str:
        """Counts a run, and says in a few words what the model did."""
        chosen, invented = watched.chosen, watched.invented(skills)
        self.choices.append(LabelChoice([wanted] if wanted else [], chosen))
        self.watched.append(watched)
        self.invented += bool(invented)
        tools = ", ".join(f"{call.tool} {call.args.get('skill', '')}" for call in watched.replies[0].calls)
        return ", ".join(chosen) or ", ".join(f"invented {name}" for name in invented) or tools or "no call"

    def rows(self) -> dict[str, str]:
        if not self.choices:
            return {"requests": "0", "errors": str(self.errors)}
        micro, count = score_labels(self.choices).micro, len(self.choices)
        idle = [choice for choice in self.choices if not choice.expected]
        used = reduce(add_usage, (watched.usage for watched in self.watched), Usage())
        silent = sum(not watched.replies[0].calls for watched in self.watched)
        no_skill = sum(not watched.chosen for watched in self.watched)
        return {
            "requests": str(count),
            "precision": render_rate(micro.precision),
            "recall": render_rate(micro.recall),
            "F1": render_f1(micro),
            "wrong loads": str(micro.precision.total - micro.precision.passed),
            "invented names": str(self.invented),
            "nothing loaded": f"{no_skill}, {silent} without a call",
            "none wanted, none loaded": f"{sum(not choice.chosen for choice in idle)} of {len(idle)}",
            "tokens in per request": f"{used.input / count:,.0f}",
            "cached": f"{used.cached / max(1, used.input):.0%}",
            "seconds per request": f"{sum(watched.seconds for watched in self.watched) / count:.1f}",
            "errors": str(self.errors),
        }


def render_rate(rate: Rate) -> str:
    if rate.rate is None or rate.low is None or rate.high is None:
        return "- (n=0)"
    return f"{rate.rate:.2f} ({rate.low:.2f}-{rate.high:.2f}, n={rate.total})"


def render_f1(score: LabelScore) -> str:
    """F1 is no share, but right / (right + wrong + missed) is one, and F1 grows with it: so do the bounds of Wilson."""
    right = score.precision.passed
    missed = score.recall.total - right
    share = wilson(right, score.precision.total + missed)
    if share.rate is None or share.low is None or share.high is None:
        return "- (n=0)"
    bounds = [2 * each / (1 + each) for each in (share.rate, share.low, share.high)]
    return f"{bounds[0]:.2f} ({bounds[1]:.2f}-{bounds[2]:.2f}, n={share.total})"


async def measure_triggers(
    model: Model, profiles: Iterable[str], halves: Sequence[str], settings: Mapping[str, object]
) -> int:
    """Prints the table of all profiles and halves. Returns the number of requests that failed with an error."""
    requests = yaml.safe_load((FOLDER / "requests.yaml").read_text(encoding="utf-8"))
    skills = sorted(path.name for path in (FOLDER / "skills").iterdir())
    tallies: list[Tally] = []
    for profile in profiles:
        for half in halves:
            tally = Tally(f"{profile}, {half}")
            tallies.append(tally)
            print(f"\n{tally.title}:", flush=True)
            for asked in [each for each in requests if each["half"] == half]:
                try:
                    watched = await run_agent(OneReply(model), "skills", asked["request"], profile, settings)
                except ProwessError as error:
                    tally.errors += 1
                    print(f"  ERROR {error}", flush=True)
                    continue
                said = tally.add(asked["skill"], watched, skills)
                if half == "tune":
                    print(f"  {asked['id']}  {asked['skill'] or '-':<20} {said}", flush=True)
    print(f"\n{len(skills)} skills, first reply, temperature 0{render_settings(settings)}\n")
    print_table({tally.title: tally.rows() for tally in tallies})
    return sum(tally.errors for tally in tallies)


async def measure_tasks(model: Model, profiles: Iterable[str], settings: Mapping[str, object]) -> int:
    """Prints how far each task came, then the table. Returns the number of tasks that failed with an error."""
    tasks = yaml.safe_load((FOLDER / "tasks.yaml").read_text(encoding="utf-8"))
    columns: dict[str, dict[str, str]] = {}
    errors = 0
    for profile in profiles:
        print(f"\n{profile}, tasks:", flush=True)
        done, used = 0, Usage()
        for task in tasks:
            try:
                watched = await run_agent(model, "tasks", task["request"], profile, settings, turns=TASK_TURNS)
            except ProwessError as error:
                errors += 1
                print(f"  ERROR {error}", flush=True)
                continue
            steps = find_steps(watched, task["skill"], task["answer"])
            done += steps["ran"] and steps["answered"]
            used = add_usage(used, watched.usage)
            print(f"  {task['skill']:<20} {render_steps(steps, watched)}", flush=True)
        columns[profile] = {
            "tasks done": render_rate(wilson(done, len(tasks))),
            "requests": str(used.requests),
            "tokens in": f"{used.input:,}",
            "cached": f"{used.cached / max(1, used.input):.0%}",
        }
    print(f"\nload, read a doc, run a script, answer{render_settings(settings)}\n")
    print_table(columns)
    return errors


def find_steps(watched: Watched, skill: str, answer: str) -> dict[str, bool]:
    fine = {acted.call_id: acted.outcome for acted in watched.acted if acted.outcome.status == "ok"}
    calls = [call for reply in watched.replies for call in reply.calls]
    return {
        "loaded": skill in watched.loaded,
        "read": any(call.id in fine and call.tool in READERS for call in calls),
        "ran": any(answer in outcome.content for outcome in fine.values()),
        "answered": answer in watched.text,
    }


def render_steps(steps: Mapping[str, bool], watched: Watched) -> str:
    """Renders how far the model came, then its calls and how they ended, a line for each."""
    told = ", ".join(step if held else f"not {step}" for step, held in steps.items())
    lines = [f"{told} ({len(watched.replies)} replies, {watched.seconds:.0f} s, {watched.stop})"]
    outcomes = {acted.call_id: acted.outcome for acted in watched.acted}
    for call in [call for reply in watched.replies for call in reply.calls]:
        outcome = outcomes.get(call.id)
        ended = (outcome.code or outcome.status) if outcome else "not made"
        lines.append(f"    {call.tool} {json.dumps(call.args, ensure_ascii=False)[:120]}: {ended}")
    return "\n".join(lines)


async def run_agent(
    model: Model, skills: str, request: str, profile: str, settings: Mapping[str, object], turns: int | None = None
) -> Watched:
    """Runs one request in a session of its own, with the defaults of the library but for the profile."""
    watched, begun = Watched(), time.monotonic()
    agent = Agent(
        model,
        skills=[FOLDER / skills],
        store="memory:",
        artifacts="memory:",
        approve=["skill_run"],
        limits={"turns": turns} if turns else None,
        settings={"tools.profile": profile, **settings},
    )
    result = await agent.run(request, on_event=watched)
    watched.seconds, watched.stop, watched.text = time.monotonic() - begun, result.stop_reason, result.text
    return watched


def render_settings(settings: Mapping[str, object]) -> str:
    return "".join(f", {name}={value!r}" for name, value in settings.items())


def print_table(columns: Mapping[str, Mapping[str, str]]) -> None:
    """Prints one row per measure and one column per title."""
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    widths = {title: max(len(title), *map(len, column.values())) for title, column in columns.items()}
    left = max(map(len, names))
    table = [["", *columns], *([name, *(column.get(name, "") for column in columns.values())] for name in names)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, [left, *widths.values()], strict=True)]
        print("  ".join(cells).rstrip())
