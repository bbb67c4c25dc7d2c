"""Redacts secrets from everything shown, sent or recorded; reads them, and builds the environment of a run.

A `Redactor` takes bytes in any pieces. It replaces every value of a secret, in the usual encodings, by its name, and
then everything that the configured patterns match. It holds back only what may be the beginning of a match: less than
the longest value, and with patterns a window of 8 KiB. It prevents accidents only: a hostile program can always find an
encoding that is on no list. Isolation protects against that.

The configuration names the source of each secret, `env:NAME` or `file:PATH`. It is read when needed. A skill gets a
secret only if it declares the name and the configuration has it; nothing is guessed.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from prowess._internal.files import read_regular
from prowess.errors import ConfigError, WorkspaceError
from prowess.policy.commands.env_names import find_refusal
from prowess.policy.safe_regex import compile_pattern

SHORTEST = 4  # a shorter value occurs in every text, and replacing it would reveal it
WINDOW = 8_192  # the longest pattern match that is found whole
_CONTEXT = 256  # text before a match that a pattern may look at
_LINE = 24  # a line of a multi-line secret is a secret itself from this length on
_FROM_BASE = frozenset(("PATH", "LANG", "LANGUAGE", "TZ", "TERM"))


class Redactor:
    """Redacts one stream of bytes. `fresh()` returns a redactor for another stream."""

    def __init__(self, values: Mapping[str, str], patterns: Sequence[str] = ()) -> None:
        needles: dict[bytes, str] = {}
        unusable: list[str] = []
        for name, value in values.items():
            stripped = value.strip()
            if len(stripped) < SHORTEST:
                unusable.append(name)
                continue
            for needle in _encodings(stripped):
                needles.setdefault(needle, name)
        self.unusable: tuple[str, ...] = tuple(unusable)
        self._marks, self._redacted = _choose_marks(needles)
        longest_first = sorted(needles, key=lambda needle: (-len(needle), needle))
        self._needles = tuple(longest_first)
        self._patterns = tuple(map(compile_pattern, patterns))
        self._start()

    @property
    def is_needed(self) -> bool:
        """True when there is anything to redact."""
        return bool(self._needles or self._patterns)

    def fresh(self) -> Redactor:
        """Returns a redactor with the same secrets and patterns, for another stream."""
        other = object.__new__(Redactor)
        other.__dict__.update(self.__dict__)
        other._start()
        return other

    def feed(self, data: bytes) -> bytes:
        """Takes bytes and returns all redacted bytes that are certain so far."""
        without_values = self._feed_values(data, last=False)
        return self._feed_patterns(without_values, last=False)

    def flush(self) -> bytes:
        """Returns the text that is held back only for the patterns, for a caller that waits for a prompt. A pattern
        match that continues after this is seen in two parts; a secret value is not."""
        return self._feed_patterns(b"", last=False, keep=0)

    def finish(self) -> bytes:
        """Returns the rest. The redactor can then be used for another stream."""
        without_values = self._feed_values(b"", last=True)
        rest = self._feed_patterns(without_values, last=True)
        self._start()
        return rest

    def redact_text(self, text: str) -> str:
        if not self.is_needed:
            return text
        data = text.encode("utf-8", "surrogatepass")
        clean = self._redact_bytes(data)
        if clean == data:
            return text
        return _decode(clean)

    def _redact_bytes(self, data: bytes) -> bytes:
        stream = self.fresh()
        return stream.feed(data) + stream.finish()

    def redact_json(self, value: Any) -> Any:
        """Redacts every text in a JSON value, including keys. A number that is a secret becomes a text."""
        if not self.is_needed:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            clean: dict[Any, Any] = {}
            for key, item in value.items():
                name = self.redact_json(key)
                while name in clean:  # two keys with the same secret stay two entries
                    name = f"{name}+"
                clean[name] = self.redact_json(item)
            return clean
        if isinstance(value, (list, tuple)):
            return [self.redact_json(item) for item in value]
        if isinstance(value, bytes):
            return self._redact_bytes(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
            text = str(value)
            clean_text = self.redact_text(text)
            if clean_text != text:
                return clean_text
        return value

    def _start(self) -> None:
        self._held = b""
        self._covered = 0  # bytes of `_held` that belong to a secret already replaced
        self._text = ""
        self._done = 0  # characters of `_text` already returned, kept as context
        self._swallow = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def _feed_values(self, data: bytes, *, last: bool) -> bytes:
        """Replaces values. Overlapping values become one mark, so no part of a second secret remains."""
        if not self._needles:
            return data
        text = self._held + data
        covered = self._covered
        at = 0
        out: list[bytes] = []
        ahead = dict.fromkeys(self._needles, -1)
        hold = len(text) if last else _find_hold(text, 0, self._needles)
        while True:
            if hold < at:
                hold = _find_hold(text, at, self._needles)
            found = _find_next(text, at, ahead)
            if found is None or found[0] >= hold:
                break
            start, needle = found
            if start >= covered:
                out.append(text[covered:start])
                out.append(self._marks[needle])
            covered = max(covered, start + len(needle))
            at = start + 1
        out.append(text[covered:hold])
        self._held = text[hold:]
        self._covered = max(0, covered - hold)
        return b"".join(out)

    def _feed_patterns(self, data: bytes, *, last: bool, keep: int = WINDOW) -> bytes:
        if not self._patterns:
            return data
        out: list[bytes] = []
        at = 0
        while len(data) - at > WINDOW:
            piece = data[at : at + WINDOW]
            out.append(self._feed_window(piece, last=False, keep=WINDOW))
            at += WINDOW
        out.append(self._feed_window(data[at:], last=last, keep=keep))
        return b"".join(out)

    def _feed_window(self, data: bytes, *, last: bool, keep: int) -> bytes:
        """Applies the patterns to one window. No pattern sees much more than two windows, so even a slow one ends."""
        self._text += self._decoder.decode(data, last)
        if self._swallow:
            self._skip_line()
        text = self._text
        at = self._done
        safe = len(text) if last else max(at, len(text) - keep)
        out: list[str] = []
        ahead = [pattern.search(text, at) for pattern in self._patterns]
        while at < safe:
            ahead = [m.re.search(text, at) if m and m.start() < at else m for m in ahead]
            match = min(filter(None, ahead), key=_place, default=None)
            if match is None or match.start() >= safe:
                out.append(text[at:safe])
                at = safe
                break
            out.append(text[at : match.start()])
            out.append(self._redacted)
            at = match.end()
            if at == len(text) and not last:  # the match may continue, and it cannot all be held back
                self._swallow = True
        self._keep_context(at)
        return "".join(out).encode("utf-8", "surrogateescape")

    def _skip_line(self) -> None:
        """Drops the rest of the line after a match that was longer than the window."""
        end = self._text.find("\n", self._done)
        self._swallow = end < 0
        if end < 0:
            end = len(self._text)
        self._keep_context(end)

    def _keep_context(self, done: int) -> None:
        """Drops the text that was returned, except what a pattern may still look at."""
        cut = max(0, done - _CONTEXT)
        self._text = self._text[cut:]
        self._done = done - cut


def build_environment(
    declared: Sequence[str], secrets: Mapping[str, str], extra: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str]:
    """Builds the environment of a run: a few variables of the machine, the declared secrets, and the model's variables.

    `base` is never passed on as a whole, and a declared name is never taken from it, because a skill could declare
    anything. `extra` comes from the model; a name that changes which programs start is refused, with the reason.
    """
    environment: dict[str, str] = {}
    for name in base:
        if name in _FROM_BASE or name.startswith("LC_"):
            environment[name] = base[name]
    for name in declared:
        if name in secrets:
            environment[name] = secrets[name]
    for name, value in extra.items():
        reason = find_refusal(name, value)
        if reason:
            shown = ascii(name)[:80]
            raise WorkspaceError(
                f"The variable {shown} cannot be set for a run: {reason}.",
                op="environment",
                code="env-refused",
                hint="Leave it out of env; pass what the program needs as an argument.",
            )
        environment[name] = value
    return environment


def _encodings(value: str) -> Iterable[bytes]:
    """Returns the value in the usual encodings. Short pieces are left out: they would be found everywhere."""
    raw = value.encode("utf-8", "surrogateescape")
    digits = raw.hex()
    found = [raw, raw.replace(b"\n", b"\r\n"), digits.encode(), digits.upper().encode()]
    for line in raw.splitlines():
        if len(line) >= _LINE and not line.startswith(b"-----"):
            found.append(line)
    found += _in_base64(raw)
    for text in (*_percent_encoded(raw), *_escaped(raw)):
        found.append(text.encode("utf-8", "surrogateescape"))
    distinct = dict.fromkeys(found)
    return [each for each in distinct if len(each) >= SHORTEST]


def _in_base64(raw: bytes) -> Iterator[bytes]:
    """Yields the part that every base64 text with the value in it has, for each position and alphabet."""
    for shift in range(3):
        # The characters at both ends also depend on the neighbouring bytes, so they are left out.
        begin = (shift * 8 + 5) // 6
        end = (shift + len(raw)) * 8 // 6
        shifted = b"\0" * shift + raw
        for alphabet in (None, b"-_"):
            encoded = base64.b64encode(shifted, altchars=alphabet)
            yield encoded[begin:end]


def _percent_encoded(raw: bytes) -> Iterator[str]:
    """Yields the value as in a URL, with codes in upper and in lower case."""
    for text in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield text
        yield re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), text)


def _escaped(raw: bytes) -> Iterator[str]:
    """Yields the value as in JSON, in Python, in HTML and in a shell's quotes."""
    import html

    text = raw.decode("utf-8", "replace")
    in_json = json.dumps(text)[1:-1]
    yield in_json
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield html.escape(text)
    yield in_json.replace("/", "\\/")
    yield text.replace("'", "'\\''")
    yield json.dumps(in_json)[1:-1]


