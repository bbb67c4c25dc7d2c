"""Scans a skill for what a person should look at before trusting it.

The scan only reports; it decides nothing. A command in a script or a code block is an action. The same words in prose
may be a warning, so each rule says where it applies. A scan will miss things: isolation and permissions protect, not
the scan.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prowess._internal.text import LineNumbers, Spans, fenced_code, find_tag_text, strip_invisible
from prowess.core.findings import Note
from prowess.skills.skill import Skill
from prowess.skills.validate import EXTENSIONS, Located

MAX_SCANNED_BYTES = 1_000_000
_PROSE = (".md", ".txt", ".rst")
_INLINE = re.compile(r"`(?P<code>[^`\n]+)`")
_WARNING = re.compile(r"\b(?:never|do not|don't|avoid|dangerous|unsafe|instead of|bad:|wrong:)(?!\w)", re.IGNORECASE)


class Pattern(NamedTuple):
    code: str
    words: tuple[str, ...]  # a match has one of them, in lower case
    expression: re.Pattern[str]
    where: str  # command: only in scripts and code; prose: only in text; any
    kind: str = ""


def _p(code: str, words: str, expression: str, where: str, kind: str = "") -> Pattern:
    if where == "prose":
        expression = expression.replace(" ", r"\s{1,9}")  # a sentence may continue on the next line
    return Pattern(code, tuple(words.split()), re.compile(expression, re.IGNORECASE), where, kind)


# Gaps between two parts are bounded, so every text takes linear time. The words make a usual text ten times as fast.
PATTERNS = (
    _p("scan-pipe-to-shell", "curl wget iwr fetch", r"\b(?:curl|wget|iwr|fetch)\b[^\n|;&]{0,300}\|\s*(?:sudo\s+(?:-\w+\s+)*)?(?:ba|z|da|k)?sh\b", "command"),
    _p("scan-pipe-to-shell", "curl wget", r"\b(?:ba|z)?sh\s+(?:-c\s+)?[\"']?[<$]\(\s*(?:curl|wget)\b[^)\n]{0,300}\)", "command"),
    _p("scan-pipe-to-shell", "curl wget", r"\b(?:curl|wget)\b[^\n|;&]{0,300}\|\s*(?:sudo\s+(?:-\w+\s+)*)?(?:python3?|node|perl|ruby)\b", "command"),
    _p("scan-pipe-to-shell", "iex invoke-expression", r"\b(?:iex|invoke-expression)\b[^\n]{0,20}\(?\s*(?:iwr|irm|curl|invoke-webrequest|\(?new-object net\.webclient)\b", "command"),
    _p("scan-encoded-command", "base64", r"base64\s+(?:-d|--decode|-D)\b[^\n]{0,300}\|\s*(?:ba|z)?sh\b", "command"),
    _p("scan-encoded-command", "decode", r"\b(?:exec|eval)\s*\(\s*(?:\w+\.)*b(?:ase)?64_?decode\w*\(", "command"),
    _p("scan-encoded-command", "zlib codecs fromhex binascii", r"\b(?:exec|eval)\s*\(\s*(?:compile\s*\(\s*)?(?:zlib|codecs|bytes\.fromhex|binascii)\b", "command"),
    _p("scan-encoded-command", "decode", r"\b(?:os\.system|subprocess\.\w+|popen)\s*\(\s*(?:\w+\.)*b(?:ase)?64_?decode\w*\(", "command"),
    _p("scan-secret", "akia", r"\bAKIA[0-9A-Z]{16}\b", "any", "AWS access key"),
    _p("scan-secret", "ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{36,}\b", "any", "GitHub token"),
    _p("scan-secret", "sk-", r"\bsk-(?=[a-z_-]{0,40}\d)[A-Za-z0-9_-]{32,300}\b", "any", "model provider's key"),
    _p("scan-secret", "sk_live_", r"\bsk_live_[A-Za-z0-9]{20,}\b", "any", "Stripe key"),
    _p("scan-secret", "xox", r"\bxox[abpr]-[A-Za-z0-9-]{20,}\b", "any", "Slack token"),
    _p("scan-secret", "-----begin", r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----", "any", "private key"),
    _p("scan-sensitive-path", ".ssh .aws .gnupg .kube .netrc .docker", r"(?:~|\$HOME|/root|/home/\w+)/\.(?:ssh|aws|gnupg|kube|netrc|docker/config)\b[\w/.-]*", "command"),
    _p("scan-sensitive-path", "/etc/", r"/etc/(?:shadow|sudoers)\b", "command"),
    _p("scan-override", "ignore disregard forget", r"\b(?:ignore|disregard|forget) (?:all |any )?(?:the )?(?:previous|prior|above|earlier|system) (?:instructions|prompts?|rules|messages?)", "prose"),
    _p("scan-override", "user", r"\b(?:do not|don't|never) (?:tell|inform|mention (?:this|it) to|reveal (?:this|it) to|show (?:this|it) to) the user\b", "prose"),
    _p("scan-override", "prompt hidden", r"\b(?:reveal|print|output|repeat) (?:the|your) (?:system prompt|hidden instructions)\b", "prose"),
    _p("scan-override", "忽略 无视 忘记", r"(?:忽略|无视|忘记)(?:之前|以上|先前|前面|所有|一切)[^\n。]{0,12}(?:指令|指示|提示|规则|说明)", "prose"),
    _p("scan-override", "用户", r"(?:不要|请勿|切勿|别)(?:告诉|告知|通知|透露给)用户", "prose"),
    _p("scan-override", "無視 忘れ", r"(?:以前|これまで|上記|前)の(?:指示|命令|ルール|プロンプト)[^\n。]{0,8}(?:無視|忘れ)", "prose"),
    _p("scan-override", "ユーザー", r"ユーザー(?:に|には)(?:伝え|知らせ|言わ|教え)な", "prose"),
)  # fmt: skip
_WORDS = frozenset(word for pattern in PATTERNS for word in pattern.words)


def scan_skill(skill: Skill, read: Callable[[str], bytes]) -> Iterator[Located]:
    """Yields notes about a skill and its files. `read` returns the content of a file."""
    for tool in skill.entry.controls.allowed_tools or ():
        if tool in ("*", "Bash", "Bash(*)", "Bash(*:*)"):
            yield skill.entry.file, Note("scan-wide-tools", None, {"text": tool})
    for listed in skill.files:
        path = listed.path
        if listed.size_bytes > MAX_SCANNED_BYTES:
            yield path, Note("scan-skipped", None, {"target": path, "limit_bytes": MAX_SCANNED_BYTES})
            continue
        data = read(path)
        extension = posixpath.splitext(path)[1].lower()
        is_prose = extension in _PROSE
        if _is_binary(data) and not is_prose and extension not in EXTENSIONS:
            continue  # files that a model reads or an interpreter runs are always scanned
        text = data.decode("utf-8", "replace")
        for note in scan_text(text, is_prose=is_prose):
            yield path, note


def _is_binary(data: bytes) -> bool:
    """True for data that is no text, and no script either."""
    return b"\0" in data[:4096] and not data.startswith(b"#!")


def possible_patterns(text: str) -> list[Pattern]:
    """Returns the patterns that may match. To look for words is much faster than to look for patterns."""
    if not text.isascii():
        for letter, plain in (("\u017f", "s"), ("\u212a", "k"), ("\u0130", "i"), ("\u0131", "i")):
            text = text.replace(letter, plain)  # as re.IGNORECASE takes them
    low = text.lower()
    present = {word for word in _WORDS if word in low}
    return [pattern for pattern in PATTERNS if not present.isdisjoint(pattern.words)]


def scan_text(text: str, *, is_prose: bool) -> Iterator[Note]:
    hidden_texts = list(find_tag_text(text))
    if hidden_texts:
        line_of = LineNumbers(text)
        for offset, hidden in hidden_texts:
            yield Note("scan-hidden-tags", line_of.at(offset), {"text": _short(hidden)})
    text = strip_invisible(text)  # as the model sees it
    patterns = possible_patterns(text)
    if not patterns:
        return
    line_of = LineNumbers(text)
    blocks = Spans([(0, len(text))])
    within_lines = Spans([])
    if is_prose:
        blocks = fenced_code(text)
        within_lines = Spans(found.span("code") for found in _INLINE.finditer(text))
    for pattern in patterns:
        for found in pattern.expression.finditer(text):
            start = found.start()
            in_code = start in blocks or start in within_lines
            if pattern.where == "prose" and (not is_prose or in_code):
                continue
            line = line_of.at(start)
            if pattern.where == "command":
                if is_prose and _is_warned_against(text, start, blocks):
                    continue
                if not in_code:
                    if pattern.code != "scan-sensitive-path":  # models follow sentences too; a path alone is no command
                        yield Note("scan-command-in-prose", line, {"text": _short(found[0])})
                    continue
            details = {"kind": pattern.kind} if pattern.kind else {"text": _short(found[0])}
            yield Note(pattern.code, line, details)


def _is_warned_against(text: str, offset: int, blocks: Spans) -> bool:
    """True when the words before, or the line above the code block, warn against it. For prose only: nobody reads
    warnings in a script."""
    before = text[max(0, offset - 400) : offset]
    said = before.split("\n")[-2:]
    block = blocks.start_around(offset)
    if block is not None:
        above, _, _ = text[max(0, block - 400) : block].rpartition("\n")
        _, _, line = above.rstrip().rpartition("\n")
        said.append(line)
    return bool(_WARNING.search("\n".join(said)))


def _short(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= 80:
        return line
    return line[:77] + "…"
