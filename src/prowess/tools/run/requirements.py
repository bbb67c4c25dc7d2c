"""What a skill requires is looked for where its scripts will run, before the first one does, and once for each content.

A skill without `requires` costs nothing. What is missing is an answer that names it, not a script that fails half-way.
"""

from __future__ import annotations

from collections.abc import Mapping

from prowess.core.ports import Workspace
from prowess.errors import WorkspaceError
from prowess.skills.requirements import missing_requirements
from prowess.tools.run.inside import find_programs, find_python
from prowess.tools.session_work import Loaded, Work

_HINTS = {
    "(program)": "install the program where scripts run (prowess doctor --workspace says where that is)",
    "(environment)": "give the value: [secrets] NAME = 'env:NAME' in the configuration, and NAME in your environment",
    "(skill)": "load the other skill first",
    "(Python)": "use an executor with that version",
    "(platform)": "run it on such a machine",
}


async def refuse_missing(work: Work, loaded: Loaded, workspace: Workspace, env: Mapping[str, str]) -> None:
    controls = loaded.skill.entry.controls
    if not controls.requires or loaded.skill.digest in work.fit:
        return
    wanted = dict(controls.requires)
    programs = await find_programs(wanted.get("bins", ()), loaded, workspace)
    python = await find_python(loaded, workspace) if "python" in wanted or "platforms" in wanted else None
    missing = missing_requirements(
        controls,
        {},
        lambda name: any(name in (each.skill.name, each.skill.entry.id) for each in work.loaded.values()),
        has_program=programs.__contains__,
        has_variable=lambda name: bool(env.get(name)),
        python=python.version if python else (),
        platform=python.platform if python else None,
    )
    if missing:
        hints = [text for item in missing for end, text in _HINTS.items() if item.endswith(end)]
        raise WorkspaceError(
            f"The skill '{loaded.skill.name}' needs what is not here: {', '.join(missing)}.",
            op="preflight",
            code="requires-missing",
            hint=f"{'; '.join(dict.fromkeys(hints))}.",
        )
    work.fit.add(loaded.skill.digest)
