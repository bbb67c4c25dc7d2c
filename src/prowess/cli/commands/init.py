"""Command `prowess init`: makes a folder a project."""

from __future__ import annotations

import os

from prowess._internal.files import write_whole
from prowess._internal.state_folder import GITIGNORE
from prowess.cli.app import Call, verb

CONFIG = """\
# The project's configuration. Every setting, its value and where it comes from: prowess config show --origin
# A setting that is not known is an error, so a typing mistake cannot go unnoticed.

# [skills]
# budget = 4000                    # tokens for the catalog; default: 2 % of the model's window

# [skills.modes]                   # pin | auto | name-only | manual | off, by name or pattern
# "deploy-*" = "manual"

# [security]
# max_skill_body_lines = 500       # set means refuse
"""


@verb("init", example="prowess init\nprowess -C ../other-project init")
def command(call: Call) -> int:
    """Make a folder a project: .agent/ with configuration and skills.

    What is there already is left as it is.
    """
    base = os.path.join(call.cwd, ".agent")
    files = {
        os.path.join(base, "config.toml"): CONFIG,
        os.path.join(base, ".gitignore"): GITIGNORE,
        os.path.join(base, "skills", ".gitkeep"): "",
    }
    if os.path.lexists(os.path.join(base, "config.json")):
        del files[os.path.join(base, "config.toml")]
    written = [path for path in files if not os.path.lexists(path)]
    for path in written:
        write_whole(path, files[path].encode())
    kept = [path for path in files if path not in written]
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.init/1", "path": base, "written": written, "kept": kept})
        return 0
    for path in written:
        call.screen.text(f"wrote  {os.path.relpath(path, call.cwd)}")
    for path in kept:
        call.screen.text(f"kept   {os.path.relpath(path, call.cwd)}")
    call.screen.note("Next: prowess new NAME, and prowess trust to let models use the skills of this folder.")
    return 0
