"""Reads everything the planner knows from the messages: it remembers nothing between two replies.

A turn begins with the last request of a person. Everything before it is history, of which only the text of skills is
used.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prowess.core.values import Message, Part, ToolCall
from prowess.models.offline.ranking import ListedSkill


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Skill whose instructions are in the messages."""

    name: str
    text: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWithOutcome:
    """Call of this turn and the text of its result; None while there is no result."""

    call: ToolCall
    text: str | None
    bodies: tuple[Body, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineTranscript:
    request: str
    given: tuple[str, ...]  # files that were staged, in this turn or before
    listed: tuple[ListedSkill, ...]
    active: tuple[Body, ...]  # activated by the person or the caller, for this request
    answered: tuple[CallWithOutcome, ...]  # this turn's calls, in order
    bodies: tuple[Body, ...]  # all in the messages, the newest last

    def last(self, tool: str) -> CallWithOutcome | None:
        return next(
            (each for each in reversed(self.answered) if each.call.tool == tool and each.text is not None), None
        )

    def body(self, name: str) -> Body | None:
        bare = re.split(r"[:/]", name)[-1]
        return next((body for body in reversed(self.bodies) if body.name in (name, bare)), None)


def read_transcript(messages: Sequence[Message]) -> OfflineTranscript:
    at = max((n for n, message in enumerate(messages) if _request(message) is not None), default=-1)
    before, now = messages[: at + 1], messages[at + 1 :]
    spoke = [n for n, message in enumerate(before) if message.role == "assistant"]
    fresh = messages[spoke[-1] + 1 :] if spoke else messages
    answers = {message.call_id: message for message in now if message.role == "tool"}
    calls = [call for message in now if message.role == "assistant" for call in message.calls]
    return OfflineTranscript(
        request=(_request(messages[at]) or "") if at >= 0 else "",
        given=tuple(dict.fromkeys(path for message in messages for path in _given(message))),
        listed=tuple(_listed(messages)),
        active=tuple(body for message in fresh if message.role in ("system", "user") for body in _bodies(message)),
        answered=tuple(_answered(call, answers.get(call.id)) for call in calls),
        bodies=tuple(body for message in messages for body in _bodies(message)),
    )


def parse_hits(hits: object) -> list[ListedSkill]:
    """Returns the skills that skill_search found."""
    if isinstance(hits, dict):
        hits = hits.get("results") or hits.get("skills")
    rows = [hit for hit in hits if isinstance(hit, dict)] if isinstance(hits, list) else []
    return [ListedSkill(str(hit["name"]), str(hit.get("description") or "")) for hit in rows if hit.get("name")]


_NOTE = re.compile(r"(?:note|skill):")
_CONTEXT = "Loaded skill context:"
_SKILL = re.compile(
    r"<skill>\s*+<name>(?P<name>[^<]*+)</name>(?:\s*+<description>(?P<description>[^<]*+)</description>)?"
)
_CONTENT = re.compile(r'^<skill_content name="(?P<name>[^"\n]*+)"[^>\n]*+>\n', re.MULTILINE)
_NEUTRALISED = re.compile(r"&lt;(?=\s*+/?+\s*+(?:skill_|available_skills|note)\w*+\b)")
_DIRECTORY = re.compile(r"^Skill directory: [^\n]*+\n(?:Relative paths [^\n]*+\n)?+\Z", re.MULTILINE)


def _texts(message: Message) -> Iterator[Part]:
    return (part for part in message.parts if part.kind == "text" and part.text)


def _request(message: Message) -> str | None:
    """Returns the words of the person, without what the runtime added."""
    if message.role != "user":
        return None
    own = [part.text or "" for part in _texts(message) if not _NOTE.match(part.ref or "")]
    own = [text for text in own if not text.lstrip().startswith((_CONTEXT, "<skill_content "))]
    return own[0] if own else None


def _given(message: Message) -> Iterator[str]:
    for part in _texts(message):
        if part.ref == "note:files":
            for line in (part.text or "").splitlines():
                title, colon, rest = line.partition(":")
                is_title = colon and "file" in title.lower()
                listed = rest.lstrip() if is_title else re.sub(r"^\s*+[-*]\s++", "", line)
                yield from (path.strip(" `") for path in re.split(r",\s+(?=\S*inputs/)", listed) if "inputs/" in path)


def _listed(messages: Sequence[Message]) -> Iterator[ListedSkill]:
    text = "\n".join(part.text or "" for message in messages if message.role == "system" for part in _texts(message))
    start, end = text.rfind("<available_skills>"), text.rfind("</available_skills>")
    for found in _SKILL.finditer(text, max(start, 0), max(end, 0)):
        yield ListedSkill(html.unescape(found["name"].strip()), html.unescape((found["description"] or "").strip()))


def _bodies(message: Message) -> Iterator[Body]:
    if message.role == "assistant":
        return
    for part in _texts(message):
        for name, content in _contents(part.text or ""):
            text, files = _without_tail(content)
            text = _NEUTRALISED.sub("<", text)  # our tags are read by now, so the escaped ones belong to the skill
            paths = tuple(html.unescape(path) for path in re.findall(r"<file>([^<\n]*+)</file>", files))
            yield Body(name=html.unescape(name), text=text, files=paths)


def _contents(text: str) -> Iterator[tuple[str, str]]:
    """Yields (name, content) of each skill. An element that is never closed does not count."""
    at = 0
    while (opened := _CONTENT.search(text, at)) and (at := text.find("\n</skill_content>", opened.end() - 1) + 1):
        yield opened["name"], text[opened.end() : at]


def _without_tail(text: str) -> tuple[str, str]:
    """Returns (text of the skill, list of its files), without the text that the runtime added below."""
    last = f"\n{text}".rfind("\nFollow these instructions now ")
    if last < 0 or "\n" in text[last:].rstrip():
        return text, ""
    own, files = text[:last], ""
    if own.endswith("\n</skill_resources>\n"):
        first = f"\n{own}".rfind("\n<skill_resources>\n")
        own, files = (own[:first], own[first:]) if first >= 0 else (own, "")
    directory = _DIRECTORY.search(own)
    return own[: directory.start()] if directory else own, files


def _answered(call: ToolCall, message: Message | None) -> CallWithOutcome:
    if message is None:
        return CallWithOutcome(call=call, text=None)
    text = "\n".join(part.text or "" for part in _texts(message) if not (part.ref or "").startswith("note:"))
    return CallWithOutcome(call=call, text=text, bodies=tuple(_bodies(message)))
