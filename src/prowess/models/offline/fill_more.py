"""A template and a request make a command, or a list of what the request does not say.

Each value is used once, in the order of the request, unless it was said by name. Every value goes in through `quote`:
there is no other way from a request into a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from prowess.models.offline.code_arguments import PLAIN
from prowess.models.offline.fill import Finder, Value
from prowess.models.offline.kinds import find_wish, is_plain
from prowess.models.offline.request_values import Said
from prowess.models.offline.template import Group, Placeholder, Template, find_careful, interprets, quote

_AS_CODE = "it would hand the request's words to something that reads them as a program"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    command: str = ""
    used: int = 0  # how many values of the request it holds
    missing: tuple[Placeholder, ...] = ()
    outputs: tuple[str, ...] = ()  # files that it says it writes
    refusal: str | None = None

    @property
    def ready(self) -> bool:
        return self.refusal is None and not self.missing


def fill(template: Template, said: Said, *, skill: str, own_files: Sequence[str] = ()) -> Filled:
    if template.refusal:
        return Filled(refusal=template.refusal)
    wishes = {placeholder: find_wish(placeholder) for placeholder in template.placeholders}
    if interprets(template) and not all(is_plain(wish.kind) for wish in wishes.values()):
        return Filled(refusal=_AS_CODE)
    if not wishes and not any(isinstance(piece, Group) for piece in template.pieces):
        return _with_number("".join(map(str, template.pieces)), said)
    finder = Finder(said, template.placeholders, wishes, skill=skill, own_files=own_files)
    work = _Work(finder=finder)
    finder.find_named()
    for piece in template.pieces:
        if isinstance(piece, Placeholder):
            finder.find_in_order(piece)
    text = "".join(_piece(piece, work, said) for piece in template.pieces)
    for piece in find_careful(template):
        value = finder.get(piece)
        if value and value.said and not is_plain(wishes[piece].kind) and not all(map(PLAIN.fullmatch, value.texts)):
            return Filled(refusal=_AS_CODE)
    command = re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " ", text).strip() if work.left_out else text.strip()
    outputs = [*work.outputs, *_written(template)]
    return Filled(
        command=command,
        used=work.used,
        missing=tuple(dict.fromkeys(work.missing)),
        outputs=tuple(dict.fromkeys(outputs)),
    )


@dataclass(slots=True, kw_only=True)
class _Work:
    finder: Finder
    used: int = 0
    left_out: bool = False
    missing: list[Placeholder] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def _piece(piece: str | Placeholder | Group, work: _Work, said: Said) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Group):
        return _group(piece, work, said)
    value = work.finder.get(piece)
    if value is None:
        work.missing.append(piece)
        return piece.shown
    return _put(piece, value, work)


def _group(group: Group, work: _Work, said: Said) -> str:
    placeholders = [piece for piece in group.pieces if isinstance(piece, Placeholder)]
    if not placeholders:
        text = "".join(map(str, group.pieces))
        if _says(said, text):
            return text
    elif (values := work.finder.find_for_group(placeholders)) is not None:
        texts = [piece if isinstance(piece, str) else _put(piece, values[piece], work) for piece in group.pieces]
        return "".join(texts)
    work.left_out = True
    return ""


def _put(placeholder: Placeholder, value: Value, work: _Work) -> str:
    work.used += len(value.texts) if value.said else 0
    if value.is_output:
        before = re.search(r"[^\s\"'=>]*$", placeholder.before)
        text = f"{before[0] if before else ''}{value.texts[0]}{placeholder.after}"
        work.outputs += [text] if text.startswith("out/") else []
    if placeholder.place == "bare":
        return " ".join(quote(text, "bare") for text in value.texts)
    return quote(" ".join(value.texts), placeholder.place)


def _says(said: Said, option: str) -> bool:
    """Whether the request has all the words of an option."""
    words = re.findall(r"[^\W_]{2,}", option.lower())
    return bool(words) and all(
        re.search(rf"(?<![a-z0-9]){re.escape(word.rstrip('s'))}", said.text.lower()) for word in words
    )


def _with_number(command: str, said: Said) -> Filled:
    """A command without placeholders, as it is written; but its one literal number gives way to that of the request."""
    literal = re.findall(r"(?<!\S)[0-9]+(?!\S)", command)
    numbers = [number.value for number in said.numbers]
    outputs = tuple(dict.fromkeys(_redirects(command)))
    if len(literal) == len(numbers) == 1 and numbers[0].isdecimal():
        replaced = re.sub(r"(?<!\S)[0-9]+(?!\S)", numbers[0], command)
        return Filled(command=replaced, used=1, outputs=outputs)
    return Filled(command=command, outputs=outputs)


def _written(template: Template) -> list[str]:
    return [path for piece in template.pieces if isinstance(piece, str) for path in _redirects(piece)]


def _redirects(text: str) -> list[str]:
    return re.findall(
        r"(?:>>?|(?<!\S)(?:-o|--out(?:put)?(?:-file)?))[ =]*[\"']?(out/[\w./-]*\w)(?=[\s\"';|&)]|$)", text
    )
