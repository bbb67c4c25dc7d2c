from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.skills.security_scan import PATTERNS, possible_patterns


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.code)
def test_every_match_has_one_of_the_words(pattern: object):
    number = next(n for n, each in enumerate(PATTERNS) if each is pattern)

    @given(st.from_regex(PATTERNS[number].expression))
    def holds(text: str) -> None:
        assert PATTERNS[number] in possible_patterns(text)

    holds()


def test_a_usual_text_needs_no_pattern():
    assert possible_patterns("# Steps\n\nRead references/guide.md, then run scripts/fill.py on the form.\n") == []
