"""Finds the documented commands of a skill, parses their placeholders, and refuses those where a value could be code.

Nothing else in a body is ever run. A command with placeholders is one program with its arguments, or several joined by
pipes; each is a script or reads its arguments as data. docs/offline.md has the grammar, and this accepts no more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

MOST_CHARACTERS = 4000  # per command
MOST_COMMANDS = 200


class DocumentedCommand(NamedTuple):
    text: str  # as written, on one line
    about: str  # heading, paragraph and comments before it


def find_commands(body: str) -> list[DocumentedCommand]:
    """Returns the commands in the order of the body."""
    kept, *parts = body.split("<!--")  # a comment that is never closed stays
    body = kept + "".join(part.partition("-->")[2] if "-->" in part else f"<!--{part}" for part in parts)
    lines = iter(re.sub(r"(?<![ \t])[ \t]*+\\\n[ \t]*+", " ", body).splitlines())
    found: list[DocumentedCommand] = []
    heading, paragraph, is_open = "", "", False
    for line in lines:
        commands: list[tuple[str, str]] = []
        fence, command, title = _FENCE.match(line), _COMMAND.match(line), _HEADING.match(line)
        if fence:
            commands = _read_block(_take_block(lines, fence[1]), "".join(fence[2].split()[:1]).lower())
        elif command:
            commands = _read_block([(command[1].split("`") if command[1].startswith("`") else command)[1]], "bash")
        elif title or (is_open and _UNDERLINE.match(line)):
            heading, paragraph = title[1] if title else paragraph, ""
        elif line.strip():
            paragraph = f"{paragraph} {line.strip()}" if is_open and not _ITEM.match(line) else line.strip()
        is_open = bool(line.strip()) and not (fence or command or title or _UNDERLINE.match(line))
        for text, comments in commands:
            if len(text) <= MOST_CHARACTERS and not _PREPARES.match(text) and not _ASIDE.search(heading):
                found.append(DocumentedCommand(text, " ".join(f"{heading} {paragraph} {comments}".split())))
    return found[:MOST_COMMANDS]


def _take_block(lines: Iterator[str], fence: str) -> list[str]:
    """Takes the lines up to the closing fence, or all of them, as in Markdown."""
    inside: list[str] = []
    for line in lines:
        bare = line.strip(" \t>")
        if len(bare) >= len(fence) and set(bare) == {fence[0]}:
            break
        inside.append(line.strip())
    return inside


def _read_block(lines: list[str], language: str) -> list[tuple[str, str]]:
    """Returns each command of a block with the comments above and behind it."""
    if language == "console":
        lines = [line for line in lines if line.startswith("$ ")]
    elif language not in ("bash", "sh", "shell", "zsh"):
        return []
    commands: list[tuple[str, str]] = []
    comments = ""
    for line in lines:
        line = line.removeprefix("$ ").strip()
        marks = [found.start() for found in _MARKS.finditer(line) if found[0] == "#"]
        text, behind = (line[: marks[0]].rstrip(), line[marks[0] :].lstrip("# ")) if marks else (line, "")
        if text and (_COMPOUND.match(text) or not _CLOSED.fullmatch(text)):
            return []
        comments = f"{comments} {behind}"
        if text:
            commands.append((text, comments))
            comments = ""
    return commands


_HEADING = re.compile(r"[ ]{0,3}#{1,6}[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"[ ]{0,3}(?:=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d++[.)])[ \t]*+)?(`{3,}+|~{3,}+)([^`]*+)$")
_COMMAND = re.compile(
    r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?:\*\*|__)?(?:commands?|run)[:：](?:\*\*|__)?[ \t]*(\S.*)", re.IGNORECASE
)
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+(.+)$")
_ASIDE = re.compile(
    r"(?i)\b(?:install\w*|set-?up|requirements?|prerequisites?|troubleshooting|failures?|checklists?|resources?)\b"
    r"|安装|前置|排错|失败|故障|清单|资源"
)
_PREPARES = re.compile(r"(?:cd|export|source|set|alias|unset|umask|\.)\s[^;&|]*$")
_COMPOUND = re.compile(
    r"\s*(?:for|while|until|if|case|select|function)\b|.*(?:\bdo|\bthen|\{|\()\s*$|\s*\w+\s*\(\)|[^'\"]*(?<!<)<<-?\s*['\"\\\w]"
)
_MARKS = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?:(?<=\s)|^)#""")
_CLOSED = re.compile(r"""(?:[^'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")*""")
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
    return None if all(map(_takes_text, stages)) else "a value would go to something that may read it as a program"


def _takes_text(words: Sequence[str]) -> bool:
    """True for a script, and for a program that reads its arguments as data."""
    program = words[0] if words else ""
    line = " ".join(words)
    if program in _READS or _INTERPRETED.match(line):
        return True
    if program in ("sort", "tee", "tr", "uniq"):
        return _MARK not in line
    return _SCRIPT.fullmatch(program) is not None and not _INTERPRETER.fullmatch(program)


_VARIABLE = r"\$\w++|\$\{\w++\}"
_TEXT = rf"(?:'[^'\0]*+'|\"(?:[^\"\\$`\0]|{_VARIABLE})*\"|[^\s|&;<>()\[\]{{}}'\"\\`$#!]|{_VARIABLE})+"
_TOKEN = re.compile(
    rf"[ \t]+|(?P<pipe>\|)(?![|&])|2>&1(?=[\s|]|\Z)|(?:[12]?>>?|<)(?![<>|&(])[ \t]*+{_TEXT}|(?P<word>{_TEXT})"
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
    bare = re.search(rf"(?<!\S)[\"']?<{re.escape(name)}", found.string)  # anywhere: equal ones share a value
    begins_word = bare is not None or found[0].startswith("$")
    in_path = before.endswith("/")
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
_OUT = {"out", "output", "outfile", "outdir"}
_IMAGES = "png jpg jpeg gif svg"
_DATA = f"csv tsv json jsonl xml yaml yml txt md html log ini toml pdf {_IMAGES} zip xlsx docx pptx sql ics vcf"
_EXAMPLE = re.compile(rf"(?:^|/)(?:[A-Z_]*(?:FILE|INPUT|FILENAME)|\w[\w-]*\.(?:{_DATA.replace(' ', '|')}))$")
_TYPES: dict[str, tuple[str, ...]] = {ending: (ending,) for ending in _DATA.split()}
_TYPES |= {"csv": ("csv", "tsv"), "yaml": ("yaml", "yml"), "image": tuple(_IMAGES.split())}
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
