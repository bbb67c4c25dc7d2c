"""Turns what foreign code raises into an error of ours."""

from __future__ import annotations

import os
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from prowess._internal.own_line import describe_error
from prowess.errors import ProwessError


async def find_error(work: Awaitable[object]) -> ProwessError | None:
    """Waits for work, and returns the error that it ended with. The text of a foreign exception is left out, because it
    may have credentials."""
    try:
        await work
    except ProwessError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a model or a tool may be foreign code
        frames = traceback.extract_tb(error.__traceback__)
        place = f" in {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
        what = f"The run failed with {type(error).__name__}{place}."
        return ProwessError(what, code="run-crashed", hint="Run it alone.")
    return None


@contextmanager
def catching(what: str, make: Callable[[str], ProwessError]) -> Iterator[None]:
    """Turns an exception of foreign code into the error that `make` makes of its text. An error of ours stays."""
    try:
        yield
    except ProwessError:
        raise
    except Exception as error:  # an object that a program gave is foreign code
        text = f"{what} failed: {describe_error(error)}"
        raise make(text[:500]) from error
