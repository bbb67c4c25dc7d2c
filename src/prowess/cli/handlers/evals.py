"""Handlers of `prowess evals`: write starter cases, and show and compare eval runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prowess.cli.app import Call
from prowess.cli.eval_view import find_skill_folder, show_document, show_gate
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.evals.document import find_finished
from prowess.evals.starter import write_starter
from prowess.evals.store import find_run, list_runs, read_run

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import EvalsInitDocument


def list_evals(call: Call, limit: int) -> int:
    rows: list[dict[str, Any]] = []
    with call.runtime() as runtime:
        ids = list_runs(runtime.places)[::-1]
        for name in ids[:limit]:
            path = find_run(runtime.places, name)
            header = read_run(path)[0]
            rows.append(header.model_dump(mode="json", by_alias=True))
    has_more = len(ids) > limit
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.eval-runs/1", "runs": rows, "more": has_more})
        return 0
    if rows:
        cells = [[row["id"], row["suite"], row["model"], ", ".join(row["arms"])] for row in rows]
        call.screen.table(["run", "suite", "model", "arms"], cells)
    summary = count(len(rows), "run")
    if has_more:
        summary += f" · there are more: --limit {limit * 5}"
    call.screen.note(f"\n{summary}")
    return 0


def show(call: Call, run: str) -> int:
    with call.runtime() as runtime:
        document = find_finished(run, runtime.places).to_json()
    if call.screen.is_json:
        call.screen.document(document)
    else:
        show_document(call.screen, document)
    return 0


def diff(call: Call, before: str, after: str) -> int:
    with call.runtime() as runtime:
        new = find_finished(after, runtime.places)
        old = find_finished(before, runtime.places)
        document = new.against(old).to_json()
    gate = document["gate"]
    if call.screen.is_json:
        call.screen.document(document)
    else:
        show_gate(call.screen, gate)
    return 1 if gate["verdict"] == "worse" else 0


def init(call: Call, skill: str) -> int:
    with call.runtime() as runtime:
        folder = find_skill_folder(skill, runtime)
        file = write_starter(folder)
    if call.screen.is_json:
        document: EvalsInitDocument = {"schema": "prowess.evals-init/1", "file": file}
        call.screen.document(document)
    else:
        call.screen.note(f"Wrote {visible(file)}. Change it, then run: prowess eval {visible(skill)}")
    return 0
