"""Stores permanent approvals: one capability of one content of a skill, in the sessions of one owner. Changed content
is asked about again, and so is another user or tenant.

The file is `<state_dir>/approvals.json`. It is read again when it changes, so a revocation holds from the next call on.
An unreadable file approves nothing, and is moved aside before a new one is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prowess._internal.files import UserFile, file_signature, now
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
    tenant: str = "default"  # owner of the sessions in which it holds; the defaults are those of the command line
    user: str = "default"


Which = int | str | list[Standing]


class Approvals(NamedTuple):
    """Approvals at the time the file was read, oldest first."""

    rows: tuple[Standing, ...] = ()
    findings: tuple[Finding, ...] = ()

    def of(self, tenant: str, user: str) -> Approvals:
        """Approvals of one owner."""
        return Approvals(tuple(row for row in self.rows if (row.tenant, row.user) == (tenant, user)), self.findings)

    def find(self, skill: str, digest: str, capability: str) -> Standing | None:
        """Finds the approval of exactly this content."""
        if not digest:
            return None
        wanted = (skill, digest, capability)
        for row in self.rows:
            if row[:3] == wanted:
                return row
        return None

    def find_earlier(self, skill: str, digest: str, capability: str) -> Standing | None:
        """Finds the newest approval of other content of the same skill."""
        for row in reversed(self.rows):
            same = row.skill == skill and row.capability == capability
            if same and row.digest != digest:
                return row
        return None


def load_approvals(state_dir: str) -> Approvals:
    """Loads the current approvals. A missing file approves nothing. A broken file approves nothing and adds a
    finding."""
    file = _file(state_dir)
    try:
        document = file.read()
        rows = _rows(document.get("approvals"))
        return Approvals(tuple(rows))
    except FileNotFoundError:
        return Approvals()
    except (OSError, ValueError, RecursionError) as error:
        why = str(error) or type(error).__name__
        finding = _corrupt(file.path, why)
        return Approvals(findings=(finding,))


def grant(state_dir: str, standing: Standing) -> Approvals:
    """Saves an approval. It replaces an earlier approval of the same capability, content and owner."""
    if not (standing.skill and standing.digest and standing.capability):
        raise StoreError(
            "Only a capability of a known content of a skill can be approved for good.",
            code="approval-not-bound",
            hint="Approve it once, or for this run.",
        )
    with _locked(state_dir):
        approvals = _load_or_move_aside(state_dir)
        rows = [row for row in approvals.rows if row[:3] != standing[:3] or row[-2:] != standing[-2:]]
        rows.append(standing)
        approvals = approvals._replace(rows=tuple(rows))
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
            left = [row for row in approvals.rows if row not in gone]
            _write(state_dir, left)
    return gone


def matching(approvals: Approvals, which: Which, capability: str | None = None) -> list[Standing]:
    """Selects approvals: by number (from 1), by id or name of a skill, or from a list."""
    selected: list[Standing] = []
    for number, row in enumerate(approvals.rows, 1):
        if capability not in (None, row.capability):
            continue
        if _is_selected(row, number, which):
            selected.append(row)
    return selected


def _is_selected(row: Standing, number: int, which: Which) -> bool:
    if isinstance(which, list):
        return row in which
    if isinstance(which, int):
        return number == which
    name = row.skill.partition(":")[2]
    return which in (row.skill, name)


def changes(standing: Standing, files: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the files that changed since the approved content."""
    before = dict(standing.files)
    after = dict(files)
    added = after.keys() - before.keys()
    removed = before.keys() - after.keys()
    in_both = before.keys() & after.keys()
    changed = [path for path in in_both if before[path] != after[path]]
    return {
        "since": standing.at,
        "added": sorted(added),
        "removed": sorted(removed),
        "changed": sorted(changed),
    }


def files_of(skill: Skill) -> Files:
    files: list[tuple[str, str]] = []
    for file in skill.files:
        mark = "+x" if file.executable else ""
        files.append((file.path, f"{file.sha256}{mark}"))
    return tuple(files)


