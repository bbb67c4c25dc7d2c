"""The threat model says what the hostile cases show: its table is theirs, and there are as many as were promised."""

from __future__ import annotations

from pathlib import Path

from hostile.table import ATTACKERS, load_cases, render_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "threat-model.md"
START, END = "<!-- table: tests/hostile/table.py -->\n", "<!-- end of the table -->"


def test_the_page_has_the_table_of_the_cases() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition(START)[2].partition(END)[0].strip("\n") + "\n"
    assert table == render_table(), "python -m hostile.table, in tests/, prints it as it should be"


def test_every_attacker_has_a_chapter_and_cases() -> None:
    cases = load_cases()
    assert len(cases) >= 30
    text = PAGE.read_text(encoding="utf-8")
    for key, attacker in ATTACKERS.items():
        assert f"## {attacker}\n" in text
        assert any(each.by == key for each in cases), attacker
