"""Renders the planner's last message. Every fact in it comes from a result, a skill or the catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.ports import ShownSkill
from prowess.models.offline.commands import Placeholder
from prowess.models.offline.fill import Filled

MOST_CHARACTERS = 4000
_NEEDS_A_MODEL = "A language model (`--model openai:NAME`, `--model anthropic:NAME`) can"
_STEP = re.compile(r" {0,3}(?:#{1,6}\s|\d+[.)]\s)")
FAILURE = re.compile(r"\A\s*+(?:failed|denied|waiting|interrupted)(?: \[[\w:-]+\])?: ")


def is_success(result: Mapping[str, Any]) -> bool:
    return result.get("exit_code") == 0 and not result.get("timed_out")


def render_result(result: Mapping[str, Any], *, skill: str, command: str, not_given: Sequence[str]) -> str:
    signed = f"(Offline planner, no language model: a command of the skill '{skill}'.)"
    printed, said, code = _text(result, "stdout"), _text(result, "stderr"), result.get("exit_code")
    if is_success(result):
        primary, room = result.get("primary_output"), MOST_CHARACTERS - len(printed)
        made = _text(primary, "content") if room > 200 else ""
        title = f"{_text(primary, 'name')}:" if made and printed else ""
        nothing = "" if printed or made or said else "The command ended well and printed nothing."
        lines = [nothing, _cut(printed, MOST_CHARACTERS), *([title, _cut(made, room)] if made != printed else [])]
        lines += [f"It also said: {said[-500:]}" if said else ""]
        signed = f"{signed} It ran: {command}"
    else:
        how = f"ended with exit code {code}" if isinstance(code, int) else "ended without an exit code"
        how += f" (signal {code - 128})" if isinstance(code, int) and 128 < code <= 192 else ""
        how = "took too long and was ended" if result.get("timed_out") else how
        first = f"The command of the skill '{skill}' failed: it {how}."
        lines = [first, f"    {command}", (said or printed)[-2000:]]
        hint = f"Not given with the request: {', '.join(not_given)}. Give a file by writing @ before its path."
        lines += [hint if not_given else "", _text(result.get("missing_dependency"), "hint")]
    files, warnings = result.get("output_files"), result.get("warnings")
    rows = [file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else []
    listed = [f"- {file.get('name')} ({file.get('ref')}, {file.get('size_bytes')} bytes)" for file in rows[:50]]
    told = [f"Warning: {str(each)[:300]}" for each in warnings[:10]] if isinstance(warnings, list) else []
    lines += ["\n".join(["Files made:", *listed]) if listed else "", "\n".join(told), signed]
    return "\n\n".join(filter(None, lines))


def render_refusal(what: str, said: str) -> str:
    """Renders what the runtime said about a call that was denied, waits for a person or could not be made."""
    return _signed(what, _cut(said.rstrip() or "Nothing was said about why.", 2000))


def render_no_skill(ranked: Sequence[ShownSkill], *, installed: bool) -> str:
    if not installed:
        return f"No skills are installed, and the offline planner follows nothing else. {_NEEDS_A_MODEL} answer."
    nearest = [f"- {skill.name}: {' '.join(skill.description.split())[:200]}" for skill in ranked[:3]]
    example = ranked[0].name if ranked else "skill-name"
    first = "No installed skill fits this request well enough to follow it without a language model."
    listed = "\n".join(["The nearest:", *nearest]) if nearest else ""
    how = f"Name the skill that you mean, for instance `/{example} …`; one that `prowess list` calls 'model only', in"
    last = f"{how} words of its description. {_NEEDS_A_MODEL} do more than that."
    return _signed(first, listed, last)


def render_missing(skill: ShownSkill, filled: Filled, given: Sequence[str]) -> str:
    first = f"The skill '{skill.name}' fits, but the request does not say everything that its command needs:"
    missing = [f"- {placeholder.shown}: {_how_to_say(placeholder, given)}" for placeholder in filled.missing]
    return _signed(first, f"    {filled.command}", "\n".join(missing))


def render_no_command(skill: ShownSkill, refusals: Sequence[str]) -> str:
    """Renders the outline of the skill too, because a person may follow it by hand."""
    first = f"The skill '{skill.name}' fits, but has no command that the offline planner can follow."
    reasons = "\n".join(f"- {refusal}" for refusal in dict.fromkeys(refusals))
    lines = [line.strip()[:200] for line in skill.body.splitlines() if _STEP.match(line)]
    outline = ""
    if lines:
        outline = "\n".join(["What it says to do, in outline:", "", *lines[:30]])
    return _signed(first, reasons, outline, f"{_NEEDS_A_MODEL} follow free text.")


def _how_to_say(placeholder: Placeholder, given: Sequence[str]) -> str:
    endings = placeholder.extensions
    fitting = [path for path in given if not endings or path.rsplit(".", 1)[-1].lower() in endings]
    if placeholder.kind != "file":
        return f"by name, {placeholder.name}=…{', or in quotes' if placeholder.kind in ('text', 'name') else ''}"
    if len(fitting) > 1:
        return f"which one of {', '.join(fitting)}? Name it in the request."
    kind = " or ".join(f".{each}" for each in endings) or "given"
    ending = endings[0] if endings else "txt"
    return f"a {kind} file. Name it, or give it with the request: @example.{ending}"


def _signed(*paragraphs: str) -> str:
    return "\n\n".join(filter(None, [*paragraphs, "(Offline planner, no language model.)"]))


def _text(values: object, name: str) -> str:
    value = values.get(name) if isinstance(values, Mapping) else None
    return value.strip("\n") if isinstance(value, str) and value.strip() else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… ({len(text) - most} more characters)"
