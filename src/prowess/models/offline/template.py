"""Parses a command with placeholders into literal text and placeholders, and quotes the values that go in.

Any text can be put in: at its place it is part of one word, never shell code. A command where this cannot be guaranteed
has a `refusal` that says why. The name of a placeholder says what it takes: its last word gives the kind, and a file
extension in it gives the type of file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from prowess.models.offline.code_arguments import MARK, find_programs, find_risky, reads_code

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
        """Option that takes this value: `--top` of `--top <n>`."""
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
class OptionalGroup:
    """Part of a command that is left out as a whole when the request does not fill it."""

    pieces: tuple[str | Placeholder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    pieces: tuple[str | Placeholder | OptionalGroup, ...]
    refusal: str | None = None
    placeholders: tuple[Placeholder, ...] = field(default=())  # also those in groups

    @property
    def literal(self) -> str:
        """Text of the author, without the placeholders."""
        return " ".join(piece for piece in _flat(self.pieces) if isinstance(piece, str))


def parse_template(text: str) -> Template:
    if "\0" in text:
        return Template(pieces=(text,), refusal="it holds a NUL")
    pieces, refusal = _parse(text)
    placeholders = tuple(piece for piece in _flat(pieces) if isinstance(piece, Placeholder))
    template = Template(pieces=tuple(pieces), placeholders=placeholders)
    return Template(pieces=template.pieces, placeholders=placeholders, refusal=refusal or _refusal(template))


def quote(value: str, place: Place) -> str:
    """Returns the value as a part of one word at that place."""
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


def _parse(text: str, prefix: str = "") -> tuple[list[str | Placeholder | OptionalGroup], str | None]:
    pieces: list[str | Placeholder | OptionalGroup] = []
    place: Place = "bare"
    at = start = 0
    refusal = None
    opened = False  # inside a substitution, whose end is not searched

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
            pieces.append(
                OptionalGroup(pieces=tuple(piece for piece in inside if not isinstance(piece, OptionalGroup)))
            )
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
    """Replaces placeholders by `_`, so that their brackets are not taken for redirects."""
    return _PLACEHOLDER.sub("_", text)


def _group(text: str, at: int) -> re.Match[str] | None:
    """Matches a `[…]` between blanks that holds a placeholder or an option. Any other bracket belongs to the shell."""
    found = _GROUP.match(text, at)
    if found is None or (at and not text[at - 1].isspace()) or _STARTS_COMMAND.search(text[:at]):
        return None
    return found if _PLACEHOLDER.search(found["inside"]) or found["inside"].startswith("-") else None


def _flat(
    pieces: tuple[str | Placeholder | OptionalGroup, ...] | list[str | Placeholder | OptionalGroup],
) -> Iterator[str | Placeholder]:
    for piece in pieces:
        if isinstance(piece, OptionalGroup):
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
    """True when the command reads one of its words as a program."""
    return reads_code(_marked(template))


def find_careful(template: Template) -> frozenset[Placeholder]:
    """Returns the placeholders where a value that is not plain could be read as code."""
    risky = find_risky(_marked(template))
    return frozenset(each for each, is_risky in zip(template.placeholders, risky, strict=True) if is_risky)


def _marked(template: Template) -> str:
    return "".join(piece if isinstance(piece, str) else MARK for piece in _flat(template.pieces))


Kind = Literal[
    "choice", "file", "folder", "out", "out_folder", "number", "text", "name", "column",
    "url", "email", "date", "time", "request", "arguments", "other",
]  # fmt: skip


class PlaceholderKind(NamedTuple):
    kind: Kind
    words: tuple[str, ...]  # the words of its name
    extensions: tuple[str, ...] = ()  # empty: any file


def find_expected_kind(placeholder: Placeholder) -> PlaceholderKind:
    name = placeholder.name.lower()
    words = tuple(word for word in re.split(r"[\W_]+", name) if word)
    if placeholder.choices:
        return PlaceholderKind("choice", () if "|" in name else words)
    last = words[-1] if words else ""
    extensions = _extensions(name, words, placeholder.after)
    is_file = last in _FILES or last in _EXTENSIONS or bool(re.search(r"\.[a-z]\w{0,7}$", name))
    if last in _OUT or (set(words) & _OUT and (is_file or last in _FOLDERS or last == "name")):
        return PlaceholderKind("out_folder" if last in _FOLDERS else "out", words, extensions)
    kind = _kind(last, is_file)
    if kind in ("file", "other", "name") and _WRITES.search(placeholder.before):
        return PlaceholderKind("out", words, extensions)
    return PlaceholderKind(kind, words, extensions)


def mark_files(command: str, own_files: Collection[str]) -> str:
    """Replaces each example file of the command by a placeholder: `input.csv` becomes `<input.csv>`.

    Other examples are `path/to/x.pdf` and `FILE`. Programs, files of the skill, and paths in `out/` or `work/` stay as
    they are.
    """

    programs = find_programs(command)

    def mark(found: re.Match[str]) -> str:
        path, name = found[0], found[0].rstrip("/").rsplit("/", 1)[-1]
        if found.start() in programs:
            return path
        kept = not _is_example(name) or _KEPT.match(path) or path.removeprefix("./") in own_files
        if "path/to/" not in path and (kept or _RUNS.search(command, max(0, found.start() - 60), found.start())):
            return path
        return f"<{name}>" if name[:1].isalpha() else f"<file-{name}>"

    return _PATHS.sub(mark, command)


def _is_example(name: str) -> bool:
    ending = re.search(r"\.(\w+)$", name)
    if ending:
        return ending[1].lower() in _ENDINGS
    return name.isupper() and find_expected_kind(Placeholder(name=name)).kind in ("file", "folder", "out", "out_folder")


def is_plain(kind: Kind) -> bool:
    """True when no value of this kind can be code: the skill or Prowess chose it, or it has only digits."""
    return kind in ("choice", "number", "date", "time", "out", "out_folder")


def _kind(last: str, is_file: bool) -> Kind:
    if is_file:
        return "file"
    for kind, words in _KINDS:
        if last in words or last.rstrip("0123456789") in words:
            return kind
    return "other"


def _extensions(name: str, words: tuple[str, ...], after: str) -> tuple[str, ...]:
    for found in (re.search(r"\.([a-z]\w{0,7})$", name), re.match(r"\.([A-Za-z]\w{0,7})$", after)):
        if found:
            return _EXTENSIONS.get(found[1].lower(), (found[1].lower(),))
    return next((_EXTENSIONS[word] for word in reversed(words) if word in _EXTENSIONS), ())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PATHS = re.compile(  # a quoted text is one path, unless it has options
    r"(?:(?<=')[\w./~-]++(?: (?!-)[\w./~-]++)++(?=')|(?<=\")[\w./~-]++(?: (?!-)[\w./~-]++)++(?=\")"
    r"|(?<![\w./~$<{}:*-])(?<!\w@)(?:\$\{?+\w++\}?+/)?+[\w./~-]++(?![$>{}*(=]))"
)
_KEPT = re.compile(r"[/~]|\$(?!.*\binputs?/)|\.(?!\.?/)|(?:\./)?(?:out|work|scripts|references|assets)/")
_RUNS = re.compile(
    r"(?:^|[;&|(]|(?<![\w.-])(?:python[\d.]*|uv run|(?:ba|da|z)?sh|node|bun|tsx|ruby|perl|php|Rscript)"
    r"(?:\s+-[\w-]+)*)\s*$"
)
_OUT = _words("out output outfile destination dest result 输出")
_FOLDERS = _words("folder dir directory outdir 文件夹 目录")
_FILES = _words("file files path paths input inputs document documents filename infile 文件 路径")
_EXTENSIONS: dict[str, tuple[str, ...]] = {
    "csv": ("csv", "tsv"),
    "tsv": ("tsv",),
    "yaml": ("yaml", "yml"),
    "yml": ("yaml", "yml"),
    "markdown": ("md", "markdown"),
    "md": ("md", "markdown"),
    "html": ("html", "htm"),
    "jpg": ("jpg", "jpeg"),
    "jpeg": ("jpg", "jpeg"),
    "image": ("png", "jpg", "jpeg", "gif", "webp", "svg", "bmp", "tiff"),
    "excel": ("xlsx", "xls"),
    **{
        each: (each,)
        for each in (
            "json jsonl ndjson xml txt log ini toml pdf png gif svg zip tar xlsx docx pptx sql py js ts css ics srt vcf"
            " geojson parquet wav mp3 mp4 eml diff patch tex bib env conf"
        ).split()
    },
}
_ENDINGS = frozenset([*_EXTENSIONS, *chain.from_iterable(_EXTENSIONS.values())])
_KINDS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("folder", _FOLDERS),
    (
        "number",
        _words(
            "n k x y m number numbers num count counts int integer float decimal limit max min maximum minimum size top"
            " bottom first last width height length depth level levels percent percentage rate amount price cost total"
            " year years month months week weeks day days hour hours minute minutes second seconds ms times rows lines"
            " columns items digits places precision score age port page pages step steps seed factor ratio threshold"
            " degrees weight distance value start end from to radius side base exponent quantity 数量 数字 个数 次数"
        ),
    ),
    (
        "text",
        _words(
            "text texts query message string words word phrase sentence title subject term terms pattern topic question"
            " note notes content contents body comment description prompt expression caption label keyword keywords"
            " letters slogan 文本 文字 内容 标题 消息 关键词"
        ),
    ),
    ("name", _words("name names person user username customer 姓名 名称 名字")),
    ("column", _words("column field key by group header 列 列名 字段")),
    ("url", _words("url urls link links website uri 网址 链接")),
    ("email", _words("email emails mail address 邮箱")),
    ("date", _words("date dates deadline birthday 日期")),
    ("time", _words("time 时间")),
    ("request", _words("request 请求")),
    ("arguments", _words("arguments")),
)
_WRITES = re.compile(r"(?:>>?|(?:^|\s)(?:-o|--out(?:put)?(?:-file)?))[ =]*[\"']?$")
