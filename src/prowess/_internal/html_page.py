"""Fills the template of an HTML page that needs no network.

Data is embedded as JSON, and the page's own script makes every element with `textContent`, so text of others never
becomes markup. The template's policy allows the script with the digest at @SCRIPT@, and no other.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re

_MARK = re.compile("@(SCRIPT|TITLE|SUMMARY|DATA)@")


def fill_page(page: str, *, title: str, summary: str, data: object) -> str:
    """Fills in the marks of a template. `summary` is for readers without scripts."""
    _, _, rest = page.partition("<script>")
    script, _, _ = rest.partition("</script>")
    digest = hashlib.sha256(script.encode()).digest()
    embedded = json.dumps(data, separators=(",", ":"))  # ASCII only
    values = {
        "SCRIPT": base64.b64encode(digest).decode(),
        "TITLE": html.escape(title),
        "SUMMARY": html.escape(summary),
        "DATA": embedded.replace("<", "\\u003c"),
    }
    return _MARK.sub(lambda mark: values[mark[1]], page)  # one pass: text that looks like a mark stays as it is
