"""Parses a command with placeholders, and refuses one where a value could become code.

A command with placeholders is one program with its arguments, or several joined by pipes. Each program is a script, or
one that reads its arguments as data. At its place a value is part of one word, never shell code. The name of a
placeholder says what it takes: its last word gives the kind, and a file extension in it gives the type of file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Place = Literal["bare", "single", "double"]
Kind = Literal[
    "choice", "file", "folder", "out", "number", "text", "name", "column", "url", "email", "date", "time", "request",
    "arguments", "other",
]  # fmt: skip
_MARK = "\0"  # stands for a placeholder


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    name: str  # as written, without default and choices
    kind: Kind
    words: tuple[str, ...]  # the words of its name
    extensions: tuple[str, ...]  # empty: any file
    place: Place
    choices: tuple[str, ...]
    default: str | None
    begins_word: bool
    in_path: bool  # behind a `/`

    @property
    def shown(self) -> str:
        return f"<{'|'.join(self.choices) or self.name}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    pieces: tuple[str | Placeholder, ...]
    refusal: str | None = None


def parse_template(text: str) -> Template:
    found = list(_PLACEHOLDER.finditer(text))
    marked = _PLACEHOLDER.sub(_MARK, text)
    refusal = _find_refusal(marked) if found else None
    if _MARK in text or _OPTIONAL.search(text):
        refusal = "it has an optional or a repeated part: one command is wanted for each case"
    if refusal or not found:
        return Template(pieces=(text,), refusal=refusal)
    pieces: list[str | Placeholder] = []
    end = 0
    for match, place in zip(found, _find_places(marked), strict=True):
        before = _PLACEHOLDER.sub("_", text[: match.start()])
        pieces += [text[end : match.start()], _placeholder(match, place, before)]
        end = match.end()
    return Template(pieces=(*pieces, text[end:]))


def quote(value: str, place: Place) -> str:
    """Returns the value as a part of one word at that place."""
    if place == "single":
        return value.replace("'", "'\"'\"'")
    if place == "double":
        return re.sub(r'([\\"$`])', r"\\\1", value)
    return shlex.quote(value)


def names_example(command: str, own_files: Collection[str]) -> bool:
    """True when the command names a file that is only an example: `input.csv`, `path/to/x.pdf`, `FILE`."""
    paths = re.split(r"[\s'\"=@<>|;&(),]+", _PLACEHOLDER.sub("", command))
    named = [path for path in paths if path.removeprefix("./") not in own_files and not _KEPT.match(path)]
    return "path/to/" in command or any(map(_EXAMPLE.search, named))


# --- shell -----------------------------------------------------------------------------------------------------------


def _find_refusal(marked: str) -> str | None:
    stages: list[list[str]] = [[]]
    at = 0
    while at < len(marked):
        token = _TOKEN.match(marked, at)
        if token is None:
            return "a placeholder stands beside shell syntax other than pipes and redirects"
        at = token.end()
        if token["pipe"]:
            stages.append([])
        elif token["word"]:
            stages[-1].append(re.sub("[\"']", "", token["word"]))
    return None if all(map(_takes_text, stages)) else _AS_CODE


def _takes_text(words: Sequence[str]) -> bool:
    """True for a script, and for a program that reads its arguments as data."""
    if _INTERPRETED.match(" ".join(words)):
        return True
    program = words[0] if words else ""
    if program == "printf":
        return not "".join(words[1:2]).startswith("-")  # `-v` sets a variable
    filters = program in _FILTERS and not any(_MARK in word for word in words)
    is_script = _SCRIPT.fullmatch(program) is not None and not _INTERPRETER.fullmatch(program)
    return program in _READS or filters or is_script


def _find_places(marked: str) -> list[Place]:
    places: list[Place] = []
    for segment in re.findall(rf"'[^']*'|\"[^\"]*\"|{_MARK}", marked):
        place: Place = "single" if segment[0] == "'" else "double" if segment[0] == '"' else "bare"
        places += [place] * segment.count(_MARK)
    return places


_AS_CODE = "it would hand the request's words to something that may read them as a program"
_VARIABLE = r"\$\w+|\$\{\w+\}"
_WORD = rf"(?:'[^']*+'|\"(?:[^\"\\$`]|{_VARIABLE})*+\"|[^\s|&;<>()\[\]{{}}'\"\\`$#!]|{_VARIABLE})++"
_TOKEN = re.compile(
    rf"[ \t]+|(?P<pipe>\|)(?![|&])|2>&1(?=[\s|]|\Z)|(?:[12]?>>?|<)(?![<>|&(])[ \t]*+{_WORD}|(?P<word>{_WORD})"
)
_ENDING = r"\.(?:py|sh|bash|[cm]?[jt]s|rb|pl|php|[rR])"
_INTERPRETER = re.compile(
    r"(?:[\w./-]*/)?(?:(?:python|pypy|perl|ruby|php)[\d.]*|(?:ba|da|z)?sh|node|deno run|bun|tsx|Rscript|uv run)"
)
_INTERPRETED = re.compile(
    rf"{_INTERPRETER.pattern}(?: python3?)?(?: -[uBIO]+)* (?!-)(?:[\w./-]+{_ENDING}|[\w.-]+/[\w./-]+)(?= |$)"
)
_SCRIPT = re.compile(rf"(?!/)[\w./-]*(?:/[\w.-]+|{_ENDING})")
_READS = frozenset("base64 cat curl cut diff echo grep head ls md5sum pandoc pdftotext prowess sha256sum tail wc".split())
_FILTERS = frozenset("sort tee tr uniq".split())
_KEPT = re.compile(r"[/~*?]|\$(?!.*\binputs?/)|\w+://|(?:\./)?(?:out|work|scripts|references|assets)/")

# --- placeholders ----------------------------------------------------------------------------------------------------


def _placeholder(found: re.Match[str], place: Place, before: str) -> Placeholder:
    name = found["name"] or found["choices"] or "arguments"
    default = found["choices"] or found["default"]
    choices = tuple(choice.strip() for choice in default.split("|")) if default and "|" in default else ()
    words = tuple(word for word in re.split(r"[\W_]+", name.lower()) if word)
    dotted = re.search(r"\.(\w{1,8})$", name)
    types = [dotted[1].lower()] if dotted else [word for word in reversed(words) if word in _TYPES]
    extensions = _TYPES.get(types[0], (types[0],)) if types else ()
    kind = _find_kind(words, is_file=dotted is not None)
    if not _OUT.isdisjoint(words) or (kind in ("file", "name", "other") and _WRITES.search(before)):
        default = "out" if kind == "folder" else f"out/result.{extensions[0] if extensions else 'txt'}"
        kind = "out"
    in_path = before.endswith("/")
    return Placeholder(
        name=name,
        kind="choice" if choices else kind,
        words=() if "|" in name else words,
        extensions=extensions,
        place=place,
        choices=choices,
        default=choices[0] if choices else default.removeprefix("out/") if default and in_path else default,
        begins_word=before.rstrip("\"'")[-1:].isspace(),
        in_path=in_path,
    )


def _find_kind(words: Sequence[str], *, is_file: bool) -> Kind:
    last = words[-1].rstrip("0123456789") if words else ""
    kinds: list[Kind] = [kind for kind, names in _KINDS.items() if last in names.split()]
    return "file" if is_file or last in _TYPES else kinds[0] if kinds else "other"


_PLACEHOLDER = re.compile(
    r"<(?:(?P<name>[^\W\d_][\w.-]*(?: [\w.-]+)*)(?:=(?P<default>[^<>\n]*))?"
    r"|(?P<choices>[^<>|\s][^<>|\n]*\|[^<>\n]*(?<!\s)))>|\$(?:ARGUMENTS\b|\{ARGUMENTS\})"
)
_OPTIONAL = re.compile(r"(?<!\S)\[(?=<[^\W\d_]|--?[A-Za-z][\w=<> -]*+\])|>(?:\.\.\.|…)")
_WRITES = re.compile(r"(?:>|\s(?:-o|--out(?:put)?(?:-file)?))[ =]*[\"']?$")
_OUT = frozenset("out output outfile outdir".split())
_DATA = (
    "csv tsv json jsonl xml yaml yml txt md html log ini toml pdf png jpg jpeg gif svg zip xls xlsx docx pptx sql ics vcf"
    " geojson parquet wav mp3 mp4 eml diff patch tex"
)
_EXAMPLE = re.compile(rf"(?:^|/)(?:[A-Z_]*(?:FILE|INPUT|FILENAME)|\w[\w-]*\.(?:{_DATA.replace(' ', '|')}))$")
_TYPES: dict[str, tuple[str, ...]] = {ending: (ending,) for ending in _DATA.split()} | {
    "csv": ("csv", "tsv"),
    "yaml": ("yaml", "yml"),
    "image": ("png", "jpg", "jpeg", "gif", "webp", "svg"),
}
_KINDS: dict[Kind, str] = {
    "file": "file files path input document filename",
    "folder": "folder dir directory outdir",
    "number": "n k number num count int limit max min size top first last width height length depth level percent rate"
    " amount price year years months weeks days hours minutes minute seconds rows lines items page pages seed value",
    "text": "text query message string words word phrase sentence title subject term pattern topic question note content"
    " body comment description prompt",
    "name": "name person user",
    "column": "column field key by group",
    **{kind: kind for kind in ("url", "email", "date", "time", "request", "arguments")},
}
