"""Names that begin with a time, such as `20260102T030405.678Z-a1b2c3`, for folders of runs. They sort by time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence


def new_name() -> str:
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{rest // 1_000_000:03}Z-{secrets.token_hex(3)}"


def find_names(known: Sequence[str], wanted: str) -> list[str]:
    """Returns the name that is wanted, or those that begin or end so. `latest` is the last one."""
    if wanted == "latest":
        return list(known[-1:])
    if wanted in known:
        return [wanted]
    return [name for name in known if wanted and (name.startswith(wanted) or name.endswith(wanted))]
