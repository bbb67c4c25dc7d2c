"""Unpacks a download that holds skills: an archive, or one SKILL.md by itself. The content decides, not the name."""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator

from prowess._internal.archive import extract
from prowess._internal.digest import content_sha256
from prowess._internal.files import read_regular, write_whole
from prowess.errors import PackError

MAX_SKILL_BYTES = 1024 * 1024  # of one SKILL.md
ARCHIVE_ENDINGS = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")
_PLAIN_NAME = re.compile(r"\w[\w.-]{0,63}")
_ENDING = re.compile(r"\.(zip|skill|tar|tar\.gz|tgz|md|git)$", re.IGNORECASE)


def unpack(
    download: str, into: str, *, shown: str = "The download", report: Callable[[int], None] | None = None
) -> dict[str, str]:
    """Unpacks the download into a new folder, and returns the sorted paths of its files with the sha256 of each. Errors
    begin with `shown`.
    `report` gets the number of members so far."""
    try:
        return extract(download, into, report=report)
    except PackError as error:
        if error.code != "archive-unknown":
            error.message = f"{shown}: {error.message}"
            raise
    data = read_regular(download, MAX_SKILL_BYTES, follow=True)
    if len(data) > MAX_SKILL_BYTES or next(text_lines(data), None) != "---":
        subject = "This" if data else "This file is empty: it"
        message = f"{shown}: {subject} is neither an archive nor a SKILL.md."
        hint = "Use a .zip, .tar or .tar.gz file, or a SKILL.md that begins with '---'."
        raise PackError(message, code="archive-unknown", hint=hint)
    write_whole(os.path.join(into, "SKILL.md"), data)
    return {"SKILL.md": content_sha256(data)}


def text_lines(data: bytes) -> Iterator[str]:
    """Yields the lines of a text, without blanks at their ends."""
    text = data.decode("utf-8-sig", "replace")
    return (line.rstrip() for line in text.splitlines())


def name_from_url(url: str) -> str:
    """Returns the name that a URL or a path gives to a skill without a name: `…/pdf-forms.zip`,
    `…/pdf-forms/SKILL.md`."""
    with contextlib.suppress(ValueError):
        path = urllib.parse.urlsplit(url).path
        parts = [urllib.parse.unquote(part) for part in path.split("/") if part]
        if not parts:
            return "skill"
        name = _ENDING.sub("", parts[-1])
        if name.lower() == "skill" and len(parts) > 1:
            name = parts[-2]
        if _PLAIN_NAME.fullmatch(name):
            return name
    return "skill"
