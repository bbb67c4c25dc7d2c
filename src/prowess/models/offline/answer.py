"""Renders the planner's last message. Every fact in it comes from a result, a skill or the catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.models.offline.commands import find_exit_code
from prowess.models.offline.ranking import Ranked
from prowess.models.offline.template import Placeholder, find_expected_kind
from prowess.models.offline.transcript import Body

MOST_CHARACTERS = 4000
_ERROR_CHARACTERS = 2000
_NEEDS_A_MODEL = "A language model (`--model openai:NAME`, `--model anthropic:NAME`) can"


def parse_result(text: str) -> dict[str, Any] | None:
    """Returns the JSON document of a skill_run, without the runtime's text around it; None for other results."""
    text = text.lstrip()
    failure = _FAILURE.match(text)
    try:
        document, _ = json.JSONDecoder().raw_decode(text[failure.end() :] if failure else text)
    except ValueError:
        return None
    return document if isinstance(document, dict) and ("exit_code" in document or "stdout" in document) else None


def is_failure(text: str) -> bool:
    """True when the runtime reports that a call failed."""
    return _FAILURE.match(text.lstrip()) is not None


_FAILURE = re.compile(r"(?:failed|denied|waiting|interrupted)(?: \[[\w:-]+\])?: ")


def is_success(result: Mapping[str, Any]) -> bool:
    return result.get("exit_code") == 0 and not result.get("timed_out")


def render_result(
    result: Mapping[str, Any], *, skill: str, command: str, body: Body | None, not_given: Sequence[str]
) -> str:
    if is_success(result):
        return _succeeded(result, skill, command)
    code = result.get("exit_code")
    lines = [f"The command of the skill '{skill}' failed: it {_how_it_ended(result)}.", "", f"    {command}", ""]
    for name in ("stderr", "stdout"):
        if said := _text(result.get(name)).strip():
            lines += [_tail(said, _ERROR_CHARACTERS), ""]
            break
    if body is not None and isinstance(code, int) and (meaning := find_exit_code(body.text, code)):
        lines += [f"The skill says about code {code}: {meaning}", ""]
    if not_given:
        files = ", ".join(not_given)
        lines += [f"Not given with the request: {files}. Give a file by writing @ before its path.", ""]
    missing = result.get("missing_dependency")
    if isinstance(missing, Mapping) and missing.get("hint"):
        lines += [_text(missing["hint"]), ""]
    return "\n".join([*lines, *_files(result), *_warnings(result), _signed(skill)]).strip()


def _how_it_ended(result: Mapping[str, Any]) -> str:
    code = result.get("exit_code")
    if result.get("timed_out"):
        return "took too long and was ended"
    if not isinstance(code, int):
        return "ended without an exit code"
    signal = f" (signal {code - 128})" if 128 < code <= 128 + 64 else ""
    return f"ended with exit code {code}{signal}"


def render_refusal(what: str, said: str) -> str:
    """Renders what the runtime said about a call that was denied, waits for a person or could not be made."""
    return f"{what}\n\n{_cut(said.strip() or 'Nothing was said about why.', _ERROR_CHARACTERS)}\n\n{_unsigned()}"


def render_no_skill(ranked: Sequence[Ranked], *, installed: bool) -> str:
    if not installed:
        return f"No skills are installed, and the offline planner follows nothing else. {_NEEDS_A_MODEL} answer."
    lines = ["No installed skill fits this request well enough to follow it without a language model."]
    if ranked:
        lines += ["", "The nearest:"]
        lines += [f"- {each.skill.name}: {_first_sentence(each.skill.description)}" for each in ranked[:3]]
    example = ranked[0].skill.name if ranked else "skill-name"
    how = f"Name the skill that you mean, for instance `/{example} …`; one that `prowess list` calls 'model only', in"
    lines += ["", f"{how} words of its description. {_NEEDS_A_MODEL} do more than that."]
    return "\n".join([*lines, "", _unsigned()])


def render_missing(body: Body, command: str, missing: Sequence[Placeholder], given: Sequence[str]) -> str:
    lines = [f"The skill '{body.name}' fits, but the request does not say everything that its command needs:", ""]
    lines += [f"    {command}", ""]
    lines += [f"- {placeholder.shown}: {_how_to_say(placeholder, given)}" for placeholder in missing]
    return "\n".join([*lines, "", _unsigned()])


