"""How far is the token estimate from the real count, on these files?

    python benchmarks/calibrate_tokens.py path/to/skills docs README.md

Takes files and folders, needs the extra `tokens`, prints the error in percent for each kind of text: p5, p50, p95.
A SKILL.md is counted twice, as the body a model loads and as the catalog entry it is shown first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prowess._internal.tokens import estimate, estimate_bytes, get_counter

_SUFFIXES = {
    ".md",
    ".txt",
    ".rst",
    ".py",
    ".js",
    ".ts",
    ".sh",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".html",
    ".css",
    ".po",
}
_FRONT_MATTER = re.compile(r"---\s*\n(.*?)\n---\s*\n(.*)", re.DOTALL)
_SCRIPTS = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
)


class Row(NamedTuple):
    kind: str
    files: int
    p5: float
    p50: float
    p95: float
    by_size_p50: float


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(f"{'kind':24}{'texts':>7}{'p5':>8}{'p50':>8}{'p95':>8}   {'size/4 p50':>10}")
    for row in measure(find_texts(map(Path, sys.argv[1:]))):
        print(f"{row.kind:24}{row.files:7}{row.p5:+8.1f}{row.p50:+8.1f}{row.p95:+8.1f}   {row.by_size_p50:+10.1f}")


def measure(texts: Iterable[tuple[str, str]]) -> list[Row]:
    exact = get_counter(exact=True)
    errors: dict[str, list[tuple[float, float]]] = {}
    for kind, text in texts:
        truth = exact(text)
        pair = tuple(100 * (guess - truth) / truth for guess in (estimate(text), estimate_bytes(len(text.encode()))))
        errors.setdefault(kind, []).append((pair[0], pair[1]))
    rows = []
    for kind, pairs in sorted(errors.items()):
        guesses = sorted(pair[0] for pair in pairs)
        by_size = sorted(pair[1] for pair in pairs)
        p5, p50, p95 = (at(guesses, part) for part in (0.05, 0.5, 0.95))
        rows.append(Row(kind, len(pairs), p5, p50, p95, at(by_size, 0.5)))
    return rows


def find_texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and (file.suffix in _SUFFIXES or file == path):
                yield from texts_of(file)


def texts_of(file: Path) -> Iterator[tuple[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    front = _FRONT_MATTER.match(text) if file.suffix == ".md" else None
    description = re.search(r"^description:\s*(\S.*)$", front[1], re.MULTILINE) if front else None
    name = re.search(r"^name:\s*(\S.*)$", front[1], re.MULTILINE) if front else None
    if front and name and description:
        yield f"skill body {script_of(front[2])}", front[2]
        yield f"catalog entry {script_of(description[1])}", f"- {name[1]}: {description[1]}\n"
    elif len(text) >= 200:
        yield f"{file.suffix or 'text'} {script_of(text)}", text


def script_of(text: str) -> str:
    """Kana decides before Han, because Japanese has both."""
    return next((name for name, script in _SCRIPTS if len(script.findall(text)) > 0.05 * len(text)), "")


def at(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


if __name__ == "__main__":
    main()
