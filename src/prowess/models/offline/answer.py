"""Renders the planner's last message. Every fact in it comes from a result, a skill or the catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.ports import ShownSkill
from prowess.models.offline.fill import Filled
from prowess.models.offline.ranking import Ranked
from prowess.models.offline.template import Placeholder

MOST_CHARACTERS = 4000
_SIGNED = "(Offline planner, no language model.)"
_NEEDS_A_MODEL = "A language model (`--model openai:NAME`, `--model anthropic:NAME`) can"
_FAILURE = re.compile(r"\s*+(?:failed|denied|waiting|interrupted)(?: \[[\w:-]+\])?: ")


def parse_result(text: str) -> dict[str, Any] | None:
    """Returns the JSON document of a skill_run, without the runtime's text around it; None for other results."""
    failure = _FAILURE.match(text)
    try:
        document, _ = json.JSONDecoder().raw_decode(text[failure.end() :] if failure else text.lstrip())
    except ValueError:
        return None
    return document if isinstance(document, dict) and ("exit_code" in document or "stdout" in document) else None


def is_failure(text: str) -> bool:
    """True when the runtime reports that a call failed."""
    return _FAILURE.match(text) is not None


def is_success(result: Mapping[str, Any]) -> bool:
    return result.get("exit_code") == 0 and not result.get("timed_out")


def render_result(result: Mapping[str, Any], *, skill: str, command: str, not_given: Sequence[str]) -> str:
    signed = f"(Offline planner, no language model: a command of the skill '{skill}'.)"
    if is_success(result):
        lines, signed = _render_printed(result), f"{signed} It ran: {command}"
    else:
        lines = [f"The command of the skill '{skill}' failed: it {_how_it_ended(result)}.", "", f"    {command}"]
        lines += [_tail(_text(result, "stderr") or _text(result, "stdout"), 2000)]
        if not_given:
            files = ", ".join(not_given)
            lines.append(f"Not given with the request: {files}. Give a file by writing @ before its path.")
        missing = result.get("missing_dependency")
        lines.append(_text(missing, "hint") if isinstance(missing, Mapping) else "")
    warnings = result.get("warnings")
    told = [f"Warning: {each[:300]}" for each in warnings if isinstance(each, str)] if isinstance(warnings, list) else []
    lines += ["\n".join(_render_files(result)), "\n".join(told[:10]), signed]
    return "\n\n".join(filter(None, lines))


def _render_printed(result: Mapping[str, Any]) -> list[str]:
    primary, printed = result.get("primary_output"), _text(result, "stdout")
    made = _text(primary, "content") if isinstance(primary, Mapping) else ""
    lines = [_cut(printed, MOST_CHARACTERS)]
    room = MOST_CHARACTERS - len(printed)
    if isinstance(primary, Mapping) and made != printed and room > 200:
        lines += [f"{primary.get('name')}:" if printed else "", _cut(made, room)]
    if said := _text(result, "stderr"):
        lines.append(f"It also said: {_tail(said, 500)}")
    return lines if any(lines) else ["The command ended well and printed nothing."]


