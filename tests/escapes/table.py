"""The expectations as a page: python -m tests.escapes.table

A row is a case, or, where attempts of one case have different answers, those attempts.
"""

from __future__ import annotations

from collections.abc import Iterator

from .cases import CASES, NOTES, TIERS, TRIES, Case, Try

WORDS = {"held": "held", "open": "**does not hold**", "unclaimed": "not claimed", "not applicable": "–"}
HEADS = {"local": "local", "bwrap": "sandbox: bubblewrap", "landlock": "sandbox: Landlock", "docker": "container"}


def render_table() -> str:
    lines = [
        "| | attempt | " + " | ".join(HEADS[tier] for tier in TIERS) + " |",
        "|---|---|" + "---|" * len(TIERS),
    ]
    notes: list[str] = []
    group = ""
    for case in CASES:
        if case.group != group:
            group = case.group
            lines.append(f"| | **{group}** |" + " |" * len(TIERS))
        for what, tries in _rows(case):
            cells = [WORDS[tries[0].expected(tier)] for tier in TIERS]
            numbers = "".join(f" [{_note(notes, each)}]" for each in tries[:1] if each.name in NOTES)
            lines.append(f"| {case.number} | {what}{numbers} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {text}" for number, text in enumerate(notes, 1)), ""]
    return "\n".join(lines)


def _rows(case: Case) -> Iterator[tuple[str, list[Try]]]:
    """Attempts with the same answers and the same note share a row; all of a case in one row need no list."""
    rows: dict[tuple[str, str], list[Try]] = {}
    for each in TRIES:
        if each.case == case.number:
            rows.setdefault((each.letters, NOTES.get(each.name, "")), []).append(each)
    for tries in rows.values():
        if len(rows) == 1:
            yield case.title, tries
        else:
            yield f"{case.title}: {'; '.join(each.what for each in tries)}", tries


def _note(notes: list[str], each: Try) -> int:
    if NOTES[each.name] not in notes:
        notes.append(NOTES[each.name])
    return notes.index(NOTES[each.name]) + 1


if __name__ == "__main__":
    print(render_table())
