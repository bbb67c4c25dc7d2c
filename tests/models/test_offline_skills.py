"""The offline planner on 20 skills whose authors had its docs page, and not its code."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents import open_session
from kits import yes
from prowess.core.events import Envelope
from prowess.models.offline.model import OfflineModel

FOLDER = Path(__file__).parents[1] / "fixtures" / "offline"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("offline") / "skills"
    shutil.copytree(FOLDER, root, ignore=shutil.ignore_patterns("cases.json"))
    return root


def play(library: Path, case: dict[str, Any], folder: Path) -> tuple[Any, list[Envelope], Path]:
    files = []
    for name, content in case.get("files", {}).items():
        path = folder / "given" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        files.append((str(path), f"work/inputs/{name}"))
    events: list[Envelope] = []
    out = folder / "outputs"

    async def work() -> Any:
        async with open_session(library, OfflineModel(), on_event=(events.append,), approver=yes) as session:
            result = await session.run(case["request"], files=files)
            if session.kit.work.root and (Path(session.kit.work.root) / "out").is_dir():
                shutil.copytree(Path(session.kit.work.root) / "out", out)
            return result

    return asyncio.run(work()), events, out


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case['skill']}" for n, case in enumerate(CASES)])
def test_a_request_that_a_person_would_write(library: Path, tmp_path: Path, case: dict[str, Any]) -> None:
    result, events, out = play(library, case, tmp_path)
    loaded = [e.event.name for e in events if e.event.type == "skill_loaded"]
    ran = [
        e.event.call.args.get("command")
        for e in events
        if e.event.type == "call_planned" and e.event.call.tool == "skill_run"
    ]
    assert loaded == ([] if case["skill"] is None else [case["skill"]]), f"{loaded} {ran}\n{result.text}"
    if "no_run" in case:
        assert ran == [], result.text
    else:
        assert len(ran) == 1, result.text
    if "stdout" in case:
        assert case["stdout"] in result.text, ran
    for name, text in case.get("output", {}).items():
        assert text in (out / name.removeprefix("out/")).read_text(encoding="utf-8"), ran


def test_there_are_enough_of_them() -> None:
    assert len([path for path in FOLDER.iterdir() if (path / "SKILL.md").exists()]) == 20
    assert len(CASES) >= 45
