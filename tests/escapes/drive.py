"""One tier's whole story, in a process of its own, as JSON: python -m escapes.drive TIER

As root it refuses to begin outside a private mount namespace: among the attempts are mounts, and without a sandbox
around them they succeed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from escapes import tiers
from escapes.collecting import Collecting
from escapes.doors import Doors
from escapes.lifetime import Lifetime, hold
from escapes.limits import TIGHT, Limits
from escapes.scene import ORDINARY, Scene
from escapes.story import Found, Story
from prowess.core.codec import to_json
from prowess.errors import WorkspaceUnavailable


def check_as_root_outside_a_private_mount_namespace() -> None:
    if os.geteuid() != 0:
        return
    theirs, ours = (os.readlink(f"/proc/{pid}/ns/mnt") for pid in (os.getppid(), "self"))
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        shared = [line.split()[4] for line in file if " shared:" in line]
    if theirs == ours or shared:
        raise SystemExit(
            "Escapes are not attempted as root outside a private mount namespace. "
            "Start it as: unshare -m --propagation private -- python -m escapes.drive TIER"
        )


async def tell(tier: str, *, quick: bool) -> dict[str, Any]:
    """`quick` leaves out what is told about the same tier elsewhere."""
    uid = ORDINARY if os.geteuid() == 0 and tier != "root" else None
    report: dict[str, Any] = {"attempts": {}, "seconds": {}}
    with Scene(uid) as scene:
        scene.leak()
        open_executor = partial(tiers.open_executor, tier, cache=str(scene.base / "cache"))
        executor = open_executor()
        try:
            report["isolation"] = to_json(await executor.isolation())
        except WorkspaceUnavailable as error:
            return {"unavailable": str(error)}
        story = Story(tier, scene, executor, uid)
        limits = Limits(story, lambda low: open_executor(limits=low))
        lifetime, collecting = Lifetime(story, lambda: open_executor(limits=TIGHT)), Collecting(story)
        doors = Doors(story, open_executor)
        parts: list[Callable[[], Awaitable[Found]]] = [story.attempts, story.between]
        if tier == "root":  # only what needs its rights
            parts += [limits.room, doors.settings]
        elif tier == "docker-tar":  # only what is different when files are carried
            parts += [story.odd, collecting.hostile_files, collecting.deep]
        else:
            parts += [story.terminal, limits.room, collecting.hostile_files, doors.names, doors.folders]
            if not quick:
                parts += [story.odd, collecting.changing, collecting.deep, doors.settings, limits.use, limits.memory]
                parts += [limits.jobs, limits.neighbours, lifetime.ends, lifetime.orphaned]
            if tier in ("control", "bwrap") and not quick:
                parts.append(partial(story.proxied, lambda hosts: open_executor(network_allow=hosts)))
            if tier == "docker":
                parts.append(doors.engine)
        for part in parts:
            began = time.monotonic()
            report["attempts"] |= await part()
            report["seconds"][getattr(part, "__name__", "proxied")] = round(time.monotonic() - began, 2)
        report["needs"] = await story.needs()
        await limits.aclose()
        await executor.aclose()
        report["attempts"] |= lifetime.left_behind()
    return report


def main(args: list[str]) -> None:
    if args[0] == "hold":
        tier, dir = args[1:]
        uid = ORDINARY if os.geteuid() == 0 else None
        asyncio.run(hold(dir, tiers.open_executor(tier, cache=f"{dir}/cache", limits=TIGHT), uid))
        return
    check_as_root_outside_a_private_mount_namespace()
    print(json.dumps(asyncio.run(tell(args[0], quick="quick" in args[1:])), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
