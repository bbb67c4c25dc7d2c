"""Finds the user that scripts run as, from the setting workspace.run_as."""

from __future__ import annotations

import os
import pwd

from prowess.errors import ConfigError
from prowess.workspace.isolation.selftest import DEFAULT_UID


def find_uid(wanted: str | int | None) -> int | None:
    """Returns the user id for scripts when we are root. Returns None when we are not: scripts then run as our user."""
    if wanted is None:
        return DEFAULT_UID if os.geteuid() == 0 else None
    uid = _uid_of(wanted)
    if os.geteuid() == 0:
        return uid
    if uid != os.geteuid():
        raise ConfigError(
            f"workspace.run_as names '{wanted}', but only root can run scripts as another user.",
            code="run-as-not-root",
            hint="Start Prowess as root, or leave the setting out: scripts then run as you.",
        )
    return None


def _uid_of(wanted: str | int) -> int:
    if isinstance(wanted, str) and not wanted.isdigit():
        try:
            return pwd.getpwnam(wanted).pw_uid
        except KeyError:
            raise ConfigError(
                f"workspace.run_as names '{wanted}', but there is no such user.",
                code="run-as-unknown",
                hint="Name a user of this machine, or a number.",
            ) from None
    return int(wanted)