def _render_files(result: Mapping[str, Any]) -> list[str]:
    files = result.get("output_files")
    rows = [file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else []
    lines = [f"- {file.get('name')} ({file.get('ref')}, {file.get('size_bytes')} bytes)" for file in rows[:50]]
    more = [f"- and {len(rows) - 50} more"] if len(rows) > 50 else []
    return ["Files made:", *lines, *more] if rows else []


def _how_it_ended(result: Mapping[str, Any]) -> str:
    code = result.get("exit_code")
    if result.get("timed_out"):
        return "took too long and was ended"
    if not isinstance(code, int):
        return "ended without an exit code"
    return f"ended with exit code {code}{f' (signal {code - 128})' if 128 < code <= 192 else ''}"


def render_refusal(what: str, said: str) -> str:
    """Renders what the runtime said about a call that was denied, waits for a person or could not be made."""
    return f"{what}\n\n{_cut(said.strip() or 'Nothing was said about why.', 2000)}\n\n{_SIGNED}"


def render_no_skill(ranked: Sequence[Ranked], *, installed: bool) -> str:
    if not installed:
        return f"No skills are installed, and the offline planner follows nothing else. {_NEEDS_A_MODEL} answer."
    nearest = [f"- {each.skill.name}: {_first_sentence(each.skill.description)}" for each in ranked[:3]]
    example = ranked[0].skill.name if ranked else "skill-name"
    how = f"Name the skill that you mean, for instance `/{example} …`; one that `prowess list` calls 'model only', in"
    lines = ["No installed skill fits this request well enough to follow it without a language model."]
    lines += ["\n".join(["The nearest:", *nearest])] if nearest else []
    return "\n\n".join([*lines, f"{how} words of its description. {_NEEDS_A_MODEL} do more than that.", _SIGNED])


def render_missing(skill: ShownSkill, filled: Filled, given: Sequence[str]) -> str:
    first = f"The skill '{skill.name}' fits, but the request does not say everything that its command needs:"
    missing = [f"- {placeholder.shown}: {_how_to_say(placeholder, given)}" for placeholder in filled.missing]
    return "\n\n".join([first, f"    {filled.command}", "\n".join(missing), _SIGNED])


def render_no_command(skill: ShownSkill, refusals: Sequence[str]) -> str:
    """Renders the outline of the skill too, because a person may follow it by hand."""
    lines = [f"The skill '{skill.name}' fits, but has no command that the offline planner can follow."]
    lines += ["\n".join(f"- {refusal}" for refusal in dict.fromkeys(refusals))] if refusals else []
    outline = [line.strip() for line in skill.body.splitlines() if re.match(r"\s{0,3}(?:#{1,6}\s|\d+[.)]\s)", line)]
    lines += ["What it says to do, in outline:", "\n".join(line[:200] for line in outline[:30])] if outline else []
    return "\n\n".join([*lines, f"{_NEEDS_A_MODEL} follow free text.", _SIGNED])


def render_cannot_run(skill: ShownSkill, command: str) -> str:
    first = f"Nothing can be run here. With a workspace it would have been this command of the skill '{skill.name}':"
    return f"{first}\n\n    {command}\n\n{_SIGNED}"


def _how_to_say(placeholder: Placeholder, given: Sequence[str]) -> str:
    if placeholder.kind == "file":
        fitting = [path for path in given if path.rsplit(".", 1)[-1].lower() in (placeholder.extensions or path)]
        if len(fitting) > 1:
            return f"which one of {', '.join(fitting)}? Name it in the request."
        kinds = " or ".join(f".{each}" for each in placeholder.extensions)
        example = f"@example.{next(iter(placeholder.extensions), 'txt')}"
        return f"a {kinds}{' ' if kinds else ''}file. Name it, or give it with the request: {example}"
    example = _EXAMPLES.get(placeholder.kind, "…")
    quoted = '"Hello world", in quotes, or by name' if placeholder.kind in ("text", "name") else "by name"
    return f"say it {quoted}: {placeholder.name}={example}"


_EXAMPLES = {
    "number": "12", "text": "Hello", "name": "Ada", "column": "price", "date": "2026-11-03", "time": "14:30",
    "url": "https://example.org/", "email": "ada@example.org",
}  # fmt: skip


def _first_sentence(text: str) -> str:
    sentence = re.split(r"(?<=[.!?])\s|(?<=[。！？])", " ".join(text.split()), maxsplit=1)[0]
    return _cut(sentence or "no description is shown", 200)


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value.strip("\n") if isinstance(value, str) and value.strip() else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… ({len(text) - most} more characters)"


def _tail(text: str, most: int) -> str:
    return text if len(text) <= most else f"({len(text) - most} characters before)\n… {text[-most:]}"
