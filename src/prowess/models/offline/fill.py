"""Puts the values of a request into the placeholders of a command, or lists the values that are missing.

Each value is used once, in the order of the request, unless the request gives it by name. Every value goes in through
`quote`: there is no other way from a request into a command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prowess.models.offline.code_arguments import PLAIN
from prowess.models.offline.request_values import RequestValues, base_name, find_choice, find_column, find_name
from prowess.models.offline.template import (
    OptionalGroup,
    Placeholder,
    PlaceholderKind,
    Template,
    find_careful,
    find_expected_kind,
    interprets,
    is_plain,
    quote,
)

LONGEST_BYTES = 100_000  # per word; Linux allows 131,071


class Value(NamedTuple):
    texts: tuple[str, ...]
    said: bool = True  # given by the request, not a default or a choice of ours
    is_output: bool = False


class Finder:
    def __init__(
        self,
        said: RequestValues,
        placeholders: Sequence[Placeholder],
        expected_kinds: Mapping[Placeholder, PlaceholderKind],
        *,
        skill: str,
        own_files: Sequence[str],
    ) -> None:
        self._said, self._skill, self._own = said, skill, frozenset(own_files)
        self._placeholders, self._expected_kinds = placeholders, expected_kinds
        self._values: dict[str, Value] = {}  # by `_key`: two equal placeholders share one value
        self._used: set[tuple[str, str]] = set()  # (kind, value)

    def get(self, placeholder: Placeholder) -> Value | None:
        return self._values.get(_key(placeholder))

    # --- first: values given by name, or by the word beside them ------------------------------------------------------

    def find_named(self) -> None:
        for placeholder in self._placeholders:
            if self.get(placeholder) is None and (text := self._by_name(placeholder)) is not None:
                self._take(placeholder, self._fitting(placeholder, text))
        for placeholder in self._placeholders:
            if self.get(placeholder) is None:
                self._take(placeholder, self._beside(placeholder))

    def _by_name(self, placeholder: Placeholder) -> str | None:
        """Finds a value given by name: `group column: region`, `column=price`, `--limit 20`."""
        expected = self._expected_kinds[placeholder]
        names = [_spelled(expected.words), _spelled(re.findall(r"\w+", placeholder.option))]
        for name in filter(None, names):
            pattern = rf"(?<![\w-])(?:--?)?{name}\s*[=:：]\s*|(?<!\S)--{name}\s+"
            found = re.search(pattern, self._said.text, re.IGNORECASE)
            if found and self._said.plain[found.start() : found.start() + 1].strip():
                return self._rest(self._said.text[found.end() :], whole_line=expected.kind in ("text", "name"))
        return None

    def _rest(self, text: str, *, whole_line: bool) -> str | None:
        if quoted := re.match(r"\"([^\"]*)\"|'([^']*)'|“([^”]*)”|「([^」]*)」|`([^`]*)`", text):
            return next((content for content in quoted.groups() if content is not None), None)
        if not whole_line:
            word = re.match(r"[^\s,;，；。、]+", text)
            return word[0].rstrip(".!?") or None if word else None
        line = text.splitlines()[0] if text else ""
        for other in self._placeholders:
            if name := _spelled(self._expected_kinds[other].words):
                line = re.split(
                    rf"(?<![\s,;，；])[\s,;，；]++(?:--?)?{name}\s*+[=:：]", line, maxsplit=1, flags=re.IGNORECASE
                )[0]
        return line.strip(" \t,;，；") or None

    def _fitting(self, placeholder: Placeholder, text: str) -> Value | None:
        """Returns a value given by name, if it is of the right kind."""
        expected = self._expected_kinds[placeholder]
        if expected.kind == "number":
            plain = text.replace(",", "")
            return self._value(placeholder, [plain]) if re.fullmatch(r"[-+]?[0-9]+(?:\.[0-9]+)?", plain) else None
        if expected.kind == "choice":
            return next((Value((each,)) for each in placeholder.choices if _same(each, text)), None)
        if expected.kind == "file":
            path = text.removeprefix("@")
            named = next((each for each in self._said.files if path in (each, base_name(each))), path)
            return self._value(placeholder, [named]) if _has_extension(named, expected) else None
        if expected.kind in ("out", "out_folder"):
            return self._output(placeholder, text)
        if expected.kind in ("url", "email", "date", "time"):
            return self._value(placeholder, [text]) if text in self._all(expected.kind) else None
        return self._value(placeholder, [text])

    def _beside(self, placeholder: Placeholder) -> Value | None:
        expected = self._expected_kinds[placeholder]
        labels = {_stem(word) for word in (*expected.words, *re.findall(r"[^\W\d_]+", placeholder.option.lower()))}
        if expected.kind == "number":
            for number in self._said.numbers:
                beside = {_stem(number.before), *(_stem(word) for word in number.after.split()[:1])}
                if ("number", number.value) not in self._used and labels & beside - {""}:
                    return self._value(placeholder, [number.value])
        if expected.kind == "file":
            for path in self._files(expected):
                if ("file", path) not in self._used and _telling(expected) & set(
                    re.split(r"[\W_]+", base_name(path).lower())
                ):
                    return self._value(placeholder, [path])
        return self._choice(placeholder) if expected.kind == "choice" else None

    # --- the rest, in order -------------------------------------------------------------------------------------------

    def find_in_order(self, placeholder: Placeholder) -> None:
        if self.get(placeholder) is not None:
            return
        found = self._next(placeholder)
        if found is None:
            if placeholder.choices:
                found = Value((placeholder.choices[0],), said=False)
            elif placeholder.default is not None:
                found = Value((placeholder.default,), said=False)
            elif self._expected_kinds[placeholder].kind in ("out", "out_folder"):
                found = self._output(placeholder, None)
        self._take(placeholder, found)

    def find_for_group(self, placeholders: Sequence[Placeholder]) -> dict[Placeholder, Value] | None:
        """Returns values for all placeholders, at least one from the request; or None, and then nothing is used up."""
        before = dict(self._values), set(self._used)
        for placeholder in placeholders:
            if self.get(placeholder) is None and not self._is_a_year(placeholder):
                self.find_in_order(placeholder)
        values = {placeholder: value for placeholder in placeholders if (value := self.get(placeholder)) is not None}
        if len(values) == len(set(placeholders)) and any(value.said for value in values.values()):
            return values
        self._values, self._used = before
        return None

    def _is_a_year(self, placeholder: Placeholder) -> bool:
        """True when the next number looks like a year, which is rarely a count."""
        expected = self._expected_kinds[placeholder]
        free = [number.value for number in self._said.numbers if ("number", number.value) not in self._used]
        return expected.kind == "number" and bool(free) and re.fullmatch("(?:19|20)[0-9]{2}", free[0]) is not None

    def _next(self, placeholder: Placeholder) -> Value | None:
        expected, said = self._expected_kinds[placeholder], self._said
        match expected.kind:
            case "choice":
                return self._choice(placeholder)
            case "file":
                return self._file(placeholder) or self._quoted_path(placeholder)
            case "folder":
                if not said.folders:
                    return Value(("inputs",), said=False) if said.given else None
                return self._value(placeholder, [each.removeprefix("@") for each in said.folders][:1])
            case "text":
                return self._texts(placeholder, said.quoted, otherwise=said.after_colon or said.arguments)
            case "name":
                return self._texts(placeholder, said.quoted, otherwise=find_name(said.plain))
            case "column":
                column = find_column(said.plain, expected.words)
                return self._value(placeholder, [column]) if column else self._texts(placeholder, said.quoted)
            case "arguments":
                return self._value(placeholder, [said.arguments] if said.arguments else [])
            case "request":
                return self._value(placeholder, [said.text.strip()] if said.text.strip() else [])
            case "number" | "url" | "email" | "date" | "time":
                return self._texts(placeholder, self._all(expected.kind))
            case _:
                return None

    def _all(self, kind: str) -> tuple[str, ...]:
        said = self._said
        numbers = tuple(number.value for number in said.numbers)
        found = {"number": numbers, "url": said.urls, "email": said.emails, "date": said.dates, "time": said.times}
        return found[kind]

    def _texts(self, placeholder: Placeholder, texts: Sequence[str], otherwise: str = "") -> Value | None:
        kind = _pool(self._expected_kinds[placeholder])
        free = [text for text in texts if (kind, text) not in self._used]
        if not free and otherwise and (kind, otherwise) not in self._used:
            free = [otherwise]
        return self._value(placeholder, free if placeholder.repeats else free[:1])

    def _choice(self, placeholder: Placeholder) -> Value | None:
        text = self._said.text.lower()
        places = [(at, choice) for choice in placeholder.choices if (at := find_choice(choice, text)) is not None]
        return Value((min(places)[1],)) if places else None

    # --- files --------------------------------------------------------------------------------------------------------

    def _files(self, expected: PlaceholderKind) -> list[str]:
        """Returns the files that the request names, in its order; or else those that were given."""
        makes = any(other.kind == "out" for other in self._expected_kinds.values())
        named = [each for each in self._said.files if not (makes and each in self._said.made)]
        fitting = [each for each in named if _has_extension(each, expected)]
        return fitting or ([] if named else [each for each in self._said.given if _has_extension(each, expected)])

    def _file(self, placeholder: Placeholder) -> Value | None:
        expected = self._expected_kinds[placeholder]
        free = [path for path in self._files(expected) if ("file", path) not in self._used]
        if placeholder.repeats:
            return self._value(placeholder, free)
        open_ones = {
            _key(each)
            for each, other in self._expected_kinds.items()
            if other.kind == "file" and self.get(each) is None
        }
        named = any(path in self._said.files for path in free)
        if len(free) > len(open_ones) and not named:
            return None  # ambiguous: the person must name one
        return self._value(placeholder, free[:1])

    def _quoted_path(self, placeholder: Placeholder) -> Value | None:
        """Returns a quoted text for a `<path>`, unchanged: it may be a path inside a document."""
        free = [text for text in self._said.quoted if ("text", text) not in self._used]
        expected = self._expected_kinds[placeholder]
        if expected.words[-1:] != ("path",) or not free or not self._passable(free[0], placeholder, expected):
            return None
        self._used.add(("text", free[0]))
        return Value((free[0],))

    def _path(self, path: str, placeholder: Placeholder) -> str:
        """Returns the path as seen from the skill's folder."""
        if path not in self._said.given and path not in self._own:
            inside = path.startswith(("out/", "work/", "inputs/")) and ".." not in path.split("/")
            path = path if inside else f"inputs/{base_name(path)}"
        if placeholder.in_path:
            path = base_name(path)
        return path.removesuffix(placeholder.after) if placeholder.after.startswith(".") else path

    def _output(self, placeholder: Placeholder, called: str | None) -> Value | None:
        expected = self._expected_kinds[placeholder]
        if expected.kind == "out_folder":
            return Value(("out",), said=False)
        wanted = called or next((name for name in self._said.made if ("out", name) not in self._used), None)
        files = [text for kind, text in sorted(self._used) if kind == "file"]
        order = [path for path in (*self._said.files, *self._said.given) if path in files]
        stem = re.sub(r"\.[A-Za-z]\w*$", "", base_name(wanted or (order[0] if order else self._skill)))
        ending = re.search(r"\.[A-Za-z]\w*$", base_name(wanted or ""))
        extension = ending[0] if ending else f".{expected.extensions[0] if expected.extensions else 'txt'}"
        if placeholder.after.startswith("."):
            extension = ""
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "result"
        taken = {text for value in self._values.values() if value.is_output for text in value.texts}
        folder = "" if placeholder.in_path else "out/"
        names = (f"{folder}{stem}{mark}{extension}" for mark in ("", *(f"-{n}" for n in range(2, 100))))
        if wanted:
            self._used.add(("out", wanted))
        return Value((next(name for name in names if name not in taken),), said=bool(wanted), is_output=True)

    # --- taking -------------------------------------------------------------------------------------------------------

    def _value(self, placeholder: Placeholder, texts: Sequence[str]) -> Value | None:
        """Returns the value in the form that is passed on, or None when it cannot be passed on."""
        expected = self._expected_kinds[placeholder]
        if not texts:
            return None
        if expected.kind == "file":
            self._used.update(("file", text) for text in texts)
            texts = [self._path(text, placeholder) for text in texts]
        else:
            self._used.update((_pool(expected), text) for text in texts)
        if any(not self._passable(text, placeholder, expected) for text in texts):
            return None
        return Value(tuple(texts))

    @staticmethod
    def _passable(text: str, placeholder: Placeholder, expected: PlaceholderKind) -> bool:
        if len(text.encode("utf-8", "replace")) > LONGEST_BYTES:
            return False
        if placeholder.in_path and ("/" in text or text.startswith(".")):
            return False
        is_option = text.startswith("-") and expected.kind != "number" and placeholder.begins_word
        return not is_option or re.search(r"\s--\s", placeholder.before) is not None

    def _take(self, placeholder: Placeholder, value: Value | None) -> None:
        if value is not None:
            self._values[_key(placeholder)] = value


