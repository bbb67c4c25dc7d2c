"""Answers many requests: a JSONL file in, a JSONL file with the results in the same order out. Every result is at once
in a journal beside the output, so the same command goes on after a kill. The output appears whole, at the end."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from prowess._internal.files import write_whole
from prowess._internal.journal import read_lines
from prowess._internal.model_values import describe_fault
from prowess._internal.named_paths import result_folder, result_path
from prowess._internal.paths import user_path
from prowess._internal.portable_names import plain_name
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import EvalError, ProwessError
from prowess.evals.case import Case
from prowess.evals.results import EvalRecord, EvalTask, RunKey, RunRecord
from prowess.evals.run_task import TaskOutcome
from prowess.evals.runner import Driver, EvalOptions, Tell, open_driver, shared_fields
from prowess.evals.store import EvalHeader, StoredRun
from prowess.runtime.factories import find_searched
from prowess.workspace.export import find_acting_part, is_unused, open_outside

_STATUS = {"passed": "answered", "failed": "stopped", "skipped": "skipped", "error": "error"}


class BatchRequest(EvalRecord):
    """Line of the input."""

    id: str | int | None = None
    request: str
    files: tuple[str, ...] = ()  # relative to the folder of the input
    skills: tuple[str, ...] = ()  # to load at once


class BatchRun(NamedTuple):
    """Finished batch. `failed` counts errors, and runs that stopped without an answer."""

    output: str
    total: int
    failed: int
    resumed: int  # results that an earlier process had written
    notes: tuple[str, ...] = ()


async def run_batch(
    requests: str,
    output: str,
    options: EvalOptions,
    *,
    output_dir: str | None = None,
    force: bool = False,
    on_progress: Tell = None,
) -> BatchRun:
    """Answers the requests of a file, and keeps the files that runs make in `<output_dir>/<id>/`."""
    with open_driver(options) as runtime:
        cwd = runtime.places.cwd
        source = user_path(cwd, requests)
        target = user_path(cwd, output)
        fields = shared_fields(runtime, options)
        model: str = fields["model"]
        fields |= {"base": os.path.dirname(source), "checked": False, "keep_files": output_dir is not None}
        read = read_requests(source, requests)
        decides = [[each.model_dump() for each in read], model, fields["settings"]]
        digest = hashlib.sha256(json.dumps(decides, default=str).encode()).hexdigest()
        tasks: list[EvalTask] = []
        for each in read:
            case = Case(id=str(each.id), prompt=each.request, files=each.files)
            key = RunKey(suite=digest, case=case.id, arm="batch", repeat=1, model=model, skills="")
            tasks.append(EvalTask(key=key, case=case, load=each.skills, **fields))
        may_replace = _check_target(cwd, target, force)
        result_folder(cwd, output_dir or "")
        header = EvalHeader(suite="batch", digest=digest, model=model)
        with StoredRun(f"{target}.journal", header) as journal:
            driver = Driver(journal, tasks, options, on_progress, go_on="Then give the same command again: it goes on.")
            await driver.run(partial(_write_files, cwd, output_dir, force, find_searched(runtime)))
            records = driver.load_records()
            write_whole(result_path(cwd, target, force=may_replace), (_render(record) for record in records))
        shutil.rmtree(journal.folder)
    failed = [record for record in records if record.status != "passed"]
    whys = [f"Request {each.key.case}: {each.error.message if each.error else each.stop_reason}" for each in failed[:3]]
    notes = (*journal.notes, *driver.notes, *whys)
    return BatchRun(output=target, total=len(tasks), failed=len(failed), resumed=driver.resumed, notes=notes)


def _check_target(cwd: str, target: str, force: bool) -> bool:
    """Raises if the output may not be written. True if one that is there may be replaced: a batch goes on."""
    may_replace = force or os.path.isdir(f"{target}.journal")
    result_path(cwd, target, force=may_replace)
    return may_replace


def read_requests(path: str, shown: str) -> list[BatchRequest]:
    """Reads the requests, each with an id. An EvalError names the line that is wrong."""
    found: dict[str, BatchRequest] = {}
    number = 1
    try:
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                read = BatchRequest.model_validate_json(line)
                id = str(number if read.id is None else read.id)
                if not read.request.strip() or not id:
                    raise ValueError("the request or its id is empty")
                if id in found:
                    raise ValueError(f"an earlier line has the id {id[:80]!r}, too")
                found[id] = read.model_copy(update={"id": id})
        if not found:
            raise ValueError("there are no requests")
    except (OSError, ValueError) as error:
        what = f"{shown}:{number}: {visible(describe_fault(error))}."
        hint = 'A line is such as {"id": "a", "request": "…", "files": ["x.csv"], "skills": ["csv-report"]}.'
        raise EvalError(what, code="batch-invalid", hint=hint) from error
    return [*found.values()]


def _render(record: RunRecord) -> bytes:
    line = {
        "id": record.key.case,
        "status": _STATUS[record.status],
        "text": record.text,
        "stop_reason": record.stop_reason,
        "usage": to_json(record.usage),
        "files": [file.model_dump(mode="json") for file in record.files],
        "error": record.error.model_dump(mode="json") if record.error else None,
    }
    return f"{json.dumps(line, ensure_ascii=False)}\n".encode()


def _write_files(
    cwd: str, folder: str | None, force: bool, searched: Sequence[str], outcome: TaskOutcome
) -> Iterator[str]:
    """Writes the files of a run, and yields a note for each that was not written, or that acts where it lies."""
    if folder is None or not outcome.record.files:
        return
    own = plain_name(outcome.record.key.case)
    unused: bool | None = None
    for file in outcome.record.files:
        name = file.name.removeprefix("out/")
        below = f"{own}/{name}"
        content = outcome.contents.get(file.name)
        if content is None:
            yield f"{visible(below)} was not kept: it is hidden, or too large."
            continue
        try:
            if unused is None:
                unused = is_unused(cwd, os.path.join(folder, own))
            part = find_acting_part(cwd, os.path.join(folder, own), name, unused=unused, searched=searched)
            with open_outside(cwd, folder, below, force=force, make=True) as target:
                target.write(base64.b64decode(content))
            if part:
                yield f"Programs act on this by its name: {visible(below)}."
        except (OSError, ProwessError) as error:
            yield f"{visible(below)} was not written: {getattr(error, 'strerror', None) or error}"
