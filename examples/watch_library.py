"""Skills come, change and go while a program runs: a Library reads them again and says what happened.

Run it from anywhere: python examples/watch_library.py

Prints:

    at first: nothing
    added: explicit:tides
    changed: explicit:tides
    whoever held the old catalog still has it: Tells the tides. Use when somebody asks about tides.
    removed: explicit:tides
    The skill 'tides' was removed since this catalog was first read.
    Go on without it, or restore its folder.

With prowess[watch] installed, library.watch(tell) does the reloading whenever a file changes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import prowess


def tell(changes: prowess.Changes) -> None:
    for what, ids in changes._asdict().items():
        if ids:
            print(f"{what}: {', '.join(ids)}")


def write_skill(folder: Path, description: str) -> None:
    folder.mkdir(exist_ok=True)
    text = f"---\nname: {folder.name}\ndescription: {description}\n---\nLook at the table of tides.\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        tides = Path(root, "tides")
        library = prowess.Library([root])
        print("at first:", ", ".join(entry.id for entry in library.catalog) or "nothing")

        write_skill(tides, "Tells the tides. Use when somebody asks about tides.")
        tell(library.reload())

        held = library.catalog
        write_skill(tides, "Tells the tides of any harbour. Use when somebody asks about tides or harbours.")
        tell(library.reload())
        print("whoever held the old catalog still has it:", held.get("tides").description)

        shutil.rmtree(tides)
        tell(library.reload())
        try:
            prowess.load(library.catalog, "tides")
        except prowess.SkillNotFound as error:
            print(error)


if __name__ == "__main__":
    main()
