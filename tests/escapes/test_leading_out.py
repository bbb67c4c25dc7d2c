"""A name is checked before it becomes a path, and no path leads out of the workspace. Cases 60 and 61."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prowess
from escapes.doors import OUTSIDE
from escapes.opened import KINDS, Opened
from prowess.core.ports import Executor
from prowess.errors import WorkspaceError
from prowess.workspace.inputs import Input, InputPlaces, stage_input
from prowess.workspace.layout import Layout, resolve_cwd, safe_name


@pytest.mark.parametrize("kind", KINDS)
def test_case_60_a_skill_that_calls_itself_so_runs_under_another_name(
    kind: str, go: Any, folder: Path, tmp_path: Path, make_skill: Callable[..., Path]
) -> None:
    make_skill(tmp_path / "library" / "x", name="../../x", files={"scripts/a.sh": "echo $SKILL_DIR\n"})
    found = [skill.name for skill in prowess.discover(tmp_path / "library")]
    name = safe_name("../../x")
    assert "/" not in name and ".." not in name and found in ([], ["../../x"], ["x"])

    async def story(executor: Executor) -> None:
        async with Opened(executor, folder, name) as opened:
            out = bytearray()
            await opened.workspace.run(opened.program("sh", "-c", "echo $SKILL_DIR; ls $SKILL_DIR"), out.extend)
            assert out.decode().splitlines()[0] == opened.layout.seen(f"skills/{name}")
            assert b"SKILL.md" in out

    go(kind, story)


@pytest.mark.parametrize(
    "text", [*OUTSIDE, "$WORK_DIR/../..", "${OUTPUT_DIR}/../../x", "$HOME", "/workspace/../etc", "$WORK_DIR\0"]
)
def test_case_61_nor_does_the_one_that_a_model_writes(text: str) -> None:
    layout = Layout("/host/ws", "/workspace")
    try:
        led = resolve_cwd(text, layout, skill="plain", run="r")
    except WorkspaceError:
        return
    assert not led.startswith("/") and ".." not in led.split("/") and led.startswith("skills/plain")


@pytest.mark.parametrize(
    "to",
    [
        *("../x", "/etc/x", "work/../../x", "out/../../x", "skills/plain/SKILL.md", "runs/x", "work", "out", ".", ""),
        *("work/link/x", "inputs/../../x", "$WORK_DIR/../../x", "${WORK_DIR}/../skills/x", "workspace://../x"),
        *("workspace:///etc/x", "$WORKSPACE_DIR/skills/x", "work/a\0b", "$HOME/x", "work//../..//x"),
    ],
)
def test_case_61_no_input_goes_anywhere_but_to_work_and_out(to: str, tmp_path: Path) -> None:
    for name in ("ws/work/inputs", "ws/out", "ws/skills/plain", "ws/runs", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws" / "work" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "given").write_text("given", encoding="utf-8")
    layout = Layout(str(tmp_path / "ws"), "/workspace")
    before = {
        path for path in tmp_path.rglob("*") if not str(path).startswith((f"{tmp_path}/ws/work", f"{tmp_path}/ws/out"))
    }
    try:
        staged = stage_input(Input(f"host://{tmp_path}/given", to), InputPlaces(layout, host_roots=[str(tmp_path)]))
        assert staged.to.startswith(("work/", "out/")) and (tmp_path / "ws" / staged.to).read_text() == "given"
    except (WorkspaceError, ValueError):  # the second for a NUL, which Python itself refuses
        pass
    after = {
        path for path in tmp_path.rglob("*") if not str(path).startswith((f"{tmp_path}/ws/work", f"{tmp_path}/ws/out"))
    }
    assert after == before and not list((tmp_path / "outside").iterdir())


def test_case_61_nothing_outside_the_allowed_folders_is_an_input(tmp_path: Path) -> None:
    for name in ("ws/work/inputs", "allowed", "secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "secret" / "key").write_text("key", encoding="utf-8")
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "allowed" / "file").write_text("x", encoding="utf-8")
    (tmp_path / "ws" / "work" / "link").symlink_to(tmp_path / "secret")
    places = InputPlaces(Layout(str(tmp_path / "ws"), "/workspace"), host_roots=[str(tmp_path / "allowed")])
    for source in (
        *(
            f"host://{tmp_path}/secret/key",
            f"host://{tmp_path}/allowed/link/key",
            f"host://{tmp_path}/allowed/../secret/key",
        ),
        *("host:///etc/passwd", "host://etc/passwd", "workspace://../secret/key", "workspace://work/link/key"),
        *("file:///etc/passwd", "/etc/passwd", "workspace:///etc/passwd", f"host://{tmp_path}/allowedx/../secret/key"),
    ):
        with pytest.raises(WorkspaceError):
            stage_input(Input(source, "work/inputs/got"), places)
        assert not (tmp_path / "ws" / "work" / "inputs" / "got").exists()
    assert stage_input(Input(f"host://{tmp_path}/allowed/file"), places).size_bytes == 1
