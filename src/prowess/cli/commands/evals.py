"""Command `prowess evals`: writes starter cases, and shows and compares eval runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from prowess.cli.app import Call, actions, cli_command
from prowess.cli.eval_view import find_skill_folder, show_document, show_gate
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.evals.document import find_finished
from prowess.evals.starter import write_starter
from prowess.evals.store import find_run, list_runs, read_run

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import EvalsInitDocument


@cli_command("list", example="prowess evals list")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
def _list(call: Call, limit: int) -> int:
    """Show the eval runs there are, the last one first."""
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


@cli_command("show", example="prowess evals show latest\nprowess evals show report.json")
@click.argument("run", metavar="RUN|FILE")
def _show(call: Call, run: str) -> int:
    """Show an eval run again, by its id, `latest`, or a report in JSON."""
    with call.runtime() as runtime:
        document = find_finished(run, runtime.places).to_json()
    if call.screen.is_json:
        call.screen.document(document)
    else:
        show_document(call.screen, document)
    return 0


@cli_command("diff", example="prowess evals diff before.json latest")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
def _diff(call: Call, before: str, after: str) -> int:
    """Compare eval run B with A: better, worse, inconclusive or same. Exit code 1 if B is worse."""
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


@cli_command("init", example="prowess evals init pdf-forms")
@click.argument("skill", metavar="SKILL|DIR")
def _init(call: Call, skill: str) -> int:
    """Write starter cases for a skill, into its folder evals/."""
    with call.runtime() as runtime:
        folder = find_skill_folder(skill, runtime)
        file = write_starter(folder)
    if call.screen.is_json:
        document: EvalsInitDocument = {"schema": "prowess.evals-init/1", "file": file}
        call.screen.document(document)
    else:
        call.screen.note(f"Wrote {visible(file)}. Change it, then run: prowess eval {visible(skill)}")
    return 0


COMMANDS = {
    "evals": actions(
        "evals",
        {"list": _list, "init": _init, "show": _show, "diff": _diff},
        help="Write starter cases; show and compare eval runs. Every action takes --json.",
        example="prowess evals init pdf-forms\nprowess evals show latest\nprowess evals diff before.json latest",
    )
}
