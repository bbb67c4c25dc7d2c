"""Finds criteria of a rule that allows which no plain call can match for certain, by trying samples of such calls."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from prowess.core.values import Located
from prowess.policy.call_arguments import Misfit
from prowess.policy.commands.rules import CommandRule, certainly_fits
from prowess.policy.globs import match_path
from prowess.policy.url_match import fits_url, urls_like


def find_uncertain(paths: Sequence[str], urls: Sequence[str], commands: Sequence[CommandRule]) -> Misfit | None:
    """Returns why no path, no URL or no command of a rule that allows is certain; None when each criterion can fit."""
    if paths and not any(map(_can_fit_path, paths)):
        hint = "Write it without '..', backslashes and control characters."
        return Misfit("what allows has to be certain, and no plain path is like that", hint)
    if urls and not _can_fit_url(urls):
        hint = "Write it as it is asked for: without a user, '..', '//', '#', and nothing encoded that need not be."
        return Misfit("what allows has to be certain, and no plain URL is like that", hint)
    if commands and not any(map(_can_fit_command, commands)):
        hint = "Name a program of the system, or a file of the skill below its folder that no run can change."
        return Misfit("what allows has to be certain, and no such command is", hint)
    return None


def locate_anywhere(name: str) -> Located:
    """Locates every program: rules and examples are independent of the machine."""
    return Located(name)


def _can_fit_path(pattern: str) -> bool:
    filled = _filled(pattern)
    samples = (filled, f"{filled}a", ".")  # `docs/` means everything below it
    return any(match_path(pattern, path) for path in samples)


def _can_fit_url(urls: Sequence[str]) -> bool:
    for url in urls:
        samples = urls_like(url)
        if any(fits_url(urls, text, strict=True) for text in samples):
            return True
    return False


def _can_fit_command(command: CommandRule) -> bool:
    for text in _commands_like(command):
        found = certainly_fits([command.words], {"command": text}, locate_anywhere)
        if found.fits:
            return True
    return False


def _commands_like(command: CommandRule) -> Iterator[str]:
    text = shlex.join(map(_filled, command.words))
    yield text
    yield f"{text} a"
    yield f"{text} {text}"
    yield shlex.join(command.words)


def _filled(pattern: str) -> str:
    """Returns a text that the pattern matches, in the usual case."""
    without_folders = re.sub(r"(?<!\*)\*\*++/", "", pattern)
    return re.sub(r"\*+|\?", "a", without_folders)
