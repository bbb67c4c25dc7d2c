"""A file system gives the inode of a removed folder to the next one. The next one does not get its record."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from command_lines import run_here
from old_records import waiting
from prowess.core.events import Envelope
from prowess.core.values import SessionKey
from prowess.runtime.project_state import identify
from prowess.stores.sqlite import SqliteEventLog
from state_places import database_of, need_generations, state_of
from tiers import leave_out


def project_with_a_question(folder: Path) -> Path:
    """A project whose record has a waiting question and another folder's generation."""
    folder.mkdir()
    run_here(["init"], cwd=folder)
    run_here(["artifacts", "put", "-", "--name", "a.txt"], cwd=folder, input=b"x")
    need_generations(folder)

    async def write() -> None:
        async with SqliteEventLog(database_of(folder)) as log:
            key = SessionKey(session="s")
            lease = await log.lease(key)
            at = "2026-01-02T03:04:05.000000Z"
            await log.append(key, 0, lease, [Envelope(at=at, session="s", run="r-1", event=e) for e in waiting()])

    asyncio.run(write())
    return folder


def rewrite(folder: Path, **changes: object) -> None:
    file = state_of(folder) / "project.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_folder_with_the_inode_of_a_removed_one_answers_nothing(tmp_path: Path, is_reused: bool) -> None:
    folder = project_with_a_question(tmp_path / "a")
    if is_reused:
        rewrite(folder, generation=identify(str(folder)).generation ^ 1)
    listed = run_here(["approvals", "list", "--json"], cwd=folder)
    (question,) = json.loads(listed.out)["waiting"]
    assert (question["to_answer"] is None) == is_reused
    assert ("is another folder" in listed.err) == is_reused


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_folder_elsewhere_with_that_inode_takes_nothing_along(tmp_path: Path, is_reused: bool) -> None:
    folder = project_with_a_question(tmp_path / "a")
    if is_reused:
        rewrite(folder, generation=identify(str(folder)).generation ^ 1)
    os.rename(folder, tmp_path / "b")
    listed = run_here(["sessions", "list", "--json"], cwd=tmp_path / "b")
    assert (json.loads(listed.out)["sessions"] == []) == is_reused
    assert ("was taken along" in listed.err) != is_reused


def test_without_generations_the_person_is_told_how_to_take_a_record_along(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    if identify(str(folder)).generation:
        leave_out("this file system has generations of inodes")
    run_here(["init"], cwd=folder)
    run_here(["artifacts", "put", "-", "--name", "a.txt"], cwd=folder, input=b"x")
    os.rename(folder, tmp_path / "b")
    listed = run_here(["sessions", "list"], cwd=tmp_path / "b")
    assert f"may be {folder}" in listed.err and f"prowess projects adopt {folder}" in listed.err
    assert run_here(["projects", "adopt", str(folder), "--yes"], cwd=tmp_path / "b").code == 0
    assert run_here(["artifacts", "get", "a.txt"], cwd=tmp_path / "b").out == "x"