def _key(placeholder: Placeholder) -> str:
    return f"{placeholder.name}|{placeholder.choices}|{placeholder.in_path}|{placeholder.after}|{placeholder.repeats}"


def _pool(expected: PlaceholderKind) -> str:
    """Returns the pool of a kind. Kinds of one pool share values: a quoted text is a title or a name, not both."""
    return "text" if expected.kind in ("text", "name", "column", "other") else expected.kind


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")


def _spelled(words: Sequence[str]) -> str:
    return r"[\s_-]".join(map(re.escape, words))


def _same(one: str, other: str) -> bool:
    return re.sub(r"[\s_-]+", " ", one).lower() == re.sub(r"[\s_-]+", " ", other).strip().lower()


def _has_extension(path: str, expected: PlaceholderKind) -> bool:
    return not expected.extensions or path.rsplit(".", 1)[-1].lower() in expected.extensions


_GENERAL = frozenset("file files path input document the a of to csv json text data".split())


def _telling(expected: PlaceholderKind) -> set[str]:
    return {word for word in expected.words if word not in _GENERAL and word not in expected.extensions}


_AS_CODE = "it would hand the request's words to something that reads them as a program"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    command: str = ""
    used: int = 0  # number of values of the request in it
    missing: tuple[Placeholder, ...] = ()
    outputs: tuple[str, ...] = ()  # files that the command writes, as far as it says so
    refusal: str | None = None

    @property
    def ready(self) -> bool:
        return self.refusal is None and not self.missing