def _choose_marks(needles: Mapping[bytes, str]) -> tuple[dict[bytes, bytes], str]:
    """Returns the marks: `[secret NAME]`, unless the mark or its surroundings could look like a secret."""
    used = frozenset(b"".join(needles))
    if not used & frozenset(b"[]"):
        marks = {needle: f"[secret {name}]".encode("utf-8", "replace") for needle, name in needles.items()}
        texts = {*marks.values(), b"[redacted]"}
        if not any(needle in text for text in texts for needle in needles):
            return marks, "[redacted]"
    free = _free_character(used)
    mark = free.encode("utf-8", "surrogateescape") * 3
    return dict.fromkeys(needles, mark), free * 3


def _free_character(used: Collection[int]) -> str:
    """Returns a character that occurs in no secret."""
    printable = (*b"*#~^|<>!?.:;_", *range(32, 127), *range(1, 32))
    for code in printable:
        if code not in used:
            return chr(code)
    return "\udcff"


def _find_next(text: bytes, at: int, ahead: dict[bytes, int]) -> tuple[int, bytes] | None:
    """Returns the first value from `at` on; the longest if several begin there. `ahead` caches the next position of
    each."""
    nowhere = len(text) + 1
    first = nowhere
    best: tuple[int, bytes] | None = None
    for needle, known in ahead.items():
        if known < at:
            found = text.find(needle, at)
            known = nowhere if found < 0 else found
            ahead[needle] = known
        if known < first:
            first = known
            best = (known, needle)
    return best


