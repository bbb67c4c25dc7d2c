"""Parses a command with placeholders, and refuses one where a value could become code.

A command with placeholders is one program with its arguments, or several joined by pipes. Each program is a script, or
one that reads its arguments as data. A value is always one shell word or a part of one. The last word of a
placeholder's name gives its kind, and a file extension in the name gives the type of file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

_MARK = "\0"  # stands for a placeholder


class Placeholder(NamedTuple):
    name: str  # as written, without default and choices
    kind: str  # a key of _KINDS, or "choice", "out", "other"
    words: tuple[str, ...]  # the words of its name
    extensions: tuple[str, ...]  # empty: any file
    choices: tuple[str, ...]
    default: str | None
    begins_word: bool
    in_path: bool  # behind a `/`

    @property
    def shown(self) -> str:
        return f"<{'|'.join(self.choices) or self.name}>"


def parse_template(text: str) -> tuple[list[str | Placeholder], str | None]:
    """Returns the parts of the command, and why it is not followed."""
    found = list(_PLACEHOLDER.finditer(text))
    refusal = _find_refusal(_PLACEHOLDER.sub(_MARK, text)) if found else None
    if _MARK in text or _OPTIONAL.search(text):
        refusal = "it has an optional or a repeated part: one command is wanted for each case"
    pieces: list[str | Placeholder] = []
    end = 0
    for match in found:
        pieces += [text[end : match.start()], _placeholder(match)]
        end = match.end()
    return [*pieces, text[end:]], refusal


def names_example(command: str, own_files: Collection[str]) -> bool:
    """True when the command names a file that is only an example: `input.csv`, `path/to/x.pdf`, `FILE`."""
    paths = re.split(r"[\s'\"=@<>|;&(),]+", _PLACEHOLDER.sub("", command))
    named = [path for path in paths if path.removeprefix("./") not in own_files and not _KEPT.match(path)]
    return "path/to/" in command or any(map(_EXAMPLE.search, named))


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
    is_safe = all(map(_takes_text, stages))
    return None if is_safe else "it would hand the request's words to something that may read them as a program"


def _takes_text(words: Sequence[str]) -> bool:
    """True for a script, and for a program that reads its arguments as data."""
    program = words[0] if words else ""
    is_script = _SCRIPT.fullmatch(program) is not None and not _INTERPRETER.fullmatch(program)
    is_filter = program in ("sort", "tee", "tr", "uniq") and not any(_MARK in word for word in words)
    return is_script or is_filter or program in _READS or _INTERPRETED.match(" ".join(words)) is not None


_VARIABLE = r"\$\w+|\$\{\w+\}"
_WORD = rf"(?:'[^'\0]*+'|\"(?:[^\"\\$`\0]|{_VARIABLE})*+\"|[^\s|&;<>()\[\]{{}}'\"\\`$#!]|{_VARIABLE})++"
_TOKEN = re.compile(
    rf"[ \t]+|(?P<pipe>\|)(?![|&])|2>&1(?=[\s|]|\Z)|(?:[12]?>>?|<)(?![<>|&(])[ \t]*+{_WORD}|(?P<word>{_WORD})"
)
_ENDING = r"\.(?:py|sh|bash|[cm]?[jt]s|rb|pl|php|[rR])"
_RUNNER = r"(?:[\w./-]*/)?(?:(?:python|pypy|perl|ruby|php)[\d.]*|(?:ba|da|z)?sh|node|deno run|bun|tsx|Rscript|uv run)"
_INTERPRETER = re.compile(_RUNNER)
_INTERPRETED = re.compile(rf"{_RUNNER}(?: -[uBIO]+)* (?!-)(?:[\w./-]+{_ENDING}|[\w.-]+/[\w./-]+)(?= |$)")
_SCRIPT = re.compile(rf"(?!/)[\w./-]*(?:/[\w.-]+|{_ENDING})")
_READS = frozenset("base64 cat curl cut diff echo grep head ls md5sum prowess sha256sum tail wc".split())
_KEPT = re.compile(r"[/~*?]|\$(?!.*\binputs?/)|\w+://|(?:\./)?(?:out|work|scripts|references|assets)/")


def _placeholder(found: re.Match[str]) -> Placeholder:
    before = _PLACEHOLDER.sub("_", found.string[: found.start()])
    name = found["name"] or found["choices"] or "arguments"
    default = found["choices"] or found["default"]
    choices = tuple(choice.strip() for choice in default.split("|")) if default and "|" in default else ()
    words = tuple(word for word in re.split(r"[\W_]+", name.lower()) if word)
    last, dotted = words[-1].rstrip("0123456789"), re.search(r"\.(\w{1,8})$", name)
    types = [dotted[1].lower()] if dotted else [word for word in reversed(words) if word in _TYPES]
    extensions = _TYPES.get(types[0], (types[0],)) if types else ()
    kinds = [kind for kind, names in _KINDS.items() if last in names.split()]
    kind = "choice" if choices else "file" if dotted or last in _TYPES else kinds[0] if kinds else "other"
    is_bare = (
        re.search(rf"(?<!\S)[\"']?<{re.escape(name)}", found.string) is not None
    )  # anywhere: equal ones share a value
    begins_word, in_path = is_bare or found[0].startswith("$"), before.endswith("/")
    if not _OUT.isdisjoint(words) or (kind in ("file", "name", "other") and _WRITES.search(before)):
        folder = "" if in_path else "out/"
        default = "out" if kind == "folder" else f"{folder}result.{extensions[0] if extensions else 'txt'}"
        kind = "out"
    default, words = choices[0] if choices else default, () if "|" in name else words
    return Placeholder(name, kind, words, extensions, choices, default, begins_word, in_path)


_PLACEHOLDER = re.compile(  # also in quotes of its own: the value gets new ones
    r"(?P<quote>[\"']?)<(?:(?P<name>[^\W\d_][\w.-]*(?: [\w.-]+)*)(?:=(?P<default>[^<>\n]*))?"
    r"|(?P<choices>[^<>|\s][^<>|\n]*\|[^<>\n]*(?<!\s)))>(?P=quote)|\$(?:ARGUMENTS\b|\{ARGUMENTS\})"
)
_OPTIONAL = re.compile(r"(?<!\S)\[(?=<[^\W\d_]|--?[A-Za-z][\w=<> -]*+\])|>(?:\.\.\.|…)")
_WRITES = re.compile(r"(?:>|\s(?:-o|--out(?:put)?(?:-file)?))[ =]*$")
_OUT = frozenset("out output outfile outdir".split())
_DATA = (
    "csv tsv json jsonl xml yaml yml txt md html log ini toml pdf png jpg jpeg gif svg zip xlsx docx pptx sql ics vcf"
)
_EXAMPLE = re.compile(rf"(?:^|/)(?:[A-Z_]*(?:FILE|INPUT|FILENAME)|\w[\w-]*\.(?:{_DATA.replace(' ', '|')}))$")
_TYPES: dict[str, tuple[str, ...]] = {ending: (ending,) for ending in _DATA.split()}
_TYPES |= {"csv": ("csv", "tsv"), "yaml": ("yaml", "yml"), "image": ("png", "jpg", "jpeg", "gif", "svg")}
_KINDS = {
    "file": "file files path input document filename",
    "folder": "folder dir directory outdir",
    "number": "n k number num count int limit max min size top first last width height length depth level percent rate"
    " amount price year years months weeks days hours minutes minute seconds rows lines items page pages seed value",
    "text": "text query message string words word phrase sentence title subject term pattern topic question note"
    " content body comment description prompt",
    "name": "name person user",
    "column": "column field key by group",
    **{kind: kind for kind in ("url", "email", "date", "time", "request", "arguments")},
}
