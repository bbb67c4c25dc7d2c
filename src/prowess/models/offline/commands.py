"""Finds the documented commands of a skill. Nothing else in a body is ever run.

Commands are `Command:` lines and the lines of fenced shell blocks, with the text around them that says what they are
for. docs/offline.md has the grammar for skill authors; this module must not accept more than that page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
            commands = _read_block(_take_block(lines, fence[1]), fence[2].split()[:1])
        elif command:
            commands = _read_block([_unquoted(command[1].strip())], ["bash"])
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


def _read_block(lines: list[str], language: list[str]) -> list[tuple[str, str]]:
    """Returns each command of a block with the comments above and behind it."""
    name = language[0].strip("{}.").lower() if language else ""
    if name in ("console", "shell-session"):
        lines = [line for line in lines if line.startswith("$ ")]
    elif name not in ("bash", "sh", "shell", "zsh"):
        return []
    commands: list[tuple[str, str]] = []
    comments = ""
    for line in lines:
        text, _, behind = _split_comment(line.removeprefix("$ ").strip())
        if text and (_COMPOUND.match(text) or not _CLOSED.fullmatch(text)):
            return []
        comments = f"{comments} {behind}"
        if text:
            commands.append((text, comments))
            comments = ""
    return commands


def _unquoted(text: str) -> str:
    """Returns the text between backticks, when the text begins with a backtick."""
    ticks = len(text) - len(text.lstrip("`"))
    end = text.find("`" * ticks, ticks) if ticks else -1
    return text[ticks:end] if end >= 0 else text


def _split_comment(line: str) -> tuple[str, str, str]:
    for found in re.finditer(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?:(?<=\s)|^)#+""", line):
        if found[0].startswith("#"):
            return line[: found.start()].rstrip(), found[0], line[found.end() :].strip()
    return line, "", ""


_HEADING = re.compile(r"[ ]{0,3}#{1,6}[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"[ ]{0,3}(?:=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d++[.)])[ \t]*+)?(`{3,}+|~{3,}+)([^`]*+)$")
_COMMAND = re.compile(
    r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?:\*\*|__)?(?:commands?|run)[:：](?:\*\*|__)?[ \t]*(\S.*)", re.IGNORECASE
)
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+(.+)$")
_ASIDE = re.compile(
    r"\b(?:install\w*|set-?up|requirements?|prerequisites?|troubleshooting|failures?|checklists?|resources?)\b"
    r"|安装|前置|排错|失败|故障|清单|资源",
    re.IGNORECASE,
)
_PREPARES = re.compile(r"(?:cd|export|source|set|alias|unset|umask|\.)\s[^;&|]*$")
_COMPOUND = re.compile(
    r"\s*(?:for|while|until|if|case|select|function)\b|.*(?:\bdo|\bthen|\{|\()\s*$|\s*\w+\s*\(\)|[^'\"]*(?<!<)<<-?\s*['\"\\\w]"
)
_CLOSED = re.compile(r"""(?:[^'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")*""")
