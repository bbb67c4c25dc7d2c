"""Reads the parts of a policy file, and refuses a wrong part with the file, the line and a hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

from prowess.errors import ConfigError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 1_000  # characters of one text: the file may come from anyone


def read_texts(item: Mapping[str, Any], name: str, number: int, path: str, line: int | None) -> tuple[str, ...]:
    """Returns the value of a key of rule `number`: one text, or a list of texts."""
    value = item.get(name, [])
    texts = [value] if isinstance(value, str) else value
    of_rule = f"{name} of rule {number}"
    if not _is_list_of_texts(texts) or "" in texts:
        refuse(path, line, f"{of_rule} is neither a text nor a list of texts", f'Write: {name} = "…".')
    if any(len(text) > _LONGEST for text in texts):
        refuse(path, line, f"{of_rule} is longer than {_LONGEST} characters", "Use a pattern.")
    if name in item and not texts:
        refuse(path, line, f"{of_rule} is empty", "Remove it, or say what fits.")
    return tuple(texts)


def is_list_of_digests(value: object) -> bool:
    return _is_list_of_texts(value) and all(_DIGEST.fullmatch(item) for item in value)


def _is_list_of_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def count_texts(value: Any) -> int:
    """Counts texts and numbers at any depth."""
    if isinstance(value, dict):
        return sum(map(count_texts, value.values()))
    if isinstance(value, list):
        return sum(map(count_texts, value))
    return 1


def refuse_key(name: str, known: Sequence[str], path: str, line: int | None) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"There are: {', '.join(known)}."
    if near:
        hint = f"Did you mean '{near[0]}'?"
    refuse(path, line, f"unknown key '{name[:60]}'", hint)


def refuse(path: str, line: int | None, problem: str, hint: str) -> NoReturn:
    where = place(path, line)
    raise ConfigError(f"{where}: {printable(problem)}.", code="policy-invalid", hint=hint)


def place(path: str, line: int | None) -> str:
    if not line:
        return path
    return f"{path}:{line}"


def shown(example: object) -> str:
    """Returns an example for people: printable and short."""
    text = printable(str(example))
    if len(text) <= 120:
        return text
    return text[:117] + "…"


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
