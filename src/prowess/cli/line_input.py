"""Reads one line of stdin. Ctrl-C ends the wait at any moment: right before a read of its own, Python would raise
KeyboardInterrupt after that read, which waits for a person.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def read_line() -> str:
    """Waits for a line of a terminal, and returns it; nothing at the end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, woken], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wake)
    return sys.stdin.readline()


def confirm(question: str) -> bool:
    """Asks at the terminal. KeyboardInterrupt at the end of stdin, too."""
    while True:
        sys.stderr.write(f"{question} [y/N]: ")
        sys.stderr.flush()
        line = read_line()
        if not line:
            raise KeyboardInterrupt
        word = line.strip().lower()
        if word in ("", "n", "no"):
            return False
        if word in ("y", "yes"):
            return True
        sys.stderr.write("Not understood.\n")
