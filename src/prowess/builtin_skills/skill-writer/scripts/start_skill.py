#!/usr/bin/env python3
"""Start a new skill: write out/NAME/SKILL.md from a template, with folders for scripts and references.

Exit codes: 0 done, 2 the name is not one a skill may have, 5 something is in the way or cannot be written.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent.parent / "assets" / "skill-template.md"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Problem(Exception):
    """Ends the script with one line on stderr and this exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(argv: list[str]) -> int:
    summary, _, codes = (__doc__ or "").partition("\n\n")
    parser = Parser(prog="start_skill.py", description=summary, epilog=codes)
    parser.add_argument("name", metavar="NAME", help="1 to 64 lower-case letters, digits and single hyphens")
    parser.add_argument("--out-dir", default="out", help="the folder that gets the skill's folder (default: out)")
    args = parser.parse_args(argv)
    if not NAME.fullmatch(args.name) or len(args.name) > 64:
        near = re.sub(r"[^a-z0-9]+", "-", args.name.lower()).strip("-")[:64].strip("-")
        meant = f"; '{near}' would do" if near else ""
        raise Problem(
            2, f"'{args.name}' is not a name for a skill: use lower-case letters, digits and single hyphens{meant}"
        )
    path = start(Path(args.out_dir, args.name), args.name)
    print(path)
    return 0


def start(folder: Path, name: str) -> Path:
    path = folder / "SKILL.md"
    if os.path.lexists(folder):
        raise Problem(5, f"{folder}: there is already something; choose another name or remove it")
    text = TEMPLATE.read_text(encoding="utf-8")
    title = name.replace("-", " ").capitalize()
    try:
        for child in ("scripts", "references"):
            (folder / child).mkdir(parents=True)
        path.write_bytes(text.replace("skill-name", name).replace("Skill title", title).encode())
    except OSError as error:
        raise Problem(5, f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    return path


class Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[override]
        raise Problem(2, f"{message}; see: python3 scripts/{self.prog} --help")


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except Problem as problem:
        print(f"start_skill.py: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(problem.code)
