"""Parts that the commands install, update, uninstall, rollback and verify share: `--to`, options, hints of errors, and
an end in order after a signal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from prowess.cli.call import Call
from prowess.errors import PackError
from prowess.packs.lock import find_place, read_lock
from prowess.packs.settings import PackOptions
from prowess.runtime.config import find_places


def pack_options(call: Call, to: str) -> PackOptions:
    """Returns the options that all functions of `prowess.packs` take."""
    config = call.options.get("config_file")
    return {"to": to, "config": config, "cwd": call.cwd}


@contextmanager
def other_place_hint(call: Call, names: Sequence[str], to: str) -> Iterator[None]:
    """Says so when a skill that is not installed in the project is installed in the home of the person."""
    try:
        yield
    except PackError as error:
        if error.code == "not-installed" and to == "project":
            places = find_places(call.cwd, os.environ)
            home = find_place("user", places)
            lock = read_lock(home)
            found = [name for name in names if name in lock]
            if found:
                error.hint = f"'{found[0]}' is installed in your home. Add: --to user"
        raise


@contextmanager
def repository_hint(call: Call, sources: Sequence[str]) -> Iterator[None]:
    """Says so when `owner/repo` cannot be read and may have been meant as a folder."""
    try:
        yield
    except PackError as error:
        if error.code in ("git-no-access", "git-unreachable"):
            for source in sources:
                name = re.split("[@#]", source)[0]
                address = f"https://github.com/{name.removesuffix('.git')}"
                if address in error.message:
                    told = _folder_hint(call, name)
                    error.hint = f"owner/repo means GitHub; {told}. {error.hint}"
        raise


def _folder_hint(call: Call, name: str) -> str:
    folder = os.path.join(call.cwd, name)
    if os.path.exists(folder):
        return f"for the folder: ./{name}"
    return f"./{name} does not exist"


@contextmanager
def end_in_order() -> Iterator[None]:
    """Turns SIGTERM, and SIGHUP of a terminal that was closed, into an exception, so that git is killed and prepared
    files are removed. The exit code is 143 or 129. A signal that is ignored, as by nohup, stays ignored."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int, _: object) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # so that the clean-up is not interrupted
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except SystemExit:
        with suppress(OSError):  # the terminal may be gone
            sys.stderr.write("Terminated.\n")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
