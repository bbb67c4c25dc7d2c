"""Stores permanent approvals: one capability of one content of a skill. Changed content is asked about again.

The file is `<state_dir>/approvals.json`. It is read again when it changes, so a revocation holds from the next call on.
An unreadable file approves nothing, and is moved aside before a new one is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from prowess._internal.json_file import UserFile, file_signature, now
from prowess.core.catalog_values import Finding
from prowess.core.events import ApprovalAnswered
from prowess.core.findings import Note, make_finding, visible
from prowess.errors import StoreError
from prowess.skills.skill import Skill

SCHEMA = "prowess.approvals/1"
ALLOWED_TOOLS = "allowed-tools"  # the capability that lets a skill's own list grant too

Files = tuple[tuple[str, str], ...]


class Standing(NamedTuple):
    """Permanent approval. `files` records the approved content, to show later changes: path -> sha256, with `+x` when
    executable."""

    skill: str
    digest: str
    capability: str  # a tool, or another capability that a call needs
    at: str
    by: str
    files: Files = ()


Which = int | str | list[Standing]


class Approvals(NamedTuple):
    """Approvals at the time the file was read, oldest first."""

    rows: tuple[Standing, ...] = ()
    findings: tuple[Finding, ...] = ()

    def find(self, skill: str, digest: str, capability: str) -> Standing | None:
        """Finds the approval of exactly this content."""
        wanted = (skill, digest, capability)
        return next((row for row in self.rows if digest and row[:3] == wanted), None)

    def find_earlier(self, skill: str, digest: str, capability: str) -> Standing | None:
        """Finds the newest approval of other content of the same skill."""
        others = (row for row in reversed(self.rows) if (row.skill, row.capability) == (skill, capability))
        return next((row for row in others if row.digest != digest), None)


def load_approvals(state_dir: str) -> Approvals:
    """Loads the current approvals. A missing file approves nothing. A broken file approves nothing and adds a
    finding."""
    file = _file(state_dir)
    try:
        return Approvals(tuple(_rows(file.read().get("approvals"))))
    except FileNotFoundError:
        return Approvals()
    except (OSError, ValueError, RecursionError) as error:
        return Approvals(findings=(_corrupt(file.path, str(error) or type(error).__name__),))


def grant(state_dir: str, standing: Standing) -> Approvals:
    """Saves an approval. It replaces an earlier approval of the same capability and content."""
    if not (standing.skill and standing.digest and standing.capability):
        raise StoreError(
            "Only a capability of a known content of a skill can be approved for good.",
            code="approval-not-bound",
            hint="Approve it once, or for this run.",
        )
    with _locked(state_dir):
        approvals = _load_or_move_aside(state_dir)
        others = tuple(row for row in approvals.rows if row[:3] != standing[:3])
        approvals = approvals._replace(rows=(*others, standing))
        _write(state_dir, approvals.rows)
    return approvals


def revoke(state_dir: str, which: Which, capability: str | None = None) -> list[Standing]:
    """Removes the approvals that `matching` selects, and returns them."""
    if not os.path.lexists(_file(state_dir).path):
        return []
    with _locked(state_dir):
        approvals = load_approvals(state_dir)
        if approvals.findings:
            problem = approvals.findings[0]
            raise StoreError(problem.message, code="approvals-corrupt", hint=problem.hint)
        gone = matching(approvals, which, capability)
        if gone:
            _write(state_dir, [row for row in approvals.rows if row not in gone])
    return gone


def matching(approvals: Approvals, which: Which, capability: str | None = None) -> list[Standing]:
    """Selects approvals: by number (from 1), by id or name of a skill, or from a list."""
    if isinstance(which, list):
        rows = tuple(row for row in approvals.rows if row in which)
    elif isinstance(which, int):
        rows = approvals.rows[which - 1 : which] if which > 0 else ()
    else:
        rows = tuple(row for row in approvals.rows if which in (row.skill, row.skill.partition(":")[2]))
    return [row for row in rows if capability in (None, row.capability)]


def changes(standing: Standing, files: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the files that changed since the approved content."""
    before, after = dict(standing.files), dict(files)
    return {
        "since": standing.at,
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(path for path in before.keys() & after.keys() if before[path] != after[path]),
    }


