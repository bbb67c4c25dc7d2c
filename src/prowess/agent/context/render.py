"""Renders texts for the model: a request with its files, outcomes of calls, skills, and the note with plan and budget.

Text from tools and files is data: it cannot open or close our tags, and invisible characters are removed. Texts of
skills come from the content with the pinned digest, redacted. The note stands at the end of every request.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from prowess._internal.text import strip_invisible
from prowess.agent.context.state import AnsweredCall, InUse, Item, WantedText
from prowess.core.events import RunStarted
from prowess.core.findings import visible
from prowess.core.ports import ShownSkill
from prowess.core.values import Message, Outcome, Part, Plan
from prowess.errors import SkillError
from prowess.skills.render import neutralise, render_doc, render_skill
from prowess.skills.skill import Skill
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.state import part_ref


def render_outcome(outcome: Outcome) -> str:
    """Renders an outcome for the model. A failure has its code and a hint. Content is made safe, except framed content,
    which is safe already."""
    if outcome.status == "ok":
        return outcome.content if outcome.data.get("framed") is True else make_safe(outcome.content)
    shown_code = f" [{outcome.code}]" if outcome.code else ""
    hint = f"\n{outcome.hint}" if outcome.hint else ""
    return make_safe(f"{outcome.status}{shown_code}: {outcome.content}{hint}")


def make_safe(text: str) -> str:
    return neutralise(strip_invisible(text))


def asked_parts(event: RunStarted) -> tuple[Part, ...]:
    files = [part for part in event.attachments if part.kind == "file"]
    others = [part for part in event.attachments if part.kind != "file"]
    listed = "Files given:\n" + "\n".join(f"- {make_safe(visible(part.text or part.ref or ''))}" for part in files)
    notes = [Part(text=listed, ref="note:files")] if files else []
    return (Part(text=event.request), *others, *notes)


def shows(outcome: Outcome) -> list[str]:
    show = outcome.data.get("show")
    if not isinstance(show, list) or not isinstance(outcome.data.get("digest"), str):
        return []
    return [path for path in show if isinstance(path, str)]


def without_above(item: AnsweredCall, told: Collection[tuple[str, str, str]]) -> AnsweredCall:
    """Replaces a result that points to texts above by its stub, if these texts are no longer in the request."""
    data = item.outcome.data
    above, stub = data.get("above"), data.get("stub")
    if not isinstance(above, list) or not isinstance(stub, str):
        return item
    if all((data.get("skill"), data.get("digest"), path) in told for path in above):
        return item
    return replace(item, outcome=replace(item.outcome, content=stub))


def shortened(item: Item, replaced: dict[str, str]) -> Item:
    if not isinstance(item, AnsweredCall) or item.call_id not in replaced:
        return item
    return replace(item, outcome=replace(item.outcome, content=replaced[item.call_id]))


def paired(messages: list[Message]) -> list[Message]:
    """Removes results without a call, and adds results to calls without one, because providers refuse both."""
    calls = {call.id for message in messages for call in message.calls}
    results = {message.call_id for message in messages if message.role == "tool"}
    kept: list[Message] = []
    for message in messages:
        if message.role == "tool" and message.call_id not in calls:
            continue
        lost = [call for call in message.calls if call.id not in results]
        kept.append(message)
        kept += [Message(role="tool", call_id=call.id, parts=(Part(text="(no result)"),)) for call in lost]
    return kept


_MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_LONGEST = 1_500


def render_note(plan: Plan | None, shown: Plan | None, left: Mapping[str, float]) -> str:
    """Renders plan and budget. `shown` is the plan that the model has seen; if it is the same, one line is enough."""
    return f"<note>\n{_plan(plan, shown)}\n{render_left(left)}\n</note>"


def _plan(plan: Plan | None, shown: Plan | None) -> str:
    if plan is None:
        return "Plan: none yet."
    done = sum(step.status == "completed" for step in plan.steps)
    if plan == shown:
        return f"Plan: as before, {done} of {len(plan.steps)} done."
    steps = (f"{_MARKS[step.status]} {_line(f'{step.id} {step.title}')}" for step in plan.steps)
    return "\n".join((f"Plan: {_line(plan.goal)}", *steps))[:_LONGEST]


def _line(text: str) -> str:
    """Makes text of a model safe: one line, no tags of ours. A file may have told the model what to write."""
    return make_safe(" ".join(text.split()))


def render_left(left: Mapping[str, float]) -> str:
    parts = [f"{_number(value)} {name}" for name, value in left.items()]
    last = " This is the last turn: answer now, with what you have." if left.get("turns") == 0 else ""
    return f"Left: {', '.join(parts)}.{last}" if parts else "Left: no bound."


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) and value < 10 else f"{value:.0f}"


_DECLARED = re.compile(r"[<\[$]\s*([A-Za-z_][A-Za-z0-9_-]*)")


class SkillTextRenderer:
    def __init__(self, find: Callable[[str, str], LoadedSkill | None], redact: Callable[[str], str] = str) -> None:
        """Takes `find`: id and digest -> the skill with exactly that content, or None if it no longer exists."""
        self._find = find
        self._redact = redact

    def text(self, id: str, digest: str, path: str) -> str | None:
        """Renders the body (path "") or a doc, with its wrapper."""
        loaded = self._find(id, digest)
        if loaded is None:
            return None
        if not path:
            return self._redact(render_skill(loaded.skill, directory=f"$SKILLS_DIR/{loaded.folder}"))
        try:
            return self._redact(render_doc(loaded.skill, path, loaded.read(path)))
        except SkillError as error:
            return f"The doc {path!r} cannot be shown: {error}"

    def part(self, id: str, digest: str, path: str) -> Part | None:
        text = self.text(id, digest, path)
        return None if text is None else Part(text=text, ref=part_ref(id, digest, path))

    def parts(self, wanted: Mapping[InUse, WantedText]) -> dict[tuple[str, str, str], Part]:
        """Returns the bodies and docs in use, by (id, digest, path)."""
        found: dict[tuple[str, str, str], Part] = {}
        for (id, digest), (body, docs) in wanted.items():
            for path in [*([""] if body else []), *(self._docs(id, digest) if docs is None else docs)]:
                part = self.part(id, digest, path)
                if part is not None:
                    found[id, digest, path] = part
        return found

    def find_loaded(self, contents: Mapping[str, str]) -> dict[str, ShownSkill]:
        """Returns the skills with these digests as values, by the ref of the part that shows the body."""
        found: dict[str, ShownSkill] = {}
        for id, digest in contents.items():
            loaded = self._find(id, digest)
            if loaded is not None:
                skill = loaded.skill
                body = self._redact(strip_invisible(skill.body))
                files = tuple(skill.resources)
                found[part_ref(id, digest)] = ShownSkill(skill.name, skill.entry.description, body, files)
        return found

    def _docs(self, id: str, digest: str) -> Sequence[str]:
        loaded = self._find(id, digest)
        return () if loaded is None else loaded.skill.docs

    def arguments(self, id: str, digest: str, text: str) -> str:
        loaded = self._find(id, digest)
        return "" if loaded is None else self._redact(render_arguments(loaded.skill, text))


def render_arguments(skill: Skill, text: str) -> str:
    """Renders a block with the values of `$ARGUMENTS` and each declared `$name`. The block stands beside the body; the
    body itself stays unchanged."""
    safe = neutralise(strip_invisible(text))
    lines = [f'<skill_arguments skill="{skill.name}">', f"$ARGUMENTS = {safe}"]
    for name, value in zip(declared_arguments(skill), _split(safe), strict=False):
        lines.append(f"${name} = {value}")
    return "\n".join([*lines, "</skill_arguments>"])


def declared_arguments(skill: Skill) -> list[str]:
    """Names in `argument-hint`: `<file> [format]` declares $file and $format."""
    hint = skill.entry.controls.argument_hint or ""
    return list(dict.fromkeys(_DECLARED.findall(hint)))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote: people write such text
        return text.split()
