"""What a run writes is looked at from time to time, and a run that writes too much is ended.

It is a best effort: a fast writer is over the limit before the next look. The executor's own limits hold in between.
"""

from __future__ import annotations

import asyncio
import os

from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import walk
from prowess.workspace.layout import Layout

LOOK_S = 1.0
MAX_ENTRIES = 200_000


async def watch_disk(layout: Layout, run: str, limit_bytes: int | None) -> str:
    """Returns only when this run has written more than that, with a sentence about it."""
    if limit_bytes is None:
        await asyncio.Event().wait()
        return ""
    before = await asyncio.to_thread(measure, layout, run)
    while True:
        await asyncio.sleep(LOOK_S)
        now = await asyncio.to_thread(measure, layout, run)
        if now is None and before is not None:
            return f"It made more than {MAX_ENTRIES} files and was ended for that."
        wrote = (now or 0) - (before or 0)
        if wrote > limit_bytes:
            return f"It wrote {wrote} bytes, which is more than the limit of {limit_bytes}, and was ended for that."


def measure(layout: Layout, run: str) -> int | None:
    """Bytes on disk below work/, out/, the run's own folder, skills/ and venvs/, where a .venv is; None when there are
    too many files to count."""
    total = 0
    above = os.path.dirname(layout.root)
    own = [(layout.root, folder) for folder in ("work", "out", f"runs/{run}", "skills")]
    for root, folder in (*own, (above, "venvs")):
        try:
            total += sum(status.st_blocks * 512 for _, status, _, _ in walk(root, folder, max_entries=MAX_ENTRIES))
        except WorkspaceError:
            return None
        except OSError:  # it goes on while we look
            continue
    return total