def _find_hold(text: bytes, at: int, needles: Sequence[bytes]) -> int:
    """Returns the position from which the text may be the beginning of an incomplete value."""
    hold = len(text)
    for needle in needles:
        start = max(at, len(text) - len(needle) + 1)
        while 0 <= (start := text.find(needle[:1], start, hold)) < hold:
            if needle.startswith(text[start:]):
                hold = start
                break
            start += 1
    return hold


def _place(match: re.Match[str]) -> tuple[int, int]:
    return match.start(), -match.end()


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


MAX_BYTES = 64 * 1024


class ConfiguredSecrets:
    """Secret provider that reads the configured sources. Relative paths start at `base`."""

    def __init__(self, sources: Mapping[str, str], environ: Mapping[str, str], base: str) -> None:
        self._sources = dict(sources)
        self._environ = environ
        self._base = base

    async def find(self, name: str) -> str | None:
        source = self._sources.get(name)
        if source is None:
            return None
        kind, _, place = source.partition(":")
        if kind == "env" and place:
            return self._environ.get(place)
        if kind == "file" and place:
            return await asyncio.to_thread(self._read, name, place)
        raise ConfigError(
            f"secrets.{name} does not say where its value is stored.",
            code="secret-source",
            hint="Write env:NAME or file:PATH. Never write the value itself into a configuration file.",
        )

    def _read(self, name: str, place: str) -> str:
        path = os.path.join(self._base, os.path.expanduser(place))
        try:
            data = read_regular(path, MAX_BYTES, follow=True)
        except OSError as error:
            why = error.strerror or "error"
            raise ConfigError(
                f"secrets.{name} cannot be read: {why.lower()}: {path}",
                code="secret-unreadable",
                hint="Check that the file exists and may be read.",
            ) from error
        if len(data) > MAX_BYTES:
            problem = f"secrets.{name} has more than {MAX_BYTES} bytes."
            raise ConfigError(problem, code="secret-unreadable", hint="Name another file.")
        text = data.decode("utf-8", "surrogateescape")
        return text.rstrip("\r\n")
