"""Fast path of `prowess list --json`. Imports no parser, so that programs get their answer quickly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from prowess.cli.call import Call, answer
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import find_shown, render_finding_rows, render_skill_rows
from prowess.skills.skill import RootReport


def run(args: Sequence[str]) -> int:
    """Answers `list --json` whose only other options are `--root DIR`."""

    def list_skills() -> int:
        call = Call({"json": True})
        roots = [arg for arg in args[1:] if not arg.startswith("-")]
        with call.complete_hints(roots), call.runtime(roots=roots) as runtime:
            shown, _ = find_shown(runtime.catalog)
            rows = render_skill_rows(runtime.catalog, shown)
            write_list(call, runtime, rows)
        return 1 if call.missing_roots else 0

    return answer(list_skills, as_json=True)


def write_list(call: Call, runtime: Runtime, rows: Iterable[str]) -> None:
    """Writes the document. Rows are written as they come."""
    roots = [_root_row(root) for root in runtime.catalog.roots]
    call.screen.long_document(
        {
            "schema": "prowess.list/1",
            "skills": rows,
            "findings": render_finding_rows(runtime.findings),
            "roots": roots,
        }
    )


def _root_row(root: RootReport) -> str:
    row = {"source": root.source, "path": root.shown, "skills": root.skills, "exists": root.exists}
    return json.dumps(row)
