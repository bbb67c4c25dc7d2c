"""Matches a pattern against texts in a separate process, so that an endless match can be killed.

Runs as a script and imports nothing of Prowess. Reads JSON lines on stdin: first the pattern, then for each text a
header, followed by the bytes of the text. Writes JSON lines on stdout.
"""

import contextlib
import json
import re
import resource
import sys

MEMORY = 1 << 30


def main() -> None:
    wanted = json.loads(sys.stdin.buffer.readline())
    _bound(resource.RLIMIT_AS, MEMORY)
    _bound(resource.RLIMIT_CPU, wanted["seconds"])  # ends it also when the parent process is gone
    flags = re.IGNORECASE if wanted["ignore_case"] else 0
    try:
        pattern = re.compile(wanted["pattern"], flags)
    except re.error as error:
        _say({"error": error.msg, "at": error.pos})
        return
    except (OverflowError, RecursionError, MemoryError) as error:
        _say({"error": f"it cannot be compiled ({type(error).__name__})", "at": None})
        return
    left = wanted["most"]
    while head := sys.stdin.buffer.readline():
        number, size = json.loads(head)
        _say({"file": number})
        text = sys.stdin.buffer.read(size).decode("utf-8", "replace")
        for at, line in enumerate(text.splitlines(), 1):
            found = pattern.search(line)
            if found is None:
                continue
            if left == 0:
                _say({"more": True})
                return
            left -= 1
            text = _cut(line, found.start(), wanted["width"])
            _say({"line": at, "text": text})
    _say({"done": True})


def _cut(line: str, start: int, width: int) -> str:
    """Returns the part of a long line around the start of the match."""
    if len(line) <= width:
        return line
    last = len(line) - width + 1  # the latest beginning that fills the width
    begin = max(0, min(start - width // 3, last))
    end = begin + width - 1
    piece = line[:end]
    if begin:
        piece = "…" + piece[begin + 1 :]
    if end < len(line):
        piece += "…"
    return piece


def _bound(what: int, limit: int) -> None:
    _, most = resource.getrlimit(what)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    with contextlib.suppress(ValueError, OSError):  # not every system has every limit
        resource.setrlimit(what, (limit, most))


def _say(answer: dict[str, object]) -> None:
    line = json.dumps(answer)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
