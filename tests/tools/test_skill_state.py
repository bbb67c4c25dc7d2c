"""What a session's state says of docs is read by tools and by requests alike, whoever wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.tools.skills.state import ALL, parse_docs, part_ref, render_docs


@given(st.lists(st.text(), min_size=1))
def test_a_selection_comes_back_as_it_was_written(docs: list[str]) -> None:
    assert parse_docs(render_docs(docs)) == docs


def test_all_and_none_of_them() -> None:
    assert parse_docs(ALL) is None
    assert render_docs([]) is None and parse_docs(None) == []


@pytest.mark.parametrize("value", ["", "[", "{}", "null", '"*"', 5, ["a.md"], {"a.md": 1}, "[" * 9999])
def test_what_is_no_selection_selects_nothing(value: Any) -> None:
    assert parse_docs(value) == []


def test_of_a_mixed_list_only_names_count() -> None:
    assert parse_docs('[["a.md"], {"b.md": 1}, 7, null, "c.md"]') == ["c.md"]


def test_refs_of_a_body_and_of_a_doc() -> None:
    assert part_ref("user:pdf", "sha256:1") == "skill://user:pdf@sha256:1"
    assert part_ref("user:pdf", "sha256:1", "refs/a b.md") == "skill://user:pdf@sha256:1/refs/a b.md"
