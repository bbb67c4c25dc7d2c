"""Errors as a Python program is told them: by the keywords of `Agent`, not by the options of the command line.

Texts are written once, with options such as `--model offline`. The public functions translate what leaves them.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from contextlib import ContextDecorator
from types import TracebackType

from prowess.errors import ProwessError

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_NOT_THEIRS = (_OURS, *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
_KEYWORDS = (
    (re.compile(r"--(model|protocol|executor) ([\w:.-]+\w)"), r'\1="\2"'),
    (re.compile(r"--yes ([\w-]+)"), r'approve=["\1"]'),
    (re.compile(r"without --resume"), "without resume=True"),
    (re.compile(r"--resume\b"), "resume=True"),
    (re.compile(r"--force\b"), "force=True"),
    (re.compile(r"--input\b"), "files=[…]"),
    (re.compile(r'prowess run "…"'), 'agent.run("…")'),
)


class PythonDoor(ContextDecorator):
    """Around a public function: an error that leaves it names keywords, and its traceback begins here. What is below is
    ours, and the error says what to do without it."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, ProwessError):
            return
        error.message = with_keywords(error.message)
        if error.hint:
            error.hint = with_keywords(error.hint)
        cause = error.__cause__
        if cause is not None and not _is_foreign(cause):
            raise error.with_traceback(None) from None  # the message has the reason
        raise error.with_traceback(None)


def _is_foreign(cause: BaseException) -> bool:
    """True if code of the program is behind it, and not only ours, Python or a library."""
    paths = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
    return any(os.path.isabs(path) and not path.startswith(_NOT_THEIRS) for path in paths)


def with_keywords(text: str) -> str:
    if "--" not in text and "prowess run" not in text:
        return text
    for pattern, keyword in _KEYWORDS:
        text = pattern.sub(keyword, text)
    return text
