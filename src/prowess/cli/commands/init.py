"""Command `prowess init`: makes a folder a project."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prowess.cli.app import Call, cli_command
from prowess.core.findings import visible
from prowess.runtime.config import find_places
from prowess.runtime.services.scaffold import write_project

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import InitDocument


@cli_command("init", example="prowess init\nprowess -C ../other-project init")
def command(call: Call) -> int:
    """Make a folder a project: .agent/ with configuration and skills.

    What is there already is left as it is. Runs in a project that was made here get copies in .agent/runs.
    """
    made = write_project(call.cwd, find_places(call.cwd, os.environ).state_dir)
    if made.problem is not None:
        call.screen.note(f"warning: {visible(made.problem.message)} Runs here get no copies. [{made.problem.code}]")
    if call.screen.is_json:
        document: InitDocument = {
            "schema": "prowess.init/1",
            "path": made.folder,
            "written": made.written,
            "kept": made.kept,
        }
        call.screen.document(document)
        return 0
    for path in made.written:
        below = os.path.relpath(path, call.cwd)
        call.screen.text(f"wrote  {below}")
    for path in made.kept:
        below = os.path.relpath(path, call.cwd)
        call.screen.text(f"kept   {below}")
    call.screen.note("Next: prowess new NAME, and prowess trust to let models use the skills of this folder.")
    return 0
