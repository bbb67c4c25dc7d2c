"""Surroundings of a command about packs: where skills are installed, and what configuration and policy say."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict

from prowess._internal.folder_swap import recover
from prowess.packs.lock import PackPlace, find_place
from prowess.packs.values import ConfirmAddresses, Progress, StrPath, no_progress
from prowess.runtime.config import ConfigPlaces
from prowess.runtime.policy_files import find_denied_digests, find_problems
from prowess.runtime.runtime import open_runtime
from prowess.runtime.services.namesakes import find_precedence


class PackOptions(TypedDict, total=False):
    """Keywords that `install`, `update`, `uninstall`, `rollback` and `verify` share."""

    to: str  # place of the skills: `project` (the default), `user`, or a folder
    config: StrPath | None  # configuration file instead of the project's
    cwd: StrPath  # working folder; the default is that of the process
    environ: Mapping[str, str] | None  # variables instead of those of the process


class PackSettings(NamedTuple):
    """Surroundings as they were read at the start of a command."""

    place: PackPlace
    places: ConfigPlaces
    environ: Mapping[str, str]
    denied: Mapping[str, str]  # path of the policy by each digest that it denies
    notes: Sequence[str]  # why a policy denies nothing
    progress: Progress
    confirm_addresses: ConfirmAddresses
    tell_precedence: Callable[[str], str]  # which skill elsewhere has the name of a new one


def load_settings(
    progress: Progress = no_progress,
    confirm_addresses: ConfirmAddresses = lambda addresses: True,
    *,
    to: str = "project",
    config: StrPath | None = None,
    cwd: StrPath = ".",
    environ: Mapping[str, str] | None = None,
) -> PackSettings:
    """Reads configuration and policy, and cleans up after a command that was killed."""
    environ = os.environ if environ is None else environ
    config_file = None if config is None else os.fspath(config)
    with open_runtime(cwd=os.path.abspath(cwd), environ=environ, config_file=config_file) as runtime:
        place = find_place(to, runtime.places)
        recover(place.root)
        denied = find_denied_digests(runtime)
        notes = [each.message for each in find_problems(runtime) if each.code == "policy-ignored-untrusted"]
        tell = find_precedence(runtime, place.root)
    return PackSettings(place, runtime.places, environ, denied, notes, progress, confirm_addresses, tell)
