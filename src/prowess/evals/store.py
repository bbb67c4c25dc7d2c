"""Keeps eval runs: a folder for each, with an append-only results.jsonl. The first line is the header, every other line
is a record. Whatever was written counts after a kill; a line that was cut off is dropped, and told."""

from __future__ import annotations

import errno
import os
from typing import Literal

from pydantic import ConfigDict, Field

from prowess import __version__
from prowess._internal.dated_names import find_names, new_name
from prowess._internal.files import now
from prowess._internal.journal import Journal, JournalInUse, read_lines
from prowess._internal.model_values import describe_fault
from prowess._internal.paths import user_path
from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.evals.results import EvalRecord, RunKey, RunRecord
from prowess.runtime.config import ConfigPlaces
from prowess.runtime.project_state import EVAL_RUNS, state_path

FILE = "results.jsonl"
_CUT = "The last line of {} was cut off, and is dropped."


class EvalHeader(EvalRecord):
    """First line of results.jsonl."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    schema_: Literal["prowess.eval-run/1"] = Field(default="prowess.eval-run/1", alias="schema")
    id: str = Field(default_factory=new_name)
    started_at: str = Field(default_factory=now)
    suite: str
    digest: str
    model: str
    arms: tuple[str, ...] = ()
    prowess: str = __version__


class StoredRun:
    """Eval run on disk, open for appending: a new one, or one of the same suite that goes on with its own header."""

    def __init__(self, folder: str, header: EvalHeader) -> None:
        folder = os.path.normpath(folder)  # a link with a slash behind it would be followed
        path = os.path.join(folder, FILE)
        try:
            if os.path.islink(folder):
                raise OSError(errno.ELOOP, "the folder is a link, which may lead anywhere")
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._journal = Journal(path)
        except OSError as error:
            why = error.strerror or error
            raise EvalError(f"{path} cannot be written: {why}.", code="eval-run-unwritable") from error
        except JournalInUse as error:
            hint = "Wait until that run has ended."
            raise EvalError(f"{path} is written by another process.", code="eval-run-in-use", hint=hint) from error
        if self._journal.is_new:
            self._journal.append(header.model_dump_json(by_alias=True).encode())
        self.folder = folder
        self.notes = (_CUT.format(path),) if self._journal.was_cut else ()
        self.header, records, _ = read_run(folder)
        if self.header.digest != header.digest:
            self._journal.close()
            what = f"{folder} is of another suite or of other requests, or they have changed since."
            hint = "Begin anew: without --resume, or with another output."
            raise EvalError(what, code="eval-run-other-suite", hint=hint)
        self.costs = {record.key: record.usage.cost for record in records if record.usage.cost is not None}
        decided = [record for record in records if record.status in ("passed", "failed")]
        self.finished = frozenset(record.key for record in decided if not record.replayed)  # recordings may change

    def append(self, record: RunRecord) -> None:
        self._journal.append(record.model_dump_json(exclude_defaults=True).encode())

    def __enter__(self) -> StoredRun:
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.close()


def eval_runs_folder(places: ConfigPlaces) -> str:
    return os.path.join(state_path(places), EVAL_RUNS)


def list_runs(places: ConfigPlaces) -> list[str]:
    """Returns the ids of all runs, oldest first."""
    folder = eval_runs_folder(places)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [name for name in names if os.path.isfile(os.path.join(folder, name, FILE))]


def find_run(places: ConfigPlaces, ref: str) -> str:
    """Returns the folder of a run, by its id, the beginning or the end of its id, its path, or `latest`."""
    named = user_path(places.cwd, ref)
    if os.sep in ref and os.path.isfile(os.path.join(named, FILE)):
        return named
    known = list_runs(places)
    found = find_names(known, ref)
    if len(found) == 1:
        return os.path.join(eval_runs_folder(places), found[0])
    said = visible(ref[:80])
    what = f"'{said}' could be {' or '.join(found[:3])}." if found else f"There is no eval run '{said}'."
    hint = f"The latest is {known[-1]}." if known else "Run one first: prowess eval PATH"
    raise EvalError(what, code="eval-run-unknown", hint=hint)


def read_run(folder: str) -> tuple[EvalHeader, list[RunRecord], tuple[str, ...]]:
    """Reads a run: its header, the last record of each key in the order of the file, and what a reader should know."""
    path = os.path.join(folder, FILE)
    header: EvalHeader | None = None
    records: dict[RunKey, RunRecord] = {}
    notes: tuple[str, ...] = ()
    number = 0
    try:
        for line in read_lines(path):
            number += 1
            if not line.endswith(b"\n"):
                notes = (_CUT.format(path),)
            elif header is None:
                header = EvalHeader.model_validate_json(line)
            else:
                record = RunRecord.model_validate_json(line)
                records.pop(record.key, None)
                records[record.key] = record
        if header is None:
            raise ValueError("it is empty")
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        what = f"{path}:{number}: This is no record of an eval run: {visible(describe_fault(error))}."
        hint = "It was changed, or a newer release wrote it. Name another run, or run the suite again."
        raise EvalError(what, code="eval-run-invalid", hint=hint) from error
    return header, [*records.values()], notes
