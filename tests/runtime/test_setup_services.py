"""Trust, templates, settings and reports without a command line, as Studio and a service need them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from prowess._internal.tokens import get_counter
from prowess.errors import ConfigError
from prowess.runtime.check import check
from prowess.runtime.runtime import open_runtime
from prowess.runtime.services.argument_words import parse_words
from prowess.runtime.services.doctor import examine
from prowess.runtime.services.doctor_workspace import examine_isolation
from prowess.runtime.services.inspect_skill import count_fixed, count_skills, inspect_skill
from prowess.runtime.services.sarif import render_sarif
from prowess.runtime.services.scaffold import write_project, write_skill
from prowess.runtime.services.settings_in_force import find_environment, find_settings
from prowess.runtime.services.trust import give_trust, load_trust, preview_folder, revoke_trust


def test_a_person_sees_what_trust_covers_before_it_is_given(tmp_path: Path) -> None:
    state_dir = str(tmp_path / "state")
    project = write_project(str(tmp_path), state_dir)
    assert len(project.written) == 3 and write_project(str(tmp_path), state_dir).kept == project.written
    assert load_trust(state_dir).has_made(str(tmp_path)) and not load_trust(state_dir).folders
    write_skill("csv-report", str(tmp_path / ".agent/skills"), "Charts: from CSV.")
    policy = tmp_path / ".agent/policy.toml"
    policy.write_text("# a comment\n[[rule]]\nnonsense = 1\n", encoding="utf-8")
    content = preview_folder(str(tmp_path), os.environ, load_trust(state_dir))
    assert [entry.name for entry in content.catalog] == ["csv-report"]
    [problem] = content.effect.problems
    assert "nonsense" in problem and not content.effect.settings and not content.effect.rules
    give_trust(state_dir, content)
    assert load_trust(state_dir).trusts_folder(str(tmp_path / ".agent"))
    with pytest.raises(ConfigError) as refused:
        revoke_trust(state_dir, str(tmp_path / ".agent"))
    assert f"trusted through {tmp_path}" in (refused.value.hint or "")
    revoke_trust(state_dir, str(tmp_path))
    assert not load_trust(state_dir).folders and not load_trust(state_dir).has_made(str(tmp_path))


def test_reports_about_a_library(tmp_path: Path) -> None:
    write_skill("csv-report", str(tmp_path / "skills"))
    environ = {**os.environ, "PROWESS_TRUST": "0"}
    flags = {"store": "postgresql://me:secret@db/x"}
    with open_runtime(cwd=str(tmp_path), environ=environ, roots=["skills"], flags=flags) as runtime:
        [entry] = runtime.catalog
        document = inspect_skill(runtime, entry)
        assert document["why"]["in_prompt"] == "shown" and document["skill"]["files"][0]["path"] == "SKILL.md"
        [row] = count_skills(runtime, [entry], get_counter(False))
        fixed = count_fixed(runtime, get_counter(False))
        assert row.body and row.body > row.catalog > 0 and fixed["lean"].tokens < fixed["full"].tokens
        [store] = [each for each in find_settings(runtime) if each.name == "store"]
        assert "secret" not in store.value and store.origin == "flag"
        assert find_environment(runtime)["PROWESS_TRUST"] == "0"
        assert examine(runtime)["catalog"]["shown"] == 1
        assert asyncio.run(examine_isolation(runtime))["configured"] == "auto"
    reports = list(check([str(tmp_path / "skills")]))
    assert len(render_sarif(reports, str(tmp_path))["runs"]) == 1


@pytest.mark.parametrize(
    ("tool", "words", "wanted"),
    [
        ("Bash", ["FOO=1 ls"], {"command": "FOO=1 ls"}),
        ("write_file", ["out/a.md", "content=x"], {"path": "out/a.md", "content": "x"}),
        ("skill_run", ['{"skill": "demo"}'], {"skill": "demo"}),
    ],
)
def test_words_become_arguments(tool: str, words: list[str], wanted: dict[str, Any]) -> None:
    assert parse_words(tool, words) == wanted
