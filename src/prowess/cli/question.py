"""The question before a call: everything that a yes would be a yes to, and nothing in it that could pass for us.

What comes from a skill or a model begins at column 11 at the earliest, also where a line is wrapped; what a terminal
would obey is spelled out; what is long is cut in the middle, so that its end is seen, and says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prowess.core.findings import visible
from prowess.core.values import Decision, ToolCall

_FIRST = ("command", "script", "args", "cwd", "env", "inputs", "stdin", "dependencies", "path", "url", "method")
_OURS = ("why", "skill", "digest", "runs in", "reaches", "changed", "diff")
_AS_YOU = "what you can: it runs as you, so your files, keys, programs and approvals are open to it"
_LONGEST, _TAIL, _DIFF = 6000, 2000, 30_000
_WIDTH = 8  # of a label
_INDENT = " " * (_WIDTH + 3)
_NARROWEST = 20  # cells for a text, however narrow the terminal is
_BLANK = re.compile(r" {40,}")
_EMPTY_LINES = re.compile(r"(?<![ \t])(?:[ \t]*+\n){6,}+")


class Question(NamedTuple):
    text: str
    is_cut: bool
    may_always: bool  # there is a content to bind it to, and it is not asked each time


def make_question(call: ToolCall, decision: Decision, *, columns: int | None = None, whole: bool = False) -> Question:
    """`columns` of the terminal: no line is longer. `whole`: nothing is cut."""
    about = decision.about
    cut: list[str] = []
    lines = [f"{_name(call.tool)} asks for permission{_risk(about)}."]
    for label, text, longest in _fields(call, decision):
        short = text if whole else _shortened(text, longest)
        cut += [label] if short != text else []
        lines += _paragraph(label, short, columns, squeeze=not whole)
    may_always = bool(about.get("skill") and about.get("digest")) and not about.get("each_time")
    return Question("\n".join(lines), bool(cut), may_always)


def render_question(call: ToolCall, decision: Decision) -> str:
    """With the line that asks, as it ends on a terminal of any width."""
    question = make_question(call, decision)
    return f"{question.text}\n{render_prompt(call, question)}"


def render_prompt(call: ToolCall, question: Question) -> str:
    always = "always (a), " if question.may_always else ""
    show = "show all (s), " if question.is_cut else ""
    return f"Allow {_name(call.tool)}? once (o), this run (r), {always}no (n), {show}explain (?) [NO] "


def render_help(question: Question) -> str:
    always = [
        "  a  always: this tool for exactly this content of the skill; see 'prowess approvals'",
        *(["  s  show everything, uncut"] if question.is_cut else []),
    ]
    return "\n".join(
        [
            "  o  once: exactly this call",
            "  r  this run: the same tool for the same skill, until the run ends",
            *(always if question.may_always else always[1:]),
            "  n  no; what you write behind it is told to the model: n, because …",
            "  An empty line is a no.",
        ]
    )


def describe_enforced(isolation: Mapping[str, Any]) -> str:
    """`local (none, user 64321, network host) · enforced: time · best effort: memory · absent: files`"""
    user = isolation.get("uid")
    inside = [
        str(isolation.get("mechanism") or "none"),
        "our own user" if user is None else f"user {user}",
        f"network {isolation.get('network')}",
    ]
    limits: Mapping[str, str] = isolation.get("limits") or {}
    held = [
        f"{word}: {', '.join(names)}"
        for kind, word in (("enforced", "enforced"), ("best-effort", "best effort"), ("absent", "absent"))
        if (names := [name.replace("_", " ") for name, how in limits.items() if how == kind])
    ]
    return " · ".join([f"{isolation.get('executor')} ({', '.join(inside)})", *held])


def is_ours(uid: int | None) -> bool:
    """Whether a script of that user is, to the machine, the person who reads this."""
    return uid is None or (hasattr(os, "geteuid") and uid == os.geteuid())


def describe_changes(changed: Mapping[str, Any], most: int = 12) -> str:
    """`since 2026-11-16: changed scripts/a.sh · added b.sh`"""
    kinds = [
        f"{kind} {', '.join(names[:most])}{f' and {len(names) - most} more' if len(names) > most else ''}"
        for kind in ("changed", "added", "removed")
        if (names := [str(name) for name in changed.get(kind) or ()])
    ]
    return f"since it was approved on {str(changed.get('since'))[:10]}: {' · '.join(kinds) or 'only its digest'}"


def _fields(call: ToolCall, decision: Decision) -> Iterator[tuple[str, str, int]]:
    """(label, text, how long it may be)"""
    about, args = decision.about, dict(call.args)
    yield "why", decision.why, _LONGEST
    if about.get("skill"):
        args.pop("skill", None)  # what the model called it
        trusted = "trusted" if about.get("trusted") else "NOT trusted"
        yield "skill", f"{about['skill']} · source {about.get('source')}, {trusted}", _LONGEST
    elif "skill" in args:
        yield "skill", _text(args.pop("skill")), _LONGEST
    if about.get("digest"):
        yield "digest", _short_digest(str(about["digest"])), _LONGEST
    diff = about.get("diff") or ""
    for name in [*(name for name in _FIRST if name in args), *(name for name in args if name not in _FIRST)]:
        value = args[name]
        if value in (None, "", [], {}):
            continue
        text = _text(value)
        if name == "content" and diff:
            text = f"{len(text)} characters: see diff"
        yield _label(name), text, _LONGEST
    if isinstance(isolation := about.get("isolation"), Mapping):
        yield "runs in", describe_enforced(isolation), _LONGEST
        if isolation.get("executor") == "local" and is_ours(isolation.get("uid")):
            yield "reaches", _AS_YOU, _LONGEST
    if isinstance(changed := about.get("changed"), Mapping):
        yield "changed", describe_changes(changed), _LONGEST
    if diff:
        yield "diff", str(diff), _DIFF


def _label(name: str) -> str:
    """An argument cannot have the name of a field of ours."""
    plain = name.isidentifier() and name not in _OURS and len(name) <= 40
    return name if plain else json.dumps(name[:40], ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _name(tool: str) -> str:
    return visible(tool if len(tool) <= 80 else f"{tool[:79]}…")


def _risk(about: Mapping[str, Any]) -> str:
    return f" ({about['risk']} risk)" if about.get("risk") in ("low", "medium", "high", "unknown") else ""


def _short_digest(digest: str) -> str:
    kind, mark, hex_ = digest.rpartition(":")
    return f"{kind}{mark}{hex_[:16]}"


def _shortened(text: str, longest: int) -> str:
    """Its beginning and its end: what harms need not stand in front."""
    if len(text) <= longest:
        return text
    left_out = len(text) - longest
    mark = f"\n[… {left_out} of {len(text)} characters are not shown here …]\n"
    return f"{text[: longest - _TAIL]}{mark}{text[-_TAIL:]}"


def _paragraph(label: str, text: str, columns: int | None, *, squeeze: bool) -> list[str]:
    """The first line beside the label; each further line of the text behind a bar, so that none can pass for ours."""
    if squeeze:
        text = _EMPTY_LINES.sub(lambda found: f"\n[{found[0].count(chr(10))} empty lines]\n", text)
        text = _BLANK.sub(lambda found: f" [{len(found[0])} spaces] ", text)
    first = f"  {visible(label):<{_WIDTH}} "
    lines: list[str] = []
    for number, line in enumerate(text.rstrip("\n").split("\n")):
        start = first if number == 0 else f"{_INDENT}| "
        shown = "    ".join(map(visible, line.split("\t")))
        pieces = [shown] if columns is None else _wrapped(shown, columns - max(len(first), len(_INDENT) + 2))
        lines.append(f"{start}{pieces[0]}")
        lines += [f"{_INDENT}  {piece}" for piece in pieces[1:]]
    return lines


def _wrapped(text: str, width: int) -> Sequence[str]:
    """Pieces of at most so many cells. A terminal would go on at its left edge, where our own lines begin."""
    width = max(width, _NARROWEST)
    if len(text) <= width and text.isascii():
        return [text]
    if not text.isascii():
        from rich.cells import chop_cells

        return chop_cells(text, width) or [""]
    import textwrap

    wrapper = textwrap.TextWrapper(
        width, expand_tabs=False, replace_whitespace=False, drop_whitespace=False, break_on_hyphens=False
    )
    return wrapper.wrap(text) or [""]
