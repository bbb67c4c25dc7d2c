"""Finds the documented commands of a skill. Nothing else in a body is ever run.

Commands are `Command:` lines and the lines of fenced shell blocks, with the text around them that says what they are
for. docs/offline.md has the grammar for skill authors; this module must not accept more than that page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_CHARACTERS = 4000  # per command
MOST_COMMANDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedCommand:
    text: str  # as written, on one line
    about: str  # heading, paragraph and comments before it


def find_commands(body: str) -> list[DocumentedCommand]:
    """Returns the commands in the order of the body."""
    heading, paragraph, found = "", "", []
    for block in _blocks(_without_comments(body)):
        if block.kind == "heading":
            heading, paragraph = block.text, ""
        elif block.kind == "text":
            paragraph = block.text
        elif not _ASIDE.search(heading):
            for text, comments in _lines(block):
                if len(text) <= MOST_CHARACTERS and not _PREPARES.match(text):
                    found.append(
                        DocumentedCommand(text=text, about=" ".join(f"{heading}\n{paragraph}\n{comments}".split()))
                    )
    return found[:MOST_COMMANDS]


def find_output_files(body: str) -> list[str]:
    """Returns the paths that a section `Output files` lists."""
    paths, inside = [], False
    for line in body.splitlines():
        if title := _HEADING.match(line) or _LABEL.match(line):
            inside = bool(_OUTPUT_SECTION.match(title[1].strip(" *:#")))
        elif inside and (item := _ITEM.match(line)):
            paths += [path for path in _PATH.findall(item[1])[:1] if path not in paths]
    return paths


def find_exit_code(body: str, code: int) -> str | None:
    """Returns the meaning of an exit code from a table of the body."""
    for line in body.splitlines():
        cells = [cell.strip(" `") for cell in line.strip().strip("|").split("|")]
        if line.lstrip().startswith("|") and len(cells) > 1 and cells[0] == str(code):
            return ": ".join(filter(None, cells[1:3]))
    return None


_HEADING = re.compile(r"[ ]{0,3}#{1,6}[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"[ ]{0,3}(?:=+|-{2,})[ \t]*$")
_LABEL = re.compile(r"(\*\*[^*]+\*\*:?|Output files:?)\s*$", re.IGNORECASE)
_FENCE = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d++[.)])[ \t]*+)?(`{3,}+|~{3,}+)([^`]*+)$")
_COMMAND = re.compile(
    r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?:\*\*|__)?(?:commands?|run)[:：](?:\*\*|__)?[ \t]*(\S.*)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+(.+)$")
_PATH = re.compile(r"(?<![\w./*?$-])((?:\$?(?:out|work|runs|OUTPUT_DIR|WORK_DIR))/[\w./*?-]*+(?<=[\w*]))")
_ASIDE = re.compile(
    r"\b(?:install\w*|set-?up|requirements?|prerequisites?|troubleshooting|failures?|checklists?|resources?)\b"
    r"|安装|前置|排错|失败|故障|清单|资源",
    re.IGNORECASE,
)
_OUTPUT_SECTION = re.compile(r"output files?$|输出文件$", re.IGNORECASE)
_PREPARES = re.compile(r"(?:cd|export|source|set|alias|unset|umask|\.)\s[^;&|]*$")
_SHELLS = ("bash", "sh", "shell", "zsh")
_CONSOLES = ("console", "shell-session", "shellsession")
_COMPOUND = re.compile(
    r"\s*(?:for|while|until|if|case|select|function)\b|.*(?:\bdo|\bthen|\{|\()\s*$|\s*\w+\s*\(\)|[^'\"]*(?<!<)<<-?\s*['\"\\\w]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    kind: str  # heading, text, command, shell, console
    text: str


def _blocks(body: str) -> Iterator[_Block]:
    """Yields the headings, paragraphs, command lines and fenced blocks of the body.

    A fence that is never closed goes on to the end, as in Markdown.
    """
    paragraph: list[str] = []
    lines = iter(body.splitlines())
    for line in lines:
        if paragraph and _UNDERLINE.match(line):
            yield _Block(kind="heading", text=" ".join(paragraph))
            paragraph = []
            continue
        fence = _FENCE.match(line)
        command = _COMMAND.match(line)
        heading = _HEADING.match(line)
        ends = fence or command or heading or not line.strip() or _ITEM.match(line)
        if ends and paragraph:
            yield _Block(kind="text", text=" ".join(paragraph))
            paragraph = []
        if fence:
            inside = _inside(lines, fence[1])
            kind = _kind(fence[2])
            if kind:
                yield _Block(kind=kind, text="\n".join(inside))
        elif command:
            joined = command[1].rstrip()
            while joined.endswith("\\") and (more := next(lines, None)) is not None:
                joined = f"{joined[:-1].rstrip()} {more.strip()}"
            yield _Block(kind="command", text=joined)
        elif heading:
            yield _Block(kind="heading", text=heading[1].rstrip("# \t"))
        elif line.strip():
            paragraph.append(line.strip())
    if paragraph:
        yield _Block(kind="text", text=" ".join(paragraph))


def _without_comments(body: str) -> str:
    """Removes HTML comments. A comment that is never closed stays."""
    kept, at = "", 0
    while (start := body.find("<!--", at)) >= 0 and (end := body.find("-->", start + 4)) >= 0:
        kept, at = kept + body[at:start], end + 3
    return kept + body[at:]


def _inside(lines: Iterator[str], fence: str) -> list[str]:
    inside = []
    for line in lines:
        if re.fullmatch(rf"[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*", line):
            break
        inside.append(line)
    return inside


def _kind(info: str) -> str | None:
    language = (info.split() or [""])[0].strip("{}.").lower()
    return "shell" if language in _SHELLS else "console" if language in _CONSOLES else None


def _lines(block: _Block) -> Iterator[tuple[str, str]]:
    """Yields each command of a block with the comments above and behind it."""
    if block.kind == "command":
        text = block.text
        lines = [_unquoted(text).strip()]
    else:
        lines = _joined(block.text)
        if block.kind == "console":
            lines = [line[2:].strip() for line in lines if line.startswith("$ ")]
        else:
            lines = [line.removeprefix("$ ").strip() for line in lines]
    if any(_COMPOUND.match(line) or not _closed(line) for line in lines if not line.startswith("#")):
        return
    comments = ""
    for line in lines:
        if line.startswith("#"):
            comments = f"{comments} {line.lstrip('#').strip()}"
        elif line:
            text, behind = _without_comment(line)
            yield text, f"{comments} {behind}"
            comments = ""


def _unquoted(text: str) -> str:
    """Returns the text between backticks, when the text begins with a backtick."""
    ticks = len(text) - len(text.lstrip("`"))
    end = text.find("`" * ticks, ticks) if ticks else -1
    return text[ticks:end] if end >= 0 else text


def _joined(text: str) -> list[str]:
    joined = re.sub(r"(?<![ \t])[ \t]*+\\\n[ \t]*+", " ", text)
    return [line.strip() for line in joined.splitlines()]


def _closed(line: str) -> bool:
    """True when every quote of the line is closed in it."""
    return re.fullmatch(r"""(?:[^'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")*""", _without_comment(line)[0]) is not None


def _without_comment(line: str) -> tuple[str, str]:
    for found in re.finditer(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?:(?<=\s)|^)#""", line):
        if found[0] == "#":
            return line[: found.start()].rstrip(), line[found.end() :].strip()
    return line, ""
