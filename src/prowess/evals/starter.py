"""Writes the first cases of a skill: one request that needs it and one that does not. They pass at once, offline."""

from __future__ import annotations

import json
import os
from pathlib import Path

from prowess._internal.files import write_whole
from prowess._internal.named_paths import result_path
from prowess._internal.paths import inside
from prowess._internal.text import one_line
from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.evals.case_files import find_skill


def write_starter(skill_folder: str) -> str:
    """Writes `evals/cases.yaml` of a skill and returns its path. A file that is there is never changed."""
    skill = find_skill(skill_folder)
    if skill is None:
        what = f"{skill_folder} is not the folder of a skill: it has no SKILL.md."
        raise EvalError(what, code="evals-no-skill", hint="Name the folder of a skill. See: prowess list")
    target = os.path.join(skill_folder, "evals", "cases.yaml")
    if os.path.lexists(inside(skill_folder, "evals/cases.yaml")):
        raise EvalError(f"{target} is there already.", code="evals-exist", hint=f"Run it: prowess eval {skill_folder}")
    about = one_line((skill.description or skill.name).split(". ")[0], 200)
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    name = json.dumps(skill.name, ensure_ascii=False)
    folder = os.path.basename(os.path.abspath(skill_folder))
    prompt = json.dumps(f"I need help. {about}", ensure_ascii=False)
    text = text.format(name=name, folder=visible(folder), prompt=prompt)
    write_whole(result_path(".", target, force=False), text.encode())
    return target
