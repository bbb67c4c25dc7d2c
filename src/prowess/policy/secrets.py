"""What is shown, sent or recorded never holds a secret's value, however it arrives in pieces.

A `Redactor` takes bytes as they come and gives them back with every value of a secret, in the usual encodings, replaced
by its name; then what the configured patterns match. It keeps back only what may be the beginning of something that is
to be replaced: less than the longest value, and with patterns a window of 8 KiB. It catches accidents: a program that
wants to smuggle a secret out can always find an encoding that is not on any list. Isolation is against that.

Where the values of secrets are: `env:NAME` or `file:PATH`, as the configuration names them, read when one is needed.

A skill gets a secret only if it declares the name and the configuration has it; nothing is looked up by guessing.
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

SHORTEST = 4  # a shorter value is in every text, and replacing it would tell what it is
WINDOW = 8_192  # the longest match of a pattern that is found whole
_CONTEXT = 256  # what a pattern may look back at
_LINE = 24  # a line of a secret of several lines that is a secret by itself
_FROM_BASE = frozenset(("PATH", "LANG", "LANGUAGE", "TZ", "TERM"))


class Redactor:
    """One stream of bytes, redacted. `fresh()` gives another one for another stream."""

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
        """Whether there is anything that it would take out."""
        return bool(self._needles or self._patterns)

    def fresh(self) -> Redactor:
        """The same secrets and patterns, for a stream of its own."""
        other = object.__new__(Redactor)
        other.__dict__.update(self.__dict__)
        other._start()
        return other

    def feed(self, data: bytes) -> bytes:
        """What is certain now, of all that was fed so far."""
        return self._feed_patterns(self._feed_values(data, last=False), last=False)

    def flush(self) -> bytes:
        """Give back what is kept only for the patterns, for somebody who waits for a prompt. A match that goes on
        after this is judged in two parts; the value of a secret is not."""
        return self._feed_patterns(b"", last=False, keep=0)

    def finish(self) -> bytes:
        """The rest. The redactor can then be used for another stream."""
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
        """Every text in it, keys included; a number that is a secret becomes a text."""
        if not self._needles and not self._patterns:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            clean: dict[Any, Any] = {}
            for key, item in value.items():
                name = self.redact_json(key)
                while name in clean:  # two keys that held the same secret stay two entries
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
        self._covered = 0  # so many bytes of what is held belong to a secret that was replaced already
        self._text = ""
        self._done = 0  # so many characters of the text were given back, and are kept to look back at
        self._swallow = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def _feed_values(self, data: bytes, *, last: bool) -> bytes:
        """Replace values. Overlapping ones become one mark, so that no rest of a second secret stays."""
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
        """No pattern ever sees much more than two windows, so a slow one is slow and not endless."""
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
            if at == len(text) and not last:  # it may go on, and nobody can keep all of it
                self._swallow = True
        cut = max(0, at - _CONTEXT)
        self._text, self._done = text[cut:], at - cut
        return "".join(out).encode("utf-8", "surrogateescape")

    def _skip_line(self) -> None:
        """What follows a match that was longer than the window belongs to it, up to the end of the line."""
        end = self._text.find("\n", self._done)
        self._swallow = end < 0
        self._done = len(self._text) if end < 0 else end
        cut = max(0, self._done - _CONTEXT)
        self._text, self._done = self._text[cut:], self._done - cut


def build_environment(
    declared: Sequence[str], secrets: Mapping[str, str], extra: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a run: a few names of the machine's, the secrets that were declared, and what the model set.

    `base` is never passed on as a whole, and a declared name is never taken from it: a skill could declare anything.
    `extra` is the model's; a name that would change which programs start is refused, with the reason.
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
    """The value as programs usually print it. Too short pieces are left out: they would be found everywhere."""
    raw = value.encode("utf-8", "surrogateescape")
    found = [raw, raw.replace(b"\n", b"\r\n"), raw.hex().encode(), raw.hex().upper().encode()]
    found += [line for line in raw.splitlines() if len(line) >= _LINE and not line.startswith(b"-----")]
    for shift in range(3):
        for alphabet in (None, b"-_"):
            encoded = base64.b64encode(b"\0" * shift + raw, altchars=alphabet)
            # The characters at both ends also depend on what stands beside the value, so they are no part of it.
            found.append(encoded[(shift * 8 + 5) // 6 : (shift + len(raw)) * 8 // 6])
    text = raw.decode("utf-8", "replace")
    percent = [quote(raw, safe=""), quote(raw), quote_plus(raw)]
    percent += [re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), each) for each in percent]
    escaped = [json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1], html.escape(text)]
    escaped += [escaped[0].replace("/", "\\/"), text.replace("'", "'\\''"), json.dumps(escaped[0])[1:-1]]
    found += [each.encode("utf-8", "surrogateescape") for each in (*percent, *escaped)]
    return (each for each in dict.fromkeys(found) if len(each) >= SHORTEST)


def _choose_marks(needles: Mapping[bytes, str]) -> tuple[dict[bytes, bytes], str]:
    """`[secret NAME]`, unless that, or what it would stand beside, could itself read like a secret."""
    used = frozenset(b"".join(needles))
    if not used & frozenset(b"[]"):
        marks = {needle: f"[secret {name}]".encode("utf-8", "replace") for needle, name in needles.items()}
        if not any(needle in mark for mark in {*marks.values(), b"[redacted]"} for needle in needles):
            return marks, "[redacted]"
    printable = (*b"*#~^|<>!?.:;_", *range(32, 127), *range(1, 32))
    free = next((chr(code) for code in printable if code not in used), "\udcff")
    return dict.fromkeys(needles, free.encode("utf-8", "surrogateescape") * 3), free * 3


def _find_next(text: bytes, at: int, ahead: dict[bytes, int]) -> tuple[int, bytes] | None:
    """The first value from there on, the longest of those that begin there. `ahead` remembers where each one is."""
    best: tuple[int, bytes] | None = None
    for needle, known in ahead.items():
        if known < at:
            found = text.find(needle, at)
            known = ahead[needle] = len(text) + 1 if found < 0 else found
        if known <= len(text) and (best is None or known < best[0]):
            best = (known, needle)
    return best


def _find_hold(text: bytes, at: int, needles: Sequence[bytes]) -> int:
    """From where on the text may be the beginning of a value that is not complete yet."""
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
    """A SecretProvider. `base` is where relative paths start from."""

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
            f"secrets.{name} names no place where the value is.",
            code="secret-source",
            hint="Write env:NAME or file:PATH; a value itself never belongs into a configuration file.",
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
