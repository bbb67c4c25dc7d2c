"""Everything that is tried in one start of the sandbox."""

from __future__ import annotations

import os

import devices  # noqa: F401
import files  # noqa: F401
import harness
import neighbours  # noqa: F401
import network  # noqa: F401
import surface  # noqa: F401

if "TASK" not in os.environ:  # these are for those who have a terminal
    for name in ("tty-type", "tty-paste", "tty-forge", "tty-keys"):
        del harness.ATTEMPTS[name]

if __name__ == "__main__":
    harness.main()