@dataclass(slots=True)
class UserApprovals:
    """Permanent approvals for the sessions of one owner. `by` is the name recorded for new ones."""

    state_dir: str
    by: str = ""
    tenant: str = "default"
    user: str = "default"
    _seen: object = field(default=(), init=False)
    _approvals: Approvals = field(default=Approvals(), init=False)

    def current(self) -> Approvals:
        """Returns the current approvals. The file is read again when it changes."""
        seen = file_signature(_file(self.state_dir).path)
        if seen != self._seen:
            self._approvals = load_approvals(self.state_dir).of(self.tenant, self.user)
            self._seen = seen
        return self._approvals

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.current().findings

    def find(self, skill: Skill, capability: str) -> ApprovalAnswered | None:
        row = self._find_row(skill, capability)
        if row is None:
            return None
        by = f"standing approval by {row.by}, {row.at}"
        return ApprovalAnswered(call_id="", answer="always", by=by, capability=capability)

    def changed(self, skill: Skill, capability: str) -> dict[str, Any]:
        """Returns the changes since an earlier approval. Empty when this content is approved, or when there is none."""
        approvals = self.current()
        about = (skill.entry.id, skill.digest, capability)
        earlier = approvals.find_earlier(*about)
        if earlier is None or approvals.find(*about) is not None:
            return {}
        return changes(earlier, files_of(skill))

    def remember(self, skill: Skill, capability: str) -> None:
        """Saves an approval. An existing one is not overwritten."""
        if self._find_row(skill, capability) is None:
            standing = make_standing(skill, capability, self.by)
            grant(self.state_dir, standing._replace(tenant=self.tenant, user=self.user))

    def grants(self, skill: Skill) -> bool:
        return self._find_row(skill, ALLOWED_TOOLS) is not None

    def _find_row(self, skill: Skill, capability: str) -> Standing | None:
        approvals = self.current()
        return approvals.find(skill.entry.id, skill.digest, capability)


def make_standing(skill: Skill, capability: str, by: str) -> Standing:
    files = files_of(skill)
    return Standing(skill.entry.id, skill.digest, capability, now(), by, files)


def _rows(rows: Any) -> Iterator[Standing]:
    if not isinstance(rows, list):
        raise ValueError("approvals is not a list")
    for number, row in enumerate(rows):
        table: dict[str, Any] = row if isinstance(row, dict) else {}
        texts: list[Any] = [table.get(name) for name in _TEXTS]
        tenant, user = table.get("tenant", "default"), table.get("user", "default")  # a row of before has no owner
        files = table.get("files")
        if not _are_texts([*texts, tenant, user]) or not all(texts[:3]):
            raise ValueError(f"approvals[{number}] does not have the texts {', '.join(_TEXTS)}")
        if not isinstance(files, dict) or not _are_texts(files.values()):
            raise ValueError(f"approvals[{number}] has no valid table of files")
        yield Standing(*texts, files=tuple(files.items()), tenant=tenant, user=user)


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


_TEXTS = Standing._fields[:5]


def _write(state_dir: str, rows: Iterable[Standing]) -> None:
    tables: list[dict[str, Any]] = []
    for row in rows:
        table = row._asdict()
        table["files"] = dict(row.files)
        tables.append(table)
    _file(state_dir).write({"approvals": tables})


def _corrupt(path: str, why: str) -> Finding:
    return make_finding(Note("approvals-corrupt", None, {"reason": why[:300]}), path)


def _load_or_move_aside(state_dir: str) -> Approvals:
    """Loads the approvals, or moves a broken file aside. Needs the lock. The finding says where the broken file
    went."""
    approvals = load_approvals(state_dir)
    if not approvals.findings:
        return approvals
    problem = approvals.findings[0]
    kept = _file(state_dir).move_aside()
    moved = f"{problem.message} It was moved to {visible(kept)}."
    hint = "What it approved is asked about again."
    finding = problem._replace(message=moved, hint=hint)
    return Approvals(findings=(finding,))


@contextmanager
def _locked(state_dir: str) -> Iterator[None]:
    try:
        with _file(state_dir).locked():
            yield
    except OSError as error:
        raise StoreError(
            f"Approvals cannot be written in {state_dir}: {error.strerror or error}.",
            code="approvals-unwritable",
            hint="Make the folder writable, or set PROWESS_STATE_DIR to one that is.",
        ) from error


def _file(state_dir: str) -> UserFile:
    return UserFile(state_dir, "approvals", SCHEMA)
