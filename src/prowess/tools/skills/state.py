"""How a session's state says which skills are in use and which of their docs are selected; how their texts are called.

The keys are those of the source documents: `temp:skill:loaded:<name>` is "1", `temp:skill:docs:<name>` is "*" or a JSON
array. A text in view has a ref: the skill and its digest, and behind a slash the doc, if it is not the body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

LOADED_KEY = "temp:skill:loaded:"
DOCS_KEY = "temp:skill:docs:"
ALL = "*"


def parse_docs(value: Any) -> list[str] | None:
    """The selected docs as they were named; None is all of them. Anybody can write to the state: what is not a
    selection selects nothing."""
    if value == ALL:
        return None
    try:
        docs = json.loads(value) if isinstance(value, str) else []
    except (ValueError, RecursionError):
        return []
    return [doc for doc in docs if isinstance(doc, str)] if isinstance(docs, list) else []


def render_docs(docs: Sequence[str]) -> str | None:
    """None when nothing is selected: that removes a key."""
    return json.dumps(list(docs), ensure_ascii=False, separators=(",", ":")) if docs else None


def part_ref(id: str, digest: str, path: str = "") -> str:
    body = f"skill://{id}@{digest}"
    return f"{body}/{path}" if path else body
