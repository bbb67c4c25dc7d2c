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
import html
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
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
        usable = {name: value.strip() for name, value in values.items() if len(value.strip()) >= SHORTEST}
        self.unusable = tuple(name for name in values if name not in usable)
        needles: dict[bytes, str] = {}
        for name, value in usable.items():
            for needle in _encodings(value):
                needles.setdefault(needle, name)
        self._marks, self._redacted = _choose_marks(needles)
        self._needles = tuple(sorted(needles, key=lambda needle: (-len(needle), needle)))
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
        return self._feed_patterns(self._feed_values(data, last=False), last=False)

    def flush(self) -> bytes:
        """Returns the text that is held back only for the patterns, for a caller that waits for a prompt. A pattern
        match that continues after this is seen in two parts; a secret value is not."""
        return self._feed_patterns(b"", last=False, keep=0)

    def finish(self) -> bytes:
        """Returns the rest. The redactor can then be used for another stream."""
        rest = self._feed_patterns(self._feed_values(b"", last=True), last=True)
        self._start()
        return rest

    def redact_text(self, text: str) -> str:
        if not self._needles and not self._patterns:
            return text
        stream = self.fresh()
        data = text.encode("utf-8", "surrogatepass")
        clean = stream.feed(data) + stream.finish()
        return text if clean == data else _decode(clean)

    def redact_json(self, value: Any) -> Any:
        """Redacts every text in a JSON value, including keys. A number that is a secret becomes a text."""
        if not self._needles and not self._patterns:
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
            stream = self.fresh()
            return stream.feed(value) + stream.finish()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
            text = str(value)
            clean_text = self.redact_text(text)
            return value if clean_text == text else clean_text
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
        text, covered, at = self._held + data, self._covered, 0
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
                out += [text[covered:start], self._marks[needle]]
            covered, at = max(covered, start + len(needle)), start + 1
        out.append(text[covered:hold])
        self._held, self._covered = text[hold:], max(0, covered - hold)
        return b"".join(out)

    def _feed_patterns(self, data: bytes, *, last: bool, keep: int = WINDOW) -> bytes:
        if not self._patterns:
            return data
        pieces = [data[at : at + WINDOW] for at in range(0, len(data), WINDOW)] or [b""]
        out = [self._feed_window(piece, last=False, keep=WINDOW) for piece in pieces[:-1]]
        return b"".join((*out, self._feed_window(pieces[-1], last=last, keep=keep)))

    def _feed_window(self, data: bytes, *, last: bool, keep: int) -> bytes:
        """Applies the patterns to one window. No pattern sees much more than two windows, so even a slow one ends."""
        self._text += self._decoder.decode(data, last)
        if self._swallow:
            self._skip_line()
        text, at = self._text, self._done
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
            out += [text[at : match.start()], self._redacted]
            at = match.end()
            if at == len(text) and not last:  # the match may continue, and it cannot all be held back
                self._swallow = True
        cut = max(0, at - _CONTEXT)
        self._text, self._done = text[cut:], at - cut
        return "".join(out).encode("utf-8", "surrogateescape")

    def _skip_line(self) -> None:
        """Drops the rest of the line after a match that was longer than the window."""
        end = self._text.find("\n", self._done)
        self._swallow = end < 0
        self._done = len(self._text) if end < 0 else end
        cut = max(0, self._done - _CONTEXT)
        self._text, self._done = self._text[cut:], self._done - cut


def build_environment(
    declared: Sequence[str], secrets: Mapping[str, str], extra: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str]:
    """Builds the environment of a run: a few variables of the machine, the declared secrets, and the model's variables.

    `base` is never passed on as a whole, and a declared name is never taken from it, because a skill could declare
    anything. `extra` comes from the model; a name that changes which programs start is refused, with the reason.
    """
    environment = {name: base[name] for name in base if name in _FROM_BASE or name.startswith("LC_")}
    environment |= {name: secrets[name] for name in declared if name in secrets}
    for name, value in extra.items():
        if reason := find_refusal(name, value):
            raise WorkspaceError(
                f"The variable {ascii(name)[:80]} cannot be set for a run: {reason}.",
                op="environment",
                code="env-refused",
                hint="Leave it out of env; pass what the program needs as an argument.",
            )
        environment[name] = value
    return environment


def _encodings(value: str) -> Iterable[bytes]:
    """Returns the value in the usual encodings. Short pieces are left out: they would be found everywhere."""
    raw = value.encode("utf-8", "surrogateescape")
    found = [raw, raw.replace(b"\n", b"\r\n"), raw.hex().encode(), raw.hex().upper().encode()]
    found += [line for line in raw.splitlines() if len(line) >= _LINE and not line.startswith(b"-----")]
    for shift in range(3):
        for alphabet in (None, b"-_"):
            encoded = base64.b64encode(b"\0" * shift + raw, altchars=alphabet)
            # The characters at both ends also depend on the neighbouring bytes, so they are left out.
            found.append(encoded[(shift * 8 + 5) // 6 : (shift + len(raw)) * 8 // 6])
    text = raw.decode("utf-8", "replace")
    percent = [quote(raw, safe=""), quote(raw), quote_plus(raw)]
    percent += [re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), each) for each in percent]
    escaped = [json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1], html.escape(text)]
    escaped += [escaped[0].replace("/", "\\/"), text.replace("'", "'\\''"), json.dumps(escaped[0])[1:-1]]
    found += [each.encode("utf-8", "surrogateescape") for each in (*percent, *escaped)]
    return (each for each in dict.fromkeys(found) if len(each) >= SHORTEST)


def _choose_marks(needles: Mapping[bytes, str]) -> tuple[dict[bytes, bytes], str]:
    """Returns the marks: `[secret NAME]`, unless the mark or its surroundings could look like a secret."""
    used = frozenset(b"".join(needles))
    if not used & frozenset(b"[]"):
        marks = {needle: f"[secret {name}]".encode("utf-8", "replace") for needle, name in needles.items()}
        if not any(needle in mark for mark in {*marks.values(), b"[redacted]"} for needle in needles):
            return marks, "[redacted]"
    printable = (*b"*#~^|<>!?.:;_", *range(32, 127), *range(1, 32))
    free = next((chr(code) for code in printable if code not in used), "\udcff")
    return dict.fromkeys(needles, free.encode("utf-8", "surrogateescape") * 3), free * 3


def _find_next(text: bytes, at: int, ahead: dict[bytes, int]) -> tuple[int, bytes] | None:
    """Returns the first value from `at` on; the longest if several begin there. `ahead` caches the next position of
    each."""
    best: tuple[int, bytes] | None = None
    for needle, known in ahead.items():
        if known < at:
            found = text.find(needle, at)
            known = ahead[needle] = len(text) + 1 if found < 0 else found
        if known <= len(text) and (best is None or known < best[0]):
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
        self._sources, self._environ, self._base = dict(sources), environ, base

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
            raise ConfigError(
                f"secrets.{name} cannot be read: {(error.strerror or 'error').lower()}: {path}",
                code="secret-unreadable",
                hint="Check that the file exists and may be read.",
            ) from error
        if len(data) > MAX_BYTES:
            raise ConfigError(
                f"secrets.{name} has more than {MAX_BYTES} bytes.", code="secret-unreadable", hint="Name another file."
            )
        return data.decode("utf-8", "surrogateescape").rstrip("\r\n")
