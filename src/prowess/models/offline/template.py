"""A command with placeholders, taken apart: what is literal, what is to be filled in, and how it must be quoted there.

Whoever fills it can put in any text: at its place it is a part of one word, never shell. A command where that cannot be
held has a `refusal` that says why.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from prowess.models.offline.code_arguments import MARK, find_risky, reads_code

Place = Literal["bare", "single", "double"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    name: str  # as written, without default and choices
    place: Place = "bare"
    choices: tuple[str, ...] = ()
    default: str | None = None
    repeats: bool = False
    before: str = ""  # everything before it, other placeholders as `_`
    after: str = ""  # the literal text right behind it, up to the next blank

    @property
    def option(self) -> str:
        """The option whose value it is: `--top` of `--top <n>`."""
        found = re.search(r"(?:^|\s)(--?[A-Za-z][\w-]*)[ =][\"']?$", self.before)
        return found[1] if found else ""

    @property
    def in_path(self) -> bool:
        return self.before.endswith("/")

    @property
    def begins_word(self) -> bool:
        return not self.before or self.before[-1].isspace() or re.search(r"\s[\"']$", self.before) is not None

    @property
    def shown(self) -> str:
        return f"<{'|'.join(self.choices) or self.name}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is left out as a whole when the request does not fill it."""

    pieces: tuple[str | Placeholder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    pieces: tuple[str | Placeholder | Group, ...]
    refusal: str | None = None
    placeholders: tuple[Placeholder, ...] = field(default=())  # those in groups too

    @property
    def literal(self) -> str:
        """What the author wrote, without what is to be filled in."""
        return " ".join(piece for piece in _flat(self.pieces) if isinstance(piece, str))


def parse_template(text: str) -> Template:
    if "\0" in text:
        return Template(pieces=(text,), refusal="it holds a NUL")
    pieces, refusal = _parse(text)
    placeholders = tuple(piece for piece in _flat(pieces) if isinstance(piece, Placeholder))
    template = Template(pieces=tuple(pieces), placeholders=placeholders)
    return Template(pieces=template.pieces, placeholders=placeholders, refusal=refusal or _refusal(template))


def quote(value: str, place: Place) -> str:
    """The value as a part of one word at that place."""
    if place == "single":
        return value.replace("'", "'\"'\"'")
    if place == "double":
        return re.sub(r'([\\"$`])', r"\\\1", value)
    return shlex.quote(value)


_NAME = r"[^\W\d_][\w.-]*(?: [\w.-]+)*"
_VALUE = r"[^<>|\n]*"
_PLACEHOLDER = re.compile(
    rf"<(?:(?P<name>{_NAME})(?:=(?P<default>{_VALUE}(?:\|{_VALUE})*))?"
    rf"|(?P<choices>[^<>|\s][^<>|\n]*(?:\|[^<>|\n]*)+(?<!\s)))>(?P<repeats>\.\.\.|…)?"
)
_GROUP = re.compile(r"\[(?P<inside>(?:[^\[\]'\"]|'[^']*'|\"(?:[^\"\\]|\\.)*\")*)\](?=\s|$)")
_ARGUMENTS = re.compile(r"\$(?:ARGUMENTS\b|\{ARGUMENTS\})")
_SUBSTITUTION = re.compile(r"\$[({'\"]|`|[<>]\(")
_HARMLESS = re.compile(r"\$\{\w+\}|\$\([^()'\"`<>$]*\)")
_STARTS_COMMAND = re.compile(
    r"(?:^|[;&|(]|\s!)\s*(?:(?:if|then|do|else|sudo|exec|nohup|time|command|env|\w+=\S*)\s+)*$"
)


def _parse(text: str, prefix: str = "") -> tuple[list[str | Placeholder | Group], str | None]:
    pieces: list[str | Placeholder | Group] = []
    place: Place = "bare"
    at = start = 0
    refusal = None
    opened = False  # within something whose end is not looked for

    def literal() -> None:
        if text[start:at]:
            pieces.append(text[start:at])

    while at < len(text):
        here = text[at]
        if here == "<" and (found := _PLACEHOLDER.match(text, at)):
            refusal = "a placeholder stands inside a substitution" if opened else refusal
            literal()
            pieces.append(_placeholder(found, place, text, prefix))
            at = start = found.end()
        elif here == "$" and place != "single" and (found := _ARGUMENTS.match(text, at)):
            refusal = "a placeholder stands inside a substitution" if opened else refusal
            literal()
            pieces.append(Placeholder(name="arguments", place=place, before=_before(prefix + text[:at])))
            at = start = found.end()
        elif here == "[" and place == "bare" and (group := _group(text, at)) is not None:
            literal()
            inside, why = _parse(group["inside"], prefix=text[:at])
            refusal = refusal or why
            pieces.append(Group(pieces=tuple(piece for piece in inside if not isinstance(piece, Group))))
            at = start = group.end()
        elif place == "single":
            place = "bare" if here == "'" else place
            at += 1
        elif harmless := _HARMLESS.match(text, at):
            at = harmless.end()
        else:
            opened = opened or (_SUBSTITUTION.match(text, at) is not None and not (place == "double" and here in "<>"))
            if here == "\\":
                at += 1
            elif here == '"':
                place = "bare" if place == "double" else "double"
            elif here == "'" and place == "bare":
                place = "single"
            at += 1
    at = min(at, len(text))
    literal()
    return pieces, refusal


def _placeholder(found: re.Match[str], place: Place, text: str, prefix: str) -> Placeholder:
    listed = found["choices"] or (found["default"] if "|" in (found["default"] or "") else None)
    choices = tuple(choice.strip() for choice in listed.split("|")) if listed else ()
    behind = re.match(r"[^\s<\"']*", text[found.end() :])
    return Placeholder(
        name=found["name"] or found["choices"],
        place=place,
        choices=choices,
        default=None if choices else found["default"],
        repeats=found["repeats"] is not None,
        before=_before(prefix + text[: found.start()]),
        after=behind[0] if behind else "",
    )


def _before(text: str) -> str:
    """Its brackets are no redirections."""
    return _PLACEHOLDER.sub("_", text)


def _group(text: str, at: int) -> re.Match[str] | None:
    """A `[…]` between blanks that holds a placeholder or an option; else it is the shell's."""
    found = _GROUP.match(text, at)
    if found is None or (at and not text[at - 1].isspace()) or _STARTS_COMMAND.search(text[:at]):
        return None
    return found if _PLACEHOLDER.search(found["inside"]) or found["inside"].startswith("-") else None


def _flat(
    pieces: tuple[str | Placeholder | Group, ...] | list[str | Placeholder | Group],
) -> Iterator[str | Placeholder]:
    for piece in pieces:
        if isinstance(piece, Group):
            yield from piece.pieces
        else:
            yield piece


def _refusal(template: Template) -> str | None:
    if not template.placeholders:
        return None
    if re.search(r"<<(?!<)", re.sub(r"'[^']*'|\"[^\"]*\"", "", template.literal)):
        return "it has a here-document"
    if any(each.place == "bare" and _STARTS_COMMAND.search(each.before) for each in template.placeholders):
        return "a placeholder stands where a program's name should be"
    return None


def interprets(template: Template) -> bool:
    """Whether a word of the command is read as a program by what is run."""
    return reads_code(_marked(template))


def find_careful(template: Template) -> frozenset[Placeholder]:
    """Those where a value that is not plain could be read as code."""
    risky = find_risky(_marked(template))
    return frozenset(each for each, is_risky in zip(template.placeholders, risky, strict=True) if is_risky)


def _marked(template: Template) -> str:
    return "".join(piece if isinstance(piece, str) else MARK for piece in _flat(template.pieces))
