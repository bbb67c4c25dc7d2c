"""Made-up skills that a model should not choose. They are the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from functools import cache
from pathlib import Path

from prowess.errors import EvalError
from prowess.skills.skill import Skill

_BODY = "Ask for what is missing. Do the work that the description names, and nothing else. Check the result."


def choose_distractors(count: int, seed: int, taken: Collection[str]) -> tuple[Skill, ...]:
    """Returns as many skills, whose names are not taken. A larger count adds to the same skills."""
    names = read_distractors().keys() - {*taken}
    # `random` may choose differently in another Python.
    free = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    if count > len(free):
        what = f"{count} distractors are wanted, but there are {len(free)}."
        raise EvalError(what, code="distractors-too-many", hint=f"Set catalog.distractors to {len(free)} or less.")
    return tuple(map(_make_skill, free[:count]))


@cache
def read_distractors() -> dict[str, str]:
    """Reads the names and descriptions of all that there are."""
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


@cache
def _make_skill(name: str) -> Skill:
    description = json.dumps(read_distractors()[name], ensure_ascii=False)
    return Skill.from_text(f"---\nname: {name}\ndescription: {description}\n---\n\n{_BODY}\n")
