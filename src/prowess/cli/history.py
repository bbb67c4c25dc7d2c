"""What was typed before, for the arrow keys: one line of JSON each, readable by nobody but its owner."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from prowess._internal.files import read_regular, write_whole

_KEPT, _MOST_BYTES = 1000, 4 << 20


class History:
    """A chat goes on without it: what cannot be read or written is said once."""

    def __init__(self, path: str, warn: Callable[[str], object]) -> None:
        self._path, self._warn = path, warn
        self._broken = False
        self.lines = self._load()

    def _load(self) -> list[str]:
        try:
            data = read_regular(self._path, _MOST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fail(error)
            return []
        found = [text for line in data.decode("utf-8", "replace").splitlines() if (text := _parse(line))]
        if len(found) > 2 * _KEPT or len(data) > _MOST_BYTES:
            found = found[-_KEPT:]
            try:
                write_whole(self._path, "".join(map(_render, found)).encode(), mode=0o600)
            except OSError as error:
                self._fail(error)
        return found[-_KEPT:]

    def add(self, line: str) -> None:
        if not line.strip() or self.lines[-1:] == [line]:
            return
        self.lines.append(line)
        if self._broken:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(self._path, flags, 0o600), "ab") as file:
                file.write(_render(line).encode())
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            self._warn(f"warning: the history is not kept: {error.strerror or error}: {self._path}")


def _render(line: str) -> str:
    return json.dumps(line, ensure_ascii=True) + "\n"


def _parse(line: str) -> str | None:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None
