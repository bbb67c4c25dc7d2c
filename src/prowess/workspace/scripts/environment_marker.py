"""Recognizes the condition of a requirement (`python_version < "3.12"`). Installers evaluate it."""

from __future__ import annotations

import re

_VARIABLES = "python_version python_full_version os[._]name sys[._]platform platform_release platform_system"
_VARIABLES += " platform[._]version platform[._]machine platform[._]python_implementation python_implementation"
_VARIABLES += " implementation_name implementation_version extra"
_VALUE = rf"""(?:'[^']*+'|"[^"]*+"|\b(?:{"|".join(_VARIABLES.split())})\b)"""
_OPERATOR = r"(?:===|~=|==|!=|<=|>=|<|>|\bnot\s++in\b|\bin\b)"
_COMPARISON = re.compile(rf"({_VALUE})\s*+{_OPERATOR}\s*+({_VALUE})")
_GROUP = re.compile(r"\(\s*+#(?:\s*+\b(?:and|or)\b\s*+#)*+\s*+\)|#(?:\s*+\b(?:and|or)\b\s*+#)++")


def is_marker(text: str) -> bool:
    """True for a valid condition. Replaces comparisons with `#`, then their combinations, until only `#` is left."""
    if "#" in text:
        return False
    text, before = _COMPARISON.sub(_shorten, text.strip()), ""
    while text != before:
        text, before = _GROUP.sub("#", text), text
    return text == "#"


def _shorten(found: re.Match[str]) -> str:
    """Replaces a comparison with `#`. A comparison of two literal texts stays: it is not valid."""
    return found[0] if found[1][0] in "'\"" and found[2][0] in "'\"" else "#"