def fill(template: Template, said: RequestValues, *, skill: str, own_files: Sequence[str] = ()) -> Filled:
    if template.refusal:
        return Filled(refusal=template.refusal)
    expected_kinds = {placeholder: find_expected_kind(placeholder) for placeholder in template.placeholders}
    if interprets(template) and not all(is_plain(expected.kind) for expected in expected_kinds.values()):
        return Filled(refusal=_AS_CODE)
    if not expected_kinds and not any(isinstance(piece, OptionalGroup) for piece in template.pieces):
        return _with_number("".join(map(str, template.pieces)), said)
    finder = Finder(said, template.placeholders, expected_kinds, skill=skill, own_files=own_files)
    work = _Work(finder=finder)
    finder.find_named()
    for piece in template.pieces:
        if isinstance(piece, Placeholder):
            finder.find_in_order(piece)
    text = "".join(_piece(piece, work, said) for piece in template.pieces)
    for piece in find_careful(template):
        value = finder.get(piece)
        if (
            value
            and value.said
            and not is_plain(expected_kinds[piece].kind)
            and not all(map(PLAIN.fullmatch, value.texts))
        ):
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


def _piece(piece: str | Placeholder | OptionalGroup, work: _Work, said: RequestValues) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, OptionalGroup):
        return _group(piece, work, said)
    value = work.finder.get(piece)
    if value is None:
        work.missing.append(piece)
        return piece.shown
    return _put(piece, value, work)


def _group(group: OptionalGroup, work: _Work, said: RequestValues) -> str:
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


def _says(said: RequestValues, option: str) -> bool:
    """True when the request has all the words of an option."""
    words = re.findall(r"[^\W_]{2,}", option.lower())
    return bool(words) and all(
        re.search(rf"(?<![a-z0-9]){re.escape(word.rstrip('s'))}", said.text.lower()) for word in words
    )


def _with_number(command: str, said: RequestValues) -> Filled:
    """Returns a command without placeholders as written; a single number of the request replaces its single number."""
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
