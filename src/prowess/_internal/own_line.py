"""Finds the line of foreign code that raised an exception."""

from __future__ import annotations

import os
import traceback

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


def describe_raised(what: str, error: BaseException) -> str:
    """Returns `approve raised ValueError: no (app.py:12 in ask_me)`, with the whole path."""
    text = f"{what} raised {describe_error(error)}"
    at = find_own_line(error)
    if not at:
        return text
    return f"{text} ({at})"


def describe_error(error: BaseException) -> str:
    """Returns `ValueError: no`, also if the exception cannot be made a text."""
    safe = traceback.TracebackException.from_exception(error, limit=0)
    return f"{type(error).__name__}: {safe}"


def find_own_line(error: BaseException) -> str:
    """Returns `shop.py:12 in stock` with the whole path: the innermost line in the file of the function that we called.
    Libraries that the function calls are left out. Empty if the exception has no traceback."""
    foreign: list[traceback.FrameSummary] = []  # below the last line of ours
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(_OURS):
            foreign = []
        else:
            foreign.append(frame)
    if not foreign:
        return ""
    own = [frame for frame in foreign if frame.filename == foreign[0].filename]
    last = own[-1]
    return f"{last.filename}:{last.lineno} in {last.name}"
