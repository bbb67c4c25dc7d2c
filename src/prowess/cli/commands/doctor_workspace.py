"""Option `prowess doctor --workspace`: shows every way to run a script here, and what isolation holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prowess.cli.approver import is_ours
from prowess.cli.screen import Screen, count, printable, size
from prowess.runtime.services.doctor_workspace import DIFFERS

AS_YOU = "A script runs as you: what you can read, change or end, it can; your keys, record and approvals too."
YOUR_MODES = "as you, a script can change the mode and times of files that are yours, though not read or write them"


def show_workspace(screen: Screen, document: dict[str, Any]) -> None:
    screen.text()
    screen.heading("Workspace")
    isolation, error = document["isolation"], document["error"]
    if isolation is not None:
        inside = f"{isolation['mechanism']}, user {isolation['uid']}, network {isolation['network']}"
        screen.text(f"  executor: {document['configured']}, which here means {isolation['executor']} ({inside})")
        limits = " · ".join(f"{name} {held}" for name, held in isolation["limits"].items())
        screen.text(f"  limits: {limits}")
        for note in isolation["notes"]:
            screen.text(f"  note: {printable(note)}")
        if isolation["executor"] == "local" and is_ours(isolation["uid"]):
            screen.text(f"  note: {AS_YOU}")
        if isolation["executor"] == "local":
            _show_differences(screen, DIFFERS["none"])
    if error is not None:
        screen.text(f"  executor: {document['configured']}: NOTHING CAN RUN: {printable(error['message'])}")
        screen.text(f"    {printable(error['hint'] or '')} [{error['code']}]")
    for sandbox in document["sandboxes"]:
        held = [promise for promise, holds in sandbox["held"].items() if holds]
        broken = [promise for promise, holds in sandbox["held"].items() if not holds]
        state = f"works, {len(held)} of {len(sandbox['held'])} promises held" if sandbox["works"] else "does not work"
        screen.text(f"  {sandbox['mechanism']}: {state}")
        if sandbox["error"]:
            screen.text(f"    {printable(sandbox['error'])}")
        if broken:
            screen.text(f"    broken: {', '.join(broken)}")
        elif held:
            screen.text(f"    {' · '.join(held)}")
        if sandbox["works"] and sandbox["mechanism"] == "landlock+seccomp" and is_ours(sandbox["uid"]):
            screen.text(f"    not held: {YOUR_MODES}")
        if sandbox["works"]:
            _show_differences(screen, sandbox["differs"])
    container = document["container"]
    if container["works"]:
        found = container["isolation"]
        limits = " · ".join(f"{name} {held}" for name, held in found["limits"].items())
        screen.text(f"  container: works ({found['mechanism']}, user {found['uid']}); {limits}")
        _show_differences(screen, container["differs"])
    else:
        screen.text(
            f"  container: {printable(container['error']['message'])} {printable(container['error']['hint'] or '')}"
        )
    screen.text(f"  {count(document['workspaces'], 'workspace')}, {size(document['size_bytes'])}, in {document['dir']}")


def _show_differences(screen: Screen, differences: Sequence[str]) -> None:
    if differences:
        screen.text(f"    differs: {' · '.join(differences)}")