def render_no_command(body: Body, refusals: Sequence[str]) -> str:
    """Renders the outline of the skill too, because a person may follow it by hand."""
    lines = [f"The skill '{body.name}' fits, but has no command that the offline planner can follow."]
    if refusals:
        lines += ["", *(f"- {refusal}" for refusal in dict.fromkeys(refusals))]
    outline = [line.strip() for line in body.text.splitlines() if re.match(r"\s{0,3}(?:#{1,6}\s|\d+[.)]\s)", line)]
    if outline:
        lines += ["", "What it says to do, in outline:", "", *(_cut(line, 200) for line in outline[:30])]
    return "\n".join([*lines, "", f"{_NEEDS_A_MODEL} follow free text.", "", _unsigned()])


def render_cannot_run(body: Body, command: str) -> str:
    lines = [f"Nothing can be run here. With a workspace it would have been this command of the skill '{body.name}':"]
    return "\n".join([*lines, "", f"    {command}", "", _unsigned()])


def _succeeded(result: Mapping[str, Any], skill: str, command: str) -> str:
    printed = _text(result.get("stdout")).strip("\n")
    primary = result.get("primary_output")
    made = _text(primary.get("content")).strip("\n") if isinstance(primary, Mapping) else ""
    lines = [_cut(printed, MOST_CHARACTERS), ""] if printed.strip() else []
    room = MOST_CHARACTERS - len(printed)
    if isinstance(primary, Mapping) and made.strip() and made.strip() != printed.strip() and room > 200:
        lines += [*([f"{primary.get('name')}:", ""] if printed.strip() else []), _cut(made, room), ""]
    if said := _text(result.get("stderr")).strip():
        lines += [f"It also said: {_tail(said, 500)}", ""]
    if not lines:
        lines = ["The command ended well and printed nothing.", ""]
    return "\n".join([*lines, *_files(result), *_warnings(result), f"{_signed(skill)} It ran: {command}"]).strip()


def _files(result: Mapping[str, Any]) -> list[str]:
    files = result.get("output_files")
    rows = [file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else []
    if not rows:
        return []
    lines = [f"- {file.get('name')} ({file.get('ref')}, {file.get('size_bytes')} bytes)" for file in rows[:50]]
    more = [f"- and {len(rows) - 50} more"] if len(rows) > 50 else []
    return ["Files made:", *lines, *more, ""]


def _warnings(result: Mapping[str, Any]) -> list[str]:
    warnings = result.get("warnings")
    told = [_text(each) for each in warnings] if isinstance(warnings, list) else []
    return [*(f"Warning: {_cut(each, 300)}" for each in told[:10]), ""] if told else []


def _how_to_say(placeholder: Placeholder, given: Sequence[str]) -> str:
    expected = find_expected_kind(placeholder)
    name = placeholder.name
    extension = expected.extensions[0] if expected.extensions else "txt"
    match expected.kind:
        case "file":
            fitting = [
                path
                for path in given
                if not expected.extensions or path.rsplit(".", 1)[-1].lower() in expected.extensions
            ]
            if len(fitting) > 1:
                return f"which one of {', '.join(fitting)}? Name it in the request."
            kind = " or ".join(f".{each}" for each in expected.extensions)
            return f"a {kind + ' ' if kind else ''}file. Name it, or give it with the request: @example.{extension}"
        case "number":
            return f"a number, such as 12, or by name: {name}=12"
        case "text" | "name":
            return f'a text in quotes, such as "Hello world", or by name: {name}: Hello world'
        case "column":
            return f"the name of a column: {name}=price"
        case "date":
            return f"a date, such as 2026-11-03, or by name: {name}=2026-11-03"
        case "url" | "email" | "time" | "folder":
            example = {"url": "https://example.org/", "email": "ada@example.org", "time": "14:30", "folder": "inputs/"}
            return f"such as {example[expected.kind]}"
        case _:
            return f"say it by name: {name}=…"


def _first_sentence(text: str) -> str:
    found = re.match(r".+?(?:[.!?](?=\s|$)|[。！？])", " ".join(text.split()))
    return _cut(found[0] if found else " ".join(text.split()) or "no description is shown", 200)


def _signed(skill: str) -> str:
    return f"(Offline planner, no language model: a command of the skill '{skill}'.)"


def _unsigned() -> str:
    return "(Offline planner, no language model.)"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… ({len(text) - most} more characters)"


def _tail(text: str, most: int) -> str:
    return text if len(text) <= most else f"({len(text) - most} characters before)\n… {text[-most:]}"
