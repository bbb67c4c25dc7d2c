"""Reads and writes the session state of loaded skills and selected docs, and builds the refs of their texts.

The keys are those of the source documents: `temp:skill:loaded:<name>` is "1", `temp:skill:docs:<name>` is "*" or a JSON
array. A text in view has a ref: `skill://<id>@<digest>` for the body, with `/<path>` added for a doc.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

LOADED_KEY = "temp:skill:loaded:"
DOCS_KEY = "temp:skill:docs:"
ALL = "*"


def parse_docs(value: Any) -> list[str] | None:
    """Returns the selected docs as they were named; None means all docs. Anyone can write to the state, so an invalid
    value selects nothing."""
    if value == ALL:
        return None
    if not isinstance(value, str):
        return []
    try:
        docs = json.loads(value)
    except (ValueError, RecursionError):
        return []
    if not isinstance(docs, list):
        return []
    return [doc for doc in docs if isinstance(doc, str)]


def render_docs(docs: Sequence[str]) -> str | None:
    """Renders the selection for the state. None, which removes the key, if nothing is selected."""
    if not docs:
        return None
    return json.dumps(list(docs), ensure_ascii=False, separators=(",", ":"))


def part_ref(id: str, digest: str, path: str = "") -> str:
    body = f"skill://{id}@{digest}"
    if not path:
        return body
    return f"{body}/{path}"
