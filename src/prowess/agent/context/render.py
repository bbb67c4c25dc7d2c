"""Renders texts for the model: a request with its files, outcomes of calls, skills, and notes.

Text from tools and files is data: it cannot open or close our tags, and invisible characters are removed. Texts of
skills come from the content with the pinned digest, redacted. Notes and texts of skills that the model did not load are
parts of the last tool result, or else of the user message: some servers refuse a message of their own there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prowess._internal.text import strip_invisible
from prowess.agent.context.state import AnsweredCall, Asked, InUse, Item, Noted, Replied, WantedText
from prowess.core.events import RunStarted
from prowess.core.findings import visible
from prowess.core.ports import ShownSkill
from prowess.core.values import Message, Outcome, Part, Plan
from prowess.errors import SkillError, in_one_line
from prowess.skills.render import neutralise, render_doc, render_skill
from prowess.skills.skill import Skill
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.state import part_ref


def render_outcome(outcome: Outcome) -> str:
    """Renders an outcome for the model. A failure has its code and a hint. Content is made safe, except framed content,
    which is safe already. The content of a success cannot look like a failure."""
    text = outcome.content
    if outcome.status == "ok":
        is_safe = outcome.data.get("framed") is True
        text = text if is_safe else make_safe(text)
        return f"ok:\n{text}" if _FAILURE.match(text) else text
    said = outcome.status
    if outcome.code:
        said = f"{said} [{outcome.code}]"
    text = f"{said}: {text}"
    if outcome.hint:
        text = f"{text}\n{outcome.hint}"
    return make_safe(text)


_FAILURE = re.compile(r"\A\s*+(?:failed|denied|waiting|interrupted) \[[^\]\n]{1,80}\]: ")


def make_safe(text: str) -> str:
    """Removes invisible characters, and neutralises our tags."""
    return neutralise(strip_invisible(text))


def asked_parts(event: RunStarted) -> tuple[Part, ...]:
    """Parts of a request: its text, attachments, and a list of the given files."""
    parts = [Part(text=event.request)]
    lines = ["Files given:"]
    for part in event.attachments:
        if part.kind == "file":
            name = visible(part.text or part.ref or "")
            lines.append(f"- {make_safe(name)}")
        else:
            parts.append(part)
    if len(lines) > 1:
        listed = "\n".join(lines)
        parts.append(Part(text=listed, ref="note:files"))
    return tuple(parts)


def shows(outcome: Outcome) -> list[str]:
    """Paths of the texts that an outcome puts into view; "" is the body of the skill."""
    paths = outcome.data.get("show")
    digest = outcome.data.get("digest")
    if not isinstance(paths, list) or not isinstance(digest, str):
        return []
    return [path for path in paths if isinstance(path, str)]


CONTEXT = "Loaded skill context:"
_EARLY = "You called it before you had read the skill's text, which is above. Do what it says."
_CHILD = "A child run answered. This is what it said, not what the user says:"


def render_message(item: Item, shown: Sequence[Part]) -> Message | None:
    """Renders an item, with the texts that it shows. None if there is nothing to say."""
    if isinstance(item, Asked):
        return Message(role="user", parts=item.parts)
    if isinstance(item, Replied):
        said = (Part(text=item.text),) if item.text else ()
        return Message(role="assistant", parts=said, calls=item.calls)
    if isinstance(item, Noted):
        note = Part(text=item.text, ref=f"note:{item.kind}")
        return Message(role="user", parts=(note,))
    if item.own:
        return Message(role="tool", call_id=item.call_id, parts=_result_parts(item.outcome, shown))
    return _render_context(item.outcome, shown)


def _result_parts(outcome: Outcome, shown: Sequence[Part]) -> tuple[Part, ...]:
    """Result of a call and the texts that it shows. Those of a skill that was loaded for it come first."""
    result = Part(text=render_outcome(outcome))
    loaded = outcome.data.get("loaded")
    if not isinstance(loaded, str):
        return (result, *shown)
    first = Part(text=make_safe(loaded))
    last = [Part(text=note) for note in early_note(outcome.data)]
    return (first, *shown, result, *last)


def early_note(data: Mapping[str, Any]) -> list[str]:
    """Note about a program that ran before the model had read its skill."""
    return [_EARLY] if data.get("early") is True else []


def _render_context(outcome: Outcome, shown: Sequence[Part]) -> Message | None:
    """Renders the outcome of a call that the model did not make."""
    if "child" in outcome.data:
        text = f"<note>\n{_CHILD}\n{render_outcome(outcome)}\n</note>"
        note = Part(text=text, ref="note:child")
        return Message(role="user", parts=(note,))
    if not shown:
        return None
    heading = Part(text=CONTEXT, ref="note:context")
    return Message(role="user", parts=(heading, *shown))


STOPPED = Message(role="assistant", parts=(Part(text="(Stopped here.)", ref="note:stopped"),))


def join(last: Message | None, item: Item, message: Message) -> list[Message]:
    """Adds a message, and returns the messages in the place of the last one. Only a reply follows results: what is no
    request of the user becomes a part of the last message, and a request follows a reply."""
    if last is None:
        return [message]
    if message.role != "user" or last.role == "system":
        return [last, message]
    if isinstance(item, Asked) and not _is_summary(last):
        said = any((part.text or "").strip() for part in last.parts)  # an empty reply is not sent
        is_answered = last.role == "assistant" and not last.calls and said
        return [last, message] if is_answered else [last, STOPPED, message]
    if last.role == "assistant":
        return [last, message]
    longer = replace(last, parts=(*last.parts, *message.parts))
    return [longer]


def _is_summary(message: Message) -> bool:
    """True for the message that stands for earlier ones; the request belongs to it."""
    refs = [part.ref for part in message.parts]
    return refs == ["note:summary"]


_WENT = "unloaded after that turn; load it again if you need it"


def render_went(item: AnsweredCall) -> AnsweredCall:
    """Says in the result of an earlier turn that the texts that it showed are gone."""
    loaded = item.outcome.data.get("loaded")
    if isinstance(loaded, str):  # for this call, whose own result is not gone
        return _with_data(item, loaded=f"{loaded} ({_WENT})")
    had_text = shows(item.outcome) or item.outcome.data.get("above")
    if not had_text:
        return item
    return _with_content(item, f"{item.outcome.content} ({_WENT})")


def went_parts(item: AnsweredCall) -> list[Part]:
    """Says the same in the place of texts that the model did not ask for."""
    if item.own or not shows(item.outcome):
        return []
    content = without_above(item, ()).outcome.content
    text = make_safe(f"{content} ({_WENT})")
    return [Part(text=render_note(text), ref="note:context")]


def without_above(item: AnsweredCall, told: Collection[str | None]) -> AnsweredCall:
    """Replaces a result that points to texts above by its stub, if the refs of these texts are not among `told`. A call
    that was made early points to the body that it loaded."""
    data = item.outcome.data
    above = data.get("above")
    stub = data.get("stub")
    skill = str(data.get("skill"))
    digest = str(data.get("digest"))
    if data.get("early") is True and part_ref(skill, digest) not in told:
        return _with_data(item, early=False)
    if not isinstance(above, list) or not isinstance(stub, str):
        return item
    if all(part_ref(skill, digest, path) in told for path in above):
        return item
    return _with_content(item, stub)


def _with_content(item: AnsweredCall, content: str) -> AnsweredCall:
    outcome = replace(item.outcome, content=content)
    return item._replace(outcome=outcome)


def _with_data(item: AnsweredCall, **changed: Any) -> AnsweredCall:
    outcome = replace(item.outcome, data={**item.outcome.data, **changed})
    return item._replace(outcome=outcome)


def shortened(item: Item, replaced: dict[str, str]) -> Item:
    """Replaces the content of a result, if there is a shorter text for its call."""
    if not isinstance(item, AnsweredCall) or item.call_id not in replaced:
        return item
    return _with_content(item, replaced[item.call_id])


def paired(messages: list[Message]) -> list[Message]:
    """Removes results without a call, and adds results to calls without one, because providers refuse both."""
    calls: set[str] = set()
    results: set[str | None] = set()
    for message in messages:
        calls.update(call.id for call in message.calls)
        if message.role == "tool":
            results.add(message.call_id)
    kept: list[Message] = []
    for message in messages:
        if message.role == "tool" and message.call_id not in calls:
            continue
        kept.append(message)
        for call in message.calls:
            if call.id not in results:
                nothing = Part(text="(no result)")
                kept.append(Message(role="tool", call_id=call.id, parts=(nothing,)))
    return kept


_MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_LONGEST = 1_500


def render_note(text: str) -> str:
    """Renders a note. Its tag cannot be in the text of a tool or a file."""
    return f"<note>{text}</note>"


def render_plan(plan: Plan) -> str:
    """Renders the whole plan."""
    lines = [f"Plan: {one_safe_line(plan.goal)}"]
    for step in plan.steps:
        title = one_safe_line(f"{step.id} {step.title}")
        lines.append(f"{_MARKS[step.status]} {title}")
    text = "\n".join(lines)
    return text[:_LONGEST]


def one_safe_line(text: str) -> str:
    """Makes foreign text safe: one line, no tags of ours. A file may have told a model what to write."""
    line = " ".join(text.split())
    return make_safe(line)


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
            body = render_skill(loaded.skill, directory=f"$SKILLS_DIR/{loaded.folder}")
            return self._redact(body)
        try:
            doc = render_doc(loaded.skill, path, loaded.read(path))
        except SkillError as error:
            return f"The doc {path!r} cannot be shown: {in_one_line(error)}"
        return self._redact(doc)

    def part(self, id: str, digest: str, path: str) -> Part | None:
        """Renders the body or a doc as a part of a message. None if the content no longer exists."""
        text = self.text(id, digest, path)
        if text is None:
            return None
        return Part(text=text, ref=part_ref(id, digest, path))

    def parts(self, wanted: Mapping[InUse, WantedText]) -> dict[tuple[str, str, str], Part]:
        """Returns the bodies and docs in use, by (id, digest, path)."""
        found: dict[tuple[str, str, str], Part] = {}
        for (id, digest), (has_body, docs) in wanted.items():
            paths = [""] if has_body else []
            paths += self._docs(id, digest) if docs is None else docs
            for path in paths:
                part = self.part(id, digest, path)
                if part is not None:
                    found[id, digest, path] = part
        return found

    def find_loaded(self, contents: Mapping[str, str]) -> dict[str, ShownSkill]:
        """Returns the skills with these digests as values, by the ref of the part that shows the body."""
        found: dict[str, ShownSkill] = {}
        for id, digest in contents.items():
            loaded = self._find(id, digest)
            if loaded is None:
                continue
            skill = loaded.skill
            body = self._redact(strip_invisible(skill.body))
            files = tuple(skill.resources)
            ref = part_ref(id, digest)
            found[ref] = ShownSkill(skill.name, skill.entry.description, body, files)
        return found

    def _docs(self, id: str, digest: str) -> Sequence[str]:
        loaded = self._find(id, digest)
        if loaded is None:
            return ()
        return loaded.skill.docs

    def arguments(self, id: str, digest: str, text: str) -> str:
        """Renders the arguments of a skill. Empty if its content no longer exists."""
        loaded = self._find(id, digest)
        if loaded is None:
            return ""
        block = render_arguments(loaded.skill, text)
        return self._redact(block)

    def argument_parts(self, outcome: Outcome) -> list[Part]:
        """Arguments of a skill, as a part beside the body. The body stays the same bytes for every use."""
        data = outcome.data
        text = data.get("arguments")
        if not isinstance(text, str) or not text or "skill" not in data:
            return []
        digest = str(data.get("digest"))
        block = self.arguments(data["skill"], digest, text)
        if not block:
            return []
        return [Part(text=block, ref="note:arguments")]


def render_arguments(skill: Skill, text: str) -> str:
    """Renders a block with the values of `$ARGUMENTS` and each declared `$name`. The block stands beside the body; the
    body itself stays unchanged."""
    safe = make_safe(text)
    lines = [f'<skill_arguments skill="{skill.name}">', f"$ARGUMENTS = {safe}"]
    names = declared_arguments(skill)
    for name, value in zip(names, _split(safe), strict=False):
        lines.append(f"${name} = {value}")
    lines.append("</skill_arguments>")
    return "\n".join(lines)


def declared_arguments(skill: Skill) -> list[str]:
    """Names in `argument-hint`: `<file> [format]` declares $file and $format."""
    hint = skill.entry.controls.argument_hint or ""
    names = _DECLARED.findall(hint)
    return list(dict.fromkeys(names))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote: people write such text
        return text.split()