def files_of(skill: Skill) -> Files:
    return tuple((file.path, f"{file.sha256}{'+x' if file.executable else ''}") for file in skill.files)


class ApprovalFile:
    """Current approvals; the file is read again when it changes."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._seen: object = ()
        self._approvals = Approvals()

    def current(self) -> Approvals:
        seen = file_signature(_file(self._state_dir).path)
        if seen != self._seen:
            self._approvals = load_approvals(self._state_dir)
            self._seen = seen
        return self._approvals


class UserApprovals:
    """Permanent approvals of the current user. `by` is the name recorded for new ones."""

    def __init__(self, state_dir: str, by: str) -> None:
        self._state_dir, self._by = state_dir, by
        self._file = ApprovalFile(state_dir)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self._file.current().findings

    def find(self, skill: Skill, capability: str) -> ApprovalAnswered | None:
        row = self._file.current().find(skill.entry.id, skill.digest, capability)
        if row is None:
            return None
        by = f"standing approval by {row.by}, {row.at}"
        return ApprovalAnswered(call_id="", answer="always", by=by, capability=capability)

    def changed(self, skill: Skill, capability: str) -> dict[str, Any]:
        """Returns the changes since an earlier approval. Empty when this content is approved, or when there is none."""
        approvals, about = self._file.current(), (skill.entry.id, skill.digest, capability)
        earlier = approvals.find_earlier(*about)
        return {} if earlier is None or approvals.find(*about) is not None else changes(earlier, files_of(skill))

    def remember(self, skill: Skill, capability: str) -> None:
        """Saves an approval. An existing one is not overwritten."""
        if self._file.current().find(skill.entry.id, skill.digest, capability) is None:
            grant(self._state_dir, make_standing(skill, capability, self._by))

    def grants(self, skill: Skill) -> bool:
        return self._file.current().find(skill.entry.id, skill.digest, ALLOWED_TOOLS) is not None


def make_standing(skill: Skill, capability: str, by: str) -> Standing:
    return Standing(skill.entry.id, skill.digest, capability, now(), by, files_of(skill))


def _rows(rows: Any) -> Iterator[Standing]:
    if not isinstance(rows, list):
        raise ValueError("approvals is not a list")
    for number, row in enumerate(rows):
        texts: list[Any] = [row.get(name) for name in _TEXTS] if isinstance(row, dict) else [None]
        files = row.get("files") if isinstance(row, dict) else None
        if not all(isinstance(text, str) for text in texts) or not all(texts[:3]):
            raise ValueError(f"approvals[{number}] does not have the texts {', '.join(_TEXTS)}")
        if not isinstance(files, dict) or not all(isinstance(sha256, str) for sha256 in files.values()):
            raise ValueError(f"approvals[{number}] has no valid table of files")
        yield Standing(*texts, files=tuple(files.items()))


_TEXTS = Standing._fields[:-1]


def _write(state_dir: str, rows: Iterable[Standing]) -> None:
    _file(state_dir).write({"approvals": [{**row._asdict(), "files": dict(row.files)} for row in rows]})


def _corrupt(path: str, why: str) -> Finding:
    return make_finding(Note("approvals-corrupt", None, {"reason": why[:300]}), path)


def _load_or_move_aside(state_dir: str) -> Approvals:
    """Loads the approvals, or moves a broken file aside. Needs the lock. The finding says where the broken file
    went."""
    approvals = load_approvals(state_dir)
    if not approvals.findings:
        return approvals
    kept = _file(state_dir).move_aside()
    moved = f"{approvals.findings[0].message} It was moved to {visible(kept)}."
    hint = "What it approved is asked about again."
    return Approvals(findings=(approvals.findings[0]._replace(message=moved, hint=hint),))


@contextmanager
def _locked(state_dir: str) -> Iterator[None]:
    try:
        with _file(state_dir).locked():
            yield
    except OSError as error:
        raise StoreError(
            f"Approvals cannot be written in {state_dir}: {error.strerror or error}.",
            code="approvals-unwritable",
            hint="Make the folder writable, or set PROWESS_HOME to one that is.",
        ) from error


def _file(state_dir: str) -> UserFile:
    return UserFile(state_dir, "approvals", SCHEMA)
